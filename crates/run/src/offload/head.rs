//! The first storage rank: it listens, keeps what is asked for in queues, and has it done.

use super::rooms::{Rooms, Wanted};
use super::serve::{Served, Storage};
use super::small::Small;
use super::wire::{
    ANSWERS, ASKS, Answer, Ask, ORDERS, OVER, Order, SLOTS, encode_report, frame, malformed, open,
};
use super::{Job, LOOK, Role, there};
use crate::clock::Watch;
use crate::engine::run_for;
use crate::outputs::Carried;
use crate::pass::{Observer, Snapshot, caught};
use crate::report::Report;
use crate::told::Told;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use stead_core::{Cancel, Error, Result, limits};
use stead_fabric::Local;

/// How often the head looks which ranks have ended, in seconds.
const THERE: f64 = 1.0;
/// And after how many of these looks it has the fabric find out which are gone: each is asked for a sign of life then.
const ALIVE: u32 = 10;
/// Seconds between two words to who has asked how far a run is.
const TELL_EVERY: f64 = 0.5;

/// See the module's documentation.
pub struct Head<'s> {
    rank: &'s Storage<'s>,
    /// Bytes of data that it runs over alone.
    few: u64,
    state: Mutex<State>,
    /// Something was asked for, or nobody will ask any more.
    came: Condvar,
}

/// Something that is asked for.
struct Asked {
    slot: u8,
    number: u64,
    watched: bool,
    job: Vec<u8>,
}

struct State {
    /// Compute ranks that may still ask.
    there: BTreeSet<usize>,
    /// What each of them asks for. No queue is empty.
    queues: HashMap<usize, VecDeque<Asked>>,
    /// Whose turn it is: each that has a queue, once.
    turns: VecDeque<usize>,
    /// For what is large of it.
    rooms: Rooms,
    /// Who has asked for what is run now, and the number of it.
    now: Option<(usize, u64, Cancel)>,
    /// A storage rank that is gone: whatever is asked for from then on fails.
    broken: Option<Told>,
    /// Why no more is run, if that is not because all are done.
    over: Option<Told>,
    /// The thread that runs has ended.
    ended: bool,
}

impl State {
    fn of(there: BTreeSet<usize>) -> State {
        State {
            there,
            queues: HashMap::new(),
            turns: VecDeque::new(),
            rooms: Rooms::of(limits::MAX_ASKED_BYTES),
            now: None,
            broken: None,
            over: None,
            ended: false,
        }
    }

    /// A rank asks for nothing any more.
    fn leaves(&mut self, client: usize) {
        self.there.remove(&client);
        self.queues.remove(&client);
        self.turns.retain(|c| *c != client);
        let now = self.now.as_ref().filter(|(c, ..)| *c == client);
        self.rooms.leaves(client, now.map(|(_, number, _)| *number));
        if let Some((_, _, cancel)) = now {
            cancel.cancel();
        }
    }

    /// What is to be run next, and for whom: ranks take turns.
    fn next(&mut self) -> Option<(usize, Asked)> {
        let client = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&client)?;
        let asked = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        Some((client, asked))
    }
}

/// What holds is whole whatever became of who changed it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the listener, whatever ends the thread that runs.
struct Ends<'h>(&'h Head<'h>);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).ended = true;
    }
}

/// Tells who has asked how far a run is.
struct Tells<'h> {
    head: &'h Head<'h>,
    client: usize,
    slot: u8,
    number: u64,
    watched: bool,
    cancel: Cancel,
    /// Since it was told last.
    told: Mutex<Option<Watch>>,
}

impl Observer for Tells<'_> {
    fn progress(&self, s: &Snapshot) {
        self.waits();
        if !self.watched {
            return;
        }
        let mut told = lock(&self.told);
        if told.as_ref().is_none_or(|watch| watch.seconds() > TELL_EVERY) {
            *told = Some(Watch::start());
            self.head.answer(self.client, self.slot, &Answer::far(self.number, s), &[]);
        }
    }

    fn looks(&self) -> bool {
        self.watched
    }

    fn waits(&self) {
        self.head.rank.look();
        if self.head.rank.how.cancel.is_cancelled() {
            self.cancel.cancel();
        }
    }
}

