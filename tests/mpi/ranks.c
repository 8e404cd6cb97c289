/* What a rank of the tests does: reads a file together with the others and compares it with the file.
 *
 *   ranks read FILE [few]          any ranges, by several threads; prints the bytes that this rank's node read; few: every
 *                                  second rank does not find the file
 *   ranks busy FILE                rank 0 computes and calls nothing; the others read what it has
 *   ranks die FILE HOW             the last rank ends (exit, kill) after the session began; the others read all
 *   ranks fail FILE TOLD           some call of MPI fails on the last rank, sooner or later; all hear of it, and wait for each
 *                                  other by the file TOLD
 *   ranks differ FILE              ranks begin different sessions
 *   ranks funneled FILE            MPI without threads
 *   ranks rate FILE [TIMES]        seconds to read the whole file on each rank
 *   ranks threads FILE OTHER       two threads of each rank open two files at once; in OTHER each bit is another one
 *   ranks stopped FILE             the last rank is stopped when it has freed a communicator; the others go on
 *   ranks freed FILE               what is done when a communicator was freed
 *   ranks fork FILE                children of a rank end as Python does, or close what it has open, while it answers others
 *   ranks thread FILE              the last rank gets no thread, once
 *   ranks large FILE               the last rank gets more than 2 GiB at once from the others, of holes
 *   ranks many FILE TIMES          opens and closes it so many times, on two communicators
 *   ranks end FILE                 many files of many communicators are open when MPI_Finalize is called
 *   ranks idle FILE SECONDS        processor time of an idle session
 *   ranks put FILE SPACE TO        puts a file over a dataspace, runs over its layout, with an output, and brings both back
 */
#define _GNU_SOURCE
#include "stead_mpi.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int rank, size;

#define CHECK(what)                                                                                  \
    do {                                                                                             \
        if (!(what)) {                                                                               \
            fprintf(stderr, "rank %d: line %d: %s: %s\n", rank, __LINE__, #what, stead_last_message()); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                            \
        }                                                                                            \
    } while (0)

/* Of the options of files. */
static uint32_t flags(void) {
    const char *given = getenv("RANKS_FLAGS");
    return given ? (uint32_t)atoi(given) : 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double used(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* How often a thread of this process has gone to sleep. */
static long slept(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_nvcsw;
}

/* The byte of the test files at an offset: the tests write the same. */
static unsigned char byte_at(uint64_t i) { return (unsigned char)((i * 0x9E3779B97F4A7C15u) >> 56); }

static int right(const unsigned char *bytes, uint64_t offset, uint64_t len) {
    for (uint64_t i = 0; i < len; i++) {
        if (bytes[i] != byte_at(offset + i)) return 0;
    }
    return 1;
}

/* The name by which all ranks open a file, which is not found where `there` is 0: they are in different folders. */
static const char *called(const char *path, int there) {
    const char *name = strrchr(path, '/');
    CHECK(name);
    char folder[4096];
    snprintf(folder, sizeof folder, "%.*s", (int)(name - path), path);
    CHECK(chdir(there ? folder : "/") == 0);
    return name + 1;
}

struct task {
    stead_session *session;
    uint64_t bytes;
    unsigned seed;
};

static void *read_some(void *of) {
    struct task *task = of;
    unsigned char *buffer = malloc(300000);
    for (int i = 0; i < 60; i++) {
        uint64_t offset = ((uint64_t)rand_r(&task->seed) * 65537) % task->bytes;
        uint64_t len = (uint64_t)rand_r(&task->seed) % 300000;
        if (len > task->bytes - offset) len = task->bytes - offset;
        CHECK(stead_read_now(task->session, offset, buffer, len, NULL) == STEAD_OK);
        CHECK(right(buffer, offset, len));
    }
    free(buffer);
    return NULL;
}

static void read_all(const char *path, int few) {
    stead_file *file;
    stead_session *session;
    struct stead_read_options options = {0};
    options.size = sizeof options;
    options.flags = flags();
    options.memory = 64 << 20;
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, called(path, !few || rank % 2 == 0), &options, &file, NULL) == STEAD_OK);
    for (int round = 0; round < 2; round++) {
        uint64_t from = round ? stead_file_size(file) / 3 : 0;
        CHECK(stead_session_start(file, from, STEAD_TO_END, &session, NULL) == STEAD_OK);
        struct task tasks[4];
        pthread_t threads[4];
        CHECK(stead_session_offset(session) == from);
        stead_session *whole = session;
        if (round) {
            CHECK(stead_session_start(file, 0, STEAD_TO_END, &whole, NULL) == STEAD_OK);
        }
        for (unsigned t = 0; t < 4; t++) {
            tasks[t] = (struct task){whole, stead_file_size(file), (unsigned)rank * 16 + t};
            pthread_create(&threads[t], NULL, read_some, &tasks[t]);
        }
        for (int t = 0; t < 4; t++) pthread_join(threads[t], NULL);
        if (round) CHECK(stead_session_close(whole, NULL) == STEAD_OK);
        CHECK(stead_session_close(session, NULL) == STEAD_OK);
    }
    /* All have what they want before the counts are looked at. */
    MPI_Barrier(MPI_COMM_WORLD);
    stead_read_counts counts;
    CHECK(stead_file_counts(file, &counts, sizeof counts, NULL) == STEAD_OK);
    printf("rank %d of %d: right, %llu bytes read\n", rank, size, (unsigned long long)counts.bytes);
    CHECK(stead_file_close(file, NULL) == STEAD_OK);
}

static void busy(const char *path) {
    stead_file *file;
    stead_session *session;
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, called(path, rank == 0), NULL, &file, NULL) == STEAD_OK);
    CHECK(stead_session_start(file, 0, STEAD_TO_END, &session, NULL) == STEAD_OK);
    uint64_t len = stead_file_size(file);
    char done[4096];
    snprintf(done, sizeof done, "%s.done", path);
    if (rank == 0) {
        /* No call of MPI or of stead until all others are done, which a file says. */
        volatile double x = 0;
        struct stat st;
        while (stat(done, &st) || st.st_size < size - 1) {
            for (int i = 0; i < 1000000; i++) x += i;
        }
        unlink(done);
        printf("rank 0: computed\n");
    } else {
        unsigned char *buffer = malloc(len);
        CHECK(stead_read_now(session, 0, buffer, len, NULL) == STEAD_OK);
        CHECK(right(buffer, 0, len));
        int fd = open(done, O_WRONLY | O_CREAT | O_APPEND, 0600);
        CHECK(write(fd, "x", 1) == 1);
        close(fd);
        free(buffer);
        printf("rank %d: right\n", rank);
    }
    CHECK(stead_session_close(session, NULL) == STEAD_OK);
    CHECK(stead_file_close(file, NULL) == STEAD_OK);
}

