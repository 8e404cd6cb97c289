/* Requests, runs, reports, values, progress and cancellation, and all that can be done wrong with them. */

#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

enum { ROWS = 200000 };

static double *numbers;
static stead_dataset *data;

/* Two columns: 0, 1, 2, ... and the same modulo 5. */
static void make_data(void) {
    static const uint64_t shape[] = {ROWS, 2};
    stead_error *e = NULL;
    size_t i;
    numbers = malloc(ROWS * 2 * sizeof *numbers);
    if (!numbers) abort();
    for (i = 0; i < ROWS; i++) {
        numbers[2 * i] = (double)i;
        numbers[2 * i + 1] = (double)(i % 5);
    }
    OK(stead_open_array("data", numbers, STEAD_F64, 2, shape, STEAD_ORDER_C, NULL, NULL, &data, &e));
}

static stead_request *asking(const char *spec) {
    stead_error *e = NULL;
    stead_request *q = NULL;
    OK(stead_request_new(&q, &e));
    if (spec) OK(stead_request_kernel(q, spec, &e));
    OK(stead_request_extent(q, 1 << 16, &e));
    return q;
}

static void requests(void) {
    stead_error *e = NULL;
    stead_report *r = NULL;
    stead_request *q = asking(NULL);
    stead_metrics m;
    FAILS(STEAD_USAGE, "no kernel", stead_run(data, q, &r, &e));
    OK(stead_request_kernel(q, "rows", &e));
    OK(stead_request_kernel(q, "mean:0", &e));
    OK(stead_request_where(q, "`1` = 2", &e));
    OK(stead_request_threads(q, 2, &e));
    OK(stead_request_memory(q, 64 << 20, &e));
    OK(stead_request_set(q, "queue-depth", "2", &e));
    OK(stead_request_set(q, "engine", "pread", &e));
    OK(stead_request_output(q, "picture.svg", &e));
    OK(stead_run(data, q, &r, &e));
    CHECK(stead_report_count(r) == 2);
    OK(stead_report_metrics(r, &m, sizeof m, &e));
    CHECK(m.rows == ROWS && m.rows_kept == ROWS / 5 && m.rows_counted && m.seconds > 0);
    SAYS(stead_report_plan(r), "\"threads\": 2");
    SAYS(stead_report_metrics_json(r), "\"rows_kept\": 40000");
    SAYS(stead_report_json(r), "\"mean:0\": ");
    CHECK(stead_report_json(r) == stead_report_json(r));
    FAILS(STEAD_USAGE, "", stead_report_plot(r, "picture.svg", &e));
    stead_report_free(r);

    FAILS(STEAD_USAGE, "no option", stead_request_set(q, "speed", "high", &e));
    FAILS(STEAD_USAGE, "engine", stead_request_set(q, "engine", "steam", &e));
    FAILS(STEAD_USAGE, "NULL", stead_request_kernel(q, NULL, &e));
    FAILS(STEAD_USAGE, "NULL", stead_request_kernel(NULL, "rows", &e));
    FAILS(STEAD_USAGE, "NULL", stead_request_output(q, NULL, &e));
    OK(stead_request_where(q, "nope > 1", &e));
    FAILS(STEAD_USAGE, "nope", stead_run(data, q, &r, &e));
    OK(stead_request_where(q, NULL, &e));
    OK(stead_request_by(q, "nope", &e));
    FAILS(STEAD_USAGE, "nope", stead_run(data, q, &r, &e));
    OK(stead_request_by(q, NULL, &e));
    OK(stead_run(data, q, &r, &e));
    stead_report_free(r);
    OK(stead_request_kernel(q, "meen:0", &e));
    FAILS(STEAD_USAGE, "meen", stead_run(data, q, &r, &e));
    FAILS(STEAD_USAGE, "NULL", stead_run(NULL, q, &r, &e));
    FAILS(STEAD_USAGE, "NULL", stead_run(data, NULL, &r, &e));
    FAILS(STEAD_USAGE, "NULL", stead_run(data, q, NULL, &e));
    FAILS(STEAD_USAGE, "this handle is a request", stead_run((stead_dataset *)q, q, &r, &e));
    FAILS(STEAD_USAGE, "NULL", stead_request_new(NULL, &e));
    stead_request_free(q);
    FAILS(STEAD_USAGE, "request was freed", stead_run(data, q, &r, &e));
    FAILS(STEAD_USAGE, "request was freed", stead_request_threads(q, 1, &e));
    FAILS(STEAD_USAGE, "request was freed", stead_request_memory(q, 1, &e));
    FAILS(STEAD_USAGE, "request was freed", stead_request_lenient(q, true, &e));
    FAILS(STEAD_USAGE, "request was freed", stead_request_cancel(q, NULL, &e));
    FAILS(STEAD_USAGE, "request was freed", stead_request_progress(q, NULL, NULL, &e));
    stead_request_free(q);
    stead_request_free(NULL);
}

