/* Staging: transfers begun, watched, stopped, resumed and given up, and what is wrong with requests. */

#define _DEFAULT_SOURCE
#include "check.h"
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 6, SIZE = 300000 };

static stead_error *e = NULL;

static unsigned char byte_of(int file, int at) {
    return (unsigned char)(at * 31 + at / 251 + file * 7);
}

static void file_name(char *into, size_t room, const char *folder, int file) {
    snprintf(into, room, "%s/%s%d", folder, file % 2 ? "sub/" : "", file);
}

static void make_tree(const char *folder) {
    char name[256];
    static unsigned char bytes[SIZE];
    int f, i;
    snprintf(name, sizeof name, "%s/sub", folder);
    CHECK(mkdir(folder, 0755) == 0 && mkdir(name, 0755) == 0);
    for (f = 0; f < FILES; f++) {
        FILE *to;
        file_name(name, sizeof name, folder, f);
        for (i = 0; i < SIZE; i++) bytes[i] = byte_of(f, i);
        to = fopen(name, "wb");
        CHECK(to != NULL);
        if (to == NULL) continue;
        CHECK(fwrite(bytes, 1, SIZE, to) == SIZE);
        CHECK(fclose(to) == 0);
    }
}

static int is_tree(const char *folder) {
    char name[256];
    static unsigned char bytes[SIZE + 1];
    int f, i, good = 1;
    for (f = 0; f < FILES; f++) {
        FILE *from;
        size_t n;
        file_name(name, sizeof name, folder, f);
        from = fopen(name, "rb");
        if (from == NULL) return 0;
        n = fread(bytes, 1, sizeof bytes, from);
        fclose(from);
        good &= n == SIZE;
        for (i = 0; i < SIZE && good; i++) good &= bytes[i] == byte_of(f, i);
    }
    return good;
}

static stead_stage_request *ask(const char *action, const char *source, const char *target) {
    stead_stage_request *r = NULL;
    OK(stead_stage_request_new(action, &r, &e));
    OK(stead_stage_request_source(r, source, &e));
    OK(stead_stage_request_target(r, target, &e));
    return r;
}

static stead_stage_progress eta(const stead_transfer *t) {
    stead_stage_progress p;
    OK(stead_stage_eta(t, &p, sizeof p, &e));
    CHECK(p.left >= 0 && p.left_low >= 0 && p.left_high >= 0 && p.seconds >= 0);
    CHECK(p.bytes_done <= p.bytes && p.files_done <= p.files);
    return p;
}

/* Begins a transfer, waits for its end, and frees all. */
static void done(stead_stager *s, stead_stage_request *r) {
    stead_transfer *t = NULL;
    OK(stead_stage_submit(s, r, &t, &e));
    OK(stead_stage_wait(t, 60000, &e));
    stead_stage_free(t);
    stead_stage_request_free(r);
}

