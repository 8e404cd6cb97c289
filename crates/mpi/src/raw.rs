//! The calls of MPI that the fabric makes, each with its return code looked at. All `unsafe` of this crate is here.
//!
//! The bindings are those of rsmpi. Its safe layer is not used: it drops return codes and counts in 32 bits.

use crate::clock;
use crate::ranks::Ranks;
use mpi_sys as ffi;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use stead_core::{Error, Kind, Result};

pub use ffi::MPI_Comm;

/// Counts of MPI are of type `int`.
static PIECE: AtomicUsize = AtomicUsize::new(1 << 30);

/// Transfers more bytes than these in several pieces: for tests, which send no messages over 1 GiB.
#[cfg(feature = "conformance")]
pub fn set_piece(bytes: usize) {
    PIECE.store(bytes.clamp(1, 1 << 30), Ordering::Relaxed);
}

/// What MPI_Finalize returns where there is none behind ours: no error of MPI has this number.
const NOT_FOUND: c_int = c_int::MAX;

/// Turns a return code into an error that says what MPI says.
fn check(code: c_int, doing: &str) -> Result<()> {
    // MPI_SUCCESS is 0 by the standard.
    if code == 0 {
        return Ok(());
    }
    let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut len = 0;
    // SAFETY: the buffer has the length that MPI asks for; it may be called with any code.
    let said = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut len) };
    let len = usize::try_from(len).unwrap_or(0).min(text.len());
    let text = match said {
        0 => String::from_utf8_lossy(&text[..len]).into_owned(),
        _ => format!("error {code}"),
    };
    Err(Error::new(Kind::Peer, format!("MPI cannot {doing}: {text}")))
}

/// Whether MPI_Init was called, and MPI_Finalize.
fn begun_and_ended() -> Result<(bool, bool)> {
    let (mut begun, mut ended) = (0, 0);
    // SAFETY: both may be called at any time.
    unsafe {
        check(ffi::MPI_Initialized(&mut begun), "say whether it is initialised")?;
        check(ffi::MPI_Finalized(&mut ended), "say whether it is finalised")?;
    }
    Ok((begun != 0, ended != 0))
}

/// True between MPI_Init and MPI_Finalize.
pub(crate) fn is_running() -> Result<bool> {
    Ok(begun_and_ended()? == (true, false))
}

/// Fails unless any thread may call MPI at any time.
pub(crate) fn need_threads() -> Result<()> {
    if !is_running()? {
        return Err(Error::usage("MPI is not initialised, or has ended")
            .with_hint("call MPI_Init_thread with MPI_THREAD_MULTIPLE first"));
    }
    let mut level = 0;
    // SAFETY: MPI is initialised.
    check(unsafe { ffi::MPI_Query_thread(&mut level) }, "say its level of threads")?;
    // SAFETY: a constant of the shim.
    if level < unsafe { ffi::RSMPI_THREAD_MULTIPLE } {
        return Err(Error::usage("MPI was initialised for fewer threads than stead needs")
            .with_hint("call MPI_Init_thread with MPI_THREAD_MULTIPLE instead of MPI_Init"));
    }
    Ok(())
}

/// MPI_Init_thread for all threads.
pub(crate) fn init() -> Result<()> {
    match begun_and_ended()? {
        (_, true) => return Err(Error::usage("MPI has ended, and cannot begin again")),
        (true, _) => return Err(Error::usage("MPI is initialised already")),
        _ => {}
    }
    let mut level = 0;
    // SAFETY: not initialised yet; without arguments, as the standard allows.
    let code = unsafe {
        let wanted = ffi::RSMPI_THREAD_MULTIPLE;
        ffi::MPI_Init_thread(std::ptr::null_mut(), std::ptr::null_mut(), wanted, &mut level)
    };
    check(code, "begin")?;
    need_threads().inspect_err(|_| {
        // Whoever is told that it has not begun will not end it.
        let _ = finalize();
    })
}

/// MPI_Finalize.
pub(crate) fn finalize() -> Result<()> {
    if !is_running()? {
        return Ok(());
    }
    check(MPI_Finalize(), "end")
}

/// What is done before MPI ends.
static THEN: OnceLock<fn()> = OnceLock::new();

fn before_the_end() {
    if let Some(then) = THEN.get() {
        then();
    }
}

