// Ranks of one job that hand an array to each other in C++: the first so many write rows of it, the others get columns.
//
//     coupled++ WRITERS
#include "stead_mpi.hpp"
#include "stead_stream.hpp"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace st = stead::stream;

constexpr std::uint64_t ROWS = 12, COLUMNS = 30, STEPS = 4;

static double value(std::uint64_t step, std::uint64_t y, std::uint64_t x) {
    return 1e6 * static_cast<double>(step) + 1000.0 * static_cast<double>(y) + static_cast<double>(x);
}

static void wrong(const std::string &what) {
    std::fprintf(stderr, "wrong: %s\n", what.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/// A memory beside that of the coupling is an error.
template <class End, class Options> static void refuses(Options how) {
    how.dataspaces = {"memory=/dev/shm"};
    try {
        End("coupled", how);
        wrong("two memories");
    } catch (const stead::error &e) {
        if (e.kind() != stead::kind::usage || std::string(e.what()).find("those of the coupling") == std::string::npos) wrong(e.what());
    }
}

static void writes(const stead_coupling *part) {
    const auto rank = stead_coupling_rank(part), ranks = stead_coupling_ranks(part);
    const auto first = ROWS * rank / ranks, rows = ROWS * (rank + 1) / ranks - first;
    st::writer_options how;
    how.readers = 1;
    how.timeout = std::chrono::seconds(60);
    how.coupling = part;
    refuses<st::writer>(how);
    st::writer out("coupled", how);
    std::vector<double> mine(rows * COLUMNS);
    for (std::uint64_t step = 0; step < STEPS; step++) {
        for (std::uint64_t y = 0; y < rows; y++)
            for (std::uint64_t x = 0; x < COLUMNS; x++) mine[y * COLUMNS + x] = value(step, first + y, x);
        out.begin();
        out.put("T", {ROWS, COLUMNS}, {first, 0}, {rows, COLUMNS}, mine.data());
        out.end();
    }
    out.close();
}

static void reads(const stead_coupling *part) {
    const auto rank = stead_coupling_rank(part), ranks = stead_coupling_ranks(part);
    const auto first = COLUMNS * rank / ranks, columns = COLUMNS * (rank + 1) / ranks - first;
    st::reader_options how;
    how.timeout = std::chrono::seconds(60);
    how.coupling = part;
    refuses<st::reader>(how);
    st::reader in("coupled", how);
    std::vector<double> mine(ROWS * columns);
    std::uint64_t n = 0;
    while (const auto step = in.next()) {
        if (step->number() != n) wrong("another step");
        step->get_into("T", {0, first}, {ROWS, columns}, mine.data(), mine.size());
        for (std::uint64_t y = 0; y < ROWS; y++)
            for (std::uint64_t x = 0; x < columns; x++)
                if (mine[y * columns + x] != value(n, y, first + x)) wrong("an element");
        n++;
    }
    if (n != STEPS) wrong("the number of steps");
}

int main(int argc, char **argv) {
    int level, rank;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 2 || level != MPI_THREAD_MULTIPLE) MPI_Abort(MPI_COMM_WORLD, 2);
    const bool is_sim = rank < std::atoi(argv[1]);
    stead_coupling *part = nullptr;
    if (stead_mpi_coupling(MPI_COMM_WORLD, is_sim ? "sim" : "analysis", 60000, &part, nullptr) != STEAD_OK) wrong(stead_last_message());
    try {
        if (is_sim) writes(part);
        else reads(part);
    } catch (const std::exception &e) {
        wrong(e.what());
    }
    stead_coupling_free(part);
    std::printf("right %d\n", rank);
    MPI_Finalize();
    return 0;
}
