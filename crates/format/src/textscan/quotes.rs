//! What shares of a scan do to quotes, for ranks that tell each other.
//!
//! Where quotes have a meaning, a rank whose share begins within a file must know in which state it begins. Each looks at its
//! own share once ([`look`]), all tell each other what theirs do, and each puts together what those before it do.

use super::{Layout, TextScan};
use crate::api::{Held, Progress, Scan, ScanOptions, Share};
use crate::delimited::syntax::{State, Transition};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stead_core::{Error, Result};
use stead_store::Source;

/// What a share does to the state of quotes, whichever it begins in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quotes(Does);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Does {
    /// A contiguous share.
    Even(Transition),
    /// Each of the stretches that a rank holds of files that are not compressed, in their order.
    Held(Vec<(Held, Transition)>),
}

/// The states of quotes in which a share begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before(Vec<State>);

impl Before {
    /// Those of so many stretches each of which is the beginning of a file.
    pub fn beginnings(count: usize) -> Before {
        Before(vec![State::Record; count])
    }

    /// That of an even share.
    pub(super) fn first(&self) -> State {
        self.0.first().copied().unwrap_or_default()
    }

    /// Those of the stretches that a rank holds.
    pub(super) fn each(&self) -> &[State] {
        &self.0
    }
}

/// The states of quotes at the starts of stretches that ranks have told.
#[derive(Debug, Clone, Default)]
pub struct States(BTreeMap<(u32, u64), State>);

impl States {
    /// Those in which these stretches begin. Of files of which nobody has told anything, as of compressed ones, none is needed.
    ///
    /// # Errors
    /// `Internal` for a start that was not told.
    pub fn at(&self, of: &[Held]) -> Result<Before> {
        let mut before = Vec::with_capacity(of.len());
        for h in of {
            let told = self.0.range((h.source, 0)..=(h.source, u64::MAX)).next().is_some();
            match self.0.get(&(h.source, h.bytes.start)) {
                Some(state) => before.push(*state),
                None if !told => {}
                None => {
                    let at = h.bytes.start;
                    let message = format!("the state of quotes at byte {at} is not known");
                    return Err(Error::internal(message).at_source(h.source));
                }
            }
        }
        Ok(Before(before))
    }
}

/// A stretch on its way to other ranks: the source, bytes since the end of the stretch before it in this source, its length,
/// and what it does as one number.
type Told = (u32, u64, u64, u16);

/// Number of states.
const STATES: u16 = 6;

fn number(t: &Transition) -> u16 {
    t.states().iter().fold(0, |n, s| n * STATES + *s as u16)
}

fn transition(number: u16) -> Option<Transition> {
    let (mut states, mut rest) = ([State::Record; STATES as usize], number);
    for state in states.iter_mut().rev() {
        // Less than six.
        *state = State::of((rest % STATES) as u8)?;
        rest /= STATES;
    }
    (rest == 0).then(|| Transition::from_states(states))
}

fn malformed() -> Error {
    Error::format("what another rank says of its quotes is malformed")
}

impl Quotes {
    /// For other ranks: a few bytes for each stretch.
    pub fn bytes(&self) -> Vec<u8> {
        let (even, held) = match &self.0 {
            Does::Even(t) => (Some(number(t)), Vec::new()),
            Does::Held(all) => {
                let (mut source, mut end) = (0, 0);
                let mut tell = |(h, t): &(Held, Transition)| -> Told {
                    let from = if h.source == source { end } else { 0 };
                    (source, end) = (h.source, h.bytes.end);
                    (h.source, h.bytes.start - from, h.bytes.end - h.bytes.start, number(t))
                };
                (None, all.iter().map(&mut tell).collect::<Vec<Told>>())
            }
        };
        // Nothing in it can fail to be encoded.
        postcard::to_stdvec(&(even, held)).unwrap_or_default()
    }

