//! Ranks of two kinds: those on nodes that have data, and the others.

use crate::exchange::{Crew, different};
use crate::meeting;
use crate::spread::{Here, layouts_of};
use serde::{Deserialize, Serialize};
use stead_core::layout::nodes;
use stead_core::{Cancel, Error, Kind, Result};
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

/// What says which hosts are storage hosts, in place of a list of them: the layouts that are opened, or one that is named behind it.
const LAYOUT: &str = "layout";

/// Which hosts are storage hosts, as users write it.
enum Hosts<'h> {
    /// Those of a list.
    Listed(Vec<String>),
    /// The nodes of the layouts that are opened.
    OfData,
    /// The nodes of a layout that is named.
    Of(&'h str),
}

impl Hosts<'_> {
    fn parse(text: &str) -> Result<Hosts<'_>> {
        match text.strip_prefix(LAYOUT) {
            Some("") => Ok(Hosts::OfData),
            Some(rest) if rest.starts_with(':') => match rest.get(1..).filter(|f| !f.is_empty()) {
                Some(file) => Ok(Hosts::Of(file)),
                None => Err(Error::usage(format!("'{text}' names no layout"))
                    .with_hint(format!("write {LAYOUT}:FILE"))),
            },
            _ => nodes::expand(text).map(Hosts::Listed),
        }
    }
}

/// What a rank says.
#[derive(Default, Serialize, Deserialize)]
struct Said {
    storage: bool,
    host: String,
    /// What roles follow from, as the user wrote it.
    list: Option<String>,
    /// Of the first rank, if roles follow from a layout.
    nodes: Option<Vec<Node>>,
}

/// A node of a layout.
#[derive(Clone, Serialize, Deserialize)]
struct Node {
    name: String,
    /// It has parts that no other node has: they do not lie beside the layout.
    alone: bool,
}

impl Said {
    fn of(role: Role) -> Said {
        Said { storage: role == Role::Storage, ..Said::default() }
    }
}

impl Roles {
    /// Every rank says its own role, or why it has none. All ranks of `fabric` call it.
    ///
    /// # Errors
    /// That of a rank that has none, on all ranks; `Usage` if there is no storage rank, or ranks do different things or run
    /// different versions of stead; `Peer` if a rank is gone.
    pub fn agree(fabric: &dyn Fabric, here: &Here, mine: Result<Role>) -> Result<Roles> {
        Self::said(fabric, here, mine.map(Said::of))
    }

    /// Storage ranks are those on the hosts of a list, such as `node[1-4]` or `a,b`, or with `layout:FILE` those on the nodes of a
    /// layout, which the first rank reads, and others need not see. All ranks of `fabric` call it with the same text.
    ///
    /// # Errors
    /// As [`Roles::agree`]; `Usage` for what is no list, and for hosts that have no rank. Of a layout: that of reading it, `Usage` if no
    /// rank is on any of its nodes, `NotFound` if one of these has no rank.
    pub fn by_hosts(fabric: &dyn Fabric, here: &Here, hosts: &str) -> Result<Roles> {
        Self::of_data(fabric, here, hosts, &[])
    }

