/* Datatypes as libstead_mpi_io understands them, against what MPI itself reads through a view of them.
 *
 *   types random FILE SEED TIMES   random datatypes of all constructors, within each other
 *   types known FILE               holes, bounds, orders and distributions that are easily mistaken
 *   types large FILE               datatypes made with counts of more than an int, where MPI has them
 *   types refused FILE             datatypes of which no view can be made, and what is said of them
 *   types memory FILE              that a view takes no memory when it is freed
 *
 * FILE is written.
 */
#include "../../crates/mpi-capi/c/io.h"
#include <sys/resource.h>
#include <time.h>

#define LENGTH (256 << 10)

/* A pack may go beyond what is asked for. */
static unsigned char data[LENGTH], got[LENGTH + 32768], ours[LENGTH];
static MPI_File file;
/* Views that were compared with what MPI reads, and how many of them it reads otherwise. */
static int compared, differ;

/* MPICH's MPI-IO counts a lower bound twice where a type is resized, and does not come back from reads through some types within
 * types: there MPI_Pack alone says what is right. */
#ifdef MPICH_VERSION
#define ROMIO true
#else
#define ROMIO false
#endif

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, stead_MPI_Error_text());                             \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                              \
        }                                                                                                              \
    } while (0)

static uint64_t state;

/* From `least` to `most`. */
static int dice(int least, int most) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return least + (int)((state >> 33) % (uint64_t)(most - least + 1));
}

static int64_t extent_of(MPI_Datatype type) {
    MPI_Aint least, extent;
    MPI_Type_get_extent(type, &least, &extent);
    return (int64_t)extent;
}

static int64_t end_of(MPI_Datatype type) {
    MPI_Aint least, extent;
    MPI_Type_get_true_extent(type, &least, &extent);
    return (int64_t)(least + extent);
}

