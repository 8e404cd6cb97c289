// One of several programs that read a field together, each its columns of it, whoever has written which part: read RANK RANKS
#include <iomanip>
#include <iostream>
#include <numeric>
#include <stead.hpp>
#include <string>

int main(int argc, char **argv) try {
    if (argc < 3) return 2;
    const std::uint64_t rows = 60, columns = 40;
    stead::stream::reader_options how;
    how.rank = std::stoull(argv[1]);
    how.ranks = std::stoull(argv[2]);
    const std::uint64_t first = how.rank * columns / how.ranks, mine = (how.rank + 1) * columns / how.ranks - first;

    stead::stream::reader in("sim", how);
    for (const stead::stream::step &step : in) {
        const std::vector<double> t = step.get<double>("T", {0, first}, {rows, mine});
        const double mean = std::accumulate(t.begin(), t.end(), 0.0) / static_cast<double>(t.size());
        std::cout << "step " << step.number() << ": mean " << std::fixed << std::setprecision(1) << mean << "\n";
    }
} catch (const stead::error &e) {
    std::cerr << e.what() << "\n";
    return 1;
}
