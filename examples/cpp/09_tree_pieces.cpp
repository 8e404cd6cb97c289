// Tree pieces: many more tasks than threads, each with its own particles of a snapshot (Tipsy), as codes in the manner of
// Charm++ have them. A piece asks for its share and returns; the scheduler of its thread has others work meanwhile, and
// delivers the bytes when they are there. No thread ever waits while one of its pieces has something to do.

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <stead.hpp>

constexpr std::size_t PIECES = 1024, THREADS = 2;

// What one thread does: messages, in their order, and reads that are done.
class scheduler {
public:
    using message = std::function<void()>;
    using arrived = std::function<void(stead::view)>;

    explicit scheduler(const stead::ReadSession &session) : session_(session) {}

    // Has something done later by this thread.
    void post(message m) { ready_.push_back(std::move(m)); }
    // Asks for bytes; `then` is called with them by this thread.
    void read(std::uint64_t offset, std::size_t size, arrived then) {
        auto waiting = std::make_unique<arrived>(std::move(then));
        reads_.read(session_, offset, size, waiting.get());
        waiting.release();
    }
    // Until there is nothing to do, and nothing is under way.
    void run() {
        for (;;) {
            // Whatever has come; only who has nothing else to do waits for it. (A thread that has other things to wait
            // for watches the descriptor reads_.fd().)
            while (auto done = ready_.empty() ? reads_.next() : reads_.next(std::chrono::seconds(0))) {
                const std::unique_ptr<arrived> then(static_cast<arrived *>(done->user));
                post([then = std::move(*then), bytes = std::make_shared<stead::view>(done->take())] {
                    then(std::move(*bytes));
                });
            }
            if (ready_.empty()) return;
            const message next = std::move(ready_.front());
            ready_.pop_front();
            next();
        }
    }

private:
    const stead::ReadSession &session_;
    std::deque<message> ready_;
    stead::read_queue reads_;
};

// For each species: how many particles, their mass, and mass times position.
using moments = std::array<std::array<double, 5>, 3>;

class tree_piece {
public:
    tree_piece(scheduler &s, const stead::Tipsy &snapshot, std::size_t index, moments &sum)
        : scheduler_(s), snapshot_(snapshot), index_(index), sum_(sum) {}

    // Asks for the particles of all species.
    void load() {
        for (const stead::species k : stead::all_species) {
            const stead::tipsy_part part = snapshot_.part(k, index_, PIECES);
            scheduler_.read(part.offset, static_cast<std::size_t>(part.bytes),
                            [this, k](const stead::view &records) { take(k, records); });
        }
    }

private:
    struct particle {
        double mass, position[3];
    };

    // The particles of one species have come, while pieces that had theirs were building.
    void take(stead::species k, const stead::view &records) {
        const std::size_t before = particles_.size(), n = records.size() / snapshot_.record_size(k);
        particles_.resize(before + n);
        if (n > 0) {
            particle *p = &particles_[before];
            using stead::Tipsy;
            snapshot_.decode(k, records,
                             {Tipsy::to("mass", &p->mass, sizeof *p), Tipsy::to("x", &p->position[0], sizeof *p),
                              Tipsy::to("y", &p->position[1], sizeof *p), Tipsy::to("z", &p->position[2], sizeof *p)});
        }
        // Of whatever was a mapping of the file: were all bytes there?
        records.check();
        auto &s = sum_[static_cast<std::size_t>(k)];
        for (std::size_t i = before; i < particles_.size(); i++) {
            const particle &p = particles_[i];
            s[0] += 1, s[1] += p.mass;
            for (std::size_t axis = 0; axis < 3; axis++) s[axis + 2] += p.mass * p.position[axis];
        }
        if (++species_ == 3) scheduler_.post([this] { build(0, particles_.size(), 0); });
    }

    // Halves the particles along one axis after the other, until a bucket has eight. Each step is a message.
    void build(std::size_t from, std::size_t to, std::size_t axis) {
        if (to - from <= 8) return;
        const auto at = particles_.begin();
        const std::size_t middle = from + (to - from) / 2;
        const auto mid = static_cast<std::ptrdiff_t>(middle);
        std::nth_element(at + static_cast<std::ptrdiff_t>(from), at + mid, at + static_cast<std::ptrdiff_t>(to),
                         [axis](const particle &a, const particle &b) { return a.position[axis] < b.position[axis]; });
        scheduler_.post([this, from, middle, axis] { build(from, middle, (axis + 1) % 3); });
        scheduler_.post([this, middle, to, axis] { build(middle, to, (axis + 1) % 3); });
    }

    scheduler &scheduler_;
    const stead::Tipsy &snapshot_;
    std::size_t index_;
    moments &sum_;
    int species_ = 0;
    std::vector<particle> particles_;
};

// One thread with its share of the pieces.
moments work(const stead::Tipsy &snapshot, const stead::ReadSession &session, std::size_t thread) {
    moments sum{};
    scheduler s(session);
    std::deque<tree_piece> pieces;
    for (std::size_t i = thread; i < PIECES; i += THREADS) {
        tree_piece &piece = pieces.emplace_back(s, snapshot, i, sum);
        s.post([&piece] { piece.load(); });
    }
    s.run();
    return sum;
}

int main(int argc, char **argv) try {
    const stead::Tipsy snapshot(argc > 1 ? argv[1] : "galaxy.tipsy");
    const stead::ReadSession session = snapshot.session();
    std::vector<std::future<moments>> threads;
    for (std::size_t t = 0; t < THREADS; t++)
        threads.push_back(std::async(std::launch::async, [&, t] { return work(snapshot, session, t); }));
    moments all{};
    for (auto &thread : threads) {
        const moments part = thread.get();
        for (std::size_t k = 0; k < 3; k++)
            for (std::size_t i = 0; i < part[k].size(); i++) all[k][i] += part[k][i];
    }
    std::printf("%zu pieces on %zu threads\n", PIECES, THREADS);
    for (const stead::species k : stead::all_species) {
        const auto &s = all[static_cast<std::size_t>(k)];
        std::printf("%-4s %.0f particles, mass %.6f, centre %.6f %.6f %.6f\n", stead::species_name(k).data(), s[0], s[1],
                    s[2] / s[1], s[3] / s[1], s[4] / s[1]);
    }
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
