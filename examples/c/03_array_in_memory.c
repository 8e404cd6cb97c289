/*
 * An array of the program's own is a dataset: it is lent, not copied. A Gram matrix is copied out as doubles.
 */

#include <stdio.h>
#include <stead.h>

enum { POINTS = 1000, COLUMNS = 3 };

static double points[POINTS][COLUMNS];

int main(void) {
    static const uint64_t shape[] = {POINTS, COLUMNS};
    stead_error *error = NULL;
    stead_dataset *data = NULL;
    stead_request *request = NULL;
    stead_report *report = NULL;
    stead_value gram, matrix;
    double g[COLUMNS * COLUMNS];
    int i, j;

    for (i = 0; i < POINTS; i++) {
        points[i][0] = 1;
        points[i][1] = i;
        points[i][2] = (i * 7) % 13;
    }
    /* Who allocates the array hands in a function that frees it, in place of the first of these two NULL. */
    if (stead_open_array("points", points, STEAD_F64, 2, shape, STEAD_ORDER_C, NULL, NULL, &data, &error) ||
        stead_request_new(&request, &error) || stead_request_kernel(request, "gram:*", &error) ||
        stead_run(data, request, &report, &error) || stead_report_result(report, "gram:*", &gram, &error) ||
        stead_value_get(gram, "matrix", &matrix, &error) ||
        stead_value_doubles(matrix, g, COLUMNS * COLUMNS, NULL, &error)) {
        fprintf(stderr, "%s\n", stead_error_message(error));
        return 1;
    }
    for (i = 0; i < COLUMNS; i++) {
        for (j = 0; j < COLUMNS; j++) printf("%12.0f", g[i * COLUMNS + j]);
        printf("\n");
    }

    stead_report_free(report);
    stead_request_free(request);
    stead_dataset_free(data);
    return 0;
}
