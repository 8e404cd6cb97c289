// All ranks of an MPI job read one file together: each byte comes from the file system once, whichever rank asks.
//
//   mpicxx -std=c++17 read.cpp $(pkg-config --cflags --libs stead_mpi) -o read && mpirun -n 4 ./read FILE
#include <iostream>
#include <numeric>
#include <stead_mpi.hpp>

static void sum(const char *path) {
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    // These two are collective.
    stead::File file = stead::open(MPI_COMM_WORLD, path);
    stead::ReadSession session = file.session();
    // Reads are not: any rank, any thread, any range, at any time. The last rank takes what is left over, too.
    const std::uint64_t share = file.size() / ranks, first = share * rank;
    const std::uint64_t size = rank == ranks - 1 ? file.size() - first : share;
    const stead::view part = session.read(first, size).get();
    const auto *bytes = reinterpret_cast<const unsigned char *>(part.data());
    const long mine = std::accumulate(bytes, bytes + part.size(), 0L);
    long total = 0;
    MPI_Reduce(&mine, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) std::cout << "sum of the bytes: " << total << '\n';
}

int main(int argc, char **argv) {
    int level;
    // stead answers other ranks from a thread of its own.
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    try {
        sum(argv[1]);
    } catch (const stead::error &e) {
        std::cerr << e.what() << '\n';
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
}
