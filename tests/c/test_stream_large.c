/* Streams of which shapes are large: what lies where 32 bits do not reach. */

#include "stream.h"

static unsigned char far_byte(uint64_t place) {
    return (unsigned char)(place * UINT64_C(0x9E3779B97F4A7C15) >> 56);
}

static int is_far(const unsigned char *bytes, uint64_t place, uint64_t count) {
    uint64_t i;
    for (i = 0; i < count; i++)
        if (bytes[i] != far_byte(place + i)) return 0;
    return 1;
}

/* Shapes of more than 32 bits can count: in one dimension, and in both together. */
static void reaches(void) {
    const stead_stream_writer_options wo = writes();
    const stead_stream_reader_options ro = reads();
    const uint64_t b20 = UINT64_C(1) << 20, b32 = UINT64_C(1) << 32, b39 = UINT64_C(1) << 39, b40 = UINT64_C(1) << 40;
    const uint64_t line[1] = {b40}, plane[2] = {b20, b20}, begins[2] = {b32 - 1000, b39 + 1};
    stead_stream_writer *w = writer("reaches", &wo);
    stead_stream_reader *r;
    stead_stream_step *step = NULL;
    stead_stream_array *array = NULL;
    stead_stream_variable v;
    unsigned char bytes[2000], got[2000];
    const void *data = NULL;
    uint64_t start[2], count[2], writers[2], starts[2], counts[2], i;
    int64_t strides[2] = {0, 0};
    size_t n = 0, copied = 0, k;
    uint32_t l = 99, p = 99;

    OK(stead_stream_writer_define(w, "line", STEAD_U8, 1, line, NULL, &l, &e));
    OK(stead_stream_writer_define(w, "plane", STEAD_U8, 2, plane, NULL, &p, &e));
    OK(stead_stream_writer_begin(w, NULL, &e));
    count[0] = sizeof bytes;
    for (k = 0; k < 2; k++) {
        for (i = 0; i < sizeof bytes; i++) bytes[i] = far_byte(begins[k] + i);
        OK(stead_stream_writer_put(w, l, &begins[k], count, bytes, &e));
    }
    /* The second row begins where elements are 2^32. */
    start[0] = 4095, start[1] = 0, count[0] = 2, count[1] = 1000;
    for (i = 0; i < sizeof bytes; i++) bytes[i] = far_byte((4095 + i / 1000) * b20 + i % 1000);
    OK(stead_stream_writer_put(w, p, start, count, bytes, &e));
    start[0] = b40 - 1, count[0] = 2;
    FAILS(STEAD_USAGE, "does not lie in its shape", stead_stream_writer_put(w, l, start, count, bytes, &e));
    OK(stead_stream_writer_end(w, &e));
    OK(stead_stream_writer_close(w, &e));

    r = reader("reaches", &ro);
    step = next(r, 0);
    OK(stead_stream_step_find(step, "line", &v, sizeof v, &e));
    CHECK(v.ndim == 1 && v.shape[0] == b40);
    OK(stead_stream_step_parts(step, "line", 2, writers, starts, counts, &n, &e));
    CHECK(n == 2 && starts[0] == begins[0] && starts[1] == begins[1] && counts[0] == sizeof bytes && counts[1] == sizeof bytes);
    for (k = 0; k < 2; k++) {
        start[0] = begins[k] + 997, count[0] = 1003;
        OK(stead_stream_step_get_into(step, "line", start, count, got, 1003, &e));
        CHECK(is_far(got, start[0], 1003));
        OK(stead_stream_step_view(step, "line", start, count, &data, strides, &array, &e));
        CHECK(stead_stream_array_is_view(array) && strides[0] == 1 && is_far(data, start[0], 1003));
        stead_stream_array_free(array);
    }
    start[0] = 4096, start[1] = 10, count[0] = 1, count[1] = 990;
    OK(stead_stream_step_get_into(step, "plane", start, count, got, 990, &e));
    CHECK(is_far(got, b32 + 10, 990));
    start[0] = b39, count[0] = 3;
    FAILS(STEAD_NOT_FOUND, "549755813888:549755813889", stead_stream_step_get_into(step, "line", start, count, got, 3, &e));
    got[0] = 1;
    OK(stead_stream_step_get_what_there_is(step, "line", start, count, got, 3, &copied, &e));
    CHECK(copied == 2 && got[0] == 1 && is_far(got + 1, b39 + 1, 2));
    stead_stream_step_free(step);
    stead_stream_reader_free(r);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    snprintf(given, sizeof given, "memory=%s", argv[1]);
    reaches();
    CHECK(stead_handles_alive() == 0);
    return ended("stream_large");
}
