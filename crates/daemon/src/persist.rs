//! What users keep and share: by the daemon of the node, or without one in this process.

use crate::client::Client;
use crate::rights;
use serde::{Deserialize, Serialize};
use std::path::Path;
use stead_core::{Error, Kind, Location, Result};
use stead_stage::{Means, Persisted, Stager, dataspace_of, is_cleared, state_folder};
use stead_store::space;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum PersistAsk {
    /// Keep something: the end of a job does not remove it, nor that of its time.
    Store {
        /// What.
        location: Location,
        /// For so long from now on; none is for ever.
        #[serde(default)]
        seconds: Option<u64>,
    },
    /// Keep it no longer.
    Delete {
        /// What.
        location: Location,
    },
    /// Let a user read it.
    Share {
        /// What.
        location: Location,
        /// Whom: a name or a number.
        user: String,
    },
    /// Let a user read it no longer.
    Unshare {
        /// What.
        location: Location,
        /// Whom: a name or a number.
        user: String,
    },
    /// What is kept and shared?
    List {},
}

impl PersistAsk {
    /// The same, whatever the folder is in which it is asked.
    pub(crate) fn fixed(self) -> Result<PersistAsk> {
        let fixed = |location: Location| stead_stage::fixed_location(&location);
        Ok(match self {
            PersistAsk::Store { location, seconds } => {
                PersistAsk::Store { location: fixed(location)?, seconds }
            }
            PersistAsk::Delete { location } => PersistAsk::Delete { location: fixed(location)? },
            PersistAsk::Share { location, user } => {
                PersistAsk::Share { location: fixed(location)?, user }
            }
            PersistAsk::Unshare { location, user } => {
                PersistAsk::Unshare { location: fixed(location)?, user }
            }
            PersistAsk::List {} => PersistAsk::List {},
        })
    }

    /// The same by the path of what it is about, for somebody who may have other dataspaces.
    fn by_path(&self, path: &str) -> PersistAsk {
        let mut ask = self.clone();
        if let PersistAsk::Store { location, .. }
        | PersistAsk::Delete { location }
        | PersistAsk::Unshare { location, .. } = &mut ask
        {
            *location = Location { space: None, path: path.to_owned(), ..location.clone() };
        }
        ask
    }

    /// What it is about.
    pub(crate) fn location(&self) -> Option<&Location> {
        match self {
            PersistAsk::Store { location, .. }
            | PersistAsk::Delete { location }
            | PersistAsk::Share { location, .. }
            | PersistAsk::Unshare { location, .. } => Some(location),
            PersistAsk::List {} => None,
        }
    }
}

/// Does what is asked by a journal; gives what there is, if that is asked.
///
/// # Errors
/// Those of [`Stager::persist`] and its kin; `Usage` for users that there are not.
pub(crate) fn by(stager: &Stager, ask: PersistAsk) -> Result<Vec<Persisted>> {
    match ask {
        PersistAsk::Store { location, seconds } => stager.persist(&location, seconds)?,
        PersistAsk::Delete { location } => stager.forget(&location)?,
        PersistAsk::Share { location, user } => stager.share(&location, rights::user(&user)?)?,
        PersistAsk::Unshare { location, user } => {
            stager.unshare(&location, rights::user(&user)?)?;
        }
        PersistAsk::List {} => return stager.persisted(),
    }
    Ok(Vec::new())
}

/// Keeps or shares something, or says what is: by the daemons of this node, and in this process if the user has none. What is kept all of
/// them are told, as each removes what it does not know to be kept. Gives what there is, if that is asked.
///
/// # Errors
/// `NotFound`, also of the daemon of the system where that is the one that would have to know what is kept; `Usage` for what makes no sense;
/// `Permission` for what is another user's; those of the journal and of the daemon.
pub fn persist(ask: PersistAsk) -> Result<Vec<Persisted>> {
    let ask = ask.fixed()?;
    let daemons = Client::all()?;
    let own = || {
        let means = Means { spaces: space::of_user()?, ..Means::default() };
        Stager::open(&state_folder()?, means)
    };
    let named = !daemons.is_empty() && space::variable("STEAD_SOCKET").is_some();
    let (of_system, of_user) = (
        daemons.iter().any(Client::is_of_system),
        daemons.iter().any(|daemon| !daemon.is_of_system()),
    );
    let mut all: Vec<Knows> = daemons.into_iter().map(Box::new).map(Knows::Daemon).collect();
    if named {
        return told(&mut all, ask);
    }
    let stores = matches!(ask, PersistAsk::Store { .. });
    if let PersistAsk::Store { location, .. } = &ask
        && !of_system
    {
        let system = space::of_system(&space::variable)?;
        let path = stead_stage::path_of(&space::of_user()?, location)?;
        if let Some(name) = dataspace_of(&system, Path::new(&path), &is_cleared) {
            return Err(away(name));
        }
    }
    if !of_user {
        match own() {
            Ok(journal) => all.insert(0, Knows::Journal(Box::new(journal))),
            // Who can have none has no daemon that would look into it. One that is there and cannot be written to is another matter.
            Err(e) if of_system && !(stores && has_one(&e)) => {}
            Err(e) => return Err(e),
        }
    }
    told(&mut all, ask)
}

