! Memory for arrays that are made before there is a writer of a stream, for Fortran: any writer puts it without a copy. stead.h says what the
! functions do.
!
!     use stead_stream
!     use stead_stream_buffer
!     call stead_stream_empty(8 * nx * ny, memory, buffer, status)
!     call c_f_pointer(memory, field, [nx, ny])
!     field = 0
!     call stead_writer_put_buffer(writer, t, [1_c_int64_t, 1_c_int64_t], [nx, ny], buffer, status)
!     call stead_buffer_free(buffer)
!
! What was put is to be read only. All that stands in stead_stream.f90 about indices, texts and `status` holds here. It is compiled with the
! program:
!
!     gfortran stead_stream.f90 stead_stream_buffer.f90 program.f90 $(pkg-config --libs stead) -o program
!
! SPDX-License-Identifier: Apache-2.0 OR MIT
module stead_stream_buffer
    use, intrinsic :: iso_c_binding
    use stead_stream_c, only: c_fits, c_texts, put_texts, reversed
    implicit none
    private
    public :: stead_stream_empty, stead_writer_put_buffer, stead_buffer_free

    interface
        integer(c_int) function c_made(dataspaces, dataspaces_count, size, memory, buffer, error) bind(C, name='stead_stream_empty')
            import :: c_int, c_int64_t, c_ptr, c_size_t
            type(c_ptr), value :: dataspaces, error
            integer(c_size_t), value :: dataspaces_count
            integer(c_int64_t), value :: size
            type(c_ptr), intent(out) :: memory, buffer
        end function

        integer(c_int) function c_put_buffer(writer, variable, start, count, buffer, error) &
                bind(C, name='stead_stream_writer_put_buffer')
            import :: c_int, c_int32_t, c_int64_t, c_ptr
            type(c_ptr), value :: writer, buffer, error
            integer(c_int32_t), value :: variable
            integer(c_int64_t), intent(in) :: start(*), count(*)
        end function

        subroutine c_buffer_free(buffer) bind(C, name='stead_stream_buffer_free')
            import :: c_ptr
            type(c_ptr), value :: buffer
        end subroutine
    end interface

contains

    ! Memory of so many bytes, for c_f_pointer: at first whatever was there before. `dataspaces` are as for stead_writer_open.
    subroutine stead_stream_empty(size, memory, buffer, status, dataspaces)
        integer(c_int64_t), intent(in) :: size
        type(c_ptr), intent(out) :: memory, buffer
        integer(c_int), intent(out) :: status
        character(*), intent(in), optional :: dataspaces(:)
        type(c_texts), target :: spaces
        call put_texts(spaces, dataspaces)
        status = c_made(c_loc(spaces%places), spaces%count, size, memory, buffer, c_null_ptr)
    end subroutine

    ! Puts a part of a variable that lies at the beginning of a buffer, where it lies.
    subroutine stead_writer_put_buffer(writer, variable, start, count, buffer, status)
        type(c_ptr), intent(in) :: writer, buffer
        integer(c_int32_t), intent(in) :: variable
        integer(c_int64_t), intent(in) :: start(:), count(:)
        integer(c_int), intent(out) :: status
        status = c_fits(writer, variable, size(start, kind=c_size_t), size(count, kind=c_size_t), c_null_ptr)
        if (status /= 0) return
        status = c_put_buffer(writer, variable, reversed(start) - 1, reversed(count), buffer, c_null_ptr)
    end subroutine

    ! Frees a buffer, whose memory must not be used any more. Steps that have it keep it.
    subroutine stead_buffer_free(buffer)
        type(c_ptr), intent(in) :: buffer
        call c_buffer_free(buffer)
    end subroutine
end module
