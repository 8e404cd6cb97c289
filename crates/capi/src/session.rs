//! Files that are open for read sessions, and the sessions.

use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, Out, call, look};
use crate::table::{self, Object};
use crate::text;
use crate::versions::grows;
use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stead::read::{Decision, File, Options, Session, Within};
use stead::{Engine, Error, Result};

/// A file that is open for read sessions. Made by stead_file_open, ended with stead_file_close. Sessions over it may be
/// started and used by several threads at the same time.
pub struct stead_file {
    _opaque: [u8; 0],
}

/// A range of a file that many tasks read while few readers fetch it. Made by stead_session_start, ended with
/// stead_session_close. Any number of threads may read from it at the same time.
pub struct stead_session {
    _opaque: [u8; 0],
}

/// As a length: up to the end of the file.
pub const STEAD_TO_END: u64 = u64::MAX;

/// For stead_read_options.flags: nothing is read before somebody asks for it.
pub const STEAD_READ_ON_DEMAND: u32 = 1;
/// For stead_read_options.flags: pass by the page cache (O_DIRECT).
pub const STEAD_READ_DIRECT: u32 = 2;
/// For stead_read_options.flags: read with io_uring.
pub const STEAD_READ_URING: u32 = 4;
/// For stead_read_options.flags: read with pread.
pub const STEAD_READ_PREAD: u32 = 8;
/// For stead_read_options.flags: blocks in memory, and the memory for them, are not shared with other processes.
pub const STEAD_READ_UNSHARED: u32 = 16;
/// All of them.
const FLAGS: u32 = STEAD_READ_ON_DEMAND
    | STEAD_READ_DIRECT
    | STEAD_READ_URING
    | STEAD_READ_PREAD
    | STEAD_READ_UNSHARED;

/// How to read a file in sessions. A member that is 0 is chosen from the file, the range and the machine.
///
/// Begin with `stead_read_options o = {0}; o.size = sizeof o;`: members may be added at its end, and are 0 then.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_read_options {
    /// sizeof(stead_read_options).
    pub size: usize,
    /// Reader threads at most.
    pub readers: usize,
    /// Bytes of a block, rounded up to a multiple of 4096.
    pub block: usize,
    /// Blocks in flight for each reader.
    pub depth: usize,
    /// Bytes of memory for blocks; 256 MiB unless told otherwise.
    pub memory: u64,
    /// Milliseconds after which a read that has no answer fails with STEAD_TIMEOUT; ten minutes unless told otherwise.
    pub deadline_ms: u64,
    /// STEAD_READ_ON_DEMAND and so on, or-ed together.
    pub flags: u32,
}

grows!(stead_read_options, flags: u32);

/// What was done for all sessions of a file so far. Members may be added at its end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_read_counts {
    /// Reads that were asked for.
    pub requests: u64,
    /// Of these, answered without waiting.
    pub at_once: u64,
    /// Blocks that readers fetched.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes in memory now: of blocks, also those that are being read, and of answers that nobody has taken. No blocks
    /// where views are of the page cache.
    pub held: u64,
}

grows!(stead_read_counts, held: u64);

/// A file with its name for C.
pub struct FileFace {
    file: File,
    path: CString,
}

impl Object for FileFace {
    type Handle = stead_file;
    const NAME: &'static str = "file";
}

/// A session as one of its handles has it.
pub struct SessionFace {
    session: Arc<Session>,
    /// Of the reads that are asked for by this handle; `None` is that of the options.
    deadline: Option<Duration>,
}

impl SessionFace {
    /// To ask for reads.
    pub fn asks(&self) -> Within<'_> {
        self.session.within(self.deadline)
    }
}

impl Object for SessionFace {
    type Handle = stead_session;
    const NAME: &'static str = "session";
}

/// Hands a file to the caller.
pub fn give(file: File) -> *mut stead_file {
    // It came without a zero byte, from C or from the system.
    let path = CString::new(file.path().into_os_string().into_vec()).unwrap_or_default();
    table::insert(FileFace { file, path })
}

