/* What the tests in C share: checks that go on after a failure and are counted. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stead.h>
#include <string.h>

static int failures = 0, checks = 0;

#define CHECK(condition) \
    do { \
        checks++; \
        if (!(condition)) { \
            failures++; \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
        } \
    } while (0)

#define SAYS(text, part) CHECK((text) != NULL && strstr((text), (part)) != NULL)

/* A call that must succeed. `e` is in scope. */
#define OK(call) \
    do { \
        stead_status s_ = (call); \
        checks++; \
        if (s_ != STEAD_OK) { \
            failures++; \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, stead_last_message()); \
        } \
    } while (0)

/* A call that must fail with a kind and say something. `e` is in scope, and is freed. */
#define FAILS(kind, part, call) \
    do { \
        stead_status s_ = (call); \
        CHECK(s_ == (kind)); \
        CHECK(stead_error_kind(e) == (kind)); \
        SAYS(stead_error_message(e), part); \
        SAYS(stead_last_message(), part); \
        stead_error_free(e); \
        e = NULL; \
    } while (0)

/* Ranks that are not there. */
static inline int no_ranks(void *data, stead_fabric *fabric, char *why) {
    (void)fabric;
    strcpy(why, "no ranks today");
    ++*(int *)data;
    return STEAD_PEER;
}

static int ended(const char *name) {
    printf("%s: %d checks, %d failed\n", name, checks, failures);
    return failures != 0;
}

#endif
