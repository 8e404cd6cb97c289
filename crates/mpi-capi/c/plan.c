/*
 * A kernel's name, hints and types as a request, and what its result will be.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "io.h"
#include <unistd.h>

/* What a kernel looks at. */
enum over { ALL_BYTES, RECORDS, NUMBERS };

static const struct family {
    const char *name;
    enum over over;
    enum io_shape shape;
    const char *member;
    bool columns; /* takes all, or those named; else one at most */
} families[] = {
    {"lines", ALL_BYTES, IO_COUNTS, NULL, false},    {"digits", ALL_BYTES, IO_COUNTS, NULL, false},
    {"entropy", ALL_BYTES, IO_DOUBLES, NULL, false}, {"rows", RECORDS, IO_COUNTS, NULL, false},
    {"grep", RECORDS, IO_COUNTS, NULL, false},       {"count", NUMBERS, IO_COUNTS, NULL, true},
    {"sum", NUMBERS, IO_DOUBLES, NULL, true},        {"mean", NUMBERS, IO_DOUBLES, NULL, true},
    {"var", NUMBERS, IO_DOUBLES, NULL, true},        {"std", NUMBERS, IO_DOUBLES, NULL, true},
    {"min", NUMBERS, IO_DOUBLES, NULL, true},        {"max", NUMBERS, IO_DOUBLES, NULL, true},
    {"gram", NUMBERS, IO_DOUBLES, "matrix", true},   {"kmeans", NUMBERS, IO_DOUBLES, "centroids", true},
    {"hist", NUMBERS, IO_COUNTS, "counts", false},   {"quantile", NUMBERS, IO_DOUBLES, NULL, false},
    {"render", NUMBERS, IO_PICTURE, NULL, false},
};

/* How many columns, bins and so on there may be. */
#define MOST_COLUMNS (1 << 20)
#define MOST_BINS 1000000
#define MOST_BYTES INT64_MAX

/* ---- text */

static int no_memory(void) {
    return io_fail(MPI_ERR_NO_MEM, "no memory for a request");
}

