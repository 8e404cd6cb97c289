// Flows in C++: everything in stead_flow.hpp, with what is thrown.

#include "check.hpp"

#include <numeric>
#include <thread>

namespace st = stead::stream;

static_assert(!std::is_copy_constructible_v<stead::flow> && std::is_move_constructible_v<stead::flow>);

static std::vector<std::string> spaces;

static const char *const GRAPH = R"(
[read.sim]
[node.sum]
op = "reduce"
of = "sim.T"
how = "sum"
[node.twice]
op = "map"
of = ["sim.T", "sum"]
function = "twice"
[node.last]
op = "window"
of = "sum"
steps = 2
[write.out]
variables = { sum = "sum", twice = "twice" }
readers = 1
[write.last]
variables = { last = "last" }
readers = 1
)";

static stead::flow_options how() {
    stead::flow_options o;
    o.dataspaces = spaces;
    o.timeout = std::chrono::minutes(1);
    return o;
}

static constexpr std::size_t N = 100000;

static double value(std::uint64_t step, std::size_t i) { return static_cast<double>(step) + static_cast<double>(i % 7); }

static void simulate(std::uint64_t steps) {
    st::writer_options o;
    o.dataspaces = spaces;
    o.readers = 1;
    o.timeout = std::chrono::minutes(1);
    st::writer out("sim", o);
    const auto t = out.define<double>("T", {N});
    for (std::uint64_t n = 0; n < steps; n++) {
        out.begin();
        auto room = out.empty(t, {0}, {N});
        for (std::size_t i = 0; i < N; i++) room[i] = value(n, i);
        out.put(std::move(room));
        out.end();
    }
}

static st::reader reads(const char *name) {
    st::reader_options o;
    o.dataspaces = spaces;
    o.timeout = std::chrono::minutes(1);
    return st::reader(name, o);
}

static void twice(const stead::flow::arrays &given, stead::flow::result &to) {
    CHECK(given.size() == 2 && given[0].dtype() == STEAD_F64 && given[1].shape().size() == 0);
    CHECK(given[0].shape().size() == 1 && given[0].shape()[0] == N && to.shape()[0] == N);
    const auto x = given[0].as<double>();
    const auto out = to.as<double>();
    CHECK(x.size() == N && out.size() == N && given[1].as<double>().size() == 1);
    CHECK(fails(stead::kind::usage, "of another type", [&] { given[0].as<float>(); }));
    CHECK(fails(stead::kind::usage, "of another type", [&] { to.as<std::int64_t>(); }));
    for (std::size_t i = 0; i < N; i++) out[i] = 2 * x[i];
}

/// Two ranks, each with a graph of its own, as two programs would have.
static void runs() {
    std::thread simulation(simulate, 3);
    std::vector<std::thread> ranks;
    for (std::uint64_t rank = 0; rank < 2; rank++) {
        ranks.emplace_back([rank] {
            stead::flow graph(GRAPH);
            graph.function("twice", [](const auto &, auto &) { CHECK(false); }).function("twice", twice);
            stead::flow_options o = how();
            o.rank = rank;
            o.ranks = 2;
            CHECK(graph.run(o).find("\"steps\": 3") != std::string::npos);
        });
    }
    std::thread windows([] {
        st::reader in = reads("last");
        std::uint64_t n = 0;
        for (auto step = in.next(); step; step = in.next(), n++) {
            CHECK(step->get<double>("last").size() == 2);
            // Which steps of the simulation it is made of.
            const auto of = step->attribute_as<std::vector<std::int64_t>>("last", "sim.steps");
            CHECK(of == (std::vector<std::int64_t>{std::int64_t(n), std::int64_t(n) + 1, 1}));
        }
        CHECK(n == 2);
    });
    {
        st::reader in = reads("out");
        std::uint64_t n = 0;
        for (auto step = in.next(); step; step = in.next(), n++) {
            const auto got = step->get<double>("twice");
            double sum = 0;
            bool right = got.size() == N;
            for (std::size_t i = 0; right && i < N; i++) {
                sum += value(n, i);
                right = got[i] == 2 * value(n, i);
            }
            CHECK(right && step->get<double>("sum").at(0) == sum);
        }
        CHECK(n == 3);
    }
    simulation.join();
    windows.join();
    for (std::thread &rank : ranks) rank.join();
}

struct mine {
    int number;
};

static void fails_as_it_should() {
    CHECK(fails(stead::kind::usage, "line 2", [] { stead::flow("name = \"a\"\nname = \"b\"\n"); }));
    CHECK(fails(stead::kind::not_found, "no such file", [] { stead::flow("/there/is/none.toml"); }));
    stead::flow graph("[read.sim]\n[node.a]\nop = \"map\"\nof = \"sim.T\"\nfunction = \"a\"\n[write.o]\nvariables = { a = \"a\" }\n");
    CHECK(fails(stead::kind::usage, "no function 'a'", [&] { graph.run(how()); }));
    graph.function("a", [](const auto &, auto &) { throw mine{7}; });
    std::thread simulation(simulate, 1);
    int number = 0;
    try {
        graph.run(how());
    } catch (const mine &e) {
        number = e.number;
    }
    CHECK(number == 7);
    simulation.join();
    stead::flow_options soon = how();
    soon.timeout = std::chrono::milliseconds(20);
    CHECK(fails(stead::kind::timeout, "nobody writes a stream 'sim'", [&] { graph.run(soon); }));
    soon.rank = 3;
    CHECK(fails(stead::kind::usage, "rank 3 of 1", [&] { graph.run(soon); }));
    stead::cancel_flag flag;
    flag.request();
    stead::flow_options stopped = how();
    stopped.cancel = &flag;
    CHECK(fails(stead::kind::cancelled, "", [&] { graph.run(stopped); }));
}

/// A flow of a file, with a function in a library beside it.
static void loads(const char *file) {
    stead::flow graph(file);
    CHECK(fails(stead::kind::usage, "which was not loaded", [&] { graph.run(how()); }));
    graph.load();
    std::thread simulation(simulate, 1);
    std::thread looks([] {
        st::reader in = reads("warm");
        auto step = in.next();
        CHECK(step && step->get<double>("T").at(8) == value(0, 8) + 1);
        CHECK(!in.next());
    });
    graph.run(how());
    simulation.join();
    looks.join();
}

// In memory: `flow FOLDER FILE`.
int main(int argc, char **argv) {
    if (argc < 3) return 2;
    spaces = {"memory=" + std::string(argv[1])};
    runs();
    loads(argv[2]);
    fails_as_it_should();
    CHECK(stead_handles_alive() == 0);
    std::printf("flow: %d checks, %d failed\n", checks.load(), failures.load());
    return failures != 0;
}