/// Who knows what a user keeps.
enum Knows {
    Daemon(Box<Client>),
    /// That of the user's own daemon, should there be one some day.
    Journal(Box<Stager>),
}

impl Knows {
    fn persist(&mut self, ask: PersistAsk) -> Result<Vec<Persisted>> {
        match self {
            Knows::Daemon(client) => client.persist(ask),
            Knows::Journal(stager) => by(stager, ask),
        }
    }

    fn list(&mut self) -> Result<Vec<Persisted>> {
        self.persist(PersistAsk::List {})
    }

    /// True of the user's own, there or to come.
    fn is_own(&self) -> bool {
        match self {
            Knows::Daemon(client) => !client.is_of_system(),
            Knows::Journal(_) => true,
        }
    }

    /// As it was said; who does not know it by that name, as dataspaces may be a user's own, knows it by its path.
    fn told(&mut self, ask: &PersistAsk, path: Option<&str>) -> Result<Vec<Persisted>> {
        match (self.persist(ask.clone()), path) {
            (Err(e), Some(path)) if matches!(e.kind(), Kind::Usage | Kind::NotFound) => {
                // What is wrong with what was said is told as it was.
                self.persist(ask.by_path(path)).map_err(|_| e)
            }
            (done, _) => done,
        }
    }
}

/// Tells all of them.
fn told(all: &mut [Knows], ask: PersistAsk) -> Result<Vec<Persisted>> {
    let none = || Error::internal("nobody knows what is kept");
    if matches!(ask, PersistAsk::Share { .. }) {
        // A daemon notes it, if there is one.
        let last = all.len().saturating_sub(1);
        let daemon = all.iter().position(|one| matches!(one, Knows::Daemon(_))).unwrap_or(last);
        return all.get_mut(daemon).ok_or_else(none)?.persist(ask);
    }
    let (first, others) = all.split_first_mut().ok_or_else(none)?;
    if others.is_empty() {
        return first.persist(ask);
    }
    if matches!(ask, PersistAsk::List {}) {
        let mut list = first.list()?;
        for other in others {
            merge(&mut list, other.list()?);
        }
        return Ok(list);
    }
    let path = path_of(&ask, first, others)?;
    let stores = matches!(ask, PersistAsk::Store { .. });
    let mut done = Vec::with_capacity(1 + others.len());
    for one in std::iter::once(first).chain(others) {
        done.push((one.told(&ask, path.as_deref()), one.is_own()));
    }
    // To let go of it one is enough that knew it; and a dataspace that the daemon of the system alone knows is none that an own one clears.
    let one_has = done.iter().any(|(done, _)| done.is_ok());
    let failed = |(done, is_own): &(Result<Vec<Persisted>>, bool)| {
        let knew_not = |e: &Error| matches!(e.kind(), Kind::Usage | Kind::NotFound);
        done.as_ref().is_err_and(|e| !(one_has && (!stores || *is_own) && knew_not(e)))
    };
    match done.into_iter().find(failed) {
        Some((failed, _)) => failed,
        None => Ok(Vec::new()),
    }
}

/// True if there is a journal that cannot be written to just now.
fn has_one(e: &Error) -> bool {
    matches!(e.kind(), Kind::NoSpace | Kind::Timeout | Kind::Limit | Kind::Format)
}

/// Where something lies that may be gone: then as they know it.
fn path_of(ask: &PersistAsk, first: &mut Knows, others: &mut [Knows]) -> Result<Option<String>> {
    let Some(location) = ask.location() else { return Ok(None) };
    if let Ok(path) = stead_stage::path_of(&space::of_user()?, location) {
        return Ok(Some(path));
    }
    let said = location.to_string();
    for one in std::iter::once(first).chain(others) {
        if let Some(known) = one.list()?.into_iter().find(|known| known.location == said) {
            return Ok(Some(known.path));
        }
    }
    Ok(None)
}

/// Says that who would have to know it is not there.
fn away(name: &str) -> Error {
    let message = format!(
        "the daemon of the system removes what is over in dataspace '{name}', and is not there to be told what is kept: none listens at '{}'",
        crate::socket::SYSTEM
    );
    Error::new(Kind::NotFound, message).with_hint("have it started: systemctl start steadd")
}

/// What two daemons know: of the same path the first one's words, and what either does.
fn merge(list: &mut Vec<Persisted>, other: Vec<Persisted>) {
    for one in other {
        match list.iter_mut().find(|known| known.path == one.path) {
            None => list.push(one),
            Some(known) => {
                if !known.kept {
                    (known.kept, known.until, known.left) = (one.kept, one.until, one.left);
                }
                known.shared.extend(one.shared);
                known.shared.sort_unstable();
                known.shared.dedup();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_daemons_know_is_told_once() {
        let one = |path: &str, kept: bool, shared: &[u32]| Persisted {
            location: format!("s:/{path}"),
            path: path.to_owned(),
            kept,
            until: None,
            left: None,
            shared: shared.to_vec(),
        };
        let mut list = vec![one("/a", false, &[7]), one("/b", true, &[])];
        merge(&mut list, vec![one("/a", true, &[3, 7]), one("/c", true, &[])]);
        assert_eq!(list, [one("/a", true, &[3, 7]), one("/b", true, &[]), one("/c", true, &[])]);
    }
}
