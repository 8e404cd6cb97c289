// Ranks that compute ask ranks that are where the data are, in C++: the lines of a log that match a pattern.
//
//   mpicxx -std=c++17 read_ex.cpp $(pkg-config --cflags --libs stead_mpi_io) -o read_ex
//   mpirun -n 3 --host compute1,node1,node2 ./read_ex FILE PATTERN 'node[1-2]'
//
// Without the names of storage hosts, or on a laptop, each rank computes what it asks for itself.
#include <cstdint>
#include <iostream>
#include <stead_mpi_io.hpp>

int main(int argc, char **argv) {
    int level, rank;
    // stead talks to other ranks from a thread of its own.
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    {
        stead::hints hosts;
        if (argc > 3) hosts["storage_hosts"] = argv[3];
        const stead::storage storage(MPI_COMM_WORLD, hosts);
        if (storage.compute() != MPI_COMM_NULL) {
            MPI_File file;
            MPI_Offset bytes;
            MPI_Comm_rank(storage.compute(), &rank);
            if (MPI_File_open(storage.compute(), argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file)) MPI_Abort(MPI_COMM_WORLD, 1);
            MPI_File_get_size(file, &bytes);
            try {
                const auto found = stead::read_ex<std::int64_t>(file, bytes, MPI_CHAR, "grep", 1, {{"pattern", argv[2]}});
                if (rank == 0) std::cout << "lines: " << (found.empty() ? 0 : found[0]) << '\n';
            } catch (const stead::mpi_error &e) {
                std::cerr << e.what() << '\n';
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
            MPI_File_close(&file);
        }
    }
    MPI_Finalize();
    return 0;
}
