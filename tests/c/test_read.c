/* Read sessions in C: files, options, bytes in every way to wait for them, odd and large files, and what is wrong. */
#define _GNU_SOURCE
#include "reading.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Ranks that cannot talk: functions that are not there are not called. */
static int mute_ranks(void *data, stead_fabric *fabric, char *why) {
    (void)why;
    memset(fabric, 0, sizeof *fabric);
    fabric->version = *(uint32_t *)data;
    fabric->size = 1;
    return 0;
}

static void files(void) {
    stead_file *file = NULL, *none = NULL;
    stead_session *s = NULL, *t = NULL;
    stead_read_counts counts;
    stead_read_options o = options();
    char *text = NULL;
    int asked = 0;
    OK(stead_file_open("data", NULL, &file, &e));
    CHECK(stead_file_size(file) == SIZE);
    SAYS(stead_file_path(file), "data");
    OK(stead_session_start(file, 1000, 500, &s, &e));
    CHECK(stead_session_offset(s) == 1000 && stead_session_length(s) == 500);
    OK(stead_session_start(file, SIZE, 0, &t, &e));
    CHECK(stead_session_length(t) == 0);
    OK(stead_session_close(t, &e));
    OK(stead_session_explain(s, &text, &e));
    SAYS(text, "readers: ");
    stead_text_free(text);
    OK(stead_session_explain_json(s, &text, &e));
    SAYS(text, "\"readers\": {");
    SAYS(text, "\"reason\": ");
    stead_text_free(text);
    OK(stead_file_counts(file, &counts, sizeof counts, &e));
    CHECK(counts.requests == 0 && counts.at_once == 0);
    FAILS(STEAD_USAGE, "past the end", stead_session_start(file, 10, SIZE, &t, &e));
    CHECK(t == NULL);
    FAILS(STEAD_USAGE, "past the end", stead_session_start(file, SIZE + 1, STEAD_TO_END, &t, &e));
    FAILS(STEAD_USAGE, "past the end", stead_session_start(file, UINT64_MAX - 1, 1, &t, &e));
    FAILS(STEAD_USAGE, "NULL", stead_session_start(NULL, 0, 1, &t, &e));
    FAILS(STEAD_USAGE, "NULL", stead_session_start(file, 0, 1, NULL, &e));
    OK(stead_session_close(s, &e));
    FAILS(STEAD_USAGE, "was freed", stead_session_close(s, &e));
    OK(stead_session_close(NULL, &e));
    OK(stead_file_close(file, &e));
    FAILS(STEAD_USAGE, "was freed", stead_file_close(file, &e));
    OK(stead_file_close(NULL, &e));
    CHECK(stead_file_size(file) == 0 && stead_file_path(file) == NULL && stead_session_length(s) == 0);

    FAILS(STEAD_NOT_FOUND, "no/such", stead_file_open("no/such", NULL, &none, &e));
    CHECK(none == NULL && access("no", F_OK) != 0);
    FAILS(STEAD_USAGE, "director", stead_file_open(".", NULL, &none, &e));
    FAILS(STEAD_PEER, "no ranks today", stead_file_open_ranks(no_ranks, &asked, "data", NULL, &none, &e));
    FAILS(STEAD_USAGE, "makes a fabric", stead_file_open_ranks(NULL, &asked, "data", NULL, &none, &e));
    CHECK(asked == 1 && none == NULL);
    uint32_t version = STEAD_FABRIC_VERSION;
    FAILS(STEAD_USAGE, "without the function", stead_file_open_ranks(mute_ranks, &version, "data", NULL, &none, &e));
    version++;
    FAILS(STEAD_USAGE, "version", stead_file_open_ranks(mute_ranks, &version, "data", NULL, &none, &e));
    CHECK(none == NULL);
    stead_report *report = (stead_report *)1;
    FAILS(STEAD_PEER, "no ranks today", stead_run_ranks(no_ranks, &asked, NULL, NULL, &report, &e));
    FAILS(STEAD_USAGE, "makes a fabric", stead_run_ranks(NULL, &asked, NULL, NULL, &report, &e));
    CHECK(asked == 2 && report == NULL);
    FAILS(STEAD_USAGE, "NULL", stead_file_open(NULL, NULL, &none, &e));
    o.flags = 1u << 31;
    FAILS(STEAD_USAGE, "flags", stead_file_open("data", &o, &none, &e));
    o.flags = STEAD_READ_URING | STEAD_READ_PREAD;
    FAILS(STEAD_USAGE, "both", stead_file_open("data", &o, &none, &e));
    o = options();
    o.readers = 2;
    o.block = 65536;
    o.depth = 3;
    o.memory = 1 << 20;
    o.flags = STEAD_READ_PREAD;
    s = whole("data", &o);
    OK(stead_session_explain(s, &text, &e));
    SAYS(text, "64");
    stead_text_free(text);
    OK(stead_session_close(s, &e));
}

