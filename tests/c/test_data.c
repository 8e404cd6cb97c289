/* Versions, errors, options, datasets, memory that is lent, and all that can be done wrong with them. */

#include "check.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char PEOPLE[] = "name,age,zip\nJane,41,01234\nJoe,NA,99999\nAnn,29,00007\n";
static int released = 0;

static void on_release(void *user) { *(int *)user += 1; }

static stead_dataset *people(void) {
    stead_dataset *d = NULL;
    stead_error *e = NULL;
    OK(stead_open_bytes("people.csv", PEOPLE, sizeof PEOPLE - 1, NULL, NULL, NULL, &d, &e));
    return d;
}

static double run_one(stead_dataset *d, const char *spec) {
    stead_error *e = NULL;
    stead_request *q = NULL;
    stead_report *r = NULL;
    double x = -1;
    OK(stead_request_new(&q, &e));
    OK(stead_request_kernel(q, spec, &e));
    OK(stead_run(d, q, &r, &e));
    OK(stead_report_double(r, spec, &x, &e));
    stead_report_free(r);
    stead_request_free(q);
    return x;
}

static void versions(void) {
    CHECK(strcmp(stead_version(), STEAD_VERSION) == 0);
    SAYS(stead_kernels_json(), "\"name\": \"mean\"");
    CHECK(strcmp(stead_status_name(STEAD_OK), "ok") == 0);
    CHECK(strcmp(stead_status_name(STEAD_NOT_FOUND), "not found") == 0);
    CHECK(strcmp(stead_status_name(4711), "unknown") == 0);
    {
        stead_error *e = NULL;
        uint64_t n = 0;
        OK(stead_parse_size("2KiB", &n, &e));
        CHECK(n == 2048);
        FAILS(STEAD_USAGE, "", stead_parse_size("much", &n, &e));
        FAILS(STEAD_USAGE, "NULL", stead_parse_size(NULL, &n, &e));
        FAILS(STEAD_USAGE, "NULL", stead_parse_size("1", NULL, &e));
    }
}

static void errors(void) {
    stead_error *e = NULL;
    stead_dataset *d = (stead_dataset *)&e;
    uint64_t offset = 7;
    CHECK(stead_open("no/such/file.csv", NULL, &d, &e) == STEAD_NOT_FOUND);
    CHECK(d == NULL && e != NULL);
    CHECK(stead_error_kind(e) == STEAD_NOT_FOUND);
    SAYS(stead_error_message(e), "no/such/file.csv");
    SAYS(stead_error_what(e), "no such file");
    SAYS(stead_error_path(e), "no/such/file.csv");
    CHECK(stead_error_column(e) == NULL && stead_error_line(e) == 0);
    CHECK(!stead_error_offset(e, &offset) && offset == 7);
    CHECK(!stead_error_is_retryable(e));
    stead_error_free(e);
    /* Freed, and freed again: told, and no crash. */
    CHECK(stead_error_kind(e) == STEAD_OK && stead_error_message(e) == NULL);
    CHECK(stead_error_what(e) == NULL && stead_error_hint(e) == NULL && stead_error_path(e) == NULL);
    SAYS(stead_last_message(), "was freed");
    stead_error_free(e);
    stead_error_free(NULL);
    CHECK(stead_error_kind(NULL) == STEAD_OK && stead_error_message(NULL) == NULL);
    CHECK(!stead_error_offset(NULL, NULL) && stead_error_line(NULL) == 0);
    /* Nobody need look at the error, nor at the answer. */
    CHECK(stead_open("no/such/file.csv", NULL, &d, NULL) == STEAD_NOT_FOUND);
    CHECK(stead_open("no/such/file.csv", NULL, NULL, NULL) == STEAD_USAGE);
    CHECK(stead_open(NULL, NULL, &d, NULL) == STEAD_USAGE);
    CHECK(stead_open("\xff\xfe", NULL, &d, NULL) == STEAD_USAGE);
    SAYS(stead_last_message(), "UTF-8");
}

