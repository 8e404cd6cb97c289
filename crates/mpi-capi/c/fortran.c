/*
 * The same for Fortran, whose handles are integers: include/stead_mpi_io.f90 declares these functions.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include "io.h"

IO_PUBLIC int stead_mpi_io_open_f(MPI_Fint communicator, const char *name, int mode, MPI_Fint info, MPI_Fint *file) {
    MPI_File opened = MPI_FILE_NULL;
    int code = stead_MPI_File_open(MPI_Comm_f2c(communicator), name, mode, MPI_Info_f2c(info), &opened);
    *file = MPI_File_c2f(opened);
    return code;
}

/* `at` is NULL for the individual file pointer. `bytes` are those of the result. */
IO_PUBLIC int stead_mpi_io_read_f(MPI_Fint file, const int64_t *at, void *result, int64_t count, MPI_Fint type,
                                  const char *kernel, MPI_Fint hints, int64_t *bytes) {
    MPI_Status status;
    MPI_Count n = 0;
    MPI_File handle = MPI_File_f2c(file);
    MPI_Datatype items = MPI_Type_f2c(type);
    MPI_Info info = MPI_Info_f2c(hints);
    int code = !at ? stead_MPI_File_read_ex(handle, result, (MPI_Count)count, items, kernel, info, &status)
                   : stead_MPI_File_read_ex_at(handle, (MPI_Offset)*at, result, (MPI_Count)count, items, kernel, info,
                                               &status);
    if (!code) IO_MPI(MPI_Get_elements_x(&status, MPI_BYTE, &n));
    *bytes = (int64_t)n;
    return code;
}

IO_PUBLIC int stead_mpi_io_storage_init_f(MPI_Fint world, MPI_Fint hints, MPI_Fint *compute) {
    MPI_Comm made = MPI_COMM_NULL;
    int code = stead_MPI_Storage_init(MPI_Comm_f2c(world), MPI_Info_f2c(hints), &made);
    *compute = MPI_Comm_c2f(made);
    return code;
}
