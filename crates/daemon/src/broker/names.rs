//! Who users are, as the system says. It may take long to say it (a directory that does not answer): threads ask, one for each user,
//! and nobody waits for them for good.

use crate::clock;
use crate::protocol::Failed;
use crate::rights::{self, Known};
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};

/// Who waits for an answer is told after this that there is none.
const WITHIN: Duration = Duration::from_secs(10);
/// An answer is believed for so long, and one that there is no such user.
const BELIEVED: Duration = Duration::from_secs(60);
const REFUSED: Duration = Duration::from_secs(5);
/// Users that are asked for at a time.
const MOST_ASKED: usize = 256;
/// Of these, such as were never found: a user may have many ids (`newuidmap`), of which the system knows none.
const MOST_STRANGERS: usize = MOST_ASKED / 2;
/// Answers that are remembered.
const MOST_KNOWN: usize = 4096;

/// What is known of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) known: Known,
    pub(super) is_admin: bool,
}

/// Asks the system.
pub(super) fn find(user: u32) -> Result<Found> {
    let known = rights::known(user)?;
    let is_admin = rights::is_admin(user, known.group);
    Ok(Found { known, is_admin })
}

type Find = Arc<dyn Fn(u32) -> Result<Found> + Send + Sync>;
type Answer = std::result::Result<Found, Failed>;

enum Look {
    /// A thread asks since then.
    Asked(Instant),
    /// It was answered then.
    Told(Instant, Answer),
}

pub(super) struct Names {
    find: Find,
    within: Duration,
    users: HashMap<u32, Look>,
    /// Users that were found once.
    met: HashSet<u32>,
    told: Arc<Mutex<Vec<(u32, Answer)>>>,
    bell: UnixStream,
    rings: Arc<UnixStream>,
}

impl Names {
    /// # Errors
    /// System errors.
    pub(super) fn new() -> Result<Names> {
        Names::by(Arc::new(find), WITHIN)
    }

    fn by(find: Find, within: Duration) -> Result<Names> {
        let failed = |e| Error::io("make", "a pipe", e);
        let (bell, rings) = UnixStream::pair().map_err(failed)?;
        bell.set_nonblocking(true).and_then(|()| rings.set_nonblocking(true)).map_err(failed)?;
        let (users, met) = (HashMap::new(), HashSet::new());
        let (told, rings) = (Arc::default(), Arc::new(rings));
        Ok(Names { find, within, users, met, told, bell, rings })
    }

    /// There is something to read if there is an answer.
    pub(super) fn bell(&self) -> &UnixStream {
        &self.bell
    }

    /// Takes the answers that have come; of these users.
    pub(super) fn hear(&mut self) -> Vec<u32> {
        let mut rung = [0; 64];
        while (&self.bell).read(&mut rung).is_ok_and(|n| n > 0) {}
        let told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        let now = clock::now();
        let take = |(user, answer): (u32, Answer)| {
            if answer.is_ok() && self.met.len() < MOST_KNOWN {
                self.met.insert(user);
            }
            self.users.insert(user, Look::Told(now, answer));
            user
        };
        told.into_iter().map(take).collect()
    }

    /// What was said of a user is believed no longer, also if it is not long ago.
    pub(super) fn ask_anew(&mut self, user: u32) {
        if let Some(Look::Told(..)) = self.users.get(&user) {
            self.users.remove(&user);
        }
    }

