//! What administrators have said of a node: it is checked and kept by the broker, and read by all workers.

use crate::job::{self, Job, Process};
use crate::log::log;
use rustix::fs::{
    CWD, Mode, OFlags, RenameFlags, fchmod, fchown, fstat, mkdir, open, renameat_with,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use stead_core::layout::{SpaceConfig, Spaces, spaces::Variable};
use stead_core::{Error, Kind, Result};
use stead_stage::Jobs;
use stead_store::way::{self, Trust};
use stead_store::{AtomicFile, space};

/// Dataspaces that administrators may have given a node.
const MOST_SPACES: usize = 1000;
/// Bytes of the file.
const MOST_BYTES: u64 = 16 << 20;

/// What a worker of an administrator asks the broker. Whatever is in there is checked again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Change {
    /// There is a dataspace of this name; `new` if there was none before.
    Put { name: String, keys: BTreeMap<String, String>, new: bool },
    /// There is none.
    Remove { name: String },
    /// It is as the configuration of the system says.
    Reset { name: String },
    /// A job of a user may use dataspaces.
    Job { job: String, user: u32, dataspaces: BTreeSet<String> },
    /// It is over.
    Unjob { job: String },
    /// A process, which began then, is of a job, and so are those that it begins.
    Process { job: String, pid: u32, start: u64 },
    /// It is of none.
    Unprocess { pid: u32 },
    /// No transfers are taken and begun any more, or they are again.
    Drained(bool),
    /// Nothing is changed: numbers of the users from this one on.
    Numbers { from: u32 },
}

/// The work of a user's worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    /// The number of the user.
    pub user: u32,
    /// Open connections of programs.
    pub connections: u64,
    /// Transfers under way.
    pub running: u64,
    /// Those that wait for their turn, for others, or to be gone on with.
    pub waiting: u64,
    /// Those that are finished, of which the journal knows.
    pub finished: u64,
    /// Those that have failed.
    pub failed: u64,
    /// Bytes that all of them have moved.
    pub bytes: u64,
    /// Bytes a second, of those under way.
    pub rate: f64,
}

/// What administrators have said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Kept {
    /// No transfers are taken.
    pub(crate) drained: bool,
    /// Dataspaces, before those of the system.
    dataspaces: BTreeMap<String, SpaceConfig>,
    /// Those of the system that are taken away.
    removed: BTreeSet<String>,
    pub(crate) jobs: BTreeMap<String, Job>,
    pub(crate) processes: BTreeMap<u32, Process>,
    /// Dataspaces of jobs that are over, in which things of these users may have stayed.
    pub(crate) left: BTreeMap<u32, BTreeSet<String>>,
    /// Which start of the machine the processes are of.
    boot: String,
}

