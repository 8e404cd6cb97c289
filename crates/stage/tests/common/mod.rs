//! What it takes to stop a transfer in the middle, however long who stops it is kept from that.

use std::path::Path;
use tempfile::TempDir;

/// A folder where a copy takes its time: where file systems share blocks it is done at once, whatever limit there is.
pub(crate) fn dir_of_copies() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let [from, to] =
        ["from", "to"].map(|name| std::fs::File::create(dir.path().join(name)).unwrap());
    from.set_len(4096).unwrap();
    let shares = rustix::fs::ioctl_ficlone(&to, &from).is_ok();
    if shares { tempfile::tempdir_in("/dev/shm") } else { tempfile::tempdir() }.unwrap()
}

/// A transfer that was to go no faster than this, in a journal with one of these, goes on as fast as it can.
#[allow(dead_code)] // Not all tests hasten.
pub(crate) fn hasten(state: &Path, limit: u64) {
    limit_to(state, limit, u32::MAX.into());
}

/// The same with another limit.
pub(crate) fn limit_to(state: &Path, limit: u64, other: u64) {
    let journal = rusqlite::Connection::open(state.join("transfers.db")).unwrap();
    let sql = "UPDATE transfer SET request = replace(request, ?1, ?2) WHERE instr(request, ?1)";
    let [then, now] = [limit, other].map(|limit| format!("\"limit\":{limit},"));
    assert_eq!(journal.execute(sql, [then, now]).unwrap(), 1);
}
