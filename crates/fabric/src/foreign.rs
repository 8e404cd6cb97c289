//! Fabrics that are functions of C: how a library that knows MPI lends its ranks to one that does not.
//!
//! [`lend`] makes such functions of a fabric, [`Foreign`] a fabric of such functions. Both sides may be of different
//! versions of stead, or not be stead at all: the record of functions is all that they share, and `include/stead.h` has it
//! in C.

pub use crate::functions::{
    STEAD_ANY_RANK as ANY, STEAD_FABRIC_ENDS as ENDS, STEAD_FABRIC_FORGET as FORGET,
    STEAD_FABRIC_NOTHING as NOTHING, STEAD_FABRIC_VERSION as VERSION, STEAD_FABRIC_WHY as WHY,
    stead_fabric as Functions, stead_make_fabric_fn,
};
use crate::{Fabric, Rounds, Spares, kinds};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::{Error, Kind, Result};

/// Bytes of messages that are over which a fabric of functions keeps for the next ones: each is copied between its memory and that of the
/// functions, and fresh pages take more time than the copy.
const KEPT: usize = 4 << 20;
/// Who has waited in vain for so long has seen that nothing comes: if nothing has gone meanwhile either, nothing is kept.
const QUIET: Duration = Duration::from_secs(1);

/// Calls a maker of functions. What `data` is, is between it and who calls it; libstead_mpi takes the address of a
/// communicator.
///
/// # Safety
/// It does what [`stead_make_fabric_fn`] says, with that `data`.
///
/// # Errors
/// Its own; those of [`Foreign::new`]; `Usage` without a maker.
pub unsafe fn make(make: stead_make_fabric_fn, data: *mut c_void) -> Result<Foreign> {
    let make = make.ok_or_else(|| Error::usage("there is no function that makes a fabric"))?;
    let mut functions = std::mem::MaybeUninit::uninit();
    let mut why = [0; WHY];
    // SAFETY: as the caller promises; the places are valid.
    let code = unsafe { make(data, functions.as_mut_ptr(), why.as_mut_ptr().cast()) };
    check(code, &why, None)?;
    // SAFETY: it says that it has made them.
    unsafe { Foreign::new(functions.assume_init()) }
}

/// A fabric made of functions.
pub struct Foreign {
    given: Functions,
    rounds: Rounds,
    spares: Spares,
    /// Something has come or gone since somebody has last waited in vain for long.
    has_moved: AtomicBool,
}

/// A function of a record. Those of a fabric that was made are there.
fn there<F>(function: Option<F>, name: &str) -> Result<F> {
    function.ok_or_else(|| Error::usage(format!("a fabric without the function '{name}'")))
}