/* A datatype whose displacements rise, and whose extent holds all of it. */
static MPI_Datatype make(int depth) {
    MPI_Datatype bases[] = {MPI_DOUBLE, MPI_INT, MPI_SHORT, MPI_BYTE, MPI_FLOAT}, part, type = MPI_DATATYPE_NULL;
    if (depth == 0) {
        MPI_Type_dup(bases[dice(0, 4)], &type);
        return type;
    }
    part = make(depth - 1);
    int64_t extent = extent_of(part);
    int n = dice(1, 4), lengths[4], places[4];
    MPI_Aint at[4];
    MPI_Datatype parts[4];
    int block = dice(1, 3), next = dice(0, 2);
    for (int i = 0; i < n; i++) {
        lengths[i] = dice(0, 3);
        places[i] = next;
        next += (lengths[i] > block ? lengths[i] : block) + dice(0, 2);
        at[i] = (MPI_Aint)(places[i] * extent + i * dice(0, 5));
        if (i && at[i] < at[i - 1] + (places[i] - places[i - 1]) * extent)
            at[i] = at[i - 1] + (MPI_Aint)((places[i] - places[i - 1]) * extent);
        parts[i] = part;
    }
    /* What a constructor refuses is none: Open MPI does so with some distributed arrays. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    switch (dice(0, 11)) {
    case 0: MPI_Type_contiguous(n, part, &type); break;
    case 1: MPI_Type_vector(n, block, block + dice(0, 3), part, &type); break;
    case 2: MPI_Type_create_hvector(n, block, (MPI_Aint)(block * extent + dice(0, 9)), part, &type); break;
    case 3: MPI_Type_indexed(n, lengths, places, part, &type); break;
    case 4: MPI_Type_create_hindexed(n, lengths, at, part, &type); break;
    case 5: MPI_Type_create_indexed_block(n, block, places, part, &type); break;
    case 6: MPI_Type_create_hindexed_block(n, block, at, part, &type); break;
    case 7: MPI_Type_create_struct(n, lengths, at, parts, &type); break;
    case 8: MPI_Type_create_resized(part, 0, (MPI_Aint)(end_of(part) + dice(0, 40)), &type); break;
    case 9:
    case 10: {
        int sizes[3], some[3], starts[3], dims = dice(1, 3);
        for (int i = 0; i < dims; i++) {
            sizes[i] = dice(1, 5);
            some[i] = dice(1, sizes[i]);
            starts[i] = dice(0, sizes[i] - some[i]);
        }
        MPI_Type_create_subarray(dims, sizes, some, starts, dice(0, 1) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, part, &type);
        break;
    }
    default: {
        int sizes[3], how[3], args[3], across[3], processes = 1, dims = dice(1, 3);
        for (int i = 0; i < dims; i++) {
            int which = dice(0, 2);
            across[i] = which ? dice(1, 3) : 1;
            sizes[i] = dice(across[i], 6);
            how[i] = which == 0 ? MPI_DISTRIBUTE_NONE : which == 1 ? MPI_DISTRIBUTE_BLOCK : MPI_DISTRIBUTE_CYCLIC;
            args[i] = which == 2 && dice(0, 1) ? dice(1, 3) : MPI_DISTRIBUTE_DFLT_DARG;
            processes *= across[i];
        }
        MPI_Type_create_darray(processes, dice(0, processes - 1), dims, sizes, how, args, across,
                               dice(0, 1) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, part, &type);
    }
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    if (type == MPI_DATATYPE_NULL) return part;
    MPI_Type_free(&part);
    return type;
}

/* What the runs of the view say that a read finds: how many bytes, and which. */
static int64_t seen(const struct io_view *view, int64_t length, int64_t skip, int64_t most) {
    int64_t n = 0;
    for (int64_t tile = view->displacement; view->bytes && n < most; tile += view->extent) {
        for (size_t i = 0; i < view->runs.count; i++) {
            for (int64_t k = 0; k < view->runs.at[i].length; k++) {
                int64_t at = tile + view->runs.at[i].offset + k;
                if (at >= length || n == most) return n;
                if (skip)
                    skip--;
                else
                    ours[n++] = data[at];
            }
        }
    }
    return n;
}

/* What MPI packs of tiles in memory, of one at a time. */
static int64_t packed(MPI_Datatype type, int64_t displacement, int64_t extent, int64_t most) {
    int64_t n = 0;
    int size;
    MPI_Type_size(type, &size);
    for (int64_t tile = displacement; n < most && tile + end_of(type) <= LENGTH; tile += extent) {
        int place = 0;
        MPI_Pack(data + tile, 1, type, got + n, size, &place, MPI_COMM_SELF);
        n += size;
    }
    return n < most ? n : most;
}

/* Compares what a view of the type shows with what MPI packs, and with what it reads through that view. */
static void compare(MPI_Datatype type, int64_t displacement, int64_t offset, int64_t most, bool packed_only) {
    struct io_view view;
    MPI_Status status;
    MPI_Type_commit(&type);
    if (packed_only) {
        CHECK(io_view_made(MPI_BYTE, type, "native", (MPI_Offset)displacement, &view) == MPI_SUCCESS);
    } else {
        CHECK(MPI_File_set_view(file, (MPI_Offset)displacement, MPI_BYTE, type, "native", MPI_INFO_NULL) ==
              MPI_SUCCESS);
        CHECK(io_view_of(file, &view) == MPI_SUCCESS);
    }
    int64_t n = packed(type, displacement, extent_of(type), offset + most);
    seen(&view, LENGTH, 0, offset + most);
    CHECK(memcmp(got, ours, (size_t)n) == 0);
    n = seen(&view, LENGTH, offset, most);
    int64_t left = io_view_left(&view, LENGTH, offset);
    CHECK(n == (left < most ? left : most));
    if (!packed_only) {
        memset(got, 0xA5, sizeof got);
        CHECK(MPI_File_read_at(file, (MPI_Offset)offset, got, (int)n, MPI_BYTE, &status) == MPI_SUCCESS);
        compared++;
        differ += memcmp(got, ours, (size_t)n) != 0;
    }
    io_runs_free(&view.runs);
}

static void random_types(uint64_t seed, int times) {
    int64_t bytes = 0;
    for (int i = 0; i < times; i++) {
        state = seed * 1000003 + (uint64_t)i;
        dice(0, 1);
        MPI_Datatype type = make(dice(1, 3));
        int size;
        MPI_Type_size(type, &size);
        /* An empty one shows nothing, which MPIs do not agree how to read. */
        if (size > 0 && size < 20000 && extent_of(type) < LENGTH) {
            compare(type, dice(0, 100), dice(0, 2 * size), dice(1, 20000), ROMIO);
            bytes += size;
        }
        MPI_Type_free(&type);
    }
    CHECK(bytes > 0 && (ROMIO || compared > times / 2) && differ == 0);
    printf("right\n");
}

static void known(void) {
    MPI_Datatype type, part;
    /* A struct with a hole inside and one behind it. */
    struct item {
        char tag;
        double x;
        short n;
    };
    int lengths[] = {1, 1, 1};
    MPI_Aint at[] = {offsetof(struct item, tag), offsetof(struct item, x), offsetof(struct item, n)};
    MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT};
    MPI_Type_create_struct(3, lengths, at, types, &part);
    MPI_Type_create_resized(part, 0, sizeof(struct item), &type);
    compare(type, 0, 0, 5000, false);
    compare(type, 3, 11, 5000, false);
    MPI_Type_free(&part);
    /* Several of them in a row keep their padding. */
    MPI_Type_vector(3, 2, 5, type, &part);
    compare(part, 8, 7, 9000, false);
    MPI_Type_free(&part);
    MPI_Type_free(&type);
    /* A column of a matrix, made narrow and wide again. */
    MPI_Type_vector(8, 1, 16, MPI_DOUBLE, &part);
    MPI_Type_create_resized(part, 0, 8 * 16 * 8, &type);
    compare(type, 24, 0, 4000, false);
    MPI_Type_free(&part);
    MPI_Type_free(&type);
    CHECK(differ == 0);
    /* A lower bound above and below the first byte. */
    MPI_Type_create_resized(MPI_INT, -8, 32, &type);
    compare(type, 40, 4, 3000, false);
    MPI_Type_free(&type);
    lengths[0] = 3;
    int places[] = {5};
    MPI_Type_indexed(1, lengths, places, MPI_INT, &part);
    compare(part, 0, 0, 3000, false);
    MPI_Type_create_resized(part, 20, 24, &type);
    compare(type, 0, 4, 3000, false);
    MPI_Type_free(&part);
    MPI_Type_free(&type);
    /* A view without a datatype, and an offset behind the end. */
    compare(MPI_BYTE, 17, 5, 1000, false);
    compare(MPI_BYTE, 0, LENGTH - 3, 1000, false);
    compare(MPI_BYTE, 0, LENGTH + 3, 1000, false);
    compare(MPI_BYTE, LENGTH + 3, 0, 1000, false);
    CHECK(ROMIO || differ == 0);
    /* What there are elements of. */
    struct io_elements e;
    MPI_Type_vector(4, 3, 5, MPI_FLOAT, &type);
    CHECK(io_type_elements(type, &e) == MPI_SUCCESS && e.class == IO_NUMBERS && e.count == 12 &&
          strcmp(e.dtype, "f32") == 0);
    CHECK(e.type == MPI_FLOAT && strcmp(e.name, "MPI_FLOAT") == 0);
    MPI_Type_free(&type);
    MPI_Type_create_struct(3, (int[]){1, 1, 1}, at, types, &type);
    CHECK(io_type_elements(type, &e) == MPI_SUCCESS && e.class == IO_MIXED && e.size == 11 && e.count == 1);
    MPI_Type_free(&type);
    CHECK(io_type_elements(MPI_CHAR, &e) == MPI_SUCCESS && e.class == IO_BYTES && e.size == 1);
    CHECK(io_named_elements("MPI_UNSIGNED_LONG", &e) && strcmp(e.dtype, "u64") == 0 &&
          !io_named_elements("MPI_NONE", &e));
    printf("right\n");
}