    /// As [`Roles::by_hosts`], where the text may be `layout`, too: the layouts that `inputs` name.
    pub(crate) fn of_data(
        fabric: &dyn Fabric,
        here: &Here,
        hosts: &str,
        inputs: &[String],
    ) -> Result<Roles> {
        let list = Some(hosts.to_owned());
        let first = fabric.rank() == 0;
        let read = |inputs: &[String]| -> Result<Said> {
            let nodes = first.then(|| nodes_of(inputs)).transpose()?;
            Ok(Said { list: list.clone(), nodes, ..Said::default() })
        };
        let listed = match Hosts::parse(hosts) {
            Ok(Hosts::Listed(listed)) => listed,
            Ok(Hosts::Of(file)) => return Self::said(fabric, here, read(&[file.to_owned()])),
            Ok(Hosts::OfData) if !inputs.is_empty() => {
                return Self::said(fabric, here, read(inputs));
            }
            Ok(Hosts::OfData) => {
                let e = Error::usage(
                    "the storage hosts are to be those of a layout, and none is named",
                );
                return Self::said(fabric, here, Err(e.with_hint("write layout:FILE")));
            }
            Err(e) => return Self::said(fabric, here, Err(e)),
        };
        let storage = listed.iter().any(|n| nodes::is_host(n, &here.host));
        let roles = Self::said(fabric, here, Ok(Said { storage, list, ..Said::default() }))?;
        let missing = roles.without_rank(listed.iter().map(String::as_str));
        if missing.is_empty() {
            return Ok(roles);
        }
        let (host, has) = if missing.len() == 1 { ("host", "has") } else { ("hosts", "have") };
        let list = nodes::fold(&missing);
        Err(Error::usage(format!("{host} {list} {has} no rank: {}", there_are(&roles.hosts)))
            .with_hint("start a rank on each storage host: mpirun --host HOST,..."))
    }