/// A handle of a session, which others may have, too.
pub fn share(session: Arc<Session>, deadline: Option<Duration>) -> *mut stead_session {
    table::insert(SessionFace { session, deadline })
}

/// The session of a handle.
pub fn of(session: *const stead_session) -> Result<Arc<SessionFace>> {
    table::get(session)
}

/// The options that C gave; NULL is the default ones.
fn options(c: &Caller, given: *const stead_read_options) -> Result<Options> {
    let mut options = Options::default();
    if given.is_null() {
        return Ok(options);
    }
    let given = c.grown(given, "options")?;
    let some = |n: usize| (n > 0).then_some(n);
    options.readers = some(given.readers);
    options.block = some(given.block);
    options.depth = some(given.depth);
    if given.memory > 0 {
        options.memory = given.memory;
    }
    if given.deadline_ms > 0 {
        options.deadline = Duration::from_millis(given.deadline_ms);
    }
    if given.flags & !FLAGS != 0 {
        return Err(Error::usage(format!("{:#x} are no flags of reading", given.flags & !FLAGS)));
    }
    let has = |flag| given.flags & flag != 0;
    options.ahead = !has(STEAD_READ_ON_DEMAND);
    options.share = !has(STEAD_READ_UNSHARED);
    options.io.direct = has(STEAD_READ_DIRECT);
    options.io.engine = match (has(STEAD_READ_URING), has(STEAD_READ_PREAD)) {
        (true, true) => return Err(Error::usage("io_uring and pread were both asked for")),
        (true, false) => Engine::Uring,
        (false, true) => Engine::Pread,
        (false, false) => Engine::Auto,
    };
    Ok(options)
}

/// What something is opened with: a path, options, and a place for its handle.
pub struct Given<T> {
    pub path: *const c_char,
    pub options: *const stead_read_options,
    pub place: *mut *mut T,
    /// What the place is for.
    pub what: &'static str,
}

impl<T> Given<T> {
    /// The place, where there is no handle until there is one.
    pub fn out(&self, c: &Caller) -> Result<Out<*mut T>> {
        c.out_handle(self.place, &format!("place for the {}", self.what))
    }

    /// The path and the options.
    pub fn how<'c>(&self, c: &'c Caller) -> Result<(&'c Path, Options)> {
        Ok((c.path(self.path, "path")?, options(c, self.options)?))
    }

    /// Opens it and puts its handle to the place.
    pub fn open(
        self,
        c: &Caller,
        open: impl FnOnce(&Path, &Options) -> Result<*mut T>,
    ) -> Result<()> {
        let out = self.out(c)?;
        let (path, options) = self.how(c)?;
        out.put(open(path, &options)?);
        Ok(())
    }
}

/// Opens a file for read sessions. It is never created or written to. Its name is taken byte for byte, UTF-8 or not.
/// `options` may be NULL: all is chosen.
///
/// Errors: STEAD_NOT_FOUND, STEAD_PERMISSION, STEAD_IO; STEAD_USAGE for what cannot be read at any offset, as
/// directories and pipes, and for options that make no sense.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_file_open(
    path: *const c_char,
    options: *const stead_read_options,
    file: *mut *mut stead_file,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let given = Given { path, options, place: file, what: "file" };
        given.open(c, |path, options| Ok(give(stead::read::open(path, options)?)))
    })
}

/// Bytes of a file, which do not change while it is open; 0 if the handle is no file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_file_size(file: *const stead_file) -> u64 {
    look!(0, |_c| Ok(table::get::<FileFace>(file)?.file.len()))
}

/// The name of a file, or NULL if the handle is none. Lives as long as the file is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_file_path(file: *const stead_file) -> *const c_char {
    // The table holds the text where it is until the file is closed.
    look!(std::ptr::null(), |_c| Ok(table::get::<FileFace>(file)?.path.as_ptr()))
}

