/*
 * stead for administrators: what root, members of the group `stead`, and who has a daemon of its own say to the daemon of
 * a node (docs/steadd.md).
 *
 * Generated from crates/capi by `cargo xtask header`; changes belong there. All that stands in stead.h about calls,
 * handles, texts and threads holds here.
 */

#include "stead.h"

#ifndef STEAD_ADMIN_H
#define STEAD_ADMIN_H

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Adds a dataspace for all users. `settings` are `count` texts such as "path=/mnt/nvme" and "quota=1TB": keys of stead.toml and their
 * values, of which one is the path.
 *
 * Errors: STEAD_USAGE if there is one of this name, and for settings that make no sense; STEAD_PERMISSION if this user is no
 * administrator; STEAD_PEER if the daemon has ended; STEAD_TIMEOUT.
 */
stead_status stead_admin_dataspace_add(stead_daemon *daemon,
                                       const char *name,
                                       const char *const *settings,
                                       size_t count,
                                       stead_error **error);

/**
 * Changes a dataspace for all users, also one of /etc/stead/stead.toml: `settings` as for stead_admin_dataspace_add, of which those
 * without a value, such as "limit=", are taken away. Transfers that have begun go on as they were.
 *
 * Errors: STEAD_USAGE if there is none of this name; otherwise as stead_admin_dataspace_add.
 */
stead_status stead_admin_dataspace_update(stead_daemon *daemon,
                                          const char *name,
                                          const char *const *settings,
                                          size_t count,
                                          stead_error **error);

/**
 * Takes a dataspace away, also one of /etc/stead/stead.toml, as long as nobody adds or resets it. What lies in it stays.
 *
 * Errors: STEAD_USAGE if there is none of this name; STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_admin_dataspace_remove(stead_daemon *daemon,
                                          const char *name,
                                          stead_error **error);

/**
 * Forgets what administrators have set of a dataspace: it is as /etc/stead/stead.toml says, or none.
 *
 * Errors: STEAD_USAGE if nothing was set of it; STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_admin_dataspace_reset(stead_daemon *daemon,
                                         const char *name,
                                         stead_error **error);

/**
 * The dataspaces of all users as a JSON list: `name`, and `set` with the keys of stead.toml and their values. The text is the
 * caller's, to be freed with stead_text_free.
 *
 * Errors: STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_admin_dataspaces(const stead_daemon *daemon,
                                    char **json,
                                    stead_error **error);

/**
 * Adds a job of a user, by name or number, whose processes may use these `count` dataspaces, or gives it others.
 *
 * Errors: STEAD_USAGE if one of these is not there, or if it is another user's job; STEAD_LIMIT if there are too many;
 * STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_admin_job_add(stead_daemon *daemon,
                                 const char *job,
                                 const char *user,
                                 const char *const *dataspaces,
                                 size_t count,
                                 stead_error **error);

/**
 * Says that a job is over: its transfers are cancelled, and what its user has left in its dataspaces of jobs is removed, but for what
 * is kept and what another job of the user may use. This is done after the return.
 *
 * Errors: STEAD_USAGE if there is none of this name; STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_admin_job_remove(stead_daemon *daemon,
                                    const char *job,
                                    stead_error **error);

/**
 * The jobs as a JSON list: `job`, `user` (a number), `dataspaces`, `processes`. The text is the caller's, to be freed with
 * stead_text_free.
 *
 * Errors: STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_admin_jobs(const stead_daemon *daemon,
                              char **json,
                              stead_error **error);

/**
 * Says that a process of this node, and those that it begins, are of a job.
 *
 * Errors: STEAD_USAGE if there is no such job; STEAD_NOT_FOUND if there is no such process; STEAD_LIMIT if there are too many;
 * STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_admin_process_add(stead_daemon *daemon,
                                     const char *job,
                                     uint32_t pid,
                                     stead_error **error);

/**
 * Says that a process is of no job any more.
 *
 * Errors: STEAD_USAGE if it was not named for one; STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_admin_process_remove(stead_daemon *daemon,
                                        uint32_t pid,
                                        stead_error **error);

/**
 * Has the daemon take no transfers and begin none; what is under way ends, what waits stays. stead_admin_stats says how much is
 * under way.
 *
 * Errors: STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_admin_drain(stead_daemon *daemon,
                               stead_error **error);

/**
 * Has a daemon that was drained take transfers again, and go on with those that wait.
 *
 * Errors: as stead_admin_drain.
 */
stead_status stead_admin_open(stead_daemon *daemon, stead_error **error);

/**
 * What the daemon does, as JSON: `drained`, and `users` with `user` (a number), `connections`, `running`, `waiting`, `finished`, `failed`,
 * `bytes` (moved) and `rate` (bytes a second). The text is the caller's, to be freed with stead_text_free.
 *
 * Errors: as stead_admin_drain.
 */
stead_status stead_admin_stats(const stead_daemon *daemon,
                               char **json,
                               stead_error **error);

/**
 * Gives the daemon as it is for the transfers of another user, by name or number, whom the caller looks after as an administrator. With
 * `managed` go stead_daemon_list, stead_daemon_status, stead_daemon_wait, stead_daemon_eta, stead_daemon_cancel, stead_daemon_resume and
 * stead_daemon_metrics; anything else is STEAD_PERMISSION. It is freed with stead_daemon_free, and does not need `daemon` any more.
 *
 * Errors: STEAD_PERMISSION if this user is no administrator; STEAD_NOT_FOUND if the other one has no transfers here, or no user has this
 * number; STEAD_USAGE if there is no user of this name, and if the daemon serves one user alone, who is another one; STEAD_LIMIT if there
 * are too many such connections; STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_admin_manage(const stead_daemon *daemon,
                                const char *user,
                                stead_daemon **managed,
                                stead_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STEAD_ADMIN_H */
