// What programs of this folder share that read a file in several ways and compare them.
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <stead_mpi.h>

enum { MOST_RUNS = 64, MOST_WAYS = 8 };

static int rank, ranks;
static uint64_t size;
// Bytes that this rank has read from the file, where a way counts them.
static uint64_t from_file;

struct way {
    const char *name;
    uint64_t (*work)(const char *path);
};

static void stop(const char *what) {
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void need(int ok) {
    if (!ok) stop(stead_last_message());
}

static uint64_t add(const void *bytes, size_t length) {
    const char *at = bytes;
    uint64_t sum = 0, word;
    for (size_t i = 0; i + 8 <= length; i += 8) {
        memcpy(&word, at + i, 8);
        sum += word;
    }
    return sum;
}

static int open_plainly(const char *path) {
    const int fd = open(path, O_RDONLY);
    if (fd < 0) stop("cannot open the file");
    return fd;
}

// Reads a piece without a session, and adds it up.
static uint64_t add_plainly(int fd, uint64_t at, char *buffer, size_t length) {
    for (size_t got = 0; got < length;) {
        const ssize_t n = pread(fd, buffer + got, length - got, (off_t)(at + got));
        if (n <= 0) stop("pread");
        got += (size_t)n;
    }
    return add(buffer, length);
}

// Begins MPI, and looks at the file.
static void begin(int *argc, char ***argv, int least, const char *usage) {
    int level;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (*argc < least) stop(usage);
    const int fd = open_plainly((*argv)[1]);
    size = (uint64_t)lseek(fd, 0, SEEK_END);
    close(fd);
}

// Processor seconds of this rank, those in which it waits for others and looks again and again among them.
static double processor(void) {
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used)) stop("getrusage");
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void list(const char *name, const double *values, int count, const char *end) {
    printf("\"%s\": [", name);
    for (int i = 0; i < count; i++) printf("%s%.6f", i ? ", " : "", values[i]);
    printf("]%s", end);
}

// Goes all ways in turn, so often. Rank 0 prints a line of JSON for each: seconds of each run (of the slowest rank), processor
// seconds of all ranks, the sum of all words, and the bytes that all ranks together have read from the file, where that is counted.
static void measure(const struct way *ways, int count, const char *path, int runs) {
    static double seconds[MOST_WAYS][MOST_RUNS], used[MOST_WAYS][MOST_RUNS];
    uint64_t sums[MOST_WAYS], bytes[MOST_WAYS];
    if (count > MOST_WAYS) stop("too many ways");
    if (runs > MOST_RUNS) runs = MOST_RUNS;
    for (int run = 0; run < runs; run++) {
        for (int way = 0; way < count; way++) {
            from_file = 0;
            MPI_Barrier(MPI_COMM_WORLD);
            const double started = MPI_Wtime(), before = processor();
            const uint64_t sum = ways[way].work(path);
            double took = MPI_Wtime() - started;
            const double mine = processor() - before;
            MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            MPI_Allreduce(&mine, &used[way][run], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            MPI_Allreduce(&sum, &sums[way], 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
            MPI_Allreduce(&from_file, &bytes[way], 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
            seconds[way][run] = took;
        }
    }
    for (int way = 0; rank == 0 && way < count; way++) {
        printf("{\"way\": \"%s\", \"sum\": %" PRIu64 ", \"bytes\": %" PRIu64 ", ", ways[way].name, sums[way], bytes[way]);
        list("seconds", seconds[way], runs, ", ");
        list("processor", used[way], runs, "}\n");
    }
}
