/* A clock that somebody sets while a program runs, put before it with LD_PRELOAD.
 *
 *   CLOCK_SET=PATH   a file of eight bytes: so many seconds the clock is ahead, or behind if there are less than none
 *
 * Stop watches go on as they do; so do the times that file systems give. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead = NULL;

__attribute__((constructor)) static void find(void) {
    const char *path = getenv("CLOCK_SET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *at = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) ahead = at;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, id, now);
    if (failed == 0 && ahead && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += *ahead;
    return failed;
}

time_t time(time_t *to) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone) {
    struct timespec now = {0, 0};
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    (void)zone;
    if (failed == 0) *to = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return failed;
}
