/*
 * Inside libstead_mpi_io: what its files know of each other.
 *
 *   errors.c    messages as error codes of MPI
 *   files.c     which file a handle is of
 *   types.c     datatypes: the bytes they cover, the elements they are of
 *   views.c     the view of a file
 *   hints.c     what a program says by MPI_Info
 *   ops.c       operations of MPI, and of the program, as kernels
 *   plan.c      a kernel's name, hints and types as a request and the shape of its result
 *   results.c   from a report to the caller's buffer
 *   read.c      MPI_File_read_ex and its like
 *   storage.c   ranks of two kinds
 *   fortran.c   the same for Fortran
 *
 * Functions return MPI_SUCCESS or an error code of MPI, whose text io_fail has kept.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef STEAD_IO_H
#define STEAD_IO_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stead_mpi_io.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IO_PUBLIC __attribute__((visibility("default")))
#define IO_LENGTH(array) (sizeof(array) / sizeof *(array))

/* ---- errors.c */

/* Keeps a message and returns an error code of that class which tells it. */
int io_fail(int class, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for an error of stead, which is freed. */
int io_fail_stead(stead_error *error);
/* Returns the code of a function of MPI that failed, having kept what it means. */
int io_fail_mpi(int code, const char *what);

/* Goes on if a call succeeds, and else returns its code. */
#define IO_TRY(call)                                                                                                   \
    do {                                                                                                               \
        int tried_ = (call);                                                                                           \
        if (tried_) return tried_;                                                                                     \
    } while (0)
/* The same for a function of MPI. */
#define IO_MPI(call)                                                                                                   \
    do {                                                                                                               \
        int tried_ = (call);                                                                                           \
        if (tried_) return io_fail_mpi(tried_, #call);                                                                 \
    } while (0)

/* ---- types.c */

/* Bytes that a datatype covers, in the order in which it names them. */
struct io_runs {
    struct io_run {
        int64_t offset, length;
    } *at;
    size_t count, room;
};

/* More runs of one datatype are refused: they travel with each request. */
#define IO_MOST_RUNS ((size_t)1 << 20)

/* What the elements of a datatype are. */
enum io_class {
    IO_NUMBERS, /* of a type that stead computes with */
    IO_BYTES,   /* MPI_BYTE and characters */
    IO_OTHER,   /* complex numbers, truth values and what else there is */
    IO_MIXED    /* of several types */
};

struct io_elements {
    enum io_class class;
    MPI_Datatype type; /* that of an element; MPI_DATATYPE_NULL if there are several */
    const char *name;  /* of that type, such as "MPI_DOUBLE"; NULL if it has none here */
    const char *dtype; /* as stead calls it, such as "f64"; NULL but for numbers */
    int64_t size;      /* bytes of an element; of the datatype if there are several types */
    int64_t count;     /* elements in the datatype */
};

/* The bytes of one datatype. The runs are the caller's to free, by io_runs_free, after an error too. */
int io_type_runs(MPI_Datatype type, struct io_runs *runs);
void io_runs_free(struct io_runs *runs);
/* What it is made of. */
int io_type_elements(MPI_Datatype type, struct io_elements *elements);
/* The elements of a name, such as "MPI_DOUBLE": false if there is none. */
bool io_named_elements(const char *name, struct io_elements *elements);
/* Frees a datatype that MPI has given out, unless it is predefined. */
void io_type_free(MPI_Datatype *type);

/* ---- views.c */

struct io_view {
    int64_t displacement, extent; /* of a tile, whose first run is at its beginning */
    int64_t bytes;                /* that are seen of each tile */
    int64_t etype;                /* bytes of an elementary type */
    struct io_runs runs;
};

/* The view of a file as it is now. Freed by io_runs_free(&view->runs), after an error too. */
int io_view_of(MPI_File file, struct io_view *view);
/* The view of a file that was set with these. */
int io_view_made(MPI_Datatype etype, MPI_Datatype filetype, const char *as, MPI_Offset displacement,
                 struct io_view *view);
/* How many bytes of a view a file of `length` bytes has, after the first `skip`. */
int64_t io_view_left(const struct io_view *view, int64_t length, int64_t skip);

/* ---- hints.c */

enum io_hint {
    IO_BINS,
    IO_BY,
    IO_CLUSTERS,
    IO_COLUMNS,
    IO_DIMS,
    IO_FORMAT,
    IO_HI,
    IO_ITEM_LENGTH,
    IO_LINES,
    IO_LO,
    IO_MEMORY,
    IO_PATTERN,
    IO_RESULT,
    IO_RESULT_BYTES,
    IO_ROLE,
    IO_SHAPE,
    IO_STORAGE_HOSTS,
    IO_THREADS,
    IO_THRESHOLD,
    IO_WHERE,
    IO_HINTS
};

/* The values of the hints that stead knows, NULL where there is none. */
struct io_hints {
    char *value[IO_HINTS];
};

/* Whose an info is. What a program says of a file is for others, too, who may mean something else by such plain names: there
 * hints are called stead_NAME. In a call of this library they may be called so, and need not. */
enum io_info { IO_OF_FILE, IO_OF_CALL };
/* Adds what an info says to what is there, and replaces what it says anew. MPI_INFO_NULL says nothing. */
int io_hints_add(struct io_hints *hints, MPI_Info info, enum io_info whose);
int io_hints_copy(struct io_hints *to, const struct io_hints *from);
void io_hints_free(struct io_hints *hints);
/* A whole number within bounds, or `without` where the hint is not given. */
int io_hint_count(const struct io_hints *hints, enum io_hint hint, int64_t least, int64_t most, int64_t without,
                  int64_t *value);
/* That it is a number, where it is given. */
int io_hint_is_number(const struct io_hints *hints, enum io_hint hint);

/* ---- files.c */

/* The file of a handle and the hints that it has got, both the caller's to free. */
int io_file_of(MPI_File file, char **path, struct io_hints *hints);
/* Forgets all files, when MPI ends. */
void io_files_forget(void);
/* The next function of that name after this library's own: that of MPI, or of a tool before it. */
void *io_next(const char *name);
/* The error where there is none. */
int io_no_next(const char *name);

/* ---- ops.c */

/* Whether a kernel's name is that of an operation, and whether it can be split: MPI_ERR_OP if it cannot. */
int io_operation_named(const char *name, bool *found);
/* Whether it may be called here, by threads that are not the program's. */
int io_operation_runs(const char *name);
/* The name by which storage ranks know an operation over items of these elements. */
int io_operation_text(const char *name, const struct io_elements *elements, char **text);
/* Makes the kernel of such a name: a stead_resolve_fn. */
int io_resolve(const char *name, struct stead_kernel *kernel, void *user);
/* Bytes of an item, of the list of numbers that such a kernel answers with. */
#define IO_WORD 8

/* ---- plan.c */

/* What a result is. */
enum io_shape {
    IO_COUNTS,  /* whole numbers, as MPI_INT64_T */
    IO_DOUBLES, /* numbers, as MPI_DOUBLE */
    IO_TYPED,   /* numbers, of the type of the elements */
    IO_ITEM,    /* bytes of an item, of an operation */
    IO_MATCHES, /* records as text, each with a line end */
    IO_PICTURE, /* a file */
    IO_JSON     /* all of it, as text */
};

struct io_plan {
    struct io_elements elements;
    enum io_shape shape;
    char *spec; /* of the kernel, or the name of the operation */
    bool operation;
    const char *member; /* of the result, where it is not all of it */
    char *picture;      /* the file that the kernel is to write */
    int64_t room;       /* bytes of the caller's buffer */
    int64_t unit;       /* bytes of what is computed with as a whole */
    int64_t columns;    /* of an array; 0 if it is none */
    struct io_hints hints;
};

/* Plans; the file's hints are in `plan->hints`, and those of the call are added to them. Freed by io_plan_free, after an
 * error too. */
int io_plan(struct io_plan *plan, const char *kernel, MPI_Datatype type, MPI_Info hints);
void io_plan_free(struct io_plan *plan);
/* Whether a name is that of a kernel, which no operation has. */
bool io_is_kernel(const char *name);
/* How to open so many bytes, and the request for them. Both are the caller's to free, after an error too. */
int io_plan_ask(const struct io_plan *plan, int64_t bytes, stead_options **options, stead_request **request);

/* ---- results.c */

/* Puts the only result of a report to the caller's buffer, and how much that is to the status. */
int io_result(const stead_report *report, const struct io_plan *plan, void *result, MPI_Status *status);
/* Says that there is no result. */
int io_no_result(const struct io_plan *plan, MPI_Status *status);

/* ---- fortran.c */

int stead_mpi_io_open_f(MPI_Fint communicator, const char *name, int mode, MPI_Fint info, MPI_Fint *file);
int stead_mpi_io_read_f(MPI_Fint file, const int64_t *at, void *result, int64_t count, MPI_Fint type,
                        const char *kernel, MPI_Fint hints, int64_t *bytes);
int stead_mpi_io_storage_init_f(MPI_Fint world, MPI_Fint hints, MPI_Fint *compute);

/* ---- storage.c */

/* Runs a job where the storage ranks are, or here if there are none. */
int io_run(const struct stead_offload_job *job, const stead_request *request, stead_report **report);

#endif
