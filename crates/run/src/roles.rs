//! Ranks of two kinds: those on nodes that have data, and the others.

use crate::exchange::{Crew, different};
use crate::meeting;
use crate::spread::Here;
use serde::{Deserialize, Serialize};
use stead_core::layout::nodes;
use stead_core::{Cancel, Error, Result};
use stead_fabric::Fabric;

/// What a rank is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It asks.
    Compute,
    /// It is where data are.
    Storage,
}

/// The role and the host of each rank, the same on all of them. There is at least one storage rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles {
    storage: Vec<usize>,
    compute: Vec<usize>,
    of: Vec<Role>,
    hosts: Vec<String>,
}

/// What the words of this step begin with: ranks that do something else are told so.
const MARK: &[u8] = b"role";

/// Hosts that an error names.
const NAMED: usize = 16;

/// What a rank says.
#[derive(Serialize, Deserialize)]
struct Said {
    storage: bool,
    host: String,
    /// The list by which roles follow from hosts.
    list: Option<String>,
}

impl Roles {
    /// Every rank says its own role, or why it has none. All ranks of `fabric` call it.
    ///
    /// # Errors
    /// That of a rank that has none, on all ranks; `Usage` if there is no storage rank, or ranks do different things or run
    /// different versions of stead; `Peer` if a rank is gone.
    pub fn agree(fabric: &dyn Fabric, here: &Here, mine: Result<Role>) -> Result<Roles> {
        Self::said(fabric, here, mine.map(|role| (role, None)))
    }

    /// Storage ranks are those on the hosts of a list, such as `node[1-4]` or `a,b`. All ranks of `fabric` call it with the
    /// same list.
    ///
    /// # Errors
    /// As [`Roles::agree`]; `Usage` for what is no list, and for hosts that have no rank.
    pub fn by_hosts(fabric: &dyn Fabric, here: &Here, hosts: &str) -> Result<Roles> {
        let listed = nodes::expand(hosts);
        let mine = listed.as_ref().map(|listed| {
            if listed.iter().any(|n| nodes::is_host(n, &here.host)) {
                Role::Storage
            } else {
                Role::Compute
            }
        });
        let Ok(mine) = mine else {
            let why = listed.err().unwrap_or_else(different);
            return Self::said(fabric, here, Err(why));
        };
        let roles = Self::said(fabric, here, Ok((mine, Some(hosts.to_owned()))))?;
        let known = |n: &&String| roles.hosts.iter().any(|h| nodes::is_host(n, h));
        let missing: Vec<String> = listed?.iter().filter(|n| !known(n)).cloned().collect();
        if missing.is_empty() {
            return Ok(roles);
        }
        let (host, has) = if missing.len() == 1 { ("host", "has") } else { ("hosts", "have") };
        let list = nodes::fold(&missing);
        Err(Error::usage(format!("{host} {list} {has} no rank: {}", there_are(&roles.hosts)))
            .with_hint("start a rank on each storage host: mpirun --host HOST,..."))
    }

    fn said(
        fabric: &dyn Fabric,
        here: &Here,
        mine: Result<(Role, Option<String>)>,
    ) -> Result<Roles> {
        let mut crew = Crew::new(fabric, &Cancel::new(), None);
        crew.host.clone_from(&here.host);
        let said = mine.and_then(|(role, list)| {
            let said = Said { storage: role == Role::Storage, host: here.host.clone(), list };
            let said = postcard::to_stdvec(&said)
                .map_err(|e| Error::internal(format!("cannot encode a role: {e}")))?;
            Ok(vec![MARK.to_vec(), said])
        });
        let mut join = |mut a: Vec<Vec<u8>>, b: Vec<Vec<u8>>| {
            let mut b = b.into_iter();
            if b.next().as_deref() != Some(MARK) || a.first().map(Vec::as_slice) != Some(MARK) {
                return Err(different());
            }
            a.extend(b);
            Ok(a)
        };
        let words = crew.words(meeting::NAME, said, &mut join)?;
        let malformed = || Error::format("what a rank says that it is for is malformed");
        let said = words.iter().skip(1).map(|w| postcard::from_bytes::<Said>(w));
        let said: Vec<Said> =
            said.collect::<std::result::Result<_, _>>().map_err(|_| malformed())?;
        if said.len() != crew.size() {
            return Err(malformed());
        }
        let first = said.first().and_then(|s| s.list.clone());
        if let Some(other) = said.iter().position(|s| s.list != first) {
            return Err(Error::usage(format!(
                "ranks 0 and {other} were given different storage hosts"
            ))
            .with_hint("all ranks name the same ones"));
        }
        let of = |s: &Said| if s.storage { Role::Storage } else { Role::Compute };
        let of: Vec<Role> = said.iter().map(of).collect();
        let all = |role: Role| (0..of.len()).filter(|r| of[*r] == role).collect::<Vec<_>>();
        let (storage, compute) = (all(Role::Storage), all(Role::Compute));
        let hosts: Vec<String> = said.into_iter().map(|s| s.host).collect();
        if storage.is_empty() {
            return Err(match &first {
                Some(list) => Error::usage(format!(
                    "no rank is on a storage host: {list} was named, and {}",
                    there_are(&hosts)
                )),
                None => Error::usage("no rank is a storage rank"),
            }
            .with_hint("start at least one rank where the data are, and say so on all ranks"));
        }
        Ok(Roles { storage, compute, of, hosts })
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.of.len()
    }

    /// The storage ranks, in ascending order.
    pub fn storage(&self) -> &[usize] {
        &self.storage
    }

