//! Processes of this machine: which one this is, and whether another one still lives.
//!
//! A number alone does not name a process, since the system gives it to others later: with it goes when the process began. All
//! who compare such names are of one namespace of process numbers ([`namespace`]).

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;
use stead_core::{Error, Kind, Result};

/// What the system tells of a process is not longer: some fifty numbers and a short name.
const STAT: usize = 2048;

/// A number that nobody else draws.
pub fn token() -> u64 {
    let mut drawn = RandomState::new().build_hasher();
    // Children of a fork go on with what their parent would have drawn.
    drawn.write_u32(std::process::id());
    drawn.finish()
}

/// This process: its number and when it began, in ticks since the system did.
///
/// # Errors
/// `Io` where `/proc` is not there, or is that of other processes, and if no more files can be open.
pub fn me() -> Result<(u32, u64)> {
    let number = std::process::id();
    let link = rustix::fs::readlink("/proc/self", Vec::new());
    if link.ok().and_then(|l| l.to_str().ok()?.parse().ok()) != Some(number) {
        return Err(silent("/proc does not tell of this process"));
    }
    match told(number) {
        Ok(Some((began, _))) => Ok((number, began)),
        // Nothing is wrong with /proc.
        Err(e @ (Errno::MFILE | Errno::NFILE)) => {
            Err(Error::io("look at", format!("/proc/{number}/stat"), e.into()))
        }
        Ok(None) | Err(_) => Err(silent("/proc does not tell when this process began")),
    }
}

/// How long this process has been there, to a hundredth of a second; it may be said to be that much older.
///
/// # Errors
/// As [`me`].
pub fn age() -> Result<Duration> {
    let (_, start) = me()?;
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanoseconds) = (u64::try_from(boot.tv_sec), u32::try_from(boot.tv_nsec));
    let now = Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0));
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let began = Duration::from_secs(start / ticks)
        + Duration::from_nanos(start % ticks * (1_000_000_000 / ticks));
    Ok(now.saturating_sub(began))
}

/// The user whose rights this process has.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The time of a processor that this thread has taken so far. A system call: some hundreds of nanoseconds.
pub fn thread_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(t.tv_sec), u32::try_from(t.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
}

/// Sleeps for a thousandth of a second, where nothing tells when to go on.
pub(crate) fn pause() {
    let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let _ = rustix::event::poll(&mut [], Some(&time));
}

/// The namespace of process numbers.
///
/// # Errors
/// `Io` where `/proc` does not tell.
pub fn namespace() -> Result<u64> {
    let link = rustix::fs::readlink("/proc/self/ns/pid", Vec::new()).ok();
    let number = link.and_then(|l| {
        l.to_str().ok().map(|l| l.chars().filter(char::is_ascii_digit).collect::<String>())
    });
    let number = number.and_then(|n| n.parse().ok());
    number.ok_or_else(|| silent("/proc does not tell in which namespace this process is"))
}

/// The machine since it was started, and the [namespace] of process numbers on it: who has the same can ask whether a process lives.
///
/// # Errors
/// `Io` where `/proc` does not tell.
pub fn host() -> Result<u64> {
    const BOOT: &str = "/proc/sys/kernel/random/boot_id";
    let boot = std::fs::read_to_string(BOOT).map_err(|e| Error::io("read", BOOT, e))?;
    let digits: String = boot.chars().filter(char::is_ascii_hexdigit).take(32).collect();
    let boot = u128::from_str_radix(&digits, 16)
        .map_err(|_| silent("/proc does not tell when this machine was started"))?;
    let mixed = (boot as u64 ^ (boot >> 64) as u64).rotate_left(17) ^ namespace()?;
    Ok(mixed.max(1))
}

fn silent(what: &str) -> Error {
    Error::new(Kind::Io, what).with_hint("mount /proc for the namespace of this process")
}

/// True unless a process with this number that began then is known to have ended. One that nobody has waited for yet has ended,
/// too. Costs one system call if it is gone, and a look at `/proc` if not.
pub fn is_alive(number: u64, start: u64) -> bool {
    u32::try_from(number).is_ok_and(|number| lives(number, |began| began == start))
}

