/* What ranks of the tests do that ask others, or work for them, and come to their ends in some other way than by freeing what they
 * have. The first STORAGE ranks are storage ranks.
 *
 *   asks unfreed FILE STORAGE       compute ranks call MPI_Finalize with a handle that was not freed; each second one asks before
 *   asks away FILE STORAGE          the last storage rank calls MPI_Finalize in place of serving; the others ask for what takes all
 *   asks headless FILE STORAGE      so does the first one
 *   asks large FILE STORAGE         threads of each compute rank ask for views that take several MB each
 *   asks idle FILE STORAGE SECONDS  processor time of storage ranks of which nobody asks anything
 */
#define _GNU_SOURCE
#include "stead_mpi.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int rank, size, storage;
static const char *path;
static stead_offload *site;

#define CHECK(what)                                                                                  \
    do {                                                                                             \
        if (!(what)) {                                                                               \
            fprintf(stderr, "rank %d: line %d: %s: %s\n", rank, __LINE__, #what, stead_last_message()); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                            \
        }                                                                                            \
    } while (0)

static double used(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* How often a thread of this process has gone to sleep. */
static long slept(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_nvcsw;
}

/* Asks for the rows of the file as bytes, or of what a view of it shows. */
static stead_status ask(const stead_file_view *view, double *rows) {
    stead_options *options = NULL;
    stead_request *request = NULL;
    stead_report *report = NULL;
    CHECK(stead_options_new(&options, NULL) == STEAD_OK);
    CHECK(stead_options_set(options, "type", "raw", NULL) == STEAD_OK);
    CHECK(stead_options_set(options, "dtype", "u8", NULL) == STEAD_OK);
    CHECK(stead_request_new(&request, NULL) == STEAD_OK);
    CHECK(stead_request_kernel(request, "rows", NULL) == STEAD_OK);
    stead_offload_job job;
    memset(&job, 0, sizeof job);
    job.size = sizeof job;
    job.paths = &path;
    job.path_count = 1;
    job.options = options;
    job.view = view;
    stead_status status = stead_offload_run(site, &job, request, &report, NULL);
    if (status == STEAD_OK) CHECK(stead_report_double(report, "rows", rows, NULL) == STEAD_OK);
    stead_report_free(report);
    stead_request_free(request);
    stead_options_free(options);
    return status;
}

static void begin(void) {
    MPI_Comm comm = MPI_COMM_WORLD;
    stead_offload_options how;
    memset(&how, 0, sizeof how);
    how.size = sizeof how;
    how.is_storage = rank < storage;
    CHECK(stead_offload_open(stead_mpi_make, &comm, &how, &site, NULL) == STEAD_OK);
}

static void told(stead_status status, int of) {
    char who[32];
    snprintf(who, sizeof who, "rank %d on ", of);
    CHECK(status == STEAD_PEER && strstr(stead_last_message(), who));
    CHECK(strstr(stead_last_message(), "come to its end"));
}

static void unfreed(void) {
    double rows = 0;
    if (rank < storage) {
        CHECK(stead_offload_serve(site, NULL) == STEAD_OK);
    } else if (rank % 2) {
        CHECK(ask(NULL, &rows) == STEAD_OK && rows > 0);
    }
}

static void away(int who) {
    double rows;
    if (rank == who) return;
    if (rank < storage) {
        stead_status status = stead_offload_serve(site, NULL);
        if (who == 0) told(status, who);
        else CHECK(status == STEAD_OK);
    } else {
        /* Each time. */
        for (int i = 0; i < 2; i++) told(ask(NULL, &rows), who);
        stead_offload_free(site);
    }
}

static void *views(void *given) {
    enum { RUNS = 300000 };
    const uint64_t first = *(int *)given;
    stead_stretch *runs = malloc(RUNS * sizeof *runs);
    CHECK(runs);
    for (uint64_t i = 0; i < RUNS; i++) runs[i] = (stead_stretch){first + 20 * i, 1};
    stead_file_view view;
    memset(&view, 0, sizeof view);
    view.size = sizeof view;
    view.extent = 20 * RUNS + 100;
    view.stretches = runs;
    view.stretch_count = RUNS;
    view.bytes = RUNS - first;
    double rows = 0;
    CHECK(ask(&view, &rows) == STEAD_OK && rows == (double)view.bytes);
    free(runs);
    return NULL;
}

static void large(void) {
    enum { THREADS = 20 };
    pthread_t threads[THREADS];
    int first[THREADS];
    if (rank < storage) {
        CHECK(stead_offload_serve(site, NULL) == STEAD_OK);
        return;
    }
    for (int i = 0; i < THREADS; i++) CHECK((first[i] = i, pthread_create(&threads[i], NULL, views, &first[i])) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    stead_offload_free(site);
}

static void idle(unsigned seconds) {
    if (rank >= storage) {
        sleep(seconds);
        stead_offload_free(site);
        return;
    }
    double before = used();
    long sleeps = slept();
    CHECK(stead_offload_serve(site, NULL) == STEAD_OK);
    printf("rank %d: %.2f %% of a core, %.0f wake-ups a second\n", rank, 100 * (used() - before) / seconds,
           (double)(slept() - sleeps) / seconds);
}

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 4) return 2;
    const char *what = argv[1];
    path = argv[2];
    storage = atoi(argv[3]);
    begin();
    if (!strcmp(what, "unfreed")) unfreed();
    else if (!strcmp(what, "away")) away(storage - 1);
    else if (!strcmp(what, "headless")) away(0);
    else if (!strcmp(what, "large")) large();
    else if (!strcmp(what, "idle") && argc > 4) idle((unsigned)atoi(argv[4]));
    else return 2;
    if (strcmp(what, "idle")) printf("right\n");
    /* What waits is not to wait for what is written. */
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