// SAFETY: the functions may be called by any thread, as whoever makes one promises.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Takes functions over: `release` is called when the fabric is dropped. Functions that are refused are not called.
    ///
    /// # Safety
    /// They do what [`Functions`] says, until `release` was called.
    ///
    /// # Errors
    /// `Usage` if they are of another version, one of them is NULL, or the numbers make no sense.
    pub unsafe fn new(functions: Functions) -> Result<Foreign> {
        if functions.version != VERSION {
            let message = format!("a fabric of version {} is not known here", functions.version);
            return Err(Error::usage(message).with_hint("install libraries of one version"));
        }
        there(functions.node_of, "node_of")?;
        there(functions.send, "send")?;
        there(functions.recv, "recv")?;
        there(functions.free, "free")?;
        there(functions.alive, "alive")?;
        there(functions.release, "release")?;
        let most = u64::try_from(usize::MAX >> 1).unwrap_or(u64::MAX);
        if functions.rank >= functions.size || functions.size > most {
            return Err(Error::usage("a fabric has no ranks, or not this one"));
        }
        let (rounds, spares) = (Rounds::default(), Spares::new(KEPT));
        Ok(Foreign { given: functions, rounds, spares, has_moved: AtomicBool::new(false) })
    }

    fn take(&self, from: u64, tag: u32, within: Duration) -> Result<Option<(usize, Vec<u8>)>> {
        self.take_with(0, from, tag, within)
    }

    /// `said` stands where the sender will.
    fn take_with(
        &self,
        said: u64,
        from: u64,
        tag: u32,
        within: Duration,
    ) -> Result<Option<(usize, Vec<u8>)>> {
        let (mut sender, mut bytes, mut len) = (said, std::ptr::null_mut(), 0);
        let mut why = [0; WHY];
        let is_long = within >= QUIET;
        // Rounded up, so that a short wait is one.
        let within = u64::try_from(within.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        let (recv, free) = (there(self.given.recv, "recv")?, there(self.given.free, "free")?);
        // SAFETY: valid places; the functions are as promised.
        let code = unsafe {
            recv(
                self.given.data,
                from,
                tag,
                within,
                &mut sender,
                &mut bytes,
                &mut len,
                why.as_mut_ptr(),
            )
        };
        if code == NOTHING {
            if is_long && !self.has_moved.swap(false, Ordering::Relaxed) {
                self.spares.free();
            }
            return Ok(None);
        }
        check(code, &why, usize::try_from(from).ok())?;
        let len_here = usize::try_from(len).ok().filter(|n| isize::try_from(*n).is_ok());
        let message = match len_here {
            Some(0) => Ok(Vec::new()),
            Some(_) if bytes.is_null() => return Err(Error::internal("a message has no bytes")),
            Some(n) => self.spares.empty(n).map(|mut message| {
                // SAFETY: `recv` gave so many bytes.
                message.extend_from_slice(unsafe { std::slice::from_raw_parts(bytes, n) });
                message
            }),
            None => Err(Error::limit("a message is too long")),
        };
        // SAFETY: what `recv` gave, once.
        unsafe { free(self.given.data, bytes, len) };
        let message = message?;
        self.has_moved.store(true, Ordering::Relaxed);
        if sender >= self.given.size {
            return Err(Error::internal(format!("a message came from a rank {sender}")));
        }
        Ok(Some((rank_of(sender), message)))
    }
}

/// An error for a code that is not 0.
fn check(code: i32, why: &[u8; WHY], rank: Option<usize>) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let text = why.split(|b| *b == 0).next().unwrap_or_default();
    let kind = u8::try_from(code).map_or(Kind::Internal, kinds::kind);
    let error = Error::new(kind, String::from_utf8_lossy(text));
    Err(match rank {
        Some(rank) if kind == Kind::Peer => error.at_rank(rank),
        _ => error,
    })
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(release) = self.given.release {
            // SAFETY: once, and nothing else is called afterwards.
            unsafe { release(self.given.data) }
        }
    }
}

impl Fabric for Foreign {
    fn rank(&self) -> usize {
        self.given.rank as usize
    }

    fn size(&self) -> usize {
        self.given.size as usize
    }

    fn node_of(&self, rank: usize) -> usize {
        // SAFETY: the functions are as promised. Only equality matters.
        self.given.node_of.map_or(0, |of| unsafe { of(self.given.data, rank as u64) as usize })
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(self.given.deadline_ms)
    }

    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()> {
        let (send, mut why) = (there(self.given.send, "send")?, [0; WHY]);
        // SAFETY: so many bytes; the functions are as promised.
        let code = unsafe {
            let (at, len) = (bytes.as_ptr(), bytes.len() as u64);
            send(self.given.data, to as u64, tag, at, len, why.as_mut_ptr())
        };
        self.has_moved.store(true, Ordering::Relaxed);
        // It was copied: its memory is free for what comes next.
        self.spares.keep(bytes);
        check(code, &why, Some(to))
    }

    fn recv_within(&self, from: usize, tag: u32, within: Duration) -> Result<Option<Vec<u8>>> {
        Ok(self.take(from as u64, tag, within)?.map(|(_, bytes)| bytes))
    }

    fn recv_any(&self, tag: u32, within: Duration) -> Result<Option<(usize, Vec<u8>)>> {
        self.take(ANY, tag, within)
    }

    fn alive(&self, rank: usize) -> Result<()> {
        let (alive, mut why) = (there(self.given.alive, "alive")?, [0; WHY]);
        // SAFETY: a valid place; the functions are as promised.
        let code = unsafe { alive(self.given.data, rank as u64, why.as_mut_ptr()) };
        check(code, &why, Some(rank))
    }

    fn ends(&self, rank: usize) -> bool {
        match self.take(rank as u64, ENDS, Duration::ZERO) {
            Ok(there) => there.is_some(),
            Err(e) => e.kind() == Kind::Peer,
        }
    }

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn forget(&self, tags: Range<u32>) {
        self.rounds.forget(&tags);
        for tag in tags {
            let _ = self.take_with(u64::from(tag), ANY, FORGET, Duration::ZERO);
            // What has come, where the fabric knows nothing of that.
            while let Ok(Some(_)) = self.recv_any(tag, Duration::ZERO) {}
        }
    }

