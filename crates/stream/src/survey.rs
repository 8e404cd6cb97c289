//! Streams of this node and of others, for those who look after them: which there are, what there is to know of one, who will get what
//! from whom, and the end of one that nobody wants.
//!
//! Nodes are asked at the same time, as many as a few threads can, by one connection each. One that does not answer in time is named, and
//! spoils nothing of what the others say.

use crate::clock;
use crate::describe::{Description, Shown};
use crate::explain::Explanation;
use crate::home::{Home, check_name};
use crate::line::Line;
use crate::options::{Patience, Stop};
use crate::pool::{MOST_NODES, Names, Nodes, Way};
use crate::recorded;
use crate::several::each;
use crate::share::Share;
use crate::there;
use crate::wire::{self, Ask};
use crate::wired::Wired;
use serde::de::DeserializeOwned;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Error, Kind, Result};

/// How long other nodes are waited for, unless somebody says otherwise.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// So long it is waited where there are too many connections.
const FULL: Duration = Duration::from_millis(50);

/// Whose streams are told of, or removed: those of this node, and of other nodes of a pool.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The dataspaces, of which `memory` is where streams of this node lie.
    pub spaces: Spaces,
    /// The other nodes; none are asked without.
    pub nodes: Option<Arc<dyn Nodes>>,
    /// If it names some, of these nodes alone is told, of which this one may be one.
    pub only: Vec<String>,
    /// How long other nodes are waited for.
    pub timeout: Duration,
    /// What ends that before.
    pub stop: Stop,
}

impl Default for Survey {
    fn default() -> Self {
        Survey {
            spaces: Spaces::default(),
            nodes: None,
            only: Vec::new(),
            timeout: ANSWERS_WITHIN,
            stop: Stop::default(),
        }
    }
}

/// A node of which nothing is told, or not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missed {
    /// Which one; `None` if it is not known which others there are.
    pub node: Option<String>,
    /// Why.
    pub error: String,
}

impl Missed {
    /// A node that has answered by an error.
    fn of(node: Option<String>, error: &Error) -> Missed {
        let node = Some(node.unwrap_or_else(|| "here".to_owned()));
        Missed { node, error: error.to_string() }
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "nothing of node {node}: {}", self.error),
            None => write!(f, "other nodes were not asked: {}", self.error),
        }
    }
}

/// A stream of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The node; `None` where it has no name, as there is no pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// What nodes have told.
#[derive(Debug)]
pub struct Surveyed<T> {
    /// What was found.
    pub found: Vec<T>,
    /// Nodes that have not answered.
    pub missed: Vec<Missed>,
}

/// As a list: what was found, and then the nodes that have not answered.
impl<T: Serialize> Serialize for Surveyed<T> {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        let mut all = s.serialize_seq(Some(self.found.len() + self.missed.len()))?;
        self.found.iter().try_for_each(|one| all.serialize_element(one))?;
        self.missed.iter().try_for_each(|one| all.serialize_element(one))?;
        all.end()
    }
}

/// What there is to know of a stream, from each node that has writers of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Descriptions {
    /// What this node tells, or the first one that has it.
    #[serde(flatten)]
    pub first: Description,
    /// What the others tell.
    pub others: Vec<Description>,
    /// Nodes that have not answered.
    pub missed: Vec<Missed>,
}

/// What this node and others have answered.
struct Answers<T> {
    /// This one, and its name, if it was asked.
    here: Option<(Option<String>, Result<T>)>,
    /// The others, in the order of their names.
    there: Vec<(String, T)>,
    missed: Vec<Missed>,
}

impl<T> Answers<T> {
    /// How many nodes were asked.
    fn count(&self) -> usize {
        self.there.len() + self.missed.len() + usize::from(self.here.is_some())
    }
}

impl Survey {
    /// The streams there are, by their names and nodes.
    ///
    /// # Errors
    /// Those of this node, as of [`Home::list`]; `NotFound` for a node that there is not, and those of asking if nodes are named; that of
    /// what ends the wait.
    pub fn list(&self) -> Result<Surveyed<Listed>> {
        let answers = self.ask(Home::list, |node| node.list())?;
        let of = |node: Option<String>, names: Vec<String>| {
            names.into_iter().map(move |name| Listed { name, node: node.clone() })
        };
        let mut found = Vec::new();
        if let Some((node, names)) = answers.here {
            found.extend(of(node, names?));
        }
        for (node, names) in answers.there {
            found.extend(of(Some(node), names));
        }
        found.sort();
        Ok(Surveyed { found, missed: answers.missed })
    }

