/*
 * From a report to the caller's buffer.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "io.h"
#include <math.h>

/* Where a result goes: what has been written, and what there is room for. */
struct place {
    char *at;
    int64_t bytes, room;
};

/* Counts what does not fit, too, so that the error says how much it is. */
static void put(struct place *place, const void *bytes, size_t n) {
    if (n && place->bytes + (int64_t)n <= place->room) memcpy(place->at + place->bytes, bytes, n);
    place->bytes += (int64_t)n;
}

static int too_long(const struct place *place) {
    if (place->bytes <= place->room) return MPI_SUCCESS;
    return io_fail(MPI_ERR_TRUNCATE,
                   "the result has %lld bytes, and the buffer has room for %lld (the hint 'result_bytes' says how "
                   "large it is)",
                   (long long)place->bytes, (long long)place->room);
}

/* Every number of a value, in the order in which members stand. */
static int numbers(stead_value value, const struct io_plan *plan, struct place *place) {
    stead_error *error = NULL;
    stead_type type = stead_value_type(value);
    uint64_t count = 0;
    double number = NAN;
    if (type == STEAD_LIST || type == STEAD_MAP) {
        for (size_t i = 0, n = stead_value_length(value); i < n; i++) {
            stead_value member;
            if (stead_value_at(value, i, &member, &error)) return io_fail_stead(error);
            IO_TRY(numbers(member, plan, place));
        }
        return MPI_SUCCESS;
    }
    if (plan->shape == IO_COUNTS) {
        if (stead_value_int(value, &count, &error)) return io_fail_stead(error);
        put(place, &count, sizeof count);
        return MPI_SUCCESS;
    }
    /* No answer, such as the mean of nothing, is no number. */
    if (type != STEAD_NULL && stead_value_double(value, &number, &error)) return io_fail_stead(error);
    if (plan->shape == IO_TYPED && strcmp(plan->elements.dtype, "f32") == 0) {
        float small = (float)number;
        put(place, &small, sizeof small);
    } else {
        put(place, &number, sizeof number);
    }
    return MPI_SUCCESS;
}

static int item(stead_value value, const struct io_plan *plan, struct place *place) {
    int64_t left = plan->unit;
    for (size_t i = 0, n = stead_value_length(value); i < n && left > 0; i++) {
        stead_value member;
        stead_error *error = NULL;
        uint64_t word;
        if (stead_value_at(value, i, &member, &error) || stead_value_int(member, &word, &error))
            return io_fail_stead(error);
        put(place, &word, left < IO_WORD ? (size_t)left : IO_WORD);
        left -= IO_WORD;
    }
    return MPI_SUCCESS;
}

static int matches(stead_value value, struct place *place) {
    for (size_t i = 0, n = stead_value_length(value); i < n; i++) {
        stead_value line, text;
        stead_error *error = NULL;
        size_t length = 0;
        if (stead_value_at(value, i, &line, &error) || stead_value_get(line, "text", &text, &error))
            return io_fail_stead(error);
        const char *at = stead_value_text(text, &length);
        if (at) put(place, at, length);
        put(place, "\n", 1);
    }
    return MPI_SUCCESS;
}

static int json(stead_value value, struct place *place) {
    char *text = NULL;
    stead_error *error = NULL;
    if (stead_value_json(value, &text, &error)) return io_fail_stead(error);
    put(place, text, strlen(text));
    stead_text_free(text);
    return MPI_SUCCESS;
}

static int picture(const struct io_plan *plan, struct place *place) {
    char bytes[16 << 10];
    size_t n;
    FILE *file = fopen(plan->picture, "rb");
    if (!file) return io_fail(MPI_ERR_IO, "cannot read the picture '%s'", plan->picture);
    while ((n = fread(bytes, 1, sizeof bytes, file))) put(place, bytes, n);
    bool failed = ferror(file);
    fclose(file);
    return failed ? io_fail(MPI_ERR_IO, "cannot read the picture '%s'", plan->picture) : MPI_SUCCESS;
}

/* What the status counts, and how many bytes of the result make one of it. */
static MPI_Datatype element(const struct io_plan *plan, int64_t *bytes) {
    *bytes = 8;
    switch (plan->shape) {
    case IO_COUNTS: return MPI_INT64_T;
    case IO_DOUBLES: return MPI_DOUBLE;
    case IO_TYPED: *bytes = plan->elements.size; return plan->elements.type;
    case IO_ITEM:
        if (plan->elements.type != MPI_DATATYPE_NULL) {
            *bytes = plan->elements.size;
            return plan->elements.type;
        }
        break;
    case IO_MATCHES:
    case IO_PICTURE:
    case IO_JSON: break;
    }
    *bytes = 1;
    return MPI_BYTE;
}

static int status_is(const struct io_plan *plan, int64_t bytes, MPI_Status *status) {
    if (status == MPI_STATUS_IGNORE) return MPI_SUCCESS;
    int64_t size;
    MPI_Datatype type = element(plan, &size);
    IO_MPI(MPI_Status_set_elements_x(status, type, (MPI_Count)(bytes / size)));
    IO_MPI(MPI_Status_set_cancelled(status, 0));
    return MPI_SUCCESS;
}

int io_no_result(const struct io_plan *plan, MPI_Status *status) {
    return status_is(plan, 0, status);
}

int io_result(const stead_report *report, const struct io_plan *plan, void *result, MPI_Status *status) {
    struct place place = {result, 0, plan->room};
    stead_value value;
    stead_error *error = NULL;
    if (stead_report_result_at(report, 0, &value, &error)) return io_fail_stead(error);
    if (plan->member && stead_value_get(value, plan->member, &value, &error)) return io_fail_stead(error);
    int code = MPI_SUCCESS;
    switch (plan->shape) {
    case IO_COUNTS:
    case IO_DOUBLES:
    case IO_TYPED: code = numbers(value, plan, &place); break;
    case IO_ITEM: code = item(value, plan, &place); break;
    case IO_MATCHES: code = matches(value, &place); break;
    case IO_PICTURE: code = picture(plan, &place); break;
    case IO_JSON: code = json(value, &place); break;
    }
    IO_TRY(code);
    IO_TRY(too_long(&place));
    return status_is(plan, place.bytes, status);
}
