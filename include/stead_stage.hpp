// Staging in C++: files and trees are copied, moved, made equal or removed, by threads of the program or by the daemon, and kept.
// Included by stead.hpp.
//
//     stead::stager tiers;
//     stead::transfer t = tiers.submit(stead::stage_request("copy").source("run1/*.h5").target("nvme0://run1/"));
//     if (!t.wait_for(std::chrono::minutes(10))) t.cancel();
//
// Failures are exceptions of type stead::error. Threads: everything may be used from any thread.
//
// SPDX-License-Identifier: Apache-2.0 OR MIT

#if !defined(STEAD_HPP)
// It is a part of that one, which includes it when its own part is there.
#include "stead.hpp"
#elif !defined(STEAD_STAGE_HPP)
#define STEAD_STAGE_HPP

#include <chrono>

namespace stead {

/// Files and trees that are to be copied, moved, made equal or removed.
class stage_request {
public:
    /// "copy", "move", "sync" or "remove".
    explicit stage_request(const std::string &action) {
        stead_stage_request *r = nullptr;
        detail::call(stead_stage_request_new, action.c_str(), &r);
        handle_.reset(r);
    }

    /// Adds a source, which may be a pattern.
    stage_request &source(const std::string &name) & {
        detail::call(stead_stage_request_source, get(), name.c_str());
        return *this;
    }
    stage_request &&source(const std::string &name) && { return std::move(source(name)); }

    /// Where to.
    stage_request &target(const std::string &name) & {
        detail::call(stead_stage_request_target, get(), name.c_str());
        return *this;
    }
    stage_request &&target(const std::string &name) && { return std::move(target(name)); }

    /// Sets one option: see stead_stage_request_set.
    stage_request &set(const std::string &name, const std::string &value) & {
        detail::call(stead_stage_request_set, get(), name.c_str(), value.c_str());
        return *this;
    }
    stage_request &&set(const std::string &name, const std::string &value) && { return std::move(set(name, value)); }

    stead_stage_request *get() const noexcept { return handle_.get(); }

private:
    detail::handle<stead_stage_request, &stead_stage_request_free> handle_;
};

/// A transfer that was begun. When it goes, it is stopped, such that it can be resumed.
class transfer {
public:
    /// Takes over a transfer of the C interface.
    explicit transfer(stead_transfer *t) noexcept : handle_(t) {}

    /// Its number in the journal.
    std::int64_t id() const { return stead_stage_id(get()); }
    /// True once it has ended, in whatever way.
    bool ended() const { return stead_stage_test(get()); }
    /// Waits until it has ended. Throws what it ended with, each time.
    void wait() const { detail::call(stead_stage_wait, get(), std::int64_t{-1}); }
    /// Waits until it has ended, no longer than that; true if it has. Throws what it ended with.
    template <class R, class P> bool wait_for(std::chrono::duration<R, P> time) const {
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(time).count();
        stead_error *e = nullptr;
        stead_status status = stead_stage_wait(get(), ms < 0 ? 0 : static_cast<std::int64_t>(ms), &e);
        if (status == STEAD_TIMEOUT) {
            stead_error_free(e);
            e = nullptr;
            if (!ended()) return false;
            // It has ended since.
            status = stead_stage_wait(get(), 0, &e);
        }
        if (status == STEAD_OK) return true;
        throw error(status, e);
    }
    /// How far it is, and how long it still takes.
    stead_stage_progress eta() const {
        stead_stage_progress p{};
        detail::call(stead_stage_eta, get(), &p, sizeof p);
        return p;
    }
    /// Asks it to stop, such that it can be resumed.
    void cancel() const { detail::call(stead_stage_cancel, get()); }

    stead_transfer *get() const noexcept { return handle_.get(); }

private:
    detail::handle<stead_transfer, &stead_stage_free> handle_;
};

/// A journal of transfers, and what they are done with. When it goes, its transfers are stopped, such that they can be resumed.
class stager {
public:
    /// With folders of dataspaces such as "nvme0=/mnt/nvme/me", before those that are configured, and so many threads for each
    /// transfer. The journal is that of the user on this host.
    explicit stager(const std::vector<std::string> &dataspaces = {}, std::size_t threads = 0)
        : handle_(open(nullptr, dataspaces, threads)) {}
    /// With the journal in a folder.
    stager(const std::string &state, const std::vector<std::string> &dataspaces, std::size_t threads = 0)
        : handle_(open(state.c_str(), dataspaces, threads)) {}