/* Programs that were built with a later version, which had more members, and with none. */
static void versions(void) {
    struct {
        stead_read_options known;
        uint64_t later;
    } o = {0}, bad;
    struct {
        stead_read_counts known;
        uint64_t later, beyond;
    } counts;
    const size_t sizes[] = {0, 1, sizeof counts.known - 1, 5000, SIZE_MAX};
    stead_file *file = NULL;
    size_t i;
    memset(&counts, 7, sizeof counts);
    o.known.size = sizeof o;
    o.known.readers = 1;
    OK(stead_file_open("data", &o.known, &file, &e));
    OK(stead_file_counts(file, &counts.known, sizeof counts.known + sizeof counts.later, &e));
    CHECK(counts.known.requests == 0 && counts.later == 0 && counts.beyond == 0x0707070707070707);
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
        FAILS(STEAD_USAGE, "no size of stead_read_counts", stead_file_counts(file, &counts.known, sizes[i], &e));
    OK(stead_file_close(file, &e));
    bad = o;
    bad.later = 1;
    FAILS(STEAD_USAGE, "does not know", stead_file_open("data", &bad.known, &file, &e));
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bad.known.size = sizes[i];
        FAILS(STEAD_USAGE, "no size of stead_read_options", stead_file_open("data", &bad.known, &file, &e));
    }
}

/* Whether other processes have the same blocks. */
static void sharing(void) {
    const struct timespec times[2] = {{1700000000, 0}, {1700000000, 0}};
    stead_read_options o = options();
    stead_session *s;
    char *text = NULL;
    int shared;
    make("old", 100000);
    CHECK(utimensat(AT_FDCWD, "old", times, 0) == 0);
    for (shared = 1; shared >= 0; shared--) {
        o.flags = STEAD_READ_PREAD | (shared ? 0 : STEAD_READ_UNSHARED);
        s = whole("old", &o);
        OK(stead_session_explain(s, &text, &e));
        SAYS(text, shared ? "have blocks and memory together" : "shared: with no other process (as asked for)");
        stead_text_free(text);
        OK(stead_session_close(s, &e));
    }
}