static void bad_values(void) {
    static const char text[] = "id,bytes\n1,100\n2,abc\n";
    stead_error *e = NULL;
    stead_dataset *d = NULL;
    stead_request *q = NULL;
    stead_report *r = NULL;
    stead_options *o = NULL;
    OK(stead_options_new(&o, &e));
    OK(stead_options_set(o, "column-type", "bytes=number", &e));
    OK(stead_open_bytes("broken.csv", text, sizeof text - 1, o, NULL, NULL, &d, &e));
    OK(stead_request_new(&q, &e));
    OK(stead_request_kernel(q, "sum:bytes", &e));
    CHECK(stead_run(d, q, &r, &e) == STEAD_DATA && r == NULL);
    CHECK(stead_error_line(e) == 3);
    CHECK(stead_error_column(e) && strcmp(stead_error_column(e), "bytes") == 0);
    CHECK(stead_error_path(e) && strcmp(stead_error_path(e), "broken.csv") == 0);
    SAYS(stead_error_hint(e), "");
    stead_error_free(e);
    OK(stead_request_lenient(q, true, &e));
    OK(stead_run(d, q, &r, &e));
    {
        stead_metrics m;
        OK(stead_report_metrics(r, &m, sizeof m, &e));
        CHECK(m.rows_skipped == 1 && m.passes == 1 && m.rows_counted);
        FAILS(STEAD_USAGE, "no size of stead_metrics", stead_report_metrics(r, &m, 3, &e));
        FAILS(STEAD_USAGE, "NULL", stead_report_metrics(r, NULL, sizeof m, &e));
    }
    stead_report_free(r);
    stead_request_free(q);
    stead_dataset_free(d);
    stead_options_free(o);
}

static void options(void) {
    static const char text[] = "# weights\na;-;3\nb;4;5\n";
    static const char *names[] = {"who", "x", "y"};
    static const char *tokens[] = {"-"};
    static const uint64_t shape[] = {2, 3};
    static const uint8_t raw[] = {9, 9, 1, 2, 3, 4, 5, 6};
    stead_error *e = NULL;
    stead_options *o = NULL;
    stead_dataset *d = NULL;
    uint64_t dims[4] = {0};
    OK(stead_options_new(&o, &e));
    OK(stead_options_set(o, "type", "csv", &e));
    OK(stead_options_set(o, "delimiter", ";", &e));
    OK(stead_options_set(o, "header", "no", &e));
    OK(stead_options_set(o, "comment", "#", &e));
    OK(stead_options_set_names(o, names, 3, &e));
    OK(stead_options_set_missing(o, tokens, 1, &e));
    OK(stead_open_bytes("w", text, sizeof text - 1, o, NULL, NULL, &d, &e));
    CHECK(stead_dataset_column_count(d) == 3);
    CHECK(run_one(d, "sum:x") == 4 && run_one(d, "sum:y") == 8);
    stead_dataset_free(d);
    FAILS(STEAD_USAGE, "no option 'nope'", stead_options_set(o, "nope", "1", &e));
    FAILS(STEAD_USAGE, "one byte", stead_options_set(o, "delimiter", "ab", &e));
    FAILS(STEAD_USAGE, "NULL", stead_options_set(o, NULL, "1", &e));
    FAILS(STEAD_USAGE, "NULL", stead_options_set(o, "type", NULL, &e));
    FAILS(STEAD_USAGE, "NULL", stead_options_set(NULL, "type", "csv", &e));
    FAILS(STEAD_USAGE, "NULL", stead_options_set_names(o, NULL, 1, &e));
    names[1] = NULL;
    FAILS(STEAD_USAGE, "NULL", stead_options_set_names(o, names, 3, &e));
    FAILS(STEAD_USAGE, "NULL", stead_options_set_missing(o, NULL, 2, &e));
    FAILS(STEAD_USAGE, "NULL", stead_options_set_shape(o, NULL, 2, &e));
    FAILS(STEAD_USAGE, "fit no memory", stead_options_set_shape(o, shape, (size_t)-1, &e));
    OK(stead_options_set_shape(o, shape, 2, &e));
    FAILS(STEAD_USAGE, "", stead_open_bytes("w", text, sizeof text - 1, o, NULL, NULL, &d, &e));
    stead_options_free(o);
    FAILS(STEAD_USAGE, "was freed", stead_options_set(o, "type", "csv", &e));
    FAILS(STEAD_USAGE, "was freed", stead_open("x", o, &d, &e));
    stead_options_free(o);
    FAILS(STEAD_USAGE, "NULL", stead_options_new(NULL, &e));

    OK(stead_options_new(&o, &e));
    OK(stead_options_set(o, "dtype", "u8", &e));
    OK(stead_options_set(o, "skip", "2", &e));
    OK(stead_options_set_shape(o, shape, 2, &e));
    OK(stead_open_bytes("r", raw, sizeof raw, o, NULL, NULL, &d, &e));
    CHECK(stead_dataset_shape(d, dims, 4) == 2 && dims[0] == 2 && dims[1] == 3);
    dims[0] = dims[1] = 0;
    CHECK(stead_dataset_shape(d, dims, 1) == 2 && dims[0] == 2 && dims[1] == 0);
    CHECK(stead_dataset_shape(d, NULL, 0) == 2 && stead_dataset_shape(d, NULL, 2) == 0);
    CHECK(run_one(d, "sum:1") == 7);
    stead_dataset_free(d);
    stead_options_free(o);
}