    /// Takes a request and begins it, or goes on with one that would do the same: see stead_stage_submit.
    transfer submit(const stage_request &r) const {
        stead_transfer *t = nullptr;
        detail::call(stead_stage_submit, get(), r.get(), &t);
        return transfer(t);
    }
    /// Goes on with a transfer of the journal.
    transfer resume(std::int64_t id) const {
        stead_transfer *t = nullptr;
        detail::call(stead_stage_resume, get(), id, &t);
        return transfer(t);
    }
    /// Gives a transfer up, whoever does it; one that is under way is stopped first.
    void give_up(std::int64_t id) const { detail::call(stead_stage_give_up, get(), id); }
    /// Waits until nothing more happens with a transfer, whichever process does it; throws what it ended with, if not all of it was done.
    void wait(std::int64_t id) const { detail::call(stead_stage_wait_for, get(), id, std::int64_t{-1}); }
    /// What the journal knows of a transfer, as JSON.
    std::string status(std::int64_t id) const {
        char *json = nullptr;
        detail::call(stead_stage_status, get(), id, &json);
        return detail::taken(json);
    }
    /// The transfers, the latest first, as JSON: those that are over only if `all`.
    std::string list(bool all = false) const {
        char *json = nullptr;
        detail::call(stead_stage_list, get(), all, &json);
        return detail::taken(json);
    }
    /// What a request would do and how long it would take, as JSON.
    std::string preview(const stage_request &r) const { return answered(stead_stage_preview, r, nullptr); }
    /// As above; the flag stops it.
    std::string preview(const stage_request &r, const cancel_flag &flag) const { return answered(stead_stage_preview, r, flag.get()); }
    /// How the target of a "sync" differs from its source, as JSON: see stead_stage_check.
    std::string check(const stage_request &r) const { return answered(stead_stage_check, r, nullptr); }
    /// As above; the flag stops it.
    std::string check(const stage_request &r, const cancel_flag &flag) const { return answered(stead_stage_check, r, flag.get()); }
    /// The dataspaces, their room and their speed, as JSON.
    std::string df() const {
        char *json = nullptr;
        detail::call(stead_df, get(), &json);
        return detail::taken(json);
    }
    /// Tells `each` of what lies at a location, and if `all` of what lies below it, too: see stead_ls. It is given a
    /// `const stead_entry &`; what it throws ends it and comes out here, and so it stops if it returns false.
    template <class F> void ls(const std::string &location, F each, bool all = false) const {
        struct told {
            F &each;
            std::exception_ptr thrown;
            bool stopped = false;
        } to{each, nullptr};
        const stead_entry_fn call = [](const stead_entry *entry, void *user) -> int {
            auto &t = *static_cast<told *>(user);
            try {
                if constexpr (std::is_same_v<decltype(t.each(*entry)), bool>) t.stopped = !t.each(*entry);
                else t.each(*entry);
            } catch (...) {
                t.thrown = std::current_exception();
            }
            return t.stopped || t.thrown;
        };
        stead_error *e = nullptr;
        const stead_status status = stead_ls(get(), location.c_str(), all, call, &to, nullptr, &e);
        if (status == STEAD_OK) return;
        const error failed(status, e);
        if (to.thrown) std::rethrow_exception(to.thrown);
        if (!to.stopped) throw failed;
    }
    /// The names of what lies at a location.
    std::vector<std::string> ls(const std::string &location) const {
        std::vector<std::string> names;
        ls(location, [&](const stead_entry &entry) { names.push_back(entry.name); });
        return names;
    }
    /// Stops what is under way and ends it. Throws if a transfer does not stop.
    void close() { detail::call(stead_stager_close, handle_.release()); }

    stead_stager *get() const noexcept { return handle_.get(); }

private:
    struct closing {
        void operator()(stead_stager *s) const noexcept { stead_stager_close(s, nullptr); }
    };

    static stead_stager *open(const char *state, const std::vector<std::string> &dataspaces, std::size_t threads) {
        const auto folders = detail::pointers(dataspaces);
        stead_stager *s = nullptr;
        detail::call(stead_stager_open, state, folders.data(), folders.size(), threads, &s);
        return s;
    }
    template <class F> std::string answered(F function, const stage_request &r, stead_cancel *flag) const {
        char *json = nullptr;
        detail::call(function, get(), r.get(), flag, &json);
        return detail::taken(json);
    }

