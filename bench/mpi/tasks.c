// A file read by the ranks of an MPI job, in four ways; every rank adds up the words of its share.
//
//   mpirun -n 2 tasks FILE TASKS RUNS
//
// "sessions": tasks, shared out over the ranks, read views through a session of all ranks; "buffers": into one buffer;
// "pread": tasks that read by themselves; "MPI_File_read_at_all": no tasks, each rank reads its share in pieces of 64 MiB.
#include "ways.h"

enum { PIECE = 64 << 20 };

static uint64_t tasks;

/* Where the share of a part begins, at a whole word. */
static uint64_t cut(uint64_t part, uint64_t parts) { return part == parts ? size : size / 8 * part / parts * 8; }

static uint64_t mine(int of) { return tasks * (uint64_t)of / (uint64_t)ranks; }

static uint64_t sessions(const char *path, int views) {
    stead_file *file;
    stead_session *session;
    need(!stead_mpi_file_open(MPI_COMM_WORLD, path, NULL, &file, NULL));
    need(!stead_session_start(file, 0, STEAD_TO_END, &session, NULL));
    uint64_t sum = 0;
    char *buffer = views ? NULL : malloc(size / tasks + 16);
    for (uint64_t t = mine(rank); t < mine(rank + 1); t++) {
        const uint64_t at = cut(t, tasks);
        const size_t length = (size_t)(cut(t + 1, tasks) - at);
        if (views) {
            stead_view view;
            need(!stead_read_view(session, at, length, &view, NULL));
            sum += add(view.data, view.size);
            stead_view_release(&view);
        } else {
            need(!stead_read_now(session, at, buffer, length, NULL));
            sum += add(buffer, length);
        }
    }
    free(buffer);
    need(!stead_session_close(session, NULL));
    need(!stead_file_close(file, NULL));
    return sum;
}

static uint64_t view_tasks(const char *path) { return sessions(path, 1); }

static uint64_t buffer_tasks(const char *path) { return sessions(path, 0); }

static uint64_t pread_tasks(const char *path) {
    const int fd = open_plainly(path);
    uint64_t sum = 0;
    char *buffer = malloc(size / tasks + 16);
    for (uint64_t t = mine(rank); t < mine(rank + 1); t++)
        sum += add_plainly(fd, cut(t, tasks), buffer, (size_t)(cut(t + 1, tasks) - cut(t, tasks)));
    free(buffer);
    close(fd);
    return sum;
}

static uint64_t collective(const char *path) {
    MPI_File file;
    if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file)) stop("MPI_File_open");
    const uint64_t from = cut((uint64_t)rank, (uint64_t)ranks), to = cut((uint64_t)rank + 1, (uint64_t)ranks);
    const uint64_t calls = (size / (uint64_t)ranks + 8 + PIECE - 1) / PIECE;
    uint64_t sum = 0;
    char *buffer = malloc(PIECE);
    for (uint64_t i = 0; i < calls; i++) {
        const uint64_t at = from + i * PIECE < to ? from + i * PIECE : to;
        const int length = (int)(to - at < PIECE ? to - at : PIECE);
        MPI_Status status;
        int got;
        if (MPI_File_read_at_all(file, (MPI_Offset)at, buffer, length, MPI_BYTE, &status)) stop("MPI_File_read_at_all");
        MPI_Get_count(&status, MPI_BYTE, &got);
        if (got != length) stop("MPI_File_read_at_all gave too little");
        sum += add(buffer, (size_t)length);
    }
    free(buffer);
    MPI_File_close(&file);
    return sum;
}

int main(int argc, char **argv) {
    static const struct way ways[] = {{"sessions, views", view_tasks},
                                      {"sessions, buffers", buffer_tasks},
                                      {"pread by tasks", pread_tasks},
                                      {"MPI_File_read_at_all", collective}};
    begin(&argc, &argv, 4, "usage: tasks FILE TASKS RUNS");
    tasks = strtoull(argv[2], NULL, 10);
    if (!tasks || tasks > size / 8) stop("a task has at least one word");
    measure(ways, sizeof ways / sizeof *ways, argv[1], atoi(argv[3]));
    MPI_Finalize();
    return 0;
}