static void die(const char *path, const char *how) {
    stead_file *file;
    stead_session *session;
    /* Only the one that dies has the file, and nobody remembers much of it. */
    struct stead_read_options options = {0};
    options.size = sizeof options;
    options.memory = 64 << 10;
    options.block = 4096;
    int last = rank == size - 1;
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, called(path, last), &options, &file, NULL) == STEAD_OK);
    CHECK(stead_session_start(file, 0, STEAD_TO_END, &session, NULL) == STEAD_OK);
    unsigned char first;
    CHECK(stead_read_now(session, 0, &first, 1, NULL) == STEAD_OK && first == byte_at(0));
    MPI_Barrier(MPI_COMM_WORLD);
    if (last) {
        if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
        if (!strcmp(how, "stop")) {
            /* It gives no sign of life, and is ended by whoever runs the test. */
            kill(getpid(), SIGSTOP);
        }
        _exit(0);
    }
    uint64_t len = stead_file_size(file);
    unsigned char *buffer = malloc(len);
    double begun = now();
    stead_status status = STEAD_OK;
    /* The first blocks may have come before. */
    while (status == STEAD_OK && now() - begun < 60) {
        status = stead_read_now(session, len / 2, buffer, len / 2, NULL);
    }
    printf("rank %d: %s after %.0f s: %s\n", rank, stead_status_name(status), now() - begun, stead_last_message());
    fflush(stdout);
    /* MPI_Finalize would wait for the dead. */
    _exit(status == STEAD_PEER ? 0 : 1);
}

