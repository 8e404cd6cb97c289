//! How much at a time a transfer does that gives way: as much as devices take while nobody else wants them, little where somebody does.
//!
//! Of others there are two signs. A device counts what it moves: what this process has not moved, others have. And a read or a write
//! takes longer than the shortest ones did with as many under way; of that, waiting for a processor is left out, which is a matter of
//! `budget.rs`. At a sign, half as much is done at a time, down to a small part of one thread; without one, a little more each time: additive
//! increase and multiplicative decrease (Chiu and Jain 1989), on delays as in LEDBAT (RFC 6817).

use crate::clock::{self, Watch};
use crate::drive::OBJECTS_AT_ONCE;
use crate::{budget, gentle};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use stead_core::{Cancel, Result};
use stead_store::device::{Device, Moved};

/// The least that is done at a time: a thread rests seven eighths of its time.
const LEAST: f64 = 0.125;
/// It is looked for signs after so long, and so many reads and writes.
const EVERY_S: f64 = 0.1;
const OPS: u32 = 4;
/// With fewer in so long, too.
const LONGEST_S: f64 = 1.0;
/// Bytes a second of others that are nobody's: journals, logs.
const NOISE: f64 = 4e6;
/// What others move of what is moved in all, from which on they count.
const SHARE: f64 = 0.05;
/// A wait that is so many times the shortest one is a sign.
const LONGER: f64 = 2.5;
/// The shortest one is forgotten slowly, as devices become slower, too.
const FORGETS: f64 = 1.001;
/// Times are of so many bytes; those of fewer than an eighth of it tell nothing.
const UNIT: f64 = 2097152.0;
/// What was written and is not on the device yet, at most.
const LATE: u64 = 1 << 30;
/// What was read and is not counted yet.
const SOON: u64 = 64 << 20;
/// Who waits looks so often whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// What transfers of this process that give way have moved from and to a device.
#[derive(Debug)]
struct Own {
    device: Device,
    read: AtomicU64,
    written: AtomicU64,
}

/// Devices that transfers of this process give way on: each other they need not mind.
static OWN: Mutex<Vec<Weak<Own>>> = Mutex::new(Vec::new());

fn own(device: Device) -> Arc<Own> {
    let mut all = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|one| one.strong_count() > 0);
    if let Some(one) = all.iter().filter_map(Weak::upgrade).find(|one| one.device == device) {
        return one;
    }
    let one = Arc::new(Own { device, read: AtomicU64::new(0), written: AtomicU64::new(0) });
    all.push(Arc::downgrade(&one));
    one
}

/// A device that is looked at.
#[derive(Debug)]
struct Seen {
    own: Arc<Own>,
    device: Moved,
    ours: Moved,
    /// Of ours, not seen at the device yet.
    due: Moved,
}

impl Seen {
    fn new(own: Arc<Own>) -> Seen {
        let mut seen =
            Seen { device: Moved::default(), ours: Moved::default(), due: Moved::default(), own };
        seen.others();
        seen.due = Moved::default();
        seen
    }

    /// Bytes that others have moved since the last look.
    fn others(&mut self) -> u64 {
        let ours = Moved {
            read: self.own.read.load(Ordering::Relaxed),
            written: self.own.written.load(Ordering::Relaxed),
        };
        let Some(device) = self.own.device.moved() else { return 0 };
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let left = |device: u64, ours: u64, due: &mut u64, most: u64| {
            let all = *due + ours;
            *due = all.saturating_sub(device).min(most);
            device.saturating_sub(all)
        };
        let read = since(device.read, self.device.read);
        let written = since(device.written, self.device.written);
        let (due, own) = (&mut self.due, &self.ours);
        let others = left(read, since(ours.read, own.read), &mut due.read, SOON)
            + left(written, since(ours.written, own.written), &mut due.written, LATE);
        (self.device, self.ours) = (device, ours);
        others
    }
}

/// What was seen in a while.
#[derive(Debug, Clone, Copy)]
struct While {
    seconds: f64,
    /// Bytes that this transfer has moved.
    ours: f64,
    others: f64,
    /// Seconds that a read and a write took, on average; none if there were only small ones.
    each: Option<f64>,
}

/// How much may be done at a time.
#[derive(Debug)]
struct Rule {
    allowed: f64,
    most: f64,
    /// The shortest times, by how many there were at a time.
    shortest: BTreeMap<u32, f64>,
}

impl Rule {
    fn new(most: usize) -> Rule {
        // Slowly at first: what the shortest times are is not known yet.
        Rule { allowed: 1.0, most: most.max(1) as f64, shortest: BTreeMap::new() }
    }

