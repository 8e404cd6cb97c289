! Reads of MPI-IO that compute, for Fortran: stead_mpi_io.h says what they do.
!
!     use mpi
!     use stead_mpi_io
!     call stead_file_read_ex(file, c_loc(sums), count, MPI_DOUBLE_PRECISION, 'sum', MPI_INFO_NULL, bytes, ierror)
!
! Handles are the integers of `use mpi` and mpif.h; of `use mpi_f08` the member MPI_VAL of each is given. Modules are made by the
! compiler that uses them, so this is compiled with the program:
!
!     mpifort stead_mpi_io.f90 program.f90 $(pkg-config --libs stead_mpi_io) -o program
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module stead_mpi_io
    use, intrinsic :: iso_c_binding
    implicit none
    private
    public :: stead_storage_init, stead_storage_finalize, stead_op_register, stead_file_open, stead_error_text
    public :: stead_file_read_ex, stead_file_read_ex_at, stead_file_read_ex_all, stead_file_read_ex_at_all

    interface
        integer(c_int) function c_open(communicator, name, mode, info, file) bind(C, name='stead_mpi_io_open_f')
            import :: c_int, c_char
            integer(c_int), value :: communicator, mode, info
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int), intent(out) :: file
        end function

        integer(c_int) function c_read(file, at, result, count, type, kernel, hints, bytes) bind(C, name='stead_mpi_io_read_f')
            import :: c_int, c_int64_t, c_ptr, c_char
            integer(c_int), value :: file, type, hints
            integer(c_int64_t), intent(in), optional :: at
            integer(c_int64_t), value :: count
            type(c_ptr), value :: result
            character(kind=c_char), intent(in) :: kernel(*)
            integer(c_int64_t), intent(out) :: bytes
        end function

        integer(c_int) function c_init(world, hints, compute) bind(C, name='stead_mpi_io_storage_init_f')
            import :: c_int
            integer(c_int), value :: world, hints
            integer(c_int), intent(out) :: compute
        end function

        integer(c_int) function c_finalize() bind(C, name='stead_MPI_Storage_finalize')
            import :: c_int
        end function

        integer(c_int) function c_register(name, operation, commutes) bind(C, name='stead_MPI_Op_register')
            import :: c_int, c_char, c_funptr
            character(kind=c_char), intent(in) :: name(*)
            type(c_funptr), value :: operation
            integer(c_int), value :: commutes
        end function

        type(c_ptr) function c_text() bind(C, name='stead_MPI_Error_text')
            import :: c_ptr
        end function

        integer(c_size_t) function c_length(text) bind(C, name='strlen')
            import :: c_ptr, c_size_t
            type(c_ptr), value :: text
        end function
    end interface

contains

    !> Makes storage ranks of some of the ranks of `world`; `compute` is MPI_COMM_NULL on these when it returns. Collective.
    subroutine stead_storage_init(world, hints, compute, ierror)
        integer, intent(in) :: world, hints
        integer, intent(out) :: compute, ierror
        ierror = c_init(world, hints, compute)
    end subroutine

    !> Says that this compute rank asks for nothing more.
    subroutine stead_storage_finalize(ierror)
        integer, intent(out) :: ierror
        ierror = c_finalize()
    end subroutine

    !> Makes an operation known by a name: c_funloc of a bind(C) subroutine (invec, inoutvec, len, type), of which the last
    !> argument is a handle of C. On all ranks, before stead_storage_init.
    subroutine stead_op_register(name, operation, commutes, ierror)
        character(*), intent(in) :: name
        type(c_funptr), intent(in) :: operation
        logical, intent(in) :: commutes
        integer, intent(out) :: ierror
        ierror = c_register(trim(name) // c_null_char, operation, merge(1_c_int, 0_c_int, commutes))
    end subroutine

    !> MPI_FILE_OPEN, with the name known to the functions below whatever MPI's own Fortran calls.
    subroutine stead_file_open(communicator, name, mode, info, file, ierror)
        integer, intent(in) :: communicator, mode, info
        character(*), intent(in) :: name
        integer, intent(out) :: file, ierror
        ierror = c_open(communicator, trim(name) // c_null_char, mode, info, file)
    end subroutine

    !> Computes over `count` items of `type` from the file pointer on; `result` is c_loc of the buffer, and `bytes` says how many
    !> bytes of it the result has: 0 at the end of the file.
    subroutine stead_file_read_ex(file, result, count, type, kernel, hints, bytes, ierror)
        integer, intent(in) :: file, type, hints
        type(c_ptr), intent(in) :: result
        integer(c_int64_t), intent(in) :: count
        character(*), intent(in) :: kernel
        integer(c_int64_t), intent(out) :: bytes
        integer, intent(out) :: ierror
        ierror = c_read(file, result=result, count=count, type=type, kernel=trim(kernel) // c_null_char, &
                        hints=hints, bytes=bytes)
    end subroutine

    !> The same from `offset` on, from 0 and in elementary types of the view.
    subroutine stead_file_read_ex_at(file, offset, result, count, type, kernel, hints, bytes, ierror)
        integer, intent(in) :: file, type, hints
        integer(c_int64_t), intent(in) :: offset, count
        type(c_ptr), intent(in) :: result
        character(*), intent(in) :: kernel
        integer(c_int64_t), intent(out) :: bytes
        integer, intent(out) :: ierror
        ierror = c_read(file, offset, result, count, type, trim(kernel) // c_null_char, hints, bytes)
    end subroutine

    !> stead_file_read_ex by all ranks that have opened the file.
    subroutine stead_file_read_ex_all(file, result, count, type, kernel, hints, bytes, ierror)
        integer, intent(in) :: file, type, hints
        type(c_ptr), intent(in) :: result
        integer(c_int64_t), intent(in) :: count
        character(*), intent(in) :: kernel
        integer(c_int64_t), intent(out) :: bytes
        integer, intent(out) :: ierror
        call stead_file_read_ex(file, result, count, type, kernel, hints, bytes, ierror)
    end subroutine

    !> stead_file_read_ex_at by all ranks that have opened the file.
    subroutine stead_file_read_ex_at_all(file, offset, result, count, type, kernel, hints, bytes, ierror)
        integer, intent(in) :: file, type, hints
        integer(c_int64_t), intent(in) :: offset, count
        type(c_ptr), intent(in) :: result
        character(*), intent(in) :: kernel
        integer(c_int64_t), intent(out) :: bytes
        integer, intent(out) :: ierror
        call stead_file_read_ex_at(file, offset, result, count, type, kernel, hints, bytes, ierror)
    end subroutine

    !> The text of the last error.
    function stead_error_text() result(text)
        character(:), allocatable :: text
        character(kind=c_char), pointer :: bytes(:)
        type(c_ptr) :: at
        integer :: i
        at = c_text()
        call c_f_pointer(at, bytes, [c_length(at)])
        allocate (character(size(bytes)) :: text)
        do i = 1, size(bytes)
            text(i:i) = bytes(i)
        end do
    end function
end module
