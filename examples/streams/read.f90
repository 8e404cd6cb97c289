! One of several programs that read a field together, each its rows of it, which are columns in C: read RANK RANKS
program read_stream
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    use stead_stream
    implicit none
    integer(c_int64_t), parameter :: rows = 60, columns = 40
    integer(c_int64_t) :: rank, ranks, first, mine
    real(c_double), allocatable, target :: field(:, :)
    type(c_ptr) :: reader, step
    integer(c_int) :: status

    rank = argument(1)
    ranks = argument(2)
    first = rank * columns / ranks
    mine = (rank + 1) * columns / ranks - first
    allocate (field(mine, rows))

    call stead_reader_open('sim', reader, status, rank=rank, ranks=ranks)
    do while (status == 0)
        call stead_reader_next(reader, step, status)
        if (status /= 0 .or. .not. c_associated(step)) exit
        call stead_step_get(step, 'T', [first + 1, 1_c_int64_t], [mine, rows], c_loc(field), 8_c_size_t * size(field), status)
        if (status == 0) print '(a, i0, a, f0.1)', 'step ', stead_step_number(step), ': mean ', sum(field) / size(field)
        call stead_step_free(step)
    end do
    if (status /= 0) then
        write (error_unit, '(a)') stead_message()
        stop 1, quiet=.true.
    end if
    call stead_reader_close(reader)

contains

    integer(c_int64_t) function argument(n)
        integer, intent(in) :: n
        character(32) :: text
        call get_command_argument(n, text)
        read (text, *) argument
    end function
end program
