/* Kernels of one's own: the same answers as those of the house, bit for bit, however the work is split; failures and
 * misuse are told. */

#include "check.h"
#include <math.h>
#include <stdlib.h>

static stead_dataset *open_bytes(const char *name, const char *text) {
    stead_error *e = NULL;
    stead_dataset *d = NULL;
    OK(stead_open_bytes(name, text, strlen(text), NULL, NULL, NULL, &d, &e));
    return d;
}

/* Least and greatest value, number of values and of missing ones: exact in any order. */
typedef struct {
    double least, greatest;
    uint64_t values, missing;
} extremes;

static int extremes_init(void *state, void *user) {
    extremes *s = state;
    (void)user;
    s->least = INFINITY;
    s->greatest = -INFINITY;
    return (size_t)state % 16 != 0;
}

static int extremes_update(void *state, const stead_block *b, void *user) {
    extremes *s = state;
    const double *x = stead_block_numbers(b, 0);
    size_t i, n = stead_block_rows(b);
    if (user) ++*(int *)user;
    if ((size_t)state % 16 != 0 || stead_block_number_count(b) != 1) return 1;
    for (i = 0; i < n; i++) {
        if (stead_is_missing(x[i])) {
            s->missing++;
            continue;
        }
        s->values++;
        if (x[i] < s->least) s->least = x[i];
        if (x[i] > s->greatest) s->greatest = x[i];
    }
    return 0;
}

static int extremes_merge(void *state, const void *other, void *user) {
    extremes *s = state;
    const extremes *o = other;
    (void)user;
    s->values += o->values;
    s->missing += o->missing;
    if (o->least < s->least) s->least = o->least;
    if (o->greatest > s->greatest) s->greatest = o->greatest;
    return 0;
}

static int extremes_finish(void *state, stead_builder *b, void *user) {
    const extremes *s = state;
    (void)user;
    if (stead_builder_map(b) || stead_builder_key(b, "min") || stead_builder_double(b, s->least)) return 1;
    if (stead_builder_key(b, "max") || stead_builder_double(b, s->greatest)) return 1;
    if (stead_builder_key(b, "count") || stead_builder_int(b, s->values)) return 1;
    if (stead_builder_key(b, "missing") || stead_builder_int(b, s->missing)) return 1;
    return stead_builder_end(b);
}

static stead_kernel extremes_of(const char *const *column) {
    stead_kernel k = {0};
    k.size = sizeof k;
    k.name = "extremes";
    k.state_size = sizeof(extremes);
    k.numbers = column;
    k.number_count = 1;
    k.init = extremes_init;
    k.update = extremes_update;
    k.merge = extremes_merge;
    k.finish = extremes_finish;
    return k;
}

static void on_release(void *user) { ++*(int *)user; }

/* Under Valgrind, which takes some fifty times as long, a few extents are enough. */
#ifndef TEST_ROWS
#define TEST_ROWS 300000
#endif
enum { ROWS = TEST_ROWS };

