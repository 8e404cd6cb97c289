//! Journals of every version that was given out are taken up. `tests/data/form-N.db` has three transfers of a daemon: one that is
//! finished, one that a full device has interrupted in the middle, and one that waits for this one.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stead_stage::{Means, Queue, Stager, State};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn journals_of_older_versions_are_taken_up() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for entry in std::fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(&path, dir.path().join("transfers.db")).unwrap();
        let open = || Arc::new(Stager::open(dir.path(), Means::default()).unwrap());
        let stager = open();
        let all = stager.statuses(true, 10).unwrap();
        let of: Vec<_> = all.iter().map(|s| (s.id, s.state, s.files_done, s.files)).collect();
        let expected =
            [(3, State::Pending, 0, 0), (2, State::Interrupted, 2, 4), (1, State::Finished, 1, 1)];
        assert_eq!(of, expected, "{}", path.display());
        assert_eq!(all[1].kind.as_deref(), Some("no-space"));
        assert!(all[1].request.options.limit == Some(8 << 20) && all[0].request.options.gentle);
        // They go on, and find that what they were to copy is not here.
        let queue = Queue::open(stager, || {}).unwrap();
        queue.set_slots(1);
        let ended = queue.wait(2, LONG).unwrap().status;
        assert_eq!(ended.state, State::Failed);
        assert!(ended.error.unwrap().contains("/tmp/stead-golden"));
        let ended = queue.wait(3, LONG).unwrap().status;
        assert!(ended.state == State::Cancelled && ended.error.unwrap().contains("transfer 2"));
        queue.end();
        drop(queue);
        let counted = open().statuses(false, 10).unwrap();
        assert_eq!(counted.len(), 0);
    }
}
