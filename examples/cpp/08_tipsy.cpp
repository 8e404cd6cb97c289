// A snapshot of particles (Tipsy) that tasks read, each its own part, some records at a time, as codes for gravity do it.
// They know only an abstract reader: behind it stands std::ifstream or stead::FileReader, without a line of difference.
// Where records lie, and what is in them, stead::Tipsy knows, of any variant of the format.

#include <algorithm>
#include <array>
#include <cstdio>
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

struct particle {
    double mass, position[3];
};

// Mass, and the sum of mass times position.
using moments = std::array<double, 4>;

void add(moments &sum, const particle &p) {
    sum[0] += p.mass;
    for (std::size_t axis = 0; axis < 3; axis++) sum[axis + 1] += p.mass * p.position[axis];
}

// Places of what the program wants of a particle.
std::array<stead::tipsy_column, 4> columns(particle *p) {
    using stead::Tipsy;
    return {Tipsy::to("mass", &p->mass, sizeof *p), Tipsy::to("x", &p->position[0], sizeof *p),
            Tipsy::to("y", &p->position[1], sizeof *p), Tipsy::to("z", &p->position[2], sizeof *p)};
}

// The share of one task.
moments add_up(reader &file, const stead::Tipsy &snapshot, stead::species species, std::size_t task, std::size_t tasks) {
    constexpr std::size_t AT_ONCE = 16;
    const stead::tipsy_part part = snapshot.part(species, task, tasks);
    const std::size_t record = snapshot.record_size(species);
    std::vector<char> records(AT_ONCE * record);
    std::array<particle, AT_ONCE> particles;
    const auto places = columns(particles.data());
    moments sum{};
    file.seek(part.offset);
    for (std::uint64_t left = part.count; left > 0;) {
        const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(left, AT_ONCE));
        file.read(records.data(), n * record);
        snapshot.decode(species, {records.data(), n * record}, {places.data(), places.size()});
        for (std::size_t i = 0; i < n; i++) add(sum, particles[i]);
        left -= n;
    }
    return sum;
}

// All tasks of all species; `open` gives each its own reader.
template <class Open> std::array<moments, 3> run(const Open &open, const stead::Tipsy &snapshot) {
    constexpr std::size_t TASKS = 64, THREADS = 4;
    std::array<moments, 3> all{};
    for (const stead::species species : stead::all_species) {
        std::vector<std::future<moments>> threads;
        for (std::size_t thread = 0; thread < THREADS; thread++) {
            threads.push_back(std::async(std::launch::async, [&, species, thread] {
                moments sum{};
                for (std::size_t task = thread; task < TASKS; task += THREADS) {
                    const std::unique_ptr<reader> file = open();
                    const moments part = add_up(*file, snapshot, species, task, TASKS);
                    for (std::size_t i = 0; i < sum.size(); i++) sum[i] += part[i];
                }
                return sum;
            }));
        }
        for (auto &thread : threads) {
            const moments part = thread.get();
            for (std::size_t i = 0; i < part.size(); i++) all[static_cast<std::size_t>(species)][i] += part[i];
        }
    }
    return all;
}

int main(int argc, char **argv) try {
    const std::string path = argc > 1 ? argv[1] : "galaxy.tipsy";
    const stead::Tipsy snapshot(path);
    // One session for all tasks: what lies in one block is read once, however many readers there are.
    const stead::ReadSession session = snapshot.session();
    const auto with_stead = [&]() -> std::unique_ptr<reader> {
        return std::make_unique<stream_reader<stead::FileReader>>(session);
    };
    const auto with_ifstream = [&]() -> std::unique_ptr<reader> {
        return std::make_unique<stream_reader<std::ifstream>>(path, std::ios_base::binary);
    };
    std::printf("time %g\n", snapshot.time());
    const auto sums = run(with_stead, snapshot);
    if (run(with_ifstream, snapshot) != sums) throw std::runtime_error("the readers differ");
    for (const stead::species species : stead::all_species) {
        // Who wants arrays rather than a reader has them in one line.
        moments whole{};
        const auto [mass, x, y, z] = snapshot.load(species, 0, 1, "mass", "x", "y", "z");
        for (std::size_t i = 0; i < mass.size(); i++) add(whole, {mass[i], {x[i], y[i], z[i]}});
        const moments &s = sums[static_cast<std::size_t>(species)];
        if (whole != s) throw std::runtime_error("the arrays differ");
        std::printf("%-4s %llu particles, mass %.6f, centre %.6f %.6f %.6f\n", stead::species_name(species).data(),
                    static_cast<unsigned long long>(mass.size()), s[0], s[1] / s[0], s[2] / s[0], s[3] / s[0]);
    }
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
