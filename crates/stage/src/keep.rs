//! What users keep: it stays when others' time is over.

use crate::clock;
use crate::ends;
use crate::manager::Stager;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use stead_core::{Cancel, Error, Kind, Location, Result};

/// Things that a user may keep.
const MOST: usize = 10_000;

/// Something that is kept, or that others may read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Persisted {
    /// As it was named.
    pub location: String,
    /// Where it lies on this node.
    pub path: String,
    /// It is kept.
    pub kept: bool,
    /// In seconds since 1970: until when it is kept; none is for ever.
    pub until: Option<f64>,
    /// Users who may read it, by number.
    pub shared: Vec<u32>,
}

impl Stager {
    /// Where something lies, from the root on, links on the way to it resolved.
    pub(crate) fn real(&self, location: &Location) -> Result<(ends::End, String)> {
        if location.is_pattern() {
            return Err(Error::usage(format!("'{location}' is a pattern, and one name is needed")));
        }
        let means = self.means();
        let end = ends::source(&means.spaces, location, true, &Cancel::new())?;
        let folder = end.folder.folder().map_err(|_| {
            Error::usage(format!(
                "'{location}' lies in a bucket, and this is for folders of the node"
            ))
        })?;
        let base = std::fs::canonicalize(folder.shown())
            .map_err(|e| Error::io("find", folder.shown(), e))?;
        let path = if end.path.as_os_str().is_empty() { base } else { base.join(&end.path) };
        let odd = || Error::usage("the path of this is not UTF-8 text").at_path(&path);
        let text = path.to_str().ok_or_else(odd)?.to_owned();
        if std::fs::symlink_metadata(&path).is_err() {
            return Err(Error::new(Kind::NotFound, "no such file or folder").at_path(&path));
        }
        Ok((end, text))
    }

    /// Keeps a file or a folder with all that lies in it, for so many seconds or for ever: neither the end of a job nor that of its time
    /// removes it. Again, it is kept for so long from now on.
    ///
    /// # Errors
    /// `NotFound`; `Usage` for patterns and buckets; `Limit`; those of the journal.
    pub fn persist(&self, location: &Location, seconds: Option<u64>) -> Result<()> {
        let (_, path) = self.real(location)?;
        if self.journal().persisted()?.len() >= MOST {
            return Err(Error::limit(format!("{MOST} things are kept already")));
        }
        let until = seconds.map(|s| clock::unix() + s as f64);
        self.journal().keep(&path, &location.to_string(), until)
    }

    /// Keeps something no longer. It stays where it is until its time or that of its job is over.
    ///
    /// # Errors
    /// `Usage` if it is not kept; those of the journal.
    pub fn forget(&self, location: &Location) -> Result<()> {
        // It may be gone.
        let path = self.real(location).map(|(_, path)| path);
        let said = location.to_string();
        let path = path.unwrap_or_default();
        match self.journal().keep_no_longer(&path, &said)? {
            true => Ok(()),
            false => Err(Error::usage(format!("'{location}' is not kept"))
                .with_hint("stead persist list shows what is")),
        }
    }

    /// What is kept and shared.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn persisted(&self) -> Result<Vec<Persisted>> {
        self.journal().persisted()
    }

    /// What is kept now below a folder, relative to it.
    pub(crate) fn kept_below(&self, root: &Path) -> Result<Vec<PathBuf>> {
        let root = std::fs::canonicalize(root).map_err(|e| Error::io("find", root, e))?;
        let now = clock::unix();
        let kept = self.journal().persisted()?.into_iter().filter(|one| one.kept);
        let lasts = kept.filter(|one| one.until.is_none_or(|until| until > now));
        Ok(lasts
            .filter_map(|one| Path::new(&one.path).strip_prefix(&root).ok().map(Path::to_owned))
            .collect())
    }
}
