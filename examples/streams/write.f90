! One of several programs that write a field together, each its columns of it, which are rows in C, in steps: write RANK WRITERS STEPS
program write_stream
    use, intrinsic :: iso_c_binding
    use stead_stream
    implicit none
    integer(c_int64_t), parameter :: rows = 60, columns = 40
    integer(c_int64_t) :: rank, writers, steps, step, first, mine, i, y
    real(c_double), pointer :: field(:, :)
    type(c_ptr) :: writer, memory, room
    integer(c_int32_t) :: t
    integer(c_int) :: status

    rank = argument(1)
    writers = argument(2)
    steps = argument(3)
    first = rank * rows / writers
    mine = (rank + 1) * rows / writers - first

    call stead_writer_open('sim', writer, status, rank=rank, writers=writers, readers=1_c_int64_t)
    call must(status)
    call stead_writer_define(writer, 'T', STEAD_F64, [columns, rows], t, status)
    call must(status)
    call stead_writer_units(writer, t, 'K', status)
    call must(status)
    do step = 0, steps - 1
        call stead_writer_begin(writer, status)
        call must(status)
        ! The field is made where readers will look at it.
        call stead_writer_empty(writer, t, [1_c_int64_t, first + 1], [columns, mine], memory, room, status)
        call must(status)
        call c_f_pointer(memory, field, [columns, mine])
        do y = 1, mine
            field(:, y) = [(real(step * 10000 + (first + y - 1) * columns + i, c_double), i = 0, columns - 1)]
        end do
        call stead_writer_put_room(writer, room, status)
        call must(status)
        call stead_writer_end(writer, status)
        call must(status)
    end do
    call stead_writer_close(writer, status)
    call must(status)

contains

    integer(c_int64_t) function argument(n)
        integer, intent(in) :: n
        character(32) :: text
        call get_command_argument(n, text)
        read (text, *) argument
    end function

    subroutine must(status)
        use, intrinsic :: iso_fortran_env, only: error_unit
        integer(c_int), intent(in) :: status
        if (status == 0) return
        write (error_unit, '(a)') stead_message()
        stop 1, quiet=.true.
    end subroutine
end program
