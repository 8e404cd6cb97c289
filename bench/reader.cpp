// Many small reads in sequence: stead::FileReader beside std::ifstream, in turn, on a file in the page cache.
//
//     reader FILE [RECORD] [RUNS]
//
// Reads the file in records of RECORD bytes (48), each with one call of read, RUNS times (7) with each, and prints a JSON
// object of the seconds of each run. Both must see the same bytes.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stead.hpp>
#include <vector>

/// Something of every record, so that all must be read.
template <class Stream> static double seconds(const char *path, std::streamsize record, std::uint64_t &sum) {
    const auto begin = std::chrono::steady_clock::now();
    Stream in(path, std::ios::binary | std::ios::in);
    std::vector<char> bytes(static_cast<std::size_t>(record));
    sum = 0;
    while (in.read(bytes.data(), record)) {
        sum = sum * 31 + static_cast<unsigned char>(bytes[0]) + static_cast<unsigned char>(bytes.back());
    }
    sum += static_cast<std::uint64_t>(in.gcount());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

static void list(const char *name, const std::vector<double> &all, const char *end) {
    std::printf("\"%s\": [", name);
    for (std::size_t i = 0; i < all.size(); i++) std::printf("%s%.6f", i ? ", " : "", all[i]);
    std::printf("]%s", end);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: reader FILE [RECORD] [RUNS]\n");
        return 2;
    }
    const std::streamsize record = argc > 2 ? std::atol(argv[2]) : 48;
    const int runs = argc > 3 ? std::atoi(argv[3]) : 7;
    if (record < 1 || runs < 1) {
        std::fprintf(stderr, "RECORD and RUNS are at least 1\n");
        return 2;
    }
    std::vector<double> reader, ifstream;
    std::uint64_t ours = 0, theirs = 0;
    // The first runs bring the file into the page cache.
    seconds<std::ifstream>(argv[1], record, theirs);
    seconds<stead::FileReader>(argv[1], record, ours);
    for (int i = 0; i < runs && ours == theirs; i++) {
        ifstream.push_back(seconds<std::ifstream>(argv[1], record, theirs));
        reader.push_back(seconds<stead::FileReader>(argv[1], record, ours));
    }
    if (ours != theirs) {
        std::fprintf(stderr, "they did not read the same\n");
        return 1;
    }
    std::printf("{");
    list("FileReader", reader, ", ");
    list("ifstream", ifstream, "}\n");
    return 0;
}