static void fail(const char *path, const char *told) {
    stead_file *file;
    stead_session *session;
    struct stead_read_options options = {0};
    options.size = sizeof options;
    options.memory = 64 << 10;
    options.block = 4096;
    /* The last rank alone has the file, and all others ask it. */
    double begun = now();
    stead_status status = stead_mpi_file_open(MPI_COMM_WORLD, called(path, rank == size - 1), &options, &file, NULL);
    if (status == STEAD_OK) status = stead_session_start(file, 0, STEAD_TO_END, &session, NULL);
    for (uint64_t i = 0; status == STEAD_OK && now() - begun < 60; i++) {
        unsigned char byte;
        uint64_t at = i * 4096 % stead_file_size(file);
        /* Who reads for all others asks for nothing, but begins sessions with them. */
        if (rank < size - 1) status = stead_read_now(session, at, &byte, 1, NULL);
        if (status == STEAD_OK && (rank == size - 1 || i % 50 == 49)) {
            stead_session *another;
            status = stead_session_start(file, 0, STEAD_TO_END, &another, NULL);
        }
    }
    printf("rank %d: %s after %.0f s: %s\n", rank, stead_status_name(status), now() - begun, stead_last_message());
    fflush(stdout);
    /* The launcher ends all when one has ended without MPI_Finalize. */
    struct stat st;
    int fd = open(told, O_WRONLY | O_CREAT | O_APPEND, 0600);
    CHECK(write(fd, "x", 1) == 1);
    while ((fstat(fd, &st) || st.st_size < size) && now() - begun < 60) usleep(10000);
    _exit(status == STEAD_PEER ? 0 : 1);
}

/* Of two groups of ranks nothing is made; of what MPI makes of them, it is. */
static void between(const char *path) {
    MPI_Comm group, two, one;
    stead_file *file;
    const int other = rank > 0;
    MPI_Comm_split(MPI_COMM_WORLD, other, rank, &group);
    MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, other ? 0 : 1, 17, &two);
    CHECK(stead_mpi_file_open(two, path, NULL, &file, NULL) == STEAD_USAGE && file == NULL);
    CHECK(strstr(stead_last_message(), "MPI_Intercomm_merge"));
    MPI_Intercomm_merge(two, other, &one);
    CHECK(stead_mpi_file_open(one, path, NULL, &file, NULL) == STEAD_OK);
    CHECK(stead_file_close(file, NULL) == STEAD_OK);
    MPI_Comm_free(&one);
    MPI_Comm_free(&two);
    MPI_Comm_free(&group);
}

static void differ(const char *path) {
    stead_file *file;
    stead_session *session;
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, path, NULL, &file, NULL) == STEAD_OK);
    CHECK(stead_session_start(file, (uint64_t)rank, STEAD_TO_END, &session, NULL) == STEAD_USAGE);
    CHECK(session == NULL);
    /* One rank alone has no place for it. */
    CHECK(stead_session_start(file, 0, STEAD_TO_END, rank == 1 ? NULL : &session, NULL) == STEAD_USAGE);
    CHECK(session == NULL);
    CHECK(stead_session_start(file, 0, STEAD_TO_END, &session, NULL) == STEAD_OK);
    stead_file *none;
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, "/nowhere", NULL, &none, NULL) == STEAD_NOT_FOUND);
    CHECK(stead_mpi_file_open(MPI_COMM_NULL, path, NULL, &none, NULL) == STEAD_USAGE);
    between(path);
    /* Not by different names, though they are the same file. */
    char odd[4096];
    snprintf(odd, sizeof odd, "/%s", path);
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, rank == 2 ? odd : path, NULL, &none, NULL) == STEAD_USAGE && none == NULL);
    CHECK(strstr(stead_last_message(), "different files"));
    /* What one rank gives, all hear of. */
    struct stead_read_options bad = {0};
    bad.size = rank == 1 ? 3 : sizeof bad;
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, path, &bad, &none, NULL) == STEAD_USAGE && none == NULL);
    CHECK(rank == 1 || strstr(stead_last_message(), "rank 1"));
    bad.size = sizeof bad;
    bad.flags = rank == 2 ? STEAD_READ_URING | STEAD_READ_PREAD : 0;
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, path, &bad, &none, NULL) == STEAD_USAGE);
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, rank ? path : NULL, NULL, &none, NULL) == STEAD_USAGE);
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, path, NULL, rank ? &none : NULL, NULL) == STEAD_USAGE);
    /* Neither is closed: MPI_Finalize ends what is left. */
    printf("rank %d: told\n", rank);
}

