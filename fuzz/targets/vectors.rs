//! Columns that another rank has sent, and that cannot be trusted: an error, or a block all of which can be looked at, and which
//! comes as it went when it is sent on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_core::{Block, Needs};
use stead_format::vectors::{Vector, cut, encode, size};
use stead_fuzz::choices;

type Row = (Vec<u64>, Vec<Option<Vec<u8>>>, Option<(u32, u32)>);

fn rows(block: &Block<'_>, needs: &Needs) -> Vec<Row> {
    let text = |id: &usize, row| block.texts(*id).and_then(|t| t.get(row)).map(<[u8]>::to_vec);
    let row = |row: usize| {
        (
            needs.numbers.iter().map(|id| block.numbers(*id)[row].to_bits()).collect(),
            needs.texts.iter().map(|id| text(id, row)).collect(),
            block.records.get(row).map(|s| (s.start, s.len)),
        )
    };
    (0..block.rows).map(row).collect()
}

fuzz_target!(|data: &[u8]| {
    let Some(([numbers, texts, records, most], data)) = choices::<4>(data) else { return };
    let needs = Needs {
        numbers: (0..usize::from(numbers) % 4).collect(),
        texts: (4..4 + usize::from(texts) % 3).collect(),
        records: records & 1 != 0,
        ..Needs::default()
    };
    let mut vector = Vector::default();
    if vector.decode(data, &needs).is_err() {
        return;
    }
    let block = vector.block(&needs);
    let went = rows(&block, &needs);
    let (mut came, mut bytes, mut again) = (Vec::new(), 0, Vector::default());
    for part in cut(&block, &needs, usize::from(most)) {
        let mut frame = Vec::new();
        encode(&block, part, &needs, &mut frame).expect("a block that has come");
        again.decode(&frame, &needs).expect("what was encoded");
        let block = again.block(&needs);
        bytes += size(&block, &needs);
        came.extend(rows(&block, &needs));
    }
    assert!(came == went && bytes == size(&block, &needs), "columns change as they travel");
});