impl Kept {
    /// Reads the file; without one nothing was said.
    ///
    /// # Errors
    /// `Format`, `Limit`; system errors.
    pub(crate) fn read(path: &Path) -> Result<Kept> {
        match std::fs::metadata(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Kept::default()),
            Err(e) => return Err(Error::io("read", path, e)),
            Ok(meta) if meta.len() > MOST_BYTES => {
                return Err(
                    Error::limit("a file of this length is none of the daemon's").at_path(path)
                );
            }
            Ok(_) => {}
        }
        let text = std::fs::read(path).map_err(|e| Error::io("read", path, e))?;
        let mut kept: Kept = serde_json::from_slice(&text).map_err(|e| {
            Error::format(format!("what administrators have set cannot be read: {e}"))
                .at_path(path)
                .with_hint("move the file away, and set it again: stead admin")
        })?;
        let boot = job::boot();
        if kept.boot != boot {
            // Numbers of processes mean others now.
            (kept.processes, kept.boot) = (BTreeMap::new(), boot);
        }
        Ok(kept)
    }

    /// Writes the file; it is on the device when this returns.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec(self)
            .map_err(|e| Error::internal(format!("no text of what is kept: {e}")))?;
        use std::os::unix::fs::PermissionsExt;
        // Workers of all users read it, whenever this is ended: a new one has what the old one has.
        let rights = || std::fs::Permissions::from_mode(0o644);
        match std::fs::set_permissions(path, rights()) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io("set the rights of", path, e));
            }
            _ => {}
        }
        let mut file = AtomicFile::create(path)?;
        let set = file.file().set_permissions(rights());
        set.map_err(|e| Error::io("set the rights of", path, e))?;
        file.write_all(&text)?;
        file.commit()
    }

    /// Does what an administrator says.
    ///
    /// # Errors
    /// `Usage` for what makes no sense, `Limit`.
    pub(crate) fn apply(&mut self, change: Change) -> Result<()> {
        match change {
            Change::Put { name, keys, new } => {
                let config = SpaceConfig::default().with(&name, &keys)?;
                if new && self.dataspaces.contains_key(&name) {
                    return Err(Error::usage(format!("there is a dataspace '{name}' already")));
                }
                if self.dataspaces.len() >= MOST_SPACES && !self.dataspaces.contains_key(&name) {
                    return Err(Error::limit(format!(
                        "there are {MOST_SPACES} dataspaces already"
                    )));
                }
                self.removed.remove(&name);
                self.dataspaces.insert(name, config);
            }
            Change::Remove { name } => {
                SpaceConfig::default()
                    .with(&name, &BTreeMap::from([("path".into(), "/x".into())]))?;
                self.dataspaces.remove(&name);
                if self.removed.len() >= MOST_SPACES {
                    return Err(Error::limit("too many dataspaces were taken away"));
                }
                self.removed.insert(name);
            }
            Change::Reset { name } => {
                let (put, removed) = (self.dataspaces.remove(&name), self.removed.remove(&name));
                if put.is_none() && !removed {
                    let shown = name.escape_debug();
                    return Err(Error::usage(format!("nothing was set of a dataspace '{shown}'"))
                        .with_hint("it is as stead.toml says: stead admin dataspace list"));
                }
            }
            Change::Drained(drained) => self.drained = drained,
            Change::Numbers { .. } => {}
            change => job::apply(self, change)?,
        }
        self.boot = job::boot();
        Ok(())
    }

    /// What dataspaces of the system become. One that makes no sense, as an older version may have taken it, is no reason to have none of
    /// the others.
    pub(crate) fn overlay(&self, spaces: &mut Spaces, variable: Variable<'_>) {
        for name in &self.removed {
            spaces.remove(name);
        }
        for (name, config) in &self.dataspaces {
            if let Err(e) = spaces.put(name, config.clone(), variable) {
                log(&format!("leaves out a dataspace that administrators have set: {e}"));
            }
        }
    }

    /// True if administrators have set something of this dataspace that holds.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.dataspaces.contains_key(name)
    }

    /// True if administrators have set dataspaces.
    pub(crate) fn has_spaces(&self) -> bool {
        !self.dataspaces.is_empty()
    }

    /// A user has nothing left in these dataspaces of jobs; false if that was known.
    pub(crate) fn cleared(&mut self, user: u32, dataspaces: &BTreeSet<String>) -> bool {
        let Some(left) = self.left.get_mut(&user) else { return false };
        let before = left.len();
        left.retain(|name| !dataspaces.contains(name));
        let some = left.len() < before;
        self.left.retain(|_, left| !left.is_empty());
        some
    }

    /// The jobs of a user.
    pub(crate) fn jobs_of(&self, user: u32) -> Jobs {
        let own = self.jobs.iter().filter(|(_, job)| job.user == user);
        own.map(|(name, job)| (name.clone(), job.dataspaces.clone())).collect()
    }
}

/// The dataspaces of the node: those of the system, and what administrators have made of them.
///
/// # Errors
/// Those of reading the configuration of the system.
pub(crate) fn of_system(kept: &Kept, variable: Variable<'_>) -> Result<Spaces> {
    let mut spaces = space::of_system(variable)?;
    kept.overlay(&mut spaces, variable);
    Ok(spaces)
}

/// Makes the folders of dataspaces that are to be made and are not there, with the rights of this process. What it may not is left.
pub(crate) fn make_folders(spaces: &Spaces) {
    for name in spaces.names() {
        if let Err(e) = make_folder(spaces, name) {
            log(&format!("dataspace '{name}': {e}"));
        }
    }
}

/// The folder of a dataspace that is to be made for all users.
pub(crate) fn made_folder<'s>(spaces: &'s Spaces, name: &str) -> Option<&'s Path> {
    let config = spaces.config(name)?;
    let made = config.terms().is_made() && !config.path().contains('$');
    spaces.folder(name).ok().filter(|_| made).map(Path::new)
}

/// Makes the folder of a dataspace, if it is to be made and is not there, with the rights of this process. True if it has done so.
///
/// # Errors
/// Those of making it, of looking up whose it becomes; `Permission` if what is there could be somebody else's.
pub(crate) fn make_folder(spaces: &Spaces, name: &str) -> Result<bool> {
    match (spaces.config(name), made_folder(spaces, name)) {
        (Some(config), Some(path)) => make(config, path),
        _ => Ok(false),
    }
}

/// One is made at a time: what another one has begun is not taken for something that was left.
static MAKING: Mutex<()> = Mutex::new(());

