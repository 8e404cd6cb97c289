// An array of the program's own is a dataset: the vector is given away, not copied. A Gram matrix comes out as a
// stead::matrix.

#include <cstdio>
#include <stead.hpp>

int main() try {
    const std::size_t points = 1000, columns = 3;
    std::vector<double> x;
    for (std::size_t i = 0; i < points; i++) x.insert(x.end(), {1.0, 1.0 * i, 1.0 * (i * 7 % 13)});

    const auto data = stead::dataset::array(std::move(x), {points, columns});
    const stead::matrix g = data.run({"gram:*"})["gram:*"]["matrix"].to_matrix();
    for (std::size_t i = 0; i < g.rows; i++) {
        for (const double v : g.row(i)) std::printf("%12.0f", v);
        std::printf("\n");
    }
} catch (const stead::error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
