/*
 * MPI_File_read_ex and its like.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "io.h"
#include <pthread.h>

/* The individual file pointer of any file moves under it, so that threads that read on get one part each. A file's error handler may
 * be called under it, and may read, too; it must return. */
static pthread_mutex_t pointers = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* What a call reads. */
struct read {
    bool told; /* MPI has called the file's error handler already */
    MPI_File file;
    bool at; /* `offset` says where, and not the individual file pointer */
    MPI_Offset offset, length; /* the latter of the file, when it is looked at */
    void *result;
    MPI_Count count;
    MPI_Datatype type;
    const char *kernel;
    MPI_Info hints;
    MPI_Status *status;
};

/* A call of MPI on the file, whose errors its handler has heard of. */
#define IO_FILE(call)                                                                                                  \
    do {                                                                                                               \
        int tried_ = (call);                                                                                           \
        if (tried_) {                                                                                                  \
            r->told = true;                                                                                            \
            return io_fail_mpi(tried_, #call);                                                                         \
        }                                                                                                              \
    } while (0)

/* How many bytes of the view are computed on, after how many. */
static int part_of(struct read *r, const struct io_plan *plan, const struct io_view *view, int64_t *skip,
                   int64_t *bytes) {
    MPI_Offset position = r->offset;
    MPI_Count size;
    if (!r->at) IO_FILE(MPI_File_get_position(r->file, &position));
    IO_MPI(MPI_Type_size_x(r->type, &size));
    if (position < 0) return io_fail(MPI_ERR_ARG, "the offset is %lld", (long long)position);
    if (r->count < 0) return io_fail(MPI_ERR_COUNT, "the count is %lld", (long long)r->count);
    if (__builtin_mul_overflow((int64_t)position, view->etype, skip) ||
        __builtin_mul_overflow((int64_t)r->count, (int64_t)size, bytes) || *skip > INT64_MAX - *bytes)
        return io_fail(MPI_ERR_COUNT, "%lld items from %lld on reach beyond 63 bits", (long long)r->count,
                       (long long)position);
    int64_t left = io_view_left(view, (int64_t)r->length, *skip);
    if (*bytes > left) *bytes = left;
    /* What the end of the file has of an item is no item. */
    *bytes -= *bytes % plan->unit;
    return MPI_SUCCESS;
}

/* Moves the individual file pointer behind what is read. */
static int step(struct read *r, const struct io_view *view, int64_t bytes) {
    if (bytes % view->etype)
        return io_fail(MPI_ERR_TYPE,
                       "%lld bytes are no whole elementary types of the view, which have %lld, so that the file "
                       "pointer cannot move behind them",
                       (long long)bytes, (long long)view->etype);
    if (bytes) IO_FILE(MPI_File_seek(r->file, (MPI_Offset)(bytes / view->etype), MPI_SEEK_CUR));
    return MPI_SUCCESS;
}

/* The part that is read. As MPI has it, the file pointer moves when a read begins, whatever comes of it. */
static int claim(struct read *r, const struct io_plan *plan, const struct io_view *view, int64_t *skip, int64_t *bytes) {
    /* Asked of the file system, for which reads of other files do not wait. */
    IO_FILE(MPI_File_get_size(r->file, &r->length));
    if (r->at) return part_of(r, plan, view, skip, bytes);
    pthread_mutex_lock(&pointers);
    int code = part_of(r, plan, view, skip, bytes);
    if (!code) code = step(r, view, *bytes);
    pthread_mutex_unlock(&pointers);
    return code;
}

static int job_of(const char *path, const struct io_plan *plan, const struct io_view *view, MPI_Offset length,
                  int64_t skip, int64_t bytes, stead_report **report) {
    stead_options *options = NULL;
    stead_request *request = NULL;
    stead_stretch *stretches = malloc((view->runs.count + 1) * sizeof *stretches);
    const char *operations[] = {plan->spec};
    int code =
        stretches ? io_plan_ask(plan, bytes, &options, &request) : io_fail(MPI_ERR_NO_MEM, "no memory for a view");
    if (!code) {
        for (size_t i = 0; i < view->runs.count; i++)
            stretches[i] = (stead_stretch){(uint64_t)view->runs.at[i].offset, (uint64_t)view->runs.at[i].length};
        stead_file_view seen = {.size = sizeof seen,
                                .displacement = (uint64_t)view->displacement,
                                .extent = (uint64_t)view->extent,
                                .stretches = stretches,
                                .stretch_count = view->runs.count,
                                .skip = (uint64_t)skip,
                                .bytes = (uint64_t)bytes,
                                .file_bytes = (uint64_t)length};
        stead_offload_job job = {.size = sizeof job,
                                 .paths = &path,
                                 .path_count = 1,
                                 .options = options,
                                 .view = &seen,
                                 .operations = operations,
                                 .operation_count = plan->operation ? 1 : 0,
                                 .resolve = io_resolve};
        code = io_run(&job, request, report);
    }
    free(stretches);
    stead_options_free(options);
    stead_request_free(request);
    return code;
}

static int compute(struct read *r, const char *path, struct io_plan *plan) {
    struct io_view view;
    stead_report *report = NULL;
    int64_t skip = 0, bytes = 0;
    int mode;
    IO_FILE(MPI_File_get_amode(r->file, &mode));
    if (mode & MPI_MODE_WRONLY) return io_fail(MPI_ERR_ACCESS, "'%s' was opened to be written alone", path);
    if (mode & MPI_MODE_SEQUENTIAL)
        return io_fail(MPI_ERR_UNSUPPORTED_OPERATION, "'%s' was opened with MPI_MODE_SEQUENTIAL", path);
    IO_TRY(io_plan(plan, r->kernel, r->type, r->hints));
    /* MPI_BOTTOM is no place either where it is something else than NULL. */
    if (plan->room && r->count && (!r->result || r->result == MPI_BOTTOM || r->result == MPI_IN_PLACE))
        return io_fail(MPI_ERR_BUFFER, "there is no buffer for the result");
    int code = io_view_of(r->file, &view);
    if (!code) code = claim(r, plan, &view, &skip, &bytes);
    if (!code && bytes) code = job_of(path, plan, &view, r->length, skip, bytes, &report);
    io_runs_free(&view.runs);
    if (!code) code = bytes ? io_result(report, plan, r->result, r->status) : io_no_result(plan, r->status);
    stead_report_free(report);
    return code;
}

static int read_ex(struct read *r) {
    struct io_plan plan = {0};
    char *path;
    int code = io_file_of(r->file, &path, &plan.hints);
    if (!code) code = compute(r, path, &plan);
    io_plan_free(&plan);
    free(path);
    /* Open MPI ends the job when it is asked for the handler of no file. */
    if (code && !r->told && r->file != MPI_FILE_NULL) MPI_File_call_errhandler(r->file, code);
    return code;
}

IO_PUBLIC int stead_MPI_File_read_ex(MPI_File file, void *result, MPI_Count count, MPI_Datatype type,
                                     const char *kernel, MPI_Info hints, MPI_Status *status) {
    return read_ex(&(struct read){false, file, false, 0, 0, result, count, type, kernel, hints, status});
}

IO_PUBLIC int stead_MPI_File_read_ex_at(MPI_File file, MPI_Offset offset, void *result, MPI_Count count,
                                        MPI_Datatype type, const char *kernel, MPI_Info hints, MPI_Status *status) {
    return read_ex(&(struct read){false, file, true, offset, 0, result, count, type, kernel, hints, status});
}

/* Each rank asks for its own part: nobody has to wait for anybody, whatever the others read. */
IO_PUBLIC int stead_MPI_File_read_ex_all(MPI_File file, void *result, MPI_Count count, MPI_Datatype type,
                                         const char *kernel, MPI_Info hints, MPI_Status *status) {
    return stead_MPI_File_read_ex(file, result, count, type, kernel, hints, status);
}

IO_PUBLIC int stead_MPI_File_read_ex_at_all(MPI_File file, MPI_Offset offset, void *result, MPI_Count count,
                                            MPI_Datatype type, const char *kernel, MPI_Info hints, MPI_Status *status) {
    return stead_MPI_File_read_ex_at(file, offset, result, count, type, kernel, hints, status);
}