static void copies(stead_stager *s) {
    stead_stage_request *r = ask("copy", "tree", "copy");
    stead_cancel *stop = NULL;
    stead_transfer *t = NULL;
    stead_stage_progress p;
    char *json = NULL;
    int64_t id;
    OK(stead_stage_request_set(r, "verify", "yes", &e));
    OK(stead_stage_preview(s, r, NULL, &json, &e));
    SAYS(json, "\"files\": 6");
    SAYS(json, "\"bytes\": 1800000");
    stead_text_free(json);
    OK(stead_stage_submit(s, r, &t, &e));
    id = stead_stage_id(t);
    CHECK(id > 0);
    OK(stead_stage_wait(t, -1, &e));
    /* It says so to whoever asks again. */
    OK(stead_stage_wait(t, 0, &e));
    CHECK(stead_stage_test(t));
    OK(stead_stage_cancel(t, &e));
    OK(stead_stage_wait(t, 0, &e));
    CHECK(is_tree("copy"));
    p = eta(t);
    CHECK(p.ended && p.planned && p.bytes == (uint64_t)FILES * SIZE && p.bytes_done == p.bytes);
    CHECK(p.files_done == p.files && p.files >= FILES && p.left == 0 && p.left_high == 0);
    stead_stage_free(t);
    OK(stead_stage_status(s, id, &json, &e));
    SAYS(json, "\"state\": \"finished\"");
    stead_text_free(json);
    FAILS(STEAD_USAGE, "finished already", stead_stage_give_up(s, id, &e));
    OK(stead_stage_list(s, false, &json, &e));
    CHECK(strcmp(json, "[]") == 0);
    stead_text_free(json);
    OK(stead_stage_list(s, true, &json, &e));
    SAYS(json, "\"finished\"");
    stead_text_free(json);
    /* Over is over. */
    FAILS(STEAD_USAGE, "finished already", stead_stage_resume(s, id, &t, &e));
    stead_stage_request_free(r);
    /* Into a dataspace, in which it stays where it is the same. */
    done(s, ask("copy", "tree/", "fast://in/"));
    CHECK(is_tree("fast/in"));
    done(s, ask("sync", "tree/", "fast://in/"));
    r = ask("sync", "tree/", "fast://in/");
    OK(stead_stage_request_set(r, "checksum", "yes", &e));
    OK(stead_stage_preview(s, r, NULL, &json, &e));
    SAYS(json, "\"files\": 0");
    stead_text_free(json);
    stead_stage_request_free(r);
    r = ask("sync", "tree", "copy");
    OK(stead_stage_check(s, r, NULL, &json, &e));
    SAYS(json, "\"same\": 6");
    SAYS(json, "\"differ\": 0");
    stead_text_free(json);
    json = NULL;
    OK(stead_cancel_new(&stop, &e));
    stead_cancel_request(stop);
    FAILS(STEAD_CANCELLED, "", stead_stage_check(s, r, stop, &json, &e));
    CHECK(json == NULL);
    stead_cancel_free(stop);
    FAILS(STEAD_USAGE, "NULL", stead_stage_check(s, r, NULL, NULL, &e));
    stead_stage_request_free(r);
    r = ask("copy", "tree", "copy");
    FAILS(STEAD_USAGE, "is a sync", stead_stage_check(s, r, NULL, &json, &e));
    stead_stage_request_free(r);
    done(s, ask("move", "fast://in", "moved"));
    CHECK(is_tree("moved") && access("fast/in", F_OK) != 0);
    r = ask("remove", "moved", NULL);
    done(s, r);
    CHECK(access("moved", F_OK) != 0);
    OK(stead_df(s, &json, &e));
    SAYS(json, "\"name\": \"fast\"");
    SAYS(json, "\"free\": ");
    stead_text_free(json);
}

/* A transfer that takes a while: it is no faster than that. */
static stead_stage_request *slow(const char *target) {
    stead_stage_request *r = ask("copy", "tree", target);
    OK(stead_stage_request_set(r, "limit", "300KiB", &e));
    OK(stead_stage_request_set(r, "durable", "no", &e));
    return r;
}

/* Waits until it is known what there is to do. */
static stead_stage_progress planned(const stead_transfer *t) {
    stead_stage_progress p;
    do {
        p = eta(t);
        CHECK(!p.ended);
    } while (!p.ended && !p.planned && stead_stage_wait(t, 20, NULL) == STEAD_TIMEOUT);
    CHECK(p.planned && p.left_low <= p.left && p.left <= p.left_high);
    return p;
}

static void stops(stead_stager *s) {
    stead_stage_request *r = slow("later");
    stead_transfer *t = NULL, *again = NULL, *resumed = NULL;
    stead_stage_progress p;
    char *json = NULL;
    int64_t id;
    OK(stead_stage_submit(s, r, &t, &e));
    id = stead_stage_id(t);
    FAILS(STEAD_TIMEOUT, "not ended within 1 ms", stead_stage_wait(t, 1, &e));
    CHECK(!stead_stage_test(t));
    p = planned(t);
    CHECK(p.bytes == (uint64_t)FILES * SIZE);
    FAILS(STEAD_USAGE, "under way in this process", stead_stage_resume(s, id, &again, &e));
    FAILS(STEAD_TIMEOUT, "not ended within 1 ms", stead_stage_wait_for(s, id, 1, &e));
    CHECK(again == NULL);
    OK(stead_stage_cancel(t, &e));
    FAILS(STEAD_CANCELLED, "stopped", stead_stage_wait(t, 60000, &e));
    FAILS(STEAD_CANCELLED, "stopped", stead_stage_wait(t, 60000, &e));
    CHECK(eta(t).ended && !is_tree("later"));
    OK(stead_stage_status(s, id, &json, &e));
    SAYS(json, "\"state\": \"interrupted\"");
    stead_text_free(json);
    /* The same request goes on with it. */
    OK(stead_stage_submit(s, r, &again, &e));
    CHECK(stead_stage_id(again) == id);
    stead_stage_free(again);
    OK(stead_stage_resume(s, id, &resumed, &e));
    OK(stead_stage_wait(resumed, 60000, &e));
    CHECK(is_tree("later"));
    OK(stead_stage_wait_for(s, id, 0, &e));
    FAILS(STEAD_USAGE, "no transfer 999", stead_stage_wait_for(s, 999, 0, &e));
    stead_stage_free(resumed);
    stead_stage_free(t);
    stead_stage_request_free(r);
}

