//! Files of recorded steps: any bytes are looked at, and what is understood is what would be written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_stream::index::Definitions;
use stead_stream::recorded::form::{Entry, Head, Opening, sums};

fuzz_target!(|bytes: &[u8]| {
    if let Some(opening) = Opening::decode(bytes) {
        assert_eq!(Opening::decode(&opening.encode()), Some(opening));
    }
    if let Some(entry) = Entry::decode(bytes, 7) {
        assert_eq!(Entry::decode(&entry.encode(7), 7), Some(entry));
    }
    // No bytes by chance have the checksum of an entry, or of a head: what is in them is looked at with one that is right.
    let head = Head::sum(bytes);
    let Some(head) = Head::decode(bytes, head) else { return };
    let read: Vec<u64> = head.sums.iter().map(|sum| u64::from_le_bytes(*sum)).collect();
    assert_eq!(Head::encode(head.definitions, head.hash, head.blocks, &read).0, bytes);
    let _ = Definitions::new().decode_blocks(head.blocks);
    assert_eq!(sums(bytes).count(), bytes.len().div_ceil(64 << 10));
});
