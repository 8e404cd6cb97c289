// Streams in C++: everything in stead_stream.hpp, with what is thrown.

#include "check.hpp"

#include <iostream>
#include <numeric>
#include <optional>

namespace st = stead::stream;

static_assert(!std::is_copy_constructible_v<st::writer> && std::is_move_constructible_v<st::writer>);
static_assert(!std::is_copy_constructible_v<st::reader> && std::is_move_constructible_v<st::reader>);
static_assert(!std::is_copy_constructible_v<st::step> && std::is_move_constructible_v<st::step>);
static_assert(!std::is_copy_constructible_v<st::view<double>> && std::is_move_constructible_v<st::view<double>>);

static std::vector<std::string> spaces;

static st::writer_options writes() {
    st::writer_options o;
    o.dataspaces = spaces;
    o.timeout = std::chrono::minutes(1);
    return o;
}

static st::reader_options reads() {
    st::reader_options o;
    o.dataspaces = spaces;
    o.timeout = std::chrono::minutes(1);
    return o;
}

/// Elements that count on.
static std::vector<double> from(double first, std::size_t n) {
    std::vector<double> all(n);
    std::iota(all.begin(), all.end(), first);
    return all;
}

static void says_what_variables_are() {
    st::writer_options how = writes();
    how.keep = 4;
    st::writer out("variables", how);
    const auto t = out.define<double>("T", {4, 6}, {"y", "x"});
    out.set(t, "units", "K");
    out.set(t, "long name", std::string("temperature"));
    out.set(t, "level", 3);
    CHECK(fails(stead::kind::usage, "'large'", [&] { out.set(t, "large", std::uint64_t(1) << 63); }));
    out.set(t, "scale", 0.5);
    out.set(t, "names", std::vector<std::string>{"a", "b"});
    out.set(t, "codes", std::vector<std::int64_t>{-1, 1});
    out.set(t, "valid", std::vector<double>{0, 1e9});
    const auto n = out.define<std::int32_t>("n", {});
    CHECK(t.number() == 0 && t.ndim() == 2 && n.number() == 1 && n.ndim() == 0);
    const std::int32_t seven = 7;
    CHECK(out.begin() == 0);
    auto top = out.empty(t, {0, 0}, {2, 6});
    CHECK(top.size() == 12 && top.data() == &top[0] && top.end() - top.begin() == 12);
    std::iota(top.begin(), top.end(), 0.0);
    out.put(std::move(top));
    out.put(t, {2, 0}, {2, 6}, from(12, 12).data());
    out.put(n, &seven);
    out.end();
    CHECK(out.begin() == 1);
    const std::vector<float> late(3, 2.5f);
    out.put("late", {3}, {0}, {3}, late.data());
    CHECK(fails(stead::kind::usage, "2 names for 1", [&] { out.define<float>("x", {3}, {"a", "b"}); }));
    CHECK(fails(stead::kind::usage, "the start has 1 numbers", [&] { out.put(t, {0}, {1, 1}, from(0, 1).data()); }));
    CHECK(fails(stead::kind::usage, "the count has 0 numbers", [&] { out.empty(t, {0, 0}, {}); }));
    CHECK(fails(stead::kind::usage, "does not lie", [&] { out.put(t, {4, 0}, {1, 1}, from(0, 1).data()); }));
    out.end();
    out.close();
    CHECK(fails(stead::kind::usage, "NULL", [&] { out.begin(); }));

    st::reader in("variables", reads());
    CHECK((in.steps() == std::vector<std::uint64_t>{0, 1}));
    std::optional<st::step> first = in.next();
    CHECK(first && first->number() == 0 && first->dropped() == 0 && first->bytes() == 24 * 8 + 4);
    CHECK(std::chrono::system_clock::now() - first->completed() < std::chrono::hours(1));
    const auto all = first->variables();
    CHECK(all.size() == 2 && all[0].name == "T" && all[1].name == "n");
    CHECK(all[0].dtype == STEAD_F64 && (all[0].shape == st::numbers{4, 6}));
    CHECK((all[0].dims == std::vector<std::string>{"y", "x"}) && all[1].dims.empty());
    const auto said = first->attributes("T");
    CHECK(said.size() == 7 && std::get<std::string>(said.at("units")) == "K");
    CHECK(std::get<std::string>(said.at("long name")) == "temperature" && std::get<double>(said.at("scale")) == 0.5);
    CHECK((std::get<std::vector<std::string>>(said.at("names")) == std::vector<std::string>{"a", "b"}));
    CHECK((std::get<std::vector<double>>(said.at("valid")) == std::vector<double>{0, 1e9}));
    CHECK((first->attribute_as<std::vector<std::int64_t>>("T", "codes") == std::vector<std::int64_t>{-1, 1}));
    CHECK(first->attribute_as<std::int64_t>("T", "level") == 3 && first->attributes("n").empty());
    CHECK(fails(stead::kind::usage, "another type", [&] { first->attribute_as<double>("T", "level"); }));
    CHECK(fails(stead::kind::not_found, "'colour'", [&] { first->attribute_as<double>("T", "colour"); }));

    CHECK(first->get<double>("T") == from(0, 24));
    CHECK((first->get<double>("T", {1, 2}, {2, 2}) == std::vector<double>{8, 9, 14, 15}));
    CHECK(first->get<std::int32_t>("n") == std::vector<std::int32_t>{7} && first->view<std::int32_t>("n")() == 7);
    CHECK(first->get<double>("T", {4, 0}, {0, 6}).empty());
    double four[4];
    first->get_into("T", {0, 0}, {2, 2}, four, 4);
    CHECK(four[2] == 6);
    CHECK(fails(stead::kind::usage, "memory for it 24", [&] { first->get_into("T", {0, 0}, {2, 2}, four, 3); }));
    CHECK(fails(stead::kind::usage, "another type", [&] { first->get<float>("T"); }));
    CHECK(fails(stead::kind::usage, "not within", [&] { first->get<double>("T", {1, 0}, {4, 6}); }));
    CHECK(fails(stead::kind::usage, "not within", [&] { first->get<double>("T", {0, 0}, {UINT64_MAX / 8, 1}); }));
    CHECK(fails(stead::kind::usage, "the start has 3", [&] { first->get<double>("T", {0, 0, 0}, {1, 1}); }));
    CHECK(fails(stead::kind::not_found, "'U'", [&] { first->find("U"); }));

    // Of one block, by strides; it outlives its step, its reader and all.
    st::view<double> part = first->view<double>("T", {0, 1}, {2, 3});
    CHECK(part.is_view() && (part.shape() == st::numbers{2, 3}) && (part.strides() == std::vector<std::int64_t>{48, 8}));
    CHECK(!first->view<double>("T").is_view() && first->view<double>("T")(3, 5) == 23);
    const st::step again = in.at(0);
    CHECK(again.number() == 0);
    CHECK(fails(stead::kind::not_found, "step 9", [&] { in.at(9); }));
    std::vector<st::step> kept;
    for (st::step &s : in) {
        CHECK(s.get<float>("late") == late);
        kept.push_back(std::move(s));
    }
    CHECK(kept.size() == 1 && kept[0].number() == 1 && in.is_over() && !in.next());
    first.reset();
    { const st::reader gone = std::move(in); }
    CHECK(part(0, 0) == 1 && part(1, 2) == 9 && part.data()[7] == 8);
}