/// Takes the place of the function of MPI, which it calls when our threads have made their last call.
///
/// An attribute of MPI_COMM_SELF comes too late for MPICH: its MPI_Finalize begins by no longer keeping threads apart, and a
/// call that another thread is in at that moment then never gives back the lock that it took.
#[unsafe(no_mangle)]
pub extern "C" fn MPI_Finalize() -> c_int {
    end_with(c"MPI_Finalize")
}

/// The same by the name that tools call which take the place of MPI_Finalize themselves, and some MPIs' Fortran.
#[unsafe(no_mangle)]
pub extern "C" fn PMPI_Finalize() -> c_int {
    end_with(c"PMPI_Finalize")
}

fn end_with(name: &CStr) -> c_int {
    before_the_end();
    // That of MPI, or of a tool that comes before it.
    // SAFETY: a name with a zero at its end.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if next.is_null() {
        // An MPI that is part of the program itself has been linked to ours.
        return NOT_FOUND;
    }
    // SAFETY: whatever has this name has this type.
    let next = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(next) };
    next()
}

/// The communicator of a handle of Fortran, which is an integer there.
///
/// # Errors
/// `Usage` for what is none.
pub fn of_fortran(handle: ffi::RSMPI_Fint) -> Result<MPI_Comm> {
    type Convert = extern "C" fn(ffi::RSMPI_Fint) -> MPI_Comm;
    // SAFETY: a name with a zero at its end.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"MPI_Comm_f2c".as_ptr()) };
    let made = if !found.is_null() {
        // SAFETY: whatever has this name has this type.
        let convert = unsafe { std::mem::transmute::<*mut c_void, Convert>(found) };
        convert(handle)
    } else if size_of::<MPI_Comm>() == size_of::<ffi::RSMPI_Fint>() {
        // It is a macro in MPIs whose handles of C are the same integers.
        // SAFETY: an integer of the same size.
        unsafe { std::mem::transmute_copy::<ffi::RSMPI_Fint, MPI_Comm>(&handle) }
    } else {
        return Err(Error::usage("this MPI has no MPI_Comm_f2c"));
    };
    // SAFETY: zeros are an integer, or a pointer to nothing, neither of which is a communicator.
    if made == unsafe { std::mem::zeroed::<MPI_Comm>() } {
        return Err(Error::usage(format!("{handle} is no communicator of Fortran")));
    }
    Ok(made)
}

/// Calls a function when the program calls MPI_Finalize, while MPI still works: before it, where ours was found by that
/// name, and else at its beginning.
pub(crate) fn at_finalize(then: fn()) -> Result<()> {
    extern "C" fn end(_: MPI_Comm, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
        before_the_end();
        0
    }
    if THEN.set(then).is_err() {
        return Ok(());
    }
    let key = new_key(end)?;
    // SAFETY: MPI_COMM_SELF is valid while MPI runs. Its attributes are deleted first of all by MPI_Finalize.
    let code = unsafe { ffi::MPI_Comm_set_attr(ffi::RSMPI_COMM_SELF, key, std::ptr::null_mut()) };
    check(code, "set an attribute")
}

/// What MPI calls when a communicator that has an attribute is freed: with the value, among others.
type Deleted = extern "C" fn(MPI_Comm, c_int, *mut c_void, *mut c_void) -> c_int;

/// The name of an attribute that duplicates of a communicator do not get.
fn new_key(deleted: Deleted) -> Result<c_int> {
    extern "C" fn copy(
        _: MPI_Comm,
        _: c_int,
        _: *mut c_void,
        _: *mut c_void,
        _: *mut c_void,
        flag: *mut c_int,
    ) -> c_int {
        // SAFETY: MPI gives a valid place.
        unsafe { *flag = 0 };
        0
    }
    let mut key = 0;
    // SAFETY: the functions have the types that MPI asks for and live for ever.
    let code = unsafe {
        ffi::MPI_Comm_create_keyval(Some(copy), Some(deleted), &mut key, std::ptr::null_mut())
    };
    check(code, "make an attribute")?;
    Ok(key)
}

/// The name of the attribute that keeps a fabric at a communicator of the program.
fn fabric_key() -> Result<c_int> {
    extern "C" fn drop_it(_: MPI_Comm, _: c_int, value: *mut c_void, _: *mut c_void) -> c_int {
        // SAFETY: `keep` made it, and the attribute is deleted once.
        drop(unsafe { Box::from_raw(value.cast::<Arc<Ranks>>()) });
        0
    }
    static KEY: Mutex<Option<c_int>> = Mutex::new(None);
    let mut key = KEY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(key) = *key {
        return Ok(key);
    }
    let made = new_key(drop_it)?;
    *key = Some(made);
    Ok(made)
}

