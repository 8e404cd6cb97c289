/* Memory for arrays that a program allocates before it has a stream. */

#include "stream.h"

/* Memory that is made before there is a writer: put where it lies, by two writers, and what is wrong with it. */
static void made_first(void) {
    enum { N = 50000 };
    const uint64_t shape[1] = {N}, start[1] = {0}, count[1] = {10};
    const stead_stream_writer_options wo = writes();
    const stead_stream_reader_options ro = reads();
    stead_stream_buffer *made = NULL, *small = NULL;
    stead_stream_writer *w[2];
    stead_stream_reader *r;
    stead_stream_step *step;
    void *memory = NULL, *few = NULL;
    double *there, got[10];
    char *json = NULL;
    uint32_t t = 99, u = 99;
    int i, k;
    OK(stead_stream_empty(spaces, 1, N * sizeof(double), &memory, &made, &e));
    OK(stead_stream_empty(spaces, 1, 10 * sizeof(double), &few, &small, &e));
    CHECK(memory != NULL && (uintptr_t)memory % 64 == 0 && few != NULL && (uintptr_t)few % 64 == 0);
    there = memory;
    for (i = 0; i < N; i++) there[i] = i;
    memcpy(few, there, sizeof got);
    w[0] = writer("first", &wo), w[1] = writer("second", &wo);
    for (k = 0; k < 2; k++) {
        OK(stead_stream_writer_define(w[k], "T", STEAD_F64, 1, shape, NULL, &t, &e));
        OK(stead_stream_writer_define(w[k], "U", STEAD_F64, 1, count, NULL, &u, &e));
        FAILS(STEAD_USAGE, "not begun", stead_stream_writer_put_buffer(w[k], t, NULL, NULL, made, &e));
        OK(stead_stream_writer_begin(w[k], NULL, &e));
        OK(stead_stream_writer_put_buffer(w[k], t, NULL, NULL, made, &e));
        OK(stead_stream_writer_put_buffer(w[k], u, start, count, small, &e));
        FAILS(STEAD_USAGE, "has 400000 bytes, and the memory has 80",
              stead_stream_writer_put_buffer(w[k], t, NULL, NULL, small, &e));
        FAILS(STEAD_USAGE, "start is NULL", stead_stream_writer_put_buffer(w[k], t, NULL, count, made, &e));
        FAILS(STEAD_USAGE, "no variable 7", stead_stream_writer_put_buffer(w[k], 7, NULL, NULL, made, &e));
        FAILS(STEAD_USAGE, "NULL", stead_stream_writer_put_buffer(w[k], t, NULL, NULL, NULL, &e));
        OK(stead_stream_writer_end(w[k], &e));
        /* What is small alone was copied. */
        OK(stead_stream_writer_report(w[k], &json, &e));
        SAYS(json, "\"put\": 400080");
        SAYS(json, "\"copied\": 80,");
        stead_text_free(json);
    }
    stead_stream_buffer_free(small);
    CHECK(there[N - 1] == N - 1);
    stead_stream_buffer_free(made);
    stead_stream_buffer_free(made);
    stead_stream_buffer_free(NULL);
    FAILS(STEAD_USAGE, "the stream buffer was freed", stead_stream_writer_put_buffer(w[0], t, NULL, NULL, made, &e));
    for (k = 0; k < 2; k++) {
        OK(stead_stream_writer_close(w[k], &e));
        r = reader(k == 0 ? "first" : "second", &ro);
        step = next(r, 0);
        OK(stead_stream_step_get_into(step, "T", (uint64_t[]){N - 10}, count, got, sizeof got, &e));
        CHECK(got[9] == N - 1);
        OK(stead_stream_step_get_into(step, "U", start, count, got, sizeof got, &e));
        CHECK(got[9] == 9);
        stead_stream_step_free(step);
        stead_stream_reader_free(r);
    }
    FAILS(STEAD_USAGE, "NULL", stead_stream_empty(spaces, 1, 8, NULL, &made, &e));
    FAILS(STEAD_USAGE, "NULL", stead_stream_empty(spaces, 1, 8, &memory, NULL, &e));
    FAILS(STEAD_LIMIT, "more memory than a file may have", stead_stream_empty(spaces, 1, UINT64_MAX, &memory, &made, &e));
    CHECK(memory == NULL && made == NULL);
    OK(stead_stream_empty(spaces, 1, 0, &memory, &made, &e));
    CHECK(memory == NULL && made != NULL);
    stead_stream_buffer_free(made);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    snprintf(given, sizeof given, "memory=%s", argv[1]);
    made_first();
    CHECK(stead_handles_alive() == 0);
    return ended("stream_buffer");
}
