/* Prints the report of a run as the command does: report DATASET [-w WHERE] [-b COLUMN] SPEC... */

#include <stdio.h>
#include <stdlib.h>
#include <stead.h>
#include <string.h>

static void must(stead_status status) {
    if (status == STEAD_OK) return;
    fprintf(stderr, "%s\n", stead_last_message());
    exit(1);
}

int main(int argc, char **argv) {
    stead_dataset *d = NULL;
    stead_request *q = NULL;
    stead_report *r = NULL;
    int i;
    if (argc < 3) return 2;
    must(stead_open(argv[1], NULL, &d, NULL));
    must(stead_request_new(&q, NULL));
    for (i = 2; i < argc; i++) {
        if (strcmp(argv[i], "-w") == 0) must(stead_request_where(q, argv[++i], NULL));
        else if (strcmp(argv[i], "-b") == 0) must(stead_request_by(q, argv[++i], NULL));
        else must(stead_request_kernel(q, argv[i], NULL));
    }
    must(stead_run(d, q, &r, NULL));
    puts(stead_report_json(r));
    stead_report_free(r);
    stead_request_free(q);
    stead_dataset_free(d);
    return 0;
}
