//! Dataspaces that no file of this node has, and its daemon knows: administrators have set them while it runs. For programs that do their work
//! themselves.

use crate::client::Client;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use stead_core::layout::{SpaceConfig, Spaces};
use stead_core::{BucketUrl, Error, Result};
use stead_stage::{Request, Stager, Usage};
use stead_store::space;
use stead_stream::{Patience, Stop};

/// How long the daemon has to say which there are.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Of these names, those that `known` has not, as the daemon of this node has them. It is asked only if there is such a name, and has some
/// seconds for its answer; where none runs there are none. What is agreed about them is in it.
///
/// # Errors
/// Those of [`Client::connect`], `Timeout` among them, with the name that is asked for.
pub fn dataspaces_named<'n>(
    known: &Spaces,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<Spaces> {
    named(None, ANSWERS_WITHIN, known, names)
}

/// All that the daemon of this node has, and `known` has not. Where none runs there are none.
///
/// # Errors
/// Those of [`Client::connect`], `Timeout` among them.
pub fn dataspaces_besides(known: &Spaces) -> Result<Spaces> {
    Ok(of(told(None, ANSWERS_WITHIN)?, |name| !known.has(name)))
}

/// Has a stager know the dataspaces that a request names and no file has: see [`dataspaces_named`].
///
/// # Errors
/// As there.
pub fn learn(stager: &Stager, request: &Request) -> Result<()> {
    let all = request.sources.iter().chain(&request.target);
    let names = all.filter(|at| at.node.is_none()).filter_map(|at| at.space.as_deref());
    let found = dataspaces_named(&stager.means().spaces, names)?;
    if found.names().next().is_some() {
        stager.learn(found);
    }
    Ok(())
}

fn named<'n>(
    socket: Option<&Path>,
    within: Duration,
    known: &Spaces,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<Spaces> {
    // Everybody has `memory`, also who asks nobody: regions and streams of a program are to lie where its transfers look for them.
    let unknown = |name: &&str| !known.has(name) && !BucketUrl::is_scheme(name);
    let names: BTreeSet<&str> = names.into_iter().filter(unknown).collect();
    let Some(first) = names.first() else { return Ok(Spaces::default()) };
    let all = told(socket, within).map_err(|e| {
        let message = format!(
            "dataspace '{first}' is in no stead.toml, and the daemon is not to be asked: {e}"
        );
        let hint =
            "see whether it is well: systemctl status steadd; STEAD_SOCKET=none does without it";
        Error::new(e.kind(), message).with_hint(hint)
    })?;
    Ok(of(all, |name| names.contains(name)))
}

/// What the daemon has.
fn told(socket: Option<&Path>, within: Duration) -> Result<Vec<Usage>> {
    // Who has other rights than its user believes the file of the system alone.
    if space::has_rights_of_others() {
        return Ok(Vec::new());
    }
    let patience = Patience::new(within, Stop::default());
    match Client::connect_within(socket, &patience)? {
        Some(mut daemon) => daemon.configured(),
        None => Ok(Vec::new()),
    }
}

/// Those of these names, as if they stood in the file of the system. What is not understood, as of another version, there is not.
fn of(all: Vec<Usage>, wanted: impl Fn(&str) -> bool) -> Spaces {
    let mut found = Spaces::default();
    for usage in all.into_iter().filter(|usage| wanted(&usage.name)) {
        if let Ok(config) = SpaceConfig::try_from(usage.set) {
            // What is wrong with its variables is for whoever uses it.
            let _ = found.put(&usage.name, config, &space::variable);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;
    use crate::protocol::{Answer, Ask, PROTOCOL};
    use std::os::unix::net::UnixListener;
    use stead_core::Kind;

    fn known(text: &str) -> Spaces {
        Spaces::parse(text, &|_| None).unwrap()
    }

    #[test]
    fn names_that_no_file_has_are_asked_of_the_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let known = known("[dataspace.a]\npath = \"/a\"\n");
        let long = Duration::from_secs(60);
        let ask =
            |names: &[&'static str]| named(Some(&socket), long, &known, names.iter().copied());
        // Where no daemon runs there are none.
        assert_eq!(ask(&["b"]).unwrap(), Spaces::default());
        let listener = UnixListener::bind(&socket).unwrap();
        // Nobody would answer.
        assert_eq!(ask(&["a", "s3"]).unwrap(), Spaces::default());
        let says = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let hello = serde_json::json!({
                "protocol": PROTOCOL, "version": "0", "node": "n", "user": 0, "drained": false, "job": null
            });
            frame::write(&mut stream, &hello).unwrap();
            let asked = frame::read::<Ask>(&mut stream).unwrap();
            assert_eq!(asked, Some(Ask::Dataspaces {}));
            let usage = |name: &str, keys: &[(&str, &str)]| Usage {
                name: name.to_owned(),
                set: keys.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
                ..Usage::default()
            };
            let all = vec![
                usage("a", &[("path", "/other")]),
                usage("b", &[("path", "/b"), ("user_quota", "5"), ("mode", "2770")]),
                usage("c", &[("path", "/c"), ("colour", "red")]),
                usage("d", &[("path", "/d")]),
                usage("memory", &[]),
            ];
            frame::write(&mut stream, &Answer::Spaces(all)).unwrap();
        });
        let found = ask(&["a", "b", "c", "memory"]).unwrap();
        says.join().unwrap();
        assert_eq!(found.names().collect::<Vec<_>>(), ["b"]);
        let terms = found.terms("b").unwrap();
        assert!(
            found.folder("b").unwrap() == "/b" && terms.user_quota == Some(5) && terms.is_made()
        );
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_told_for_names_that_no_file_has() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let _listener = UnixListener::bind(&socket).unwrap();
        let known = known("[dataspace.a]\npath = \"/a\"\n");
        let soon = Duration::from_millis(200);
        assert!(named(Some(&socket), soon, &known, ["a"]).is_ok());
        let e = named(Some(&socket), soon, &known, ["a", "b"]).unwrap_err();
        assert!(e.kind() == Kind::Timeout && e.to_string().contains("dataspace 'b'"), "{e}");
        assert!(e.hint().is_some_and(|hint| hint.contains("STEAD_SOCKET=none")), "{e:?}");
    }
}