    fn memory(&self, len: usize) -> Vec<u8> {
        // Without memory there is no room in it: whoever adds to it finds out.
        self.spares.empty(len).unwrap_or_default()
    }

    fn room(&self, len: usize) -> Result<Vec<u8>> {
        self.spares.room(len)
    }

    fn give_back(&self, bytes: Vec<u8>) {
        self.spares.keep(bytes);
    }
}

/// What functions have: a fabric, and messages that were given and are not freed yet. They stay whole here, each with all the room that it
/// has, by where their bytes are: `free` is told how many bytes a message has, which may be fewer than its memory has.
struct Lent {
    fabric: Arc<dyn Fabric>,
    given: Mutex<HashMap<usize, Vec<u8>>>,
}

impl Lent {
    fn given(&self) -> MutexGuard<'_, HashMap<usize, Vec<u8>>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fabric as functions. Whoever gets them calls `release` once.
pub fn lend(fabric: Arc<dyn Fabric>) -> Functions {
    let (rank, size) = (fabric.rank() as u64, fabric.size() as u64);
    let deadline_ms = u64::try_from(fabric.deadline().as_millis()).unwrap_or(u64::MAX);
    let data = Box::into_raw(Box::new(Lent { fabric, given: Mutex::default() })).cast();
    let version = VERSION;
    Functions {
        version,
        deadline_ms,
        rank,
        size,
        data,
        node_of: Some(node_of),
        send: Some(send),
        recv: Some(recv),
        free: Some(free),
        alive: Some(alive),
        release: Some(release),
    }
}

/// What is behind `data`.
///
/// # Safety
/// `data` comes from [`lend`] and was not released.
unsafe fn lent<'a>(data: *mut c_void) -> &'a Lent {
    // SAFETY: as the caller promises.
    unsafe { &*data.cast::<Lent>() }
}

/// The fabric behind `data`.
///
/// # Safety
/// As of [`lent`].
unsafe fn of<'a>(data: *mut c_void) -> &'a dyn Fabric {
    // SAFETY: as the caller promises.
    unsafe { &*lent(data).fabric }
}

/// Writes the text of an error and returns its number.
///
/// # Safety
/// `why` is NULL or has room for [`WHY`] bytes.
pub unsafe fn fail(error: &Error, why: *mut u8) -> i32 {
    if !why.is_null() {
        let text = error.message().as_bytes();
        let len = text.len().min(WHY - 1);
        // SAFETY: there is room for so many bytes and a zero.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), why, len);
            *why.add(len) = 0;
        }
    }
    i32::from(kinds::number(error.kind()))
}

fn rank_of(rank: u64) -> usize {
    usize::try_from(rank).unwrap_or(usize::MAX)
}

unsafe extern "C" fn node_of(data: *mut c_void, rank: u64) -> u64 {
    // SAFETY: `data` is ours.
    unsafe { of(data) }.node_of(rank_of(rank)) as u64
}

unsafe extern "C" fn send(
    data: *mut c_void,
    to: u64,
    tag: u32,
    bytes: *const u8,
    len: u64,
    why: *mut u8,
) -> i32 {
    // SAFETY: `data` is ours.
    let fabric = unsafe { of(data) };
    let copy = match usize::try_from(len) {
        Ok(0) => Vec::new(),
        // SAFETY: `why` is as the caller promises.
        Ok(_) if bytes.is_null() => unsafe {
            return fail(&Error::usage("no bytes are given"), why);
        },
        Ok(n) => {
            let mut copy = fabric.memory(n);
            // SAFETY: the caller gives so many bytes.
            copy.extend_from_slice(unsafe { std::slice::from_raw_parts(bytes, n) });
            copy
        }
        // SAFETY: `why` is as the caller promises.
        Err(_) => return unsafe { fail(&Error::limit("a message is too long"), why) },
    };
    // SAFETY: `why` is as the caller promises.
    unsafe { fabric.send(rank_of(to), tag, copy).map_or_else(|e| fail(&e, why), |()| 0) }
}

