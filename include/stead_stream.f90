! Streams, for Fortran: arrays that programs hand to each other in memory. stead.h says what the functions do. Programs on several nodes
! give the `coupling` that stead_mpi_stream.f90 makes of a communicator.
!
!     use stead_stream
!     call stead_writer_open('sim', writer, status, rank=rank, writers=ranks)
!     call stead_writer_define(writer, 'T', STEAD_F64, [nx, ny], variable, status)
!     call stead_writer_begin(writer, status)
!     call stead_writer_put(writer, variable, [1_c_int64_t, first], [nx, mine], c_loc(t), status)
!     call stead_writer_end(writer, status)
!
! Shapes, starts and counts are those of Fortran: the first index runs fastest, and starts are counted from 1. Programs in C, C++ and
! Python have the same array with its indices in the opposite order, from 0 on. Blanks at the end of a name or a text are no part of it.
! Every `status` is 0 if all went well; else `stead_message()` says what did not. What is told of streams beside their arrays, such as
! attributes, reports and which streams there are, is in stead_stream_told.f90. Flows and subscriptions are not there in Fortran. Modules are
! made by the compiler that uses them, so this is compiled with the program:
!
!     gfortran stead_stream.f90 program.f90 $(pkg-config --libs stead) -o program
!
! SPDX-License-Identifier: Apache-2.0 OR MIT

! What the modules of streams have in common: texts for C and from it, and what a variable is there.
module stead_stream_c
    use, intrinsic :: iso_c_binding
    implicit none
    private
    public :: c_find, c_fits, chars, put_texts, read_text, reversed, take_text

    ! A text that C reads to its end.
    type c_text
        character(kind=c_char), allocatable :: all(:)
    end type

    ! Texts, and where they lie: in one place more than there are, so that none are a list, too.
    type, public :: c_texts
        type(c_text), allocatable :: texts(:)
        type(c_ptr), allocatable :: places(:)
        integer(c_size_t) :: count = 0
    end type

    type, bind(C), public :: step_variable
        type(c_ptr) :: name = c_null_ptr
        integer(c_int) :: dtype = 0
        integer(c_size_t) :: ndim = 0
        type(c_ptr) :: shape = c_null_ptr, dims = c_null_ptr
        integer(c_size_t) :: attributes = 0
    end type

    interface
        integer(c_size_t) function c_length(text) bind(C, name='strlen')
            import :: c_ptr, c_size_t
            type(c_ptr), value :: text
        end function

        subroutine c_text_free(text) bind(C, name='stead_text_free')
            import :: c_ptr
            type(c_ptr), value :: text
        end subroutine

        ! Lists of C are as long as they are said to be, and those of Fortran as long as they are.
        integer(c_int) function c_fits(writer, variable, start, count, error) bind(C, name='stead_stream_writer_fits')
            import :: c_int, c_int32_t, c_ptr, c_size_t
            type(c_ptr), value :: writer, error
            integer(c_int32_t), value :: variable
            integer(c_size_t), value :: start, count
        end function

        integer(c_int) function c_find(step, name, variable, bytes, error) bind(C, name='stead_stream_step_find')
            import :: c_int, c_char, c_ptr, c_size_t, step_variable
            type(c_ptr), value :: step, error
            character(kind=c_char), intent(in) :: name(*)
            type(step_variable), intent(inout) :: variable
            integer(c_size_t), value :: bytes
        end function
    end interface

