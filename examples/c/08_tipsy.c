/*
 * A snapshot of particles (Tipsy) that tasks read through a session: each asks for the bytes of its own records, in one
 * call, and looks at them where they lie. Mass and centre of mass of each species.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stead.h>

#define TASKS 64

static const char *species[] = {"gas", "dark", "star"};
static const size_t record_size[] = {48, 36, 44}, header_size = 32;

/* Standard files are big-endian, on all machines. */
static uint64_t bits(const unsigned char *from, int size) {
    uint64_t b = 0;
    for (int i = 0; i < size; i++) b = b << 8 | from[i];
    return b;
}

static double real(const unsigned char *from) {
    const uint32_t b = (uint32_t)bits(from, 4);
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

static void check(stead_status status, stead_error *error) {
    if (!status) return;
    fprintf(stderr, "%s\n", stead_error_message(error));
    exit(1);
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "galaxy.tipsy";
    stead_error *error = NULL;
    stead_file *file = NULL;
    stead_session *session = NULL;
    unsigned char head[32];
    check(stead_file_open(path, NULL, &file, &error), error);
    check(stead_session_start(file, 0, STEAD_TO_END, &session, &error), error);
    check(stead_read_now(session, 0, head, sizeof head, &error), error);
    if (bits(head + 12, 4) != 3) {
        fprintf(stderr, "this is no standard Tipsy file\n");
        return 1;
    }
    const uint64_t time_bits = bits(head, 8);
    double time;
    memcpy(&time, &time_bits, sizeof time);
    printf("time %g\n", time);

    uint64_t start = header_size;
    for (int k = 0; k < 3; k++) {
        const uint64_t n = bits(head + 16 + 4 * k, 4);
        const size_t size = record_size[k];
        double sum[4] = {0};
        for (uint64_t task = 0; task < TASKS; task++) {
            const uint64_t first = n * task / TASKS, end = n * (task + 1) / TASKS;
            const size_t bytes = (size_t)(end - first) * size;
            unsigned char *records = malloc(bytes + 1);
            if (!records) return 1;
            check(stead_read_now(session, start + first * size, records, bytes, &error), error);
            for (size_t at = 0; at < bytes; at += size) {
                const double mass = real(records + at);
                sum[0] += mass;
                for (int axis = 0; axis < 3; axis++) sum[axis + 1] += mass * real(records + at + 4 + 4 * axis);
            }
            free(records);
        }
        printf("%-4s %llu particles, mass %.6f, centre %.6f %.6f %.6f\n", species[k], (unsigned long long)n, sum[0],
               sum[1] / sum[0], sum[2] / sum[0], sum[3] / sum[0]);
        start += n * size;
    }
    check(stead_session_close(session, &error), error);
    check(stead_file_close(file, &error), error);
    return 0;
}
