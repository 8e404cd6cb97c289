/*
 * A kernel that reads the data several times: the median delay at each airport, to the minute. The first pass finds the
 * least and the greatest value; each one that follows counts how many values lie in the lower half of what is left, and
 * goes on with the half that holds the median. What was found so far stands in the state beside what is being counted.
 */

#include <math.h>
#include <stdio.h>
#include <stead.h>

/* Plain bytes, no pointers. All zero is the state of no data in the first pass. */
typedef struct {
    /* Found by the passes before: the number of values, and between which the median lies. */
    uint64_t values;
    double least, greatest;
    /* Counted by this pass. */
    uint64_t below;
    int searching;
} state;

static double middle(const state *s) { return floor((s->least + s->greatest) / 2); }

static int update(void *to, const stead_block *block, void *user) {
    state *s = to;
    const double *x = stead_block_numbers(block, 0);
    size_t i, n = stead_block_rows(block);
    (void)user;
    for (i = 0; i < n; i++) {
        if (stead_is_missing(x[i])) continue;
        if (s->searching) {
            s->below += x[i] <= middle(s);
            continue;
        }
        if (s->values == 0 || x[i] < s->least) s->least = x[i];
        if (s->values == 0 || x[i] > s->greatest) s->greatest = x[i];
        s->values++;
    }
    return 0;
}

static int merge(void *to, const void *from, void *user) {
    state *s = to;
    const state *o = from;
    (void)user;
    if (s->searching) {
        s->below += o->below;
    } else if (o->values > 0) {
        if (s->values == 0 || o->least < s->least) s->least = o->least;
        if (s->values == 0 || o->greatest > s->greatest) s->greatest = o->greatest;
        s->values += o->values;
    }
    return 0;
}

static int finish(void *of, stead_builder *result, void *user) {
    state *s = of;
    (void)user;
    if (s->searching) {
        if (s->below >= s->values - s->values / 2) s->greatest = middle(s);
        else s->least = middle(s) + 1;
    }
    if (s->least >= s->greatest) return stead_builder_double(result, s->least);
    /* The states of the next pass begin as this one: with nothing counted. */
    s->searching = 1;
    s->below = 0;
    return stead_builder_again(result);
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "flights.csv";
    static const char *columns[] = {"arr_delay"};
    stead_kernel kernel = {0};
    stead_error *error = NULL;
    stead_dataset *flights = NULL;
    stead_request *request = NULL;
    stead_report *report = NULL;
    stead_value airports, median;
    double minutes = 0;
    size_t i;

    kernel.size = sizeof kernel;
    kernel.name = "median";
    kernel.state_size = sizeof(state);
    kernel.numbers = columns;
    kernel.number_count = 1;
    kernel.update = update;
    kernel.merge = merge;
    kernel.finish = finish;
    if (stead_open(path, NULL, &flights, &error) || stead_request_new(&request, &error) ||
        stead_request_own_kernel(request, &kernel, &error) || stead_request_by(request, "origin", &error) ||
        stead_run(flights, request, &report, &error) ||
        stead_report_result(report, "median", &airports, &error)) {
        fprintf(stderr, "%s\n", stead_error_message(error));
        return 1;
    }
    for (i = 0; i < stead_value_length(airports); i++) {
        if (stead_value_at(airports, i, &median, NULL) || stead_value_double(median, &minutes, NULL)) return 1;
        printf("%s %g\n", stead_value_key(airports, i), minutes);
    }

    stead_report_free(report);
    stead_request_free(request);
    stead_dataset_free(flights);
    return 0;
}
