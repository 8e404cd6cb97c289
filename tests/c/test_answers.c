/* Answers of read sessions in C: functions, queues, threads, deadlines, and waiting where nobody may wait. */
#define _GNU_SOURCE
#include "reading.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <utime.h>

/* Answers that came to a function. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const stead_session *session;
    int good, bad, other, depth, deepest;
    uint64_t next;
} answers;

static void init(answers *a, const stead_session *s) {
    memset(a, 0, sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    a->session = s;
}

static void tell(answers *a, int *which) {
    pthread_mutex_lock(&a->lock);
    (*which)++;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void until(answers *a, int n) {
    pthread_mutex_lock(&a->lock);
    while (a->good + a->bad + a->other < n) pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

/* The whole first bytes of the file. */
static void done(stead_view view, stead_error *error, void *user) {
    answers *a = user;
    if (error) {
        int kind = stead_error_kind(error);
        stead_error_free(error);
        tell(a, kind == STEAD_USAGE ? &a->bad : &a->other);
    } else {
        int right = view.size == 1000 && same(view.data, 4000, 1000);
        stead_view_release(&view);
        tell(a, right ? &a->good : &a->other);
    }
}

/* Asks for the next bytes from within. */
static void chain(stead_view view, stead_error *error, void *user) {
    answers *a = user;
    uint64_t next = ++a->next;
    a->depth++;
    if (a->depth > a->deepest) a->deepest = a->depth;
    stead_error_free(error);
    stead_view_release(&view);
    if (next < 20000) stead_read(a->session, next, 1, chain, a, NULL);
    a->depth--;
    tell(a, &a->good);
}

static void never(stead_view view, stead_error *error, void *user) {
    stead_view_release(&view);
    stead_error_free(error);
    ++*(int *)user;
}

static void callbacks(const stead_read_options *o) {
    stead_session *s = whole("data", o);
    stead_pending *p = NULL;
    stead_view v;
    answers a;
    int i, called = 0;
    init(&a, s);
    for (i = 0; i < 100; i++) OK(stead_read(s, 4000, 1000, done, &a, &e));
    OK(stead_read(s, SIZE - 5, 10, done, &a, &e));
    until(&a, 101);
    CHECK(a.good == 100 && a.bad == 1 && a.other == 0);
    FAILS(STEAD_USAGE, "NULL", stead_read(s, 0, 1, NULL, &a, &e));
    FAILS(STEAD_USAGE, "NULL", stead_read(NULL, 0, 1, done, &a, &e));

    OK(stead_read_begin(s, 4000, 1000, &p, &e));
    OK(stead_pending_then(p, done, &a, &e));
    until(&a, 102);
    FAILS(STEAD_USAGE, "goes to", stead_pending_then(p, done, &a, &e));
    FAILS(STEAD_USAGE, "goes to", stead_pending_take(p, &v, &e));
    stead_pending_free(p);
    CHECK(a.good == 101);
    FAILS(STEAD_USAGE, "NULL", stead_pending_then(NULL, done, &a, &e));

    /* Who frees a read is not called afterwards. */
    for (i = 0; i < 500; i++) {
        int before;
        OK(stead_read_begin(s, (uint64_t)i * 5000, 3000, &p, &e));
        OK(stead_pending_then(p, never, &called, &e));
        stead_pending_free(p);
        before = called;
        if (i % 100 == 0) poll(NULL, 0, 2);
        CHECK(called == before);
    }

    /* Reading on from within does not fill the stack. */
    init(&a, s);
    OK(stead_read(s, 0, 1, chain, &a, &e));
    until(&a, 20000);
    CHECK(a.deepest == 1);
    OK(stead_session_close(s, &e));
}

static void *tasks(void *user) {
    answers *a = user;
    unsigned seed = (unsigned)(uintptr_t)pthread_self();
    int i;
    for (i = 0; i < 500; i++) {
        uint64_t offset = (uint64_t)rand_r(&seed) % SIZE;
        size_t n = (size_t)rand_r(&seed) % 100000;
        stead_pending *p = NULL;
        stead_view v = {0};
        if (n > SIZE - offset) n = (size_t)(SIZE - offset);
        if (i % 3 == 0) {
            stead_read(a->session, 4000, 1000, done, a, NULL);
            continue;
        }
        if (stead_read_begin(a->session, offset, n, &p, NULL)) continue;
        if (i % 3 == 1 && i % 2) {
            stead_pending_free(p);
        } else if (stead_pending_take(p, &v, NULL) || v.size != n || !same(v.data, offset, n)) {
            tell(a, &a->other);
        }
        stead_view_release(&v);
    }
    return NULL;
}

