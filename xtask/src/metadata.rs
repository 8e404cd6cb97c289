//! What `cargo metadata` says, as far as the checks need it.

use serde_json::Value;
use std::path::Path;

/// A package of the workspace.
#[derive(Debug, Clone, Default)]
pub struct Member {
    /// `stead-run`
    pub name: String,
    /// Names of the packages it depends on directly, of every kind (normal, dev, build).
    pub depends: Vec<String>,
}

/// A package from a registry.
#[derive(Debug, Clone, Default)]
pub struct External {
    /// Name and version.
    pub name: String,
    /// Licence expression, if it states one.
    pub licence: Option<String>,
    /// Where it comes from; `None` for a path outside the workspace.
    pub source: Option<String>,
}

/// The workspace and all it builds on.
#[derive(Debug, Clone, Default)]
pub struct Workspace {
    /// Own packages.
    pub members: Vec<Member>,
    /// Everybody else's.
    pub externals: Vec<External>,
}

impl Workspace {
    /// Asks cargo. `--locked`: the checks are about what is committed.
    pub fn load(root: &Path) -> Result<Workspace, String> {
        let json = crate::output(
            crate::cargo().args(["metadata", "--format-version", "1", "--locked"]),
            root,
        )?;
        let value = serde_json::from_str(&json).map_err(|e| format!("cargo metadata: {e}"))?;
        Workspace::parse(&value).ok_or_else(|| "cargo metadata has an unknown shape".into())
    }

    /// Reads the JSON.
    pub fn parse(value: &Value) -> Option<Workspace> {
        let ids = value["workspace_members"].as_array()?;
        let mut workspace = Workspace::default();
        for p in value["packages"].as_array()? {
            let name = p["name"].as_str()?.to_string();
            if ids.contains(&p["id"]) {
                let mut depends: Vec<String> = p["dependencies"]
                    .as_array()?
                    .iter()
                    .filter_map(|d| d["name"].as_str().map(String::from))
                    .collect();
                depends.sort();
                depends.dedup();
                workspace.members.push(Member { name, depends });
            } else {
                workspace.externals.push(External {
                    name: format!("{name} {}", p["version"].as_str().unwrap_or("?")),
                    licence: p["license"].as_str().map(String::from),
                    source: p["source"].as_str().map(String::from),
                });
            }
        }
        Some(workspace)
    }

    /// True if `name` is a package of the workspace.
    pub fn is_member(&self, name: &str) -> bool {
        self.members.iter().any(|m| m.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_externals_are_told_apart() {
        let json = serde_json::json!({
            "workspace_members": ["a"],
            "packages": [
                {"id": "a", "name": "stead-core", "version": "0.1.0",
                 "dependencies": [{"name": "serde"}, {"name": "serde"}]},
                {"id": "b", "name": "serde", "version": "1.0.0", "license": "MIT",
                 "source": "registry", "dependencies": []},
            ],
        });
        let w = Workspace::parse(&json).expect("metadata");
        assert_eq!(w.members[0].depends, ["serde"]);
        assert_eq!(w.externals[0].name, "serde 1.0.0");
        assert!(w.is_member("stead-core") && !w.is_member("serde"));
        assert!(Workspace::parse(&serde_json::json!({})).is_none());
    }
}
