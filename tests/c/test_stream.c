/* Streams within one program: all that can be said of variables, views that outlive steps, and what is wrong with arguments. */

#include "stream.h"

enum { ROWS = 6, COLUMNS = 5 };

static float value(uint64_t step, int row, int column) {
    return (float)(1000 * (int)step + 10 * row + column);
}

/* Puts rows of the field of a step, the first half without a copy. */
static void put(stead_stream_writer *w, uint32_t t) {
    uint64_t start[2] = {0, 0}, count[2] = {ROWS / 2, COLUMNS}, step = 99;
    float half[ROWS / 2 * COLUMNS], *there;
    void *memory = NULL;
    stead_stream_room *room = NULL;
    int i, j;
    OK(stead_stream_writer_begin(w, &step, &e));
    OK(stead_stream_writer_empty(w, t, start, count, &memory, &room, &e));
    CHECK(memory != NULL && (uintptr_t)memory % 64 == 0);
    there = memory;
    for (i = 0; i < ROWS / 2; i++) {
        for (j = 0; j < COLUMNS; j++) {
            there[i * COLUMNS + j] = value(step, i, j);
            half[i * COLUMNS + j] = value(step, i + ROWS / 2, j);
        }
    }
    OK(stead_stream_writer_put_room(w, room, &e));
    FAILS(STEAD_USAGE, "freed", stead_stream_writer_put_room(w, room, &e));
    start[0] = ROWS / 2;
    OK(stead_stream_writer_put(w, t, start, count, half, &e));
    OK(stead_stream_writer_end(w, &e));
}

static uint32_t field(stead_stream_writer *w) {
    const uint64_t shape[2] = {ROWS, COLUMNS};
    uint32_t t = 99;
    OK(stead_stream_writer_define(w, "T", STEAD_F32, 2, shape, NULL, &t, &e));
    return t;
}

