//! Opens what a user names: files that all ranks see, files of layouts, and files that ranks have written each on its node.
//!
//! The first rank looks what is meant and reads the layouts, and tells the others, which need not see them. Ranks tell each
//! other the names of their hosts, and so all know who has what.

use super::service::Link;
use super::{Spread, Whole, apart};
use crate::exchange::Crew;
use crate::meeting;
use crate::recorded;
use crate::roles::{Roles, are_of_data};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use stead_core::layout::{Layout, Part, PerProcess, SUFFIX, Spaces, nodes};
use stead_core::{Cancel, Error, Kind, Result, Stops, limits};
use stead_fabric::{Fabric, Local};
use stead_format::{Dataset, Held, Holding, Near, OpenOptions, Share, Traffic};
use stead_store::{FileSource, Source, space};

/// Tags of messages for parts: of each dataset one.
const TAGS: u32 = 0x5300_0000;
/// How many datasets there may be before tags are used again.
const MOST_TAGS: u32 = 1 << 20;

static OPENED: AtomicU32 = AtomicU32::new(0);

/// What the words of this step begin with: ranks that do something else are told so.
const MARK: &[u8] = b"open";

/// Where a rank is.
#[derive(Debug, Clone)]
pub struct Here {
    /// The name of its host, which layouts name.
    pub host: String,
    /// The folder from which names of files that are written for each rank are seen; the working directory, if there is none.
    pub folder: Option<PathBuf>,
}

impl Default for Here {
    fn default() -> Here {
        Here { host: crate::exchange::host(), folder: None }
    }
}

/// What the inputs are, as the first rank sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Named {
    /// Files that all ranks see.
    Files,
    /// Layouts: where each was read, and its text.
    Layouts(Vec<(String, String)>),
    /// Files each on the node of the rank that has written it.
    PerProcess(String),
}

/// What a rank says when it opens.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    host: String,
    /// Of the names that it was given: the same on all ranks, unless each sees its own files.
    inputs: u64,
    /// What the first one has found, and the tag of messages.
    found: Option<(Named, u32)>,
}

/// Opens files, globs and directories as one dataset, as [`Dataset::open`] does, and layouts (`NAME.stead-layout.toml`, or NAME
/// where the layout lies and no file is), all of whose parts this host reaches.
///
/// # Errors
/// As [`Dataset::open`]; `NotFound` and `Format` for parts that are missing or of another length, `Usage` for those on
/// other nodes.
pub fn open(inputs: &[String], options: &OpenOptions) -> Result<Dataset> {
    let fabric: Arc<dyn Fabric> = Arc::new(Local::single());
    open_as(&Here::default(), &fabric, inputs, options, &Cancel::new())
}

/// Opens a dataset for all ranks of `fabric`, all of which call this with the same names: what [`open`] opens, with the parts of
/// layouts on the nodes of the ranks, and `out.%r.bin`, files that each process of a job has written on its node. Who runs over
/// it asks other ranks for what is not on its own node, as long as any of them has the dataset. `cancel` stops that, too.
///
/// With [`OpenOptions::storage_hosts`] only the ranks on these hosts have the data ([`open_apart`]): those of a list (`node[1-4]`),
/// the nodes of the layouts that are opened (`layout`), or of another one (`layout:FILE`).
///
/// # Errors
/// As [`open`], the same on all ranks. `NotFound` if a node that has parts has no rank, or a rank's file is missing.
pub fn open_on(
    fabric: &Arc<dyn Fabric>,
    inputs: &[String],
    options: &OpenOptions,
    cancel: &Cancel,
) -> Result<Dataset> {
    open_as(&Here::default(), fabric, inputs, options, cancel)
}