static void rate(const char *path, int times) {
    stead_file *file;
    stead_session *session;
    struct stead_read_options options = {0};
    options.size = sizeof options;
    options.flags = flags();
    for (int i = 0; i < times; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = now(), cpu = used();
        CHECK(stead_mpi_file_open(MPI_COMM_WORLD, path, &options, &file, NULL) == STEAD_OK);
        CHECK(stead_session_start(file, 0, STEAD_TO_END, &session, NULL) == STEAD_OK);
        uint64_t len = stead_file_size(file), share = len / (uint64_t)size;
        /* Each rank the share of the next one, so that all of it crosses from rank to rank. */
        uint64_t from = share * (uint64_t)((rank + (getenv("RANKS_SHIFT") ? 1 : 0)) % size);
        unsigned char *buffer = malloc(share);
        memset(buffer, 0, share);
        double ready = now();
        CHECK(stead_read_now(session, from, buffer, share, NULL) == STEAD_OK);
        double mine = now() - ready;
        MPI_Barrier(MPI_COMM_WORLD);
        double all = now() - begun;
        stead_read_counts counts;
        CHECK(stead_file_counts(file, &counts, sizeof counts, NULL) == STEAD_OK);
        printf("rank %d: %.3f s for %.0f MB (all %.3f s, cpu %.3f s, read %.0f MB)\n", rank, mine, 1e-6 * (double)share, all,
               used() - cpu, 1e-6 * (double)counts.bytes);
        if (getenv("RANKS_CHECK")) CHECK(right(buffer, from, share));
        free(buffer);
        CHECK(stead_session_close(session, NULL) == STEAD_OK);
        CHECK(stead_file_close(file, NULL) == STEAD_OK);
    }
}

static MPI_Comm shared;
static int opened[2];

static int other_of(const char *path) { return strstr(path, "other") != NULL; }

static void *open_often(void *of) {
    const char *path = of;
    for (int i = 0; i < 40; i++) {
        stead_file *file;
        stead_session *session;
        unsigned char byte;
        stead_status status = stead_mpi_file_open(shared, path, NULL, &file, NULL);
        if (status != STEAD_OK) {
            /* Others have begun with the other file. */
            CHECK(status == STEAD_USAGE && strstr(stead_last_message(), "different files"));
            continue;
        }
        CHECK(stead_session_start(file, 0, STEAD_TO_END, &session, NULL) == STEAD_OK);
        uint64_t at = (uint64_t)(i * 1009 + rank * 100003);
        CHECK(stead_read_now(session, at, &byte, 1, NULL) == STEAD_OK);
        CHECK(byte == (unsigned char)(byte_at(at) ^ (other_of(path) ? 255 : 0)));
        CHECK(stead_session_close(session, NULL) == STEAD_OK && stead_file_close(file, NULL) == STEAD_OK);
        opened[other_of(path)]++;
    }
    return NULL;
}

static void threads(const char *path, const char *other) {
    pthread_t one, two;
    int least[2], most[2];
    MPI_Comm_dup(MPI_COMM_WORLD, &shared);
    pthread_create(&one, NULL, open_often, (void *)path);
    pthread_create(&two, NULL, open_often, (void *)other);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    /* What works on one rank works on all. */
    MPI_Allreduce(opened, least, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(opened, most, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    CHECK(least[0] == most[0] && least[1] == most[1]);
    MPI_Comm_free(&shared);
    printf("rank %d: opened %d and %d\n", rank, opened[0], opened[1]);
}

static void stopped(const char *path) {
    stead_file *file;
    stead_session *session;
    MPI_Comm all, few;
    int last = rank == size - 1;
    MPI_Comm_dup(MPI_COMM_WORLD, &all);
    MPI_Comm_split(MPI_COMM_WORLD, last, rank, &few);
    CHECK(stead_mpi_file_open(all, path, NULL, &file, NULL) == STEAD_OK);
    CHECK(stead_file_close(file, NULL) == STEAD_OK);
    if (last) {
        /* The communicator is freed, the good-byes are said, and nothing more comes of this rank. */
        MPI_Comm_free(&all);
        usleep(300000);
        kill(getpid(), SIGSTOP);
        _exit(0);
    }
    usleep(600000);
    MPI_Comm_free(&all);
    double begun = now();
    for (int i = 0; i < 3; i++) {
        unsigned char byte;
        CHECK(stead_mpi_file_open(few, path, NULL, &file, NULL) == STEAD_OK);
        CHECK(stead_session_start(file, 0, STEAD_TO_END, &session, NULL) == STEAD_OK);
        CHECK(stead_read_now(session, 7, &byte, 1, NULL) == STEAD_OK && byte == byte_at(7));
        CHECK(stead_session_close(session, NULL) == STEAD_OK && stead_file_close(file, NULL) == STEAD_OK);
        sleep(1);
    }
    printf("rank %d: peer after %.0f s: goes on without rank %d\n", rank, now() - begun, size - 1);
    fflush(stdout);
    /* MPI_Finalize would wait for the one that is stopped. */
    _exit(0);
}

static void freed(const char *path) {
    stead_file *file;
    stead_session *session;
    MPI_Comm other;
    unsigned char byte;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    CHECK(stead_mpi_file_open(other, path, NULL, &file, NULL) == STEAD_OK);
    CHECK(stead_file_close(file, NULL) == STEAD_OK);
    MPI_Comm_free(&other);
    /* All have said good-bye by then. */
    sleep(1);
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, path, NULL, &file, NULL) == STEAD_OK);
    CHECK(stead_session_start(file, 0, STEAD_TO_END, &session, NULL) == STEAD_OK);
    CHECK(stead_read_now(session, 7, &byte, 1, NULL) == STEAD_OK && byte == byte_at(7));
    CHECK(stead_session_close(session, NULL) == STEAD_OK && stead_file_close(file, NULL) == STEAD_OK);
    printf("rank %d: goes on\n", rank);
    fflush(stdout);
}

