//! Removes what nobody needs any more from dataspaces, with the rights of whose it is.

use crate::manager::Stager;
use rustix::process::geteuid;
use std::path::{Path, PathBuf};
use stead_core::{Cancel, Result};
use stead_store::{Folder, What};

/// Names of a folder that are looked at together.
const AT_ONCE: usize = 1 << 12;
/// Folders within each other that are looked into.
const DEEPEST: usize = 256;

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Files, links and folders.
    pub names: u64,
    /// Bytes of files that had this one name.
    pub bytes: u64,
}

impl Stager {
    /// Removes what this user has below a folder, or of it what was changed last before a time, in seconds since 1970: written, named, or given
    /// other rights. What is kept stays, and so does the folder itself. What cannot be removed is left, and so is what lies on another file
    /// system below it.
    ///
    /// # Errors
    /// `Cancelled`; those of opening the folder, of the journal.
    pub fn clear(&self, root: &Path, before: Option<f64>, cancel: &Cancel) -> Result<Cleared> {
        let folder = Folder::open(root)?;
        let dev = folder.own_meta()?.dev;
        let kept = self.kept_below(root)?;
        let user = geteuid().as_raw();
        let mut walk = Walk { dev, user, before, kept, cancel, cleared: Cleared::default() };
        walk.folder(&folder, Path::new(""), DEEPEST)?;
        Ok(walk.cleared)
    }
}

struct Walk<'w> {
    dev: u64,
    user: u32,
    before: Option<f64>,
    kept: Vec<PathBuf>,
    cancel: &'w Cancel,
    cleared: Cleared,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Folder, path: &Path, deep: usize) -> Result<()> {
        let Ok(lists) = folder.names(AT_ONCE) else { return Ok(()) };
        for name in lists.filter_map(Result::ok).flatten() {
            self.cancel.check()?;
            let path = path.join(&name);
            let Ok(Some(meta)) = folder.meta(&name) else { continue };
            if meta.dev != self.dev || self.kept.contains(&path) {
                continue;
            }
            if meta.what == What::Folder
                && deep > 0
                && let Ok(inner) = folder.enter(&name)
            {
                self.folder(&inner, &path, deep - 1)?;
            }
            // A copy has the time of its source: what counts is when it came here.
            let changed = meta.ctime.seconds as f64;
            if meta.uid != self.user || self.before.is_some_and(|before| changed >= before) {
                continue;
            }
            // A folder in which something has stayed stays.
            let gone = match meta.what {
                What::Folder => folder.remove_folder(&name),
                _ => folder.remove_file(&name),
            };
            if gone.unwrap_or(false) {
                self.cleared.names += 1;
                if meta.what == What::File && meta.links == 1 {
                    self.cleared.bytes += meta.size;
                }
            }
        }
        Ok(())
    }
}
