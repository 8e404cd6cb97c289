! Streams between the programs of a job on several nodes, for `use mpi_f08`: the subroutines of stead_mpi_stream.f90 with communicators that
! are types.
!
!     use mpi_f08
!     use stead_stream
!     use stead_mpi_stream_f08
!     call stead_mpi_coupling(MPI_COMM_WORLD, 'simulation', coupling, status)
!
! All files are compiled with the program:
!
!     mpifort stead_stream.f90 stead_mpi_stream.f90 stead_mpi_stream_f08.f90 program.f90 $(pkg-config --libs stead_mpi) -o program
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module stead_mpi_stream_f08
    use, intrinsic :: iso_c_binding
    use mpi_f08
    use stead_mpi_stream, only: couple => stead_mpi_coupling, split => stead_mpi_part, stead_coupling_part, stead_coupling_rank, &
        stead_coupling_ranks, stead_coupling_member, stead_coupling_free
    implicit none
    private
    public :: stead_mpi_coupling, stead_mpi_part
    public :: stead_coupling_part, stead_coupling_rank, stead_coupling_ranks, stead_coupling_member, stead_coupling_free

contains

    ! Makes a coupling of all ranks of a communicator, each of which names its part of the job. Collective. `dataspaces` are folders such as
    ! 'memory=/dev/shm/me', before those that are configured. All ranks are to come within `timeout_ms` milliseconds, ten minutes unless
    ! told otherwise. stead_coupling_free frees it.
    subroutine stead_mpi_coupling(communicator, part, coupling, status, dataspaces, timeout_ms)
        type(MPI_Comm), intent(in) :: communicator
        character(*), intent(in) :: part
        type(c_ptr), intent(out) :: coupling
        integer(c_int), intent(out) :: status
        character(*), intent(in), optional :: dataspaces(:)
        integer(c_int64_t), intent(in), optional :: timeout_ms
        call couple(communicator%MPI_VAL, part, coupling, status, dataspaces, timeout_ms)
    end subroutine

    ! A communicator of the ranks of the part of this one, for the program's own messages; to be freed with MPI_Comm_free. Collective over
    ! the ranks of the part: other programs need not do the same. Takes the communicator that the coupling was made of.
    subroutine stead_mpi_part(communicator, coupling, part, ierror)
        type(MPI_Comm), intent(in) :: communicator
        type(c_ptr), intent(in) :: coupling
        type(MPI_Comm), intent(out) :: part
        integer, intent(out), optional :: ierror
        integer :: code
        call split(communicator%MPI_VAL, coupling, part%MPI_VAL, code)
        if (present(ierror)) ierror = code
    end subroutine
end module
