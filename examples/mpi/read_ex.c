/*
 * Ranks that compute ask ranks that are where the data are: only sums cross the network, not the file.
 *
 *   mpicc read_ex.c $(pkg-config --cflags --libs stead_mpi_io) -o read_ex
 *   mpirun -n 6 --host compute1:4,node1,node2 ./read_ex FILE 'node[1-2]'
 *
 * FILE is of doubles. Without the names of storage hosts, or on a laptop, each rank computes what it asks for itself.
 */
#include <stdio.h>
#include <stead_mpi_io.h>

int main(int argc, char **argv) {
    int level, rank, ranks;
    /* stead talks to other ranks from a thread of its own. */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);

    MPI_Info hints;
    MPI_Info_create(&hints);
    if (argc > 2) MPI_Info_set(hints, "storage_hosts", argv[2]);
    MPI_Comm compute;
    if (stead_MPI_Storage_init(MPI_COMM_WORLD, hints, &compute)) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Info_free(&hints);
    if (compute == MPI_COMM_NULL) { /* a storage rank, when all others are done */
        MPI_Finalize();
        return 0;
    }
    MPI_Comm_rank(compute, &rank);
    MPI_Comm_size(compute, &ranks);

    /* Blocks of 1024 doubles are dealt to the ranks: this one sees every block that is its own. */
    enum { BLOCK = 1024 };
    MPI_File file;
    MPI_Datatype block, mine;
    MPI_Offset bytes;
    if (MPI_File_open(compute, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file)) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_File_get_size(file, &bytes);
    MPI_Type_contiguous(BLOCK, MPI_DOUBLE, &block);
    MPI_Type_create_resized(block, 0, (MPI_Aint)(ranks * BLOCK * (int)sizeof(double)), &mine);
    MPI_Type_commit(&mine);
    MPI_File_set_view(file, (MPI_Offset)(rank * BLOCK) * (MPI_Offset)sizeof(double), MPI_DOUBLE, mine, "native", MPI_INFO_NULL);

    /* Where MPI_File_read_all would bring all numbers, this brings their sum: 0 elements if none are this rank's. */
    double sum = 0, total = 0;
    MPI_Status status;
    if (stead_MPI_File_read_ex_all(file, &sum, bytes / (MPI_Offset)sizeof(double), MPI_DOUBLE, "sum", MPI_INFO_NULL, &status)) {
        fprintf(stderr, "%s\n", stead_MPI_Error_text());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Reduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, 0, compute);
    if (rank == 0) printf("sum: %.17g\n", total);

    MPI_File_close(&file);
    MPI_Type_free(&block);
    MPI_Type_free(&mine);
    MPI_Comm_free(&compute);
    stead_MPI_Storage_finalize();
    MPI_Finalize();
    return 0;
}