#if MPI_VERSION >= 4
/* Those that the constructors of MPI 4 make, whose counts MPI tells otherwise, are those of the others. */
static void large(void) {
    MPI_Datatype type, part, parts[] = {MPI_INT, MPI_DOUBLE};
    MPI_Count lengths[] = {2, 3}, places[] = {1, 6}, at[] = {4, 40};
    MPI_Type_contiguous_c(3, MPI_INT, &part);
    compare(part, 8, 5, 3000, true);
    MPI_Type_vector_c(3, 2, 4, part, &type);
    compare(type, 0, 9, 3000, true);
    MPI_Type_free(&type);
    MPI_Type_create_hvector_c(3, 2, 30, part, &type);
    compare(type, 3, 9, 3000, true);
    MPI_Type_free(&type);
    MPI_Type_indexed_c(2, lengths, places, part, &type);
    compare(type, 0, 0, 3000, true);
    MPI_Type_free(&type);
    MPI_Type_create_indexed_block_c(2, 2, places, part, &type);
    compare(type, 0, 0, 3000, true);
    MPI_Type_free(&type);
    MPI_Type_create_hindexed_c(2, lengths, at, part, &type);
    compare(type, 0, 7, 3000, true);
    MPI_Type_free(&type);
    MPI_Type_create_hindexed_block_c(2, 2, at, part, &type);
    compare(type, 0, 7, 3000, true);
    MPI_Type_free(&type);
    MPI_Type_create_struct_c(2, lengths, at, parts, &type);
    compare(type, 0, 1, 3000, true);
    MPI_Type_free(&type);
    MPI_Type_create_resized_c(part, 0, 50, &type);
    compare(type, 0, 1, 3000, true);
    MPI_Type_free(&type);
    MPI_Count sizes[] = {5, 4, 6}, some[] = {3, 2, 2}, starts[] = {1, 1, 3};
    for (int order = 0; order < 2; order++) {
        int how[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_CYCLIC};
        int args[] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG, 2}, across[] = {2, 1, 2};
        MPI_Type_create_subarray_c(3, sizes, some, starts, order ? MPI_ORDER_C : MPI_ORDER_FORTRAN, part, &type);
        compare(type, 0, 11, 5000, true);
        MPI_Type_free(&type);
        MPI_Type_create_darray_c(4, 2, 3, sizes, how, args, across, order ? MPI_ORDER_C : MPI_ORDER_FORTRAN, part, &type);
        compare(type, 0, 11, 5000, true);
        MPI_Type_free(&type);
    }
    MPI_Type_free(&part);
    /* 6 GiB of each 8. */
    struct io_view view;
    MPI_Type_contiguous_c((MPI_Count)6 << 30, MPI_BYTE, &part);
    MPI_Type_create_resized_c(part, 0, (MPI_Count)8 << 30, &type);
    CHECK(io_view_made(MPI_BYTE, type, "native", 0, &view) == MPI_SUCCESS);
    CHECK(view.runs.count == 1 && view.bytes == (int64_t)6 << 30 && view.extent == (int64_t)8 << 30);
    CHECK(io_view_left(&view, (int64_t)10 << 30, 5) == ((int64_t)8 << 30) - 5);
    io_runs_free(&view.runs);
    MPI_Type_free(&type);
    MPI_Type_free(&part);
    printf("right\n");
}
#else
static void large(void) {
    printf("right\n");
}
#endif