    /// Of another rank.
    ///
    /// # Errors
    /// `Format` for what [`Quotes::bytes`] cannot have given.
    pub fn from_bytes(bytes: &[u8]) -> Result<Quotes> {
        let (even, held): (Option<u16>, Vec<Told>) =
            postcard::from_bytes(bytes).map_err(|_| malformed())?;
        if let Some(n) = even {
            let does = transition(n).filter(|_| held.is_empty()).ok_or_else(malformed)?;
            return Ok(Quotes(Does::Even(does)));
        }
        let (mut source, mut end) = (0u32, 0u64);
        let mut hear = |(of, gap, len, n): Told| {
            let from = if of == source { end } else { 0 };
            let start = from.checked_add(gap)?;
            let stop = start.checked_add(len).filter(|_| of >= source && len > 0)?;
            (source, end) = (of, stop);
            Some((Held { source: of, bytes: start..stop }, transition(n)?))
        };
        let held: Option<Vec<_>> = held.into_iter().map(&mut hear).collect();
        held.map(|held| Quotes(Does::Held(held))).ok_or_else(malformed)
    }

    /// The states in which the share of `rank` begins, of those of all ranks: even shares come one after the other, the first
    /// at the start of the data, and what ranks hold is each byte once.
    ///
    /// # Errors
    /// `Format` for shares that are not so.
    pub fn before(shares: &[Quotes], rank: usize) -> Result<Before> {
        let mine = shares.get(rank).ok_or_else(malformed)?;
        if let Does::Even(_) = mine.0 {
            let mut state = State::Record;
            for share in &shares[..rank] {
                let Does::Even(t) = &share.0 else { return Err(malformed()) };
                state = t.apply(state);
            }
            return Ok(Before(vec![state]));
        }
        let mut before = Vec::new();
        Self::each(shares, |_, state, r| {
            if r == rank {
                before.push(state);
            }
        })?;
        Ok(Before(before))
    }

    /// The states in which all stretches begin that ranks hold and have looked at.
    ///
    /// # Errors
    /// As [`Quotes::before`].
    pub fn states(shares: &[Quotes]) -> Result<States> {
        let mut states = BTreeMap::new();
        Self::each(shares, |h, state, _| {
            states.insert((h.source, h.bytes.start), state);
        })?;
        Ok(States(states))
    }

    /// All stretches in the order of the data, with the states in which they begin and their ranks.
    fn each(shares: &[Quotes], mut hear: impl FnMut(&Held, State, usize)) -> Result<()> {
        let mut all: Vec<(&Held, &Transition, usize)> = Vec::new();
        for (r, share) in shares.iter().enumerate() {
            let Does::Held(held) = &share.0 else { return Err(malformed()) };
            all.extend(held.iter().map(|(h, t)| (h, t, r)));
        }
        all.sort_by_key(|(h, ..)| (h.source, h.bytes.start));
        let (mut source, mut end, mut state) = (None, 0, State::Record);
        for (h, t, r) in all {
            if source != Some(h.source) {
                (source, end, state) = (Some(h.source), 0, State::Record);
            }
            if h.bytes.start != end {
                return Err(malformed());
            }
            hear(h, state, r);
            state = t.apply(state);
            end = h.bytes.end;
        }
        Ok(())
    }
}

