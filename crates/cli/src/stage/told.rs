//! What came of transfers, for people and programs.

use super::{MOST_SHOWN, action, names};
use crate::args::{Described, StageArgs};
use crate::output;
use stead::stage::{Checked, Is, State, Status};
use stead::{Error, Kind, Result, units};

/// Numbers of transfers in a line.
const MOST_NAMED: usize = 10;

/// Tells of transfers as they end: each by itself, or in one list of JSON where all are resumed, however many these are.
pub struct Told<'a> {
    format: Described,
    node: Option<&'a str>,
    /// How many are in the list, if there is one.
    listed: Option<u64>,
}

impl<'a> Told<'a> {
    /// `node` is that of the daemon, if it was named.
    pub fn new(args: &StageArgs, node: Option<&'a str>) -> Told<'a> {
        let is_list = args.resume == Some(None) && args.format == Described::Json;
        Told { format: args.format, node, listed: is_list.then_some(0) }
    }

    /// Of as many as were named: in JSON they are a list, also one alone.
    pub fn several(format: Described) -> Told<'a> {
        Told { format, node: None, listed: (format == Described::Json).then_some(0) }
    }

    pub fn is_list(&self) -> bool {
        self.listed.is_some()
    }

    pub fn tell(&mut self, status: &Status) -> Result<()> {
        let Some(listed) = &mut self.listed else { return show(self.format, status, self.node) };
        let text = serde_json::to_string(status)
            .map_err(|e| Error::internal(format!("cannot write JSON: {e}")))?;
        let before = if *listed == 0 { "[" } else { "," };
        *listed += 1;
        output::text(&format!("{before}\n  {text}"))
    }

    /// Ends the list.
    pub fn end(self) -> Result<()> {
        match self.listed {
            None => Ok(()),
            Some(0) => output::text("[]\n"),
            Some(_) => output::text("\n]\n"),
        }
    }
}

/// `node` is that of the daemon, if it was named.
pub fn show(format: Described, status: &Status, node: Option<&str>) -> Result<()> {
    match format {
        Described::Json => output::json(status),
        Described::Table => output::text(&page(status, node)),
    }
}

/// Tells how a target differs.
///
/// # Errors
/// That it does, as of commands that compare.
pub fn checked(format: Described, found: &Checked) -> Result<()> {
    match format {
        Described::Json => output::json(found)?,
        Described::Table => output::text(&differences(found))?,
    }
    match found.is_same() {
        true => Ok(()),
        false => Err(Error::new(Kind::Changed, "the target is not the same as the source")),
    }
}

fn differences(found: &Checked) -> String {
    let sorts = [
        ("differ", found.differ, Is::Differ),
        ("missing", found.missing, Is::Missing),
        ("only", found.only, Is::Only),
    ];
    let mut page = format!("{:7}  {}\n", "same", found.same);
    for (what, n, _) in sorts {
        page += &format!("{what:7}  {n}\n");
    }
    for (what, n, is) in sorts {
        let names = found.names.iter().filter(|name| name.is == is);
        let shown: Vec<String> = names
            .take(MOST_SHOWN)
            .map(|name| format!("  {}\n", output::plain(name.path.as_ref())))
            .collect();
        if shown.is_empty() {
            continue;
        }
        let there = if is == Is::Differ { "" } else { " on the target" };
        page += &format!("\n{what}{there}:\n");
        page.extend(shown.iter().map(String::as_str));
        if n > shown.len() as u64 {
            page += "  and more: --format json has up to 500 of a kind\n";
        }
    }
    page
}

/// What is said where nothing waits to be resumed. What has failed is tried again by its number only, as the reason may be there still: here
/// are these numbers, and the `command` that does it.
pub fn nothing_waits(list: &[Status], command: &str) -> Error {
    let nothing = Error::new(Kind::NotFound, "nothing waits to be resumed");
    let failed = list.iter().filter(|s| s.state == State::Failed);
    let failed: Vec<String> = failed.map(|s| s.id.to_string()).collect();
    if failed.is_empty() {
        return nothing;
    }
    let more = match failed.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let some: Vec<String> = failed.into_iter().take(MOST_NAMED).collect();
    nothing.with_hint(format!(
        "transfer(s) {}{more} failed: {command} tries one of them again",
        some.join(", ")
    ))
}