static void variables(void) {
    stead_stream_writer_options wo = writes();
    const stead_stream_reader_options ro = reads();
    stead_stream_writer *w;
    stead_stream_reader *r;
    stead_stream_step *step;
    stead_stream_variable v;
    stead_stream_attribute a;
    const char *dims[2] = {"y", "x"}, *texts[2] = {"one", "two"};
    const uint64_t shape[2] = {ROWS, COLUMNS};
    const int64_t ints[3] = {-1, 0, INT64_MAX};
    const double doubles[2] = {0.5, -2};
    const int64_t time = 77;
    uint64_t writers[2], starts[4], counts[4];
    int64_t back = 0;
    uint32_t t = 99, s = 99, again = 99;
    size_t n = 0;

    wo.keep = 2;
    w = writer("variables", &wo);
    OK(stead_stream_writer_define(w, "T", STEAD_F32, 2, shape, dims, &t, &e));
    OK(stead_stream_writer_attribute_text(w, t, "units", "degC", &e));
    OK(stead_stream_writer_attribute_text(w, t, "units", "K", &e));
    OK(stead_stream_writer_attribute_int(w, t, "level", -3, &e));
    OK(stead_stream_writer_attribute_double(w, t, "scale", 0.25, &e));
    OK(stead_stream_writer_attribute_texts(w, t, "names", texts, 2, &e));
    OK(stead_stream_writer_attribute_ints(w, t, "codes", ints, 3, &e));
    OK(stead_stream_writer_attribute_doubles(w, t, "valid", doubles, 2, &e));
    OK(stead_stream_writer_attribute_ints(w, t, "none", NULL, 0, &e));
    OK(stead_stream_writer_define(w, "time", STEAD_I64, 0, NULL, NULL, &s, &e));
    CHECK(t == 0 && s == 1);
    FAILS(STEAD_USAGE, "no variable 2", stead_stream_writer_attribute_int(w, 2, "a", 1, &e));
    FAILS(STEAD_USAGE, "attribute is empty", stead_stream_writer_attribute_int(w, t, "", 1, &e));
    FAILS(STEAD_USAGE, "key is NULL", stead_stream_writer_attribute_int(w, t, NULL, 1, &e));
    FAILS(STEAD_USAGE, "values is NULL", stead_stream_writer_attribute_doubles(w, t, "a", NULL, 1, &e));
    FAILS(STEAD_USAGE, "UTF-8", stead_stream_writer_attribute_text(w, t, "a", "\xff", &e));

    put(w, t);
    OK(stead_stream_writer_begin(w, NULL, &e));
    /* A scalar has one element. */
    OK(stead_stream_writer_put(w, s, NULL, NULL, &time, &e));
    FAILS(STEAD_USAGE, "another one", stead_stream_writer_define(w, "time", STEAD_I32, 0, NULL, NULL, &again, &e));
    FAILS(STEAD_USAGE, "another one", stead_stream_writer_attribute_int(w, s, "a", 1, &e));
    CHECK(again == 99);
    OK(stead_stream_writer_end(w, &e));

    r = reader("variables", &ro);
    step = next(r, 0);
    /* Nobody has put the time into the first step. */
    CHECK(stead_stream_step_variables(step) == 1 && stead_stream_step_dropped(step) == 0);
    CHECK(stead_stream_step_bytes(step) == sizeof(float) * ROWS * COLUMNS);
    CHECK(stead_stream_step_completed_at(step) > 1600000000ull * 1000000000ull);
    OK(stead_stream_step_variable(step, 0, &v, sizeof v, &e));
    CHECK(strcmp(v.name, "T") == 0 && v.dtype == STEAD_F32 && v.ndim == 2);
    CHECK(v.shape[0] == ROWS && v.shape[1] == COLUMNS && v.attributes == 7);
    CHECK(v.dims != NULL && strcmp(v.dims[0], "y") == 0 && strcmp(v.dims[1], "x") == 0);
    FAILS(STEAD_USAGE, "there are 1", stead_stream_step_variable(step, 1, &v, sizeof v, &e));
    FAILS(STEAD_USAGE, "no size", stead_stream_step_variable(step, 0, &v, 1, &e));
    FAILS(STEAD_NOT_FOUND, "'time' is in step 0: there are T", stead_stream_step_find(step, "time", &v, sizeof v, &e));
    OK(stead_stream_step_fits(step, "T", 2, 2, &e));
    FAILS(STEAD_USAGE, "'T' has 2 dimensions", stead_stream_step_fits(step, "T", 1, 2, &e));
    FAILS(STEAD_NOT_FOUND, "'U'", stead_stream_step_fits(step, "U", 2, 2, &e));
    FAILS(STEAD_NOT_FOUND, "'U' is in step 0: there are T", stead_stream_step_find(step, "U", &v, sizeof v, &e));

    OK(stead_stream_step_attribute(step, "T", 0, &a, sizeof a, &e));
    CHECK(strcmp(a.key, "codes") == 0 && a.kind == STEAD_INT && a.is_list && a.count == 3);
    CHECK(memcmp(a.ints, ints, sizeof ints) == 0 && a.texts == NULL && a.doubles == NULL);
    OK(stead_stream_step_find_attribute(step, "T", "units", &a, sizeof a, &e));
    CHECK(a.kind == STEAD_TEXT && !a.is_list && a.count == 1 && strcmp(a.texts[0], "K") == 0 && a.ints == NULL);
    OK(stead_stream_step_find_attribute(step, "T", "level", &a, sizeof a, &e));
    CHECK(a.kind == STEAD_INT && !a.is_list && a.count == 1 && a.ints[0] == -3);
    OK(stead_stream_step_find_attribute(step, "T", "scale", &a, sizeof a, &e));
    CHECK(a.kind == STEAD_DOUBLE && !a.is_list && a.count == 1 && a.doubles[0] == 0.25);
    OK(stead_stream_step_find_attribute(step, "T", "names", &a, sizeof a, &e));
    CHECK(a.kind == STEAD_TEXT && a.is_list && a.count == 2 && strcmp(a.texts[1], "two") == 0);
    OK(stead_stream_step_find_attribute(step, "T", "valid", &a, sizeof a, &e));
    CHECK(a.kind == STEAD_DOUBLE && a.is_list && a.count == 2 && a.doubles[1] == -2);
    OK(stead_stream_step_find_attribute(step, "T", "none", &a, sizeof a, &e));
    CHECK(a.kind == STEAD_INT && a.is_list && a.count == 0);
    FAILS(STEAD_NOT_FOUND, "no attribute 'x'", stead_stream_step_find_attribute(step, "T", "x", &a, sizeof a, &e));
    FAILS(STEAD_NOT_FOUND, "'U'", stead_stream_step_attribute(step, "U", 0, &a, sizeof a, &e));
    FAILS(STEAD_USAGE, "there are 7", stead_stream_step_attribute(step, "T", 7, &a, sizeof a, &e));

    OK(stead_stream_step_parts(step, "T", 2, writers, starts, counts, &n, &e));
    CHECK(n == 2 && writers[0] == 0 && writers[1] == 0);
    CHECK(starts[0] == 0 && starts[1] == 0 && starts[2] == ROWS / 2 && starts[3] == 0);
    CHECK(counts[0] == ROWS / 2 && counts[1] == COLUMNS && counts[2] == ROWS / 2 && counts[3] == COLUMNS);
    FAILS(STEAD_NOT_FOUND, "'time'", stead_stream_step_parts(step, "time", 0, NULL, NULL, NULL, &n, &e));
    FAILS(STEAD_NOT_FOUND, "'time'", stead_stream_step_get_into(step, "time", NULL, NULL, &back, 8, &e));
    stead_stream_step_free(step);
    step = next(r, 1);
    OK(stead_stream_step_find(step, "time", &v, sizeof v, &e));
    CHECK(v.dtype == STEAD_I64 && v.ndim == 0 && v.dims == NULL && v.attributes == 0);
    OK(stead_stream_step_get_into(step, "time", NULL, NULL, &back, sizeof back, &e));
    CHECK(back == time);
    stead_stream_step_free(step);
    OK(stead_stream_writer_close(w, &e));
    OK(stead_stream_reader_next(r, &step, &e));
    CHECK(step == NULL && stead_stream_reader_is_over(r));
    stead_stream_reader_free(r);
}