static void values(void) {
    stead_error *e = NULL;
    stead_report *r = NULL;
    stead_request *q = asking("rows");
    stead_value v, w, none = {0, 0};
    size_t shape[4] = {0}, n = 0;
    double g[8] = {0}, x = 0;
    uint64_t i = 0;
    bool b = false;
    char *json = NULL;
    OK(stead_request_kernel(q, "gram:0,1", &e));
    OK(stead_request_kernel(q, "mean:0", &e));
    OK(stead_request_kernel(q, "hist:1,bins=5,min=0,max=5", &e));
    OK(stead_run(data, q, &r, &e));
    stead_request_free(q);
    CHECK(stead_report_count(r) == 4);
    CHECK(strcmp(stead_report_name(r, 1), "gram:0,1") == 0);
    CHECK(stead_report_name(r, 4) == NULL);
    OK(stead_report_result_at(r, 0, &v, &e));
    CHECK(stead_value_type(v) == STEAD_INT);
    OK(stead_value_int(v, &i, &e));
    OK(stead_value_double(v, &x, &e));
    CHECK(i == ROWS && x == ROWS && stead_value_length(v) == 0);
    FAILS(STEAD_USAGE, "a count, not a bool", stead_value_bool(v, &b, &e));
    FAILS(STEAD_USAGE, "no members", stead_value_at(v, 0, &w, &e));
    FAILS(STEAD_USAGE, "not a map", stead_value_get(v, "x", &w, &e));
    FAILS(STEAD_USAGE, "list of numbers", stead_value_doubles(v, g, 8, &n, &e));
    CHECK(stead_value_text(v, NULL) == NULL && stead_value_key(v, 0) == NULL && stead_value_shape(v, NULL, 0) == 0);
    OK(stead_report_result(r, "mean:0", &v, &e));
    CHECK(stead_value_type(v) == STEAD_DOUBLE);
    FAILS(STEAD_USAGE, "a number, not a count", stead_value_int(v, &i, &e));
    OK(stead_report_double(r, "mean:0", &x, &e));
    CHECK(x == (ROWS - 1) / 2.0);
    FAILS(STEAD_USAGE, "no result 'mean:9'", stead_report_result(r, "mean:9", &v, &e));
    FAILS(STEAD_USAGE, "no result", stead_report_result_at(r, 4, &v, &e));
    FAILS(STEAD_USAGE, "no number", stead_report_double(r, "gram:0,1", &x, &e));
    FAILS(STEAD_USAGE, "no result", stead_report_double(r, "nope", &x, &e));
    FAILS(STEAD_USAGE, "NULL", stead_report_result(r, NULL, &v, &e));
    FAILS(STEAD_USAGE, "NULL", stead_report_result(r, "rows", NULL, &e));

    OK(stead_report_result(r, "gram:0,1", &v, &e));
    CHECK(stead_value_type(v) == STEAD_MAP && stead_value_length(v) > 0);
    for (i = 0; i < stead_value_length(v); i++) {
        CHECK(stead_value_key(v, i) != NULL);
        OK(stead_value_at(v, i, &w, &e));
        if (stead_value_shape(w, shape, 4) == 2) {
            CHECK(shape[0] == 2 && shape[1] == 2);
            FAILS(STEAD_USAGE, "room for 3", stead_value_doubles(w, g, 3, &n, &e));
            CHECK(n == 4 && g[0] == 0);
            OK(stead_value_doubles(w, g, 8, &n, &e));
            CHECK(n == 4 && g[1] == g[2] && g[0] > g[3] && g[3] == ROWS / 5 * 30.0);
            FAILS(STEAD_USAGE, "NULL", stead_value_doubles(w, NULL, 8, &n, &e));
        }
    }
    CHECK(g[3] != 0);
    CHECK(stead_value_key(v, 99) == NULL);
    FAILS(STEAD_USAGE, "no member 'nope'", stead_value_get(v, "nope", &w, &e));
    FAILS(STEAD_USAGE, "no member 99", stead_value_at(v, 99, &w, &e));
    OK(stead_value_json(v, &json, &e));
    CHECK(json && json[0] == '{');
    stead_text_free(json);
    OK(stead_report_result(r, "hist:1,bins=5,min=0,max=5", &v, &e));
    OK(stead_value_get(v, "counts", &w, &e));
    CHECK(stead_value_shape(w, shape, 4) == 1 && shape[0] == 5);
    OK(stead_value_doubles(w, g, 5, NULL, &e));
    CHECK(g[0] == ROWS / 5);
    OK(stead_report_plot(r, "hist.svg", &e));

    /* Values that are none. */
    CHECK(stead_value_type(none) == STEAD_INVALID && stead_value_length(none) == 0);
    FAILS(STEAD_USAGE, "NULL", stead_value_double(none, &x, &e));
    w.node = 1u << 30;
    CHECK(stead_value_type(w) == STEAD_INVALID);
    stead_report_free(r);
    CHECK(stead_value_type(v) == STEAD_INVALID);
    FAILS(STEAD_USAGE, "the report was freed", stead_value_json(v, &json, &e));
    CHECK(json == NULL);
    CHECK(stead_report_json(r) == NULL && stead_report_count(r) == 0 && stead_report_plan(r) == NULL);
    stead_report_free(r);
    stead_report_free(NULL);
}

