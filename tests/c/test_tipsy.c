/* Tipsy snapshots in C: every variant of the format, shares, columns of the caller, reads that do not wait, and what is
 * wrong. */
#include "check.h"

#include <stdint.h>
#include <stdlib.h>

static stead_error *e = NULL;

/* A variant of the format. */
struct variant {
    int big, header, doubles; /* doubles: 0 none, 1 positions, 2 velocities, too */
};

static const char *const names[3][12] = {
    {"mass", "x", "y", "z", "vx", "vy", "vz", "rho", "temp", "hsmooth", "metals", "phi"},
    {"mass", "x", "y", "z", "vx", "vy", "vz", "eps", "phi"},
    {"mass", "x", "y", "z", "vx", "vy", "vz", "metals", "tform", "eps", "phi"},
};
static const int fields[3] = {12, 9, 11};

/* The value of a field of a particle; floats have it exactly. */
static double value(int species, uint64_t i, int field) { return species * 100000.0 + (double)i * 16 + field + 0.5; }

static void put(FILE *f, uint64_t bits, int size, int big) {
    int i;
    for (i = 0; i < size; i++) putc((int)(bits >> 8 * (big ? size - 1 - i : i) & 255), f);
}

static void put_real(FILE *f, double x, int size, int big) {
    const float single = (float)x;
    uint32_t half;
    uint64_t bits;
    memcpy(&half, &single, sizeof half);
    memcpy(&bits, &x, sizeof bits);
    put(f, size == 8 ? bits : half, size, big);
}

static int size_of(struct variant v, int field) {
    return (v.doubles > 0 && field >= 1 && field <= 3) || (v.doubles > 1 && field >= 4 && field <= 6) ? 8 : 4;
}

static void make(const char *path, struct variant v, const uint64_t counts[3]) {
    FILE *f = fopen(path, "wb");
    uint64_t i, all = counts[0] + counts[1] + counts[2];
    int k, field;
    CHECK(f != NULL);
    if (!f) return;
    put_real(f, 0.25, 8, v.big);
    put(f, all & 0xffffffff, 4, v.big);
    put(f, 3, 4, v.big);
    for (k = 0; k < 3; k++) put(f, counts[k] & 0xffffffff, 4, v.big);
    if (v.header == 32) put(f, 0, 4, v.big);
    for (k = 0; k < 3; k++)
        for (i = 0; i < counts[k]; i++)
            for (field = 0; field < fields[k]; field++) put_real(f, value(k, i, field), size_of(v, field), v.big);
    CHECK(fclose(f) == 0);
}

/* All columns of all species, in so many shares, as doubles. */
static void shares(stead_tipsy *snapshot, const uint64_t counts[3], size_t tasks) {
    int k, field;
    size_t task;
    for (k = 0; k < 3; k++) {
        uint64_t row = 0, i;
        for (task = 0; task < tasks; task++) {
            stead_tipsy_part part;
            stead_tipsy_column columns[12];
            double *all;
            int wrong = 0;
            OK(stead_tipsy_share(snapshot, k, task, tasks, &part, &e));
            CHECK(part.first == row);
            all = malloc(sizeof *all * (size_t)(part.count + 1) * 12);
            if (!all) return;
            for (field = 0; field < fields[k]; field++) {
                columns[field].name = names[k][field];
                columns[field].data = all + (size_t)field * (size_t)part.count;
                columns[field].dtype = STEAD_F64;
                columns[field].stride = 0;
            }
            OK(stead_tipsy_load(snapshot, k, task, tasks, columns, (size_t)fields[k], &e));
            for (field = 0; field < fields[k]; field++)
                for (i = 0; i < part.count; i++)
                    wrong += all[(size_t)field * (size_t)part.count + (size_t)i] != value(k, row + i, field);
            CHECK(wrong == 0);
            row += part.count;
            free(all);
        }
        CHECK(row == counts[k]);
    }
}