/* Beside built-in kernels, on many threads, with small extents, filtered and grouped. */
static void same_bits(void) {
    static const char *column[] = {"1"};
    static const uint64_t shape[] = {ROWS, 3};
    static const char *const pairs[][2] = {{"min", "min:1"}, {"max", "max:1"}, {"count", "count:1"}};
    double *x = malloc(ROWS * 3 * sizeof *x);
    uint64_t seed = 1;
    size_t i, threads, grouped, j, g;
    int calls = 0, released = 0;
    stead_error *e = NULL;
    stead_dataset *d = NULL;
    stead_kernel k = extremes_of(column);
    if (!x) abort();
    for (i = 0; i < ROWS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[3 * i] = (double)i;
        x[3 * i + 1] = (double)(seed >> 11) / 9007199254740992.0 - 0.5;
        x[3 * i + 2] = (double)(seed >> 60);
        if (i % 1000 == 7) x[3 * i + 1] = stead_missing();
    }
    OK(stead_open_array("x", x, STEAD_F64, 2, shape, STEAD_ORDER_C, NULL, NULL, &d, &e));
    for (threads = 1; threads <= 8; threads *= 2) {
        for (grouped = 0; grouped < 2; grouped++) {
            stead_request *q = NULL;
            stead_report *r = NULL;
            stead_value own, built, groups, member, answer;
            uint64_t a = 0, b = 0;
            k.user = NULL;
            if (threads == 1 && !grouped) {
                k.user = &calls;
                k.release = NULL;
            }
            OK(stead_request_new(&q, &e));
            OK(stead_request_own_kernel(q, &k, &e));
            for (j = 0; j < 3; j++) OK(stead_request_kernel(q, pairs[j][1], &e));
            OK(stead_request_threads(q, threads, &e));
            OK(stead_request_extent(q, 1 << 16, &e));
            OK(stead_request_where(q, "`0` % 3 < 2", &e));
            if (grouped) OK(stead_request_by(q, "2", &e));
            OK(stead_run(d, q, &r, &e));
            stead_request_free(q);
            OK(stead_report_result(r, "extremes", &own, &e));
            CHECK(strcmp(stead_report_name(r, 3), "extremes") == 0);
            for (j = 0; j < 3; j++) {
                OK(stead_report_result(r, pairs[j][1], &built, &e));
                groups = own;
                for (g = 0; g < (grouped ? stead_value_length(groups) : 1); g++) {
                    double p = 0, q2 = 1;
                    if (grouped) {
                        OK(stead_value_at(groups, g, &own, &e));
                        OK(stead_value_get(built, stead_value_key(groups, g), &answer, &e));
                    } else {
                        answer = built;
                    }
                    OK(stead_value_get(own, pairs[j][0], &member, &e));
                    OK(stead_value_double(member, &p, &e));
                    OK(stead_value_double(answer, &q2, &e));
                    memcpy(&a, &p, sizeof a);
                    memcpy(&b, &q2, sizeof b);
                    CHECK(a == b);
                }
                own = groups;
            }
            CHECK(!grouped || stead_value_length(own) == 16);
            stead_report_free(r);
        }
    }
    CHECK(calls > 1);
    /* The kernel lives as long as somebody uses it. */
    {
        stead_request *q = NULL;
        stead_report *r = NULL;
        k.user = &released;
        k.update = extremes_update;
        k.release = on_release;
        OK(stead_request_new(&q, &e));
        OK(stead_request_own_kernel(q, &k, &e));
        released = 0;
        OK(stead_request_threads(q, 1, &e));
        OK(stead_run(d, q, &r, &e));
        CHECK(released > 0);
        calls = released;
        stead_report_free(r);
        CHECK(released == calls);
        stead_request_free(q);
        CHECK(released == calls + 1);
    }
    stead_dataset_free(d);
    free(x);
}

/* Text, records and bytes: a hash that does not depend on the order of blocks. */
typedef struct {
    uint64_t sum, bytes, records, missing, sources, offsets;
} hashes;

static uint64_t hash(const char *p, size_t n) {
    uint64_t h = 14695981039346656037u;
    while (n--) h = (h ^ (unsigned char)*p++) * 1099511628211u;
    return h;
}

static int hashes_update(void *state, const stead_block *b, void *user) {
    hashes *s = state;
    size_t i, n, len = 0;
    (void)user;
    for (i = 0, n = stead_block_rows(b); i < n; i++) {
        const char *t = stead_block_text(b, 0, i, &len);
        if (t) s->sum += hash(t, len);
        else s->missing++;
        t = stead_block_record(b, i, &len);
        if (!t || len == 0 || t[len - 1] != '\n') return stead_fail(STEAD_INTERNAL, "a record has no end");
        s->records += len;
    }
    for (i = 0, n = stead_block_run_count(b); i < n; i++) {
        if (!stead_block_run(b, i, &len)) return stead_fail(STEAD_INTERNAL, "a run is missing");
        s->bytes += len;
    }
    s->sources += stead_block_source(b);
    s->offsets += stead_block_offset(b) > 0;
    /* What is not there. */
    if (stead_block_text(b, 1, 0, &len) || stead_block_text(b, 0, stead_block_rows(b), &len)) return 1;
    if (stead_block_record(b, stead_block_rows(b), &len) || stead_block_run(b, n, &len) || len != 0) return 1;
    if (stead_block_numbers(b, 0) || stead_block_number_count(b)) return 1;
    return 0;
}

