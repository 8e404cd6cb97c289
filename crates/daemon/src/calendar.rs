//! The time by which things expire: the clock, unless somebody has just set it forward.
//!
//! A machine may start with a wrong clock, or an administrator may mistype a year; what users have kept for a month would go at once. So
//! a clock that is further on than the time that has passed is believed only when it has stayed so for a while.

use crate::clock;
use crate::job::boot;
use crate::log::log;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use stead_core::{Error, Result};
use stead_store::AtomicFile;

/// A clock that is set forward is believed after so many seconds.
const PROBATION_S: f64 = 3600.0;
/// After the machine has started, so many seconds later: by then it has usually asked others for the time.
const SETTLED_S: f64 = 600.0;
/// So many seconds are no jump, and such a part of the time that has passed: clocks are put right by little at a time.
const SLACK_S: f64 = 60.0;
const DRIFT: f64 = 1e-3;
/// Bytes of what is written down.
const MOST: u64 = 1024;

/// What was known when it was asked last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    /// Which start of the machine that was.
    boot: String,
    /// Seconds since it.
    up: f64,
    /// The time that was believed, in seconds since 1970.
    time: f64,
    /// Seconds after the start from when on a clock is believed that was ahead.
    until: Option<f64>,
}

impl Known {
    /// What is to be believed of a clock.
    fn after(before: Option<&Known>, boot: &str, up: f64, clock: f64) -> Known {
        let is = |time: f64, until| Known { boot: boot.to_owned(), up, time, until };
        let Some(before) = before else { return is(clock, None) };
        let same = before.boot == boot && up >= before.up;
        // How long it was off is not known: then no time has passed for certain.
        let passed = if same { up - before.up } else { 0.0 };
        let expected = before.time + passed;
        if clock <= expected + SLACK_S + DRIFT * passed {
            return is(clock, None);
        }
        let until = match before.until.filter(|_| same) {
            Some(until) => until,
            None if same => up + PROBATION_S,
            None => SETTLED_S,
        };
        if up >= until { is(clock, None) } else { is(expected, Some(until)) }
    }
}

/// See the module's documentation. It remembers across processes, in a file.
#[derive(Debug)]
pub(crate) struct Calendar {
    path: PathBuf,
    known: Mutex<Option<Known>>,
}

impl Calendar {
    /// With what was written down in this folder. What cannot be read is as if there were none.
    pub(crate) fn open(state: &Path) -> Calendar {
        let path = state.join("calendar.json");
        let small = fs::metadata(&path).is_ok_and(|meta| meta.len() <= MOST);
        let text = if small { fs::read(&path).ok() } else { None };
        let known: Option<Known> = text.and_then(|text| serde_json::from_slice(&text).ok());
        let known = known.filter(|known| [known.up, known.time].iter().all(|n| n.is_finite()));
        Calendar { path, known: Mutex::new(known) }
    }

    /// The time by which things expire, in seconds since 1970: never later than the clock.
    pub(crate) fn time(&self) -> f64 {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Known::after(known.as_ref(), &boot(), clock::up(), clock::unix());
        let began = |known: &Option<Known>| known.as_ref().is_some_and(|k| k.until.is_some());
        if now.until.is_some() && !began(&known) {
            log(
                "the clock was set forward: until it has stayed so for a while, nothing expires by it",
            );
        }
        let time = now.time;
        if let Err(e) = self.write(&now) {
            log(&format!("cannot write down the time: {e}"));
        }
        *known = Some(now);
        time
    }