static void is_given_up(stead_stager *s) {
    stead_stage_request *r = slow("never");
    stead_transfer *t = NULL;
    int64_t id;
    OK(stead_stage_submit(s, r, &t, &e));
    id = stead_stage_id(t);
    /* Freeing it stops it. */
    stead_stage_free(t);
    OK(stead_stage_give_up(s, id, &e));
    CHECK(!is_tree("never"));
    FAILS(STEAD_USAGE, "cancelled already", stead_stage_give_up(s, id, &e));
    FAILS(STEAD_CANCELLED, "was cancelled", stead_stage_wait_for(s, id, -1, &e));
    /* Under way, it is stopped and given up, whoever does it. */
    OK(stead_stage_submit(s, r, &t, &e));
    id = stead_stage_id(t);
    (void)planned(t);
    OK(stead_stage_give_up(s, id, &e));
    FAILS(STEAD_CANCELLED, "was cancelled", stead_stage_wait(t, 60000, &e));
    FAILS(STEAD_CANCELLED, "was cancelled", stead_stage_wait_for(s, id, 0, &e));
    FAILS(STEAD_USAGE, "cancelled already", stead_stage_give_up(s, id, &e));
    CHECK(!is_tree("never"));
    stead_stage_free(t);
    stead_stage_request_free(r);
}

/* What can be done is done, and the rest is told, and can be done later. */
static void is_done_in_part(stead_stager *s) {
    stead_stage_request *r = ask("copy", "tree/2", "part/");
    stead_transfer *t = NULL;
    char *json = NULL;
    int64_t id;
    OK(stead_stage_request_source(r, "tree/4", &e));
    /* Seconds, so that it is stopped before its end however late that is. */
    OK(stead_stage_request_set(r, "limit", "200KiB", &e));
    OK(stead_stage_request_set(r, "retries", "0", &e));
    OK(stead_stage_submit(s, r, &t, &e));
    id = stead_stage_id(t);
    planned(t);
    stead_stage_free(t);
    CHECK(rename("tree/4", "away") == 0);
    OK(stead_stage_resume(s, id, &t, &e));
    FAILS(STEAD_IO, "tree/4", stead_stage_wait(t, 60000, &e));
    FAILS(STEAD_IO, "1 name(s)", stead_stage_wait(t, 0, &e));
    stead_stage_free(t);
    CHECK(access("part/2", F_OK) == 0 && access("part/4", F_OK) != 0);
    OK(stead_stage_status(s, id, &json, &e));
    SAYS(json, "\"state\": \"failed\"");
    stead_text_free(json);
    CHECK(rename("away", "tree/4") == 0);
    OK(stead_stage_resume(s, id, &t, &e));
    OK(stead_stage_wait(t, 60000, &e));
    CHECK(access("part/4", F_OK) == 0);
    stead_stage_free(t);
    stead_stage_request_free(r);
}