    /// Who a user is; none as long as the system has not said it.
    ///
    /// # Errors
    /// `Permission` if there is no such user; `Timeout` if the system does not say who it is; `Limit` if it is asked for too many.
    pub(super) fn who(&mut self, user: u32) -> Result<Option<Found>> {
        let fresh = |at: &Instant, answer: &Answer| {
            at.elapsed() < if answer.is_ok() { BELIEVED } else { REFUSED }
        };
        match self.users.get(&user) {
            Some(Look::Told(at, answer)) if fresh(at, answer) => {
                return answer.clone().map(Some).map_err(Error::from);
            }
            Some(Look::Asked(since)) if since.elapsed() < self.within => return Ok(None),
            Some(Look::Asked(_)) => {
                let message = format!("the system does not say who user {user} is");
                return Err(Error::new(Kind::Timeout, message).with_hint(
                    "a directory service of /etc/nsswitch.conf may not answer; try again in a moment",
                ));
            }
            _ => {}
        }
        if self.users.len() > MOST_KNOWN {
            self.users.retain(|_, look| match look {
                Look::Asked(_) => true,
                Look::Told(at, answer) => fresh(at, answer),
            });
        }
        let asked = |stranger: bool| {
            let asked = self.users.iter().filter(|(_, look)| matches!(look, Look::Asked(_)));
            asked.filter(|(user, _)| !stranger || !self.met.contains(user)).count()
        };
        let is_stranger = !self.met.contains(&user);
        if asked(false) >= MOST_ASKED || (is_stranger && asked(true) >= MOST_STRANGERS) {
            return Err(Error::limit("the system is asked for too many users at a time")
                .with_hint("try again in a moment"));
        }
        let (find, told, rings) = (self.find.clone(), self.told.clone(), self.rings.clone());
        let thread = std::thread::Builder::new().name("stead-names".into()).stack_size(512 << 10);
        let begun = thread.spawn(move || {
            let answer = find(user).map_err(|e| Failed::from(&e));
            told.lock().unwrap_or_else(PoisonError::into_inner).push((user, answer));
            // A bell that is full has been rung.
            let _ = (&*rings).write(&[1]);
        });
        begun.map_err(|e| Error::io("start a thread", "this process", e))?;
        self.users.insert(user, Look::Asked(clock::now()));
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(60);

    fn found(user: u32) -> Found {
        let known = Known { name: format!("u{user}"), home: "/".into(), group: user };
        Found { known, is_admin: user == 0 }
    }

    fn answer(names: &mut Names) -> u32 {
        assert!(crate::socket::is_readable(names.bell(), Some(LONG)).unwrap());
        names.hear()[0]
    }

    #[test]
    fn one_who_is_slow_to_find_keeps_nobody_from_others() {
        let (go, waits) = mpsc::channel::<()>();
        let waits = Mutex::new(waits);
        // As a directory that does not answer for user 7, until it is told to.
        let slow = move |user: u32| match user {
            7 => {
                let _ = waits.lock().unwrap().recv();
                Ok(found(7))
            }
            9 => Err(Error::new(Kind::Permission, "nobody")),
            user => Ok(found(user)),
        };
        let mut names = Names::by(Arc::new(slow), LONG).unwrap();
        assert_eq!(names.who(7).unwrap(), None);
        assert_eq!(names.who(0).unwrap(), None);
        assert_eq!(answer(&mut names), 0);
        assert_eq!(names.who(0).unwrap(), Some(found(0)));
        assert_eq!(names.who(9).unwrap(), None);
        assert_eq!(answer(&mut names), 9);
        assert_eq!(names.who(9).unwrap_err().kind(), Kind::Permission);
        // It is asked for once, however many want to know.
        assert_eq!(names.who(7).unwrap(), None);
        names.within = Duration::ZERO;
        assert_eq!(names.who(7).unwrap_err().kind(), Kind::Timeout);
        go.send(()).unwrap();
        assert_eq!(answer(&mut names), 7);
        assert_eq!(names.who(7).unwrap(), Some(found(7)));
        // What was said is not believed any more if somebody wants to know it anew.
        names.within = LONG;
        names.ask_anew(0);
        assert_eq!(names.who(0).unwrap(), None);
        assert_eq!(answer(&mut names), 0);
        assert_eq!(names.who(0).unwrap(), Some(found(0)));
        drop(go);
    }

    #[test]
    fn only_so_many_are_asked_for_at_a_time() {
        let (go, waits) = mpsc::channel::<()>();
        let waits = Mutex::new(waits);
        let slow = move |user: u32| {
            let _ = waits.lock().unwrap().recv();
            Ok(found(user))
        };
        let mut names = Names::by(Arc::new(slow), LONG).unwrap();
        for user in 0..MOST_STRANGERS as u32 {
            assert_eq!(names.who(user).unwrap(), None);
        }
        assert_eq!(names.who(100_000).unwrap_err().kind(), Kind::Limit);
        // Those who were found before have room of their own.
        for user in MOST_STRANGERS as u32..MOST_ASKED as u32 {
            names.met.insert(user);
            assert_eq!(names.who(user).unwrap(), None);
        }
        names.met.insert(100_000);
        assert_eq!(names.who(100_000).unwrap_err().kind(), Kind::Limit);
        drop(go);
        let mut told = 0;
        while told < MOST_ASKED {
            assert!(crate::socket::is_readable(names.bell(), Some(LONG)).unwrap());
            told += names.hear().len();
        }
        assert_eq!(names.who(5).unwrap(), Some(found(5)));
    }
}