static void threads(const stead_read_options *o) {
    stead_session *s = whole("data", o);
    pthread_t all[8];
    answers a;
    int i;
    init(&a, s);
    for (i = 0; i < 8; i++) CHECK(pthread_create(&all[i], NULL, tasks, &a) == 0);
    for (i = 0; i < 8; i++) pthread_join(all[i], NULL);
    until(&a, 8 * 167);
    CHECK(a.good == 8 * 167 && a.other == 0);
    OK(stead_session_close(s, &e));
}

/* A read that nobody answers until another thread gives it up. */
static void *giving_up(void *user) {
    poll(NULL, 0, 20);
    stead_pending_free(user);
    return NULL;
}

/* Keeps the kind of what went wrong. */
static void late(stead_view view, stead_error *error, void *user) {
    const int kind = error ? (int)stead_error_kind(error) : -1;
    stead_error_free(error);
    stead_view_release(&view);
    __atomic_store_n((int *)user, kind, __ATOMIC_RELEASE);
}

/* Views hold all the memory, so that another block cannot come. */
static void starving(void) {
    stead_read_options o = options();
    stead_session *s, *soon = NULL, *again = NULL;
    stead_view v[8], last;
    stead_pending *p = NULL, *many[2] = {NULL, NULL};
    const stead_range ranges[2] = {{40 * 65536, 10}, {41 * 65536, 10}};
    stead_queue *q = NULL;
    stead_completion c;
    pthread_t thread;
    char few[10];
    int i, held = 0, told = 0, tries;
    o.block = 65536;
    o.memory = 4 * 65536;
    o.flags = STEAD_READ_PREAD | STEAD_READ_ON_DEMAND;
    s = whole("data", &o);
    for (i = 0; i < 4; i++) {
        OK(stead_read_view(s, (uint64_t)i * 65536, 65536, &v[held++], &e));
    }
    /* Given up while this thread waits for it, or before this thread has come so far: then it is tried again. */
    for (tries = 0; tries < 1000; tries++) {
        stead_status status;
        OK(stead_read_begin(s, 40 * 65536, 10, &p, &e));
        CHECK(!stead_pending_wait(p, 10));
        CHECK(pthread_create(&thread, NULL, giving_up, p) == 0);
        status = stead_pending_take(p, &last, &e);
        pthread_join(thread, NULL);
        if (status == STEAD_CANCELLED) break;
        FAILS(STEAD_USAGE, "was freed", status);
    }
    FAILS(STEAD_CANCELLED, "cancelled", tries < 1000 ? STEAD_CANCELLED : STEAD_OK);

    OK(stead_session_within(s, 30, &soon, &e));
    OK(stead_read_begin(soon, 40 * 65536, 10, &p, &e));
    FAILS(STEAD_TIMEOUT, "in time", stead_pending_take(p, &last, &e));
    FAILS(STEAD_TIMEOUT, "in time", stead_read_view(soon, 40 * 65536, 10, &last, &e));
    FAILS(STEAD_TIMEOUT, "in time", stead_read_now(soon, 40 * 65536, few, 10, &e));
    OK(stead_read_into(soon, 40 * 65536, few, 10, &p, &e));
    FAILS(STEAD_TIMEOUT, "in time", stead_pending_take(p, &last, &e));
    OK(stead_read_strided(soon, 40 * 65536, 2, 10, 3, &p, &e));
    FAILS(STEAD_TIMEOUT, "in time", stead_pending_take(p, &last, &e));
    OK(stead_read_many(soon, ranges, 2, many, &e));
    for (i = 0; i < 2; i++) FAILS(STEAD_TIMEOUT, "in time", stead_pending_take(many[i], &last, &e));
    OK(stead_read(soon, 40 * 65536, 10, late, &told, &e));
    OK(stead_queue_new(&q, &e));
    OK(stead_queue_read(q, soon, 40 * 65536, 10, NULL, &e));
    CHECK(stead_queue_next(q, -1, &c) && stead_error_kind(c.error) == STEAD_TIMEOUT);
    stead_error_free(c.error);
    stead_queue_free(q);
    while (!__atomic_load_n(&told, __ATOMIC_ACQUIRE)) usleep(1000);
    CHECK(told == STEAD_TIMEOUT);
    /* Zero is the deadline of the options, which is far away. */
    OK(stead_session_within(soon, 0, &again, &e));
    OK(stead_session_close(soon, &e));
    FAILS(STEAD_USAGE, "session", stead_session_within(soon, 5, &soon, &e));
    CHECK(soon == NULL && stead_session_length(again) == SIZE);
    OK(stead_read_begin(again, 40 * 65536, 10, &p, &e));
    CHECK(!stead_pending_wait(p, 60));
    stead_pending_free(p);
    OK(stead_session_close(again, &e));

    OK(stead_queue_new(&q, &e));
    OK(stead_queue_read(q, s, 41 * 65536, 10, NULL, &e));
    CHECK(!stead_queue_next(q, 10, &c) && stead_queue_length(q) == 1);
    OK(stead_read_begin(s, 42 * 65536, 10, &p, &e));
    OK(stead_pending_queue(p, q, &held, &e));
    CHECK(stead_queue_length(q) == 2);
    stead_pending_free(p);
    CHECK(stead_queue_length(q) == 1);
    /* A copy of one makes room; the others stay. */
    CHECK(stead_view_place(&v[0]) == STEAD_IN_BLOCK);
    OK(stead_view_own(&v[0], &e));
    CHECK(stead_view_place(&v[0]) == STEAD_IN_MEMORY && same(v[0].data, 0, v[0].size));
    CHECK(stead_queue_next(q, -1, &c) && c.error == NULL && c.offset == 41 * 65536);
    CHECK(same(c.view.data, c.offset, 10));
    stead_view_release(&c.view);
    CHECK(!stead_queue_next(q, -1, &c));
    for (i = 0; i < held; i++) stead_view_release(&v[i]);
    stead_queue_free(q);
    OK(stead_session_close(s, &e));
}

