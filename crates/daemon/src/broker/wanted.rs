//! What administrators want of the broker, as their workers hand it on: it is done once the system has said that they are some.

use super::Broker;
use super::door::Guest;
use crate::admin::{self, Change, Numbers};
use crate::control::{self, Order};
use crate::protocol::Failed;
use crate::refuse::refuse;
use rustix::process::{getegid, geteuid};
use std::os::unix::net::UnixStream;
use stead_core::{Error, Kind, Result};

/// So much of one user waits at a time.
const MOST_WANTED: usize = 64;

/// What the worker of a user says that an administrator wants.
pub(super) enum Wanted {
    /// Something is to be changed; with the ticket of the worker.
    Change(u64, Change),
    /// A connection is to lead to the worker of this user.
    Manage(u32, UnixStream),
}

impl Broker {
    /// Takes something that the worker of a user wants.
    pub(super) fn want(&mut self, user: u32, wanted: Wanted) {
        if let Err(e) = self.may_want(user, &wanted) {
            return self.deny(user, wanted, e);
        }
        // Whoever has been taken out of the group since is none any more: what was said of the user before does not count.
        if !matches!(wanted, Wanted::Change(_, Change::Numbers { .. })) {
            self.names.ask_anew(user);
        }
        self.wanted.push((user, wanted));
    }

    fn may_want(&mut self, user: u32, wanted: &Wanted) -> Result<()> {
        if !self.workers.here.get(&user).is_some_and(|worker| worker.admin) {
            return Err(admin::refused());
        }
        if self.wanted.iter().filter(|(other, _)| *other == user).count() >= MOST_WANTED {
            return Err(Error::limit("too much that this user wants to administrate waits")
                .with_hint("try again in a moment"));
        }
        match wanted {
            // It is one of the administrator: whose transfers these are may begin as many as before.
            Wanted::Manage(..) => self.door.may_begin(user),
            Wanted::Change(..) => Ok(()),
        }
    }

    /// Does what administrators want of whom it is known by now that they are some.
    pub(super) fn grant_all(&mut self) {
        for (user, wanted) in std::mem::take(&mut self.wanted) {
            let found = match self.all {
                true => self.names.who(user).map(|found| found.map(|found| found.is_admin)),
                false => Ok(Some(true)),
            };
            let is_admin = match found {
                Ok(Some(is_admin)) => is_admin,
                Ok(None) => {
                    self.wanted.push((user, wanted));
                    continue;
                }
                Err(e) => {
                    self.deny(user, wanted, e);
                    continue;
                }
            };
            let may = self.workers.here.get_mut(&user).is_some_and(|worker| {
                worker.admin &= is_admin;
                worker.admin
            });
            match (may, wanted) {
                (false, wanted) => self.deny(user, wanted, admin::refused()),
                (true, Wanted::Change(ticket, change)) => {
                    let done = self.change(user, change);
                    self.answer(user, ticket, done);
                }
                (true, Wanted::Manage(whose, stream)) => self.manage(user, whose, stream),
            }
        }
    }

    fn deny(&mut self, user: u32, wanted: Wanted, e: Error) {
        match wanted {
            Wanted::Change(ticket, _) => self.answer(user, ticket, Err(e)),
            Wanted::Manage(_, stream) => refuse(&stream, &e),
        }
    }

    /// Says what came of a change.
    fn answer(&mut self, user: u32, ticket: u64, done: Result<Vec<Numbers>>) {
        let (failed, users) = match done {
            Ok(users) => (None, users),
            Err(e) => (Some(Failed::from(&e)), Vec::new()),
        };
        self.tell_all();
        if let Some(worker) = self.workers.here.get(&user) {
            // Who does not hear it asks again.
            let told = Order::Told { ticket, failed, users };
            let _ = control::send(&worker.control, &told, None, false);
        }
    }

    /// Does what the worker of an administrator says. Nothing of it is believed.
    fn change(&mut self, user: u32, change: Change) -> Result<Vec<Numbers>> {
        if let Change::Numbers { from } = change {
            let here = &self.workers.here;
            let running = |user| here.get(&user).map_or(0, |worker| worker.part.running());
            return Ok(self.admins.numbers(from, running));
        }
        self.admins.change(user, &change)?;
        match &change {
            // Whose jobs these were clears up; root makes folders.
            Change::Unjob { .. } => {
                let users: Vec<u32> = self.admins.kept().left.keys().copied().collect();
                users.into_iter().for_each(|user| self.workers.wake(user));
            }
            Change::Put { .. } | Change::Reset { .. } if self.all => self.workers.wake(0),
            _ => {}
        }
        self.workers.here.values_mut().for_each(|worker| worker.stale = true);
        Ok(Vec::new())
    }

    /// Leads a connection of an administrator to the worker of the user whose transfers are looked after.
    fn manage(&mut self, by: u32, user: u32, stream: UnixStream) {
        let own = geteuid().as_raw();
        if !self.all && user != own {
            let message = format!("this daemon serves user {own} only, not {user}");
            return refuse(&stream, &Error::usage(message));
        }
        // No process is started, and no journal made, to say that there is nothing.
        if self.all && !self.workers.here.contains_key(&user) && !self.users().contains(&user) {
            let message = format!("user {user} has no transfers here");
            return refuse(&stream, &Error::new(Kind::NotFound, message));
        }
        let group = getegid().as_raw();
        self.seat(Guest { user, group, from: None, by: Some(by), stream });
    }
}
