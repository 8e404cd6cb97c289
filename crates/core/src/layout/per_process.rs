//! Files that each process of a job has written on its own node: `out.%r.bin`.

use super::space;
use crate::{Error, Kind, Result, limits};

/// A name with the number of a rank in it: `%r`, or `%03r` for at least three digits. `%%` is a `%`. The number may occur
/// several times: `%r/out.%r.bin`.
///
/// ```
/// # use stead_core::layout::PerProcess;
/// let out = PerProcess::parse("out.%03r.bin")?;
/// assert_eq!(out.name(7), "out.007.bin");
/// assert_eq!(out.rank("out.007.bin"), Some(7));
/// assert_eq!(out.rank("out.7.bin"), None);
/// # Ok::<(), stead_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerProcess {
    /// Text before each number, and the least number of its digits.
    numbers: Vec<(String, usize)>,
    /// Text behind the last number.
    end: String,
}

impl PerProcess {
    /// True if `name` has the number of a rank in it.
    pub fn is_one(name: &str) -> bool {
        PerProcess::parse(name).is_ok()
    }

    /// Reads a pattern.
    ///
    /// # Errors
    /// `Usage` for a pattern without a number, another letter behind a `%`, more than 19 digits, or a path with `..`.
    pub fn parse(pattern: &str) -> Result<PerProcess> {
        let bad = |what: String| {
            Error::usage(format!("'{}': {what}", pattern.escape_debug())).with_hint(
                "write %r where the rank's number stands, %04r for four digits, %% for %",
            )
        };
        if pattern.len() > limits::MAX_PATH_BYTES {
            return Err(bad(format!("longer than {} bytes", limits::MAX_PATH_BYTES)));
        }
        let mut numbers = Vec::new();
        let (mut text, mut rest) = (String::new(), pattern);
        while let Some((before, after)) = rest.split_once('%') {
            text.push_str(before);
            if let Some(after) = after.strip_prefix('%') {
                text.push('%');
                rest = after;
                continue;
            }
            let behind = after.trim_start_matches(|c: char| c.is_ascii_digit());
            let digits = &after[..after.len() - behind.len()];
            let wide = match digits.strip_prefix('0') {
                _ if digits.is_empty() => 1,
                Some(n) => n.parse().ok().filter(|n| (1..=19).contains(n)).unwrap_or(0),
                None => 0,
            };
            match behind.strip_prefix('r') {
                Some(behind) if wide > 0 => {
                    numbers.push((std::mem::take(&mut text), wide));
                    rest = behind;
                }
                _ => {
                    let found: String = after.chars().take(digits.len() + 1).collect();
                    return Err(bad(format!("'%{found}' is not the number of a rank")));
                }
            }
        }
        if numbers.is_empty() {
            return Err(bad("no number of a rank in it".into()));
        }
        text.push_str(rest);
        let pattern = PerProcess { numbers, end: text };
        space::check_path(&pattern.name(0))?;
        Ok(pattern)
    }

    /// The name of rank `r`'s file.
    pub fn name(&self, r: u64) -> String {
        let mut name = String::new();
        for (before, wide) in &self.numbers {
            name.push_str(before);
            name.push_str(&format!("{r:0wide$}"));
        }
        name + &self.end
    }

    /// The rank whose file has this name; `None` for a name that [`PerProcess::name`] never gives.
    pub fn rank(&self, name: &str) -> Option<u64> {
        let (before, _) = self.numbers.first()?;
        let rest = name.strip_prefix(before.as_str())?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        // Text behind the number may begin with digits, too.
        (1..=digits.min(20)).find_map(|n| {
            let r = rest[..n].parse().ok()?;
            (self.name(r) == name).then_some(r)
        })
    }

    /// The folder in which the files are, and a pattern of the shell for what is in it; `None` for the folder if it has
    /// the number in its name.
    pub fn folder(&self) -> Option<&str> {
        let (before, _) = self.numbers.first()?;
        if self.numbers.iter().skip(1).any(|(t, _)| t.contains('/')) || self.end.contains('/') {
            return None;
        }
        Some(before.rfind('/').map_or("", |at| &before[..=at]))
    }

