// stead for administrators in C++: what root, members of the group `stead`, and who has a daemon of its own say to the daemon of
// a node. A header of its own, as stead_admin.h is: programs that move data need none of it.
//
//     stead::admin node;
//     node.add_dataspace("nvme0", {"path=/mnt/nvme", "quota=6TB"});
//     node.drain();
//     node.manage("ada").cancel(7);
//
// Failures are exceptions of type stead::error: of kind permission if this user is no administrator. Threads: everything may be
// used from any thread.
//
// SPDX-License-Identifier: Apache-2.0 OR MIT

#ifndef STEAD_ADMIN_HPP
#define STEAD_ADMIN_HPP

#include "stead.hpp"
#include "stead_admin.h"

namespace stead {

/// The daemon of a node, as administrators have it.
class admin {
public:
    /// Of the daemon of this node, if no other one is given.
    explicit admin(stead::daemon d = {}) : daemon_(std::move(d)) {}

    /// The daemon that is asked.
    const stead::daemon &daemon() const noexcept { return daemon_; }

    /// Adds a dataspace for all users: settings such as "path=/mnt/nvme" and "quota=1TB", of which one is the path.
    void add_dataspace(const std::string &name, const std::vector<std::string> &settings) const {
        const auto p = detail::pointers(settings);
        detail::call(stead_admin_dataspace_add, get(), name.c_str(), p.data(), p.size());
    }
    /// Changes a dataspace for all users; settings without a value, such as "limit=", are taken away.
    void update_dataspace(const std::string &name, const std::vector<std::string> &settings) const {
        const auto p = detail::pointers(settings);
        detail::call(stead_admin_dataspace_update, get(), name.c_str(), p.data(), p.size());
    }
    /// Takes a dataspace away. What lies in it stays.
    void remove_dataspace(const std::string &name) const {
        detail::call(stead_admin_dataspace_remove, get(), name.c_str());
    }
    /// Forgets what was set of a dataspace: it is as /etc/stead/stead.toml says, or none.
    void reset_dataspace(const std::string &name) const {
        detail::call(stead_admin_dataspace_reset, get(), name.c_str());
    }
    /// The dataspaces of all users, as JSON.
    std::string dataspaces() const { return text(stead_admin_dataspaces); }

    /// Adds a job of a user, by name or number, whose processes may use these dataspaces, or gives it others.
    void add_job(const std::string &job, const std::string &user, const std::vector<std::string> &dataspaces) const {
        const auto p = detail::pointers(dataspaces);
        detail::call(stead_admin_job_add, get(), job.c_str(), user.c_str(), p.data(), p.size());
    }
    /// Says that a job is over: its transfers are cancelled, and what it has left is removed.
    void remove_job(const std::string &job) const { detail::call(stead_admin_job_remove, get(), job.c_str()); }
    /// The jobs, as JSON.
    std::string jobs() const { return text(stead_admin_jobs); }

    /// Says that a process of this node, and those that it begins, are of a job.
    void add_process(const std::string &job, std::uint32_t pid) const {
        detail::call(stead_admin_process_add, get(), job.c_str(), pid);
    }
    /// Says that a process is of no job any more.
    void remove_process(std::uint32_t pid) const { detail::call(stead_admin_process_remove, get(), pid); }

    /// Has the daemon take no transfers and begin none; what is under way ends, what waits stays.
    void drain() const { detail::call(stead_admin_drain, get()); }
    /// Has a daemon that was drained take transfers again.
    void open() const { detail::call(stead_admin_open, get()); }
    /// What the daemon does for each user, as JSON.
    std::string stats() const { return text(stead_admin_stats); }

    /// The daemon as it is for the transfers of another user, by name or number: list, status, wait, eta, cancel, resume and metrics; anything
    /// else fails with kind permission. It does not need this object any more.
    stead::daemon manage(const std::string &user) const {
        stead_daemon *managed = nullptr;
        detail::call(stead_admin_manage, get(), user.c_str(), &managed);
        return stead::daemon(managed);
    }

    stead_daemon *get() const noexcept { return daemon_.get(); }

private:
    template <class F> std::string text(F function) const {
        char *json = nullptr;
        detail::call(function, get(), &json);
        return detail::taken(json);
    }

    stead::daemon daemon_;
};

} // namespace stead

#endif