static void queues(const stead_read_options *o) {
    stead_session *s = whole("data", o);
    stead_queue *q = NULL;
    stead_pending *p = NULL;
    stead_completion c;
    struct pollfd watched;
    int i, seen = 0, wrong = 0, marks[300];
    OK(stead_queue_new(&q, &e));
    watched.fd = stead_queue_fd(q);
    watched.events = POLLIN;
    CHECK(watched.fd >= 0 && poll(&watched, 1, 0) == 0 && (fcntl(watched.fd, F_GETFD) & FD_CLOEXEC));
    CHECK(!stead_queue_next(q, -1, &c) && stead_queue_length(q) == 0);
    for (i = 0; i < 300; i++) {
        marks[i] = 0;
        OK(stead_queue_read(q, s, (uint64_t)i * 9000, 9000, &marks[i], &e));
    }
    OK(stead_queue_read(q, s, SIZE, 1, NULL, &e));
    CHECK(stead_queue_length(q) == 301);
    /* As an event loop does it. */
    while (stead_queue_length(q) > 0) {
        CHECK(poll(&watched, 1, 60000) == 1);
        while (stead_queue_next(q, 0, &c)) {
            seen++;
            if (c.error) {
                wrong++;
                CHECK(c.user == NULL && c.offset == SIZE && stead_error_kind(c.error) == STEAD_USAGE);
                stead_error_free(c.error);
                continue;
            }
            ++*(int *)c.user;
            CHECK(c.offset == (uint64_t)((int *)c.user - marks) * 9000 && same(c.view.data, c.offset, c.view.size));
            stead_view_release(&c.view);
        }
    }
    CHECK(seen == 301 && wrong == 1 && poll(&watched, 1, 0) == 0);
    for (i = 0; i < 300; i++) CHECK(marks[i] == 1);

    OK(stead_read_strided(s, 0, 1, 2, 100, &p, &e));
    OK(stead_pending_queue(p, q, p, &e));
    FAILS(STEAD_USAGE, "goes to", stead_pending_queue(p, q, p, &e));
    CHECK(stead_queue_next(q, -1, &c) && c.user == p && c.view.size == 100);
    stead_view_release(&c.view);
    stead_pending_free(p);

    FAILS(STEAD_USAGE, "NULL", stead_queue_read(NULL, s, 0, 1, NULL, &e));
    FAILS(STEAD_USAGE, "NULL", stead_queue_read(q, NULL, 0, 1, NULL, &e));
    CHECK(!stead_queue_next(q, 0, NULL) && stead_queue_length(q) == 0);
    /* What nobody takes goes with the queue. */
    for (i = 0; i < 50; i++) OK(stead_queue_read(q, s, (uint64_t)i * 50000, 50000, NULL, &e));
    stead_queue_free(q);
    stead_queue_free(q);
    stead_queue_free(NULL);
    CHECK(stead_queue_fd(q) == -1 && stead_queue_length(q) == 0 && !stead_queue_next(q, -1, &c));
    OK(stead_session_close(s, &e));
}

/* What becomes of waiting in a function that is called with an answer. */
typedef struct {
    answers told;
    pthread_t main;
    stead_session *session;
    stead_queue *queue;
    uint64_t far;
    int elsewhere, refused, said;
} within;

