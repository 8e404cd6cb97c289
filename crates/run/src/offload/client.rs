//! Compute ranks: how they ask.

use super::wire::{ANSWERS, ASKS, Answer, Ask, OVER, SLOTS, decode_report, frame, open};
use super::{Job, LOOK, Role, Roles, there};
use crate::outputs::{Carried, real, spare};
use crate::pass::{Observer, Snapshot};
use crate::report::Report;
use crate::told::Told;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::{Cancel, Error, Kind, Result, limits};
use stead_fabric::Fabric;
use stead_kernel::Spec;
use stead_store::AtomicFile;

/// A compute rank's way to storage ranks, which [`serve`](super::serve) meanwhile. Any thread may ask; 16 asks are under way at a
/// time, and others wait until one of these is answered. Dropping it says goodbye, after which the storage ranks wait for this
/// one no longer.
pub struct Client {
    fabric: Arc<dyn Fabric>,
    roles: Roles,
    head: usize,
    /// Which tags of answers are in use.
    slots: Mutex<[bool; SLOTS]>,
    freed: Condvar,
    numbers: AtomicU64,
    closed: AtomicBool,
    /// Why nothing will be answered any more.
    over: Mutex<Option<Told>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client(rank {} of {})", self.fabric.rank(), self.fabric.size())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tag of answers, in use.
struct Slot<'c>(&'c Client, usize);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if let Some(used) = lock(&self.0.slots).get_mut(self.1) {
            *used = false;
        }
        self.0.freed.notify_one();
    }
}

/// An ask whose answer nobody waits for any more, for whatever reason: the head is to keep no room for it.
struct Unwanted<'c>(&'c Client, u64);

impl Drop for Unwanted<'_> {
    fn drop(&mut self) {
        let _ = self.0.say(&Ask::Cancel { number: self.1 }, &[]);
    }
}

impl Client {
    /// The way from this rank. Sends nothing. Nothing else uses `fabric` meanwhile.
    ///
    /// # Errors
    /// `Usage` on a storage rank.
    pub fn new(fabric: Arc<dyn Fabric>, roles: Roles) -> Result<Client> {
        let (rank, size) = (fabric.rank(), fabric.size());
        if roles.size() != size {
            return Err(Error::usage("roles of other ranks than those of this fabric"));
        }
        let head = roles.storage().first().copied().filter(|_| roles.of(rank) == Role::Compute);
        let head = head.ok_or_else(|| {
            Error::usage(format!("rank {rank} is a storage rank, and cannot ask"))
                .with_hint("storage ranks serve, compute ranks ask")
        })?;
        Ok(Client {
            fabric,
            roles,
            head,
            slots: Mutex::default(),
            freed: Condvar::new(),
            numbers: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            over: Mutex::default(),
        })
    }

    /// Who is what.
    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Has the storage ranks run a job, and waits for the report. Files that kernels write (`render:...,out=FILE`) are written
    /// here, under a name that the job gives. `cancel` stops the job; `observer` is told about twice a second how far it is.
    ///
    /// # Errors
    /// As [`crate::run_on`], with rank and host where it is not an error of the data or the request; `Peer` if a storage rank is
    /// gone; `Usage` after [`Client::close`], and for kernels that write block by block, which are not sent elsewhere;
    /// `Cancelled` if the storage ranks were stopped.
    pub fn run(
        &self,
        job: &Job,
        cancel: &Cancel,
        observer: Option<&dyn Observer>,
    ) -> Result<Report> {
        self.is_open()?;
        cancel.check()?;
        if job.open.storage_hosts.is_some() {
            return Err(Error::usage("storage hosts are named for ranks that run together")
                .with_hint("leave them out: the storage ranks are known, and have the data"));
        }
        let outputs = outputs(job)?;
        let encoded = job.encode()?;
        let slot = self.slot(cancel, observer)?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let watched = observer.is_some_and(Observer::looks);
        let (at, bytes) = (slot.1 as u8, encoded.len());
        let ask = Ask::Run { slot: at, number, watched };
        let later = if bytes > limits::SMALL_ASK_BYTES {
            self.say(&Ask::Room { slot: at, number, bytes: bytes as u64 }, &[])?;
            Some((ask, encoded))
        } else {
            self.say(&ask, &encoded)?;
            None
        };
        let (report, files) = self.answer(&slot, number, later, cancel, observer)?;
        self.write(&outputs, files)?;
        Ok(report)
    }