static void variants(void) {
    const uint64_t counts[3] = {70, 40, 9};
    struct variant v;
    for (v.big = 0; v.big < 2; v.big++)
        for (v.header = 28; v.header <= 32; v.header += 4)
            for (v.doubles = 0; v.doubles < 3; v.doubles++) {
                stead_tipsy *snapshot = NULL;
                stead_tipsy_header h;
                int k, field;
                make("variant.tipsy", v, counts);
                OK(stead_tipsy_open("variant.tipsy", NULL, &snapshot, &e));
                OK(stead_tipsy_describe(snapshot, &h, sizeof h, &e));
                CHECK(h.time == 0.25 && h.header_bytes == (uint64_t)v.header && h.big_endian == (v.big == 1));
                CHECK(h.positions == (v.doubles > 0 ? STEAD_F64 : STEAD_F32));
                CHECK(h.velocities == (v.doubles > 1 ? STEAD_F64 : STEAD_F32));
                for (k = 0; k < 3; k++) {
                    stead_tipsy_field found[12];
                    size_t offset = 0;
                    CHECK(h.counts[k] == counts[k]);
                    CHECK(stead_tipsy_fields(snapshot, k, found, 12) == (size_t)fields[k]);
                    for (field = 0; field < fields[k]; field++) {
                        CHECK(!strcmp(found[field].name, names[k][field]) && found[field].offset == offset);
                        CHECK(found[field].dtype == (size_of(v, field) == 8 ? STEAD_F64 : STEAD_F32));
                        offset += (size_t)size_of(v, field);
                    }
                    CHECK(h.record_bytes[k] == offset);
                }
                shares(snapshot, counts, 1);
                shares(snapshot, counts, 7);
                shares(snapshot, counts, 100); /* more than there are particles */
                OK(stead_tipsy_close(snapshot, &e));
            }
}

/* More particles than 32 bits count, in a file that takes no room: what is not written reads as zeros. */
static void large(void) {
    const uint64_t counts[3] = {3, 0x100000005u, 4};
    const int bigs[2] = {0, 1};
    int n;
    for (n = 0; n < 2; n++) {
        const int big = bigs[n];
        FILE *f = fopen("large.tipsy", "wb");
        stead_tipsy *snapshot = NULL;
        stead_tipsy_header h;
        stead_tipsy_part part;
        float mass[2] = {7, 7};
        stead_tipsy_column column = {"mass", NULL, STEAD_F32, 0};
        column.data = mass;
        CHECK(f != NULL);
        if (!f) return;
        put_real(f, 1, 8, big);
        put(f, 12, 4, big);
        put(f, 3, 4, big);
        put(f, 3, 4, big);
        put(f, 5, 4, big);
        put(f, 4, 4, big);
        put(f, 0x00010001, 4, big); /* bits 32 to 39: of all, gas, dark, stars, the lowest byte first */
        CHECK(fseek(f, (long)(32 + 48 * counts[0] + 36 * counts[1] + 44 * counts[2] - 1), SEEK_SET) == 0);
        putc(0, f);
        CHECK(fclose(f) == 0);
        OK(stead_tipsy_open("large.tipsy", NULL, &snapshot, &e));
        OK(stead_tipsy_describe(snapshot, &h, sizeof h, &e));
        CHECK(h.counts[STEAD_GAS] == 3 && h.counts[STEAD_DARK] == counts[1] && h.counts[STEAD_STAR] == 4);
        OK(stead_tipsy_share(snapshot, STEAD_DARK, 0x7fffffff, 0x80000000u, &part, &e));
        CHECK(part.first + part.count == counts[1] && part.count == 3);
        OK(stead_tipsy_load(snapshot, STEAD_STAR, 1, 2, &column, 1, &e));
        CHECK(mass[0] == 0 && mass[1] == 0);
        OK(stead_tipsy_close(snapshot, &e));
        remove("large.tipsy");
    }
}

struct particle {
    char of_the_program[3];
    float mass;
    double position[3];
    int pieces;
};

