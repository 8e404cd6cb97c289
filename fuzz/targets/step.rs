//! What a writer says of a step: hostile bytes are refused, and what is understood is what would be written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use stead_core::{Bounds, Kind};
use stead_stream::index::Definitions;
use stead_stream::merge::merge;
use stead_stream::{Finder, covered};

fuzz_target!(|bytes: &[u8]| {
    // How long the definitions are; what follows are blocks.
    let Some((len, bytes)) = bytes.split_first_chunk::<2>() else { return };
    let (said, blocks) = bytes.split_at(bytes.len().min(u16::from_le_bytes(*len).into()));
    let definitions = match Definitions::decode(said) {
        Ok(definitions) => definitions,
        Err(e) => return assert_eq!(e.kind(), Kind::Format),
    };
    let again = definitions.encode().expect("what was read can be written");
    let again = Definitions::decode(&again).expect("what was written is read");
    assert_eq!(again, definitions);
    let blocks = match definitions.decode_blocks(blocks) {
        Ok(read) => {
            assert_eq!(definitions.encode_blocks(&read).ok().as_deref(), Some(blocks));
            read
        }
        Err(e) => return assert_eq!(e.kind(), Kind::Format),
    };
    // They are of use: found, and known to cover or not to.
    for (number, definition) in (0..).zip(definitions.iter()) {
        let mine: Vec<&Bounds> =
            blocks.iter().filter(|b| b.variable == number).map(|b| &b.bounds).collect();
        let ndim = definition.shape.len();
        let finder = Finder::new(ndim, mine.iter().copied());
        for wanted in mine.iter().take(8) {
            let found = finder.find(wanted);
            assert!(found.iter().all(|i| mine[*i].meets(wanted)));
            assert_eq!(found.is_empty(), wanted.is_empty());
            assert_eq!(covered(wanted, mine.iter().copied()), Ok(()));
        }
        let whole =
            Bounds::new(vec![0; ndim], &definition.shape).expect("a shape that was checked");
        // Blocks without order in an array of any size take any time.
        if mine.len() <= 64
            && whole.elements() <= 1 << 22
            && let Err(gap) = covered(&whole, mine.iter().copied())
        {
            assert!(whole.contains(&gap) && finder.find(&gap).is_empty());
        }
    }
    let all = [(0, Arc::new(definitions)), (1, Arc::new(again))];
    assert_eq!(merge(&all).expect("who says the same agrees").definitions.len(), all[0].1.len());
});