static void reading(const stead_read_options *o) {
    stead_session *s = whole("data", o);
    stead_view v = {0}, w;
    stead_pending *p = NULL, *many[3];
    stead_range ranges[3] = {{0, 100}, {SIZE - 1, 1}, {1000000, 1500000}};
    static unsigned char buffer[SIZE];
    size_t i;
    OK(stead_read_view(s, 12345, 100000, &v, &e));
    CHECK(v.size == 100000 && same(v.data, 12345, v.size));
    OK(stead_view_check(&v, &e));
    CHECK(stead_view_place(&v) == (o ? STEAD_IN_BLOCK : STEAD_IN_CACHE));
    OK(stead_view_own(&v, &e));
    CHECK(same(v.data, 12345, v.size));
    w = v;
    stead_view_release(&v);
    CHECK(v.data == NULL && v.size == 0 && v.id == 0);
    stead_view_release(&v);
    FAILS(STEAD_USAGE, "was freed", stead_view_check(&w, &e));
    FAILS(STEAD_USAGE, "was freed", stead_view_own(&w, &e));
    CHECK(stead_view_place(&w) == 0 && stead_view_place(&v) == 0 && stead_view_place(NULL) == 0);
    OK(stead_view_own(&v, &e));
    stead_view_release(&w);
    stead_view_release(NULL);
    OK(stead_view_check(&v, &e));

    OK(stead_read_now(s, 0, buffer, SIZE, &e));
    CHECK(same(buffer, 0, SIZE));
    OK(stead_read_now(s, 5, NULL, 0, &e));
    FAILS(STEAD_USAGE, "NULL", stead_read_now(s, 5, NULL, 1, &e));
    FAILS(STEAD_USAGE, "within", stead_read_now(s, SIZE - 1, buffer, 2, &e));
    FAILS(STEAD_USAGE, "within", stead_read_view(s, UINT64_MAX, 2, &v, &e));
    CHECK(v.id == 0);
    FAILS(STEAD_USAGE, "fit no memory", stead_read_now(s, 0, buffer, SIZE_MAX, &e));

    OK(stead_read_begin(s, 777, 70000, &p, &e));
    CHECK(stead_pending_wait(p, -1) && stead_pending_wait(p, 0));
    OK(stead_pending_take(p, &v, &e));
    CHECK(v.size == 70000 && same(v.data, 777, v.size));
    stead_view_release(&v);
    FAILS(STEAD_USAGE, "was freed", stead_pending_take(p, &v, &e));
    CHECK(!stead_pending_wait(p, 0));
    stead_pending_free(p);
    stead_pending_free(NULL);

    memset(buffer, 0, sizeof buffer);
    OK(stead_read_into(s, 1000, buffer, 200000, &p, &e));
    OK(stead_pending_take(p, &v, &e));
    CHECK(v.data == buffer && v.size == 200000 && v.id == 0 && same(buffer, 1000, 200000));
    stead_view_release(&v);

    OK(stead_read_strided(s, 10, 3, 1000, 2000, &p, &e));
    OK(stead_pending_take(p, &v, &e));
    CHECK(v.size == 6000);
    for (i = 0; i < 2000; i++) CHECK(same((const unsigned char *)v.data + 3 * i, 10 + 1000 * i, 3));
    stead_view_release(&v);
    OK(stead_read_strided(s, 10, 30, 10, 5, &p, &e));
    FAILS(STEAD_USAGE, "overlap", stead_pending_take(p, &v, &e));

    OK(stead_read_many(s, ranges, 3, many, &e));
    for (i = 0; i < 3; i++) {
        OK(stead_pending_take(many[i], &v, &e));
        CHECK(v.size == ranges[i].length && same(v.data, ranges[i].offset, v.size));
        stead_view_release(&v);
    }
    OK(stead_read_many(s, NULL, 0, NULL, &e));
    FAILS(STEAD_USAGE, "NULL", stead_read_many(s, ranges, 1, NULL, &e));

    /* Given up in any state. */
    for (i = 0; i < 200; i++) {
        OK(stead_read_into(s, i * 10000, buffer, 50000, &p, &e));
        if (i % 2) stead_pending_wait(p, 0);
        stead_pending_free(p);
    }
    OK(stead_read_begin(s, SIZE, 1, &p, &e));
    stead_pending_free(p);
    OK(stead_session_close(s, &e));
    FAILS(STEAD_USAGE, "was freed", stead_read_begin(s, 0, 1, &p, &e));
    CHECK(p == NULL);
}

/* So much address space over a few pages, for bytes that nobody looks at but the last ones, which have pages of their own:
 * those of the others are written in any order. */