static void looks(void) {
    const stead_stream_writer_options wo = writes();
    const stead_stream_reader_options ro = reads();
    stead_stream_writer *w = writer("looks", &wo);
    stead_stream_reader *r;
    stead_stream_step *step = NULL;
    stead_stream_array *row, *both, *part, *close;
    const uint32_t t = field(w);
    uint64_t start[2] = {1, 1}, count[2] = {2, 3};
    float whole[ROWS * COLUMNS], few[6], kept[9];
    const void *data = NULL, *first = NULL;
    int64_t strides[2] = {0, 0};
    size_t copied = 0;
    int i, j, good = 1;

    put(w, t);
    OK(stead_stream_writer_close(w, &e));
    /* A stream that is over is read, too. */
    r = reader("looks", &ro);
    step = next(r, 0);
    OK(stead_stream_step_get_into(step, "T", NULL, NULL, whole, sizeof whole, &e));
    for (i = 0; i < ROWS; i++)
        for (j = 0; j < COLUMNS; j++) good &= whole[i * COLUMNS + j] == value(0, i, j);
    CHECK(good);
    OK(stead_stream_step_get_into(step, "T", start, count, few, sizeof few, &e));
    CHECK(few[0] == value(0, 1, 1) && few[2] == value(0, 1, 3) && few[5] == value(0, 2, 3));
    FAILS(STEAD_USAGE, "24 bytes", stead_stream_step_get_into(step, "T", start, count, few, 20, &e));
    FAILS(STEAD_USAGE, "buffer is NULL", stead_stream_step_get_into(step, "T", start, count, NULL, 24, &e));
    FAILS(STEAD_USAGE, "count is NULL", stead_stream_step_get_into(step, "T", start, NULL, few, 24, &e));
    FAILS(STEAD_NOT_FOUND, "'U'", stead_stream_step_get_into(step, "U", NULL, NULL, few, 24, &e));

    /* In one block: where it was put, by strides. */
    OK(stead_stream_step_view(step, "T", start, count, &first, strides, &part, &e));
    CHECK(stead_stream_array_is_view(part) && strides[0] == COLUMNS * 4 && strides[1] == 4);
    CHECK(((const float *)first)[0] == value(0, 1, 1) && ((const float *)first)[COLUMNS + 2] == value(0, 2, 3));
    /* The same without strides is copied together. */
    OK(stead_stream_step_view(step, "T", start, count, &data, NULL, &close, &e));
    CHECK(!stead_stream_array_is_view(close) && memcmp(data, few, sizeof few) == 0);
    CHECK((uintptr_t)data % 8 == 0);
    stead_stream_array_free(close);
    /* A part of a row lies together anyway. */
    count[0] = 1;
    OK(stead_stream_step_view(step, "T", start, count, &data, NULL, &row, &e));
    CHECK(stead_stream_array_is_view(row) && data == first);
    stead_stream_array_free(row);
    /* In two. */
    start[0] = 2, count[0] = 3;
    OK(stead_stream_step_view(step, "T", start, count, &data, strides, &both, &e));
    CHECK(!stead_stream_array_is_view(both) && strides[0] == 12 && strides[1] == 4);
    memcpy(kept, data, sizeof kept);
    CHECK(kept[0] == value(0, 2, 1) && kept[8] == value(0, 4, 3));
    memset(kept, 0, sizeof kept);
    OK(stead_stream_step_get_what_there_is(step, "T", start, count, kept, sizeof kept, &copied, &e));
    CHECK(copied == sizeof kept && kept[8] == value(0, 4, 3));
    /* None. */
    count[0] = 0;
    OK(stead_stream_step_view(step, "T", start, count, &data, NULL, &row, &e));
    OK(stead_stream_step_get_into(step, "T", start, count, NULL, 0, &e));
    stead_stream_array_free(row);
    count[0] = 5;
    FAILS(STEAD_USAGE, "not within", stead_stream_step_view(step, "T", start, count, &data, strides, &row, &e));
    start[0] = UINT64_MAX;
    FAILS(STEAD_USAGE, "64 bits", stead_stream_step_view(step, "T", start, count, &data, strides, &row, &e));
    CHECK(row == NULL);

    /* Views outlive their step and its reader. */
    stead_stream_step_free(step);
    stead_stream_reader_free(r);
    CHECK(((const float *)first)[COLUMNS + 2] == value(0, 2, 3));
    stead_stream_array_free(part);
    CHECK(!stead_stream_array_is_view(part));
    SAYS(stead_last_message(), "the array was freed");
    stead_stream_array_free(part);
    stead_stream_array_free(both);
    stead_stream_array_free(NULL);
}