/* Members of structs of the program, at odd addresses too, and only these. */
static void structs(void) {
    const uint64_t counts[3] = {0, 50000, 0};
    const struct variant v = {1, 32, 0};
    enum { N = 25000 };
    struct particle *p = calloc(N, sizeof *p);
    char *odd = calloc(N + 1, 12);
    stead_tipsy *snapshot = NULL;
    stead_read_options o = {0};
    stead_tipsy_column columns[4] = {{"z", NULL, STEAD_F64, sizeof *p},
                                     {"mass", NULL, STEAD_F32, sizeof *p},
                                     {"vx", NULL, STEAD_F32, 12},
                                     {"z", NULL, STEAD_F64, 12}};
    int i, wrong = 0;
    if (!p || !odd) return;
    columns[0].data = &p->position[2];
    columns[1].data = &p->mass;
    columns[2].data = odd + 1;
    columns[3].data = odd + 5;
    make("structs.tipsy", v, counts);
    o.size = sizeof o;
    o.flags = STEAD_READ_PREAD;
    o.memory = 1 << 20;
    o.block = 4096;
    OK(stead_tipsy_open("structs.tipsy", &o, &snapshot, &e));
    OK(stead_tipsy_load(snapshot, STEAD_DARK, 1, 2, columns, 4, &e));
    for (i = 0; i < N; i++) {
        const uint64_t at = (uint64_t)i + N;
        float vx;
        double z;
        memcpy(&vx, odd + 1 + 12 * i, sizeof vx);
        memcpy(&z, odd + 5 + 12 * i, sizeof z);
        wrong += p[i].position[2] != value(1, at, 3) || p[i].mass != (float)value(1, at, 0) || p[i].pieces ||
                 p[i].position[0] != 0 || vx != (float)value(1, at, 4) || z != value(1, at, 3);
    }
    CHECK(wrong == 0 && odd[0] == 0);
    OK(stead_tipsy_close(snapshot, &e));
    free(p);
    free(odd);
}

/* Shares that come to a queue, in whatever order. */
static void queue(void) {
    enum { TASKS = 300 };
    const uint64_t counts[3] = {10000, 0, 5};
    const struct variant v = {0, 28, 1};
    stead_tipsy *snapshot = NULL;
    stead_session *session = NULL;
    stead_queue *queue = NULL;
    stead_completion done;
    size_t task, came = 0;
    char seen[TASKS] = {0};
    make("queue.tipsy", v, counts);
    OK(stead_tipsy_open("queue.tipsy", NULL, &snapshot, &e));
    OK(stead_tipsy_session(snapshot, &session, &e));
    OK(stead_queue_new(&queue, &e));
    for (task = 0; task < TASKS; task++) {
        stead_tipsy_part part;
        OK(stead_tipsy_share(snapshot, STEAD_GAS, task, TASKS, &part, &e));
        OK(stead_queue_read(queue, session, part.offset, (size_t)part.bytes, (void *)task, &e));
    }
    while (stead_queue_next(queue, -1, &done)) {
        double z[64] = {0}, phi[64] = {0};
        stead_tipsy_column columns[2] = {{"z", NULL, STEAD_F64, 0}, {"phi", NULL, STEAD_F64, 0}};
        stead_tipsy_part part;
        uint64_t i;
        columns[0].data = z;
        columns[1].data = phi;
        CHECK(done.error == NULL);
        task = (size_t)done.user;
        seen[task]++;
        OK(stead_tipsy_share(snapshot, STEAD_GAS, task, TASKS, &part, &e));
        OK(stead_tipsy_decode(snapshot, STEAD_GAS, done.view.data, done.view.size, columns, 2, &e));
        for (i = 0; i < part.count; i++)
            CHECK(z[i] == value(0, part.first + i, 3) && phi[i] == value(0, part.first + i, 11));
        stead_view_release(&done.view);
        came++;
    }
    CHECK(came == TASKS && memchr(seen, 0, TASKS) == NULL);
    /* The session goes on without the snapshot. */
    OK(stead_tipsy_close(snapshot, &e));
    {
        char byte;
        OK(stead_read_now(session, 0, &byte, 1, &e));
    }
    OK(stead_session_close(session, &e));
    stead_queue_free(queue);
}

