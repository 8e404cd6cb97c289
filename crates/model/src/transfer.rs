//! How long a transfer takes: from what transfers between the same tiers took.
//!
//! A transfer of `f` files with `b` bytes is taken to need `f` times a time for each file and `b` times one for each byte. Both
//! are fitted by least squares to what was seen, of which the past counts less and less.

use serde::{Deserialize, Serialize};

/// What is moved: files, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Amount {
    /// Number of files.
    pub files: f64,
    /// Their bytes.
    pub bytes: f64,
}

impl Amount {
    /// So many.
    pub fn new(files: u64, bytes: u64) -> Amount {
        Amount { files: files as f64, bytes: bytes as f64 }
    }

    /// What is left of it.
    #[must_use]
    pub fn less(self, done: Amount) -> Amount {
        let left = |a: f64, b: f64| (a - b).max(0.0);
        Amount { files: left(self.files, done.files), bytes: left(self.bytes, done.bytes) }
    }
}

/// What was seen of transfers between two tiers, as sums. Any numbers that it is told leave it finite.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    ff: f64,
    fb: f64,
    bb: f64,
    ft: f64,
    bt: f64,
    tt: f64,
    /// Seconds that were seen, the past less.
    seconds: f64,
}

/// A time with the range that it is expected in, all in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Remaining {
    /// The likeliest.
    pub seconds: f64,
    /// It takes hardly less.
    pub low: f64,
    /// It takes hardly more.
    pub high: f64,
}

impl Remaining {
    /// The same, so many seconds later.
    #[must_use]
    pub fn after(self, seconds: f64) -> Remaining {
        let passed = if seconds.is_finite() { seconds.max(0.0) } else { 0.0 };
        Remaining {
            seconds: (self.seconds - passed).max(0.0),
            low: (self.low - passed).max(0.0),
            high: (self.high - passed).max(0.0),
        }
    }

    /// The same, with something behind it that takes about so many seconds, half or twice as many.
    #[must_use]
    pub fn and(self, seconds: f64) -> Remaining {
        let more = if seconds.is_finite() { seconds.clamp(0.0, 1e15) } else { 0.0 };
        Remaining {
            seconds: self.seconds + more,
            low: self.low + more / 2.0,
            high: self.high + more * 2.0,
        }
    }

    /// The same, of what cannot take less than so many seconds.
    #[must_use]
    pub fn at_least(self, seconds: f64) -> Remaining {
        let least = if seconds.is_finite() { seconds.clamp(0.0, 1e15) } else { 0.0 };
        Remaining {
            seconds: self.seconds.max(least),
            low: self.low.max(least),
            // What is bound by a limit takes a little longer than that.
            high: self.high.max(least * ABOVE_LEAST),
        }
    }
}

/// By so much more than its least something takes at most, where that is all that is known.
const ABOVE_LEAST: f64 = 1.1;

/// What nobody has measured is taken to need so long for a file and for a byte: between what disks and shared file systems need, and what
/// memory and fast devices do.
const FILE_S: f64 = 4e-4;
const BYTE_S: f64 = 1.0 / 400e6;
/// Of fewer bytes in all what each of them takes is as guessed.
const LITTLE: f64 = 1024.0 * 1024.0;
/// Files of fewer bytes are taken to cost what files cost, larger ones what bytes cost.
const SMALL: f64 = 256.0 * 1024.0;
/// A guess is wrong by no more than this factor, in most cases.
const GUESS: f64 = 6.0;
/// Nothing is known better than this.
const LEAST_SPREAD: f64 = 0.08;
/// What was seen so long before counts half.
const HALF_LIFE_S: f64 = 600.0;
/// Of a transfer that is under way, what was seen this part of its time before counts half: one that is faster or slower than it was at its
/// beginning is soon known to be, and one that stops and goes on now and then is not taken for what it is at the moment.
const RECENT: f64 = 0.5;
/// But no less than so long: a few looks.
const LEAST_RECENT_S: f64 = 0.2;

impl Seen {
    /// Takes note of what was moved in so many seconds.
    pub fn note(&mut self, load: Amount, seconds: f64) {
        self.note_within(load, seconds, f64::INFINITY);
    }