static void waits(void) {
    stead_stream_writer_options wo = writes();
    stead_stream_reader_options ro = reads();
    stead_stream_writer *w;
    stead_stream_reader *r = NULL;
    stead_stream_step *step = NULL, *old = NULL;
    uint64_t numbers[2] = {9, 9};
    stead_stream_survey su = surveys();
    const char *others[1] = {"n7"};
    size_t n = 0;
    uint32_t t;
    char *json = NULL;

    ro.timeout_ms = 1;
    FAILS(STEAD_TIMEOUT, "nobody writes a stream 'waits'", stead_stream_reader_open("waits", &ro, &r, &e));
    CHECK(r == NULL);
    /* Other nodes, of which there are none here: a name is wrong, and no names are none to ask. */
    ro.nodes = others;
    ro.nodes_count = 1;
    FAILS(STEAD_PEER, "node 'n7' is not reached", stead_stream_reader_open("waits", &ro, &r, &e));
    ro.nodes_count = 0;
    FAILS(STEAD_TIMEOUT, "nobody writes a stream 'waits'", stead_stream_reader_open("waits", &ro, &r, &e));
    ro.nodes = NULL;
    ro.nodes_count = 1;
    FAILS(STEAD_USAGE, "nodes is NULL", stead_stream_reader_open("waits", &ro, &r, &e));
    ro.nodes_count = 0;
    wo.keep = 3;
    wo.queue = 2;
    w = writer("waits", &wo);
    t = field(w);
    r = reader("waits", &ro);
    FAILS(STEAD_TIMEOUT, "step 0 of stream 'waits' has not come: writer 0", stead_stream_reader_next(r, &step, &e));
    OK(stead_stream_reader_next_within(r, 1, &step, &e));
    CHECK(step == NULL && !stead_stream_reader_is_over(r));
    put(w, t);
    put(w, t);
    OK(stead_stream_reader_steps(r, numbers, 1, &n, &e));
    CHECK(n == 2 && numbers[0] == 0 && numbers[1] == 9);
    OK(stead_stream_reader_steps(r, NULL, 0, &n, &e));
    OK(stead_stream_reader_next_within(r, 0, &step, &e));
    CHECK(step != NULL && stead_stream_step_number(step) == 0);
    stead_stream_step_free(step);
    step = next(r, 1);
    OK(stead_stream_reader_at(r, 0, &old, &e));
    CHECK(stead_stream_step_number(old) == 0);
    stead_stream_step_free(old);
    FAILS(STEAD_NOT_FOUND, "those from 0 to 1 are", stead_stream_reader_at(r, 5, &old, &e));
    CHECK(old == NULL);

    OK(stead_stream_list(&su, &json, &e));
    SAYS(json, "\"waits\"");
    stead_text_free(json);
    OK(stead_stream_describe(&su, "waits", &json, &e));
    SAYS(json, "\"state\": \"live\"");
    SAYS(json, "\"keep\": 3");
    SAYS(json, "\"others\": []");
    stead_text_free(json);
    FAILS(STEAD_NOT_FOUND, "'other'", stead_stream_describe(&su, "other", &json, &e));
    /* Nodes of a pool, of which there is none. */
    su.nodes = others;
    su.nodes_count = 1;
    FAILS(STEAD_PEER, "is not reached", stead_stream_list(&su, &json, &e));
    su.nodes_count = 0;
    OK(stead_stream_list(&su, &json, &e));
    SAYS(json, "\"waits\"");
    stead_text_free(json);
    su.nodes = NULL;
    su.nodes_count = 1;
    FAILS(STEAD_USAGE, "nodes is NULL", stead_stream_list(&su, &json, &e));
    su.size = 1;
    FAILS(STEAD_USAGE, "no size of stead_stream_survey", stead_stream_list(&su, &json, &e));
    su = surveys();
    FAILS(STEAD_NOT_FOUND, "'other'", stead_stream_remove(spaces, 1, "other", true, &e));
    FAILS(STEAD_USAGE, "being written or read", stead_stream_remove(spaces, 1, "waits", false, &e));
    su.dataspaces = (const char *[]){"x"};
    FAILS(STEAD_USAGE, "no dataspace", stead_stream_list(&su, &json, &e));
    CHECK(json == NULL);
    FAILS(STEAD_USAGE, "no dataspace", stead_stream_remove_on_nodes(&su, "waits", true, &json, &e));
    su = surveys();
    FAILS(STEAD_NOT_FOUND, "'other'", stead_stream_remove_on_nodes(&su, "other", true, &json, &e));
    FAILS(STEAD_USAGE, "being written or read", stead_stream_remove_on_nodes(&su, "waits", false, &json, &e));
    FAILS(STEAD_USAGE, "no stream of other nodes", stead_stream_remove_on_nodes(&su, "./waits", true, &json, &e));
    su.nodes = others;
    su.nodes_count = 1;
    FAILS(STEAD_PEER, "is not reached", stead_stream_remove_on_nodes(&su, "waits", true, &json, &e));
    CHECK(json == NULL);
    su = surveys();
    OK(stead_stream_remove_on_nodes(&su, "waits", true, &json, &e));
    SAYS(json, "\"name\": \"waits\"");
    stead_text_free(json);
    FAILS(STEAD_NOT_FOUND, "'waits'", stead_stream_remove(spaces, 1, "waits", true, &e));
    FAILS(STEAD_PEER, "removed", stead_stream_writer_begin(w, NULL, &e));
    stead_stream_step_free(step);
    FAILS(STEAD_PEER, "removed", stead_stream_reader_next(r, &step, &e));
    stead_stream_writer_free(w);
    stead_stream_reader_free(r);
}

static void gives_up(void) {
    const stead_stream_writer_options wo = writes();
    const stead_stream_reader_options ro = reads();
    stead_stream_writer *w = writer("given-up", &wo);
    stead_stream_reader *r;
    stead_stream_step *step;
    put(w, field(w));
    OK(stead_stream_writer_abandon(w, &e));
    FAILS(STEAD_USAGE, "freed", stead_stream_writer_abandon(w, &e));
    r = reader("given-up", &ro);
    /* What is complete comes first. */
    step = next(r, 0);
    stead_stream_step_free(step);
    FAILS(STEAD_PEER, "writer 0 of stream 'given-up'", stead_stream_reader_next(r, &step, &e));
    CHECK(step == NULL && stead_stream_reader_is_over(r));
    stead_stream_reader_free(r);

    /* Freed within a step it is given up, too; outside it is closed. */
    w = writer("freed", &wo);
    put(w, field(w));
    OK(stead_stream_writer_begin(w, NULL, &e));
    stead_stream_writer_free(w);
    r = reader("freed", &ro);
    stead_stream_step_free(next(r, 0));
    FAILS(STEAD_PEER, "writer 0 of stream 'freed'", stead_stream_reader_next(r, &step, &e));
    stead_stream_reader_free(r);
    w = writer("freed", &wo);
    put(w, field(w));
    stead_stream_writer_free(w);
    r = reader("freed", &ro);
    stead_stream_step_free(next(r, 0));
    OK(stead_stream_reader_next(r, &step, &e));
    CHECK(step == NULL);
    stead_stream_reader_free(r);
    w = writer("freed", &wo);
    OK(stead_stream_writer_begin(w, NULL, &e));
    FAILS(STEAD_USAGE, "closed within step 0", stead_stream_writer_close(w, &e));
    FAILS(STEAD_USAGE, "freed", stead_stream_writer_close(w, &e));
}