unsafe extern "C" fn recv(
    data: *mut c_void,
    from: u64,
    tag: u32,
    within_ms: u64,
    sender: *mut u64,
    bytes: *mut *mut u8,
    len: *mut u64,
    why: *mut u8,
) -> i32 {
    let within = Duration::from_millis(within_ms);
    // SAFETY: `data` is ours.
    let lent = unsafe { lent(data) };
    let fabric = &*lent.fabric;
    let got = match from {
        ANY if tag == FORGET => {
            // SAFETY: the caller gives a valid place, with a tag in it.
            if let Ok(over) = u32::try_from(unsafe { *sender }) {
                fabric.forget(over..over.saturating_add(1));
            }
            Ok(None)
        }
        ANY => fabric.recv_any(tag, within),
        from if tag == ENDS => {
            let rank = rank_of(from);
            Ok(fabric.ends(rank).then(|| (rank, Vec::new())))
        }
        from => {
            let rank = rank_of(from);
            fabric.recv_within(rank, tag, within).map(|got| got.map(|bytes| (rank, bytes)))
        }
    };
    match got {
        Ok(Some((rank, mut message))) => {
            let (at, n) = (message.as_mut_ptr(), message.len());
            // Of one without bytes nothing is to be freed, and others may be at the same place.
            if n > 0 {
                lent.given().insert(at.addr(), message);
            }
            // SAFETY: the caller gives valid places.
            unsafe {
                *sender = rank as u64;
                *len = n as u64;
                *bytes = at;
            }
            0
        }
        Ok(None) => NOTHING,
        // SAFETY: `why` is as the caller promises.
        Err(e) => unsafe { fail(&e, why) },
    }
}

unsafe extern "C" fn free(data: *mut c_void, bytes: *mut u8, len: u64) {
    // SAFETY: `data` is ours.
    let lent = unsafe { lent(data) };
    let message = if len > 0 { lent.given().remove(&bytes.addr()) } else { None };
    if let Some(message) = message {
        lent.fabric.give_back(message);
    }
}

unsafe extern "C" fn alive(data: *mut c_void, rank: u64, why: *mut u8) -> i32 {
    // SAFETY: `data` is ours; `why` is as the caller promises.
    unsafe { of(data).alive(rank_of(rank)).map_or_else(|e| fail(&e, why), |()| 0) }
}

