/*
 * MPI_File_read_ex and its like.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "io.h"

/* What a call reads. */
struct read {
    MPI_File file;
    bool at; /* `offset` says where, and not the individual file pointer */
    MPI_Offset offset;
    void *result;
    MPI_Count count;
    MPI_Datatype type;
    const char *kernel;
    MPI_Info hints;
    MPI_Status *status;
};

/* How many bytes of the view are computed on, after how many. */
static int part_of(const struct read *r, const struct io_plan *plan, const struct io_view *view, int64_t *skip,
                   int64_t *bytes) {
    MPI_Offset position = r->offset, length;
    MPI_Count size;
    if (!r->at) IO_MPI(MPI_File_get_position(r->file, &position));
    IO_MPI(MPI_File_get_size(r->file, &length));
    IO_MPI(MPI_Type_size_x(r->type, &size));
    if (position < 0) return io_fail(MPI_ERR_ARG, "the offset is %lld", (long long)position);
    if (r->count < 0) return io_fail(MPI_ERR_COUNT, "the count is %lld", (long long)r->count);
    if (__builtin_mul_overflow((int64_t)position, view->etype, skip) ||
        __builtin_mul_overflow((int64_t)r->count, (int64_t)size, bytes) || *skip > INT64_MAX - *bytes)
        return io_fail(MPI_ERR_COUNT, "%lld items from %lld on reach beyond 63 bits", (long long)r->count,
                       (long long)position);
    int64_t left = io_view_left(view, (int64_t)length, *skip);
    if (*bytes > left) *bytes = left;
    /* What the end of the file has of an item is no item. */
    *bytes -= *bytes % plan->unit;
    return MPI_SUCCESS;
}

/* Where the individual file pointer will be. */
static int step_of(const struct read *r, const struct io_view *view, int64_t bytes, MPI_Offset *step) {
    *step = (MPI_Offset)(bytes / view->etype);
    if (r->at || bytes % view->etype == 0) return MPI_SUCCESS;
    return io_fail(MPI_ERR_TYPE,
                   "%lld bytes are no whole elementary types of the view, which have %lld, so that the file pointer "
                   "cannot move "
                   "behind them",
                   (long long)bytes, (long long)view->etype);
}

static int job_of(const char *path, const struct io_plan *plan, const struct io_view *view, int64_t skip, int64_t bytes,
                  stead_report **report) {
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
                                .bytes = (uint64_t)bytes};
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

static int compute(const struct read *r, const char *path, struct io_plan *plan) {
    struct io_view view;
    stead_report *report = NULL;
    int64_t skip = 0, bytes = 0;
    MPI_Offset step = 0;
    int mode;
    IO_MPI(MPI_File_get_amode(r->file, &mode));
    if (mode & MPI_MODE_WRONLY) return io_fail(MPI_ERR_ACCESS, "'%s' was opened to be written alone", path);
    if (mode & MPI_MODE_SEQUENTIAL)
        return io_fail(MPI_ERR_UNSUPPORTED_OPERATION, "'%s' was opened with MPI_MODE_SEQUENTIAL", path);
    IO_TRY(io_plan(plan, r->kernel, r->type, r->hints));
    int code = io_view_of(r->file, &view);
    if (!code) code = part_of(r, plan, &view, &skip, &bytes);
    if (!code) code = step_of(r, &view, bytes, &step);
    /* MPI_BOTTOM is no place either where it is something else than NULL. */
    bool nowhere = !r->result || r->result == MPI_BOTTOM || r->result == MPI_IN_PLACE;
    if (!code && bytes && plan->room && nowhere) code = io_fail(MPI_ERR_BUFFER, "there is no buffer for the result");
    if (!code && bytes) code = job_of(path, plan, &view, skip, bytes, &report);
    io_runs_free(&view.runs);
    if (!code) code = bytes ? io_result(report, plan, r->result, r->status) : io_no_result(plan, r->status);
    stead_report_free(report);
    IO_TRY(code);
    if (!r->at && step) IO_MPI(MPI_File_seek(r->file, step, MPI_SEEK_CUR));
    return MPI_SUCCESS;
}

static int read_ex(const struct read *r) {
    struct io_plan plan = {0};
    char *path;
    int code = io_file_of(r->file, &path, &plan.hints);
    if (!code) code = compute(r, path, &plan);
    io_plan_free(&plan);
    free(path);
    /* Open MPI ends the job when it is asked for the handler of no file. */
    if (code && r->file != MPI_FILE_NULL) MPI_File_call_errhandler(r->file, code);
    return code;
}

IO_PUBLIC int stead_MPI_File_read_ex(MPI_File file, void *result, MPI_Count count, MPI_Datatype type,
                                     const char *kernel, MPI_Info hints, MPI_Status *status) {
    return read_ex(&(struct read){file, false, 0, result, count, type, kernel, hints, status});
}

IO_PUBLIC int stead_MPI_File_read_ex_at(MPI_File file, MPI_Offset offset, void *result, MPI_Count count,
                                        MPI_Datatype type, const char *kernel, MPI_Info hints, MPI_Status *status) {
    return read_ex(&(struct read){file, true, offset, result, count, type, kernel, hints, status});
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
