// stead::FileReader against std::ifstream: the same operations, drawn at random from a seed, must leave both in the same
// state with the same bytes.

#include "check.hpp"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

static_assert(std::is_base_of_v<std::istream, stead::FileReader>);
static_assert(std::is_move_constructible_v<stead::FileReader> && !std::is_copy_constructible_v<stead::FileReader>);

/// What an operation is, and its numbers, so that both streams get the same.
struct Operation {
    int what;
    long long number;
    char letter;
    int way;
    std::string name() const {
        return "operation " + std::to_string(what) + " with " + std::to_string(number) + ", " +
               std::to_string(static_cast<int>(letter)) + ", " + std::to_string(way);
    }
};

/// What can be seen of a stream after an operation.
struct Seen {
    std::string bytes;
    int state = 0;
    long long count = 0, place = 0;
    bool operator==(const Seen &o) const {
        return bytes == o.bytes && state == o.state && count == o.count && place == o.place;
    }
};

static const std::ios::seekdir ways[] = {std::ios::beg, std::ios::cur, std::ios::end};

template <class T> static void extract(std::istream &in, std::string &bytes) {
    T value{};
    in >> value;
    std::ostringstream out;
    out << value;
    bytes = out.str();
}

/// `Stream` is what the call is made through: FileReader itself, or std::istream.
template <class Stream> static Seen perform(Stream &in, const Operation &op) {
    Seen seen;
    const auto n = static_cast<std::streamsize>(op.number);
    switch (op.what) {
    case 0: {
        seen.bytes.assign(static_cast<std::size_t>(n < 0 ? 0 : n), '#');
        in.read(seen.bytes.data(), n);
        break;
    }
    case 1: seen.bytes = std::to_string(in.get()); break;
    case 2: {
        char c = '#';
        in.get(c);
        seen.bytes = c;
        break;
    }
    case 3: seen.bytes = std::to_string(in.peek()); break;
    case 4: in.ignore(n); break;
    case 5: in.ignore(n, op.letter); break;
    case 6: std::getline(in, seen.bytes); break;
    case 7: std::getline(in, seen.bytes, op.letter); break;
    case 8: {
        std::vector<char> line(static_cast<std::size_t>(n) + 2, '#');
        in.getline(line.data(), n + 1);
        seen.bytes = line.data();
        break;
    }
    case 9: {
        std::vector<char> line(static_cast<std::size_t>(n) + 2, '#');
        in.get(line.data(), n + 1, op.letter);
        seen.bytes = line.data();
        break;
    }
    case 10: extract<int>(in, seen.bytes); break;
    case 11: extract<double>(in, seen.bytes); break;
    case 12: extract<std::string>(in, seen.bytes); break;
    case 13: extract<char>(in, seen.bytes); break;
    case 14: in.seekg(n); break;
    case 15: in.seekg(n, ways[op.way]); break;
    case 16: in.clear(); break;
    case 17: in.unget(); break;
    case 18: seen.bytes = std::to_string(in.sync()); break;
    case 19: in >> std::ws; break;
    case 20: in.setstate(op.way == 0 ? std::ios::failbit : std::ios::eofbit); break;
    case 21: {
        // The byte that is there is put back.
        const int c = in.get();
        if (c >= 0) in.putback(static_cast<char>(c));
        break;
    }
    default: {
        std::ostringstream rest;
        rest << in.rdbuf();
        seen.bytes = rest.str();
    }
    }
    seen.state = in.rdstate();
    seen.count = in.gcount();
    // Which says where the stream is even if it has failed.
    seen.place = in.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in);
    if (in.good()) CHECK(static_cast<long long>(in.tellg()) == seen.place);
    CHECK(!in == in.fail() && in.eof() == ((seen.state & std::ios::eofbit) != 0));
    return seen;
}

/// Runs `count` operations on both. The file reader has nothing before `first`.
static void compare(const std::string &what, std::istream &peer, stead::FileReader &ours, long long first, long long size,
                    unsigned seed, int count) {
    std::mt19937_64 random(seed);
    const auto below = [&](long long n) { return n > 0 ? static_cast<long long>(random() % static_cast<unsigned long long>(n)) : 0; };
    const long long lengths[] = {0, 1, 2, 3, 7, 48, 48, 48, 100, 5000, 70'000, 1'500'000};
    std::string last = "nothing";
    for (int i = 0; i < count; i++) {
        Operation op{};
        // Reads are what there is most of.
        op.what = random() % 3 == 0 ? 0 : static_cast<int>(random() % 22);
        if (random() % 2000 == 0) op.what = 22;
        op.letter = static_cast<char>("\n e7\0"[random() % 5]);
        op.way = static_cast<int>(random() % 3);
        op.number = lengths[random() % (size > 1000 ? 12 : 9)];
        if (op.what == 14) op.number = first + below(size - first + 3);
        if (op.what == 15) {
            const long long here = peer.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in);
            const long long from = op.way == 0 ? 0 : op.way == 1 ? here : size;
            // Steps are small as often as not; a few go beyond the ends, where the stream may go only behind.
            const long long to = random() % 2 ? first + below(size - first + 3) : std::max(first, from - 100 + below(200));
            op.number = to - from;
            if (first == 0 && random() % 50 == 0) op.number = -from - 1 - below(10);
        }
        // A byte before the first one is there for the peer alone.
        if (op.what == 17 && first > 0 && peer.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in) <= first) continue;
        const Seen theirs = perform(peer, op);
        std::istream &base = ours;
        const Seen mine = random() % 2 ? perform(ours, op) : perform(base, op);
        checks++;
        if (!(mine == theirs)) {
            failures++;
            std::fprintf(stderr,
                         "%s, seed %u, step %d, %s (after %s): state %d and %d, gcount %lld and %lld, place %lld and %lld, "
                         "%zu and %zu bytes\n",
                         what.c_str(), seed, i, op.name().c_str(), last.c_str(), mine.state, theirs.state, mine.count,
                         theirs.count, mine.place, theirs.place, mine.bytes.size(), theirs.bytes.size());
            return;
        }
        last = op.name();
        // What has failed says the same for ever.
        if (peer.fail() && random() % 3 == 0) {
            peer.clear();
            ours.clear();
        }
    }
}