static void wrong_arguments(void) {
    stead_stream_survey su = surveys();
    stead_stream_writer_options wo = writes();
    stead_stream_reader_options ro = reads();
    stead_stream_writer *w = NULL, *other = NULL;
    stead_coupling *part = NULL;
    int asked = 0;
    stead_stream_reader *r = NULL;
    stead_stream_step *step = NULL, *none = NULL;
    stead_stream_room *room = NULL, *again = NULL;
    stead_stream_variable v;
    const uint64_t shape[2] = {ROWS, COLUMNS};
    const char *same[2] = {"x", "x"};
    uint64_t start[2] = {0, 0}, count[2] = {1, COLUMNS};
    float row[COLUMNS] = {0};
    void *memory = NULL;
    uint32_t t = 0;
    char *json = NULL;

    FAILS(STEAD_USAGE, "NULL", stead_stream_writer_open("w", &wo, NULL, &e));
    FAILS(STEAD_USAGE, "name is NULL", stead_stream_writer_open(NULL, &wo, &w, &e));
    FAILS(STEAD_USAGE, "no name for a stream", stead_stream_writer_open("../w", &wo, &w, &e));
    wo.size = 8;
    FAILS(STEAD_USAGE, "no size of stead_stream_writer_options", stead_stream_writer_open("w", &wo, &w, &e));
    wo = writes();
    wo.writers = 2, wo.rank = 2;
    FAILS(STEAD_USAGE, "writer 2", stead_stream_writer_open("w", &wo, &w, &e));
    wo = writes();
    wo.queue = UINT64_MAX;
    FAILS(STEAD_USAGE, "too many", stead_stream_writer_open("w", &wo, &w, &e));
    wo = writes();
    wo.keep = STEAD_STREAM_KEEP_NONE;
    w = writer("w", &wo);
    FAILS(STEAD_USAGE, "already", stead_stream_writer_open("w", &wo, &other, &e));
    wo.keep = 2;
    FAILS(STEAD_USAGE, "keep 0", stead_stream_writer_open("w", &wo, &other, &e));
    CHECK(other == NULL);

    FAILS(STEAD_USAGE, "NULL", stead_stream_writer_define(w, "T", STEAD_F32, 2, shape, NULL, NULL, &e));
    FAILS(STEAD_USAGE, "NULL", stead_stream_writer_define(w, NULL, STEAD_F32, 2, shape, NULL, &t, &e));
    FAILS(STEAD_USAGE, "shape is NULL", stead_stream_writer_define(w, "T", STEAD_F32, 2, NULL, NULL, &t, &e));
    FAILS(STEAD_USAGE, "number 99", stead_stream_writer_define(w, "T", 99, 2, shape, NULL, &t, &e));
    FAILS(STEAD_USAGE, "two dimensions", stead_stream_writer_define(w, "T", STEAD_F32, 2, shape, same, &t, &e));
    FAILS(STEAD_USAGE, "NULL", stead_stream_writer_define(NULL, "T", STEAD_F32, 2, shape, NULL, &t, &e));
    t = field(w);
    FAILS(STEAD_USAGE, "not begun", stead_stream_writer_put(w, t, start, count, row, &e));
    FAILS(STEAD_USAGE, "not begun", stead_stream_writer_end(w, &e));
    OK(stead_stream_writer_begin(w, NULL, &e));
    FAILS(STEAD_USAGE, "was begun", stead_stream_writer_begin(w, NULL, &e));
    FAILS(STEAD_USAGE, "no variable 7", stead_stream_writer_put(w, 7, start, count, row, &e));
    FAILS(STEAD_USAGE, "no variable 7", stead_stream_writer_fits(w, 7, 2, 2, &e));
    FAILS(STEAD_USAGE, "has 2 dimensions", stead_stream_writer_fits(w, t, 2, 3, &e));
    OK(stead_stream_writer_fits(w, t, 2, 2, &e));
    FAILS(STEAD_USAGE, "no variable 7", stead_stream_writer_is(w, 7, STEAD_F32, 2, &e));
    FAILS(STEAD_USAGE, "number 99", stead_stream_writer_is(w, t, 99, 2, &e));
    FAILS(STEAD_USAGE, "2 dimensions of type f32 by now, and not 2 of type f64", stead_stream_writer_is(w, t, STEAD_F64, 2, &e));
    FAILS(STEAD_USAGE, "not 1 of type f32", stead_stream_writer_is(w, t, STEAD_F32, 1, &e));
    OK(stead_stream_writer_is(w, t, STEAD_F32, 2, &e));
    FAILS(STEAD_USAGE, "data is NULL", stead_stream_writer_put(w, t, start, count, NULL, &e));
    FAILS(STEAD_USAGE, "start is NULL", stead_stream_writer_put(w, t, NULL, count, row, &e));
    start[0] = ROWS;
    FAILS(STEAD_USAGE, "does not lie in its shape", stead_stream_writer_put(w, t, start, count, row, &e));
    start[0] = UINT64_MAX;
    FAILS(STEAD_USAGE, "64 bits", stead_stream_writer_put(w, t, start, count, row, &e));
    start[0] = 0;
    count[0] = UINT64_MAX;
    FAILS(STEAD_USAGE, "", stead_stream_writer_empty(w, t, start, count, &memory, &room, &e));
    CHECK(memory == NULL && room == NULL);
    count[0] = 1;
    FAILS(STEAD_USAGE, "NULL", stead_stream_writer_empty(w, t, start, count, &memory, NULL, &e));
    FAILS(STEAD_USAGE, "NULL", stead_stream_writer_empty(w, t, start, count, NULL, &room, &e));

    /* Rooms: freed, of another writer, of no writer, and what is none. */
    OK(stead_stream_writer_empty(w, t, start, count, &memory, &room, &e));
    stead_stream_room_free(room);
    stead_stream_room_free(room);
    stead_stream_room_free(NULL);
    FAILS(STEAD_USAGE, "the room was freed", stead_stream_writer_put_room(w, room, &e));
    FAILS(STEAD_USAGE, "NULL", stead_stream_writer_put_room(w, NULL, &e));
    FAILS(STEAD_USAGE, "a room is needed", stead_stream_writer_put_room(w, (stead_stream_room *)w, &e));
    OK(stead_stream_writer_empty(w, t, start, count, &memory, &room, &e));
    wo = writes();
    other = writer("other", &wo);
    CHECK(field(other) == t);
    OK(stead_stream_writer_begin(other, NULL, &e));
    FAILS(STEAD_USAGE, "NULL", stead_stream_writer_put_room(NULL, room, &e));
    FAILS(STEAD_USAGE, "another writer", stead_stream_writer_put_room(other, room, &e));
    FAILS(STEAD_USAGE, "freed", stead_stream_writer_put_room(w, room, &e));
    /* No elements have no memory, and can be put. */
    count[0] = 0;
    OK(stead_stream_writer_empty(w, t, start, count, &memory, &room, &e));
    CHECK(memory == NULL);
    OK(stead_stream_writer_put_room(w, room, &e));
    OK(stead_stream_writer_put(w, t, start, count, NULL, &e));
    count[0] = 1;
    /* One that outlives its writer. */
    OK(stead_stream_writer_empty(w, t, start, count, &memory, &again, &e));
    OK(stead_stream_writer_put(w, t, start, count, row, &e));
    OK(stead_stream_writer_end(w, &e));
    OK(stead_stream_writer_close(w, &e));
    stead_stream_writer_free(w);
    memcpy(memory, row, sizeof row);
    FAILS(STEAD_USAGE, "the stream writer was freed", stead_stream_writer_put_room(w, again, &e));
    stead_stream_room_free(again);
    FAILS(STEAD_USAGE, "freed", stead_stream_writer_begin(w, NULL, &e));
    FAILS(STEAD_USAGE, "freed", stead_stream_writer_end(w, &e));
    FAILS(STEAD_USAGE, "freed", stead_stream_writer_put(w, t, start, count, row, &e));
    FAILS(STEAD_USAGE, "freed", stead_stream_writer_empty(w, t, start, count, &memory, &room, &e));
    FAILS(STEAD_USAGE, "NULL", stead_stream_writer_close(NULL, &e));
    OK(stead_stream_writer_put(other, t, start, count, row, &e));
    OK(stead_stream_writer_end(other, &e));
    stead_stream_writer_free(other);
    stead_stream_writer_free(NULL);

    FAILS(STEAD_USAGE, "NULL", stead_stream_reader_open("w", &ro, NULL, &e));
    ro.start = 7;
    FAILS(STEAD_USAGE, "no start", stead_stream_reader_open("w", &ro, &r, &e));
    ro = reads();
    ro.behind = -1;
    FAILS(STEAD_USAGE, "behind", stead_stream_reader_open("w", &ro, &r, &e));
    ro = reads();
    ro.ranks = 2, ro.rank = 2;
    FAILS(STEAD_USAGE, "none of 2", stead_stream_reader_open("w", &ro, &r, &e));
    ro = reads();
    ro.size = 1;
    FAILS(STEAD_USAGE, "no size of stead_stream_reader_options", stead_stream_reader_open("w", &ro, &r, &e));
    ro = reads();
    ro.group = "analysis";
    r = reader("w", &ro);
    FAILS(STEAD_USAGE, "NULL", stead_stream_reader_next(r, NULL, &e));
    FAILS(STEAD_USAGE, "NULL", stead_stream_reader_next(NULL, &step, &e));
    FAILS(STEAD_USAGE, "NULL", stead_stream_reader_steps(r, NULL, 0, NULL, &e));
    /* No step was kept for it. */
    OK(stead_stream_reader_next(r, &step, &e));
    CHECK(step == NULL && stead_stream_reader_is_over(r));
    stead_stream_reader_free(r);
    r = reader("other", &ro);
    step = next(r, 0);
    FAILS(STEAD_USAGE, "a stream reader is needed", stead_stream_reader_next((stead_stream_reader *)step, &none, &e));
    CHECK(none == NULL);
    stead_stream_step_free(step);
    FAILS(STEAD_USAGE, "the step was freed", stead_stream_step_find(step, "T", &v, sizeof v, &e));
    CHECK(!stead_stream_reader_is_over(NULL));
    FAILS(STEAD_USAGE, "NULL", stead_stream_step_find(NULL, "T", &v, sizeof v, &e));
    CHECK(stead_stream_step_number(NULL) == 0 && stead_stream_step_variables((stead_stream_step *)r) == 0);
    stead_stream_reader_free(r);
    FAILS(STEAD_USAGE, "freed", stead_stream_reader_next(r, &step, &e));
    stead_stream_reader_free(r);
    /* With ranks that are there tests of MPI do it. */
    FAILS(STEAD_PEER, "no ranks today", stead_coupling_new(no_ranks, &asked, "sim", spaces, 1, 0, &part, &e));
    FAILS(STEAD_USAGE, "makes a fabric", stead_coupling_new(NULL, NULL, "sim", spaces, 1, 0, &part, &e));
    CHECK(asked == 1 && part == NULL);
    CHECK(stead_coupling_rank(NULL) == 0 && stead_coupling_ranks((stead_coupling *)r) == 0 && stead_coupling_part(NULL) == 0);
    CHECK(stead_coupling_member(NULL, 0) == 0 && stead_coupling_member((stead_coupling *)r, UINT64_MAX) == 0);
    wo = writes();
    wo.coupling = (stead_coupling *)r;
    FAILS(STEAD_USAGE, "", stead_stream_writer_open("coupled", &wo, &w, &e));
    stead_coupling_free(NULL);
    su = surveys();
    FAILS(STEAD_USAGE, "NULL", stead_stream_list(&su, NULL, &e));
    su.dataspaces = NULL;
    FAILS(STEAD_USAGE, "dataspaces is NULL", stead_stream_list(&su, &json, &e));
}

