/*
 * stead over MPI: files that all ranks of a communicator read together, and kernels that they run together.
 *
 * For programs that are linked with libstead and libstead_mpi. MPI must have been initialised with
 * MPI_Init_thread and MPI_THREAD_MULTIPLE.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef STEAD_MPI_H
#define STEAD_MPI_H

#include <mpi.h>
#include <stdlib.h>
#include "stead.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes a fabric of the communicator that `communicator` points to, for stead_file_open_ranks and stead_run_ranks. It takes a duplicate:
 * messages and error handlers of the program are not touched. The duplicate, and a thread, stay with the communicator until
 * it is freed, for all files that are opened on it. Collective.
 *
 * MPI_Finalize waits until all ranks have called it; those that did so early go on to answer the others meanwhile.
 *
 * A rank that somebody waits for and that gives no sign of life for 30 s is taken for gone; the environment variable
 * STEAD_PEER_SILENCE_S has another number of seconds. Computing is no silence: a thread answers.
 *
 * All ranks are to come within ten minutes: STEAD_TIMEOUT else, and nothing collective of stead can be done with this communicator any more.
 */
int stead_mpi_make(void *communicator, struct stead_fabric *fabric, char *why);

/**
 * What stead_mpi_make_within makes a fabric of.
 */
typedef struct stead_mpi_within {
    /**
     * The address of the communicator; for stead_mpi_make_within_f that of a handle of Fortran, an integer (MPI_Fint).
     */
    void *communicator;
    /**
     * Milliseconds within which all ranks are to come; 0 for ten minutes.
     */
    uint64_t timeout_ms;
} stead_mpi_within;

/**
 * As stead_mpi_make, within a time: `within` points to a stead_mpi_within.
 */
int stead_mpi_make_within(void *within, struct stead_fabric *fabric, char *why);

/**
 * The same of a communicator of Fortran. stead_mpi_stream.f90 calls it.
 */
int stead_mpi_make_within_f(void *within, struct stead_fabric *fabric, char *why);

/**
 * sizeof(MPI_Comm) of the MPI that libstead_mpi was built with. Programs that are compiled need it not; those that come to
 * MPI and to libstead_mpi at run time, as Python does, find by it that the two are not of one MPI.
 */
size_t stead_mpi_communicator_bytes(void);

/**
 * Ends the threads that call MPI; it waits until all ranks have called it, as MPI_Finalize does. Files that are still open are
 * of no use afterwards.
 *
 * Programs that are linked with libstead_mpi need it not: the library comes before MPI in the order of linking, so that its
 * MPI_Finalize is called, which does this first. Who comes to MPI in another way calls it before MPI_Finalize: with MPICH, a
 * thread that is in MPI when MPI_Finalize begins makes it fail.
 */
void stead_mpi_end(void);

/**
 * Opens a file on all ranks of a communicator. See stead_file_open_ranks. Collective; so are the sessions of the file.
 *
 * Errors: those of stead_file_open_ranks; STEAD_USAGE if MPI is not running or has too few threads.
 */
static inline stead_status stead_mpi_file_open(MPI_Comm communicator,
                                               const char *path,
                                               const struct stead_read_options *options,
                                               struct stead_file **file,
                                               struct stead_error **error) {
    return stead_file_open_ranks(stead_mpi_make, &communicator, path, options, file, error);
}

/**
 * Makes a coupling of all ranks of a communicator, such as MPI_COMM_WORLD of a job of several programs, each of which names its part. See
 * stead_coupling_new. Collective: all ranks are to come within `timeout_ms` milliseconds, or ten minutes if it is 0. stead_mpi_part makes a
 * communicator of the ranks of a part.
 *
 * Errors: those of stead_coupling_new; STEAD_TIMEOUT if not all ranks have come, after which nothing collective of stead can be done with the
 * communicator; STEAD_USAGE if MPI is not running or has too few threads.
 */
static inline stead_status stead_mpi_coupling(MPI_Comm communicator,
                                              const char *part,
                                              uint64_t timeout_ms,
                                              struct stead_coupling **coupling,
                                              struct stead_error **error) {
    struct stead_mpi_within within;
    within.communicator = &communicator;
    within.timeout_ms = timeout_ms;
    return stead_coupling_new(stead_mpi_make_within, &within, part, NULL, 0, timeout_ms, coupling, error);
}

/**
 * A communicator of the ranks of the part of this one, for the program's own messages; to be freed with MPI_Comm_free. Collective over the
 * ranks of the part: other programs need not do the same. Takes the communicator that the coupling was made of, and returns what MPI does.
 */
