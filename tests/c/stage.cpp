// Staging in C++: everything in stead_stage.hpp, with what is thrown.

#include <stead.h>
#include <unistd.h>

/// True: a transfer that has not ended when it is waited for no more has when somebody looks next.
static bool ends_late = false;

static stead_status wait_late(const stead_transfer *t, int64_t timeout_ms, stead_error **error) {
    const stead_status status = stead_stage_wait(t, timeout_ms, error);
    while (ends_late && status == STEAD_TIMEOUT && !stead_stage_test(t)) usleep(1000);
    return status;
}

// What stands in the headers asks this one.
#define stead_stage_wait wait_late
#include "check.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

namespace fs = std::filesystem;

static_assert(!std::is_copy_constructible_v<stead::transfer> && std::is_move_constructible_v<stead::transfer>);
static_assert(!std::is_copy_constructible_v<stead::stager> && std::is_move_constructible_v<stead::stager>);

static const std::string text(200000, 'x');

static std::string contents(const fs::path &path) {
    std::ifstream f(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(f), {}};
}

static void moves() {
    stead::stager tiers("state", {"fast=" + (fs::current_path() / "fast").string()}, 2);
    const auto copy = stead::stage_request("copy").source("tree/*.bin").target("fast://in/").set("verify", "yes");
    CHECK(tiers.preview(copy).find("\"files\": 3") != std::string::npos);
    const stead::cancel_flag stop;
    CHECK(!tiers.preview(copy, stop).empty());
    const stead::transfer t = tiers.submit(copy);
    CHECK(t.id() > 0);
    t.wait();
    tiers.wait(t.id());
    CHECK(fails(stead::kind::usage, "no transfer 999", [&] { tiers.wait(999); }));
    CHECK(t.ended() && t.wait_for(std::chrono::seconds(0)));
    CHECK(t.eta().bytes_done == 3 * text.size() && t.eta().ended);
    CHECK(contents("fast/in/2.bin") == text);
    const auto same = stead::stage_request("sync").source("tree/").target("fast://in/").set("include", "*.bin");
    CHECK(tiers.check(same).find("\"differ\": 0") != std::string::npos && tiers.check(same, stop) == tiers.check(same));
    CHECK(tiers.status(t.id()).find("\"finished\"") != std::string::npos);
    CHECK(tiers.list() == "[]" && tiers.list(true).find("\"copy\"") != std::string::npos);
    CHECK(tiers.df().find("\"fast\"") != std::string::npos);
    const stead::transfer twice = tiers.submit(copy);
    CHECK(fails(stead::kind::usage, "in/", [&] { twice.wait(); }));
    CHECK(fails(stead::kind::usage, "in/", [&] { twice.wait_for(std::chrono::hours(1)); }));
    tiers.submit(stead::stage_request("remove").source("fast://in")).wait();
    CHECK(!fs::exists("fast/in"));
    tiers.close();
    CHECK(fails(stead::kind::usage, "NULL", [&] { tiers.submit(copy); }));
}

static void stops() {
    stead::stager tiers("state", {});
    stead::stage_request slow("copy");
    slow.source("tree").target("later").set("limit", "20KiB").set("durable", "no");
    std::int64_t id = 0;
    {
        const stead::transfer t = tiers.submit(slow);
        id = t.id();
        CHECK(!t.wait_for(std::chrono::milliseconds(1)) && !t.ended());
        t.cancel();
        CHECK(fails(stead::kind::cancelled, "stopped", [&] { t.wait(); }));
    }
    {
        // It goes, and is stopped.
        const stead::transfer t = tiers.resume(id);
    }
    CHECK(tiers.status(id).find("\"interrupted\"") != std::string::npos);
    tiers.give_up(id);
    CHECK(fails(stead::kind::usage, "cancelled already", [&] { tiers.give_up(id); }));
    CHECK(fails(stead::kind::usage, "unknown action", [] { stead::stage_request("mirror"); }));
    CHECK(fails(stead::kind::usage, "no option 'speed'", [&] { slow.set("speed", "1"); }));
}

static void ends_while_it_is_looked_at() {
    stead::stager tiers("state", {});
    stead::stage_request copy("copy");
    copy.source("tree/2.bin").target("last.bin").set("limit", "400KiB").set("durable", "no");
    ends_late = true;
    {
        const stead::transfer t = tiers.submit(copy);
        CHECK(t.wait_for(std::chrono::seconds(0)) && t.ended());
    }
    CHECK(contents("last.bin") == text);
    // What it has ended with is thrown.
    const stead::transfer again = tiers.submit(copy);
    CHECK(fails(stead::kind::usage, "already", [&] { again.wait_for(std::chrono::seconds(0)); }));
    ends_late = false;
}

static void lists() {
    stead::stager tiers("state", {"tree=" + (fs::current_path() / "tree").string()});
    CHECK((tiers.ls("tree") == std::vector<std::string>{"0.bin", "1.bin", "2.bin"}));
    CHECK((tiers.ls("tree://[12]*") == std::vector<std::string>{"tree://1.bin", "tree://2.bin"}));
    std::uint64_t bytes = 0;
    int folders = 0;
    tiers.ls(
        fs::current_path().string(),
        [&](const stead_entry &entry) {
            const std::string name = entry.name;
            folders += entry.kind == std::string("folder");
            if (name.rfind("tree/", 0) == 0) bytes += entry.size;
        },
        true);
    CHECK(bytes == 3 * text.size() && folders >= 2);
    int seen = 0;
    tiers.ls("tree", [&](const stead_entry &) { return ++seen < 2; });
    CHECK(seen == 2);
    try {
        tiers.ls("tree", [](const stead_entry &) { throw 7; });
        CHECK(false);
    } catch (int thrown) {
        CHECK(thrown == 7);
    }
    CHECK(fails(stead::kind::not_found, "none", [&] { tiers.ls("tree/none"); }));
}

static void shares_memory() {
    const std::string name = "test-" + std::to_string(getpid()) + "/cpp$";
    stead::stager tiers("state", {});
    {
        const stead::region made(name, 300000);
        CHECK(made.size() == 300000 && made.as<char>()[299999] == 0);
        std::copy(text.begin(), text.end(), made.as<char>());
        tiers.submit(stead::stage_request("copy").source(made.location()).target("from-memory")).wait();
    }
    CHECK(contents("from-memory") == text + std::string(100000, '\0'));
    CHECK(stead::region(name).as<char>()[0] == 'x' && stead::region::list().find(name) != std::string::npos);
    CHECK(fails(stead::kind::usage, "already", [&] { stead::region(name, 1); }));
    CHECK(fails(stead::kind::no_space, "are free", [&] { stead::region(name + "2", std::uint64_t{1} << 60); }));
    stead::region::remove(name);
    CHECK(fails(stead::kind::not_found, "", [&] { stead::region{name}; }));
}

int main() {
    fs::create_directories("tree");
    fs::create_directories("fast");
    for (int i = 0; i < 3; i++) std::ofstream("tree/" + std::to_string(i) + ".bin", std::ios::binary) << text;
    moves();
    stops();
    ends_while_it_is_looked_at();
    lists();
    shares_memory();
    CHECK(stead_handles_alive() == 0);
    std::cout << "stage: " << checks << " checks, " << failures << " failed\n";
    return failures != 0;
}