contains

    ! A text as C has it.
    pure function chars(text) result(all)
        character(*), intent(in) :: text
        character(kind=c_char) :: all(len(text) + 1)
        integer :: i
        do i = 1, len(text)
            all(i) = text(i:i)
        end do
        all(len(text) + 1) = c_null_char
    end function

    ! The other way round, as C counts dimensions. Of a list of none compilers look before its first with `list(n:1:-1)`.
    pure function reversed(list) result(other)
        integer(c_int64_t), intent(in) :: list(:)
        integer(c_int64_t) :: other(size(list))
        integer :: i
        do i = 1, size(list)
            other(i) = list(size(list) + 1 - i)
        end do
    end function

    ! Makes a list of texts without the blanks at their ends; of none, if there are none. They are there as long as it is.
    subroutine put_texts(list, texts)
        type(c_texts), intent(out), target :: list
        character(*), intent(in), optional :: texts(:)
        integer :: i, n
        n = 0
        if (present(texts)) n = size(texts)
        allocate(list%texts(n), list%places(n + 1))
        list%places = c_null_ptr
        list%count = n
        do i = 1, n
            list%texts(i)%all = chars(trim(texts(i)))
            list%places(i) = c_loc(list%texts(i)%all)
        end do
    end subroutine

    ! Copies a text of C; an empty one where there is none.
    subroutine read_text(place, text)
        type(c_ptr), intent(in) :: place
        character(:), allocatable, intent(out) :: text
        character(kind=c_char), pointer :: bytes(:)
        integer(c_size_t) :: i, n
        n = 0
        if (c_associated(place)) n = c_length(place)
        allocate(character(n) :: text)
        if (n == 0) return
        call c_f_pointer(place, bytes, [n])
        do i = 1, n
            text(i:i) = bytes(i)
        end do
    end subroutine

    ! The same of a text that is the caller's, which is freed.
    subroutine take_text(place, text)
        type(c_ptr), intent(in) :: place
        character(:), allocatable, intent(out) :: text
        call read_text(place, text)
        call c_text_free(place)
    end subroutine
end module