static void frees_what_is_not_put() {
    st::writer out("rooms", writes());
    const auto t = out.define<double>("T", {4});
    out.begin();
    auto first = out.empty(t, {0}, {2}), second = out.empty(t, {2}, {2});
    { const auto never = out.empty(t, {0}, {4}); }
    out.put(t, from(0, 4).data());
    out.end();
    st::writer now = std::move(out);
    CHECK(fails(stead::kind::usage, "NULL", [&] { out.put(std::move(first)); }));
    now.close();
    CHECK(fails(stead::kind::usage, "NULL", [&] { now.put(std::move(second)); }));
    CHECK(stead_handles_alive() == 0);
}

/// A variable that was defined anew, as one of another type or number of dimensions, is no longer what it was.
static void refuses_what_a_variable_was() {
    st::writer out("anew", writes());
    const std::size_t n = 1000;
    const auto was = out.define<double>("T", {n});
    const std::vector<double> all = from(0, n);
    out.begin();
    out.put(was, all.data());
    out.end();
    const auto now = out.define<float>("T", {n});
    CHECK(was.number() == now.number());
    out.begin();
    // Elements of these would be behind the memory, and those of the others behind what they are put from.
    CHECK(fails(stead::kind::usage, "1 dimensions of type f32 by now, and not 1 of type f64",
                [&] { out.empty(was, {0}, {n})[n - 1] = 1; }));
    CHECK(fails(stead::kind::usage, "not 1 of type f64", [&] { out.put(was, {0}, {n}, all.data()); }));
    CHECK(fails(stead::kind::usage, "not 1 of type f64", [&] { out.put(was, all.data()); }));
    const st::buffer<double> made(n, spaces);
    CHECK(fails(stead::kind::usage, "not 1 of type f64", [&] { out.put(was, {0}, {n}, made); }));
    CHECK(fails(stead::kind::usage, "not 1 of type f64", [&] { out.put(was, made); }));
    const std::vector<float> half(n, 0.5f);
    out.put(now, half.data());
    out.end();
    // A start of one number has no second one.
    const auto flat = out.define<float>("T", {n, 2});
    CHECK(fails(stead::kind::usage, "has 2 dimensions", [&] { out.empty(now, {0}, {n}); }));
    CHECK(fails(stead::kind::usage, "has 2 dimensions", [&] { out.put(now, half.data()); }));
    // Another length is no other variable.
    CHECK(out.define<float>("T", {n + 1, 2}).number() == flat.number());
    out.begin();
    auto room = out.empty(flat, {n, 0}, {1, 2});
    CHECK(room.size() == 2);
    room[0] = room[1] = 1;
    out.put(std::move(room));
    out.end();
    out.close();
    // What a reader asks for is looked at in each step.
    st::reader in("anew", reads());
    const st::step last = in.at(2);
    CHECK(fails(stead::kind::usage, "another type", [&] { last.view<double>("T", {n, 0}, {1, 2}); }));
    CHECK(fails(stead::kind::usage, "the start has 1", [&] { last.get<float>("T", {n}, {1}); }));
    CHECK((last.get<float>("T", {n, 0}, {1, 2}) == std::vector<float>{1, 1}));
}