/* What a subscription has called so far: the steps, whether the stream has ended, and by which error. */
static struct {
    uint64_t steps[8];
    int n, ended, failed;
    char why[512];
} called;

static void call(stead_stream_step *step, stead_error *error, void *user) {
    CHECK(user == &called && called.n < 8);
    if (step) called.steps[called.n++] = stead_stream_step_number(step);
    else if (error) {
        called.failed = (int)stead_error_kind(error);
        snprintf(called.why, sizeof called.why, "%s", stead_error_message(error));
    } else called.ended = 1;
    stead_stream_step_free(step);
    stead_error_free(error);
}

/* A very step, steps that come to a function, and what writers are told of readers. */
static void comes(void) {
    stead_stream_survey su = surveys();
    uint64_t shape[1] = {1}, start[1] = {0}, count[1] = {1};
    stead_stream_writer_options wo = writes();
    stead_stream_reader_options ro = reads();
    stead_stream_writer *w;
    stead_stream_reader *r;
    stead_stream_step *step = NULL;
    stead_stream_subscription *s = NULL;
    char *json = NULL;
    uint32_t t = 0;
    double value = 0;
    int n;
    wo.keep = 8;
    w = writer("comes", &wo);
    OK(stead_stream_writer_define(w, "T", STEAD_F64, 1, shape, NULL, &t, &e));
    for (n = 0; n < 4; n++) {
        OK(stead_stream_writer_begin(w, NULL, &e));
        value = n;
        OK(stead_stream_writer_put(w, t, start, count, &value, &e));
        OK(stead_stream_writer_end(w, &e));
    }
    r = reader("comes", &ro);
    OK(stead_stream_reader_wait_for(r, "T", 2, 60000, &step, &e));
    CHECK(stead_stream_step_number(step) == 2);
    OK(stead_stream_step_get_into(step, "T", start, count, &value, sizeof value, &e));
    CHECK(value == 2);
    OK(stead_stream_step_report(step, &json, &e));
    CHECK(strstr(json, "\"copied\"") && strstr(json, "\"copy_cpu_s\"") && strstr(json, "\"waited_s\""));
    stead_text_free(json);
    OK(stead_stream_reader_report(r, &json, &e));
    CHECK(strstr(json, "\"dropped\"") && strstr(json, "\"peak_steps\""));
    stead_text_free(json);
    OK(stead_stream_explain(&su, "comes", 2, &json, &e));
    CHECK(strstr(json, "\"assumed\"") && strstr(json, "\"is_sent\"") && strstr(json, "\"warnings\""));
    stead_text_free(json);
    FAILS(STEAD_NOT_FOUND, "'none'", stead_stream_explain(&su, "none", 0, &json, &e));
    stead_stream_step_free(step);
    FAILS(STEAD_USAGE, "freed", stead_stream_step_report(step, &json, &e));
    FAILS(STEAD_NOT_FOUND, "no variable 'U'", stead_stream_reader_wait_for(r, "U", 3, 60000, &step, &e));
    FAILS(STEAD_TIMEOUT, "step 9", stead_stream_reader_wait_for(r, "T", 9, 10, &step, &e));
    CHECK(step == NULL);
    stead_stream_reader_free(r);
    OK(stead_stream_writer_events(w, &json, &e));
    CHECK(strstr(json, "\"here\"") && strstr(json, "\"left\""));
    CHECK(strstr(json, "\"had_ranges\"") && strstr(json, "\"had_before\""));
    stead_text_free(json);
    FAILS(STEAD_USAGE, "freed", stead_stream_reader_report(r, &json, &e));
    OK(stead_stream_writer_report(w, &json, &e));
    CHECK(strstr(json, "\"put\"") && strstr(json, "\"waits\"") && strstr(json, "\"last\""));
    stead_text_free(json);
    FAILS(STEAD_USAGE, "NULL", stead_stream_writer_report(w, NULL, &e));
    r = reader("comes", &ro);
    FAILS(STEAD_USAGE, "NULL", stead_stream_subscribe(r, NULL, &called, &s, &e));
    OK(stead_stream_subscribe(r, call, &called, &s, &e));
    FAILS(STEAD_USAGE, "freed", stead_stream_reader_next(r, &step, &e));
    OK(stead_stream_writer_close(w, &e));
    OK(stead_stream_subscription_join(s, &e));
    CHECK(called.n == 4 && called.steps[0] == 0 && called.steps[3] == 3 && called.ended && !called.failed);
    FAILS(STEAD_USAGE, "freed", stead_stream_subscription_join(s, &e));
    CHECK(stead_stream_subscription_is_over(s));
    stead_stream_subscription_free(s);
    stead_stream_subscription_free(NULL);
    /* Of a writer that ends no step. */
    memset(&called, 0, sizeof called);
    wo = writes();
    w = writer("hangs", &wo);
    OK(stead_stream_writer_begin(w, NULL, &e));
    ro.timeout_ms = 200;
    r = reader("hangs", &ro);
    OK(stead_stream_subscribe(r, call, &called, &s, &e));
    OK(stead_stream_subscription_join(s, &e));
    CHECK(called.n == 0 && !called.ended && called.failed == STEAD_TIMEOUT);
    CHECK(strstr(called.why, "step 0 of stream 'hangs' has not come: writer 0"));
    OK(stead_stream_writer_abandon(w, &e));
    stead_stream_remove(spaces, 1, "hangs", true, NULL);
}