static void errors(stead_stager *s) {
    stead_stage_request *r = NULL;
    stead_stager *other = NULL;
    stead_transfer *t = NULL, *again = NULL;
    stead_cancel *stop = NULL;
    stead_stage_progress p;
    const char *none[] = {"fast"};
    char *json = NULL;
    FAILS(STEAD_USAGE, "unknown action 'mirror'", stead_stage_request_new("mirror", &r, &e));
    FAILS(STEAD_USAGE, "NULL", stead_stage_request_new(NULL, &r, &e));
    CHECK(r == NULL);
    OK(stead_stage_request_new("copy", &r, &e));
    FAILS(STEAD_USAGE, "no source", stead_stage_submit(s, r, &t, &e));
    FAILS(STEAD_USAGE, "names no file", stead_stage_request_source(r, "", &e));
    OK(stead_stage_request_source(r, "no-such-file", &e));
    FAILS(STEAD_USAGE, "no target", stead_stage_submit(s, r, &t, &e));
    OK(stead_stage_request_target(r, "x", &e));
    FAILS(STEAD_USAGE, "no option 'speed'", stead_stage_request_set(r, "speed", "1", &e));
    FAILS(STEAD_USAGE, "yes or no", stead_stage_request_set(r, "verify", "1", &e));
    FAILS(STEAD_USAGE, "'perhaps'", stead_stage_request_set(r, "exists", "perhaps", &e));
    CHECK(t == NULL);
    FAILS(STEAD_NOT_FOUND, "no-such-file", stead_stage_preview(s, r, NULL, &json, &e));
    OK(stead_cancel_new(&stop, &e));
    stead_cancel_request(stop);
    CHECK(stead_stage_preview(s, r, stop, &json, NULL) != STEAD_OK);
    CHECK(json == NULL);
    stead_cancel_free(stop);
    OK(stead_stage_submit(s, r, &t, &e));
    FAILS(STEAD_NOT_FOUND, "no-such-file", stead_stage_wait(t, 60000, &e));
    FAILS(STEAD_NOT_FOUND, "no-such-file", stead_stage_wait(t, 60000, &e));
    FAILS(STEAD_USAGE, "is a transfer", stead_stage_submit((stead_stager *)t, r, &again, &e));
    CHECK(again == NULL);
    stead_stage_free(t);
    stead_stage_request_free(r);
    FAILS(STEAD_USAGE, "freed", stead_stage_request_set(r, "verify", "yes", &e));
    r = ask("copy", "tree/", "listed");
    OK(stead_stage_request_set(r, "file", "sub/3", &e));
    OK(stead_stage_request_set(r, "file", "2", &e));
    OK(stead_stage_submit(s, r, &t, &e));
    OK(stead_stage_wait(t, 60000, &e));
    CHECK(access("listed/sub/3", R_OK) == 0 && access("listed/2", R_OK) == 0);
    CHECK(access("listed/0", F_OK) != 0 && access("listed/sub/1", F_OK) != 0);
    stead_stage_free(t);
    stead_stage_request_free(r);
    r = ask("copy", "tree", "copy");
    OK(stead_stage_submit(s, r, &t, &e));
    OK(stead_stage_wait(t, 60000, &e));
    stead_stage_free(t);
    OK(stead_stage_submit(s, r, &t, &e));
    FAILS(STEAD_USAGE, "copy/tree", stead_stage_wait(t, 60000, &e));
    FAILS(STEAD_USAGE, "no size of", stead_stage_eta(t, &p, 1, &e));
    stead_stage_free(t);
    stead_stage_request_free(r);
    FAILS(STEAD_USAGE, "freed", stead_stage_wait(t, 0, &e));
    CHECK(stead_stage_id(t) == 0 && !stead_stage_test(t));
    FAILS(STEAD_USAGE, "12345", stead_stage_resume(s, 12345, &t, &e));
    FAILS(STEAD_USAGE, "12345", stead_stage_status(s, 12345, &json, &e));
    FAILS(STEAD_USAGE, "no dataspace", stead_stager_open("state", none, 1, 0, &other, &e));
    FAILS(STEAD_USAGE, "names no folder", stead_stager_open("", NULL, 0, 1, &other, &e));
    FAILS(STEAD_USAGE, "NULL", stead_stage_cancel(NULL, &e));
    OK(stead_stager_close(NULL, &e));
    stead_stage_free(NULL);
    stead_stage_request_free(NULL);
}