module stead_stream
    use, intrinsic :: iso_c_binding
    use stead_stream_c, only: c_find, c_fits, c_texts, chars, put_texts, read_text, reversed, step_variable
    implicit none
    private
    public :: stead_writer_open, stead_writer_define, stead_writer_units, stead_writer_attribute
    public :: stead_writer_begin, stead_writer_put, stead_writer_empty
    public :: stead_writer_put_room, stead_room_free, stead_writer_end, stead_writer_close, stead_writer_abandon
    public :: stead_reader_open, stead_reader_next, stead_reader_next_within, stead_reader_wait_for, stead_reader_at
    public :: stead_reader_is_over, stead_reader_steps, stead_reader_close
    public :: stead_step_number, stead_step_dropped, stead_step_shape, stead_step_get, stead_step_get_what_there_is
    public :: stead_step_view, stead_array_is_view, stead_array_free, stead_step_free, stead_message

    ! Types of elements.
    integer(c_int), parameter, public :: STEAD_F32 = 1, STEAD_F64 = 2
    integer(c_int), parameter, public :: STEAD_I8 = 3, STEAD_I16 = 4, STEAD_I32 = 5, STEAD_I64 = 6
    integer(c_int), parameter, public :: STEAD_U8 = 7, STEAD_U16 = 8, STEAD_U32 = 9, STEAD_U64 = 10

    ! What a `status` says.
    integer(c_int), parameter, public :: STEAD_OK = 0, STEAD_USAGE = 1, STEAD_NOT_FOUND = 2, STEAD_PERMISSION = 3
    integer(c_int), parameter, public :: STEAD_FORMAT = 4, STEAD_DATA = 5, STEAD_CHANGED = 6, STEAD_LIMIT = 7
    integer(c_int), parameter, public :: STEAD_NO_SPACE = 8, STEAD_IO = 9, STEAD_CANCELLED = 10, STEAD_PEER = 11
    integer(c_int), parameter, public :: STEAD_INTERNAL = 12, STEAD_TIMEOUT = 13

    ! For `keep`: no complete steps stay when all readers have had them. 0 is what is usual, one.
    integer(c_int64_t), parameter, public :: STEAD_STREAM_KEEP_NONE = -1

    ! With which step readers begin, and what writers do when they are behind.
    integer(c_int), parameter, public :: STEAD_STREAM_OLDEST = 0, STEAD_STREAM_NEXT = 1, STEAD_STREAM_FIRST = 2
    integer(c_int), parameter, public :: STEAD_STREAM_BLOCK = 0, STEAD_STREAM_DROP = 1, STEAD_STREAM_SPILL = 2

    ! Says something of a variable beside its data: a text, a whole number, or a number; stead_stream_told has lists of these.
    interface stead_writer_attribute
        module procedure attribute_text, attribute_int, attribute_double
    end interface

    type, bind(C) :: writer_options
        integer(c_size_t) :: size = 0
        integer(c_int64_t) :: rank = 0, writers = 0, keep = 0, queue = 0, memory = 0, readers = 0, timeout_ms = 0
        type(c_ptr) :: dataspaces = c_null_ptr
        integer(c_size_t) :: dataspaces_count = 0
        type(c_ptr) :: coupling = c_null_ptr, persist = c_null_ptr, spill = c_null_ptr
        integer(c_int64_t) :: spill_limit = 0
    end type

    type, bind(C) :: reader_options
        integer(c_size_t) :: size = 0
        type(c_ptr) :: group = c_null_ptr
        integer(c_int64_t) :: rank = 0, ranks = 0
        integer(c_int) :: start = 0, behind = 0
        integer(c_int64_t) :: timeout_ms = 0
        integer(c_size_t) :: threads = 0
        type(c_ptr) :: dataspaces = c_null_ptr
        integer(c_size_t) :: dataspaces_count = 0
        type(c_ptr) :: coupling = c_null_ptr, nodes = c_null_ptr
        integer(c_size_t) :: nodes_count = 0
        integer(c_int64_t) :: queue = 0, keep = 0
    end type

    interface
        integer(c_int) function c_writer_open(name, options, writer, error) bind(C, name='stead_stream_writer_open')
            import :: c_int, c_char, c_ptr, writer_options
            character(kind=c_char), intent(in) :: name(*)
            type(writer_options), intent(in) :: options
            type(c_ptr), intent(out) :: writer
            type(c_ptr), value :: error
        end function

        integer(c_int) function c_define(writer, name, dtype, ndim, shape, dims, variable, error) &
                bind(C, name='stead_stream_writer_define')
            import :: c_int, c_char, c_ptr, c_size_t, c_int64_t, c_int32_t
            type(c_ptr), value :: writer, dims, error
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int), value :: dtype
            integer(c_size_t), value :: ndim
            integer(c_int64_t), intent(in) :: shape(*)
            integer(c_int32_t), intent(out) :: variable
        end function

        integer(c_int) function c_text(writer, variable, key, text, error) bind(C, name='stead_stream_writer_attribute_text')
            import :: c_int, c_char, c_ptr, c_int32_t
            type(c_ptr), value :: writer, error
            integer(c_int32_t), value :: variable
            character(kind=c_char), intent(in) :: key(*), text(*)
        end function

        integer(c_int) function c_int_attribute(writer, variable, key, number, error) &
                bind(C, name='stead_stream_writer_attribute_int')
            import :: c_int, c_char, c_ptr, c_int32_t, c_int64_t
            type(c_ptr), value :: writer, error
            integer(c_int32_t), value :: variable
            character(kind=c_char), intent(in) :: key(*)
            integer(c_int64_t), value :: number
        end function

        integer(c_int) function c_double_attribute(writer, variable, key, number, error) &
                bind(C, name='stead_stream_writer_attribute_double')
            import :: c_int, c_char, c_ptr, c_int32_t, c_double
            type(c_ptr), value :: writer, error
            integer(c_int32_t), value :: variable
            character(kind=c_char), intent(in) :: key(*)
            real(c_double), value :: number
        end function

        integer(c_int) function c_begin(writer, step, error) bind(C, name='stead_stream_writer_begin')
            import :: c_int, c_ptr
            type(c_ptr), value :: writer, step, error
        end function

        integer(c_int) function c_put(writer, variable, start, count, data, error) bind(C, name='stead_stream_writer_put')
            import :: c_int, c_ptr, c_int32_t, c_int64_t
            type(c_ptr), value :: writer, data, error
            integer(c_int32_t), value :: variable
            integer(c_int64_t), intent(in) :: start(*), count(*)
        end function

        integer(c_int) function c_empty(writer, variable, start, count, memory, room, error) &
                bind(C, name='stead_stream_writer_empty')
            import :: c_int, c_ptr, c_int32_t, c_int64_t
            type(c_ptr), value :: writer, error
            integer(c_int32_t), value :: variable
            integer(c_int64_t), intent(in) :: start(*), count(*)
            type(c_ptr), intent(out) :: memory, room
        end function

        integer(c_int) function c_put_room(writer, room, error) bind(C, name='stead_stream_writer_put_room')
            import :: c_int, c_ptr
            type(c_ptr), value :: writer, room, error
        end function

        subroutine c_room_free(room) bind(C, name='stead_stream_room_free')
            import :: c_ptr
            type(c_ptr), value :: room
        end subroutine

        integer(c_int) function c_end(writer, error) bind(C, name='stead_stream_writer_end')
            import :: c_int, c_ptr
            type(c_ptr), value :: writer, error
        end function

        integer(c_int) function c_close(writer, error) bind(C, name='stead_stream_writer_close')
            import :: c_int, c_ptr
            type(c_ptr), value :: writer, error
        end function

        integer(c_int) function c_abandon(writer, error) bind(C, name='stead_stream_writer_abandon')
            import :: c_int, c_ptr
            type(c_ptr), value :: writer, error
        end function

        integer(c_int) function c_reader_open(name, options, reader, error) bind(C, name='stead_stream_reader_open')
            import :: c_int, c_char, c_ptr, reader_options
            character(kind=c_char), intent(in) :: name(*)
            type(reader_options), intent(in) :: options
            type(c_ptr), intent(out) :: reader
            type(c_ptr), value :: error
        end function

        integer(c_int) function c_next(reader, step, error) bind(C, name='stead_stream_reader_next')
            import :: c_int, c_ptr
            type(c_ptr), value :: reader, error
            type(c_ptr), intent(out) :: step
        end function

        integer(c_int) function c_next_within(reader, timeout_ms, step, error) bind(C, name='stead_stream_reader_next_within')
            import :: c_int, c_ptr, c_int64_t
            type(c_ptr), value :: reader, error
            integer(c_int64_t), value :: timeout_ms
            type(c_ptr), intent(out) :: step
        end function

        integer(c_int) function c_at(reader, number, step, error) bind(C, name='stead_stream_reader_at')
            import :: c_int, c_ptr, c_int64_t
            type(c_ptr), value :: reader, error
            integer(c_int64_t), value :: number
            type(c_ptr), intent(out) :: step
        end function

        logical(c_bool) function c_is_over(reader) bind(C, name='stead_stream_reader_is_over')
            import :: c_bool, c_ptr
            type(c_ptr), value :: reader
        end function

        integer(c_int) function c_steps(reader, numbers, room, count, error) bind(C, name='stead_stream_reader_steps')
            import :: c_int, c_ptr, c_size_t, c_int64_t
            type(c_ptr), value :: reader, error
            integer(c_int64_t), intent(inout) :: numbers(*)
            integer(c_size_t), value :: room
            integer(c_size_t), intent(inout) :: count
        end function

        integer(c_int) function c_wait_for(reader, variable, number, timeout_ms, step, error) &
                bind(C, name='stead_stream_reader_wait_for')
            import :: c_int, c_char, c_ptr, c_int64_t
            type(c_ptr), value :: reader, error
            character(kind=c_char), intent(in) :: variable(*)
            integer(c_int64_t), value :: number, timeout_ms
            type(c_ptr), intent(out) :: step
        end function

        subroutine c_reader_free(reader) bind(C, name='stead_stream_reader_free')
            import :: c_ptr
            type(c_ptr), value :: reader
        end subroutine

        integer(c_int) function c_step_fits(step, name, start, count, error) bind(C, name='stead_stream_step_fits')
            import :: c_int, c_char, c_ptr, c_size_t
            type(c_ptr), value :: step, error
            character(kind=c_char), intent(in) :: name(*)
            integer(c_size_t), value :: start, count
        end function

        integer(c_int64_t) function c_number(step) bind(C, name='stead_stream_step_number')
            import :: c_ptr, c_int64_t
            type(c_ptr), value :: step
        end function

        integer(c_int64_t) function c_dropped(step) bind(C, name='stead_stream_step_dropped')
            import :: c_ptr, c_int64_t
            type(c_ptr), value :: step
        end function

        integer(c_int) function c_get(step, name, start, count, to, bytes, error) bind(C, name='stead_stream_step_get_into')
            import :: c_int, c_char, c_ptr, c_size_t, c_int64_t
            type(c_ptr), value :: step, to, error
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int64_t), intent(in) :: start(*), count(*)
            integer(c_size_t), value :: bytes
        end function

        integer(c_int) function c_get_some(step, name, start, count, to, bytes, copied, error) &
                bind(C, name='stead_stream_step_get_what_there_is')
            import :: c_int, c_char, c_ptr, c_size_t, c_int64_t
            type(c_ptr), value :: step, to, error
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int64_t), intent(in) :: start(*), count(*)
            integer(c_size_t), value :: bytes
            integer(c_size_t), intent(inout) :: copied
        end function

        integer(c_int) function c_view(step, name, start, count, data, strides, array, error) &
                bind(C, name='stead_stream_step_view')
            import :: c_int, c_char, c_ptr, c_int64_t
            type(c_ptr), value :: step, strides, error
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int64_t), intent(in) :: start(*), count(*)
            type(c_ptr), intent(inout) :: data, array
        end function

        logical(c_bool) function c_is_view(array) bind(C, name='stead_stream_array_is_view')
            import :: c_bool, c_ptr
            type(c_ptr), value :: array
        end function

        subroutine c_array_free(array) bind(C, name='stead_stream_array_free')
            import :: c_ptr
            type(c_ptr), value :: array
        end subroutine

        subroutine c_step_free(step) bind(C, name='stead_stream_step_free')
            import :: c_ptr
            type(c_ptr), value :: step
        end subroutine

        type(c_ptr) function c_message() bind(C, name='stead_last_message')
            import :: c_ptr
        end function
    end interface

