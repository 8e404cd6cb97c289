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
    st::writer out("looked", writes());
    CHECK(fails(stead::kind::usage, "already", [] { st::writer("looked", writes()); }));
    st::reader in("looked", reads());
    CHECK(!in.next_within(std::chrono::microseconds(10)) && !in.is_over());
    CHECK(st::list(spaces).find("\"looked\"") != std::string::npos);
    CHECK(st::describe("looked", spaces).find("\"live\"") != std::string::npos);
    CHECK(fails(stead::kind::usage, "written or read", [] { st::remove("looked", false, spaces); }));
    st::remove("looked", true, spaces);
    CHECK(fails(stead::kind::peer, "removed", [&] { in.next(); }));
    CHECK(fails(stead::kind::not_found, "'looked'", [] { st::describe("looked", spaces); }));
}

// In memory: `stream FOLDER`.
int main(int argc, char **argv) {
    if (argc < 2) return 2;
    spaces = {"memory=" + std::string(argv[1])};
    says_what_variables_are();
    ends_as_it_should();
    looks_after_streams();
    CHECK(stead_handles_alive() == 0);
    std::printf("stream: %d checks, %d failed\n", checks.load(), failures.load());
    return failures != 0;
}
