//! One error type for the house: what failed, on what, why, and what to do.
//!
//! Messages are lowercase and end without a stop; a hint says what the user can do next.

use std::fmt;
use std::path::PathBuf;

/// The result of everything in stead that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure it is: callers branch on this, people read the message.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request makes no sense: unknown kernel, bad option, no such column.
    Usage,
    /// A file, glob or directory that is not there.
    NotFound,
    /// The operating system refused access.
    Permission,
    /// The bytes do not have the format they were said or found to have.
    Format,
    /// One record or value is bad, in a file whose format is right.
    Data,
    /// The file changed or shrank while it was read.
    Changed,
    /// A budget (memory, groups, record length) was reached.
    Limit,
    /// No space left on the device, or over quota.
    NoSpace,
    /// The device or the operating system failed.
    Io,
    /// The user or the caller stopped the work.
    Cancelled,
    /// A peer rank failed or did not answer in time.
    Peer,
    /// There was no answer before the deadline.
    Timeout,
    /// A defect of stead itself.
    Internal,
}

const NAMES: [(Kind, &str); 13] = [
    (Kind::Usage, "usage"),
    (Kind::NotFound, "not-found"),
    (Kind::Permission, "permission"),
    (Kind::Format, "format"),
    (Kind::Data, "data"),
    (Kind::Changed, "changed"),
    (Kind::Limit, "limit"),
    (Kind::NoSpace, "no-space"),
    (Kind::Io, "io"),
    (Kind::Cancelled, "cancelled"),
    (Kind::Peer, "peer"),
    (Kind::Timeout, "timeout"),
    (Kind::Internal, "internal"),
];

impl Kind {
    /// As it is written where programs read it.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(kind, _)| *kind == self).map_or("internal", |(_, name)| name)
    }

    /// The kind of this name; one of a later version is none that is known here.
    pub fn parse(name: &str) -> Option<Kind> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }
}

/// Where it happened. All fields are optional; what is known is printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The file, as the user would name it.
    pub path: Option<PathBuf>,
    /// One-based line number in the (decompressed) file.
    pub line: Option<u64>,
    /// Byte offset in the (decompressed) file.
    pub offset: Option<u64>,
    /// Column name.
    pub column: Option<String>,
    /// Index of the dataset's file, until someone who knows the files puts the path in.
    pub source: Option<u32>,
    /// The rank on which it happened.
    pub rank: Option<usize>,
    /// The name of that rank's host.
    pub host: Option<String>,
}

/// An error with a place and a hint. Cheap to move (one pointer).
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    message: String,
    place: Place,
    /// Where it comes among other errors of the file, if that is not its offset.
    order: Option<u64>,
    hint: Option<String>,
    cause: Option<std::io::Error>,
}

/// What the system says of a process that has as many files open as it may have, and of all processes together.
const TOO_MANY_HERE: i32 = 24;
const TOO_MANY_IN_ALL: i32 = 23;