static void shares_memory(stead_stager *s) {
    stead_region *region = NULL, *again = NULL;
    stead_transfer *t = NULL;
    stead_stage_request *r;
    char name[64], location[80], *json = NULL;
    unsigned char *bytes, back[SIZE];
    FILE *from;
    int i;
    snprintf(name, sizeof name, "test-%ld/c", (long)getpid());
    snprintf(location, sizeof location, "memory://%s", name);
    OK(stead_region_create(name, SIZE, &region, &e));
    bytes = stead_region_data(region);
    CHECK(bytes != NULL && stead_region_size(region) == SIZE && bytes[SIZE - 1] == 0);
    if (bytes == NULL) return;
    for (i = 0; i < SIZE; i++) bytes[i] = byte_of(1, i);
    OK(stead_region_touch(region, &e));
    r = ask("copy", location, "from-memory");
    OK(stead_stage_submit(s, r, &t, &e));
    OK(stead_stage_wait(t, 60000, &e));
    stead_stage_free(t);
    stead_stage_request_free(r);
    from = fopen("from-memory", "rb");
    CHECK(from != NULL && fread(back, 1, SIZE, from) == SIZE && memcmp(back, bytes, SIZE) == 0);
    if (from != NULL) fclose(from);
    OK(stead_region_open(name, &again, &e));
    ((unsigned char *)stead_region_data(again))[3] = 200;
    CHECK(bytes[3] == 200);
    stead_region_close(again);
    FAILS(STEAD_USAGE, "freed", stead_region_touch(again, &e));
    CHECK(stead_region_data(again) == NULL && stead_region_size(again) == 0);
    OK(stead_region_list(&json, &e));
    SAYS(json, name);
    stead_text_free(json);
    FAILS(STEAD_USAGE, "already", stead_region_create(name, 1, &again, &e));
    FAILS(STEAD_USAGE, "at least one byte", stead_region_create("none", 0, &again, &e));
    FAILS(STEAD_NO_SPACE, "are free", stead_region_create("none", (uint64_t)1 << 60, &again, &e));
    FAILS(STEAD_USAGE, "..", stead_region_open("../x", &again, &e));
    FAILS(STEAD_USAGE, "NULL", stead_region_open(NULL, &again, &e));
    OK(stead_region_remove(name, &e));
    FAILS(STEAD_NOT_FOUND, name, stead_region_remove(name, &e));
    FAILS(STEAD_NOT_FOUND, name, stead_region_open(name, &again, &e));
    CHECK(bytes[3] == 200);
    stead_region_close(region);
    stead_region_close(NULL);
}

typedef struct {
    char names[256];
    uint64_t bytes;
    int folders, left;
} listed;

static int note(const stead_entry *entry, void *user) {
    listed *to = user;
    CHECK(strlen(to->names) + strlen(entry->name) + 2 < sizeof to->names);
    strcat(strcat(to->names, entry->name), " ");
    CHECK(entry->modified > 1e9);
    to->folders += strcmp(entry->kind, "folder") == 0;
    to->bytes += entry->size;
    return --to->left == 0;
}

/* Patterns come one by one, each beside those before it; a pipe is an error, or left out. */
static void leaves_names_out(stead_stager *s) {
    stead_stage_request *r = ask("copy", "tree/", "some");
    stead_transfer *t = NULL;
    char *json = NULL;
    OK(stead_stage_request_set(r, "exclude", "/2", &e));
    OK(stead_stage_request_set(r, "exclude", "sub/3", &e));
    OK(stead_stage_request_set(r, "include", "[0-3]", &e));
    OK(stead_stage_request_set(r, "include", "5", &e));
    OK(stead_stage_preview(s, r, NULL, &json, &e));
    SAYS(json, "\"files\": 3");
    stead_text_free(json);
    done(s, r);
    CHECK(access("some/0", F_OK) == 0 && access("some/sub/1", F_OK) == 0 && access("some/sub/5", F_OK) == 0);
    CHECK(access("some/2", F_OK) != 0 && access("some/sub/3", F_OK) != 0 && access("some/4", F_OK) != 0);
    r = ask("copy", "tree/", "large");
    OK(stead_stage_request_set(r, "min-size", "1GiB", &e));
    OK(stead_stage_request_set(r, "max-age", "2d", &e));
    FAILS(STEAD_USAGE, "is no time", stead_stage_request_set(r, "min-age", "soon", &e));
    OK(stead_stage_preview(s, r, NULL, &json, &e));
    SAYS(json, "\"files\": 0");
    stead_text_free(json);
    stead_stage_request_free(r);
    r = ask("remove", "some", NULL);
    OK(stead_stage_request_set(r, "exclude", "0", &e));
    FAILS(STEAD_USAGE, "leave names out", stead_stage_submit(s, r, &t, &e));
    CHECK(t == NULL);
    stead_stage_request_free(r);
    CHECK(mkfifo("tree/pipe", 0644) == 0);
    r = ask("sync", "tree/", "some");
    OK(stead_stage_submit(s, r, &t, &e));
    FAILS(STEAD_USAGE, "tree/pipe", stead_stage_wait(t, 60000, &e));
    stead_stage_free(t);
    OK(stead_stage_request_set(r, "skip-special", "yes", &e));
    OK(stead_stage_request_set(r, "delete", "yes", &e));
    FAILS(STEAD_USAGE, "'many'", stead_stage_request_set(r, "max-delete", "many", &e));
    OK(stead_stage_request_set(r, "max-delete", "0", &e));
    CHECK(mkdir("some/own", 0755) == 0);
    FAILS(STEAD_LIMIT, "1 name(s)", stead_stage_preview(s, r, NULL, &json, &e));
    CHECK(rmdir("some/own") == 0);
    done(s, r);
    CHECK(is_tree("some") && access("some/pipe", F_OK) != 0);
    CHECK(unlink("tree/pipe") == 0);
    done(s, ask("remove", "some", NULL));
}