static void refused_type(MPI_Datatype type, const char *says) {
    struct io_runs runs;
    int class = 0, code = io_type_runs(type, &runs), length;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    io_runs_free(&runs);
    CHECK(code != MPI_SUCCESS);
    stead_MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    CHECK(class == MPI_ERR_TYPE && strstr(stead_MPI_Error_text(), says));
    CHECK(strncmp(text, stead_MPI_Error_text(), 40) == 0);
    MPI_Type_free(&type);
}

static void refused(void) {
    MPI_Datatype type, part;
    MPI_Type_indexed(2, (int[]){1, 1}, (int[]){4, 0}, MPI_INT, &type);
    refused_type(type, "descend");
    MPI_Type_indexed(2, (int[]){2, 2}, (int[]){0, 1}, MPI_INT, &type);
    refused_type(type, "overlap");
    MPI_Type_vector(3, 1, -2, MPI_INT, &type);
    refused_type(type, "descend");
    MPI_Type_vector(2 << 20, 1, 2, MPI_BYTE, &type);
    refused_type(type, "too scattered");
    MPI_Type_dup(MPI_SHORT_INT, &type);
    refused_type(type, "gap");
    /* Columns that repeat within each other. */
    struct io_view view;
    MPI_Type_vector(4, 1, 4, MPI_DOUBLE, &part);
    MPI_Type_create_resized(part, 0, 8, &type);
    MPI_Type_commit(&type);
    CHECK(MPI_File_set_view(file, 0, MPI_DOUBLE, type, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(io_view_of(file, &view) != MPI_SUCCESS && strstr(stead_MPI_Error_text(), "more than its extent"));
    io_runs_free(&view.runs);
    MPI_Type_free(&type);
    MPI_Type_free(&part);
    /* Codes are used again: any number of errors takes few of them. */
    int first = io_fail(MPI_ERR_ARG, "one"), codes = 1;
    for (int i = 0; i < 1000; i++) codes += io_fail(MPI_ERR_ARG, "number %d", i) == first;
    CHECK(codes > 100);
    printf("right\n");
}

static void memory(void) {
    struct rusage before, after;
    MPI_Datatype type;
    MPI_Type_create_subarray(2, (int[]){1000, 8}, (int[]){900, 3}, (int[]){50, 2}, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    MPI_File_set_view(file, 0, MPI_DOUBLE, type, "native", MPI_INFO_NULL);
    for (int i = 0; i < 6000; i++) {
        struct io_view view;
        if (i == 1000) getrusage(RUSAGE_SELF, &before);
        CHECK(io_view_of(file, &view) == MPI_SUCCESS && view.runs.count == 900);
        io_runs_free(&view.runs);
    }
    getrusage(RUSAGE_SELF, &after);
    /* A view of 900 runs has 14 KB: a tenth of one for each would show. */
    CHECK(after.ru_maxrss - before.ru_maxrss < 4096);
    MPI_Type_free(&type);
    printf("right\n");
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const char *what = argv[1];
    for (int i = 0; i < LENGTH; i++) data[i] = (unsigned char)(((unsigned)i * 2654435761u) >> 24);
    FILE *made = fopen(argv[2], "wb");
    CHECK(made && fwrite(data, 1, LENGTH, made) == LENGTH && fclose(made) == 0);
    CHECK(MPI_File_open(MPI_COMM_SELF, argv[2], MPI_MODE_RDONLY, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    if (strcmp(what, "random") == 0)
        random_types((uint64_t)atoi(argv[3]), atoi(argv[4]));
    else if (strcmp(what, "known") == 0)
        known();
    else if (strcmp(what, "large") == 0)
        large();
    else if (strcmp(what, "refused") == 0)
        refused();
    else if (strcmp(what, "memory") == 0)
        memory();
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
