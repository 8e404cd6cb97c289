// on_node SOCKET NODE SOURCE TARGET: has the daemon of a node copy, by way of that of this one, and waits.
#include <cstdio>
#include <stead_stage.hpp>

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    try {
        const stead::daemon there = stead::daemon::on(argv[2], argv[1]);
        there.wait(there.submit(stead::stage_request("copy").source(argv[3]).target(argv[4])));
        std::printf("%s\n", there.nodes().c_str());
        return 0;
    } catch (const stead::error &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
