// Answers for each group, of the rows that a filter keeps: how late do flights arrive that left late, by carrier?
// A grouped result is a map from group to answer. Missing values are left out.

#include <cstdio>
#include <stead.hpp>

int main(int argc, char **argv) try {
    const auto flights = stead::dataset::open(argc > 1 ? argv[1] : "flights.csv");
    const stead::report report = flights.run(stead::request()
                                                 .kernel("rows")
                                                 .kernel("mean:arr_delay")
                                                 .where("dep_delay > 60 and origin = 'JFK'")
                                                 .by("carrier"));

    const stead::value means = report["mean:arr_delay"];
    for (const auto &[carrier, rows] : report["rows"].items()) {
        const stead::value mean = means[std::string(carrier)];
        // A group without any value has no mean: then it is null.
        if (!mean.is_null())
            std::printf("%s  %5llu  %7.2f\n", carrier.data(), static_cast<unsigned long long>(rows.count()),
                        mean.number());
    }
} catch (const stead::error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
