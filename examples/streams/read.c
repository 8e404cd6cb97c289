/* One of several programs that read a field together, each its columns of it, whoever has written which part: read RANK RANKS */
#include <stdio.h>
#include <stdlib.h>
#include <stead.h>

enum { ROWS = 60, COLUMNS = 40 };
static double columns[ROWS * COLUMNS];

int main(int argc, char **argv) {
    stead_stream_reader_options options = {0};
    stead_stream_reader *reader = NULL;
    stead_stream_step *step = NULL;
    uint64_t start[] = {0, 0}, count[] = {ROWS, 0}, n, i;
    double sum;
    if (argc < 3) return 2;
    options.size = sizeof options;
    options.rank = strtoull(argv[1], NULL, 10);
    options.ranks = strtoull(argv[2], NULL, 10);
    start[1] = options.rank * COLUMNS / options.ranks;
    count[1] = (options.rank + 1) * COLUMNS / options.ranks - start[1];
    n = count[0] * count[1];

    if (stead_stream_reader_open("sim", &options, &reader, NULL)) goto failed;
    for (;;) {
        if (stead_stream_reader_next(reader, &step, NULL)) goto failed;
        if (step == NULL) break;
        if (stead_stream_step_get_into(step, "T", start, count, columns, n * sizeof *columns, NULL)) goto failed;
        for (sum = 0, i = 0; i < n; i++) sum += columns[i];
        printf("step %llu: mean %.1f\n", (unsigned long long)stead_stream_step_number(step), sum / (double)n);
        stead_stream_step_free(step);
    }
    stead_stream_reader_free(reader);
    return 0;
failed:
    fprintf(stderr, "%s\n", stead_last_message());
    stead_stream_step_free(step);
    stead_stream_reader_free(reader);
    return 1;
}
