// A file that every rank of a node reads whole, where blocks are in memory and not in the page cache.
//
//   mpirun -n 4 same FILE RUNS [MEMORY]
//
// "shared memory": views through a session, of blocks that ranks of the node share; "messages": the same where they cannot,
// as the system grants no such memory; "pread by each rank": without a session, each reads all of it by itself.
// MEMORY is that of the node for blocks, in MiB.
#include <sys/resource.h>

#include "ways.h"

enum { PIECE = 1 << 20 };

static uint64_t memory;

static size_t piece(uint64_t at) { return (size_t)(size - at < PIECE ? size - at : PIECE); }

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
        need(!stead_read_view(session, at, piece(at), &view, NULL));
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
    const int fd = open_plainly(path);
    uint64_t sum = 0;
    char *buffer = malloc(PIECE);
    for (uint64_t at = 0; at < size; at += PIECE) sum += add_plainly(fd, at, buffer, piece(at));
    free(buffer);
    close(fd);
    from_file = size;
    return sum;
}

int main(int argc, char **argv) {
    static const struct way ways[] = {
        {"shared memory", sessions}, {"messages", messages}, {"pread by each rank", pread_all}};
    begin(&argc, &argv, 3, "usage: same FILE RUNS [MEMORY]");
    memory = argc > 3 ? strtoull(argv[3], NULL, 10) << 20 : 0;
    measure(ways, sizeof ways / sizeof *ways, argv[1], atoi(argv[2]));
    MPI_Finalize();
    return 0;
}