static void ends_as_it_should() {
    const std::vector<double> ones(4, 1.0);
    {
        st::writer out("thrown", writes());
        try {
            st::writer within("within", writes());
            within.begin();
            within.put("T", {4}, {0}, {4}, ones.data());
            within.end();
            throw std::runtime_error("of the program");
        } catch (const std::runtime_error &) {
        }
        out.begin();
        out.put("T", {4}, {0}, {4}, ones.data());
        out.end();
    }
    // What was thrown through has failed, and what went has ended.
    st::reader failed("within", reads()), ended("thrown", reads());
    CHECK(failed.next() && ended.next() && !ended.next());
    CHECK(fails(stead::kind::peer, "writer 0 of stream 'within'", [&] { failed.next(); }));
    st::writer out("given-up", writes());
    out.abandon();
    CHECK(fails(stead::kind::peer, "'given-up'", [] { st::reader("given-up", reads()).next(); }));
}

static void looks_after_streams() {
    st::reader_options soon = reads();
    soon.timeout = std::chrono::milliseconds(1);
    CHECK(fails(stead::kind::timeout, "nobody writes", [&] { st::reader("looked", soon); }));
    soon.nodes = {"n7"};
    CHECK(fails(stead::kind::peer, "node 'n7' is not reached", [&] { st::reader("looked", soon); }));
    soon.nodes->clear();
    CHECK(fails(stead::kind::timeout, "nobody writes", [&] { st::reader("looked", soon); }));
    st::writer out("looked", writes());
    CHECK(fails(stead::kind::usage, "already", [] { st::writer("looked", writes()); }));
    st::reader in("looked", reads());
    CHECK(!in.next_within(std::chrono::microseconds(10)) && !in.is_over());
    st::survey here;
    here.dataspaces = spaces;
    CHECK(st::list(here).find("\"looked\"") != std::string::npos);
    CHECK(st::describe("looked", here).find("\"live\"") != std::string::npos);
    CHECK(st::explain("looked", 0, here).find("\"step\": null") != std::string::npos);
    here.nodes = {"n7"};
    CHECK(fails(stead::kind::peer, "node 'n7' is not reached", [&] { st::list(here); }));
    // All of it is here.
    CHECK(st::describe("looked", here).find("\"live\"") != std::string::npos);
    here.nodes->clear();
    CHECK(st::list(here).find("\"looked\"") != std::string::npos);
    out.begin();
    out.put("T", {4}, {0}, {4}, std::vector<double>(4).data());
    out.end();
    const auto step = in.next();
    step->get<double>("T");
    CHECK(step->report().find("\"looked\"") != std::string::npos);
    CHECK(in.report().find("\"peak\"") != std::string::npos && out.report().find("\"waits\"") != std::string::npos);
    CHECK(st::explain("looked", 2, here).find("\"assumed\"") != std::string::npos);
    CHECK(fails(stead::kind::usage, "written or read", [] { st::remove("looked", false, spaces); }));
    here.nodes = {"n7"};
    CHECK(fails(stead::kind::peer, "is not reached", [&] { st::remove_on_nodes("looked", true, here); }));
    here.nodes->clear();
    CHECK(st::remove_on_nodes("looked", true, here).find("\"looked\"") != std::string::npos);
    CHECK(fails(stead::kind::not_found, "'looked'", [] { st::remove("looked", true, spaces); }));
    CHECK(fails(stead::kind::peer, "removed", [&] { in.next(); }));
    CHECK(fails(stead::kind::not_found, "'looked'", [&] { st::describe("looked", here); }));
}

