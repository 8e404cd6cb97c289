// The C++ face: everything in stead.hpp, with what is thrown.

#include "check.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <numeric>
#include <thread>

static const std::string people = "name,age,zip\nJane,41,01234\nJoe,NA,99999\nAnn,29,00007\n";

template <class T, class = void> struct takes_a_flag_that_goes : std::false_type {};
template <class T>
struct takes_a_flag_that_goes<T, std::void_t<decltype(std::declval<T &>().cancel(stead::cancel_flag()))>>
    : std::true_type {};
static_assert(!takes_a_flag_that_goes<stead::copy_options>::value);
static_assert(!std::is_copy_constructible_v<stead::dataset> && std::is_move_constructible_v<stead::dataset>);
static_assert(!std::is_copy_constructible_v<stead::request> && std::is_move_constructible_v<stead::request>);
static_assert(!std::is_copy_constructible_v<stead::report> && std::is_nothrow_move_constructible_v<stead::report>);
static_assert(std::is_copy_constructible_v<stead::value> && std::is_base_of_v<std::runtime_error, stead::error>);

static void errors() {
    const stead::error e = thrown([] { stead::dataset::open("no/such.csv"); });
    CHECK(e.kind() == stead::kind::not_found && e.path() == "no/such.csv" && e.line() == 0);
    CHECK(!e.offset() && !e.is_retryable() && e.column().empty());
    const auto broken = [] {
        const auto d = stead::dataset::bytes("id,bytes\n1,100\n2,abc\n", "broken.csv",
                                             stead::options().set("column-type", "bytes=number"));
        d.run({"sum:bytes"});
    };
    const stead::error bad = thrown(broken);
    CHECK(bad.kind() == stead::kind::data && bad.line() == 3 && bad.column() == "bytes" && bad.path() == "broken.csv");
    CHECK(!bad.hint().empty());
    CHECK(fails(stead::kind::usage, "no option 'nope'", [] { stead::options().set("nope", "1"); }));
}

static void datasets() {
    auto d = stead::dataset::bytes(people, "people.csv");
    CHECK(d.format() == "csv" && d.columns() == 3 && d.column_name(1) == "age" && d.column_type(0) == "text");
    CHECK(d.find_column("zip") == 2 && d.files() == 1 && d.file(0) == "people.csv" && d.bytes() == people.size());
    CHECK(d.shape().empty() && d.describe(1).find("Jane") != std::string::npos);
    CHECK(fails(stead::kind::usage, "no column 3", [&] { d.column_name(3); }));
    CHECK(fails(stead::kind::usage, "no column 'agee'", [&] { d.find_column("agee"); }));
    const stead::dataset moved = std::move(d);
    CHECK(moved.columns() == 3 && d.get() == nullptr);
    CHECK(fails(stead::kind::usage, "NULL", [&] { d.format(); }));
    const auto named = stead::dataset::bytes("a;-;3\nb;4;5\n", "w",
                                             stead::options()
                                                 .set("delimiter", ";")
                                                 .set("header", "no")
                                                 .names({"who", "x", "y"})
                                                 .missing({"-"}));
    CHECK(named.run({"sum:x"})["sum:x"].number() == 4);
    const auto raw = stead::dataset::bytes(std::string_view("\1\2\3\4\5\6", 6), "r",
                                           stead::options().set("dtype", "u8").shape({2, 3}));
    CHECK((raw.shape() == std::vector<std::uint64_t>{2, 3}) && raw.run({"sum:2"})[std::string("sum:2")].number() == 9);
}

