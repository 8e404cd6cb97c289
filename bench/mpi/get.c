// How the bytes of another node come faster: by one-sided gets, or by messages that a thread of their owner answers.
//
//   mpirun -n 2 get BYTES BLOCK SECONDS [alone]
//
// Rank 0 owns BYTES; rank 1 fetches them in blocks, four at a time, while rank 0 computes for SECONDS and calls no MPI
// meanwhile. With "alone" MPI is asked for no threads, and only gets that nobody helps along are measured: Open MPI 4 has
// gets over TCP with `--mca osc pt2pt` and without threads only.
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FLIGHT = 4, ASK = 1, BLOCK = 2, END = 3 };
enum { LONE_GET, HELPED_GET, MESSAGES, WAYS };
static const char *const names[WAYS] = {"get", "get, a thread helps", "messages, a thread answers"};
static char *bytes;
static size_t size, block;
static _Atomic int over;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int length(size_t at) { return (int)(size - at < block ? size - at : block); }

/* Answers requests, and helps gets along by looking for them. */
static void *serve(void *unused) {
    (void)unused;
    MPI_Request sent[FLIGHT];
    int n = 0;
    for (long us = 20; !over;) {
        int there, done = 0, i = MPI_UNDEFINED;
        MPI_Iprobe(1, ASK, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        if (n) MPI_Testany(n, sent, &i, &done, MPI_STATUS_IGNORE);
        if (done && i != MPI_UNDEFINED) sent[i] = sent[--n];
        if (!there) {
            const struct timespec nap = {0, us * 1000};
            nanosleep(&nap, NULL);
            us = us < 1000 ? us + us / 2 : us;
            continue;
        }
        us = 20;
        unsigned long at;
        MPI_Recv(&at, 1, MPI_UNSIGNED_LONG, 1, ASK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (n == FLIGHT) {
            MPI_Waitany(n, sent, &i, MPI_STATUS_IGNORE);
            sent[i] = sent[--n];
        }
        MPI_Isend(bytes + at, length(at), MPI_BYTE, 1, BLOCK, MPI_COMM_WORLD, &sent[n++]);
    }
    MPI_Waitall(n, sent, MPI_STATUSES_IGNORE);
    return NULL;
}

static void compute(double until) {
    volatile double x = 1;
    while (now() < until)
        for (int i = 0; i < 100000; i++) x = x * 1.0000001 + 1e-9;
}

static void own(int way, double seconds) {
    pthread_t thread;
    over = 0;
    if (way != LONE_GET && pthread_create(&thread, NULL, serve, NULL)) MPI_Abort(MPI_COMM_WORLD, 1);
    compute(now() + seconds);
    MPI_Recv(NULL, 0, MPI_BYTE, 1, END, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    over = 1;
    if (way != LONE_GET) pthread_join(thread, NULL);
}

static void fetch(int way, MPI_Win window, char *in) {
    MPI_Request flying[FLIGHT];
    for (int i = 0; i < FLIGHT; i++) flying[i] = MPI_REQUEST_NULL;
    if (way != MESSAGES) MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    int begun = 0;
    for (size_t at = 0; at < size; at += block) {
        int i = begun;
        if (begun < FLIGHT) begun++;
        else MPI_Waitany(FLIGHT, flying, &i, MPI_STATUS_IGNORE);
        if (way == MESSAGES) {
            const unsigned long from = at;
            MPI_Irecv(in + at, length(at), MPI_BYTE, 0, BLOCK, MPI_COMM_WORLD, &flying[i]);
            MPI_Send(&from, 1, MPI_UNSIGNED_LONG, 0, ASK, MPI_COMM_WORLD);
        } else {
            MPI_Rget(in + at, length(at), MPI_BYTE, 0, (MPI_Aint)at, length(at), MPI_BYTE, window, &flying[i]);
        }
    }
    MPI_Waitall(FLIGHT, flying, MPI_STATUSES_IGNORE);
    if (way != MESSAGES) MPI_Win_unlock(0, window);
}

int main(int argc, char **argv) {
    const int alone = argc == 5 && !strcmp(argv[4], "alone");
    int level, rank;
    MPI_Init_thread(&argc, &argv, alone ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 4) MPI_Abort(MPI_COMM_WORLD, 2);
    size = strtoull(argv[1], NULL, 10);
    block = strtoull(argv[2], NULL, 10);
    const double seconds = strtod(argv[3], NULL);
    bytes = malloc(size);
    memset(bytes, rank ? 0 : 7, size);
    MPI_Win window;
    const int gets = !MPI_Win_create(bytes, rank ? 0 : (MPI_Aint)size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    if (rank && !gets) printf("get: not to be had\n");
    for (int way = gets ? LONE_GET : MESSAGES; way < (alone ? HELPED_GET : WAYS); way++) {
        for (int run = 0; run < 3; run++) {
            MPI_Barrier(MPI_COMM_WORLD);
            if (!rank) {
                own(way, seconds);
                continue;
            }
            memset(bytes, 0, size);
            const double begin = now();
            fetch(way, window, bytes);
            const double took = now() - begin;
            for (size_t i = 0; i < size; i++)
                if (bytes[i] != 7) MPI_Abort(MPI_COMM_WORLD, 3);
            printf("%-28s %7.3f s %8.1f MB/s\n", names[way], took, (double)size / took / 1e6);
            fflush(stdout);
            MPI_Send(NULL, 0, MPI_BYTE, 0, END, MPI_COMM_WORLD);
        }
    }
    if (gets) MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
