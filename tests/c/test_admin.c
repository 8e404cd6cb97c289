/* What administrators say to the daemon of a node. The first argument is its socket, the second a large file of this user's, in a folder
   that nobody else can look into; with a third one it is shared with a user of this name. */

#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stead_admin.h>

static stead_error *e = NULL;

static void says(stead_status (*ask)(const stead_daemon *, char **, stead_error **), const stead_daemon *d, const char *what) {
    char *json = NULL;
    OK(ask(d, &json, &e));
    SAYS(json, what);
    stead_text_free(json);
}

static void dataspaces(stead_daemon *d) {
    char here[4096], path[5000], *json = NULL;
    const char *set[] = {path, "quota=100"}, *less[] = {"quota=", "gentle=yes"}, *odd[] = {"quota"};
    CHECK(getcwd(here, sizeof here) != NULL && mkdir("space", 0755) == 0);
    snprintf(path, sizeof path, "path=%s/space", here);
    OK(stead_admin_dataspace_add(d, "c", set, 2, &e));
    says(stead_admin_dataspaces, d, "\"quota\": \"100\"");
    FAILS(STEAD_USAGE, "already", stead_admin_dataspace_add(d, "c", set, 2, &e));
    FAILS(STEAD_USAGE, "no setting", stead_admin_dataspace_update(d, "c", odd, 1, &e));
    FAILS(STEAD_USAGE, "'none'", stead_admin_dataspace_update(d, "none", less, 1, &e));
    OK(stead_daemon_spaces(d, &json, &e));
    SAYS(json, "\"quota\": 100");
    stead_text_free(json);
    OK(stead_admin_dataspace_update(d, "c", less, 2, &e));
    says(stead_admin_dataspaces, d, "\"gentle\": \"yes\"");
    OK(stead_daemon_spaces(d, &json, &e));
    SAYS(json, "\"quota\": null");
    SAYS(json, "\"gentle\": true");
    stead_text_free(json);
}

static int counts(const stead_entry *entry, void *user) {
    CHECK(entry->size == 4);
    ++*(int *)user;
    return 0;
}

/* What no file has a stager of this process asks of the daemon that STEAD_SOCKET names. */
static void is_known(void) {
    stead_stager *s = NULL;
    stead_stage_request *r = NULL;
    stead_transfer *t = NULL;
    char *json = NULL;
    int names = 0;
    FILE *f = fopen("four", "wb");
    CHECK(f != NULL && fputs("four", f) >= 0 && fclose(f) == 0);
    OK(stead_stager_open("journal", NULL, 0, 1, &s, &e));
    OK(stead_ls(s, "c://", false, counts, &names, NULL, &e));
    CHECK(names == 0);
    OK(stead_stage_request_new("copy", &r, &e));
    OK(stead_stage_request_source(r, "four", &e));
    OK(stead_stage_request_target(r, "c://kept", &e));
    OK(stead_stage_preview(s, r, NULL, &json, &e));
    SAYS(json, "\"bytes\": 4");
    stead_text_free(json);
    OK(stead_stage_submit(s, r, &t, &e));
    OK(stead_stage_wait(t, -1, &e));
    OK(stead_ls(s, "c://", false, counts, &names, NULL, &e));
    CHECK(names == 1);
    FAILS(STEAD_USAGE, "'none'", stead_ls(s, "none://", false, counts, &names, NULL, &e));
    stead_stage_free(t);
    stead_stage_request_free(r);
    OK(stead_stager_close(s, &e));
}

static void jobs(stead_daemon *d) {
    const char *spaces[] = {"c"}, *none[] = {"none"};
    char user[32];
    snprintf(user, sizeof user, "%u", (unsigned)getuid());
    FAILS(STEAD_USAGE, "'none'", stead_admin_job_add(d, "7", user, none, 1, &e));
    OK(stead_admin_job_add(d, "7", user, spaces, 1, &e));
    FAILS(STEAD_USAGE, "no job 8", stead_admin_process_add(d, "8", (uint32_t)getpid(), &e));
    OK(stead_admin_process_add(d, "7", (uint32_t)getpid(), &e));
    says(stead_admin_jobs, d, "\"7\"");
    OK(stead_admin_process_remove(d, (uint32_t)getpid(), &e));
    FAILS(STEAD_USAGE, "not named", stead_admin_process_remove(d, (uint32_t)getpid(), &e));
    OK(stead_admin_job_remove(d, "7", &e));
    says(stead_admin_jobs, d, "[]");
    OK(stead_admin_dataspace_remove(d, "c", &e));
    says(stead_admin_dataspaces, d, "[]");
    OK(stead_admin_dataspace_reset(d, "c", &e));
    FAILS(STEAD_USAGE, "nothing was set", stead_admin_dataspace_reset(d, "c", &e));
}