/// As [`open_on`], for a rank that says itself where it is.
///
/// # Errors
/// As [`open_on`].
pub fn open_as(
    here: &Here,
    fabric: &Arc<dyn Fabric>,
    inputs: &[String],
    options: &OpenOptions,
    cancel: &Cancel,
) -> Result<Dataset> {
    let Some(hosts) = &options.storage_hosts else {
        return open_by(here, fabric, None, 0, inputs, options, cancel);
    };
    if fabric.size() == 1 {
        return Err(Error::usage("storage hosts tell ranks of a job apart, and this one is alone")
            .with_hint("start ranks on both kinds of hosts: mpirun --host store1,node1 ..."));
    }
    let roles = Roles::of_data(&**fabric, here, hosts, inputs)?;
    let storage = apart_from(&roles);
    // Who has read the layouts tells what they are: others need not see them.
    let first = if are_of_data(hosts) { 0 } else { first_of(storage) };
    open_by(here, fabric, storage, first, inputs, options, cancel)
}

/// As [`open_as`], where the data are with the storage ranks alone, whatever [`OpenOptions::storage_hosts`] says: files that all these see, and others need not, layouts whose
/// nodes are theirs, and files that they have written. Who runs over it may have either side compute
/// ([`Request::place`](crate::Request::place)). Where all ranks are storage ranks it is [`open_as`].
///
/// # Errors
/// As [`open_as`]; `Changed` if storage ranks see different files.
pub fn open_apart(
    here: &Here,
    fabric: &Arc<dyn Fabric>,
    roles: &Roles,
    inputs: &[String],
    options: &OpenOptions,
    cancel: &Cancel,
) -> Result<Dataset> {
    let storage = apart_from(roles);
    open_by(here, fabric, storage, first_of(storage), inputs, options, cancel)
}

/// The ranks that have data, if only some do.
fn apart_from(roles: &Roles) -> Option<&[usize]> {
    Some(roles.storage()).filter(|_| !roles.compute().is_empty())
}

/// The first rank that has data.
fn first_of(storage: Option<&[usize]>) -> usize {
    storage.and_then(<[usize]>::first).copied().unwrap_or(0)
}

/// Opens what the rank `first` says that the inputs are.
fn open_by(
    here: &Here,
    fabric: &Arc<dyn Fabric>,
    storage: Option<&[usize]>,
    first: usize,
    inputs: &[String],
    options: &OpenOptions,
    cancel: &Cancel,
) -> Result<Dataset> {
    let mut crew = Crew::new(&**fabric, cancel, None);
    crew.host.clone_from(&here.host);
    let (named, tag) = tell(&mut crew, storage, first, inputs)?;
    if named == Named::Files && storage.is_none() {
        return together(&crew, recorded::open(inputs, options));
    }
    if let (Named::Files, Some(input)) = (&named, recorded::recording(inputs)) {
        let message = format!("'{input}' is a recorded stream, which all ranks read");
        return Err(Error::usage(message).with_hint("leave out --storage-hosts"));
    }
    let dataspaces = &options.dataspaces;
    let opening = Opening { here, fabric, crew: &crew, storage, cancel, dataspaces };
    let (wholes, groups) = match named {
        Named::Files => opening.plain(inputs)?,
        Named::Layouts(layouts) => opening.layouts(layouts)?,
        Named::PerProcess(pattern) => opening.per_process(&pattern)?,
    };
    let several = crew.size() > 1;
    let traffic = Arc::new(Traffic::default());
    let stops = Stops::new(cancel.clone());
    let link = several.then(|| {
        let (hosts, wholes) = (crew.hosts.clone(), wholes.clone());
        let (stops, traffic) = (stops.clone(), traffic.clone());
        Link::start(fabric.clone(), tag, hosts, groups.clone(), wholes, stops, traffic)
    });
    // From here on all ranks answer, so that each can look into the files.
    let link = together(&crew, link.transpose())?.map(Arc::new);
    let share = if several { opening.held(&wholes, &groups) } else { Ok(Share::ALL) };
    let dataset = share.and_then(|share| {
        let mut sources: Vec<Arc<dyn Source>> = Vec::with_capacity(wholes.len());
        for (index, whole) in (0u32..).zip(&wholes) {
            let link = link.clone();
            sources.push(Arc::new(Spread { whole: whole.clone(), index, link }));
        }
        let dataset = Dataset::from_sources(sources, options)?;
        if !several {
            return Ok(dataset);
        }
        let near = opening.near(&wholes, &groups)?;
        let apart = storage.map(|storage| apart::of(&crew, storage, &wholes)).transpose()?;
        let holding = Holding {
            rank: crew.rank(),
            size: crew.size(),
            share,
            near,
            host: here.host.clone(),
            dataspaces: dataspaces.clone(),
            stops,
            traffic,
            apart,
        };
        Ok(dataset.held_so(holding))
    });
    together(&crew, dataset)
}

