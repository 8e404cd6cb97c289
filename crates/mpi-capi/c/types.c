/*
 * Datatypes: the bytes that they cover, and the elements that they are made of.
 *
 * MPI tells of each datatype how it was made (MPI_Type_get_envelope, MPI_Type_get_contents). Each part is asked for once,
 * and what it covers is repeated as the constructor says; neighbours become one run. What comes out is compared with the size
 * and the true extent that MPI itself gives, so that what is misunderstood is refused and not computed with.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "io.h"
#include <limits.h>

/* Datatypes within datatypes. */
#define MOST_DEPTH 64

void io_runs_free(struct io_runs *runs) {
    free(runs->at);
    *runs = (struct io_runs){0};
}

static int too_large(void) {
    return io_fail(MPI_ERR_TYPE, "a datatype reaches beyond 63 bits");
}

/* Adds a run behind the others. */
static int append(struct io_runs *runs, int64_t offset, int64_t length) {
    int64_t end;
    if (length == 0) return MPI_SUCCESS;
    if (__builtin_add_overflow(offset, length, &end)) return too_large();
    if (runs->count) {
        struct io_run *last = &runs->at[runs->count - 1];
        int64_t after = last->offset + last->length;
        if (offset < after)
            return io_fail(MPI_ERR_TYPE,
                           "a datatype whose displacements descend or whose parts overlap (%lld after %lld) is "
                           "none for a view that is computed on; as MPI-IO asks for, they must rise",
                           (long long)offset, (long long)after);
        if (offset == after) {
            return __builtin_sub_overflow(end, last->offset, &last->length) ? too_large() : MPI_SUCCESS;
        }
    }
    if (runs->count == runs->room) {
        if (runs->count >= IO_MOST_RUNS)
            return io_fail(MPI_ERR_TYPE,
                           "a datatype of more than %zu pieces is too scattered to be sent with a request (make a "
                           "datatype of one repetition, which a view repeats by itself)",
                           IO_MOST_RUNS);
        size_t room = runs->room ? 2 * runs->room : 16;
        struct io_run *more = realloc(runs->at, room * sizeof *more);
        if (!more) return io_fail(MPI_ERR_NO_MEM, "no memory for %zu pieces of a datatype", room);
        runs->at = more;
        runs->room = room;
    }
    runs->at[runs->count++] = (struct io_run){offset, length};
    return MPI_SUCCESS;
}

/* Adds `n` times what `part` covers, the first at `base`, each `stride` after the one before. */
static int repeat(struct io_runs *runs, const struct io_runs *part, int64_t base, int64_t n, int64_t stride) {
    if (part->count == 0 || n <= 0) return MPI_SUCCESS;
    const struct io_run *first = part->at;
    int64_t length, from;
    if (part->count == 1 && (n == 1 || first->length == stride)) {
        if (__builtin_mul_overflow(first->length, n, &length) || __builtin_add_overflow(base, first->offset, &from))
            return too_large();
        return append(runs, from, length);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at;
        if (__builtin_mul_overflow(i, stride, &at) || __builtin_add_overflow(at, base, &at)) return too_large();
        for (size_t k = 0; k < part->count; k++) {
            if (__builtin_add_overflow(at, part->at[k].offset, &from)) return too_large();
            IO_TRY(append(runs, from, part->at[k].length));
        }
    }
    return MPI_SUCCESS;
}

/* How a datatype was made. */
struct contents {
    int combiner;
    /* In the order of the constructors whose counts are of type int, also where they are larger. */
    int64_t *integer, *address;
    int types;
    MPI_Datatype *type;
};

/* What MPI tells of a datatype: counts are those of constructors that end in _c, which MPI has since version 4. */
struct told {
    MPI_Count ints, addresses, counts, types;
    int *integer;
    MPI_Aint *address;
    MPI_Count *count;
};