/// A std::ifstream whose buffer is larger than any read: libstdc++ puts back a wrong byte after one past its buffer.
class plain {
public:
    explicit plain(const std::string &path) : buffer_(4 << 20) {
        stream_.rdbuf()->pubsetbuf(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
        stream_.open(path, std::ios::binary);
    }
    std::ifstream &stream() { return stream_; }

private:
    std::vector<char> buffer_;
    std::ifstream stream_;
};

static void write(const std::string &path, const std::string &bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

static std::string text_of(std::size_t size, unsigned seed) {
    std::mt19937 random(seed);
    std::string text;
    while (text.size() < size) {
        switch (random() % 6) {
        case 0: text += std::to_string(random() % 100'000); break;
        case 1: text += "-" + std::to_string(random() % 1000) + "." + std::to_string(random() % 1000); break;
        case 2: text += "1e" + std::to_string(random() % 400); break;
        case 3: text += std::string(random() % 12, static_cast<char>('a' + random() % 26)); break;
        default: text += random() % 30 ? "word" : std::string(1 + random() % 300, '\n');
        }
        text += random() % 4 ? ' ' : '\n';
    }
    return text;
}

static void files(int rounds) {
    std::string binary(10'000'000, '\0');
    std::mt19937 random(1);
    for (char &c : binary) c = static_cast<char>(random());
    const std::pair<std::string, std::string> all[] = {
        {"empty", ""}, {"one", "7"}, {"short", "12 x\n3.5 "}, {"text", text_of(300'000, 2)}, {"binary", binary},
    };
    stead::read_options memory;
    memory.flags = STEAD_READ_PREAD;
    memory.block = 128 << 10;
    for (const auto &[name, bytes] : all) {
        write(name, bytes);
        const auto size = static_cast<long long>(bytes.size());
        for (unsigned seed = 0; seed < static_cast<unsigned>(rounds); seed++) {
            plain peer(name);
            stead::FileReader ours(name, std::ios::binary);
            compare(name, peer.stream(), ours, 0, size, seed, 1500);
            // Over a session within the file, with blocks in memory: as if the file ended where the session does.
            const long long first = size / 3, last = size - size / 5;
            write("cut", bytes.substr(0, static_cast<std::size_t>(last)));
            plain cut("cut");
            cut.stream().seekg(first);
            const stead::File file(name, memory);
            stead::FileReader part(
                file.session(static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(last - first)));
            compare(name + " in part", cut.stream(), part, first, last, seed, 1500);
        }
    }
}

static void opening() {
    stead::FileReader none("no/such/file");
    CHECK(!none && !none.is_open() && none.failure() && none.failure()->kind() == stead::kind::not_found);
    none.open("text");
    CHECK(none && none.is_open() && !none.failure() && none.tellg() == 0);
    none.open("text");
    CHECK(none.fail() && none.failure()->kind() == stead::kind::usage);
    none.clear();
    none.close();
    CHECK(none && !none.is_open());
    none.close();
    CHECK(none.fail() && none.failure()->kind() == stead::kind::usage);
    CHECK(stead::FileReader("text", std::ios::out).fail());
    stead::FileReader folder(".");
    CHECK(!folder && folder.failure()->kind() == stead::kind::usage);
    stead::FileReader late("short", std::ios::ate);
    CHECK(late.tellg() == 9 && late.peek() == EOF && late.eof());
    stead::FileReader empty;
    char c = '#';
    CHECK(!empty.is_open() && empty.get(c).fail() && c == '#');
    // exceptions() are those of streams.
    stead::FileReader strict;
    strict.exceptions(std::ios::failbit);
    bool thrown = false;
    try {
        strict.open("no/such/file");
    } catch (const std::ios::failure &) {
        thrown = true;
    }
    CHECK(thrown);
}

static void moving() {
    stead::FileReader a("short");
    int n = 0;
    a >> n;
    stead::FileReader b(std::move(a));
    std::string word;
    double x = 0;
    b >> word >> x;
    CHECK(n == 12 && word == "x" && x == 3.5 && !a.is_open());
    stead::FileReader c;
    c = std::move(b);
    CHECK(c.tellg() == 8 && c.get() == ' ' && c.gcount() == 1 && c.get() == EOF && c.gcount() == 0 && c.eof());
    // What reads from any stream.
    const std::string all(std::istreambuf_iterator<char>(stead::FileReader("short").rdbuf()), {});
    CHECK(all == "12 x\n3.5 ");
}

static void sessions() {
    auto file = std::make_unique<stead::File>("text");
    auto session = std::make_unique<stead::ReadSession>(file->session(1000, 100));
    stead::FileReader a(*session), b(*session);
    CHECK(a.tellg() == 1000 && b.tellg() == 1000);
    a.seekg(-10, std::ios::end);
    CHECK(a.tellg() == 1090);
    // Nothing is there before the session, nor after it.
    char c = 0;
    CHECK(!a.seekg(5).get(c) && a.eof());
    a.clear();
    CHECK(!a.seekg(1100).get(c) && a.eof());
    a.clear();
    std::ifstream peer("text");
    for (int at : {1099, 1000, 1050}) {
        char theirs = 0;
        peer.seekg(at).get(theirs);
        CHECK(a.seekg(at).get(c) && c == theirs && a.tellg() == at + 1);
    }
    // Readers keep what they read from.
    session.reset();
    file.reset();
    char bytes[100];
    CHECK(b.read(bytes, 100) && b.gcount() == 100 && b.peek() == EOF);
    // A session that was closed has nothing more.
    stead::ReadSession other = stead::File("text").session();
    stead::FileReader gone(other);
    other.close();
    CHECK(gone.get() == EOF && gone.bad() && gone.failure()->kind() == stead::kind::usage);
    stead::FileReader nothing(other);
    CHECK(nothing.fail() && !nothing.is_open() && nothing.failure()->kind() == stead::kind::usage);
    // A byte that is not the file's cannot be put back.
    stead::FileReader in("short");
    CHECK(in.get() == '1' && in.putback('1') && in.get() == '1' && !in.putback('2') && in.bad());
}

/// A file that becomes shorter under a reader, which says so in place of an end.
static void shrinking() {
    write("going", std::string(1 << 20, 'x'));
    stead::FileReader in("going");
    char c = 0;
    long long n = 0;
    CHECK(in.get(c) && c == 'x');
    std::filesystem::resize_file("going", 4096);
    while (in.get(c)) n++;
    CHECK(in.bad() && n < 1 << 20 && in.failure()->kind() == stead::kind::changed);
    in.clear();
    in.close();
    CHECK(!in.is_open());
}

/// More than 2 GiB at once, of holes of a file system in memory, into a few pages that lie beside each other many times. The last
/// ones are pages of their own: those of the others are written in any order.
static void large() {
    const std::string name = "/dev/shm/stead-test-" + std::to_string(getpid());
    constexpr std::uint64_t piece = 8 << 20, size = std::uint64_t(9) << 28, before = std::uint64_t(3) << 30;
    write(name, "");
    std::filesystem::resize_file(name, before + size);
    std::fstream out(name, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(before - 1)) << "<";
    out.seekp(static_cast<std::streamoff>(before + size - 1)) << ">";
    out.close();
    const int pages = memfd_create("pages", MFD_CLOEXEC);
    CHECK(pages >= 0 && ftruncate(pages, piece) == 0);
    void *const all = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *const buffer = static_cast<char *>(all);
    for (std::uint64_t at = 0; at < size; at += piece)
        CHECK(mmap(buffer + at, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pages, 0) == buffer + at);
    char *const last = buffer + size - piece;
    CHECK(mmap(last, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == last);
    last[piece - 2] = 1;
    stead::read_options on_demand;
    on_demand.flags = STEAD_READ_PREAD | STEAD_READ_ON_DEMAND;
    stead::FileReader in(stead::File(name, on_demand).session());
    std::filesystem::remove(name);
    CHECK(in.seekg(static_cast<std::streamoff>(before - 1)) && in.get() == '<');
    CHECK(in.read(buffer, static_cast<std::streamsize>(size)) && in.gcount() == static_cast<std::streamsize>(size));
    CHECK(buffer[size - 2] == 0 && buffer[size - 1] == '>' && in.tellg() == static_cast<std::streamoff>(before + size));
    CHECK(in.get() == EOF && in.eof());
    munmap(all, size);
    close(pages);
}

int main(int argc, char **argv) {
    files(argc > 1 ? std::atoi(argv[1]) : 4);
    opening();
    moving();
    sessions();
    shrinking();
    // Once is enough.
    if (__cplusplus < 202002L) large();
    CHECK(stead_handles_alive() == 0);
    std::printf("reader: %d checks, %d failed\n", checks.load(), failures.load());
    return failures != 0;
}