fn page(s: &Status, node: Option<&str>) -> String {
    let seconds = s.seconds(s.ended.unwrap_or(s.submitted));
    let mut rows = vec![
        (action(&s.request), names(&s.request)),
        (
            "state",
            match node {
                Some(node) => format!("{}, transfer {} of node {node}", s.state.as_str(), s.id),
                None => format!("{}, transfer {}", s.state.as_str(), s.id),
            },
        ),
        (
            "done",
            format!(
                "{} of {} name(s), {} of {}{}",
                s.files_done,
                s.files,
                units::format_size(s.bytes_done),
                units::format_size(s.bytes),
                match s.skipped {
                    0 => String::new(),
                    n => format!(", {n} left as they were"),
                }
            ),
        ),
    ];
    // Of one whose process was killed nobody knows how long that was at it.
    if s.started.is_some() && seconds > 0.0 {
        let rate = (s.bytes_done as f64 / seconds) as u64;
        let rate = match s.bytes_done {
            0 => String::new(),
            _ => format!(", {}/s", units::format_size(rate)),
        };
        rows.push(("took", format!("{}{rate}", units::format_seconds(seconds))));
    }
    if let Some(waits) = &s.waits {
        rows.push(("waits", waits.clone()));
    }
    for failure in &s.failures {
        rows.push(("failed", failure.error.clone()));
    }
    let more = s.failed.saturating_sub(s.failures.len() as u64);
    if more > 0 {
        rows.push(("failed", format!("and {more} more")));
    }
    if let Some(error) = &s.error {
        rows.push(("error", error.clone()));
    }
    let line =
        |(key, value): &(&str, String)| format!("{key:6}  {}\n", output::plain(value.as_ref()));
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead::stage::{Action, Options, Request, location};

    fn status(id: i64, state: State) -> Status {
        let request = Request {
            action: Action::Copy,
            sources: vec![location("/from").unwrap()],
            target: Some(location("/to").unwrap()),
            options: Options::default(),
        };
        Status {
            id,
            request,
            state,
            submitted: 1000.0,
            started: Some(1001.0),
            ended: None,
            active: 0.0,
            resumed: Some(1001.0),
            files: 2,
            files_done: 1,
            bytes: 4 << 20,
            bytes_done: 1 << 20,
            skipped: 0,
            failed: 0,
            failures: Vec::new(),
            error: None,
            kind: None,
            waits: None,
        }
    }

    #[test]
    fn what_took_no_time_that_is_known_has_no_rate() {
        let killed = status(7, State::Interrupted);
        let said = page(&killed, None);
        assert!(said.contains("interrupted, transfer 7") && !said.contains("took"), "{said}");
        assert!(!said.contains("/s"), "{said}");
        let said = page(&Status { active: 2.0, ..killed }, None);
        assert!(said.contains("took    2.00 s, 512.0 KiB/s\n"), "{said}");
    }

    #[test]
    fn what_differs_is_named() {
        use stead::stage::Difference;
        let of = |is, path: &str| Difference { is, path: path.to_owned() };
        let mut names: Vec<_> = (0..30).map(|n| of(Is::Missing, &format!("/to/{n}"))).collect();
        names.push(of(Is::Only, "/to/own\x1b"));
        let found = Checked { same: 7, differ: 0, missing: 30, only: 1, names };
        let page = differences(&found);
        assert!(page.starts_with("same     7\ndiffer   0\nmissing  30\nonly     1\n"), "{page}");
        assert!(page.contains("\nmissing on the target:\n  /to/0\n  /to/1\n"), "{page}");
        assert!(page.contains("  /to/19\n  and more: ") && !page.contains("/to/20"), "{page}");
        assert!(
            page.contains("only on the target:\n  /to/own") && !page.contains('\x1b'),
            "{page}"
        );
        assert!(!page.contains("differ:"), "{page}");
        assert!(!found.is_same() && Checked { same: 7, ..Checked::default() }.is_same());
    }

    #[test]
    fn what_failed_is_named_where_nothing_waits() {
        let said = nothing_waits(&[status(3, State::Finished)], "stead stage --resume ID");
        assert_eq!((said.message(), said.hint()), ("nothing waits to be resumed", None));
        let list: Vec<Status> = (1..=12).rev().map(|id| status(id, State::Failed)).collect();
        let said = nothing_waits(&list, "stead stage --resume ID --on node7");
        let hint = said.hint().unwrap();
        assert!(hint.starts_with("transfer(s) 12, 11, 10, "), "{hint}");
        assert!(
            hint.contains(" 3 and 2 more failed: stead stage --resume ID --on node7 "),
            "{hint}"
        );
    }
}
