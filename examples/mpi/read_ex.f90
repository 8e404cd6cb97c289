! Ranks that compute ask ranks that are where the data are, in Fortran: a histogram of doubles, of which only the counts
! cross the network.
!
!   mpifort stead_mpi_io.f90 read_ex.f90 $(pkg-config --libs stead_mpi_io) -o read_ex
!   mpirun -n 4 --host compute1:2,node1,node2 ./read_ex FILE 'node[1-2]'
!
! Without the names of storage hosts, or on a laptop, each rank computes what it asks for itself.
program read_ex
    use, intrinsic :: iso_c_binding
    use mpi
    use stead_mpi_io
    implicit none
    integer, parameter :: bins = 8
    integer :: ierror, level, rank, ranks, compute, hints, file
    integer(MPI_OFFSET_KIND) :: bytes
    integer(c_int64_t) :: share, first, got
    integer(c_int64_t), target :: counts(bins)
    integer(c_int64_t) :: totals(bins)
    character(1024) :: path, hosts

    call get_command_argument(1, path)
    call get_command_argument(2, hosts)
    ! stead talks to other ranks from a thread of its own.
    call MPI_Init_thread(MPI_THREAD_MULTIPLE, level, ierror)
    call MPI_Info_create(hints, ierror)
    if (len_trim(hosts) > 0) call MPI_Info_set(hints, 'storage_hosts', trim(hosts), ierror)
    call stead_storage_init(MPI_COMM_WORLD, hints, compute, ierror)
    if (ierror /= MPI_SUCCESS) call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
    call MPI_Info_free(hints, ierror)

    if (compute /= MPI_COMM_NULL) then
        call MPI_Comm_rank(compute, rank, ierror)
        call MPI_Comm_size(compute, ranks, ierror)
        call stead_file_open(compute, path, MPI_MODE_RDONLY, MPI_INFO_NULL, file, ierror)
        if (ierror /= MPI_SUCCESS) call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
        call MPI_File_get_size(file, bytes, ierror)
        call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, MPI_DOUBLE_PRECISION, MPI_DOUBLE_PRECISION, 'native', &
                               MPI_INFO_NULL, ierror)
        ! This rank's part of the file, in doubles.
        share = (bytes / 8 + ranks - 1) / ranks
        first = share * rank
        call MPI_Info_create(hints, ierror)
        call MPI_Info_set(hints, 'bins', '8', ierror)
        call MPI_Info_set(hints, 'lo', '0', ierror)
        call MPI_Info_set(hints, 'hi', '1', ierror)
        counts = 0
        call stead_file_read_ex_at_all(file, first, c_loc(counts), share, MPI_DOUBLE_PRECISION, 'hist', hints, got, ierror)
        if (ierror /= MPI_SUCCESS) then
            print '(a)', stead_error_text()
            call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
        end if
        call MPI_Reduce(counts, totals, bins, MPI_INTEGER8, MPI_SUM, 0, compute, ierror)
        if (rank == 0) print '(a, *(i0, :, " "))', 'counts: ', totals
        call MPI_Info_free(hints, ierror)
        call MPI_File_close(file, ierror)
        call stead_storage_finalize(ierror)
        call MPI_Comm_free(compute, ierror)
    end if
    call MPI_Finalize(ierror)
end program
