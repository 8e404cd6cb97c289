//! Removes what nobody needs any more from dataspaces, with the rights of whose it is.

use crate::manager::Stager;
use rustix::process::geteuid;
use std::path::{Path, PathBuf};
use stead_core::Result;
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
    /// Names that were left because they were changed since.
    pub young: u64,
}

impl Stager {
    /// Removes what this user has below a folder and was changed last before a time, in seconds since 1970: written, named, or given
    /// other rights. What is kept stays, and so does the folder itself. What cannot be removed is left, and so is what lies on another file
    /// system below it. Before each name `goes_on` is asked.
    ///
    /// # Errors
    /// Those of `goes_on`; those of opening the folder, of the journal.
    pub fn clear(
        &self,
        root: &Path,
        before: f64,
        goes_on: &dyn Fn() -> Result<()>,
    ) -> Result<Cleared> {
        let folder = Folder::open(root)?;
        let dev = folder.own_meta()?.dev;
        // All of it may be kept.
        let Some(kept) = self.kept_below(root)? else { return Ok(Cleared::default()) };
        let user = geteuid().as_raw();
        let mut walk = Walk { dev, user, before, kept, goes_on, cleared: Cleared::default() };
        walk.folder(&folder, Path::new(""), DEEPEST)?;
        Ok(walk.cleared)
    }
}

struct Walk<'w> {
    dev: u64,
    user: u32,
    before: f64,
    kept: Vec<PathBuf>,
    goes_on: &'w dyn Fn() -> Result<()>,
    cleared: Cleared,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Folder, path: &Path, deep: usize) -> Result<()> {
        let Ok(lists) = folder.names(AT_ONCE) else { return Ok(()) };
        for name in lists.filter_map(Result::ok).flatten() {
            (self.goes_on)()?;
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
            if meta.uid != self.user {
                continue;
            }
            // A copy has the time of its source: what counts is when it came here.
            let changed = meta.ctime.seconds as f64 + f64::from(meta.ctime.nanos) * 1e-9;
            if changed >= self.before {
                self.cleared.young += 1;
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
