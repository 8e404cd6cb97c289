// What administrators say to the daemon of a node, in C++, and what is kept there. The first argument is its socket, the second a
// large file of this user's, in a folder that nobody else can look into; with a third one it is shared with a user of this name.

#include "check.hpp"
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <grp.h>
#include <pwd.h>
#include <stead_admin.hpp>
#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;

static_assert(!std::is_copy_constructible_v<stead::admin> && std::is_move_constructible_v<stead::admin>);

static bool says(const std::string &json, const char *what) {
    if (json.find(what) != std::string::npos) return true;
    std::fprintf(stderr, "it said: %s\n", json.c_str());
    return false;
}

static void dataspaces(const stead::admin &node) {
    fs::create_directory("space");
    const std::vector<std::string> set{"path=" + (fs::current_path() / "space").string(), "quota=100"};
    node.add_dataspace("cpp", set);
    CHECK(says(node.dataspaces(), "\"quota\": \"100\""));
    CHECK(fails(stead::kind::usage, "already", [&] { node.add_dataspace("cpp", set); }));
    CHECK(fails(stead::kind::usage, "no setting", [&] { node.update_dataspace("cpp", {"quota"}); }));
    CHECK(fails(stead::kind::usage, "'none'", [&] { node.update_dataspace("none", {"quota="}); }));
    CHECK(says(node.daemon().spaces(), "\"quota\": 100"));
    node.update_dataspace("cpp", {"quota="});
    CHECK(says(node.daemon().spaces(), "\"quota\": null"));
}

static void jobs(const stead::admin &node) {
    const std::string user = std::to_string(getuid());
    const auto pid = static_cast<std::uint32_t>(getpid());
    CHECK(fails(stead::kind::usage, "'none'", [&] { node.add_job("7", user, {"none"}); }));
    node.add_job("7", user, {"cpp"});
    CHECK(fails(stead::kind::usage, "no job 8", [&] { node.add_process("8", pid); }));
    node.add_process("7", pid);
    CHECK(says(node.jobs(), "\"7\"") && says(node.jobs(), std::to_string(pid).c_str()));
    node.remove_process(pid);
    CHECK(fails(stead::kind::usage, "not named", [&] { node.remove_process(pid); }));
    node.remove_job("7");
    CHECK(node.jobs() == "[]");
    node.remove_dataspace("cpp");
    CHECK(node.dataspaces() == "[]" && fs::exists("space"));
    node.reset_dataspace("cpp");
    CHECK(fails(stead::kind::usage, "nothing was set", [&] { node.reset_dataspace("cpp"); }));
}

static void drained(const stead::admin &node) {
    const auto remove = stead::stage_request("remove").source("space");
    node.drain();
    CHECK(says(node.stats(), "\"drained\": true"));
    CHECK(fails(stead::kind::limit, "drained", [&] { node.daemon().submit(remove); }));
    node.open();
    CHECK(says(node.stats(), "\"drained\": false"));
    node.daemon().wait(node.daemon().submit(remove));
    CHECK(!fs::exists("space"));
}

// Those of this user, as an administrator has those of another one.
static void transfers(const stead::admin &node, const char *large) {
    const auto copy = stead::stage_request("copy").source(large).target("large").set("limit", "1MiB");
    const std::int64_t id = node.daemon().submit(copy);
    const stead::daemon managed = node.manage(std::to_string(getuid()));
    CHECK(says(managed.list(), "large\"") && says(managed.status(id), "\"status\""));
    CHECK(fails(stead::kind::permission, "nothing else", [&] { managed.submit(copy); }));
    CHECK(fails(stead::kind::permission, "nothing else", [&] { managed.preview(copy); }));
    managed.cancel(id);
    CHECK(fails(stead::kind::cancelled, "was cancelled", [&] { node.daemon().wait(id); }));
    CHECK(fails(stead::kind::usage, "cancelled already", [&] { managed.resume(id); }));
    CHECK(fails(stead::kind::usage, "no user", [&] { node.manage("no such user"); }));
}

// With the daemon that STEAD_SOCKET names.
static void kept() {
    std::ofstream("keep") << "bytes";
    stead::persist::store("keep", std::chrono::minutes(60));
    CHECK(says(stead::persist::list(), "\"kept\": true"));
    CHECK(stead::persist::list().find("\"until\": null") == std::string::npos);
    stead::persist::store("keep");
    CHECK(says(stead::persist::list(), "\"until\": null"));
    CHECK(fails(stead::kind::usage, "no such user", [] { stead::persist::share("keep", "no such user"); }));
    CHECK(fails(stead::kind::usage, "not shared", [] { stead::persist::unshare("keep", "0"); }));
    stead::persist::release("keep");
    CHECK(stead::persist::list() == "[]" && fs::exists("keep"));
    CHECK(fails(stead::kind::usage, "not kept", [] { stead::persist::release("keep"); }));
    CHECK(fails(stead::kind::not_found, "no such file", [] { stead::persist::store("no-such-file"); }));
}

// Whether this user can read a file.
static bool reads(const char *path, const passwd &user) {
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        if (setgroups(0, nullptr) == 0 && setgid(user.pw_gid) == 0 && setuid(user.pw_uid) == 0)
            execlp("head", "head", "-c", "1", path, static_cast<char *>(nullptr));
        _exit(127);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 127);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void shared(const char *path, const char *name) {
    const passwd *user = getpwnam(name);
    CHECK(user != nullptr);
    if (user == nullptr) return;
    CHECK(!reads(path, *user));
    stead::persist::share(path, name);
    CHECK(reads(path, *user) && says(stead::persist::list(), path));
    stead::persist::unshare(path, name);
    CHECK(!reads(path, *user) && stead::persist::list() == "[]");
    CHECK(fails(stead::kind::usage, "not shared", [&] { stead::persist::unshare(path, name); }));
}

int main(int argc, char **argv) {
    if (argc < 3 || setenv("STEAD_SOCKET", argv[1], 1) != 0) return 2;
    {
        // That of this node.
        const stead::admin node;
        dataspaces(node);
        jobs(node);
        drained(node);
        transfers(node, argv[2]);
        kept();
        if (argc > 3) shared(argv[2], argv[3]);
        CHECK(says(stead::admin(stead::daemon(argv[1])).stats(), "\"drained\""));
    }
    CHECK(fails(stead::kind::not_found, "no daemon", [] { stead::admin(stead::daemon("no-such-socket")); }));
    CHECK(stead_handles_alive() == 0);
    std::printf("admin: %d checks, %d failed\n", checks.load(), failures.load());
    return failures != 0;
}
