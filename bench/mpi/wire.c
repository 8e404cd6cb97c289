// What large messages of plain MPI reach: the most that whoever uses MPI can.
//
//   mpirun -n N wire BYTES BLOCK FLIGHT
//
// Each rank of the first half sends BYTES to one of the second half, in messages of BLOCK bytes of which FLIGHT are under way, and MPI is asked
// for no threads. Prints the seconds of each of three runs, an object a line; of several pairs, those of the last one to end.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 4 || size % 2) MPI_Abort(MPI_COMM_WORLD, 2);
    const long bytes = atol(argv[1]), block = atol(argv[2]);
    const int flight = atoi(argv[3]), half = size / 2, sends = rank < half, other = (rank + half) % size;
    if (bytes < 1 || block < 1 || block > 1 << 30 || flight < 1 || flight > 1024) MPI_Abort(MPI_COMM_WORLD, 2);
    char *memory = malloc((size_t)block * (size_t)flight);
    MPI_Request *flying = malloc(sizeof *flying * (size_t)flight);
    if (!memory || !flying) MPI_Abort(MPI_COMM_WORLD, 3);
    memset(memory, rank, (size_t)block * (size_t)flight);
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i < flight; i++) flying[i] = MPI_REQUEST_NULL;
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        int turn = 0;
        for (long at = 0; at < bytes; at += block, turn = (turn + 1) % flight) {
            const int length = (int)(bytes - at < block ? bytes - at : block);
            char *mine = memory + (size_t)turn * (size_t)block;
            MPI_Wait(&flying[turn], MPI_STATUS_IGNORE);
            if (sends) MPI_Isend(mine, length, MPI_BYTE, other, 0, MPI_COMM_WORLD, &flying[turn]);
            else MPI_Irecv(mine, length, MPI_BYTE, other, 0, MPI_COMM_WORLD, &flying[turn]);
        }
        MPI_Waitall(flight, flying, MPI_STATUSES_IGNORE);
        double took = MPI_Wtime() - begin, longest = 0;
        MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (!rank) printf("{\"seconds\": %.6f}\n", longest);
    }
    free(memory);
    free(flying);
    MPI_Finalize();
    return 0;
}
