/* What the tests of read sessions in C share: a file whose bytes follow from their places, and sessions over it. */
#ifndef READING_H
#define READING_H

#include "check.h"

#include <stdint.h>

enum { SIZE = 3000000 };

static stead_error *e = NULL;

/* The bytes of the test's file, any beginning of which is another one. */
static unsigned char contents[SIZE];

/* Whether bytes are those of a place of it. */
static int same(const void *bytes, uint64_t offset, size_t n) {
    return offset <= SIZE && n <= SIZE - offset && memcmp(bytes, contents + offset, n) == 0;
}

static void make(const char *path, size_t size) {
    FILE *f = fopen(path, "wb");
    uint64_t i;
    for (i = 0; i < SIZE; i++) contents[i] = (unsigned char)((i * 2654435761u) >> 13);
    CHECK(f && fwrite(contents, 1, size, f) == size && fclose(f) == 0);
}

static stead_read_options options(void) {
    stead_read_options o = {0};
    o.size = sizeof o;
    return o;
}

static stead_session *whole(const char *path, const stead_read_options *o) {
    stead_file *file = NULL;
    stead_session *session = NULL;
    OK(stead_file_open(path, o, &file, &e));
    OK(stead_session_start(file, 0, STEAD_TO_END, &session, &e));
    /* The session goes on without the file's handle. */
    OK(stead_file_close(file, &e));
    return session;
}

/* Blocks in memory, and few of them. */
static stead_read_options few_blocks(void) {
    stead_read_options o = options();
    o.block = 128 << 10;
    o.memory = 1 << 20;
    o.flags = STEAD_READ_PREAD;
    return o;
}

#endif