    /// The same, with what there is to know of each, or why it cannot be looked at. One that goes meanwhile may be left out.
    ///
    /// # Errors
    /// As [`Survey::list`].
    pub fn describe_all(&self) -> Result<Surveyed<(Listed, Result<Description>)>> {
        type Each = Vec<(String, Result<Description>)>;
        let is_there = |told: &Result<Description>| {
            told.as_ref().err().is_none_or(|e| e.kind() != Kind::NotFound)
        };
        let here = |home: &Home| -> Result<Each> {
            let all = home.list()?.into_iter().map(|name| (home.describe(&name), name));
            Ok(all.filter(|(told, _)| is_there(told)).map(|(told, name)| (name, told)).collect())
        };
        let there = |node: &Asked<'_>| -> Result<Each> {
            let mut all = Vec::new();
            for name in node.list()? {
                let told = node.describe(&name)?;
                if is_there(&told) {
                    all.push((name, told));
                }
            }
            Ok(all)
        };
        let answers = self.ask(here, there)?;
        let of = |node: Option<String>, all: Each| {
            all.into_iter().map(move |(name, told)| {
                let told = told.map(|told| Description { node: node.clone(), ..told });
                (Listed { name, node: node.clone() }, told)
            })
        };
        let mut found = Vec::new();
        if let Some((node, all)) = answers.here {
            found.extend(of(node, all?));
        }
        for (node, all) in answers.there {
            found.extend(of(Some(node), all));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Surveyed { found, missed: answers.missed })
    }

    /// What there is to know of a stream, or of the steps of one that were [recorded](crate::Written::persist) in a folder, which has a `/` in
    /// its name. Other nodes are not asked where all of the stream is on this one, as by readers.
    ///
    /// # Errors
    /// `NotFound`; `Timeout` if somebody keeps it locked; `Format` for files that are damaged; those of [`Survey::list`].
    pub fn describe(&self, name: &str) -> Result<Descriptions> {
        if recorded::is_location(name) {
            let first = recorded::describe(name, &self.spaces)?;
            return Ok(Descriptions { first, others: Vec::new(), missed: Vec::new() });
        }
        let describe = |home: &Home| optional(home.describe(name));
        let (found, missed) = self.find(
            name,
            describe,
            |node| optional(node.describe(name)?),
            Description::is_whole,
        )?;
        let named = |(node, told): (Option<String>, Description)| Description { node, ..told };
        let mut all = found.into_iter().map(named);
        let first = all.next().ok_or_else(|| none(name))?;
        Ok(Descriptions { first, others: all.collect(), missed })
    }

    /// Who will get what from whom of a step of a stream, of all nodes that have its writers together: see [`Explanation`]. As many readers as
    /// `more` are assumed beside those that are there. Other nodes are not asked where all of the stream is on this one.
    ///
    /// # Errors
    /// As [`Home::explain`]; `Usage` for a folder of recorded steps; those of [`Survey::list`].
    pub fn explain(&self, name: &str, more: u64) -> Result<Explanation> {
        if recorded::is_location(name) {
            let message = format!(
                "'{name}' is recorded, and it is told of live streams who gets what of them"
            );
            return Err(Error::usage(message).with_hint(
                "name a stream that is written or read, or have shown what was recorded: stead stream show",
            ));
        }
        let share = |home: &Home| optional(home.share(name, more));
        let (found, mut missed) =
            self.find(name, share, |node| node.explain(name, more), Share::is_whole)?;
        // The one that a reader finds: two programs may have given a stream the same name.
        let newest = found.iter().map(|(_, share)| (share.is_live, share.created, share.run)).max();
        let run = newest.map_or(0, |(.., run)| run);
        let (mine, others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(_, share)| share.run == run);
        missed.extend(
            others
                .into_iter()
                .map(|(node, _)| Missed { node, error: format!("it has another stream '{name}'") }),
        );
        Ok(Explanation { missed, ..Explanation::of(name, mine) })
    }

    /// Removes a stream from each of these nodes that has one of the name, which may be the same or another one, as [`remove`](crate::remove)
    /// does here: on the others it is done there, with the rights of the same user. What was removed is `found`, and nothing is if there
    /// was none. A node that refuses, or has not answered, is among those `missed`; of the latter it is not known whether it has removed its own.
    ///
    /// Steps that were recorded in a folder are of this node, so that no others may be given then.
    ///
    /// # Errors
    /// As [`remove`](crate::remove), also of another node, if nothing was removed; `NotFound` if there is none where it was
    /// looked, and not all nodes have answered; those of [`Survey::list`].
    pub fn remove(&self, name: &str, force: bool) -> Result<Surveyed<Listed>> {
        let removed = |node| Listed { name: name.to_owned(), node };
        if recorded::is_location(name) {
            if self.nodes.is_some() {
                let message = format!("'{name}' is a folder, and no stream of other nodes");
                return Err(
                    Error::usage(message).with_hint("remove it where it is, without naming nodes")
                );
            }
            let was_there = recorded::remove(name, &self.spaces, force)?;
            let found = was_there.then(|| removed(None)).into_iter().collect();
            return Ok(Surveyed { found, missed: Vec::new() });
        }
        check_name(name)?;
        let answers =
            self.ask(|home| Ok(home.remove(name, force)), |node| node.remove(name, force))?;
        let asked = answers.count();
        let here = answers.here.map(|(node, told)| (node, told.unwrap_or_else(Err)));
        let there = answers.there.into_iter().map(|(node, told)| (Some(node), told));
        let (mut found, mut missed, mut failed) = (Vec::new(), Vec::new(), None);
        for (node, told) in here.into_iter().chain(there) {
            match told {
                Ok(true) => found.push(removed(node)),
                Ok(false) => {}
                Err(e) => {
                    missed.push(Missed::of(node.clone(), &e));
                    failed = failed.or(Some((node, e)));
                }
            }
        }
        missed.extend(answers.missed);
        match failed {
            _ if !found.is_empty() => {}
            Some((node, e)) => {
                let at = node.map_or_else(String::new, |node| format!(" on node {node}"));
                let others = missed.iter().skip(1).filter_map(|missed| missed.node.as_deref());
                let others: Vec<&str> = others.collect();
                return Err(match others.is_empty() {
                    true => e.and(&at),
                    false => e.and(&format!("{at}, nor was one removed on {}", others.join(", "))),
                });
            }
            None if !missed.is_empty() => return Err(nowhere(name, asked, &missed)),
            None => {}
        }
        Ok(Surveyed { found, missed })
    }

    /// What nodes that have a stream say of it, this one first.
    #[allow(clippy::type_complexity)]
    fn find<T: Send>(
        &self,
        name: &str,
        here: impl Fn(&Home) -> Result<Option<T>>,
        there: impl Fn(&Asked<'_>) -> Result<Option<T>> + Sync,
        is_whole: impl Fn(&T) -> bool,
    ) -> Result<(Vec<(Option<String>, T)>, Vec<Missed>)> {
        check_name(name)?;
        // Whoever names nodes is told of these.
        let first = match self.only.is_empty() {
            true => Some(Home::open(&self.spaces).and_then(|home| here(&home))),
            false => None,
        };
        if let Some(Ok(Some(told))) = &first
            && is_whole(told)
        {
            let all = first.and_then(|first| first.ok().flatten()).map(|told| (None, told));
            return Ok((all.into_iter().collect(), Vec::new()));
        }
        let answers = self.ask(|home| first.unwrap_or_else(|| here(home)), there)?;
        let asked = answers.count();
        let (mut found, mut missed, mut failed) = (Vec::new(), answers.missed, None);
        match answers.here {
            Some((node, Ok(told))) => found.extend(told.map(|told| (node, told))),
            Some((node, Err(e))) => failed = Some((node, e)),
            None => {}
        }
        let there = answers.there.into_iter();
        found.extend(there.filter_map(|(node, told)| Some((Some(node), told?))));
        match failed {
            Some((_, e)) if found.is_empty() => return Err(e),
            Some((node, e)) => missed.insert(0, Missed::of(node, &e)),
            None => {}
        }
        if !found.is_empty() {
            return Ok((found, missed));
        }
        Err(nowhere(name, asked, &missed))
    }

    /// Which nodes there are, and why others are not asked.
    fn names(&self, patience: &Patience) -> Result<(Names, Option<Missed>)> {
        let Some(nodes) = &self.nodes else { return Ok((Names::default(), None)) };
        let known = nodes.names(patience).and_then(|names| match names.others.len() {
            0..=MOST_NODES => Ok(names),
            many => Err(Error::limit(format!(
                "{many} nodes are too many to be asked for streams, of which at most {MOST_NODES} are"
            ))
            .with_hint("name those that are to be asked")),
        });
        match known {
            Ok(Names { here, mut others }) => {
                // The only one needs no name.
                let here = here.filter(|_| !others.is_empty() || !self.only.is_empty());
                others.retain(|name| self.only.is_empty() || self.only.contains(name));
                others.sort_unstable();
                others.dedup();
                Ok((Names { here, others }, None))
            }
            Err(e) if nodes.are_named() || e.kind() == Kind::Cancelled => Err(e),
            Err(e) => Ok((Names::default(), Some(Missed { node: None, error: e.to_string() }))),
        }
    }

    fn ask<T: Send>(
        &self,
        here: impl FnOnce(&Home) -> Result<T>,
        there: impl Fn(&Asked<'_>) -> Result<T> + Sync,
    ) -> Result<Answers<T>> {
        let patience = Patience::new(self.timeout, self.stop.clone());
        let (names, unasked) = self.names(&patience)?;
        let is_asked = |name: &String| self.only.contains(name);
        let is_here = self.only.is_empty() || names.here.as_ref().is_some_and(is_asked);
        let mine = || is_here.then(|| Home::open(&self.spaces).and_then(|home| here(&home)));
        let (mine, answers) = match &self.nodes {
            Some(nodes) if !names.others.is_empty() => {
                let ask = |which: usize, patience: &Patience| {
                    let none = || Error::internal("there is no such node");
                    let node = names.others.get(which).ok_or_else(none)?;
                    there(&Asked { line: connect(nodes, node, patience)?, node, patience })
                };
                each(names.others.len(), &patience, ask, mine)?
            }
            _ => (mine(), Vec::new()),
        };
        let mut missed: Vec<Missed> = unasked.into_iter().collect();
        let mut said = Vec::with_capacity(answers.len());
        for (node, answer) in names.others.into_iter().zip(answers) {
            match answer {
                Some(Ok(answer)) => said.push((node, answer)),
                Some(Err(e)) => missed.push(Missed { node: Some(node), error: e.to_string() }),
                None => {
                    let error = silent(&node).to_string();
                    missed.push(Missed { node: Some(node), error });
                }
            }
        }
        Ok(Answers { here: mine.map(|mine| (names.here, mine)), there: said, missed })
    }
}

fn none(name: &str) -> Error {
    Error::new(Kind::NotFound, format!("there is no stream '{name}'"))
}

/// The same of so many nodes that were asked.
fn nowhere(name: &str, asked: usize, missed: &[Missed]) -> Error {
    let none = match asked {
        0 | 1 => none(name),
        many => none(name).and(&format!(" on any of {many} nodes")),
    };
    match missed.first() {
        Some(Missed { error, .. }) => none.and(&format!(", and not all were reached: {error}")),
        None => none,
    }
}

/// What there is not is no error, where it may be elsewhere.
fn optional<T>(told: Result<T>) -> Result<Option<T>> {
    match told {
        Err(e) if e.kind() == Kind::NotFound => Ok(None),
        told => told.map(Some),
    }
}

fn silent(node: &str) -> Error {
    Error::new(Kind::Timeout, format!("node '{node}' has not answered"))
        .with_hint("see whether its daemon is well; a longer timeout can be given")
}

/// A connection to a node, as soon as there may be one more.
fn connect(nodes: &Arc<dyn Nodes>, node: &str, patience: &Patience) -> Result<Wired> {
    loop {
        match nodes.connect(node, 0, Way::Asks, &[], patience) {
            // Others of this user ask as well.
            Err(e) if e.kind() == Kind::Limit && !patience.left().is_zero() => {
                patience.check()?;
                clock::pause(patience.share().min(FULL));
            }
            stream => return Wired::new(stream?, node.to_owned(), wire::MOST_TOLD, None),
        }
    }
}

/// A node that is asked. What it says is checked when it comes.
struct Asked<'a> {
    line: Wired,
    node: &'a str,
    patience: &'a Patience,
}

