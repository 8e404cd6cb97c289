! Options of streams in Fortran: recorded steps, groups, where they begin and what happens when they are behind, a very step, attributes;
! shapes, also of more than 32 bits can count, what is given up, and names with blanks behind them.
program options_of_streams
    use, intrinsic :: iso_c_binding
    use stead_stream
    use stead_stream_told
    use stead_stream_buffer
    implicit none
    integer(c_int64_t), parameter :: one = 1, wait = 60000, few = 4, two = 2, many = 2000
    integer(c_int64_t), parameter :: b20 = 2_c_int64_t**20, b32 = 2_c_int64_t**32, b39 = 2_c_int64_t**39, b40 = 2_c_int64_t**40
    character(8), parameter :: name = 'T', image = 'image', units = 'units', kelvin = 'K'
    type(c_ptr) :: writer, reader, step, memory, room, buffer
    real(c_double), pointer :: made(:, :)
    character(:), allocatable :: json
    integer(c_int32_t) :: t, i
    integer(c_int) :: status, dtype
    integer(c_int64_t) :: n
    integer(c_int64_t), allocatable :: lengths(:)
    real(c_double), target :: field(few), got(few)
    real(c_float), target :: pixels(few, two)
    integer(c_int8_t), target :: bytes(many), some(few)
    character(1024) :: folder

    call get_command_argument(1, folder)
    call stead_writer_open('sim  ', writer, status, keep=one, timeout_ms=wait, persist=folder)
    call must(status)
    call stead_writer_define(writer, name, STEAD_F64, [few], t, status)
    call must(status)
    call stead_writer_attribute(writer, t, units, kelvin, status)
    call must(status)
    call stead_writer_attribute(writer, t, 'level ', 3_c_int64_t, status)
    call must(status)
    call stead_writer_attribute(writer, t, 'scale ', 0.5_c_double, status)
    call must(status)
    call stead_writer_define(writer, image, STEAD_F32, [few, two], i, status)
    call must(status)
    call stead_writer_units(writer, i, kelvin, status)
    call must(status)
    pixels = 0
    do n = 0, 4
        field = real(n, c_double)
        call stead_writer_begin(writer, status)
        call must(status)
        call stead_writer_put(writer, t, [one], [few], c_loc(field), status)
        call must(status)
        call stead_writer_put(writer, i, [one, one], [few, two], c_loc(pixels), status)
        call must(status)
        ! Lists are as long as the variable has dimensions.
        call stead_writer_put(writer, i, [one], [few], c_loc(pixels), status)
        call is_no_place(status)
        call stead_writer_empty(writer, i, [one, one], [few], memory, room, status)
        call is_no_place(status)
        call stead_writer_end(writer, status)
        call must(status)
    end do

    ! From the first step on, which has gone from memory, and nobody waits for it.
    call stead_reader_open('sim  ', reader, status, timeout_ms=wait, group='late  ', &
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
    call stead_reader_open(folder, reader, status, threads=one)
    call must(status)
    call stead_reader_wait_for(reader, name, 3_c_int64_t, wait, step, status)
    call must(status)
    call is(3_c_int64_t)
    call stead_reader_wait_for(reader, 'U', 3_c_int64_t, wait, step, status)
    if (status == 0 .or. c_associated(step)) error stop 'a variable that is not there'
    call stead_reader_close(reader)

    ! No step is to stay, and it is given up: readers are told.
    call stead_writer_open('brief', writer, status, keep=STEAD_STREAM_KEEP_NONE, timeout_ms=wait)
    call must(status)
    call stead_writer_define(writer, name, STEAD_F64, [few], t, status)
    call must(status)
    call stead_reader_open('brief', reader, status, timeout_ms=wait)
    call must(status)
    call stead_writer_begin(writer, status)
    call must(status)
    call stead_writer_empty(writer, t, [one], [few], memory, room, status)
    call must(status)
    call stead_room_free(room)
    call stead_writer_put_room(writer, room, status)
    if (status == 0) error stop 'a room that was freed'
    call stead_writer_abandon(writer, status)
    call must(status)
    call stead_reader_next(reader, step, status)
    if (status == 0 .or. c_associated(step)) error stop 'a stream that was given up'
    call stead_reader_close(reader)

    ! Made before there is a writer, and put where it lies; a step has it when it is freed.
    call stead_stream_empty(16 * many * few, memory, buffer, status)
    call must(status)
    call c_f_pointer(memory, made, [many, 2 * few])
    made = 2
    made(many, few) = 7
    call stead_writer_open('made', writer, status, timeout_ms=wait)
    call must(status)
    call stead_writer_define(writer, name, STEAD_F64, [many, 4 * few], t, status)
    call must(status)
    call stead_writer_begin(writer, status)
    call must(status)
    call stead_writer_put_buffer(writer, t, [one, one], [many, 2 * few], buffer, status)
    call must(status)
    call stead_writer_put_buffer(writer, t, [one, 1 + 2 * few], [many, 2 * few], buffer, status)
    call must(status)
    call stead_writer_put_buffer(writer, t, [one, one], [many, 4 * few], buffer, status)
    if (status == 0) error stop 'a block that is larger than its buffer'
    call stead_writer_end(writer, status)
    call must(status)
    call stead_writer_report(writer, json, status)
    call must(status)
    if (index(json, '"copied": 0') == 0) error stop 'what was made was copied'
    deallocate(json)
    call stead_buffer_free(buffer)
    call stead_writer_close(writer, status)
    call must(status)
    call stead_reader_open('made', reader, status, timeout_ms=wait)
    call must(status)
    call stead_reader_next(reader, step, status)
    call must(status)
    call stead_step_get(step, name, [many, one], [one, few], c_loc(got), c_sizeof(got), status)
    call must(status)
    if (any(nint(got) /= [2, 2, 2, 7])) error stop 'other values of what was made'
    call stead_step_free(step)
    call stead_reader_close(reader)

    ! A group with a queue and a keep of its own is given the newest step.
    call stead_writer_open('own', writer, status, timeout_ms=wait)
    call must(status)
    call stead_writer_define(writer, name, STEAD_F64, [few], t, status)
    call must(status)
    call stead_reader_open('own', reader, status, timeout_ms=wait, behind=STEAD_STREAM_DROP, queue=one, keep=two)
    call must(status)
    do n = 0, 5
        field = real(n, c_double)
        call stead_writer_begin(writer, status)
        call must(status)
        call stead_writer_put(writer, t, [one], [few], c_loc(field), status)
        call must(status)
        call stead_writer_end(writer, status)
        call must(status)
        if (mod(n, two) == 0) cycle
        call stead_reader_next(reader, step, status)
        call must(status)
        if (stead_step_number(step) /= n) error stop 'a step that is not the newest one'
        call stead_step_free(step)
    end do
    call stead_reader_at(reader, 3_c_int64_t, step, status)
    call must(status)
    call stead_step_free(step)
    call stead_reader_at(reader, one, step, status)
    if (status == 0 .or. c_associated(step)) error stop 'a step that is not kept'
    call stead_reader_close(reader)
    call stead_writer_close(writer, status)
    call must(status)

    ! Far beyond what 32 bits can count, where a block begins below that and ends above, and where only both dimensions together do.
    call stead_writer_open('far', writer, status, timeout_ms=wait)
    call must(status)
    call stead_writer_define(writer, name, STEAD_U8, [b40], t, status)
    call must(status)
    call stead_writer_define(writer, image, STEAD_U8, [b20, b20], i, status)
    call must(status)
    call stead_writer_begin(writer, status)
    call must(status)
    bytes = along(b32 - 1000, many)
    call stead_writer_put(writer, t, [b32 - 1000], [many], c_loc(bytes), status)
    call must(status)
    bytes = along(b39 + 1, many)
    call stead_writer_put(writer, t, [b39 + 1], [many], c_loc(bytes), status)
    call must(status)
    bytes = along(one, many)
    call stead_writer_put(writer, i, [8_c_int64_t, 4096_c_int64_t], [many / 2, two], c_loc(bytes), status)
    call must(status)
    call stead_writer_end(writer, status)
    call must(status)
    call stead_writer_close(writer, status)
    call must(status)
    call stead_reader_open('far', reader, status, timeout_ms=wait)
    call must(status)
    call stead_reader_next(reader, step, status)
    call must(status)
    call stead_step_shape(step, name, lengths, status)
    call must(status)
    if (size(lengths) /= 1 .or. any(lengths /= b40)) error stop 'another shape of a long array'
    call is_there(name, [b32 - 1], [few], along(b32 - 1, few))
    call is_there(name, [b39 + 500], [few], along(b39 + 500, few))
    call is_there(image, [10_c_int64_t, 4097_c_int64_t], [few, one], along(many / 2 + 3, few))
    call stead_step_get(step, name, [b39], [few], c_loc(some), c_sizeof(some), status)
    if (status == 0) error stop 'what nobody has put'
    call stead_step_free(step)
    call stead_reader_close(reader)

    ! What makes no sense is refused.
    call stead_writer_open('other', writer, status, spill_limit=one)
    if (status == 0) error stop 'a limit of nothing'
    ! Those of a main program are nobody's to free.
    if (allocated(lengths)) deallocate (lengths)
    print '(a)', 'all is well'

contains

    ! What is put at so many places from this one on.
    pure function along(first, count) result(values)
        integer(c_int64_t), intent(in) :: first, count
        integer(c_int8_t) :: values(count)
        integer(c_int64_t) :: k
        do k = 1, count
            values(k) = int(mod(first + k - 1, 101_c_int64_t), c_int8_t)
        end do
    end function

    subroutine is_there(of, start, count, values)
        character(*), intent(in) :: of
        integer(c_int64_t), intent(in) :: start(:), count(:)
        integer(c_int8_t), intent(in) :: values(few)
        some = -1
        call stead_step_get(step, of, start, count, c_loc(some), c_sizeof(some), status)
        call must(status)
        if (any(some /= values)) error stop 'other bytes'
    end subroutine

    subroutine is(n)
        integer(c_int64_t), intent(in) :: n
        if (stead_step_number(step) /= n) error stop 'another step'
        call stead_step_shape(step, name, lengths, status)
        call must(status)
        if (size(lengths) /= 1 .or. any(lengths /= few)) error stop 'another shape'
        call stead_step_get(step, name, [one], lengths, c_loc(got), c_sizeof(got), status)
        call must(status)
        if (any(nint(got, c_int64_t) /= n)) error stop 'other values'
        call stead_step_shape(step, image, lengths, status, dtype)
        call must(status)
        if (size(lengths) /= 2 .or. dtype /= STEAD_F32) error stop 'another array'
        call stead_step_get(step, image, [one], lengths, c_loc(got), c_sizeof(got), status)
        call is_no_place(status)
        call stead_step_get_what_there_is(step, image, [one, one, one], lengths, c_loc(got), c_sizeof(got), status)
        call is_no_place(status)
        call stead_step_view(step, image, lengths(1:0), lengths, memory, room, status)
        call is_no_place(status)
        call stead_step_get(step, 'U', [one], [few], c_loc(got), c_sizeof(got), status)
        if (status /= STEAD_NOT_FOUND) error stop 'a part of nothing'
        if (any(lengths /= [few, two])) error stop 'another order of dimensions'
        call stead_step_shape(step, 'U', lengths, status)
        if (status == 0 .or. size(lengths) /= 0) error stop 'a shape of nothing'
        call is_in_kelvin('T')
        call is_in_kelvin('image')
        call stead_step_free(step)
    end subroutine

    subroutine is_no_place(status)
        integer(c_int), intent(in) :: status
        if (status /= STEAD_USAGE .or. index(stead_message(), 'has 2 dimensions') == 0) error stop 'a place that is none'
    end subroutine

    subroutine is_in_kelvin(of)
        character(*), intent(in) :: of
        character(:), allocatable :: text
        call stead_step_attribute(step, of, 'units', text, status)
        call must(status)
        ! Blanks at its end would be part of it.
        if (text /= 'K' .or. len(text) /= 1) error stop 'other units'
    end subroutine

    subroutine must(status)
        use, intrinsic :: iso_fortran_env, only: error_unit
        integer(c_int), intent(in) :: status
        if (status == 0) return
        write (error_unit, '(a)') stead_message()
        error stop
    end subroutine
end program