static int hashes_merge(void *state, const void *other, void *user) {
    uint64_t *s = state;
    const uint64_t *o = other;
    size_t i;
    (void)user;
    for (i = 0; i < sizeof(hashes) / sizeof *s; i++) s[i] += o[i];
    return 0;
}

static int hashes_finish(void *state, stead_builder *b, void *user) {
    const hashes *s = state;
    double all[6];
    (void)user;
    all[0] = (double)s->sum;
    all[1] = (double)s->bytes;
    all[2] = (double)s->records;
    all[3] = (double)s->missing;
    all[4] = (double)s->sources;
    all[5] = (double)(s->offsets > 0);
    return stead_builder_doubles(b, all, 6);
}

static void texts(void) {
    static const char *column[] = {"k"};
    enum { LINES = 20000 };
    char *text = malloc(LINES * 16 + 8), *p = text;
    stead_kernel k = {0};
    stead_error *e = NULL;
    stead_dataset *d;
    double first[6] = {0}, all[6], sum = 0;
    int i;
    size_t threads;
    uint64_t wanted = 0;
    if (!text) abort();
    p += sprintf(p, "k,x\n");
    for (i = 0; i < LINES; i++) {
        char key[16];
        int n = sprintf(key, "key%d", i % 97);
        if (i % 10 == 0) p += sprintf(p, ",%d\n", i % 7);
        else p += sprintf(p, "%s,%d\n", key, i % 7);
        if (i % 10) wanted += hash(key, (size_t)n);
    }
    d = open_bytes("k.csv", text);
    sum = (double)wanted;
    k.size = sizeof k;
    k.name = "hash";
    k.state_size = sizeof(hashes);
    k.texts = column;
    k.text_count = 1;
    k.needs = STEAD_NEEDS_BYTES | STEAD_NEEDS_RECORDS | STEAD_NEEDS_ROWS;
    k.update = hashes_update;
    k.merge = hashes_merge;
    k.finish = hashes_finish;
    for (threads = 1; threads <= 4; threads++) {
        stead_request *q = NULL;
        stead_report *r = NULL;
        stead_value v;
        OK(stead_request_new(&q, &e));
        OK(stead_request_own_kernel(q, &k, &e));
        OK(stead_request_threads(q, threads, &e));
        OK(stead_request_extent(q, 4096, &e));
        OK(stead_run(d, q, &r, &e));
        OK(stead_report_result(r, "hash", &v, &e));
        OK(stead_value_doubles(v, all, 6, NULL, &e));
        CHECK(all[0] == sum && all[1] == (double)(p - text) && all[2] == (double)(p - text - 4));
        CHECK(all[3] == LINES / 10 && all[4] == 0 && all[5] == 1);
        if (threads == 1) memcpy(first, all, sizeof all);
        CHECK(memcmp(first, all, sizeof all) == 0);
        stead_report_free(r);
        stead_request_free(q);
    }
    stead_dataset_free(d);
    free(text);
}

/* What depends on the order of values: a polynomial of them. */
typedef struct {
    uint64_t sum, factor;
} chain;

static int chain_init(void *state, void *user) {
    (void)user;
    ((chain *)state)->factor = 1;
    return 0;
}