/// The fabric that is kept at a communicator of the program.
pub(crate) fn kept(theirs: MPI_Comm) -> Result<Option<Arc<Ranks>>> {
    usable(theirs)?;
    let (mut value, mut found) = (std::ptr::null_mut::<c_void>(), 0);
    let key = fabric_key()?;
    // SAFETY: a communicator, as the caller answers for; the places are valid. MPI writes a pointer.
    let code = unsafe { ffi::MPI_Comm_get_attr(theirs, key, (&raw mut value).cast(), &mut found) };
    check(code, "look for an attribute")?;
    // SAFETY: `keep` made it, and it is there until the communicator is freed.
    Ok((found != 0).then(|| unsafe { &*value.cast::<Arc<Ranks>>() }.clone()))
}

/// Keeps a fabric at a communicator of the program, until that is freed.
pub(crate) fn keep(theirs: MPI_Comm, fabric: Arc<Ranks>) -> Result<()> {
    let key = fabric_key()?;
    let value = Box::into_raw(Box::new(fabric));
    // SAFETY: a communicator, as the caller answers for.
    let code = unsafe { ffi::MPI_Comm_set_attr(theirs, key, value.cast()) };
    check(code, "set an attribute").inspect_err(|_| {
        // SAFETY: made above, and MPI has not taken it.
        drop(unsafe { Box::from_raw(value) });
    })
}

/// Tests of one look at what has come: Open MPI looks at its sockets with each eighth call alone (`opal_progress`), and between hosts what is
/// there already would be found eight looks later.
const TESTS: usize = 8;
/// How long it is slept at first, for a while, and at last, between two looks whether all ranks have come. Those that have never met connect
/// to each other first, which takes messages to and fro.
const SOON: Duration = Duration::from_micros(20);
const MEANWHILE: Duration = Duration::from_micros(200);
const LATER: Duration = Duration::from_millis(2);
const A_WHILE: Duration = Duration::from_millis(100);
/// What ranks come to together. All say which one it is: MPI takes the second call of one that has given up and begins anew for that of
/// another one that comes late, whatever these are.
const AGREE: i64 = 1;
const MEET: i64 = 2;
const MEET_AGAIN: i64 = 3;
const READY: i64 = 4;

/// The least of what all ranks of a communicator say, for each of two numbers, when they have come to the same call within this time.
/// Collective.
///
/// # Errors
/// `Timeout`; `Peer` on all of them if not all are at this call; that of MPI.
fn least(of: MPI_Comm, call: i64, [a, b]: [i64; 2], within: Duration) -> Result<[i64; 2]> {
    let mine = [call, -call, a, b];
    let (until, count) = (clock::after(within), int(mine.len())?);
    // MPI has both until all have come, which may be never.
    let places = Box::into_raw(Box::new([mine; 2]));
    // SAFETY: a constant of the shim.
    let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
    // SAFETY: a communicator, as the caller answers for; both places have so many numbers, and stay until it is done.
    let code = unsafe {
        let (kind, least) = (ffi::RSMPI_INT64_T, ffi::RSMPI_MIN);
        let (from, to) = (&raw const (*places)[0], &raw mut (*places)[1]);
        ffi::MPI_Iallreduce(from.cast(), to.cast(), count, kind, least, of, &mut request)
    };
    check(code, "ask all ranks")?;
    let begun = clock::now();
    loop {
        let (mut done, mut tests) = (0, 0);
        while done == 0 && tests < TESTS {
            // SAFETY: a request that was begun and not yet found done; statuses are not asked for.
            let code = unsafe { ffi::MPI_Test(&mut request, &mut done, ffi::RSMPI_STATUS_IGNORE) };
            check(code, "hear from all ranks")?;
            tests += 1;
        }
        if done != 0 {
            // SAFETY: made above, and MPI is done with it.
            let [first, last, a, b] = unsafe { Box::from_raw(places) }[1];
            return if (first, last) == (call, -call) { Ok([a, b]) } else { Err(apart()) };
        }
        if clock::now() >= until {
            // What was begun cannot be taken back: the places are MPI's from now on.
            return Err(not_come(of, within));
        }
        // It takes several messages, each of which may come after a pause, and goes on with the next look alone.
        let waited = begun.elapsed();
        clock::pause((waited / 8).clamp(SOON, if waited < A_WHILE { MEANWHILE } else { LATER }));
    }
}