impl Error {
    /// A new error. `message` is lowercase, without a final stop.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            place: Place::default(),
            order: None,
            hint: None,
            cause: None,
        }))
    }

    /// A wrong request.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// A bad record or value.
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(Kind::Data, message)
    }

    /// Bytes that do not have their format.
    pub fn format(message: impl Into<String>) -> Self {
        Self::new(Kind::Format, message)
    }

    /// A budget was reached.
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(Kind::Limit, message)
    }

    /// A defect of stead.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
            .with_hint("this is a defect of stead; please report it with the command you ran")
    }

    /// The work was stopped.
    pub fn cancelled() -> Self {
        Self::new(Kind::Cancelled, "stopped before the end")
    }

    /// From an operating system error on `path`. `doing` says what was tried: "open", "read".
    pub fn io(doing: &str, path: impl Into<PathBuf>, cause: std::io::Error) -> Self {
        use std::io::ErrorKind as E;
        let kind = match cause.kind() {
            E::NotFound => Kind::NotFound,
            E::PermissionDenied => Kind::Permission,
            E::StorageFull | E::QuotaExceeded | E::FileTooLarge => Kind::NoSpace,
            E::Interrupted => Kind::Cancelled,
            _ => Kind::Io,
        };
        let mut e = Self::new(kind, format!("cannot {doing}: {}", plain(&cause))).at_path(path);
        e.0.cause = Some(cause);
        e
    }

    /// Adds the file.
    pub fn at_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.place.path = Some(path.into());
        self
    }

    /// Adds the byte offset.
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.0.place.offset = Some(offset);
        self
    }

    /// Adds the one-based line.
    pub fn at_line(mut self, line: u64) -> Self {
        self.0.place.line = Some(line);
        self
    }

    /// Adds the column.
    pub fn at_column(mut self, column: impl Into<String>) -> Self {
        self.0.place.column = Some(column.into());
        self
    }

    /// Adds the index of the dataset's file.
    pub fn at_source(mut self, source: u32) -> Self {
        self.0.place.source = Some(source);
        self
    }

    /// Says where in the text of its file it comes among other errors. For offsets that count other bytes: those
    /// of a compressed file.
    pub fn in_order(mut self, offset: u64) -> Self {
        self.0.order = Some(offset);
        self
    }

    /// Adds the rank.
    pub fn at_rank(mut self, rank: usize) -> Self {
        self.0.place.rank = Some(rank);
        self
    }

    /// Adds the name of the rank's host.
    pub fn at_host(mut self, host: impl Into<String>) -> Self {
        self.0.place.host = Some(host.into());
        self
    }

    /// Adds what the user can do.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds to the message.
    pub fn and(mut self, more: &str) -> Self {
        self.0.message.push_str(more);
        self
    }

    /// The same, as one of another kind.
    pub fn of_kind(mut self, kind: Kind) -> Self {
        self.0.kind = kind;
        self
    }

    /// The same, as a limit and with what to do about it if it is that no more files can be open.
    #[must_use]
    pub fn of_open_files(self) -> Self {
        let hint = match self.os_code() {
            Some(TOO_MANY_HERE) => {
                "close what is not needed, such as streams, or let the process have more files open: ulimit -n"
            }
            Some(TOO_MANY_IN_ALL) => {
                "all programs of this machine have too many files open: end some, or raise fs.file-max"
            }
            _ => return self,
        };
        self.of_kind(Kind::Limit).with_hint(hint)
    }

    /// The number that the operating system has for it, where it came from there.
    pub fn os_code(&self) -> Option<i32> {
        self.0.cause.as_ref().and_then(std::io::Error::raw_os_error)
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The message without place and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where it happened.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// File and offset by which it comes before or after others; what is not known comes first.
    pub fn order(&self) -> (Option<u32>, Option<u64>) {
        (self.0.place.source, self.0.order.or(self.0.place.offset))
    }

    /// What the user can do.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// True if the same call may succeed when it is made again.
    pub fn is_retryable(&self) -> bool {
        matches!(self.0.kind, Kind::Io | Kind::Peer | Kind::Timeout)
    }
}

/// The operating system's text without Rust's "(os error N)".
fn plain(e: &std::io::Error) -> String {
    let s = e.to_string();
    let s = s.split(" (os error").next().unwrap_or(&s);
    let mut chars = s.chars();
    match chars.next() {
        Some(c) => c.to_lowercase().chain(chars).collect(),
        None => "unknown error".into(),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.0.place;
        if let Some(path) = &p.path {
            write!(f, "{}", path.display())?;
            if let Some(line) = p.line {
                write!(f, ":{line}")?;
            } else if let Some(offset) = p.offset {
                write!(f, " at byte {offset}")?;
            }
            write!(f, ": ")?;
        }
        match (p.rank, &p.host) {
            (Some(rank), Some(host)) => write!(f, "rank {rank} on {host}: ")?,
            (Some(rank), None) => write!(f, "rank {rank}: ")?,
            (None, _) => {}
        }
        if let Some(c) = &p.column {
            write!(f, "column '{c}': ")?;
        }
        write!(f, "{}", self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_ref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_where_it_happened() {
        let e = Error::data("found 'abc', expected a number")
            .at_path("f.csv")
            .at_line(7)
            .at_column("x");
        assert_eq!(e.to_string(), "f.csv:7: column 'x': found 'abc', expected a number");
        assert_eq!(e.kind(), Kind::Data);
    }

    #[test]
    fn errors_have_an_order() {
        let e = Error::format("broken").at_source(1).at_offset(5);
        assert_eq!(e.order(), (Some(1), Some(5)));
        assert_eq!(e.in_order(70).order(), (Some(1), Some(70)));
    }

    #[test]
    fn operating_system_errors_keep_their_kind() {
        let e = Error::io("open", "x", std::io::Error::from_raw_os_error(2));
        assert_eq!(e.kind(), Kind::NotFound);
        assert_eq!(e.to_string(), "x: cannot open: no such file or directory");
        let e = Error::io("write", "x", std::io::Error::from_raw_os_error(28));
        assert_eq!(e.kind(), Kind::NoSpace);
    }

    #[test]
    fn that_no_more_files_can_be_open_is_a_limit_where_it_is_said_so() {
        let io = |code| Error::io("open", "x", std::io::Error::from_raw_os_error(code));
        for (code, says) in [(24, "ulimit -n"), (23, "fs.file-max")] {
            assert_eq!(io(code).kind(), Kind::Io);
            let e = io(code).with_hint("another one").of_open_files();
            assert_eq!((e.kind(), e.os_code()), (Kind::Limit, Some(code)));
            assert!(
                e.to_string().contains("too many open files") && e.hint().unwrap().contains(says),
                "{e}"
            );
        }
        let e = io(28).with_hint("as it was").of_open_files();
        assert_eq!((e.kind(), e.hint()), (Kind::NoSpace, Some("as it was")));
    }
}
