//! No more bytes a second than somebody wants, or than all transfers may have that touch a dataspace.

use crate::clock::Watch;
use crate::touch::{Bounds, Key, Touched};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::{Cancel, Result};

/// Bytes may go early by so much: threads take turns.
const AHEAD_S: f64 = 0.05;
/// Who waits looks so often whether it is to stop, and whether it may go by now.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes that may go, one after the other, at a rate that may change at any time.
#[derive(Debug)]
pub(crate) struct Flow {
    watch: Watch,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    per_second: f64,
    /// Bytes that were asked for so far.
    asked: f64,
    /// Of these, bytes that may go: at most a little more than were asked for.
    allowed: f64,
    at: f64,
}

impl Flow {
    fn new(per_second: f64) -> Flow {
        let state = State { per_second, asked: 0.0, allowed: 0.0, at: 0.0 };
        Flow { watch: Watch::start(), state: Mutex::new(state) }
    }

    /// As of now.
    fn now(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.watch.seconds();
        let more = state.per_second * (now - state.at).max(0.0);
        // What nobody has used is not saved up.
        let most = state.asked + state.per_second * AHEAD_S;
        state.allowed = if more.is_nan() { most } else { (state.allowed + more).min(most) };
        state.at = now;
        state
    }

    fn set(&self, per_second: f64) {
        self.now().per_second = per_second;
    }

    /// Asks for bytes. They may go once as many may as were asked for before.
    fn ask(&self, bytes: f64) -> f64 {
        let mut state = self.now();
        let before = state.asked;
        state.asked += bytes;
        before
    }

    /// They will not go: those who have asked since need not wait for them.
    fn give_back(&self, bytes: f64) {
        let mut state = self.now();
        let most = state.asked + state.per_second * AHEAD_S;
        state.allowed = (state.allowed + bytes).min(most);
    }

    /// Seconds until so many may go; 0 if they may.
    fn waits(&self, before: f64) -> f64 {
        let state = self.now();
        match state.allowed >= before {
            true => 0.0,
            false => ((before - state.allowed) / state.per_second).max(1e-6),
        }
    }
}

/// Shared by the threads of a transfer.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    flows: Vec<Arc<Flow>>,
}

impl Limiter {
    /// What somebody wants for this transfer, and what all of this process share that touch these.
    pub(crate) fn new(wanted: Option<u64>, shared: Vec<Arc<Flow>>) -> Limiter {
        let own = wanted.map(|n| Arc::new(Flow::new(n.max(1) as f64)));
        Limiter { flows: own.into_iter().chain(shared).collect() }
    }

    /// No more than this, either.
    pub(crate) fn keep_to(&mut self, limit: u64) {
        self.flows.push(Arc::new(Flow::new(limit.max(1) as f64)));
    }

    /// True if there is a limit.
    pub(crate) fn is_bound(&self) -> bool {
        !self.flows.is_empty()
    }

    /// Seconds that so many bytes take at least.
    pub(crate) fn least(&self, bytes: f64) -> f64 {
        let of = |flow: &Arc<Flow>| bytes / flow.now().per_second - AHEAD_S;
        self.flows.iter().map(of).fold(0.0, f64::max)
    }

    /// Waits until so many bytes may go.
    ///
    /// # Errors
    /// `Cancelled`.
    pub(crate) fn take(&self, bytes: usize, cancel: &Cancel) -> Result<()> {
        let bytes = bytes as f64;
        let asked: Vec<(&Flow, f64)> =
            self.flows.iter().map(|flow| (&**flow, flow.ask(bytes))).collect();
        loop {
            if let Err(e) = cancel.check() {
                asked.iter().for_each(|(flow, _)| flow.give_back(bytes));
                return Err(e);
            }
            let wait = asked.iter().map(|(flow, before)| flow.waits(*before)).fold(0.0, f64::max);
            if wait <= 0.0 {
                return Ok(());
            }
            std::thread::sleep(Duration::try_from_secs_f64(wait).unwrap_or(LOOK).min(LOOK));
        }
    }
}

/// What the transfers of this process may move in dataspaces with a limit, all together.
static FLOWS: Mutex<BTreeMap<Key, Arc<Flow>>> = Mutex::new(BTreeMap::new());

/// That of a dataspace, which has this limit. One that others on the node share waits until it is told how much of it this process has.
pub(crate) fn flow(key: &Key, limit: u64, is_common: bool) -> Arc<Flow> {
    let mut flows = FLOWS.lock().unwrap_or_else(PoisonError::into_inner);
    let first = if is_common { 0.0 } else { limit as f64 };
    let flow = flows.entry(key.clone()).or_insert_with(|| Arc::new(Flow::new(first)));
    if !is_common {
        flow.set(limit as f64);
    }
    flow.clone()
}

/// Those of what a transfer touches. Of what others on the node share there is a part for transfers that are under way alone: `any` is false for
/// who only looks, and would wait for one for ever.
pub(crate) fn flows(bounds: &Bounds, touched: &Touched, any: bool) -> Vec<Arc<Flow>> {
    let shared = bounds.shared(touched).filter(|(_, bound)| any || !bound.is_common);
    let limited = shared.filter_map(|(key, bound)| Some((key, bound, bound.limit?)));
    limited.map(|(key, bound, limit)| flow(key, limit, bound.is_common)).collect()
}

