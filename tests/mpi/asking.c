/* What a rank of the tests of MPI_File_read_ex does. The last STORAGE ranks are storage ranks; with 0 there are none.
 *
 *   asking cases STORAGE FILE CASES   writes to CASES.RANK what each compute rank gets for each line of CASES:
 *                                     VIEW KERNEL TYPE OFFSET COUNT PRINTED [HINT=VALUE]...
 *   asking operations STORAGE FILE    operations of the program, compared with what the bytes themselves say
 *   asking pointers STORAGE FILE OTHER   file pointers, ends of files, and handles that are used again
 *   asking errors STORAGE FILE        what is refused, and how it is told
 *   asking empty STORAGE FILE         collective reads of which most have nothing to read
 *   asking disagree STORAGE FILE      ranks that say of storage ranks what makes no sense, or not the same
 *   asking forget STORAGE FILE        ends without saying so
 *   asking killed STORAGE FILE        the last storage rank dies while it computes
 *   asking threads STORAGE FILE       several threads of each rank ask at once
 *   asking rate STORAGE FILE TIMES    seconds of a small read, and of a large one
 */
#define _POSIX_C_SOURCE 200809L
#include "stead_mpi_io.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int rank, ranks, storage;
static MPI_Comm compute;

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "rank %d: line %d: %s: %s\n", rank, __LINE__, #what, stead_MPI_Error_text());              \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                              \
        }                                                                                                              \
    } while (0)

static MPI_File opened(const char *path) {
    MPI_File file;
    CHECK(MPI_File_open(compute, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    return file;
}

static MPI_Datatype type_of(const char *name) {
    static const struct {
        const char *name;
        int bytes;
    } known[] = {{"double", 0}, {"int", 0}, {"char", 0}, {"float", 0}, {"long", 0}, {"byte", 0}};
    const MPI_Datatype types[] = {MPI_DOUBLE, MPI_INT, MPI_CHAR, MPI_FLOAT, MPI_LONG, MPI_BYTE};
    int n = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    char base[32];
    if (sscanf(name, "%31[a-z]*%d", base, &n) < 1) return type;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(known[i].name, base) == 0) type = types[i];
    }
    /* double*3: three of them; they are never freed, as this program ends soon. */
    if (n > 0) {
        MPI_Datatype one = type;
        MPI_Type_contiguous(n, one, &type);
        MPI_Type_commit(&type);
    }
    return type;
}

/* all, dealt:N (blocks of N doubles, in turn to the ranks), column:N:I (of rows of N doubles), item (a double and an int of a
 * C struct {char, double, int}), half:N (the first half of each N bytes) */
