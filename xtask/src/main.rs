//! `cargo xtask tidy` and `cargo xtask deps`: the rules of the house as checks that fail a build.
//!
//! Each check is a function from what it looks at (manifests, file texts) to a list of [`Problem`]s, so
//! that its unit tests need no repository. This file only gathers the input and prints the outcome.

mod docs;
mod header;
mod layers;
mod licences;
mod metadata;
mod sources;

use metadata::Workspace;
use sources::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// File or crate.
    pub place: String,
    /// What is wrong and what to do.
    pub message: String,
    /// Shown, but does not fail the check.
    pub warning: bool,
}

impl Problem {
    /// A problem that fails the check.
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Problem { place: place.into(), message: message.into(), warning: false }
    }

    /// A problem that is only shown.
    pub fn warning(place: impl Into<String>, message: impl Into<String>) -> Self {
        Problem { warning: true, ..Problem::new(place, message) }
    }
}

const USAGE: &str = "usage: cargo xtask COMMAND

  tidy   layer table, file length, banned calls, stray files, docs, licences, the C header,
         the lock file of the fuzz targets
  header [--check]  write the headers in include from crates/capi, or say whether they are stale
  deps   the default build of stead-cli links no MPI, HDF5 or NetCDF";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        ["header"] => header::write(&root()),
        ["header", "--check"] => header::check(&root()),
        ["deps"] => deps(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(problems) => report(&args[0], &problems),
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn report(what: &str, problems: &[Problem]) -> ExitCode {
    for p in problems {
        let level = if p.warning { "warning" } else { "error" };
        println!("{level}: {}: {}", p.place, p.message);
    }
    let failed = problems.iter().filter(|p| !p.warning).count();
    if failed > 0 {
        println!("{what}: {failed} broken rule(s)");
        return ExitCode::FAILURE;
    }
    println!("{what}: ok");
    ExitCode::SUCCESS
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

fn tidy() -> Result<Vec<Problem>, String> {
    let root = root();
    let workspace = Workspace::load(&root)?;
    let files = tracked(&root)?;
    let mut problems = layers::check(&workspace);
    problems.extend(licences::check(&workspace));
    problems.extend(sources::check(&files));
    problems.extend(docs::check(&workspace, &files));
    problems.extend(header::check(&root)?);
    problems.extend(fuzz_lock(&root));
    Ok(problems)
}

/// The fuzz targets are a workspace of their own, whose lock file nobody's build brings up to date.
fn fuzz_lock(root: &Path) -> Option<Problem> {
    let asked =
        ["metadata", "--format-version", "1", "--locked", "--manifest-path", "fuzz/Cargo.toml"];
    let said = output(cargo().args(asked), root).err()?;
    let hint = "if it is old, run: cargo metadata --manifest-path fuzz/Cargo.toml >/dev/null";
    Some(Problem::new("fuzz/Cargo.lock", format!("{said}; {hint}")))
}

fn deps() -> Result<Vec<Problem>, String> {
    let tree = output(
        cargo().args(["tree", "--edges", "normal", "--prefix", "none", "--package", "stead-cli"]),
        &root(),
    )?;
    Ok(layers::check_links(&tree))
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Standard output of a command that must succeed.
fn output(command: &mut Command, dir: &Path) -> Result<String, String> {
    let out = command
        .current_dir(dir)
        .output()
        .map_err(|e| format!("cannot start {:?}: {e}", command.get_program()))?;
    if !out.status.success() {
        return Err(format!(
            "{command:?} failed: {}",
            String::from_utf8_lossy(&out.stderr).trim_end()
        ));
    }
    String::from_utf8(out.stdout).map_err(|_| format!("{command:?} did not print UTF-8"))
}

/// Every file that is tracked, or would be by `git add .`, with its text if it is text.
fn tracked(root: &Path) -> Result<Vec<File>, String> {
    let list = output(
        // The owner of the clone may be somebody else than the user who tests it.
        Command::new("git").args([
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]),
        root,
    )?;
    let mut files = Vec::new();
    for path in list.split('\0').filter(|p| !p.is_empty()) {
        let full = root.join(path);
        // Deleted, but not yet committed so.
        let Ok(meta) = full.symlink_metadata() else { continue };
        if !meta.is_file() {
            continue;
        }
        let text = if meta.len() <= sources::LARGE {
            let bytes = std::fs::read(&full).map_err(|e| format!("cannot read {path}: {e}"))?;
            String::from_utf8(bytes).ok()
        } else {
            None
        };
        files.push(File { path: path.to_string(), bytes: meta.len(), text });
    }
    if files.is_empty() {
        return Err("git lists no file".into());
    }
    Ok(files)
}