static int chain_merge(void *state, const void *other, void *user) {
    chain *s = state;
    const chain *o = other;
    (void)user;
    s->sum = s->sum * o->factor + o->sum;
    s->factor *= o->factor;
    return 0;
}

static int chain_update(void *state, const stead_block *b, void *user) {
    const double *x = stead_block_numbers(b, 0);
    size_t i, n = stead_block_rows(b);
    for (i = 0; i < n; i++) {
        chain one = {(uint64_t)x[i], 1099511628211u};
        chain_merge(state, &one, user);
    }
    return 0;
}

static int chain_finish(void *state, stead_builder *b, void *user) {
    (void)user;
    return stead_builder_int(b, ((chain *)state)->sum);
}

static void in_order(void) {
    static const char *column[] = {"x"};
    enum { LINES = 20000 };
    char *text = malloc(LINES * 8 + 8), *p = text;
    stead_kernel k = {0};
    stead_error *e = NULL;
    stead_dataset *d;
    uint64_t wanted = 0, got;
    size_t threads;
    int i;
    if (!text) abort();
    p += sprintf(p, "x\n");
    for (i = 0; i < LINES; i++) {
        p += sprintf(p, "%d\n", i % 97);
        wanted = wanted * 1099511628211u + (uint64_t)(i % 97);
    }
    d = open_bytes("x.csv", text);
    k.size = sizeof k;
    k.name = "chain";
    k.state_size = sizeof(chain);
    k.numbers = column;
    k.number_count = 1;
    k.needs = STEAD_NEEDS_ORDER;
    k.init = chain_init;
    k.update = chain_update;
    k.merge = chain_merge;
    k.finish = chain_finish;
    for (threads = 1; threads <= 4; threads++) {
        stead_request *q = NULL;
        stead_report *r = NULL;
        stead_value v;
        OK(stead_request_new(&q, &e));
        OK(stead_request_own_kernel(q, &k, &e));
        OK(stead_request_threads(q, threads, &e));
        OK(stead_request_extent(q, 1024, &e));
        OK(stead_run(d, q, &r, &e));
        OK(stead_report_result(r, "chain", &v, &e));
        OK(stead_value_int(v, &got, &e));
        CHECK(got == wanted);
        stead_report_free(r);
        stead_request_free(q);
    }
    stead_dataset_free(d);
    free(text);
}

/* Every kind of result. */
static int (*building)(stead_builder *);
static stead_builder *kept_builder;
static const stead_block *kept_block;

static int nothing(void *state, const stead_block *b, void *user) {
    (void)state;
    (void)user;
    kept_block = b;
    return 0;
}
static int merge_nothing(void *state, const void *other, void *user) {
    (void)state;
    (void)other;
    (void)user;
    return 0;
}
static int build(void *state, stead_builder *b, void *user) {
    (void)state;
    (void)user;
    kept_builder = b;
    return building(b);
}

