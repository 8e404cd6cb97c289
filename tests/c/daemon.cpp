// The daemon of a node in C++: transfers handed over, waited for and given up. The first argument is its socket, the second a large file.

#include "check.hpp"
#include <cstdlib>
#include <fstream>

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const stead::daemon d(argv[1]);
    std::ofstream("small") << "bytes";
    const auto copy = stead::stage_request("copy").source("small").target("copied");
    CHECK(d.preview(copy).find("\"bytes\": 5") != std::string::npos);
    const std::int64_t first = d.submit(copy);
    d.wait(first);
    CHECK(d.wait_for(first, std::chrono::seconds(0)) && d.eta(first).ended);
    CHECK(d.status(first).find("finished") != std::string::npos);
    const std::int64_t slow = d.submit(stead::stage_request("copy").source(argv[2]).target("large").set("limit", "1MiB"));
    const std::int64_t after = d.submit(stead::stage_request("remove").source("large"), {first, slow});
    CHECK(!d.wait_for(after, std::chrono::milliseconds(10)));
    CHECK(d.list().find("large") != std::string::npos && d.list(true).find("small") != std::string::npos);
    d.cancel(slow);
    CHECK(fails(stead::kind::cancelled, "was not finished", [&] { d.wait(after); }));
    CHECK(fails(stead::kind::cancelled, "was cancelled", [&] { d.wait_for(slow, std::chrono::seconds(1)); }));
    CHECK(fails(stead::kind::usage, "cancelled already", [&] { d.resume(slow); }));
    const stead::flow little("[read.none]\n[node.mean]\nop = 'reduce'\nof = 'none.T'\nhow = 'mean'\n[write.little]\nvariables = { mean = 'mean' }\n");
    const std::int64_t flow = d.begin_flow(little);
    CHECK(d.flows().find("running") != std::string::npos);
    d.cancel_flow(flow);
    CHECK(fails(stead::kind::cancelled, "given up", [&] { d.wait_flow(flow); }));
    CHECK(d.flows().find("none") == std::string::npos && d.flows(true).find("cancelled") != std::string::npos);
    stead::flow_options soon;
    soon.timeout = std::chrono::milliseconds(50);
    const std::int64_t waits = d.begin_flow(little, soon);
    CHECK(fails(stead::kind::timeout, "nobody writes", [&] { d.wait_flow(waits); }));
    CHECK(fails(stead::kind::usage, "in no pool", [&] { stead::daemon::on("elsewhere", argv[1]); }));
    CHECK(d.nodes().find('"') != std::string::npos);
    CHECK(fails(stead::kind::not_found, "no daemon", [] { stead::daemon("no-such-socket"); }));
    CHECK(d.metrics().find("stead_transfers") != std::string::npos && !d.spaces().empty());
    std::printf("daemon: %d checks, %d failed\n", checks.load(), failures.load());
    return failures != 0;
}
