//! What administrators have said of the node, and what workers have told of their work.

use super::sharing::Tiers;
use crate::admin::{self, Change, Kept, Numbers};
use crate::log::log;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use stead_core::Result;

/// Where that is kept which administrators say, below the state.
pub(super) const KEPT: &str = "admin.json";
/// Users whose numbers fit into a packet.
const MOST_NUMBERS: usize = 16;
/// Dataspaces whose transfers are told of in one.
const MOST_COUNTED: usize = 256;

pub(super) struct Admins {
    path: PathBuf,
    kept: Kept,
    /// Of the dataspaces of the node, what their users share.
    tiers: Tiers,
    /// What workers have told of their work, also of those that have ended.
    numbers: BTreeMap<u32, Numbers>,
    /// Bytes that are still to come of each user in dataspaces with a quota, also of those whose workers have ended: what was interrupted
    /// goes on.
    coming: BTreeMap<u32, BTreeMap<String, u64>>,
}

impl Admins {
    /// # Errors
    /// Those of reading what was said before.
    pub(super) fn open(path: PathBuf) -> Result<Admins> {
        let kept = Kept::read(&path)?;
        let (tiers, numbers, coming) = Default::default();
        let mut admins = Admins { path, kept, tiers, numbers, coming };
        admins.look();
        Ok(admins)
    }

    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    pub(super) fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    /// Looks what is agreed about the dataspaces of the node: the file of the system may be another one by now.
    pub(super) fn look(&mut self) {
        // Where they are is different for each user, and nothing that is looked at here.
        match admin::of_system(&self.kept, &|_| None) {
            Ok(spaces) => {
                let all = spaces.names().filter_map(|name| Some((name, spaces.terms(name)?)));
                let mut tiers = Tiers::default();
                for (name, terms) in all {
                    if let Some(n) = terms.transfers {
                        let n = usize::try_from(n).unwrap_or(usize::MAX);
                        tiers.transfers.insert(name.to_owned(), n);
                    }
                    if let Some(quota) = terms.quota {
                        let most = terms.user_quota.map_or(quota, |most| most.min(quota));
                        tiers.quotas.insert(name.to_owned(), most);
                    }
                    if let Some(limit) = terms.limit {
                        tiers.limits.insert(name.to_owned(), limit);
                    }
                }
                self.tiers = tiers;
            }
            Err(e) => log(&format!("goes on with what was set before: {e}")),
        }
    }

    /// Does what somebody says who was found to be an administrator. Nothing of it is believed.
    ///
    /// # Errors
    /// Those of [`Kept::apply`], and of writing it down.
    pub(super) fn change(&mut self, user: u32, change: &Change) -> Result<()> {
        let mut kept = self.kept.clone();
        kept.apply(change.clone())?;
        kept.write(&self.path)?;
        log(&format!("user {user} has {}", said(change)));
        self.kept = kept;
        self.look();
        Ok(())
    }

    /// A user has nothing left in these dataspaces of jobs.
    pub(super) fn cleared(&mut self, user: u32, dataspaces: &BTreeSet<String>) {
        if self.kept.cleared(user, dataspaces)
            && let Err(e) = self.kept.write(&self.path)
        {
            log(&e.to_string());
        }
    }

    /// A worker has told of its work.
    pub(super) fn note(&mut self, user: u32, numbers: Numbers) {
        self.numbers.insert(user, Numbers { user, ..numbers });
    }

