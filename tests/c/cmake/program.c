#include <stdio.h>
#include <stead.h>

int main(void) {
    static const char text[] = "x\n1\n2\n4\n";
    stead_dataset *d = NULL;
    stead_request *q = NULL;
    stead_report *r = NULL;
    double sum = 0;
    if (stead_open_bytes("x.csv", text, sizeof text - 1, NULL, NULL, NULL, &d, NULL)) return 1;
    if (stead_request_new(&q, NULL) || stead_request_kernel(q, "sum:x", NULL)) return 2;
    if (stead_run(d, q, &r, NULL) || stead_report_double(r, "sum:x", &sum, NULL)) return 3;
    printf("%s %g\n", stead_version(), sum);
    stead_report_free(r);
    stead_request_free(q);
    stead_dataset_free(d);
    return 0;
}
