// A kernel that reads the data several times: the median delay at each airport, to the minute. The first pass finds the
// least and the greatest value; each one that follows counts how many values lie in the lower half of what is left, and
// goes on with the half that holds the median. What was found so far stands in the state beside what is being counted.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stead.hpp>

// Copied as bytes, so without pointers. As it is made is the state of no data in the first pass.
struct state {
    // Found by the passes before: the number of values, and between which the median lies.
    std::uint64_t values = 0;
    double least = std::numeric_limits<double>::infinity(), greatest = -least;
    // Counted by this pass.
    std::uint64_t below = 0;
    bool searching = false;

    double middle() const { return std::floor((least + greatest) / 2); }
};

int main(int argc, char **argv) try {
    const auto kernel = stead::make_kernel<state>(
        "median", {{"arr_delay"}, {}},
        [](state &s, const stead::block &block) {
            for (const double x : block.numbers(0)) {
                if (stead::is_missing(x)) continue;
                if (s.searching) {
                    s.below += x <= s.middle();
                } else {
                    s.values++;
                    s.least = std::min(s.least, x);
                    s.greatest = std::max(s.greatest, x);
                }
            }
        },
        [](state &s, const state &o) {
            if (s.searching) {
                s.below += o.below;
            } else {
                s.values += o.values;
                s.least = std::min(s.least, o.least);
                s.greatest = std::max(s.greatest, o.greatest);
            }
        },
        [](state &s, stead::result &result) {
            if (s.searching && s.below >= s.values - s.values / 2) s.greatest = s.middle();
            else if (s.searching) s.least = s.middle() + 1;
            if (s.least >= s.greatest) {
                result.number(s.least);
            } else {
                // The states of the next pass begin as this one: with nothing counted.
                s.searching = true;
                s.below = 0;
                result.again();
            }
        });

    const auto flights = stead::dataset::open(argc > 1 ? argv[1] : "flights.csv");
    const stead::report report = flights.run(stead::request().kernel(kernel).by("origin"));
    for (const auto &[airport, median] : report["median"].items()) std::printf("%s %g\n", airport.data(), median.number());
} catch (const stead::error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
