/*
 * Operations of MPI, and of the program, as kernels: all items of a request are brought together to one.
 *
 * A storage rank gets the name of an operation and finds the function in its own process, which runs the same program: among
 * those registered, if the rank that asks has registered it; else it is a symbol of a program or library that has the same name.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "io.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>

/* Bytes of an item: results, states and messages hold one. */
#define MOST_ITEM ((int64_t)64 << 10)
/* Bytes that are brought together at a time: they stay in the cache. */
#define STEP ((size_t)64 << 10)
#define MOST_NAME 256

/* An operation of the program. */
struct operation {
    struct operation *next;
    MPI_User_function *function;
    int commutes;
    /* The name of the file that has the function, where its own name is that of a symbol; NULL where it was registered. */
    char *object;
    char name[];
};

static struct operation *operations;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void *address_of(MPI_User_function *function) {
    void *address;
    memcpy(&address, &function, sizeof address);
    return address;
}

/* Whether the dynamic linker knows a function by that name, in a file of that one. */
static bool is_symbol(void *address, const char *name, const char *object) {
    Dl_info info;
    return address && dladdr(address, &info) && info.dli_sname && info.dli_saddr == address && info.dli_fname &&
           strcmp(info.dli_sname, name) == 0 && strcmp(base_name(info.dli_fname), object) == 0;
}

static struct operation *lookup(const char *name) {
    struct operation *found = operations;
    while (found && strcmp(found->name, name) != 0) found = found->next;
    return found;
}

/* What is registered has its name, whatever symbols there are. A function of which the program has said that it does not commute
 * does not. */
