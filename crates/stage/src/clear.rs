//! Removes what nobody needs any more from dataspaces, with the rights of whose it is.

use crate::manager::Stager;
use rustix::process::geteuid;
use std::path::{Path, PathBuf};
use stead_core::Result;
use stead_store::way::{self, Trust};
use stead_store::{Folder, Meta, What};

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

/// Why something is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The job that it belonged to: nothing of it stays.
    Job,
    /// Its time. What root has of folders in which there was nothing is left: somebody has set them up for others.
    Time,
}

impl Stager {
    /// Removes what this user has below a folder and was changed last before a time, in seconds since 1970: written, named, or given
    /// other rights. What is kept `now` stays, and so does the folder itself. What cannot be removed is left, and so is what lies on another file
    /// system below it, and `lost+found`. Before each name `goes_on` is asked.
    ///
    /// # Errors
    /// Those of `goes_on`; `Permission` if others than root, this user and the `owner` that the folder is said to have could have led the way to it
    /// elsewhere; those of opening it, of the journal.
    pub fn clear(
        &self,
        (root, owner): (&Path, Option<&str>),
        over: Over,
        (before, now): (f64, f64),
        goes_on: &dyn Fn() -> Result<()>,
    ) -> Result<Cleared> {
        let folder = way::open(root, Trust::Nobody(owner))?;
        let dev = folder.own_meta()?.dev;
        // All of it may be kept.
        let Some(kept) = self.kept_below(root, now)? else { return Ok(Cleared::default()) };
        let user = geteuid().as_raw();
        let mut walk = Walk { dev, user, over, before, kept, goes_on, cleared: Cleared::default() };
        walk.folder(&folder, Path::new(""), DEEPEST)?;
        Ok(walk.cleared)
    }
}

/// True for what a file system has at its root for its own repair.
fn is_of_the_system(path: &Path, meta: &Meta) -> bool {
    path == Path::new("lost+found") && meta.what == What::Folder && meta.uid == 0
}

struct Walk<'w> {
    dev: u64,
    user: u32,
    over: Over,
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
            let Ok(Some(meta)) = folder.meta_on(&name, self.dev) else { continue };
            if self.kept.contains(&path) || is_of_the_system(&path, &meta) {
                continue;
            }
            let before = self.cleared.names;
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
            // An empty folder of root is how somebody has set it up: others' files come into it, or a mount.
            let went = self.cleared.names > before;
            if self.over == Over::Time && self.user == 0 && meta.what == What::Folder && !went {
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

#[cfg(test)]
#[allow(clippy::print_stderr)]
mod tests {
    use super::*;
    use crate::manager::Means;
    use std::fs;

    #[test]
    fn what_the_system_or_its_administrator_has_set_up_stays() {
        if !geteuid().is_root() {
            return eprintln!("NOT TESTED HERE: only root has folders of root");
        }
        let dir = tempfile::tempdir().unwrap();
        let stager = Stager::open(&dir.path().join("state"), Means::default()).unwrap();
        let root = dir.path().join("space");
        for name in ["lost+found", "users", "deep/er", "other/lost+found"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in ["lost+found/#12", "deep/er/f", "g", "other/lost+found/h"] {
            fs::write(root.join(name), b"x").unwrap();
        }
        let cleared = stager.clear((&root, None), Over::Time, (f64::MAX, 0.0), &|| Ok(())).unwrap();
        assert_eq!((cleared.names, cleared.bytes, cleared.young), (7, 3, 0));
        let mut left: Vec<_> =
            fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["lost+found", "users"]);
        assert!(root.join("lost+found/#12").exists());
        // A job leaves nothing behind.
        let cleared = stager.clear((&root, None), Over::Job, (f64::MAX, 0.0), &|| Ok(())).unwrap();
        assert_eq!(cleared.names, 1);
        assert!(!root.join("users").exists() && root.join("lost+found/#12").exists());
    }

    #[test]
    fn nothing_is_removed_where_somebody_else_has_led_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let stager = Stager::open(&dir.path().join("state"), Means::default()).unwrap();
        let (scratch, victim) = (dir.path().join("scratch"), dir.path().join("victim"));
        fs::create_dir_all(scratch.join("root")).unwrap();
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("old"), b"x").unwrap();
        std::os::unix::fs::symlink(&victim, scratch.join("root/stead")).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        fs::set_permissions(&scratch, open).unwrap();
        if std::os::unix::fs::lchown(scratch.join("root"), Some(4711), None).is_err() {
            return eprintln!("NOT TESTED HERE: only root gives folders away");
        }
        let root = scratch.join("root/stead");
        let clear = |owner| stager.clear((&root, owner), Over::Time, (f64::MAX, 0.0), &|| Ok(()));
        let e = clear(None).unwrap_err();
        assert!(e.kind() == stead_core::Kind::Permission && e.to_string().contains("4711"), "{e}");
        assert!(victim.join("old").exists());
        // Whoever is said to own it is trusted.
        assert_eq!(clear(Some("4711")).unwrap().names, 1);
    }
}