/// What this rank has made, if all have come so far.
fn together<T>(crew: &Crew<'_>, mine: Result<T>) -> Result<T> {
    if crew.size() == 1 {
        return mine;
    }
    let (mine, said) = match mine {
        Ok(mine) => (Some(mine), Ok(())),
        Err(e) => (None, Err(e)),
    };
    crew.agree(said)?;
    mine.ok_or_else(|| Error::internal("an error was not told"))
}

/// The rank `first` tells what is meant, and all tell where they are.
fn tell(
    crew: &mut Crew<'_>,
    storage: Option<&[usize]>,
    first: usize,
    inputs: &[String],
) -> Result<(Named, u32)> {
    let found = (crew.rank() == first).then(|| named(inputs)).transpose();
    if crew.size() == 1 {
        crew.hosts = vec![crew.host.clone()];
        return Ok((found?.unwrap_or(Named::Files), 0));
    }
    let said = found.and_then(|found| {
        let tag = || TAGS + OPENED.fetch_add(1, Ordering::Relaxed) % MOST_TAGS;
        let mut names = std::hash::DefaultHasher::new();
        inputs.hash(&mut names);
        let said = Said {
            host: crew.host.clone(),
            inputs: names.finish(),
            found: found.map(|found| (found, tag())),
        };
        let said = postcard::to_stdvec(&said);
        let said = said.map_err(|e| Error::internal(format!("cannot encode a layout: {e}")))?;
        Ok(vec![MARK.to_vec(), said])
    });
    let malformed = || Error::format("a message from another rank is malformed");
    let mut join = |mut a: Vec<Vec<u8>>, b: Vec<Vec<u8>>| {
        let mut b = b.into_iter();
        if b.next().as_deref() != Some(MARK) {
            return Err(crate::exchange::different());
        }
        a.extend(b);
        Ok(a)
    };
    let words = crew.words(meeting::NAME, said, &mut join)?;
    let said = words.iter().skip(1).map(|w| postcard::from_bytes::<Said>(w));
    let said: Vec<Said> = said.collect::<std::result::Result<_, _>>().map_err(|_| malformed())?;
    if said.len() != crew.size() {
        return Err(malformed());
    }
    let found = said.iter().find_map(|s| s.found.clone()).ok_or_else(malformed)?;
    let other = said.iter().position(|s| s.inputs != said[0].inputs);
    let each_its_own = found.0 == Named::Files && storage.is_none();
    if let (false, Some(other)) = (each_its_own, other) {
        return Err(Error::usage(format!(
            "ranks 0 and {other} were given different names of data"
        ))
        .with_hint("all ranks run the same request over the same data"));
    }
    crew.hosts = said.into_iter().map(|s| s.host).collect();
    Ok(found)
}

/// True if these are files that are here, and no layouts or files of several ranks.
///
/// # Errors
/// For a layout that cannot be read, and layouts among files.
pub fn are_files(inputs: &[String]) -> Result<bool> {
    Ok(named(inputs)? == Named::Files)
}

/// The layouts that the inputs are, as it looks from here.
///
/// # Errors
/// Those of reading them; `Usage` if the inputs are none.
pub fn layouts_of(inputs: &[String]) -> Result<Vec<(PathBuf, Layout)>> {
    let Named::Layouts(texts) = named(inputs)? else {
        let it = inputs.first().map_or("", String::as_str);
        return Err(Error::usage(format!(
            "the storage hosts are to be the nodes of a layout, and '{it}' is none"
        ))
        .with_hint("name a layout, or the hosts: --storage-hosts 'node[1-4]'"));
    };
    parsed(texts)
}