    /// The compute ranks, in ascending order.
    pub fn compute(&self) -> &[usize] {
        &self.compute
    }

    /// What a rank is for; one that there is not is for nothing but to ask.
    pub fn of(&self, rank: usize) -> Role {
        self.of.get(rank).copied().unwrap_or(Role::Compute)
    }

    /// The name of a rank's host; nothing for a rank that there is not.
    pub fn host(&self, rank: usize) -> &str {
        self.hosts.get(rank).map_or("", String::as_str)
    }

    /// An error with the name of the host of the rank that it is about: the one by which hosts are named here.
    pub fn named(&self, e: Error) -> Error {
        match e.place().rank.and_then(|r| self.hosts.get(r)) {
            Some(host) => e.at_host(host),
            None => e,
        }
    }
}

/// The hosts of all ranks, each once, as far as they fit into a message.
fn there_are(hosts: &[String]) -> String {
    let mut all: Vec<&str> = Vec::new();
    for host in hosts {
        if !all.contains(&host.as_str()) && all.len() <= NAMED {
            all.push(host);
        }
    }
    let more = if all.len() > NAMED { ", and others" } else { "" };
    all.truncate(NAMED);
    let are = if all.len() == 1 { "the ranks are on" } else { "there are ranks on" };
    format!("{are} {}{more}", nodes::fold(&all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_core::Kind;
    use stead_fabric::Local;

    /// What ranks on these hosts agree on.
    fn each(
        hosts: &[&str],
        work: impl Fn(&dyn Fabric, &Here) -> Result<Roles> + Sync,
    ) -> Vec<Result<Roles>> {
        std::thread::scope(|scope| {
            let work = &work;
            let rank = |(fabric, host): (Local, &&str)| {
                let here = Here { host: host.to_string(), folder: None };
                scope.spawn(move || work(&fabric, &here))
            };
            let all: Vec<_> = Local::group(hosts.len()).into_iter().zip(hosts).map(rank).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    fn by_hosts(hosts: &[&str], list: &str) -> Vec<Result<Roles>> {
        each(hosts, |fabric, here| Roles::by_hosts(fabric, here, list))
    }

    #[test]
    fn all_ranks_know_who_is_where_and_what_for() {
        for (hosts, list, storage) in [
            (vec!["a", "b", "a", "c"], "b,c", vec![1, 3]),
            (vec!["n1.x.y", "n2.x.y", "n3.x.y"], "n[1-2]", vec![0, 1]),
            (vec!["a"], "a", vec![0]),
        ] {
            for roles in by_hosts(&hosts, list) {
                let roles = roles.unwrap();
                assert_eq!(roles.storage(), storage);
                let rest: Vec<usize> = (0..hosts.len()).filter(|r| !storage.contains(r)).collect();
                assert_eq!((roles.compute(), roles.size()), (&rest[..], hosts.len()));
                for (rank, host) in hosts.iter().enumerate() {
                    assert_eq!(roles.host(rank), *host);
                    let is = roles.of(rank) == Role::Storage;
                    assert_eq!(is, storage.contains(&rank));
                }
                assert_eq!((roles.of(99), roles.host(99)), (Role::Compute, ""));
            }
        }
        let odd = |rank: usize| if rank % 2 == 1 { Role::Storage } else { Role::Compute };
        for roles in each(&["a"; 5], |f, here| Roles::agree(f, here, Ok(odd(f.rank())))) {
            assert_eq!(roles.unwrap().storage(), [1, 3]);
        }
    }

    #[test]
    fn what_makes_no_sense_is_told_to_all() {
        for (hosts, list, says) in [
            (
                vec!["a", "b"],
                "c",
                "no rank is on a storage host: c was named, and there are ranks on a,b",
            ),
            (
                vec!["a1", "a2", "a2"],
                "a[2-4]",
                "hosts a[3-4] have no rank: there are ranks on a[1-2]",
            ),
            (vec!["a", "a"], "b", "the ranks are on a"),
            (vec!["a", "a"], "a[", "bracket"),
            (vec!["a", "a"], "", "is not the name of a node"),
        ] {
            for e in by_hosts(&hosts, list) {
                let e = e.unwrap_err();
                assert!(e.kind() == Kind::Usage && e.message().contains(says), "{e}");
                assert!(e.hint().is_some());
            }
        }
        let none = |f: &dyn Fabric, here: &Here| Roles::agree(f, here, Ok(Role::Compute));
        for e in each(&["a"; 3], none) {
            assert!(e.unwrap_err().message().contains("no rank is a storage rank"));
        }
        let one = |f: &dyn Fabric, here: &Here| {
            let mine = if f.rank() == 1 { Err(Error::usage("odd")) } else { Ok(Role::Storage) };
            Roles::agree(f, here, mine)
        };
        for e in each(&["a"; 3], one) {
            assert_eq!(e.unwrap_err().message(), "odd");
        }
        let lists = |f: &dyn Fabric, here: &Here| {
            Roles::by_hosts(f, here, if f.rank() == 2 { "b,a" } else { "a,b" })
        };
        for e in each(&["a", "b", "a"], lists) {
            let e = e.unwrap_err();
            assert!(e.message().contains("ranks 0 and 2 were given different"), "{e}");
        }
        // Ranks that do something else altogether.
        let mixed = |f: &dyn Fabric, here: &Here| match f.rank() {
            0 => Roles::agree(f, here, Ok(Role::Storage)),
            _ => crate::agree(f, Ok(())).and(Err(Error::internal("it went well"))),
        };
        for e in each(&["a"; 2], mixed) {
            assert!(e.unwrap_err().message().contains("ranks do different things"));
        }
    }
}
