//! Lists of nodes as Slurm writes them: `node[1-4,7],login`, `rack[1-2]n[01-16]`.

use crate::{Error, Result, limits};
use std::collections::HashSet;

/// Longest host name.
const LONGEST: usize = 255;

/// The nodes of a list, in its order. Numbers keep their leading zeros: `n[08-11]` is `n08`, `n09`, `n10`, `n11`.
///
/// # Errors
/// `Usage` for what is no list, a range that descends, a node that is named twice; `Limit` above
/// [`limits::MAX_NODES`] nodes, before they are made.
///
/// ```
/// # use stead_core::layout::nodes;
/// assert_eq!(nodes::expand("node[1-3],login")?, ["node1", "node2", "node3", "login"]);
/// # Ok::<(), stead_core::Error>(())
/// ```
pub fn expand(list: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for item in items(list)? {
        one(item, &mut all)?;
    }
    let mut seen = HashSet::with_capacity(all.len());
    match all.iter().find(|n| !seen.insert(n.as_str())) {
        Some(twice) => Err(Error::usage(format!("node '{twice}' is named twice in '{list}'"))),
        None => Ok(all),
    }
}

/// The parts of a list between commas that are in no brackets.
pub(super) fn items(list: &str) -> Result<Vec<&str>> {
    let mut items = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (i, c) in list.bytes().enumerate() {
        match c {
            b'[' if inside => return Err(bad(list, "has a bracket within brackets")),
            b'[' => inside = true,
            b']' if !inside => return Err(bad(list, "closes a bracket that is not open")),
            b']' => inside = false,
            b',' if !inside => {
                items.push(&list[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(bad(list, "has a bracket that is not closed"));
    }
    items.push(&list[start..]);
    Ok(items)
}

fn bad(list: &str, what: &str) -> Error {
    Error::usage(format!("'{list}' {what}"))
        .with_hint("write nodes as Slurm does: node[1-4,7],login")
}

/// All names of one item, added to `all`.
fn one(item: &str, all: &mut Vec<String>) -> Result<()> {
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some((before, after)) = rest.split_once('[') {
        let Some((inside, after)) = after.split_once(']') else {
            return Err(bad(item, "has a bracket that is not closed"));
        };
        let ranges: Vec<Run> = inside.split(',').map(|r| run(r, item)).collect::<Result<_>>()?;
        let count = ranges.iter().try_fold(0u64, |sum, r| sum.checked_add(r.count()));
        let total = count.and_then(|c| c.checked_mul(names.len() as u64));
        fits(total.and_then(|t| t.checked_add(all.len() as u64)), item)?;
        names = names
            .iter()
            .flat_map(|name| {
                let numbers = ranges.iter().flat_map(|r| (r.first..=r.last).map(|n| (r.wide, n)));
                numbers.map(move |(wide, n)| format!("{name}{before}{n:0wide$}"))
            })
            .collect();
        // Names grow with the number of brackets only; longer ones than a host may have end it.
        if let Some(long) = names.iter().find(|n| n.len() > LONGEST) {
            return check(long);
        }
        rest = after;
    }
    fits(Some(all.len() as u64 + names.len() as u64), item)?;
    for mut name in names {
        name.push_str(rest);
        check(&name)?;
        all.push(name);
    }
    Ok(())
}

fn fits(nodes: Option<u64>, item: &str) -> Result<()> {
    match nodes {
        Some(n) if n <= limits::MAX_NODES as u64 => Ok(()),
        _ => Err(Error::limit(format!(
            "'{item}' makes more than {} nodes in one list",
            limits::MAX_NODES
        ))),
    }
}

/// Numbers from `first` to `last`, at least `wide` digits each.
struct Run {
    first: u64,
    last: u64,
    wide: usize,
}

impl Run {
    fn count(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

fn run(text: &str, item: &str) -> Result<Run> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |s: &str| {
        let plain = !s.is_empty() && s.len() <= 19 && s.bytes().all(|c| c.is_ascii_digit());
        s.parse::<u64>()
            .ok()
            .filter(|_| plain)
            .ok_or_else(|| bad(item, &format!("has '{text}' in place of a number or a range")))
    };
    let (a, b) = (number(first)?, number(last)?);
    if a > b {
        return Err(bad(item, &format!("has a range that descends: {text}")));
    }
    Ok(Run { first: a, last: b, wide: first.len() })
}

/// True for what a host can be called: letters, digits, `.`, `_` and `-`, the first of them no `-` and no `.`.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    !name.is_empty()
        && name.len() <= LONGEST
        && name.bytes().all(plain)
        && !name.starts_with(['-', '.'])
}

/// Refuses what no node can be called.
///
/// # Errors
/// `Usage`.
pub fn check(name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(60).collect();
    Err(Error::usage(format!("'{}' is not the name of a node", shown.escape_debug()))
        .with_hint("host names have letters, digits, '-', '_' and '.'"))
}

/// True if `node`, as a layout names it, is the host that calls itself `host`. A name without a domain is that of the host
/// in any domain.
pub fn is_host(node: &str, host: &str) -> bool {
    let short = |s: &str| s.split('.').next().unwrap_or(s).to_owned();
    let same = node.eq_ignore_ascii_case(host);
    same || (!node.contains('.') || !host.contains('.'))
        && short(node).eq_ignore_ascii_case(&short(host))
}

/// A list that [`expand`] reads back to `nodes`, in their order: runs of numbers in brackets.
pub fn fold<S: AsRef<str>>(nodes: &[S]) -> String {
    let mut items: Vec<String> = Vec::new();
    let mut at = 0;
    while at < nodes.len() {
        let Some((stem, _)) = numbered(nodes[at].as_ref()) else {
            items.push(nodes[at].as_ref().to_owned());
            at += 1;
            continue;
        };
        let same = nodes[at..].iter().map_while(|n| {
            let (s, digits) = numbered(n.as_ref())?;
            (s == stem).then_some(digits)
        });
        let digits: Vec<&str> = same.collect();
        at += digits.len();
        items.push(match digits.as_slice() {
            [one] => format!("{stem}{one}"),
            many => format!("{stem}[{}]", ranges(many)),
        });
    }
    items.join(",")
}

/// A name and the number at its end, of which there may be at most 18 digits.
fn numbered(name: &str) -> Option<(&str, &str)> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &name[stem.len()..];
    (!digits.is_empty() && digits.len() <= 18).then_some((stem, digits))
}

fn ranges(digits: &[&str]) -> String {
    let number = |s: &str| s.parse::<u64>().unwrap_or(0);
    let mut runs: Vec<(&str, &str)> = Vec::new();
    for d in digits {
        match runs.last_mut() {
            Some((first, last)) if format!("{:0w$}", number(last) + 1, w = first.len()) == **d => {
                *last = d;
            }
            _ => runs.push((d, d)),
        }
    }
    let text = |(a, b): &(&str, &str)| if a == b { (*a).to_owned() } else { format!("{a}-{b}") };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use proptest::prelude::*;

    #[test]
    fn lists_are_read_as_slurm_writes_them() {
        for (list, nodes) in [
            ("a", vec!["a"]),
            ("node[1-4,7]", vec!["node1", "node2", "node3", "node4", "node7"]),
            ("n[08-11]", vec!["n08", "n09", "n10", "n11"]),
            ("n[098-101]x", vec!["n098x", "n099x", "n100x", "n101x"]),
            ("r[1-2]n[0-1]", vec!["r1n0", "r1n1", "r2n0", "r2n1"]),
            ("a,b[2],c.d-e_f", vec!["a", "b2", "c.d-e_f"]),
            ("[1-2]", vec!["1", "2"]),
        ] {
            assert_eq!(expand(list).unwrap(), nodes, "{list}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for list in [
            "",
            ",",
            "a,",
            "n[",
            "n]",
            "n[1",
            "n[]",
            "n[1-]",
            "n[-1]",
            "n[2-1]",
            "n[1,]",
            "n[a]",
            "n[[1]]",
            "n[1-2-3]",
            "n 1",
            "n/1",
            "-n",
            "..",
            "n\0",
            "é",
            "n[+1]",
            "n[1]]",
            "n[99999999999999999999]",
        ] {
            assert_eq!(expand(list).unwrap_err().kind(), Kind::Usage, "{list}");
        }
        for list in ["n[1-2],n2", "a,a", "n[1,1]", "n[1-3,2]"] {
            assert!(expand(list).unwrap_err().message().contains("named twice"), "{list}");
        }
    }

    #[test]
    fn lists_are_bounded_before_they_are_made() {
        for list in [
            "n[0-999999999999999999]",
            "n[1-300]n[1-300]n[1-300]n[1-300]n[1-300]n[1-300]",
            "n[1-60000],m[1-60000]",
            "n[0-9999999999999999999,0-9999999999999999999]",
        ] {
            assert_eq!(expand(list).unwrap_err().kind(), Kind::Limit, "{list}");
        }
        assert_eq!(expand("n[1-65536]").unwrap().len(), limits::MAX_NODES);
        let long = format!("{}[1-2]", "a[1]".repeat(10_000));
        assert_eq!(expand(&long).unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn lists_are_folded() {
        for list in ["node[1-4,7]", "a,b", "n[08-11]", "n08", "x[1-2],y,x[4,3]", "n[9-10,010]"] {
            assert_eq!(fold(&expand(list).unwrap()), list);
        }
        assert_eq!(fold(&["n9", "n010"]), "n[9,010]");
        assert_eq!(fold::<&str>(&[]), "");
    }

    #[test]
    fn hosts_are_known_with_and_without_domain() {
        assert!(is_host("node1", "node1") && is_host("node1", "node1.a.b"));
        assert!(is_host("node1.a.b", "node1") && is_host("Node1", "node1"));
        assert!(!is_host("node1.a", "node1.b") && !is_host("node1", "node10"));
    }

    proptest! {
        #[test]
        fn what_is_folded_expands_again(nodes in prop::collection::hash_set("[a-c]{1,2}[0-9]{0,3}(x[0-9]{1,2})?", 1..30)) {
            let nodes: Vec<String> = nodes.into_iter().collect();
            prop_assert_eq!(expand(&fold(&nodes)).unwrap(), nodes);
        }

        #[test]
        fn no_text_panics(list in "[n0-9,\\[\\]-]{0,40}") {
            let _ = expand(&list);
        }
    }
}