static unsigned char *large_buffer(size_t size) {
    const size_t piece = (size_t)8 << 20;
    int fd = memfd_create("pages", MFD_CLOEXEC);
    unsigned char *all = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t i;
    CHECK(fd >= 0 && all != MAP_FAILED && ftruncate(fd, (off_t)piece) == 0 && size % piece == 0);
    for (i = 0; i < size; i += piece)
        CHECK(mmap(all + i, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == all + i);
    all += size - piece;
    CHECK(mmap(all, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == all);
    all[piece - 2] = 1;
    close(fd);
    return all - (size - piece);
}

/* More than 2 GiB into a buffer, of a file system in memory, where holes take none. */
static void large_reads(void) {
    const uint64_t large = (uint64_t)5 << 30;
    const size_t size = sizeof(size_t) > 4 ? (size_t)9 << 28 : (size_t)1 << 28;
    stead_read_options o = options();
    stead_session *s;
    unsigned char *buffer = large_buffer(size);
    char name[64];
    int fd;
    snprintf(name, sizeof name, "/dev/shm/stead-test-%ld", (long)getpid());
    fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)large) == 0 && pwrite(fd, "x", 1, (off_t)large - 1) == 1);
    close(fd);
    o.flags = STEAD_READ_PREAD | STEAD_READ_ON_DEMAND;
    s = whole(name, &o);
    unlink(name);
    OK(stead_read_now(s, large - size, buffer, size, &e));
    CHECK(buffer[size - 2] == 0 && buffer[size - 1] == 'x');
    munmap(buffer, size);
    OK(stead_session_close(s, &e));
}

static void odd_files(void) {
    const uint64_t large = (uint64_t)5 << 30;
    stead_file *file = NULL;
    stead_session *s = NULL;
    stead_view v;
    stead_pending *p = NULL;
    unsigned char four[4] = {1, 1, 1, 1};
    stead_read_options on_demand = options();
    const unsigned char *bytes;
    int fd;
    make("\xff\xfe", 1);
    OK(stead_session_close(whole("\xff\xfe", NULL), &e));
    make("empty", 0);
    s = whole("empty", NULL);
    CHECK(stead_session_length(s) == 0);
    OK(stead_read_view(s, 0, 0, &v, &e));
    CHECK(v.size == 0);
    stead_view_release(&v);
    FAILS(STEAD_USAGE, "within", stead_read_view(s, 0, 1, &v, &e));
    OK(stead_session_close(s, &e));

    /* Holes are read as zeros, more than 2 GiB of them at once. */
    fd = open("sparse", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)large) == 0 && pwrite(fd, "x", 1, (off_t)large - 1) == 1);
    close(fd);
    on_demand.flags = STEAD_READ_ON_DEMAND;
    s = whole("sparse", &on_demand);
    OK(stead_read_now(s, large - 4, four, 4, &e));
    CHECK(four[0] == 0 && four[3] == 'x');
    if (sizeof(size_t) > 4) {
        OK(stead_read_begin(s, large - ((uint64_t)9 << 28), (size_t)9 << 28, &p, &e));
        OK(stead_pending_take(p, &v, &e));
        CHECK(v.size == (size_t)9 << 28);
        bytes = v.data;
        CHECK(bytes[0] == 0 && bytes[v.size - 2] == 0 && bytes[v.size - 1] == 'x');
        stead_view_release(&v);
    }
    OK(stead_session_close(s, &e));
    unlink("sparse");

    /* A file that becomes shorter. */
    make("shorter", SIZE);
    OK(stead_file_open("shorter", NULL, &file, &e));
    OK(stead_session_start(file, 0, STEAD_TO_END, &s, &e));
    CHECK(truncate("shorter", 1000) == 0);
    FAILS(STEAD_CHANGED, "shorter", stead_read_now(s, SIZE - 4, four, 4, &e));
    FAILS(STEAD_CHANGED, "shorter", stead_session_close(s, &e));
    FAILS(STEAD_USAGE, "was freed", stead_session_close(s, &e));
    OK(stead_file_close(file, &e));
}

int main(void) {
    const stead_read_options memory = few_blocks();
    make("data", SIZE);
    files();
    versions();
    sharing();
    reading(NULL);
    reading(&memory);
    odd_files();
    large_reads();
    CHECK(stead_handles_alive() == 0);
    return ended("read");
}
