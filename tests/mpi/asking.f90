! What Fortran has of its own: files that its MPI_FILE_OPEN opens, file pointers, offsets that are none, and operations.
!
!   asking-fortran FILE     of doubles
module operations
    use, intrinsic :: iso_c_binding
    implicit none
contains
    !> The largest one, for stead_op_register.
    subroutine largest(in, inout, n, type) bind(C)
        integer(c_int), intent(in) :: n
        real(c_double), intent(in) :: in(n)
        real(c_double), intent(inout) :: inout(n)
        type(c_ptr), intent(in) :: type
        if (c_associated(type)) inout = max(in, inout)
    end subroutine
end module

!> Of its own, for MPI_OP_CREATE, with a handle that is an integer.
subroutine smallest(in, inout, n, type)
    implicit none
    integer :: n, type
    double precision :: in(n), inout(n)
    if (type /= 0) inout = min(in, inout)
end subroutine

program asking
    use, intrinsic :: iso_c_binding
    use mpi
    use stead_mpi_io
    use operations
    implicit none
    external :: smallest
    integer :: ierror, level, file, op
    integer(c_int64_t) :: got
    integer(MPI_OFFSET_KIND) :: at
    real(c_double), target :: x(100), result
    character(1024) :: path

    call get_command_argument(1, path)
    call MPI_Init_thread(MPI_THREAD_MULTIPLE, level, ierror)
    call stead_op_register('the_largest', c_funloc(largest), .true., ierror)
    call check(ierror == MPI_SUCCESS, 1)
    call MPI_Op_create(smallest, .true., op, ierror)
    call MPI_File_open(MPI_COMM_WORLD, trim(path), MPI_MODE_RDONLY, MPI_INFO_NULL, file, ierror)
    call check(ierror == MPI_SUCCESS, 2)
    call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, MPI_DOUBLE_PRECISION, MPI_DOUBLE_PRECISION, 'native', MPI_INFO_NULL, &
                           ierror)
    call MPI_File_read_at(file, 0_MPI_OFFSET_KIND, x, 100, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, ierror)
    call MPI_File_seek(file, 10_MPI_OFFSET_KIND, MPI_SEEK_SET, ierror)
    call stead_file_read_ex(file, c_loc(result), 20_c_int64_t, MPI_DOUBLE_PRECISION, 'max', MPI_INFO_NULL, got, ierror)
    call check(ierror == MPI_SUCCESS .and. got == 8 .and. result == maxval(x(11:30)), 3)
    call stead_file_read_ex_all(file, c_loc(result), 70_c_int64_t, MPI_DOUBLE_PRECISION, 'the_largest', MPI_INFO_NULL, got, ierror)
    call check(ierror == MPI_SUCCESS .and. got == 8 .and. result == maxval(x(31:100)), 4)
    call MPI_File_get_position(file, at, ierror)
    call check(at == 100, 5)
    call stead_file_read_ex_at(file, 5_c_int64_t, c_loc(result), 3_c_int64_t, MPI_DOUBLE_PRECISION, 'MPI_MIN', MPI_INFO_NULL, &
                               got, ierror)
    call check(ierror == MPI_SUCCESS .and. got == 8 .and. result == minval(x(6:8)), 6)
    call stead_file_read_ex_at(file, -1_c_int64_t, c_loc(result), 3_c_int64_t, MPI_DOUBLE_PRECISION, 'max', MPI_INFO_NULL, &
                               got, ierror)
    call check(ierror /= MPI_SUCCESS .and. got == 0 .and. index(stead_error_text(), 'the offset is -1') > 0, 7)
    ! C would call it with a handle that is none to it.
    call stead_file_read_ex_at(file, 0_c_int64_t, c_loc(result), 3_c_int64_t, MPI_DOUBLE_PRECISION, 'smallest_', &
                               MPI_INFO_NULL, got, ierror)
    call check(ierror /= MPI_SUCCESS .and. index(stead_error_text(), 'no operation') > 0, 8)
    call MPI_Op_free(op, ierror)
    call MPI_File_close(file, ierror)
    call MPI_Finalize(ierror)
    print '(a)', 'right'

contains

    subroutine check(is_so, number)
        logical, intent(in) :: is_so
        integer, intent(in) :: number
        if (is_so) return
        print '(a, i0, 2a)', 'check ', number, ': ', stead_error_text()
        call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
    end subroutine
end program
