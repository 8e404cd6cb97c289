// Read sessions in C++: everything in stead_read.hpp, with what is thrown.

#include "check.hpp"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <poll.h>
#include <random>
#include <thread>

static_assert(!std::is_copy_constructible_v<stead::view> && std::is_nothrow_move_constructible_v<stead::view>);
static_assert(!std::is_copy_constructible_v<stead::ReadSession> && std::is_move_constructible_v<stead::ReadSession>);
static_assert(!std::is_copy_constructible_v<stead::File> && std::is_move_constructible_v<stead::File>);
static_assert(!std::is_copy_constructible_v<stead::pending> && std::is_move_constructible_v<stead::pending>);

static std::string bytes(2'000'000, '\0');

static bool same(const stead::view &v, std::uint64_t offset) {
    return std::string_view(bytes).substr(offset, v.size()) == v.text();
}

static stead::read_options in_memory() {
    stead::read_options o;
    o.flags = STEAD_READ_PREAD;
    o.block = 64 << 10;
    o.memory = 1 << 20;
    o.deadline = std::chrono::seconds(60);
    return o;
}

static void files() {
    stead::File file("bytes");
    CHECK(file.size() == bytes.size() && file.path() == "bytes");
    auto part = file.session(10, 20);
    CHECK(part.offset() == 10 && part.size() == 20 && part.explain().find("readers: ") != std::string::npos);
    CHECK(part.explain_json().find("\"readers\"") != std::string::npos);
    CHECK(file.session(5).size() == bytes.size() - 5);
    part.read(10, 20).get();
    CHECK(file.counts().requests == 1);
    part.close();
    CHECK(fails(stead::kind::usage, "NULL", [&] { part.read(10, 1); }));
    part.close();
    CHECK(fails(stead::kind::not_found, "no/such", [] { stead::File("no/such"); }));
    CHECK(fails(stead::kind::usage, "past the end", [&] { file.session(1, bytes.size()); }));
    stead::read_options alone = in_memory();
    alone.memory = 64 << 20;
    alone.flags |= STEAD_READ_UNSHARED;
    const std::string told = stead::File("bytes", alone).session().explain();
    CHECK(told.find("shared: with no other process (as asked for)") != std::string::npos);
    stead::read_options odd;
    odd.flags = 1u << 30;
    CHECK(fails(stead::kind::usage, "flags", [&] { stead::File("bytes", odd); }));
}