static inline int stead_mpi_part(MPI_Comm communicator, const struct stead_coupling *coupling, MPI_Comm *part) {
    const int n = (int)stead_coupling_ranks(coupling);
    int *const ranks = (int *)malloc(sizeof(int) * ((size_t)n + 1));
    MPI_Group all, mine;
    int code = MPI_ERR_NO_MEM;
    if (ranks) {
        for (int i = 0; i < n; i++) ranks[i] = (int)stead_coupling_member(coupling, (uint64_t)i);
        code = MPI_Comm_group(communicator, &all);
        if (code == MPI_SUCCESS) {
            code = MPI_Group_incl(all, n, ranks, &mine);
            MPI_Group_free(&all);
        }
        if (code == MPI_SUCCESS) {
            code = MPI_Comm_create_group(communicator, mine, 0, part);
            MPI_Group_free(&mine);
        }
    }
    free(ranks);
    return code;
}

/**
 * Opens a Tipsy snapshot on all ranks of a communicator. See stead_tipsy_open_ranks. Collective; loading is not.
 *
 * Errors: those of stead_tipsy_open_ranks; STEAD_USAGE if MPI is not running or has too few threads.
 */
static inline stead_status stead_mpi_tipsy_open(MPI_Comm communicator,
                                                const char *path,
                                                const struct stead_read_options *options,
                                                struct stead_tipsy **snapshot,
                                                struct stead_error **error) {
    return stead_tipsy_open_ranks(stead_mpi_make, &communicator, path, options, snapshot, error);
}

/**
 * Opens `n` files, globs, directories or layouts on all ranks of a communicator. See stead_open_ranks. Collective.
 *
 * Errors: those of stead_open_ranks; STEAD_USAGE if MPI is not running or has too few threads.
 */
static inline stead_status stead_mpi_open(MPI_Comm communicator,
                                          const char *const *paths,
                                          size_t n,
                                          const struct stead_options *options,
                                          struct stead_dataset **dataset,
                                          struct stead_error **error) {
    return stead_open_ranks(stead_mpi_make, &communicator, paths, n, options, dataset, error);
}

/**
 * Puts a file into dataspaces of the nodes of a communicator. See stead_put_ranks. Collective.
 *
 * Errors: those of stead_put_ranks; STEAD_USAGE if MPI is not running or has too few threads.
 */
static inline stead_status stead_mpi_put(MPI_Comm communicator,
                                         const char *file,
                                         const char *over,
                                         const struct stead_copy_options *options,
                                         char **json,
                                         struct stead_error **error) {
    return stead_put_ranks(stead_mpi_make, &communicator, file, over, options, json, error);
}

/**
 * Brings a file back whose parts lie on the nodes of a communicator. See stead_get_ranks. Collective.
 *
 * Errors: those of stead_get_ranks; STEAD_USAGE if MPI is not running or has too few threads.
 */
static inline stead_status stead_mpi_get(MPI_Comm communicator,
                                         const char *layout,
                                         const struct stead_copy_options *options,
                                         char **json,
                                         struct stead_error **error) {
    return stead_get_ranks(stead_mpi_make, &communicator, layout, options, json, error);
}

/**
 * Runs a request over files with all ranks of a communicator. See stead_run_ranks. Collective.
 *
 * Errors: those of stead_run_ranks; STEAD_USAGE if MPI is not running or has too few threads.
 */
static inline stead_status stead_mpi_run(MPI_Comm communicator,
                                         const struct stead_dataset *dataset,
                                         const struct stead_request *request,
                                         struct stead_report **report,
                                         struct stead_error **error) {
    return stead_run_ranks(stead_mpi_make, &communicator, dataset, request, report, error);
}

/**
 * Measures the machines of all ranks of a communicator and the links between them. See stead_calibrate_ranks. Collective.
 *
 * Errors: those of stead_calibrate_ranks; STEAD_USAGE if MPI is not running or has too few threads.
 */
static inline stead_status stead_mpi_calibrate(MPI_Comm communicator,
                                               const char *const *tiers,
                                               size_t n,
                                               double seconds,
                                               const char *output,
                                               struct stead_cancel *cancel,
                                               char **profile,
                                               struct stead_error **error) {
    return stead_calibrate_ranks(stead_mpi_make, &communicator, tiers, n, seconds, output, cancel, profile, error);
}

#ifdef __cplusplus
}
#endif

#endif