/// That ranks of a communicator have come to different calls.
fn apart() -> Error {
    let message = "not all ranks of the communicator have come to the same call: one has given up before, and begins anew";
    Error::new(Kind::Peer, message).with_hint("begin anew on all ranks, or end the job")
}

/// That some ranks of a communicator have not come. MPI tells nobody which.
fn not_come(of: MPI_Comm, within: Duration) -> Error {
    let mut size = 0;
    // SAFETY: a communicator, as the caller answers for, and a valid place.
    let asked = unsafe { ffi::MPI_Comm_size(of, &mut size) };
    let size = if asked == 0 { size.to_string() } else { "the".to_owned() };
    let seconds = within.as_secs_f64();
    let message =
        format!("not all of {size} ranks of the communicator have come within {seconds} s");
    Error::new(Kind::Timeout, message).with_hint(
        "all of them make the same calls: see which one is stopped or waits for something else, or give a longer timeout",
    )
}

/// True if all ranks of a communicator say so, and the largest number that one of them gives. Collective.
pub(crate) fn agree(
    of: MPI_Comm,
    mine: bool,
    number: u64,
    within: Duration,
) -> Result<(bool, u64)> {
    let number = i64::try_from(number).map_err(|_| Error::limit("no numbers are left"))?;
    let [all, number] = least(of, AGREE, [i64::from(mine), -number], within)?;
    Ok((all != 0, number.unsigned_abs()))
}

/// Waits until all ranks of a communicator have come to where MPI waits for them without an end. Collective.
///
/// # Errors
/// Those of [`least`].
pub(crate) fn meet(of: MPI_Comm, within: Duration) -> Result<()> {
    usable(of)?;
    // Whoever comes when others have given up finds the first time complete, perhaps, and the second time never.
    [MEET, MEET_AGAIN].into_iter().try_for_each(|call| least(of, call, [0; 2], within).map(|_| ()))
}

/// Who is in a collective call of a communicator.
static BUSY: Mutex<Vec<Comm>> = Mutex::new(Vec::new());
static FREE: Condvar = Condvar::new();

/// The right of one thread to do something collective with a communicator: in the order of other ranks, which is all the
/// same here, as they all do the same.
pub(crate) struct Turn(Comm);

/// Waits until no other thread of this process has it.
pub(crate) fn one_at_a_time(with: MPI_Comm) -> Turn {
    let busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
    let mut busy = FREE
        .wait_while(busy, |busy| busy.iter().any(|other| other.0 == with))
        .unwrap_or_else(PoisonError::into_inner);
    busy.push(Comm(with));
    Turn(Comm(with))
}

impl Drop for Turn {
    fn drop(&mut self) {
        BUSY.lock().unwrap_or_else(PoisonError::into_inner).retain(|with| with.0 != self.0.0);
        FREE.notify_all();
    }
}

/// Fails for MPI_COMM_NULL, for an intercommunicator, and where MPI has too few threads.
fn usable(theirs: MPI_Comm) -> Result<()> {
    need_threads()?;
    // SAFETY: a constant of the shim; a null handle is told from others by comparison.
    if theirs == unsafe { ffi::RSMPI_COMM_NULL } {
        return Err(Error::usage("the communicator is MPI_COMM_NULL"));
    }
    let mut between = 0;
    // SAFETY: a communicator, as the caller answers for, and a valid place.
    let code = unsafe { ffi::MPI_Comm_test_inter(theirs, &mut between) };
    check(code, "say what a communicator is")?;
    if between != 0 {
        // Not as a hint: programs in C are told the message alone.
        return Err(Error::usage(
            "the communicator is an intercommunicator: MPI_Intercomm_merge makes one group of its two",
        ));
    }
    Ok(())
}

/// MPI_COMM_WORLD.
pub(crate) fn world() -> MPI_Comm {
    // SAFETY: a constant of the shim.
    unsafe { ffi::RSMPI_COMM_WORLD }
}

/// A communicator of our own.
pub(crate) struct Comm(MPI_Comm);

// SAFETY: a handle that MPI lets all threads use at once, with MPI_THREAD_MULTIPLE, which is checked when it is made.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

