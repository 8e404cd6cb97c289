//! The writers of another node, as a reader has them: an agent there takes its place, and tells and sends what it asks for.

use crate::clock;
use crate::index::{Definitions, Place};
use crate::line::Line;
use crate::noted::Got;
use crate::options::{Patience, Read, Stop};
use crate::report::MemoryReport;
use crate::source::{Coming, Fetch, Part, Said, Source, Told, Which};
use crate::wire::{self, Ask, Errand, Wanted};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Bounds, Error, Kind, Result};
use stead_store::arena::View;

/// So long an agent waits for a step before it is asked again.
const ROUND: Duration = Duration::from_millis(500);

/// That a node does not answer.
fn silent(line: &dyn Line, stream: &str) -> Error {
    let message = format!("the node that writers of stream '{stream}' are on does not answer");
    line.by(Error::new(Kind::Timeout, message)).with_hint(HINT)
}

/// What is to be done without some of the writers.
const HINT: &str = "see what became of that rank or node; what was got of steps can be used, and the stream opened anew when its writers are there again";

/// What ends a line, as who reads a stream is to be told it.
pub(crate) fn lost(e: Error, stream: &str) -> Error {
    if e.kind() != Kind::Peer {
        return e;
    }
    let e = e.and(&format!(", and stream '{stream}' cannot be had from its node"));
    match e.hint() {
        Some(_) => e,
        None => e.with_hint(HINT),
    }
}

/// The next message of a line, if it comes in time.
pub(crate) fn hear(line: &dyn Line, patience: &Patience) -> Result<Option<Vec<u8>>> {
    loop {
        // Before the wait: what comes while the time runs out is heard.
        let is_over = patience.left().is_zero();
        if let Some(bytes) = line.recv_within(patience.share())? {
            return Ok(Some(bytes));
        }
        patience.check()?;
        if is_over {
            return Ok(None);
        }
    }
}

fn answer_to(line: &dyn Line, stream: &str, patience: &Patience) -> Result<Vec<u8>> {
    hear(line, patience)?.ok_or_else(|| silent(line, stream))
}

/// Asks something about a stream by a line that is for nothing else.
pub(crate) fn once<T: DeserializeOwned>(
    line: &dyn Line,
    stream: &str,
    ask: &Ask,
    patience: &Patience,
) -> Result<T> {
    line.send(wire::encode(ask)?)?;
    let answer = answered(line, stream, patience);
    part(line);
    answer
}

/// Says farewell by such a line: who has answered needs none to see that it is over, and is done sooner with one.
pub(crate) fn part(line: &dyn Line) {
    let _ = wire::encode(&Ask::Bye).and_then(|bye| line.send(bye));
}

/// The answer to what was asked by such a line.
pub(crate) fn answered<T: DeserializeOwned>(
    line: &dyn Line,
    stream: &str,
    patience: &Patience,
) -> Result<T> {
    wire::decode(wire::heard(&answer_to(line, stream, patience)?)?)
}

/// A conversation with an agent: what is asked is answered in order.
#[derive(Debug)]
pub(crate) struct Talk {
    /// The stream that it is about.
    stream: String,
    asks: Box<dyn Line>,
    errands_by: Box<dyn Line>,
    timeout: Duration,
    stop: Stop,
    turn: Mutex<Turn>,
    kept: Mutex<Kept>,
    /// What does not wait for a step is asked beside that: the same of those answers.
    errands: Mutex<bool>,
    /// How often the agent was told to let a step go.
    gone: AtomicU64,
}

/// Of the conversation that waits for steps.
#[derive(Debug, Default)]
struct Turn {
    /// An answer did not come: what comes next may be that one.
    is_broken: bool,
    asked: Option<Asked>,
}

