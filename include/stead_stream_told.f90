! What is told of streams beside their arrays, for Fortran: what there is to a variable, what becomes of readers, what was done, and which
! streams there are. stead.h says what the functions do, and docs/json.md what is in texts that are JSON.
!
!     use stead_stream
!     use stead_stream_told
!     call stead_step_attribute(step, 'T', 'units', units, status)
!     call stead_writer_events(writer, json, status)
!     call stead_stream_describe('sim', json, status)
!
! As in stead_stream, the first index of an array runs fastest, all is counted from 1 but steps and ranks, blanks at the end of a text are no
! part of it, and a `status` is 0 if all went well; else stead_message() says what did not, and what was asked for is empty. It is compiled
! with the program:
!
!     gfortran stead_stream.f90 stead_stream_told.f90 program.f90 $(pkg-config --libs stead) -o program
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module stead_stream_told
    use, intrinsic :: iso_c_binding
    use stead_stream_c, only: c_find, c_texts, put_texts, read_text, reversed, step_variable, take_text
    implicit none
    private
    public :: stead_writer_attribute, stead_step_attribute, stead_step_attribute_key
    public :: stead_step_variables, stead_step_variable, stead_step_dim, stead_step_parts
    public :: stead_step_bytes, stead_step_completed_at
    public :: stead_writer_events, stead_writer_report, stead_reader_report, stead_step_report
    public :: stead_stream_list, stead_stream_describe, stead_stream_recordings, stead_stream_explain, stead_stream_remove
    public :: stead_stream_remove_on_nodes

    ! Kinds of attributes.
    integer(c_int), parameter, public :: STEAD_INT = 3, STEAD_DOUBLE = 4, STEAD_TEXT = 5

    ! Of an attribute that is of another kind than was asked for.
    integer(c_int), parameter :: not_found = 2

    ! Says something of a variable beside its data: a list of texts, of whole numbers, or of numbers; stead_stream has single ones.
    interface stead_writer_attribute
        module procedure put_text_list, put_ints, put_doubles
    end interface

    ! What was said of a variable beside its data: a text, of a list of texts one `item`; a whole number, or a number, of a list the first
    ! one; or all of them. Whole numbers are numbers, too.
    interface stead_step_attribute
        module procedure get_text, get_int, get_double, get_ints, get_doubles
    end interface

    type, bind(C) :: attribute
        type(c_ptr) :: key = c_null_ptr
        integer(c_int) :: sort = 0
        logical(c_bool) :: is_list = .false.
        integer(c_size_t) :: count = 0
        type(c_ptr) :: texts = c_null_ptr, ints = c_null_ptr, doubles = c_null_ptr
    end type

    ! As stead_stream_survey of stead.h: whose streams are told of, or removed.
    type, bind(C) :: c_survey
        integer(c_size_t) :: size = 0
        type(c_ptr) :: dataspaces = c_null_ptr
        integer(c_size_t) :: dataspaces_count = 0
        type(c_ptr) :: nodes = c_null_ptr
        integer(c_size_t) :: nodes_count = 0
        integer(c_int64_t) :: timeout_ms = 0
    end type

    interface
        integer(c_int) function c_put_texts(writer, variable, key, values, n, error) &
                bind(C, name='stead_stream_writer_attribute_texts')
            import :: c_int, c_char, c_ptr, c_size_t, c_int32_t
            type(c_ptr), value :: writer, error
            integer(c_int32_t), value :: variable
            character(kind=c_char), intent(in) :: key(*)
            type(c_ptr), intent(in) :: values(*)
            integer(c_size_t), value :: n
        end function

        integer(c_int) function c_put_ints(writer, variable, key, values, n, error) &
                bind(C, name='stead_stream_writer_attribute_ints')
            import :: c_int, c_char, c_ptr, c_size_t, c_int32_t, c_int64_t
            type(c_ptr), value :: writer, error
            integer(c_int32_t), value :: variable
            character(kind=c_char), intent(in) :: key(*)
            integer(c_int64_t), intent(in) :: values(*)
            integer(c_size_t), value :: n
        end function

        integer(c_int) function c_put_doubles(writer, variable, key, values, n, error) &
                bind(C, name='stead_stream_writer_attribute_doubles')
            import :: c_int, c_char, c_ptr, c_size_t, c_int32_t, c_double
            type(c_ptr), value :: writer, error
            integer(c_int32_t), value :: variable
            character(kind=c_char), intent(in) :: key(*)
            real(c_double), intent(in) :: values(*)
            integer(c_size_t), value :: n
        end function

        integer(c_int) function c_attribute(step, name, i, found, bytes, error) bind(C, name='stead_stream_step_attribute')
            import :: c_int, c_char, c_ptr, c_size_t, attribute
            type(c_ptr), value :: step, error
            character(kind=c_char), intent(in) :: name(*)
            integer(c_size_t), value :: i, bytes
            type(attribute), intent(inout) :: found
        end function

        integer(c_int) function c_find_attribute(step, name, key, found, bytes, error) &
                bind(C, name='stead_stream_step_find_attribute')
            import :: c_int, c_char, c_ptr, c_size_t, attribute
            type(c_ptr), value :: step, error
            character(kind=c_char), intent(in) :: name(*), key(*)
            type(attribute), intent(inout) :: found
            integer(c_size_t), value :: bytes
        end function

        integer(c_size_t) function c_variables(step) bind(C, name='stead_stream_step_variables')
            import :: c_ptr, c_size_t
            type(c_ptr), value :: step
        end function

        integer(c_int) function c_variable(step, i, variable, bytes, error) bind(C, name='stead_stream_step_variable')
            import :: c_int, c_ptr, c_size_t, step_variable
            type(c_ptr), value :: step, error
            integer(c_size_t), value :: i, bytes
            type(step_variable), intent(inout) :: variable
        end function

        integer(c_int) function c_parts(step, name, room, writers, starts, counts, parts, error) &
                bind(C, name='stead_stream_step_parts')
            import :: c_int, c_char, c_ptr, c_size_t, c_int64_t
            type(c_ptr), value :: step, error
            character(kind=c_char), intent(in) :: name(*)
            integer(c_size_t), value :: room
            integer(c_int64_t), intent(inout) :: writers(*), starts(*), counts(*)
            integer(c_size_t), intent(inout) :: parts
        end function

        integer(c_int64_t) function c_bytes(step) bind(C, name='stead_stream_step_bytes')
            import :: c_ptr, c_int64_t
            type(c_ptr), value :: step
        end function

        integer(c_int64_t) function c_completed_at(step) bind(C, name='stead_stream_step_completed_at')
            import :: c_ptr, c_int64_t
            type(c_ptr), value :: step
        end function

        integer(c_int) function c_events(object, json, error) bind(C, name='stead_stream_writer_events')
            import :: c_int, c_ptr
            type(c_ptr), value :: object, error
            type(c_ptr), intent(inout) :: json
        end function

        integer(c_int) function c_writer_report(object, json, error) bind(C, name='stead_stream_writer_report')
            import :: c_int, c_ptr
            type(c_ptr), value :: object, error
            type(c_ptr), intent(inout) :: json
        end function

        integer(c_int) function c_reader_report(object, json, error) bind(C, name='stead_stream_reader_report')
            import :: c_int, c_ptr
            type(c_ptr), value :: object, error
            type(c_ptr), intent(inout) :: json
        end function

        integer(c_int) function c_step_report(object, json, error) bind(C, name='stead_stream_step_report')
            import :: c_int, c_ptr
            type(c_ptr), value :: object, error
            type(c_ptr), intent(inout) :: json
        end function

        integer(c_int) function c_list(survey, json, error) bind(C, name='stead_stream_list')
            import :: c_int, c_ptr, c_survey
            type(c_survey), intent(in) :: survey
            type(c_ptr), intent(inout) :: json
            type(c_ptr), value :: error
        end function

        integer(c_int) function c_describe(survey, name, json, error) bind(C, name='stead_stream_describe')
            import :: c_int, c_char, c_ptr, c_survey
            type(c_survey), intent(in) :: survey
            character(kind=c_char), intent(in) :: name(*)
            type(c_ptr), intent(inout) :: json
            type(c_ptr), value :: error
        end function

        integer(c_int) function c_recordings(dataspaces, n, location, json, error) bind(C, name='stead_stream_recordings')
            import :: c_int, c_char, c_ptr, c_size_t
            type(c_ptr), intent(in) :: dataspaces(*)
            integer(c_size_t), value :: n
            character(kind=c_char), intent(in) :: location(*)
            type(c_ptr), intent(inout) :: json
            type(c_ptr), value :: error
        end function

        integer(c_int) function c_explain(survey, name, readers, json, error) bind(C, name='stead_stream_explain')
            import :: c_int, c_char, c_ptr, c_int64_t, c_survey
            type(c_survey), intent(in) :: survey
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int64_t), value :: readers
            type(c_ptr), intent(inout) :: json
            type(c_ptr), value :: error
        end function

        integer(c_int) function c_remove(dataspaces, n, name, force, error) bind(C, name='stead_stream_remove')
            import :: c_int, c_bool, c_char, c_ptr, c_size_t
            type(c_ptr), intent(in) :: dataspaces(*)
            integer(c_size_t), value :: n
            character(kind=c_char), intent(in) :: name(*)
            logical(c_bool), value :: force
            type(c_ptr), value :: error
        end function

        integer(c_int) function c_remove_on_nodes(survey, name, force, json, error) &
                bind(C, name='stead_stream_remove_on_nodes')
            import :: c_int, c_bool, c_char, c_ptr, c_survey
            type(c_survey), intent(in) :: survey
            character(kind=c_char), intent(in) :: name(*)
            logical(c_bool), value :: force
            type(c_ptr), intent(inout) :: json
            type(c_ptr), value :: error
        end function
    end interface