static int everything(stead_builder *b) {
    static const double m[] = {1, 2, 3, 4, 5, 6};
    int bad = stead_builder_list(b);
    bad |= stead_builder_null(b) | stead_builder_bool(b, true) | stead_builder_int(b, UINT64_MAX);
    bad |= stead_builder_double(b, -0.5) | stead_builder_text(b, "h\xc3\xa9") | stead_builder_matrix(b, m, 2, 3);
    bad |= stead_builder_map(b) | stead_builder_key(b, "a") | stead_builder_list(b) | stead_builder_end(b);
    return bad | stead_builder_end(b) | stead_builder_end(b);
}
static int none(stead_builder *b) {
    (void)b;
    return 0;
}
static int twice(stead_builder *b) { return stead_builder_null(b) || stead_builder_null(b); }
static int open_list(stead_builder *b) { return stead_builder_list(b); }
static int no_key(stead_builder *b) { return stead_builder_map(b) || stead_builder_int(b, 1); }
static int two_keys(stead_builder *b) {
    return stead_builder_map(b) || stead_builder_key(b, "a") || stead_builder_key(b, "b");
}
static int key_alone(stead_builder *b) { return stead_builder_key(b, "a"); }
static int no_value(stead_builder *b) {
    return stead_builder_map(b) || stead_builder_key(b, "a") || stead_builder_end(b);
}
static int end_alone(stead_builder *b) { return stead_builder_end(b); }
static int null_text(stead_builder *b) { return stead_builder_text(b, NULL); }
static int null_numbers(stead_builder *b) { return stead_builder_doubles(b, NULL, 3); }
static int vast(stead_builder *b) { return stead_builder_matrix(b, (double *)&b, (size_t)-1, 3); }
static int foreign(stead_builder *b) {
    (void)b;
    return stead_builder_null((stead_builder *)&building);
}
static int deep(stead_builder *b) {
    int i, bad = 0;
    for (i = 0; i < 100 && !bad; i++) bad = stead_builder_list(b);
    return bad;
}
static int fails(stead_builder *b) {
    (void)b;
    return stead_fail(STEAD_LIMIT, "not today");
}
static int fails_oddly(stead_builder *b) {
    (void)b;
    return stead_fail(-3, NULL);
}
static int fails_silently(stead_builder *b) {
    (void)b;
    return 42;
}

static void results(void) {
    static const struct {
        int (*call)(stead_builder *);
        stead_status status;
        const char *says;
    } cases[] = {
        {everything, STEAD_OK, "[null,true,18446744073709551615,-0.5,\"h\xc3\xa9\",[[1.0,2.0,3.0],[4.0,5.0,6.0]],{\"a\":[]}]"},
        {none, STEAD_OK, "null"},
        {twice, STEAD_USAGE, "given already"},
        {open_list, STEAD_USAGE, "not ended"},
        {no_key, STEAD_USAGE, "needs a name"},
        {two_keys, STEAD_USAGE, "before 'b' has no value"},
        {key_alone, STEAD_USAGE, "no map is open"},
        {no_value, STEAD_USAGE, "'a' has no value"},
        {end_alone, STEAD_USAGE, "no list and no map"},
        {null_text, STEAD_USAGE, "the text is NULL"},
        {null_numbers, STEAD_USAGE, "the numbers is NULL"},
        {vast, STEAD_USAGE, "memory"},
        {foreign, STEAD_USAGE, "not the builder"},
        {deep, STEAD_USAGE, "nested deeper"},
        {fails, STEAD_LIMIT, "kernel 'own': not today"},
        {fails_oddly, STEAD_DATA, "failed"},
        {fails_silently, STEAD_DATA, "'finish' of kernel 'own' returned 42"},
    };
    stead_error *e = NULL;
    stead_dataset *d = open_bytes("x.csv", "x\n1\n2\n");
    stead_kernel k = {0};
    size_t i;
    k.size = sizeof k;
    k.name = "own";
    k.needs = STEAD_NEEDS_ROWS;
    k.update = nothing;
    k.merge = merge_nothing;
    k.finish = build;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        stead_request *q = NULL;
        stead_report *r = NULL;
        OK(stead_request_new(&q, &e));
        OK(stead_request_own_kernel(q, &k, &e));
        building = cases[i].call;
        if (cases[i].status == STEAD_OK) {
            stead_value v;
            char *json = NULL, *p, *o;
            OK(stead_run(d, q, &r, &e));
            OK(stead_report_result(r, "own", &v, &e));
            OK(stead_value_json(v, &json, &e));
            for (p = o = json; *p; p++)
                if (*p != ' ' && *p != '\n') *o++ = *p;
            *o = 0;
            CHECK(strcmp(json, cases[i].says) == 0);
            stead_text_free(json);
            stead_report_free(r);
        } else {
            FAILS(cases[i].status, cases[i].says, stead_run(d, q, &r, &e));
        }
        stead_request_free(q);
    }
    /* After the call there is no builder and no block. */
    CHECK(stead_builder_null(kept_builder) == STEAD_USAGE && stead_builder_null(NULL) == STEAD_USAGE);
    CHECK(stead_block_rows(kept_block) == 0 && stead_block_rows(NULL) == 0);
    CHECK(stead_block_numbers(kept_block, 0) == NULL && stead_block_run_count(kept_block) == 0);
    SAYS(stead_last_message(), "lent to this call");
    stead_dataset_free(d);
}