    std::unique_ptr<stead_stager, closing> handle_;
};

/// Memory with a name, which transfers know as "memory://NAME". When it goes, it is closed, and stays until it is removed.
class region {
public:
    /// Opens a region that is there.
    explicit region(const std::string &name) : name_(name) {
        stead_region *r = nullptr;
        detail::call(stead_region_open, name.c_str(), &r);
        handle_.reset(r);
    }
    /// Makes a region of so many bytes, all zero.
    region(const std::string &name, std::uint64_t size) : name_(name) {
        stead_region *r = nullptr;
        detail::call(stead_region_create, name.c_str(), size, &r);
        handle_.reset(r);
    }

    /// What transfers call it.
    std::string location() const {
        std::string said = "memory://";
        for (const char c : name_) said += c == '$' ? std::string("$$") : std::string(1, c);
        return said;
    }
    /// Where its bytes are, from a page on.
    void *data() const noexcept { return stead_region_data(get()); }
    /// The same as elements of a type.
    template <class T> T *as() const noexcept { return static_cast<T *>(data()); }
    /// Its bytes.
    std::uint64_t size() const noexcept { return stead_region_size(get()); }
    /// Says that its bytes were changed; closing it says so, too.
    void touch() const { detail::call(stead_region_touch, get()); }
    /// Removes a region.
    static void remove(const std::string &name) { detail::call(stead_region_remove, name.c_str()); }
    /// All regions of this user, as JSON.
    static std::string list() {
        char *json = nullptr;
        detail::call(stead_region_list, &json);
        return detail::taken(json);
    }

    stead_region *get() const noexcept { return handle_.get(); }

private:
    std::string name_;
    detail::handle<stead_region, &stead_region_close> handle_;
};

/// The daemon of the node, which does transfers for programs that need not wait for them. What it was given goes on when this goes.
class daemon {
public:
    /// Connects to the user's own one, or that of the system. Throws STEAD_NOT_FOUND if there is none.
    daemon() : handle_(connect(nullptr)) {}
    /// Connects to the one that listens on a socket.
    explicit daemon(const std::string &path) : handle_(connect(path.c_str())) {}
    /// Connects to that of another node of the pool, by way of the one of this node that listens on `path`, or that is found.
    static daemon on(const std::string &node, const std::string &path = {}) {
        stead_daemon *d = nullptr;
        detail::call(stead_daemon_connect_on, path.empty() ? nullptr : path.c_str(), node.c_str(), &d);
        return daemon(d);
    }