/* Of the tree, from which nothing was taken. */
static void lists(stead_stager *s) {
    listed all = {"", 0, 0, 100};
    stead_cancel *stop = NULL;
    OK(stead_ls(s, "tree", true, note, &all, NULL, &e));
    CHECK(strcmp(all.names, "0 2 4 sub sub/1 sub/3 sub/5 ") == 0);
    CHECK(all.folders == 1 && all.bytes == (uint64_t)FILES * SIZE);
    memset(&all, 0, sizeof all);
    OK(stead_ls(s, "tree/[2-9s]*", false, note, &all, NULL, &e));
    CHECK(strcmp(all.names, "tree/2 tree/4 tree/sub ") == 0);
    memset(&all, 0, sizeof all);
    OK(stead_ls(s, "fast://", false, note, &all, NULL, &e));
    CHECK(all.names[0] == 0);
    memset(&all, 0, sizeof all);
    all.left = 2;
    FAILS(STEAD_CANCELLED, "", stead_ls(s, "tree", true, note, &all, NULL, &e));
    CHECK(strcmp(all.names, "0 2 ") == 0);
    OK(stead_cancel_new(&stop, &e));
    stead_cancel_request(stop);
    FAILS(STEAD_CANCELLED, "", stead_ls(s, "tree", true, note, &all, stop, &e));
    stead_cancel_free(stop);
    FAILS(STEAD_NOT_FOUND, "tree/none", stead_ls(s, "tree/none", false, note, &all, NULL, &e));
    FAILS(STEAD_USAGE, "'none'", stead_ls(s, "none://", false, note, &all, NULL, &e));
    FAILS(STEAD_USAGE, "NULL", stead_ls(s, "tree", false, NULL, NULL, NULL, &e));
    FAILS(STEAD_USAGE, "NULL", stead_ls(NULL, "tree", false, note, &all, NULL, &e));
}

int main(void) {
    stead_stager *s = NULL;
    stead_transfer *t = NULL;
    stead_stage_request *r;
    char fast[4096 + 16] = "fast=", *json = NULL;
    const char *spaces[1];
    int64_t id;
    CHECK(getcwd(fast + 5, 4096) != NULL);
    strcat(fast, "/fast");
    spaces[0] = fast;
    CHECK(mkdir("fast", 0755) == 0);
    make_tree("tree");
    OK(stead_stager_open("state", spaces, 1, 2, &s, &e));
    lists(s);
    copies(s);
    leaves_names_out(s);
    stops(s);
    is_given_up(s);
    is_done_in_part(s);
    errors(s);
    shares_memory(s);
    /* Closing stops what is under way. */
    r = slow("closed");
    OK(stead_stage_submit(s, r, &t, &e));
    id = stead_stage_id(t);
    OK(stead_stager_close(s, &e));
    CHECK(stead_stage_test(t));
    FAILS(STEAD_CANCELLED, "stopped", stead_stage_wait(t, 0, &e));
    stead_stage_free(t);
    FAILS(STEAD_USAGE, "freed", stead_stage_submit(s, r, &t, &e));
    OK(stead_stager_open("state", spaces, 1, 2, &s, &e));
    OK(stead_stage_status(s, id, &json, &e));
    SAYS(json, "\"interrupted\"");
    stead_text_free(json);
    OK(stead_stager_close(s, &e));
    FAILS(STEAD_USAGE, "freed", stead_stager_close(s, &e));
    stead_stage_request_free(r);
    CHECK(stead_handles_alive() == 0);
    return ended("stage");
}
