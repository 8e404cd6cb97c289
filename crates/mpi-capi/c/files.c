/*
 * Which file a handle is of: files of MPI have no attributes, so MPI_File_open, MPI_File_close and what gives hints are
 * defined here, and call those of MPI.
 *
 * Open MPI's and MPICH's Fortran calls the functions by their second names (PMPI_...), so these are here, too. A handle is known
 * from its opening to its closing: another file that gets the same handle is another entry.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "io.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <unistd.h>

struct file {
    struct file *next;
    MPI_File handle;
    char *path;
    struct io_hints hints;
    /* The class of what kept its path or hints from being noted, MPI_SUCCESS if nothing did, and its text. Reads tell it, as
     * whoever opens a file or gives hints has the answer of MPI. */
    int class;
    char *failure;
};

static struct file *files;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *io_next(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    /* Whoever loaded this library after MPI has it behind. */
    return function ? function : dlsym(RTLD_DEFAULT, name);
}

/* True if the object that has this address is this library. */
static bool is_ours(void *address) {
    Dl_info there, here;
    return address && dladdr(address, &there) && dladdr((void *)&files, &here) && there.dli_fbase == here.dli_fbase;
}

/* True if the program's calls come here: else a handle would be known for ever. */
static bool is_between(void) {
    return is_ours(dlsym(RTLD_DEFAULT, "MPI_File_close")) || is_ours(dlsym(RTLD_DEFAULT, "PMPI_File_close"));
}

static void file_free(struct file *file) {
    io_hints_free(&file->hints);
    free(file->failure);
    free(file->path);
    free(file);
}

/* Takes the entry of a handle out. The lock is held. */
static struct file *take(MPI_File handle) {
    for (struct file **at = &files; *at; at = &(*at)->next) {
        if ((*at)->handle != handle) continue;
        struct file *found = *at;
        *at = found->next;
        return found;
    }
    return NULL;
}

/* Names of file systems that ROMIO takes off. */
static const char *without_system(const char *name) {
    static const char *const systems[] = {
        "ufs:", "nfs:", "xfs:", "lustre:", "gpfs:", "panfs:", "pvfs2:", "testfs:", "unix:"};
    for (size_t i = 0; i < IO_LENGTH(systems); i++) {
        size_t n = strlen(systems[i]);
        /* A file that has such a name means itself. */
        if (strncmp(name, systems[i], n) == 0 && access(name, F_OK) != 0) return name + n;
    }
    return name;
}

/* The name from the root, which is the same for ranks that are in other directories. */
static char *whole_path(const char *name) {
    char here[PATH_MAX], *path = NULL;
    name = without_system(name);
    if (*name == '/' || !getcwd(here, sizeof here)) return strdup(name);
    return asprintf(&path, "%s/%s", here, name) < 0 ? NULL : path;
}

/* Puts an entry in, in place of what there is of its handle. */
static void keep(struct file *file) {
    pthread_mutex_lock(&lock);
    struct file *old = take(file->handle);
    file->next = files;
    files = file;
    pthread_mutex_unlock(&lock);
    if (old) file_free(old);
}

/* Notes why an entry does not hold what it should. Hints that come later do not mend it. */
static void note(struct file *file, int code) {
    free(file->failure);
    file->failure = strdup(stead_MPI_Error_text());
    if (stead_MPI_Error_class(code, &file->class) || file->class == MPI_SUCCESS) file->class = MPI_ERR_OTHER;
}

/* What has no room at all is not known later, which is an error then. */
static void remember(MPI_File handle, const char *name, MPI_Info info) {
    struct file *file = calloc(1, sizeof *file);
    if (!file) return;
    file->handle = handle;
    file->path = whole_path(name);
    int code = file->path ? io_hints_add(&file->hints, info, IO_OF_FILE)
                          : io_fail(MPI_ERR_NO_MEM, "no memory for the path of '%s'", name);
    if (code) note(file, code);
    keep(file);
}

