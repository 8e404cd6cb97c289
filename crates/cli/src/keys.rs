//! Keys of a terminal, as they are pressed, for what somebody looks at until he has seen enough. On every way out the terminal becomes what
//! it was before.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpgrp, kill_current_process_group};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr,
};
use std::io::{IsTerminal, Stdin, stdin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const ESC: u8 = 0x1b;
/// Of a special character: there is none.
const NONE: u8 = 0;
/// What else a key sends comes this soon after its first byte.
const REST: Duration = Duration::from_millis(50);
/// Bytes of keys that are looked at together.
const MOST: usize = 64;

/// What the terminal was like before keys came as they are pressed; nothing if they do not.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

fn before() -> MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the terminal what it was. As long as somebody has what is returned, no keys are taken.
pub fn give_back() -> MutexGuard<'static, Option<Termios>> {
    let mut before = before();
    if let Some(was) = before.take()
        && is_ours()
    {
        // One that is gone is like nothing.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &was);
    }
    before
}

/// False if another job has the terminal, as after `bg`: who reads from it or sets it up then is stopped.
fn is_ours() -> bool {
    match tcgetpgrp(stdin()) {
        Ok(group) => group == getpgrp(),
        // It is one that has no jobs.
        Err(_) => true,
    }
}

/// The keys of the standard input, if that is a terminal.
pub struct Keys {
    are_there: bool,
    /// The key that stops programs, such as Ctrl-Z.
    stops: u8,
}

/// What keys say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    End,
    Stop,
}

impl Keys {
    /// They are taken when somebody waits for them, and given back when this goes.
    pub fn new() -> Keys {
        Keys { are_there: stdin().is_terminal(), stops: NONE }
    }

    /// Waits for so long at most. True if somebody has pressed `q` or Esc.
    pub fn say_end(&mut self, time: Duration) -> bool {
        let stdin = stdin();
        let are_taken = self.are_there && is_ours() && self.take();
        if !is_ready(are_taken.then_some(&stdin), time) {
            return false;
        }
        let (mut keys, mut have) = ([0u8; MOST], 0);
        loop {
            match rustix::io::read(&stdin, keys.get_mut(have..).unwrap_or(&mut [])) {
                Ok(n) if n > 0 => have += n,
                Err(rustix::io::Errno::INTR) => return false,
                // Nobody is there any more, and nothing comes from now on.
                Ok(_) | Err(_) => {
                    self.are_there = false;
                    return false;
                }
            }
            // What other keys send begins with that, too.
            let is_begun = keys.get(..have).is_some_and(|keys| keys.ends_with(&[ESC]));
            if !is_begun || have == MOST || !is_ready(Some(&stdin), REST) {
                break;
            }
        }
        match said(keys.get(..have).unwrap_or(&[]), self.stops) {
            Said::Nothing => false,
            Said::End => true,
            Said::Stop => {
                // The terminal would do just that. Here it is what it was while others have it, and is taken anew after that.
                let _given_back = give_back();
                let _ = kill_current_process_group(Signal::TSTP);
                false
            }
        }
    }

    /// Has keys come as they are pressed, and not shown. Those that interrupt and quit are signals as ever.
    fn take(&mut self) -> bool {
        let mut before = before();
        if before.is_some() {
            return true;
        }
        let Ok(was) = tcgetattr(stdin()) else { return false };
        let mut now = was.clone();
        now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        // Nobody waits within a read.
        now.special_codes[SpecialCodeIndex::VMIN] = 0;
        now.special_codes[SpecialCodeIndex::VTIME] = 0;
        now.special_codes[SpecialCodeIndex::VSUSP] = NONE;
        self.stops = match was.local_modes.contains(LocalModes::ISIG) {
            true => was.special_codes[SpecialCodeIndex::VSUSP],
            false => NONE,
        };
        let is_done = tcsetattr(stdin(), OptionalActions::Now, &now).is_ok();
        *before = is_done.then_some(was);
        is_done
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        drop(give_back());
    }
}

/// Waits until there is something to read; without anything to read from, for that time. False if nothing is there, or a signal came.
fn is_ready(from: Option<&Stdin>, time: Duration) -> bool {
    let mut fds: Vec<PollFd<'_>> =
        from.into_iter().map(|from| PollFd::new(from, PollFlags::IN)).collect();
    let time = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    poll(&mut fds, Some(&time)).is_ok_and(|ready| ready > 0)
}

/// What the first of these keys says that says anything.
fn said(mut keys: &[u8], stops: u8) -> Said {
    loop {
        keys = match keys {
            [] => return Said::Nothing,
            [b'q', ..] | [ESC] | [ESC, ESC, ..] => return Said::End,
            [key, ..] if *key == stops && stops != NONE => return Said::Stop,
            // Arrows and their like.
            [ESC, b'[', more @ ..] => {
                let end = more.iter().position(|byte| (0x40..=0x7e).contains(byte));
                end.and_then(|end| more.get(end + 1..)).unwrap_or(&[])
            }
            [ESC, b'O', _, more @ ..] | [ESC, _, more @ ..] | [_, more @ ..] => more,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_and_esc_end_it_and_what_other_keys_send_does_not() {
        const CTRL_Z: u8 = 0x1a;
        let ends: [&[u8]; 6] = [b"q", b"xyq", b"\x1b", b"x\x1b", b"\x1b\x1b", b"\x1b[1;5Aq"];
        for keys in ends {
            assert_eq!(said(keys, CTRL_Z), Said::End, "{keys:?}");
        }
        let arrows: [&[u8]; 5] = [b"\x1b[A", b"\x1b[1;5q", b"\x1b[", b"\x1bOq", b"\x1bO"];
        let others: [&[u8]; 4] = [b"", b"Q x\r\n", b"\x1bq", b"\0"];
        for keys in arrows.into_iter().chain(others) {
            assert_eq!(said(keys, CTRL_Z), Said::Nothing, "{keys:?}");
            assert_eq!(said(keys, NONE), Said::Nothing, "{keys:?}");
        }
        // The first one counts.
        assert_eq!(said(b"x\x1aq", CTRL_Z), Said::Stop);
        assert_eq!(said(b"q\x1a", CTRL_Z), Said::End);
        assert_eq!(said(b"\x1a", NONE), Said::Nothing);
    }
}
