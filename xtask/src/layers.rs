//! The layer table: which room may know which. Arrows only point down.

use crate::Problem;
use crate::metadata::Workspace;

/// Rooms by layer. A crate may depend on crates of lower layers only, in tests too.
///
/// A crate that is not here is an error, so a new room is first given its place.
const LAYERS: &[(&str, usize)] = &[
    ("stead-core", 0),
    ("stead-simd", 0),
    ("stead-store", 1),
    ("stead-kernel", 1),
    ("stead-fabric", 1),
    ("stead-model", 1),
    ("stead-format", 2),
    ("stead-mpi", 2),
    ("stead-read", 3),
    ("stead-stage", 3),
    ("stead-stream", 3),
    ("stead-run", 4),
    ("stead-flow", 4),
    ("stead-daemon", 5),
    ("stead", 6),
    ("stead-cli", 7),
    ("stead-capi", 7),
    ("stead-mpi-capi", 7),
    ("stead-bench", 7),
    ("stead-python", 8),
];

/// What a room must not know although the layers would let it: (room, crate, why).
const STRANGERS: &[(&str, &str, &str)] = &[
    ("stead-read", "stead-kernel", "read sessions move bytes and compute nothing"),
    ("stead-stage", "stead-kernel", "staging moves bytes and computes nothing"),
    ("stead-stage", "stead-format", "staging does not look into files"),
    ("stead-mpi", "stead-store", "mpi carries messages; it reads no files"),
    ("stead-cli", "stead-store", "the command line holds no logic that a library user would miss"),
    ("stead-cli", "stead-format", "the command line holds no logic that a library user would miss"),
    ("stead-cli", "stead-fabric", "the command line holds no logic that a library user would miss"),
];

/// Crates that only `stead-mpi` or an optional feature may bring in.
const NATIVE: &[&str] = &["mpi", "rsmpi", "libmpi", "hdf5", "netcdf", "libnetcdf", "libhdf5"];

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().find(|(n, _)| *n == name).map(|(_, l)| *l)
}

/// Every arrow points down.
pub fn check(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for member in workspace.members.iter().filter(|m| m.name != "xtask") {
        let Some(from) = layer(&member.name) else {
            problems.push(Problem::new(
                &member.name,
                "is not in the layer table; give it a layer in xtask/src/layers.rs and ARCHITECTURE.md",
            ));
            continue;
        };
        for dependency in &member.depends {
            if let Some(to) = layer(dependency).filter(|to| *to >= from) {
                problems.push(Problem::new(
                    &member.name,
                    format!("(layer {from}) must not depend on {dependency} (layer {to}): arrows only point down"),
                ));
            }
            for (_, _, why) in STRANGERS
                .iter()
                .filter(|(room, other, _)| *room == member.name && other == dependency)
            {
                problems
                    .push(Problem::new(&member.name, format!("must not know {dependency}: {why}")));
            }
        }
    }
    problems
}

/// No line of `cargo tree --prefix none` names a crate that links MPI, HDF5 or NetCDF.
pub fn check_links(tree: &str) -> Vec<Problem> {
    let mut names: Vec<&str> = tree.lines().filter_map(|l| l.split_whitespace().next()).collect();
    names.sort_unstable();
    names.dedup();
    if !names.contains(&"stead-cli") {
        return vec![Problem::new("cargo tree", "does not show stead-cli")];
    }
    names
        .into_iter()
        .filter(|name| {
            NATIVE.iter().any(|n| {
                name.strip_prefix(n)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
            })
        })
        .map(|n| {
            Problem::new(
                "stead-cli",
                format!("the default build links {n}; put it behind a feature"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Member;

    fn workspace(name: &str, depends: &[&str]) -> Workspace {
        let depends = depends.iter().map(|s| s.to_string()).collect();
        Workspace { members: vec![Member { name: name.into(), depends }], externals: Vec::new() }
    }

    #[test]
    fn arrows_point_down() {
        assert_eq!(check(&workspace("stead-run", &["stead-core", "stead-format", "serde"])), []);
        let up = check(&workspace("stead-kernel", &["stead-run"]));
        assert!(up[0].message.contains("arrows only point down"), "{up:?}");
        let level = check(&workspace("stead-kernel", &["stead-store"]));
        assert_eq!(level.len(), 1, "{level:?}");
    }

    #[test]
    fn an_unknown_room_is_an_error() {
        assert_eq!(check(&workspace("stead-attic", &[])).len(), 1);
        assert_eq!(check(&workspace("xtask", &["serde_json"])), []);
    }

    #[test]
    fn some_rooms_must_not_know_each_other() {
        assert_eq!(check(&workspace("stead-stage", &["stead-kernel"])).len(), 1);
        assert_eq!(check(&workspace("stead-cli", &["stead"])), []);
    }

    #[test]
    fn native_libraries_are_found_by_name() {
        assert_eq!(check_links("stead-cli v0.1.0\nserde v1.0.0\nimpls v1.0.0\n"), []);
        assert_eq!(check_links("stead-cli v0.1.0\nmpi v0.8.0\nhdf5-sys v1\nnetcdf v1\n").len(), 3);
        assert_eq!(check_links("").len(), 1);
    }
}
