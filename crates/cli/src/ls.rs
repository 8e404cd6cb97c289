//! `stead ls`.

use crate::args::{Described, LsArgs};
use crate::{output, signals, table};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use stead::daemon::{ByDaemon, Client, dataspaces_named};
use stead::stage::tree::{Depth, Entry, Tree};
use stead::stage::{FileTime, Spaces, Usage, What, configured, dataspaces, location};
use stead::{Cancel, Error, Result, units};

/// A name, as JSON has it.
#[derive(Serialize)]
struct Row<'a> {
    name: Name<'a>,
    kind: &'static str,
    /// None of folders.
    size: Option<u64>,
    /// Seconds since 1970; none where nobody knows it.
    modified: Option<f64>,
}

/// Text, or the bytes of a name that is none.
#[derive(Serialize)]
#[serde(untagged)]
enum Name<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

pub fn ls(a: &LsArgs) -> Result<()> {
    let mut spaces = dataspaces()?;
    for one in &a.dataspace {
        spaces.give(one, &|name| std::env::var(name).ok())?;
    }
    let Some(at) = &a.location else { return all(a, &listed(a, &spaces)?) };
    let cancel = Cancel::new();
    let done = signals::watch(&cancel, false)?;
    let at = location(at)?;
    if at.node.is_none() {
        spaces.fill(dataspaces_named(&spaces, at.space.as_deref())?);
    }
    let tree = Tree::new(spaces).stopped_by(&cancel).reaching(Arc::new(ByDaemon::default()));
    let depth = if a.recursive { Depth::All } else { Depth::One };
    let mut out = output::Stream::new();
    let mut first = true;
    let looked = tree.look(&at, depth, &mut |entry| {
        let text = match a.format {
            Described::Json => json(&entry, std::mem::take(&mut first))?,
            Described::Table if a.long => long(&entry),
            Described::Table => shown(&entry) + "\n",
        };
        out.text(&text)
    });
    done.cancel();
    match looked {
        // Whoever read it has had enough.
        Err(_) if out.is_gone() => return Ok(()),
        looked => looked?,
    }
    if a.format == Described::Json {
        out.text(if first { "[]\n" } else { "\n]\n" })?;
    }
    out.end()
}

/// The dataspaces: of the daemon, which knows more of them than files have.
fn listed(a: &LsArgs, spaces: &Spaces) -> Result<Vec<Usage>> {
    let daemon = match a.here || !a.dataspace.is_empty() {
        true => None,
        false => Client::connect()?,
    };
    daemon.map_or_else(|| Ok(configured(spaces)), |mut daemon| daemon.configured())
}

/// The dataspaces.
fn all(a: &LsArgs, list: &[Usage]) -> Result<()> {
    #[derive(Serialize)]
    struct Space {
        name: String,
        kind: String,
        path: Option<String>,
    }
    if a.format == Described::Json {
        let row =
            |u: &Usage| Space { name: u.name.clone(), kind: u.kind.clone(), path: u.path.clone() };
        return output::json(&list.iter().map(row).collect::<Vec<_>>());
    }
    if !a.long {
        let lines: String = list.iter().map(|u| format!("{}://\n", u.name)).collect();
        return output::text(&lines);
    }
    let row = |u: &Usage| {
        let folder = u.path.clone().or_else(|| u.error.clone()).unwrap_or_default();
        vec![format!("{}://", u.name), u.kind.clone(), folder]
    };
    output::text(&table::plain(&["dataspace", "kind", "folder"], list.iter().map(row).collect()))
}

fn kind(what: What) -> &'static str {
    match what {
        What::File => "file",
        What::Folder => "folder",
        What::Link => "link",
        What::Special => "special",
    }
}

fn size(entry: &Entry) -> Option<u64> {
    (entry.meta.what != What::Folder).then_some(entry.meta.size)
}

/// When it was changed; a folder of a bucket has no time.
fn modified(entry: &Entry) -> Option<FileTime> {
    Some(entry.meta.mtime).filter(|time| *time != FileTime::default())
}

fn json(entry: &Entry, first: bool) -> Result<String> {
    let row = Row {
        name: entry.name.to_str().map_or(Name::Bytes(entry.name.as_bytes()), Name::Text),
        kind: kind(entry.meta.what),
        size: size(entry),
        modified: modified(entry).map(|t| t.seconds as f64 + f64::from(t.nanos) * 1e-9),
    };
    let text = serde_json::to_string(&row)
        .map_err(|e| Error::internal(format!("cannot write JSON: {e}")))?;
    Ok(format!("{}  {text}", if first { "[\n" } else { ",\n" }))
}

fn long(entry: &Entry) -> String {
    let size = size(entry).map_or("-".to_owned(), units::format_size);
    let time = modified(entry).map_or("-".to_owned(), |time| units::format_date(time.seconds));
    format!("{:7}  {size:>10}  {time:20}  {}\n", kind(entry.meta.what), shown(entry))
}

/// Its name in one line, with a `/` behind that of a folder.
fn shown(entry: &Entry) -> String {
    let end = if entry.meta.what == What::Folder { "/" } else { "" };
    output::plain(&entry.name) + end
}
