//! The writers of another node, as a reader has them: an agent there takes its place, and tells and sends what it asks for.

use crate::clock;
use crate::coupling::Coupling;
use crate::index::{Definitions, Place};
use crate::options::{Read, Stop};
use crate::source::{Coming, Fetch, Part, Said, Source, Told, Which};
use crate::wire::{self, Ask, Errand, Knock, Wanted};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Bounds, Error, Kind, Result};
use stead_store::arena::View;

/// So long an agent waits for a step before it is asked again.
const ROUND: Duration = Duration::from_millis(500);

/// A conversation with the agent of a rank: what is asked is answered in order.
#[derive(Debug)]
pub(crate) struct Talk {
    coupling: Arc<Coupling>,
    rank: usize,
    tag: u32,
    timeout: Duration,
    stop: Stop,
    /// An answer did not come: what comes next may be that one.
    is_broken: Mutex<bool>,
    kept: Mutex<Kept>,
    /// What does not wait for a step is asked beside that: the same of those answers.
    errands: Mutex<bool>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Definitions of the step that was told last.
    known: HashMap<u64, Arc<Definitions>>,
    /// Steps that the agent holds, and how often it was told to.
    steps: HashMap<u64, (u64, Arc<Told>)>,
}

impl Talk {
    /// Begins one.
    pub(crate) fn new(coupling: &Arc<Coupling>, rank: usize, options: &Read) -> Result<Talk> {
        let tag = coupling.tag()?;
        coupling.knock(rank, &Knock::Talk(tag))?;
        Ok(Talk {
            coupling: coupling.clone(),
            rank,
            tag,
            timeout: options.timeout,
            stop: options.stop.clone(),
            is_broken: Mutex::default(),
            kept: Mutex::default(),
            errands: Mutex::default(),
        })
    }

    /// Who has this asks, and takes what is answered.
    fn turn(&self) -> MutexGuard<'_, bool> {
        self.is_broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn errands(&self) -> MutexGuard<'_, bool> {
        self.errands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, ask: &Ask) -> Result<()> {
        self.check()?;
        self.coupling.fabric().send(self.rank, self.tag, wire::encode(ask)?)
    }

    fn send(&self, errand: &Errand) -> Result<()> {
        self.check()?;
        self.coupling.fabric().send(self.rank, self.tag + 1, wire::encode(errand)?)
    }

    fn check(&self) -> Result<()> {
        if self.coupling.is_mine() {
            return Ok(());
        }
        let message = "streams of other nodes were opened before this process was forked";
        Err(Error::usage(message).with_hint("open them in the process that uses them"))
    }

    /// The next message of a tag.
    fn hear(&self, tag: u32) -> Result<Vec<u8>> {
        let until = clock::after(self.timeout);
        loop {
            let left = until.saturating_duration_since(clock::now());
            let share = self.stop.at_most(left);
            if let Some(bytes) = self.coupling.fabric().recv_within(self.rank, tag, share)? {
                return Ok(bytes);
            }
            self.stop.check()?;
            if left.is_zero() {
                let message = "the node that writers of a stream are on does not answer";
                return Err(Error::new(Kind::Timeout, message).at_rank(self.rank));
            }
        }
    }

    fn ask<T: DeserializeOwned>(&self, is_broken: &mut bool, ask: &Ask) -> Result<T> {
        if *is_broken {
            return Err(self.broken());
        }
        self.tell(ask)?;
        let answer = self.hear(self.tag).inspect_err(|_| *is_broken = true)?;
        wire::decode(wire::heard(&answer)?)
    }

    fn run<T: DeserializeOwned>(&self, errand: &Errand) -> Result<T> {
        let mut is_broken = self.errands();
        if *is_broken {
            return Err(self.broken());
        }
        self.send(errand)?;
        let answer = self.hear(self.tag + 1).inspect_err(|_| *is_broken = true)?;
        wire::decode(wire::heard(&answer)?)
    }

    fn broken(&self) -> Error {
        let message = "an answer of the node that writers of a stream are on did not come before";
        Error::new(Kind::Peer, message)
            .at_rank(self.rank)
            .with_hint("open the reader anew, if the node is well")
    }

    /// The stream of a name, if there is one on that node.
    pub(crate) fn find(&self, name: &str) -> Result<Option<wire::Found>> {
        self.ask(&mut self.turn(), &Ask::Find(name.to_owned()))
    }

    /// A place among its readers.
    pub(crate) fn open(self, open: wire::Open) -> Result<There> {
        let position = self.ask(&mut self.turn(), &Ask::Open(Box::new(open)))?;
        Ok(There { talk: self, position })
    }
}