static void forks(const char *path) {
    stead_file *file;
    stead_session *session;
    struct stead_read_options options = {0};
    options.size = sizeof options;
    /* Rank 0 has the file, and the others remember little of it. */
    options.memory = 64 << 10;
    options.block = 4096;
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, called(path, rank == 0), &options, &file, NULL) == STEAD_OK);
    CHECK(stead_session_start(file, 0, STEAD_TO_END, &session, NULL) == STEAD_OK);
    MPI_Request through;
    if (rank == 0) {
        for (int i = 0; i < 150; i++) {
            pid_t child = fork();
            if (child == 0) {
                /* It has none of the threads that these would wait for, and any of their locks. */
                alarm(120);
                if (i % 2) {
                    stead_session_close(session, NULL);
                    stead_file_close(file, NULL);
                }
                stead_mpi_end();
                _exit(7);
            }
            int status = 0;
            CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
        }
    }
    MPI_Ibarrier(MPI_COMM_WORLD, &through);
    for (uint64_t i = 0, done = 0; !done; i++) {
        unsigned char byte;
        int all;
        uint64_t at = i * 4096 * 7 % stead_file_size(file);
        CHECK(stead_read_now(session, at, &byte, 1, NULL) == STEAD_OK && byte == byte_at(at));
        MPI_Test(&through, &all, MPI_STATUS_IGNORE);
        done = (uint64_t)all;
    }
    CHECK(stead_session_close(session, NULL) == STEAD_OK && stead_file_close(file, NULL) == STEAD_OK);
    printf("rank %d: outlived\n", rank);
}

static void no_thread(const char *path) {
    stead_file *file;
    stead_session *session;
    unsigned char byte;
    int last = rank == size - 1;
    int thread = !strcmp(getenv("FAIL_CALL"), "pthread_create");
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, path, NULL, &file, NULL) == (last && thread ? STEAD_IO : STEAD_PEER));
    CHECK(strstr(stead_last_message(), !last ? "another rank cannot take part" : thread ? "thread" : "error handler"));
    /* From now on it gets as many as it wants. */
    unsetenv("FAIL_CALL");
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, path, NULL, &file, NULL) == STEAD_OK);
    CHECK(stead_session_start(file, 0, STEAD_TO_END, &session, NULL) == STEAD_OK);
    CHECK(stead_read_now(session, 7, &byte, 1, NULL) == STEAD_OK && byte == byte_at(7));
    CHECK(stead_session_close(session, NULL) == STEAD_OK && stead_file_close(file, NULL) == STEAD_OK);
    printf("rank %d: told\n", rank);
}

/* Bytes lie where the offset is a multiple of this. */
enum { MARKS = 1 << 28 };