impl Asked<'_> {
    /// What it answers, which may be an error of its own; that of the connection else.
    fn ask<T: DeserializeOwned>(&self, ask: &Ask) -> Result<Result<T>> {
        self.line.send(wire::encode(ask)?)?;
        let answer = there::hear(&self.line, self.patience)?.ok_or_else(|| silent(self.node))?;
        match wire::heard(&answer) {
            Ok(said) => wire::decode(said).map(Ok),
            Err(e) => Ok(Err(e)),
        }
    }

    fn list(&self) -> Result<Vec<String>> {
        let names: Vec<String> = self.ask(&Ask::List)??;
        // They are shown.
        let odd = |_| wire::astray("what is no name of a stream");
        names.iter().try_for_each(|name| check_name(name)).map_err(odd)?;
        Ok(names)
    }

    fn describe(&self, name: &str) -> Result<Result<Description>> {
        match self.ask::<Shown>(&Ask::Describe(name.to_owned()))? {
            Ok(shown) => shown.told(name, self.node).map(Ok),
            Err(e) => Ok(Err(e)),
        }
    }

    fn explain(&self, name: &str, more: u64) -> Result<Option<Share>> {
        optional(self.ask(&Ask::Explain(name.to_owned(), more))?)
    }

    fn remove(&self, name: &str, force: bool) -> Result<Result<bool>> {
        self.ask(&Ask::Remove(name.to_owned(), force))
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        there::part(&self.line);
    }
}
