/*
 * A kernel of one's own: which flight of each month was the longest, and how many were longer than six hours? A state is
 * made for each thread, blocks are added to it, states are merged, and the last one says the result. What is written
 * here works with filters, groups and any number of threads, and the answer does not depend on how the work was split.
 */

#include <stdio.h>
#include <stead.h>

/* Plain bytes, no pointers: states are copied. All zero is the state of no data. */
typedef struct {
    double longest;
    uint64_t number;
} state;

static int update(void *to, const stead_block *block, void *user) {
    state *s = to;
    /* The first column that the kernel asked for, a value a row. */
    const double *minutes = stead_block_numbers(block, 0);
    const double limit = *(const double *)user;
    size_t i, n = stead_block_rows(block);
    for (i = 0; i < n; i++) {
        /* A missing value is a NaN: it is not greater than anything. */
        if (minutes[i] < 0) return stead_fail(STEAD_DATA, "a flight of negative length");
        if (minutes[i] > s->longest) s->longest = minutes[i];
        if (minutes[i] > limit) s->number++;
    }
    return 0;
}

static int merge(void *to, const void *from, void *user) {
    state *s = to;
    const state *o = from;
    (void)user;
    if (o->longest > s->longest) s->longest = o->longest;
    s->number += o->number;
    return 0;
}

static int finish(void *of, stead_builder *result, void *user) {
    const state *s = of;
    (void)user;
    return stead_builder_map(result) || stead_builder_key(result, "longest") ||
           stead_builder_double(result, s->longest) || stead_builder_key(result, "long") ||
           stead_builder_int(result, s->number) || stead_builder_end(result);
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "flights.csv";
    static const char *columns[] = {"air_time"};
    double limit = 360;
    stead_kernel kernel = {0};
    stead_error *error = NULL;
    stead_dataset *flights = NULL;
    stead_request *request = NULL;
    stead_report *report = NULL;
    stead_value months, month, longest, number;
    double minutes = 0;
    uint64_t n = 0;
    size_t i;

    kernel.size = sizeof kernel;
    kernel.name = "long flights";
    kernel.state_size = sizeof(state);
    kernel.numbers = columns;
    kernel.number_count = 1;
    kernel.update = update;
    kernel.merge = merge;
    kernel.finish = finish;
    kernel.user = &limit;
    if (stead_open(path, NULL, &flights, &error) || stead_request_new(&request, &error) ||
        stead_request_own_kernel(request, &kernel, &error) || stead_request_by(request, "month", &error) ||
        stead_run(flights, request, &report, &error) ||
        stead_report_result(report, "long flights", &months, &error)) {
        fprintf(stderr, "%s\n", stead_error_message(error));
        return 1;
    }
    for (i = 0; i < stead_value_length(months); i++) {
        if (stead_value_at(months, i, &month, NULL) || stead_value_get(month, "longest", &longest, NULL) ||
            stead_value_double(longest, &minutes, NULL) || stead_value_get(month, "long", &number, NULL) ||
            stead_value_int(number, &n, NULL))
            return 1;
        printf("%2s  %4.0f  %5llu\n", stead_value_key(months, i), minutes, (unsigned long long)n);
    }

    stead_report_free(report);
    stead_request_free(request);
    stead_dataset_free(flights);
    return 0;
}