/// The next step was asked for, and the answer was not heard yet.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// The agent gives it by then.
    by: Instant,
    /// It knows that the reader is done with the steps before this one.
    past: u64,
    /// It passes over steps that the reader is further behind by than it may be.
    passes: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Definitions of the step that was told last.
    known: HashMap<u64, Arc<Definitions>>,
    /// Steps that the agent holds, and how often it was told to.
    steps: HashMap<u64, (u64, Arc<Told>)>,
}

impl Talk {
    /// Begins one about a stream, by a line for what is asked and one for errands.
    pub(crate) fn new(
        stream: &str,
        asks: Box<dyn Line>,
        errands: Box<dyn Line>,
        options: &Read,
    ) -> Talk {
        Talk {
            stream: stream.to_owned(),
            asks,
            errands_by: errands,
            timeout: options.timeout,
            stop: options.stop.clone(),
            turn: Mutex::default(),
            kept: Mutex::default(),
            errands: Mutex::default(),
            gone: AtomicU64::new(0),
        }
    }

    /// Who has this asks, and takes what is answered.
    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn errands(&self) -> MutexGuard<'_, bool> {
        self.errands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, ask: &Ask) -> Result<()> {
        self.asks.check()?;
        self.asks.send(wire::encode(ask)?).map_err(|e| lost(e, &self.stream))
    }

    fn send(&self, errand: &Errand) -> Result<()> {
        self.errands_by.check()?;
        self.errands_by.send(wire::encode(errand)?).map_err(|e| lost(e, &self.stream))
    }

    /// Tells the agent to let a step go.
    fn let_go(&self, step: u64, is_done: bool) {
        // Who is gone holds nothing, and is not waited for: only what was sent counts.
        if self.send(&Errand::LetGo(step, is_done)).is_ok() {
            self.gone.fetch_add(1, Ordering::Release);
        }
    }

    /// The next message of a line.
    fn hear(&self, line: &dyn Line) -> Result<Vec<u8>> {
        let heard = self.hear_until(line, clock::after(self.timeout))?;
        heard.ok_or_else(|| silent(line, &self.stream))
    }

    /// The next message of a line, if it comes until then.
    fn hear_until(&self, line: &dyn Line, until: Instant) -> Result<Option<Vec<u8>>> {
        hear(line, &Patience::until(until, &self.stop)).map_err(|e| lost(e, &self.stream))
    }

    /// Asks something that is answered at once, by a node that is well.
    fn ask<T: DeserializeOwned>(&self, ask: &Ask, patience: &Patience) -> Result<T> {
        let mut turn = self.turn();
        if turn.is_broken {
            return Err(self.broken());
        }
        self.tell(ask)?;
        self.answer(&mut turn, patience)
    }

    fn answer<T: DeserializeOwned>(&self, turn: &mut Turn, patience: &Patience) -> Result<T> {
        wire::decode(wire::heard(&self.heard(turn, patience)?)?)
    }

    fn heard(&self, turn: &mut Turn, patience: &Patience) -> Result<Vec<u8>> {
        answer_to(&*self.asks, &self.stream, patience)
            .inspect_err(|_| turn.is_broken = true)
            .map_err(|e| lost(e, &self.stream))
    }

    /// Asks for the next step, if that was not done.
    fn expect(&self, turn: &mut Turn, from: u64, passes: bool, until: Instant) -> Result<()> {
        if turn.is_broken {
            return Err(self.broken());
        }
        match &mut turn.asked {
            None => {
                let round = until.saturating_duration_since(clock::now()).min(ROUND);
                let milliseconds = u64::try_from(round.as_millis()).unwrap_or(u64::MAX);
                // What was let go until now goes before the next one is given, or both would take memory.
                let gone = self.gone.load(Ordering::Acquire);
                self.tell(&Ask::Next(from, passes, milliseconds, gone))?;
                turn.asked = Some(Asked { by: clock::after(round), past: from, passes });
            }
            // Others of its group may wait for that, and this one for them on another node.
            Some(asked) if asked.past < from => {
                self.send(&Errand::Past(from))?;
                asked.past = from;
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn run<T: DeserializeOwned>(&self, errand: &Errand) -> Result<T> {
        let mut is_broken = self.errands();
        if *is_broken {
            return Err(self.broken());
        }
        self.send(errand)?;
        let answer = self.hear(&*self.errands_by).inspect_err(|_| *is_broken = true)?;
        wire::decode(wire::heard(&answer)?)
    }

    fn broken(&self) -> Error {
        let message = format!(
            "an answer of the node that writers of stream '{}' are on did not come before",
            self.stream
        );
        let error = Error::new(Kind::Peer, message);
        self.asks.by(error.with_hint("open the reader anew, if the node is well"))
    }

    /// The stream of a name, if there is one on that node.
    pub(crate) fn find(
        &self,
        who: &wire::Sought,
        patience: &Patience,
    ) -> Result<Option<wire::Found>> {
        self.ask(&Ask::Find(who.clone()), patience)
    }

    /// Asks for a place among its readers: nothing else is asked before the [answer](Talk::opened).
    pub(crate) fn open(&self, open: wire::Open) -> Result<()> {
        if self.turn().is_broken {
            return Err(self.broken());
        }
        self.tell(&Ask::Open(Box::new(open)))
    }

    /// The place that was asked for, or why the agent gives none; the error of the line else.
    pub(crate) fn opened(self, patience: &Patience) -> Result<Result<There>> {
        let heard = self.heard(&mut self.turn(), patience)?;
        let position = wire::heard(&heard).and_then(wire::decode);
        Ok(position.map(|position| There { talk: self, position }))
    }
}

impl Kept {
    /// What was told of a step.
    pub(crate) fn told(&self, step: u64) -> Option<Arc<Told>> {
        self.steps.get(&step).map(|(_, told)| told.clone())
    }

    /// Understands what was told of a step, and keeps it while it is held. What follows another one is told in fewer words.
    pub(crate) fn take(&mut self, step: u64, told: wire::Told, follows: bool) -> Result<()> {
        let told = Arc::new(self.understand(told, follows)?);
        self.steps.entry(step).or_insert((0, told)).0 += 1;
        Ok(())
    }

    fn understand(&mut self, told: wire::Told, follows: bool) -> Result<Told> {
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
        Ok(Told { at: told.at, bytes: told.bytes, peak: told.peak, said })
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // Who is gone needs no farewell; a process that was forked has none to say.
        let _ = self.tell(&Ask::Bye);
        let _ = self.send(&Errand::Bye);
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

    fn expect(&self, from: u64, passes: bool, until: Instant) -> Result<()> {
        self.talk.expect(&mut self.talk.turn(), from, passes, until)
    }

    fn next(&self, from: u64, passes: bool, until: Instant) -> Result<Coming> {
        loop {
            self.talk.stop.check()?;
            let left = until.saturating_duration_since(clock::now());
            let mut turn = self.talk.turn();
            let was_asked = turn.asked.is_some();
            self.talk.expect(&mut turn, from, passes, until)?;
            // What was asked for before may be answered later than this one waits, and is heard by the next one.
            let by = turn.asked.map(|asked| asked.by);
            let is_later = by.is_some_and(|by| by > until && was_asked);
            // The agent answers when its round is over, and then has as long as for anything else.
            let round = by.map_or(Duration::ZERO, |by| by.saturating_duration_since(clock::now()));
            let latest = clock::after(self.talk.timeout.saturating_add(round));
            let patience = if is_later { until } else { latest };
            let heard = self.talk.hear_until(&*self.talk.asks, patience);
            let answer = match heard.inspect_err(|_| turn.is_broken = true)? {
                Some(answer) => answer,
                None if is_later => return Ok(Coming::Nothing),
                None => {
                    turn.is_broken = true;
                    return Err(silent(&*self.talk.asks, &self.talk.stream));
                }
            };
            let has_passed = turn.asked.take().is_some_and(|asked| asked.passes && !passes);
            match wire::decode(wire::heard(&answer)?)? {
                wire::Next::Step(step, told) if step == from || (step > from && !has_passed) => {
                    self.talk.kept().take(step, told, true)?;
                    return Ok(Coming::Step(step));
                }
                wire::Next::Step(step, told) if was_asked => {
                    // It was asked for from an earlier one on, of which the reader wants none any more, or those that were passed over.
                    // Others may hold it.
                    self.talk.kept().understand(told, true)?;
                    self.talk.let_go(step, false);
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
            self.talk.let_go(step, is_done);
        }
    }

    fn steps(&self) -> Result<Vec<u64>> {
        self.talk.run(&Errand::Steps)
    }

    fn told(&self, step: u64) -> Result<Arc<Told>> {
        let told = self.talk.kept().told(step);
        told.ok_or_else(|| Error::internal(format!("step {step} is not held")))
    }

    fn late(&self, step: u64) -> Vec<String> {
        let late = self.talk.run(&Errand::Late(step));
        late.unwrap_or_else(|e| vec![e.to_string()])
    }

    fn look(&self, _: Which, _: &Place) -> Result<Option<View>> {
        Ok(None)
    }

    fn fetch(&self) -> Option<Box<dyn Fetch + '_>> {
        Some(Box::new(Parts { talk: &self.talk, is_broken: self.talk.errands(), asked: 0 }))
    }

    fn count(&self, _: u64, _: &Got<'_>, _: u64) {}

    fn given(&self, step: u64, dropped: u64, waited: u64) {
        // Who is gone counts nothing.
        let _ = self.talk.send(&Errand::Given(step, dropped, waited));
    }

    fn memory(&self) -> Option<MemoryReport> {
        None
    }

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
    fn part(&self) -> usize {
        self.talk.errands_by.part()
    }

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
        let message = self.talk.hear(&*self.talk.errands_by).inspect_err(|_| *broken = true)?;
        self.asked = self.asked.saturating_sub(1);
        wire::heard(&message)?;
        Ok(Part::new(message, wire::HEAD))
    }

    fn give_back(&mut self, part: Part) {
        self.talk.errands_by.give_back(part.into_message());
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        // After an error others may still come, which are nobody's.
        while self.asked > 0 && !*self.is_broken {
            let _ = self.hear();
        }
        self.talk.errands_by.rest();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A line to an agent that has these answers, and gives what is asked for in rounds when a round is over.
    #[derive(Debug, Default, Clone)]
    struct Agent(Arc<Mutex<Said>>);

    #[derive(Debug, Default)]
    struct Said {
        answers: VecDeque<(Instant, Vec<u8>)>,
        steps: VecDeque<wire::Next>,
        let_go: Vec<u64>,
        /// How many of those the reader has said that there are, each time it asked.
        gone: Vec<u64>,
    }

    impl Agent {
        fn said(&self) -> MutexGuard<'_, Said> {
            self.0.lock().unwrap()
        }
    }

    impl Line for Agent {
        fn send(&self, message: Vec<u8>) -> Result<()> {
            let mut said = self.said();
            match wire::decode::<Ask>(&message) {
                Ok(Ask::Next(_, _, round, gone)) => {
                    said.gone.push(gone);
                    let (at, next) = match said.steps.pop_front() {
                        Some(step) => (clock::now(), step),
                        None => (clock::after(Duration::from_millis(round)), wire::Next::Nothing),
                    };
                    said.answers.push_back((at, wire::answer(Ok(next))));
                }
                _ => return Ok(()),
            }
            Ok(())
        }

        fn recv_within(&self, time: Duration) -> Result<Option<Vec<u8>>> {
            let until = clock::after(time);
            loop {
                let now = clock::now();
                if self.said().answers.front().is_some_and(|(at, _)| *at <= now) {
                    return Ok(self.said().answers.pop_front().map(|(_, bytes)| bytes));
                }
                if now >= until {
                    return Ok(None);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }

        fn ends(&self) -> bool {
            false
        }

        fn check(&self) -> Result<()> {
            Ok(())
        }

        fn by(&self, error: Error) -> Error {
            error
        }
    }

    /// The line for errands to the same agent.
    #[derive(Debug)]
    struct Errands(Agent);

    impl Line for Errands {
        fn send(&self, message: Vec<u8>) -> Result<()> {
            match wire::decode::<Errand>(&message)? {
                Errand::LetGo(step, _) => self.0.said().let_go.push(step),
                Errand::Hold(_) => {
                    let answer = wire::answer(Ok(Some(told())));
                    self.0.said().answers.push_back((clock::now(), answer));
                }
                _ => {}
            }
            Ok(())
        }

        fn recv_within(&self, time: Duration) -> Result<Option<Vec<u8>>> {
            self.0.recv_within(time)
        }

        fn ends(&self) -> bool {
            false
        }

        fn check(&self) -> Result<()> {
            Ok(())
        }

        fn by(&self, error: Error) -> Error {
            error
        }
    }

    fn told() -> wire::Told {
        wire::Told { at: 1, bytes: 0, peak: 0, said: Vec::new() }
    }

    fn there(timeout: Duration) -> (Agent, There) {
        let agent = Agent::default();
        let options = Read { timeout, ..Read::default() };
        let (asks, errands) = (Box::new(agent.clone()), Box::new(Errands(agent.clone())));
        (agent, There { talk: Talk::new("sim", asks, errands, &options), position: 0 })
    }

    #[test]
    fn an_agent_that_waits_for_a_step_as_long_as_it_was_asked_to_is_not_silent() {
        let (agent, there) = there(Duration::from_millis(20));
        let soon = || clock::after(Duration::from_millis(200));
        assert!(matches!(there.next(0, false, soon()).unwrap(), Coming::Nothing));
        agent.said().steps.push_back(wire::Next::Step(0, told()));
        assert!(matches!(there.next(0, false, soon()).unwrap(), Coming::Step(0)));
    }

    #[test]
    fn an_agent_is_told_how_many_steps_were_let_go_before_the_next_one() {
        let (agent, there) = there(Duration::from_secs(60));
        let later = || clock::after(Duration::from_secs(60));
        let steps = (0..3).map(|step| wire::Next::Step(step, told()));
        agent.said().steps.extend(steps);
        for step in 0..3 {
            assert!(matches!(there.next(step, false, later()).unwrap(), Coming::Step(_)));
            // The second one stays with the reader: nothing is on its way then.
            if step != 1 {
                there.let_go(step, true);
            }
        }
        assert_eq!(agent.said().gone, [0, 1, 1]);
        assert_eq!(agent.said().let_go, [0, 2]);
        // One that is not held is not told of.
        there.let_go(7, false);
        assert_eq!(there.talk.gone.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_step_that_comes_too_late_stays_with_who_holds_it() {
        let (agent, there) = there(Duration::from_secs(60));
        let later = clock::after(Duration::from_secs(60));
        agent.said().steps.extend([wire::Next::Step(6, told()), wire::Next::Step(8, told())]);
        there.expect(5, false, later).unwrap();
        // Another thread has step 6 meanwhile; its errand is answered after what lies there.
        let late = agent.said().answers.pop_front().unwrap();
        assert!(there.hold(6).unwrap());
        agent.said().answers.push_back(late);
        assert!(matches!(there.next(8, false, later).unwrap(), Coming::Step(8)));
        assert_eq!(agent.said().let_go, [6]);
        assert!(there.told(6).is_ok());
        there.let_go(6, true);
        assert_eq!(agent.said().let_go, [6, 6]);
    }
}
