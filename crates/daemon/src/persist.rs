//! What users keep and share: by the daemon of the node, or without one in this process.

use crate::client::Client;
use crate::rights;
use serde::{Deserialize, Serialize};
use stead_core::{Location, Result};
use stead_stage::{Means, Persisted, Stager, state_folder};
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

/// Keeps or shares something, or says what is: by the daemon of this node, or in this process if there is none. Gives what there is, if
/// that is asked.
///
/// # Errors
/// `NotFound`; `Usage` for what makes no sense; `Permission` for what is another user's; those of the journal and of the daemon.
pub fn persist(ask: PersistAsk) -> Result<Vec<Persisted>> {
    let ask = ask.fixed()?;
    if let Some(mut daemon) = Client::connect()? {
        return daemon.persist(ask);
    }
    let means = Means { spaces: space::of_user()?, ..Means::default() };
    by(&Stager::open(&state_folder()?, means)?, ask)
}
