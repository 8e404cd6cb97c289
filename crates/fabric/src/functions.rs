//! The record of functions that is a fabric for C: `include/stead.h` has it from here, so that there is one.

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_void};

/// How ranks talk: functions that a program gives, or libstead_mpi (stead_mpi.h). All may be called by any thread, at the
/// same time as others, and none is NULL. Those that return `int` return 0, or a stead_status with a text in `why`, which has room for
/// STEAD_FABRIC_WHY bytes. Messages between two ranks with one tag arrive in order. Messages of one fabric do not come to
/// another one, also if both were made of the same ranks, one after the other.
#[repr(C)]
#[derive(Debug)]
pub struct stead_fabric {
    /// STEAD_FABRIC_VERSION.
    pub version: u32,
    /// Milliseconds after which ranks that wait for others give up.
    pub deadline_ms: u64,
    /// This rank, from 0.
    pub rank: u64,
    /// Number of ranks.
    pub size: u64,
    /// First argument of all functions.
    pub data: *mut c_void,
    /// A number for the node of a rank: equal for ranks that share memory and local file systems.
    pub node_of: Option<unsafe extern "C" fn(data: *mut c_void, rank: u64) -> u64>,
    /// Sends a copy of `len` bytes; does not wait until they have arrived.
    pub send: Option<
        unsafe extern "C" fn(
            data: *mut c_void,
            to: u64,
            tag: u32,
            bytes: *const u8,
            len: u64,
            why: *mut u8,
        ) -> i32,
    >,
    /// Waits for a message of a rank, or of any (STEAD_ANY_RANK), no longer than so many milliseconds: returns
    /// STEAD_FABRIC_NOTHING if none came. Gives the sender and the bytes, which will be given to `free`. Of a rank that is
    /// gone and left no message: STEAD_PEER. With the tag STEAD_FABRIC_ENDS it does not wait, and gives an empty message, each time,
    /// if the program of that rank has come to its end: all that it has sent is here, and it asks for nothing any more. With
    /// the tag STEAD_FABRIC_FORGET and STEAD_ANY_RANK it does not wait either, and gives nothing: `*sender` has the tag of messages
    /// that nobody will ask for any more, so that those that lie here may go, and those that come later need not be kept.
    pub recv: Option<
        unsafe extern "C" fn(
            data: *mut c_void,
            from: u64,
            tag: u32,
            within_ms: u64,
            sender: *mut u64,
            bytes: *mut *mut u8,
            len: *mut u64,
            why: *mut u8,
        ) -> i32,
    >,
    /// Frees what `recv` gave.
    pub free: Option<unsafe extern "C" fn(data: *mut c_void, bytes: *mut u8, len: u64)>,
    /// STEAD_PEER if a rank is gone.
    pub alive: Option<unsafe extern "C" fn(data: *mut c_void, rank: u64, why: *mut u8) -> i32>,
    /// Nothing of it is used any more. Called once, last.
    pub release: Option<unsafe extern "C" fn(data: *mut c_void)>,
}

/// stead_fabric.version.
pub const STEAD_FABRIC_VERSION: u32 = 1;
/// Bytes for the text of an error, with the zero at its end.
pub const STEAD_FABRIC_WHY: usize = 256;
/// The sender, where any will do.
pub const STEAD_ANY_RANK: u64 = u64::MAX;
/// Nothing came in time.
pub const STEAD_FABRIC_NOTHING: c_int = -1;

/// A tag with which nothing is sent: who receives with it wants to know whether a rank's program has come to its end.
pub const STEAD_FABRIC_ENDS: u32 = u32::MAX - 16;
/// A tag with which nothing is sent: who receives with it says which other tag is over. A fabric that knows nothing of it has nothing
/// to give, and keeps what comes.
pub const STEAD_FABRIC_FORGET: u32 = u32::MAX - 17;

/// Makes a fabric of what `data` points to. Returns 0 or a stead_status with a text in `why`.
pub type stead_make_fabric_fn = Option<
    unsafe extern "C" fn(data: *mut c_void, fabric: *mut stead_fabric, why: *mut c_char) -> c_int,
>;
