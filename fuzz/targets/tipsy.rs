//! Tipsy headers that may lie about everything, and whole files of any kind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_core::{ByteOrder, DType};
use stead_format::tipsy::{Header, Particles, Species};
use stead_format::{FormatType, OpenOptions};
use stead_fuzz::{choices, same_on_any_split};

fuzz_target!(|data: &[u8]| {
    let Some(([how, gas, dark, star, chunk, far, task], data)) = choices::<7>(data) else { return };
    // A header as it comes, of a file of any length: nothing of the file itself is looked at.
    let len = u64::from(far) << (how % 56);
    if let Ok(h) = Header::parse(data, len) {
        assert_eq!(h.file_bytes(), Some(len));
        let tasks = usize::from(task) + 1;
        for k in Species::ALL {
            let parts: Vec<_> = (0..tasks).map(|t| h.part(k, t, tasks).expect("a part")).collect();
            assert_eq!(parts.iter().map(|p| p.count).sum::<u64>(), h.count(k));
            assert!(parts.iter().all(|p| p.range().end <= len));
        }
    }
    let species = match how >> 6 {
        0 => None,
        n => Species::ALL.get(usize::from(n) - 1).copied(),
    };
    let options =
        OpenOptions { format: Some(FormatType::Tipsy), species, ..OpenOptions::default() };
    if how & 1 == 0 {
        same_on_any_split(&[data], &options, chunk.into());
        return;
    }
    // A file that is one, of these bytes.
    let order = if how & 2 == 0 { ByteOrder::Big } else { ByteOrder::Little };
    let (positions, velocities) = match how >> 2 & 3 {
        0 | 1 => (DType::F32, DType::F32),
        2 => (DType::F64, DType::F32),
        _ => (DType::F64, DType::F64),
    };
    let counts = [gas, dark, star].map(|n| u64::from(n % 32));
    let h = Header::new(0.0, counts, order, positions, velocities).expect("a header");
    let mut file = h.encode();
    let len = h.file_bytes().expect("a length") as usize;
    file.extend(data.iter().copied().cycle().take(if data.is_empty() {
        0
    } else {
        len - file.len()
    }));
    file.resize(len, 0);
    let parsed = Header::parse(&file, len as u64).expect("its header");
    // A file without particles does not tell how long their records would be.
    assert!(parsed == h || counts == [0; 3], "{parsed:?} {h:?}");
    same_on_any_split(&[&file], &options, chunk.into());
    for k in Species::ALL {
        let part = h.part(k, 0, 1).expect("all of it");
        let mut all = Particles::new(&h, k, 0, &[]).expect("arrays");
        all.add(&file[part.offset as usize..part.range().end as usize]).expect("whole records");
        assert_eq!(all.len() as u64, h.count(k));
    }
});