static void memory() {
    std::vector<float> x{1, 2, 3, 4, 5, 6};
    const auto lent = stead::dataset::array(x.data(), {2, 3});
    CHECK(lent.run({"sum:0"})["sum:0"].number() == 5 && lent.column_type(0) == "f32");
    const auto fortran = stead::dataset::array(x.data(), {2, 3}, STEAD_ORDER_FORTRAN);
    CHECK(fortran.run({"sum:0"})["sum:0"].number() == 3);
    const auto given = stead::dataset::array(std::move(x), {3, 2});
    CHECK(given.run({"max:1"})["max:1"].number() == 6);
    CHECK(fails(stead::kind::usage, "as many", [] { stead::dataset::array(std::vector<int>{1, 2}, {3}); }));
    CHECK(stead::dataset::array(std::vector<std::int8_t>{-1}, {1}).column_type(0) == "i8");
    CHECK(stead::dataset::array(std::vector<unsigned long>{1}, {1}).column_type(0) == "u64");
#if defined(__cpp_lib_span)
    const std::vector<double> y{1, 2, 4};
    CHECK(stead::dataset::array(std::span<const double>(y)).run({"sum:0"})["sum:0"].number() == 7);
#endif
    const double a[] = {1, 2, 3};
    std::vector<stead::column> columns;
    columns.emplace_back("a", a, 3);
    columns.emplace_back("b", std::vector<std::uint16_t>{1, 0, 1});
    const auto table = stead::dataset::table(std::move(columns));
    const auto r = table.run(stead::request().kernel("sum:a").by("b"));
    CHECK(r["sum:a"]["1"].number() == 4 && r["sum:a"]["0"].number() == 2);
    std::vector<stead::column> uneven;
    uneven.emplace_back("a", a, 3);
    uneven.emplace_back("b", a, 2);
    CHECK(fails(stead::kind::usage, "lengths", [&] { stead::dataset::table(std::move(uneven)); }));
    std::vector<stead::column> twice;
    twice.emplace_back("a", std::vector<int>{1});
    twice.emplace_back("a", std::vector<int>{1});
    CHECK(fails(stead::kind::usage, "two columns", [&] { stead::dataset::table(std::move(twice)); }));
}

static void values() {
    const auto d = stead::dataset::bytes("k,x,y\nb,1,2\na,nan,NA\nb,3,5\nc,inf,1\n", "k.csv");
    auto r = d.run(stead::request().kernel("mean:x").kernel("gram:x,y").kernel("rows").where("k = 'b'").threads(2));
    CHECK(r.size() == 3 && r.name(2) == "rows" && r.at(2).count() == 2 && r["mean:x"].number() == 2);
    const stead::value gram = r["gram:x,y"];
    CHECK(gram.type() == stead::type::map);
    bool matrix = false;
    for (const auto &[key, member] : gram.items()) {
        CHECK(!key.empty());
        if (member.shape().size() == 2) {
            const stead::matrix m = member.to_matrix();
            CHECK(m.rows == 2 && m.columns == 2 && m(0, 0) == 10 && m(0, 1) == 17 && m.row(1)[1] == 29);
            CHECK((member.to_vector() == std::vector<double>{10, 17, 17, 29}) && member[0][1].number() == 17);
            matrix = true;
        }
    }
    CHECK(matrix);
    CHECK(fails(stead::kind::usage, "no result 'nope'", [&] { r["nope"]; }));
    CHECK(fails(stead::kind::usage, "not text", [&] { r["rows"].text(); }));
    CHECK(fails(stead::kind::usage, "not a bool", [&] { r["rows"].boolean(); }));
    CHECK(fails(stead::kind::usage, "not a map", [&] { r["rows"]["x"]; }));
    CHECK(fails(stead::kind::usage, "no member 9", [&] { gram.at(9); }));
    CHECK(fails(stead::kind::usage, "no matrix", [&] { gram.to_matrix(); }));
    CHECK(r.json().find("\"results\"") != std::string_view::npos && r.plan().find("\"where\"") != std::string_view::npos);
    CHECK(r.metrics().rows == 4 && r.metrics().rows_kept == 2 && !r.metrics_json().empty());
    const auto grouped = d.run(stead::request().kernel("mean:x").by("k"));
    const stead::value means = grouped["mean:x"];
    CHECK(means.key(0) == "a" && means[0].is_null() && means["b"].number() == 2 && std::isinf(means["c"].number()));
    CHECK(std::holds_alternative<std::monostate>(means[0].get()) && std::get<double>(means[1].get()) == 2);
    CHECK(std::get<std::uint64_t>(r["rows"].get()) == 2 && std::get<stead::value>(means.get()).size() == 3);
    grouped.plot("means.svg");
    // A value keeps its report alive.
    const stead::value kept = [&] { return d.run({"rows"})["rows"]; }();
    CHECK(kept.count() == 4 && kept.json() == "4");
    const stead::report moved = std::move(r);
    CHECK(moved.size() == 3);
}