contains

    ! Takes the place of a writer of a stream; what is not said is as in C. `spill` is a folder, or 'auto'; `dataspaces` are folders such as
    ! 'memory=/dev/shm/me', before those that are configured, and none with a coupling, which has its own.
    subroutine stead_writer_open(name, writer, status, rank, writers, keep, queue, memory, readers, timeout_ms, persist, spill, &
            spill_limit, coupling, dataspaces)
        character(*), intent(in) :: name
        type(c_ptr), intent(out) :: writer
        integer(c_int), intent(out) :: status
        integer(c_int64_t), intent(in), optional :: rank, writers, keep, queue, memory, readers, timeout_ms, spill_limit
        character(*), intent(in), optional :: persist, spill, dataspaces(:)
        type(c_ptr), intent(in), optional :: coupling
        type(writer_options) :: options
        type(c_texts), target :: spaces
        character(kind=c_char), allocatable, target :: steps(:), spilled(:)
        options%size = c_sizeof(options)
        if (present(rank)) options%rank = rank
        if (present(writers)) options%writers = writers
        if (present(keep)) options%keep = keep
        if (present(queue)) options%queue = queue
        if (present(memory)) options%memory = memory
        if (present(readers)) options%readers = readers
        if (present(timeout_ms)) options%timeout_ms = timeout_ms
        if (present(persist)) then
            allocate(steps(len_trim(persist) + 1))
            steps(:) = chars(trim(persist))
            options%persist = c_loc(steps)
        end if
        if (present(spill)) then
            allocate(spilled(len_trim(spill) + 1))
            spilled(:) = chars(trim(spill))
            options%spill = c_loc(spilled)
        end if
        if (present(spill_limit)) options%spill_limit = spill_limit
        if (present(coupling)) options%coupling = coupling
        call put_texts(spaces, dataspaces)
        options%dataspaces = c_loc(spaces%places)
        options%dataspaces_count = spaces%count
        status = c_writer_open(trim(name) // c_null_char, options, writer, c_null_ptr)
    end subroutine

    ! Says what a variable is, and gives its number. `dims` are the names of its dimensions, one for each.
    subroutine stead_writer_define(writer, name, dtype, shape, variable, status, dims)
        type(c_ptr), intent(in) :: writer
        character(*), intent(in) :: name
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: shape(:)
        integer(c_int32_t), intent(out) :: variable
        integer(c_int), intent(out) :: status
        character(*), intent(in), optional :: dims(:)
        integer(c_size_t) :: ndim
        type(c_texts), target :: names
        type(c_ptr) :: its_dims
        ndim = size(shape, kind=c_size_t)
        its_dims = c_null_ptr
        if (present(dims)) then
            call put_texts(names, dims(size(dims):1:-1))
            if (size(dims) /= size(shape)) then
                ! Those that C would look for are no texts, which is an error.
                deallocate(names%places)
                allocate(names%places(size(shape) + 1))
                names%places = c_null_ptr
            end if
            its_dims = c_loc(names%places)
        end if
        status = c_define(writer, trim(name) // c_null_char, dtype, ndim, reversed(shape), its_dims, variable, c_null_ptr)
    end subroutine

    ! Says in what units a variable is.
    subroutine stead_writer_units(writer, variable, units, status)
        type(c_ptr), intent(in) :: writer
        integer(c_int32_t), intent(in) :: variable
        character(*), intent(in) :: units
        integer(c_int), intent(out) :: status
        status = c_text(writer, variable, 'units' // c_null_char, trim(units) // c_null_char, c_null_ptr)
    end subroutine

    subroutine attribute_text(writer, variable, key, value, status)
        type(c_ptr), intent(in) :: writer
        integer(c_int32_t), intent(in) :: variable
        character(*), intent(in) :: key, value
        integer(c_int), intent(out) :: status
        status = c_text(writer, variable, trim(key) // c_null_char, trim(value) // c_null_char, c_null_ptr)
    end subroutine

    subroutine attribute_int(writer, variable, key, value, status)
        type(c_ptr), intent(in) :: writer
        integer(c_int32_t), intent(in) :: variable
        character(*), intent(in) :: key
        integer(c_int64_t), intent(in) :: value
        integer(c_int), intent(out) :: status
        status = c_int_attribute(writer, variable, trim(key) // c_null_char, value, c_null_ptr)
    end subroutine

    subroutine attribute_double(writer, variable, key, value, status)
        type(c_ptr), intent(in) :: writer
        integer(c_int32_t), intent(in) :: variable
        character(*), intent(in) :: key
        real(c_double), intent(in) :: value
        integer(c_int), intent(out) :: status
        status = c_double_attribute(writer, variable, trim(key) // c_null_char, value, c_null_ptr)
    end subroutine

    subroutine stead_writer_begin(writer, status)
        type(c_ptr), intent(in) :: writer
        integer(c_int), intent(out) :: status
        status = c_begin(writer, c_null_ptr, c_null_ptr)
    end subroutine

    ! Puts a part of a variable, whose elements lie one after the other at `data`. They are copied.
    subroutine stead_writer_put(writer, variable, start, count, data, status)
        type(c_ptr), intent(in) :: writer, data
        integer(c_int32_t), intent(in) :: variable
        integer(c_int64_t), intent(in) :: start(:), count(:)
        integer(c_int), intent(out) :: status
        status = c_fits(writer, variable, size(start, kind=c_size_t), size(count, kind=c_size_t), c_null_ptr)
        if (status /= STEAD_OK) return
        status = c_put(writer, variable, reversed(start) - 1, reversed(count), data, c_null_ptr)
    end subroutine

    ! Memory for a part of a variable, for c_f_pointer; filled, it is put by stead_writer_put_room, without a copy.
    subroutine stead_writer_empty(writer, variable, start, count, memory, room, status)
        type(c_ptr), intent(in) :: writer
        integer(c_int32_t), intent(in) :: variable
        integer(c_int64_t), intent(in) :: start(:), count(:)
        type(c_ptr), intent(out) :: memory, room
        integer(c_int), intent(out) :: status
        memory = c_null_ptr
        room = c_null_ptr
        status = c_fits(writer, variable, size(start, kind=c_size_t), size(count, kind=c_size_t), c_null_ptr)
        if (status /= STEAD_OK) return
        status = c_empty(writer, variable, reversed(start) - 1, reversed(count), memory, room, c_null_ptr)
    end subroutine

    subroutine stead_writer_put_room(writer, room, status)
        type(c_ptr), intent(in) :: writer, room
        integer(c_int), intent(out) :: status
        status = c_put_room(writer, room, c_null_ptr)
    end subroutine

    ! Frees memory that is not put.
    subroutine stead_room_free(room)
        type(c_ptr), intent(in) :: room
        call c_room_free(room)
    end subroutine

    subroutine stead_writer_end(writer, status)
        type(c_ptr), intent(in) :: writer
        integer(c_int), intent(out) :: status
        status = c_end(writer, c_null_ptr)
    end subroutine

    ! Closes the stream: readers come to its end when all writers have.
    subroutine stead_writer_close(writer, status)
        type(c_ptr), intent(in) :: writer
        integer(c_int), intent(out) :: status
        status = c_close(writer, c_null_ptr)
    end subroutine

    ! Gives the stream up: readers are told that it has failed, after what is complete.
    subroutine stead_writer_abandon(writer, status)
        type(c_ptr), intent(in) :: writer
        integer(c_int), intent(out) :: status
        status = c_abandon(writer, c_null_ptr)
    end subroutine

    ! Takes the place of a rank of a group of readers of a stream, or of the steps that were recorded in a folder; what is not said is as
    ! in C. `dataspaces` are as for a writer; `nodes` are those of the pool of daemons that writers may be on: none are asked if there are
    ! none, and all if they are not said. None are an array without elements, `character(1) :: none(0)`: for gfortran `[character(1) ::]` is
    ! not said.
    subroutine stead_reader_open(name, reader, status, rank, ranks, timeout_ms, group, start, behind, threads, coupling, &
            dataspaces, nodes, queue, keep)
        character(*), intent(in) :: name
        type(c_ptr), intent(out) :: reader
        integer(c_int), intent(out) :: status
        integer(c_int64_t), intent(in), optional :: rank, ranks, timeout_ms, threads, queue, keep
        character(*), intent(in), optional :: group, dataspaces(:), nodes(:)
        integer(c_int), intent(in), optional :: start, behind
        type(c_ptr), intent(in), optional :: coupling
        type(reader_options) :: options
        type(c_texts), target :: spaces, others
        character(kind=c_char), allocatable, target :: its_name(:)
        options%size = c_sizeof(options)
        if (present(rank)) options%rank = rank
        if (present(ranks)) options%ranks = ranks
        if (present(timeout_ms)) options%timeout_ms = timeout_ms
        if (present(group)) then
            allocate(its_name(len_trim(group) + 1))
            its_name(:) = chars(trim(group))
            options%group = c_loc(its_name)
        end if
        if (present(start)) options%start = start
        if (present(behind)) options%behind = behind
        if (present(queue)) options%queue = queue
        if (present(keep)) options%keep = keep
        if (present(threads)) options%threads = threads
        if (present(coupling)) options%coupling = coupling
        call put_texts(spaces, dataspaces)
        options%dataspaces = c_loc(spaces%places)
        options%dataspaces_count = spaces%count
        if (present(nodes)) then
            call put_texts(others, nodes)
            options%nodes = c_loc(others%places)
            options%nodes_count = others%count
        end if
        status = c_reader_open(trim(name) // c_null_char, options, reader, c_null_ptr)
    end subroutine

    ! The next step; one that is not associated at the end of the stream.
    subroutine stead_reader_next(reader, step, status)
        type(c_ptr), intent(in) :: reader
        type(c_ptr), intent(out) :: step
        integer(c_int), intent(out) :: status
        status = c_next(reader, step, c_null_ptr)
    end subroutine

    ! The same, for so many milliseconds at most: one that is not associated also if there is none by then, and stead_reader_is_over tells
    ! which it is.
    subroutine stead_reader_next_within(reader, timeout_ms, step, status)
        type(c_ptr), intent(in) :: reader
        integer(c_int64_t), intent(in) :: timeout_ms
        type(c_ptr), intent(out) :: step
        integer(c_int), intent(out) :: status
        status = c_next_within(reader, timeout_ms, step, c_null_ptr)
    end subroutine

    ! True after the last step was given, and none will come.
    logical function stead_reader_is_over(reader)
        type(c_ptr), intent(in) :: reader
        stead_reader_is_over = logical(c_is_over(reader))
    end function

    ! The step of a number, if it is still there, whether it was given or not.
    subroutine stead_reader_at(reader, number, step, status)
        type(c_ptr), intent(in) :: reader
        integer(c_int64_t), intent(in) :: number
        type(c_ptr), intent(out) :: step
        integer(c_int), intent(out) :: status
        status = c_at(reader, number, step, c_null_ptr)
    end subroutine

    ! The numbers of the steps that are there now, in order.
    subroutine stead_reader_steps(reader, numbers, status)
        type(c_ptr), intent(in) :: reader
        integer(c_int64_t), allocatable, intent(out) :: numbers(:)
        integer(c_int), intent(out) :: status
        integer(c_size_t) :: room, there
        room = 0
        do
            allocate(numbers(room))
            there = 0
            status = c_steps(reader, numbers, room, there, c_null_ptr)
            if (status /= 0 .or. there <= room) exit
            ! More may come meanwhile.
            room = there
            deallocate(numbers)
        end do
        numbers = numbers(:there)
    end subroutine

    ! The step of a number, as soon as it is complete, with a variable in it.
    subroutine stead_reader_wait_for(reader, variable, number, timeout_ms, step, status)
        type(c_ptr), intent(in) :: reader
        character(*), intent(in) :: variable
        integer(c_int64_t), intent(in) :: number, timeout_ms
        type(c_ptr), intent(out) :: step
        integer(c_int), intent(out) :: status
        status = c_wait_for(reader, trim(variable) // c_null_char, number, timeout_ms, step, c_null_ptr)
    end subroutine

    subroutine stead_reader_close(reader)
        type(c_ptr), intent(in) :: reader
        call c_reader_free(reader)
    end subroutine

    ! The number of a step, from 0 on.
    integer(c_int64_t) function stead_step_number(step)
        type(c_ptr), intent(in) :: step
        stead_step_number = c_number(step)
    end function

    ! How many steps before it the reader was not given, since they went before it came to them.
    integer(c_int64_t) function stead_step_dropped(step)
        type(c_ptr), intent(in) :: step
        stead_step_dropped = c_dropped(step)
    end function

    ! The shape of the whole array that a variable is, and the type of its elements: STEAD_F64 and so on. A scalar has no dimensions.
    subroutine stead_step_shape(step, name, shape, status, dtype)
        type(c_ptr), intent(in) :: step
        character(*), intent(in) :: name
        integer(c_int64_t), allocatable, intent(out) :: shape(:)
        integer(c_int), intent(out) :: status
        integer(c_int), intent(out), optional :: dtype
        type(step_variable) :: found
        integer(c_int64_t), pointer :: lengths(:)
        status = c_find(step, trim(name) // c_null_char, found, c_sizeof(found), c_null_ptr)
        ! Where there is none, nothing was written there.
        allocate(shape(found%ndim))
        if (present(dtype)) dtype = found%dtype
        if (found%ndim == 0) return
        call c_f_pointer(found%shape, lengths, [found%ndim])
        shape(:) = lengths(found%ndim:1:-1)
    end subroutine

    ! Copies a part of a variable to memory of so many bytes.
    subroutine stead_step_get(step, name, start, count, to, bytes, status)
        type(c_ptr), intent(in) :: step, to
        character(*), intent(in) :: name
        integer(c_int64_t), intent(in) :: start(:), count(:)
        integer(c_size_t), intent(in) :: bytes
        integer(c_int), intent(out) :: status
        status = c_step_fits(step, trim(name) // c_null_char, size(start, kind=c_size_t), size(count, kind=c_size_t), c_null_ptr)
        if (status /= STEAD_OK) return
        status = c_get(step, trim(name) // c_null_char, reversed(start) - 1, reversed(count), to, bytes, c_null_ptr)
    end subroutine

    ! The same of what writers have put, where that is not all of it: the rest stays as it is. So many bytes were `copied`.
    subroutine stead_step_get_what_there_is(step, name, start, count, to, bytes, status, copied)
        type(c_ptr), intent(in) :: step, to
        character(*), intent(in) :: name
        integer(c_int64_t), intent(in) :: start(:), count(:)
        integer(c_size_t), intent(in) :: bytes
        integer(c_int), intent(out) :: status
        integer(c_size_t), intent(out), optional :: copied
        integer(c_size_t) :: some
        some = 0
        if (present(copied)) copied = some
        status = c_step_fits(step, trim(name) // c_null_char, size(start, kind=c_size_t), size(count, kind=c_size_t), c_null_ptr)
        if (status /= STEAD_OK) return
        status = c_get_some(step, trim(name) // c_null_char, reversed(start) - 1, reversed(count), to, bytes, some, c_null_ptr)
        if (present(copied)) copied = some
    end subroutine

    ! A part of a variable, to be looked at by c_f_pointer with its `count` as shape: `data` is the memory of its writer, without a copy, if
    ! it lies together in what one has put, and else a copy. It stays as it is until stead_array_free, also when the step and the reader
    ! are gone, and is not to be written to.
    subroutine stead_step_view(step, name, start, count, data, array, status)
        type(c_ptr), intent(in) :: step
        character(*), intent(in) :: name
        integer(c_int64_t), intent(in) :: start(:), count(:)
        type(c_ptr), intent(out) :: data, array
        integer(c_int), intent(out) :: status
        data = c_null_ptr
        array = c_null_ptr
        status = c_step_fits(step, trim(name) // c_null_char, size(start, kind=c_size_t), size(count, kind=c_size_t), c_null_ptr)
        if (status /= STEAD_OK) return
        status = c_view(step, trim(name) // c_null_char, reversed(start) - 1, reversed(count), data, c_null_ptr, array, c_null_ptr)
    end subroutine

    ! True if an array is the memory of a writer, and was not copied.
    logical function stead_array_is_view(array)
        type(c_ptr), intent(in) :: array
        stead_array_is_view = logical(c_is_view(array))
    end function

    subroutine stead_array_free(array)
        type(c_ptr), intent(in) :: array
        call c_array_free(array)
    end subroutine

    subroutine stead_step_free(step)
        type(c_ptr), intent(in) :: step
        call c_step_free(step)
    end subroutine

    ! What went wrong last in this thread.
    function stead_message() result(text)
        character(:), allocatable :: text
        call read_text(c_message(), text)
    end function
end module