    fn said(fabric: &dyn Fabric, here: &Here, mine: Result<Said>) -> Result<Roles> {
        let mut crew = Crew::new(fabric, &Cancel::new(), None);
        crew.host.clone_from(&here.host);
        let said = mine.and_then(|said| {
            let said = Said { host: here.host.clone(), ..said };
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
        let nodes = said.first().and_then(|s| s.nodes.clone());
        let storage = |s: &Said| match &nodes {
            Some(nodes) => nodes.iter().any(|n| nodes::is_host(&n.name, &s.host)),
            None => s.storage,
        };
        let of = |s: &Said| if storage(s) { Role::Storage } else { Role::Compute };
        let of: Vec<Role> = said.iter().map(of).collect();
        let all = |role: Role| (0..of.len()).filter(|r| of[*r] == role).collect::<Vec<_>>();
        let (storage, compute) = (all(Role::Storage), all(Role::Compute));
        let hosts: Vec<String> = said.into_iter().map(|s| s.host).collect();
        if storage.is_empty() {
            return Err(match (&nodes, &first) {
                (Some(nodes), _) => Error::usage(format!(
                    "no rank is on a node of the layout: its parts are on {}, and {}",
                    some(nodes.iter().map(|n| n.name.as_str())),
                    there_are(&hosts)
                )),
                (None, Some(list)) => Error::usage(format!(
                    "no rank is on a storage host: {list} was named, and {}",
                    there_are(&hosts)
                )),
                (None, None) => Error::usage("no rank is a storage rank"),
            }
            .with_hint("start at least one rank where the data are, and say so on all ranks"));
        }
        let roles = Roles { storage, compute, of, hosts };
        let alone = nodes.iter().flatten().filter(|n| n.alone).map(|n| n.name.as_str());
        let missing = roles.without_rank(alone);
        if missing.is_empty() {
            return Ok(roles);
        }
        let (node, has) = if missing.len() == 1 { ("node", "has") } else { ("nodes", "have") };
        let list = some(missing.iter().map(String::as_str));
        let e = format!("{node} {list} {has} parts of the layout, and no rank");
        Err(Error::new(Kind::NotFound, format!("{e}: {}", there_are(&roles.hosts)))
            .with_hint("start a rank on each node that has parts: mpirun --host NODE,..."))
    }

    /// Nodes on which no rank is.
    fn without_rank<'n>(&self, nodes: impl Iterator<Item = &'n str>) -> Vec<String> {
        let known = |n: &&str| self.hosts.iter().any(|h| nodes::is_host(n, h));
        nodes.filter(|n| !known(n)).map(str::to_owned).collect()
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

/// Refuses what says of no hosts that they are storage hosts.
///
/// # Errors
/// `Usage` for what is neither a list of hosts nor `layout` nor `layout:FILE`.
pub fn check_hosts(text: &str) -> Result<()> {
    Hosts::parse(text).map(drop)
}

/// True if the storage hosts are the nodes of the layouts that are opened.
pub(crate) fn are_of_data(text: &str) -> bool {
    text == LAYOUT
}

/// The nodes of layouts, each once.
fn nodes_of(inputs: &[String]) -> Result<Vec<Node>> {
    let mut all = std::collections::BTreeMap::<String, bool>::new();
    for (_, layout) in layouts_of(inputs)? {
        for part in layout.parts() {
            let beside = part.space.is_none() && !part.path.starts_with('/');
            *all.entry(part.node.clone()).or_default() |= !beside;
        }
    }
    Ok(all.into_iter().map(|(name, alone)| Node { name, alone }).collect())
}

/// The hosts of all ranks, each once, as far as they fit into a message.
fn there_are(hosts: &[String]) -> String {
    let first = hosts.first();
    let are = if hosts.iter().all(|h| Some(h) == first) {
        "the ranks are on"
    } else {
        "there are ranks on"
    };
    format!("{are} {}", some(hosts.iter().map(String::as_str)))
}

/// Hosts, each once, as far as they fit into a message.
fn some<'h>(hosts: impl Iterator<Item = &'h str>) -> String {
    let mut all: Vec<&str> = Vec::new();
    for host in hosts {
        if !all.contains(&host) && all.len() <= NAMED {
            all.push(host);
        }
    }
    let more = if all.len() > NAMED { ", and others" } else { "" };
    all.truncate(NAMED);
    format!("{}{more}", nodes::fold(&all))
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

    #[test]
    fn storage_ranks_are_those_on_the_nodes_of_a_layout() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f.stead-layout.toml");
        let write = |parts: &[(&str, &str)]| {
            let part = |(node, path): &(&str, &str)| {
                format!("{{ node = \"{node}\", path = \"{path}\", length = 1 }},\n")
            };
            let n = parts.len();
            let parts: String = parts.iter().map(part).collect();
            let text = format!("name = \"f\"\nlength = {n}\nstripe = 1\nparts = [\n{parts}]\n");
            std::fs::write(&file, format!("version = 1\n{text}")).unwrap();
        };
        let hosts = ["h1", "n2.x", "h2", "n1", "n2.x"];
        let told = |list: &str, says: &str, kind: Kind| {
            for e in by_hosts(&hosts, list) {
                let e = e.unwrap_err();
                assert!(e.kind() == kind && e.to_string().contains(says), "{e}");
            }
        };
        let layout = format!("layout:{}", file.display());
        told(&layout, "f.stead-layout.toml", Kind::NotFound);
        write(&[("n1", "/a"), ("n2", "/b"), ("n1", "/c")]);
        // The name of the file stands for its layout, where the file is not.
        for list in [layout.as_str(), layout.strip_suffix(".stead-layout.toml").unwrap()] {
            for roles in by_hosts(&hosts, list) {
                let roles = roles.unwrap();
                assert_eq!((roles.storage(), roles.compute()), (&[1, 3, 4][..], &[0, 2][..]));
            }
        }
        // Parts beside the layout are read by others where their node has no rank.
        write(&[("n1", "/a"), ("m1", "b")]);
        assert!(by_hosts(&hosts, &layout).into_iter().all(|r| r.unwrap().storage() == [3]));
        write(&[("n1", "/a"), ("m1", "/b"), ("m2", "/b")]);
        told(&layout, "nodes m[1-2] have parts of the layout, and no rank", Kind::NotFound);
        write(&[("m1", "/a"), ("m2", "b")]);
        told(&layout, "its parts are on m[1-2], and there are ranks on h", Kind::Usage);
        std::fs::write(&file, "version = 1\nnonsense").unwrap();
        told(&layout, "f.stead-layout.toml", Kind::Format);
        told("layout:", "names no layout", Kind::Usage);
        told("layout", "none is named", Kind::Usage);
        told("layout:/etc/passwd", "is none", Kind::Usage);
        // A host may be called so.
        assert!(
            by_hosts(&["layout7", "h"], "layout7").into_iter().all(|r| r.unwrap().storage() == [0])
        );
    }
}
