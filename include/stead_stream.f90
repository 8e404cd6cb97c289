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
! Every `status` is 0 if all went well; else `stead_message()` says what did not. Modules are made by the compiler that uses them, so this
! is compiled with the program:
!
!     gfortran stead_stream.f90 program.f90 $(pkg-config --libs stead) -o program
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module stead_stream
    use, intrinsic :: iso_c_binding
    implicit none
    private
    public :: stead_writer_open, stead_writer_define, stead_writer_units, stead_writer_attribute
    public :: stead_writer_begin, stead_writer_put, stead_writer_empty
    public :: stead_writer_put_room, stead_room_free, stead_writer_end, stead_writer_close, stead_writer_abandon
    public :: stead_reader_open, stead_reader_next, stead_reader_wait_for, stead_reader_close
    public :: stead_step_number, stead_step_shape, stead_step_get, stead_step_free, stead_message
    public :: stead_coupling_part, stead_coupling_rank, stead_coupling_ranks, stead_coupling_member, stead_coupling_free

    ! Types of elements.
    integer(c_int), parameter, public :: STEAD_U8 = 7, STEAD_F32 = 1, STEAD_F64 = 2
    integer(c_int), parameter, public :: STEAD_I32 = 5, STEAD_I64 = 6

    ! For `keep`: no complete steps stay when all readers have had them. 0 is what is usual, one.
    integer(c_int64_t), parameter, public :: STEAD_STREAM_KEEP_NONE = -1

    ! With which step readers begin, and what writers do when they are behind.
    integer(c_int), parameter, public :: STEAD_STREAM_OLDEST = 0, STEAD_STREAM_NEXT = 1, STEAD_STREAM_FIRST = 2
    integer(c_int), parameter, public :: STEAD_STREAM_BLOCK = 0, STEAD_STREAM_DROP = 1, STEAD_STREAM_SPILL = 2

    ! Says something of a variable beside its data: a text, a whole number, or a number.
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
    end type

    type, bind(C) :: step_variable
        type(c_ptr) :: name = c_null_ptr
        integer(c_int) :: dtype = 0
        integer(c_size_t) :: ndim = 0
        type(c_ptr) :: shape = c_null_ptr, dims = c_null_ptr
        integer(c_size_t) :: attributes = 0
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

        integer(c_int64_t) function c_number(step) bind(C, name='stead_stream_step_number')
            import :: c_ptr, c_int64_t
            type(c_ptr), value :: step
        end function

        integer(c_int) function c_find(step, name, variable, bytes, error) bind(C, name='stead_stream_step_find')
            import :: c_int, c_char, c_ptr, c_size_t, step_variable
            type(c_ptr), value :: step, error
            character(kind=c_char), intent(in) :: name(*)
            type(step_variable), intent(inout) :: variable
            integer(c_size_t), value :: bytes
        end function

        integer(c_int) function c_get(step, name, start, count, to, bytes, error) bind(C, name='stead_stream_step_get_into')
            import :: c_int, c_char, c_ptr, c_size_t, c_int64_t
            type(c_ptr), value :: step, to, error
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int64_t), intent(in) :: start(*), count(*)
            integer(c_size_t), value :: bytes
        end function

        subroutine c_step_free(step) bind(C, name='stead_stream_step_free')
            import :: c_ptr
            type(c_ptr), value :: step
        end subroutine

        integer(c_int64_t) function c_coupling_part(coupling) bind(C, name='stead_coupling_part')
            import :: c_ptr, c_int64_t
            type(c_ptr), value :: coupling
        end function

        integer(c_int64_t) function c_coupling_rank(coupling) bind(C, name='stead_coupling_rank')
            import :: c_ptr, c_int64_t
            type(c_ptr), value :: coupling
        end function

        integer(c_int64_t) function c_coupling_ranks(coupling) bind(C, name='stead_coupling_ranks')
            import :: c_ptr, c_int64_t
            type(c_ptr), value :: coupling
        end function

        integer(c_int64_t) function c_coupling_member(coupling, rank) bind(C, name='stead_coupling_member')
            import :: c_ptr, c_int64_t
            type(c_ptr), value :: coupling
            integer(c_int64_t), value :: rank
        end function

        subroutine c_coupling_free(coupling) bind(C, name='stead_coupling_free')
            import :: c_ptr
            type(c_ptr), value :: coupling
        end subroutine

        type(c_ptr) function c_message() bind(C, name='stead_last_message')
            import :: c_ptr
        end function

        integer(c_size_t) function c_length(text) bind(C, name='strlen')
            import :: c_ptr, c_size_t
            type(c_ptr), value :: text
        end function
    end interface

