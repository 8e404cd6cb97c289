! Ranks that compute ask ranks that are where the data are, in Fortran 2008: the mean of each of four columns of doubles, of which
! only four numbers cross the network.
!
!   mpifort stead_mpi_io.f90 stead_mpi_io_f08.f90 read_ex_f08.f90 $(pkg-config --libs stead_mpi_io) -o read_ex_f08
!   mpirun -n 4 --host compute1:2,node1,node2 ./read_ex_f08 FILE 'node[1-2]'
!
! Without the names of storage hosts, or on a laptop, each rank computes what it asks for itself.
program read_ex_f08
    use, intrinsic :: iso_c_binding
    use mpi_f08
    use stead_mpi_io_f08
    implicit none
    integer, parameter :: columns = 4
    integer :: ierror, level, rank
    type(MPI_Comm) :: compute
    type(MPI_Info) :: hints
    type(MPI_File) :: file
    type(MPI_Datatype) :: row
    integer(MPI_OFFSET_KIND) :: bytes
    integer(c_int64_t) :: got
    real(c_double), target :: means(columns)
    character(1024) :: path, hosts

    call get_command_argument(1, path)
    call get_command_argument(2, hosts)
    ! stead talks to other ranks from a thread of its own.
    call MPI_Init_thread(MPI_THREAD_MULTIPLE, level)
    call MPI_Info_create(hints)
    if (len_trim(hosts) > 0) call MPI_Info_set(hints, 'storage_hosts', trim(hosts))
    call stead_storage_init(MPI_COMM_WORLD, hints, compute, ierror)
    if (ierror /= MPI_SUCCESS) call MPI_Abort(MPI_COMM_WORLD, 1)
    call MPI_Info_free(hints)

    if (compute /= MPI_COMM_NULL) then
        call MPI_Comm_rank(compute, rank)
        call MPI_File_open(compute, trim(path), MPI_MODE_RDONLY, MPI_INFO_NULL, file, ierror)
        if (ierror /= MPI_SUCCESS) call MPI_Abort(MPI_COMM_WORLD, 1)
        call MPI_File_get_size(file, bytes)
        call MPI_Type_contiguous(columns, MPI_DOUBLE_PRECISION, row)
        call MPI_Type_commit(row)
        call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, row, row, 'native', MPI_INFO_NULL)
        call stead_file_read_ex_all(file, c_loc(means), bytes / (8 * columns), row, 'mean', MPI_INFO_NULL, got, ierror)
        if (ierror /= MPI_SUCCESS) then
            print '(a)', stead_error_text()
            call MPI_Abort(MPI_COMM_WORLD, 1)
        end if
        if (rank == 0) print '(a, *(1x, es24.16e3))', 'means:', means
        call MPI_Type_free(row)
        call MPI_File_close(file)
        call stead_storage_finalize()
        call MPI_Comm_free(compute)
    end if
    call MPI_Finalize()
end program
