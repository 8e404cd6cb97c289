! Streams between the programs of a job on several nodes, for Fortran: makes of a communicator the `coupling` that the subroutines of
! stead_stream.f90 take.
!
!     use mpi
!     use stead_stream
!     use stead_mpi_stream
!     call stead_mpi_coupling(MPI_COMM_WORLD, 'simulation', coupling, status)
!     call stead_writer_open('sim', writer, status, coupling=coupling)
!
! The communicator is the integer of `use mpi` and mpif.h; stead_mpi_stream_f08.f90 has the same for `use mpi_f08`. MPI must have been
! initialised with MPI_INIT_THREAD and MPI_THREAD_MULTIPLE. A `status` is 0 if all went well; else stead_message() of stead_stream says what
! did not. Blanks at the end of names are no part of them. Modules are made by the compiler that uses them, so this is compiled with the
! program:
!
!     mpifort stead_stream.f90 stead_mpi_stream.f90 program.f90 $(pkg-config --libs stead_mpi) -o program
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module stead_mpi_stream
    use, intrinsic :: iso_c_binding
    use stead_stream_c, only: c_texts, put_texts
    implicit none
    private
    public :: stead_mpi_coupling, stead_mpi_part
    public :: stead_coupling_part, stead_coupling_rank, stead_coupling_ranks, stead_coupling_member, stead_coupling_free

    ! A communicator, and how long its ranks are waited for: stead_mpi_within of stead_mpi.h.
    type, bind(C) :: c_within
        type(c_ptr) :: communicator
        integer(c_int64_t) :: timeout_ms
    end type

    interface
        integer(c_int) function c_make(within, fabric, why) bind(C, name='stead_mpi_make_within_f')
            import :: c_int, c_ptr
            type(c_ptr), value :: within, fabric, why
        end function

        integer(c_int) function c_coupling(make, within, part, dataspaces, dataspaces_count, timeout_ms, coupling, error) &
                bind(C, name='stead_coupling_new')
            import :: c_int, c_char, c_ptr, c_funptr, c_size_t, c_int64_t
            type(c_funptr), value :: make
            type(c_ptr), value :: within, error
            character(kind=c_char), intent(in) :: part(*)
            type(c_ptr), intent(in) :: dataspaces(*)
            integer(c_size_t), value :: dataspaces_count
            integer(c_int64_t), value :: timeout_ms
            type(c_ptr), intent(out) :: coupling
        end function

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
    end interface

    external :: MPI_COMM_GROUP, MPI_COMM_CREATE_GROUP, MPI_GROUP_FREE, MPI_GROUP_INCL

contains

    ! Makes a coupling of all ranks of a communicator, each of which names its part of the job. Collective. `dataspaces` are folders such as
    ! 'memory=/dev/shm/me', before those that are configured. All ranks are to come within `timeout_ms` milliseconds, ten minutes unless
    ! told otherwise. stead_coupling_free frees it.
    subroutine stead_mpi_coupling(communicator, part, coupling, status, dataspaces, timeout_ms)
        integer, intent(in) :: communicator
        character(*), intent(in) :: part
        type(c_ptr), intent(out) :: coupling
        integer(c_int), intent(out) :: status
        character(*), intent(in), optional :: dataspaces(:)
        integer(c_int64_t), intent(in), optional :: timeout_ms
        integer(c_int), target :: handle
        type(c_within), target :: within
        type(c_texts), target :: spaces
        call put_texts(spaces, dataspaces)
        handle = int(communicator, c_int)
        within%communicator = c_loc(handle)
        within%timeout_ms = 0
        if (present(timeout_ms)) within%timeout_ms = timeout_ms
        status = c_coupling(c_funloc(c_make), c_loc(within), trim(part) // c_null_char, spaces%places, spaces%count, &
            within%timeout_ms, coupling, c_null_ptr)
    end subroutine

    ! A communicator of the ranks of the part of this one, for the program's own messages; to be freed with MPI_COMM_FREE. Collective over
    ! the ranks of the part: other programs need not do the same. Takes the communicator that the coupling was made of; `ierror` is MPI's.
    subroutine stead_mpi_part(communicator, coupling, part, ierror)
        integer, intent(in) :: communicator
        type(c_ptr), intent(in) :: coupling
        integer, intent(out) :: part, ierror
        integer, parameter :: success = 0, tag = 0
        integer :: all, mine, n, code
        integer(c_int64_t) :: i
        n = int(stead_coupling_ranks(coupling))
        call MPI_COMM_GROUP(communicator, all, ierror)
        if (ierror /= success) return
        call MPI_GROUP_INCL(all, n, [(int(stead_coupling_member(coupling, i)), i = 0, n - 1)], mine, ierror)
        call MPI_GROUP_FREE(all, code)
        if (ierror /= success) return
        call MPI_COMM_CREATE_GROUP(communicator, mine, tag, part, ierror)
        call MPI_GROUP_FREE(mine, code)
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
end module