struct moments {
    double least = std::numeric_limits<double>::infinity();
    std::uint64_t rows = 0;
    std::uint64_t spaces = 0;
};

static void kernels() {
    std::vector<double> x(200000);
    std::iota(x.begin(), x.end(), -7.0);
    x[3] = stead::missing();
    CHECK(stead::is_missing(x[3]) && !stead::is_missing(std::nan("")));
    const auto d = stead::dataset::array(std::move(x), {100000, 2});
    const double offset = 0.25;
    const auto update = [offset](moments &s, const stead::block &b) {
        for (const double v : b.numbers(0)) {
            if (v + offset < s.least) s.least = v + offset;
            s.rows++;
        }
    };
    const auto merge = [](moments &s, const moments &o) {
        s.least = std::min(s.least, o.least);
        s.rows += o.rows;
    };
    const auto k = stead::make_kernel<moments>("least", {{"0"}, {}}, update, merge,
                                               [](const moments &s) { return s.least; });
    const auto rows = stead::make_kernel<moments>("n", {{"0"}, {}}, update, merge,
                                                  [](const moments &s) { return s.rows; });
    const auto all = stead::make_kernel<moments>(
        "all", {{"0"}, {}}, update, merge, [](const moments &s, stead::result &out) {
            out.map([&](stead::result &m) {
                m.key("least").number(s.least).key("rows").count(s.rows).key("text").text("t");
                m.key("list").list([](stead::result &l) { l.null().boolean(true); });
                m.key("numbers").numbers(std::vector<double>{1, 2}).key("m").numbers(stead::matrix{1, 2, {3, 4}});
            });
        });
    CHECK(k.name() == "least");
    for (const std::size_t threads : {1, 2, 7}) {
        const auto r = d.run(stead::request().kernel(k).kernel(rows).kernel(all).kernel("min:0").threads(threads).extent(1 << 16));
        CHECK(r["least"].number() == -6.75 && r["n"].count() == 100000 && r["min:0"].number() == -7);
        CHECK(r["all"]["m"][0][1].number() == 4 && r["all"]["list"][1].boolean() && r["all"]["text"].text() == "t");
    }
    const auto text = stead::dataset::bytes(people, "people.csv");
    const auto words = stead::make_kernel<moments>(
        "words", {{}, {"zip"}, true, true, true},
        [](moments &s, const stead::block &b) {
            for (std::size_t i = 0; i < b.rows(); i++) {
                s.rows += b.text(0, i).value_or("").size();
                s.spaces += b.record(i).size();
            }
            for (const std::string_view run : b.runs()) s.least = std::min(s.least, 1.0 * run.size());
            if (b.source() != 0 || b.number_count() != 0 || b.offset() > people.size()) throw std::logic_error("no");
        },
        [](moments &s, const moments &o) { s.rows += o.rows, s.spaces += o.spaces; },
        [](const moments &s) { return std::vector<double>{1.0 * s.rows, 1.0 * s.spaces}; });
    CHECK((text.run(stead::request().kernel(words))["words"].to_vector() == std::vector<double>{15, people.size() - 13.0}));
    // Two passes: the mean, and how many values are greater.
    struct above {
        double mean = 0, sum = 0;
        std::uint64_t rows = 0, second = 0;
    };
    const auto two = stead::make_kernel<above>(
        "two", {{"0"}, {}},
        [](above &s, const stead::block &b) {
            for (const double v : b.numbers(0)) {
                if (s.second) s.rows += v > s.mean;
                else s.sum += v, s.rows++;
            }
        },
        [](above &s, const above &o) { s.sum += o.sum, s.rows += o.rows; },
        [](above &s, stead::result &out) {
            if (s.second) out.numbers(std::vector<double>{s.mean, 1.0 * s.rows});
            else s = {s.sum / static_cast<double>(s.rows), 0, 0, 1}, out.again();
        });
    const auto small = stead::dataset::array(std::vector<double>{1, 2, 3, 4, 15}, {5});
    CHECK((small.run(stead::request().kernel(two))["two"].to_vector() == std::vector<double>{5, 1}));
    // What a kernel throws comes out of the run.
    const auto bad = [&](auto f) {
        return stead::make_kernel<moments>("bad", {{"0"}, {}}, f, merge, [](const moments &) { return 1.0; });
    };
    const auto run = [&](const stead::kernel &own) { return [&] { d.run(stead::request().kernel(own)); }; };
    const auto throws = bad([](moments &, const stead::block &) { throw std::runtime_error("a bad block"); });
    CHECK(fails(stead::kind::data, "kernel 'bad': a bad block", run(throws)));
    const auto limit = bad([](moments &, const stead::block &) { throw stead::error(stead::kind::limit, "enough"); });
    CHECK(fails(stead::kind::limit, "enough", run(limit)));
    const auto odd = bad([](moments &, const stead::block &) { throw 7; });
    CHECK(fails(stead::kind::data, "unknown type", run(odd)));
    const auto lonely = stead::make_kernel<moments>("lonely", {{"0"}, {}}, update, merge,
                                                    [](const moments &, stead::result &out) { out.key("x"); });
    CHECK(fails(stead::kind::usage, "no map is open", run(lonely)));
}