impl Comm {
    /// The same ranks, without attributes. Collective: MPI waits for all without an end, and has no other call for it, so that they are to
    /// have met just before.
    pub(crate) fn like(theirs: MPI_Comm) -> Result<Comm> {
        usable(theirs)?;
        let (mut rank, mut ours) = (0, theirs);
        // SAFETY: the caller answers for the handle; the places are valid.
        unsafe {
            check(ffi::MPI_Comm_rank(theirs, &mut rank), "tell the rank")?;
            check(ffi::MPI_Comm_split(theirs, 0, rank, &mut ours), "duplicate a communicator")?;
        }
        Ok(Comm(ours))
    }

    /// Has errors returned.
    pub(crate) fn return_errors(&self) -> Result<()> {
        // SAFETY: a valid communicator and a constant.
        let code = unsafe { ffi::MPI_Comm_set_errhandler(self.0, ffi::RSMPI_ERRORS_RETURN) };
        check(code, "set an error handler")
    }

    /// This rank and the number of ranks.
    pub(crate) fn rank_and_size(&self) -> Result<(usize, usize)> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: a valid communicator and valid places.
        unsafe {
            check(ffi::MPI_Comm_rank(self.0, &mut rank), "tell the rank")?;
            check(ffi::MPI_Comm_size(self.0, &mut size), "tell the number of ranks")?;
        }
        Ok((positive(rank)?, positive(size)?))
    }

    /// True if all ranks say so, who are to come within this time. Collective.
    ///
    /// # Errors
    /// Those of [`least`].
    pub(crate) fn all(&self, mine: bool, within: Duration) -> Result<bool> {
        let [all, _] = least(self.0, READY, [i64::from(mine), 0], within)?;
        Ok(all != 0)
    }

    /// The least rank of those that share memory with this one. Collective, and without an end as [`Comm::like`].
    pub(crate) fn first_of_node(&self) -> Result<usize> {
        let (rank, _) = self.rank_and_size()?;
        let mine = int(rank)?;
        let (mut node, mut least) = (self.0, mine);
        // SAFETY: valid communicators and places; the new one is freed.
        unsafe {
            let (kind, info) = (ffi::RSMPI_COMM_TYPE_SHARED, ffi::RSMPI_INFO_NULL);
            let code = ffi::MPI_Comm_split_type(self.0, kind, mine, info, &mut node);
            check(code, "find the ranks of this node")?;
            // Ranks of the node are in the order of ours, so that its first one has the least.
            let code = ffi::MPI_Bcast((&raw mut least).cast(), 4, ffi::RSMPI_UINT8_T, 0, node);
            let freed = ffi::MPI_Comm_free(&mut node);
            check(code, "tell the ranks of this node")?;
            check(freed, "free a communicator")?;
        }
        positive(least)
    }

    /// Frees it, which all ranks must do: MPI may wait for them without an end.
    pub(crate) fn free(mut self) -> Result<()> {
        // SAFETY: a valid communicator that nobody uses any more.
        check(unsafe { ffi::MPI_Comm_free(&mut self.0) }, "free a communicator")
    }

    /// Begins to send.
    pub(crate) fn send(&self, to: usize, tag: i32, bytes: Vec<u8>) -> Result<Flight> {
        let to = int(to)?;
        Flight::begin(bytes, |piece, len, request| {
            // SAFETY: the bytes stay where they are until the request is done: `Flight` keeps them, or leaks them.
            unsafe {
                ffi::MPI_Isend(piece.cast(), len, ffi::RSMPI_UINT8_T, to, tag, self.0, request)
            }
        })
    }

    /// Begins to receive so many bytes as `room` has.
    pub(crate) fn recv(&self, from: usize, tag: i32, room: Vec<u8>) -> Result<Flight> {
        let from = int(from)?;
        Flight::begin(room, |piece, len, request| {
            // SAFETY: as above, and nobody else looks at the bytes meanwhile.
            unsafe {
                ffi::MPI_Irecv(piece.cast(), len, ffi::RSMPI_UINT8_T, from, tag, self.0, request)
            }
        })
    }

    /// Makes room for a message of anybody, of `most` bytes. Messages take such rooms in the order in which they were made.
    pub(crate) fn expect(&self, tag: i32, most: usize) -> Result<Flight> {
        Flight::begin(vec![0; most], |piece, len, request| {
            // SAFETY: the bytes stay where they are until the request is done, and nobody else looks at them meanwhile.
            unsafe {
                let any = ffi::RSMPI_ANY_SOURCE;
                ffi::MPI_Irecv(piece.cast(), len, ffi::RSMPI_UINT8_T, any, tag, self.0, request)
            }
        })
    }
}

