/* A queue with a read that waits, in a program that waits for its descriptor: idle PATH SECONDS. Prints the processor's
 * time that passed, in microseconds. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <stead.h>

int main(int argc, char **argv) {
    stead_read_options options = {0};
    stead_file *file = NULL;
    stead_session *s = NULL;
    stead_queue *q = NULL;
    stead_view held[4];
    stead_completion c;
    struct pollfd watched;
    clock_t before;
    int i;
    if (argc < 3) return 2;
    options.size = sizeof options;
    options.block = 65536;
    options.memory = 4 * 65536;
    options.flags = STEAD_READ_PREAD | STEAD_READ_ON_DEMAND;
    if (stead_file_open(argv[1], &options, &file, NULL) || stead_session_start(file, 0, STEAD_TO_END, &s, NULL)) return 3;
    for (i = 0; i < 4; i++)
        if (stead_read_view(s, (uint64_t)i * 65536, 10, &held[i], NULL)) return 4;
    if (stead_queue_new(&q, NULL) || stead_queue_read(q, s, 9 * 65536, 10, NULL, NULL)) return 5;
    watched.fd = stead_queue_fd(q);
    watched.events = POLLIN;
    before = clock();
    if (poll(&watched, 1, (int)(1000 * atof(argv[2]))) != 0) return 6;
    printf("%ld\n", (long)((clock() - before) * 1e6 / CLOCKS_PER_SEC));
    for (i = 0; i < 4; i++) stead_view_release(&held[i]);
    if (!stead_queue_next(q, 60000, &c) || c.error || c.view.size != 10) return 7;
    stead_view_release(&c.view);
    stead_queue_free(q);
    stead_session_close(s, NULL);
    stead_file_close(file, NULL);
    return 0;
}
