! Ranks of one job that hand an array to each other in Fortran: the first so many write columns of it, the others get rows.
!
!     coupled-fortran WRITERS [MEMORY]
!
! With MEMORY, this folder is the memory of the node, in place of what is configured.
program coupled
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    use mpi
    use stead_stream
    use stead_stream_told
    use stead_mpi_stream
    implicit none
    integer(c_int64_t), parameter :: nx = 30, ny = 12, steps = 4, wait = 60000
    type(c_ptr) :: part, other
    integer(c_int) :: status
    integer :: level, rank, own, ranks, all, ierror, writers
    character(8) :: name
    character(1024) :: text, places(2)

    call MPI_INIT_THREAD(MPI_THREAD_MULTIPLE, level, ierror)
    call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierror)
    call get_command_argument(1, text)
    read (text, *) writers
    ! The shorter one with blanks behind it.
    name = 'analysis'
    if (rank < writers) name = 'sim'

    ! What is no communicator, and no name, is told to all.
    call stead_mpi_coupling(MPI_COMM_NULL, 'sim', other, status)
    if (status == 0) call wrong('a coupling of nothing')
    call stead_mpi_coupling(MPI_COMM_WORLD, 'a part', other, status)
    if (status == 0) call wrong('a name that is none')

    call get_command_argument(2, text)
    if (text == '') then
        call stead_mpi_coupling(MPI_COMM_WORLD, name, part, status)
    else
        places(1) = 'files=/tmp'
        write (places(2), '(2a)') 'memory=', trim(text)
        ! Hosts of a lab have a /dev/shm of their own.
        call execute_command_line('mkdir -p ''' // trim(text) // '''')
        call stead_mpi_coupling(MPI_COMM_WORLD, name, part, status, places, timeout_ms=wait)
    end if
    call must(status)
    call stead_mpi_part(MPI_COMM_WORLD, part, own, ierror)
    if (ierror /= MPI_SUCCESS) call wrong('no communicator')
    call MPI_COMM_SIZE(own, ranks, ierror)
    call MPI_ALLREDUCE(1, all, 1, MPI_INTEGER, MPI_SUM, own, ierror)
    if (stead_coupling_ranks(part) /= ranks .or. all /= ranks) call wrong('the ranks of a part')
    if (stead_coupling_part(part) /= merge(1, 0, name == 'sim')) call wrong('the number of a part')
    if (name == 'sim') then
        call writes()
    else
        call reads()
    end if
    call stead_coupling_free(part)
    call MPI_COMM_FREE(own, ierror)
    write (text, '(a, i0)') 'right ', rank
    print '(a)', trim(text)
    call MPI_FINALIZE(ierror)

contains

    subroutine writes()
        integer(c_int64_t) :: first, mine, step, x, y
        real(c_double), allocatable, target :: columns(:, :)
        type(c_ptr) :: writer
        integer(c_int32_t) :: t
        first = ny * stead_coupling_rank(part) / ranks
        mine = ny * (stead_coupling_rank(part) + 1) / ranks - first
        allocate(columns(nx, mine))
        call stead_writer_open('coupled', writer, status, readers=1_c_int64_t, timeout_ms=wait, coupling=part)
        call must(status)
        call stead_writer_define(writer, 'T', STEAD_F64, [nx, ny], t, status, dims=['row   ', 'column'])
        call must(status)
        call stead_writer_attribute(writer, t, 'levels', [2_c_int64_t, 3_c_int64_t], status)
        call must(status)
        do step = 0, steps - 1
            do y = 1, mine
                columns(:, y) = [(element(step, x, first + y), x = 1, nx)]
            end do
            call stead_writer_begin(writer, status)
            call must(status)
            call stead_writer_put(writer, t, [1_c_int64_t, first + 1], [nx, mine], c_loc(columns), status)
            call must(status)
            call stead_writer_end(writer, status)
            call must(status)
        end do
        call stead_writer_close(writer, status)
        call must(status)
    end subroutine

    subroutine reads()
        integer(c_int64_t) :: first, mine, step, x, y
        real(c_double), allocatable, target :: rows(:, :)
        real(c_double), pointer :: seen(:, :)
        type(c_ptr) :: reader, it, data, array
        first = nx * stead_coupling_rank(part) / ranks
        mine = nx * (stead_coupling_rank(part) + 1) / ranks - first
        allocate(rows(mine, ny))
        call stead_reader_open('coupled', reader, status, timeout_ms=wait, coupling=part)
        call must(status)
        do step = 0, steps - 1
            call stead_reader_next(reader, it, status)
            call must(status)
            if (.not. c_associated(it)) call wrong('no step')
            if (stead_step_number(it) /= step) call wrong('another step')
            call stead_step_get(it, 'T', [first + 1, 1_c_int64_t], [mine, ny], c_loc(rows), 8 * mine * ny, status)
            call must(status)
            do y = 1, ny
                do x = 1, mine
                    if (nint(rows(x, y) - element(step, first + x, y), c_int64_t) /= 0) call wrong('an element')
                end do
            end do
            call is_told(it)
            ! What lies on several nodes is copied together. It stays when the step has gone.
            call stead_step_view(it, 'T', [first + 1, 1_c_int64_t], [mine, ny], data, array, status)
            call must(status)
            call stead_step_free(it)
            call c_f_pointer(data, seen, [mine, ny])
            if (any(abs(seen - rows) > 0.5_c_double)) call wrong('an element that is looked at')
            call stead_array_free(array)
        end do
        call stead_reader_next(reader, it, status)
        call must(status)
        if (c_associated(it)) call wrong('a step too many')
        call stead_reader_close(reader)
    end subroutine

    ! What is said of the array, also by writers of other nodes.
    subroutine is_told(it)
        type(c_ptr), intent(in) :: it
        character(:), allocatable :: dim
        integer(c_int64_t), allocatable :: levels(:), from(:), starts(:, :), counts(:, :)
        call stead_step_dim(it, 'T', 2_c_int64_t, dim, status)
        call must(status)
        if (dim /= 'column') call wrong('the name of a dimension')
        call stead_step_attribute(it, 'T', 'levels', levels, status)
        call must(status)
        if (sum(levels) /= 5) call wrong('levels')
        call stead_step_parts(it, 'T', from, starts, counts, status)
        call must(status)
        if (size(from) /= writers .or. sum(counts(2, :)) /= ny .or. any(starts(1, :) /= 1)) call wrong('parts')
    end subroutine

    pure real(c_double) function element(step, x, y)
        integer(c_int64_t), intent(in) :: step, x, y
        element = real(1000000 * step + 1000 * y + x, c_double)
    end function

    subroutine must(status)
        integer(c_int), intent(in) :: status
        if (status /= 0) call wrong(stead_message())
    end subroutine

    subroutine wrong(what)
        character(*), intent(in) :: what
        integer :: ierror
        write (error_unit, '(a)') 'wrong: ' // what
        call MPI_ABORT(MPI_COMM_WORLD, 1, ierror)
    end subroutine
end program