static void stopping() {
    const auto d = stead::dataset::array(std::vector<double>(100000, 1.0), {100000});
    stead::request q;
    int seen = 0;
    q.kernel("sum:0").extent(1 << 16).progress([&](const stead::progress &p) { seen += p.bytes == p.total_bytes; });
    CHECK(d.run(q)["sum:0"].number() == 100000 && seen >= 1);
    q.progress([](const stead::progress &) { return false; });
    CHECK(fails(stead::kind::cancelled, "stopped", [&] { d.run(q); }));
    q.progress([](const stead::progress &) { throw std::out_of_range("from the callback"); });
    bool own = false;
    try {
        d.run(q);
    } catch (const std::out_of_range &e) {
        own = std::strcmp(e.what(), "from the callback") == 0;
    }
    CHECK(own);
    q.progress([](const stead::progress &) {});
    stead::cancel_flag flag;
    q.cancel(flag);
    std::thread([&] { flag.request(); }).join();
    CHECK(flag.is_requested() && fails(stead::kind::cancelled, "stopped", [&] { d.run(q); }));
    flag.reset();
    stead::request moved = std::move(q);
    CHECK(d.run(moved).size() == 1);
}

static void layouts() {
    const std::string here = (std::filesystem::current_path() / "space").string();
    std::filesystem::create_directory(here);
    {
        std::ofstream f("numbers.csv");
        f << "x\n";
        for (int i = 1; i <= 1000; i++) f << i << '\n';
    }
    const stead::options found = stead::options().set("dataspace", "s=" + here);
    stead::copy_options put;
    // What only lives in this statement is kept.
    put.dataspace("s", here).parts(2).stripe(100).align(stead::options().set("quote", "none")).threads(1);
    CHECK(stead::put("numbers.csv", "s", put).find("\"parts\": 2") != std::string::npos);
    CHECK(fails(stead::kind::usage, "a layout already", [&] { stead::put("numbers.csv", "s", put); }));
    CHECK(!stead::put("numbers.csv", "s", put.force().name("again")).empty());
    const std::string layout = "numbers.csv.stead-layout.toml";
    CHECK(stead::describe_layout(layout).find("\"numbers.csv\"") != std::string::npos);
    CHECK(stead::dataset::open(layout, found).run({"sum:x"})["sum:x"].number() == 500500);
    put.align(found).name("third");
    CHECK(!stead::put("numbers.csv", "s", put).empty());
    const stead::cancel_flag stop;
    stead::copy_options get;
    get.dataspace("s", here).target("back.csv").cancel(stop);
    stead::get(layout, get);
    CHECK(std::filesystem::file_size("back.csv") == std::filesystem::file_size("numbers.csv"));
    stop.request();
    CHECK(fails(stead::kind::cancelled, "", [&] { stead::get(layout, get.force()); }));
}

int main() {
    CHECK(stead::version() == STEAD_VERSION);
    errors();
    datasets();
    memory();
    values();
    kernels();
    stopping();
    layouts();
    CHECK(stead_handles_alive() == 0);
    std::cout << "face: " << checks << " checks, " << failures << " failed\n";
    return failures != 0;
}
