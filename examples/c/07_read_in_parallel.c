/*
 * A file that a thousand tasks read, each its own part, from a few threads of the program. How it is cut into tasks and
 * how it is read have nothing to do with each other: readers of the session fetch large blocks. Answers come to a queue,
 * whose file descriptor any event loop can watch.
 */

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <stead.h>

#define TASKS 1000

static stead_error *error = NULL;

static int failed(void) {
    fprintf(stderr, "%s\n", stead_error_message(error));
    stead_error_free(error);
    return 1;
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "flights.csv";
    stead_file *file = NULL;
    stead_session *session = NULL;
    stead_queue *queue = NULL;
    stead_completion done;
    stead_pending *read = NULL;
    stead_view view;
    struct pollfd watched;
    uint64_t size, share, task, lines = 0;
    char bytes[5] = "";

    if (stead_file_open(path, NULL, &file, &error) || stead_session_start(file, 0, STEAD_TO_END, &session, &error) ||
        stead_queue_new(&queue, &error))
        return failed();
    size = stead_file_size(file);
    share = size / TASKS + 1;

    /* All tasks ask, in any order and from any thread; each answer comes as soon as its own bytes are there. */
    for (task = 0; task < TASKS; task++) {
        uint64_t from = task * share < size ? task * share : size;
        uint64_t length = share < size - from ? share : size - from;
        if (stead_queue_read(queue, session, from, (size_t)length, NULL, &error)) return failed();
    }
    watched.fd = stead_queue_fd(queue);
    watched.events = POLLIN;
    while (stead_queue_length(queue) > 0) {
        poll(&watched, 1, -1); /* or what the program's event loop does */
        while (stead_queue_next(queue, 0, &done)) {
            /* Memory that all tasks share: nothing is copied. */
            const char *p = done.view.data, *end = p + done.view.size;
            if ((error = done.error)) return failed();
            while (p < end && (p = memchr(p, '\n', (size_t)(end - p)))) {
                lines++;
                p++;
            }
            stead_view_release(&done.view);
        }
    }
    printf("%d tasks: %lu lines\n", TASKS, (unsigned long)lines);

    /* The bytes may come to a buffer of the program's own, and a read may be waited for. */
    if (stead_read_into(session, 0, bytes, 4, &read, &error)) return failed();
    while (!stead_pending_wait(read, 1000)) fprintf(stderr, "still reading\n");
    if (stead_pending_take(read, &view, &error)) return failed();
    printf("the first bytes: %s\n", bytes);

    /* An error is that of one request, and the session goes on. */
    if (stead_read_view(session, size, 1, &view, NULL) == STEAD_USAGE) printf("past the end: an error\n");

    if (stead_session_close(session, &error) || stead_file_close(file, &error)) return failed();
    stead_queue_free(queue);
    return 0;
}