static void view(MPI_File file, const char *what) {
    int n = 1, i = 0;
    MPI_Datatype part, type;
    MPI_Offset at = 0;
    MPI_Datatype etype = MPI_DOUBLE;
    if (sscanf(what, "dealt:%d", &n) == 1) {
        MPI_Type_contiguous(n, MPI_DOUBLE, &part);
        MPI_Type_create_resized(part, 0, (MPI_Aint)(ranks * n * 8), &type);
        at = (MPI_Offset)(rank * n * 8);
    } else if (sscanf(what, "column:%d:%d", &n, &i) == 2) {
        MPI_Type_indexed(1, (int[]){1}, (int[]){i}, MPI_DOUBLE, &part);
        MPI_Type_create_resized(part, 0, (MPI_Aint)(n * 8), &type);
    } else if (strcmp(what, "item") == 0) {
        struct item {
            char tag;
            double x;
            int n;
        };
        MPI_Aint places[] = {offsetof(struct item, x)};
        MPI_Type_create_struct(1, (int[]){1}, places, (MPI_Datatype[]){MPI_DOUBLE}, &part);
        MPI_Type_create_resized(part, 0, sizeof(struct item), &type);
    } else if (sscanf(what, "half:%d", &n) == 1) {
        MPI_Type_contiguous(n / 2, MPI_BYTE, &part);
        MPI_Type_create_resized(part, 0, n, &type);
        etype = MPI_BYTE;
    } else {
        CHECK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL) == MPI_SUCCESS);
        return;
    }
    MPI_Type_commit(&type);
    CHECK(MPI_File_set_view(file, at, etype, type, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    MPI_Type_free(&part);
    MPI_Type_free(&type);
}

static void cases(const char *path, const char *list) {
    char line[2048];
    MPI_File file = opened(path);
    static char result[1 << 20], name[4096];
    snprintf(name, sizeof name, "%s.%d", list, rank);
    FILE *lines = fopen(list, "r"), *answers = fopen(name, "w");
    CHECK(lines && answers);
    for (int n = 0; fgets(line, sizeof line, lines); n++) {
        char *word[32];
        int words = 0;
        for (char *w = strtok(line, "\t\n"); w && words < 32; w = strtok(NULL, "\t\n")) word[words++] = w;
        MPI_Info hints;
        MPI_Status status;
        MPI_Count count = 0;
        MPI_Info_create(&hints);
        for (int i = 6; i < words; i++) {
            char *value = strchr(word[i], '=');
            *value = 0;
            MPI_Info_set(hints, word[i], value + 1);
        }
        view(file, word[0]);
        int code = stead_MPI_File_read_ex_at_all(file, atoll(word[3]), result, atoll(word[4]), type_of(word[2]),
                                                 word[1], hints, &status);
        MPI_Info_free(&hints);
        static char out[1 << 20];
        int length = snprintf(out, sizeof out, "%d %d", n, rank);
        if (code) {
            int class;
            stead_MPI_Error_class(code, &class);
            length +=
                snprintf(out + length, sizeof out - (size_t)length, " error %d %s", class, stead_MPI_Error_text());
        } else if (word[5][0] == 't') {
            MPI_Get_elements_x(&status, MPI_BYTE, &count);
            length += snprintf(out + length, sizeof out - (size_t)length, " %lld ", (long long)count);
            for (MPI_Count i = 0; i < count && i < 1 << 18; i++)
                length += snprintf(out + length, sizeof out - (size_t)length, "%02x", (unsigned char)result[i]);
        } else {
            MPI_Datatype type = word[5][0] == 'd'   ? MPI_DOUBLE
                                : word[5][0] == 'f' ? MPI_FLOAT
                                : word[5][0] == 'i' ? MPI_INT
                                                    : MPI_INT64_T;
            int got;
            MPI_Get_count(&status, type, &got);
            length += snprintf(out + length, sizeof out - (size_t)length, " %d", got);
            for (int i = 0; i < got; i++) {
                char *at = out + length;
                size_t room = sizeof out - (size_t)length;
                length += type == MPI_DOUBLE  ? snprintf(at, room, " %.17g", ((double *)(void *)result)[i])
                          : type == MPI_FLOAT ? snprintf(at, room, " %.9g", (double)((float *)(void *)result)[i])
                          : type == MPI_INT   ? snprintf(at, room, " %d", ((int *)(void *)result)[i])
                                              : snprintf(at, room, " %lld", (long long)((int64_t *)(void *)result)[i]);
            }
        }
        fprintf(answers, "%s\n", out);
    }
    CHECK(fclose(answers) == 0);
    fclose(lines);
    MPI_File_close(&file);
}

/* ---- operations */

/* The larger magnitude. */
void farther(void *in, void *inout, int *n, MPI_Datatype *type);
void farther(void *in, void *inout, int *n, MPI_Datatype *type) {
    double *a = in, *b = inout;
    (void)type;
    for (int i = 0; i < *n; i++) {
        if (fabs(a[i]) > fabs(b[i])) b[i] = a[i];
    }
}

/* Triples are larger by the first member in which they differ. */
static bool is_larger(const double *a, const double *b) {
    for (int i = 0; i < 3; i++) {
        if (a[i] != b[i]) return a[i] > b[i];
    }
    return false;
}

/* Of triples: the largest one. It is static, so that the dynamic linker does not know it. */
static void first(void *in, void *inout, int *n, MPI_Datatype *type) {
    double *a = in, *b = inout;
    MPI_Count size;
    MPI_Type_size_x(*type, &size);
    if (size != 24) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < *n; i++) {
        if (is_larger(a + 3 * i, b + 3 * i)) memcpy(b + 3 * i, a + 3 * i, 24);
    }
}

/* It has the name of a kernel, which means that kernel. */
void mean(void *in, void *inout, int *n, MPI_Datatype *type);
void mean(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)in, (void)inout, (void)n, (void)type;
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The last item: no matter of order to MPI, if it is told so, but to us. */
void last(void *in, void *inout, int *n, MPI_Datatype *type);
void last(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)in, (void)inout, (void)n, (void)type;
}

/* The end of the last storage rank. */
static bool mortal;
static void dies(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)in, (void)inout, (void)n, (void)type;
    if (mortal) raise(SIGKILL);
}

/* Who is left does not go to the end of MPI, which would wait for the one that is not. */
static void killed(const char *path) {
    MPI_File file = opened(path);
    MPI_Offset bytes;
    double got;
    int class;
    MPI_File_get_size(file, &bytes);
    int code = stead_MPI_File_read_ex_at(file, 0, &got, bytes / 8, MPI_DOUBLE, "dies", MPI_INFO_NULL, MPI_STATUS_IGNORE);
    CHECK(code != MPI_SUCCESS);
    stead_MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_OTHER && strstr(stead_MPI_Error_text(), "rank "));
    printf("right\n");
    fflush(stdout);
    _exit(0);
}

