//! The names that a transfer is about, one by one.

use crate::commit::same_time;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use stead_store::{FileTime, Meta};

/// What is done with one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    /// A folder is made, and gets the rights and times of its source in the end.
    Folder,
    /// A file is copied.
    File,
    /// A symbolic link is made.
    Link,
    /// One more name of a file that has been copied.
    Hard,
    /// A file or a tree gets another name, within a file system.
    Rename,
    /// A file or a link is removed.
    Remove,
    /// An empty folder is removed.
    RemoveFolder,
    /// The folder that a move leaves is removed, if nothing new has come into it.
    LeaveFolder,
    /// A file that stays gets the rights of its source, and for root its owner.
    Attributes,
    /// A folder of the source could not be looked into when it was planned: it is told so.
    Unread,
}

impl Task {
    pub(crate) const ALL: [Task; 10] = [
        Task::Folder,
        Task::File,
        Task::Link,
        Task::Hard,
        Task::Rename,
        Task::Remove,
        Task::RemoveFolder,
        Task::LeaveFolder,
        Task::Attributes,
        Task::Unread,
    ];

    pub(crate) fn code(self) -> i64 {
        Task::ALL.iter().position(|t| *t == self).map_or(0, |i| i as i64)
    }

    pub(crate) fn of_code(code: i64) -> Option<Task> {
        usize::try_from(code).ok().and_then(|i| Task::ALL.get(i)).copied()
    }
}

/// The side of the target, where others are numbers of sources.
pub(crate) const TARGET: i64 = -1;

/// One name, as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// Its number in the transfer.
    pub(crate) n: i64,
    pub(crate) task: Task,
    /// The number of the base that `source` lies below.
    pub(crate) from: i64,
    pub(crate) source: PathBuf,
    /// Below the base of the target.
    pub(crate) target: PathBuf,
    /// Bytes of a file.
    pub(crate) size: u64,
    pub(crate) mtime: FileTime,
    /// Of a further name, the number of the first one: its own if that is there already, and stays.
    pub(crate) first: i64,
    /// Something has the name, and is to be replaced.
    pub(crate) replace: bool,
}

/// The tag of the transfer whose such a name is.
pub(crate) fn tag_of(name: &OsStr) -> Option<u64> {
    let (tag, n) = name.to_str()?.strip_prefix(".stead-")?.split_once('-')?;
    let n = i64::from_str_radix(n, 16).ok()?;
    let tag = u64::from_str_radix(tag, 16).ok()?;
    (format!(".stead-{tag:016x}-{n:x}") == name.to_str()?).then_some(tag)
}

impl Item {
    /// The name that its bytes have until they are whole: the same after a crash, and another one for each transfer.
    pub(crate) fn temporary(&self, tag: u64) -> OsString {
        OsString::from(format!(".stead-{tag:016x}-{:x}", self.n))
    }

    pub(crate) fn name(&self) -> &OsStr {
        self.target.file_name().unwrap_or_default()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.target.parent().unwrap_or(Path::new(""))
    }
}

/// How far a large file was durable at some time, and of which source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Number and times of the source: if they are others, it begins anew.
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) mtime: FileTime,
    pub(crate) ctime: FileTime,
    /// So many bytes from the beginning are there.
    pub(crate) prefix: u64,
    /// The checksum of these.
    pub(crate) sum: u64,
}

impl Mark {
    /// As the journal keeps it.
    pub(crate) fn text(&self) -> String {
        let of = |n: u64| n.cast_signed();
        let numbers: [i64; 9] = [
            of(self.dev),
            of(self.ino),
            of(self.size),
            self.mtime.seconds,
            i64::from(self.mtime.nanos),
            self.ctime.seconds,
            i64::from(self.ctime.nanos),
            of(self.prefix),
            of(self.sum),
        ];
        format!("{numbers:?}")
    }

    /// The mark of such a text; none of another one.
    pub(crate) fn of_text(text: &str) -> Option<Mark> {
        let numbers: [i64; 9] = serde_json::from_str(text.split(AND).next()?).ok()?;
        let [dev, ino, size, mtime, mnanos, ctime, cnanos, prefix, sum] = numbers;
        let time = |seconds, nanos| FileTime { seconds, nanos: u32::try_from(nanos).unwrap_or(0) };
        Some(Mark {
            dev: dev.cast_unsigned(),
            ino: ino.cast_unsigned(),
            size: size.cast_unsigned(),
            mtime: time(mtime, mnanos),
            ctime: time(ctime, cnanos),
            prefix: prefix.cast_unsigned(),
            sum: sum.cast_unsigned(),
        })
    }
}

/// Between a mark and what was made of it.
const AND: char = ';';

/// A file that is about to get its name: whoever finds that the name is taken knows it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    ino: u64,
    size: u64,
    mtime: FileTime,
}

impl Made {
    pub(crate) fn of(meta: &Meta) -> Made {
        Made { ino: meta.ino, size: meta.size, mtime: meta.mtime }
    }

    /// True of what is there, if it is that file.
    pub(crate) fn is(&self, there: &Meta) -> bool {
        (self.ino, self.size) == (there.ino, there.size) && same_time(self.mtime, there.mtime)
    }

    /// As the journal keeps it, behind the mark that the file has.
    pub(crate) fn text(&self, mark: Option<&str>) -> String {
        let FileTime { seconds, nanos } = self.mtime;
        let (ino, size) = (self.ino.cast_signed(), self.size.cast_signed());
        let mark = mark.and_then(|mark| mark.split(AND).next()).unwrap_or_default();
        format!("{mark}{AND}[{ino}, {size}, {seconds}, {nanos}]")
    }

    /// What such a text tells; none of another one.
    pub(crate) fn of_text(text: &str) -> Option<Made> {
        let numbers: [i64; 4] = serde_json::from_str(text.split_once(AND)?.1).ok()?;
        let [ino, size, seconds, nanos] = numbers;
        let mtime = FileTime { seconds, nanos: u32::try_from(nanos).ok()? };
        Some(Made { ino: ino.cast_unsigned(), size: size.cast_unsigned(), mtime })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_have_numbers() {
        for task in Task::ALL {
            assert_eq!(Task::of_code(task.code()), Some(task));
        }
        assert_eq!((Task::of_code(-1), Task::of_code(10)), (None, None));
    }
    #[test]
    fn marks_are_text_and_back_with_what_was_made() {
        let mtime = FileTime { seconds: -5, nanos: 7 };
        let mark = Mark { dev: 1, ino: u64::MAX, size: 3, mtime, ctime: mtime, prefix: 9, sum: 8 };
        let made = Made { ino: u64::MAX - 1, size: 3, mtime };
        assert_eq!((Mark::of_text(&mark.text()), Made::of_text(&mark.text())), (Some(mark), None));
        let both = made.text(Some(&mark.text()));
        // Noted again, there is one of each.
        for text in [both.clone(), made.text(Some(&both))] {
            assert_eq!((Mark::of_text(&text), Made::of_text(&text)), (Some(mark), Some(made)));
        }
        let alone = made.text(None);
        assert_eq!((Mark::of_text(&alone), Made::of_text(&alone)), (None, Some(made)));
        assert_eq!(Made::of_text("{}"), None);
    }
}
