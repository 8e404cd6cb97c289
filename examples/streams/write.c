/* One of several programs that write a field together, each its rows of it, in steps: write RANK WRITERS STEPS */
#include <stdio.h>
#include <stdlib.h>
#include <stead.h>

enum { ROWS = 60, COLUMNS = 40 };
static double rows[ROWS * COLUMNS];

int main(int argc, char **argv) {
    stead_stream_writer_options options = {0};
    stead_stream_writer *writer = NULL;
    uint64_t shape[] = {ROWS, COLUMNS}, start[] = {0, 0}, count[] = {0, COLUMNS};
    uint64_t rank, steps, step, i;
    const char *dims[] = {"y", "x"};
    uint32_t t = 0;
    if (argc < 4) return 2;
    options.size = sizeof options;
    options.rank = rank = strtoull(argv[1], NULL, 10);
    options.writers = strtoull(argv[2], NULL, 10);
    options.readers = 1;
    steps = strtoull(argv[3], NULL, 10);
    start[0] = rank * ROWS / options.writers;
    count[0] = (rank + 1) * ROWS / options.writers - start[0];

    if (stead_stream_writer_open("sim", &options, &writer, NULL) ||
        stead_stream_writer_define(writer, "T", STEAD_F64, 2, shape, dims, &t, NULL) ||
        stead_stream_writer_attribute_text(writer, t, "units", "K", NULL))
        goto failed;
    for (step = 0; step < steps; step++) {
        for (i = 0; i < count[0] * COLUMNS; i++) rows[i] = (double)(step * 10000 + start[0] * COLUMNS + i);
        if (stead_stream_writer_begin(writer, NULL, NULL) ||
            stead_stream_writer_put(writer, t, start, count, rows, NULL) || stead_stream_writer_end(writer, NULL))
            goto failed;
    }
    if (stead_stream_writer_close(writer, NULL) == STEAD_OK) return 0;
failed:
    fprintf(stderr, "%s\n", stead_last_message());
    stead_stream_writer_free(writer);
    return 1;
}