static void operations(const char *path) {
    MPI_File file = opened(path);
    MPI_Op op, ordered, other;
    MPI_Status status;
    MPI_Offset bytes;
    MPI_Op_create(farther, 1, &op);
    MPI_Op_create(last, 0, &ordered);
    MPI_Op_create(mean, 1, &other);
    MPI_File_get_size(file, &bytes);
    int n = (int)(bytes / 8), got;
    double *all = malloc((size_t)bytes), far, triple[3], expected[3];
    CHECK(MPI_File_read_at(file, 0, all, n, MPI_DOUBLE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    /* Registered as no name: found by its symbol. */
    CHECK(stead_MPI_File_read_ex_at(file, 0, &far, n, MPI_DOUBLE, "farther", MPI_INFO_NULL, &status) == MPI_SUCCESS);
    double best = 0;
    for (int i = 0; i < n; i++) {
        if (fabs(all[i]) > fabs(best)) best = all[i];
    }
    MPI_Get_count(&status, MPI_DOUBLE, &got);
    CHECK(far == best && got == 1);
    MPI_Datatype three = type_of("double*3");
    CHECK(stead_MPI_File_read_ex_at(file, 0, triple, n / 3, three, "the first", MPI_INFO_NULL, &status) != MPI_SUCCESS);
    CHECK(stead_MPI_File_read_ex_at(file, 0, triple, n / 3, three, "the_first", MPI_INFO_NULL, &status) == MPI_SUCCESS);
    memcpy(expected, all, 24);
    for (int i = 0; i < n / 3; i++) {
        if (is_larger(all + 3 * i, expected)) memcpy(expected, all + 3 * i, 24);
    }
    MPI_Get_count(&status, three, &got);
    CHECK(memcmp(triple, expected, 24) == 0 && got == 1);
    MPI_Get_count(&status, MPI_DOUBLE, &got);
    CHECK(got == 3);
    /* No item, no result: the buffer stays. */
    CHECK(stead_MPI_File_read_ex_at(file, bytes, &far, n, MPI_DOUBLE, "farther", MPI_INFO_NULL, &status) ==
          MPI_SUCCESS);
    MPI_Get_count(&status, MPI_DOUBLE, &got);
    CHECK(got == 0 && far == best);
    int code = stead_MPI_File_read_ex_at(file, 0, &far, n, MPI_DOUBLE, "last", MPI_INFO_NULL, &status), class;
    stead_MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_OP && strstr(stead_MPI_Error_text(), "does not commute"));
    code = stead_MPI_File_read_ex_at(file, 0, triple, n / 3, three, "free", MPI_INFO_NULL, &status);
    CHECK(storage ? code && strstr(stead_MPI_Error_text(), "'free' is not known on this rank") : code == MPI_SUCCESS);
    code = stead_MPI_File_read_ex_at(file, 0, &far, n, MPI_DOUBLE, "nobody", MPI_INFO_NULL, &status);
    CHECK(code != MPI_SUCCESS && strstr(stead_MPI_Error_text(), "no kernel and no operation 'nobody'"));
    code = stead_MPI_File_read_ex_at(file, 0, &far, n, MPI_DOUBLE, "MPI_BAND", MPI_INFO_NULL, &status);
    stead_MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_OP && strstr(stead_MPI_Error_text(), "MPI_DOUBLE"));
    CHECK(stead_MPI_File_read_ex_at(file, 0, &far, 2, MPI_DOUBLE, "mean", MPI_INFO_NULL, &status) == MPI_SUCCESS &&
          far == (all[0] + all[1]) / 2);
    CHECK(stead_MPI_Op_register("MPI_SUM", first, 1) != MPI_SUCCESS &&
          stead_MPI_Op_register("sum", first, 1) != MPI_SUCCESS &&
          stead_MPI_Op_register("a b", first, 1) != MPI_SUCCESS);
    MPI_Op_free(&op);
    MPI_Op_free(&ordered);
    MPI_Op_free(&other);
    MPI_File_close(&file);
    free(all);
}

/* ---- pointers and handles */

static double sum_of(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum;
}

