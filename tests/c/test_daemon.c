/* The daemon of a node: transfers handed over, waited for, given up, and what is wrong with them. The first argument is its socket,
   the second a large file. */

#include "check.h"
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

static stead_error *e = NULL;

static stead_stage_request *ask(const char *action, const char *source, const char *target) {
    stead_stage_request *r = NULL;
    OK(stead_stage_request_new(action, &r, &e));
    OK(stead_stage_request_source(r, source, &e));
    OK(stead_stage_request_target(r, target, &e));
    return r;
}

static stead_stage_progress eta(const stead_daemon *d, int64_t id) {
    stead_stage_progress p;
    OK(stead_daemon_eta(d, id, &p, sizeof p, &e));
    CHECK(p.left >= 0 && p.left_low >= 0 && p.left_high >= p.left_low && p.seconds >= 0);
    CHECK(p.bytes_done <= p.bytes && p.files_done <= p.files);
    return p;
}

static void is_done(stead_daemon *d) {
    stead_stage_request *r = ask("copy", "tree", "copy"), *gone = ask("remove", "copy", NULL), *same = NULL;
    stead_stage_progress p;
    stead_cancel *stop = NULL;
    char *json = NULL;
    int64_t ids[2] = {0, 0};
    OK(stead_daemon_preview(d, r, NULL, &json, &e));
    SAYS(json, "\"bytes\": 5");
    stead_text_free(json);
    OK(stead_daemon_submit(d, r, NULL, 0, &ids[0], &e));
    OK(stead_daemon_wait(d, ids[0], -1, &e));
    OK(stead_daemon_wait(d, ids[0], 0, &e));
    FAILS(STEAD_USAGE, "is a sync", stead_daemon_check(d, r, NULL, &json, &e));
    same = ask("sync", "tree/", "copy");
    OK(stead_daemon_check(d, same, NULL, &json, &e));
    SAYS(json, "\"same\": 1");
    SAYS(json, "\"differ\": 0");
    stead_text_free(json);
    OK(stead_cancel_new(&stop, &e));
    stead_cancel_request(stop);
    FAILS(STEAD_CANCELLED, "", stead_daemon_check(d, same, stop, &json, &e));
    FAILS(STEAD_CANCELLED, "", stead_daemon_preview(d, same, stop, &json, &e));
    stead_cancel_reset(stop);
    OK(stead_daemon_check(d, same, stop, &json, &e));
    stead_text_free(json);
    OK(stead_daemon_preview(d, same, stop, &json, &e));
    stead_text_free(json);
    stead_cancel_free(stop);
    stead_stage_request_free(same);
    p = eta(d, ids[0]);
    CHECK(p.ended && p.planned && p.bytes == 5 && p.bytes_done == 5 && p.left == 0 && p.left_high == 0);
    OK(stead_daemon_status(d, ids[0], &json, &e));
    SAYS(json, "\"state\": \"finished\"");
    stead_text_free(json);
    OK(stead_daemon_submit(d, gone, ids, 1, &ids[1], &e));
    OK(stead_daemon_wait(d, ids[1], 60000, &e));
    CHECK(fopen("copy/f", "rb") == NULL);
    OK(stead_daemon_list(d, false, &json, &e));
    CHECK(strcmp(json, "[]") == 0);
    stead_text_free(json);
    OK(stead_daemon_list(d, true, &json, &e));
    SAYS(json, "\"remove\"");
    stead_text_free(json);
    OK(stead_daemon_spaces(d, &json, &e));
    SAYS(json, "[");
    stead_text_free(json);
    OK(stead_daemon_nodes(d, &json, &e));
    SAYS(json, "\"");
    stead_text_free(json);
    OK(stead_daemon_metrics(d, &json, &e));
    SAYS(json, "stead_transfers{state=\"finished\"} 2");
    stead_text_free(json);
    FAILS(STEAD_USAGE, "finished already", stead_daemon_resume(d, ids[0], &e));
    FAILS(STEAD_USAGE, "finished already", stead_daemon_cancel(d, ids[0], &e));
    stead_stage_request_free(r);
    stead_stage_request_free(gone);
}

static void is_given_up(stead_daemon *d, const char *large) {
    stead_stage_request *r = ask("copy", large, "large"), *next = ask("copy", "tree", "next");
    stead_stage_progress p;
    int64_t id = 0, after = 0;
    OK(stead_stage_request_set(r, "limit", "1MiB", &e));
    OK(stead_stage_request_set(r, "priority", "2", &e));
    OK(stead_daemon_submit(d, r, NULL, 0, &id, &e));
    OK(stead_daemon_submit(d, next, &id, 1, &after, &e));
    do p = eta(d, id);
    while (p.bytes_done == 0 && !p.ended);
    CHECK(!p.ended && p.planned && p.bytes == 24u << 20 && p.left > 0);
    p = eta(d, after);
    CHECK(!p.ended && !p.planned && p.left > 0);
    FAILS(STEAD_TIMEOUT, "within 10 ms", stead_daemon_wait(d, after, 10, &e));
    OK(stead_daemon_cancel(d, id, &e));
    FAILS(STEAD_CANCELLED, "was cancelled", stead_daemon_wait(d, id, -1, &e));
    FAILS(STEAD_CANCELLED, "was not finished", stead_daemon_wait(d, after, -1, &e));
    CHECK(fopen("large", "rb") == NULL);
    stead_stage_request_free(r);
    stead_stage_request_free(next);
}