static void waits_for_steps() {
    st::writer_options how = writes();
    how.keep = 4;
    st::writer out("awaited", how);
    const auto t = out.define<double>("T", {4, 3});
    // Rows 0, 2 and 3.
    const auto put = [&] {
        out.begin();
        out.put(t, {0, 0}, {1, 3}, from(1, 3).data());
        out.put(t, {2, 0}, {2, 3}, from(7, 6).data());
        out.end();
    };
    st::reader in("awaited", reads());
    put();
    put();
    st::step second = in.wait_for("T", 1, std::chrono::hours::max());
    CHECK(second.number() == 1 && in.wait_for("T", 0, std::chrono::seconds(0)).number() == 0);
    CHECK(fails(stead::kind::not_found, "'U'", [&] { in.wait_for("U", 1, std::chrono::seconds(0)); }));
    CHECK(fails(stead::kind::timeout, "step 2", [&] { in.wait_for("T", 2, std::chrono::milliseconds(1)); }));

    const std::vector<st::part> parts = second.parts("T");
    CHECK(parts.size() == 2 && parts[0].writer == 0 && (parts[0].count == st::numbers{1, 3}));
    CHECK((parts[1].start == st::numbers{2, 0}) && (parts[1].count == st::numbers{2, 3}));
    CHECK(fails(stead::kind::not_found, "'U'", [&] { second.parts("U"); }));
    std::vector<double> rows(12, -1);
    CHECK(second.get_what_there_is("T", {0, 0}, {4, 3}, rows.data(), 12) == 9);
    CHECK(rows[2] == 3 && rows[3] == -1 && rows[5] == -1 && rows[6] == 7 && rows[11] == 12);
    CHECK(fails(stead::kind::usage, "another type", [&] {
        float none[12];
        second.get_what_there_is("T", {0, 0}, {4, 3}, none, 12);
    }));
    CHECK(out.events().find("\"here\"") != std::string::npos && out.events() == "[]");
    {
        const st::reader gone = std::move(in);
        const st::step looked_at = std::move(second);
    }
    const std::string left = out.events();
    CHECK(left.find("\"left\"") != std::string::npos && left.find("\"had_ranges\"") != std::string::npos);
    out.close();
    CHECK(fails(stead::kind::usage, "NULL", [&] { out.events(); }));
}

