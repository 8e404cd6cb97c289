/*
 * All ranks of an MPI job run kernels over files that they all see, or over a layout: each takes a share of the bytes, and all get
 * the results.
 *
 *   mpicc run.c $(pkg-config --cflags --libs stead_mpi) -o run && mpirun -n 4 ./run FILE KERNEL...
 */
#include <stdio.h>
#include <stead_mpi.h>

int main(int argc, char **argv) {
    int level, rank;
    /* stead answers other ranks from a thread of its own. */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);

    stead_dataset *data = NULL;
    stead_request *request = NULL;
    stead_report *report = NULL;
    const char *paths[] = {argv[1]};
    stead_request_new(&request, NULL);
    for (int i = 2; i < argc; i++) stead_request_kernel(request, argv[i], NULL);
    /* Both are collective, and what fails on one rank fails on all. */
    if (stead_mpi_open(MPI_COMM_WORLD, paths, 1, NULL, &data, NULL) ||
        stead_mpi_run(MPI_COMM_WORLD, data, request, &report, NULL)) {
        if (rank == 0) fprintf(stderr, "%s\n", stead_last_message());
    } else if (rank == 0) {
        puts(stead_report_json(report));
    }
    int failed = report == NULL;
    stead_report_free(report);
    stead_request_free(request);
    stead_dataset_free(data);
    MPI_Finalize();
    return failed;
}