    /// Says goodbye: nothing can be asked for any more, and what is under way is cancelled.
    pub fn close(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            // A head that is gone waits for nobody.
            let _ = self.say(&Ask::Bye, &[]);
        }
    }

    fn say(&self, ask: &Ask, rest: &[u8]) -> Result<()> {
        self.fabric.send(self.head, ASKS, frame(ask, rest)?).map_err(|e| self.gone(e))
    }

    /// An error if nothing can be asked for.
    fn is_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::usage("this way to the storage ranks was closed"));
        }
        match &*lock(&self.over) {
            Some(why) => Err(why.clone().plain()),
            None => Ok(()),
        }
    }

    /// The head is gone; so it is for all who ask from now on.
    fn gone(&self, e: Error) -> Error {
        let e = if e.place().rank.is_none() { e.at_rank(self.head) } else { e };
        let e = self.roles.named(e);
        if e.kind() == Kind::Peer {
            let told = Told::new(&e, self.fabric.rank(), "");
            lock(&self.over).get_or_insert(told);
        }
        e
    }

    /// A tag for the answer. Waits until there is one.
    fn slot(&self, cancel: &Cancel, observer: Option<&dyn Observer>) -> Result<Slot<'_>> {
        let mut slots = lock(&self.slots);
        loop {
            if let Some(free) = slots.iter().position(|used| !used) {
                slots[free] = true;
                return Ok(Slot(self, free));
            }
            slots = self.freed.wait_timeout(slots, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            self.is_open()?;
            cancel.check()?;
            if let Some(observer) = observer {
                drop(slots);
                observer.waits();
                slots = lock(&self.slots);
            }
        }
    }

    fn answer(
        &self,
        slot: &Slot<'_>,
        number: u64,
        mut later: Option<(Ask, Vec<u8>)>,
        cancel: &Cancel,
        observer: Option<&dyn Observer>,
    ) -> Result<(Report, Carried)> {
        let tag = ANSWERS + slot.1 as u32;
        let unanswered = Unwanted(self, number);
        // The answer was on its way, perhaps, when it became known that no more come.
        let (mut told, mut last) = (false, false);
        loop {
            if cancel.is_cancelled() && !told {
                told = true;
                self.say(&Ask::Cancel { number }, &[])?;
            }
            let within = if last { Duration::ZERO } else { LOOK };
            let came = self.fabric.recv_within(self.head, tag, within).map_err(|e| self.gone(e))?;
            let Some(frame) = came else {
                if let Err(e) = self.is_open() {
                    if last {
                        return Err(e);
                    }
                    last = true;
                    continue;
                }
                if let Some(observer) = observer {
                    observer.waits();
                }
                self.look_whether_over()?;
                continue;
            };
            let (answer, rest) = open::<Answer>(&frame).map_err(|e| e.at_rank(self.head))?;
            if answer.number() != number {
                // Of an ask before, which had this tag.
                continue;
            }
            match answer {
                Answer::Far { far: (pass, bytes, total_bytes, rows, seconds), .. } => {
                    if let Some(observer) = observer {
                        observer.progress(&Snapshot { pass, bytes, total_bytes, rows, seconds });
                    }
                }
                // Who has said that it is not wanted is told that it is not run.
                Answer::Room { .. } if told => {}
                Answer::Room { .. } => {
                    if let Some((ask, job)) = later.take() {
                        self.say(&ask, &job)?;
                    }
                }
                Answer::Done { .. } => {
                    std::mem::forget(unanswered);
                    return decode_report(rest).map_err(|e| e.at_rank(self.head));
                }
                Answer::Failed { why, .. } => {
                    std::mem::forget(unanswered);
                    return Err(why.plain());
                }
            }
        }
    }

    /// Finds out whether the head has said that it answers nothing more, or is gone.
    fn look_whether_over(&self) -> Result<()> {
        self.fabric.alive(self.head).map_err(|e| self.gone(e))?;
        // Before what it says of that is looked for.
        let ends = there(&*self.fabric, self.head);
        let said = self.fabric.recv_within(self.head, OVER, Duration::ZERO);
        let Some(said) = said.map_err(|e| self.gone(e))? else {
            // The answer may have come before its end, and is looked for once more.
            if let Err(e) = ends {
                self.gone(e);
            }
            return Ok(());
        };
        let why = match open::<Told>(&said) {
            Ok((why, _)) => why,
            Err(e) => Told::new(&e.at_rank(self.head), self.fabric.rank(), ""),
        };
        lock(&self.over).get_or_insert(why);
        Ok(())
    }

    /// Writes what came with an answer.
    fn write(&self, outputs: &[PathBuf], files: Carried) -> Result<()> {
        let mut whole = Vec::with_capacity(files.len());
        for (path, bytes) in files {
            if !outputs.contains(&path) {
                let e = Error::format("an answer has a file that was not asked for");
                return Err(self.roles.named(e.at_path(path).at_rank(self.head)));
            }
            let mut file = AtomicFile::create(&path)?;
            file.write_all(&bytes)?;
            whole.push(file);
        }
        AtomicFile::commit_all(whole)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

/// The files that a job writes here, if they can be: looked at before it is run.
fn outputs(job: &Job) -> Result<Vec<PathBuf>> {
    let mut outputs: Vec<PathBuf> = Vec::new();
    for text in &job.kernels {
        let spec = Spec::parse(text)?;
        let Some(path) = spec.option("out").map(Path::new) else { continue };
        // As far as the data are seen from here; the storage ranks look at theirs.
        spare(stead_store::expand(&job.inputs).unwrap_or_default(), path)?;
        if outputs.iter().any(|o| real(o) == real(path)) {
            return Err(Error::usage("two outputs have this name")
                .at_path(path)
                .with_hint("give each its own name with out=PATH"));
        }
        // Dropped, it leaves nothing.
        AtomicFile::create(path)?;
        outputs.push(path.to_path_buf());
    }
    Ok(outputs)
}
