// A kernel of one's own: which flight of each month was the longest, and how many were longer than six hours? A state is
// made for each thread, blocks are added to it, states are merged, and the last one says the result. What is written
// here works with filters, groups and any number of threads, and the answer does not depend on how the work was split.

#include <algorithm>
#include <cstdio>
#include <stead.hpp>

// Copied as bytes, so without pointers. As it is made is the state of no data.
struct state {
    double longest = 0;
    std::uint64_t number = 0;
};

int main(int argc, char **argv) try {
    const double limit = 360;
    const auto kernel = stead::make_kernel<state>(
        "long flights", {{"air_time"}, {}},
        [limit](state &s, const stead::block &block) {
            // The first column that the kernel asked for. A missing value is a NaN: it is not greater than anything.
            for (const double minutes : block.numbers(0)) {
                if (minutes < 0) throw stead::error(stead::kind::data, "a flight of negative length");
                if (minutes > s.longest) s.longest = minutes;
                if (minutes > limit) s.number++;
            }
        },
        [](state &s, const state &o) {
            s.longest = std::max(s.longest, o.longest);
            s.number += o.number;
        },
        [](const state &s, stead::result &result) {
            result.map([&](stead::result &m) { m.key("longest").number(s.longest).key("long").count(s.number); });
        });

    const auto flights = stead::dataset::open(argc > 1 ? argv[1] : "flights.csv");
    const stead::report report = flights.run(stead::request().kernel(kernel).by("month"));
    for (const auto &[month, found] : report["long flights"].items())
        std::printf("%2s  %4.0f  %5llu\n", month.data(), found["longest"].number(),
                    static_cast<unsigned long long>(found["long"].count()));
} catch (const stead::error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
