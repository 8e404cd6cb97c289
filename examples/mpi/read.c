/*
 * All ranks of an MPI job read one file together: each byte comes from the file system once, whichever rank asks.
 *
 *   mpicc read.c $(pkg-config --cflags --libs stead_mpi) -o read && mpirun -n 4 ./read FILE
 */
#include <stdio.h>
#include <stdlib.h>
#include <stead_mpi.h>

int main(int argc, char **argv) {
    int level, rank, ranks;
    /* stead answers other ranks from a thread of its own. */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    stead_file *file;
    stead_session *session;
    /* These two are collective. */
    if (stead_mpi_file_open(MPI_COMM_WORLD, argv[1], NULL, &file, NULL) ||
        stead_session_start(file, 0, STEAD_TO_END, &session, NULL)) {
        fprintf(stderr, "%s\n", stead_last_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    /* Reads are not: any rank, any thread, any range, at any time. */
    uint64_t size = stead_file_size(file), share = size / (uint64_t)ranks, first = share * (uint64_t)rank;
    /* The last rank takes what is left over, too. */
    uint64_t end = rank == ranks - 1 ? size : first + share;
    stead_view view;
    if (stead_read_view(session, first, end - first, &view, NULL)) {
        fprintf(stderr, "%s\n", stead_last_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    long sum = 0, total = 0;
    for (size_t i = 0; i < view.size; i++) sum += ((const unsigned char *)view.data)[i];
    stead_view_release(&view);
    MPI_Reduce(&sum, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("sum of the bytes: %ld\n", total);

    stead_session_close(session, NULL);
    stead_file_close(file, NULL);
    MPI_Finalize();
    return 0;
}