#if MPI_VERSION >= 4
static int envelope_of(MPI_Datatype type, struct told *t, int *combiner) {
    return MPI_Type_get_envelope_c(type, &t->ints, &t->addresses, &t->counts, &t->types, combiner);
}

static int told_of(MPI_Datatype type, const struct told *t, MPI_Datatype *types) {
    return MPI_Type_get_contents_c(type, t->ints, t->addresses, t->counts, t->types, t->integer, t->address, t->count,
                                   types);
}
#else
static int envelope_of(MPI_Datatype type, struct told *t, int *combiner) {
    int ints, addresses, types, code = MPI_Type_get_envelope(type, &ints, &addresses, &types, combiner);
    if (!code) *t = (struct told){.ints = ints, .addresses = addresses, .types = types};
    return code;
}

static int told_of(MPI_Datatype type, const struct told *t, MPI_Datatype *types) {
    return MPI_Type_get_contents(type, (int)t->ints, (int)t->addresses, (int)t->types, t->integer, t->address, types);
}
#endif

static bool is_predefined(int combiner) {
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
           combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

void io_type_free(MPI_Datatype *type) {
    struct told t;
    int combiner;
    if (*type == MPI_DATATYPE_NULL) return;
    if (envelope_of(*type, &t, &combiner) || is_predefined(combiner)) return;
    MPI_Type_free(type);
}

static void contents_free(struct contents *c) {
    for (int i = 0; i < c->types; i++) io_type_free(&c->type[i]);
    free(c->integer);
    free(c->address);
    free(c->type);
}

/* Puts counts where constructors with int have integers and addresses. There is room for all of them in both. */
static void arrange(const struct told *t, struct contents *c) {
    /* Integers before the counts, and counts that are integers. */
    MPI_Count before = c->combiner == MPI_COMBINER_SUBARRAY ? 1 : c->combiner == MPI_COMBINER_DARRAY ? 3 : 0,
              head = t->counts, n = 0;
    switch (c->combiner) {
    case MPI_COMBINER_HVECTOR:
    case MPI_COMBINER_HINDEXED_BLOCK: head = 2; break;
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_STRUCT: head = t->counts ? 1 + t->count[0] : 0; break;
    default: break;
    }
    if (head > t->counts) head = t->counts;
    for (MPI_Count i = 0; i < before && i < t->ints; i++) c->integer[n++] = t->integer[i];
    for (MPI_Count i = 0; i < head; i++) c->integer[n++] = (int64_t)t->count[i];
    for (MPI_Count i = before; i < t->ints; i++) c->integer[n++] = t->integer[i];
    for (n = 0; n < t->addresses; n++) c->address[n] = (int64_t)t->address[n];
    for (MPI_Count i = head; i < t->counts; i++) c->address[n++] = (int64_t)t->count[i];
}

/* Freed by contents_free if it succeeds. */
static int contents_of(MPI_Datatype type, struct contents *c) {
    struct told t = {0};
    *c = (struct contents){0};
    IO_MPI(envelope_of(type, &t, &c->combiner));
    if (c->combiner == MPI_COMBINER_NAMED) return MPI_SUCCESS;
    t.integer = calloc((size_t)t.ints + 1, sizeof *t.integer);
    t.address = calloc((size_t)t.addresses + 1, sizeof *t.address);
    t.count = calloc((size_t)t.counts + 1, sizeof *t.count);
    c->integer = calloc((size_t)(t.ints + t.counts) + 1, sizeof *c->integer);
    c->address = calloc((size_t)(t.addresses + t.counts) + 1, sizeof *c->address);
    c->type = calloc((size_t)t.types + 1, sizeof *c->type);
    int code = MPI_SUCCESS;
    if (!t.integer || !t.address || !t.count || !c->integer || !c->address || !c->type) {
        code = io_fail(MPI_ERR_NO_MEM, "no memory for the contents of a datatype");
    } else if (t.types > INT_MAX) {
        code = io_fail(MPI_ERR_TYPE, "a datatype is made of %lld others", (long long)t.types);
    } else if ((code = told_of(type, &t, c->type))) {
        code = io_fail_mpi(code, "MPI_Type_get_contents");
    } else {
        c->types = (int)t.types;
        arrange(&t, c);
    }
    free(t.integer);
    free(t.address);
    free(t.count);
    if (code) contents_free(c);
    return code;
}

static int runs_of(MPI_Datatype type, struct io_runs *runs, int depth);

/* Datatypes that this thread has looked into for one that it was given: one may be in another in many places, and MPI does not
 * say that it is the same. */
static _Thread_local size_t looked;

/* Looks into one that lies so deep. */
static int enter(int depth) {
    if (depth == 0) looked = 0;
    if (depth > MOST_DEPTH) return io_fail(MPI_ERR_TYPE, "a datatype is nested more than %d times", MOST_DEPTH);
    if (++looked > IO_MOST_RUNS)
        return io_fail(MPI_ERR_TYPE, "a datatype is made of more than %zu others", IO_MOST_RUNS);
    return MPI_SUCCESS;
}

/* What a part covers, and its extent. */
static int part_of(MPI_Datatype type, struct io_runs *part, int64_t *extent, int depth) {
    MPI_Count least, length;
    IO_TRY(runs_of(type, part, depth + 1));
    IO_MPI(MPI_Type_get_extent_x(type, &least, &length));
    *extent = (int64_t)length;
    return MPI_SUCCESS;
}

/* A grid of parts, of which some are covered along each dimension: subarrays and distributed arrays. */
struct grid {
    int dims;
    /* Of each dimension, the slowest first. */
    int64_t *size;
    struct io_runs *covered;
    const struct io_runs *part;
    int64_t extent;
};

static int grid_make(struct grid *grid, int dims) {
    grid->dims = dims;
    grid->size = calloc((size_t)dims + 1, sizeof *grid->size);
    grid->covered = calloc((size_t)dims + 1, sizeof *grid->covered);
    return grid->size && grid->covered ? MPI_SUCCESS : io_fail(MPI_ERR_NO_MEM, "no memory for %d dimensions", dims);
}

static void grid_free(struct grid *grid, int dims) {
    for (int i = 0; grid->covered && i < dims; i++) io_runs_free(&grid->covered[i]);
    free(grid->covered);
    free(grid->size);
}

/* Covers dimensions from `dim` on; `index` is that of the first part of the plane, line and so on. */
static int grid_walk(const struct grid *grid, int dim, int64_t index, struct io_runs *runs) {
    const struct io_runs *covered = &grid->covered[dim];
    int64_t base;
    if (__builtin_mul_overflow(index, grid->size[dim], &index)) return too_large();
    for (size_t k = 0; k < covered->count; k++) {
        const struct io_run *run = &covered->at[k];
        if (dim == grid->dims - 1) {
            if (__builtin_mul_overflow(index + run->offset, grid->extent, &base)) return too_large();
            IO_TRY(repeat(runs, grid->part, base, run->length, grid->extent));
            continue;
        }
        for (int64_t i = 0; i < run->length; i++) IO_TRY(grid_walk(grid, dim + 1, index + run->offset + i, runs));
    }
    return MPI_SUCCESS;
}

static int grid_runs(struct grid *grid, struct io_runs *runs) {
    /* Lines that are covered as a whole are no work for each. */
    for (int last = grid->dims - 1; last > 0; last = grid->dims - 1) {
        struct io_runs *fast = &grid->covered[last], *slow = &grid->covered[last - 1];
        int64_t size = grid->size[last];
        if (fast->count != 1 || fast->at[0].offset != 0 || fast->at[0].length != size) break;
        if (__builtin_mul_overflow(grid->size[last - 1], size, &grid->size[last - 1])) return too_large();
        for (size_t k = 0; k < slow->count; k++) {
            /* Within the size that was looked at. */
            slow->at[k].offset *= size;
            slow->at[k].length *= size;
        }
        grid->dims--;
    }
    if (grid->part->count == 0) return MPI_SUCCESS;
    for (int i = 0; i < grid->dims; i++) {
        if (grid->covered[i].count == 0) return MPI_SUCCESS;
    }
    return grid_walk(grid, 0, 0, runs);
}

/* Integers of a subarray: ndims, sizes, subsizes, starts, order. */
static int subarray(const struct contents *c, struct grid *grid) {
    int64_t dims = c->integer[0];
    const int64_t *sizes = c->integer + 1, *subsizes = sizes + dims, *starts = subsizes + dims;
    bool c_order = starts[dims] == MPI_ORDER_C;
    for (int64_t i = 0; i < dims; i++) {
        int64_t from = c_order ? i : dims - 1 - i;
        grid->size[i] = sizes[from];
        IO_TRY(append(&grid->covered[i], starts[from], subsizes[from]));
    }
    return MPI_SUCCESS;
}

/* Integers of a distributed array: size, rank, ndims, gsizes, distribs, dargs, psizes, order. */
static int darray(const struct contents *c, struct grid *grid) {
    int64_t dims = c->integer[2], rank = c->integer[1], processes = c->integer[0];
    const int64_t *sizes = c->integer + 3, *how = sizes + dims, *args = how + dims, *across = args + dims;
    bool c_order = across[dims] == MPI_ORDER_C;
    for (int64_t i = 0; i < dims; i++) {
        int64_t to = c_order ? i : dims - 1 - i;
        struct io_runs *covered = &grid->covered[to];
        int64_t size = sizes[i], p = across[i];
        grid->size[to] = size;
        /* Processes are in row-major order whatever that of the array is. */
        processes /= across[i];
        int64_t mine = rank / processes;
        rank %= processes;
        if (how[i] == MPI_DISTRIBUTE_NONE) {
            IO_TRY(append(covered, 0, size));
            continue;
        }
        bool cyclic = how[i] == MPI_DISTRIBUTE_CYCLIC;
        int64_t block = args[i];
        if (block == MPI_DISTRIBUTE_DFLT_DARG) block = cyclic ? 1 : (size + p - 1) / p;
        for (int64_t at = mine * block; at < size; at += p * block) {
            IO_TRY(append(covered, at, at + block < size ? block : size - at));
            if (!cyclic) break;
        }
    }
    return MPI_SUCCESS;
}

/* Blocks of one part: `n` of them, each of `lengths[i]` parts (or `*lengths`), at so many bytes or extents. */
static int blocks(const struct contents *c, struct io_runs *runs, int depth) {
    bool in_bytes = c->combiner == MPI_COMBINER_HINDEXED || c->combiner == MPI_COMBINER_HINDEXED_BLOCK;
    bool alike = c->combiner == MPI_COMBINER_INDEXED_BLOCK || c->combiner == MPI_COMBINER_HINDEXED_BLOCK;
    int64_t n = c->integer[0];
    const int64_t *lengths = c->integer + 1, *places = lengths + (alike ? 1 : n);
    struct io_runs part = {0};
    int64_t extent = 0;
    int code = part_of(c->type[0], &part, &extent, depth);
    for (int64_t i = 0; i < n && !code; i++) {
        int64_t at = in_bytes ? c->address[i] : places[i];
        if (!in_bytes && __builtin_mul_overflow(at, extent, &at)) code = too_large();
        if (!code) code = repeat(runs, &part, at, alike ? lengths[0] : lengths[i], extent);
    }
    io_runs_free(&part);
    return code;
}

/* Blocks at one distance: `count` of them, each of `length` parts. */
static int vector(const struct contents *c, struct io_runs *runs, int depth) {
    int64_t count = c->integer[0], length = c->integer[1];
    bool in_bytes = c->combiner == MPI_COMBINER_HVECTOR;
    struct io_runs part = {0}, block = {0};
    int64_t extent = 0, stride = in_bytes ? c->address[0] : c->integer[2];
    int code = part_of(c->type[0], &part, &extent, depth);
    if (!code && !in_bytes && __builtin_mul_overflow(stride, extent, &stride)) code = too_large();
    if (!code) code = repeat(&block, &part, 0, length, extent);
    if (!code) code = repeat(runs, &block, 0, count, stride);
    io_runs_free(&part);
    io_runs_free(&block);
    return code;
}

static int structure(const struct contents *c, struct io_runs *runs, int depth) {
    int code = MPI_SUCCESS;
    for (int64_t i = 0; i < c->integer[0] && !code; i++) {
        struct io_runs part = {0};
        int64_t extent = 0;
        code = part_of(c->type[i], &part, &extent, depth);
        if (!code) code = repeat(runs, &part, c->address[i], c->integer[1 + i], extent);
        io_runs_free(&part);
    }
    return code;
}

static int array(const struct contents *c, struct io_runs *runs, int depth) {
    bool sub = c->combiner == MPI_COMBINER_SUBARRAY;
    int dims = (int)c->integer[sub ? 0 : 2];
    struct io_runs part = {0};
    struct grid grid = {0};
    int code = part_of(c->type[0], &part, &grid.extent, depth);
    grid.part = &part;
    if (!code) code = grid_make(&grid, dims);
    if (!code) code = sub ? subarray(c, &grid) : darray(c, &grid);
    if (!code) code = grid_runs(&grid, runs);
    grid_free(&grid, dims);
    io_runs_free(&part);
    return code;
}

/* A datatype that is not made of others. */
static int predefined(MPI_Datatype type, struct io_runs *runs) {
    MPI_Count size, least, length;
    IO_MPI(MPI_Type_size_x(type, &size));
    IO_MPI(MPI_Type_get_true_extent_x(type, &least, &length));
    if (size != length) {
        char name[MPI_MAX_OBJECT_NAME + 1] = "";
        int n = 0;
        MPI_Type_get_name(type, name, &n);
        return io_fail(MPI_ERR_TYPE,
                       "%s has a gap that MPI does not tell the place of, so no view can be made of it here", name);
    }
    return append(runs, 0, (int64_t)size);
}

static int runs_of(MPI_Datatype type, struct io_runs *runs, int depth) {
    struct contents c;
    IO_TRY(enter(depth));
    IO_TRY(contents_of(type, &c));
    int code;
    switch (c.combiner) {
    case MPI_COMBINER_NAMED:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER: code = predefined(type, runs); break;
    case MPI_COMBINER_DUP:
    /* Its bounds are no matter of its bytes: whoever repeats it asks for its extent. */
    case MPI_COMBINER_RESIZED: code = runs_of(c.type[0], runs, depth + 1); break;
    case MPI_COMBINER_CONTIGUOUS: {
        struct io_runs part = {0};
        int64_t extent = 0;
        code = part_of(c.type[0], &part, &extent, depth);
        if (!code) code = repeat(runs, &part, 0, c.integer[0], extent);
        io_runs_free(&part);
        break;
    }
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR: code = vector(&c, runs, depth); break;
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK: code = blocks(&c, runs, depth); break;
    case MPI_COMBINER_STRUCT: code = structure(&c, runs, depth); break;
    case MPI_COMBINER_SUBARRAY:
    case MPI_COMBINER_DARRAY: code = array(&c, runs, depth); break;
    default:
        code = io_fail(MPI_ERR_TYPE, "a datatype was made in a way that is not known here (combiner %d)", c.combiner);
    }
    contents_free(&c);
    return code;
}

int io_type_runs(MPI_Datatype type, struct io_runs *runs) {
    *runs = (struct io_runs){0};
    IO_TRY(runs_of(type, runs, 0));
    MPI_Count size, least, length;
    IO_MPI(MPI_Type_size_x(type, &size));
    IO_MPI(MPI_Type_get_true_extent_x(type, &least, &length));
    int64_t sum = 0, first = runs->count ? runs->at[0].offset : 0, end = first;
    for (size_t i = 0; i < runs->count; i++) sum += runs->at[i].length;
    if (runs->count) end = runs->at[runs->count - 1].offset + runs->at[runs->count - 1].length;
    /* Within the bounds, and not at them: MPICH's are too wide where blocks of some types are empty. */
    if (sum != size || (sum && (first < least || end > least + length)))
        return io_fail(MPI_ERR_TYPE,
                       "a datatype is not what it seems: MPI says that it has %lld bytes from %lld to %lld, and its "
                       "parts have %lld from %lld to %lld",
                       (long long)size, (long long)least, (long long)(least + length), (long long)sum, (long long)first,
                       (long long)end);
    return MPI_SUCCESS;
}

/* ---- elements */

enum kind { SIGNED, UNSIGNED, FLOAT, BYTES, OTHER };

/* The predefined types by name; what has none here is of no use to an operation on another rank. */
static const struct known {
    const char *name;
    enum kind kind;
} known[] = {
#define IO_KNOWN(X)                                                                                                    \
    X(MPI_DOUBLE, FLOAT)                                                                                               \
    X(MPI_FLOAT, FLOAT) X(MPI_INT, SIGNED) X(MPI_LONG, SIGNED) X(MPI_LONG_LONG, SIGNED) X(MPI_SHORT, SIGNED)           \
        X(MPI_SIGNED_CHAR, SIGNED) X(MPI_UNSIGNED, UNSIGNED) X(MPI_UNSIGNED_LONG, UNSIGNED)                            \
            X(MPI_UNSIGNED_LONG_LONG, UNSIGNED) X(MPI_UNSIGNED_SHORT, UNSIGNED) X(MPI_UNSIGNED_CHAR, UNSIGNED)         \
                X(MPI_INT8_T, SIGNED) X(MPI_INT16_T, SIGNED) X(MPI_INT32_T, SIGNED) X(MPI_INT64_T, SIGNED)             \
                    X(MPI_UINT8_T, UNSIGNED) X(MPI_UINT16_T, UNSIGNED) X(MPI_UINT32_T, UNSIGNED)                       \
                        X(MPI_UINT64_T, UNSIGNED) X(MPI_AINT, SIGNED) X(MPI_OFFSET, SIGNED) X(MPI_COUNT, SIGNED)       \
                            X(MPI_BYTE, BYTES) X(MPI_CHAR, BYTES) X(MPI_PACKED, BYTES) X(MPI_CHARACTER, BYTES)         \
                                X(MPI_C_BOOL, OTHER) X(MPI_C_FLOAT_COMPLEX, OTHER) X(MPI_C_DOUBLE_COMPLEX, OTHER)      \
                                    X(MPI_LONG_DOUBLE, OTHER) X(MPI_WCHAR, OTHER) X(MPI_LOGICAL, OTHER)                \
                                        X(MPI_COMPLEX, OTHER) X(MPI_DOUBLE_COMPLEX, OTHER) X(MPI_INTEGER, SIGNED)      \
                                            X(MPI_REAL, FLOAT) X(MPI_DOUBLE_PRECISION, FLOAT) X(MPI_INTEGER1, SIGNED)  \
                                                X(MPI_INTEGER2, SIGNED) X(MPI_INTEGER4, SIGNED)                        \
                                                    X(MPI_INTEGER8, SIGNED) X(MPI_REAL4, FLOAT) X(MPI_REAL8, FLOAT)
#define X(type, kind) {#type, kind},
    IO_KNOWN(X)
#undef X
};

/* The handles, which are known only while the program runs. */
static MPI_Datatype known_type(size_t i) {
#define X(type, kind) type,
    const MPI_Datatype types[] = {IO_KNOWN(X)};
#undef X
    return types[i];
}

/* What stead calls numbers of so many bytes. */
static const char *dtype_of(enum kind kind, int64_t size) {
    static const char *const names[3][4] = {[SIGNED] = {"i8", "i16", "i32", "i64"},
                                            [UNSIGNED] = {"u8", "u16", "u32", "u64"},
                                            [FLOAT] = {NULL, NULL, "f32", "f64"}};
    int which = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : -1;
    return kind <= FLOAT && which >= 0 ? names[kind][which] : NULL;
}

/* The elements that one of that type and name are. */
static int elements_are(MPI_Datatype type, const char *name, enum kind kind, struct io_elements *e) {
    MPI_Count size;
    IO_MPI(MPI_Type_size_x(type, &size));
    *e = (struct io_elements){.class = IO_OTHER, .type = type, .name = name, .size = (int64_t)size, .count = 1};
    e->dtype = dtype_of(kind, e->size);
    if (e->dtype) e->class = IO_NUMBERS;
    if (kind == BYTES) e->class = IO_BYTES;
    return MPI_SUCCESS;
}

static int elements_of(MPI_Datatype type, struct io_elements *e, int depth) {
    struct contents c;
    IO_TRY(enter(depth));
    IO_TRY(contents_of(type, &c));
    int code = MPI_SUCCESS;
    if (is_predefined(c.combiner)) {
        enum kind kind = c.combiner == MPI_COMBINER_F90_REAL      ? FLOAT
                         : c.combiner == MPI_COMBINER_F90_INTEGER ? SIGNED
                                                                  : OTHER;
        const char *name = NULL;
        for (size_t i = 0; i < IO_LENGTH(known) && c.combiner == MPI_COMBINER_NAMED && !name; i++) {
            if (known_type(i) == type && type != MPI_DATATYPE_NULL) {
                name = known[i].name;
                kind = known[i].kind;
            }
        }
        code = elements_are(type, name, kind, e);
    }
    for (int i = 0; i < c.types && !code; i++) {
        struct io_elements part = {.class = IO_OTHER, .type = MPI_DATATYPE_NULL};
        MPI_Count size;
        if ((code = MPI_Type_size_x(c.type[i], &size))) code = io_fail_mpi(code, "MPI_Type_size_x");
        if (code || size == 0) continue;
        code = elements_of(c.type[i], &part, depth + 1);
        if (code) break;
        if (e->type == MPI_DATATYPE_NULL && e->class != IO_MIXED) {
            *e = part;
        } else if (e->type != part.type || part.class == IO_MIXED) {
            *e = (struct io_elements){.class = IO_MIXED, .type = MPI_DATATYPE_NULL};
        }
    }
    contents_free(&c);
    return code;
}

int io_type_elements(MPI_Datatype type, struct io_elements *e) {
    *e = (struct io_elements){.class = IO_OTHER, .type = MPI_DATATYPE_NULL};
    if (type == MPI_DATATYPE_NULL) return io_fail(MPI_ERR_TYPE, "the datatype is MPI_DATATYPE_NULL");
    MPI_Count size;
    IO_MPI(MPI_Type_size_x(type, &size));
    if (size <= 0) return io_fail(MPI_ERR_TYPE, "the datatype has no bytes");
    IO_TRY(elements_of(type, e, 0));
    if (e->class == IO_MIXED || e->size <= 0) e->size = (int64_t)size;
    e->count = (int64_t)size / e->size;
    return MPI_SUCCESS;
}

bool io_named_elements(const char *name, struct io_elements *elements) {
    for (size_t i = 0; i < IO_LENGTH(known); i++) {
        if (strcmp(known[i].name, name) != 0) continue;
        MPI_Datatype type = known_type(i);
        return type != MPI_DATATYPE_NULL && elements_are(type, known[i].name, known[i].kind, elements) == MPI_SUCCESS;
    }
    return false;
}
