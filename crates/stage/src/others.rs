//! What other processes are about to write to dataspaces: those of other users, by way of whoever knows all of them.

use crate::rules::Rule;
use std::sync::Arc;
use stead_core::Result;
use stead_core::layout::Spaces;

/// Who knows how many bytes are still to come of all processes that write to the dataspaces of a node.
pub trait Others: Send + Sync {
    /// Says that `own` bytes of this process are still to come in a dataspace, and that `more` are wanted; what was said holds until it is
    /// [settled](Others::settle). Gives the bytes of all other processes: of two that want something at the same time, one knows of the
    /// other.
    ///
    /// # Errors
    /// `Timeout`; those of asking.
    fn claim(&self, name: &str, own: u64, more: u64) -> Result<u64>;

    /// Says that `more` bytes are wanted no longer, and that `own` are to come: with these, if they are under way now.
    fn settle(&self, name: &str, own: u64, more: u64);
}

/// The dataspaces that all share, and who knows of the others.
pub(crate) struct Beside<'a> {
    pub(crate) others: &'a Arc<dyn Others>,
    pub(crate) common: &'a Spaces,
}

impl<'a> Beside<'a> {
    /// Claims some of a dataspace, if it has a quota of all users together.
    ///
    /// # Errors
    /// Those of [`Others::claim`].
    pub(crate) fn claim(&self, rule: &Rule, own: u64, more: u64) -> Result<Option<Claim<'a>>> {
        let is_common = self.common.place(&rule.name).ok() == Some(rule.place.as_str());
        if !is_common || rule.terms.quota.is_none() {
            return Ok(None);
        }
        let mut claim = Claim {
            others: self.others,
            name: rule.name.clone(),
            own,
            more,
            theirs: 0,
            kept: false,
        };
        // Dropped, it is taken back, also if nobody has answered.
        claim.theirs = self.others.claim(&rule.name, own, more)?;
        Ok(Some(claim))
    }
}

/// Bytes that are wanted. Dropped, they are given back, unless they were [kept](Claim::keep).
pub(crate) struct Claim<'a> {
    others: &'a Arc<dyn Others>,
    name: String,
    own: u64,
    more: u64,
    theirs: u64,
    kept: bool,
}

impl Claim<'_> {
    /// Bytes of others that are still to come.
    pub(crate) fn theirs(&self) -> u64 {
        self.theirs
    }

    /// They are under way.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let own = self.own.saturating_add(if self.kept { self.more } else { 0 });
        self.others.settle(&self.name, own, self.more);
    }
}
