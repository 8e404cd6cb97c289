/* Flows within one program: a graph of text, a function of the program, what was done, and what is wrong. */

#include "stream.h"

static const char *GRAPH =
    "[read.sim]\n"
    "[node.sum]\n"
    "op = \"reduce\"\n"
    "of = \"sim.T\"\n"
    "how = \"sum\"\n"
    "[node.twice]\n"
    "op = \"map\"\n"
    "of = [\"sim.T\", \"sum\"]\n"
    "function = \"twice\"\n"
    "[write.out]\n"
    "variables = { sum = \"sum\", twice = \"twice\" }\n";

static void simulate(const char *name) {
    const uint64_t shape[1] = {3};
    const double T[3] = {1, 2, 4.5};
    const stead_stream_writer_options o = writes();
    stead_stream_writer *w = writer(name, &o);
    uint32_t t = 0;
    OK(stead_stream_writer_define(w, "T", STEAD_F64, 1, shape, NULL, &t, &e));
    OK(stead_stream_writer_begin(w, NULL, &e));
    OK(stead_stream_writer_put(w, t, NULL, NULL, T, &e));
    OK(stead_stream_writer_end(w, &e));
    OK(stead_stream_writer_close(w, &e));
}

static stead_flow_options options(void) {
    stead_flow_options o = {0};
    o.size = sizeof o;
    o.timeout_ms = 60000;
    o.dataspaces = spaces;
    o.dataspaces_count = 1;
    return o;
}

/* Twice each element; the eighth call fails. */
static int twice(const stead_flow_array *given_arrays, size_t count, const stead_flow_array *wanted, void *to, void *user) {
    const double *from = given_arrays[0].data;
    double *out = to;
    int *calls = user;
    size_t i;
    CHECK(count == 2 && given_arrays[0].dtype == STEAD_F64 && given_arrays[0].ndim == 1);
    CHECK(given_arrays[0].shape[0] == 3 && given_arrays[0].bytes == 24);
    CHECK(given_arrays[1].ndim == 0 && *(const double *)given_arrays[1].data == 7.5);
    CHECK(wanted->dtype == STEAD_F64 && wanted->bytes == 24 && wanted->data == to);
    for (i = 0; i < 3; i++) out[i] = 2 * from[i];
    *calls += 1;
    return *calls == 8 ? 3 : 0;
}

static void runs(void) {
    stead_flow_options o = options();
    stead_flow *flow = NULL;
    const stead_stream_reader_options ro = reads();
    stead_stream_reader *r;
    stead_stream_step *step = NULL;
    char *json = NULL;
    double got[3] = {0, 0, 0};
    int calls = 0;
    OK(stead_flow_open(GRAPH, &flow, &e));
    FAILS(STEAD_USAGE, "no function 'twice'", stead_flow_run(flow, &o, NULL, &e));
    FAILS(STEAD_USAGE, "NULL", stead_flow_function(flow, "twice", NULL, NULL, &e));
    OK(stead_flow_function(flow, "twice", twice, &calls, &e));
    simulate("sim");
    OK(stead_flow_run(flow, &o, &json, &e));
    SAYS(json, "\"dropped\": 0");
    SAYS(json, "\"stream\": \"out\"");
    SAYS(json, "\"bytes\": 32");
    stead_text_free(json);
    CHECK(calls == 1);
    r = reader("out", &ro);
    OK(stead_stream_reader_next(r, &step, &e));
    OK(stead_stream_step_get_into(step, "twice", NULL, NULL, got, sizeof got, &e));
    CHECK(got[0] == 2 && got[1] == 4 && got[2] == 9);
    OK(stead_stream_step_get_into(step, "sum", NULL, NULL, got, sizeof got[0], &e));
    CHECK(got[0] == 7.5);
    stead_stream_step_free(step);
    stead_stream_reader_free(r);
    calls = 7;
    simulate("sim");
    FAILS(STEAD_DATA, "function 'twice' has failed with 3", stead_flow_run(flow, &o, NULL, &e));
    stead_flow_free(flow);
    FAILS(STEAD_USAGE, "freed", stead_flow_run(flow, &o, NULL, &e));
    stead_flow_free(NULL);
}

