/*
 * Ranks of two kinds: those that ask, and those that are where the data are.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "io.h"
#include <stdatomic.h>

/* The way to the storage ranks, NULL if there is none. Handles are told from others, so whoever still asks by one that is freed
 * gets an error. */
static _Atomic(stead_offload *) site;
static bool begun;

int io_run(const struct stead_offload_job *job, const stead_request *request, stead_report **report) {
    stead_error *error = NULL;
    stead_status failed = stead_offload_run(atomic_load(&site), job, request, report, &error);
    return failed ? io_fail_stead(error) : MPI_SUCCESS;
}

IO_PUBLIC int stead_MPI_Storage_finalize(void) {
    /* It says good-bye, and what other threads still ask for is cancelled. */
    stead_offload_free(atomic_exchange(&site, NULL));
    return MPI_SUCCESS;
}

/* What a program that forgets it leaves to MPI_Finalize. */
static void end(void) {
    int running = 0, ended = 0;
    MPI_Initialized(&running);
    MPI_Finalized(&ended);
    if (running && !ended) stead_MPI_Storage_finalize();
    io_files_forget();
}

static int deleted(MPI_Comm self, int key, void *value, void *user) {
    (void)self, (void)key, (void)value, (void)user;
    end();
    return MPI_SUCCESS;
}

/* Attributes of MPI_COMM_SELF are deleted first of all by MPI_Finalize: for programs that do not find the one below. */
static int at_finalize(void) {
    int key;
    IO_MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, deleted, &key, NULL));
    IO_MPI(MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL));
    IO_MPI(MPI_Comm_free_keyval(&key));
    return MPI_SUCCESS;
}

typedef int finalize_fn(void);

static int finalize_with(const char *name) {
    finalize_fn *next;
    end();
    /* Here, too: the next one is that of libstead_mpi only if the program is linked with it before MPI. */
    stead_mpi_end();
    *(void **)&next = io_next(name);
    return next && next != MPI_Finalize && next != PMPI_Finalize ? next() : io_no_next(name);
}

IO_PUBLIC int MPI_Finalize(void) {
    return finalize_with("MPI_Finalize");
}

IO_PUBLIC int PMPI_Finalize(void) {
    return finalize_with("PMPI_Finalize");
}

/* What this rank says of its role: 1 for storage. */
static int role_of(const struct io_hints *hints, int *storage) {
    const char *role = hints->value[IO_ROLE];
    int level = MPI_THREAD_SINGLE;
    *storage = role && strcmp(role, "storage") == 0;
    if (role && !*storage && strcmp(role, "compute") != 0)
        return io_fail(MPI_ERR_INFO_VALUE, "the hint 'role' is '%s', and must be 'storage' or 'compute'", role);
    if (role && hints->value[IO_STORAGE_HOSTS])
        return io_fail(MPI_ERR_INFO_VALUE, "of the hints 'role' and 'storage_hosts' one says who is a storage rank, "
                                           "not both");
    IO_MPI(MPI_Query_thread(&level));
    if ((role || hints->value[IO_STORAGE_HOSTS]) && level != MPI_THREAD_MULTIPLE)
        return io_fail(MPI_ERR_ARG, "MPI has too few threads for storage ranks (call MPI_Init_thread with "
                                    "MPI_THREAD_MULTIPLE)");
    if (begun) return io_fail(MPI_ERR_ARG, "stead_MPI_Storage_init was called before");
    return MPI_SUCCESS;
}

/* Makes the way, on all ranks. */
static int begin(MPI_Comm world, const char *hosts, int storage, MPI_Comm *compute) {
    stead_error *error = NULL;
    stead_offload *made = NULL;
    stead_offload_options options = {
        .size = sizeof options, .storage_hosts = hosts, .is_storage = storage != 0, .resolve = io_resolve};
    if (stead_offload_open(stead_mpi_make, &world, &options, &made, &error)) return io_fail_stead(error);
    if (stead_offload_ranks(made, false) == 0) {
        /* All ranks are where the data are: none has to ask. */
        stead_offload_free(made);
        IO_MPI(MPI_Comm_dup(world, compute));
        return MPI_SUCCESS;
    }
    bool serves = stead_offload_is_storage(made);
    int rank, code;
    if ((code = MPI_Comm_rank(world, &rank)) ||
        (code = MPI_Comm_split(world, serves ? MPI_UNDEFINED : 0, rank, compute))) {
        stead_offload_free(made);
        return io_fail_mpi(code, "MPI_Comm_split");
    }
    if (serves) {
        code = stead_offload_serve(made, &error) ? io_fail_stead(error) : MPI_SUCCESS;
        stead_offload_free(made);
        return code;
    }
    atomic_store(&site, made);
    return at_finalize();
}

static int init(MPI_Comm world, MPI_Info info, MPI_Comm *compute) {
    struct io_hints hints = {0};
    int storage = 0, rank = -1, ranks = 0;
    int code = compute ? io_hints_add(&hints, info, IO_OF_CALL)
                       : io_fail(MPI_ERR_ARG, "there is no place for the communicator of the compute ranks");
    if (!code) code = role_of(&hints, &storage);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &ranks);
    /* The first rank that cannot, and whether there is any storage rank: all go on or none does. */
    int mine[3] = {code ? rank : ranks, -storage, hints.value[IO_STORAGE_HOSTS] ? -1 : 0}, all[3];
    int failed = MPI_Allreduce(mine, all, 3, MPI_INT, MPI_MIN, world);
    if (failed) {
        code = io_fail_mpi(failed, "MPI_Allreduce");
    } else if (all[0] < ranks) {
        if (!code) code = io_fail(MPI_ERR_ARG, "rank %d cannot take part; it has an error of its own", all[0]);
    } else if (!all[1] && !all[2]) {
        failed = MPI_Comm_dup(world, compute);
        if (failed) code = io_fail_mpi(failed, "MPI_Comm_dup");
    } else if (all[2] && !hints.value[IO_STORAGE_HOSTS]) {
        /* Others are told by what comes next. */
        code = begin(world, "", 0, compute);
    } else {
        code = begin(world, hints.value[IO_STORAGE_HOSTS], storage, compute);
    }
    if (!code) begun = true;
    io_hints_free(&hints);
    return code;
}

/* Tells the handler of errors. The default one ends the job, and Open MPI's mpirun may then lose what it was told to show: the text is
   written before. */
static int raise_error(MPI_Comm comm, int code) {
    MPI_Errhandler handler;
    if (!MPI_Comm_get_errhandler(comm, &handler)) {
        if (handler == MPI_ERRORS_ARE_FATAL) {
            fprintf(stderr, "%s\n", stead_MPI_Error_text());
            fflush(stderr);
        }
        MPI_Errhandler_free(&handler);
    }
    MPI_Comm_call_errhandler(comm, code);
    return code;
}

IO_PUBLIC int stead_MPI_Storage_init(MPI_Comm world, MPI_Info hints, MPI_Comm *compute) {
    int code, between = 0;
    if (world == MPI_COMM_NULL) {
        code = io_fail(MPI_ERR_COMM, "the communicator is MPI_COMM_NULL");
        return raise_error(MPI_COMM_SELF, code);
    }
    if (!MPI_Comm_test_inter(world, &between) && between) {
        code = io_fail(MPI_ERR_COMM, "the communicator is one between two groups, and storage ranks are of one");
        return raise_error(world, code);
    }
    if (compute) *compute = MPI_COMM_NULL;
    code = init(world, hints, compute);
    return code ? raise_error(world, code) : MPI_SUCCESS;
}
