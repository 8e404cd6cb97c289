/* Ranks of one job that hand an array to each other in C: the first so many write rows of it, the others get columns.
 *
 *     coupled WRITERS [BASE]
 *
 * With BASE, nodes have a memory each below this folder, called by its first rank, as those of a lab are one machine. */
#include "stead_mpi.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ROWS = 12, COLUMNS = 30, STEPS = 4 };

#define MUST(call)                                                                                      \
    do {                                                                                                \
        if ((call) != STEAD_OK) {                                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, stead_last_message());                   \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                               \
        }                                                                                               \
    } while (0)

static const char *const more[] = {"memory=/dev/shm"};

static double value(uint64_t step, uint64_t y, uint64_t x) {
    return 1e6 * (double)step + 1000.0 * (double)y + (double)x;
}

static void wrong(const char *what) {
    fprintf(stderr, "wrong: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void writes(const stead_coupling *part) {
    const uint64_t rank = stead_coupling_rank(part), ranks = stead_coupling_ranks(part);
    const uint64_t first = ROWS * rank / ranks, shape[] = {ROWS, COLUMNS}, start[] = {first, 0};
    const uint64_t count[] = {ROWS * (rank + 1) / ranks - first, COLUMNS};
    stead_stream_writer_options o = {0};
    stead_stream_writer *w = NULL;
    double rows[ROWS * COLUMNS];
    uint64_t step, y, x;
    uint32_t t = 0;
    o.size = sizeof o;
    o.readers = 1;
    o.timeout_ms = 60000;
    o.coupling = part;
    o.dataspaces = more;
    o.dataspaces_count = 1;
    if (stead_stream_writer_open("coupled", &o, &w, NULL) != STEAD_USAGE) wrong("a memory beside that of the coupling");
    if (!strstr(stead_last_message(), "those of the coupling")) wrong("another error");
    o.dataspaces_count = 0;
    MUST(stead_stream_writer_open("coupled", &o, &w, NULL));
    MUST(stead_stream_writer_define(w, "T", STEAD_F64, 2, shape, NULL, &t, NULL));
    for (step = 0; step < STEPS; step++) {
        for (y = 0; y < count[0]; y++)
            for (x = 0; x < COLUMNS; x++) rows[y * COLUMNS + x] = value(step, first + y, x);
        MUST(stead_stream_writer_begin(w, NULL, NULL));
        MUST(stead_stream_writer_put(w, t, start, count, rows, NULL));
        MUST(stead_stream_writer_end(w, NULL));
    }
    MUST(stead_stream_writer_close(w, NULL));
}

static void reads(const stead_coupling *part) {
    const uint64_t rank = stead_coupling_rank(part), ranks = stead_coupling_ranks(part);
    const uint64_t first = COLUMNS * rank / ranks, start[] = {0, first};
    const uint64_t count[] = {ROWS, COLUMNS * (rank + 1) / ranks - first};
    stead_stream_reader_options o = {0};
    stead_stream_reader *r = NULL;
    stead_stream_step *step = NULL;
    double columns[ROWS * COLUMNS];
    uint64_t n, y, x;
    o.size = sizeof o;
    o.timeout_ms = 60000;
    o.rank = rank;
    o.ranks = ranks;
    o.coupling = part;
    o.dataspaces = more;
    o.dataspaces_count = 1;
    if (stead_stream_reader_open("coupled", &o, &r, NULL) != STEAD_USAGE) wrong("a memory beside that of the coupling");
    if (!strstr(stead_last_message(), "those of the coupling")) wrong("another error");
    o.dataspaces_count = 0;
    MUST(stead_stream_reader_open("coupled", &o, &r, NULL));
    for (n = 0; n < STEPS; n++) {
        MUST(stead_stream_reader_next(r, &step, NULL));
        if (step == NULL || stead_stream_step_number(step) != n) wrong("another step");
        MUST(stead_stream_step_get_into(step, "T", start, count, columns, ROWS * count[1] * sizeof *columns, NULL));
        for (y = 0; y < ROWS; y++)
            for (x = 0; x < count[1]; x++)
                if (columns[y * count[1] + x] != value(n, y, first + x)) wrong("an element");
        stead_stream_step_free(step);
    }
    MUST(stead_stream_reader_next(r, &step, NULL));
    if (step != NULL) wrong("a step too many");
    stead_stream_reader_free(r);
}

int main(int argc, char **argv) {
    char given[4096];
    const char *spaces[] = {given};
    stead_coupling *part = NULL;
    MPI_Comm node, own;
    int level, rank, first, ranks, one = 1, all = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 2 || level != MPI_THREAD_MULTIPLE) MPI_Abort(MPI_COMM_WORLD, 2);
    const char *name = rank < atoi(argv[1]) ? "sim" : "analysis";
    if (argc > 2) {
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
        MPI_Allreduce(&rank, &first, 1, MPI_INT, MPI_MIN, node);
        MPI_Comm_free(&node);
        snprintf(given, sizeof given, "memory=%s/%d", argv[2], first);
        /* Hosts of a lab have a /dev/shm of their own. */
        mkdir(argv[2], 0700);
        mkdir(strchr(given, '=') + 1, 0700);
        MUST(stead_coupling_new(stead_mpi_make, &(MPI_Comm){MPI_COMM_WORLD}, name, spaces, 1, 60000, &part, NULL));
    } else {
        MUST(stead_mpi_coupling(MPI_COMM_WORLD, name, 0, &part, NULL));
    }
    if (stead_mpi_part(MPI_COMM_WORLD, part, &own) != MPI_SUCCESS) wrong("no communicator");
    MPI_Comm_size(own, &ranks);
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, own);
    if ((uint64_t)ranks != stead_coupling_ranks(part) || all != ranks) wrong("the ranks of a part");
    if (stead_coupling_part(part) != (strcmp(name, "sim") == 0)) wrong("the number of a part");
    if (stead_coupling_member(part, stead_coupling_rank(part)) != (uint64_t)rank) wrong("which rank of all it is");
    if (stead_coupling_member(part, (uint64_t)ranks) != 0) wrong("a rank that the part has not");
    if (strcmp(name, "sim") == 0) writes(part);
    else reads(part);
    stead_coupling_free(part);
    MPI_Comm_free(&own);
    printf("right %d\n", rank);
    MPI_Finalize();
    return 0;
}