contains

    subroutine put_text_list(writer, variable, key, value, status)
        type(c_ptr), intent(in) :: writer
        integer(c_int32_t), intent(in) :: variable
        character(*), intent(in) :: key, value(:)
        integer(c_int), intent(out) :: status
        type(c_texts), target :: list
        call put_texts(list, value)
        status = c_put_texts(writer, variable, trim(key) // c_null_char, list%places, list%count, c_null_ptr)
    end subroutine

    subroutine put_ints(writer, variable, key, value, status)
        type(c_ptr), intent(in) :: writer
        integer(c_int32_t), intent(in) :: variable
        character(*), intent(in) :: key
        integer(c_int64_t), intent(in) :: value(:)
        integer(c_int), intent(out) :: status
        status = c_put_ints(writer, variable, trim(key) // c_null_char, value, size(value, kind=c_size_t), c_null_ptr)
    end subroutine

    subroutine put_doubles(writer, variable, key, value, status)
        type(c_ptr), intent(in) :: writer
        integer(c_int32_t), intent(in) :: variable
        character(*), intent(in) :: key
        real(c_double), intent(in) :: value(:)
        integer(c_int), intent(out) :: status
        status = c_put_doubles(writer, variable, trim(key) // c_null_char, value, size(value, kind=c_size_t), c_null_ptr)
    end subroutine

    subroutine get_text(step, name, key, value, status, item)
        type(c_ptr), intent(in) :: step
        character(*), intent(in) :: name, key
        character(:), allocatable, intent(out) :: value
        integer(c_int), intent(out) :: status
        integer(c_int64_t), intent(in), optional :: item
        type(attribute) :: found
        type(c_ptr), pointer :: texts(:)
        character(20) :: which
        integer(c_int64_t) :: i
        i = 1
        if (present(item)) i = item
        call find(step, name, key, found, status)
        if (status == 0 .and. found%sort /= STEAD_TEXT) call lack(step, name, trim(key) // ' as text', status)
        if (status == 0 .and. (i < 1 .or. i > found%count)) then
            write (which, '(i0)') i
            call lack(step, name, trim(key) // ' with text ' // trim(which), status)
        end if
        if (status /= 0) then
            call read_text(c_null_ptr, value)
            return
        end if
        call c_f_pointer(found%texts, texts, [found%count])
        call read_text(texts(i), value)
    end subroutine

    subroutine get_int(step, name, key, value, status)
        type(c_ptr), intent(in) :: step
        character(*), intent(in) :: name, key
        integer(c_int64_t), intent(out) :: value
        integer(c_int), intent(out) :: status
        integer(c_int64_t), allocatable :: values(:)
        value = 0
        call get_ints(step, name, key, values, status)
        if (status == 0 .and. size(values) == 0) call lack(step, name, trim(key) // ' with a whole number', status)
        if (status == 0) value = values(1)
    end subroutine

    subroutine get_double(step, name, key, value, status)
        type(c_ptr), intent(in) :: step
        character(*), intent(in) :: name, key
        real(c_double), intent(out) :: value
        integer(c_int), intent(out) :: status
        real(c_double), allocatable :: values(:)
        value = 0
        call get_doubles(step, name, key, values, status)
        if (status == 0 .and. size(values) == 0) call lack(step, name, trim(key) // ' with a number', status)
        if (status == 0) value = values(1)
    end subroutine

    subroutine get_ints(step, name, key, value, status)
        type(c_ptr), intent(in) :: step
        character(*), intent(in) :: name, key
        integer(c_int64_t), allocatable, intent(out) :: value(:)
        integer(c_int), intent(out) :: status
        type(attribute) :: found
        integer(c_int64_t), pointer :: ints(:)
        call find(step, name, key, found, status)
        if (status == 0 .and. found%sort /= STEAD_INT) call lack(step, name, trim(key) // ' as a whole number', status)
        if (status /= 0) found%count = 0
        allocate(value(found%count))
        if (found%count == 0) return
        call c_f_pointer(found%ints, ints, [found%count])
        value(:) = ints
    end subroutine

    subroutine get_doubles(step, name, key, value, status)
        type(c_ptr), intent(in) :: step
        character(*), intent(in) :: name, key
        real(c_double), allocatable, intent(out) :: value(:)
        integer(c_int), intent(out) :: status
        type(attribute) :: found
        integer(c_int64_t), pointer :: ints(:)
        real(c_double), pointer :: doubles(:)
        call find(step, name, key, found, status)
        if (status == 0 .and. found%sort == STEAD_TEXT) call lack(step, name, trim(key) // ' as a number', status)
        if (status /= 0) found%count = 0
        allocate(value(found%count))
        if (found%count == 0) return
        if (found%sort == STEAD_INT) then
            call c_f_pointer(found%ints, ints, [found%count])
            value(:) = real(ints, c_double)
        else
            call c_f_pointer(found%doubles, doubles, [found%count])
            value(:) = doubles
        end if
    end subroutine

    ! The key of attribute `i` of a variable, in their order; its kind, and how many values it has. There are no more if it is not found.
    subroutine stead_step_attribute_key(step, name, i, key, status, kind, count)
        type(c_ptr), intent(in) :: step
        character(*), intent(in) :: name
        integer(c_int64_t), intent(in) :: i
        character(:), allocatable, intent(out) :: key
        integer(c_int), intent(out) :: status
        integer(c_int), intent(out), optional :: kind
        integer(c_int64_t), intent(out), optional :: count
        type(attribute) :: found
        status = c_attribute(step, trim(name) // c_null_char, int(i - 1, c_size_t), found, c_sizeof(found), c_null_ptr)
        call read_text(found%key, key)
        if (present(kind)) kind = found%sort
        if (present(count)) count = found%count
    end subroutine

    subroutine find(step, name, key, found, status)
        type(c_ptr), intent(in) :: step
        character(*), intent(in) :: name, key
        type(attribute), intent(out) :: found
        integer(c_int), intent(out) :: status
        status = c_find_attribute(step, trim(name) // c_null_char, trim(key) // c_null_char, found, c_sizeof(found), c_null_ptr)
    end subroutine

    ! An error that says so: what is asked for is there, but not as it was asked for.
    subroutine lack(step, name, what, status)
        type(c_ptr), intent(in) :: step
        character(*), intent(in) :: name, what
        integer(c_int), intent(out) :: status
        type(attribute) :: other
        call find(step, name, what, other, status)
        if (status == 0) status = not_found
    end subroutine

    ! How many variables a step has.
    integer(c_int64_t) function stead_step_variables(step)
        type(c_ptr), intent(in) :: step
        stead_step_variables = c_variables(step)
    end function

    ! The name of variable `i` of a step.
    subroutine stead_step_variable(step, i, name, status)
        type(c_ptr), intent(in) :: step
        integer(c_int64_t), intent(in) :: i
        character(:), allocatable, intent(out) :: name
        integer(c_int), intent(out) :: status
        type(step_variable) :: found
        status = c_variable(step, int(i - 1, c_size_t), found, c_sizeof(found), c_null_ptr)
        call read_text(found%name, name)
    end subroutine

    ! The name of dimension `i` of a variable; empty where it has none.
    subroutine stead_step_dim(step, name, i, dim, status)
        type(c_ptr), intent(in) :: step
        character(*), intent(in) :: name
        integer(c_int64_t), intent(in) :: i
        character(:), allocatable, intent(out) :: dim
        integer(c_int), intent(out) :: status
        type(step_variable) :: found
        type(c_ptr), pointer :: dims(:)
        status = c_find(step, trim(name) // c_null_char, found, c_sizeof(found), c_null_ptr)
        if (c_associated(found%dims) .and. i >= 1 .and. i <= found%ndim) then
            call c_f_pointer(found%dims, dims, [found%ndim])
            call read_text(dims(found%ndim - i + 1), dim)
        else
            call read_text(c_null_ptr, dim)
        end if
    end subroutine

    ! Which parts of a variable writers have put: the rank of each, and for each a column with where it begins and how many elements it has.
    subroutine stead_step_parts(step, name, writers, starts, counts, status)
        type(c_ptr), intent(in) :: step
        character(*), intent(in) :: name
        integer(c_int64_t), allocatable, intent(out) :: writers(:), starts(:, :), counts(:, :)
        integer(c_int), intent(out) :: status
        type(step_variable) :: found
        integer(c_size_t) :: room, there, i
        room = 0
        status = c_find(step, trim(name) // c_null_char, found, c_sizeof(found), c_null_ptr)
        allocate(writers(room), starts(found%ndim, room), counts(found%ndim, room))
        if (status /= 0) return
        there = 0
        status = c_parts(step, trim(name) // c_null_char, room, writers, starts, counts, there, c_null_ptr)
        if (status /= 0 .or. there == 0) return
        room = there
        deallocate(writers, starts, counts)
        allocate(writers(room), starts(found%ndim, room), counts(found%ndim, room))
        status = c_parts(step, trim(name) // c_null_char, room, writers, starts, counts, there, c_null_ptr)
        do i = 1, room
            starts(:, i) = reversed(starts(:, i)) + 1
            counts(:, i) = reversed(counts(:, i))
        end do
    end subroutine

    ! The bytes of the arrays that writers have put into a step.
    integer(c_int64_t) function stead_step_bytes(step)
        type(c_ptr), intent(in) :: step
        stead_step_bytes = c_bytes(step)
    end function

    ! When the last writer ended a step, in nanoseconds since 1970.
    integer(c_int64_t) function stead_step_completed_at(step)
        type(c_ptr), intent(in) :: step
        stead_step_completed_at = c_completed_at(step)
    end function

    ! What an object tells of itself.
    subroutine tell(ask, object, json, status)
        procedure(c_events) :: ask
        type(c_ptr), intent(in) :: object
        character(:), allocatable, intent(out) :: json
        integer(c_int), intent(out) :: status
        type(c_ptr) :: text
        text = c_null_ptr
        status = ask(object, text, c_null_ptr)
        call take_text(text, json)
    end subroutine

    ! What has become of readers since this was asked last, as JSON: who has come, who has closed the stream, who has ended without a word.
    subroutine stead_writer_events(writer, json, status)
        type(c_ptr), intent(in) :: writer
        character(:), allocatable, intent(out) :: json
        integer(c_int), intent(out) :: status
        call tell(c_events, writer, json, status)
    end subroutine

    ! What a writer has done so far, as JSON.
    subroutine stead_writer_report(writer, json, status)
        type(c_ptr), intent(in) :: writer
        character(:), allocatable, intent(out) :: json
        integer(c_int), intent(out) :: status
        call tell(c_writer_report, writer, json, status)
    end subroutine

    ! What a reader has done so far, as JSON.
    subroutine stead_reader_report(reader, json, status)
        type(c_ptr), intent(in) :: reader
        character(:), allocatable, intent(out) :: json
        integer(c_int), intent(out) :: status
        call tell(c_reader_report, reader, json, status)
    end subroutine

    ! What a step has cost its reader so far, as JSON.
    subroutine stead_step_report(step, json, status)
        type(c_ptr), intent(in) :: step
        character(:), allocatable, intent(out) :: json
        integer(c_int), intent(out) :: status
        call tell(c_step_report, step, json, status)
    end subroutine

    ! Whose streams are told of, of these texts.
    function survey_of(spaces, others, are_named, timeout_ms) result(survey)
        type(c_texts), intent(in), target :: spaces, others
        logical, intent(in) :: are_named
        integer(c_int64_t), intent(in), optional :: timeout_ms
        type(c_survey) :: survey
        survey%size = c_sizeof(survey)
        survey%dataspaces = c_loc(spaces%places)
        survey%dataspaces_count = spaces%count
        if (are_named) survey%nodes = c_loc(others%places)
        if (are_named) survey%nodes_count = others%count
        if (present(timeout_ms)) survey%timeout_ms = timeout_ms
    end function

    ! The streams of this user on this node, and on others of a pool, as JSON. `dataspaces` are folders such as 'memory=/dev/shm/me', before
    ! those that are configured, here and below; `nodes` are the other nodes that are asked, as stead_reader_open has them, and `timeout_ms`
    ! how long they are waited for, ten seconds unless told otherwise.
    subroutine stead_stream_list(json, status, dataspaces, nodes, timeout_ms)
        character(:), allocatable, intent(out) :: json
        integer(c_int), intent(out) :: status
        character(*), intent(in), optional :: dataspaces(:), nodes(:)
        integer(c_int64_t), intent(in), optional :: timeout_ms
        type(c_texts), target :: spaces, others
        type(c_ptr) :: text
        text = c_null_ptr
        call put_texts(spaces, dataspaces)
        call put_texts(others, nodes)
        status = c_list(survey_of(spaces, others, present(nodes), timeout_ms), text, c_null_ptr)
        call take_text(text, json)
    end subroutine

    ! What there is to know of a stream, or of the steps that were recorded in a folder, as JSON: its steps, its variables, who writes and reads.
    subroutine stead_stream_describe(name, json, status, dataspaces, nodes, timeout_ms)
        character(*), intent(in) :: name
        character(:), allocatable, intent(out) :: json
        integer(c_int), intent(out) :: status
        character(*), intent(in), optional :: dataspaces(:), nodes(:)
        integer(c_int64_t), intent(in), optional :: timeout_ms
        type(c_texts), target :: spaces, others
        type(c_ptr) :: text
        text = c_null_ptr
        call put_texts(spaces, dataspaces)
        call put_texts(others, nodes)
        status = c_describe(survey_of(spaces, others, present(nodes), timeout_ms), trim(name) // c_null_char, text, c_null_ptr)
        call take_text(text, json)
    end subroutine

    ! The streams that were recorded in a folder, and in the folders in it, as JSON.
    subroutine stead_stream_recordings(location, json, status, dataspaces)
        character(*), intent(in) :: location
        character(:), allocatable, intent(out) :: json
        integer(c_int), intent(out) :: status
        character(*), intent(in), optional :: dataspaces(:)
        type(c_texts), target :: spaces
        type(c_ptr) :: text
        text = c_null_ptr
        call put_texts(spaces, dataspaces)
        status = c_recordings(spaces%places, spaces%count, trim(location) // c_null_char, text, c_null_ptr)
        call take_text(text, json)
    end subroutine

    ! Who will get what from whom of a step of a stream, as JSON. So many `readers` are assumed beside those that are there.
    subroutine stead_stream_explain(name, json, status, readers, dataspaces, nodes, timeout_ms)
        character(*), intent(in) :: name
        character(:), allocatable, intent(out) :: json
        integer(c_int), intent(out) :: status
        integer(c_int64_t), intent(in), optional :: readers
        character(*), intent(in), optional :: dataspaces(:), nodes(:)
        integer(c_int64_t), intent(in), optional :: timeout_ms
        type(c_texts), target :: spaces, others
        type(c_ptr) :: text
        integer(c_int64_t) :: more
        text = c_null_ptr
        more = 0
        if (present(readers)) more = readers
        call put_texts(spaces, dataspaces)
        call put_texts(others, nodes)
        status = c_explain(survey_of(spaces, others, present(nodes), timeout_ms), trim(name) // c_null_char, more, text, c_null_ptr)
        call take_text(text, json)
    end subroutine

    ! Removes a stream on this node and those of the name on others of a pool, with `force` also what is still written or read, and tells as JSON
    ! where: all nodes, or this one and `nodes`.
    subroutine stead_stream_remove_on_nodes(name, json, status, force, dataspaces, nodes, timeout_ms)
        character(*), intent(in) :: name
        character(:), allocatable, intent(out) :: json
        integer(c_int), intent(out) :: status
        logical, intent(in), optional :: force
        character(*), intent(in), optional :: dataspaces(:), nodes(:)
        integer(c_int64_t), intent(in), optional :: timeout_ms
        type(c_texts), target :: spaces, others
        type(c_ptr) :: text
        logical(c_bool) :: forced
        text = c_null_ptr
        forced = .false._c_bool
        if (present(force)) forced = logical(force, c_bool)
        call put_texts(spaces, dataspaces)
        call put_texts(others, nodes)
        status = c_remove_on_nodes(survey_of(spaces, others, present(nodes), timeout_ms), trim(name) // c_null_char, forced, text, &
            c_null_ptr)
        call take_text(text, json)
    end subroutine

    ! Removes a stream of this node, or the steps that were recorded in a folder: with `force` also what is still written or read.
    subroutine stead_stream_remove(name, status, force, dataspaces)
        character(*), intent(in) :: name
        integer(c_int), intent(out) :: status
        logical, intent(in), optional :: force
        character(*), intent(in), optional :: dataspaces(:)
        type(c_texts), target :: spaces
        logical(c_bool) :: forced
        forced = .false._c_bool
        if (present(force)) forced = logical(force, c_bool)
        call put_texts(spaces, dataspaces)
        status = c_remove(spaces%places, spaces%count, trim(name) // c_null_char, forced, c_null_ptr)
    end subroutine
end module
