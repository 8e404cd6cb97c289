/* What a rank of the tests does where blocks are in memory that ranks of a node share.
 *
 *   shared all FILE MEMORY READERS  each rank looks at all of the file, in an order of its own; prints the bytes that it read
 *                              from the file, the most memory that its blocks took, and how it got those of others; of each
 *                              rank READERS threads read, or as many as are chosen if that is 0
 *   shared private FILE MEMORY the same, where the system grants no memory to be shared
 *   shared keep FILE           views are looked at when all files are closed and MPI has ended
 *   shared die FILE            the last rank is killed while it looks at blocks of others; these go on in little memory
 */
#define _GNU_SOURCE
#include "stead_mpi.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 50000, BLOCK = 65536, HELD = 64 };

static int rank, size;
static stead_file *file;
static stead_session *session;
static uint64_t length;

#define CHECK(what)                                                                                  \
    do {                                                                                             \
        if (!(what)) {                                                                               \
            fprintf(stderr, "rank %d: line %d: %s: %s\n", rank, __LINE__, #what, stead_last_message()); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                            \
        }                                                                                            \
    } while (0)

/* The byte of the test files at an offset: the tests write the same. */
static unsigned char byte_at(uint64_t i) { return (unsigned char)((i * 0x9E3779B97F4A7C15u) >> 56); }

static int right(stead_view view, uint64_t offset) {
    const unsigned char *bytes = view.data;
    for (uint64_t i = 0; i < view.size; i++) {
        if (bytes[i] != byte_at(offset + i)) return 0;
    }
    return 1;
}

static size_t readers;

static void begin(const char *path, uint64_t memory) {
    stead_read_options options = {0};
    options.size = sizeof options;
    options.flags = STEAD_READ_PREAD;
    options.memory = memory;
    options.block = BLOCK;
    options.readers = readers;
    CHECK(stead_mpi_file_open(MPI_COMM_WORLD, path, &options, &file, NULL) == STEAD_OK);
    CHECK(stead_session_start(file, 0, STEAD_TO_END, &session, NULL) == STEAD_OK);
    length = stead_file_size(file);
}

static void end(void) {
    CHECK(stead_session_close(session, NULL) == STEAD_OK);
    CHECK(stead_file_close(file, NULL) == STEAD_OK);
}

static stead_view look(uint64_t offset, uint64_t most) {
    stead_view view;
    CHECK(stead_read_view(session, offset, length - offset < most ? length - offset : most, &view, NULL) == STEAD_OK);
    CHECK(right(view, offset));
    return view;
}

/* Memory that this process shares with others. */
static uint64_t shared_bytes(void) {
    uint64_t bytes = 0;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(dir));) {
        char target[64] = {0};
        struct stat st;
        if (readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1) > 0 && !strncmp(target, "/memfd:stead", 12) &&
            !fstatat(dirfd(dir), entry->d_name, &st, 0)) {
            bytes += (uint64_t)st.st_blocks * 512;
        }
    }
    closedir(dir);
    return bytes;
}

static void all(const char *path, uint64_t memory) {
    begin(path, memory);
    const uint64_t pieces = (length + PIECE - 1) / PIECE;
    uint64_t most = 0;
    for (uint64_t i = 0; i < pieces; i++) {
        /* Ranks are at different places of the file. */
        const uint64_t piece = (i + pieces * (uint64_t)rank / (uint64_t)size) % pieces;
        stead_view view = look(piece * PIECE, PIECE);
        stead_view_release(&view);
        if (i % 16 == 0 && shared_bytes() > most) most = shared_bytes();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    stead_read_counts counts;
    char *why;
    CHECK(stead_file_counts(file, &counts, sizeof counts, NULL) == STEAD_OK);
    CHECK(stead_session_explain(session, &why, NULL) == STEAD_OK);
    const char *how = strstr(why, "blocks of the node"), *fetched = strstr(why, "fetched");
    CHECK(how && fetched);
    printf("rank %d: right, %llu bytes read, %llu shared; %.*s; %.*s\n", rank, (unsigned long long)counts.bytes,
           (unsigned long long)most, (int)strcspn(how, "\n"), how, (int)strcspn(fetched, "\n"), fetched);
    stead_text_free(why);
    end();
}

static void keep(const char *path) {
    stead_view views[HELD];
    begin(path, 64 << 20);
    for (uint64_t i = 0; i < HELD; i++) views[i] = look(i * (length / HELD), 100);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1) {
        end();
    } else {
        /* Others read on when that one has closed the file. */
        for (uint64_t at = 0; at < length; at += BLOCK) {
            stead_view view = look(at, BLOCK);
            stead_view_release(&view);
        }
        end();
    }
    /* The next file is read into memory that nobody looks at. */
    begin(path, 64 << 20);
    for (uint64_t at = 0; at < length; at += BLOCK) {
        stead_view view = look(at, BLOCK);
        stead_view_release(&view);
    }
    end();
    MPI_Finalize();
    for (uint64_t i = 0; i < HELD; i++) {
        CHECK(right(views[i], i * (length / HELD)));
        stead_view_release(&views[i]);
    }
    printf("rank %d: right\n", rank);
    exit(0);
}

static void die(const char *path) {
    MPI_Comm survivors;
    MPI_Comm_split(MPI_COMM_WORLD, rank == size - 1, rank, &survivors);
    begin(path, 6 << 20);
    if (rank == size - 1) {
        for (uint64_t i = 0; i < 8; i++) (void)look(i * BLOCK, BLOCK);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1) kill(getpid(), SIGKILL);
    /* What the dead has read is an error, which is tested elsewhere; what the others have is not. */
    for (int round = 0; round < 3; round++) {
        for (uint64_t at = 0; at < length / (uint64_t)size * (uint64_t)(size - 1) - BLOCK; at += BLOCK) {
            stead_view view = look(at, BLOCK);
            stead_view_release(&view);
        }
    }
    printf("rank %d: right\n", rank);
    fflush(stdout);
    MPI_Barrier(survivors);
    /* MPI_Finalize would wait for the dead. */
    _exit(0);
}

int main(int argc, char **argv) {
    int level;
    if (argc < 3) return 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(argv[1], "private")) {
        /* Such memory is a file to the system, and larger ones may not be made. */
        const struct rlimit limit = {64 << 10, 64 << 10};
        CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
    }
    if (argc > 4) readers = (size_t)atoi(argv[4]);
    if (!strcmp(argv[1], "keep")) keep(argv[2]);
    else if (!strcmp(argv[1], "die")) die(argv[2]);
    else all(argv[2], strtoull(argv[3], NULL, 10));
    MPI_Finalize();
    return 0;
}
