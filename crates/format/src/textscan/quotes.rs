//! What shares of a scan do to quotes, for ranks that tell each other.
//!
//! Where quotes have a meaning, a rank whose share begins within a file must know in which state it begins. Each looks at its
//! own share once ([`look`]), all tell each other what theirs do, and each puts together what those before it do.

use super::{Layout, TextScan};
use crate::api::{Progress, Scan, ScanOptions};
use crate::delimited::syntax::{State, Transition};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stead_core::{Error, Result};
use stead_store::Source;

/// What a share does to the state of quotes, whichever it begins in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotes(Transition);

/// The state of quotes in which a share begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before(pub(super) State);

impl Quotes {
    /// For other ranks: a byte for each state.
    pub fn bytes(&self) -> [u8; 6] {
        self.0.states().map(|s| s as u8)
    }

    /// Of another rank.
    ///
    /// # Errors
    /// `Format` for what [`Quotes::bytes`] cannot have given.
    pub fn from_bytes(bytes: &[u8]) -> Result<Quotes> {
        let bad = || Error::format("what another rank says of its quotes is malformed");
        let bytes: [u8; 6] = bytes.try_into().map_err(|_| bad())?;
        let mut states = [State::Record; 6];
        for (state, byte) in states.iter_mut().zip(bytes) {
            *state = State::of(byte).ok_or_else(bad)?;
        }
        Ok(Quotes(Transition::from_states(states)))
    }

    /// The state after shares that come one after the other, the first of them at the start of the data.
    pub fn before(shares: &[Quotes]) -> Before {
        Before(shares.iter().fold(State::Record, |state, share| share.0.apply(state)))
    }
}

/// What the share does to quotes, and how many bytes were read for it. Looks at all of its bytes that can matter, with so
/// many threads.
pub fn look(
    layout: Layout,
    sources: &[Arc<dyn Source>],
    options: &ScanOptions,
    threads: usize,
) -> Result<(Quotes, u64)> {
    let scan = &TextScan::looking(layout, sources, options)?;
    let work = || {
        let mut worker = scan.worker()?;
        while worker.next()?.is_some() {}
        Ok(())
    };
    let done: Vec<Result<()>> = std::thread::scope(|scope| {
        let start =
            |_| std::thread::Builder::new().name("stead-quotes".into()).spawn_scoped(scope, work);
        let more: Vec<_> = (1..threads).map_while(|i| start(i).ok()).collect();
        let mine = work();
        let join = |t: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            t.join().unwrap_or_else(|_| Err(Error::internal("a worker died")))
        };
        std::iter::once(mine).chain(more.into_iter().map(join)).collect()
    });
    let mut errors: Vec<Error> = done.into_iter().filter_map(Result::err).collect();
    errors.sort_by_key(|e| (e.kind() == stead_core::Kind::Cancelled, e.order()));
    if let Some(first) = errors.into_iter().next() {
        return Err(first);
    }
    let progress: &Progress = scan.progress();
    Ok((Quotes(scan.chain.total()), progress.bytes.load(Ordering::Relaxed)))
}
