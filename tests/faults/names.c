/* A name service that does not answer for one user, put before a program with LD_PRELOAD.
 *
 *   NAMES_SLOW=UID:PATH   as long as there is a file of this name, it is not said who this user is */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int getpwuid_r(uid_t uid, struct passwd *found, char *text, size_t size, struct passwd **result) {
    static int (*next)(uid_t, struct passwd *, char *, size_t, struct passwd **) = NULL;
    const char *slow = getenv("NAMES_SLOW");
    const char *path = slow ? strchr(slow, ':') : NULL;
    if (path && (uid_t)strtoul(slow, NULL, 10) == uid)
        while (access(path + 1, F_OK) == 0) usleep(20000);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "getpwuid_r");
    return next(uid, found, text, size, result);
}