    /// So many threads at a time.
    fn level(&self) -> u32 {
        self.allowed.max(1.0) as u32
    }

    fn learn(&mut self, seen: While) {
        let level = self.level();
        let crowd = seen.others > (NOISE * seen.seconds).max(SHARE * (seen.ours + seen.others));
        let slow = seen.each.is_some_and(|each| self.is_long(level, each));
        let next = match crowd || slow {
            true => self.allowed / 2.0,
            false => self.allowed + (self.allowed / 4.0).clamp(0.125, 0.5),
        };
        self.allowed = next.clamp(LEAST, self.most);
    }

    fn is_long(&mut self, level: u32, each: f64) -> bool {
        // A device that is busy takes so many times longer for so many at a time.
        let below = self.shortest.range(..=level).next_back();
        let expected = below.map(|(of, each)| each * f64::from(level) / f64::from(*of));
        let shortest = self.shortest.entry(level).or_insert(each);
        *shortest = (*shortest * FORGETS).min(each);
        expected.is_some_and(|expected| each > LONGER * expected)
    }
}

#[derive(Debug)]
struct Now {
    rule: Rule,
    seen: Vec<Seen>,
    under_way: usize,
    /// When the window began, and what was done in it.
    since: f64,
    ops: u32,
    ours: u64,
    waited: f64,
    measured: u32,
    /// Nobody begins before.
    rests_until: f64,
}

/// The pace of a transfer, for all of its threads.
#[derive(Debug)]
pub(crate) struct Pace {
    watch: Watch,
    now: Mutex<Now>,
    free: Condvar,
    from: Option<Arc<Own>>,
    to: Option<Arc<Own>>,
}

impl Pace {
    /// For all that is read from a device for transfers of other nodes which give way: they do so together.
    pub(crate) fn of_source(device: Option<Device>) -> Arc<Pace> {
        type Known = Vec<(Option<Device>, Weak<Pace>)>;
        static ALL: Mutex<Known> = Mutex::new(Vec::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, pace)| pace.strong_count() > 0);
        let known = all.iter().find(|(of, _)| *of == device);
        if let Some(pace) = known.and_then(|(_, pace)| pace.upgrade()) {
            return pace;
        }
        let pace = Arc::new(Pace::new(device.clone(), None, OBJECTS_AT_ONCE));
        all.push((device, Arc::downgrade(&pace)));
        pace
    }

    /// Between these devices, where they are known, with so many threads.
    pub(crate) fn new(from: Option<Device>, to: Option<Device>, threads: usize) -> Pace {
        let (from, to) = (from.map(own), to.map(own));
        let mut all: Vec<Arc<Own>> = from.iter().chain(&to).cloned().collect();
        all.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let now = Now {
            rule: Rule::new(threads),
            seen: all.into_iter().map(Seen::new).collect(),
            under_way: 0,
            since: 0.0,
            ops: 0,
            ours: 0,
            waited: 0.0,
            measured: 0,
            rests_until: 0.0,
        };
        Pace { watch: Watch::start(), now: Mutex::new(now), free: Condvar::new(), from, to }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something may be read and written.
    ///
    /// # Errors
    /// `Cancelled`.
    pub(crate) fn begin(&self, cancel: &Cancel) -> Result<Turn<'_>> {
        let mut now = self.now();
        loop {
            cancel.check()?;
            let shared = budget::with(|budget| budget.rests(clock::uptime()));
            let rests = (now.rests_until - self.watch.seconds()).max(shared);
            if rests <= 0.0 && now.under_way < now.rule.level() as usize {
                now.under_way += 1;
                break;
            }
            let most = if rests > 0.0 { Duration::from_secs_f64(rests).min(LOOK) } else { LOOK };
            now = self.free.wait_timeout(now, most).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(now);
        if !gentle::run(budget::with(|budget| budget.place())) {
            budget::with(budget::Budget::is_elsewhere);
        }
        Ok(Turn { pace: self, begun: self.watch.seconds(), queued: gentle::queued(), bytes: None })
    }

    fn end(&self, turn: &Turn<'_>) {
        let at = self.watch.seconds();
        let took = at - turn.begun;
        let used = gentle::used();
        budget::with(|budget| budget.used(clock::uptime(), used));
        let mut now = self.now();
        now.under_way -= 1;
        let allowed = now.rule.allowed;
        if allowed < 1.0 {
            now.rests_until = at + took * (1.0 / allowed - 1.0);
        }
        if let Some(bytes) = turn.bytes {
            now.ops += 1;
            now.ours += bytes;
            if bytes as f64 >= UNIT / 8.0 {
                now.waited +=
                    (took - (gentle::queued() - turn.queued)).max(0.0) * UNIT / bytes as f64;
                now.measured += 1;
            }
        }
        let seconds = at - now.since;
        if seconds > LONGEST_S || (seconds > EVERY_S && now.ops >= OPS) {
            let others: u64 = now.seen.iter_mut().map(Seen::others).sum();
            let each = (now.measured > 0).then(|| now.waited / f64::from(now.measured));
            let seen = While { seconds, ours: now.ours as f64, others: others as f64, each };
            now.rule.learn(seen);
            (now.since, now.ops, now.ours, now.waited, now.measured) = (at, 0, 0, 0.0, 0);
        }
        drop(now);
        self.free.notify_all();
    }
}