static void datasets(void) {
    stead_error *e = NULL;
    stead_dataset *d = people(), *two = NULL;
    size_t i = 99;
    char *json = NULL;
    const char *paths[2];
    FILE *f;
    CHECK(strcmp(stead_dataset_format(d), "csv") == 0);
    CHECK(stead_dataset_column_count(d) == 3);
    CHECK(strcmp(stead_dataset_column_name(d, 1), "age") == 0);
    CHECK(strcmp(stead_dataset_column_type(d, 0), "text") == 0);
    CHECK(strcmp(stead_dataset_column_type(d, 1), "number") == 0);
    CHECK(stead_dataset_column_name(d, 3) == NULL);
    SAYS(stead_last_message(), "there is no column 3");
    CHECK(stead_dataset_column_type(d, (size_t)-1) == NULL);
    OK(stead_dataset_find_column(d, "zip", &i, &e));
    CHECK(i == 2);
    FAILS(STEAD_USAGE, "no column 'agee'", stead_dataset_find_column(d, "agee", &i, &e));
    CHECK(stead_dataset_file_count(d) == 1);
    CHECK(strcmp(stead_dataset_file(d, 0), "people.csv") == 0 && stead_dataset_file(d, 1) == NULL);
    CHECK(stead_dataset_bytes(d) == sizeof PEOPLE - 1);
    CHECK(stead_dataset_shape(d, NULL, 0) == 0);
    OK(stead_dataset_describe(d, 2, &json, &e));
    SAYS(json, "\"format\": \"csv\"");
    SAYS(json, "Jane");
    stead_text_free(json);
    stead_text_free(json);
    SAYS(stead_last_message(), "no text of stead");
    stead_text_free(NULL);
    stead_text_free((char *)&i);
    FAILS(STEAD_USAGE, "NULL", stead_dataset_describe(d, 2, NULL, &e));
    CHECK(run_one(d, "mean:age") == 35);

    f = fopen("part1.csv", "wb");
    CHECK(f && fputs("x\n1\n2\n", f) >= 0 && fclose(f) == 0);
    f = fopen("part2.csv", "wb");
    CHECK(f && fputs("x\n3\n", f) >= 0 && fclose(f) == 0);
    paths[0] = "part1.csv";
    paths[1] = "part2.csv";
    OK(stead_open_all(paths, 2, NULL, &two, &e));
    CHECK(stead_dataset_file_count(two) == 2 && run_one(two, "sum:x") == 6);
    stead_dataset_free(two);
    OK(stead_open("part*.csv", NULL, &two, &e));
    CHECK(run_one(two, "rows") == 3);
    stead_dataset_free(two);
    FAILS(STEAD_USAGE, "NULL", stead_open_all(NULL, 2, NULL, &two, &e));
    FAILS(STEAD_USAGE, "", stead_open_all(NULL, 0, NULL, &two, &e));

    /* A handle of another type, a stray pointer, a freed one. */
    FAILS(STEAD_USAGE, "this handle is a dataset", stead_options_set((stead_options *)d, "type", "csv", &e));
    CHECK(stead_dataset_column_count((stead_dataset *)&i) == 0);
    SAYS(stead_last_message(), "no handle of a dataset");
    stead_dataset_free((stead_dataset *)&i);
    stead_error_free((stead_error *)d);
    CHECK(stead_dataset_column_count(d) == 3);
    stead_dataset_free(d);
    CHECK(stead_dataset_column_count(d) == 0 && stead_dataset_format(d) == NULL);
    CHECK(stead_dataset_file_count(d) == 0 && stead_dataset_bytes(d) == 0 && stead_dataset_file(d, 0) == NULL);
    FAILS(STEAD_USAGE, "the dataset was freed", stead_dataset_find_column(d, "zip", &i, &e));
    stead_dataset_free(d);
    stead_dataset_free(NULL);
}

