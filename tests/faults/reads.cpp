// As reads.c, in the ways of C++: futures and a stream.
#include "reads.h"

#include <iostream>
#include <stead.hpp>
#include <string>
#include <vector>

static unsigned long stream(const stead::ReadSession &session, std::uint64_t offset, std::size_t n) {
    stead::FileReader in(session);
    std::vector<char> bytes(n);
    in.seekg(static_cast<std::streamoff>(offset));
    // In small pieces, out of the stream's buffer.
    for (std::size_t at = 0; in && at < n; at += 1000)
        in.read(bytes.data() + at, static_cast<std::streamsize>(std::min<std::size_t>(1000, n - at)));
    const bool whole = static_cast<bool>(in);
    in.clear();
    if (whole) in.close();
    if (in.failure()) throw *in.failure();
    if (!whole) throw std::runtime_error("a stream that failed without saying why");
    return adler(bytes.data(), n);
}

int main(int argc, char **argv) try {
    if (argc < 3) return 2;
    stead::read_options options;
    options.flags = static_cast<std::uint32_t>(std::stoul(argv[2]));
    options.deadline = std::chrono::minutes(1);
    const stead::File file(argv[1], options);
    const stead::ReadSession session = file.session();
    std::cout << "ready" << std::endl;
    std::string way;
    std::uint64_t offset;
    std::size_t n;
    while (std::cin >> way >> offset >> n) {
        try {
            unsigned long sum = 0;
            if (way == "into") {
                const std::vector<char> bytes = session.read_into(offset, std::vector<char>(n)).get();
                sum = adler(bytes.data(), n);
            } else if (way == "stream") {
                sum = stream(session, offset, n);
            } else if (way == "drop") {
                // A future that nobody has, and a handle.
                session.read(offset, n);
                session.begin(offset, n).wait_for(std::chrono::milliseconds(1));
            } else {
                const stead::view v = session.read(offset, n).get();
                sum = adler(v.data(), v.size());
                v.check();
            }
            std::cout << "ok " << sum << std::endl;
        } catch (const stead::error &e) {
            std::cout << "error " << static_cast<int>(e.kind()) << " "
                      << (e.offset() ? std::to_string(*e.offset()) : "-") << " " << e.path() << std::endl;
        }
    }
    return 0;
} catch (const stead::error &e) {
    std::cout << "error " << static_cast<int>(e.kind()) << " - " << e.path() << std::endl;
    return 1;
}