static void waits(stead_view view, stead_error *error, void *user) {
    within *w = user;
    stead_pending *p = NULL;
    stead_completion c;
    stead_view v = {0};
    unsigned char four[4];
    stead_error_free(error);
    stead_view_release(&view);
    /* Where the bytes were there already, this is the thread that asked, which may wait. */
    if (!pthread_equal(pthread_self(), w->main)) {
        w->elsewhere = 1;
        stead_read_begin(w->session, w->far, 300000, &p, NULL);
        w->refused += !stead_pending_wait(p, -1);
        w->said = strstr(stead_last_message(), "waited for a read in a function") != NULL;
        w->refused += !stead_pending_wait(p, 1000);
        w->refused += stead_pending_take(p, &v, NULL) == STEAD_USAGE;
        w->refused += stead_read_view(w->session, w->far, 300000, &v, NULL) == STEAD_USAGE;
        w->refused += stead_read_now(w->session, w->far, four, 4, NULL) == STEAD_USAGE;
        stead_queue_read(w->queue, w->session, w->far, 300000, NULL, NULL);
        w->refused += !stead_queue_next(w->queue, -1, &c);
        w->refused += !stead_queue_next(w->queue, 1000, &c);
    }
    tell(&w->told, &w->told.good);
}

static void waiting_within(void) {
    stead_read_options o = options();
    stead_completion c;
    within w;
    int tries;
    memset(&w, 0, sizeof w);
    w.main = pthread_self();
    o.readers = 1;
    o.block = 65536;
    o.memory = 1 << 20;
    o.deadline_ms = 60000;
    o.flags = STEAD_READ_PREAD | STEAD_READ_ON_DEMAND;
    for (tries = 0; tries < 1000 && !w.elsewhere; tries++) {
        /* Another file each time: blocks of one that was closed stay for a while, and nobody waits for what is there. */
        const struct utimbuf times = {tries + 1, tries + 1};
        CHECK(!utime("data", &times));
        w.session = whole("data", &o);
        init(&w.told, w.session);
        OK(stead_queue_new(&w.queue, &e));
        w.far = SIZE - 400000;
        OK(stead_read(w.session, 0, 600000, waits, &w, &e));
        until(&w.told, 1);
        while (stead_queue_next(w.queue, -1, &c)) {
            CHECK(c.error == NULL && same(c.view.data, c.offset, c.view.size));
            stead_view_release(&c.view);
            stead_error_free(c.error);
        }
        stead_queue_free(w.queue);
        OK(stead_session_close(w.session, &e));
    }
    CHECK(w.elsewhere && w.refused == 7 && w.said);
}

/* Answers that nobody takes out of a queue are within the budget. */
static void untaken(void) {
    enum { BLOCK = 65536, BLOCKS = 4, READS = 40 };
    stead_read_options o = options();
    stead_session *s;
    stead_queue *q = NULL;
    stead_view views[READS];
    stead_completion c;
    struct pollfd watched;
    int i, held, seen;
    o.block = BLOCK;
    o.memory = BLOCKS * BLOCK;
    o.readers = 1;
    o.flags = STEAD_READ_PREAD | STEAD_READ_ON_DEMAND;
    s = whole("data", &o);
    OK(stead_queue_new(&q, &e));
    for (i = 0; i < READS; i++) OK(stead_queue_read(q, s, (uint64_t)i * BLOCK, 60000, NULL, &e));
    poll(NULL, 0, 2600);
    for (held = 0; held < READS && stead_queue_next(q, 0, &c); held++) {
        CHECK(c.error == NULL && same(c.view.data, c.offset, 60000));
        views[held] = c.view;
    }
    /* The blocks, and one read that was waited for as long as there was nothing to take. */
    CHECK(held <= BLOCKS + 1);
    for (seen = 0; seen < held; seen++) stead_view_release(&views[seen]);
    while (stead_queue_next(q, -1, &c)) {
        CHECK(c.error == NULL && same(c.view.data, c.offset, 60000));
        stead_view_release(&c.view);
        seen++;
    }
    CHECK(seen == READS);
    /* An event loop that only looks at the descriptor gets what is larger than it should be. */
    watched.fd = stead_queue_fd(q);
    watched.events = POLLIN;
    for (i = 0; i < 3; i++) OK(stead_queue_read(q, s, (uint64_t)i * 500000 + 1, 200000, NULL, &e));
    for (seen = 0; seen < 3; seen++) {
        CHECK(poll(&watched, 1, 60000) == 1 && stead_queue_next(q, 0, &c));
        CHECK(c.error == NULL && same(c.view.data, c.offset, 200000));
        stead_view_release(&c.view);
    }
    CHECK(!stead_queue_next(q, 0, &c) && stead_queue_length(q) == 0);
    stead_queue_free(q);
    OK(stead_session_close(s, &e));
}

int main(void) {
    const stead_read_options memory = few_blocks();
    make("data", SIZE);
    callbacks(NULL);
    callbacks(&memory);
    threads(NULL);
    threads(&memory);
    queues(NULL);
    queues(&memory);
    starving();
    waiting_within();
    untaken();
    CHECK(stead_handles_alive() == 0);
    return ended("answers");
}