/* Groups, text, null, and what JSON has no number for. */
static void groups(void) {
    static const char text[] = "k,x\nb,1\na,nan\nb,3\nc,inf\n";
    stead_error *e = NULL;
    stead_dataset *d = NULL;
    stead_report *r = NULL;
    stead_request *q = asking("mean:x");
    stead_value v, w;
    double x = 0;
    OK(stead_open_bytes("k.csv", text, sizeof text - 1, NULL, NULL, NULL, &d, &e));
    OK(stead_request_by(q, "k", &e));
    OK(stead_run(d, q, &r, &e));
    OK(stead_report_result(r, "mean:x", &v, &e));
    CHECK(stead_value_type(v) == STEAD_MAP && stead_value_length(v) == 3);
    CHECK(strcmp(stead_value_key(v, 0), "a") == 0);
    OK(stead_value_at(v, 0, &w, &e));
    CHECK(stead_value_type(w) == STEAD_NULL);
    FAILS(STEAD_USAGE, "null, not a number", stead_value_double(w, &x, &e));
    OK(stead_value_get(v, "c", &w, &e));
    OK(stead_value_double(w, &x, &e));
    CHECK(isinf(x));
    SAYS(stead_report_json(r), "\"c\": \"Infinity\"");
    stead_report_free(r);
    stead_request_free(q);
    stead_dataset_free(d);
}

static int seen;
static uint64_t last_bytes;

static int watch(const stead_progress *p, void *user) {
    int *stop = user;
    seen++;
    CHECK(p->pass >= 1 && p->bytes <= p->total_bytes && p->seconds >= 0);
    last_bytes = p->bytes;
    return *stop;
}