static void arrays(void) {
    static const uint64_t shape[] = {2, 3}, huge[] = {UINT64_MAX / 2, 2}, overflow[] = {UINT64_MAX, UINT64_MAX};
    double *x = malloc(6 * sizeof *x);
    const int16_t small[] = {-1, -2, -3};
    const uint64_t three = 3, none = 0;
    stead_error *e = NULL;
    stead_dataset *d = NULL;
    int i;
    CHECK(x != NULL);
    for (i = 0; i < 6; i++) x[i] = i + 0.5;
    released = 0;
    OK(stead_open_array("m", x, STEAD_F64, 2, shape, STEAD_ORDER_C, on_release, &released, &d, &e));
    CHECK(stead_dataset_column_count(d) == 3 && strcmp(stead_dataset_column_type(d, 2), "f64") == 0);
    CHECK(run_one(d, "sum:0") == 4.0 && run_one(d, "sum:2") == 8.0 && run_one(d, "rows") == 2);
    CHECK(released == 0);
    stead_dataset_free(d);
    CHECK(released == 1);
    OK(stead_open_array(NULL, x, STEAD_F64, 2, shape, STEAD_ORDER_FORTRAN, NULL, NULL, &d, &e));
    CHECK(run_one(d, "sum:0") == 2.0 && run_one(d, "sum:2") == 10.0);
    stead_dataset_free(d);
    OK(stead_open_array(NULL, small, STEAD_I16, 1, &three, STEAD_ORDER_C, NULL, NULL, &d, &e));
    CHECK(run_one(d, "min:0") == -3);
    stead_dataset_free(d);
    /* Released once when it fails, too. */
    released = 0;
    FAILS(STEAD_USAGE, "element type", stead_open_array("m", x, 77, 2, shape, 0, on_release, &released, &d, &e));
    FAILS(STEAD_USAGE, "order", stead_open_array("m", x, STEAD_F64, 2, shape, 9, on_release, &released, &d, &e));
    FAILS(STEAD_USAGE, "data is NULL", stead_open_array("m", NULL, STEAD_F64, 2, shape, 0, on_release, &released, &d, &e));
    FAILS(STEAD_USAGE, "shape is NULL", stead_open_array("m", x, STEAD_F64, 2, NULL, 0, on_release, &released, &d, &e));
    FAILS(STEAD_USAGE, "memory", stead_open_array("m", x, STEAD_F64, 2, huge, 0, on_release, &released, &d, &e));
    FAILS(STEAD_FORMAT, "64 bits", stead_open_array("m", x, STEAD_F64, 2, overflow, 0, on_release, &released, &d, &e));
    FAILS(STEAD_USAGE, "NULL", stead_open_array("m", x, STEAD_F64, 2, shape, 0, on_release, &released, NULL, &e));
    CHECK(released == 7 && d == NULL);
    released = 0;
    FAILS(STEAD_USAGE, "NULL", stead_open_bytes("m", NULL, 5, NULL, on_release, &released, &d, &e));
    FAILS(STEAD_USAGE, "NULL", stead_open_bytes("m", x, 5, NULL, on_release, &released, NULL, &e));
    CHECK(released == 2);
    if (stead_open_array("m", NULL, STEAD_F64, 1, &none, 0, on_release, &released, &d, NULL) == STEAD_OK) {
        CHECK(run_one(d, "rows") == 0);
        stead_dataset_free(d);
    }
    CHECK(released == 3);
    free(x);
}

