/* A tool that stands before MPI as libstead_mpi_io does, by the profiling interface: it counts what is opened and closed. */
#include <mpi.h>
#include <stdio.h>

static int opened, closed;

int MPI_File_open(MPI_Comm communicator, const char *name, int mode, MPI_Info info, MPI_File *file) {
    opened++;
    return PMPI_File_open(communicator, name, mode, info, file);
}

int MPI_File_close(MPI_File *file) {
    closed++;
    return PMPI_File_close(file);
}

int MPI_Finalize(void) {
    printf("opened %d closed %d\n", opened, closed);
    return PMPI_Finalize();
}
