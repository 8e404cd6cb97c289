//! The ranks of a communicator as a [`Fabric`].

use crate::clock;
use crate::pace::Patience;
use crate::post::{INTEREST, Letter, Post};
use crate::progress::Progress;
use crate::raw::{self, Comm, MPI_Comm};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use stead_core::{Error, Kind, Result, limits};
use stead_fabric::{Fabric, FabricExt, Mailbox, Rounds};

/// How long to wait.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// For a message.
    pub deadline: Duration,
    /// For a sign of life of a rank that somebody waits for, before it is taken for gone.
    pub silence: Duration,
    /// For all ranks of a communicator to come to where a fabric is made of it.
    pub meeting: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            deadline: Duration::from_secs(limits::PEER_DEADLINE_S),
            silence: Duration::from_secs(limits::PEER_SILENCE_S),
            meeting: Duration::from_secs(limits::PEER_DEADLINE_S),
        }
    }
}

/// Ranks of an MPI communicator. See the documentation of the crate.
///
/// When the last fabric of a communicator is dropped, it tells the other ranks; its thread answers them until they are done
/// too. So does MPI_Finalize, which waits until all ranks have called it.
pub struct Mpi {
    ranks: Arc<Ranks>,
    /// Messages of one channel do not come to another one.
    channel: u64,
    mailbox: Arc<Mailbox>,
    rounds: Rounds,
}

/// What the fabrics of a communicator share.
pub(crate) struct Ranks {
    post: Arc<Post>,
    /// For each rank, the first rank of its node.
    nodes: OnceLock<Vec<usize>>,
    options: Options,
}

/// A thread that may still call MPI.
struct Running {
    post: Weak<Post>,
    thread: JoinHandle<()>,
}

/// All such threads, also of fabrics that were dropped.
static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

/// The process that has them: a child that was forked has no such threads, and maybe a lock that nobody gives up.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// True in such a child, and where there were never any.
fn is_forked() -> bool {
    PROCESS.load(Ordering::Relaxed) != std::process::id()
}

/// How often MPI_Finalize looks whether a thread has ended, and how long it waits for its last call to return.
const LAST: Duration = Duration::from_secs(5);

/// The gathering of nodes, the first thing that is sent.
const NODES: u32 = u32::MAX - 1;

/// Ends the threads of all fabrics, as MPI_Finalize needs it: when it returns, none of them is in MPI or comes there again.
/// Waits until the other ranks of each fabric do this, too, or are done with it; what is waited for from them fails then.
///
/// MPI_Finalize does it first of all, where the one of this library is called, as in programs that are linked with it before
/// MPI.
pub fn end_all() {
    if is_forked() {
        return;
    }
    let running = std::mem::take(&mut *RUNNING.lock().unwrap_or_else(PoisonError::into_inner));
    // All are told before any is waited for: ranks may have made theirs in different orders.
    running.iter().filter_map(|r| r.post.upgrade()).for_each(|post| post.stop());
    for Running { post, thread } in running {
        // Without a post, the thread has done all it had to.
        if post.upgrade().is_none_or(|post| finish(&post)) {
            let _ = thread.join();
        }
    }
}

/// Waits for the last call of a thread that was told to stop: false if there is one that does not return.
fn finish(post: &Post) -> bool {
    let mut patience = Patience::new(post.rounds());
    loop {
        if post.wait(LAST) {
            return true;
        }
        if post.is_leaving() {
            // Others may have been stopped, and MPI may wait for them.
            return false;
        }
        if !patience.lasts(LAST, post.rounds()) {
            break;
        }
    }
    post.give_up();
    post.wait(LAST)
}

/// Says at the end of a thread, whatever ends it, that it makes no further call.
struct End(Arc<Post>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.ended();
    }
}