/* The numbers of both files are whole, so that sums are exact in any order. */
static void pointers(const char *path, const char *other) {
    double x[300], sum;
    MPI_Offset at, bytes;
    MPI_Status status;
    int n;
    MPI_File file = opened(path), second;
    MPI_File_set_view(file, 8, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL);
    MPI_File_seek(file, 10 * rank, MPI_SEEK_SET);
    CHECK(stead_MPI_File_read_ex(file, &sum, 100, MPI_DOUBLE, "sum", MPI_INFO_NULL, &status) == MPI_SUCCESS);
    MPI_File_get_position(file, &at);
    CHECK(at == 10 * rank + 100);
    CHECK(MPI_File_read_at(file, 10 * rank, x, 100, MPI_DOUBLE, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
          sum == sum_of(x, 100));
    /* Ordinary reads go on where it has ended, and it where they have. */
    CHECK(MPI_File_read(file, x, 50, MPI_DOUBLE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(stead_MPI_File_read_ex_all(file, &sum, 5, MPI_DOUBLE, "MPI_SUM", MPI_INFO_NULL, MPI_STATUS_IGNORE) ==
          MPI_SUCCESS);
    CHECK(MPI_File_read_at(file, at + 50, x, 5, MPI_DOUBLE, MPI_STATUS_IGNORE) == MPI_SUCCESS && sum == sum_of(x, 5));
    /* Those at an offset leave it. */
    MPI_File_get_position(file, &at);
    CHECK(stead_MPI_File_read_ex_at(file, 3, &sum, 7, MPI_DOUBLE, "sum", MPI_INFO_NULL, &status) == MPI_SUCCESS);
    MPI_Offset same;
    MPI_File_get_position(file, &same);
    CHECK(same == at);
    /* The end: some items, none, and none behind it. */
    MPI_File_get_size(file, &bytes);
    MPI_File_seek(file, bytes / 8 - 1 - 3, MPI_SEEK_SET);
    int64_t rows;
    CHECK(stead_MPI_File_read_ex(file, &rows, 100, MPI_DOUBLE, "rows", MPI_INFO_NULL, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_INT64_T, &n);
    CHECK(rows == 3 && n == 1);
    CHECK(stead_MPI_File_read_ex(file, &rows, 100, MPI_DOUBLE, "rows", MPI_INFO_NULL, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_INT64_T, &n);
    MPI_File_get_position(file, &at);
    CHECK(n == 0 && rows == 3 && at == bytes / 8 - 1);
    CHECK(stead_MPI_File_read_ex_at(file, 1 << 20, &rows, 1, MPI_DOUBLE, "rows", MPI_INFO_NULL, &status) ==
          MPI_SUCCESS);
    /* Another file of the same handle is another file. */
    double first_sum, second_sum, again;
    MPI_File_set_view(file, 0, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL);
    CHECK(stead_MPI_File_read_ex_at(file, 0, &first_sum, 100, MPI_DOUBLE, "sum", MPI_INFO_NULL, &status) ==
          MPI_SUCCESS);
    for (int i = 0; i < 5; i++) {
        MPI_File_close(&file);
        file = opened(i % 2 ? path : other);
        second = opened(i % 2 ? other : path);
        CHECK(stead_MPI_File_read_ex_at(file, 0, &second_sum, 100, MPI_DOUBLE, "sum", MPI_INFO_NULL, &status) ==
              MPI_SUCCESS);
        CHECK(stead_MPI_File_read_ex_at(second, 0, &again, 100, MPI_DOUBLE, "sum", MPI_INFO_NULL, &status) ==
              MPI_SUCCESS);
        CHECK(i % 2 ? second_sum == first_sum && again != first_sum : second_sum != first_sum && again == first_sum);
        MPI_File_close(&second);
    }
    MPI_File_close(&file);
    /* Hints of the file, of its view, and of the call. */
    MPI_Info info;
    int64_t counts[4];
    MPI_Info_create(&info);
    MPI_Info_set(info, "stead_bins", "2");
    MPI_Info_set(info, "stead_lo", "-1e9");
    /* Somebody else's: a file's hints are ours if their names say so. */
    MPI_Info_set(info, "bins", "none");
    MPI_Info_set(info, "format", "netcdf");
    CHECK(stead_MPI_File_open(compute, path, MPI_MODE_RDONLY, info, &file) == MPI_SUCCESS);
    MPI_Info_set(info, "stead_bins", "3");
    MPI_Info_set(info, "stead_hi", "1e9");
    MPI_File_set_view(file, 0, MPI_DOUBLE, MPI_DOUBLE, "native", info);
    CHECK(stead_MPI_File_read_ex_at(file, 0, counts, 100, MPI_DOUBLE, "hist", MPI_INFO_NULL, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_INT64_T, &n);
    CHECK(n == 3 && counts[0] + counts[1] + counts[2] == 100);
    MPI_Info_free(&info);
    MPI_Info_create(&info);
    MPI_Info_set(info, "bins", "4");
    CHECK(stead_MPI_File_read_ex_at(file, 0, counts, 100, MPI_DOUBLE, "hist", info, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_INT64_T, &n);
    CHECK(n == 4);
    /* A read that fails has begun: the pointer is behind it. */
    MPI_Info_set(info, "result_bytes", "8");
    MPI_File_seek(file, 5, MPI_SEEK_SET);
    CHECK(stead_MPI_File_read_ex(file, counts, 30, MPI_DOUBLE, "hist", info, &status) != MPI_SUCCESS);
    MPI_File_get_position(file, &at);
    CHECK(at == 35);
    /* One that makes no sense has not. */
    CHECK(stead_MPI_File_read_ex(file, counts, 30, MPI_DOUBLE, "nothing", MPI_INFO_NULL, &status) != MPI_SUCCESS);
    MPI_File_get_position(file, &at);
    CHECK(at == 35);
    MPI_Info_free(&info);
    MPI_File_close(&file);
}

/* ---- errors */

static int handled;
/* What the handler reads on in, if it does, and its answer. */
static MPI_File report = MPI_FILE_NULL;
static int64_t reported;

static void handle(MPI_File *file, int *code, ...) {
    (void)file, (void)code;
    handled++;
    if (report != MPI_FILE_NULL)
        CHECK(stead_MPI_File_read_ex(report, &reported, 3, MPI_DOUBLE, "rows", MPI_INFO_NULL, MPI_STATUS_IGNORE) ==
              MPI_SUCCESS);
}

/* Functions of MPI that fail when they are told to. */
static bool no_hints, no_position;

int MPI_Info_get_valuelen(MPI_Info info, const char *key, int *length, int *found) {
    if (no_hints && strncmp(key, "stead_", 6) == 0) return MPI_ERR_NO_MEM;
    return PMPI_Info_get_valuelen(info, key, length, found);
}

int MPI_File_get_position(MPI_File file, MPI_Offset *position) {
    if (!no_position) return PMPI_File_get_position(file, position);
    no_position = false;
    MPI_File_call_errhandler(file, MPI_ERR_IO);
    return MPI_ERR_IO;
}

static void refused(MPI_File file, const char *kernel, MPI_Datatype type, const char *hint, const char *value,
                    int wanted, const char *says) {
    double room[64];
    MPI_Status status;
    MPI_Info hints = MPI_INFO_NULL;
    int class, length;
    memset(room, 0x5A, sizeof room);
    char text[MPI_MAX_ERROR_STRING + 1];
    if (hint) {
        MPI_Info_create(&hints);
        MPI_Info_set(hints, hint, value);
    }
    int code = stead_MPI_File_read_ex_at(file, 0, room, 100, type, kernel, hints, &status);
    if (hint) MPI_Info_free(&hints);
    CHECK(code != MPI_SUCCESS);
    /* Nothing is written behind the room that there is: 72 bytes in one case. */
    for (size_t i = 72; i < sizeof room; i++) CHECK(((unsigned char *)room)[i] == 0x5A);
    stead_MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    if (class != wanted || !strstr(stead_MPI_Error_text(), says) || strncmp(text, stead_MPI_Error_text(), 30) != 0) {
        fprintf(stderr, "%s, %s=%s: class %d and not %d: %s | %s\n", kernel, hint ? hint : "", hint ? value : "", class,
                wanted, stead_MPI_Error_text(), text);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Hints that could not be noted fail what is read of that file, and of no other. */
static void lost_hints(const char *path) {
    MPI_File file;
    MPI_Info hints;
    int64_t rows;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "stead_where", "value > 0");
    for (int late = 0; late < 3; late++) {
        no_hints = late == 0;
        CHECK(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDONLY, hints, &file) == MPI_SUCCESS);
        no_hints = true;
        if (late == 1) CHECK(MPI_File_set_info(file, hints) == MPI_SUCCESS);
        if (late == 2) CHECK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", hints) == MPI_SUCCESS);
        no_hints = false;
        refused(file, "rows", MPI_DOUBLE, NULL, NULL, MPI_ERR_NO_MEM, "MPI_Info_get_valuelen failed");
        MPI_File_close(&file);
        file = opened(path);
        CHECK(stead_MPI_File_read_ex_at(file, 0, &rows, 100, MPI_DOUBLE, "rows", MPI_INFO_NULL, MPI_STATUS_IGNORE) ==
                  MPI_SUCCESS &&
              rows == 100);
        MPI_File_close(&file);
    }
    MPI_Info_free(&hints);
}

static void errors(const char *path) {
    MPI_File file = opened(path), written;
    MPI_Errhandler handler;
    refused(file, "quantile:0,q=2", MPI_DOUBLE, NULL, NULL, MPI_ERR_ARG, "q");
    refused(file, "nothing", MPI_DOUBLE, NULL, NULL, MPI_ERR_ARG, "no kernel");
    refused(file, "normalize:0", MPI_DOUBLE, NULL, NULL, MPI_ERR_ARG, "writes a file");
    refused(file, "grep", MPI_CHAR, NULL, NULL, MPI_ERR_ARG, "pattern");
    refused(file, "grep", MPI_CHAR, "pattern", "(", MPI_ERR_ARG, "(");
    refused(file, "sum", MPI_C_DOUBLE_COMPLEX, NULL, NULL, MPI_ERR_TYPE, "numbers");
    refused(file, "sum", MPI_DATATYPE_NULL, NULL, NULL, MPI_ERR_TYPE, "MPI_DATATYPE_NULL");
    refused(file, "hist", MPI_DOUBLE, "bins", "many", MPI_ERR_INFO_VALUE, "whole number");
    refused(file, "hist", MPI_DOUBLE, "lo", "1,5", MPI_ERR_INFO_VALUE, "must be a number");
    refused(file, "hist", MPI_DOUBLE, "dims", "2", MPI_ERR_ARG, "columns");
    refused(file, "hist", MPI_DOUBLE, "result_bytes", "72", MPI_ERR_TRUNCATE, "room for 72");
    refused(file, "sum", MPI_DOUBLE, "result", "xml", MPI_ERR_INFO_VALUE, "json");
    refused(file, "sum", MPI_DOUBLE, "where", "value >", MPI_ERR_ARG, "value >");
    refused(file, "sum", MPI_DOUBLE, "by", "value", MPI_ERR_ARG, "result_bytes");
    refused(file, "render", MPI_DOUBLE, "shape", "5x5x4", MPI_ERR_ARG, "result_bytes");
    refused(file, "hist:0,bins=9223372036854775807", MPI_DOUBLE, NULL, NULL, MPI_ERR_ARG, "result_bytes");
    refused(file, "hist:0,bins=-3", MPI_DOUBLE, NULL, NULL, MPI_ERR_ARG, "result_bytes");
    refused(MPI_FILE_NULL, "sum", MPI_DOUBLE, NULL, NULL, MPI_ERR_FILE, "MPI_FILE_NULL");
    /* What is read, and where it goes. */
    int class;
    double sum;
    int code = stead_MPI_File_read_ex_at(file, -1, &sum, 1, MPI_DOUBLE, "sum", MPI_INFO_NULL, MPI_STATUS_IGNORE);
    CHECK(code && stead_MPI_Error_class(code, &class) == MPI_SUCCESS && class == MPI_ERR_ARG);
    code = stead_MPI_File_read_ex_at(file, 0, &sum, -1, MPI_DOUBLE, "sum", MPI_INFO_NULL, MPI_STATUS_IGNORE);
    CHECK(code && stead_MPI_Error_class(code, &class) == MPI_SUCCESS && class == MPI_ERR_COUNT);
    code = stead_MPI_File_read_ex_at(file, 8, &sum, INT64_MAX / 8, MPI_DOUBLE, "sum", MPI_INFO_NULL, MPI_STATUS_IGNORE);
    CHECK(code && stead_MPI_Error_class(code, &class) == MPI_SUCCESS && class == MPI_ERR_COUNT);
    void *nowhere[] = {NULL, MPI_BOTTOM, MPI_IN_PLACE};
    for (size_t i = 0; i < 3; i++) {
        code = stead_MPI_File_read_ex_at(file, 0, nowhere[i], 1, MPI_DOUBLE, "sum", MPI_INFO_NULL, MPI_STATUS_IGNORE);
        CHECK(code && stead_MPI_Error_class(code, &class) == MPI_SUCCESS && class == MPI_ERR_BUFFER);
    }
    /* More items than an int counts are as many as there are. */
    MPI_Offset bytes;
    int64_t rows;
    MPI_File_get_size(file, &bytes);
    CHECK(stead_MPI_File_read_ex_at(file, 0, &rows, (MPI_Count)1 << 40, MPI_DOUBLE, "rows", MPI_INFO_NULL,
                                    MPI_STATUS_IGNORE) == MPI_SUCCESS &&
          rows == bytes / 8);
    /* A rank that fails leaves none waiting. */
    code = stead_MPI_File_read_ex_at_all(file, 0, &sum, 100, MPI_DOUBLE, rank == 0 ? "nothing" : "sum", MPI_INFO_NULL,
                                         MPI_STATUS_IGNORE);
    CHECK((code != MPI_SUCCESS) == (rank == 0));
    MPI_File_create_errhandler(handle, &handler);
    MPI_File_set_errhandler(file, handler);
    refused(file, "nothing", MPI_DOUBLE, NULL, NULL, MPI_ERR_ARG, "no kernel");
    CHECK(handled == 1);
    /* A handler may read, whatever it was called for. */
    report = opened(path);
    no_position = true;
    code = stead_MPI_File_read_ex(file, &sum, 100, MPI_DOUBLE, "sum", MPI_INFO_NULL, MPI_STATUS_IGNORE);
    CHECK(code && stead_MPI_Error_class(code, &class) == MPI_SUCCESS && class == MPI_ERR_IO);
    CHECK(handled == 2 && reported == 3);
    MPI_File_close(&report);
    report = MPI_FILE_NULL;
    MPI_Errhandler_free(&handler);
    lost_hints(path);
    /* The file is gone where it is computed on. */
    char gone[4096];
    snprintf(gone, sizeof gone, "%s.gone.%d", path, rank);
    CHECK(MPI_File_open(MPI_COMM_SELF, gone, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &written) == MPI_SUCCESS);
    CHECK(MPI_File_write(written, gone, 800, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
          MPI_File_sync(written) == MPI_SUCCESS);
    int64_t lines;
    CHECK(stead_MPI_File_read_ex_at(written, 0, &lines, 800, MPI_BYTE, "lines", MPI_INFO_NULL, MPI_STATUS_IGNORE) ==
          MPI_SUCCESS);
    CHECK(remove(gone) == 0);
    refused(written, "lines", MPI_BYTE, NULL, NULL, MPI_ERR_NO_SUCH_FILE, "gone");
    MPI_File_close(&written);
    /* It may not be read where it is computed on: by root it may, unless that has given up its rights. */
    CHECK(MPI_File_open(MPI_COMM_SELF, gone, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &written) == MPI_SUCCESS);
    CHECK(MPI_File_write(written, gone, 800, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
          MPI_File_sync(written) == MPI_SUCCESS && chmod(gone, 0) == 0);
    if (access(gone, R_OK) != 0)
        refused(written, "lines", MPI_BYTE, NULL, NULL, MPI_ERR_ACCESS, "permission denied");
    MPI_File_close(&written);
    CHECK(remove(gone) == 0);
    CHECK(MPI_File_open(MPI_COMM_SELF, gone, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &written) == MPI_SUCCESS);
    refused(written, "lines", MPI_BYTE, NULL, NULL, MPI_ERR_ACCESS, "to be written alone");
    MPI_File_close(&written);
    remove(gone);
    MPI_Comm twice;
    MPI_Comm_set_errhandler(compute, MPI_ERRORS_RETURN);
    if (ranks > 1)
        CHECK(stead_MPI_Storage_init(compute, MPI_INFO_NULL, &twice) != MPI_SUCCESS &&
              strstr(stead_MPI_Error_text(), "before"));
    MPI_File_close(&file);
}

/* ---- the others */

static void empty(const char *path) {
    MPI_File file = opened(path);
    MPI_Datatype nothing;
    MPI_Status status;
    double sum = -1;
    int n;
    MPI_Type_contiguous(0, MPI_DOUBLE, &nothing);
    MPI_Type_commit(&nothing);
    for (int round = 0; round < 3; round++) {
        /* A view of nothing, a count of nothing, an offset behind the end. */
        bool busy = rank == round % ranks;
        MPI_File_set_view(file, 0, MPI_DOUBLE, !busy && rank % 3 == 0 ? nothing : MPI_DOUBLE, "native", MPI_INFO_NULL);
        MPI_Offset at = !busy && rank % 3 == 2 ? 1 << 30 : 0;
        CHECK(stead_MPI_File_read_ex_at_all(file, at, &sum, !busy && rank % 3 == 1 ? 0 : 100, MPI_DOUBLE, "sum",
                                            MPI_INFO_NULL, &status) == MPI_SUCCESS);
        MPI_Get_count(&status, MPI_DOUBLE, &n);
        CHECK(n == busy);
    }
    MPI_Type_free(&nothing);
    MPI_File_close(&file);
}

struct asker {
    MPI_File file;
    const double *all;
    int from;
    double sum;
};

static void *ask(void *given) {
    struct asker *a = given;
    for (int i = 0; i < 20; i++) {
        double sum;
        int n = 1 + (a->from * 7 + i * 13) % 200, at = (a->from * 31 + i * 17) % 500;
        CHECK(stead_MPI_File_read_ex_at(a->file, at * 8, &sum, n, MPI_DOUBLE, "sum", MPI_INFO_NULL,
                                        MPI_STATUS_IGNORE) == MPI_SUCCESS);
        CHECK(sum == sum_of(a->all + at, n));
    }
    return NULL;
}

/* Threads that read on get one part each, in some order. */
static void *read_on(void *given) {
    struct asker *a = given;
    for (int i = 0; i < 20; i++) {
        double sum;
        CHECK(stead_MPI_File_read_ex(a->file, &sum, 7, MPI_DOUBLE, "sum", MPI_INFO_NULL, MPI_STATUS_IGNORE) ==
              MPI_SUCCESS);
        a->sum += sum;
    }
    return NULL;
}

static void threads(const char *path) {
    MPI_File file = opened(path);
    double sum = 0;
    MPI_Offset at;
    static double all[1000];
    pthread_t thread[4];
    struct asker asker[4];
    CHECK(MPI_File_read_at(file, 0, all, 1000, MPI_DOUBLE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (int i = 0; i < 4; i++) {
        asker[i] = (struct asker){file, all, rank * 4 + i, 0};
        CHECK(pthread_create(&thread[i], NULL, ask, &asker[i]) == 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    MPI_File_set_view(file, 0, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL);
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&thread[i], NULL, read_on, &asker[i]) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        sum += asker[i].sum;
    }
    MPI_File_get_position(file, &at);
    CHECK(sum == sum_of(all, 4 * 20 * 7) && at == 4 * 20 * 7);
    MPI_File_close(&file);
}

/* An error of one rank is one of all: none goes on, and none waits. */
static void disagree(void) {
    static const char *const wrong[][2][2] = {
        {{"role", "neither"}, {"role", "storage"}},
        {{"storage_hosts", "nosuchhost7"}, {"storage_hosts", "nosuchhost8"}},
        {{"storage_hosts", "nosuchhost7"}, {"role", "compute"}},
        {{"storage_hosts", "a[2-1]"}, {"storage_hosts", "a[2-1]"}},
        {{"role", "storage"}, {"role", "storage"}},
    };
    MPI_Comm none;
    CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN) == MPI_SUCCESS);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const *mine = wrong[i][rank > 0];
        MPI_Info hints;
        MPI_Info_create(&hints);
        MPI_Info_set(hints, mine[0], mine[1]);
        int code = stead_MPI_Storage_init(MPI_COMM_WORLD, hints, &none);
        if (i == 4) {
            /* All ranks may be where the data are. */
            CHECK(code == MPI_SUCCESS && none != MPI_COMM_NULL);
            MPI_Comm_free(&none);
        } else {
            CHECK(code != MPI_SUCCESS && none == MPI_COMM_NULL && *stead_MPI_Error_text());
        }
        MPI_Info_free(&hints);
    }
    CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL) == MPI_SUCCESS);
}

static void rate(const char *path, int times) {
    MPI_File file = opened(path);
    MPI_Offset bytes;
    double sum;
    MPI_File_get_size(file, &bytes);
    for (int i = -5; i <= times; i++) {
        static double begun;
        if (i == 0) begun = MPI_Wtime();
        if (i == times) printf("small %.6f\n", (MPI_Wtime() - begun) / times);
        CHECK(stead_MPI_File_read_ex_at(file, 0, &sum, 1000, MPI_DOUBLE, "sum", MPI_INFO_NULL, MPI_STATUS_IGNORE) ==
              MPI_SUCCESS);
    }
    double begun = MPI_Wtime();
    CHECK(stead_MPI_File_read_ex_at(file, 0, &sum, bytes / 8, MPI_DOUBLE, "sum", MPI_INFO_NULL, MPI_STATUS_IGNORE) ==
          MPI_SUCCESS);
    printf("large %.6f\n", MPI_Wtime() - begun);
    MPI_File_close(&file);
}

int main(int argc, char **argv) {
    int level, all;
    if (argc < 4) return 2;
    const char *what = argv[1], *path = argv[3];
    storage = atoi(argv[2]);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    CHECK(stead_MPI_Op_register("the_first", first, 1) == MPI_SUCCESS);
    CHECK(stead_MPI_Op_register("dies", dies, 1) == MPI_SUCCESS);
    /* Storage ranks that are not told have a function of that name, which is another one. */
    if (rank < all - storage) CHECK(stead_MPI_Op_register("free", first, 1) == MPI_SUCCESS);
    MPI_Info hints;
    if (strcmp(what, "disagree") == 0) {
        disagree();
        printf("right\n");
        MPI_Finalize();
        return 0;
    }
    MPI_Info_create(&hints);
    if (storage) MPI_Info_set(hints, "role", rank >= all - storage ? "storage" : "compute");
    const bool ends = strcmp(what, "killed") == 0;
    mortal = ends && rank == all - 1;
    int code = stead_MPI_Storage_init(MPI_COMM_WORLD, hints, &compute);
    if (ends && (code != MPI_SUCCESS || compute == MPI_COMM_NULL)) _exit(0);
    CHECK(code == MPI_SUCCESS);
    MPI_Info_free(&hints);
    if (compute == MPI_COMM_NULL) {
        MPI_Finalize();
        return 0;
    }
    MPI_Comm_rank(compute, &rank);
    MPI_Comm_size(compute, &ranks);
    CHECK(ranks == all - storage);
    if (strcmp(what, "cases") == 0) cases(path, argv[4]);
    if (strcmp(what, "operations") == 0) operations(path);
    if (strcmp(what, "pointers") == 0) pointers(path, argv[4]);
    if (strcmp(what, "errors") == 0) errors(path);
    if (strcmp(what, "empty") == 0) empty(path);
    if (strcmp(what, "threads") == 0) threads(path);
    if (ends) killed(path);
    if (strcmp(what, "rate") == 0) rate(path, atoi(argv[4]));
    if (strcmp(what, "forget") == 0) {
        double sum;
        MPI_File file = opened(path);
        CHECK(stead_MPI_File_read_ex_at(file, 0, &sum, 100, MPI_DOUBLE, "sum", MPI_INFO_NULL, MPI_STATUS_IGNORE) ==
              MPI_SUCCESS);
        MPI_File_close(&file);
    } else {
        CHECK(stead_MPI_Storage_finalize() == MPI_SUCCESS && stead_MPI_Storage_finalize() == MPI_SUCCESS);
        MPI_Comm_free(&compute);
    }
    if (strcmp(what, "rate") != 0) printf("right\n");
    MPI_Finalize();
    return 0;
}
