// Sessions that are opened and closed one after the other, by the C interface: what is left of them.
//
//   many FILE SESSIONS
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <stead.h>

static void need(int ok) {
    if (ok) return;
    fprintf(stderr, "%s\n", stead_last_message());
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long resident(void) {
    long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &all, &pages) != 2) exit(1);
    fclose(f);
    return pages * 4096;
}

static void round_of(const char *path, unsigned long sessions) {
    for (unsigned long i = 0; i < sessions; i++) {
        stead_file *file;
        stead_session *session;
        stead_view view;
        need(!stead_file_open(path, NULL, &file, NULL));
        need(!stead_session_start(file, 0, STEAD_TO_END, &session, NULL));
        const uint64_t at = i * 0x9E3779B97F4A7C15u % (stead_file_size(file) - 4096);
        need(!stead_read_view(session, at, 4096, &view, NULL));
        stead_view_release(&view);
        need(!stead_session_close(session, NULL));
        need(!stead_file_close(file, NULL));
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const unsigned long sessions = strtoul(argv[2], NULL, 10);
    const struct timespec pause = {0, 800000000};
    round_of(argv[1], sessions / 10);
    nanosleep(&pause, NULL);
    const long before = resident();
    const double begin = now();
    round_of(argv[1], sessions);
    const double seconds = now() - begin;
    nanosleep(&pause, NULL);
    printf("{\"sessions\": %lu, \"seconds\": %.6f, \"resident\": [%ld, %ld]}\n", sessions, seconds, before, resident());
    return 0;
}