contains

    ! Takes the place of a writer of a stream; what is not said is as in C.
    subroutine stead_writer_open(name, writer, status, rank, writers, keep, queue, memory, readers, timeout_ms, persist, spill, &
            spill_limit, coupling)
        character(*), intent(in) :: name
        type(c_ptr), intent(out) :: writer
        integer(c_int), intent(out) :: status
        integer(c_int64_t), intent(in), optional :: rank, writers, keep, queue, memory, readers, timeout_ms, spill_limit
        character(*), intent(in), optional :: persist, spill
        type(c_ptr), intent(in), optional :: coupling
        type(writer_options) :: options
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
        status = c_writer_open(trim(name) // c_null_char, options, writer, c_null_ptr)
    end subroutine

    ! Says what a variable is, and gives its number.
    subroutine stead_writer_define(writer, name, dtype, shape, variable, status)
        type(c_ptr), intent(in) :: writer
        character(*), intent(in) :: name
        integer(c_int), intent(in) :: dtype
        integer(c_int64_t), intent(in) :: shape(:)
        integer(c_int32_t), intent(out) :: variable
        integer(c_int), intent(out) :: status
        integer(c_size_t) :: ndim
        ndim = size(shape, kind=c_size_t)
        status = c_define(writer, trim(name) // c_null_char, dtype, ndim, shape(size(shape):1:-1), c_null_ptr, variable, c_null_ptr)
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
        status = c_put(writer, variable, start(size(start):1:-1) - 1, count(size(count):1:-1), data, c_null_ptr)
    end subroutine

    ! Memory for a part of a variable, for c_f_pointer; filled, it is put by stead_writer_put_room, without a copy.
    subroutine stead_writer_empty(writer, variable, start, count, memory, room, status)
        type(c_ptr), intent(in) :: writer
        integer(c_int32_t), intent(in) :: variable
        integer(c_int64_t), intent(in) :: start(:), count(:)
        type(c_ptr), intent(out) :: memory, room
        integer(c_int), intent(out) :: status
        status = c_empty(writer, variable, start(size(start):1:-1) - 1, count(size(count):1:-1), memory, room, c_null_ptr)
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
    ! in C.
    subroutine stead_reader_open(name, reader, status, rank, ranks, timeout_ms, group, start, behind, threads, coupling)
        character(*), intent(in) :: name
        type(c_ptr), intent(out) :: reader
        integer(c_int), intent(out) :: status
        integer(c_int64_t), intent(in), optional :: rank, ranks, timeout_ms, threads
        character(*), intent(in), optional :: group
        integer(c_int), intent(in), optional :: start, behind
        type(c_ptr), intent(in), optional :: coupling
        type(reader_options) :: options
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
        if (present(threads)) options%threads = threads
        if (present(coupling)) options%coupling = coupling
        status = c_reader_open(trim(name) // c_null_char, options, reader, c_null_ptr)
    end subroutine

    ! The next step; one that is not associated at the end of the stream.
    subroutine stead_reader_next(reader, step, status)
        type(c_ptr), intent(in) :: reader
        type(c_ptr), intent(out) :: step
        integer(c_int), intent(out) :: status
        status = c_next(reader, step, c_null_ptr)
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
        status = c_get(step, trim(name) // c_null_char, start(size(start):1:-1) - 1, count(size(count):1:-1), to, bytes, c_null_ptr)
    end subroutine

    subroutine stead_step_free(step)
        type(c_ptr), intent(in) :: step
        call c_step_free(step)
    end subroutine

    ! Which of the parts of a coupling, by their names, this rank is of, from 0 on.
    integer(c_int64_t) function stead_coupling_part(coupling)
        type(c_ptr), intent(in) :: coupling
        stead_coupling_part = c_coupling_part(coupling)
    end function

    ! Which rank of its part this is, from 0 on.
    integer(c_int64_t) function stead_coupling_rank(coupling)
        type(c_ptr), intent(in) :: coupling
        stead_coupling_rank = c_coupling_rank(coupling)
    end function

    ! How many ranks its part has.
    integer(c_int64_t) function stead_coupling_ranks(coupling)
        type(c_ptr), intent(in) :: coupling
        stead_coupling_ranks = c_coupling_ranks(coupling)
    end function

    ! Which rank of all, in the communicator that the coupling was made of, a rank of its part is.
    integer(c_int64_t) function stead_coupling_member(coupling, rank)
        type(c_ptr), intent(in) :: coupling
        integer(c_int64_t), intent(in) :: rank
        stead_coupling_member = c_coupling_member(coupling, rank)
    end function

    ! Writers and readers that are open go on.
    subroutine stead_coupling_free(coupling)
        type(c_ptr), intent(in) :: coupling
        call c_coupling_free(coupling)
    end subroutine

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

    ! What went wrong last in this thread.
    function stead_message() result(text)
        character(:), allocatable :: text
        character(kind=c_char), pointer :: bytes(:)
        type(c_ptr) :: message
        integer(c_size_t) :: i
        message = c_message()
        call c_f_pointer(message, bytes, [c_length(message)])
        allocate(character(size(bytes)) :: text)
        do i = 1, size(bytes, kind=c_size_t)
            text(i:i) = bytes(i)
        end do
    end function
end module
