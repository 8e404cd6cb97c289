/*
 * What a program says by MPI_Info. Hints that stead does not know are not looked at, as MPI wants it; values that make no
 * sense are errors.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "io.h"
#include <ctype.h>
#include <errno.h>

static const char *const names[IO_HINTS] = {
    [IO_BINS] = "bins",
    [IO_BY] = "by",
    [IO_CLUSTERS] = "clusters",
    [IO_COLUMNS] = "columns",
    [IO_DIMS] = "dims",
    [IO_FORMAT] = "format",
    [IO_HI] = "hi",
    [IO_ITEM_LENGTH] = "item_length",
    [IO_LINES] = "lines",
    [IO_LO] = "lo",
    [IO_MEMORY] = "memory",
    [IO_PATTERN] = "pattern",
    [IO_RESULT] = "result",
    [IO_RESULT_BYTES] = "result_bytes",
    [IO_ROLE] = "role",
    [IO_SHAPE] = "shape",
    [IO_STORAGE_HOSTS] = "storage_hosts",
    [IO_THREADS] = "threads",
    [IO_THRESHOLD] = "threshold",
    [IO_WHERE] = "where",
};

/* Puts the value of a name in place of another one, if the info has it. */
static int add(MPI_Info info, const char *name, char **place) {
    int length = 0, found = 0;
    IO_MPI(MPI_Info_get_valuelen(info, name, &length, &found));
    if (!found) return MPI_SUCCESS;
    char *value = calloc((size_t)length + 1, 1);
    if (!value) return io_fail(MPI_ERR_NO_MEM, "no memory for the hint '%s'", name);
    /* Not asked for what is empty, which is an error to some MPIs. */
    int code = length ? MPI_Info_get(info, name, length, value, &found) : MPI_SUCCESS;
    if (code) {
        free(value);
        return io_fail_mpi(code, "MPI_Info_get");
    }
    free(*place);
    *place = value;
    return MPI_SUCCESS;
}

int io_hints_add(struct io_hints *hints, MPI_Info info, enum io_info whose) {
    if (info == MPI_INFO_NULL) return MPI_SUCCESS;
    for (int i = 0; i < IO_HINTS; i++) {
        char whole[MPI_MAX_INFO_KEY + 1];
        snprintf(whole, sizeof whole, "stead_%s", names[i]);
        if (whose == IO_OF_CALL) IO_TRY(add(info, names[i], &hints->value[i]));
        IO_TRY(add(info, whole, &hints->value[i]));
    }
    return MPI_SUCCESS;
}

int io_hints_copy(struct io_hints *to, const struct io_hints *from) {
    *to = (struct io_hints){0};
    for (int i = 0; i < IO_HINTS; i++) {
        if (from->value[i] && !(to->value[i] = strdup(from->value[i]))) {
            io_hints_free(to);
            return io_fail(MPI_ERR_NO_MEM, "no memory for the hint '%s'", names[i]);
        }
    }
    return MPI_SUCCESS;
}

void io_hints_free(struct io_hints *hints) {
    for (int i = 0; i < IO_HINTS; i++) free(hints->value[i]);
    *hints = (struct io_hints){0};
}

int io_hint_count(const struct io_hints *hints, enum io_hint hint, int64_t least, int64_t most, int64_t without,
                  int64_t *value) {
    const char *text = hints->value[hint];
    *value = without;
    if (!text) return MPI_SUCCESS;
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end == text || *end || errno || n < least || n > most)
        return io_fail(MPI_ERR_INFO_VALUE, "the hint '%s' is '%s', and must be a whole number from %lld to %lld",
                       names[hint], text, (long long)least, (long long)most);
    *value = n;
    return MPI_SUCCESS;
}

int io_hint_is_number(const struct io_hints *hints, enum io_hint hint) {
    const char *text = hints->value[hint], *at = text;
    if (!text) return MPI_SUCCESS;
    /* Not by strtod, which wants a comma in some places of the world. */
    int digits = 0, more = 0;
    if (*at == '+' || *at == '-') at++;
    for (; isdigit((unsigned char)*at); at++) digits++;
    if (*at == '.') at++;
    for (; isdigit((unsigned char)*at); at++) digits++;
    if (digits && (*at == 'e' || *at == 'E')) {
        at++;
        if (*at == '+' || *at == '-') at++;
        for (; isdigit((unsigned char)*at); at++) more++;
        if (!more) digits = 0;
    }
    if (digits && !*at) return MPI_SUCCESS;
    return io_fail(MPI_ERR_INFO_VALUE, "the hint '%s' is '%s', and must be a number", names[hint], text);
}