impl Kept {
    /// Understands what was told of a step, and keeps it while it is held. What follows another one is told in fewer words.
    fn take(&mut self, step: u64, told: wire::Told, follows: bool) -> Result<()> {
        let mut known: HashMap<u64, Arc<Definitions>> = HashMap::new();
        let mut said = Vec::with_capacity(told.said.len());
        for wire::Said { rank, hash, definitions, blocks } in told.said {
            let definitions = match definitions {
                Some(bytes) if Definitions::hash_of(&bytes) == hash => {
                    Arc::new(Definitions::decode(&bytes)?)
                }
                Some(_) => return Err(wire::astray("definitions were damaged on their way")),
                None => known
                    .get(&hash)
                    .or_else(|| self.known.get(&hash).filter(|_| follows))
                    .cloned()
                    .ok_or_else(|| wire::astray("definitions were not told"))?,
            };
            known.insert(hash, definitions.clone());
            let blocks = definitions.decode_blocks(&blocks)?;
            said.push(Said { rank, definitions, blocks });
        }
        if follows {
            self.known = known;
        }
        let told = Arc::new(Told { at: told.at, bytes: told.bytes, said });
        self.steps.entry(step).or_insert((0, told)).0 += 1;
        Ok(())
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        if !self.coupling.is_mine() {
            return;
        }
        // Who is gone needs no farewell.
        let _ = self.tell(&Ask::Bye);
        let _ = self.send(&Errand::Bye);
        self.coupling.fabric().forget(self.tag..self.tag + 2);
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct There {
    talk: Talk,
    position: u64,
}

impl Source for There {
    fn position(&self) -> u64 {
        self.position
    }

    fn next(&self, from: u64, until: Instant) -> Result<Coming> {
        loop {
            self.talk.stop.check()?;
            let left = until.saturating_duration_since(clock::now());
            let round = u64::try_from(left.min(ROUND).as_millis()).unwrap_or(u64::MAX);
            let mut turn = self.talk.turn();
            match self.talk.ask(&mut turn, &Ask::Next(from, round))? {
                wire::Next::Step(step, told) if step >= from => {
                    self.talk.kept().take(step, told, true)?;
                    return Ok(Coming::Step(step));
                }
                wire::Next::Step(..) => return Err(wire::astray("a step that is over")),
                wire::Next::Over(failure) => {
                    return Ok(Coming::Over(failure.map(wire::Failure::error)));
                }
                wire::Next::Nothing if left.is_zero() => return Ok(Coming::Nothing),
                wire::Next::Nothing => {}
            }
        }
    }

    fn hold(&self, step: u64) -> Result<bool> {
        if self.talk.kept().steps.contains_key(&step) {
            return Ok(true);
        }
        match self.talk.run::<Option<wire::Told>>(&Errand::Hold(step))? {
            Some(told) => self.talk.kept().take(step, told, false).map(|()| true),
            None => Ok(false),
        }
    }

    fn let_go(&self, step: u64, is_done: bool) {
        let held = self.talk.kept().steps.remove(&step);
        for _ in 0..held.map_or(0, |(times, _)| times) {
            // Who is gone holds nothing.
            let _ = self.talk.send(&Errand::LetGo(step, is_done));
        }
    }

    fn steps(&self) -> Result<Vec<u64>> {
        self.talk.run(&Errand::Steps)
    }

    fn told(&self, step: u64) -> Result<Arc<Told>> {
        let told = self.talk.kept().steps.get(&step).map(|(_, told)| told.clone());
        told.ok_or_else(|| Error::internal(format!("step {step} is not held")))
    }

    fn late(&self, step: u64) -> Vec<String> {
        let late = self.talk.run(&Errand::Late(step));
        late.unwrap_or_else(|e| vec![e.to_string()])
    }

    fn look(&self, _: usize, _: &Place) -> Result<Option<View>> {
        Ok(None)
    }

    fn fetch(&self) -> Option<Box<dyn Fetch + '_>> {
        Some(Box::new(Parts { talk: &self.talk, is_broken: self.talk.errands(), asked: 0 }))
    }

    fn count(&self, _: u64, _: u64) {}

    fn done(&self) {
        let _ = self.talk.send(&Errand::Enough);
    }
}

/// Parts that are on their way.
struct Parts<'t> {
    talk: &'t Talk,
    is_broken: MutexGuard<'t, bool>,
    /// And have not come.
    asked: usize,
}

impl Fetch for Parts<'_> {
    fn ask(&mut self, block: Which, part: &Bounds) -> Result<()> {
        if *self.is_broken {
            return Err(self.talk.broken());
        }
        let wanted = Wanted {
            step: block.step,
            writer: block.writer as u64,
            number: block.number as u64,
            start: part.start().to_vec(),
            count: part.count().to_vec(),
        };
        self.talk.send(&Errand::Part(wanted))?;
        self.asked += 1;
        Ok(())
    }

    fn hear(&mut self) -> Result<Part> {
        let broken = &mut *self.is_broken;
        let message = self.talk.hear(self.talk.tag + 1).inspect_err(|_| *broken = true)?;
        self.asked = self.asked.saturating_sub(1);
        wire::heard(&message)?;
        Ok(Part::new(message, wire::HEAD))
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        // After an error others may still come, which are nobody's.
        while self.asked > 0 && !*self.is_broken {
            let _ = self.hear();
        }
    }
}
