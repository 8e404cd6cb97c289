// What a rank of the tests does with a Tipsy snapshot: loads shares of it together with the others, in C++, and compares all
// of them with what a program alone loads.
//
//   tipsy load FILE    every column of every species, in more tasks than ranks
//   tipsy wrong FILE   what ranks do wrong, and a file that is no snapshot

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <stead.hpp>
#include <stead_mpi.h>
#include <unistd.h>

static int rank, size;

#define CHECK(what)                                                                                                   \
    do {                                                                                                              \
        if (!(what)) {                                                                                                \
            std::fprintf(stderr, "rank %d: line %d: %s: %s\n", rank, __LINE__, #what, stead_last_message());          \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                             \
        }                                                                                                             \
    } while (0)

static stead_tipsy *open(const char *path, const stead::read_options &options) {
    const stead_read_options o = options.get();
    stead_tipsy *t = nullptr;
    CHECK(stead_mpi_tipsy_open(MPI_COMM_WORLD, path, &o, &t, nullptr) == STEAD_OK);
    return t;
}

static void load(const char *path) {
    stead::read_options options;
    options.flags = std::getenv("RANKS_FLAGS") ? static_cast<std::uint32_t>(std::atoi(std::getenv("RANKS_FLAGS"))) : 0;
    options.block = 64 << 10;
    stead::Tipsy snapshot(open(path, options));
    const stead::Tipsy alone(path);
    CHECK(snapshot.time() == alone.time());
    const std::size_t tasks = 5 * static_cast<std::size_t>(size) + 1;
    for (const stead::species k : stead::all_species) {
        CHECK(snapshot.count(k) == alone.count(k));
        const auto n = static_cast<std::size_t>(alone.count(k));
        for (const stead::tipsy_field &field : alone.fields(k)) {
            // Each rank has the values of its tasks, and zeros elsewhere; together they are all.
            std::vector<double> mine(n + 1), sum(n + 1);
            for (auto task = static_cast<std::size_t>(rank); task < tasks; task += static_cast<std::size_t>(size)) {
                const stead::tipsy_part part = snapshot.part(k, task, tasks);
                snapshot.load_into(k, task, tasks, {stead::Tipsy::to(field.name, &mine[part.first])});
            }
            MPI_Allreduce(mine.data(), sum.data(), static_cast<int>(n), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            const auto [whole] = alone.load(k, 0, 1, field.name);
            CHECK(whole.size() == n && std::equal(whole.begin(), whole.end(), sum.begin()));
        }
    }
    std::printf("rank %d of %d: right\n", rank, size);
    snapshot.close();
}

static void wrong(const char *path) {
    stead_tipsy *t = nullptr;
    const std::string nowhere = std::string(path) + ".not";
    CHECK(stead_mpi_tipsy_open(MPI_COMM_WORLD, nowhere.c_str(), nullptr, &t, nullptr) == STEAD_NOT_FOUND && !t);
    CHECK(stead_mpi_tipsy_open(MPI_COMM_NULL, path, nullptr, &t, nullptr) == STEAD_USAGE);
    // What one rank gives, all hear of.
    CHECK(stead_mpi_tipsy_open(MPI_COMM_WORLD, rank == 1 ? nullptr : path, nullptr, &t, nullptr) == STEAD_USAGE);
    CHECK(rank == 1 || std::strstr(stead_last_message(), "rank 1"));
    stead_tipsy **none = rank == 0 ? nullptr : &t;
    CHECK(stead_mpi_tipsy_open(MPI_COMM_WORLD, path, nullptr, none, nullptr) == STEAD_USAGE && !t);
    // No snapshot: all are told.
    const std::string bad = std::string(path) + ".bad";
    CHECK(stead_mpi_tipsy_open(MPI_COMM_WORLD, bad.c_str(), nullptr, &t, nullptr) == STEAD_FORMAT && !t);
    // A rank that does not find the file, being in another folder, loads all the same.
    const std::string whole(path);
    const std::size_t slash = whole.rfind('/');
    CHECK(slash != std::string::npos && chdir(rank == 1 ? "/" : whole.substr(0, slash).c_str()) == 0);
    const stead::Tipsy snapshot(open(whole.c_str() + slash + 1, {}));
    const auto [mass] = snapshot.load(stead::species::dark, 0, 1, "mass");
    CHECK(mass == stead::Tipsy(path).load(stead::species::dark, 0, 1, "mass")[0]);
    std::printf("rank %d: told\n", rank);
}

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const std::string what = argc > 2 ? argv[1] : "";
    if (what == "load") load(argv[2]);
    else if (what == "wrong") wrong(argv[2]);
    else return 2;
    MPI_Finalize();
    return 0;
}
