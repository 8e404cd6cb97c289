// A file that every rank of a node reads whole, where blocks are in memory and not in the page cache.
//
//   mpirun -n 4 same FILE RUNS [MEMORY]
//
// "shared memory": views through a session, of blocks that ranks of the node share; "messages": the same where they cannot,
// as the system grants no such memory; "pread by each rank": without a session, each reads all of it by itself.
// MEMORY is that of the node for blocks, in MiB. Rank 0 prints a line of JSON for each way: seconds of each run (of the slowest rank), bytes that all ranks together have read
// from the file, and the sum of all words.
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <stead_mpi.h>

enum { PIECE = 1 << 20, MOST_RUNS = 64 };

static int rank;
static uint64_t size, from_file, memory;

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

static uint64_t sessions(const char *path) {
    stead_file *file;
    stead_session *session;
    stead_read_options options = {0};
    stead_read_counts counts;
    options.size = sizeof options;
    options.flags = STEAD_READ_PREAD;
    options.memory = memory;
    need(!stead_mpi_file_open(MPI_COMM_WORLD, path, &options, &file, NULL));
    need(!stead_session_start(file, 0, STEAD_TO_END, &session, NULL));
    uint64_t sum = 0;
    for (uint64_t at = 0; at < size; at += PIECE) {
        stead_view view;
        need(!stead_read_view(session, at, size - at < PIECE ? size - at : PIECE, &view, NULL));
        sum += add(view.data, view.size);
        stead_view_release(&view);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    need(!stead_file_counts(file, &counts, sizeof counts, NULL));
    from_file = counts.bytes;
    need(!stead_session_close(session, NULL));
    need(!stead_file_close(file, NULL));
    return sum;
}

static uint64_t messages(const char *path) {
    // Memory that is shared is a file to the system, and such large ones may not be made now.
    struct rlimit before, now;
    if (getrlimit(RLIMIT_FSIZE, &before)) stop("getrlimit");
    now = (struct rlimit){4 << 20, before.rlim_max};
    if (setrlimit(RLIMIT_FSIZE, &now)) stop("setrlimit");
    const uint64_t sum = sessions(path);
    if (setrlimit(RLIMIT_FSIZE, &before)) stop("setrlimit");
    return sum;
}

static uint64_t pread_all(const char *path) {
    const int fd = open(path, O_RDONLY);
    if (fd < 0) stop("cannot open the file");
    uint64_t sum = 0;
    char *buffer = malloc(PIECE);
    for (uint64_t at = 0; at < size; at += PIECE) {
        const size_t length = size - at < PIECE ? size - at : PIECE;
        for (size_t got = 0; got < length;) {
            const ssize_t n = pread(fd, buffer + got, length - got, (off_t)(at + got));
            if (n <= 0) stop("pread");
            got += (size_t)n;
        }
        sum += add(buffer, length);
    }
    free(buffer);
    close(fd);
    from_file = size;
    return sum;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        uint64_t (*work)(const char *);
    } ways[] = {{"shared memory", sessions}, {"messages", messages}, {"pread by each rank", pread_all}};
    enum { WAYS = sizeof ways / sizeof *ways };
    static double seconds[WAYS][MOST_RUNS];
    uint64_t sums[WAYS], bytes[WAYS];
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 3) stop("usage: same FILE RUNS [MEMORY]");
    memory = argc > 3 ? strtoull(argv[3], NULL, 10) << 20 : 0;
    const int runs = atoi(argv[2]) < MOST_RUNS ? atoi(argv[2]) : MOST_RUNS;
    const int fd = open(argv[1], O_RDONLY);
    if (fd < 0) stop("cannot open the file");
    size = (uint64_t)lseek(fd, 0, SEEK_END);
    close(fd);

    for (int run = 0; run < runs; run++) {
        for (int way = 0; way < WAYS; way++) {
            MPI_Barrier(MPI_COMM_WORLD);
            const double begin = MPI_Wtime();
            const uint64_t sum = ways[way].work(argv[1]);
            double took = MPI_Wtime() - begin;
            MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            MPI_Allreduce(&sum, &sums[way], 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
            MPI_Allreduce(&from_file, &bytes[way], 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
            seconds[way][run] = took;
        }
    }
    for (int way = 0; rank == 0 && way < WAYS; way++) {
        printf("{\"way\": \"%s\", \"sum\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"seconds\": [", ways[way].name, sums[way],
               bytes[way]);
        for (int run = 0; run < runs; run++) printf("%s%.6f", run ? ", " : "", seconds[way][run]);
        printf("]}\n");
    }
    MPI_Finalize();
    return 0;
}