static int add(const char *name, const char *object, MPI_User_function *function, int commutes) {
    char *copy = object ? strdup(object) : NULL;
    size_t length = strlen(name) + 1;
    if (object && !copy) return MPI_ERR_NO_MEM;
    pthread_mutex_lock(&lock);
    struct operation *found = lookup(name);
    if (!found && (found = calloc(1, sizeof *found + length))) {
        memcpy(found->name, name, length);
        found->next = operations;
        operations = found;
    } else if (found && object && !found->object) {
        pthread_mutex_unlock(&lock);
        free(copy);
        return MPI_SUCCESS;
    } else if (found && object && found->function == function) {
        commutes = commutes && found->commutes;
    }
    if (found) {
        free(found->object);
        found->object = copy;
        found->function = function;
        found->commutes = commutes;
    }
    pthread_mutex_unlock(&lock);
    if (!found) free(copy);
    return found ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

/* The function of a name, and the file that has it; "-" where it was registered. */
static bool find(const char *name, MPI_User_function **function, int *commutes, char object[MOST_NAME + 1]) {
    pthread_mutex_lock(&lock);
    const struct operation *found = lookup(name);
    /* The library that had it may be gone. */
    if (found && found->object && !is_symbol(address_of(found->function), name, found->object)) found = NULL;
    if (found) {
        *function = found->function;
        *commutes = found->commutes;
        snprintf(object, MOST_NAME + 1, "%s", found->object ? found->object : "-");
    }
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

/* The function that a file of that name has under that one, in this process. */
static MPI_User_function *symbol(const char *name, const char *object) {
    MPI_User_function *function;
    void *address = dlsym(RTLD_DEFAULT, name);
    if (!is_symbol(address, name, object)) {
        /* What was loaded for one user alone. */
        void *there = dlopen(object, RTLD_NOLOAD | RTLD_LAZY);
        address = there ? dlsym(there, name) : NULL;
        if (there) dlclose(there);
    }
    if (!is_symbol(address, name, object)) return NULL;
    memcpy(&function, &address, sizeof function);
    return function;
}

/* ---- those that MPI has */

enum builtin { SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR, BUILTINS };
static const char *const builtins[BUILTINS] = {"MPI_SUM", "MPI_PROD", "MPI_MIN",  "MPI_MAX", "MPI_LAND",
                                               "MPI_LOR", "MPI_LXOR", "MPI_BAND", "MPI_BOR", "MPI_BXOR"};

static int builtin_named(const char *name) {
    int i = 0;
    while (i < BUILTINS && strcmp(builtins[i], name) != 0) i++;
    return i < BUILTINS ? i : -1;
}

#define FOLD(expression)                                                                                               \
    for (size_t i = 0; i < n; i++) {                                                                                   \
        const T a = in[i], b = inout[i];                                                                               \
        inout[i] = (T)(expression);                                                                                    \
    }                                                                                                                  \
    break
/* Sums and products of integers wrap around, as those of MPI do. */
#define ARITHMETIC(W)                                                                                                  \
    case SUM: FOLD((W)a + (W)b);                                                                                       \
    case PROD: FOLD((W)a * (W)b);                                                                                      \
    case MIN: FOLD(a < b ? a : b);                                                                                     \
    case MAX: FOLD(a > b ? a : b);
#define LOGICAL                                                                                                        \
    case LAND: FOLD(a && b);                                                                                           \
    case LOR: FOLD(a || b);                                                                                            \
    case LXOR: FOLD(!a != !b);
#define BITWISE                                                                                                        \
    case BAND: FOLD(a & b);                                                                                            \
    case BOR: FOLD(a | b);                                                                                             \
    case BXOR: FOLD(a ^ b);
#define FUNCTION(name, type, ...)                                                                                      \
    static void name(int op, const void *from, void *to, size_t n) {                                                   \
        typedef type T;                                                                                                \
        const T *restrict in = from;                                                                                   \
        T *restrict inout = to;                                                                                        \
        switch (op) { __VA_ARGS__ }                                                                                    \
    }
FUNCTION(fold_i8, int8_t, ARITHMETIC(uint32_t) LOGICAL BITWISE)
FUNCTION(fold_i16, int16_t, ARITHMETIC(uint32_t) LOGICAL BITWISE)
FUNCTION(fold_i32, int32_t, ARITHMETIC(uint32_t) LOGICAL BITWISE)
FUNCTION(fold_i64, int64_t, ARITHMETIC(uint64_t) LOGICAL BITWISE)
FUNCTION(fold_u8, uint8_t, ARITHMETIC(uint32_t) LOGICAL BITWISE)
FUNCTION(fold_u16, uint16_t, ARITHMETIC(uint32_t) LOGICAL BITWISE)
FUNCTION(fold_u32, uint32_t, ARITHMETIC(uint32_t) LOGICAL BITWISE)
FUNCTION(fold_u64, uint64_t, ARITHMETIC(uint64_t) LOGICAL BITWISE)
FUNCTION(fold_f32, float, ARITHMETIC(float))
FUNCTION(fold_f64, double, ARITHMETIC(double))

typedef void fold_fn(int op, const void *in, void *inout, size_t n);

static fold_fn *fold_of(const struct io_elements *e) {
    static const struct {
        const char *dtype;
        fold_fn *fold;
    } folds[] = {{"i8", fold_i8},   {"i16", fold_i16}, {"i32", fold_i32}, {"i64", fold_i64}, {"u8", fold_u8},
                 {"u16", fold_u16}, {"u32", fold_u32}, {"u64", fold_u64}, {"f32", fold_f32}, {"f64", fold_f64}};
    /* MPI_BYTE has bits and no number. */
    const char *dtype = e->class == IO_BYTES ? "u8" : e->dtype;
    for (size_t i = 0; dtype && i < IO_LENGTH(folds); i++) {
        if (strcmp(folds[i].dtype, dtype) == 0) return folds[i].fold;
    }
    return NULL;
}

static int builtin_fits(int op, const struct io_elements *e) {
    bool bits = op >= BAND, truth = op >= LAND && op <= LXOR;
    bool floats = e->dtype && e->dtype[0] == 'f';
    if (e->class == IO_MIXED || !fold_of(e) || ((bits || truth) && floats) || (e->class == IO_BYTES && !bits))
        return io_fail(MPI_ERR_OP, "%s is not for elements of %s", builtins[op],
                       e->class == IO_MIXED ? "several types"
                       : e->name            ? e->name
                                            : "such a type");
    return MPI_SUCCESS;
}

/* ---- the kernel */

struct combine {
    MPI_User_function *function; /* NULL for one of MPI */
    int op;
    fold_fn *fold;
    MPI_Datatype type; /* of an item */
    bool made;         /* that type, by this kernel */
    size_t item, count;
};

struct state {
    uint64_t filled;
    uint64_t unused;
    char item[];
};

/* Brings `n` items of `in` to as many of `inout`. */
static void apply(const struct combine *c, char *in, char *inout, size_t n) {
    if (!c->function) {
        c->fold(c->op, in, inout, n * c->count);
        return;
    }
    int length = (int)n;
    MPI_Datatype type = c->type;
    c->function(in, inout, &length, &type);
}

static int update(void *to, const stead_block *block, void *user) {
    const struct combine *c = user;
    struct state *state = to;
    size_t step = STEP / c->item ? STEP / c->item : 1, runs = stead_block_run_count(block);
    char *items = NULL;
    for (size_t r = 0; r < runs; r++) {
        size_t length;
        const char *at = stead_block_run(block, r, &length);
        if (!at || length % c->item) {
            free(items);
            return stead_fail(STEAD_DATA, "the bytes are no whole items");
        }
        for (size_t left = length / c->item; left;) {
            size_t n = left < step ? left : step;
            if (!items && !(items = aligned_alloc(64, (step * c->item + 63) / 64 * 64)))
                return stead_fail(STEAD_LIMIT, "no memory for items");
            /* Where they lie they are not aligned, and the function may write to them. */
            memcpy(items, at, n * c->item);
            at += n * c->item;
            left -= n;
            for (size_t k = n; k > 1;) {
                size_t half = k / 2;
                apply(c, items + (k - half) * c->item, items, half);
                k -= half;
            }
            if (state->filled)
                apply(c, items, state->item, 1);
            else
                memcpy(state->item, items, c->item);
            state->filled = 1;
        }
    }
    free(items);
    return 0;
}

static int merge(void *to, const void *other, void *user) {
    const struct combine *c = user;
    struct state *state = to;
    const struct state *more = other;
    if (!more->filled) return 0;
    if (state->filled) {
        /* The function may write to what it is given. */
        char *copy = aligned_alloc(64, (c->item + 63) / 64 * 64);
        if (!copy) return stead_fail(STEAD_LIMIT, "no memory for an item");
        memcpy(copy, more->item, c->item);
        apply(c, copy, state->item, 1);
        free(copy);
    } else {
        memcpy(state->item, more->item, c->item);
    }
    state->filled = 1;
    return 0;
}

/* The bytes, as whole numbers of 64 bits; nothing for no items. */
static int finish(void *of, stead_builder *result, void *user) {
    const struct combine *c = user;
    const struct state *state = of;
    if (!state->filled) return stead_builder_null(result);
    int code = stead_builder_list(result);
    for (size_t at = 0; at < c->item && !code; at += IO_WORD) {
        uint64_t word = 0;
        memcpy(&word, state->item + at, c->item - at < IO_WORD ? c->item - at : IO_WORD);
        code = stead_builder_int(result, word);
    }
    return code ? code : stead_builder_end(result);
}

static void release(void *user) {
    struct combine *c = user;
    int ended = 0;
    if (c->made && !MPI_Finalized(&ended) && !ended) MPI_Type_free(&c->type);
    free(c);
}

/* ---- names */

int io_operation_named(const char *name, bool *found) {
    MPI_User_function *function;
    char object[MOST_NAME + 1];
    int commutes = 1;
    *found = builtin_named(name) >= 0 || find(name, &function, &commutes, object);
    if (!*found || commutes) return MPI_SUCCESS;
    return io_fail(MPI_ERR_OP,
                   "the operation '%s' does not commute, and items are brought together where they lie, in any order",
                   name);
}

int io_operation_runs(const char *name) {
    int level = MPI_THREAD_SINGLE;
    if (builtin_named(name) >= 0) return MPI_SUCCESS;
    IO_MPI(MPI_Query_thread(&level));
    if (level == MPI_THREAD_MULTIPLE) return MPI_SUCCESS;
    return io_fail(MPI_ERR_OP,
                   "the operation '%s' is called by several threads, and MPI has too few (call MPI_Init_thread with "
                   "MPI_THREAD_MULTIPLE)",
                   name);
}

int io_operation_text(const char *name, const struct io_elements *e, char **text) {
    *text = NULL;
    int op = builtin_named(name);
    if (op >= 0) IO_TRY(builtin_fits(op, e));
    if (e->size * e->count > MOST_ITEM)
        return io_fail(MPI_ERR_TYPE, "an item of %lld bytes is too large for an operation, which takes up to %lld",
                       (long long)(e->size * e->count), (long long)MOST_ITEM);
    MPI_User_function *function;
    char object[MOST_NAME + 1] = "-";
    int commutes = 1;
    if (op < 0) find(name, &function, &commutes, object);
    /* What has no name on other ranks, or several types, is bytes to all but the function. */
    bool named = e->name != NULL;
    int n = asprintf(text, "%s %s %lld %s", name, named ? e->name : "MPI_BYTE",
                     (long long)(named ? e->count : e->size * e->count), object);
    if (n >= 0) return MPI_SUCCESS;
    *text = NULL;
    return io_fail(MPI_ERR_NO_MEM, "no memory for the name of an operation");
}

static int refuse(const char *name, const char *why) {
    char text[MOST_NAME + 256];
    snprintf(text, sizeof text, "the operation '%.200s' %s", name, why);
    return stead_fail(STEAD_USAGE, text);
}

int io_resolve(const char *text, struct stead_kernel *kernel, void *user) {
    (void)user;
    char name[MOST_NAME + 1], type[64], object[MOST_NAME + 1], mine[MOST_NAME + 1];
    long long count = 0;
    int commutes = 1;
    struct io_elements e;
    if (sscanf(text, "%256s %63s %lld %256s", name, type, &count, object) != 4 || count < 1 || count > MOST_ITEM ||
        !io_named_elements(type, &e) || e.size * count > MOST_ITEM)
        return refuse(text, "is none that stead_MPI_File_read_ex asks for");
    struct combine *c = calloc(1, sizeof *c);
    if (!c) return stead_fail(STEAD_LIMIT, "no memory for an operation");
    *c = (struct combine){
        .op = builtin_named(name), .type = e.type, .item = (size_t)(e.size * count), .count = (size_t)count};
    if (c->op >= 0) {
        c->fold = fold_of(&e);
        if (!c->fold || builtin_fits(c->op, &e)) {
            free(c);
            return refuse(name, "is not for elements of this type");
        }
    } else if (strcmp(object, "-") != 0) {
        /* Of any symbols of that name that of the same file: others are other functions. */
        c->function = symbol(name, object);
    } else if (!find(name, &c->function, &commutes, mine) || strcmp(mine, "-") != 0) {
        c->function = NULL;
    }
    if (c->op < 0 && !c->function) {
        free(c);
        return refuse(name, strcmp(object, "-") == 0 ? "is not known on this rank: register it with stead_MPI_Op_register "
                                                       "on all ranks before stead_MPI_Storage_init"
                                                     : "is none of the same program or library on this rank: register it "
                                                       "with stead_MPI_Op_register on all ranks");
    }
    if (!commutes) {
        free(c);
        return refuse(name, "does not commute");
    }
    if (c->function && count > 1) {
        if (MPI_Type_contiguous((int)count, e.type, &c->type) || MPI_Type_commit(&c->type)) {
            free(c);
            return refuse(name, "gets no datatype from MPI");
        }
        c->made = true;
    }
    kernel->state_size = sizeof(struct state) + c->item;
    kernel->needs = STEAD_NEEDS_BYTES;
    kernel->update = update;
    kernel->merge = merge;
    kernel->finish = finish;
    kernel->user = c;
    kernel->release = release;
    return 0;
}

/* ---- what programs call */

/* The name by which the dynamic linker knows a function, if it does. */
static void note(MPI_User_function *function, int commutes) {
    Dl_info info;
    if (!dladdr(address_of(function), &info) || !info.dli_sname || !info.dli_fname) return;
    const char *object = base_name(info.dli_fname);
    if (is_symbol(address_of(function), info.dli_sname, object) && strlen(info.dli_sname) <= MOST_NAME &&
        strlen(object) <= MOST_NAME && !strpbrk(object, " \t\n") && strcmp(object, "-") != 0 &&
        !io_is_kernel(info.dli_sname))
        add(info.dli_sname, object, function, commutes);
}

/* Whether a call comes from the part of MPI that is for Fortran, whose functions take other handles. */
static bool is_fortran(void *caller) {
    Dl_info there, fortran;
    void *known = dlsym(RTLD_DEFAULT, "mpi_op_create_");
    return known && dladdr(known, &fortran) && dladdr(caller, &there) && fortran.dli_fbase == there.dli_fbase;
}

typedef int create_fn(MPI_User_function *, int, MPI_Op *);

static int create_with(const char *called, void *caller, MPI_User_function *function, int commutes, MPI_Op *op) {
    create_fn *next;
    *(void **)&next = io_next(called);
    if (!next || next == MPI_Op_create || next == PMPI_Op_create) return io_no_next(called);
    int code = next(function, commutes, op);
    if (code == MPI_SUCCESS && !is_fortran(caller)) note(function, commutes);
    return code;
}

IO_PUBLIC int MPI_Op_create(MPI_User_function *function, int commutes, MPI_Op *op) {
    return create_with("MPI_Op_create", __builtin_return_address(0), function, commutes, op);
}

IO_PUBLIC int PMPI_Op_create(MPI_User_function *function, int commutes, MPI_Op *op) {
    return create_with("PMPI_Op_create", __builtin_return_address(0), function, commutes, op);
}

IO_PUBLIC int stead_MPI_Op_register(const char *name, MPI_User_function *function, int commutes) {
    if (!name || !*name || strlen(name) > MOST_NAME || strpbrk(name, " \t\n:") || !function)
        return io_fail(MPI_ERR_ARG,
                       "an operation needs a function, and a name of at most %d characters without spaces and colons",
                       MOST_NAME);
    if (builtin_named(name) >= 0) return io_fail(MPI_ERR_ARG, "'%s' is an operation of MPI", name);
    if (io_is_kernel(name)) return io_fail(MPI_ERR_ARG, "'%s' is a kernel", name);
    if (add(name, NULL, function, commutes)) return io_fail(MPI_ERR_NO_MEM, "no memory for the operation '%s'", name);
    return MPI_SUCCESS;
}