    /// Puts files that were found into the order of their ranks: `(rank, holder)`, where a holder is what found it, such
    /// as a node. They must be the files of all ranks from 0 or 1 on.
    ///
    /// # Errors
    /// `NotFound` for no file at all, or one that is missing between others; `Usage` for a file that two holders have.
    pub fn order<H>(&self, found: impl IntoIterator<Item = (u64, H)>) -> Result<Vec<(u64, H)>> {
        let mut found: Vec<(u64, H)> = found.into_iter().collect();
        found.sort_by_key(|(r, _)| *r);
        let first = match found.first() {
            Some((r, _)) => (*r).min(1),
            None => {
                let message = format!("no node has a file like {}", self.name(0));
                return Err(Error::new(Kind::NotFound, message)
                    .with_hint("the nodes that wrote the files must have a rank each"));
            }
        };
        if found.len() > limits::MAX_SOURCES {
            return Err(Error::limit(format!(
                "more than {} files in one dataset",
                limits::MAX_SOURCES
            )));
        }
        for (expected, (r, _)) in (first..).zip(&found) {
            if *r < expected {
                return Err(Error::usage(format!("two nodes have {}", self.name(*r)))
                    .with_hint("each file may lie on one node only"));
            }
            if *r > expected {
                let message =
                    format!("no node has {}, but there is {}", self.name(expected), self.name(*r));
                return Err(Error::new(Kind::NotFound, message)
                    .with_hint("a rank's file was lost, or its node has no rank in this run"));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_name_the_files_of_ranks() {
        for (pattern, r, name) in [
            ("out.%r.bin", 12, "out.12.bin"),
            ("%r", 0, "0"),
            ("%03r", 1234, "1234"),
            ("d/%02r/x%%%r", 5, "d/05/x%5"),
            ("/data/o%r", 3, "/data/o3"),
        ] {
            let p = PerProcess::parse(pattern).unwrap();
            assert_eq!(p.name(r), name);
            assert_eq!(p.rank(name), Some(r), "{pattern}");
        }
        for bad in
            ["", "a", "a%", "%d", "%3r", "%0r", "%00r", "%020r", "%%r", "../%r", "%r/..", "a\0%r"]
        {
            assert_eq!(PerProcess::parse(bad).unwrap_err().kind(), Kind::Usage, "{bad:?}");
            assert!(!PerProcess::is_one(bad));
        }
    }

    #[test]
    fn other_names_have_no_rank() {
        let p = PerProcess::parse("o.%02r.b").unwrap();
        for name in [
            "o.1.b",
            "o.001.b",
            "o..b",
            "o.-1.b",
            "o.+1.b",
            "o.01.bb",
            "o.01",
            "o.99999999999999999999999.b",
        ] {
            assert_eq!(p.rank(name), None, "{name}");
        }
        assert_eq!(p.rank("o.18446744073709551615.b"), Some(u64::MAX));
    }

    #[test]
    fn folders_are_found() {
        let folder = |p: &str| PerProcess::parse(p).unwrap().folder().map(str::to_owned);
        assert_eq!(folder("out.%r"), Some(String::new()));
        assert_eq!(folder("a/b/out.%r"), Some("a/b/".into()));
        assert_eq!(folder("a/%r/out"), None);
    }

    #[test]
    fn files_come_in_the_order_of_ranks_and_none_is_missing() {
        let p = PerProcess::parse("o.%r").unwrap();
        let order = |found: &[(u64, &'static str)]| p.order(found.iter().copied());
        assert_eq!(order(&[(1, "b"), (0, "a"), (2, "a")]).unwrap(), [(0, "a"), (1, "b"), (2, "a")]);
        assert_eq!(order(&[(2, "a"), (1, "b")]).unwrap().len(), 2);
        assert_eq!(order(&[]).unwrap_err().kind(), Kind::NotFound);
        let missing = order(&[(0, "a"), (2, "a")]).unwrap_err();
        assert!(missing.message().contains("no node has o.1"), "{missing}");
        assert_eq!(order(&[(5, "a")]).unwrap_err().kind(), Kind::NotFound);
        assert!(order(&[(0, "a"), (0, "b")]).unwrap_err().message().contains("two nodes have o.0"));
    }

    proptest! {
        #[test]
        fn a_name_gives_its_rank_back(wide in 1..6usize, r in any::<u64>(), tail in "[a0-9]{0,4}", small in 0..200u64) {
            let p = PerProcess::parse(&format!("x%0{wide}r{tail}")).unwrap();
            for r in [r, small] {
                prop_assert_eq!(p.rank(&p.name(r)), Some(r));
            }
        }
    }
}