static void large(const char *path) {
    stead_file *file;
    stead_session *session;
    int last = rank == size - 1;
    struct stead_read_options options = {0};
    options.size = sizeof options;
    /* Through memory that ranks share, which takes a third of the time of messages. */
    options.flags = STEAD_READ_PREAD;
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, called(path, !last), &options, &file, NULL) == STEAD_OK);
    /* Around 4 GiB of the file, and more than 2 GiB. */
    const uint64_t from = ((uint64_t)2 << 30) - 12345, len = ((uint64_t)2 << 30) + (1 << 20);
    CHECK(stead_session_start(file, from, len, &session, NULL) == STEAD_OK);
    if (last) {
        unsigned char *buffer = malloc(len);
        CHECK(buffer);
        CHECK(stead_read_now(session, from, buffer, len, NULL) == STEAD_OK);
        uint64_t marks = 0, at = 0;
        for (const unsigned char *found; (found = memchr(buffer + at, 'x', len - at)); at++) {
            at = (uint64_t)(found - buffer);
            CHECK((from + at) % MARKS == 0);
            marks++;
        }
        CHECK(marks == (from + len) / MARKS - from / MARKS);
        /* All else is zeros. */
        CHECK(buffer[20000] == 0 && !memcmp(buffer + 20000, buffer + 20001, MARKS / 2));
        free(buffer);
        printf("rank %d: right, %llu bytes\n", rank, (unsigned long long)len);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(stead_session_close(session, NULL) == STEAD_OK && stead_file_close(file, NULL) == STEAD_OK);
}

static void many(const char *path, int times) {
    MPI_Comm other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    for (int i = 0; i < times; i++) {
        stead_file *file;
        stead_session *session;
        struct stead_read_options options = {0};
        options.size = sizeof options;
        options.flags = i % 16 ? 0 : STEAD_READ_PREAD;
        unsigned char byte;
        uint64_t at = (uint64_t)i * 1009;
        CHECK(stead_mpi_file_open(i % 3 ? MPI_COMM_WORLD : other, path, &options, &file, NULL) == STEAD_OK);
        if (i % 4 == 0) {
            CHECK(stead_session_start(file, at, 1000, &session, NULL) == STEAD_OK);
            CHECK(stead_read_now(session, at + (uint64_t)rank, &byte, 1, NULL) == STEAD_OK);
            CHECK(byte == byte_at(at + (uint64_t)rank));
            CHECK(stead_session_close(session, NULL) == STEAD_OK);
        }
        CHECK(stead_file_close(file, NULL) == STEAD_OK);
    }
    MPI_Comm_free(&other);
    printf("rank %d: %d times\n", rank, times);
}

/* Their threads are busy with MPI at that moment. */
static void end(const char *path) {
    for (int i = 0; i < 40; i++) {
        MPI_Comm comm;
        stead_file *file;
        stead_session *session;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        CHECK(stead_mpi_file_open(comm, path, NULL, &file, NULL) == STEAD_OK);
        CHECK(stead_session_start(file, 0, 1, &session, NULL) == STEAD_OK);
        if (i % 2) CHECK(stead_session_close(session, NULL) == STEAD_OK && stead_file_close(file, NULL) == STEAD_OK);
        if (i % 4 == 1) MPI_Comm_free(&comm);
    }
}

static void idle(const char *path, int seconds) {
    stead_file *file;
    stead_session *session;
    struct stead_read_options options = {0};
    options.size = sizeof options;
    options.flags = flags();
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, path, &options, &file, NULL) == STEAD_OK);
    CHECK(stead_session_start(file, 0, STEAD_TO_END, &session, NULL) == STEAD_OK);
    /* What the beginning takes is over. */
    sleep(3);
    double before = used();
    long sleeps = slept();
    sleep((unsigned)seconds);
    printf("rank %d: %.2f %% of a core, %.0f wake-ups a second\n", rank, 100 * (used() - before) / seconds,
           (double)(slept() - sleeps) / seconds);
}

/* The last rank gives arguments that make no sense: all hear of it. */
static void refused(const char *file, const char *layout) {
    const char *paths[] = {layout};
    const int last = rank == size - 1;
    stead_copy_options odd = {0};
    odd.size = sizeof odd;
    odd.flags = last ? 64 : 0;
    char *json = (char *)&odd;
    stead_dataset *data = (stead_dataset *)&odd;
    CHECK(stead_mpi_put(MPI_COMM_WORLD, file, "s", &odd, &json, NULL) == STEAD_USAGE && json == NULL);
    CHECK(stead_mpi_get(MPI_COMM_WORLD, layout, &odd, NULL, NULL) == STEAD_USAGE);
    CHECK(stead_mpi_open(MPI_COMM_WORLD, last ? NULL : paths, 1, NULL, &data, NULL) == STEAD_USAGE && data == NULL);
}

