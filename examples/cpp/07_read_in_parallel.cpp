// A file that a thousand tasks read, each its own part, from a few threads of the program. How it is cut into tasks and how
// it is read have nothing to do with each other: readers of the session fetch large blocks.

#include <algorithm>
#include <cstdio>
#include <future>
#include <stead.hpp>
#include <string>
#include <vector>

constexpr std::uint64_t tasks = 1000;

int main(int argc, char **argv) try {
    const stead::File file(argc > 1 ? argv[1] : "flights.csv");
    stead::ReadSession session = file.session();
    const std::uint64_t share = file.size() / tasks + 1;

    // All tasks ask, in any order and from any thread; each answer comes as soon as its own bytes are there.
    std::vector<std::future<stead::view>> reads;
    for (std::uint64_t task = 0; task < tasks; task++) {
        const std::uint64_t from = std::min(task * share, file.size());
        reads.push_back(session.read(from, std::min(share, file.size() - from)));
    }
    std::ptrdiff_t lines = 0;
    for (auto &read : reads) {
        // Memory that all tasks share: nothing is copied.
        const stead::view bytes = read.get();
        lines += std::count(bytes.begin(), bytes.end(), '\n');
    }
    std::printf("%d tasks: %td lines\n", static_cast<int>(tasks), lines);

    // What reads from a std::istream reads from a session: a FileReader stands where a std::ifstream did.
    stead::FileReader in(session);
    std::string first(4, ' ');
    in.read(first.data(), 4);
    std::printf("the first bytes: %s\n", first.c_str());

    // An error is that of one request, and the session goes on.
    try {
        session.read(file.size(), 1).get();
    } catch (const stead::error &e) {
        if (e.kind() == stead::kind::usage) std::printf("past the end: an error\n");
    }
    session.close();
    return 0;
} catch (const stead::error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