static int bad_update(void *state, const stead_block *b, void *user) {
    (void)state;
    (void)b;
    (void)user;
    return stead_fail(STEAD_DATA, "a negative weight");
}

static int bad_init(void *state, void *user) {
    (void)state;
    (void)user;
    return stead_fail(STEAD_NO_SPACE, "no table");
}

/* Several passes: the smallest number that at least half of the values are no greater than, found bit by bit. */
typedef struct {
    uint64_t values, found, below;
    int bit;
} search;

static int search_init(void *state, void *user) {
    (void)user;
    ((search *)state)->bit = 10;
    return 0;
}

static int search_update(void *state, const stead_block *b, void *user) {
    search *s = state;
    const double *x = stead_block_numbers(b, 0);
    size_t i, n = stead_block_rows(b);
    (void)user;
    for (i = 0; i < n; i++) {
        if (s->bit == 10) s->values++;
        else s->below += x[i] < (double)(s->found + (1u << s->bit));
    }
    return 0;
}

static int search_merge(void *state, const void *other, void *user) {
    search *s = state;
    const search *o = other;
    (void)user;
    if (s->bit == 10) s->values += o->values;
    else s->below += o->below;
    return 0;
}

static int search_finish(void *state, stead_builder *b, void *user) {
    search *s = state;
    (void)user;
    if (s->bit < 10 && s->below < (s->values + 1) / 2) s->found += 1u << s->bit;
    if (s->bit == 0) return stead_builder_double(b, (double)s->found);
    s->bit--;
    s->below = 0;
    return stead_builder_again(b);
}

static int given_and_again(void *state, stead_builder *b, void *user) {
    (void)state;
    (void)user;
    return stead_builder_int(b, 1) || stead_builder_again(b);
}
static int open_and_again(void *state, stead_builder *b, void *user) {
    (void)state;
    (void)user;
    return stead_builder_list(b) || stead_builder_again(b);
}
static int again_and_given(void *state, stead_builder *b, void *user) {
    (void)state;
    (void)user;
    return stead_builder_again(b) || stead_builder_int(b, 1);
}

static void passes(void) {
    static const char *column[] = {"0"};
    static const uint64_t shape[] = {50000, 2};
    static double x[100000];
    static const struct {
        int (*finish)(void *, stead_builder *, void *);
        const char *says;
    } bad[] = {
        {given_and_again, "a result was given"},
        {open_and_again, "a result was given"},
        {again_and_given, "before the last pass"},
    };
    /* Of all values, and of those at even and odd places. */
    static const double halves[] = {332, 498, 249};
    stead_error *e = NULL;
    stead_dataset *d = NULL;
    stead_kernel k = {0};
    stead_request *q = NULL;
    stead_report *r = NULL;
    stead_value v, member;
    double found = 0;
    size_t i, threads, groups;
    for (i = 0; i < 50000; i++) {
        x[2 * i] = (double)(i * 7919 % 1000 / (1 + i % 2));
        x[2 * i + 1] = (double)(i % 2);
    }
    OK(stead_open_array("x", x, STEAD_F64, 2, shape, STEAD_ORDER_C, NULL, NULL, &d, &e));
    k.size = sizeof k;
    k.name = "half";
    k.state_size = sizeof(search);
    k.numbers = column;
    k.number_count = 1;
    k.init = search_init;
    k.update = search_update;
    k.merge = search_merge;
    k.finish = search_finish;
    for (threads = 1; threads <= 4; threads++) {
        for (groups = 0; groups <= 2; groups += 2) {
            OK(stead_request_new(&q, &e));
            OK(stead_request_own_kernel(q, &k, &e));
            OK(stead_request_threads(q, threads, &e));
            OK(stead_request_extent(q, 1 << 14, &e));
            if (groups) OK(stead_request_by(q, "1", &e));
            OK(stead_run(d, q, &r, &e));
            OK(stead_report_result(r, "half", &v, &e));
            if (!groups) {
                OK(stead_value_double(v, &found, &e));
                CHECK(found == halves[0]);
            }
            for (i = 0; i < groups; i++) {
                OK(stead_value_at(v, i, &member, &e));
                OK(stead_value_double(member, &found, &e));
                CHECK(found == halves[1 + i]);
            }
            stead_report_free(r);
            stead_request_free(q);
        }
    }
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        OK(stead_request_new(&q, &e));
        k.finish = bad[i].finish;
        OK(stead_request_own_kernel(q, &k, &e));
        FAILS(STEAD_USAGE, bad[i].says, stead_run(d, q, &r, &e));
        stead_request_free(q);
    }
    stead_dataset_free(d);
}

