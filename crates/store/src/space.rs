//! Dataspaces: folders by name, which no path leads out of.
//!
//! What a `stead.toml` says is in [`Spaces`]; here are the places where such files are, and what lies in the folders.

use crate::atomic::sync_folder;
use crate::way::{self, Trust};
use crate::{AtomicFile, FileSource, Folder, Source, region};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use stead_core::layout::{Layout, Part, Spaces, check_relative, spaces::Variable};
use stead_core::{Error, Kind, Result, limits};

/// The configuration of the system.
pub const SYSTEM: &str = "/etc/stead/stead.toml";

/// The dataspaces of the system alone: for who acts for several users.
///
/// # Errors
/// Those of [`Spaces::parse`], and of reading the file. That there is none is no error.
pub fn of_system(variable: &dyn Fn(&str) -> Option<String>) -> Result<Spaces> {
    Ok(configuration(Path::new(SYSTEM), variable)?.unwrap_or_default())
}

/// The dataspaces of the user who runs this process: those of the system, those of the user's own
/// `$XDG_CONFIG_HOME/stead/stead.toml` (`~/.config/...`), those of the file that `STEAD_CONFIG` names, later ones before
/// earlier ones. A process that has other rights than its user believes the system alone, and no variable.
///
/// # Errors
/// As [`of_system`]; `NotFound` if there is no file that `STEAD_CONFIG` names.
pub fn of_user() -> Result<Spaces> {
    of_user_changed(&|_, _| Ok(()))
}