/* In memory: `test_stream FOLDER`. */
/* Steps in files: all of them, read again, and those that a reader is behind by. */
static void outlives(void) {
    stead_stream_survey su = surveys();
    stead_stream_writer_options wo = writes();
    stead_stream_reader_options ro = reads();
    char files[4096], disk[4096];
    const char *both[2];
    stead_stream_writer *w = NULL;
    stead_stream_reader *r, *late = NULL;
    stead_stream_step *step;
    char *json = NULL;
    float one = 0;
    uint64_t start[2] = {3, 2}, count[2] = {1, 1}, i;
    uint32_t t;
    snprintf(files, sizeof files, "%s/files", given + strlen("memory="));
    wo.persist = files;
    w = writer("outlives", &wo);
    t = field(w);
    for (i = 0; i < 5; i++) put(w, t);
    /* From the first one on, while it goes on. */
    ro.start = STEAD_STREAM_FIRST;
    ro.behind = STEAD_STREAM_SPILL;
    late = reader("outlives", &ro);
    for (i = 0; i < 5; i++) {
        step = next(late, i);
        OK(stead_stream_step_get_into(step, "T", start, count, &one, sizeof one, &e));
        CHECK(one == value(i, 3, 2));
        stead_stream_step_free(step);
    }
    put(w, t);
    stead_stream_step_free(next(late, 5));
    OK(stead_stream_writer_close(w, &e));
    stead_stream_reader_free(late);
    /* As a stream, by its folder. */
    ro = reads();
    r = reader(files, &ro);
    for (i = 0; i < 6; i++) stead_stream_step_free(next(r, i));
    OK(stead_stream_reader_next(r, &step, &e));
    CHECK(step == NULL && stead_stream_reader_is_over(r));
    OK(stead_stream_reader_at(r, 2, &step, &e));
    OK(stead_stream_step_get_into(step, "T", start, count, &one, sizeof one, &e));
    CHECK(one == value(2, 3, 2));
    stead_stream_step_free(step);
    stead_stream_reader_free(r);
    OK(stead_stream_describe(&su, files, &json, &e));
    SAYS(json, "\"complete\": 6");
    stead_text_free(json);
    OK(stead_stream_recordings(spaces, 1, files, &json, &e));
    SAYS(json, "\"name\": \"outlives\"");
    SAYS(json, "\"steps\": 6");
    SAYS(json, "\"is_whole\": true");
    stead_text_free(json);
    FAILS(STEAD_USAGE, "location is NULL", stead_stream_recordings(spaces, 1, NULL, &json, &e));
    FAILS(STEAD_USAGE, "were recorded here before", stead_stream_writer_open("other", &wo, &w, &e));
    wo.spill = files;
    FAILS(STEAD_USAGE, "spills there, too", stead_stream_writer_open("other", &wo, &w, &e));
    OK(stead_stream_remove(spaces, 1, files, false, &e));
    FAILS(STEAD_NOT_FOUND, "files", stead_stream_reader_open(files, &ro, &r, &e));
    FAILS(STEAD_NOT_FOUND, "files", stead_stream_recordings(spaces, 1, files, &json, &e));
    CHECK(json == NULL);
    /* Not recorded at all. */
    wo = writes();
    wo.spill_limit = 1;
    FAILS(STEAD_USAGE, "a limit for what spills", stead_stream_writer_open("other", &wo, &w, &e));
    /* In whatever dataspace has room: none in memory. */
    snprintf(disk, sizeof disk, "disk=%s", given + strlen("memory="));
    both[0] = given;
    both[1] = disk;
    wo.dataspaces = both;
    wo.dataspaces_count = 2;
    wo.spill = "auto";
    wo.spill_limit = UINT64_MAX;
    FAILS(STEAD_NO_SPACE, "no dataspace has room", stead_stream_writer_open("large", &wo, &w, &e));
    wo = writes();
    w = writer("plain", &wo);
    ro.start = STEAD_STREAM_FIRST;
    FAILS(STEAD_USAGE, "not recorded", stead_stream_reader_open("plain", &ro, &r, &e));
    ro.start = 3;
    FAILS(STEAD_USAGE, "no start has the number 3", stead_stream_reader_open("plain", &ro, &r, &e));
    OK(stead_stream_writer_close(w, &e));
}