/// Bytes that MPI sends, or fills.
pub(crate) struct Flight {
    bytes: Vec<u8>,
    requests: Vec<ffi::MPI_Request>,
}

// SAFETY: requests are handles that any thread may use; the bytes are owned.
unsafe impl Send for Flight {}

impl Flight {
    /// Calls `start` for each piece of the bytes, with its address, length and a place for the request.
    fn begin(
        bytes: Vec<u8>,
        mut start: impl FnMut(*mut u8, c_int, *mut ffi::MPI_Request) -> c_int,
    ) -> Result<Flight> {
        let mut flight = Flight { bytes, requests: Vec::new() };
        let most = PIECE.load(Ordering::Relaxed);
        let pieces = flight.bytes.len().div_ceil(most).max(1);
        for i in 0..pieces {
            let from = i * most;
            let len = flight.bytes.len().saturating_sub(from).min(most);
            // SAFETY: within the vector, or its end.
            let piece = unsafe { flight.bytes.as_mut_ptr().add(from) };
            // SAFETY: a constant of the shim.
            let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
            check(start(piece, int(len)?, &mut request), "begin a transfer")?;
            flight.requests.push(request);
        }
        Ok(flight)
    }

    /// True when all is done. Never waits.
    pub(crate) fn done(&mut self) -> Result<bool> {
        while let Some(request) = self.requests.last_mut() {
            let mut done = 0;
            // SAFETY: a request that was begun and not yet found done; statuses are not asked for.
            let code = unsafe { ffi::MPI_Test(request, &mut done, ffi::RSMPI_STATUS_IGNORE) };
            self.tested(code, "move bytes")?;
            if done == 0 {
                return Ok(false);
            }
            self.requests.pop();
        }
        Ok(true)
    }

    /// The sender and the number of bytes of a message that has come into a room. Never waits; tells it once. If there is none it has called
    /// MPI often enough that all has moved which can.
    pub(crate) fn come(&mut self) -> Result<Option<(usize, usize)>> {
        let Some(request) = self.requests.last_mut() else { return Ok(None) };
        // SAFETY: plain data that MPI fills.
        let (mut status, mut count) = (unsafe { std::mem::zeroed::<ffi::MPI_Status>() }, 0);
        let (mut done, mut tests, mut code) = (0, 0, 0);
        while done == 0 && code == 0 && tests < TESTS {
            // SAFETY: a request that was begun and not yet found done, and valid places.
            code = unsafe { ffi::MPI_Test(request, &mut done, &mut status) };
            tests += 1;
        }
        self.tested(code, "receive")?;
        if done == 0 {
            return Ok(None);
        }
        self.requests.clear();
        // SAFETY: the status was filled by MPI_Test.
        let code = unsafe { ffi::MPI_Get_count(&status, ffi::RSMPI_UINT8_T, &mut count) };
        check(code, "tell the length of a message")?;
        Ok(Some((positive(status.MPI_SOURCE)?, positive(count)?)))
    }

    /// Takes out what MPI_Test has ended with an error: that is no request any more, and to cancel one that is none ends the job,
    /// unless the program has another error handler. What could not be tested is still there.
    fn tested(&mut self, code: c_int, doing: &str) -> Result<()> {
        check(code, doing).inspect_err(|_| {
            // SAFETY: a constant of the shim.
            let none = unsafe { ffi::RSMPI_REQUEST_NULL };
            self.requests.retain(|request| *request != none);
        })
    }

    /// The bytes, once it is done; none before.
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        if self.requests.is_empty() { std::mem::take(&mut self.bytes) } else { Vec::new() }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        if is_running().unwrap_or(false) {
            for request in &mut self.requests {
                // SAFETY: a request that was begun and is not over. Whatever comes of it, the bytes below stay.
                let _ = unsafe { ffi::MPI_Cancel(request) };
            }
            // What nobody has sent is over at once.
            if self.done().unwrap_or(false) {
                return;
            }
        }
        // MPI may still look at them or write to them.
        std::mem::forget(std::mem::take(&mut self.bytes));
    }
}

fn positive(n: c_int) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::internal(format!("MPI gave the number {n}")))
}

fn int(n: usize) -> Result<c_int> {
    c_int::try_from(n).map_err(|_| Error::internal(format!("{n} is too large for MPI")))
}
