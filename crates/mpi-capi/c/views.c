/*
 * The view of a file: which of its bytes are seen.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "io.h"

int io_view_made(MPI_Datatype etype, MPI_Datatype filetype, const char *as, MPI_Offset displacement,
                 struct io_view *view) {
    *view = (struct io_view){0};
    MPI_Count size, least, extent;
    struct io_elements elements;
    IO_MPI(MPI_Type_size_x(etype, &size));
    view->etype = (int64_t)size;
    if (size <= 0) return io_fail(MPI_ERR_TYPE, "the elementary type of the view has no bytes");
    IO_TRY(io_type_elements(etype, &elements));
    /* Single bytes are the same in any representation. */
    if (strcmp(as, "native") != 0 && strcmp(as, "internal") != 0 && elements.size != 1)
        return io_fail(MPI_ERR_UNSUPPORTED_DATAREP,
                       "the view has the data representation '%s', and kernels compute on native data "
                       "(set the view with \"native\")",
                       as);
    IO_TRY(io_type_runs(filetype, &view->runs));
    IO_MPI(MPI_Type_get_extent_x(filetype, &least, &extent));
    view->displacement = (int64_t)displacement;
    view->extent = (int64_t)extent;
    if (!view->runs.count) return MPI_SUCCESS;
    /* Tiles begin with their first run. */
    int64_t first = view->runs.at[0].offset;
    if (__builtin_add_overflow(view->displacement, first, &view->displacement) || view->displacement < 0)
        return io_fail(MPI_ERR_TYPE, "the file type of the view begins %lld bytes before the file",
                       (long long)-view->displacement);
    for (size_t i = 0; i < view->runs.count; i++) {
        view->runs.at[i].offset -= first;
        view->bytes += view->runs.at[i].length;
    }
    const struct io_run *last = &view->runs.at[view->runs.count - 1];
    if (last->offset + last->length > view->extent)
        return io_fail(MPI_ERR_TYPE,
                       "the parts of the file type reach %lld bytes, which is more than its extent of %lld, so that "
                       "its "
                       "repetitions are in each other (MPI_Type_create_resized makes the extent larger)",
                       (long long)(last->offset + last->length), (long long)view->extent);
    return MPI_SUCCESS;
}

int io_view_of(MPI_File file, struct io_view *view) {
    MPI_Offset displacement;
    *view = (struct io_view){0};
    MPI_Datatype etype = MPI_DATATYPE_NULL, filetype = MPI_DATATYPE_NULL;
    char as[MPI_MAX_DATAREP_STRING + 1] = "";
    IO_MPI(MPI_File_get_view(file, &displacement, &etype, &filetype, as));
    int code = io_view_made(etype, filetype, as, displacement, view);
    io_type_free(&etype);
    io_type_free(&filetype);
    return code;
}

int64_t io_view_left(const struct io_view *view, int64_t length, int64_t skip) {
    if (!view->bytes || length <= view->displacement) return 0;
    int64_t tiles = (length - view->displacement) / view->extent, rest = (length - view->displacement) % view->extent,
            seen;
    if (__builtin_mul_overflow(tiles, view->bytes, &seen)) return INT64_MAX - skip;
    for (size_t i = 0; i < view->runs.count && view->runs.at[i].offset < rest; i++) {
        const struct io_run *run = &view->runs.at[i];
        seen += run->offset + run->length <= rest ? run->length : rest - run->offset;
    }
    return seen > skip ? seen - skip : 0;
}
