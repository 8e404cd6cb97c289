//! Who has the turn of a transfer does it, and nobody else does; and who wants it to be given up meanwhile says so to whoever that is.
//!
//! The turn is a lock on a file that each transfer has while somebody has it. To ask is to give that file a length, which takes no lock and no room:
//! who has the turn looks at it now and then, in whatever it is in the middle of. What was asked is gone with the turn.

use crate::manager::Stager;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use stead_core::{Cancel, Error, Result};

/// How often somebody tries to have the turn of a transfer, 10 ms apart.
const LOOKS: usize = 20;
/// So often who has the turn looks whether somebody asks it to give the transfer up.
const LISTENS_EVERY: Duration = Duration::from_millis(100);

/// Who has this does a transfer, and nobody else does.
pub(crate) struct Turn {
    file: File,
    path: PathBuf,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Removed while it is held: who opens it now finds that it has no name, and tries again.
        let _ = std::fs::remove_file(&self.path);
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl Turn {
    /// What somebody has asked of whoever had it before, and was killed, is no matter any more.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn forget_asked(&self) -> Result<()> {
        self.file.set_len(0).map_err(|e| Error::io("write to", &self.path, e))
    }
}

/// True if somebody asks for the end of the transfer whose turn this is.
fn is_asked(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| meta.len() > 0)
}

/// A thread that listens, while a transfer is under way, whether somebody wants it to be given up.
pub(crate) struct Ear {
    file: Arc<File>,
    cancel: Cancel,
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Ear {
    /// Listens until it is dropped.
    ///
    /// # Errors
    /// System errors, of beginning a thread.
    pub(crate) fn listen(turn: &Turn, cancel: &Cancel) -> Result<Ear> {
        let file = turn.file.try_clone().map_err(|e| Error::io("open", &turn.path, e))?;
        let (file, cancel) = (Arc::new(file), cancel.below());
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let its = (file.clone(), cancel.clone(), ended.clone());
        let thread = std::thread::Builder::new()
            .name("stead-asked".into())
            .spawn(move || {
                let (file, cancel, ended) = its;
                let (lock, changed) = &*ended;
                let mut over = lock.lock().unwrap_or_else(PoisonError::into_inner);
                while !*over && !is_asked(&file) {
                    let waited = changed.wait_timeout(over, LISTENS_EVERY);
                    over = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                if !*over {
                    cancel.cancel();
                }
            })
            .map_err(|e| Error::io("start a thread", "this process", e))?;
        Ok(Ear { file, cancel, ended, thread: Some(thread) })
    }

    /// Set once somebody has asked, or whoever began it wants it to stop.
    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// True if somebody has asked.
    pub(crate) fn is_asked(&self) -> bool {
        is_asked(&self.file)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        *self.ended.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing to say.
            let _ = thread.join();
        }
    }
}

/// What came of asking for a turn.
enum Tried {
    Mine(Turn),
    /// Somebody else has it, on this file.
    Theirs(File),
}

impl Stager {
    /// Has the turn of a transfer, or an error of kind `Usage` if another process does it.
    pub(crate) fn turn(&self, id: i64) -> Result<Turn> {
        // Who only looks has it for a moment.
        for _ in 0..LOOKS {
            if let Some(turn) = self.try_turn(id)? {
                return Ok(turn);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.try_turn(id)?.ok_or_else(|| {
            Error::usage(format!("transfer {id} is under way in another process")).with_hint(
                format!(
                    "wait for it: stead stage --wait {id}; or give it up: stead stage --cancel {id}"
                ),
            )
        })
    }

    pub(crate) fn is_free(&self, id: i64) -> Result<bool> {
        Ok(self.try_turn(id)?.is_some())
    }

    pub(crate) fn try_turn(&self, id: i64) -> Result<Option<Turn>> {
        Ok(match self.tried(id)? {
            Tried::Mine(turn) => Some(turn),
            Tried::Theirs(_) => None,
        })
    }

    /// Has the turn of a transfer, or asks whoever has it to give it up. Who only looks hears nothing: so it is to be asked again.
    pub(crate) fn turn_or_ask(&self, id: i64) -> Result<Option<Turn>> {
        Ok(match self.tried(id)? {
            Tried::Mine(turn) => Some(turn),
            Tried::Theirs(file) => {
                file.set_len(1)
                    .map_err(|e| Error::io("write to", self.locks().join(id.to_string()), e))?;
                None
            }
        })
    }

    fn tried(&self, id: i64) -> Result<Tried> {
        let path = self.locks().join(id.to_string());
        let failed = |e: std::io::Error| Error::io("lock", &path, e);
        loop {
            let open = File::options().write(true).create(true).truncate(false).open(&path);
            let file = open.map_err(failed)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Tried::Theirs(file)),
                Err(e) => {
                    return Err(failed(e.into()).with_hint(
                        "the journal must lie on a file system with locks: name a folder by STEAD_STATE",
                    ));
                }
            }
            if file.metadata().map_err(failed)?.nlink() > 0 {
                return Ok(Tried::Mine(Turn { file, path }));
            }
        }
    }
}
