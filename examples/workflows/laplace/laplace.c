/* The temperature of a plate whose upper edge is hot, by Jacobi's method: each rank has SIZE rows of SIZE columns. After so many SWEEPS
   others have the field, in the memory in which the last of them has laid it down: laplace SIZE STEPS SWEEPS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <stead.h>

static void must(stead_status status) {
    if (status == STEAD_OK) return;
    fprintf(stderr, "%s\n", stead_last_message());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Rows from 1 to n of the next field, of columns from 1 to n, and the same to `out`, which has no edges, unless it is NULL. */
static void sweep(const double *u, double *next, double *out, size_t n) {
    const size_t wide = n + 2;
    for (size_t y = 1; y <= n; y++)
        for (size_t x = 1; x <= n; x++) {
            const double *at = u + y * wide + x;
            const double mean = 0.25 * (at[-wide] + at[wide] + at[-1] + at[1]);
            next[y * wide + x] = mean;
            if (out != NULL) out[(y - 1) * n + x - 1] = mean;
        }
}

/* The outermost rows of neighbours. */
static void exchange(double *u, size_t n, int rank, int ranks) {
    const size_t wide = n + 2;
    const int above = rank > 0 ? rank - 1 : MPI_PROC_NULL, below = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(u + wide, (int)wide, MPI_DOUBLE, above, 0, u + (n + 1) * wide, (int)wide, MPI_DOUBLE, below, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(u + n * wide, (int)wide, MPI_DOUBLE, below, 1, u, (int)wide, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    stead_stream_writer_options options = {0};
    stead_stream_writer *writer = NULL;
    const char *dims[] = {"y", "x"};
    uint32_t field = 0;
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 4) MPI_Abort(MPI_COMM_WORLD, 2);
    const size_t n = strtoull(argv[1], NULL, 10), steps = strtoull(argv[2], NULL, 10), sweeps = strtoull(argv[3], NULL, 10);
    double *u = calloc((n + 2) * (n + 2), sizeof *u), *next = calloc((n + 2) * (n + 2), sizeof *next), *swap;
    if (u == NULL || next == NULL || sweeps == 0) MPI_Abort(MPI_COMM_WORLD, 2);
    for (size_t x = 0; rank == 0 && x < n + 2; x++) u[x] = next[x] = 100;

    options.size = sizeof options;
    options.rank = (uint64_t)rank;
    options.writers = (uint64_t)ranks;
    options.readers = 1;
    const uint64_t shape[] = {n * options.writers, n}, start[] = {n * options.rank, 0}, count[] = {n, n};
    must(stead_stream_writer_open("laplace", &options, &writer, NULL));
    must(stead_stream_writer_define(writer, "u", STEAD_F64, 2, shape, dims, &field, NULL));
    for (size_t step = 0; step < steps; step++) {
        stead_stream_room *room = NULL;
        void *memory = NULL;
        must(stead_stream_writer_begin(writer, NULL, NULL));
        must(stead_stream_writer_empty(writer, field, start, count, &memory, &room, NULL));
        for (size_t i = 1; i <= sweeps; i++) {
            exchange(u, n, rank, ranks);
            sweep(u, next, i == sweeps ? memory : NULL, n);
            swap = u, u = next, next = swap;
        }
        must(stead_stream_writer_put_room(writer, room, NULL));
        must(stead_stream_writer_end(writer, NULL));
    }
    must(stead_stream_writer_close(writer, NULL));
    free(u);
    free(next);
    MPI_Finalize();
    return 0;
}