fn make(config: &SpaceConfig, path: &Path) -> Result<bool> {
    let terms = config.terms();
    let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if std::fs::symlink_metadata(path).is_ok() {
        // Nobody is to write there who does not know whose it is.
        return way::open(path, Trust::Settled(terms.owner.as_deref())).map(|_| false);
    }
    let user = terms.owner.as_deref().map(crate::rights::user).transpose()?;
    let group = terms.group.as_deref().map(crate::rights::group).transpose()?;
    let everybody = geteuid().is_root() && terms.owner.is_none();
    let mode = terms.mode.unwrap_or(if everybody { 0o1777 } else { 0o700 });
    // Nobody comes in before it is whose it is to be. The folder above may be open to all: one that was left goes, and whatever else
    // has the name is left alone.
    let new = PathBuf::from(format!("{}.new", path.display()));
    let _ = std::fs::remove_dir(&new);
    mkdir(&new, Mode::RWXU).map_err(|e| match e {
        Errno::EXIST => Error::io("make the folder", path, e.into())
            .with_hint(format!("it is made under the name {}, which something has", new.display())),
        Errno::NOENT => Error::io("make the folder", path, e.into())
            .with_hint("the folder above it is to be there"),
        e => Error::io("make the folder", path, e.into()),
    })?;
    let done = settle(&new, path, (user, group), mode);
    if !matches!(done, Ok(true)) {
        // What is somebody else's stays.
        let _ = std::fs::remove_dir(&new);
    }
    done
}

/// Gives a new folder to whom it is for, and its name. False if something has the name by now. What fails is told with the name that
/// the folder is to have.
fn settle(new: &Path, path: &Path, whose: (Option<u32>, Option<u32>), mode: u32) -> Result<bool> {
    let failed = |doing: &str, e: Errno| Error::io(doing, path, e.into());
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(new, flags, Mode::empty()).map_err(|e| failed("open the new folder", e))?;
    let stat = fstat(&folder).map_err(|e| failed("look at the new folder", e))?;
    if stat.st_uid != geteuid().as_raw() {
        return Err(Error::new(Kind::Changed, "somebody else has made it").at_path(path));
    }
    fchown(&folder, whose.0.map(Uid::from_raw), whose.1.map(Gid::from_raw))
        .map_err(|e| failed("give the folder its owner", e))?;
    fchmod(&folder, Mode::from_raw_mode(mode)).map_err(|e| failed("set the rights of", e))?;
    match renameat_with(CWD, new, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(e) => Err(failed("make the folder", e)),
    }
}