static void futures(const stead::read_options &options) {
    const stead::File file("bytes", options);
    stead::ReadSession session = file.session();
    std::vector<std::future<stead::view>> all;
    for (std::uint64_t i = 0; i < 300; i++) all.push_back(session.read(i * 5000, 10'000));
    for (std::uint64_t i = 0; i < 300; i++) CHECK(same(all[i].get(), i * 5000));
    CHECK(fails(stead::kind::usage, "within", [&] { session.read(bytes.size(), 1).get(); }));
    // Nobody waits for this one.
    session.read(7, 100'000);
    const std::vector<char> filled = session.read_into(100, std::vector<char>(200'000)).get();
    CHECK(filled.size() == 200'000 && std::memcmp(filled.data(), bytes.data() + 100, filled.size()) == 0);
    CHECK(session.read_into(8, std::vector<std::uint32_t>(3)).get().size() == 3);
    CHECK(fails(stead::kind::usage, "within", [&] { session.read_into(bytes.size(), std::string("x")).get(); }));
    auto many = session.read_many({{0, 10}, {1'000'000, 300'000}, {5, 0}});
    CHECK(many.size() == 3 && same(many[1].take(), 1'000'000) && many[2].take().empty());
    CHECK(many[0].wait_for(std::chrono::seconds(60)) && many[0].ready());
    const stead::view pieces = session.read_strided(3, 2, 100, 50).take();
    CHECK(pieces.size() == 100 && pieces[2] == bytes[103] && pieces[99] == bytes[3 + 4900 + 1]);
    std::string own(1000, ' ');
    auto reading = session.begin_into(50, own.data(), own.size());
    CHECK(reading.take().data() == own.data() && own == bytes.substr(50, 1000));
    CHECK(fails(stead::kind::usage, "NULL", [&] { reading.take(); }));
    for (int i = 0; i < 100; i++) session.begin(static_cast<std::uint64_t>(i) * 9000, 9000).cancel();
    CHECK(same(session.within(std::chrono::seconds(60)).begin(1, 5).take(), 1) && same(session.read_now(9, 9), 9));
    session.read_now(20, own.data(), 10);
    CHECK(own.substr(0, 10) == bytes.substr(20, 10));
    session.close();
    CHECK(session.get() == nullptr);
}

// All blocks are held, so that nothing else comes.
static void deadlines() {
    stead::read_options options = in_memory();
    options.memory = 4 * 65536;
    options.flags |= STEAD_READ_ON_DEMAND;
    const stead::File file("bytes", options);
    const stead::ReadSession session = file.session();
    std::vector<stead::view> held;
    for (std::uint64_t i = 0; i < 4; i++) held.push_back(session.read_now(i * 65536, 65536));
    CHECK(file.counts().held >= 4 * 65536);
    const stead::ReadSession soon = session.within(std::chrono::milliseconds(30));
    const std::uint64_t far = 20 * 65536;
    const auto late = [](auto read) { return fails(stead::kind::timeout, "in time", read); };
    CHECK(late([&] { soon.read(far, 10).get(); }) && late([&] { soon.begin(far, 10).take(); }));
    CHECK(late([&] { soon.read_into(far, std::string(10, ' ')).get(); }));
    CHECK(late([&] { soon.read_many({{far, 10}})[0].take(); }));
    CHECK(late([&] { soon.read_strided(far, 1, 10, 3).take(); }));
    std::string own(10, ' ');
    CHECK(late([&] { soon.begin_into(far, own.data(), 10).take(); }));
    CHECK(late([&] { soon.read_now(far, 10); }) && late([&] { soon.read_now(far, own.data(), 10); }));
    stead::read_queue queue;
    queue.read(soon, far, 10);
    CHECK(queue.next()->failure->kind() == stead::kind::timeout);
    stead::FileReader reader(soon);
    reader.seekg(far);
    CHECK(reader.get() == EOF && reader.failure()->kind() == stead::kind::timeout);
    auto waiting = session.begin(far, 10);
    CHECK(!waiting.wait_for(std::chrono::milliseconds(60)));
    held.clear();
    CHECK(same(waiting.take(), far));
}

static void views() {
    const stead::ReadSession session = stead::File("bytes").session();
    stead::view a = session.read_now(0, 64);
    CHECK(std::string(a.begin(), a.end()) == bytes.substr(0, 64) && a.text()[3] == bytes[3]);
    const auto numbers = a.as<double>();
    double first = 0;
    std::memcpy(&first, bytes.data(), sizeof first);
    CHECK(numbers.size() == 8 && std::memcmp(&numbers[0], &first, sizeof first) == 0);
    CHECK(fails(stead::kind::usage, "whole", [&] { session.read_now(0, 63).as<double>(); }));
    const stead::span<const char> seen = a;
    CHECK(seen.size() == 64 && seen[5] == bytes[5]);
    a.check();
    CHECK(session.read_now(0, 0).as<double>().empty() && a.place() == STEAD_IN_CACHE);
    a.own();
    CHECK(a.place() == STEAD_IN_CACHE);
    stead::view b = std::move(a);
    CHECK(a.empty() && b.size() == 64);
    a = std::move(b);
    CHECK(a.size() == 64);
    a.reset();
    CHECK(a.empty() && a.data() == nullptr);
}

static void queues() {
    const stead::ReadSession session = stead::File("bytes", in_memory()).session();
    stead::read_queue queue;
    int marks[100] = {};
    for (std::uint64_t i = 0; i < 100; i++) queue.read(session, i * 20'000, 20'000, &marks[i]);
    queue.read(session, bytes.size(), 1);
    const auto extra = session.begin(17, 4);
    queue.take(extra);
    CHECK(queue.size() == 102 && queue.fd() >= 0);
    int good = 0, bad = 0;
    pollfd watched{queue.fd(), POLLIN, 0};
    while (queue.size() > 0) {
        CHECK(poll(&watched, 1, 60'000) == 1);
        while (auto done = queue.next(std::chrono::milliseconds(0))) {
            if (done->failure) {
                bad++;
                CHECK(fails(stead::kind::usage, "within", [&] { done->take(); }));
                continue;
            }
            if (done->user) ++*static_cast<int *>(done->user);
            CHECK(same(done->take(), done->offset));
            good++;
        }
    }
    CHECK(good == 101 && bad == 1 && !queue.next());
    for (const int m : marks) CHECK(m == 1);
}

static void threads(const stead::read_options &options) {
    const stead::ReadSession session = stead::File("bytes", options).session();
    std::vector<std::thread> all;
    for (unsigned t = 0; t < 6; t++) {
        all.emplace_back([&, t] {
            std::mt19937 random(t);
            for (int i = 0; i < 300; i++) {
                const std::uint64_t offset = random() % bytes.size();
                const std::size_t n = std::min<std::size_t>(random() % 80'000, bytes.size() - offset);
                CHECK(same(session.read(offset, n).get(), offset));
            }
        });
    }
    for (std::thread &t : all) t.join();
}

/// What is asked for and not taken keeps nobody from reading, where blocks in memory are few.
static void untaken() {
    stead::read_options few = in_memory();
    few.memory = 4 * (64 << 10);
    few.deadline = std::chrono::seconds(60);
    const stead::ReadSession session = stead::File("bytes", few).session();
    std::vector<std::future<stead::view>> all;
    for (std::uint64_t i = 0; i < 30; i++) all.push_back(session.read(i * 65536, 60'000));
    for (std::uint64_t i = 30; i-- > 0;) CHECK(same(all[i].get(), i * 65536));
    stead::read_queue queue;
    for (std::uint64_t i = 0; i < 30; i++) queue.read(session, i * 65536, 60'000);
    std::vector<stead::pending> reads;
    for (std::uint64_t i = 0; i < 30; i++) reads.push_back(session.begin(i * 65536 + 1, 50'000));
    for (std::uint64_t i = 30; i-- > 0;) CHECK(same(reads[i].take(), i * 65536 + 1));
    while (auto done = queue.next()) CHECK(same(done->take(), done->offset));
    std::vector<stead::FileReader> readers;
    for (std::uint64_t i = 0; i < 20; i++) {
        readers.emplace_back(session);
        readers.back().seekg(static_cast<std::streamoff>(i * 90'000));
        CHECK(readers.back().get() == static_cast<unsigned char>(bytes[i * 90'000]));
    }
    stead::view kept = session.read_now(0, 100);
    CHECK(kept.place() == STEAD_IN_BLOCK);
    kept.own();
    CHECK(kept.place() == STEAD_IN_MEMORY && same(kept, 0));
}

#if defined(__cpp_lib_coroutine)
/// A coroutine that runs by itself and says when it has ended.
struct task {
    struct promise_type {
        std::promise<std::uint64_t> ended;
        task get_return_object() { return {ended.get_future()}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_value(std::uint64_t n) { ended.set_value(n); }
        void unhandled_exception() { ended.set_exception(std::current_exception()); }
    };
    std::future<std::uint64_t> ended;
};

static task adding(const stead::ReadSession &session, std::uint64_t from, std::uint64_t to) {
    std::uint64_t sum = 0;
    for (std::uint64_t at = from; at < to; at += 1000) {
        const stead::view part = co_await session.begin(at, 1000);
        for (const char c : part) sum += static_cast<unsigned char>(c);
    }
    co_return sum;
}

/// Futures and functions of bytes that are there are answered within a function that is being told.
static task nested(const stead::ReadSession &session) {
    const stead::view first = co_await session.begin(0, 1000);
    auto there = session.begin(0, 1000);
    std::future<stead::view> second = session.read(0, 1000);
    if (there.ready()) CHECK(same(second.get(), 0) && same(there.take(), 0));
    co_return first.size();
}

/// To wait in a thread that brings bytes is refused. How often it was such a thread.
static task waiting(const stead::ReadSession &session, std::thread::id asked) {
    stead::view first = co_await session.begin(0, 300'000);
    if (std::this_thread::get_id() == asked) co_return 0;
    stead::pending far = session.begin(1'500'000, 300'000);
    stead::read_queue queue;
    queue.read(session, 1'500'000, 300'000);
    CHECK(!far.wait_for(std::chrono::hours(1)) && !queue.next());
    CHECK(fails(stead::kind::usage, "waited for a read", [&] { far.take(); }));
    CHECK(fails(stead::kind::usage, "waited for a read", [&] { session.read_now(1'500'000, 300'000); }));
    stead::FileReader in(session);
    in.seekg(1'500'000);
    in.get();
    CHECK(!in && in.failure() && in.failure()->kind() == stead::kind::usage);
    co_return 1;
}

static void refusals() {
    stead::read_options o = in_memory();
    o.flags |= STEAD_READ_ON_DEMAND;
    o.readers = 1;
    const auto written = std::filesystem::last_write_time("bytes");
    std::uint64_t seen = 0;
    for (int i = 0; i < 1000 && !seen; i++) {
        // Another file each time: the blocks of one that was closed stay for a while, and nobody waits for what is there.
        std::filesystem::last_write_time("bytes", written - std::chrono::seconds(i + 1));
        const stead::ReadSession session = stead::File("bytes", o).session();
        seen = waiting(session, std::this_thread::get_id()).ended.get();
    }
    CHECK(seen == 1);
}

static void coroutines(const stead::read_options &options) {
    const stead::ReadSession session = stead::File("bytes", options).session();
    std::vector<task> tasks;
    const std::uint64_t share = bytes.size() / 20;
    for (std::uint64_t t = 0; t < 20; t++) tasks.push_back(adding(session, t * share, (t + 1) * share));
    std::uint64_t sum = 0, wanted = 0;
    for (task &t : tasks) sum += t.ended.get();
    for (const char c : bytes) wanted += static_cast<unsigned char>(c);
    CHECK(sum == wanted && nested(session).ended.get() == 1000);
    CHECK(fails(stead::kind::usage, "within", [&] { adding(session, bytes.size(), bytes.size() + 1).ended.get(); }));
}

/// A coroutine that waits for what then fails hears of what sort that is.
static void shortened() {
    stead::read_options o = in_memory();
    o.flags |= STEAD_READ_ON_DEMAND;
    for (int i = 0; i < 20; i++) {
        std::ofstream("shortened", std::ios::binary) << bytes;
        const stead::ReadSession session = stead::File("shortened", o).session();
        std::filesystem::resize_file("shortened", 100);
        CHECK(fails(stead::kind::changed, "shortened", [&] { adding(session, 1'000'000, 1'001'000).ended.get(); }));
    }
}
#else
static void coroutines(const stead::read_options &) {}
static void refusals() {}
static void shortened() {}
#endif

int main() {
    std::mt19937 random(3);
    for (char &c : bytes) c = static_cast<char>(random());
    std::ofstream("bytes", std::ios::binary) << bytes;
    // Of what was changed a moment ago nobody knows whether others have the same.
    std::filesystem::last_write_time("bytes", std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    files();
    views();
    deadlines();
    for (const stead::read_options &o : {stead::read_options{}, in_memory()}) {
        futures(o);
        threads(o);
        coroutines(o);
    }
    shortened();
    refusals();
    queues();
    untaken();
#if __cplusplus >= 202002L && !defined(__cpp_lib_coroutine)
    CHECK(!"there are coroutines in C++20");
#endif
    // The last answer may be on its way to nobody.
    for (int i = 0; i < 6000 && stead_handles_alive() > 0; i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(stead_handles_alive() == 0);
    std::printf("reading: %d checks, %d failed\n", checks.load(), failures.load());
    return failures != 0;
}