/* Adds to a text, which is freed if there is no memory. */
static int add(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int add(char **text, const char *format, ...) {
    char *more = NULL, *both = NULL;
    va_list given;
    va_start(given, format);
    int n = vasprintf(&more, format, given);
    va_end(given);
    if (n < 0) return no_memory();
    n = asprintf(&both, "%s%s", *text ? *text : "", more);
    free(more);
    if (n < 0) return no_memory();
    free(*text);
    *text = both;
    return MPI_SUCCESS;
}

/* Adds a value in quotes, as specifications have them. */
static int add_quoted(char **text, const char *value) {
    IO_TRY(add(text, "'"));
    for (size_t part; *value; value += part) {
        part = *value == '\'' ? 1 : strcspn(value, "'");
        IO_TRY(*value == '\'' ? add(text, "''") : add(text, "%.*s", (int)part, value));
    }
    return add(text, "'");
}

/* ---- what a whole specification says */

/* Calls `each` with every argument of a specification, key or not, quotes left as they are. */
static void arguments(const char *spec, void (*each)(const char *at, size_t length, void *data), void *data) {
    const char *at = strchr(spec, ':');
    while (at && *++at) {
        size_t length = 0;
        char quote = 0;
        for (; at[length] && (quote || at[length] != ','); length++) {
            if (quote ? at[length] == quote : at[length] == '\'' || at[length] == '"') quote = quote ? 0 : at[length];
        }
        each(at, length, data);
        at += length;
        if (!*at) break;
    }
}

struct wanted {
    const char *key, *value;
    size_t length;
    int64_t plain;
    bool all, lines;
};

static void look(const char *at, size_t length, void *data) {
    struct wanted *w = data;
    size_t key = w->key ? strlen(w->key) : 0;
    if (key && length > key && strncmp(at, w->key, key) == 0 && at[key] == '=') {
        w->value = at + key + 1;
        w->length = length - key - 1;
    }
    if (length == 10 && strncmp(at, "lines=true", 10) == 0) w->lines = true;
    if (memchr(at, '=', length) && *at != '\'' && *at != '"') return;
    /* The first argument of grep is what it searches for, whatever that is. */
    if (length == 5 && strncmp(at, "lines", 5) == 0) w->lines = w->plain > 0;
    if ((length == 1 && *at == '*') || (length == 3 && at[1] == '*')) w->all = true;
    /* A word that is no column. */
    if (length == 5 && strncmp(at, "exact", 5) == 0) return;
    w->plain++;
}

/* A number of an argument; 0 if it is none of a size for which room could be known. */
static int64_t number_of(const char *spec, const char *key, int64_t without) {
    struct wanted w = {.key = key};
    arguments(spec, look, &w);
    int64_t n = w.value ? strtoll(w.value, NULL, 10) : without;
    return n >= 1 && n <= MOST_BINS ? n : 0;
}

/* ---- how large a result is */

/* Columns that a kernel has results for; 0 if that is not known before it runs. */
static int64_t columns_of(const struct io_plan *plan, const struct family *family, const char *kernel) {
    struct wanted w = {0};
    arguments(kernel, look, &w);
    if (w.plain && !w.all) return family->columns ? w.plain : 1;
    const char *named = plan->hints.value[IO_COLUMNS];
    if (!w.plain && named && strcmp(named, "*") != 0) {
        int64_t n = 1;
        for (const char *at = named; (at = strchr(at, ',')); at++) n++;
        return n;
    }
    return family->columns ? plan->columns : 1;
}

/* Numbers of a result; 0 if it is not known. */
static int64_t numbers_of(const struct io_plan *plan, const struct family *family, const char *kernel, int64_t bins,
                          int64_t k) {
    const char *name = family->name;
    int64_t columns = columns_of(plan, family, kernel);
    if (strcmp(name, "digits") == 0) return 10;
    if (family->over != NUMBERS) return 1;
    if (strcmp(name, "hist") == 0) return number_of(kernel, "bins", bins);
    if (strcmp(name, "gram") == 0) return columns > 4096 ? 0 : columns * columns;
    if (strcmp(name, "kmeans") == 0) return columns * number_of(kernel, "k", k);
    if (strcmp(name, "quantile") == 0) {
        struct wanted w = {.key = "q"};
        arguments(kernel, look, &w);
        int64_t n = 1;
        for (size_t i = 0; w.value && i < w.length; i++) n += w.value[i] == ';';
        return n;
    }
    return columns;
}

/* ---- the specification */

/* The columns of a bare name. */
static int add_columns(struct io_plan *plan, const struct family *family) {
    const char *named = plan->hints.value[IO_COLUMNS];
    if (named && strcmp(named, "*") != 0) return add(&plan->spec, "%s", named);
    if (family->columns) return add(&plan->spec, "*");
    if (plan->columns == 1) return add(&plan->spec, "0");
    return io_fail(MPI_ERR_ARG,
                   "the kernel '%s' looks at one column, and which one is not said: give the hint 'columns'",
                   family->name);
}

/* Makes a specification of a bare name and hints. */
static int spec_of(struct io_plan *plan, const struct family *family, int64_t bins, int64_t k) {
    const struct io_hints *hints = &plan->hints;
    const char *name = family->name;
    IO_TRY(add(&plan->spec, "%s", name));
    if (strcmp(name, "grep") == 0) {
        if (!hints->value[IO_PATTERN])
            return io_fail(MPI_ERR_ARG, "the kernel 'grep' searches for nothing: give the hint 'pattern'");
        IO_TRY(add(&plan->spec, ":"));
        IO_TRY(add_quoted(&plan->spec, hints->value[IO_PATTERN]));
        int64_t lines;
        IO_TRY(io_hint_count(hints, IO_LINES, 1, MOST_BINS, 0, &lines));
        return lines ? add(&plan->spec, ",lines,max=%lld", (long long)lines) : MPI_SUCCESS;
    }
    if (family->over != NUMBERS || family->shape == IO_PICTURE) return MPI_SUCCESS;
    IO_TRY(add(&plan->spec, ":"));
    IO_TRY(add_columns(plan, family));
    if (strcmp(name, "hist") == 0) {
        IO_TRY(add(&plan->spec, ",bins=%lld", (long long)bins));
        if (hints->value[IO_LO]) IO_TRY(add(&plan->spec, ",min=%s", hints->value[IO_LO]));
        if (hints->value[IO_HI]) IO_TRY(add(&plan->spec, ",max=%s", hints->value[IO_HI]));
    }
    if (strcmp(name, "kmeans") == 0) {
        IO_TRY(add(&plan->spec, ",k=%lld", (long long)k));
        if (hints->value[IO_THRESHOLD]) IO_TRY(add(&plan->spec, ",delta=%s", hints->value[IO_THRESHOLD]));
    }
    return MPI_SUCCESS;
}

/* A picture is a file that the kernel writes, here, and that is read into the buffer. */
static int picture(struct io_plan *plan, bool bare) {
    const char *folder = getenv("TMPDIR");
    IO_TRY(add(&plan->picture, "%s/stead-XXXXXX.png", folder && *folder ? folder : "/tmp"));
    int file = mkstemps(plan->picture, 4);
    if (file < 0) {
        int code = io_fail(MPI_ERR_IO, "cannot make the file '%s' for a picture", plan->picture);
        free(plan->picture);
        plan->picture = NULL;
        return code;
    }
    close(file);
    struct wanted w = {.key = "out"};
    arguments(plan->spec, look, &w);
    if (w.value)
        return io_fail(MPI_ERR_ARG, "the kernel '%s' names a file, but the picture goes to the buffer", plan->spec);
    IO_TRY(add(&plan->spec, bare ? ":out=" : ",out="));
    return add_quoted(&plan->spec, plan->picture);
}

/* How the bytes are cut: `columns` and `unit`. */
static int cut(struct io_plan *plan, enum over over) {
    const struct io_elements *e = &plan->elements;
    bool numbers = e->class == IO_NUMBERS || (e->class == IO_BYTES && over == NUMBERS);
    int64_t item, dims;
    IO_TRY(io_hint_count(&plan->hints, IO_ITEM_LENGTH, 1, MOST_BYTES, e->size * e->count, &item));
    IO_TRY(io_hint_count(&plan->hints, IO_DIMS, 1, MOST_COLUMNS, 0, &dims));
    plan->unit = 1;
    plan->columns = 0;
    if (plan->hints.value[IO_FORMAT]) {
        if (strcmp(plan->hints.value[IO_FORMAT], "records") == 0) plan->unit = item;
        return MPI_SUCCESS;
    }
    if (over == ALL_BYTES) return MPI_SUCCESS;
    if (!numbers) {
        if (over == NUMBERS)
            return io_fail(MPI_ERR_TYPE,
                           "the kernel computes with numbers, and %s has none that it knows (give a type of numbers, "
                           "or the "
                           "hint 'format')",
                           e->class == IO_MIXED ? "a datatype of several types"
                           : e->name            ? e->name
                                                : "the datatype");
        plan->unit = item;
        return MPI_SUCCESS;
    }
    if (!dims) {
        if (item % e->size)
            return io_fail(MPI_ERR_INFO_VALUE, "items of %lld bytes are no whole elements of %lld", (long long)item,
                           (long long)e->size);
        dims = item / e->size;
    }
    if (dims > MOST_COLUMNS)
        return io_fail(MPI_ERR_TYPE, "an item of %lld elements has too many columns", (long long)dims);
    plan->columns = plan->hints.value[IO_SHAPE] ? 1 : dims;
    plan->unit = plan->hints.value[IO_SHAPE] ? e->size : dims * e->size;
    return MPI_SUCCESS;
}

/* The room that there is, where the hint does not say it, for so many bytes, if that is known. */
static int room(struct io_plan *plan, int64_t bytes) {
    IO_TRY(io_hint_count(&plan->hints, IO_RESULT_BYTES, 0, MOST_BYTES, bytes ? bytes : -1, &plan->room));
    if (plan->room >= 0) return MPI_SUCCESS;
    return io_fail(MPI_ERR_ARG,
                   "how large the result of '%s' will be is not known before: give the hint 'result_bytes'",
                   plan->spec);
}

static int plan_operation(struct io_plan *plan, const char *kernel) {
    const struct io_elements *e = &plan->elements;
    IO_TRY(io_operation_runs(kernel));
    if (plan->hints.value[IO_BY] || plan->hints.value[IO_WHERE])
        return io_fail(MPI_ERR_ARG,
                       "the operation '%s' has items and no columns, so the hints 'where' and 'by' mean nothing",
                       kernel);
    plan->operation = true;
    plan->unit = e->size * e->count;
    /* Exact kernels where there are some: a sum that is rounded once. */
    static const char *const exact[][2] = {{"MPI_SUM", "sum:*"}, {"MPI_MIN", "min:*"}, {"MPI_MAX", "max:*"}};
    for (size_t i = 0; i < IO_LENGTH(exact); i++) {
        if (strcmp(kernel, exact[i][0]) != 0 || e->class != IO_NUMBERS || e->dtype[0] != 'f' ||
            e->count > MOST_COLUMNS)
            continue;
        plan->operation = false;
        plan->columns = e->count;
        plan->shape = IO_TYPED;
        IO_TRY(add(&plan->spec, "%s", exact[i][1]));
        return room(plan, plan->unit);
    }
    plan->shape = IO_ITEM;
    IO_TRY(io_operation_text(kernel, e, &plan->spec));
    return room(plan, plan->unit);
}

/* The kernel that a name or a specification is of. */
static const struct family *family_of(const char *kernel) {
    size_t length = strcspn(kernel, ":");
    for (size_t i = 0; i < IO_LENGTH(families); i++) {
        if (strlen(families[i].name) == length && strncmp(families[i].name, kernel, length) == 0) return &families[i];
    }
    return NULL;
}

bool io_is_kernel(const char *name) {
    return family_of(name) != NULL || strcmp(name, "normalize") == 0;
}

static int plan_kernel(struct io_plan *plan, const char *kernel) {
    const struct family *family = family_of(kernel);
    bool bare = !strchr(kernel, ':');
    if (strncmp(kernel, "normalize", 9) == 0 && (bare || kernel[9] == ':'))
        return io_fail(MPI_ERR_ARG, "the kernel 'normalize' writes a file where the data are, and has no result to "
                                    "return (stead run does it)");
    if (!family) {
        return io_fail(MPI_ERR_ARG,
                       "there is no kernel and no operation '%s' (kernels are those of 'stead kernels', operations "
                       "those of MPI, of "
                       "stead_MPI_Op_register, and of MPI_Op_create if the linker knows the name of the function)",
                       kernel);
    }
    IO_TRY(cut(plan, family->over));
    int64_t bins, k;
    IO_TRY(io_hint_count(&plan->hints, IO_BINS, 1, MOST_BINS, 10, &bins));
    IO_TRY(io_hint_count(&plan->hints, IO_CLUSTERS, 1, MOST_BINS, 20, &k));
    IO_TRY(io_hint_is_number(&plan->hints, IO_LO));
    IO_TRY(io_hint_is_number(&plan->hints, IO_HI));
    IO_TRY(io_hint_is_number(&plan->hints, IO_THRESHOLD));
    IO_TRY(bare ? spec_of(plan, family, bins, k) : add(&plan->spec, "%s", kernel));
    plan->shape = family->shape;
    plan->member = family->member;
    struct wanted w = {0};
    arguments(plan->spec, look, &w);
    if (strcmp(family->name, "grep") == 0 && w.lines) {
        plan->shape = IO_MATCHES;
        plan->member = "lines";
    }
    const char *as = plan->hints.value[IO_RESULT];
    if (as && strcmp(as, "json") != 0 && strcmp(as, "values") != 0)
        return io_fail(MPI_ERR_INFO_VALUE, "the hint 'result' is '%s', and must be 'values' or 'json'", as);
    if (plan->shape != IO_PICTURE && (plan->hints.value[IO_BY] || (as && strcmp(as, "json") == 0))) {
        plan->shape = IO_JSON;
        plan->member = NULL;
    }
    if (plan->shape == IO_PICTURE) IO_TRY(picture(plan, bare));
    bool fixed = plan->shape == IO_COUNTS || plan->shape == IO_DOUBLES;
    return room(plan, fixed ? 8 * numbers_of(plan, family, plan->spec, bins, k) : 0);
}

int io_plan(struct io_plan *plan, const char *kernel, MPI_Datatype type, MPI_Info hints) {
    bool operation = false;
    if (!kernel || !*kernel) return io_fail(MPI_ERR_ARG, "there is no name of a kernel");
    IO_TRY(io_hints_add(&plan->hints, hints, IO_OF_CALL));
    IO_TRY(io_type_elements(type, &plan->elements));
    IO_TRY(io_operation_named(kernel, &operation));
    if (!operation) return plan_kernel(plan, kernel);
    MPI_Count least, extent;
    IO_MPI(MPI_Type_get_extent_x(type, &least, &extent));
    if (extent != plan->elements.size * plan->elements.count)
        return io_fail(MPI_ERR_TYPE,
                       "items of %lld bytes whose extent is %lld have gaps, and an operation gets them without (a "
                       "datatype without "
                       "gaps will do for both)",
                       (long long)(plan->elements.size * plan->elements.count), (long long)extent);
    return plan_operation(plan, kernel);
}

void io_plan_free(struct io_plan *plan) {
    if (plan->picture) unlink(plan->picture);
    free(plan->picture);
    free(plan->spec);
    io_hints_free(&plan->hints);
    plan->picture = plan->spec = NULL;
}

/* ---- the request */

static int set(stead_options *options, const char *name, const char *value) {
    stead_error *error = NULL;
    return stead_options_set(options, name, value, &error) ? io_fail_stead(error) : MPI_SUCCESS;
}

static int set_number(stead_options *options, const char *name, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return set(options, name, text);
}

/* How to open so many bytes. */
static int open_as(const struct io_plan *plan, int64_t bytes, stead_options *options) {
    const struct io_elements *e = &plan->elements;
    const char *format = plan->hints.value[IO_FORMAT], *dtype = e->class == IO_NUMBERS ? e->dtype : "u8";
    /* Items of an operation are what their type says. */
    bool kernel = !plan->operation && plan->shape != IO_TYPED;
    /* Bytes are what MPI reads of the file; what a format is made of may be compressed. */
    if (!format || !kernel) IO_TRY(set(options, "compression", "none"));
    if (format && kernel) {
        IO_TRY(set(options, "type", format));
        if (strcmp(format, "records") == 0) IO_TRY(set_number(options, "record-length", plan->unit));
        if (strcmp(format, "raw") != 0) return MPI_SUCCESS;
        IO_TRY(set(options, "dtype", dtype));
        return plan->hints.value[IO_SHAPE] ? set(options, "shape", plan->hints.value[IO_SHAPE]) : MPI_SUCCESS;
    }
    if (plan->columns) {
        IO_TRY(set(options, "type", "raw"));
        IO_TRY(set(options, "dtype", dtype));
        if (plan->hints.value[IO_SHAPE] && kernel) return set(options, "shape", plan->hints.value[IO_SHAPE]);
        uint64_t shape[2] = {(uint64_t)(bytes / plan->unit), (uint64_t)plan->columns};
        stead_error *error = NULL;
        return stead_options_set_shape(options, shape, plan->columns > 1 ? 2 : 1, &error) ? io_fail_stead(error)
                                                                                          : MPI_SUCCESS;
    }
    if (plan->operation || plan->unit > 1) {
        IO_TRY(set(options, "type", "records"));
        return set_number(options, "record-length", plan->unit);
    }
    /* Lines for what looks for them; bytes of which no part is special for what counts them. */
    bool searched = strncmp(plan->spec, "grep", 4) == 0 || strncmp(plan->spec, "rows", 4) == 0;
    if (searched) return set(options, "type", "lines");
    IO_TRY(set(options, "type", "raw"));
    return set(options, "dtype", "u8");
}

static int request_of(const struct io_plan *plan, stead_request *request) {
    const struct io_hints *hints = &plan->hints;
    stead_error *error = NULL;
    int64_t threads;
    IO_TRY(io_hint_count(hints, IO_THREADS, 0, 4096, 0, &threads));
    if ((!plan->operation && stead_request_kernel(request, plan->spec, &error)) ||
        stead_request_threads(request, (size_t)threads, &error) ||
        (hints->value[IO_WHERE] && stead_request_where(request, hints->value[IO_WHERE], &error)) ||
        (hints->value[IO_MEMORY] && stead_request_set(request, "memory", hints->value[IO_MEMORY], &error)))
        return io_fail_stead(error);
    const char *by = hints->value[IO_BY];
    while (by && *by) {
        size_t length = strcspn(by, ",");
        char *column = strndup(by, length);
        if (!column) return no_memory();
        stead_status failed = stead_request_by(request, column, &error);
        free(column);
        if (failed) return io_fail_stead(error);
        by += length + (by[length] == ',');
    }
    return MPI_SUCCESS;
}

int io_plan_ask(const struct io_plan *plan, int64_t bytes, stead_options **options, stead_request **request) {
    stead_error *error = NULL;
    *options = NULL;
    *request = NULL;
    if (stead_options_new(options, &error) || stead_request_new(request, &error)) return io_fail_stead(error);
    IO_TRY(open_as(plan, bytes, *options));
    return request_of(plan, *request);
}
