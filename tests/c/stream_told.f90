! What is told of streams in Fortran, and what readers do beside asking for the next step: names of dimensions and variables, attributes, parts,
! looks without a copy, very steps, reports, events, and lists.
!
!     stream_told MEMORY DISK
!
! MEMORY is the memory of the node and DISK a folder for files, both in place of what is configured.
program told_of_streams
    use, intrinsic :: iso_c_binding
    use stead_stream
    use stead_stream_told
    implicit none
    integer(c_int64_t), parameter :: one = 1, two = 2, nx = 4, ny = 3, wait = 60000
    character(1024) :: memory, disk
    character(1040) :: spaces(2)
    ! No nodes.
    character(1) :: none(0)

    call get_command_argument(1, memory)
    call get_command_argument(2, disk)
    spaces(1) = 'memory=' // memory
    spaces(2) = 'disk=' // disk
    call what_is_written_is_told()
    call what_is_not_there_is_said()
    call which_streams_there_are()
    print '(a)', 'all is well'

contains

    subroutine what_is_written_is_told()
        type(c_ptr) :: writer, reader, step, other
        integer(c_int32_t) :: t, h, n
        integer(c_int) :: status
        integer(c_int64_t) :: number
        integer(c_int64_t), target :: count
        integer(c_int64_t), allocatable :: steps(:)
        real(c_double), target :: field(nx, ny)
        integer(c_int64_t) :: bytes

        call stead_writer_open('told', writer, status, keep=two, queue=8_c_int64_t, timeout_ms=wait, persist='disk://run', &
            dataspaces=spaces)
        call must(status)
        call stead_writer_define(writer, 'T', STEAD_F64, [nx, ny], t, status, dims=['x    ', 'depth'])
        call must(status)
        call stead_writer_define(writer, 'H', STEAD_F64, [nx], h, status)
        call must(status)
        call stead_writer_define(writer, 'n', STEAD_I64, [integer(c_int64_t) ::], n, status)
        call must(status)
        call stead_writer_attribute(writer, t, 'units', 'K', status)
        call must(status)
        call stead_writer_attribute(writer, t, 'notes', ['first ', 'second'], status)
        call must(status)
        call stead_writer_attribute(writer, t, 'levels', [5_c_int64_t, 7_c_int64_t], status)
        call must(status)
        call stead_writer_attribute(writer, t, 'weights', [0.25_c_double, 0.5_c_double, 0.125_c_double], status)
        call must(status)
        ! No nodes are asked.
        call stead_reader_open('told', reader, status, timeout_ms=wait, dataspaces=spaces, nodes=none)
        call must(status)
        do number = 0, 2
            field = elements(number)
            count = number
            call stead_writer_begin(writer, status)
            call must(status)
            ! Two parts of it, and half of the other one.
            call stead_writer_put(writer, t, [one, one], [nx, two], c_loc(field), status)
            call must(status)
            call stead_writer_put(writer, t, [one, ny], [nx, one], c_loc(field(1, ny)), status)
            call must(status)
            call stead_writer_put(writer, h, [one], [two], c_loc(field), status)
            call must(status)
            call stead_writer_put(writer, n, [integer(c_int64_t) ::], [integer(c_int64_t) ::], c_loc(count), status)
            call must(status)
            call stead_writer_end(writer, status)
            call must(status)
        end do

        call stead_reader_steps(reader, steps, status)
        call must(status)
        if (size(steps) /= 3) error stop 'other steps'
        if (any(steps /= [0, 1, 2])) error stop 'other numbers of steps'
        call stead_reader_next(reader, step, status)
        call must(status)
        if (stead_step_number(step) /= 0) error stop 'another step'
        if (stead_step_dropped(step) /= 0) error stop 'steps that were missed'
        ! One that comes later, and is given again in its turn.
        call stead_reader_at(reader, 2_c_int64_t, other, status)
        call must(status)
        if (stead_step_number(other) /= 2) error stop 'another step than was asked for'
        call stead_step_free(other)
        call stead_reader_at(reader, 9_c_int64_t, other, status)
        if (status == 0 .or. c_associated(other)) error stop 'a step that is not there'
        call says('step 9')
        call looks(step)
        call is_what_there_is(step)
        call names(step)
        call attributes(step)
        bytes = stead_step_bytes(step)
        if (bytes /= 8 * (nx * ny + two + 1)) error stop 'other bytes'
        if (stead_step_completed_at(step) <= 1600000000000000000_c_int64_t) error stop 'another time'
        call reports(writer, reader, step)
        call stead_step_free(step)
        do number = 1, 2
            call stead_reader_next_within(reader, wait, step, status)
            call must(status)
            if (stead_step_number(step) /= number) error stop 'another step within a time'
            call stead_step_free(step)
        end do
        call stead_reader_next_within(reader, one, step, status)
        call must(status)
        if (c_associated(step)) error stop 'a step that nobody has put'
        if (stead_reader_is_over(reader)) error stop 'an end that is none'
        call tells_events(writer, '"here"')
        call stead_writer_close(writer, status)
        call must(status)
        call stead_reader_next_within(reader, wait, step, status)
        call must(status)
        if (c_associated(step)) error stop 'a step too many'
        if (.not. stead_reader_is_over(reader)) error stop 'no end'
        call stead_reader_close(reader)
        if (stead_reader_is_over(reader)) error stop 'the end of what is no reader'
    end subroutine

    ! What lies in one part is looked at where it is, also when the step has gone, and what lies in several is copied.
    subroutine looks(step)
        type(c_ptr), intent(in) :: step
        type(c_ptr) :: data, array
        integer(c_int) :: status
        real(c_double), pointer :: seen(:, :)
        call stead_step_view(step, 'T', [one, two], [nx, one], data, array, status)
        call must(status)
        if (.not. stead_array_is_view(array)) error stop 'a copy of a part'
        call c_f_pointer(data, seen, [nx, one])
        call are(seen, 2, 2)
        call stead_array_free(array)
        call stead_step_view(step, 'T', [one, one], [nx, ny], data, array, status)
        call must(status)
        if (stead_array_is_view(array)) error stop 'two parts in one place'
        call c_f_pointer(data, seen, [nx, ny])
        call are(seen, 1, 3)
        call stead_array_free(array)
        if (stead_array_is_view(array)) error stop 'an array that was freed'
        call stead_step_view(step, 'T', [one, one], [nx, ny + 1], data, array, status)
        if (status == 0 .or. c_associated(array) .or. c_associated(data)) error stop 'more than there is'
    end subroutine

    subroutine are(seen, first, last)
        real(c_double), intent(in) :: seen(:, :)
        integer, intent(in) :: first, last
        real(c_double) :: field(nx, ny)
        field = elements(0_c_int64_t)
        if (any(shape(seen) /= [int(nx), last - first + 1])) error stop 'another shape'
        if (any(abs(seen - field(:, first:last)) > 0.1_c_double)) error stop 'other values'
    end subroutine

    subroutine is_what_there_is(step)
        type(c_ptr), intent(in) :: step
        integer(c_int) :: status
        integer(c_size_t) :: copied
        real(c_double), target :: got(nx)
        real(c_double) :: field(nx, ny)
        field = elements(0_c_int64_t)
        got = -7
        call stead_step_get(step, 'H', [one], [nx], c_loc(got), c_sizeof(got), status)
        if (status == 0) error stop 'what nobody has put'
        call stead_step_get_what_there_is(step, 'H', [one], [nx], c_loc(got), c_sizeof(got), status, copied)
        call must(status)
        if (copied /= 16) error stop 'another number of bytes'
        if (any(abs(got - [field(1:2, 1), -7.0_c_double, -7.0_c_double]) > 0.1_c_double)) error stop 'what there is not'
        call stead_step_get_what_there_is(step, 'U', [one], [nx], c_loc(got), c_sizeof(got), status)
        if (status == 0) error stop 'what there is of nothing'
    end subroutine

    subroutine names(step)
        type(c_ptr), intent(in) :: step
        integer(c_int) :: status
        integer(c_int64_t) :: i
        integer :: known
        character(:), allocatable :: name
        integer(c_int64_t), allocatable :: writers(:), starts(:, :), counts(:, :)
        if (stead_step_variables(step) /= 3) error stop 'other variables'
        known = 0
        do i = 1, 3
            call stead_step_variable(step, i, name, status)
            call must(status)
            if (name == 'T' .or. name == 'H' .or. name == 'n') known = known + 1
        end do
        if (known /= 3) error stop 'other names'
        call stead_step_variable(step, 4_c_int64_t, name, status)
        if (status == 0 .or. name /= '') error stop 'a variable too many'
        call stead_step_dim(step, 'T ', one, name, status)
        call must(status)
        if (name /= 'x' .or. len(name) /= 1) error stop 'another first dimension'
        call stead_step_dim(step, 'T', two, name, status)
        call must(status)
        if (name /= 'depth') error stop 'another last dimension'
        call stead_step_dim(step, 'H', one, name, status)
        call must(status)
        if (len(name) /= 0) error stop 'a name of nothing'
        call stead_step_dim(step, 'U', one, name, status)
        if (status == 0 .or. len(name) /= 0) error stop 'a dimension of nothing'
        call stead_step_parts(step, 'T', writers, starts, counts, status)
        call must(status)
        if (size(writers) /= 2 .or. any(writers /= 0)) error stop 'other writers'
        if (any(starts(1, :) /= 1) .or. any(counts(1, :) /= nx)) error stop 'other columns'
        if (sum(starts(2, :)) /= 1 + ny .or. sum(counts(2, :)) /= ny) error stop 'other parts'
        call stead_step_parts(step, 'n', writers, starts, counts, status)
        call must(status)
        if (size(writers) /= 1 .or. size(starts) /= 0) error stop 'other parts of a scalar'
        call stead_step_parts(step, 'U', writers, starts, counts, status)
        if (status == 0 .or. size(writers) /= 0) error stop 'parts of nothing'
    end subroutine

    subroutine attributes(step)
        type(c_ptr), intent(in) :: step
        integer(c_int) :: status, kind
        integer(c_int64_t) :: i, whole
        real(c_double) :: number
        character(:), allocatable :: text
        character(24) :: keys
        integer(c_int64_t), allocatable :: ints(:)
        real(c_double), allocatable :: numbers(:)
        call stead_step_attribute(step, 'T', 'units ', text, status)
        call must(status)
        if (text /= 'K' .or. len(text) /= 1) error stop 'other units'
        call stead_step_attribute(step, 'T', 'notes', text, status, item=two)
        call must(status)
        if (text /= 'second') error stop 'other notes'
        call stead_step_attribute(step, 'T', 'notes', text, status, item=3_c_int64_t)
        if (status == 0 .or. len(text) /= 0) error stop 'a note too many'
        call says('notes with text 3')
        call stead_step_attribute(step, 'T', 'levels', ints, status)
        call must(status)
        if (size(ints) /= 2) error stop 'other levels'
        if (any(ints /= [5, 7])) error stop 'other whole numbers'
        call stead_step_attribute(step, 'T', 'levels', whole, status)
        call must(status)
        if (whole /= 5) error stop 'another level'
        call stead_step_attribute(step, 'T', 'levels', numbers, status)
        call must(status)
        if (any(nint(numbers) /= [5, 7])) error stop 'whole numbers that are none'
        call stead_step_attribute(step, 'T', 'weights', numbers, status)
        call must(status)
        if (size(numbers) /= 3) error stop 'other weights'
        if (any(nint(8 * numbers) /= [2, 4, 1])) error stop 'other numbers'
        call stead_step_attribute(step, 'T', 'weights', number, status)
        call must(status)
        if (nint(8 * number) /= 2) error stop 'another weight'
        ! What is of another kind, or not there.
        call stead_step_attribute(step, 'T', 'levels', text, status)
        if (status == 0) error stop 'levels that are text'
        call says('no attribute ''levels as text''')
        call stead_step_attribute(step, 'T', 'weights', ints, status)
        if (status == 0 .or. size(ints) /= 0) error stop 'weights that are whole'
        call stead_step_attribute(step, 'T', 'units', number, status)
        if (status == 0) error stop 'units that are numbers'
        call stead_step_attribute(step, 'T', 'colour', whole, status)
        if (status == 0) error stop 'an attribute that is not there'
        keys = ''
        do i = 1, 4
            call stead_step_attribute_key(step, 'T', i, text, status, kind, whole)
            call must(status)
            keys = trim(keys) // text(1:1)
            if (text == 'notes' .and. (kind /= STEAD_TEXT .or. whole /= 2)) error stop 'other kinds of notes'
            if (text == 'levels' .and. (kind /= STEAD_INT .or. whole /= 2)) error stop 'other kinds of levels'
            if (text == 'weights' .and. (kind /= STEAD_DOUBLE .or. whole /= 3)) error stop 'other kinds of weights'
        end do
        if (keys /= 'lnuw') error stop 'other keys'
        call stead_step_attribute_key(step, 'T', 5_c_int64_t, text, status)
        if (status == 0 .or. len(text) /= 0) error stop 'a key too many'
    end subroutine

    subroutine reports(writer, reader, step)
        type(c_ptr), intent(in) :: writer, reader, step
        character(:), allocatable :: json
        integer(c_int) :: status
        call stead_step_report(step, json, status)
        call must(status)
        call has(json, '"copied"')
        call stead_reader_report(reader, json, status)
        call must(status)
        call has(json, '"memory"')
        call stead_writer_report(writer, json, status)
        call must(status)
        call has(json, '"waits"')
        call stead_step_report(c_null_ptr, json, status)
        if (status == 0 .or. len(json) /= 0) error stop 'a report of nothing'
        call stead_stream_explain('told', json, status, readers=two, dataspaces=spaces)
        call must(status)
        call has(json, '{')
    end subroutine

    subroutine tells_events(writer, what)
        type(c_ptr), intent(in) :: writer
        character(*), intent(in) :: what
        character(:), allocatable :: json
        integer(c_int) :: status
        call stead_writer_events(writer, json, status)
        call must(status)
        call has(json, what)
    end subroutine

    subroutine what_is_not_there_is_said()
        type(c_ptr) :: writer, reader
        integer(c_int32_t) :: t
        integer(c_int) :: status
        call stead_writer_open('other', writer, status, timeout_ms=wait, dataspaces=spaces)
        call must(status)
        call stead_writer_define(writer, 'T', STEAD_F64, [nx, ny], t, status, dims=['x'])
        if (status == 0) error stop 'a name for two dimensions'
        call stead_writer_define(writer, 'T', STEAD_F64, [nx], t, status, dims=['x', 'y'])
        if (status == 0) error stop 'two names for a dimension'
        call stead_writer_abandon(writer, status)
        call must(status)
        call stead_writer_open('other', writer, status, dataspaces=['nothing'])
        if (status == 0) error stop 'a dataspace that is none'
        call stead_reader_open('other', reader, status, dataspaces=['nothing'])
        if (status == 0) error stop 'a dataspace of a reader that is none'
        ! As many bytes no device has.
        call stead_writer_open('large', writer, status, spill='auto  ', spill_limit=huge(one), dataspaces=spaces)
        if (status == 0) error stop 'a place for all there is'
        call says('no dataspace has room')
        call stead_stream_remove('large', status, force=.true., dataspaces=spaces)
        call must(status)
    end subroutine

    subroutine which_streams_there_are()
        character(:), allocatable :: json
        integer(c_int) :: status
        call stead_stream_list(json, status, spaces, nodes=none, timeout_ms=wait)
        call must(status)
        call has(json, '"other"')
        call stead_stream_describe('other', json, status, spaces)
        call must(status)
        call has(json, '"complete"')
        call stead_stream_describe('nothing', json, status, spaces)
        if (status == 0 .or. len(json) /= 0) error stop 'a stream that is not there'
        call stead_stream_describe('disk://run', json, status, spaces)
        call must(status)
        call has(json, '"told"')
        call stead_stream_recordings(disk, json, status, spaces)
        call must(status)
        call has(json, '"is_whole"')
        call stead_stream_remove('disk://run', status, dataspaces=spaces)
        call must(status)
        call stead_stream_remove('disk://run', status, dataspaces=spaces)
        if (status == 0) error stop 'what was removed before'
        call stead_stream_remove_on_nodes('other', json, status, force=.true., dataspaces=spaces, nodes=none, timeout_ms=wait)
        call must(status)
        call has(json, '"other"')
        call stead_stream_remove('other', status, force=.true., dataspaces=spaces)
        if (status == 0) error stop 'what was removed on all nodes'
        call stead_stream_list(json, status, spaces)
        call must(status)
        if (json /= '[]') error stop 'a stream that was left'
    end subroutine

    pure function elements(number) result(field)
        integer(c_int64_t), intent(in) :: number
        real(c_double) :: field(nx, ny)
        integer(c_int64_t) :: x, y
        do y = 1, ny
            do x = 1, nx
                field(x, y) = real(1000 * number + 10 * y + x, c_double)
            end do
        end do
    end function

    subroutine has(json, what)
        use, intrinsic :: iso_fortran_env, only: error_unit
        character(*), intent(in) :: json, what
        if (index(json, what) > 0) return
        write (error_unit, '(a)') what // ' is not in ' // json
        error stop 'something is not told'
    end subroutine

    subroutine says(what)
        character(*), intent(in) :: what
        character(:), allocatable :: text
        text = stead_message()
        call has(text, what)
    end subroutine

    subroutine must(status)
        use, intrinsic :: iso_fortran_env, only: error_unit
        integer(c_int), intent(in) :: status
        if (status == 0) return
        write (error_unit, '(a)') stead_message()
        error stop
    end subroutine
end program
