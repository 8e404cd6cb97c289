// One of several programs that write a field together, each its rows of it, in steps: write RANK WRITERS STEPS
#include <iostream>
#include <stead.hpp>
#include <string>

int main(int argc, char **argv) try {
    if (argc < 4) return 2;
    const std::uint64_t rows = 60, columns = 40, steps = std::stoull(argv[3]);
    stead::stream::writer_options how;
    how.rank = std::stoull(argv[1]);
    how.writers = std::stoull(argv[2]);
    how.readers = 1;
    const std::uint64_t first = how.rank * rows / how.writers, mine = (how.rank + 1) * rows / how.writers - first;

    stead::stream::writer out("sim", how);
    const auto t = out.define<double>("T", {rows, columns}, {"y", "x"});
    out.set(t, "units", "K");
    for (std::uint64_t step = 0; step < steps; step++) {
        out.begin();
        // The field is made where readers will look at it.
        auto field = out.empty(t, {first, 0}, {mine, columns});
        for (std::size_t i = 0; i < field.size(); i++) field[i] = static_cast<double>(step * 10000 + first * columns + i);
        out.put(std::move(field));
        out.end();
    }
    out.close();
} catch (const stead::error &e) {
    std::cerr << e.what() << "\n";
    return 1;
}
