//! Where the profile of the machines is kept: `profile.toml` in the user's configuration, or what `STEAD_PROFILE` names.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use stead_core::{Error, Kind, Result};
use stead_model::Profile;
use stead_store::AtomicFile;

/// Bytes that are looked at; longer ones are refused by who parses them.
const MOST: u64 = (4 << 20) + 1;

/// Where the profile is, whether it is there or not: `STEAD_PROFILE`, else `stead/profile.toml` in `XDG_CONFIG_HOME`, else
/// `.config/stead/profile.toml` in the user's home. `None` if the user has none of these, or wants none (`STEAD_PROFILE` is
/// empty).
pub fn path() -> Option<PathBuf> {
    found(|name| std::env::var_os(name)).map(|(path, _)| path)
}

/// And whether it was named, so that it must be there.
fn found(variable: impl Fn(&str) -> Option<OsString>) -> Option<(PathBuf, bool)> {
    match variable("STEAD_PROFILE") {
        Some(own) if own.is_empty() => return None,
        Some(own) => return Some((own.into(), true)),
        None => {}
    }
    let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|f| f.is_absolute());
    let home = || variable("HOME").map(|h| PathBuf::from(h).join(".config"));
    Some((folder.or_else(home)?.join("stead").join("profile.toml"), false))
}

/// The user's profile; `None` if nothing was measured.
///
/// # Errors
/// Those of [`load_from`], but for a file that is not there and that `STEAD_PROFILE` does not name.
pub fn load() -> Result<Option<(PathBuf, Profile)>> {
    let Some((path, named)) = found(|name| std::env::var_os(name)) else { return Ok(None) };
    match load_from(&path) {
        Ok(profile) => Ok(Some((path, profile))),
        Err(e) if e.kind() == Kind::NotFound && !named => Ok(None),
        Err(e) => Err(e),
    }
}

/// Reads a profile.
///
/// # Errors
/// `NotFound`, `Permission`, `Io`; `Format` if it is none.
pub fn load_from(path: &Path) -> Result<Profile> {
    let failed = |e| Error::io("read the profile", path, e);
    let mut text = String::new();
    File::open(path).and_then(|file| file.take(MOST).read_to_string(&mut text)).map_err(failed)?;
    Profile::parse(&text).map_err(|e| e.at_path(path))
}

/// Writes a profile so that it is there whole or not at all. The folder of the user's own one is made.
///
/// # Errors
/// `Format` for numbers without sense; `Permission`, `NoSpace`, `Io`.
pub fn save(profile: &Profile, path: &Path) -> Result<()> {
    let text = profile.to_text()?;
    if let Some(folder) = path.parent().filter(|_| self::path().as_deref() == Some(path)) {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("make the folder", folder, e))?;
    }
    let mut file = AtomicFile::create(path)?;
    file.write_all(text.as_bytes())?;
    file.commit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_model::Site;

    #[test]
    fn it_is_found_by_what_the_user_has_set() {
        let of = |set: &'static [(&str, &str)]| {
            let value = |n: &str| set.iter().find(|(k, _)| *k == n).map(|(_, v)| OsString::from(v));
            found(value).map(|(p, named)| (p.to_string_lossy().into_owned(), named))
        };
        let is = |path: &str, named| Some((path.to_owned(), named));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("HOME", "/h")]), is("/h/.config/stead/profile.toml", false));
        let both = of(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")]);
        assert_eq!(both, is("/c/stead/profile.toml", false));
        let odd = of(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "c")]);
        assert_eq!(odd, is("/h/.config/stead/profile.toml", false));
        assert_eq!(of(&[("HOME", "/h"), ("STEAD_PROFILE", "p")]), is("p", true));
        assert_eq!(of(&[("HOME", "/h"), ("STEAD_PROFILE", "")]), None);
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("p.toml");
        assert_eq!(load_from(&path).expect_err("none").kind(), Kind::NotFound);
        let profile =
            Profile { version: 1, sites: vec![Site::new("a", 4.0)], ..Profile::default() };
        save(&profile, &path).expect("save");
        assert_eq!(load_from(&path).expect("load"), profile);
        std::fs::write(&path, "version = 1\nsites = 3\n").expect("write");
        let e = load_from(&path).expect_err("no profile");
        assert_eq!(e.kind(), Kind::Format);
        assert!(e.to_string().contains("p.toml"), "{e}");
        assert!(save(&Profile::default(), &path).is_err(), "version 0");
    }
}