/// Layouts that were read, and where.
fn parsed(texts: Vec<(String, String)>) -> Result<Vec<(PathBuf, Layout)>> {
    let parse = |(path, text): (String, String)| {
        let path = PathBuf::from(path);
        let layout = Layout::parse(&text).map_err(|e| e.at_path(&path))?;
        Ok((path, layout))
    };
    texts.into_iter().map(parse).collect()
}

/// What the inputs are, as it looks from here.
fn named(inputs: &[String]) -> Result<Named> {
    let mut layouts = Vec::new();
    let mut files = None;
    for input in inputs {
        let path = Path::new(input);
        let there = std::fs::metadata(path).is_ok();
        if !there && PerProcess::is_one(input) {
            if inputs.len() > 1 {
                return Err(Error::usage(format!(
                    "'{input}' stands for files of ranks, and others are named beside it"
                ))
                .with_hint("name files of ranks alone, with one name"));
            }
            return Ok(Named::PerProcess(input.clone()));
        }
        let beside = format!("{input}{SUFFIX}");
        if !there && !Layout::is_name(input) && Path::new(&beside).is_file() {
            layouts.push(beside);
        } else if Layout::is_name(input) {
            layouts.push(input.clone());
        } else {
            files = Some(input);
        }
    }
    match (files, layouts.is_empty()) {
        (_, true) => Ok(Named::Files),
        (Some(file), false) => Err(Error::usage(format!(
            "'{file}' is a file that all ranks see, and there are layouts beside it"
        ))
        .with_hint("name files and layouts apart, in several runs")),
        (None, false) => {
            let read = |path: PathBuf| {
                let text = space::read_layout_text(&path)?;
                let path = path.to_str().ok_or_else(|| {
                    Error::usage("the name of a layout file is no UTF-8 text").at_path(&path)
                })?;
                Ok((path.to_owned(), text))
            };
            // Each once, and in the order of files, however often and in whatever order they are named.
            let layouts = stead_store::expand(&layouts)?;
            layouts.into_iter().map(read).collect::<Result<_>>().map(Named::Layouts)
        }
    }
}

/// Ranks that have the same parts, and the parts of files that each group has.
type Found = (Vec<Arc<Whole>>, Vec<Vec<usize>>);

struct Opening<'o> {
    here: &'o Here,
    fabric: &'o Arc<dyn Fabric>,
    crew: &'o Crew<'o>,
    /// The ranks that have data, if not all may.
    storage: Option<&'o [usize]>,
    cancel: &'o Cancel,
    /// Given by the user.
    dataspaces: &'o [String],
}

/// Groups of ranks, each once.
#[derive(Default)]
struct Groups {
    all: Vec<Vec<usize>>,
    known: HashMap<Vec<usize>, usize>,
}

impl Groups {
    fn of(&mut self, ranks: Vec<usize>) -> usize {
        *self.known.entry(ranks).or_insert_with_key(|ranks| {
            self.all.push(ranks.clone());
            self.all.len() - 1
        })
    }
}

