/*
 * Opens a file with everything detected, asks three questions of one scan, and reads the answers.
 */

#include <stdio.h>
#include <stead.h>

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "flights.csv";
    stead_error *error = NULL;
    stead_dataset *flights = NULL;
    stead_request *request = NULL;
    stead_report *report = NULL;
    stead_value rows;
    uint64_t n = 0;
    double mean = 0, most = 0;

    /* Each call says how it ended; the first failure ends the chain. */
    if (stead_open(path, NULL, &flights, &error) || stead_request_new(&request, &error) ||
        stead_request_kernel(request, "rows", &error) ||
        stead_request_kernel(request, "mean:arr_delay", &error) ||
        stead_request_kernel(request, "max:arr_delay", &error) ||
        stead_run(flights, request, &report, &error) ||
        stead_report_result(report, "rows", &rows, &error) || stead_value_int(rows, &n, &error) ||
        stead_report_double(report, "mean:arr_delay", &mean, &error) ||
        stead_report_double(report, "max:arr_delay", &most, &error)) {
        fprintf(stderr, "%s\n", stead_error_message(error));
        if (stead_error_hint(error)) fprintf(stderr, "  hint: %s\n", stead_error_hint(error));
    } else {
        printf("rows  %llu\n", (unsigned long long)n);
        printf("mean  %.6f\n", mean);
        printf("max   %g\n", most);
    }

    stead_report_free(report);
    stead_request_free(request);
    stead_dataset_free(flights);
    stead_error_free(error);
    return n ? 0 : 1;
}
