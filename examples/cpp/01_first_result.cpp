// Opens a file with everything detected, asks three questions of one scan, and reads the answers.

#include <cstdio>
#include <stead.hpp>

int main(int argc, char **argv) try {
    const auto flights = stead::dataset::open(argc > 1 ? argv[1] : "flights.csv");
    const stead::report report = flights.run({"rows", "mean:arr_delay", "max:arr_delay"});

    std::printf("rows  %llu\n", static_cast<unsigned long long>(report["rows"].count()));
    std::printf("mean  %.6f\n", report["mean:arr_delay"].number());
    std::printf("max   %g\n", report["max:arr_delay"].number());
} catch (const stead::error &e) {
    std::fprintf(stderr, "%s\n  hint: %s\n", e.what(), e.hint().c_str());
    return 1;
}
