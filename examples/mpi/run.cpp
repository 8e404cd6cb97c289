// All ranks of an MPI job run kernels over files that they all see: each takes a share of the bytes, and all get the results.
//
//   mpicxx -std=c++17 run.cpp $(pkg-config --cflags --libs stead_mpi) -o run && mpirun -n 4 ./run FILE KERNEL...
#include <iostream>
#include <stead_mpi.hpp>

int main(int argc, char **argv) {
    int level, rank;
    // stead answers other ranks from a thread of its own.
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int failed = 0;
    try {
        stead::request request;
        for (int i = 2; i < argc; i++) request.kernel(argv[i]);
        // This one is collective.
        const stead::report report = stead::run(MPI_COMM_WORLD, argv[1], request);
        if (rank == 0) std::cout << report.json() << '\n';
    } catch (const stead::error &e) {
        if (rank == 0) std::cerr << e.what() << '\n';
        failed = 1;
    }
    MPI_Finalize();
    return failed;
}