static void progress(void) {
    stead_error *e = NULL;
    stead_report *r = NULL;
    stead_request *q = asking("sum:0");
    int stop = 0;
    OK(stead_request_progress(q, watch, &stop, &e));
    OK(stead_run(data, q, &r, &e));
    CHECK(seen >= 1 && last_bytes == ROWS * 16);
    stead_report_free(r);
    stop = 1;
    FAILS(STEAD_CANCELLED, "stopped", stead_run(data, q, &r, &e));
    /* It is only that run which was stopped. */
    stop = 0;
    OK(stead_run(data, q, &r, &e));
    stead_report_free(r);
    OK(stead_request_progress(q, NULL, NULL, &e));
    seen = 0;
    OK(stead_run(data, q, &r, &e));
    CHECK(seen == 0);
    stead_report_free(r);
    stead_request_free(q);
}

static stead_cancel *flag;
static void on_signal(int n) {
    (void)n;
    stead_cancel_request(flag);
}

/* A signal in the middle of a run: raised by the run itself, so that there is no waiting. */
static int raise_it(const stead_progress *p, void *user) {
    (void)p;
    (void)user;
    raise(SIGUSR1);
    return 0;
}

static void cancelling(void) {
    stead_error *e = NULL;
    stead_report *r = NULL;
    stead_request *q = asking("sum:0");
    struct sigaction act;
    stead_cancel *other = NULL;
    memset(&act, 0, sizeof act);
    act.sa_handler = on_signal;
    CHECK(sigaction(SIGUSR1, &act, NULL) == 0);
    OK(stead_cancel_new(&flag, &e));
    OK(stead_cancel_new(&other, &e));
    CHECK(other != flag && !stead_cancel_is_requested(flag));
    OK(stead_request_cancel(q, flag, &e));
    OK(stead_run(data, q, &r, &e));
    stead_report_free(r);
    OK(stead_request_progress(q, raise_it, NULL, &e));
    FAILS(STEAD_CANCELLED, "stopped", stead_run(data, q, &r, &e));
    CHECK(stead_cancel_is_requested(flag) && !stead_cancel_is_requested(other));
    FAILS(STEAD_CANCELLED, "stopped", stead_run(data, q, &r, &e));
    OK(stead_request_progress(q, NULL, NULL, &e));
    stead_cancel_reset(flag);
    OK(stead_run(data, q, &r, &e));
    stead_report_free(r);
    stead_cancel_free(other);
    stead_cancel_free(flag);
    stead_cancel_request(flag);
    CHECK(!stead_cancel_is_requested(flag));
    FAILS(STEAD_USAGE, "cancel flag", stead_request_cancel(q, flag, &e));
    stead_cancel_free(flag);
    stead_cancel_free(NULL);
    stead_cancel_request(NULL);
    stead_cancel_request((stead_cancel *)&act);
    OK(stead_run(data, q, &r, &e));
    stead_report_free(r);
    OK(stead_request_cancel(q, NULL, &e));
    FAILS(STEAD_USAGE, "NULL", stead_cancel_new(NULL, &e));
    stead_request_free(q);
}

/* One dataset and one request for all threads. */
static void *runner(void *user) {
    stead_request *q = user;
    stead_report *r = NULL;
    double x = 0;
    int i, wrong = 0;
    for (i = 0; i < 5; i++) {
        wrong += stead_run(data, q, &r, NULL) != STEAD_OK;
        wrong += stead_report_double(r, "mean:0", &x, NULL) != STEAD_OK || x != (ROWS - 1) / 2.0;
        wrong += stead_report_json(r) == NULL;
        stead_report_free(r);
        /* Each thread has its own message. */
        stead_report_free(r);
        wrong += strstr(stead_last_message(), "report was freed") == NULL;
    }
    return wrong ? user : NULL;
}

static void threads(void) {
    stead_request *q = asking("mean:0");
    pthread_t t[6];
    void *wrong = NULL;
    size_t i;
    for (i = 0; i < 6; i++) CHECK(pthread_create(&t[i], NULL, runner, q) == 0);
    for (i = 0; i < 6; i++) {
        CHECK(pthread_join(t[i], &wrong) == 0);
        CHECK(wrong == NULL);
    }
    stead_request_free(q);
}

int main(void) {
    make_data();
    requests();
    values();
    groups();
    progress();
    cancelling();
    threads();
    stead_dataset_free(data);
    free(numbers);
    CHECK(stead_handles_alive() == 0);
    return ended("run");
}
