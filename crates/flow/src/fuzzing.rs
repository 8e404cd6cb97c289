//! What a fuzzer feeds with any bytes, of what is not public.

use crate::op::Partial;
use crate::ranks;

/// Bytes that another rank of a flow may say: what is understood can be merged and comes to numbers.
pub fn said(bytes: &[u8]) {
    let _ = ranks::lengths(bytes);
    let Some((_, told)) = ranks::head(bytes) else { return };
    let Ok(share) = Partial::read(told) else { return };
    let mut all = share.clone();
    assert!(all.merge(share).is_ok(), "states of one sort");
    all.come_to_numbers();
}