impl<'s> Head<'s> {
    pub fn new(rank: &'s Storage<'s>, few: u64) -> Head<'s> {
        let state = Mutex::new(State::of(rank.roles.compute().iter().copied().collect()));
        Head { rank, few, state, came: Condvar::new() }
    }

    /// Until all compute ranks are done.
    pub fn serve(&self) -> Result<Served> {
        let served = std::thread::scope(|scope| {
            let listens = std::thread::Builder::new().name("stead-head".to_owned());
            let listens = listens.spawn_scoped(scope, || self.listen());
            listens.map_err(|e| Error::io("start a thread for", "asks", e))?;
            let _ends = Ends(self);
            self.run()
        });
        // Nobody else is to wait for this rank, whatever has ended it.
        if let Ok(end) = frame(&Order::End, &[]) {
            for rank in self.rank.roles.storage().iter().skip(1) {
                let _ = self.rank.fabric.send(*rank, ORDERS, end.clone());
            }
        }
        if let Err(e) = &served {
            let left = std::mem::take(&mut lock(&self.state).there);
            left.into_iter().for_each(|client| self.over(client, e));
        }
        served
    }

    /// The thread that takes what ranks say.
    fn listen(&self) {
        let fabric = &self.rank.fabric;
        let (mut watch, mut looks) = (Watch::start(), 0u32);
        loop {
            match fabric.recv_any(ASKS, LOOK) {
                Ok(Some((from, said))) => self.heard(from, &said),
                Ok(None) => {}
                Err(e) => {
                    self.stop(&e);
                    return;
                }
            }
            if watch.seconds() > THERE {
                watch = Watch::start();
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(ALIVE) {
                    (0..fabric.size()).for_each(|rank| drop(fabric.alive(rank)));
                }
                let asking: Vec<usize> = lock(&self.state).there.iter().copied().collect();
                for client in asking.into_iter().filter(|c| fabric.ends(*c)) {
                    self.leaves(client);
                }
                self.miss();
            }
            if let Err(e) = self.rank.how.cancel.check() {
                self.stop(&e);
            }
            if lock(&self.state).ended {
                return;
            }
        }
    }

    /// Nothing more is run.
    fn stop(&self, why: &Error) {
        let why = self.told(why);
        let mut state = lock(&self.state);
        if let Some((_, _, cancel)) = &state.now {
            cancel.cancel();
        }
        state.over.get_or_insert(why);
        drop(state);
        self.came.notify_all();
    }

    fn told(&self, e: &Error) -> Told {
        Told::new(e, self.rank.fabric.rank(), &self.rank.here.host)
    }

    fn heard(&self, from: usize, said: &[u8]) {
        let ask = open::<Ask>(said);
        if self.rank.roles.of(from) == Role::Storage {
            let e = match ask {
                Ok((Ask::Bye, _)) => {
                    let message = "the storage rank has stopped serving";
                    Error::new(stead_core::Kind::Cancelled, message)
                }
                Ok(_) => return,
                Err(e) => e,
            };
            let e = e.at_rank(from);
            self.stop(&self.rank.roles.named(e));
            return;
        }
        match ask {
            Ok((Ask::Run { slot, number, watched }, job)) if usize::from(slot) < SLOTS => {
                self.asked(from, Asked { slot, number, watched, job: job.to_vec() });
            }
            Ok((Ask::Room { slot, number, bytes }, _)) if usize::from(slot) < SLOTS => {
                self.wants(Wanted { client: from, slot, number, bytes });
            }
            Ok((Ask::Cancel { number }, _)) => self.cancelled(from, number),
            Ok((Ask::Bye, _)) => {
                self.leaves(from);
            }
            Ok((Ask::Run { .. } | Ask::Room { .. }, _)) => self.refuse(from, &malformed()),
            Err(e) => self.refuse(from, &e),
        }
    }

    /// A rank asks for nothing any more.
    fn leaves(&self, client: usize) {
        lock(&self.state).leaves(client);
        self.came.notify_all();
        self.give_room();
    }

    /// A rank that cannot be understood: no more is taken from it.
    fn refuse(&self, client: usize, why: &Error) {
        self.over(client, why);
        self.leaves(client);
    }

    /// An ask that is large is to be sent when there is room.
    fn wants(&self, wanted: Wanted) {
        let mut state = lock(&self.state);
        let fits = wanted.bytes <= limits::MAX_JOB_BYTES as u64;
        let taken =
            !state.there.contains(&wanted.client) || fits && state.rooms.want(wanted, SLOTS);
        drop(state);
        if taken {
            self.give_room();
        } else {
            self.refuse(wanted.client, &malformed());
        }
    }

    /// Tells those for whom there is room to send what they ask for.
    fn give_room(&self) {
        let now = lock(&self.state).rooms.give();
        for Wanted { client, slot, number, .. } in now {
            self.answer(client, slot, &Answer::Room { number }, &[]);
        }
    }

    fn asked(&self, from: usize, asked: Asked) {
        let mut state = lock(&self.state);
        if !state.there.contains(&from) {
            return;
        }
        let bytes = asked.job.len();
        let room = state.rooms.has(from, asked.number);
        let fits =
            bytes <= limits::SMALL_ASK_BYTES || room.is_some_and(|room| bytes as u64 <= room);
        let queue = state.queues.entry(from).or_default();
        if queue.len() >= SLOTS || !fits {
            drop(state);
            self.refuse(from, &malformed());
            return;
        }
        queue.push_back(asked);
        if queue.len() == 1 {
            state.turns.push_back(from);
        }
        drop(state);
        self.came.notify_all();
    }

    fn cancelled(&self, from: usize, number: u64) {
        let mut state = lock(&self.state);
        if let Some((_, _, cancel)) =
            state.now.as_ref().filter(|(c, n, _)| (*c, *n) == (from, number))
        {
            cancel.cancel();
            return;
        }
        let mut slot = state.rooms.back(from, number).map(|wanted| wanted.slot);
        if let Some(queue) = state.queues.get_mut(&from)
            && let Some(at) = queue.iter().position(|a| a.number == number)
        {
            slot = queue.remove(at).map(|asked| asked.slot);
            if queue.is_empty() {
                state.queues.remove(&from);
                state.turns.retain(|c| *c != from);
            }
        }
        drop(state);
        if let Some(slot) = slot {
            let failed = Answer::Failed { number, why: self.told(&Error::cancelled()) };
            self.answer(from, slot, &failed, &[]);
            self.give_room();
        }
    }

    /// Says something to a rank that has asked. One that is gone need not know; one to which nothing can be said is told that
    /// nothing more will be.
    fn answer(&self, client: usize, slot: u8, answer: &Answer, rest: &[u8]) {
        let send = |bytes| self.rank.fabric.send(client, ANSWERS + u32::from(slot), bytes);
        if let Err(e) = frame(answer, rest).and_then(send) {
            self.refuse(client, &e);
        }
    }

    /// Tells a rank that nothing that it asks for will be done.
    fn over(&self, client: usize, why: &Error) {
        if let Ok(bytes) = frame(&self.told(why), &[]) {
            let _ = self.rank.fabric.send(client, OVER, bytes);
        }
    }

    /// The thread that runs.
    fn run(&self) -> Result<Served> {
        let mut served = Served::default();
        let mut small = Small::of(self.few);
        while let Some((client, asked, cancel)) = self.wait(&mut small)? {
            let Asked { slot, number, watched, job } = asked;
            let told = Mutex::default();
            let tells =
                Tells { head: self, client, slot, number, watched, cancel: cancel.clone(), told };
            let broken = lock(&self.state).broken.clone();
            let known = broken.is_some();
            let ran = match broken {
                Some(why) => Err(why.plain()),
                None => {
                    served.runs += 1;
                    caught(|| self.one(&job, &cancel, &tells, &mut small, &mut served))
                }
            };
            let ran = ran.and_then(|(report, files)| encode_report(report, files));
            drop(job);
            // Before it is answered: who hears the answer asks for the next one, and has no more under way than may be.
            let had = {
                let mut state = lock(&self.state);
                state.now = None;
                state.rooms.back(client, number)
            };
            match ran {
                Ok(report) => self.answer(client, slot, &Answer::Done { number }, &report),
                Err(e) => {
                    if !known {
                        served.failed += 1;
                        self.miss();
                    }
                    if self.rank.is_torn() {
                        self.stop(&e);
                    }
                    let why = self.told(&e);
                    self.answer(client, slot, &Answer::Failed { number, why }, &[]);
                }
            }
            if had.is_some() {
                self.give_room();
            }
        }
        Ok(served)
    }

    /// What is to be run next; `None` when nobody will ask any more.
    fn wait(&self, small: &mut Small) -> Result<Option<(usize, Asked, Cancel)>> {
        loop {
            let mut state = lock(&self.state);
            if let Some(why) = state.over.clone() {
                return Err(why.plain());
            }
            if let Some((client, asked)) = state.next() {
                let cancel = Cancel::new();
                state.now = Some((client, asked.number, cancel.clone()));
                return Ok(Some((client, asked, cancel)));
            }
            if state.there.is_empty() {
                return Ok(None);
            }
            let waited = self.came.wait_timeout(state, LOOK);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            small.tidy();
            self.rank.look();
        }
    }

    /// Runs one job.
    fn one(
        &self,
        bytes: &[u8],
        cancel: &Cancel,
        tells: &Tells<'_>,
        small: &mut Small,
        served: &mut Served,
    ) -> Result<(Report, Carried)> {
        let job = Job::decode(bytes)?;
        let ran = match small.dataset(&job) {
            Some(dataset) => {
                served.alone += 1;
                let alone = || {
                    let dataset = dataset?;
                    let mut request = self.rank.request(&job, cancel)?;
                    // A thread takes longer to start than a little data to look at.
                    let extents = dataset.total_bytes().div_ceil(request.chunk.max(1) as u64);
                    let most = usize::try_from(extents).unwrap_or(usize::MAX).max(1);
                    let asked = if request.threads == 0 { usize::MAX } else { request.threads };
                    request.threads = asked.min(most).min(crate::clock::processors());
                    run_for(&Local::single(), &dataset, &request, Some(tells))
                };
                alone().map_err(|e| self.rank.alone(e))
            }
            None => {
                let order = frame(&Order::Run, bytes)?;
                for rank in self.rank.roles.storage().iter().skip(1) {
                    // Who is gone is missed when all meet.
                    let _ = self.rank.fabric.send(*rank, ORDERS, order.clone());
                }
                self.rank.together(Ok(job), cancel, tells)
            }
        };
        let (report, files) = ran?;
        let carried = files.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        if carried > limits::MAX_CARRIED_BYTES {
            return Err(Error::limit(format!(
                "the files that kernels write have {carried} bytes; at most {} are sent",
                limits::MAX_CARRIED_BYTES
            ))
            .with_hint("ask for smaller pictures, or run it where the data are"));
        }
        Ok((report, files))
    }

    /// Looks whether a storage rank is gone.
    fn miss(&self) {
        if let Some(e) = self.missing() {
            let told = self.told(&e);
            lock(&self.state).broken.get_or_insert(told);
        }
    }

    /// A storage rank that is gone.
    fn missing(&self) -> Option<Error> {
        let fabric = &*self.rank.fabric;
        let gone = self.rank.roles.storage().iter().find(|r| fabric.ends(**r));
        let gone = gone.and_then(|r| Some(there(fabric, *r).err()?.at_rank(*r)));
        gone.map(|e| self.rank.roles.named(e))
    }
}
