//! The list of names of a plan, which a thread writes down while more of them are found.

use crate::job::Item;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::ScopedJoinHandle;
use stead_core::{Error, Result};

/// Names that are written down together.
const TOGETHER: usize = 1024;
/// So many times as many wait to be written; who finds more of them waits, too.
const WAITING: usize = 4;

/// What is to be written, and who writes it.
type Writing<'s> = (SyncSender<Vec<Item>>, ScopedJoinHandle<'s, Result<()>>);

/// Has `find` find names, and `add` write them down, in their order and a part at a time. All are written when this returns.
///
/// # Errors
/// Those of `find`, and of `add`, after which nothing more is found.
pub(crate) fn write<T>(
    add: &(impl Fn(&[Item]) -> Result<()> + Sync),
    find: impl FnOnce(&mut dyn FnMut(Item) -> Result<()>) -> Result<T>,
) -> Result<T> {
    std::thread::scope(|scope| {
        let mut items = Vec::new();
        // A short list needs no thread.
        let mut writing: Option<Writing<'_>> = None;
        let found = find(&mut |item| {
            items.push(item);
            if items.len() < TOGETHER {
                return Ok(());
            }
            if writing.is_none() {
                let (waiting, next) = sync_channel::<Vec<Item>>(WAITING);
                let write = move || next.iter().try_for_each(|items| add(&items));
                let thread = std::thread::Builder::new().spawn_scoped(scope, write);
                writing = thread.ok().map(|thread| (waiting, thread));
            }
            let some = std::mem::take(&mut items);
            match &writing {
                // Why it has ended is told below.
                Some((waiting, _)) => waiting.send(some).map_err(|_| Error::cancelled()),
                None => add(&some),
            }
        });
        if let Some((waiting, thread)) = writing {
            drop(waiting);
            let panicked = |_| Err(Error::internal("a thread that writes names down panicked"));
            thread.join().unwrap_or_else(panicked)?;
        }
        let found = found?;
        add(&items)?;
        Ok(found)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::job::Task;
    use std::path::PathBuf;
    use std::sync::Mutex;
    use stead_core::Kind;
    use stead_store::FileTime;

    fn item(n: i64) -> Item {
        Item {
            n,
            task: Task::File,
            from: 0,
            source: PathBuf::new(),
            target: PathBuf::new(),
            size: 0,
            mtime: FileTime::default(),
            first: -1,
            replace: false,
        }
    }

    #[test]
    fn names_are_written_in_their_order_and_all_of_them() {
        for all in [0, 1, TOGETHER - 1, TOGETHER, 20 * TOGETHER + 7] {
            let written = Mutex::new(Vec::new());
            let add = |items: &[Item]| {
                written.lock().unwrap().extend(items.iter().map(|item| item.n));
                Ok(())
            };
            let found = write(&add, |sink| (0..all as i64).try_for_each(|n| sink(item(n))));
            assert!(found.is_ok());
            assert_eq!(written.into_inner().unwrap(), (0..all as i64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_cannot_be_written_is_told_and_what_cannot_be_found_is_as_well() {
        let full = |_: &[Item]| Err(Error::new(Kind::NoSpace, "full"));
        let endless =
            |sink: &mut dyn FnMut(Item) -> Result<()>| (0..).try_for_each(|n| sink(item(n)));
        assert_eq!(write(&full, endless).unwrap_err().kind(), Kind::NoSpace);
        let gone = |sink: &mut dyn FnMut(Item) -> Result<()>| {
            (0..3000).try_for_each(|n| sink(item(n)))?;
            Err::<(), _>(Error::new(Kind::NotFound, "gone"))
        };
        assert_eq!(write(&|_: &[Item]| Ok(()), gone).unwrap_err().kind(), Kind::NotFound);
    }
}
