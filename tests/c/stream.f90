! Options of streams in Fortran: recorded steps, groups, where they begin and what happens when they are behind, a very step, attributes.
program options_of_streams
    use, intrinsic :: iso_c_binding
    use stead_stream
    implicit none
    integer(c_int64_t), parameter :: one = 1, wait = 60000, few = 4
    type(c_ptr) :: writer, reader, step
    integer(c_int32_t) :: t
    integer(c_int) :: status
    integer(c_int64_t) :: n
    real(c_double), target :: field(few), got(few)
    character(1024) :: folder

    call get_command_argument(1, folder)
    call stead_writer_open('sim', writer, status, keep=one, timeout_ms=wait, persist=trim(folder))
    call must(status)
    call stead_writer_define(writer, 'T', STEAD_F64, [few], t, status)
    call must(status)
    call stead_writer_attribute(writer, t, 'units', 'K', status)
    call must(status)
    call stead_writer_attribute(writer, t, 'level', 3_c_int64_t, status)
    call must(status)
    call stead_writer_attribute(writer, t, 'scale', 0.5_c_double, status)
    call must(status)
    do n = 0, 4
        field = real(n, c_double)
        call stead_writer_begin(writer, status)
        call must(status)
        call stead_writer_put(writer, t, [one], [few], c_loc(field), status)
        call must(status)
        call stead_writer_end(writer, status)
        call must(status)
    end do

    ! From the first step on, which has gone from memory, and nobody waits for it.
    call stead_reader_open('sim', reader, status, timeout_ms=wait, group='late', &
        start=STEAD_STREAM_FIRST, behind=STEAD_STREAM_SPILL)
    call must(status)
    do n = 0, 4
        call stead_reader_next(reader, step, status)
        call must(status)
        call is(n)
    end do
    call stead_reader_close(reader)

    ! A very step, of the folder.
    call stead_writer_close(writer, status)
    call must(status)
    call stead_reader_open(trim(folder), reader, status, threads=one)
    call must(status)
    call stead_reader_wait_for(reader, 'T', 3_c_int64_t, wait, step, status)
    call must(status)
    call is(3_c_int64_t)
    call stead_reader_wait_for(reader, 'U', 3_c_int64_t, wait, step, status)
    if (status == 0 .or. c_associated(step)) error stop 'a variable that is not there'
    call stead_reader_close(reader)

    ! What makes no sense is refused.
    call stead_writer_open('other', writer, status, spill_limit=one)
    if (status == 0) error stop 'a limit of nothing'
    print '(a)', 'all is well'

contains

    subroutine is(n)
        integer(c_int64_t), intent(in) :: n
        if (stead_step_number(step) /= n) error stop 'another step'
        call stead_step_get(step, 'T', [one], [few], c_loc(got), c_sizeof(got), status)
        call must(status)
        if (any(nint(got, c_int64_t) /= n)) error stop 'other values'
        call stead_step_free(step)
    end subroutine

    subroutine must(status)
        use, intrinsic :: iso_fortran_env, only: error_unit
        integer(c_int), intent(in) :: status
        if (status == 0) return
        write (error_unit, '(a)') stead_message()
        error stop
    end subroutine
end program
