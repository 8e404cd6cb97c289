/*
 * Messages as error codes of MPI, so that MPI_Error_string tells them.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "io.h"
#include <pthread.h>

/* Codes live as long as MPI does, so each class has a few, which are used again in turn. */
#define CODES 8
/* Classes in use. */
#define CLASSES 24

static struct family {
    int class; /* of MPI */
    int made_in, codes[CODES], made, next;
} families[CLASSES];
/* Whether codes that are added to a class of MPI have texts: 1 if so, -1 if they need a class of their own (MPICH). */
static int texts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local char last[4096];

IO_PUBLIC const char *stead_MPI_Error_text(void) {
    return last;
}

/* Adds a code to a class of MPI, and looks whether it has the text that it is given. */
static void try_texts(void) {
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int code, length = 0;
    texts = -1;
    if (MPI_Add_error_code(MPI_ERR_OTHER, &code) || MPI_Add_error_string(code, "stead") ||
        MPI_Error_string(code, text, &length))
        return;
    if (strcmp(text, "stead") == 0) texts = 1;
}

/* The next code of a class, with the text that was kept; the class itself where there are no codes. */
static int code_of(int class) {
    int running = 0, ended = 0;
    MPI_Initialized(&running);
    MPI_Finalized(&ended);
    if (!running || ended) return class;
    char text[MPI_MAX_ERROR_STRING];
    /* As much as MPI has room for. */
    snprintf(text, sizeof text, "%.*s", MPI_MAX_ERROR_STRING - 1, last);
    int code = class;
    pthread_mutex_lock(&lock);
    if (!texts) try_texts();
    for (size_t i = 0; i < CLASSES; i++) {
        struct family *family = &families[i];
        if (family->made && family->class != class) continue;
        int which = family->next % CODES;
        if (!family->made) {
            family->class = family->made_in = class;
            if (texts < 0 && MPI_Add_error_class(&family->made_in)) break;
        }
        if (which == family->made) {
            if (MPI_Add_error_code(family->made_in, &family->codes[which])) break;
            family->made++;
        }
        family->next = (which + 1) % CODES;
        if (MPI_Add_error_string(family->codes[which], text) == MPI_SUCCESS) code = family->codes[which];
        break;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

IO_PUBLIC int stead_MPI_Error_class(int code, int *class) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < CLASSES && !found; i++) {
        for (int k = 0; k < families[i].made && !found; k++) {
            found = families[i].codes[k] == code;
            if (found) *class = families[i].class;
        }
    }
    pthread_mutex_unlock(&lock);
    return found ? MPI_SUCCESS : MPI_Error_class(code, class);
}

int io_fail(int class, const char *format, ...) {
    va_list given;
    va_start(given, format);
    vsnprintf(last, sizeof last, format, given);
    va_end(given);
    return code_of(class);
}

int io_fail_mpi(int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0, class = MPI_ERR_OTHER;
    MPI_Error_string(code, text, &length);
    MPI_Error_class(code, &class);
    /* The name of the function is enough. */
    int name = (int)strcspn(what, "(");
    snprintf(last, sizeof last, "%.*s failed: %s", name, what, text);
    return code_of(class);
}

int io_fail_stead(stead_error *error) {
    static const struct {
        stead_status kind;
        int class;
    } classes[] = {
        {STEAD_USAGE, MPI_ERR_ARG},
        {STEAD_NOT_FOUND, MPI_ERR_NO_SUCH_FILE},
        {STEAD_PERMISSION, MPI_ERR_ACCESS},
        {STEAD_FORMAT, MPI_ERR_CONVERSION},
        {STEAD_DATA, MPI_ERR_CONVERSION},
        {STEAD_NO_SPACE, MPI_ERR_NO_SPACE},
        {STEAD_IO, MPI_ERR_IO},
        {STEAD_LIMIT, MPI_ERR_NO_MEM},
        {STEAD_CHANGED, MPI_ERR_IO},
        {STEAD_INTERNAL, MPI_ERR_INTERN},
    };
    stead_status kind = stead_error_kind(error);
    int class = MPI_ERR_OTHER;
    for (size_t i = 0; i < IO_LENGTH(classes); i++) {
        if (classes[i].kind == kind) class = classes[i].class;
    }
    const char *message = stead_error_message(error), *hint = stead_error_hint(error);
    int code = io_fail(class, "%s%s%s%s", message ? message : stead_status_name(kind), hint ? " (" : "",
                       hint ? hint : "", hint ? ")" : "");
    stead_error_free(error);
    return code;
}