impl Mpi {
    /// Over the ranks of a communicator, of which it makes one of its own. Collective: all ranks of it call this. Takes a thread.
    ///
    /// # Errors
    /// `Usage` if MPI is not running or was not initialised with `MPI_THREAD_MULTIPLE`, or the communicator is null or between
    /// two groups; `Timeout` if not all ranks have come in time: MPI tells nobody which, and what is collective can be done with the
    /// communicator by nobody any more; `Peer` if MPI fails, or one that has given up begins anew when others come late.
    pub fn new(communicator: MPI_Comm, options: Options) -> Result<Mpi> {
        let hooked = raw::at_finalize(end_all);
        let (give, come) = mpsc::sync_channel::<(Progress, End)>(1);
        let thread = std::thread::Builder::new()
            .name("stead-mpi".to_owned())
            .spawn(move || {
                if let Ok((progress, _end)) = come.recv() {
                    progress.run();
                }
            })
            .map_err(|e| Error::io("start a thread for", "MPI", e));
        let ready = hooked.and(thread);
        raw::meet(communicator, options.meeting)?;
        let comm = Comm::like(communicator)?;
        let place = comm.return_errors().and_then(|()| comm.rank_and_size());
        let ready = ready.and_then(|thread| Ok((thread, place?)));
        // The others wait for this rank, also if it cannot: before anything that MPI waits for without an end.
        let all = comm.all(ready.is_ok(), options.meeting)?;
        let (thread, (rank, size)) = match ready {
            Ok(ready) if all => ready,
            failed => {
                comm.free()?;
                failed?;
                return Err(Error::new(Kind::Peer, "another rank cannot take part")
                    .with_hint("it has an error of its own"));
            }
        };
        let first = comm.first_of_node()?;
        let post = Arc::new(Post::new(rank, size));
        let progress = Progress::new(comm, post.clone(), options.silence);
        // It waits for this.
        let _ = give.send((progress, End(post.clone())));
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|r| !r.thread.is_finished());
        running.push(Running { post: Arc::downgrade(&post), thread });
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        drop(running);
        let nodes = OnceLock::new();
        let fabric = Mpi::on(Arc::new(Ranks { post, nodes, options }), 0);
        let firsts = fabric.all_gather(NODES, (first as u64).to_le_bytes().to_vec())?;
        let node = |bytes: Vec<u8>| {
            let bytes = bytes.try_into().map_err(|_| Error::format("a message is malformed"))?;
            Ok(usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(0))
        };
        let _ = fabric.ranks.nodes.set(firsts.into_iter().map(node).collect::<Result<_>>()?);
        Ok(fabric)
    }

    fn on(ranks: Arc<Ranks>, channel: u64) -> Mpi {
        let mailbox = ranks.post.boxes.open(channel);
        Mpi { ranks, channel, mailbox, rounds: Rounds::default() }
    }

    /// A fabric of a communicator. Its communicator and thread are made when this is first called, and kept until the
    /// program frees its own, so that any number of files takes one of each; but no message of one fabric comes to another
    /// one. Collective. Threads of a rank that call it at once for one communicator come one after the other.
    ///
    /// # Errors
    /// As [`Mpi::new`].
    pub fn of(communicator: MPI_Comm, options: Options) -> Result<Mpi> {
        let _turn = raw::one_at_a_time(communicator);
        // All have made the same calls, but one may have failed, or have taken another one for gone.
        let kept = raw::kept(communicator)?.filter(|kept| kept.is_whole());
        let next = kept.as_ref().map_or(0, |kept| kept.post.boxes.next());
        let (all, channel) = raw::agree(communicator, kept.is_some(), next, options.meeting)?;
        if let Some(kept) = kept.filter(|_| all) {
            return Ok(Mpi::on(kept, channel));
        }
        let first = Mpi::new(communicator, options)?;
        raw::keep(communicator, first.ranks.clone())?;
        Ok(Mpi::on(first.ranks.clone(), 1))
    }

    /// Over all ranks of the job.
    ///
    /// # Errors
    /// As [`Mpi::new`].
    pub fn world(options: Options) -> Result<Mpi> {
        raw::need_threads()?;
        Mpi::new(raw::world(), options)
    }
}