    /// Gives it a transfer, to be done once those of `after` are finished; its number.
    std::int64_t submit(const stage_request &r, const std::vector<std::int64_t> &after = {}) const {
        std::int64_t id = 0;
        detail::call(stead_daemon_submit, get(), r.get(), after.data(), after.size(), &id);
        return id;
    }
    /// Waits until a transfer has ended. Throws what it ended with.
    void wait(std::int64_t id) const { detail::call(stead_daemon_wait, get(), id, std::int64_t{-1}); }
    /// Waits until a transfer has ended, no longer than that; true if it has. Throws what it ended with.
    template <class R, class P> bool wait_for(std::int64_t id, std::chrono::duration<R, P> time) const {
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(time).count();
        stead_error *e = nullptr;
        const stead_status status = stead_daemon_wait(get(), id, ms < 0 ? 0 : static_cast<std::int64_t>(ms), &e);
        if (status == STEAD_OK) return true;
        const error failed(status, e);
        // Whoever does not answer has not said that it has ended.
        if (status == STEAD_TIMEOUT) return false;
        throw failed;
    }
    /// How far a transfer is, and how long it still takes, those before it counted.
    stead_stage_progress eta(std::int64_t id) const {
        stead_stage_progress p{};
        detail::call(stead_daemon_eta, get(), id, &p, sizeof p);
        return p;
    }
    /// Stops a transfer and gives it up.
    void cancel(std::int64_t id) const { detail::call(stead_daemon_cancel, get(), id); }
    /// Has one done again that was interrupted or has failed.
    void resume(std::int64_t id) const { detail::call(stead_daemon_resume, get(), id); }
    /// What it knows of a transfer, as JSON.
    std::string status(std::int64_t id) const { return text(stead_daemon_status, id); }
    /// The transfers of this user, the latest first, as JSON: those that are over only if `all`.
    std::string list(bool all = false) const { return text(stead_daemon_list, all); }
    /// What a request would do and how long it would take, as JSON.
    std::string preview(const stage_request &r) const { return text(stead_daemon_preview, r.get(), nullptr); }
    /// As above; the flag stops it.
    std::string preview(const stage_request &r, const cancel_flag &flag) const { return text(stead_daemon_preview, r.get(), flag.get()); }
    /// How the target of a "sync" differs from its source, as JSON.
    std::string check(const stage_request &r) const { return text(stead_daemon_check, r.get(), nullptr); }
    /// As above; the flag stops it.
    std::string check(const stage_request &r, const cancel_flag &flag) const { return text(stead_daemon_check, r.get(), flag.get()); }
    /// Has it run a flow, whether or not the program goes on; its number. See stead_daemon_flow_begin.
    std::int64_t begin_flow(const flow &f, const flow_options &how = {}) const {
        std::int64_t number = 0;
        const detail::flow_choice o(how);
        detail::call(stead_daemon_flow_begin, get(), f.get(), o.get(), &number);
        return number;
    }
    /// Waits until a flow that it runs is over; what it has done, as JSON. Throws what it ended with.
    std::string wait_flow(std::int64_t number) const { return text(stead_daemon_flow_wait, number, std::int64_t{-1}); }
    /// Gives up a flow that it runs.
    void cancel_flow(std::int64_t number) const { detail::call(stead_daemon_flow_cancel, get(), number); }
    /// The flows that it runs for this user, the latest first, as JSON: those that are over only if `all`.
    std::string flows(bool all = false) const { return text(stead_daemon_flows, all); }
    /// Its dataspaces, their room and their speed, as JSON.
    std::string spaces() const { return text(stead_daemon_spaces); }
    /// The names of the nodes of the pool, as JSON.
    std::string nodes() const { return text(stead_daemon_nodes); }
    /// Numbers about this user's transfers in the text form of Prometheus.
    std::string metrics() const { return text(stead_daemon_metrics); }

    stead_daemon *get() const noexcept { return handle_.get(); }

private:
    // It gives those that are for the transfers of other users.
    friend class admin;

    explicit daemon(stead_daemon *d) : handle_(d) {}
    static stead_daemon *connect(const char *path) {
        stead_daemon *d = nullptr;
        detail::call(stead_daemon_connect, path, &d);
        return d;
    }
    template <class F, class... A> std::string text(F function, A... arguments) const {
        char *json = nullptr;
        detail::call(function, get(), arguments..., &json);
        return detail::taken(json);
    }

    detail::handle<stead_daemon, &stead_daemon_free> handle_;
};

/// What stays on the node for later, and who else may read it: by the daemon of the node, or by this process if there is none.
/// Locations are paths, or names in dataspaces.
namespace persist {

/// Keeps a file, or a folder with all that lies in it, for ever: neither the end of a job nor that of its time removes it.
inline void store(const std::string &location) {
    detail::call(stead_persist_store, location.c_str(), std::int64_t{-1});
}
/// Keeps it for so long from now on.
template <class R, class P> void store(const std::string &location, std::chrono::duration<R, P> time) {
    const auto s = std::chrono::ceil<std::chrono::seconds>(time).count();
    detail::call(stead_persist_store, location.c_str(), s < 0 ? 0 : static_cast<std::int64_t>(s));
}
/// Keeps it no longer: it stays until its time or that of its job is over. This is `stead persist delete`; C++ has that word for
/// itself.
inline void release(const std::string &location) { detail::call(stead_persist_delete, location.c_str()); }
/// Lets another user, by name or number, read it with all that lies in it and will.
inline void share(const std::string &location, const std::string &user) {
    detail::call(stead_persist_share, location.c_str(), user.c_str());
}
/// Lets that user read it no longer.
inline void unshare(const std::string &location, const std::string &user) {
    detail::call(stead_persist_unshare, location.c_str(), user.c_str());
}
/// What is kept and shared, as JSON.
inline std::string list() {
    char *json = nullptr;
    detail::call(stead_persist_list, &json);
    return detail::taken(json);
}

} // namespace persist

} // namespace stead

#endif