/// Copies what was done for all sessions of a file to `counts`, which has `size` bytes: sizeof(stead_read_counts) of the
/// header that the caller was compiled with. What only a later one has is 0.
///
/// Errors: STEAD_USAGE for a size that no version has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_file_counts(
    file: *const stead_file,
    counts: *mut stead_read_counts,
    size: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_grown(counts, size, "place for the counts")?;
        let n = table::get::<FileFace>(file)?.file.counts();
        out.put(stead_read_counts {
            requests: n.requests,
            at_once: n.at_once,
            blocks: n.blocks,
            bytes: n.bytes,
            held: n.held,
        });
        Ok(())
    })
}

/// Closes a file. Sessions that were started over it go on. NULL is nothing to do.
///
/// Errors: STEAD_USAGE for a file that was closed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_file_close(
    file: *mut stead_file,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| table::remove::<FileFace>(file))
}

/// Starts a session over `length` bytes of a file from `offset` (STEAD_TO_END: all that follow) and, unless the options
/// say otherwise, to read them ahead. Offsets of its reads are those of the file.
///
/// Errors: STEAD_USAGE if the range does not lie within the file; STEAD_IO if no thread can be started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_session_start(
    file: *const stead_file,
    offset: u64,
    length: u64,
    session: *mut *mut stead_session,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        // A place that is there is NULL from now on, whatever comes.
        let out = c.out_handle(session, "place for the session");
        let file = &table::get::<FileFace>(file)?.file;
        // Other ranks are in the same call and hear of it.
        let out = out.map_err(|e| file.refuse_session(e))?;
        let session = if length == STEAD_TO_END {
            file.session(offset..)?
        } else {
            file.session(offset..offset.saturating_add(length))?
        };
        out.put(share(Arc::new(session), None));
        Ok(())
    })
}

/// Another handle of a session: reads that are asked for by it, in whatever way, fail with STEAD_TIMEOUT after
/// `deadline_ms` milliseconds (0: as the options say). It is closed with stead_session_close, as the first one, and the
/// session goes on until all its handles are closed.
///
/// Errors: STEAD_USAGE for NULL and what is no session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_session_within(
    session: *const stead_session,
    deadline_ms: u64,
    within: *mut *mut stead_session,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(within, "place for the session")?;
        let session = of(session)?.session.clone();
        let deadline = (deadline_ms > 0).then(|| Duration::from_millis(deadline_ms));
        out.put(share(session, deadline));
        Ok(())
    })
}

/// The offset of a session's first byte in the file; 0 if the handle is no session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_session_offset(session: *const stead_session) -> u64 {
    look!(0, |_c| Ok(of(session)?.session.range().start))
}

/// Bytes of a session; 0 if the handle is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_session_length(session: *const stead_session) -> u64 {
    look!(0, |_c| {
        let range = of(session)?.session.range();
        Ok(range.end - range.start)
    })
}

/// What was chosen for a session, and why: lines such as "readers: 1 (a quarter of 2 cores)". The text is the caller's,
/// to be freed with stead_text_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_session_explain(
    session: *const stead_session,
    text: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(text, "place for the text")?;
        let plan = of(session)?.session.plan();
        let lines = plan.iter().map(|d| format!("{}: {} ({})\n", d.name, d.value, d.reason));
        text::give(out, &lines.collect::<String>());
        Ok(())
    })
}

/// As stead_session_explain, as a JSON object: for each name an object with the texts "value" and "reason".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_session_explain_json(
    session: *const stead_session,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        let member = |d: Decision| {
            (d.name.to_string(), serde_json::json!({ "value": d.value, "reason": d.reason }))
        };
        let plan: serde_json::Map<_, _> =
            of(session)?.session.plan().into_iter().map(member).collect();
        text::give(out, &text::json(&plan)?);
        Ok(())
    })
}

/// Ends a session and says whether the file is still what it was. The handle is good no more, whatever the outcome.
/// Views stay valid, and reads under way are answered. NULL is nothing to do.
///
/// Errors: STEAD_CHANGED if somebody wrote to the file; STEAD_USAGE for a session that was closed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_session_close(
    session: *mut stead_session,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        if session.is_null() {
            return Ok(());
        }
        let face = of(session)?;
        table::remove::<SessionFace>(session)?;
        face.session.check()
    })
}