unsafe extern "C" fn release(data: *mut c_void) {
    // SAFETY: it comes from `lend` and is released once.
    drop(unsafe { Box::from_raw(data.cast::<Lent>()) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Local;
    use std::ffi::{c_char, c_int};

    fn foreign(fabric: Local) -> Foreign {
        // SAFETY: functions of this module.
        unsafe { Foreign::new(lend(Arc::new(fabric))) }.unwrap()
    }

    #[test]
    fn functions_conform() {
        for nodes in [&[0][..], &[0, 1, 0]] {
            let ranks = Local::over_nodes(nodes, Duration::from_secs(60));
            crate::conformance::check(ranks.into_iter().map(foreign).collect());
        }
    }

    /// A rank that is alone, whose messages have memory of others that are over.
    struct Sparing {
        local: Local,
        spares: Spares,
    }

    impl Fabric for Sparing {
        fn rank(&self) -> usize {
            0
        }

        fn size(&self) -> usize {
            1
        }

        fn node_of(&self, _: usize) -> usize {
            0
        }

        fn deadline(&self) -> Duration {
            self.local.deadline()
        }

        fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()> {
            self.local.send(to, tag, bytes)
        }

        fn recv_within(&self, from: usize, tag: u32, within: Duration) -> Result<Option<Vec<u8>>> {
            self.local.recv_within(from, tag, within)
        }

        fn recv_any(&self, tag: u32, within: Duration) -> Result<Option<(usize, Vec<u8>)>> {
            self.local.recv_any(tag, within)
        }

        fn alive(&self, rank: usize) -> Result<()> {
            self.local.alive(rank)
        }

        fn rounds(&self) -> &Rounds {
            self.local.rounds()
        }

        fn memory(&self, len: usize) -> Vec<u8> {
            self.spares.empty(len).unwrap()
        }

        fn give_back(&self, bytes: Vec<u8>) {
            self.spares.keep(bytes);
        }
    }

    #[test]
    fn memory_of_messages_that_are_over_is_used_again_on_both_sides() {
        let sparing = Arc::new(Sparing { local: Local::single(), spares: Spares::new(KEPT) });
        // SAFETY: functions of this module.
        let fabric = unsafe { Foreign::new(lend(sparing.clone())) }.unwrap();
        const LEN: usize = 1 << 20;
        // Memory with more room than what is sent needs.
        let there: Vec<u8> = Vec::with_capacity(LEN);
        let here = fabric.memory(LEN);
        let (at_there, at_here) = (there.as_ptr().addr(), here.as_ptr().addr());
        sparing.give_back(there);
        fabric.give_back(here);
        for (n, len) in [(1, LEN), (2, LEN - 1), (3, LEN / 2 + 1), (4, LEN - 4096), (5, LEN)] {
            let mut message = fabric.memory(len);
            assert_eq!((message.as_ptr().addr(), message.len()), (at_here, 0), "{n}");
            message.resize(len, n);
            fabric.send(0, 7, message).unwrap();
            let got = fabric.recv(0, 7).unwrap();
            assert_eq!((got.as_ptr().addr(), got.len()), (at_here, len), "{n}");
            assert!(got.iter().all(|byte| *byte == n));
            fabric.give_back(got);
            // The other side has its memory again, with all of its room.
            let spare = sparing.memory(LEN);
            assert_eq!((spare.as_ptr().addr(), spare.capacity()), (at_there, LEN), "{n}");
            sparing.give_back(spare);
        }
        // Who waits in vain for long sees whether it is needed any more.
        for is_kept in [true, false] {
            assert!(fabric.recv_within(0, 7, QUIET).unwrap().is_none());
            assert_eq!(fabric.spares.is_empty(), !is_kept);
        }
    }

    #[test]
    fn what_was_given_goes_when_it_is_freed_and_with_the_fabric() {
        let functions = lend(Arc::new(Local::single()));
        let mut why = [0; WHY];
        let (mut sender, mut bytes, mut len) = (0, std::ptr::null_mut(), 0);
        let data = functions.data;
        let mut all = Vec::new();
        for message in [&b"abc"[..], b"", b"", b"defg"] {
            // SAFETY: functions of this module, and valid places.
            let (sent, got) = unsafe {
                let sent =
                    send(data, 0, 1, message.as_ptr(), message.len() as u64, &raw mut why[0]);
                let why = why.as_mut_ptr();
                (sent, recv(data, 0, 1, 0, &mut sender, &mut bytes, &mut len, why))
            };
            assert_eq!((sent, got, len), (0, 0, message.len() as u64));
            assert!(!bytes.is_null());
            all.push((bytes, len));
        }
        // SAFETY: as above.
        let given = || unsafe { lent(data) }.given().len();
        assert_eq!(given(), 2);
        for (bytes, len) in all.drain(..3) {
            // SAFETY: what `recv` gave, once.
            unsafe { free(data, bytes, len) };
        }
        assert_eq!(given(), 1);
        // SAFETY: not released before.
        unsafe { release(data) };
    }

    #[test]
    fn errors_keep_kind_text_and_rank() {
        let mut ranks: Vec<Foreign> = Local::group(2).into_iter().map(foreign).collect();
        drop(ranks.pop());
        let e = ranks[0].recv(1, 0).unwrap_err();
        assert_eq!((e.kind(), e.place().rank), (Kind::Peer, Some(1)));
        assert_eq!(e.message(), "the rank has ended early");
        assert!(ranks[0].alive(1).is_err());
        assert!(ranks[0].ends(1) && !ranks[0].ends(0));
    }

    #[test]
    fn what_is_forgotten_lies_nowhere() {
        // As libraries do that are older than the tag.
        unsafe extern "C" fn older(
            data: *mut c_void,
            from: u64,
            tag: u32,
            within_ms: u64,
            sender: *mut u64,
            bytes: *mut *mut u8,
            len: *mut u64,
            why: *mut u8,
        ) -> i32 {
            if tag == FORGET {
                return NOTHING;
            }
            // SAFETY: as the caller promises.
            unsafe { recv(data, from, tag, within_ms, sender, bytes, len, why) }
        }
        for old in [false, true] {
            let local = Arc::new(Local::single());
            let given = lend(local.clone());
            let functions = Functions { recv: if old { Some(older) } else { given.recv }, ..given };
            // SAFETY: functions of this module.
            let fabric = unsafe { Foreign::new(functions) }.unwrap();
            fabric.send(0, 9, vec![1]).unwrap();
            fabric.send(0, 11, vec![2]).unwrap();
            fabric.forget(8..11);
            assert_eq!(local.lying(), 1);
            // An answer that comes late.
            fabric.send(0, 9, vec![3]).unwrap();
            assert_eq!(local.lying(), 1 + usize::from(old));
            assert_eq!(fabric.recv(0, 11).unwrap(), [2]);
        }
    }

    #[test]
    fn makers_make_or_say_why_not() {
        unsafe extern "C" fn maker(
            data: *mut c_void,
            to: *mut Functions,
            why: *mut c_char,
        ) -> c_int {
            if data.is_null() {
                // SAFETY: `make` gives the room.
                return unsafe { fail(&Error::usage("nothing to make one of"), why.cast()) };
            }
            // SAFETY: `make` gives the place.
            unsafe { to.write(lend(Arc::new(Local::single()))) };
            0
        }
        // SAFETY: the function above.
        let (made, refused, without) = unsafe {
            let none = std::ptr::null_mut();
            (
                make(Some(maker), &raw mut *Box::new(1u8) as _),
                make(Some(maker), none),
                make(None, none),
            )
        };
        crate::conformance::check(vec![made.unwrap()]);
        for (e, why) in [
            (refused, "nothing to make one of"),
            (without, "there is no function that makes a fabric"),
        ] {
            let e = e.err().unwrap();
            assert_eq!((e.kind(), e.message()), (Kind::Usage, why));
        }
    }

    #[test]
    fn senders_that_are_none_and_bytes_that_are_none_are_errors() {
        static STRAY: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        unsafe extern "C" fn stray(
            _: *mut c_void,
            _: u64,
            _: u32,
            _: u64,
            sender: *mut u64,
            bytes: *mut *mut u8,
            len: *mut u64,
            _: *mut u8,
        ) -> i32 {
            let stray = STRAY.load(std::sync::atomic::Ordering::SeqCst);
            // SAFETY: `take` gives the places.
            unsafe {
                *sender = stray;
                *len = u64::from(stray == 0);
                *bytes = std::ptr::null_mut();
            }
            0
        }
        unsafe extern "C" fn keep(_: *mut c_void, _: *mut u8, _: u64) {}
        let functions =
            Functions { recv: Some(stray), free: Some(keep), ..lend(Arc::new(Local::single())) };
        // SAFETY: functions of this module.
        let fabric = unsafe { Foreign::new(functions) }.unwrap();
        for sender in [0, 1, u64::MAX] {
            STRAY.store(sender, std::sync::atomic::Ordering::SeqCst);
            let e = fabric.recv_any(1, Duration::ZERO).unwrap_err();
            assert_eq!(e.kind(), Kind::Internal);
        }
        let mut why = [0; WHY];
        // SAFETY: a valid place, and no bytes, which is refused.
        let code = unsafe { send(fabric.given.data, 0, 1, std::ptr::null(), 5, why.as_mut_ptr()) };
        assert_eq!(code, 1);
    }

    #[test]
    fn what_cannot_be_a_fabric_is_refused_and_not_called() {
        type Change = fn(&mut Functions);
        let changes: [(&str, Change); 10] = [
            ("version 2", |f| f.version = 2),
            ("no ranks", |f| f.size = 0),
            ("no ranks", |f| f.rank = 1),
            ("no ranks", |f| f.size = u64::MAX),
            ("'node_of'", |f| f.node_of = None),
            ("'send'", |f| f.send = None),
            ("'recv'", |f| f.recv = None),
            ("'free'", |f| f.free = None),
            ("'alive'", |f| f.alive = None),
            ("'release'", |f| f.release = None),
        ];
        let fabric = Arc::new(Local::single());
        for (what, change) in changes {
            let mut functions = lend(fabric.clone());
            let data = functions.data;
            change(&mut functions);
            // SAFETY: functions of this module; they are not called.
            let e = unsafe { Foreign::new(functions) }.err().unwrap();
            assert_eq!(e.kind(), Kind::Usage);
            assert!(e.message().contains(what), "{e}");
            // Had it been called, the fabric would have been given back.
            assert_eq!(Arc::strong_count(&fabric), 2);
            // SAFETY: not released before.
            unsafe { release(data) };
        }
    }
}