static void drained(stead_daemon *d) {
    stead_stage_request *r = NULL;
    int64_t id = 0;
    OK(stead_stage_request_new("remove", &r, &e));
    OK(stead_stage_request_source(r, "space", &e));
    OK(stead_admin_drain(d, &e));
    says(stead_admin_stats, d, "\"drained\": true");
    FAILS(STEAD_LIMIT, "drained", stead_daemon_submit(d, r, NULL, 0, &id, &e));
    OK(stead_admin_open(d, &e));
    says(stead_admin_stats, d, "\"drained\": false");
    OK(stead_daemon_submit(d, r, NULL, 0, &id, &e));
    OK(stead_daemon_wait(d, id, -1, &e));
    stead_stage_request_free(r);
}

/* Those of this user, as an administrator has those of another one. */
static void transfers(stead_daemon *d, const char *large) {
    stead_daemon *managed = NULL;
    stead_stage_request *r = NULL;
    char user[32], *json = NULL;
    int64_t id = 0, other = 0;
    snprintf(user, sizeof user, "%u", (unsigned)getuid());
    OK(stead_stage_request_new("copy", &r, &e));
    OK(stead_stage_request_source(r, large, &e));
    OK(stead_stage_request_target(r, "large", &e));
    OK(stead_stage_request_set(r, "limit", "1MiB", &e));
    OK(stead_daemon_submit(d, r, NULL, 0, &id, &e));
    OK(stead_admin_manage(d, user, &managed, &e));
    OK(stead_daemon_list(managed, false, &json, &e));
    SAYS(json, "large\"");
    stead_text_free(json);
    FAILS(STEAD_PERMISSION, "nothing else", stead_daemon_submit(managed, r, NULL, 0, &other, &e));
    FAILS(STEAD_PERMISSION, "nothing else", stead_daemon_spaces(managed, &json, &e));
    FAILS(STEAD_PERMISSION, "nothing else", stead_admin_drain(managed, &e));
    CHECK(other == 0);
    OK(stead_daemon_cancel(managed, id, &e));
    FAILS(STEAD_CANCELLED, "was cancelled", stead_daemon_wait(managed, id, -1, &e));
    FAILS(STEAD_CANCELLED, "was cancelled", stead_daemon_wait(d, id, -1, &e));
    FAILS(STEAD_USAGE, "cancelled already", stead_daemon_resume(managed, id, &e));
    stead_daemon_free(managed);
    FAILS(STEAD_USAGE, "no user", stead_admin_manage(d, "no such user", &managed, &e));
    CHECK(managed == NULL);
    FAILS(STEAD_USAGE, "NULL", stead_admin_manage(d, NULL, &managed, &e));
    FAILS(STEAD_USAGE, "NULL", stead_admin_manage(NULL, user, &managed, &e));
    stead_stage_request_free(r);
}

/* With the daemon that STEAD_SOCKET names. */
static void kept(void) {
    char *json = NULL;
    FILE *f = fopen("keep", "wb");
    CHECK(f != NULL && fclose(f) == 0);
    OK(stead_persist_store("keep", 3600, &e));
    OK(stead_persist_store("keep", -1, &e));
    OK(stead_persist_list(&json, &e));
    SAYS(json, "\"kept\": true");
    SAYS(json, "\"until\": null");
    stead_text_free(json);
    OK(stead_persist_delete("keep", &e));
    FAILS(STEAD_USAGE, "not kept", stead_persist_delete("keep", &e));
    FAILS(STEAD_NOT_FOUND, "no such file", stead_persist_store("no-such-file", -1, &e));
    FAILS(STEAD_USAGE, "no such user", stead_persist_share("keep", "no such user", &e));
    FAILS(STEAD_USAGE, "not shared", stead_persist_unshare("keep", "0", &e));
}

/* Whether this user can read a file. */
static bool reads(const char *path, const struct passwd *user) {
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        if (setgroups(0, NULL) == 0 && setgid(user->pw_gid) == 0 && setuid(user->pw_uid) == 0)
            execlp("head", "head", "-c", "1", path, (char *)NULL);
        _exit(127);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 127);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void shared(const char *path, const char *name) {
    const struct passwd *user = getpwnam(name);
    char *json = NULL;
    CHECK(user != NULL);
    if (user == NULL) return;
    CHECK(!reads(path, user));
    OK(stead_persist_share(path, name, &e));
    CHECK(reads(path, user));
    OK(stead_persist_list(&json, &e));
    SAYS(json, path);
    SAYS(json, "\"kept\": false");
    stead_text_free(json);
    OK(stead_persist_unshare(path, name, &e));
    CHECK(!reads(path, user));
    FAILS(STEAD_USAGE, "not shared", stead_persist_unshare(path, name, &e));
}

int main(int argc, char **argv) {
    stead_daemon *d = NULL;
    if (argc < 3) return 2;
    CHECK(setenv("STEAD_SOCKET", argv[1], 1) == 0);
    OK(stead_daemon_connect(argv[1], &d, &e));
    dataspaces(d);
    is_known();
    jobs(d);
    drained(d);
    transfers(d, argv[2]);
    kept();
    if (argc > 3) shared(argv[2], argv[3]);
    stead_daemon_free(d);
    FAILS(STEAD_USAGE, "NULL", stead_admin_drain(NULL, &e));
    return ended("admin");
}