static void errors(stead_daemon *d) {
    stead_stage_request *r = NULL;
    stead_daemon *other = NULL;
    stead_stage_progress p;
    char *json = NULL;
    int64_t id = 0, none = 12345;
    FAILS(STEAD_NOT_FOUND, "no daemon", stead_daemon_connect("no-such-socket", &other, &e));
    CHECK(other == NULL);
    OK(stead_stage_request_new("copy", &r, &e));
    FAILS(STEAD_USAGE, "no source", stead_daemon_submit(d, r, NULL, 0, &id, &e));
    OK(stead_stage_request_source(r, "no-such-file", &e));
    OK(stead_stage_request_target(r, "x", &e));
    FAILS(STEAD_USAGE, "12345", stead_daemon_submit(d, r, &none, 1, &id, &e));
    FAILS(STEAD_USAGE, "NULL", stead_daemon_submit(d, r, NULL, 1, &id, &e));
    FAILS(STEAD_USAGE, "NULL", stead_daemon_submit(d, r, NULL, 0, NULL, &e));
    FAILS(STEAD_NOT_FOUND, "no-such-file", stead_daemon_preview(d, r, NULL, &json, &e));
    CHECK(id == 0 && json == NULL);
    OK(stead_daemon_submit(d, r, NULL, 0, &id, &e));
    FAILS(STEAD_NOT_FOUND, "no-such-file", stead_daemon_wait(d, id, -1, &e));
    OK(stead_daemon_resume(d, id, &e));
    FAILS(STEAD_NOT_FOUND, "no-such-file", stead_daemon_wait(d, id, -1, &e));
    FAILS(STEAD_USAGE, "12345", stead_daemon_wait(d, none, 0, &e));
    FAILS(STEAD_USAGE, "12345", stead_daemon_status(d, none, &json, &e));
    FAILS(STEAD_USAGE, "no size of", stead_daemon_eta(d, id, &p, 1, &e));
    FAILS(STEAD_USAGE, "NULL", stead_daemon_wait(NULL, id, 0, &e));
    FAILS(STEAD_USAGE, "is a stage request", stead_daemon_list((stead_daemon *)r, true, &json, &e));
    stead_stage_request_free(r);
}

/* Flows that it runs: one for streams that nobody writes, which is given up, and one that waits for them in vain. */
static void flows(stead_daemon *d) {
    const char *toml = "[read.none]\n[node.mean]\nop = 'reduce'\nof = 'none.T'\nhow = 'mean'\n[write.little]\nvariables = { mean = 'mean' }\n";
    stead_flow_options o = {0};
    stead_flow *f = NULL;
    int64_t first = 0, second = 0;
    char *json = NULL;
    o.size = sizeof o;
    OK(stead_flow_open(toml, &f, &e));
    OK(stead_daemon_flow_begin(d, f, NULL, &first, &e));
    FAILS(STEAD_TIMEOUT, "is not over", stead_daemon_flow_wait(d, first, 10, NULL, &e));
    OK(stead_daemon_flows(d, false, &json, &e));
    SAYS(json, "\"state\": \"running\"");
    SAYS(json, "\"none\"");
    stead_text_free(json);
    json = NULL;
    OK(stead_daemon_flow_cancel(d, first, &e));
    FAILS(STEAD_USAGE, "is over", stead_daemon_flow_cancel(d, first, &e));
    FAILS(STEAD_CANCELLED, "given up", stead_daemon_flow_wait(d, first, -1, &json, &e));
    o.timeout_ms = 50;
    o.threads = 1;
    o.steps = 3;
    o.memory = 1 << 20;
    OK(stead_daemon_flow_begin(d, f, &o, &second, &e));
    CHECK(second > first);
    FAILS(STEAD_TIMEOUT, "nobody writes", stead_daemon_flow_wait(d, second, -1, &json, &e));
    OK(stead_daemon_flows(d, true, &json, &e));
    SAYS(json, "\"failed\"");
    SAYS(json, "\"cancelled\"");
    stead_text_free(json);
    json = NULL;
    o.ranks = 2;
    FAILS(STEAD_USAGE, "by itself", stead_daemon_flow_begin(d, f, &o, &second, &e));
    FAILS(STEAD_USAGE, "NULL", stead_daemon_flow_begin(d, NULL, NULL, &second, &e));
    FAILS(STEAD_USAGE, "NULL", stead_daemon_flow_begin(d, f, NULL, NULL, &e));
    FAILS(STEAD_USAGE, "no flow 12345", stead_daemon_flow_wait(d, 12345, 0, NULL, &e));
    FAILS(STEAD_USAGE, "no flow 12345", stead_daemon_flow_cancel(d, 12345, &e));
    CHECK(json == NULL);
    stead_flow_free(f);
}

int main(int argc, char **argv) {
    stead_daemon *d = NULL;
    char *json = NULL;
    FILE *f;
    if (argc < 3) return 2;
    CHECK(mkdir("tree", 0755) == 0);
    f = fopen("tree/f", "wb");
    CHECK(f != NULL && fwrite("bytes", 1, 5, f) == 5 && fclose(f) == 0);
    FAILS(STEAD_USAGE, "in no pool", stead_daemon_connect_on(argv[1], "elsewhere", &d, &e));
    OK(stead_daemon_connect(argv[1], &d, &e));
    is_done(d);
    is_given_up(d, argv[2]);
    errors(d);
    flows(d);
    stead_daemon_free(d);
    FAILS(STEAD_USAGE, "freed", stead_daemon_metrics(d, &json, &e));
    stead_daemon_free(NULL);
    CHECK(stead_handles_alive() == 0);
    return ended("daemon");
}
