! Ranks of a job that write a plate together, each its columns of it, which are rows in C and Python.
program coupled_simulation
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    use mpi_f08
    use stead_stream
    use stead_mpi_stream_f08
    implicit none
    integer(c_int64_t), parameter :: nx = 800, mine = 100
    integer(c_int64_t) :: rank, ranks, step
    real(c_double), target :: plate(nx, mine)
    type(c_ptr) :: sim, writer
    integer(c_int32_t) :: t
    integer(c_int) :: status
    integer :: level

    call MPI_Init_thread(MPI_THREAD_MULTIPLE, level)
    call stead_mpi_coupling(MPI_COMM_WORLD, 'sim', sim, status)
    call must(status)
    rank = stead_coupling_rank(sim)
    ranks = stead_coupling_ranks(sim)
    call stead_writer_open('plate', writer, status, readers=1_c_int64_t, coupling=sim)
    call must(status)
    call stead_writer_define(writer, 'T', STEAD_F64, [nx, mine * ranks], t, status)
    call must(status)
    do step = 0, 2
        plate = real(rank + 10 * step, c_double)
        call stead_writer_begin(writer, status)
        call must(status)
        call stead_writer_put(writer, t, [1_c_int64_t, rank * mine + 1], [nx, mine], c_loc(plate), status)
        call must(status)
        call stead_writer_end(writer, status)
        call must(status)
    end do
    call stead_writer_close(writer, status)
    call must(status)
    call stead_coupling_free(sim)
    call MPI_Finalize()

contains

    subroutine must(status)
        integer(c_int), intent(in) :: status
        if (status == 0) return
        write (error_unit, '(a)') stead_message()
        call MPI_Abort(MPI_COMM_WORLD, 1)
    end subroutine
end program
