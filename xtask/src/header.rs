//! `cargo xtask header`: writes `include/stead.h` and `include/stead_admin.h` from the crate `stead-capi`, or says that it is stale.

use crate::Problem;
use cbindgen::{Config, DocumentationStyle, Language, SortKey, Style};
use std::path::Path;

const HEADER: &str = "include/stead.h";
const ADMIN: &str = "include/stead_admin.h";

/// The files of the crate in the order in which a reader meets their functions.
const FILES: &[&str] = &[
    "text",
    "error",
    "options",
    "dataset",
    "memory",
    "request",
    "cancel",
    "run",
    "report",
    "value",
    "own",
    "block",
    "builder",
    "session",
    "ranks",
    "layout",
    "view",
    "under_way",
    "pending",
    "queue",
    "tipsy",
    "calibrate",
    "offload",
    "region",
    "stage_request",
    "stage",
    "listing",
    "daemon",
    "daemon_flow",
    "persist",
    "stream",
    "stream_coupling",
    "stream_writer",
    "stream_buffer",
    "stream_reader",
    "stream_step",
    "stream_subscription",
    "flow",
];

/// Those whose functions are for administrators.
const ADMIN_FILES: &[&str] = &["admin"];

const ADMIN_PREAMBLE: &str = "/*
 * stead for administrators: what root, members of the group `stead`, and who has a daemon of its own say to the daemon of
 * a node (docs/steadd.md).
 *
 * Generated from crates/capi by `cargo xtask header`; changes belong there. All that stands in stead.h about calls,
 * handles, texts and threads holds here.
 */

#include \"stead.h\"";

const PREAMBLE: &str = "/*
 * stead: keep the data home; send the work.
 *
 * Generated from crates/capi by `cargo xtask header`; changes belong there.
 *
 * Calls. A function that can fail returns a stead_status, STEAD_OK or the kind of failure, and takes a
 * `stead_error **error` last. If that is not NULL, `*error` is NULL on success and a new error otherwise, to be
 * freed with stead_error_free. stead_last_message has the message in any case. Answers go to the places that the
 * caller names; a handle is NULL there after a failure, other answers are not written then.
 *
 * Handles are opaque, and nothing lies where they seem to point. What was freed, is of another type, or was never a
 * handle is an error of kind STEAD_USAGE and no crash, and so is NULL where it makes no sense. Functions that return
 * their answer return 0, NULL or what they say then.
 *
 * Texts are UTF-8 and end with a zero byte. Those of type `const char *` live as long as the handle they came from;
 * those written through `char **` are the caller's, to be freed with stead_text_free.
 *
 * Threads. Every function may be called from any thread at any time. Datasets, reports and errors are immutable;
 * options and requests are locked while they are read or changed. What must not happen is that one thread frees a
 * handle while another one reads a text of it. After fork() the child may use stead only if no run was under way.
 *
 * Memory that is lent (stead_open_array and its like) must stay as it is until it is released.
 *
 * No function throws, prints, exits or installs signal handlers.
 */";

/// What the headers must be.
fn generate(root: &Path) -> Result<[(&'static str, String); 2], String> {
    Ok([(HEADER, main(root)?), (ADMIN, admin(root)?)])
}

fn config(preamble: &str, guard: &str) -> Config {
    let mut config = Config {
        language: Language::C,
        header: Some(preamble.into()),
        include_guard: Some(guard.into()),
        no_includes: true,
        cpp_compat: true,
        documentation_style: DocumentationStyle::Doxy,
        style: Style::Both,
        usize_is_size_t: true,
        line_length: 120,
        tab_width: 4,
        ..Config::default()
    };
    config.function.sort_by = Some(SortKey::None);
    config.constant.sort_by = Some(SortKey::None);
    config
}

fn written(header: &str, builder: cbindgen::Builder) -> Result<String, String> {
    let bindings = builder.generate().map_err(|e| format!("cannot generate {header}: {e}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).map_err(|_| format!("{header} would not be UTF-8"))
}

fn admin(root: &Path) -> Result<String, String> {
    let mut builder = cbindgen::Builder::new().with_config(config(ADMIN_PREAMBLE, "STEAD_ADMIN_H"));
    for file in ADMIN_FILES {
        builder = builder.with_src(root.join(format!("crates/capi/src/{file}.rs")));
    }
    written(ADMIN, builder)
}

fn main(root: &Path) -> Result<String, String> {
    let version = env!("CARGO_PKG_VERSION");
    let mut parts = version.split('.');
    let mut part = || parts.next().unwrap_or("0");
    let (major, minor, patch) = (part(), part(), part());
    let macros = format!(
        "\n/** The version of this header; stead_version() is that of the library. */\n\
         #define STEAD_VERSION \"{version}\"\n\
         #define STEAD_VERSION_MAJOR {major}\n\
         #define STEAD_VERSION_MINOR {minor}\n\
         #define STEAD_VERSION_PATCH {patch}\n"
    );
    let config = Config {
        after_includes: Some(macros),
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(String::from).to_vec(),
        ..config(PREAMBLE, "STEAD_H")
    };
    let mut builder = cbindgen::Builder::new().with_config(config);
    // The record of a fabric, for what `ranks` declares.
    builder = builder.with_src(root.join("crates/fabric/src/functions.rs"));
    for file in FILES {
        builder = builder.with_src(root.join(format!("crates/capi/src/{file}.rs")));
    }
    written(HEADER, builder)
}

/// Writes the headers.
pub fn write(root: &Path) -> Result<Vec<Problem>, String> {
    for (header, text) in generate(root)? {
        std::fs::write(root.join(header), text)
            .map_err(|e| format!("cannot write {header}: {e}"))?;
    }
    Ok(Vec::new())
}

/// A problem for each header that is not what it must be.
pub fn check(root: &Path) -> Result<Vec<Problem>, String> {
    let found = |header| std::fs::read_to_string(root.join(header)).unwrap_or_default();
    let all = generate(root)?;
    Ok(all.iter().flat_map(|(header, text)| compare(header, text, &found(header))).collect())
}

fn compare(header: &str, wanted: &str, found: &str) -> Vec<Problem> {
    if wanted == found {
        return Vec::new();
    }
    let same = wanted.lines().zip(found.lines()).take_while(|(a, b)| a == b).count();
    vec![Problem::new(
        format!("{header}:{}", same + 1),
        "is not what crates/capi says: run `cargo xtask header`",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_header_is_found() {
        assert_eq!(compare(HEADER, "a\nb\n", "a\nb\n"), []);
        assert_eq!(compare(HEADER, "a\nb\n", "a\nc\n")[0].place, "include/stead.h:2");
        assert_eq!(compare(HEADER, "a\n", "").len(), 1);
    }

    #[test]
    fn every_file_of_the_crate_with_functions_is_in_the_header() {
        let root = crate::root();
        let text = generate(&root).expect("headers").map(|(_, text)| text).concat();
        let mut functions = 0;
        for entry in std::fs::read_dir(root.join("crates/capi/src")).expect("sources") {
            let source = std::fs::read_to_string(entry.expect("entry").path()).expect("text");
            for line in source.lines().filter(|l| l.contains("extern \"C\" fn stead_")) {
                let name = line.split("fn ").nth(1).and_then(|l| l.split('(').next());
                assert!(name.is_some_and(|n| text.contains(&format!("{n}("))), "{line}");
                functions += 1;
            }
        }
        assert!(functions > 80, "{functions}");
    }
}
