/* Reads what it is told to: reads PATH FLAGS, then lines of a way, an offset and a length; for each a line is printed,
 * "ok CHECKSUM" or "error KIND OFFSET PATH". */
#include "reads.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stead.h>

static void told(stead_status status, stead_error *e) {
    uint64_t offset = 0;
    if (stead_error_offset(e, &offset))
        printf("error %d %llu %s\n", (int)status, (unsigned long long)offset, stead_error_path(e));
    else
        printf("error %d - %s\n", (int)status, stead_error_path(e) ? stead_error_path(e) : "-");
    stead_error_free(e);
}

/* As an event loop does it. */
static stead_status queued(stead_session *s, uint64_t offset, size_t n, stead_view *v, stead_error **e) {
    stead_queue *q = NULL;
    stead_completion c;
    struct pollfd watched;
    stead_status status = stead_queue_new(&q, e);
    if (status == STEAD_OK) status = stead_queue_read(q, s, offset, n, NULL, e);
    if (status == STEAD_OK) {
        watched.fd = stead_queue_fd(q);
        watched.events = POLLIN;
        if (poll(&watched, 1, 60000) != 1 || !stead_queue_next(q, 0, &c)) exit(3);
        *v = c.view;
        *e = c.error;
        status = c.error ? stead_error_kind(c.error) : STEAD_OK;
    }
    stead_queue_free(q);
    return status;
}

int main(int argc, char **argv) {
    stead_read_options options = {0};
    stead_file *file = NULL;
    stead_session *s = NULL;
    stead_error *e = NULL;
    stead_status status;
    char way[16];
    unsigned long long offset, length;
    if (argc < 3) return 2;
    options.size = sizeof options;
    options.flags = (uint32_t)atoi(argv[2]);
    options.deadline_ms = 60000;
    status = stead_file_open(argv[1], &options, &file, &e);
    if (status == STEAD_OK) status = stead_session_start(file, 0, STEAD_TO_END, &s, &e);
    if (status != STEAD_OK) {
        told(status, e);
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    while (scanf("%15s %llu %llu", way, &offset, &length) == 3) {
        const size_t n = (size_t)length;
        stead_view v = {0};
        unsigned char *own = NULL;
        unsigned long sum = 0;
        e = NULL;
        if (strcmp(way, "into") == 0) {
            own = malloc(n);
            if (!own) return 3;
            status = stead_read_now(s, offset, own, n, &e);
            if (status == STEAD_OK) sum = adler(own, n);
        } else if (strcmp(way, "strided") == 0) {
            /* Pieces of 1000 bytes, 10,000 bytes apart. */
            stead_pending *p = NULL;
            status = stead_read_strided(s, offset, 1000, 10000, n / 1000, &p, &e);
            if (status == STEAD_OK) status = stead_pending_take(p, &v, &e);
            if (status == STEAD_OK) sum = adler(v.data, v.size);
        } else if (strcmp(way, "drop") == 0) {
            /* Given up while it waits, by handle and by queue. */
            stead_pending *p = NULL;
            stead_queue *q = NULL;
            status = stead_read_begin(s, offset, n, &p, &e);
            if (status == STEAD_OK) status = stead_queue_new(&q, &e);
            if (status == STEAD_OK) status = stead_queue_read(q, s, offset, n, NULL, &e);
            stead_pending_free(p);
            stead_queue_free(q);
        } else {
            status = strcmp(way, "queue") == 0 ? queued(s, offset, n, &v, &e) : stead_read_view(s, offset, n, &v, &e);
            if (status == STEAD_OK) {
                sum = adler(v.data, v.size);
                status = stead_view_check(&v, &e);
            }
        }
        if (status == STEAD_OK)
            printf("ok %lu\n", sum);
        else
            told(status, e);
        fflush(stdout);
        stead_view_release(&v);
        free(own);
    }
    stead_session_close(s, NULL);
    stead_file_close(file, NULL);
    return stead_handles_alive() ? 4 : 0;
}