static void refuses(void) {
    stead_flow_options o = options();
    stead_flow *flow = NULL;
    stead_cancel *cancel = NULL;
    FAILS(STEAD_USAGE, "line 2", stead_flow_open("name = \"a\"\nname = \"b\"\n", &flow, &e));
    FAILS(STEAD_USAGE, "nodes need each other: a -> a",
          stead_flow_open("[read.s]\n[node.a]\nop = \"cast\"\nof = \"a\"\nto = \"f32\"\n[write.o]\nvariables = { a = \"a\" }\n", &flow, &e));
    FAILS(STEAD_NOT_FOUND, "no such file", stead_flow_open("/there/is/none.toml", &flow, &e));
    CHECK(flow == NULL);
    OK(stead_flow_open("[read.nobody]\n[write.o]\nvariables = { a = \"nobody.a\" }\n", &flow, &e));
    o.timeout_ms = 20;
    FAILS(STEAD_TIMEOUT, "nobody writes a stream 'nobody'", stead_flow_run(flow, &o, NULL, &e));
    o.timeout_ms = 60000;
    OK(stead_cancel_new(&cancel, &e));
    stead_cancel_request(cancel);
    o.cancel = cancel;
    FAILS(STEAD_CANCELLED, "", stead_flow_run(flow, &o, NULL, &e));
    stead_cancel_free(cancel);
    o.cancel = NULL;
    o.rank = 3;
    FAILS(STEAD_USAGE, "rank 3 of 1", stead_flow_run(flow, &o, NULL, &e));
    o.size = 1;
    FAILS(STEAD_USAGE, "is no size", stead_flow_run(flow, &o, NULL, &e));
    stead_flow_free(flow);
}

/* A flow of a file, with a function in a library beside it. */
static void loads(const char *file) {
    stead_flow_options o = options();
    stead_flow *flow = NULL;
    const stead_stream_reader_options ro = reads();
    stead_stream_reader *r;
    stead_stream_step *step = NULL;
    double got[3] = {0, 0, 0};
    OK(stead_flow_open(file, &flow, &e));
    FAILS(STEAD_USAGE, "function 'warmer.so:warmer' is in a library, which was not loaded", stead_flow_run(flow, &o, NULL, &e));
    OK(stead_flow_load(flow, &e));
    OK(stead_flow_load(flow, &e));
    simulate("sim");
    OK(stead_flow_run(flow, &o, NULL, &e));
    r = reader("warm", &ro);
    OK(stead_stream_reader_next(r, &step, &e));
    OK(stead_stream_step_get_into(step, "T", NULL, NULL, got, sizeof got, &e));
    CHECK(got[0] == 2 && got[1] == 3 && got[2] == 5.5);
    stead_stream_step_free(step);
    stead_stream_reader_free(r);
    stead_flow_free(flow);
    FAILS(STEAD_USAGE, "freed", stead_flow_load(flow, &e));
    OK(stead_flow_open("[read.s]\n[node.n]\nop = \"map\"\nof = \"s.T\"\nfunction = \"there/is/none.so:f\"\n[write.o]\nvariables = { n = \"n\" }\n", &flow, &e));
    FAILS(STEAD_NOT_FOUND, "there/is/none.so", stead_flow_load(flow, &e));
    stead_flow_free(flow);
}

/* In memory: `test_flow FOLDER FILE`. */
int main(int argc, char **argv) {
    if (argc < 3) return 2;
    snprintf(given, sizeof given, "memory=%s", argv[1]);
    runs();
    loads(argv[2]);
    refuses();
    CHECK(stead_handles_alive() == 0);
    return ended("flow");
}
