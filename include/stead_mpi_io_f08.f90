! Reads of MPI-IO that compute, for `use mpi_f08`: the subroutines of stead_mpi_io.f90 with handles that are types, and an `ierror`
! that need not be given.
!
!     use mpi_f08
!     use stead_mpi_io_f08
!     call stead_file_read_ex(file, c_loc(sums), count, MPI_DOUBLE_PRECISION, 'sum', MPI_INFO_NULL, bytes)
!
! Both files are compiled with the program:
!
!     mpifort stead_mpi_io.f90 stead_mpi_io_f08.f90 program.f90 $(pkg-config --libs stead_mpi_io) -o program
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module stead_mpi_io_f08
    use, intrinsic :: iso_c_binding
    use mpi_f08
    use stead_mpi_io, only: stead_error_text, init => stead_storage_init, finish => stead_storage_finalize, &
                            register => stead_op_register, open_file => stead_file_open, &
                            read_ex => stead_file_read_ex, read_ex_at => stead_file_read_ex_at
    implicit none
    private
    public :: stead_storage_init, stead_storage_finalize, stead_op_register, stead_file_open, stead_error_text
    public :: stead_file_read_ex, stead_file_read_ex_at, stead_file_read_ex_all, stead_file_read_ex_at_all

contains

    !> Makes storage ranks of some of the ranks of `world`; `compute` is MPI_COMM_NULL on these when it returns. Collective.
    subroutine stead_storage_init(world, hints, compute, ierror)
        type(MPI_Comm), intent(in) :: world
        type(MPI_Info), intent(in) :: hints
        type(MPI_Comm), intent(out) :: compute
        integer, intent(out), optional :: ierror
        integer :: code
        call init(world%MPI_VAL, hints%MPI_VAL, compute%MPI_VAL, code)
        if (present(ierror)) ierror = code
    end subroutine

    !> Says that this compute rank asks for nothing more.
    subroutine stead_storage_finalize(ierror)
        integer, intent(out), optional :: ierror
        integer :: code
        call finish(code)
        if (present(ierror)) ierror = code
    end subroutine

    !> Makes an operation known by a name: c_funloc of a bind(C) subroutine (invec, inoutvec, len, type), of which the last
    !> argument is a handle of C. On all ranks, before stead_storage_init.
    subroutine stead_op_register(name, operation, commutes, ierror)
        character(*), intent(in) :: name
        type(c_funptr), intent(in) :: operation
        logical, intent(in) :: commutes
        integer, intent(out), optional :: ierror
        integer :: code
        call register(name, operation, commutes, code)
        if (present(ierror)) ierror = code
    end subroutine

    !> MPI_File_open, with the name known to the functions below whatever MPI's own Fortran calls.
    subroutine stead_file_open(communicator, name, mode, info, file, ierror)
        type(MPI_Comm), intent(in) :: communicator
        character(*), intent(in) :: name
        integer, intent(in) :: mode
        type(MPI_Info), intent(in) :: info
        type(MPI_File), intent(out) :: file
        integer, intent(out), optional :: ierror
        integer :: code
        call open_file(communicator%MPI_VAL, name, mode, info%MPI_VAL, file%MPI_VAL, code)
        if (present(ierror)) ierror = code
    end subroutine

    !> Computes over `count` items of `datatype` from the file pointer on; `result` is c_loc of the buffer, and `bytes` says how
    !> many bytes of it the result has: 0 at the end of the file.
    subroutine stead_file_read_ex(file, result, count, datatype, kernel, hints, bytes, ierror)
        type(MPI_File), intent(in) :: file
        type(c_ptr), intent(in) :: result
        integer(c_int64_t), intent(in) :: count
        type(MPI_Datatype), intent(in) :: datatype
        character(*), intent(in) :: kernel
        type(MPI_Info), intent(in) :: hints
        integer(c_int64_t), intent(out) :: bytes
        integer, intent(out), optional :: ierror
        integer :: code
        call read_ex(file%MPI_VAL, result, count, datatype%MPI_VAL, kernel, hints%MPI_VAL, bytes, code)
        if (present(ierror)) ierror = code
    end subroutine

    !> The same from `offset` on, from 0 and in elementary types of the view.
    subroutine stead_file_read_ex_at(file, offset, result, count, datatype, kernel, hints, bytes, ierror)
        type(MPI_File), intent(in) :: file
        integer(c_int64_t), intent(in) :: offset, count
        type(c_ptr), intent(in) :: result
        type(MPI_Datatype), intent(in) :: datatype
        character(*), intent(in) :: kernel
        type(MPI_Info), intent(in) :: hints
        integer(c_int64_t), intent(out) :: bytes
        integer, intent(out), optional :: ierror
        integer :: code
        call read_ex_at(file%MPI_VAL, offset, result, count, datatype%MPI_VAL, kernel, hints%MPI_VAL, bytes, code)
        if (present(ierror)) ierror = code
    end subroutine

    !> stead_file_read_ex by all ranks that have opened the file.
    subroutine stead_file_read_ex_all(file, result, count, datatype, kernel, hints, bytes, ierror)
        type(MPI_File), intent(in) :: file
        type(c_ptr), intent(in) :: result
        integer(c_int64_t), intent(in) :: count
        type(MPI_Datatype), intent(in) :: datatype
        character(*), intent(in) :: kernel
        type(MPI_Info), intent(in) :: hints
        integer(c_int64_t), intent(out) :: bytes
        integer, intent(out), optional :: ierror
        call stead_file_read_ex(file, result, count, datatype, kernel, hints, bytes, ierror)
    end subroutine

    !> stead_file_read_ex_at by all ranks that have opened the file.
    subroutine stead_file_read_ex_at_all(file, offset, result, count, datatype, kernel, hints, bytes, ierror)
        type(MPI_File), intent(in) :: file
        integer(c_int64_t), intent(in) :: offset, count
        type(c_ptr), intent(in) :: result
        type(MPI_Datatype), intent(in) :: datatype
        character(*), intent(in) :: kernel
        type(MPI_Info), intent(in) :: hints
        integer(c_int64_t), intent(out) :: bytes
        integer, intent(out), optional :: ierror
        call stead_file_read_ex_at(file, offset, result, count, datatype, kernel, hints, bytes, ierror)
    end subroutine
end module
