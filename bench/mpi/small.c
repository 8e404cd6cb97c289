// Small ranges that all ranks of a node read together, each its share: a header, a table, the particles of one task.
//
//   mpirun -n 4 small FILE RUNS [cold]
//
// The file is open beforehand. "session": one is begun over the range, each rank looks at its share in a view, and it is
// closed; "MPI_File_read_at_all": each rank its share, at once; "pread by each rank". For each way and size one line of JSON,
// with the seconds of each run, of the slowest rank. Each run is elsewhere in the file, as nobody reads the same header again
// and again. "cold": the page cache forgets the file first, and the file must have 255 MiB for each run.
#include "ways.h"

static MPI_File shared;
static stead_file *opened;
static int plain;

static uint64_t at_of(uint64_t begin, uint64_t length, int of) { return begin + length / 8 * (uint64_t)of / (uint64_t)ranks * 8; }

static uint64_t session(uint64_t begin, uint64_t length, char *unused) {
    (void)unused;
    stead_session *s;
    stead_view view;
    need(!stead_session_start(opened, begin, length, &s, NULL));
    const uint64_t from = at_of(begin, length, rank), to = at_of(begin, length, rank + 1);
    need(!stead_read_view(s, from, (size_t)(to - from), &view, NULL));
    const uint64_t sum = add(view.data, view.size);
    stead_view_release(&view);
    need(!stead_session_close(s, NULL));
    return sum;
}

static uint64_t collective(uint64_t begin, uint64_t length, char *buffer) {
    const uint64_t from = at_of(begin, length, rank), to = at_of(begin, length, rank + 1);
    MPI_Status status;
    if (MPI_File_read_at_all(shared, (MPI_Offset)from, buffer, (int)(to - from), MPI_BYTE, &status)) stop("MPI_File_read_at_all");
    return add(buffer, (size_t)(to - from));
}

static uint64_t pread_each(uint64_t begin, uint64_t length, char *buffer) {
    const uint64_t from = at_of(begin, length, rank), to = at_of(begin, length, rank + 1);
    return add_plainly(plain, from, buffer, (size_t)(to - from));
}

int main(int argc, char **argv) {
    static const char *const names[] = {"session", "MPI_File_read_at_all", "pread by each rank"};
    static uint64_t (*const ways[])(uint64_t, uint64_t, char *) = {session, collective, pread_each};
    static double seconds[3][MOST_RUNS];
    begin(&argc, &argv, 3, "usage: small FILE RUNS [cold]");
    const int cold = argc > 3;
    int runs = atoi(argv[2]);
    if (runs > MOST_RUNS) runs = MOST_RUNS;
    need(!stead_mpi_file_open(MPI_COMM_WORLD, argv[1], NULL, &opened, NULL));
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &shared)) stop("MPI_File_open");
    plain = open_plainly(argv[1]);
    char *buffer = malloc((64 << 20) / (size_t)ranks + 16);
    if (cold && rank == 0) posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED);
    uint64_t at = 0;
    for (uint64_t length = 1 << 20; length <= 64 << 20 && length <= size; length *= 4) {
        for (int run = 0; run < runs; run++) {
            for (int way = 0; way < 3; way++) {
                if (size - at < length) {
                    if (cold) stop("the file is too short for so many cold runs");
                    at = 0;
                }
                MPI_Barrier(MPI_COMM_WORLD);
                // What was read ahead for the one before.
                if (cold && rank == 0) posix_fadvise(plain, (off_t)at, 0, POSIX_FADV_DONTNEED);
                MPI_Barrier(MPI_COMM_WORLD);
                const double started = MPI_Wtime();
                volatile uint64_t sum = ways[way](at, length, buffer);
                double took = MPI_Wtime() - started;
                (void)sum;
                MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
                seconds[way][run] = took;
                at += length;
            }
        }
        for (int way = 0; rank == 0 && way < 3; way++) {
            printf("{\"way\": \"%s\", \"bytes\": %" PRIu64 ", \"seconds\": [", names[way], length);
            for (int run = 0; run < runs; run++) printf("%s%.6f", run ? ", " : "", seconds[way][run]);
            printf("]}\n");
        }
    }
    free(buffer);
    close(plain);
    MPI_File_close(&shared);
    need(!stead_file_close(opened, NULL));
    MPI_Finalize();
    return 0;
}
