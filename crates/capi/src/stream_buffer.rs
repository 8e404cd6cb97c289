//! Memory for arrays that are made before there is a writer of a stream.

use crate::error::{stead_error, stead_status};
use crate::guard::{call, look};
use crate::stream;
use crate::stream_writer::{block, stead_stream_writer, with};
use crate::table::{self, Object};
use std::ffi::{c_char, c_void};
use stead::Error;
use stead::stream::{Buffer, Home};

/// Memory for arrays that is made before there is a writer, and that any writer puts without a copy. Made by stead_stream_empty, freed with
/// stead_stream_buffer_free. Several threads may use it.
pub struct stead_stream_buffer {
    _opaque: [u8; 0],
}

/// What the table has of such memory.
struct BufferFace(Buffer);

impl Object for BufferFace {
    type Handle = stead_stream_buffer;
    const NAME: &'static str = "stream buffer";
}

/// Memory of `size` bytes that writers of streams put without a copy, by stead_stream_writer_put_buffer, as often as one likes. `*memory` is
/// where it begins, aligned to 64 bytes at least: at first whatever was there before; NULL if `size` is 0. It lies in the dataspace "memory";
/// `dataspaces` are as in stead_stream_writer_options, NULL and 0 for those that are configured.
///
/// It counts for the memory of a stream each time that it is put, until its step has gone, and before that for none. Its pages are there when
/// this returns, which takes as long as a copy does, unless memory of this size was freed whose steps have gone: that is lent again. So a program
/// that makes one for each step has no new pages after the first few. Less than 64 KiB is copied when it is put, which is less work; so is what is
/// beyond a quarter of the files that this process may have open, each having one; all of it where the file system has no files without a name;
/// and what is put by a process that was forked since.
///
/// Errors: STEAD_USAGE for dataspaces that are none; STEAD_NO_SPACE if there is not as much memory; STEAD_LIMIT if this process may have no
/// such file, or no more files or mappings; STEAD_PERMISSION if the folder of streams is not private to this user.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_empty(
    dataspaces: *const *const c_char,
    dataspaces_count: usize,
    size: u64,
    memory: *mut *mut c_void,
    buffer: *mut *mut stead_stream_buffer,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let place = c.out_handle(memory, "place for the address")?;
        let out = c.out_handle(buffer, "place for the buffer")?;
        let spaces = stream::spaces(c, dataspaces, dataspaces_count)?;
        let home = Home::open(&spaces).map_err(Error::of_open_files)?;
        let mut made = home.empty(size)?;
        let odd = || Error::internal("new memory is somebody else's");
        // Its bytes stay where they are when it moves into the table.
        let bytes = made.bytes_mut().ok_or_else(odd)?;
        place.put(if bytes.is_empty() { std::ptr::null_mut() } else { bytes.as_mut_ptr().cast() });
        out.put(table::insert(BufferFace(made)));
        Ok(())
    })
}

/// Puts a block that lies at the beginning of a buffer, without a copy if readers can look at it there: see stead_stream_empty. The handle stays
/// one. From then on the memory must not be written to; it may be read, and put again, until it is freed. The rest is as in
/// stead_stream_writer_put.
///
/// Errors: those of stead_stream_writer_put; STEAD_USAGE if the buffer is shorter than the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_put_buffer(
    writer: *mut stead_stream_writer,
    variable: u32,
    start: *const u64,
    count: *const u64,
    buffer: *const stead_stream_buffer,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let made = table::get::<BufferFace>(buffer)?;
        with(writer, |w| {
            let bounds = block(c, w, variable, start, count)?;
            w.put_buffer(variable, &bounds, &made.0)
        })
    })
}

/// Frees a buffer, whose memory must not be used any more: steps that have it keep it as long as they are there. NULL is nothing to do; a handle
/// that is none any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_buffer_free(buffer: *mut stead_stream_buffer) {
    look!((), |_c| table::remove::<BufferFace>(buffer))
}
