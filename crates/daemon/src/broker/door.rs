//! Connections: how many each user may begin, and those that wait until it is known who their user is.

use crate::clock;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use stead_core::{Error, Result};

/// Connections that a user may begin at once, and so many more each second.
const BURST: f64 = 512.0;
const PER_SECOND: f64 = 256.0;
/// Users of whom it is remembered what they began.
const MOST_USERS: usize = 1024;
/// Connections that wait, and those of one user.
const MOST_WAITING: usize = 1024;
const MOST_OF_USER: usize = 64;

/// What a user may begin, in connections.
struct Purse {
    left: f64,
    at: Instant,
}

/// A connection, and whose it is.
pub(super) struct Guest {
    pub(super) user: u32,
    pub(super) group: u32,
    /// The node that it comes from, and the name that its user has there.
    pub(super) from: Option<(String, String)>,
    /// The administrator whose it is, who looks after the transfers of the user.
    pub(super) by: Option<u32>,
    pub(super) stream: UnixStream,
}

impl Guest {
    /// Who has begun it.
    fn begun_by(&self) -> u32 {
        self.by.unwrap_or(self.user)
    }
}

#[derive(Default)]
pub(super) struct Door {
    purses: BTreeMap<u32, Purse>,
    waiting: Vec<Guest>,
}

impl Door {
    /// # Errors
    /// `Limit` for a user who begins too many connections.
    pub(super) fn may_begin(&mut self, user: u32) -> Result<()> {
        let now = clock::now();
        // Who has not come for a while has a full one.
        if self.purses.len() > MOST_USERS {
            self.purses.retain(|_, purse| now - purse.at < Duration::from_secs(10));
        }
        let purse = self.purses.entry(user).or_insert(Purse { left: BURST, at: now });
        let more = (now - purse.at).as_secs_f64() * PER_SECOND;
        (purse.left, purse.at) = ((purse.left + more).min(BURST), now);
        purse.left -= 1.0;
        if purse.left < 0.0 {
            purse.left = 0.0;
            return Err(Error::limit("too many connections of this user in a short time")
                .with_hint("keep one open for several questions, or try again in a moment"));
        }
        Ok(())
    }

    /// Has one wait.
    ///
    /// # Errors
    /// `Limit` if too many wait, with the connection.
    pub(super) fn wait(&mut self, guest: Guest) -> std::result::Result<(), (Guest, Error)> {
        let whose = guest.begun_by();
        let own = self.waiting.iter().filter(|other| other.begun_by() == whose).count();
        if own >= MOST_OF_USER || self.waiting.len() >= MOST_WAITING {
            let e = Error::limit("too many connections wait until the system says whose they are");
            return Err((guest, e.with_hint("try again in a moment")));
        }
        self.waiting.push(guest);
        Ok(())
    }

    /// Those that wait, to be looked at again.
    pub(super) fn waiting(&mut self) -> Vec<Guest> {
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_begins_so_many_and_others_are_not_kept_from_it() {
        let mut door = Door::default();
        let many = (0..10_000).take_while(|_| door.may_begin(1).is_ok()).count();
        assert!((BURST as usize..9_000).contains(&many), "{many}");
        assert!(door.may_begin(2).is_ok());
    }

    #[test]
    fn only_so_many_wait() {
        let mut door = Door::default();
        let mut ends = Vec::new();
        let mut guest = |user, by| {
            let (stream, other) = UnixStream::pair().unwrap();
            ends.push(other);
            Guest { user, group: 0, from: None, by, stream }
        };
        for _ in 0..MOST_OF_USER {
            assert!(door.wait(guest(1, None)).is_ok());
        }
        assert!(door.wait(guest(1, None)).is_err() && door.wait(guest(2, None)).is_ok());
        // Those of an administrator are not the user's.
        for _ in 0..MOST_OF_USER {
            assert!(door.wait(guest(1, Some(3))).is_ok());
        }
        assert!(door.wait(guest(2, Some(3))).is_err() && door.wait(guest(2, None)).is_ok());
        assert_eq!(door.waiting().len(), 2 * MOST_OF_USER + 2);
        assert!(door.waiting().is_empty() && door.wait(guest(1, None)).is_ok());
    }
}