/* Kernels that lack something, and kernels that fail. */
static void misuse(void) {
    static const char *column[] = {"x"}, *unknown[] = {"y"}, *text[] = {"k"};
    stead_error *e = NULL;
    stead_dataset *d = open_bytes("x.csv", "k,x\na,1\nb,2\n");
    stead_request *q = NULL;
    stead_report *r = NULL;
    int released = 0;
    stead_kernel good = extremes_of(column), k;
    OK(stead_request_new(&q, &e));
    good.user = &released;
    good.release = on_release;
#define BAD(member, value, says) \
    k = good; \
    k.member = value; \
    FAILS(STEAD_USAGE, says, stead_request_own_kernel(q, &k, &e))
    BAD(size, 8, "8 is no size of stead_kernel");
    CHECK(released == 0);
    BAD(name, NULL, "name of the kernel is NULL");
    CHECK(released == 1);
    BAD(name, "", "needs a name");
    BAD(update, NULL, "no function 'update'");
    BAD(merge, NULL, "no function 'merge'");
    BAD(finish, NULL, "no function 'finish'");
    BAD(numbers, NULL, "NULL");
    BAD(text_count, 3, "NULL");
    BAD(needs, 1u << 20, "need");
    BAD(state_size, (size_t)-1, "too large");
    CHECK(released == 9);
    FAILS(STEAD_USAGE, "kernel is NULL", stead_request_own_kernel(q, NULL, &e));
    FAILS(STEAD_USAGE, "request is NULL", stead_request_own_kernel(NULL, &good, &e));
    CHECK(released == 10);
    good.release = NULL;
    good.user = NULL;
#define RUN_BAD(member, value, kind, says) \
    k = good; \
    k.member = value; \
    OK(stead_request_own_kernel(q, &k, &e)); \
    FAILS(kind, says, stead_run(d, q, &r, &e)); \
    stead_request_free(q); \
    OK(stead_request_new(&q, &e))
    RUN_BAD(numbers, unknown, STEAD_USAGE, "no column 'y'");
    RUN_BAD(numbers, text, STEAD_DATA, "holds text");
    RUN_BAD(init, bad_init, STEAD_NO_SPACE, "kernel 'extremes': no table");
    RUN_BAD(update, bad_update, STEAD_DATA, "x.csv: kernel 'extremes': a negative weight");
    /* Two of one name. */
    OK(stead_request_kernel(q, "extremes", &e));
    OK(stead_request_own_kernel(q, &good, &e));
    FAILS(STEAD_USAGE, "extremes", stead_run(d, q, &r, &e));
    stead_request_free(q);
    stead_dataset_free(d);
}

int main(void) {
    same_bits();
    texts();
    in_order();
    results();
    passes();
    misuse();
    CHECK(stead_handles_alive() == 0);
    return ended("kernels");
}
