//! The files that a run writes: looked at before the data are, named when everything is done.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use stead_core::{Error, Result};
use stead_format::Dataset;
use stead_kernel::Spec;
use stead_store::AtomicFile;

/// Files of one run. Those that are whole wait for [`Outputs::commit`]; dropped before, they leave nothing.
#[derive(Debug, Default)]
pub struct Outputs {
    /// What is written to, links followed.
    claimed: Vec<PathBuf>,
    whole: Vec<AtomicFile>,
}

impl Outputs {
    /// Takes `path`, unless that would destroy the data or another output, or nothing can be written there.
    pub fn claim(&mut self, dataset: &Dataset, path: &Path) -> Result<()> {
        spare(dataset.sources().iter().flat_map(|s| s.files()), path)?;
        let target = real(path);
        if self.claimed.contains(&target) {
            return Err(Error::usage("two outputs have this name")
                .at_path(path)
                .with_hint("give each its own name with out=PATH"));
        }
        // Dropped, it leaves nothing.
        AtomicFile::create(path)?;
        self.claimed.push(target);
        Ok(())
    }

    /// Keeps a file that is whole for the end of the run.
    pub fn keep(&mut self, file: AtomicFile) {
        self.whole.push(file);
    }

    /// Keeps files that get their names before all others: if one of them gets none, the others get none either.
    pub fn keep_first(&mut self, files: Vec<AtomicFile>) {
        self.whole.splice(0..0, files);
    }

    /// Gives all files their names, when all are whole.
    pub fn commit(self) -> Result<()> {
        AtomicFile::commit_all(self.whole)
    }
}

/// Refuses to write to `path` if that is one of these files, by whatever name.
pub fn spare(files: impl IntoIterator<Item = PathBuf>, path: &Path) -> Result<()> {
    let target = real(path);
    if files.into_iter().any(|f| real(&f) == target) {
        return Err(Error::usage("this output would replace the data it is made of")
            .at_path(path)
            .with_hint("give another name with out=PATH"));
    }
    Ok(())
}

/// Files that kernels have made, for somebody who is elsewhere: what they are to be called there, and their bytes.
pub type Carried = Vec<(PathBuf, Vec<u8>)>;

/// Refuses what cannot be carried to who has asked for it: files as large as the data (of a kernel that `maps` blocks), and
/// files that none of `specs` names.
pub fn carriable(name: &str, maps: bool, output: Option<&Path>, specs: &[Spec]) -> Result<()> {
    if maps {
        return Err(Error::usage(format!(
            "kernel '{name}' writes what it makes of the records to a file, which is not sent to another node"
        ))
        .with_hint("run it where the data are: mpirun --host STORAGE stead run ..."));
    }
    let named = |path: &Path| {
        specs.iter().any(|s| s.option("out").is_some_and(|out| path.as_os_str() == out))
    };
    match output {
        Some(path) if !named(path) => Err(Error::usage(format!(
            "kernel '{name}' writes a file, and its name would be one of another node"
        ))
        .with_hint("say what it is to be called here: out=FILE")),
        _ => Ok(()),
    }
}

/// Where a name leads: of a file that is not there yet, its place in the directory that is.
pub fn real(path: &Path) -> PathBuf {
    if let Ok(p) = std::fs::canonicalize(path) {
        return p;
    }
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().map_or_else(OsString::new, OsString::from);
    std::fs::canonicalize(dir).map_or_else(|_| path.to_path_buf(), |d| d.join(name))
}
