// Tipsy snapshots in C++: everything in stead_tipsy.hpp, with what is thrown.

#include "check.hpp"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <future>

using stead::species;

static_assert(!std::is_copy_constructible_v<stead::Tipsy> && std::is_nothrow_move_constructible_v<stead::Tipsy>);

/// The value of a field of a particle.
static double value(species k, std::uint64_t i, std::size_t field) {
    return static_cast<double>(static_cast<std::size_t>(k) * 100'000 + i * 16 + field) + 0.5;
}

template <class T> static void put(std::ofstream &f, T x, bool big) {
    char bytes[sizeof x];
    std::memcpy(bytes, &x, sizeof x);
    const std::uint16_t one = 1;
    const bool little = *reinterpret_cast<const unsigned char *>(&one) == 1;
    for (std::size_t i = 0; i < sizeof x; i++) f.put(bytes[big == little ? sizeof x - 1 - i : i]);
}

static constexpr std::size_t FIELDS[] = {12, 9, 11};

/// A file of so many particles, with so many of positions and velocities as doubles.
static void make(const char *path, std::array<std::uint32_t, 3> counts, bool big, int doubles, bool pad = true) {
    std::ofstream f(path, std::ios::binary);
    put(f, 0.25, big);
    put(f, counts[0] + counts[1] + counts[2], big);
    put(f, std::uint32_t(3), big);
    for (const std::uint32_t n : counts) put(f, n, big);
    if (pad) put(f, std::uint32_t(0), big);
    for (const species k : stead::all_species)
        for (std::uint64_t i = 0; i < counts[static_cast<std::size_t>(k)]; i++)
            for (std::size_t field = 0; field < FIELDS[static_cast<std::size_t>(k)]; field++) {
                const double x = value(k, i, field);
                if ((field >= 1 && field <= 3 && doubles > 0) || (field >= 4 && field <= 6 && doubles > 1))
                    put(f, x, big);
                else
                    put(f, static_cast<float>(x), big);
            }
}

static void variants() {
    for (const bool big : {false, true})
        for (const bool pad : {false, true})
            for (const int doubles : {0, 1, 2}) {
                make("variant.tipsy", {60, 50, 7}, big, doubles, pad);
                stead::Tipsy snapshot("variant.tipsy");
                CHECK(snapshot.time() == 0.25 && snapshot.header().big_endian == big);
                CHECK(snapshot.header().header_bytes == (pad ? 32 : 28));
                CHECK(snapshot.count(species::gas) == 60 && snapshot.count(species::star) == 7);
                for (const species k : stead::all_species) {
                    const auto fields = snapshot.fields(k);
                    CHECK(fields.size() == FIELDS[static_cast<std::size_t>(k)]);
                    CHECK(fields.back().offset + 4 == snapshot.record_size(k));
                    std::uint64_t row = 0;
                    for (std::size_t task = 0; task < 70; task++) {
                        const auto part = snapshot.part(k, task, 70);
                        const auto [vz, mass, x] = snapshot.load(k, task, 70, "vz", "mass", "x");
                        CHECK(part.first == row && part.count == mass.size() && mass.size() == vz.size());
                        for (std::size_t i = 0; i < mass.size(); i++, row++)
                            CHECK(mass[i] == value(k, row, 0) && x[i] == value(k, row, 1) && vz[i] == value(k, row, 6));
                    }
                    CHECK(row == snapshot.count(k));
                }
                snapshot.close();
            }
}

static void places() {
    struct particle {
        float mass;
        double position[3];
    };
    make("places.tipsy", {3000, 0, 0}, true, 0);
    const stead::Tipsy snapshot("places.tipsy");
    std::vector<particle> particles(1000);
    particle &first = particles[0];
    using T = stead::Tipsy;
    snapshot.load_into(species::gas, 2, 3,
                       {T::to("mass", &first.mass, sizeof first), T::to("y", &first.position[1], sizeof first)});
    for (std::size_t i = 0; i < particles.size(); i++)
        CHECK(particles[i].mass == static_cast<float>(value(species::gas, 2000 + i, 0)) &&
              particles[i].position[1] == value(species::gas, 2000 + i, 2) && particles[i].position[0] == 0);
    const auto [phi] = snapshot.load<float>(species::gas, 0, 3, "phi");
    CHECK(phi.size() == 1000 && phi[999] == static_cast<float>(value(species::gas, 999, 11)));
}

/// Reads that do not wait, and threads.
static void reads() {
    make("reads.tipsy", {0, 0, 4000}, false, 1);
    stead::read_options options;
    options.flags = STEAD_READ_PREAD;
    const stead::Tipsy snapshot("reads.tipsy", options);
    const stead::ReadSession session = snapshot.session();
    std::vector<std::future<stead::view>> all;
    for (std::size_t task = 0; task < 50; task++) {
        const auto part = snapshot.part(species::star, task, 50);
        all.push_back(session.read(part.offset, static_cast<std::size_t>(part.bytes)));
    }
    for (std::size_t task = 0; task < 50; task++) {
        const stead::view view = all[task].get();
        std::vector<double> tform(view.size() / snapshot.record_size(species::star));
        snapshot.decode(species::star, view, {stead::Tipsy::to("tform", tform.data())});
        CHECK(tform.size() == 80 && tform[79] == value(species::star, task * 80 + 79, 8));
    }
    std::vector<std::future<double>> sums;
    for (std::size_t task = 0; task < 8; task++)
        sums.push_back(std::async(std::launch::async, [&snapshot, task] {
            double sum = 0;
            const auto [all_z] = snapshot.load(species::star, task, 8, "z");
            for (const double z : all_z) sum += z;
            return sum;
        }));
    double sum = 0, wanted = 0;
    for (auto &s : sums) sum += s.get();
    for (std::uint64_t i = 0; i < 4000; i++) wanted += value(species::star, i, 3);
    CHECK(sum == wanted);
}

static void wrong() {
    CHECK(fails(stead::kind::not_found, "no/such", [] { stead::Tipsy("no/such"); }));
    std::ofstream("wrong.tipsy") << "what is no snapshot at all, whatever it is";
    CHECK(fails(stead::kind::format, "no Tipsy file", [] { stead::Tipsy("wrong.tipsy"); }));
    make("wrong.tipsy", {1, 2, 3}, true, 1);
    stead::Tipsy snapshot("wrong.tipsy");
    CHECK(fails(stead::kind::usage, "no task 4 of 4", [&] { snapshot.part(species::gas, 4, 4); }));
    CHECK(fails(stead::kind::usage, "no column 'eps'", [&] { snapshot.load(species::gas, 0, 1, "eps"); }));
    CHECK(fails(stead::kind::usage, "array is of floats", [&] { snapshot.load<float>(species::gas, 0, 1, "x"); }));
    stead::Tipsy moved = std::move(snapshot);
    CHECK(fails(stead::kind::usage, "NULL", [&] { snapshot.part(species::gas); }));
    CHECK(moved.part(species::star).count == 3);
    std::ofstream("wrong.tipsy", std::ios::trunc);
    CHECK(fails(stead::kind::changed, "wrong.tipsy", [&] { moved.close(); }));
    CHECK(fails(stead::kind::usage, "NULL", [&] { moved.session(); }));
    moved.close();
    CHECK(fails(stead::kind::usage, "NULL", [] { stead::Tipsy(static_cast<stead_tipsy *>(nullptr)); }));
}

int main() {
    variants();
    places();
    reads();
    wrong();
    CHECK(stead::species_name(species::dark) == "dark");
    CHECK(stead_handles_alive() == 0);
    std::printf("tipsy: %d checks, %d failed\n", checks.load(), failures.load());
    return failures != 0;
}
