//! Plans what is removed: names, and what lies below them.

use super::Planner;
use super::internal::{is_internal, of_streams};
use super::walk::AT_ONCE;
use crate::job::{Item, TARGET, Task};
use crate::place::Place;
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use stead_core::{Error, Result};
use stead_store::region::is_of_streams;
use stead_store::{Meta, What};

/// What systems say of names that they cannot have.
const NO_NAME: [Errno; 3] = [Errno::NAMETOOLONG, Errno::INVAL, Errno::ILSEQ];

/// Names that a folder of the target lists, and that are none of these of its source. A file system may find a name by another spelling, of
/// other case for example: what one of these `names` leads to is meant by whatever name it is listed.
fn others(to: &Place, names: &HashSet<OsString>) -> Result<Vec<OsString>> {
    let (mut listed, mut others) = (HashSet::new(), Vec::new());
    for list in to.names(AT_ONCE)? {
        for name in list? {
            match names.get(&name) {
                Some(name) => drop(listed.insert(name)),
                None if is_internal(&name) => {}
                None => others.push(name),
            }
        }
    }
    if others.is_empty() || listed.len() == names.len() || to.bucket().is_some() {
        return Ok(others);
    }
    let mut meant = HashSet::new();
    for name in names.iter().filter(|name| !listed.contains(name)) {
        let there = match to.meta(name) {
            // What has no such names has none of this one.
            Err(e)
                if e.os_code()
                    .is_some_and(|code| NO_NAME.contains(&Errno::from_raw_os_error(code))) =>
            {
                None
            }
            there => there?,
        };
        meant.extend(there.map(|meta| (meta.dev, meta.ino)));
    }
    if !meant.is_empty() {
        let mut left = Vec::new();
        for name in others {
            if !to.meta(&name)?.is_some_and(|meta| meant.contains(&(meta.dev, meta.ino))) {
                left.push(name);
            }
        }
        return Ok(left);
    }
    Ok(others)
}

impl Planner<'_> {
    /// Plans to remove what a folder of the target has and its source does not, which has these `names`, but for what `came` there since.
    pub(super) fn clear_others(
        &mut self,
        to: &Place,
        path: &Path,
        names: &HashSet<OsString>,
        came: &dyn Fn(&OsStr) -> Result<bool>,
    ) -> Result<()> {
        for name in others(to, names)? {
            if !came(&name)? {
                self.clear_but(to, &name, &path.join(&name))?;
            }
        }
        Ok(())
    }

    /// Plans to remove a name of the target and what lies below it, but for what is left out, and folders in which some of that lies.
    /// True if there is any.
    pub(super) fn clear_but(&mut self, folder: &Place, name: &OsStr, path: &Path) -> Result<bool> {
        let stay = match self.state.filter.is_none() {
            true => HashSet::new(),
            false => self.folders_of_left_out(folder, name, path)?,
        };
        self.clear_all(TARGET, folder, name, path, &stay)?;
        Ok(stay.contains(path))
    }

    /// Folders of the target, from a name on, in which something lies that is left out.
    fn folders_of_left_out(
        &self,
        folder: &Place,
        name: &OsStr,
        path: &Path,
    ) -> Result<HashSet<PathBuf>> {
        let mut stay: HashSet<PathBuf> = HashSet::new();
        let mut left = vec![(folder.clone(), name.to_owned(), path.to_owned())];
        while let Some((folder, name, at)) = left.pop() {
            self.cancel.check()?;
            let Some(meta) = folder.meta(&name)? else { continue };
            if !self.takes_there(&folder, &name, &at, &meta)? {
                let above = at.ancestors().skip(1).take_while(|above| above.starts_with(path));
                for folder in above {
                    // Those above one that is known are known.
                    if !stay.insert(folder.to_owned()) {
                        break;
                    }
                }
            } else if meta.what == What::Folder {
                let inner = folder.enter(&name)?;
                for list in inner.names(AT_ONCE)? {
                    let each = |name: OsString| (inner.clone(), name.clone(), at.join(name));
                    left.extend(list?.into_iter().map(each));
                }
            }
        }
        Ok(stay)
    }

    /// True of a name of the target that is meant.
    fn takes_there(&self, folder: &Place, name: &OsStr, path: &Path, meta: &Meta) -> Result<bool> {
        self.takes(folder, name, path, &self.state.roots.1, meta)
    }

    /// Plans to remove a name and what lies below it: files in order, folders to be removed in reverse.
    pub(super) fn clear(
        &mut self,
        from: i64,
        folder: &Place,
        name: &OsStr,
        path: &Path,
    ) -> Result<()> {
        self.clear_all(from, folder, name, path, &HashSet::new())
    }

    /// The same, but for what is left out and for these folders.
    fn clear_all(
        &mut self,
        from: i64,
        folder: &Place,
        name: &OsStr,
        path: &Path,
        stay: &HashSet<PathBuf>,
    ) -> Result<()> {
        let mut left = vec![(folder.clone(), name.to_owned(), path.to_owned())];
        while let Some((folder, name, path)) = left.pop() {
            self.cancel.check()?;
            let Some(meta) = folder.meta(&name)? else { continue };
            // Streams may be in use, and are no matter of transfers.
            if is_of_streams(&name) {
                return Err(of_streams(&folder.at(&name)));
            }
            if from == TARGET && !self.takes_there(&folder, &name, &path, &meta)? {
                continue;
            }
            let kept = self.state.kept.contains(&(meta.dev, meta.ino))
                || self.state.kept_far.contains(&(meta.ino, meta.ctime));
            if from == TARGET && kept {
                return Err(Error::usage("the source lies in what would be removed")
                    .at_path(folder.at(&name))
                    .with_hint("sync without --delete, or into a folder beside it"));
            }
            let task = if meta.what == What::Folder { Task::RemoveFolder } else { Task::Remove };
            // A folder of a bucket goes with what lies in it.
            let gone = task == Task::RemoveFolder && folder.bucket().is_some();
            let gone = gone || stay.contains(&path);
            self.state.sums.removed += u64::from(!gone);
            if from == TARGET && !gone {
                self.state.free(&meta);
            }
            let (source, target) = match from {
                TARGET => (PathBuf::new(), path.clone()),
                _ => (path.clone(), PathBuf::new()),
            };
            if !gone {
                self.put(Item {
                    n: 0,
                    task,
                    from,
                    source,
                    target,
                    size: 0,
                    mtime: meta.mtime,
                    first: -1,
                    replace: false,
                })?;
            }
            if meta.what == What::Folder {
                let inner = folder.enter(&name)?;
                for list in inner.names(AT_ONCE)? {
                    left.extend(list?.into_iter().map(|name| {
                        let path = path.join(&name);
                        (inner.clone(), name, path)
                    }));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_name_leads_to_is_no_other_one_however_it_is_spelled() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["Photo.jpg", "old", "same"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        std::fs::create_dir(dir.path().join("Run")).unwrap();
        let to = Place::Folder(stead_store::Folder::open(dir.path()).unwrap());
        let of = |names: &[&str]| {
            let mut left = others(&to, &names.iter().map(OsString::from).collect()).unwrap();
            left.sort();
            left
        };
        assert_eq!(of(&["same", "new"]), ["Photo.jpg", "Run", "old"]);
        // Spellings that are not listed, and lead to what is, as where case does not matter.
        assert_eq!(of(&["same", "new", "./Photo.jpg", "./Run"]), ["old"]);
    }
}