static void putting(const char *file, const char *space, const char *to) {
    char folder[4200], layout[4400], back[4200], output[4300], spec[4400], *json = NULL;
    const char *folders[] = {folder}, *paths[] = {layout};
    snprintf(folder, sizeof folder, "s=%s", space);
    snprintf(layout, sizeof layout, "%s/l.stead-layout.toml", to);
    snprintf(back, sizeof back, "%s/back", to);
    stead_copy_options o = {0};
    o.size = sizeof o;
    o.parts = 3;
    o.stripe = 10007;
    o.target = layout;
    o.dataspaces = folders;
    o.dataspaces_count = 1;
    CHECK(stead_mpi_put(MPI_COMM_WORLD, file, "s", &o, &json, NULL) == STEAD_OK && strstr(json, "\"parts\": 3"));
    stead_text_free(json);
    refused(file, layout);
    stead_options *how = NULL;
    stead_dataset *data = NULL;
    stead_request *request = NULL;
    stead_report *report = NULL;
    double lines = 0;
    CHECK(stead_options_new(&how, NULL) == STEAD_OK);
    CHECK(stead_options_set(how, "dataspace", folder, NULL) == STEAD_OK);
    CHECK(stead_options_set(how, "type", "lines", NULL) == STEAD_OK);
    CHECK(stead_mpi_open(MPI_COMM_WORLD, paths, 1, how, &data, NULL) == STEAD_OK);
    snprintf(output, sizeof output, "%s/found", to);
    snprintf(spec, sizeof spec, "grep:'line',out=%s", output);
    CHECK(stead_request_new(&request, NULL) == STEAD_OK);
    CHECK(stead_request_kernel(request, "lines", NULL) == STEAD_OK);
    CHECK(stead_request_kernel(request, spec, NULL) == STEAD_OK);
    CHECK(stead_mpi_run(MPI_COMM_WORLD, data, request, &report, NULL) == STEAD_OK);
    CHECK(stead_report_double(report, "lines", &lines, NULL) == STEAD_OK);
    stead_report_free(report);
    stead_request_free(request);
    stead_dataset_free(data);
    stead_options_free(how);
    o.parts = 0;
    o.stripe = 0;
    o.target = back;
    CHECK(stead_mpi_get(MPI_COMM_WORLD, layout, &o, &json, NULL) == STEAD_OK && strstr(json, back));
    stead_text_free(json);
    snprintf(layout, sizeof layout, "%s.stead-layout.toml", output);
    o.target = output;
    CHECK(stead_mpi_get(MPI_COMM_WORLD, layout, &o, NULL, NULL) == STEAD_OK);
    CHECK(stead_handles_alive() == 0);
    if (rank == 0) printf("%.0f\n", lines);
}

int main(int argc, char **argv) {
    int level;
    const char *what = argc > 1 ? argv[1] : "", *path = argc > 2 ? argv[2] : "";
    if (!strcmp(what, "funneled")) {
        MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
        stead_file *file;
        CHECK(stead_mpi_file_open(MPI_COMM_WORLD, path, NULL, &file, NULL) == STEAD_USAGE);
        printf("%s\n", stead_last_message());
        MPI_Finalize();
        return 0;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(what, "read")) read_all(path, argc > 3);
    else if (!strcmp(what, "busy")) busy(path);
    else if (!strcmp(what, "die")) die(path, argv[3]);
    else if (!strcmp(what, "fail")) fail(path, argv[3]);
    else if (!strcmp(what, "differ")) differ(path);
    else if (!strcmp(what, "rate")) rate(path, argc > 3 ? atoi(argv[3]) : 1);
    else if (!strcmp(what, "end")) end(path);
    else if (!strcmp(what, "threads")) threads(path, argv[3]);
    else if (!strcmp(what, "stopped")) stopped(path);
    else if (!strcmp(what, "freed")) freed(path);
    else if (!strcmp(what, "fork")) forks(path);
    else if (!strcmp(what, "thread")) no_thread(path);
    else if (!strcmp(what, "large")) large(path);
    else if (!strcmp(what, "many")) many(path, atoi(argv[3]));
    else if (!strcmp(what, "put")) putting(path, argv[3], argv[4]);
    else if (!strcmp(what, "idle")) idle(path, atoi(argv[3]));
    else return 2;
    MPI_Finalize();
    return 0;
}