    /// The same of a part of a transfer that is under way for `elapsed` seconds, of which what is newer says more about the rest.
    pub fn note_within(&mut self, load: Amount, seconds: f64, elapsed: f64) {
        let good = |n: f64| n.is_finite() && (0.0..1e18).contains(&n);
        if !(good(load.files) && good(load.bytes) && good(seconds)) || seconds <= 0.0 {
            return;
        }
        let recent = (elapsed * RECENT).clamp(LEAST_RECENT_S, HALF_LIFE_S);
        self.fade(0.5f64.powf(seconds / recent));
        // As rates of one second each, so that long and short ones count as long as they were.
        let (f, b) = (load.files / seconds, load.bytes / seconds);
        self.ff += f * f * seconds;
        self.fb += f * b * seconds;
        self.bb += b * b * seconds;
        self.ft += f * seconds;
        self.bt += b * seconds;
        self.tt += seconds;
        self.seconds += seconds;
    }

    fn fade(&mut self, by: f64) {
        for sum in [
            &mut self.ff,
            &mut self.fb,
            &mut self.bb,
            &mut self.ft,
            &mut self.bt,
            &mut self.tt,
            &mut self.seconds,
        ] {
            *sum *= by;
            if !sum.is_finite() {
                *sum = 0.0;
            }
        }
    }

    /// Of before, as if it had been seen for no more than so many seconds: what is seen now soon counts more.
    #[must_use]
    pub fn as_if(mut self, seconds: f64) -> Seen {
        if self.seconds > seconds && self.seconds > 0.0 {
            self.fade(seconds / self.seconds);
        }
        self
    }

    /// Seconds for a file and for a byte, such that all that was seen together takes as long as it took: where things come in bursts, least
    /// squares alone would have them take less.
    fn fitted(&self) -> Option<(f64, f64)> {
        let (file, byte) = self.squares()?;
        let by = self.tt / (file * self.ft + byte * self.bt);
        let (file, byte) = if by.is_finite() { (file * by, byte * by) } else { (file, byte) };
        (file.is_finite() && byte.is_finite()).then_some((file, byte))
    }

    /// By least squares, with neither below 0.
    fn squares(&self) -> Option<(f64, f64)> {
        if self.seconds <= 0.0 || self.tt <= 0.0 {
            return None;
        }
        let det = self.ff * self.bb - self.fb * self.fb;
        if det > 1e-9 * self.ff * self.bb {
            let file = (self.ft * self.bb - self.bt * self.fb) / det;
            let byte = (self.bt * self.ff - self.ft * self.fb) / det;
            // What a few bytes seem to take went to something else.
            let byte = if self.bb < LITTLE * LITTLE { byte.min(BYTE_S) } else { byte };
            if file >= 0.0 && byte >= 0.0 && file.is_finite() && byte.is_finite() {
                return Some((file, byte));
            }
        }
        // Of one sort all the time, or one of both costs nothing: how the time is divided between both nobody knows, but that
        // the like of it takes as long.
        let of = |t: f64, s: f64| if s > 0.0 { t / s } else { 0.0 };
        let (file, byte) = (of(self.ft, self.ff), of(self.bt, self.bb));
        let mean = of(self.fb, self.ff);
        let (file, byte) = match (file > 0.0, byte > 0.0) {
            (true, true) if mean < SMALL => {
                let byte = BYTE_S.min(byte / 2.0);
                ((file - byte * mean).max(0.0), byte)
            }
            (true, true) => {
                let file = FILE_S.min(file / 2.0);
                (file, (byte - file / mean).max(0.0))
            }
            one => (if one.0 { file } else { 0.0 }, if one.1 { byte } else { 0.0 }),
        };
        (file + byte > 0.0 && (file + byte).is_finite()).then_some((file, byte))
    }

    /// How far single observations are from the fit, relative to them.
    fn spread(&self, (file, byte): (f64, f64)) -> f64 {
        let square = self.tt - 2.0 * (file * self.ft + byte * self.bt)
            + file * file * self.ff
            + 2.0 * file * byte * self.fb
            + byte * byte * self.bb;
        (square.max(0.0) / self.tt).sqrt().clamp(0.0, GUESS)
    }

    /// How long such a load takes. Always finite, and `low <= seconds <= high`.
    pub fn takes(&self, load: Amount) -> Remaining {
        let good = |n: f64| if n.is_finite() { n.max(0.0) } else { 0.0 };
        let load = Amount { files: good(load.files), bytes: good(load.bytes) };
        let Some((file, byte)) = self.fitted() else {
            let seconds = (load.files * FILE_S + load.bytes * BYTE_S).min(1e15);
            return Remaining { seconds, low: seconds / GUESS, high: seconds * GUESS };
        };
        let seconds = (load.files * file + load.bytes * byte).min(1e15);
        let spread = 2.0 * self.spread((file, byte)) / self.seconds.max(1.0).sqrt() + LEAST_SPREAD;
        Remaining { seconds, low: seconds / (1.0 + spread), high: seconds * (1.0 + spread) }
    }