impl Ranks {
    /// True if no rank is gone.
    fn is_whole(&self) -> bool {
        (0..self.post.size).all(|rank| self.post.boxes.alive(rank).is_ok())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        if !is_forked() {
            self.post.close();
        }
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if !is_forked() {
            self.ranks.post.boxes.close(self.channel);
        }
    }
}

impl Fabric for Mpi {
    fn rank(&self) -> usize {
        self.ranks.post.rank
    }

    fn size(&self) -> usize {
        self.ranks.post.size
    }

    fn node_of(&self, rank: usize) -> usize {
        self.ranks.nodes.get().and_then(|nodes| nodes.get(rank)).copied().unwrap_or(0)
    }

    fn deadline(&self) -> Duration {
        self.ranks.options.deadline
    }

    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()> {
        let letter = Letter { to, channel: self.channel, tag, bytes };
        self.ranks.post.send(letter, self.ranks.options.deadline)
    }

    fn recv_within(&self, from: usize, tag: u32, within: Duration) -> Result<Option<Vec<u8>>> {
        if from >= self.size() {
            return Err(Error::internal(format!("there is no rank {from}")));
        }
        let mut left = within;
        self.ranks.post.expect(from, clock::now());
        loop {
            let turn = left.min(INTEREST / 2);
            if let Some((_, bytes)) = self.mailbox.take(Some(from), tag, turn)? {
                return Ok(Some(bytes));
            }
            left = left.saturating_sub(turn);
            if left.is_zero() {
                return Ok(None);
            }
            // The interest is renewed while somebody waits.
            self.ranks.post.expect(from, clock::now());
        }
    }

    fn recv_any(&self, tag: u32, within: Duration) -> Result<Option<(usize, Vec<u8>)>> {
        // Who only looks what is there does not wake anybody.
        let mut taken = self.mailbox.take(None, tag, Duration::ZERO)?;
        let mut left = within;
        while taken.is_none() && !left.is_zero() {
            self.ranks.post.listen(clock::now());
            let turn = left.min(INTEREST / 2);
            taken = self.mailbox.take(None, tag, turn)?;
            left = left.saturating_sub(turn);
        }
        Ok(taken)
    }

    fn alive(&self, rank: usize) -> Result<()> {
        let (post, limit) = (&self.ranks.post, self.ranks.options.silence);
        post.watch(rank, clock::now());
        self.mailbox.alive(rank)?;
        // The thread that would find out is in a call of MPI that does not return, as some do when a rank goes that much is sent to.
        if post.still(clock::now()) >= limit {
            let message = format!("MPI has not returned from a call for {} s", limit.as_secs());
            return Err(Error::new(Kind::Peer, message)
                .with_hint("a rank that it was sending to may be gone: see what others say"));
        }
        Ok(())
    }

    fn ends(&self, rank: usize) -> bool {
        self.ranks.post.boxes.ends(rank)
    }

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn forget(&self, tags: Range<u32>) {
        self.rounds.forget(&tags);
        self.mailbox.forget(tags);
    }

    fn memory(&self, len: usize) -> Vec<u8> {
        // Without memory there is no room in it: whoever adds to it finds out.
        self.ranks.post.spares.empty(len).unwrap_or_default()
    }

    fn room(&self, len: usize) -> Result<Vec<u8>> {
        self.ranks.post.spares.room(len)
    }

    fn give_back(&self, bytes: Vec<u8>) {
        self.ranks.post.spares.keep(bytes);
    }
}

/// MPI, begun and ended by stead, for programs that do not do so themselves. One at a time, once in a process.
pub struct World(());

impl World {
    /// MPI_Init_thread.
    ///
    /// # Errors
    /// `Usage` if it was called before, or MPI does not have enough threads.
    pub fn init() -> Result<World> {
        raw::init().map(World)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Nothing can be done about an error any more.
        let _ = raw::finalize();
    }
}
