//! Uploads that were begun and whose numbers nobody has heard: whoever asked was killed, or the answer was lost. A store keeps them,
//! and asks money for it in some places, until somebody gives them up.
//!
//! The journal knows that one was asked for, and when. Much later, the store is asked what uploads of that key there are: one that
//! was begun just then, has no part, and is in no journal is the one. An upload that somebody else is at has parts by then.

use crate::clock;
use crate::journal::{Journal, Stray};
use stead_core::{BucketUrl, Cancel, Kind, Result};
use stead_store::Bucket;

/// So old is one at least, in seconds: the first part of any other has come.
const LEAST_AGE_S: f64 = 900.0;
/// The store may have begun it so long after it was asked first.
const WITHIN_S: f64 = 240.0;
/// By so much two clocks that ran for the same time may differ.
const APART_S: f64 = 5.0;
/// One that is older the store will not tell of, or never has: that is left to its own rules.
const MOST_AGE_S: f64 = 30.0 * 86_400.0;
/// So many are looked for at a time.
const TOGETHER: usize = 16;

/// Has stores forget what is sure to be of nobody. What cannot be asked now is asked later.
pub(crate) fn sweep(journal: &Journal, cancel: &Cancel) {
    let now = clock::unix();
    for stray in journal.strays(now - LEAST_AGE_S, TOGETHER).unwrap_or_default() {
        let elapsed = now - stray.asked;
        match give_up(journal, &stray, elapsed, cancel) {
            Err(_) if elapsed > MOST_AGE_S => drop(journal.forget_stray(stray.n)),
            // It does not let this user look.
            Err(e) if e.kind() == Kind::Permission => {}
            // It does not answer: whoever has the transfer is not kept waiting for each.
            Err(_) => return,
            Ok(()) => drop(journal.forget_stray(stray.n)),
        }
    }
}

fn give_up(journal: &Journal, stray: &Stray, elapsed: f64, cancel: &Cancel) -> Result<()> {
    let bucket = Bucket::open(&BucketUrl::parse(&stray.url)?)?.stopped_by(cancel);
    for upload in bucket.uploads(&stray.key)?.unwrap_or_default() {
        let ago = upload.ago as f64;
        let then = ago <= elapsed + APART_S && ago >= elapsed - WITHIN_S - APART_S;
        if then && !journal.has_upload(&upload.id)? && !bucket.has_parts(&stray.key, &upload.id)? {
            bucket.abort(&stray.key, &upload.id)?;
        }
    }
    Ok(())
}