static void tables(void) {
    static const double x[] = {1, 2, 3};
    static const uint8_t k[] = {0, 1, 0};
    stead_column columns[2];
    stead_error *e = NULL;
    stead_dataset *d = NULL;
    released = 0;
    columns[0].name = "x";
    columns[0].data = x;
    columns[0].dtype = STEAD_F64;
    columns[0].release = on_release;
    columns[0].user = &released;
    columns[1] = columns[0];
    columns[1].name = "k";
    columns[1].data = k;
    columns[1].dtype = STEAD_U8;
    OK(stead_open_table(columns, 2, 3, &d, &e));
    CHECK(strcmp(stead_dataset_format(d), "table") == 0 && run_one(d, "sum:x") == 6 && run_one(d, "sum:k") == 1);
    stead_dataset_free(d);
    CHECK(released == 2);
    columns[1].name = "x";
    FAILS(STEAD_USAGE, "two columns", stead_open_table(columns, 2, 3, &d, &e));
    CHECK(released == 4);
    columns[1].dtype = 0;
    FAILS(STEAD_USAGE, "element type", stead_open_table(columns, 2, 3, &d, &e));
    CHECK(released == 6);
    columns[0].name = NULL;
    FAILS(STEAD_USAGE, "NULL", stead_open_table(columns, 2, 3, &d, &e));
    columns[0].name = "x";
    FAILS(STEAD_USAGE, "memory", stead_open_table(columns, 1, UINT64_MAX, &d, &e));
    CHECK(released == 9);
    FAILS(STEAD_USAGE, "NULL", stead_open_table(NULL, 2, 3, &d, &e));
    FAILS(STEAD_USAGE, "columns", stead_open_table(NULL, 0, 3, &d, &e));
    CHECK(released == 9);
}