/// What somebody makes of the dataspaces of the system, before users have theirs.
pub type Change<'c> = &'c dyn Fn(&mut Spaces, Variable<'_>) -> Result<()>;

/// As [`of_user`], with those of the system changed.
///
/// # Errors
/// As [`of_user`]; those of `change`.
pub fn of_user_changed(change: Change<'_>) -> Result<Spaces> {
    match has_rights_of_others() {
        true => {
            let mut spaces = of_system(&variable)?;
            change(&mut spaces, &variable)?;
            Ok(spaces)
        }
        false => of_changed(&variable, change),
    }
}

/// The dataspaces of a user whose environment has these variables.
///
/// # Errors
/// Those of [`of_user`].
pub fn of(variable: &dyn Fn(&str) -> Option<String>) -> Result<Spaces> {
    of_changed(variable, &|_, _| Ok(()))
}

/// As [`of`], with those of the system changed.
///
/// # Errors
/// As [`of_user`]; those of `change`.
pub fn of_changed(variable: Variable<'_>, change: Change<'_>) -> Result<Spaces> {
    let mut spaces = of_system(variable)?;
    change(&mut spaces, variable)?;
    let home = |name: &str| variable(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let folder = home("XDG_CONFIG_HOME").or_else(|| home("HOME").map(|p| p.join(".config")));
    if let Some(folder) = folder
        && let Some(own) = configuration(&folder.join("stead/stead.toml"), variable)?
    {
        spaces.extend(own);
    }
    if let Some(path) = variable("STEAD_CONFIG").map(PathBuf::from) {
        let given = configuration(&path, variable)?;
        let missing = || {
            Error::new(Kind::NotFound, "there is no such file")
                .at_path(&path)
                .with_hint("STEAD_CONFIG names it; let it name another one, or none")
        };
        spaces.extend(given.ok_or_else(missing)?);
    }
    spaces.imply(region::SPACE, &region::folder());
    Ok(spaces)
}

/// A variable of this process's environment; an empty one is none. Where the process has other rights than its user, who has
/// set them, there is none.
pub fn variable(name: &str) -> Option<String> {
    if has_rights_of_others() {
        return None;
    }
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// See [`set_home`].
static HOME: OnceLock<PathBuf> = OnceLock::new();

/// The home of the user whose rights this process has: as the environment says, or else as [`set_home`] did.
pub fn home() -> Option<PathBuf> {
    let home = variable("HOME").map(PathBuf::from).or_else(|| HOME.get().cloned());
    home.filter(|path| path.is_absolute())
}

/// Says where the home of the user is whose rights this process has taken, for an environment without one. The first word counts.
pub fn set_home(path: &Path) {
    let _ = HOME.set(path.to_owned());
}

/// True if the process has rights that its user has not (those of the owner of its file, or capabilities), so that what the
/// environment says is not to be believed.
pub fn has_rights_of_others() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return *known;
    }
    use rustix::process::{getegid, geteuid, getgid, getuid};
    if getuid() != geteuid() || getgid() != getegid() {
        return *KNOWN.get_or_init(|| true);
    }
    match has_other_rights(std::fs::read("/proc/self/auxv")) {
        Some(known) => *KNOWN.get_or_init(|| known),
        // Of this moment alone, such as too many open files: nothing is believed, and it is asked again.
        None => true,
    }
}

/// By what the kernel has told the process when it began, pairs of a number and a value; `None` if that cannot be had now.
fn has_other_rights(told: std::io::Result<Vec<u8>>) -> Option<bool> {
    use std::io::ErrorKind;
    const SECURE: usize = 23;
    const WORD: usize = size_of::<usize>();
    match told {
        Ok(told) => Some(told.chunks_exact(2 * WORD).any(|pair| {
            let word = |i: usize| {
                let bytes = pair.get(i * WORD..).and_then(|b| b.first_chunk());
                bytes.map_or(0, |b| usize::from_ne_bytes(*b))
            };
            word(0) == SECURE && word(1) != 0
        })),
        // Without it users and groups are all that is known.
        Err(e) if e.kind() == ErrorKind::NotFound => Some(false),
        // The kernel shows it to no other user: this process is one.
        Err(e) if e.kind() == ErrorKind::PermissionDenied => Some(true),
        Err(_) => None,
    }
}

fn configuration(path: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Spaces>> {
    match text(path, limits::MAX_CONFIG_BYTES) {
        Ok(text) => match Spaces::parse(&text, variable) {
            Ok(spaces) => Ok(Some(spaces.read_from(path))),
            Err(e) => Err(e.at_path(path)),
        },
        Err(e) if e.kind() == Kind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Reads a layout file.
///
/// # Errors
/// Those of [`Layout::parse`], with the path, and of reading the file.
pub fn read_layout(path: &Path) -> Result<Layout> {
    let text = read_layout_text(path)?;
    Layout::parse(&text).map_err(|e| e.at_path(path))
}

/// Reads a layout file as text, for others who parse it.
///
/// # Errors
/// Those of reading the file; `Limit` if it is too long.
pub fn read_layout_text(path: &Path) -> Result<String> {
    text(path, limits::MAX_LAYOUT_BYTES)
}

/// Reads a layout file, or what is in its place, as it is.
///
/// # Errors
/// Those of reading the file; `Limit` if it is too long.
pub fn read_layout_bytes(path: &Path) -> Result<Vec<u8>> {
    bytes(path, limits::MAX_LAYOUT_BYTES)
}

/// A small file.
fn bytes(path: &Path, most: usize) -> Result<Vec<u8>> {
    let source = FileSource::open(path)?;
    let len = usize::try_from(source.len()).ok().filter(|len| *len <= most).ok_or_else(|| {
        let most = stead_core::units::format_size(most as u64);
        Error::limit(format!("the file has more than {most}")).at_path(path)
    })?;
    let mut bytes = vec![0; len];
    source.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// A small file as text.
fn text(path: &Path, most: usize) -> Result<String> {
    let at = |e: std::string::FromUtf8Error| {
        let at = e.utf8_error().valid_up_to() as u64;
        Error::format("the file is not UTF-8 text").at_path(path).at_offset(at)
    };
    String::from_utf8(bytes(path, most)?).map_err(at)
}

/// The folder of a dataspace, or one that is taken for one, open. No path in it leads out of it: paths have no `..`, and links
/// below the folder are not followed, whoever makes them and when.
#[derive(Debug, Clone)]
pub struct Root {
    /// Name of the dataspace, if it is one.
    name: Option<String>,
    path: PathBuf,
    folder: Arc<OwnedFd>,
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Root {
    /// Opens a dataspace. The folder must be there: where a file system is not mounted, files would come to lie on another one.
    ///
    /// # Errors
    /// `Usage` if `spaces` has no such name; `NotFound` without the folder; `Permission` if it is to be made and somebody else has
    /// done so; system errors otherwise.
    pub fn open(spaces: &Spaces, name: &str) -> Result<Root> {
        let path = Path::new(spaces.folder(name)?);
        if spaces.implied(name).is_some() {
            let folder = Arc::new(region::private(path)?);
            return Ok(Root { name: Some(name.to_owned()), path: path.to_owned(), folder });
        }
        // A folder that is made when it is not there, or has its name from who asks, may have been made before by somebody who wants what
        // others write there.
        let made = spaces.terms(name).filter(|terms| terms.is_made());
        if made.is_none() && !spaces.config(name).is_some_and(|space| space.path().contains('$')) {
            return Root::at(Some(name), path);
        }
        let owner = spaces.terms(name).and_then(|terms| terms.owner.as_deref());
        match way::open(path, Trust::Settled(owner)) {
            Ok(folder) => Ok(Root {
                name: Some(name.to_owned()),
                path: path.to_owned(),
                folder: folder.into_fd(),
            }),
            Err(e) if e.kind() == Kind::NotFound => Err(not_there(Some(name), path)),
            Err(e) => Err(e),
        }
    }

    /// Opens a folder as the dataspace `name`, or as one without a name.
    ///
    /// # Errors
    /// `NotFound` without the folder; system errors otherwise.
    pub fn at(name: Option<&str>, path: &Path) -> Result<Root> {
        let name = name.map(str::to_owned);
        match rustix::fs::openat(CWD, path, FOLDER, Mode::empty()) {
            Ok(folder) => Ok(Root { name, path: path.to_owned(), folder: Arc::new(folder) }),
            Err(Errno::NOENT) => Err(not_there(name.as_deref(), path)),
            Err(e) => Err(Error::io("open", path, e.into())),
        }
    }

    /// The folder itself.
    pub fn folder(&self) -> Folder {
        Folder::new(self.folder.clone(), self.path.clone())
    }

    /// The path of what is `path` in the dataspace, to be shown.
    pub fn shown(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    /// The folder of `path`, and its last step. Folders that are not there are made if `make`.
    fn parent<'p>(&self, path: &'p str, make: bool) -> Result<(Arc<OwnedFd>, &'p str)> {
        check_relative(path)?;
        let Some((folders, name)) = path.rsplit_once('/') else {
            return Ok((self.folder.clone(), path));
        };
        let mut here = self.folder.clone();
        for step in folders.split('/') {
            let failed = |doing: &str, e: Errno| self.failed(doing, path, e);
            if make {
                match rustix::fs::mkdirat(&here, step, Mode::from_raw_mode(0o777)) {
                    Ok(()) => sync_folder(&here).map_err(|e| failed("sync the directory of", e))?,
                    Err(Errno::EXIST) => {}
                    Err(e) => return Err(failed("make the folder of", e)),
                }
            }
            let next = rustix::fs::openat(&here, step, FOLDER | OFlags::NOFOLLOW, Mode::empty());
            here = Arc::new(next.map_err(|e| match e {
                // A link to a folder is one, too, for those who do not follow it.
                Errno::NOTDIR if is_file(&here, step) => self.in_the_way(path, step),
                e => failed("open", e),
            })?);
        }
        Ok((here, name))
    }

    fn in_the_way(&self, path: &str, step: &str) -> Error {
        let what = format!("'{step}' is a file, and has the name that a folder needs here");
        Error::usage(what)
            .at_path(self.shown(path))
            .with_hint("move that file away, or choose another name or another dataspace")
    }

    fn failed(&self, doing: &str, path: &str, e: Errno) -> Error {
        match e {
            // The first is for links to files, the second for those to folders.
            Errno::LOOP | Errno::NOTDIR => Error::new(
                Kind::Permission,
                "there is a link on the way, which might lead out of the dataspace",
            )
            .at_path(self.shown(path))
            .with_hint(match &self.name {
                Some(name) => format!("dataspace '{name}' is a folder without links"),
                None => "name files that lie in folders without links".to_owned(),
            }),
            e => Error::io(doing, self.shown(path), e.into()),
        }
    }

    /// Opens a file of the dataspace for reading.
    ///
    /// # Errors
    /// `NotFound`; `Permission` if a link is on the way; those of [`FileSource::open`].
    pub fn source(&self, path: &str) -> Result<FileSource> {
        let (folder, name) = self.parent(path, false)?;
        // Without NONBLOCK the open of a pipe waits for a writer.
        let flags =
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::openat(&folder, name, flags, Mode::empty());
        FileSource::of(file.map_err(|e| self.failed("open", path, e))?.into(), self.shown(path))
    }

    /// A new file of the dataspace, with the folders that it needs.
    ///
    /// # Errors
    /// `Usage` if there is one of this name; `Permission` if a link is on the way; system errors otherwise.
    pub fn create(&self, path: &str) -> Result<AtomicFile> {
        let (folder, name) = self.parent(path, true)?;
        AtomicFile::create_in(&folder, OsStr::new(name), self.shown(path))
    }

    /// Removes a file of the dataspace, if it is there, and the folders that it leaves empty.
    ///
    /// # Errors
    /// System errors.
    pub fn remove(&self, path: &str) -> Result<()> {
        let (folder, name) = match self.parent(path, false) {
            Err(e) if e.kind() == Kind::NotFound => return Ok(()),
            found => found?,
        };
        match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(self.failed("remove", path, e)),
        }
        self.prune(path);
        Ok(())
    }

    /// Removes the folders of `path` that are empty.
    pub fn prune(&self, path: &str) {
        let mut path = path;
        while let Some((folder, _)) = path.rsplit_once('/') {
            let removed = self.parent(folder, false).map(|(parent, name)| {
                rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR).is_ok()
            });
            if !removed.unwrap_or(false) {
                return;
            }
            path = folder;
        }
    }
}

fn not_there(name: Option<&str>, path: &Path) -> Error {
    let message = match name {
        Some(name) => format!("the folder of dataspace '{name}' is not there"),
        None => "this folder is not there".to_owned(),
    };
    Error::new(Kind::NotFound, message)
        .at_path(path)
        .with_hint(format!("mount its file system, or make it: mkdir -p '{}'", path.display()))
}

/// True if there is something of this name that is neither a folder nor a link.
fn is_file(folder: &OwnedFd, name: &str) -> bool {
    use rustix::fs::FileType;
    let kind = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .map(|there| FileType::from_raw_mode(there.st_mode));
    kind.is_ok_and(|kind| !matches!(kind, FileType::Directory | FileType::Symlink))
}

/// Opens a part of a layout, which was read from a file in folder `beside`, on the node that has it.
///
/// # Errors
/// Those of [`Root::open`] and [`Root::source`], or of [`FileSource::open`] for parts outside dataspaces.
pub fn part_source(spaces: &Spaces, beside: &Path, part: &Part) -> Result<FileSource> {
    match &part.space {
        Some(space) => Root::open(spaces, space)?.source(&part.path),
        None => FileSource::open(beside.join(&part.path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(dir: &Path) -> Root {
        let mut spaces = Spaces::default();
        spaces.give(&format!("s={}", dir.display()), &|_| None).unwrap();
        Root::open(&spaces, "s").unwrap()
    }

    #[test]
    fn files_of_a_dataspace_are_made_read_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = space(dir.path());
        let mut file = root.create("a/b/c").unwrap();
        file.write_all(b"hello").unwrap();
        file.commit().unwrap();
        assert_eq!(std::fs::read(dir.path().join("a/b/c")).unwrap(), b"hello");
        assert_eq!(root.create("a/b/c").unwrap_err().kind(), Kind::Usage);
        let source = root.source("a/b/c").unwrap();
        let mut back = [0; 4];
        source.read_at(1, &mut back).unwrap();
        assert_eq!((source.len(), &back, source.path()), (5, b"ello", &*dir.path().join("a/b/c")));
        drop(root.create("a/d").unwrap());
        assert_eq!(std::fs::read_dir(dir.path().join("a")).unwrap().count(), 1);
        root.remove("a/b/c").unwrap();
        root.remove("a/b/c").unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(root.source("a/b/c").unwrap_err().kind(), Kind::NotFound);
    }

    #[test]
    fn no_path_leads_out() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("secret"), b"x").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("folder")).unwrap();
        std::os::unix::fs::symlink(outside.join("secret"), inside.join("file")).unwrap();
        std::os::unix::fs::symlink("../out", inside.join("relative")).unwrap();
        let root = space(&inside);
        for path in ["folder/secret", "file", "relative/secret"] {
            assert_eq!(root.source(path).unwrap_err().kind(), Kind::Permission, "{path}");
        }
        for path in ["folder/new", "relative/new", "file"] {
            root.create(path).unwrap_err();
        }
        // A file where a folder is needed leads nowhere, and is said to be one.
        std::fs::write(inside.join("plain"), b"x").unwrap();
        let e = root.create("plain/new").unwrap_err();
        assert!(e.kind() == Kind::Usage && e.message().contains("'plain' is a file"), "{e}");
        assert!(e.hint().is_some_and(|hint| hint.contains("another name")), "{e:?}");
        assert!(root.remove("folder/secret").is_err());
        for path in ["../out/secret", "/etc/passwd", "a/../../out/secret"] {
            assert_eq!(root.source(path).unwrap_err().kind(), Kind::Usage, "{path}");
        }
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(std::fs::read(outside.join("secret")).unwrap(), b"x");
    }

    #[test]
    fn a_folder_that_anybody_has_made_is_none() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        std::fs::create_dir(&path).unwrap();
        let open = |more: &str| {
            let text = format!("[dataspace.m]\npath = \"{}\"\n{more}\n", path.display());
            let spaces = Spaces::parse(&text, &|_| None).unwrap();
            Root::open(&spaces, "m").map(drop)
        };
        let above = |mode| std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode));
        above(0o1777).unwrap();
        open("memory = true").unwrap();
        // Only root gives folders away.
        if chown(&path, Some(4711), None).is_err() {
            return;
        }
        let others =
            ["owner = \"root\"", "owner = \"4712\"", "owner = \"somebody\"", "owner = \"daemon\""];
        for made in ["memory = true", "mode = \"1777\""].into_iter().chain(others) {
            let e = open(made).unwrap_err();
            assert!(e.kind() == Kind::Permission && e.to_string().contains("4711"), "{made}: {e}");
        }
        for fine in ["", "owner = \"4711\""] {
            open(fine).unwrap();
        }
        above(0o755).unwrap();
        open("memory = true").unwrap();
    }

    #[test]
    fn a_folder_that_is_not_there_is_said_so() {
        let mut spaces = Spaces::default();
        spaces.give("s=/nowhere/at/all", &|_| None).unwrap();
        let e = Root::open(&spaces, "s").unwrap_err();
        assert_eq!(e.kind(), Kind::NotFound);
        assert!(e.hint().is_some_and(|hint| hint.contains("mkdir -p")), "{e}");
    }

    #[test]
    fn configurations_are_read_with_their_name_in_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stead.toml");
        assert_eq!(configuration(&path, &|_| None).unwrap(), None);
        std::fs::write(&path, "[dataspace.a]\npath = \"/a\"\ncolour = 5\n").unwrap();
        let e = configuration(&path, &|_| None).unwrap_err();
        assert!(e.to_string().starts_with(&format!("{}:", path.display())), "{e}");
        std::fs::write(&path, b"[dataspace.a]\npath = \"/\xff\"\n").unwrap();
        assert_eq!(configuration(&path, &|_| None).unwrap_err().place().offset, Some(23));
        std::fs::write(&path, "[dataspace.a]\npath = \"/a\"\n").unwrap();
        assert_eq!(configuration(&path, &|_| None).unwrap().unwrap().folder("a").unwrap(), "/a");
        assert_eq!(read_layout(&path).unwrap_err().kind(), Kind::Format);
    }

    #[test]
    fn a_process_with_other_rights_than_its_user_is_known_by_what_the_kernel_says() {
        let told = |pairs: &[[usize; 2]]| {
            Ok(pairs.iter().flatten().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>())
        };
        assert_eq!(has_other_rights(told(&[[6, 4096], [23, 0], [0, 0]])), Some(false));
        assert_eq!(has_other_rights(told(&[[6, 4096], [23, 1], [0, 0]])), Some(true));
        assert_eq!(has_other_rights(told(&[[1, 23], [0, 1]])), Some(false));
        let failed = |kind| has_other_rights(Err(std::io::Error::from(kind)));
        assert_eq!(failed(std::io::ErrorKind::PermissionDenied), Some(true));
        assert_eq!(failed(std::io::ErrorKind::NotFound), Some(false));
        // Such as too many open files.
        assert_eq!(failed(std::io::ErrorKind::Other), None);
        // And of this one.
        assert!(variable("PATH").is_some());
    }

    #[test]
    fn a_configuration_with_a_variable_that_is_not_set_is_read_for_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stead.toml");
        std::fs::write(&path, "[dataspace.a]\npath = \"/a\"\n[dataspace.b]\npath = \"${B}\"\n")
            .unwrap();
        let spaces = configuration(&path, &|_| None).unwrap().unwrap();
        assert_eq!(spaces.folder("a").unwrap(), "/a");
        let e = spaces.folder("b").unwrap_err();
        assert!(e.to_string().starts_with(&format!("{}:4", path.display())), "{e}");
    }
}
