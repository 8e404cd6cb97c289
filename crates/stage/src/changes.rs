//! What a plan would do, name by name, for who wants to see that before: the first ones of each kind.

use crate::ends::Base;
use crate::job::{Item, TARGET, Task};
use crate::plan::Planned;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Names of a kind that are told, and bytes of all of them: an answer of a daemon has them all.
const MOST: u64 = 500;
const BYTES: usize = 256 << 10;

/// What is done with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Does {
    /// A file comes where there is none.
    Copy,
    /// A file or a link comes in place of another one.
    Replace,
    /// A file or a folder that is there gets the rights and other attributes of its source.
    Attributes,
    /// A link comes, or one more name of a file.
    Link,
    /// A folder is made.
    Folder,
    /// It gets another name.
    Rename,
    /// It is removed.
    Remove,
    /// It is a folder of the source that cannot be read, and nothing in it is brought.
    Unread,
}

/// One name of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What is done with it.
    pub does: Does,
    /// The name: on the target, if there is one and it comes there.
    pub path: String,
}

/// Those of a plan that is being made.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    all: Vec<(Does, i64, PathBuf)>,
    /// Of all, also of those that are not kept.
    counts: [u64; 8],
    bytes: usize,
}

impl Changes {
    pub(crate) fn note(&mut self, item: &Item) {
        let does = match item.task {
            Task::Remove | Task::RemoveFolder => Does::Remove,
            // What a move leaves is where it was moved from, and with a name that is there nothing is done.
            Task::LeaveFolder => return,
            Task::Hard if item.first == item.n => return,
            Task::Rename => Does::Rename,
            Task::Unread => Does::Unread,
            Task::Attributes => Does::Attributes,
            Task::Folder if item.replace => Does::Attributes,
            _ if item.replace => Does::Replace,
            Task::File => Does::Copy,
            Task::Link | Task::Hard => Does::Link,
            Task::Folder => Does::Folder,
        };
        let of_source = item.target.as_os_str().is_empty() || does == Does::Unread;
        let path = if of_source { &item.source } else { &item.target };
        let len = path.as_os_str().len();
        let Some(count) = self.counts.get_mut(does as usize) else { return };
        *count += 1;
        if *count <= MOST && self.bytes + len <= BYTES {
            self.bytes += len;
            let from = if of_source { item.from } else { TARGET };
            self.all.push((does, from, path.clone()));
        }
    }

    /// Names with which this is done.
    pub(crate) fn count(&self, does: Does) -> u64 {
        self.counts.get(does as usize).copied().unwrap_or(0)
    }

    /// With whole names.
    pub(crate) fn told(self, planned: &Planned) -> Vec<Change> {
        let each = |(does, from, path): (Does, i64, PathBuf)| {
            let base = usize::try_from(from).ok().and_then(|from| planned.ends.sources.get(from));
            let path = match (base, &planned.target) {
                (Some(base), _) => below(base, &path.to_string_lossy()),
                (None, Some(target)) => target.at(path.as_os_str()).to_string_lossy().into_owned(),
                (None, None) => path.to_string_lossy().into_owned(),
            };
            Change { does, path }
        };
        self.all.into_iter().map(each).collect()
    }
}

/// A name below a base, as people write it.
fn below(base: &Base, path: &str) -> String {
    match base {
        Base::Space(name, _) => format!("{name}://{path}"),
        Base::Path(at) => Path::new(at).join(path).to_string_lossy().into_owned(),
        Base::Bucket(url) => format!("{}/{path}", url.trim_end_matches('/')),
        Base::Far(node, base) => format!("{node}:{}", below(base, path)),
    }
}