/* Hints that a file gets later. */
static void add_hints(MPI_File handle, MPI_Info info) {
    if (info == MPI_INFO_NULL) return;
    struct io_hints more = {0};
    int code = io_hints_add(&more, info, IO_OF_FILE);
    pthread_mutex_lock(&lock);
    for (struct file *file = files; file; file = file->next) {
        if (file->handle != handle) continue;
        if (code) note(file, code);
        for (int i = 0; i < IO_HINTS; i++) {
            if (!more.value[i]) continue;
            free(file->hints.value[i]);
            file->hints.value[i] = more.value[i];
            more.value[i] = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    io_hints_free(&more);
}

void io_files_forget(void) {
    pthread_mutex_lock(&lock);
    while (files) {
        struct file *file = files;
        files = file->next;
        file_free(file);
    }
    pthread_mutex_unlock(&lock);
}

int io_file_of(MPI_File handle, char **path, struct io_hints *hints) {
    *path = NULL;
    *hints = (struct io_hints){0};
    if (handle == MPI_FILE_NULL) return io_fail(MPI_ERR_FILE, "the file is MPI_FILE_NULL");
    bool copied = false;
    int code = MPI_SUCCESS;
    pthread_mutex_lock(&lock);
    const struct file *file = files;
    while (file && file->handle != handle) file = file->next;
    if (file && file->class != MPI_SUCCESS)
        code = io_fail(file->class, "the path or the hints of this file could not be kept: %s (open it again)",
                       file->failure ? file->failure : "no memory");
    else if (file)
        copied = (*path = strdup(file->path)) && !(code = io_hints_copy(hints, &file->hints));
    pthread_mutex_unlock(&lock);
    if (file) return copied ? MPI_SUCCESS : code ? code : io_fail(MPI_ERR_NO_MEM, "no memory for a path");
    return io_fail(MPI_ERR_FILE, "which file this handle is of is not known: link libstead_mpi_io before MPI, or name "
                                 "it in LD_PRELOAD, "
                                 "or open the file with stead_MPI_File_open");
}

/* ---- what programs call in place of the functions of MPI */

typedef int open_fn(MPI_Comm, const char *, int, MPI_Info, MPI_File *);
typedef int close_fn(MPI_File *);
typedef int view_fn(MPI_File, MPI_Offset, MPI_Datatype, MPI_Datatype, const char *, MPI_Info);
typedef int info_fn(MPI_File, MPI_Info);

/* One of MPI, or of a tool, may call another by its name, which comes here again: what is noted and forgotten twice is noted and
 * forgotten, and who was called first has the last word. */

int io_no_next(const char *name) {
    return io_fail(MPI_ERR_UNSUPPORTED_OPERATION,
                   "there is no %s behind that of libstead_mpi_io: MPI must be a shared library, and come after it", name);
}

static int open_with(const char *function, MPI_Comm communicator, const char *name, int mode, MPI_Info info,
                     MPI_File *file) {
    open_fn *next;
    *(void **)&next = io_next(function);
    if (!next || is_ours(*(void **)&next)) return io_no_next(function);
    int code = next(communicator, name, mode, info, file);
    if (code == MPI_SUCCESS) remember(*file, name, info);
    return code;
}

static int close_with(const char *function, MPI_File *file) {
    close_fn *next;
    *(void **)&next = io_next(function);
    if (!next || is_ours(*(void **)&next)) return io_no_next(function);
    MPI_File handle = file ? *file : MPI_FILE_NULL;
    /* Before: when it is closed, another thread may get the same handle for another file. */
    pthread_mutex_lock(&lock);
    struct file *entry = take(handle);
    pthread_mutex_unlock(&lock);
    int code = next(file);
    if (entry && code != MPI_SUCCESS)
        keep(entry);
    else if (entry)
        file_free(entry);
    return code;
}

static int view_with(const char *function, MPI_File file, MPI_Offset displacement, MPI_Datatype etype,
                     MPI_Datatype filetype, const char *as, MPI_Info info) {
    view_fn *next;
    *(void **)&next = io_next(function);
    if (!next || is_ours(*(void **)&next)) return io_no_next(function);
    int code = next(file, displacement, etype, filetype, as, info);
    if (code == MPI_SUCCESS) add_hints(file, info);
    return code;
}

static int info_with(const char *function, MPI_File file, MPI_Info info) {
    info_fn *next;
    *(void **)&next = io_next(function);
    if (!next || is_ours(*(void **)&next)) return io_no_next(function);
    int code = next(file, info);
    if (code == MPI_SUCCESS) add_hints(file, info);
    return code;
}

IO_PUBLIC int MPI_File_open(MPI_Comm communicator, const char *name, int mode, MPI_Info info, MPI_File *file) {
    return open_with("MPI_File_open", communicator, name, mode, info, file);
}

IO_PUBLIC int PMPI_File_open(MPI_Comm communicator, const char *name, int mode, MPI_Info info, MPI_File *file) {
    return open_with("PMPI_File_open", communicator, name, mode, info, file);
}

IO_PUBLIC int MPI_File_close(MPI_File *file) {
    return close_with("MPI_File_close", file);
}

IO_PUBLIC int PMPI_File_close(MPI_File *file) {
    return close_with("PMPI_File_close", file);
}

IO_PUBLIC int MPI_File_set_view(MPI_File file, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
                                const char *as, MPI_Info info) {
    return view_with("MPI_File_set_view", file, displacement, etype, filetype, as, info);
}

IO_PUBLIC int PMPI_File_set_view(MPI_File file, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
                                 const char *as, MPI_Info info) {
    return view_with("PMPI_File_set_view", file, displacement, etype, filetype, as, info);
}

IO_PUBLIC int MPI_File_set_info(MPI_File file, MPI_Info info) {
    return info_with("MPI_File_set_info", file, info);
}

IO_PUBLIC int PMPI_File_set_info(MPI_File file, MPI_Info info) {
    return info_with("PMPI_File_set_info", file, info);
}

IO_PUBLIC int stead_MPI_File_open(MPI_Comm communicator, const char *name, int mode, MPI_Info info, MPI_File *file) {
    /* Collective: who cannot must not leave the others alone, so the file is opened first. */
    int code = open_with("PMPI_File_open", communicator, name, mode, info, file);
    if (code || is_between()) return code;
    close_with("PMPI_File_close", file);
    return io_fail(MPI_ERR_UNSUPPORTED_OPERATION,
                   "libstead_mpi_io does not stand before MPI, so that it would not see when '%s' is closed: "
                   "link it before MPI, or name it in LD_PRELOAD",
                   name);
}