/// From now on this process has these parts of what is shared; none of a name is all that is agreed.
pub(crate) fn share(bounds: &Bounds, parts: &BTreeMap<String, Option<f64>>) {
    let mut flows = FLOWS.lock().unwrap_or_else(PoisonError::into_inner);
    for (key, bound) in bounds.common() {
        let Some(limit) = bound.limit else { continue };
        let rate = match parts.get(&key.0) {
            Some(part) => part.unwrap_or(limit as f64),
            // Nothing here touches it, as far as whoever shares it out knows.
            None => 0.0,
        };
        flows.entry(key.clone()).or_insert_with(|| Arc::new(Flow::new(rate))).set(rate);
    }
}

/// Where something was agreed `before` and is not any more, nobody waits for a part of it.
pub(crate) fn renew(before: &Bounds, bounds: &Bounds) {
    let mut flows = FLOWS.lock().unwrap_or_else(PoisonError::into_inner);
    for key in before.limited().filter(|key| bounds.limit(key).is_none()) {
        // Also for one that goes by what was agreed before, and is about to look for it here.
        let none = || Arc::new(Flow::new(f64::INFINITY));
        flows.entry(key.clone()).or_insert_with(none).set(f64::INFINITY);
    }
    for (key, _) in bounds.common().filter(|(key, _)| before.limit(key).is_none()) {
        // It waits until it is told how much of it this process has.
        if let (Some(_), Some(flow)) = (bounds.limit(key), flows.get(key)) {
            flow.set(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_no_faster_than_they_may() {
        let limiter = Limiter::new(Some(10_000_000), Vec::new());
        let watch = Watch::start();
        let cancel = Cancel::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10).for_each(|_| limiter.take(100_000, &cancel).unwrap()));
            }
        });
        // 4 MB at 10 MB/s; the last one goes when those before it have.
        assert!(watch.seconds() > 0.3, "{}", watch.seconds());
        cancel.cancel();
        let none = Limiter::default();
        assert!(limiter.take(1 << 40, &cancel).is_err() && none.take(1, &cancel).is_err());
        assert!(limiter.is_bound() && !none.is_bound());
        // What was asked for in vain holds up nobody.
        limiter.take(1, &Cancel::new()).unwrap();
    }

    #[test]
    fn who_waits_behind_those_who_give_up_goes_when_they_do() {
        let flow = Flow::new(1000.0);
        let asked: Vec<f64> = (0..10).map(|_| flow.ask(1e9)).collect();
        assert!(flow.waits(asked[9]) > 1e6);
        (0..9).for_each(|_| flow.give_back(1e9));
        assert_eq!(flow.waits(asked[9]), 0.0);
        // Nothing is saved up by it.
        let next = flow.ask(1.0);
        assert!(flow.waits(next) > 1e5);
    }

    #[test]
    fn nobody_waits_for_a_part_of_what_is_agreed_no_more() {
        use crate::manager::Means;
        use stead_core::layout::Spaces;
        let of = |text: &str| {
            let spaces = Spaces::parse(text, &|_| None).unwrap();
            let common = Some(spaces.clone());
            Bounds::of(&Means { spaces, common, ..Means::default() })
        };
        let bound = "[dataspace.limiter-renew]\npath = \"/r\"\nlimit = \"10MB/s\"\n";
        let (with, without) = (of(bound), of(&bound.replace("limit =", "# limit =")));
        let key = ("limiter-renew".to_owned(), "/r".to_owned());
        renew(&with, &without);
        // One that was begun by what was agreed before.
        let limiter = Limiter::new(None, vec![flow(&key, 10, true)]);
        let cancel = Cancel::new();
        limiter.take(1 << 40, &cancel).unwrap();
        limiter.take(1 << 40, &cancel).unwrap();
        renew(&without, &with);
        assert_eq!(limiter.flows[0].waits(f64::MAX), f64::INFINITY);
        share(&with, &BTreeMap::from([(key.0.clone(), None)]));
        assert_eq!(limiter.flows[0].now().per_second, 1e7);
        share(&with, &BTreeMap::from([(key.0, Some(5.0))]));
        assert_eq!(limiter.flows[0].now().per_second, 5.0);
        share(&with, &BTreeMap::new());
        assert_eq!(limiter.flows[0].now().per_second, 0.0);
    }

    #[test]
    fn transfers_share_what_all_of_them_may() {
        let key = ("limiter-test".to_owned(), "/x".to_owned());
        let shared = flow(&key, 10_000_000, false);
        let two = [0, 1].map(|_| Limiter::new(None, vec![shared.clone()]));
        let (watch, cancel) = (Watch::start(), Cancel::new());
        std::thread::scope(|scope| {
            for limiter in &two {
                let cancel = &cancel;
                scope.spawn(move || (0..20).for_each(|_| limiter.take(100_000, cancel).unwrap()));
            }
        });
        assert!(watch.seconds() > 0.3, "{}", watch.seconds());
        // Nobody goes while there is no part of it, and who waits goes on with the next one.
        shared.set(0.0);
        let limiter = Limiter::new(None, vec![flow(&key, 10, true)]);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                limiter.take(1000, &cancel).unwrap();
                limiter.take(1000, &cancel).unwrap();
                done.store(true, std::sync::atomic::Ordering::SeqCst);
            });
            std::thread::sleep(LOOK * 3);
            assert!(!done.load(std::sync::atomic::Ordering::SeqCst));
            shared.set(f64::INFINITY);
        });
        assert!(done.into_inner());
    }
}