static void wrong(void) {
    const uint64_t counts[3] = {1, 2, 3}, none[3] = {0, 0, 0};
    const struct variant v = {1, 32, 1};
    stead_tipsy *snapshot = (stead_tipsy *)&e, *bad = NULL;
    stead_session *session = NULL;
    stead_tipsy_header h;
    struct {
        stead_tipsy_header known;
        uint64_t later, beyond;
    } grown;
    stead_tipsy_part part;
    double room[16];
    char records[60] = {0};
    stead_tipsy_column column = {"mass", NULL, STEAD_F64, 0};
    int asked = 0;
    FILE *f;
    column.data = room;
    FAILS(STEAD_NOT_FOUND, "no/such", stead_tipsy_open("no/such", NULL, &snapshot, &e));
    CHECK(snapshot == NULL);
    FAILS(STEAD_USAGE, "NULL", stead_tipsy_open(NULL, NULL, &snapshot, &e));
    FAILS(STEAD_USAGE, "NULL", stead_tipsy_open("wrong.tipsy", NULL, NULL, &e));
    FAILS(STEAD_PEER, "no ranks today", stead_tipsy_open_ranks(no_ranks, &asked, "wrong.tipsy", NULL, &snapshot, &e));
    FAILS(STEAD_USAGE, "makes a fabric", stead_tipsy_open_ranks(NULL, NULL, "wrong.tipsy", NULL, &snapshot, &e));
    CHECK(asked == 1 && snapshot == NULL);

    make("wrong.tipsy", v, counts);
    f = fopen("wrong.tipsy", "ab");
    CHECK(f && putc(0, f) == 0 && fclose(f) == 0);
    FAILS(STEAD_FORMAT, "odd Tipsy file", stead_tipsy_open("wrong.tipsy", NULL, &snapshot, &e));
    f = fopen("wrong.tipsy", "wb");
    CHECK(f && fputs("short", f) >= 0 && fclose(f) == 0);
    FAILS(STEAD_FORMAT, "ends in its header", stead_tipsy_open("wrong.tipsy", NULL, &snapshot, &e));

    make("wrong.tipsy", v, counts);
    OK(stead_tipsy_open("wrong.tipsy", NULL, &snapshot, &e));
    FAILS(STEAD_USAGE, "no size of", stead_tipsy_describe(snapshot, &h, 3, &e));
    FAILS(STEAD_USAGE, "no size of", stead_tipsy_describe(snapshot, &h, sizeof h - 1, &e));
    FAILS(STEAD_USAGE, "no size of", stead_tipsy_describe(snapshot, &h, (size_t)-1, &e));
    /* A program of a later version. */
    memset(&grown, 7, sizeof grown);
    OK(stead_tipsy_describe(snapshot, &grown.known, sizeof h + sizeof grown.later, &e));
    CHECK(grown.known.counts[2] == 3 && grown.later == 0 && grown.beyond == 0x0707070707070707);
    FAILS(STEAD_USAGE, "NULL", stead_tipsy_describe(snapshot, NULL, sizeof h, &e));
    FAILS(STEAD_USAGE, "no task 3 of 3", stead_tipsy_share(snapshot, STEAD_GAS, 3, 3, &part, &e));
    FAILS(STEAD_USAGE, "no species", stead_tipsy_share(snapshot, 3, 0, 1, &part, &e));
    FAILS(STEAD_USAGE, "no species", stead_tipsy_share(snapshot, -1, 0, 1, &part, &e));
    FAILS(STEAD_USAGE, "NULL", stead_tipsy_share(snapshot, STEAD_GAS, 0, 1, NULL, &e));
    CHECK(stead_tipsy_fields(snapshot, 7, NULL, 0) == 0 && stead_tipsy_fields(snapshot, STEAD_STAR, NULL, 0) == 11);
    FAILS(STEAD_USAGE, "no task", stead_tipsy_load(snapshot, STEAD_GAS, 0, 0, &column, 1, &e));
    FAILS(STEAD_USAGE, "no column", stead_tipsy_load(snapshot, STEAD_GAS, 0, 1, &column, 0, &e));
    FAILS(STEAD_USAGE, "NULL", stead_tipsy_load(snapshot, STEAD_GAS, 0, 1, NULL, 1, &e));
    FAILS(STEAD_USAGE, "no species", stead_tipsy_load(snapshot, 9, 0, 1, &column, 1, &e));
    column.name = "tform";
    FAILS(STEAD_USAGE, "no column 'tform'", stead_tipsy_load(snapshot, STEAD_DARK, 0, 1, &column, 1, &e));
    column.name = NULL;
    FAILS(STEAD_USAGE, "NULL", stead_tipsy_load(snapshot, STEAD_DARK, 0, 1, &column, 1, &e));
    column.name = "x";
    column.dtype = STEAD_F32;
    FAILS(STEAD_USAGE, "the array is of floats", stead_tipsy_load(snapshot, STEAD_DARK, 0, 1, &column, 1, &e));
    column.dtype = STEAD_I32;
    FAILS(STEAD_USAGE, "array of i32", stead_tipsy_load(snapshot, STEAD_DARK, 0, 1, &column, 1, &e));
    column.dtype = STEAD_F64;
    column.stride = 7;
    FAILS(STEAD_USAGE, "overlap", stead_tipsy_load(snapshot, STEAD_DARK, 0, 1, &column, 1, &e));
    column.stride = (size_t)-1;
    FAILS(STEAD_USAGE, "fit no memory", stead_tipsy_load(snapshot, STEAD_DARK, 0, 1, &column, 1, &e));
    column.stride = 0;
    column.data = NULL;
    FAILS(STEAD_USAGE, "NULL", stead_tipsy_load(snapshot, STEAD_DARK, 0, 1, &column, 1, &e));
    /* No particles need no room. */
    OK(stead_tipsy_load(snapshot, STEAD_DARK, 0, 5, &column, 1, &e));
    column.data = room;
    FAILS(STEAD_USAGE, "no whole gas records", stead_tipsy_decode(snapshot, STEAD_GAS, records, 59, &column, 1, &e));
    FAILS(STEAD_USAGE, "NULL", stead_tipsy_decode(snapshot, STEAD_GAS, NULL, 60, &column, 1, &e));
    OK(stead_tipsy_decode(snapshot, STEAD_GAS, records, 60, &column, 1, &e));
    CHECK(room[0] == 0);
    FAILS(STEAD_USAGE, "NULL", stead_tipsy_session(snapshot, NULL, &e));

    /* It becomes shorter while it is open. */
    f = fopen("wrong.tipsy", "wb");
    CHECK(f && fclose(f) == 0);
    FAILS(STEAD_CHANGED, "wrong.tipsy", stead_tipsy_load(snapshot, STEAD_STAR, 0, 1, &column, 1, &e));
    bad = snapshot;
    FAILS(STEAD_CHANGED, "wrong.tipsy", stead_tipsy_close(snapshot, &e));
    FAILS(STEAD_USAGE, "freed", stead_tipsy_close(bad, &e));
    FAILS(STEAD_USAGE, "freed", stead_tipsy_session(bad, &session, &e));
    FAILS(STEAD_USAGE, "snapshot is NULL", stead_tipsy_describe(NULL, &h, sizeof h, &e));
    OK(stead_tipsy_close(NULL, &e));

    /* A file of no particles is one. */
    make("wrong.tipsy", v, none);
    OK(stead_tipsy_open("wrong.tipsy", NULL, &snapshot, &e));
    FAILS(STEAD_USAGE, "a snapshot, and a session is needed", stead_session_close((stead_session *)snapshot, &e));
    OK(stead_tipsy_load(snapshot, STEAD_STAR, 2, 3, &column, 1, &e));
    OK(stead_tipsy_close(snapshot, &e));
}

int main(void) {
    variants();
    large();
    structs();
    queue();
    wrong();
    CHECK(stead_handles_alive() == 0);
    return ended("tipsy");
}
