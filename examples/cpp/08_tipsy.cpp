// A snapshot of particles (Tipsy) that tasks read, each its own part, one record at a time, as codes for gravity do it.
// They know only an abstract reader: behind it stands std::ifstream or stead::FileReader, without a line of difference.

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <stead.hpp>

// What tasks read from.
class reader {
public:
    virtual ~reader() = default;
    virtual void seek(std::uint64_t offset) = 0;
    virtual void read(char *to, std::size_t size) = 0;
};

template <class Stream> class stream_reader final : public reader {
public:
    template <class... From> explicit stream_reader(const From &...from) : stream_(from...) { check(); }
    void seek(std::uint64_t offset) override { stream_.seekg(static_cast<std::streamoff>(offset)), check(); }
    void read(char *to, std::size_t size) override { stream_.read(to, static_cast<std::streamsize>(size)), check(); }

private:
    void check() const {
        if (!stream_) throw std::runtime_error("the snapshot cannot be read");
    }
    Stream stream_;
};

// Standard files are big-endian, on all machines.
template <class T> T big_endian(const char *from) {
    std::array<unsigned char, sizeof(T)> bytes;
    for (std::size_t i = 0; i < sizeof(T); i++) bytes[i] = static_cast<unsigned char>(from[i]);
    std::uint64_t bits = 0;
    for (const unsigned char b : bytes) bits = bits << 8 | b;
    T value;
    if constexpr (sizeof(T) == 8) {
        std::memcpy(&value, &bits, sizeof value);
    } else {
        const auto half = static_cast<std::uint32_t>(bits);
        std::memcpy(&value, &half, sizeof value);
    }
    return value;
}

constexpr const char *SPECIES[] = {"gas", "dark", "star"};
constexpr std::size_t RECORD[] = {48, 36, 44}, HEADER = 32;

struct header {
    double time = 0;
    std::uint32_t dimensions = 0, counts[3] = {};

    explicit header(reader &file) {
        char bytes[HEADER];
        file.read(bytes, sizeof bytes);
        time = big_endian<double>(bytes);
        dimensions = big_endian<std::uint32_t>(bytes + 12);
        if (dimensions != 3) throw std::runtime_error("this is no standard Tipsy file");
        for (int k = 0; k < 3; k++) counts[k] = big_endian<std::uint32_t>(bytes + 16 + 4 * k);
    }
};

// Mass, and the sum of mass times position.
using moments = std::array<double, 4>;

// The share of one task.
moments add_up(reader &file, const header &head, int species, std::uint64_t task, std::uint64_t tasks) {
    std::uint64_t start = HEADER;
    for (int k = 0; k < species; k++) start += RECORD[k] * head.counts[k];
    const std::uint64_t n = head.counts[species], first = n * task / tasks, end = n * (task + 1) / tasks;
    moments sum{};
    file.seek(start + first * RECORD[species]);
    for (std::uint64_t i = first; i < end; i++) {
        char record[48];
        file.read(record, RECORD[species]);
        const double mass = big_endian<float>(record);
        sum[0] += mass;
        for (int axis = 0; axis < 3; axis++) sum[axis + 1] += mass * big_endian<float>(record + 4 + 4 * axis);
    }
    return sum;
}

// All tasks of all species; `open` gives each its own reader.
template <class Open> std::array<moments, 3> run(const Open &open, const header &head) {
    constexpr std::uint64_t TASKS = 64, THREADS = 4;
    std::array<moments, 3> all{};
    for (int species = 0; species < 3; species++) {
        std::vector<std::future<moments>> threads;
        for (std::uint64_t thread = 0; thread < THREADS; thread++) {
            threads.push_back(std::async(std::launch::async, [&, species, thread] {
                moments sum{};
                for (std::uint64_t task = thread; task < TASKS; task += THREADS) {
                    const std::unique_ptr<reader> file = open();
                    const moments part = add_up(*file, head, species, task, TASKS);
                    for (std::size_t i = 0; i < sum.size(); i++) sum[i] += part[i];
                }
                return sum;
            }));
        }
        for (auto &thread : threads) {
            const moments part = thread.get();
            for (std::size_t i = 0; i < part.size(); i++) all[species][i] += part[i];
        }
    }
    return all;
}

int main(int argc, char **argv) try {
    const std::string path = argc > 1 ? argv[1] : "galaxy.tipsy";
    // One session for all tasks: what lies in one block is read once, however many readers there are.
    const stead::File file(path);
    const stead::ReadSession session = file.session();
    const auto with_stead = [&]() -> std::unique_ptr<reader> {
        return std::make_unique<stream_reader<stead::FileReader>>(session);
    };
    const auto with_ifstream = [&]() -> std::unique_ptr<reader> {
        return std::make_unique<stream_reader<std::ifstream>>(path, std::ios_base::binary);
    };
    const header head(*with_stead());
    std::printf("time %g\n", head.time);
    const auto sums = run(with_stead, head);
    if (run(with_ifstream, head) != sums) throw std::runtime_error("the readers differ");
    for (int k = 0; k < 3; k++) {
        const moments &s = sums[k];
        std::printf("%-4s %u particles, mass %.6f, centre %.6f %.6f %.6f\n", SPECIES[k], head.counts[k], s[0],
                    s[1] / s[0], s[2] / s[0], s[3] / s[0]);
    }
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