    /// So many bytes of a user are still to come in a dataspace. A worker is believed no more than its user may have there. Gives those of
    /// all others.
    pub(super) fn coming(&mut self, user: u32, name: &str, bytes: u64) -> u64 {
        let Some(most) = self.tiers.quotas.get(name) else { return 0 };
        let own = self.coming.entry(user).or_default();
        own.retain(|name, _| self.tiers.quotas.contains_key(name));
        match bytes {
            0 => own.remove(name),
            _ => own.insert(name.to_owned(), bytes.min(*most)),
        };
        self.coming.retain(|_, own| !own.is_empty());
        let others = self.coming.iter().filter(|(other, _)| **other != user);
        others.filter_map(|(_, own)| own.get(name)).fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// How many transfers are under way in each dataspace in which they share something, of which the node knows.
    pub(super) fn counted<'r>(
        &self,
        running: impl Iterator<Item = (&'r str, usize)>,
    ) -> BTreeMap<String, u64> {
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        for (name, n) in running {
            let known =
                self.tiers.transfers.contains_key(name) || self.tiers.limits.contains_key(name);
            if known && (all.len() < MOST_COUNTED || all.contains_key(name)) {
                *all.entry(name.to_owned()).or_default() += n as u64;
            }
        }
        all
    }

    /// A user's worker has ended.
    pub(super) fn has_ended(&mut self, user: u32) {
        if let Some(numbers) = self.numbers.get_mut(&user) {
            (numbers.connections, numbers.running, numbers.rate) = (0, 0, 0.0);
        }
    }

    /// Numbers of the users from this one on, as many as fit into a packet.
    pub(super) fn numbers(&self, from: u32, running: impl Fn(u32) -> usize) -> Vec<Numbers> {
        let of = |(user, numbers): (&u32, &Numbers)| Numbers {
            user: *user,
            running: running(*user) as u64,
            ..*numbers
        };
        self.numbers.range(from..).take(MOST_NUMBERS).map(of).collect()
    }
}

/// What was done, for the log.
fn said(change: &Change) -> String {
    let shown = |name: &str| name.escape_debug().to_string();
    match change {
        Change::Put { name, keys, new } => {
            let keys = keys.iter().map(|(key, value)| format!("{key}={}", shown(value)));
            let done = if *new { "added" } else { "changed" };
            format!("{done} dataspace '{}': {}", shown(name), keys.collect::<Vec<_>>().join(" "))
        }
        Change::Remove { name } => format!("removed dataspace '{}'", shown(name)),
        Change::Reset { name } => format!("forgotten what was set of dataspace '{}'", shown(name)),
        Change::Job { job, user, dataspaces } => {
            let names: Vec<String> = dataspaces.iter().map(|name| shown(name)).collect();
            let may = match names.is_empty() {
                true => "no dataspaces".to_owned(),
                false => format!("dataspaces {}", names.join(", ")),
            };
            format!("told of job {} of user {user}, with {may}", shown(job))
        }
        Change::Unjob { job } => format!("told that job {} is over", shown(job)),
        Change::Process { job, pid, .. } => {
            format!("told that process {pid} is of job {}", shown(job))
        }
        Change::Unprocess { pid } => format!("told that process {pid} is of no job"),
        Change::Drained(true) => "drained the node".to_owned(),
        Change::Drained(false) => "opened the node".to_owned(),
        Change::Numbers { from } => format!("asked for numbers from user {from} on"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_in_words_what_was_done() {
        let keys = [("path".to_owned(), "/nv".to_owned()), ("quota".to_owned(), "1TB".to_owned())];
        let put =
            |new| Change::Put { name: "nv".into(), keys: keys.clone().into_iter().collect(), new };
        let job = |dataspaces| Change::Job { job: "12".into(), user: 7, dataspaces };
        for (change, words) in [
            (put(true), "added dataspace 'nv': path=/nv quota=1TB"),
            (put(false), "changed dataspace 'nv': path=/nv quota=1TB"),
            (Change::Remove { name: "nv".into() }, "removed dataspace 'nv'"),
            (Change::Reset { name: "nv".into() }, "forgotten what was set of dataspace 'nv'"),
            (
                job(["a".to_owned(), "b".to_owned()].into()),
                "told of job 12 of user 7, with dataspaces a, b",
            ),
            (job(BTreeSet::new()), "told of job 12 of user 7, with no dataspaces"),
            (Change::Unjob { job: "12".into() }, "told that job 12 is over"),
            (
                Change::Process { job: "12".into(), pid: 5, start: 9 },
                "told that process 5 is of job 12",
            ),
            (Change::Unprocess { pid: 5 }, "told that process 5 is of no job"),
            (Change::Drained(true), "drained the node"),
            (Change::Drained(false), "opened the node"),
        ] {
            assert_eq!(said(&change), words);
        }
    }
}