/// As [`is_alive`], of a process of which the low half of when it began is known: that of another one is the same once in 497 days.
pub fn is_alive_low(number: u32, start: u32) -> bool {
    lives(number, |began| began as u32 == start)
}

fn lives(number: u32, is_it: impl FnOnce(u64) -> bool) -> bool {
    let Some(pid) = i32::try_from(number).ok().and_then(rustix::process::Pid::from_raw) else {
        return false;
    };
    if rustix::process::test_kill_process(pid) == Err(Errno::SRCH) {
        return false;
    }
    // Where /proc tells nothing, it may live.
    began(number).is_none_or(|(began, ended)| is_it(began) && !ended)
}

/// When a process began, and whether all its threads have ended, where `/proc` tells.
fn began(number: u32) -> Option<(u64, bool)> {
    told(number).ok().flatten()
}

fn told(number: u32) -> rustix::io::Result<Option<(u64, bool)>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let name = format!("/proc/{number}/stat");
    let file = rustix::fs::openat(CWD, name, flags, Mode::empty())?;
    let mut stat = [0; STAT];
    let len = loop {
        match rustix::io::read(&file, &mut stat) {
            Err(Errno::INTR) => {}
            read => break read?,
        }
    };
    Ok(stat.get(..len).and_then(parse))
}

fn parse(stat: &[u8]) -> Option<(u64, bool)> {
    // The name is in brackets and may be anything.
    let name = stat.windows(2).rposition(|two| two == b") ")?;
    let rest = std::str::from_utf8(stat.get(name + 2..)?).ok()?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    // The first thread may end before the others.
    Some((start, matches!(state, "Z" | "X") && threads <= 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_one_that_began_earlier_does_not() {
        let (number, start) = me().unwrap();
        let number = u64::from(number);
        assert!(is_alive(number, start));
        assert!(
            is_alive_low(number as u32, start as u32)
                && !is_alive_low(number as u32, start as u32 + 1)
        );
        assert!(!is_alive(number, start + 1) && !is_alive(number, start - 1));
        // Numbers that no process has.
        for none in [0, u64::from(i32::MAX.unsigned_abs()), 1 << 31, u64::MAX] {
            assert!(!is_alive(none, start), "{none}");
        }
        assert_eq!(namespace().unwrap(), namespace().unwrap());
        assert_eq!(host().unwrap(), host().unwrap());
    }

    #[test]
    fn a_process_is_known_to_have_ended_before_somebody_has_waited_for_it() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let (number, start) = (child.id(), began(child.id()).unwrap().0);
        assert!(is_alive(u64::from(number), start));
        child.kill().unwrap();
        // Its end of the pipe is closed when it has ended, or a little before.
        let mut end = Vec::new();
        std::io::Read::read_to_end(&mut child.stdout.take().unwrap(), &mut end).unwrap();
        let looks = |_| {
            let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            let _ = rustix::event::poll(&mut [], Some(&time));
            !is_alive(u64::from(number), start)
        };
        assert!((0..2000).any(looks));
        assert!(began(number).unwrap().1, "it is there until it is waited for");
        child.wait().unwrap();
        assert!(!is_alive(u64::from(number), start));
    }

    #[test]
    fn names_of_programs_may_be_anything() {
        let rest = "1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 777 99 0";
        for name in ["cat", "a) R 1", "(", "x y", "", ") Z 1"] {
            // The first thread of three may have ended.
            for state in ["S", "Z", "X", "R"] {
                let stat = format!("12 ({name}) {state} {rest}");
                assert_eq!(parse(stat.as_bytes()), Some((777, false)), "{stat}");
            }
            let last = format!("12 ({name}) Z {}", rest.replacen(" 3 0 777", " 1 0 777", 1));
            assert_eq!(parse(last.as_bytes()), Some((777, true)));
        }
        assert_eq!(
            parse(b"12 (\xff\xfe) S 1 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 3 0 5 99"),
            Some((5, false))
        );
        for odd in ["", "12 (cat)", "12 (cat) ", "12 (cat) S 1 2", "12 cat S"] {
            assert_eq!(parse(odd.as_bytes()), None, "{odd}");
        }
    }
}