    /// Bytes a second of large files; 0 if nothing was seen.
    pub fn rate(&self) -> f64 {
        // Of a time that is next to nothing there is no rate.
        let rate = self.fitted().map_or(0.0, |(_, byte)| 1.0 / byte);
        if rate > 0.0 && rate.is_finite() { rate } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_few_bytes_do_not_tell_how_long_many_take() {
        let mut seen = Seen::default();
        for (files, bytes, seconds) in [(3000.0, 0.0, 0.4), (1.0, 2.0, 0.003), (3000.0, 0.0, 0.5)] {
            seen.note(Amount { files, bytes }, seconds);
        }
        let takes = seen.takes(Amount { files: 1.0, bytes: 200e6 });
        assert!(takes.seconds < 5.0, "{takes:?}");
        // What was seen of many is what they take.
        for _ in 0..3 {
            seen.note(Amount { files: 1.0, bytes: 1e9 }, 10.0);
        }
        let takes = seen.takes(Amount { files: 1.0, bytes: 1e9 });
        assert!((8.0..12.0).contains(&takes.seconds), "{takes:?}");
    }

    #[test]
    fn files_and_bytes_are_told_apart() {
        let mut seen = Seen::default();
        // 2 ms a file, 500 MB/s.
        for (files, bytes) in
            [(10u64, 5_000_000_000u64), (1000, 4_096_000), (100, 1_000_000_000), (2, 9_000_000_000)]
        {
            seen.note(Amount::new(files, bytes), files as f64 * 2e-3 + bytes as f64 / 500e6);
        }
        let takes = seen.takes(Amount::new(500, 1_000_000_000));
        assert!((takes.seconds - 3.0).abs() < 0.05, "{takes:?}");
        assert!(takes.low < 3.0 && takes.high > 3.0 && takes.high < 4.0, "{takes:?}");
        assert!((seen.rate() / 500e6 - 1.0).abs() < 0.02, "{}", seen.rate());
    }

    #[test]
    fn what_nobody_knows_is_a_wide_guess() {
        let takes = Seen::default().takes(Amount::new(1, 200_000_000));
        assert!(takes.high / takes.low > 30.0 && (0.4..0.6).contains(&takes.seconds));
        assert_eq!(Seen::default().takes(Amount::default()), Remaining::default());
        assert_eq!(Seen::default().rate(), 0.0);
    }

    #[test]
    fn one_sort_of_transfer_is_enough_to_predict_its_like() {
        let mut seen = Seen::default();
        for _ in 0..10 {
            seen.note(Amount::new(1, 1_000_000_000), 4.0);
        }
        let takes = seen.takes(Amount::new(1, 3_000_000_000));
        assert!((takes.seconds - 12.0).abs() < 0.2, "{takes:?}");
        for size in [0, 4096] {
            let mut small = Seen::default();
            small.note(Amount::new(20_000, 20_000 * size), 2.0);
            assert!((small.takes(Amount::new(10_000, 10_000 * size)).seconds - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn of_a_time_that_is_next_to_nothing_there_is_no_rate() {
        let mut seen = Seen::default();
        for (files, bytes, seconds) in [
            (0.000_338_127_646_662_706_8, -0.0, 1.159_804_860_154_274e-308),
            (-0.0, 1.557_403_472_202_874_3e-119, 8.338_616_868_032_857e-242),
            (9.965_356_154_911_925e-100, 0.0, 2.428_591_789_221_817_6e-104),
        ] {
            seen.note(Amount { files, bytes }, seconds);
        }
        assert_eq!(seen.rate(), 0.0);
    }

    #[test]
    fn bursts_take_as_long_as_they_took() {
        let mut seen = Seen::default();
        // Nothing for a while, then 20 MB at once: 5 MB/s.
        for _ in 0..50 {
            for bytes in [0, 0, 0, 20_000_000] {
                seen.note(Amount::new(0, bytes), 1.0);
            }
        }
        let takes = seen.takes(Amount::new(1, 50_000_000));
        assert!((takes.seconds - 10.0).abs() < 0.5, "{takes:?}");
        assert!((seen.rate() / 5e6 - 1.0).abs() < 0.05, "{}", seen.rate());
    }

    #[test]
    fn the_past_counts_less() {
        let mut seen = Seen::default();
        for _ in 0..100 {
            seen.note(Amount::new(0, 100_000_000), 1.0);
        }
        let mut now = seen.as_if(2.0);
        for _ in 0..20 {
            now.note(Amount::new(0, 400_000_000), 1.0);
        }
        let takes = now.takes(Amount::new(0, 4_000_000_000)).seconds;
        assert!(takes < 13.0, "{takes}");
    }

    /// What is told of a transfer of files of 4 KiB that takes a tenth of a second for each of these many, as an error of what is left, at
    /// each look.
    fn errors(looks: &[u64]) -> Vec<f64> {
        let (all, mut done, mut seen) = (looks.iter().sum::<u64>(), 0, Seen::default());
        let told = looks.iter().enumerate().map(|(look, files)| {
            seen.note_within(Amount::new(*files, files * 4096), 0.1, (look + 1) as f64 * 0.1);
            done += files;
            let left = (looks.len() - look - 1) as f64 * 0.1;
            (seen.takes(Amount::new(all - done, (all - done) * 4096)).seconds - left).abs() / left
        });
        told.take(looks.len() - 1).collect()
    }

    #[test]
    fn a_transfer_that_becomes_faster_is_soon_known_to() {
        // Four times as fast from the tenth look on.
        let looks: Vec<u64> = (0..40).map(|look| if look < 10 { 250 } else { 1000 }).collect();
        let told = errors(&looks);
        assert!(told[9] > 2.0, "{told:?}");
        assert!(told[20..].iter().all(|error| *error < 0.3), "{told:?}");
        assert!(told[30..].iter().all(|error| *error < 0.1), "{told:?}");
    }

    #[test]
    fn one_that_stops_now_and_then_is_not_taken_for_what_it_is_at_the_moment() {
        let looks: Vec<u64> = (0..200).map(|look| if look % 4 == 3 { 2000 } else { 0 }).collect();
        let told = errors(&looks);
        assert!(told[20..180].iter().all(|error| *error < 0.25), "{told:?}");
    }

    proptest! {
        #[test]
        fn whatever_is_seen_the_answer_is_a_time(
            all in proptest::collection::vec((any::<f64>(), any::<f64>(), any::<f64>(), any::<f64>()), 0..20),
            files in any::<f64>(), bytes in any::<f64>(),
        ) {
            let mut seen = Seen::default();
            for (files, bytes, seconds, elapsed) in all {
                seen.note_within(Amount { files, bytes }, seconds, elapsed);
            }
            let takes = seen.as_if(3.0).takes(Amount { files, bytes });
            prop_assert!(takes.low <= takes.seconds && takes.seconds <= takes.high, "{:?}", takes);
            prop_assert!(takes.low >= 0.0 && takes.high.is_finite(), "{:?}", takes);
            prop_assert!(seen.rate().is_finite());
        }

        #[test]
        fn with_more_behind_it_there_is_more_left(
            seconds in 0f64..1e9, spread in 1f64..5.0, more in any::<f64>(),
        ) {
            let told = Remaining { seconds, low: seconds / spread, high: seconds * spread };
            let both = told.and(more);
            prop_assert!(both.low <= both.seconds && both.seconds <= both.high, "{:?}", both);
            prop_assert!(both.low >= told.low && both.high.is_finite());
            if (0.0..1e15).contains(&more) {
                prop_assert!(both.seconds >= more && both.high >= more * 2.0);
            }
        }

        #[test]
        fn later_there_is_less_left(seconds in 0f64..1e9, spread in 1f64..5.0, passed in any::<f64>()) {
            let told = Remaining { seconds, low: seconds / spread, high: seconds * spread };
            let then = told.after(passed);
            prop_assert!(0.0 <= then.low && then.low <= then.seconds && then.seconds <= then.high, "{:?}", then);
            prop_assert!(then.seconds <= seconds && then.high <= told.high);
            if (0.0..seconds).contains(&passed) {
                prop_assert!((then.seconds + passed - seconds).abs() < 1e-6 * seconds.max(1.0));
            }
        }

        #[test]
        fn more_takes_longer(
            all in proptest::collection::vec((0u64..100_000, 0u64..1 << 40, 1e-3f64..1e4), 1..20),
            files in 0u64..100_000, bytes in 0u64..1 << 40, more in 0u64..1 << 40,
        ) {
            let mut seen = Seen::default();
            for (files, bytes, seconds) in all {
                seen.note(Amount::new(files, bytes), seconds);
            }
            let one = seen.takes(Amount::new(files, bytes)).seconds;
            prop_assert!(seen.takes(Amount::new(files, bytes + more)).seconds >= one);
            prop_assert!(seen.takes(Amount::new(files + 1, bytes)).seconds >= one);
        }
    }
}
