/* Steps of a kilobyte, and of many variables, in C: stead's streams, and the same by hand with a futex.

   streams WHAT END FOLDER N: END is a or b. Says "ready", begins when it is told to, and prints JSON; seconds. */
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <stead.h>

enum { COUNT = 128, BYTES = 1024 };
static char space[4200];
static const char *const spaces[] = {space};
static double *took;
static long n, kept;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void must(stead_status status) {
    if (status == STEAD_OK) return;
    fprintf(stderr, "%s\n", stead_last_message());
    exit(1);
}

static void odd(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of those after the first tenth. */
static void say(void) {
    double *from = took + kept / 10;
    long m = kept - kept / 10;
    if (m < 1) {
        printf("{}\n");
        return;
    }
    qsort(from, (size_t)m, sizeof *from, by_size);
    printf("{\"median\": %.9f, \"p99\": %.9f, \"least\": %.9f}\n", from[m / 2], from[m * 99 / 100], from[0]);
}

static stead_stream_writer *writes(const char *name, uint64_t shape, uint64_t keep, uint64_t readers, uint32_t *variable) {
    stead_stream_writer_options options = {0};
    stead_stream_writer *writer = NULL;
    options.size = sizeof options;
    options.dataspaces = spaces;
    options.dataspaces_count = 1;
    options.keep = keep;
    options.readers = readers;
    must(stead_stream_writer_open(name, &options, &writer, NULL));
    if (variable) must(stead_stream_writer_define(writer, "T", STEAD_I64, 1, &shape, NULL, variable, NULL));
    return writer;
}

static stead_stream_reader *reads(const char *name) {
    stead_stream_reader_options options = {0};
    stead_stream_reader *reader = NULL;
    options.size = sizeof options;
    options.dataspaces = spaces;
    options.dataspaces_count = 1;
    must(stead_stream_reader_open(name, &options, &reader, NULL));
    return reader;
}

static void put(stead_stream_writer *writer, uint32_t variable, const int64_t *values) {
    must(stead_stream_writer_begin(writer, NULL, NULL));
    must(stead_stream_writer_put(writer, variable, NULL, NULL, values, NULL));
    must(stead_stream_writer_end(writer, NULL));
}

/* The elements of the next step; false after the last one. */
static bool get(stead_stream_reader *reader, int64_t *values) {
    uint64_t start = 0, count = COUNT;
    stead_stream_step *step = NULL;
    must(stead_stream_reader_next(reader, &step, NULL));
    if (step == NULL) return false;
    must(stead_stream_step_get_into(step, "T", &start, &count, values, BYTES, NULL));
    stead_stream_step_free(step);
    return true;
}

static void pingpong(bool first) {
    uint32_t t;
    int64_t values[COUNT] = {0}, answer[COUNT];
    stead_stream_writer *writer = writes(first ? "ping" : "pong", COUNT, 0, 0, &t);
    stead_stream_reader *reader = reads(first ? "pong" : "ping");
    for (long i = 0; i < n; i++) {
        double begun = now();
        values[5] = i;
        if (first) put(writer, t, values);
        if (!get(reader, answer) || answer[5] != i) odd("this is another step");
        if (!first) put(writer, t, values);
        took[kept++] = (now() - begun) / 2;
    }
    must(stead_stream_writer_close(writer, NULL));
    stead_stream_reader_free(reader);
}

static void oneway(bool first) {
    uint32_t t;
    int64_t values[COUNT] = {0};
    if (first) {
        stead_stream_writer *writer = writes("oneway", COUNT, 0, 1, &t);
        for (long i = 0; i < n; i++) {
            struct timespec pause = {0, 500000}, time;
            nanosleep(&pause, NULL);
            clock_gettime(CLOCK_MONOTONIC, &time);
            values[7] = time.tv_sec * 1000000000 + time.tv_nsec;
            put(writer, t, values);
        }
        must(stead_stream_writer_close(writer, NULL));
        return;
    }
    stead_stream_reader *reader = reads("oneway");
    while (get(reader, values)) took[kept++] = now() - (double)values[7] / 1e9;
    stead_stream_reader_free(reader);
}

/* Says when the reader has the first step, by the clock of the system. */
static void first_step(bool first) {
    uint32_t t;
    int64_t values[COUNT] = {0};
    if (first) {
        stead_stream_writer *writer = writes("first", COUNT, 0, 0, &t);
        put(writer, t, values);
        must(stead_stream_writer_close(writer, NULL));
        printf("{}\n");
        return;
    }
    stead_stream_reader *reader = reads("first");
    if (!get(reader, values)) odd("there is no step");
    printf("{\"at\": %.9f}\n", now());
    stead_stream_reader_free(reader);
}

/* N variables of a number each, in some steps; the reader comes when the writer has written all. */
static void many(bool first) {
    enum { STEPS = 6 };
    char (*names)[32] = calloc((size_t)n, sizeof *names);
    double begun;
    for (long i = 0; i < n; i++) snprintf(names[i], sizeof *names, "variable%06ld", i);
    if (first) {
        uint32_t *variables = calloc((size_t)n, sizeof *variables);
        stead_stream_writer *writer = writes("many", COUNT, STEPS, 0, NULL);
        for (int step = 0; step < STEPS; step++) {
            begun = now();
            for (long i = 0; step == 0 && i < n; i++)
                must(stead_stream_writer_define(writer, names[i], STEAD_I64, 0, NULL, NULL, &variables[i], NULL));
            must(stead_stream_writer_begin(writer, NULL, NULL));
            for (long i = 0; i < n; i++) {
                int64_t value = i + step;
                must(stead_stream_writer_put(writer, variables[i], NULL, NULL, &value, NULL));
            }
            must(stead_stream_writer_end(writer, NULL));
            took[kept++] = now() - begun;
        }
        must(stead_stream_writer_close(writer, NULL));
    } else {
        stead_stream_reader *reader = reads("many");
        for (int i = 0; i < STEPS; i++) {
            stead_stream_step *step = NULL;
            begun = now();
            must(stead_stream_reader_next(reader, &step, NULL));
            for (long j = 0; j < n; j++) {
                int64_t value = -1;
                must(stead_stream_step_get_into(step, names[j], NULL, NULL, &value, sizeof value, NULL));
                if (value != j + i) odd("this is another number");
            }
            stead_stream_step_free(step);
            took[kept++] = now() - begun;
        }
        stead_stream_reader_free(reader);
    }
    printf("{\"first\": %.9f, \"all\": [", took[0]);
    for (long i = 1; i < kept; i++) printf("%s%.9f", i > 1 ? ", " : "", took[i]);
    printf("]}\n");
}

/* A kilobyte in shared memory, and a number that says whose turn it is. */
struct place {
    _Atomic uint32_t turn;
    char pad[60];
    char bytes[BYTES];
};

static void wait_for(struct place *place, uint32_t turn) {
    uint32_t seen;
    while ((seen = atomic_load(&place->turn)) != turn) syscall(SYS_futex, &place->turn, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void by_hand(bool first, const char *folder) {
    char path[4200], mine[BYTES] = {0};
    snprintf(path, sizeof path, "%s/plain", folder);
    int file = open(path, O_RDWR);
    struct place *place = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *place, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (place == MAP_FAILED) odd("there is no memory");
    for (long i = 0; i < n; i++) {
        double begun = now();
        wait_for(place, (uint32_t)(2 * i + !first));
        if (!first) memcpy(mine, place->bytes, BYTES);
        else memcpy(place->bytes, mine, BYTES);
        atomic_store(&place->turn, (uint32_t)(2 * i + 1 + !first));
        syscall(SYS_futex, &place->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
        if (first) wait_for(place, (uint32_t)(2 * i + 2));
        took[kept++] = (now() - begun) / 2;
    }
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    const char *what = argv[1];
    bool first = *argv[2] == 'a';
    snprintf(space, sizeof space, "memory=%s", argv[3]);
    n = strtol(argv[4], NULL, 10);
    took = calloc((size_t)n + 16, sizeof *took);
    printf("ready\n");
    fflush(stdout);
    if (getchar() == EOF) return 2;
    if (!strcmp(what, "first")) {
        first_step(first);
        return 0;
    }
    if (!strcmp(what, "many")) {
        many(first);
        return 0;
    }
    if (!strcmp(what, "pingpong")) pingpong(first);
    else if (!strcmp(what, "oneway")) oneway(first);
    else by_hand(first, argv[3]);
    say();
    return 0;
}