    fn write(&self, known: &Known) -> Result<()> {
        let text = serde_json::to_vec(known)
            .map_err(|e| Error::internal(format!("no text of the time: {e}")))?;
        let mut file = AtomicFile::create(&self.path)?;
        file.write_all(&text)?;
        file.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: f64 = 86400.0;

    /// What is believed at each of these: the start of the machine, seconds since, the clock.
    fn believed(readings: &[(&str, f64, f64)]) -> Vec<f64> {
        let mut known = None;
        let next = |(boot, up, clock): &(&str, f64, f64)| {
            known = Some(Known::after(known.as_ref(), boot, *up, *clock));
            known.as_ref().map_or(0.0, |known| known.time)
        };
        readings.iter().map(next).collect()
    }

    #[test]
    fn a_clock_that_goes_on_is_believed() {
        let readings = [("a", 0.0, 1e9), ("a", 600.0, 1e9 + 601.0), ("a", DAY, 1e9 + DAY + 70.0)];
        assert_eq!(believed(&readings), readings.map(|r| r.2));
        // Backwards, too: what is there is younger then, and stays.
        let readings = [("a", 0.0, 1e9), ("a", 10.0, 1e9 - DAY), ("a", 20.0, 1e9 - DAY + 10.0)];
        assert_eq!(believed(&readings), readings.map(|r| r.2));
    }

    #[test]
    fn one_that_was_set_forward_is_believed_later() {
        let jump = 4000.0 * DAY;
        let at = |up: f64| ("a", up, 1e9 + up + jump);
        let readings = [("a", 0.0, 1e9), at(100.0), at(700.0), at(3699.0), at(3701.0), at(4000.0)];
        assert_eq!(
            believed(&readings),
            [1e9, 1e9 + 100.0, 1e9 + 700.0, 1e9 + 3699.0, at(3701.0).2, at(4000.0).2]
        );
        // Set right again within that time, it was nothing.
        let readings = [("a", 0.0, 1e9), at(100.0), ("a", 200.0, 1e9 + 201.0), at(300.0)];
        assert_eq!(believed(&readings), [1e9, 1e9 + 100.0, 1e9 + 201.0, 1e9 + 301.0]);
        // Steps that come one after the other do not add up.
        let steps: Vec<_> =
            (0..50).map(|i| ("a", f64::from(i), 1e9 + f64::from(i) * DAY)).collect();
        assert!(believed(&steps).iter().all(|time| *time < 1e9 + 100.0));
    }

    #[test]
    fn a_start_of_the_machine_has_time_to_settle() {
        let jump = 400.0 * DAY;
        let readings = [
            ("a", 9e5, 1e9),
            // Wrong at first, then put right: it was off for an hour.
            ("b", 30.0, 1e9 + jump),
            ("b", 90.0, 1e9 + 3600.0),
            ("b", 700.0, 1e9 + 4300.0),
            ("b", 1400.0, 1e9 + 5000.0),
            // Off for a year, and right.
            ("c", 601.0, 1e9 + jump),
        ];
        let expected = [1e9, 1e9, 1e9 + 60.0, 1e9 + 4300.0, 1e9 + 5000.0, 1e9 + jump];
        assert_eq!(believed(&readings), expected);
    }

    #[test]
    fn it_remembers_and_goes_by_no_nonsense() {
        let dir = tempfile::tempdir().unwrap();
        let first = Calendar::open(dir.path()).time();
        assert!((first - clock::unix()).abs() < 60.0);
        let path = dir.path().join("calendar.json");
        let mut known: Known = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        // As if it had been a year ago, within the same start of the machine.
        known.time -= 365.0 * DAY;
        fs::write(&path, serde_json::to_vec(&known).unwrap()).unwrap();
        let calendar = Calendar::open(dir.path());
        assert!((calendar.time() - (first - 365.0 * DAY)).abs() < 60.0);
        assert!((Calendar::open(dir.path()).time() - (first - 365.0 * DAY)).abs() < 60.0);
        for text in ["", "{}", "[1]", r#"{"boot":"x","up":1e999,"time":0,"until":null}"#] {
            fs::write(&path, text).unwrap();
            assert!((Calendar::open(dir.path()).time() - clock::unix()).abs() < 60.0, "{text}");
        }
    }
}
