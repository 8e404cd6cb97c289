/* Jobs over what a view shows of a file, run here, and what is wrong with jobs and with ranks. That ranks ask others
 * is tested with MPI (tests/mpi). */

#include "check.h"
#include <stdlib.h>

enum { ROWS = 60000 };

static stead_error *e = NULL;
static double values[ROWS];

static int32_t never(void) {
    abort();
}

static uint64_t node_of(void *data, uint64_t rank) {
    (void)data;
    return rank;
}

static void released(void *data) {
    ++*(int *)data;
}

/* A rank alone, which has nobody to talk to. */
static int lonely(void *data, stead_fabric *fabric, char *why) {
    (void)why;
    memset(fabric, 0, sizeof *fabric);
    fabric->version = STEAD_FABRIC_VERSION;
    fabric->deadline_ms = 1000;
    fabric->size = 1;
    fabric->data = data;
    fabric->node_of = node_of;
    fabric->send = (int32_t (*)(void *, uint64_t, uint32_t, const uint8_t *, uint64_t, uint8_t *))(void (*)(void))never;
    fabric->recv = (int32_t (*)(void *, uint64_t, uint32_t, uint64_t, uint64_t *, uint8_t **, uint64_t *, uint8_t *))(
        void (*)(void))never;
    fabric->free = (void (*)(void *, uint8_t *, uint64_t))(void (*)(void))never;
    fabric->alive = (int32_t (*)(void *, uint64_t, uint8_t *))(void (*)(void))never;
    fabric->release = released;
    return 0;
}

/* ---- an operation */

static int bytes_update(void *state, const stead_block *block, void *user) {
    size_t i, k, n;
    for (i = 0; i < stead_block_run_count(block); i++) {
        const char *at = stead_block_run(block, i, &n);
        for (k = 0; k < n; k++) *(uint64_t *)state += (unsigned char)at[k];
    }
    ++*(int *)user;
    return 0;
}

static int bytes_merge(void *state, const void *other, void *user) {
    (void)user;
    *(uint64_t *)state += *(const uint64_t *)other;
    return 0;
}

static int bytes_finish(void *state, stead_builder *result, void *user) {
    (void)user;
    return stead_builder_int(result, *(uint64_t *)state);
}

static int resolve(const char *name, stead_kernel *kernel, void *user) {
    if (strcmp(name, "code 77") == 0) return 77;
    if (strcmp(name, "bytes, added up") != 0) return stead_fail(STEAD_LIMIT, "none of ours");
    kernel->state_size = 8;
    kernel->needs = STEAD_NEEDS_BYTES;
    kernel->update = bytes_update;
    kernel->merge = bytes_merge;
    kernel->finish = bytes_finish;
    kernel->user = user;
    return 0;
}

/* ---- jobs */

static const char *paths[] = {"doubles", "others"};
static stead_options *options;
static stead_request *request;

static stead_offload_job job(void) {
    stead_offload_job j;
    memset(&j, 0, sizeof j);
    j.size = sizeof j;
    j.paths = paths;
    j.path_count = 1;
    j.options = options;
    return j;
}

static void ask(const stead_offload_job *j, const char *name, double wanted) {
    stead_report *report = NULL;
    double got = 0;
    OK(stead_offload_run(NULL, j, request, &report, &e));
    OK(stead_report_double(report, name, &got, &e));
    CHECK(got == wanted);
    stead_report_free(report);
}

static void jobs(void) {
    /* The second and third of each four doubles, from the fifth that is seen on. */
    stead_stretch stretches[] = {{8, 8}, {16, 8}};
    stead_file_view view;
    stead_offload_job j = job();
    double whole = 0, seen = 0;
    uint64_t bytes = 0;
    const char *operations[] = {"bytes, added up"};
    int updates = 0;
    size_t i, k;
    for (i = 0; i < ROWS; i++) {
        whole += values[i];
        if (i / 4 >= 2 && i % 4 != 0 && i % 4 != 3) {
            seen += values[i];
            for (k = 0; k < 8; k++) bytes += ((const unsigned char *)&values[i])[k];
        }
    }
    ask(&j, "sum:value", whole);
    memset(&view, 0, sizeof view);
    view.size = sizeof view;
    view.extent = 32;
    view.stretches = stretches;
    view.stretch_count = 2;
    view.skip = 4 * 8;
    view.bytes = (ROWS / 2 - 4) * 8;
    j.view = &view;
    ask(&j, "sum:value", seen);
    j.operations = operations;
    j.operation_count = 1;
    j.resolve = resolve;
    j.user = &updates;
    ask(&j, "sum:value", seen);
    ask(&j, "bytes, added up", (double)bytes);
    CHECK(updates > 0);
}

