//! Layouts, lists of nodes, dataspaces and names with ranks: hostile texts are refused, and what is read keeps its promises.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_core::layout::{Dataspace, Layout, PerProcess, Spaces, check_relative, nodes};

fn check(layout: &Layout) {
    assert_eq!(Layout::parse(&layout.to_string()).expect("what is written is read"), *layout);
    let sum: u64 = layout.parts().iter().map(|p| p.length).sum();
    assert_eq!(sum, layout.length());
    for part in layout.parts() {
        assert!(part.space.is_none() || check_relative(&part.path).is_ok());
        assert!(!part.path.split('/').any(|step| step == ".."));
    }
    // The first pieces and those at some places on the way.
    let length = layout.length();
    for from in [0, length / 3, length / 2, length.saturating_sub(5)] {
        for part in 0..layout.parts().len().min(4) {
            let mut at = from;
            for piece in layout.part_pieces(part, from..length).take(50) {
                assert_eq!((piece.at, layout.locate(piece.offset)), (at, Some((part, at))));
                at += piece.len;
            }
        }
        let mut at = from;
        for piece in layout.pieces(from..length).take(50) {
            assert!(piece.offset == at && piece.len > 0);
            assert_eq!(layout.locate(at), Some((piece.part, piece.at)));
            assert_eq!(layout.offset(piece.part, piece.at), Some(at));
            let last = piece.len - 1;
            assert_eq!(layout.locate(at + last), Some((piece.part, piece.at + last)));
            at += piece.len;
        }
    }
    let (mut held, mut ends) = (0u64, 0);
    for (_, parts) in layout.nodes() {
        for range in layout.held(&parts).expect("parts of a node").take(1000) {
            held += range.end - range.start;
            ends += 1;
        }
    }
    assert!(held == length || ends >= 1000);
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Layout::parse(text) {
        Ok(layout) => check(&layout),
        Err(e) => {
            assert!(!e.to_string().contains('\n'), "{e}");
        }
    }
    if let Ok(list) = nodes::expand(text) {
        assert_eq!(nodes::expand(&nodes::fold(&list)).expect("a folded list"), list);
    }
    let _ = Dataspace::expand(text);
    let variable = |name: &str| (name.len() < 5).then(|| text.to_owned());
    if let Ok(spaces) = Spaces::parse(text, &variable) {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c)));
        for folder in words.filter_map(|name| spaces.folder(name).ok()) {
            assert!(folder.starts_with('/') && !folder.split('/').any(|step| step == ".."));
        }
    }
    let _ = Spaces::default().give(text, &variable);
    if let Ok(pattern) = PerProcess::parse(text) {
        for r in [0, 7, 10, u64::MAX] {
            assert_eq!(pattern.rank(&pattern.name(r)), Some(r));
        }
        let _ = pattern.rank(text);
    }
});