static void steps_come_by_themselves() {
    st::writer out("subscribed", writes());
    const auto t = out.define<double>("T", {4});
    const auto put = [&](double first) {
        out.begin();
        out.put(t, from(first, 4).data());
        out.end();
    };
    std::vector<double> firsts;
    std::vector<st::step> kept;
    st::reader in("subscribed", reads());
    st::subscription all = in.subscribe([&](st::step s) {
        firsts.push_back(s.get<double>("T").front());
        kept.push_back(std::move(s));
    });
    CHECK(fails(stead::kind::usage, "NULL", [&] { in.next(); }));
    st::subscription some = st::reader("subscribed", [] {
                                auto how = reads();
                                how.group = "others";
                                return how;
                            }()).subscribe([](const st::step &s) {
        if (s.number() == 1) throw std::runtime_error("of the function");
    });
    CHECK(!all.is_over());
    put(1);
    put(5);
    try {
        some.join();
        CHECK(false);
    } catch (const std::runtime_error &e) {
        CHECK(std::string(e.what()) == "of the function");
    }
    CHECK(some.is_over());
    put(9);
    out.close();
    all.join();
    CHECK(all.is_over() && (firsts == std::vector<double>{1, 5, 9}) && kept.at(2).number() == 2);
    kept.clear();

    st::writer fail("subscribed-fails", writes());
    st::subscription failed = st::reader("subscribed-fails", reads()).subscribe([](const st::step &) {});
    fail.abandon();
    CHECK(fails(stead::kind::peer, "'subscribed-fails'", [&] { failed.join(); }));
    // Nor is a writer waited for without an end that ends no step.
    st::writer hangs("subscribed-hangs", writes());
    hangs.begin();
    auto soon = reads();
    soon.timeout = std::chrono::milliseconds(200);
    st::subscription waits = st::reader("subscribed-hangs", soon).subscribe([](const st::step &) {});
    CHECK(fails(stead::kind::timeout, "has not come: writer 0", [&] { waits.join(); }));
    hangs.abandon();
    // One that nobody joins ends when it goes.
    st::writer on("subscribed-on", writes());
    { const st::subscription gone = st::reader("subscribed-on", reads()).subscribe([](const st::step &) {}); }
    CHECK(on.events().find("\"left\"") != std::string::npos);
}

