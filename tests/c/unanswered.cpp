// Transfers from a store that does not answer: they end with that, and no wait says that they go on. The first argument is the socket of a
// daemon, the second what such a store would have.

#include "check.hpp"
#include <chrono>

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *const source = argv[2];
    // Once is enough: each request is tried again for a while.
    const auto copy = stead::stage_request("copy").source(source).target("f").set("retries", "0");
    {
        const stead::stager tiers("state", {});
        const stead::transfer t = tiers.submit(copy);
        CHECK(stead_stage_wait(t.get(), -1, nullptr) == STEAD_IO && t.ended());
        CHECK(std::strstr(stead_last_message(), source) && std::strstr(stead_last_message(), "can be reached"));
        // It says the same to whoever asks again.
        CHECK(stead_stage_wait(t.get(), 0, nullptr) == STEAD_IO);
        CHECK(fails(stead::kind::io, source, [&] { t.wait(); }));
        CHECK(fails(stead::kind::io, source, [&] { t.wait_for(std::chrono::seconds(0)); }));
        CHECK(stead_stage_wait_for(tiers.get(), t.id(), -1, nullptr) == STEAD_IO);
        CHECK(fails(stead::kind::io, source, [&] { tiers.wait(t.id()); }));
    }
    const stead::daemon d(argv[1]);
    const std::int64_t id = d.submit(copy);
    CHECK(stead_daemon_wait(d.get(), id, -1, nullptr) == STEAD_IO);
    CHECK(fails(stead::kind::io, source, [&] { d.wait(id); }));
    CHECK(fails(stead::kind::io, source, [&] { d.wait_for(id, std::chrono::seconds(0)); }));
    std::printf("unanswered: %d checks, %d failed\n", checks.load(), failures.load());
    return failures != 0;
}
