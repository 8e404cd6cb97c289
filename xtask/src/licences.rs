//! Every package that is built has a licence that ours can live with, and comes from the registry.

use crate::Problem;
use crate::metadata::Workspace;

/// As in `deny.toml`.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Tools, and packages of other systems, that no artifact contains, with their licence, and why they are here all the same: (package, licence, why).
const TOOLS: &[(&str, &str, &str)] = &[
    (
        "cbindgen",
        "MPL-2.0",
        "generates the C header in xtask; nothing of it is in what is built or installed",
    ),
    (
        "webpki-root-certs",
        "CDLA-Permissive-2.0",
        "root certificates for TLS on Android, which the lock file names; Linux has its own",
    ),
];

/// True if a package is one of these, under the licence that is known of it.
fn tool(package: &str, licence: &str) -> bool {
    let name = package.split(' ').next();
    TOOLS.iter().any(|(n, l, _)| Some(*n) == name && *l == licence)
}

/// True if the expression can be met with allowed licences alone.
fn allowed(expression: &str) -> bool {
    // LAX: the old `MIT/Apache-2.0`.
    spdx::Expression::parse_mode(expression, spdx::ParseMode::LAX)
        .is_ok_and(|e| e.evaluate(|r| r.license.id().is_some_and(|id| ALLOWED.contains(&id.name))))
}

/// Checks all packages of the lock file.
pub fn check(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for p in &workspace.externals {
        match &p.licence {
            None => problems.push(Problem::new(&p.name, "states no licence")),
            Some(l) if !allowed(l) && !tool(&p.name, l) => problems
                .push(Problem::new(&p.name, format!("its licence '{l}' is not on the allow-list"))),
            Some(_) => {}
        }
        if !p.source.as_deref().is_some_and(|s| s.starts_with("registry+")) {
            problems.push(Problem::new(&p.name, "does not come from the package registry"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::External;

    #[test]
    fn expressions_are_evaluated() {
        for l in
            ["MIT", "MIT OR GPL-3.0-only", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0"]
        {
            assert!(allowed(l), "{l}");
        }
        for l in ["GPL-3.0-only", "MIT AND GPL-2.0-only", "", "nonsense"] {
            assert!(!allowed(l), "{l}");
        }
        assert!(allowed("Apache-2.0 WITH LLVM-exception OR MIT"));
    }

    #[test]
    fn tools_have_the_licence_that_is_known_of_them() {
        assert!(tool("cbindgen 0.29.4", "MPL-2.0"));
        assert!(!tool("cbindgen 0.29.4", "GPL-3.0-only") && !tool("serde 1.0.0", "MPL-2.0"));
    }

    #[test]
    fn a_package_needs_a_licence_and_a_registry() {
        let one = |licence: Option<&str>, source: Option<&str>| {
            check(&Workspace {
                members: Vec::new(),
                externals: vec![External {
                    name: "x 1.0.0".into(),
                    licence: licence.map(String::from),
                    source: source.map(String::from),
                }],
            })
            .len()
        };
        assert_eq!(one(Some("MIT"), Some("registry+x")), 0);
        assert_eq!(one(None, Some("registry+x")), 1);
        assert_eq!(one(Some("MIT"), Some("git+x")), 1);
        assert_eq!(one(None, None), 2);
    }
}