/// Something that is read and written.
#[derive(Debug)]
pub(crate) struct Turn<'p> {
    pace: &'p Pace,
    begun: f64,
    queued: f64,
    bytes: Option<u64>,
}

impl Turn<'_> {
    /// So many bytes were: `read` from the device, and not from memory.
    pub(crate) fn moved(mut self, bytes: u64, read: bool) {
        if let Some(from) = self.pace.from.as_ref().filter(|_| read) {
            from.read.fetch_add(bytes, Ordering::Relaxed);
        }
        if let Some(to) = &self.pace.to {
            to.written.fetch_add(bytes, Ordering::Relaxed);
        }
        self.bytes = Some(bytes);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.pace.end(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn alone(each: f64) -> While {
        While { seconds: 0.1, ours: 1e8, others: 0.0, each: Some(each) }
    }

    #[test]
    fn it_gives_way_to_others_and_comes_back() {
        let mut rule = Rule::new(8);
        // So many at a time take so many times longer: the device is busy with this transfer alone.
        for _ in 0..100 {
            rule.learn(alone(1e-3 * f64::from(rule.level())));
        }
        assert_eq!(rule.level(), 8);
        // Others move more than noise.
        for _ in 0..10 {
            rule.learn(While { others: 3e7, ..alone(8e-3) });
        }
        assert_eq!(rule.allowed, LEAST);
        // What others move is little.
        for _ in 0..100 {
            rule.learn(While { others: 3e5, ..alone(1e-3 * f64::from(rule.level())) });
        }
        assert_eq!(rule.level(), 8);
        // Nobody is seen, and all takes three times as long: a server that others use.
        for _ in 0..10 {
            rule.learn(alone(3e-3 * f64::from(rule.level())));
        }
        assert_eq!(rule.allowed, LEAST);
    }

    proptest! {
        #[test]
        fn it_is_never_none_and_never_more_than_there_are(
            most in 0usize..40,
            all in proptest::collection::vec((0.0f64..10.0, 0.0f64..1e10, proptest::option::of(0.0f64..10.0)), 0..200),
        ) {
            let mut rule = Rule::new(most);
            for (seconds, others, each) in all {
                rule.learn(While { seconds, ours: 1e7, others, each });
                prop_assert!((LEAST..=most.max(1) as f64).contains(&rule.allowed));
            }
        }
    }

    #[test]
    fn turns_are_bounded_and_end() {
        let pace = Pace::new(None, None, 4);
        let cancel = Cancel::new();
        let (at_once, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let turn = pace.begin(&cancel).unwrap();
                        most.fetch_max(
                            at_once.fetch_add(1, Ordering::SeqCst) + 1,
                            Ordering::SeqCst,
                        );
                        at_once.fetch_sub(1, Ordering::SeqCst);
                        turn.moved(1 << 20, true);
                    }
                });
            }
        });
        assert!((1..=4).contains(&most.into_inner()));
        let held = pace.begin(&cancel).unwrap();
        cancel.cancel();
        assert!(pace.begin(&cancel).is_err());
        drop(held);
        assert_eq!(pace.now().under_way, 0);
    }

    #[test]
    fn what_others_write_is_seen_and_what_this_process_writes_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = std::fs::File::create(&path).unwrap();
        let Some(device) = Device::of(&file) else { return };
        let mine = own(device);
        let mut seen = Seen::new(mine.clone());
        let write = |mut file: &std::fs::File| {
            std::io::Write::write_all(&mut file, &[7; 32 << 20]).unwrap();
            file.sync_all().unwrap();
        };
        write(&file);
        let others = seen.others();
        assert!(others >= 32 << 20, "{others}");
        // Other tests write to the device, too: of these bytes at least none is counted as theirs.
        mine.written.fetch_add(1 << 40, Ordering::Relaxed);
        write(&file);
        assert!(seen.others() < 32 << 20 && seen.due.written == LATE);
    }
}