/* A group with a queue and a keep of its own: a monitor of the newest step. */
static void has_its_own_numbers(void) {
    stead_stream_survey su = surveys();
    stead_stream_writer_options wo = writes();
    stead_stream_reader_options ro = reads();
    stead_stream_writer *w = writer("own", &wo);
    stead_stream_reader *r = NULL;
    stead_stream_step *step = NULL;
    char *json = NULL;
    uint64_t i;
    const uint32_t t = field(w);
    ro.group = "live";
    ro.behind = STEAD_STREAM_DROP;
    ro.queue = 1;
    ro.keep = 1000;
    FAILS(STEAD_USAGE, "queue 1, keep 1000", stead_stream_reader_open("own", &ro, &r, &e));
    ro.keep = 2;
    r = reader("own", &ro);
    for (i = 0; i < 6; i++) {
        put(w, t);
        if (i % 2) stead_stream_step_free(next(r, i));
    }
    OK(stead_stream_reader_at(r, 3, &step, &e));
    CHECK(stead_stream_step_number(step) == 3);
    stead_stream_step_free(step);
    FAILS(STEAD_NOT_FOUND, "step 1 of stream 'own' is not there", stead_stream_reader_at(r, 1, &step, &e));
    OK(stead_stream_describe(&su, "own", &json, &e));
    SAYS(json, "\"group\": \"live\"");
    SAYS(json, "\"behind\": \"drop\"");
    SAYS(json, "\"queue\": 1,");
    SAYS(json, "\"keep\": 2");
    stead_text_free(json);
    stead_stream_reader_free(r);
    OK(stead_stream_writer_close(w, &e));
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    snprintf(given, sizeof given, "memory=%s", argv[1]);
    variables();
    looks();
    waits();
    gives_up();
    wrong_arguments();
    comes();
    outlives();
    has_its_own_numbers();
    CHECK(stead_handles_alive() == 0);
    return ended("stream");
}
