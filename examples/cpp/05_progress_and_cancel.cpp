// Watching a run, and stopping it: by what the progress function returns, and by a flag that a signal handler or another
// thread sets. The flag of this program is set by Ctrl-C, and once by the program itself.

#include <csignal>
#include <cstdio>
#include <stead.hpp>

static stead_cancel *flag_of_signals;

// All that may be done with stead in a signal handler.
extern "C" void interrupted(int) { stead_cancel_request(flag_of_signals); }

int main(int argc, char **argv) try {
    const stead::cancel_flag flag;
    flag_of_signals = flag.get();
    std::signal(SIGINT, interrupted);

    bool whole = false;
    const auto flights = stead::dataset::open(argc > 1 ? argv[1] : "flights.csv");
    stead::request request;
    request.kernel("entropy").cancel(flag).progress([&](const stead::progress &now) {
        // About ten times a second, and once at the end of each pass. To return false stops the run.
        whole = now.bytes == now.total_bytes;
    });
    flights.run(request);
    std::printf("watched to the end: %s\n", whole ? "yes" : "no");

    std::raise(SIGINT);
    try {
        flights.run(request);
    } catch (const stead::error &e) {
        std::printf("%s: %s\n", stead_status_name(static_cast<stead_status>(e.kind())), e.what());
    }

    flag.reset();
    flights.run(request);
    std::printf("and again: ok\n");
} catch (const stead::error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