/// Says that somebody is no administrator.
pub(crate) fn refused() -> Error {
    Error::new(Kind::Permission, "only root and the group 'stead' administrate this node")
        .with_hint("who is in the group is known when the daemon is asked for the first time")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(name: &str, path: &str, new: bool) -> Change {
        let keys = BTreeMap::from([("path".to_owned(), path.to_owned())]);
        Change::Put { name: name.into(), keys, new }
    }

    #[test]
    fn what_is_said_is_kept_and_goes_over_the_system() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.json");
        let mut kept = Kept::read(&path).unwrap();
        kept.apply(put("a", "/a", true)).unwrap();
        assert!(kept.apply(put("a", "/b", true)).is_err());
        kept.apply(put("a", "/b", false)).unwrap();
        kept.apply(Change::Remove { name: "s".into() }).unwrap();
        kept.apply(Change::Drained(true)).unwrap();
        kept.write(&path).unwrap();
        let again = Kept::read(&path).unwrap();
        assert_eq!(again, kept);
        let mut spaces =
            Spaces::parse("[dataspace.s]\npath = \"/s\"\n[dataspace.a]\npath = \"/x\"\n", &|_| {
                None
            })
            .unwrap();
        again.overlay(&mut spaces, &|_| None);
        assert_eq!(spaces.names().collect::<Vec<_>>(), ["a"]);
        assert_eq!(spaces.folder("a").unwrap(), "/b");
        // Without what was said of them they are as the file of the system says, or none.
        for name in ["a", "s"] {
            kept.apply(Change::Reset { name: name.into() }).unwrap();
            assert!(kept.apply(Change::Reset { name: name.into() }).is_err());
        }
        let text = "[dataspace.s]\npath = \"/s\"\n";
        let mut spaces = Spaces::parse(text, &|_| None).unwrap();
        kept.overlay(&mut spaces, &|_| None);
        assert_eq!(spaces.names().collect::<Vec<_>>(), ["s"]);
        std::fs::write(&path, b"{\"drained\": 7}").unwrap();
        assert_eq!(Kept::read(&path).unwrap_err().kind(), Kind::Format);
    }

    #[test]
    fn what_an_older_version_took_harms_its_dataspace_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.json");
        std::fs::write(
            &path,
            br#"{"dataspaces": {"n2": {"path": "rel"}, "n3": {"path": "/a/../b", "quota": "5"},
                "a b": {"path": "/c"}, "good": {"path": "/good"}}}"#,
        )
        .unwrap();
        let mut kept = Kept::read(&path).unwrap();
        let mut spaces = Spaces::default();
        kept.overlay(&mut spaces, &|_| None);
        assert_eq!(spaces.names().collect::<Vec<_>>(), ["good", "n2", "n3"]);
        assert_eq!(spaces.place("good").unwrap(), "/good");
        assert!(spaces.place("n2").unwrap_err().message().contains("dataspace 'n2'"));
        kept.apply(put("more", "/more", true)).unwrap();
        kept.apply(put("n2", "/n2", false)).unwrap();
        kept.apply(Change::Remove { name: "n3".into() }).unwrap();
        for name in ["a b", "n3"] {
            kept.apply(Change::Reset { name: name.into() }).unwrap();
        }
        let mut spaces = Spaces::default();
        kept.overlay(&mut spaces, &|_| None);
        assert_eq!(spaces.names().collect::<Vec<_>>(), ["good", "more", "n2"]);
    }

    #[test]
    fn folders_are_made_and_links_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let text = format!(
            "[dataspace.a]\npath = \"{0}/a\"\nmode = \"2750\"\n[dataspace.b]\npath = \"{0}/b\"\nmemory = true\n\
             [dataspace.c]\npath = \"{0}/c\"\n",
            dir.path().display()
        );
        std::fs::create_dir(at("secret")).unwrap();
        std::os::unix::fs::symlink(at("secret"), at("b.new")).unwrap();
        std::fs::create_dir(at("a.new")).unwrap();
        make_folders(&Spaces::parse(&text, &|_| None).unwrap());
        use std::os::unix::fs::PermissionsExt;
        let mode = |name: &str| at(name).metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode("a"), 0o2750);
        assert!(mode("secret") != 0o1777 && !at("b").exists() && !at("c").exists());
        assert!(!at("a.new").exists());
        // What cannot be done is told with the name that was given, and leaves nothing.
        let text = format!(
            "[dataspace.b]\npath = \"{0}/b\"\nmemory = true\n[dataspace.d]\npath = \"{0}/none/d\"\nmode = \"0700\"\n\
             [dataspace.e]\npath = \"{0}/e\"\nowner = \"no-such-user\"\n",
            dir.path().display()
        );
        let spaces = Spaces::parse(&text, &|_| None).unwrap();
        for (name, path, says) in [
            ("b", "b", "file exists"),
            ("d", "none/d", "no such file"),
            ("e", "", "no user 'no-such-user'"),
        ] {
            let e = make_folder(&spaces, name).unwrap_err();
            assert!(e.to_string().contains(says) && !e.to_string().contains(".new"), "{e}");
            assert!(path.is_empty() || e.place().path == Some(at(path)), "{e}");
        }
        assert!(!at("e.new").exists() && !at("e").exists());
    }

    #[test]
    fn a_worker_that_means_no_good_changes_nothing() {
        let mut kept = Kept::default();
        let bucket = BTreeMap::from([
            ("path".to_owned(), "s3://b".to_owned()),
            ("quota".to_owned(), "1TB".to_owned()),
        ]);
        for bad in [
            put("a b", "/a", true),
            put("../x", "/a", true),
            put("a", "relative\n", true),
            put("a", &"/x".repeat(5000), true),
            put("a", "rel", true),
            put("a", "/a/../b", false),
            Change::Remove { name: "a/b".into() },
            Change::Reset { name: "a/b".into() },
            Change::Put { name: "b".into(), keys: bucket, new: true },
            Change::Job { job: "a b".into(), user: 1, dataspaces: BTreeSet::new() },
            Change::Job { job: "1".into(), user: 1, dataspaces: ["a b".to_owned()].into() },
            Change::Unjob { job: "none".into() },
            Change::Process { job: "none".into(), pid: 1, start: 1 },
            Change::Unprocess { pid: 9 },
        ] {
            assert!(kept.apply(bad.clone()).is_err(), "{bad:?}");
        }
        assert_eq!(kept, Kept::default());
        for text in [
            r#"{"put": {"name": "a", "keys": {"path": "/a"}, "new": true, "more": 1}}"#,
            r#"{"reboot": {}}"#,
            r#"{"process": {"job": "1", "pid": -1, "start": 0}}"#,
        ] {
            assert!(serde_json::from_str::<Change>(text).is_err(), "{text}");
        }
    }
}
