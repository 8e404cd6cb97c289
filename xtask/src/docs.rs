//! Rules on documents: crates say what they are, dependencies why they are there, kernels what they do.

use crate::Problem;
use crate::metadata::Workspace;
use crate::sources::File;
use std::collections::BTreeSet;

const DEPENDENCIES: &str = "docs/dependencies.md";
const KERNELS: &str = "docs/kernels.md";

/// Checks all documents.
pub fn check(workspace: &Workspace, files: &[File]) -> Vec<Problem> {
    let mut problems = crate_docs(files);
    problems.extend(dependencies(workspace, text(files, DEPENDENCIES)));
    problems.extend(kernels(&kernel_names(files), text(files, KERNELS)));
    problems
}

fn text<'a>(files: &'a [File], path: &str) -> &'a str {
    files.iter().find(|f| f.path == path).and_then(|f| f.text.as_deref()).unwrap_or("")
}

/// Every crate's root file opens with `//!`.
fn crate_docs(files: &[File]) -> Vec<Problem> {
    let is_root = |p: &str| {
        (p.starts_with("crates/") || p.starts_with("xtask/"))
            && (p.ends_with("/src/lib.rs") || p.ends_with("/src/main.rs"))
    };
    files
        .iter()
        .filter(|f| is_root(&f.path))
        .filter(|f| !f.text.as_deref().is_some_and(|t| t.starts_with("//!")))
        .map(|f| {
            Problem::new(&f.path, "opens without module docs (//!): say what the crate is for")
        })
        .collect()
}

/// Names in the first column of a table of the form "| `name` | ...", before the first section of its own: what
/// follows is about tools that are no crates.
fn listed(document: &str) -> BTreeSet<&str> {
    let table = document.split("\n## ").next().unwrap_or(document);
    table.lines().filter_map(|l| l.strip_prefix("| `")?.split('`').next()).collect()
}

/// `docs/dependencies.md` has a line for each direct dependency, and none for others.
fn dependencies(workspace: &Workspace, document: &str) -> Vec<Problem> {
    let listed = listed(document);
    let used: BTreeSet<&str> = workspace
        .members
        .iter()
        .flat_map(|m| m.depends.iter().map(String::as_str))
        .filter(|d| !workspace.is_member(d))
        .collect();
    let missing = used.difference(&listed).map(|d| {
        Problem::new(
            DEPENDENCIES,
            format!("has no line for {d}: say why it is there (\"| `{d}` | ...\")"),
        )
    });
    let stale = listed
        .difference(&used)
        .map(|d| Problem::new(DEPENDENCIES, format!("has a line for {d}, which nobody uses")));
    missing.chain(stale).collect()
}

/// Names of the kernels: the `name: "..."` of every `= Info { ... }` in the kernel crate.
fn kernel_names(files: &[File]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for f in files.iter().filter(|f| f.path.starts_with("crates/kernel/src/")) {
        let text = f.text.as_deref().unwrap_or("");
        for (at, _) in text.match_indices("= Info {") {
            let rest = text[at + "= Info {".len()..].trim_start();
            if let Some(name) = rest.strip_prefix("name: \"").and_then(|r| r.split('"').next()) {
                names.insert(name.to_string());
            }
        }
    }
    names
}

/// Every kernel has its section.
fn kernels(names: &BTreeSet<String>, document: &str) -> Vec<Problem> {
    if names.is_empty() {
        return vec![Problem::new(
            "crates/kernel",
            "no kernel was found; has `Info` changed its form?",
        )];
    }
    names
        .iter()
        .filter(|n| !document.lines().any(|l| l == format!("## {n}")))
        .map(|n| Problem::new(KERNELS, format!("has no section '## {n}'")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Member;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), bytes: text.len() as u64, text: Some(text.into()) }
    }

    #[test]
    fn a_crate_says_what_it_is() {
        assert_eq!(crate_docs(&[file("crates/run/src/lib.rs", "//! Runs.\n")]), []);
        assert_eq!(crate_docs(&[file("crates/run/src/lib.rs", "mod a;\n")]).len(), 1);
        assert_eq!(crate_docs(&[file("crates/run/src/a.rs", "fn a() {}\n")]), []);
    }

    #[test]
    fn each_dependency_has_its_line_and_no_line_is_stale() {
        let w = Workspace {
            members: vec![
                Member { name: "stead-core".into(), depends: vec!["serde".into()] },
                Member { name: "stead".into(), depends: vec!["stead-core".into()] },
            ],
            externals: Vec::new(),
        };
        assert_eq!(dependencies(&w, "| `serde` | derives |\n"), []);
        assert_eq!(
            dependencies(&w, "| `serde` | derives |\n\n## Tools\n\n| `mypy` | types |\n"),
            []
        );
        assert_eq!(dependencies(&w, "").len(), 1);
        assert_eq!(dependencies(&w, "| `serde` | x |\n| `rand` | x |\n").len(), 1);
    }

    #[test]
    fn each_kernel_has_a_section() {
        let f =
            [file("crates/kernel/src/a.rs", "pub const I: Info = Info {\n    name: \"sum\",\n")];
        let names = kernel_names(&f);
        assert!(names.contains("sum"));
        assert_eq!(kernels(&names, "# Kernels\n\n## sum\n"), []);
        assert_eq!(kernels(&names, "## summary\n").len(), 1);
        assert_eq!(kernels(&BTreeSet::new(), "").len(), 1);
    }
}