static void wrong_jobs(void) {
    stead_stretch descending[] = {{16, 8}, {0, 8}}, wide[] = {{0, 8}, {28, 8}};
    stead_file_view view;
    stead_offload_job j = job();
    stead_report *report = (stead_report *)1;
    const char *operations[] = {"bytes, added up"}, *gone[] = {"no/such"};
    stead_kernel own;
    memset(&view, 0, sizeof view);
    FAILS(STEAD_USAGE, "NULL", stead_offload_run(NULL, NULL, request, &report, &e));
    CHECK(report == NULL);
    FAILS(STEAD_USAGE, "NULL", stead_offload_run(NULL, &j, NULL, &report, &e));
    FAILS(STEAD_USAGE, "NULL", stead_offload_run(NULL, &j, request, NULL, &e));
    FAILS(STEAD_USAGE, "stead_offload_job", stead_offload_run(NULL, (j.size = 5, &j), request, &report, &e));
    j = job();
    j.paths = gone;
    FAILS(STEAD_NOT_FOUND, "no/such", stead_offload_run(NULL, &j, request, &report, &e));
    j = job();
    j.view = &view;
    FAILS(STEAD_USAGE, "stead_file_view", stead_offload_run(NULL, &j, request, &report, &e));
    view.size = sizeof view;
    view.extent = 32;
    view.stretch_count = 2;
    view.bytes = 80;
    FAILS(STEAD_USAGE, "NULL", stead_offload_run(NULL, &j, request, &report, &e));
    view.stretches = descending;
    FAILS(STEAD_USAGE, "", stead_offload_run(NULL, &j, request, &report, &e));
    view.stretches = wide;
    FAILS(STEAD_USAGE, "", stead_offload_run(NULL, &j, request, &report, &e));
    view.stretch_count = 1;
    view.bytes = ROWS * 8;
    FAILS(STEAD_USAGE, "doubles", stead_offload_run(NULL, &j, request, &report, &e));
    view.bytes = 80;
    view.file_bytes = ROWS * 8 + 1;
    FAILS(STEAD_CHANGED, "480000 bytes here", stead_offload_run(NULL, &j, request, &report, &e));
    view.file_bytes = ROWS * 8;
    j.path_count = 2;
    FAILS(STEAD_USAGE, "2 files", stead_offload_run(NULL, &j, request, &report, &e));
    j = job();
    j.operations = operations;
    j.operation_count = 1;
    FAILS(STEAD_USAGE, "bytes, added up", stead_offload_run(NULL, &j, request, &report, &e));
    j.resolve = resolve;
    operations[0] = "another one";
    FAILS(STEAD_LIMIT, "none of ours", stead_offload_run(NULL, &j, request, &report, &e));
    operations[0] = "code 77";
    FAILS(STEAD_USAGE, "77", stead_offload_run(NULL, &j, request, &report, &e));
    memset(&own, 0, sizeof own);
    own.size = sizeof own;
    own.name = "mine";
    own.update = bytes_update;
    own.merge = bytes_merge;
    own.finish = bytes_finish;
    OK(stead_request_own_kernel(request, &own, &e));
    j = job();
    FAILS(STEAD_USAGE, "mine", stead_offload_run(NULL, &j, request, &report, &e));
    CHECK(report == NULL);
}

/* ---- ranks */

static void ranks(void) {
    stead_offload *site = (stead_offload *)1;
    stead_offload_options o;
    stead_offload_job j = job();
    stead_report *report = NULL;
    int asked = 0, ended_ones = 0;
    memset(&o, 0, sizeof o);
    FAILS(STEAD_PEER, "no ranks today", stead_offload_open(no_ranks, &asked, &o, &site, &e));
    FAILS(STEAD_USAGE, "makes a fabric", stead_offload_open(NULL, &asked, &o, &site, &e));
    CHECK(site == NULL);
    FAILS(STEAD_USAGE, "stead_offload_options", stead_offload_open(lonely, &ended_ones, &o, &site, &e));
    o.size = sizeof o;
    FAILS(STEAD_USAGE, "no rank is a storage rank", stead_offload_open(lonely, &ended_ones, &o, &site, &e));
    o.storage_hosts = "no-such-host";
    FAILS(STEAD_USAGE, "no-such-host", stead_offload_open(lonely, &ended_ones, &o, &site, &e));
    FAILS(STEAD_USAGE, "NULL", stead_offload_open(lonely, &ended_ones, &o, NULL, &e));
    CHECK(ended_ones == 4);
    o.storage_hosts = NULL;
    o.is_storage = true;
    OK(stead_offload_open(lonely, &ended_ones, &o, &site, &e));
    CHECK(stead_offload_is_storage(site) && stead_offload_ranks(site, true) == 1 &&
          stead_offload_ranks(site, false) == 0);
    FAILS(STEAD_USAGE, "storage rank", stead_offload_run(site, &j, request, &report, &e));
    FAILS(STEAD_USAGE, "nobody would ask", stead_offload_serve(site, &e));
    FAILS(STEAD_USAGE, "served before", stead_offload_serve(site, &e));
    stead_offload_free(site);
    CHECK(ended_ones == 5);
    CHECK(!stead_offload_is_storage(site) && stead_offload_ranks(site, true) == 0);
    FAILS(STEAD_USAGE, "", stead_offload_serve(site, &e));
    FAILS(STEAD_USAGE, "", stead_offload_run(site, &j, request, &report, &e));
    stead_offload_free(NULL);
}

int main(void) {
    FILE *file = fopen("doubles", "wb"), *others = fopen("others", "wb");
    size_t i;
    /* Whole numbers: their sums are exact in any order. */
    for (i = 0; i < ROWS; i++) values[i] = (double)(i * 7919 % 10007);
    CHECK(file && fwrite(values, sizeof *values, ROWS, file) == ROWS && fclose(file) == 0);
    CHECK(others && fwrite(values, sizeof *values, ROWS, others) == ROWS && fclose(others) == 0);
    OK(stead_options_new(&options, &e));
    OK(stead_options_set(options, "type", "raw", &e));
    OK(stead_options_set(options, "dtype", "f64", &e));
    OK(stead_request_new(&request, &e));
    OK(stead_request_kernel(request, "sum:value", &e));
    OK(stead_request_extent(request, 1 << 16, &e));
    /* The operation counts its calls. */
    OK(stead_request_threads(request, 1, &e));
    jobs();
    ranks();
    wrong_jobs();
    stead_request_free(request);
    stead_options_free(options);
    CHECK(stead_handles_alive() == 0);
    return ended("offload");
}
