/*
 * Reads of MPI-IO that compute: a rank names a part of a file by its view, and a kernel; storage ranks, which are where the
 * data are, compute it, and only the result returns.
 *
 *     MPI_File_open(compute, "particles.bin", MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
 *     MPI_File_set_view(file, 0, MPI_DOUBLE, filetype, "native", MPI_INFO_NULL);
 *     double sum;
 *     stead_MPI_File_read_ex(file, &sum, count, MPI_DOUBLE, "sum", MPI_INFO_NULL, &status);
 *
 * For programs that are linked with libstead_mpi_io, libstead_mpi and libstead, in this order and before MPI, as
 * `pkg-config --libs stead_mpi_io` has them. The library has an MPI_File_open of its own, and an MPI_File_close,
 * MPI_File_set_view, MPI_File_set_info, MPI_Op_create and MPI_Finalize, which note what is needed and call those of MPI.
 *
 * Functions return MPI_SUCCESS or an error code whose text MPI_Error_string and stead_MPI_Error_text tell. Errors of reads go
 * through the error handler of the file, which returns them unless the program has set another one.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef STEAD_MPI_IO_H
#define STEAD_MPI_IO_H

#include "stead_mpi.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/**
 * Makes storage ranks of some ranks of `world`. Collective; every rank calls it once, after MPI_Init_thread with
 * MPI_THREAD_MULTIPLE. Which ranks these are, `hints` say: `storage_hosts`, such as "node[1-2],node7", or "layout:FILE" for the nodes
 * of a layout that the first rank reads, the same on all ranks; or `role`, "storage" or "compute", of this one.
 *
 * On compute ranks it returns at once, and `*compute` is a new communicator of them alone. On storage ranks it returns when
 * all compute ranks have called stead_MPI_Storage_finalize or MPI_Finalize, or are gone; they have worked for them until then, and
 * `*compute` is MPI_COMM_NULL.
 *
 * Without hints, and where all ranks are on storage hosts, there are no storage ranks: `*compute` is a duplicate of `world`, and
 * reads compute on the rank that asks, as they do in programs that never call this.
 *
 * Errors: MPI_ERR_INFO_VALUE for hints that make no sense, MPI_ERR_ARG for hosts without ranks, too few threads, or a
 * second call, all on all ranks if it is one's; MPI_ERR_COMM for an intercommunicator or none.
 */
int stead_MPI_Storage_init(MPI_Comm world, MPI_Info hints, MPI_Comm *compute);

/**
 * Says that this compute rank asks for nothing more. Not collective; further calls are nothing to do. MPI_Finalize does it, too.
 */
int stead_MPI_Storage_finalize(void);

/**
 * Makes an operation of the program known by a name, for the `kernel` of reads: on all ranks, before stead_MPI_Storage_init. `function` is what
 * MPI_Op_create takes; several threads call it at once. C functions that the program gives to MPI_Op_create are known by their
 * names without this, if the dynamic linker knows these (-rdynamic, or in a shared library).
 *
 * Errors: MPI_ERR_ARG for a name that is empty, has spaces or colons, or is one of MPI's or a kernel's.
 */
int stead_MPI_Op_register(const char *name, MPI_User_function *function, int commutes);

/**
 * MPI_File_open, for programs whose own is not found: an error where this library would not see that the file is closed.
 */
int stead_MPI_File_open(MPI_Comm communicator, const char *name, int mode, MPI_Info info, MPI_File *file);

/**
 * Computes over `count` items of `type` from the individual file pointer on, which moves behind them at once, as MPI_File_read would
 * read them through the file's view, and puts the result to `result`. At the end of the file there are fewer items, and with none
 * there is no result: the status says how many elements it has (MPI_Get_count, with the type of the result).
 *
 * `kernel` is the name of a kernel ("sum", "mean", "hist", "kmeans", "grep"...: `stead kernels`), a whole specification
 * ("quantile:value,q=0.9"), an operation of MPI ("MPI_SUM", "MPI_PROD", "MPI_BAND"...), or one of the program. `hints` add to those that the file
 * got when it was opened or later, where they are called stead_NAME. docs/mpi-io.md has the tables of hints and of results.
 *
 * `result` has room for `result_bytes` of the hints, or else for what the table says of the kernel.
 *
 * Errors: MPI_ERR_TRUNCATE for a result that has more bytes; MPI_ERR_FILE for a handle that is not known; MPI_ERR_TYPE for
 * datatypes of which no view can be made; MPI_ERR_ARG and MPI_ERR_INFO_VALUE for what makes no sense; MPI_ERR_OP for operations
 * that do not commute, or are not for the type; those of opening and reading the file; MPI_ERR_OTHER if a storage rank is gone.
 */
int stead_MPI_File_read_ex(MPI_File file, void *result, MPI_Count count, MPI_Datatype type, const char *kernel,
                           MPI_Info hints, MPI_Status *status);

/**
 * The same from `offset` on, in elementary types of the view. The individual file pointer stays.
 */
int stead_MPI_File_read_ex_at(MPI_File file, MPI_Offset offset, void *result, MPI_Count count, MPI_Datatype type,
                              const char *kernel, MPI_Info hints, MPI_Status *status);

/**
 * The same by all ranks that have opened the file: each gets the result of its own part. Collective, as MPI_File_read_all is;
 * ranks may have nothing to read, and do not wait for each other.
 */
int stead_MPI_File_read_ex_all(MPI_File file, void *result, MPI_Count count, MPI_Datatype type, const char *kernel,
                               MPI_Info hints, MPI_Status *status);

/**
 * stead_MPI_File_read_ex_at by all ranks that have opened the file.
 */
int stead_MPI_File_read_ex_at_all(MPI_File file, MPI_Offset offset, void *result, MPI_Count count, MPI_Datatype type,
                                  const char *kernel, MPI_Info hints, MPI_Status *status);

/**
 * The class of an error code, of this library or of MPI: MPI_ERR_TRUNCATE and so on. MPI_Error_class says the same where codes
 * with texts can be added to the classes of MPI, as with Open MPI; MPICH gives them a class of their own.
 */
int stead_MPI_Error_class(int code, int *error_class);

/**
 * The whole text of the last error of this library on this thread, with its hint; "" if there was none. MPI_Error_string cuts it
 * where MPI has no more room. Lives until the next error on this thread.
 */
const char *stead_MPI_Error_text(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
