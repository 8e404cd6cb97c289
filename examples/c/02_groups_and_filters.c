/*
 * Answers for each group, of the rows that a filter keeps: how late do flights arrive that left late, by carrier?
 * A grouped result is a map from group to answer. Missing values are left out.
 */

#include <stdio.h>
#include <stead.h>

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "flights.csv";
    stead_error *error = NULL;
    stead_dataset *flights = NULL;
    stead_request *request = NULL;
    stead_report *report = NULL;
    stead_value rows, means, late;
    uint64_t n = 0;
    double mean = 0;
    size_t i;

    if (stead_open(path, NULL, &flights, &error) || stead_request_new(&request, &error) ||
        stead_request_kernel(request, "rows", &error) ||
        stead_request_kernel(request, "mean:arr_delay", &error) ||
        stead_request_where(request, "dep_delay > 60 and origin = 'JFK'", &error) ||
        stead_request_by(request, "carrier", &error) || stead_run(flights, request, &report, &error) ||
        stead_report_result(report, "rows", &rows, &error) ||
        stead_report_result(report, "mean:arr_delay", &means, &error)) {
        fprintf(stderr, "%s\n", stead_error_message(error));
        return 1;
    }
    for (i = 0; i < stead_value_length(rows); i++) {
        const char *carrier = stead_value_key(rows, i);
        stead_value count;
        if (stead_value_at(rows, i, &count, NULL) || stead_value_int(count, &n, NULL)) return 1;
        if (stead_value_get(means, carrier, &late, NULL)) return 1;
        /* A group without any value has no mean: then it is STEAD_NULL. */
        if (stead_value_type(late) == STEAD_DOUBLE && stead_value_double(late, &mean, NULL) == STEAD_OK)
            printf("%s  %5llu  %7.2f\n", carrier, (unsigned long long)n, mean);
    }

    stead_report_free(report);
    stead_request_free(request);
    stead_dataset_free(flights);
    return 0;
}
