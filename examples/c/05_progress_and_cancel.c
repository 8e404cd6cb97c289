/*
 * Watching a run, and stopping it: by what the progress function returns, and by a flag that a signal handler or another
 * thread sets. The flag of this program is set by Ctrl-C, and once by the program itself.
 */

#include <signal.h>
#include <stdio.h>
#include <stead.h>

static stead_cancel *flag;

/* All that may be done with stead in a signal handler. */
static void interrupted(int n) {
    (void)n;
    stead_cancel_request(flag);
}

static int watch(const stead_progress *now, void *user) {
    int *whole = user;
    /* About ten times a second, and once at the end of each pass. */
    *whole = now->bytes == now->total_bytes;
    return 0; /* anything else stops the run */
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "flights.csv";
    stead_error *error = NULL;
    stead_dataset *flights = NULL;
    stead_request *request = NULL;
    stead_report *report = NULL;
    stead_status status;
    int whole = 0;

    if (stead_cancel_new(&flag, &error)) return 1;
    signal(SIGINT, interrupted);
    if (stead_open(path, NULL, &flights, &error) || stead_request_new(&request, &error) ||
        stead_request_kernel(request, "entropy", &error) ||
        stead_request_progress(request, watch, &whole, &error) || stead_request_cancel(request, flag, &error) ||
        stead_run(flights, request, &report, &error)) {
        fprintf(stderr, "%s\n", stead_error_message(error));
        return 1;
    }
    printf("watched to the end: %s\n", whole ? "yes" : "no");
    stead_report_free(report);

    raise(SIGINT);
    status = stead_run(flights, request, &report, &error);
    printf("%s: %s\n", stead_status_name(status), stead_error_message(error));
    stead_error_free(error);

    stead_cancel_reset(flag);
    status = stead_run(flights, request, &report, &error);
    printf("and again: %s\n", stead_status_name(status));

    stead_report_free(report);
    stead_request_free(request);
    stead_dataset_free(flights);
    stead_cancel_free(flag);
    return 0;
}