static void layouts(void) {
    static char text[50000];
    const char *const folders[] = {"s=.", NULL};
    char folder[4200], here[4096], *json = NULL, *other = (char *)folders;
    const char *one[] = {folder};
    const char *const names[] = {"numbers.csv.stead-layout.toml"};
    stead_error *e = NULL;
    stead_dataset *d = NULL;
    stead_options *o = NULL;
    int asked = 0;
    size_t n = 0;
    FILE *f = fopen("numbers.csv", "wb");
    CHECK(f != NULL && getcwd(here, sizeof here) != NULL);
    for (int i = 0; n + 20 < sizeof text; i++) n += (size_t)sprintf(text + n, i ? "%d,%d\n" : "x,y\n", i, i * 7);
    CHECK(f && fwrite(text, 1, n, f) == n && fclose(f) == 0);
    CHECK(mkdir("space", 0777) == 0);
    snprintf(folder, sizeof folder, "s=%s/space", here);

    stead_copy_options c = {0};
    FAILS(STEAD_USAGE, "no size of stead_copy_options", stead_put("numbers.csv", "s", &c, &json, &e));
    c.size = sizeof c;
    FAILS(STEAD_USAGE, "not configured", stead_put("numbers.csv", "s", &c, &json, &e));
    CHECK(json == NULL);
    c.dataspaces = folders;
    c.dataspaces_count = 1;
    FAILS(STEAD_USAGE, "not absolute", stead_put("numbers.csv", "s", &c, NULL, &e));
    c.dataspaces = one;
    c.parts = 3;
    c.stripe = 1000;
    c.flags = STEAD_COPY_ALIGN;
    OK(stead_put("numbers.csv", "s", &c, &json, &e));
    SAYS(json, "\"parts\": 3");
    stead_text_free(json);
    FAILS(STEAD_USAGE, "a layout already", stead_put("numbers.csv", "s", &c, NULL, &e));
    c.flags |= STEAD_COPY_FORCE;
    OK(stead_put("numbers.csv", "s", &c, NULL, &e));
    OK(stead_layout_describe(names[0], &json, &e));
    SAYS(json, "\"name\": \"numbers.csv\"");
    SAYS(json, "\"space\": \"s\"");
    stead_text_free(json);
    FAILS(STEAD_FORMAT, "not a layout", stead_layout_describe("numbers.csv", &json, &e));
    FAILS(STEAD_NOT_FOUND, "no/such", stead_layout_describe("no/such", &json, &e));
    FAILS(STEAD_USAGE, "NULL", stead_layout_describe(NULL, &json, &e));

    /* It is a dataset, whose dataspaces are among the options. */
    FAILS(STEAD_USAGE, "not configured", stead_open(names[0], NULL, &d, &e));
    OK(stead_options_new(&o, &e));
    FAILS(STEAD_USAGE, "no dataspace", stead_options_set(o, "dataspace", "s", &e));
    OK(stead_options_set(o, "dataspace", folder, &e));
    OK(stead_open(names[0], o, &d, &e));
    CHECK(run_one(d, "max:y") == 7 * run_one(d, "rows") && run_one(d, "rows") > 1000);
    stead_dataset_free(d);

    FAILS(STEAD_USAGE, "for putting", stead_get(names[0], &c, &json, &e));
    c.parts = 0;
    c.stripe = 0;
    c.flags = 0;
    c.target = "back.csv";
    OK(stead_get(names[0], &c, &json, &e));
    SAYS(json, "back.csv");
    stead_text_free(json);
    FAILS(STEAD_USAGE, "this name already", stead_get(names[0], &c, NULL, &e));
    f = fopen("back.csv", "rb");
    static char back[sizeof text];
    CHECK(f && fread(back, 1, sizeof back, f) == n && memcmp(back, text, n) == 0 && fclose(f) == 0);
    c.flags = 64;
    FAILS(STEAD_USAGE, "flags", stead_get(names[0], &c, NULL, &e));

    /* What needs ranks. */
    FAILS(STEAD_PEER, "no ranks today", stead_put_ranks(no_ranks, &asked, "numbers.csv", "s", NULL, &other, &e));
    CHECK(other == NULL);
    FAILS(STEAD_PEER, "no ranks today", stead_get_ranks(no_ranks, &asked, names[0], NULL, NULL, &e));
    FAILS(STEAD_PEER, "no ranks today", stead_open_ranks(no_ranks, &asked, names, 1, NULL, &d, &e));
    CHECK(asked == 3 && d == NULL);
    FAILS(STEAD_USAGE, "makes a fabric", stead_put_ranks(NULL, NULL, "numbers.csv", "s", NULL, NULL, &e));
    FAILS(STEAD_USAGE, "makes a fabric", stead_get_ranks(NULL, NULL, names[0], NULL, NULL, &e));
    FAILS(STEAD_USAGE, "makes a fabric", stead_open_ranks(NULL, NULL, names, 1, NULL, &d, &e));
    stead_options_free(o);
}

int main(void) {
    versions();
    errors();
    bad_values();
    options();
    datasets();
    arrays();
    tables();
    layouts();
    CHECK(stead_handles_alive() == 0);
    return ended("data");
}