/// What the share does to quotes, and how many bytes were read for it. Looks at all of its bytes that can matter, with so
/// many threads.
pub fn look(
    layout: Layout,
    sources: &[Arc<dyn Source>],
    options: &ScanOptions,
    threads: usize,
) -> Result<(Quotes, u64)> {
    let scan = &TextScan::looking(layout, sources, options)?;
    let work = || {
        let mut worker = scan.worker()?;
        while worker.next()?.is_some() {}
        Ok(())
    };
    let done: Vec<Result<()>> = std::thread::scope(|scope| {
        let start =
            |_| std::thread::Builder::new().name("stead-quotes".into()).spawn_scoped(scope, work);
        let more: Vec<_> = (1..threads).map_while(|i| start(i).ok()).collect();
        let mine = work();
        let join = |t: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            t.join().unwrap_or_else(|_| Err(Error::internal("a worker died")))
        };
        std::iter::once(mine).chain(more.into_iter().map(join)).collect()
    });
    let mut errors: Vec<Error> = done.into_iter().filter_map(Result::err).collect();
    errors.sort_by_key(|e| (e.kind() == stead_core::Kind::Cancelled, e.order()));
    if let Some(first) = errors.into_iter().next() {
        return Err(first);
    }
    let progress: &Progress = scan.progress();
    let does = match &options.share {
        Share::Even { .. } => Does::Even(scan.chain.total()),
        Share::Held(_) => {
            let each = scan.chain.each();
            let held = scan.plan.stretches();
            if held.len() != each.len() {
                return Err(Error::internal("not all that is held was looked at"));
            }
            Does::Held(held.into_iter().zip(each).collect())
        }
    };
    Ok((Quotes(does), progress.bytes.load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(source: u32, bytes: std::ops::Range<u64>, to: State) -> (Held, Transition) {
        (Held { source, bytes }, Transition::to(to))
    }

    #[test]
    fn what_is_told_is_heard_and_nothing_else() {
        let all = [
            Quotes(Does::Even(Transition::to(State::Closed))),
            Quotes(Does::Even(Transition::default())),
            Quotes(Does::Held(Vec::new())),
            Quotes(Does::Held(vec![
                held(0, 3..9, State::Quoted),
                held(0, 9..10, State::Record),
                held(2, 1..u64::MAX, State::Plain),
            ])),
        ];
        for q in all {
            assert_eq!(Quotes::from_bytes(&q.bytes()).unwrap(), q);
        }
        let told = |all: (Option<u16>, Vec<Told>)| postcard::to_stdvec(&all).unwrap();
        for bad in [
            vec![],
            told((Some(6u16.pow(6)), vec![])),
            told((Some(0), vec![(0, 0, 1, 0)])),
            told((None, vec![(0, 0, 0, 0)])),
            told((None, vec![(0, 1, u64::MAX, 0)])),
            told((None, vec![(1, 0, 1, 0), (0, 0, 1, 0)])),
        ] {
            assert_eq!(Quotes::from_bytes(&bad).unwrap_err().kind(), stead_core::Kind::Format);
        }
    }

    #[test]
    fn states_pass_over_what_ranks_hold() {
        let ranks = [
            Quotes(Does::Held(vec![held(0, 0..3, State::Quoted), held(0, 5..6, State::Plain)])),
            Quotes(Does::Held(vec![held(0, 3..5, State::Closed), held(1, 0..2, State::Quoted)])),
            Quotes(Does::Held(vec![])),
        ];
        let before = |r| Quotes::before(&ranks, r).unwrap().0;
        assert_eq!(before(0), [State::Record, State::Closed]);
        assert_eq!(before(1), [State::Quoted, State::Record]);
        assert_eq!(before(2), []);
        // Wherever a stretch begins that was told, whoever asks.
        let states = Quotes::states(&ranks).unwrap();
        let of = |source, start| Held { source, bytes: start..start + 1 };
        let at = |of: &[Held]| states.at(of).map(|b| b.0);
        assert_eq!(at(&[of(0, 3), of(1, 0)]).unwrap(), [State::Quoted, State::Record]);
        assert_eq!(at(&[of(0, 5), of(7, 3)]).unwrap(), [State::Closed]);
        assert!(at(&[of(0, 4)]).is_err());
        // A byte that nobody has, one that two have, shares of two sorts, and no such rank.
        let odd = |q: Does| Quotes::before(&[ranks[0].clone(), Quotes(q)], 0);
        assert!(odd(Does::Held(vec![])).is_err());
        assert!(odd(Does::Held(vec![held(0, 2..5, State::Plain)])).is_err());
        assert!(odd(Does::Even(Transition::default())).is_err());
        assert!(Quotes::before(&ranks, 3).is_err());
    }
}