impl Opening<'_> {
    /// The ranks on a node, of those that may have data.
    fn ranks_on(&self, node: &str) -> Vec<usize> {
        let on = |r: &usize| self.crew.hosts.get(*r).is_some_and(|h| nodes::is_host(node, h));
        (0..self.crew.size()).filter(|r| self.may_have(*r)).filter(on).collect()
    }

    fn may_have(&self, rank: usize) -> bool {
        self.storage.is_none_or(|storage| storage.contains(&rank))
    }

    /// The ranks that may have data, of each node that has some.
    fn by_node(&self) -> Vec<Vec<usize>> {
        let mut by_node = meeting::nodes(&**self.fabric);
        by_node.iter_mut().for_each(|ranks| ranks.retain(|r| self.may_have(*r)));
        by_node.retain(|ranks| !ranks.is_empty());
        by_node
    }

    /// Files that all ranks with data see. The first of these tells the others which they are.
    fn plain(&self, inputs: &[String]) -> Result<Found> {
        let storage = self.storage.unwrap_or_default();
        let mine = self.may_have(self.crew.rank());
        let opened = if mine { apart::files(inputs, self.cancel) } else { Ok(Vec::new()) };
        let first = storage.first() == Some(&self.crew.rank());
        let (opened, said) = match opened {
            Ok(opened) => {
                let said = apart::said(&opened, mine, first);
                (opened, said)
            }
            Err(e) => (Vec::new(), Err(e)),
        };
        let all = self.crew.gather(said)?;
        let wholes = apart::wholes(&all, storage, opened)?;
        Ok((wholes.into_iter().map(Arc::new).collect(), vec![storage.to_vec()]))
    }

    /// Who has the parts of each layout: the ranks of its node. Parts beside the layout, whose node has no rank, are for those
    /// who see them: nodes with ranks take turns.
    fn homes(&self, layouts: &[(PathBuf, Layout)]) -> Result<(Vec<Vec<usize>>, Groups)> {
        let by_node = self.by_node();
        let mut groups = Groups::default();
        let mut known = HashMap::<&str, Option<usize>>::new();
        let (mut homes, mut turn) = (Vec::with_capacity(layouts.len()), 0);
        let mut missing: Vec<&str> = Vec::new();
        let mut file = None;
        for (path, layout) in layouts {
            let mut of = Vec::with_capacity(layout.parts().len());
            for part in layout.parts() {
                let node = part.node.as_str();
                let home = *known.entry(node).or_insert_with(|| {
                    let ranks = self.ranks_on(node);
                    (!ranks.is_empty()).then(|| groups.of(ranks))
                });
                let beside = part.space.is_none() && !part.path.starts_with('/');
                of.push(match home {
                    Some(home) => home,
                    None if beside => {
                        turn += 1;
                        groups.of(by_node[(turn - 1) % by_node.len().max(1)].clone())
                    }
                    None => {
                        if !missing.contains(&node) {
                            missing.push(node);
                        }
                        file.get_or_insert(path);
                        usize::MAX
                    }
                });
            }
            homes.push(of);
        }
        let Some(path) = file else { return Ok((homes, groups)) };
        let list = nodes::fold(&missing);
        let (has, its) = if missing.len() == 1 { ("node", "has") } else { ("nodes", "have") };
        if self.storage.is_some() {
            let one =
                if missing.len() == 1 { "is no storage host" } else { "are no storage hosts" };
            let e = Error::usage(format!("{has} {list} {its} parts of it, and {one}"));
            return Err(e
                .at_path(path)
                .with_hint("name all nodes that have data as storage hosts"));
        }
        let e = Error::new(Kind::NotFound, format!("{has} {list} {its} parts of it, and no rank"));
        Err(e.at_path(path).with_hint(format!(
            "start a rank on each node that has parts: mpirun --host {} stead run ...",
            layouts
                .iter()
                .flat_map(|(_, l)| l.nodes())
                .map(|(node, _)| node)
                .fold(Vec::new(), |mut all: Vec<&str>, node| {
                    if !all.contains(&node) && all.len() < 8 {
                        all.push(node);
                    }
                    all
                })
                .join(",")
        )))
    }

    fn layouts(&self, texts: Vec<(String, String)>) -> Result<Found> {
        let layouts = parsed(texts)?;
        let stripes = layouts.iter().fold(0u64, |n, (_, l)| n.saturating_add(l.stripes()));
        if stripes > limits::MAX_STRIPES {
            return Err(Error::limit(format!(
                "these files have {stripes} stripes together; at most {} are supported",
                limits::MAX_STRIPES
            ))
            .with_hint("read them in several runs, or put them over the nodes in larger stripes"));
        }
        let (homes, groups) = self.homes(&layouts)?;
        let mine =
            |home: usize| groups.all.get(home).is_some_and(|g| g.contains(&self.crew.rank()));
        let wholes = crate::files::spaces(self.dataspaces).and_then(|spaces| {
            let open = |((path, layout), homes): ((PathBuf, Layout), Vec<usize>)| {
                let beside = path.parent().unwrap_or(Path::new("")).to_path_buf();
                let mut parts: Vec<Option<Arc<dyn Source>>> = Vec::with_capacity(homes.len());
                for (i, home) in homes.iter().enumerate() {
                    self.cancel.check()?;
                    let source = mine(*home).then(|| part(&spaces, &beside, &layout, i));
                    parts.push(source.transpose()?.map(|s| Arc::new(s) as Arc<dyn Source>));
                }
                let name = beside.join(layout.name());
                Ok(Arc::new(Whole { path: name, described: Some(path), layout, parts, homes }))
            };
            layouts.into_iter().zip(homes).map(open).collect::<Result<Vec<_>>>()
        });
        Ok((together(self.crew, wholes)?, groups.all))
    }

    /// The files of a node are seen by all its ranks; the first of them tells the others of all nodes.
    fn per_process(&self, pattern: &str) -> Result<Found> {
        let name = PerProcess::parse(pattern)?;
        let by_node = self.by_node();
        let mine = by_node.iter().position(|ranks| ranks.contains(&self.crew.rank()));
        // No node at all, for who has no data.
        let mine = mine.unwrap_or(usize::MAX);
        let at = |r: u64| {
            let file = PathBuf::from(name.name(r));
            self.here.folder.as_ref().map_or(file.clone(), |folder| folder.join(&file))
        };
        let first = by_node.get(mine).and_then(|ranks| ranks.first());
        let said = if first == Some(&self.crew.rank()) {
            self.files(&name).and_then(|ranks| {
                let length = |r: u64| Ok((r, FileSource::open(at(r))?.len()));
                ranks.into_iter().map(length).collect::<Result<Vec<(u64, u64)>>>()
            })
        } else {
            Ok(Vec::new())
        };
        let said = said.map(|files| postcard::to_stdvec(&(mine as u64, files)).unwrap_or_default());
        let all = self.crew.gather(said)?;
        let mut found = Vec::new();
        for word in &all {
            let (node, files): (u64, Vec<(u64, u64)>) = postcard::from_bytes(word)
                .map_err(|_| Error::format("a message from another rank is malformed"))?;
            found.extend(files.into_iter().map(|(r, length)| (r, (node as usize, length))));
        }
        let files = name.order(found)?;
        let mut wholes = Vec::with_capacity(files.len());
        let opened = files.into_iter().try_for_each(|(r, (node, length))| {
            let path = at(r);
            let leaf = path.file_name().map(|n| n.to_string_lossy().into_owned());
            let one = Part::new(format!("node{node}"), name.name(r));
            let layout = Layout::even(leaf.unwrap_or_default(), length, length.max(1), vec![one])?;
            let source = (node == mine).then(|| FileSource::open(&path)).transpose()?;
            if source.as_ref().is_some_and(|s| s.len() != length) {
                return Err(
                    Error::new(Kind::Changed, "it has another length than before").at_path(path)
                );
            }
            let parts = vec![source.map(|s| Arc::new(s) as Arc<dyn Source>)];
            wholes.push(Arc::new(Whole {
                path,
                described: None,
                layout,
                parts,
                homes: vec![node],
            }));
            Ok(())
        });
        together(self.crew, opened)?;
        Ok((wholes, by_node))
    }

    /// The numbers of ranks of whom there are files here.
    fn files(&self, name: &PerProcess) -> Result<Vec<u64>> {
        let folder = self.here.folder.clone().unwrap_or_default();
        let Some(within) = name.folder() else {
            let message = "the number of a rank stands in the name of a folder";
            return Err(Error::usage(message)
                .with_hint("write %r in the last step of the name alone: run/out.%r.bin"));
        };
        let folder = folder.join(within);
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { &*folder };
        let listed = match std::fs::read_dir(here) {
            Ok(listed) => listed,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io("list", here, e)),
        };
        let mut ranks = Vec::new();
        for entry in listed {
            let entry = entry.map_err(|e| Error::io("list", here, e))?;
            let rank = entry.file_name().to_str().and_then(|n| name.rank(&format!("{within}{n}")));
            ranks.extend(rank);
            if ranks.len() > limits::MAX_SOURCES {
                return Err(
                    Error::limit(format!("more than {} files", limits::MAX_SOURCES)).at_path(here)
                );
            }
        }
        Ok(ranks)
    }

    /// Where this rank makes files near its data: where the first part lies that is here.
    fn near(&self, wholes: &[Arc<Whole>], groups: &[Vec<usize>]) -> Result<Option<Near>> {
        let rank = self.crew.rank();
        let mine = |home: &usize| groups.get(*home).is_some_and(|g| g.contains(&rank));
        let found = wholes.iter().find_map(|w| Some((w, w.homes.iter().position(mine)?)));
        let Some((whole, i)) = found else { return Ok(None) };
        let part = &whole.layout.parts()[i];
        // Parts that only lie beside their layout may be named for a node that has no rank.
        let node = match nodes::is_host(&part.node, &self.here.host) {
            true => part.node.clone(),
            false => self.here.host.clone(),
        };
        if let Some(space) = &part.space {
            let spaces = crate::files::spaces(self.dataspaces)?;
            let folder = PathBuf::from(spaces.folder(space)?);
            return Ok(Some(Near { node, space: Some(space.clone()), folder }));
        }
        let files =
            whole.parts.get(i).and_then(Option::as_ref).map_or_else(Vec::new, |p| p.files());
        let Some(file) = files.first() else { return Ok(None) };
        let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = std::fs::canonicalize(folder).map_err(|e| Error::io("look for", folder, e))?;
        Ok(Some(Near { node, space: None, folder }))
    }

    /// What begins here: ranks of a node divide its stripes evenly, in contiguous runs, and files of processes by their bytes.
    fn held(&self, wholes: &[Arc<Whole>], groups: &[Vec<usize>]) -> Result<Share> {
        let rank = self.crew.rank();
        let place = |g: &Vec<usize>| g.iter().position(|r| *r == rank).map(|k| (k, g.len()));
        let mine: Vec<Option<(usize, usize)>> = groups.iter().map(place).collect();
        // Of files without stripes, those of a group are one sequence of bytes.
        let unstriped = wholes.iter().all(|w| w.described.is_none());
        let mut totals = vec![0u64; groups.len()];
        if unstriped {
            for w in wholes {
                if let Some(total) = w.homes.first().and_then(|h| totals.get_mut(*h)) {
                    *total = total.saturating_add(w.layout.length());
                }
            }
        }
        let mut before = vec![0u64; groups.len()];
        let mut held = Vec::new();
        for (source, whole) in (0u32..).zip(wholes) {
            let mut of_file = Vec::new();
            for (g, place) in mine.iter().enumerate() {
                let Some((k, of)) = *place else { continue };
                let parts = whole.homes.iter().enumerate().filter(|(_, home)| **home == g);
                let parts: Vec<usize> = parts.map(|(part, _)| part).collect();
                if parts.is_empty() {
                    continue;
                }
                if unstriped {
                    let (from, len) = (before[g], whole.layout.length());
                    before[g] += len;
                    let share = Share::of(totals[g], k, of);
                    let within = |at: u64| at.clamp(from, from + len) - from;
                    of_file.push(within(share.start)..within(share.end));
                } else {
                    of_file.extend(whole.layout.held_by(&parts, k, of)?);
                }
            }
            of_file.sort_by_key(|r| r.start);
            held.extend(of_file.into_iter().map(|bytes| Held { source, bytes }));
        }
        Share::held(held)
    }
}

/// Opens a part of a layout.
fn part(spaces: &Spaces, beside: &Path, layout: &Layout, i: usize) -> Result<FileSource> {
    let part = &layout.parts()[i];
    let source = space::part_source(spaces, beside, part).map_err(|e| {
        let message = format!(
            "part {i} of '{}', {} on {}: {}",
            layout.name(),
            part.path,
            part.home(),
            e.message()
        );
        let told = Error::new(e.kind(), message);
        let told = match &e.place().path {
            Some(path) => told.at_path(path),
            None => told,
        };
        match e.hint() {
            Some(hint) => told.with_hint(hint),
            None => told.with_hint("is it there? put the file over the nodes again if it was lost"),
        }
    })?;
    layout.verify(i, source.len()).map_err(|e| e.at_path(source.path()))?;
    Ok(source)
}
