// Many small reads in sequence: stead::FileReader beside std::ifstream, in turn, on a file in the page cache.
//
//     reader FILE [RUNS]
//
// Reads the file in records of 48 bytes (a gas particle of a Tipsy file), each with one call of read, RUNS times (7) with
// each of the two, and prints a JSON object of the seconds of each run, and of those of processors. Both must see the same
// bytes.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <stead.hpp>
#include <vector>

struct record {
    float mass, place[3], velocity[3], rest[5];
};
static_assert(sizeof(record) == 48, "twelve floats");

/// What each run has taken.
struct taken {
    std::vector<double> seconds, processor;
};

/// Opens the file, reads it to its end, and closes it. `sum` is of all bits of all records.
template <class Stream> static void measure(const char *path, std::uint64_t &sum, taken &all) {
    const std::clock_t before = std::clock();
    const auto begin = std::chrono::steady_clock::now();
    {
        Stream in(path, std::ios::binary | std::ios::in);
        record r;
        sum = 0;
        while (in.read(reinterpret_cast<char *>(&r), sizeof r)) {
            std::uint64_t parts[6];
            std::memcpy(parts, &r, sizeof r);
            for (const std::uint64_t part : parts) sum += part;
        }
        sum += static_cast<std::uint64_t>(in.gcount());
    }
    all.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    all.processor.push_back(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC);
}

static void list(const char *name, const std::vector<double> &all, const char *end) {
    std::printf("\"%s\": [", name);
    for (std::size_t i = 0; i < all.size(); i++) std::printf("%s%.6f", i ? ", " : "", all[i]);
    std::printf("]%s", end);
}

int main(int argc, char **argv) {
    const int runs = argc > 2 ? std::atoi(argv[2]) : 7;
    if (argc < 2 || runs < 1) {
        std::fprintf(stderr, "usage: reader FILE [RUNS]\n");
        return 2;
    }
    taken none, reader, ifstream;
    std::uint64_t ours = 0, theirs = 0;
    // The first runs bring the file into the page cache.
    measure<std::ifstream>(argv[1], theirs, none);
    measure<stead::FileReader>(argv[1], ours, none);
    for (int i = 0; i < runs && ours == theirs; i++) {
        measure<std::ifstream>(argv[1], theirs, ifstream);
        measure<stead::FileReader>(argv[1], ours, reader);
    }
    if (ours != theirs) {
        std::fprintf(stderr, "they did not read the same\n");
        return 1;
    }
    std::printf("{\"seconds\": {");
    list("FileReader", reader.seconds, ", ");
    list("ifstream", ifstream.seconds, "}, \"processor\": {");
    list("FileReader", reader.processor, ", ");
    list("ifstream", ifstream.processor, "}}\n");
    return 0;
}
