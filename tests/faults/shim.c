/* Faults of the system for one file, put before a program with LD_PRELOAD.
 *
 *   SHIM_FILE=PATH      the file, by device and inode, whatever descriptor it is read through
 *   SHIM_BAD=FROM-TO    reads that reach these bytes stop before them; those that begin there fail with EIO
 *   SHIM_SHORT=N        no read gives more than 1 to N bytes
 *   SHIM_HELD=FROM-TO   reads that reach these bytes wait for ever
 *   SHIM_COUNTS=PATH    a file of three numbers of 64 bits: reads, those that failed, those that were cut
 *
 * and for all files
 *
 *   SHIM_SYNC=N:PATH    the Nth time that the process waits for a device fails with EIO, that time alone; PATH is made then
 *   SHIM_LEAST=BYTES    of these times only those count that are for a file of at least so many bytes
 *
 * A system call that passes by the C library (io_uring, a page fault) passes by this, too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static dev_t device;
static ino_t inode;
static int active;
static uint64_t bad_from = UINT64_MAX, bad_to = 0, held_from = UINT64_MAX, held_to = 0, most = 0;
static uint64_t none[3], *counts = none;

static void range(const char *text, uint64_t *from, uint64_t *to) {
    char *end;
    *from = strtoull(text, &end, 10);
    *to = strtoull(end + 1, NULL, 10);
}

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("SHIM_FILE"), *bad = getenv("SHIM_BAD"), *shorter = getenv("SHIM_SHORT");
    const char *held = getenv("SHIM_HELD"), *told = getenv("SHIM_COUNTS");
    struct stat s;
    if (!file || stat(file, &s)) return;
    device = s.st_dev;
    inode = s.st_ino;
    if (bad) range(bad, &bad_from, &bad_to);
    if (held) range(held, &held_from, &held_to);
    if (shorter) most = strtoull(shorter, NULL, 10);
    if (told) {
        int fd = open(told, O_RDWR);
        void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED) counts = at;
    }
    active = 1;
}

static int ours(int fd) {
    struct stat s;
    const int kept = errno;
    const int is = active && fstat(fd, &s) == 0 && s.st_dev == device && s.st_ino == inode;
    errno = kept;
    return is;
}

static void count(int which) { __atomic_fetch_add(&counts[which], 1, __ATOMIC_RELAXED); }

/* How many of `n` bytes at `offset` are to be asked for; -1 if the read fails. */
static ssize_t allowed(uint64_t offset, size_t n) {
    uint64_t left = n;
    count(0);
    if (n == 0) return 0;
    while (offset < held_to && offset + n > held_from) pause();
    if (offset < bad_to && offset + n > bad_from) {
        if (offset >= bad_from) {
            count(1);
            errno = EIO;
            return -1;
        }
        left = bad_from - offset;
    }
    if (most) {
        const uint64_t some = 1 + (offset * 0x9E3779B97F4A7C15u >> 33) % most;
        if (some < left) left = some;
    }
    if (left < n) count(2);
    return (ssize_t)left;
}

#define REAL(type, name) \
    static type real; \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, name)

typedef ssize_t (*plain)(int, void *, size_t, off_t);
typedef ssize_t (*vector)(int, const struct iovec *, int, off_t, int);

static ssize_t one(int fd, void *to, size_t n, off_t offset) {
    REAL(plain, "pread");
    if (ours(fd)) {
        const ssize_t some = allowed((uint64_t)offset, n);
        if (some < 0) return -1;
        n = (size_t)some;
    }
    return real(fd, to, n, offset);
}

static ssize_t several(int fd, const struct iovec *to, int parts, off_t offset, int flags) {
    REAL(vector, "preadv2");
    /* Into the first part alone: a short read, as any may be. */
    if (ours(fd) && parts > 0) return one(fd, to[0].iov_base, to[0].iov_len, offset);
    return real(fd, to, parts, offset, flags);
}

ssize_t pread(int fd, void *to, size_t n, off_t offset) { return one(fd, to, n, offset); }
ssize_t pread64(int fd, void *to, size_t n, off_t offset) { return one(fd, to, n, offset); }
ssize_t preadv(int fd, const struct iovec *to, int parts, off_t at) { return several(fd, to, parts, at, 0); }
ssize_t preadv64(int fd, const struct iovec *to, int parts, off_t at) { return several(fd, to, parts, at, 0); }
ssize_t preadv2(int fd, const struct iovec *to, int parts, off_t at, int how) { return several(fd, to, parts, at, how); }
ssize_t preadv64v2(int fd, const struct iovec *to, int parts, off_t at, int how) { return several(fd, to, parts, at, how); }

ssize_t read(int fd, void *to, size_t n) {
    typedef ssize_t (*reading)(int, void *, size_t);
    REAL(reading, "read");
    if (ours(fd)) {
        const off_t at = lseek(fd, 0, SEEK_CUR);
        const ssize_t some = at < 0 ? (ssize_t)n : allowed((uint64_t)at, n);
        if (some < 0) return -1;
        n = (size_t)some;
    }
    return real(fd, to, n);
}

static int syncs(const char *name, int fd) {
    typedef int (*syncing)(int);
    static uint64_t done;
    const char *told = getenv("SHIM_SYNC");
    syncing real;
    *(void **)&real = dlsym(RTLD_NEXT, name);
    const char *least = getenv("SHIM_LEAST");
    struct stat about;
    if (told && (!least || (fstat(fd, &about) == 0 && (uint64_t)about.st_size >= strtoull(least, NULL, 10)))) {
        char *path;
        const uint64_t bad = strtoull(told, &path, 10);
        if (__atomic_add_fetch(&done, 1, __ATOMIC_RELAXED) == bad) {
            const int made = open(path + 1, O_WRONLY | O_CREAT, 0600);
            if (made >= 0) close(made);
            errno = EIO;
            return -1;
        }
    }
    return real(fd);
}

int fsync(int fd) { return syncs("fsync", fd); }
int fdatasync(int fd) { return syncs("fdatasync", fd); }