static void outlives_memory() {
    const std::string files = spaces.at(0).substr(7) + "/recorded";
    st::writer_options how = writes();
    how.persist = files;
    st::writer out("recorded", how);
    const double ones[4] = {1, 2, 3, 4};
    out.define<double>("T", {4});
    for (int i = 0; i < 3; i++) {
        out.begin();
        out.put("T", {4}, {0}, {4}, ones);
        out.end();
    }
    st::reader_options late = reads();
    late.start = STEAD_STREAM_FIRST;
    late.behind = STEAD_STREAM_SPILL;
    st::reader in("recorded", late);
    for (std::uint64_t i = 0; i < 3; i++) {
        const auto step = in.next();
        CHECK(step && step->number() == i);
    }
    out.close();
    CHECK(!in.next());
    st::reader again(files, reads());
    CHECK(again.at(1).get<double>("T").at(3) == 4);
    CHECK(st::recordings(spaces.at(0).substr(7)).find("\"" + files + "\"") != std::string::npos);
    CHECK(st::recordings("memory://recorded", spaces).find("\"recorded\"") != std::string::npos);
    CHECK(fails(stead::kind::not_found, "none", [] { st::recordings("memory://none", spaces); }));
    st::remove(files, false, spaces);
    how.spill_limit = 1;
    CHECK(fails(stead::kind::usage, "a limit for what spills", [&] { st::writer("other", how); }));
    // What lies in memory is no place to spill to.
    how = writes();
    how.dataspaces.push_back("disk=" + spaces.at(0).substr(7));
    how.spill = "auto";
    how.spill_limit = ~std::uint64_t{0};
    CHECK(fails(stead::kind::no_space, "no dataspace has room", [&] { st::writer("large", how); }));
}

static void puts_what_was_made_first() {
    st::buffer<double> made(50000, spaces), part(20000, spaces);
    CHECK(made.size() == 50000 && made.data() == &made[0] && made.end() - made.begin() == 50000);
    std::iota(made.begin(), made.end(), 0.0);
    std::iota(part.begin(), part.end(), 100.0);
    {
        st::writer out("made", writes());
        const auto t = out.define<double>("T", {50000});
        const auto u = out.define<double>("U", {2, 20000});
        out.begin();
        out.put(t, made);
        out.put(u, {0, 0}, {1, 20000}, part);
        out.put(u, {1, 0}, {1, 20000}, part);
        CHECK(fails(stead::kind::usage, "the memory has 160000", [&] { out.put(t, part); }));
        CHECK(fails(stead::kind::usage, "the start has 1 numbers", [&] { out.put(u, {0}, {1, 1}, part); }));
        out.end();
        CHECK(out.report().find("\"copied\": 0") != std::string::npos);
        const st::buffer<double> moved = std::move(made);
        CHECK(moved[49999] == 49999);
    }
    st::reader in("made", reads());
    const auto step = in.next();
    CHECK(step && step->get<double>("T").back() == 49999 && step->get<double>("U").back() == 20099);
    CHECK(fails(stead::kind::limit, "more memory", [] { st::buffer<double>(SIZE_MAX, spaces); }));
    CHECK(st::buffer<int>(0, spaces).data() == nullptr);
}

static void groups_have_their_own_numbers() {
    st::writer out("own", writes());
    const double one[1] = {1};
    out.define<double>("T", {1});
    st::reader_options live = reads();
    live.behind = STEAD_STREAM_DROP;
    live.queue = 1;
    live.keep = 2;
    st::reader in("own", live);
    for (std::uint64_t i = 0; i < 6; i++) {
        out.begin();
        out.put("T", {1}, {0}, {1}, one);
        out.end();
        if (i % 2 == 0) continue;
        const auto step = in.next();
        CHECK(step && step->number() == i && step->dropped() == 1);
    }
    CHECK(in.at(3).number() == 3);
    CHECK(fails(stead::kind::not_found, "step 1 of stream 'own'", [&] { in.at(1); }));
    live.keep = 0;
    CHECK(fails(stead::kind::usage, "keep 0, and they say behind drop, queue 1, keep 2", [&] { st::reader("own", live); }));
    out.close();
}

// In memory: `stream FOLDER`.
int main(int argc, char **argv) {
    if (argc < 2) return 2;
    spaces = {"memory=" + std::string(argv[1])};
    says_what_variables_are();
    frees_what_is_not_put();
    refuses_what_a_variable_was();
    ends_as_it_should();
    looks_after_streams();
    waits_for_steps();
    steps_come_by_themselves();
    outlives_memory();
    puts_what_was_made_first();
    groups_have_their_own_numbers();
    CHECK(stead_handles_alive() == 0);
    std::printf("stream: %d checks, %d failed\n", checks.load(), failures.load());
    return failures != 0;
}
