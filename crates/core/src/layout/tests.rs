//! What every layout promises, whatever its stripes, and texts that are none.

use super::*;
use proptest::prelude::*;

fn parts(n: usize) -> Vec<Part> {
    (0..n).map(|i| Part::new(format!("n{}", i % 3), format!("d/{i}")).within("nvme")).collect()
}

/// Files of up to a few hundred bytes, cut in any way.
fn layout() -> impl Strategy<Value = Layout> {
    let even = (0..300u64, 1..20u64, 1..6usize)
        .prop_map(|(length, stripe, n)| Layout::even("f", length, stripe, parts(n)).unwrap());
    let cut = (prop::collection::vec(0..200u64, 0..20), 0..100u64, 1..6usize, any::<u64>())
        .prop_map(|(mut cuts, tail, n, seed)| {
            cuts.sort_unstable();
            let length = cuts.last().unwrap_or(&0) + tail;
            let any = |i: usize| (seed.rotate_left(i as u32 * 7) % n as u64) as u32;
            let on: Vec<u32> = (0..=cuts.len()).map(any).collect();
            let on = if seed % 2 == 0 { Some(on.as_slice()) } else { None };
            Layout::cut("f", length, &cuts, on, parts(n)).unwrap()
        });
    prop_oneof![even, cut]
}

/// Where each byte of the file is, found by laying out one stripe after the other.
fn places(layout: &Layout) -> Vec<(usize, u64)> {
    let mut ends = vec![0; layout.parts().len()];
    let mut places = Vec::new();
    for i in 0..layout.stripes() {
        let part = layout.part_of(i);
        for _ in layout.stripe(i) {
            places.push((part, ends[part]));
            ends[part] += 1;
        }
    }
    let lengths: Vec<u64> = layout.parts().iter().map(|p| p.length).collect();
    assert_eq!(ends, lengths);
    places
}

proptest! {
    #[test]
    fn each_byte_has_one_place(layout in layout()) {
        let places = places(&layout);
        prop_assert_eq!(places.len() as u64, layout.length());
        for (offset, place) in (0u64..).zip(&places) {
            prop_assert_eq!(layout.locate(offset), Some(*place));
            prop_assert_eq!(layout.offset(place.0, place.1), Some(offset));
        }
        prop_assert_eq!(layout.locate(layout.length()), None);
        for (p, part) in layout.parts().iter().enumerate() {
            prop_assert_eq!(layout.offset(p, part.length), None);
        }
    }

    #[test]
    fn pieces_of_a_part_are_its_bytes(layout in layout(), a in 0..320u64, b in 0..320u64) {
        for part in 0..layout.parts().len() {
            let mut at = a;
            for piece in layout.part_pieces(part, a..b) {
                prop_assert_eq!((piece.part, piece.at), (part, at));
                prop_assert!(piece.len > 0);
                for i in 0..piece.len {
                    prop_assert_eq!(layout.locate(piece.offset + i), Some((part, at + i)));
                }
                let stripe = layout.stripe_around(piece.offset).unwrap();
                prop_assert!(stripe.contains(&(piece.offset + piece.len - 1)));
                at += piece.len;
            }
            prop_assert_eq!(at, b.min(layout.parts()[part].length).max(a));
        }
    }

    #[test]
    fn pieces_are_the_range(layout in layout(), a in 0..320u64, b in 0..320u64) {
        let places = places(&layout);
        let mut at = a;
        let mut last: Option<Piece> = None;
        for piece in layout.pieces(a..b) {
            prop_assert_eq!(piece.offset, at);
            prop_assert!(piece.len > 0);
            for k in 0..piece.len {
                prop_assert_eq!(places[(at + k) as usize], (piece.part, piece.at + k));
            }
            if let Some(last) = last {
                prop_assert!((last.part, last.at + last.len) != (piece.part, piece.at), "could be one");
            }
            at += piece.len;
            last = Some(piece);
        }
        prop_assert_eq!(at, b.min(layout.length()).max(a));
    }

    #[test]
    fn what_holders_have_is_the_file(layout in layout(), of in 1..7usize) {
        let mut owner = vec![None; layout.length() as usize];
        let places = places(&layout);
        for (node, parts) in layout.nodes() {
            let all: Vec<Range<u64>> = layout.held(&parts).unwrap().collect();
            let mut of_ranks = Vec::new();
            for k in 0..of {
                for range in layout.held_by(&parts, k, of).unwrap() {
                    of_ranks.push(range);
                }
            }
            for range in &all {
                prop_assert!(!range.is_empty());
                for byte in range.clone() {
                    prop_assert!(owner[byte as usize].replace(node).is_none());
                    prop_assert!(parts.contains(&places[byte as usize].0));
                }
            }
            prop_assert!(all.windows(2).all(|w| w[0].end < w[1].start), "ascending, apart: {:?}", all);
            // Ranks have contiguous runs of that, in their order.
            prop_assert!(of_ranks.windows(2).all(|w| w[0].end <= w[1].start));
            let bytes = |r: &[Range<u64>]| r.iter().cloned().flatten().collect::<Vec<u64>>();
            prop_assert_eq!(bytes(&all), bytes(&of_ranks));
        }
        prop_assert!(owner.iter().all(Option::is_some));
    }

    #[test]
    fn what_is_written_is_read(layout in layout(), sums in any::<bool>()) {
        let sum = |i: usize| Checksum { algorithm: "crc32c".into(), digest: vec![i as u8; 4] };
        let n = layout.parts().len();
        let layout = if sums { layout.with_checksums((0..n).map(sum).collect()).unwrap() } else { layout };
        let text = layout.to_string();
        prop_assert_eq!(Layout::parse(&text).unwrap(), layout, "{}", text);
    }

    #[test]
    fn large_files_have_no_overflow(
        length in 0..=i64::MAX as u64, wide in 0..1000u64, n in 1..100usize, at in any::<u64>(),
    ) {
        let stripe = length.div_ceil(limits::MAX_STRIPES).max(1) + wide;
        let layout = Layout::even("f", length, stripe, parts(n)).unwrap();
        let sum: u64 = layout.parts().iter().map(|p| p.length).sum();
        prop_assert_eq!(sum, length);
        for at in [at % length.max(1), 0, length.saturating_sub(1)] {
            if let Some((part, within)) = layout.locate(at) {
                prop_assert!(within < layout.parts()[part].length);
                prop_assert_eq!(layout.offset(part, within), Some(at));
            }
        }
        for part in 0..n {
            if let Some(last) = layout.parts()[part].length.checked_sub(1) {
                let offset = layout.offset(part, last).unwrap();
                prop_assert_eq!(layout.locate(offset), Some((part, last)));
            }
        }
        prop_assert_eq!(layout.pieces(at..u64::MAX).take(3).count() as u64,
            if at < length { layout.pieces(at..length).take(3).count() as u64 } else { 0 });
        prop_assert!(layout.stripe(u64::MAX).is_empty());
    }

    #[test]
    fn stripes_begin_where_records_begin(
        records in prop::collection::vec(1..60u64, 0..40), stripe in 1..50u64,
    ) {
        let starts: Vec<u64> = records.iter().scan(0, |at, n| { *at += n; Some(*at - n) }).collect();
        let length: u64 = records.iter().sum();
        let next = |at: u64| Ok(starts.iter().copied().find(|s| *s >= at).unwrap_or(length));
        let cuts = aligned(length, stripe, next).unwrap();
        prop_assert!(cuts.iter().all(|c| starts.contains(c) && *c < length));
        prop_assert!(cuts.windows(2).all(|w| w[0] < w[1]));
        let longest = records.iter().max().copied().unwrap_or(0);
        let layout = Layout::cut("f", length, &cuts, None, parts(3)).unwrap();
        for i in 0..layout.stripes() {
            let bytes = layout.stripe(i);
            prop_assert!(bytes.end - bytes.start < stripe * 2 + longest);
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,200}", line in 0..12usize, at in any::<prop::sample::Index>()) {
        let _ = Layout::parse(&text);
        let good = GOOD.to_owned();
        let _ = Layout::parse(&good[..at.index(good.len())]);
        let mut lines: Vec<&str> = good.lines().collect();
        lines.insert(line.min(lines.len()), &text);
        let _ = Layout::parse(&lines.join("\n"));
    }
}

const GOOD: &str = r#"version = 1
name = "flights.csv"
length = 10
stripe = 4
parts = [
  { node = "node1", space = "nvme", path = "flights/0", length = 6, checksum = "crc32c:01020304" },
  { node = "node2", space = "nvme", path = "flights/1", length = 4 },
]
"#;

#[test]
fn a_layout_is_read() {
    let layout = Layout::parse(GOOD).unwrap();
    assert_eq!(
        (layout.name(), layout.length(), layout.stripe_size()),
        ("flights.csv", 10, Some(4))
    );
    assert_eq!(layout.parts()[0].home(), "nvme@node1");
    assert_eq!(layout.parts()[0].checksum.as_ref().unwrap().to_string(), "crc32c:01020304");
    assert_eq!(layout.to_string(), GOOD);
    let sizes = GOOD.replace("stripe = 4", "stripe = \"4B\"").replace("= 10", "= \"10\"");
    assert_eq!(Layout::parse(&sizes).unwrap(), layout);
    let cuts = GOOD.replace("stripe = 4", "cuts = [3, 7]");
    let cut = Layout::parse(&cuts).unwrap();
    assert_eq!(cut.locate(8), Some((0, 4)));
    let placed = cuts.replace("cuts = [3, 7]", "cuts = [3, 6]\non = [0, 0, 1]");
    assert_eq!(Layout::parse(&placed).unwrap().locate(5), Some((0, 5)));
}

#[test]
fn layouts_that_lie_are_refused_with_their_line() {
    let path = r#"path = "flights/0""#;
    for (old, new, line, says) in [
        ("version = 1", "version = 2", 1, "version 2"),
        ("version = 1", "", 1, "missing field"),
        ("length = 10", "length = -1", 3, "no size"),
        ("length = 10", "length = 11", 6, "part 0 has 6 bytes, but its stripes have 7"),
        ("length = 10", "length = 9", 6, "part 0 has 6 bytes"),
        ("length = 10", "length = 9223372036854775808", 3, "a file of 9223372036854775808 bytes"),
        ("length = 10", "length = \"12 parsecs\"", 3, "not a size"),
        ("stripe = 4", "stripe = 0", 4, "0 bytes"),
        ("stripe = 4", "stripe = 4\nstripe = 4", 5, "duplicate"),
        ("stripe = 4", "stripe = 4\ncuts = [4]", 5, "not both"),
        ("stripe = 4", "", 2, "needs a 'stripe'"),
        ("stripe = 4", "stripe = 4\non = [0]", 5, "'on' places"),
        ("stripe = 4", "cuts = [7, 3]", 4, "ascend"),
        ("stripe = 4", "cuts = [3, 17]", 4, "a cut at 17"),
        ("stripe = 4", "cuts = [3]\non = [0]", 4, "1 cuts make 2 stripes"),
        ("stripe = 4", "cuts = [3]\non = [0, 2]", 4, "on part 2 of 2"),
        ("stripe = 4", "stripe = 4\nspeed = 3", 5, "unknown field"),
        ("length = 6", "length = 7", 6, "part 0 has 7 bytes"),
        ("length = 6, ", "", 6, "missing field"),
        ("node = \"node1\"", "node = \"no de\"", 6, "not the name of a node"),
        ("space = \"nvme\", path = \"flights/0\"", "space = \"..\", path = \"a\"", 6, "dataspace"),
        (path, r#"path = "/flights/0""#, 6, "part 0: path '/flights/0' is absolute"),
        (path, r#"path = "../flights""#, 6, "leaves its folder"),
        (path, r#"path = "a\u0000b""#, 6, "control character"),
        (path, r#"path = """#, 6, "empty step"),
        ("crc32c:01020304", "crc32c:0102030", 6, "not a checksum"),
        ("crc32c:01020304", "CRC:01", 6, "not a checksum"),
        ("crc32c:01020304", "crc32c:", 6, "not a checksum"),
        ("name = \"flights.csv\"", "name = \"../flights.csv\"", 4, "not the name of a file"),
        (
            "node2\", space = \"nvme\", path = \"flights/1",
            "node1\", space = \"nvme\", path = \"flights/0",
            4,
            "part already",
        ),
        ("length = 10", "length = 18446744073709551616", 3, "not a layout"),
    ] {
        assert!(GOOD.contains(old), "{old}");
        let e = Layout::parse(&GOOD.replacen(old, new, 1)).unwrap_err();
        assert!(e.message().contains(says), "{new}: {e}");
        assert_eq!(e.place().line, Some(line), "{new}: {e}");
        assert_eq!(e.kind(), Kind::Format, "{new}: {e}");
        assert!(!e.message().contains('\n') && !e.message().ends_with('.'), "{e}");
    }
    let cut_off = &GOOD[..GOOD.len() - 3];
    assert_eq!(Layout::parse(cut_off).unwrap_err().kind(), Kind::Format);
    let later = Layout::parse("version = 7\nshards = 3\n").unwrap_err();
    assert!(later.message().contains("version 7"), "{later}");
    assert!(
        Layout::parse("version = 1\nname = \"f\"\nlength = 0\nstripe = 1\nparts = []\n").is_err()
    );
}

#[test]
fn layouts_are_bounded() {
    let e = Layout::even("f", 1 << 40, 3, parts(2)).unwrap_err();
    assert_eq!(e.kind(), Kind::Limit);
    assert_eq!(e.hint(), Some("take stripes of 262144 bytes or more"));
    assert!(Layout::even("f", 1 << 40, 262_144, parts(2)).is_ok());
    let cuts: Vec<u64> = (0..=limits::MAX_CUTS as u64).collect();
    let most = Layout::cut("f", 1 << 40, &cuts[1..], None, parts(3)).unwrap();
    assert!(most.to_string().len() < limits::MAX_LAYOUT_BYTES);
    assert_eq!(Layout::cut("f", 1 << 40, &cuts, None, parts(3)).unwrap_err().kind(), Kind::Limit);
    assert_eq!(
        Layout::even("f", 1, 1, parts(limits::MAX_PARTS + 1)).unwrap_err().kind(),
        Kind::Limit
    );
    assert_eq!(Layout::even("f", u64::MAX, u64::MAX, parts(2)).unwrap_err().kind(), Kind::Limit);
    let long = "#".repeat(limits::MAX_LAYOUT_BYTES + 1);
    assert_eq!(Layout::parse(&long).unwrap_err().kind(), Kind::Limit);
}

#[test]
fn holders_are_checked() {
    let layout = Layout::even("f", 100, 3, parts(4)).unwrap();
    for (parts, k, of) in [(vec![0, 0], 0, 1), (vec![4], 0, 1), (vec![0], 1, 1), (vec![0], 0, 0)] {
        assert!(layout.held_by(&parts, k, of).is_err(), "{parts:?}");
    }
    assert_eq!(layout.held(&[]).unwrap().count(), 0);
    assert_eq!(
        layout.held(&[3, 0, 2, 1]).unwrap().collect::<Vec<_>>(),
        std::slice::from_ref(&(0..100))
    );
    assert_eq!(layout.held_by(&[1], 0, 3).unwrap().stripes(), 3);
    assert!(layout.verify(0, 27).is_ok());
    let e = layout.verify(1, 20).unwrap_err();
    assert!(e.message().contains("d/1 on nvme@n1, has 20 bytes in place of 25"), "{e}");
    assert_eq!(Layout::even("f", 0, 3, parts(2)).unwrap().pieces(0..9).count(), 0);
    assert!(Layout::is_name("a.csv.stead-layout.toml") && !Layout::is_name(".stead-layout.toml"));
}

#[test]
fn a_record_finder_that_goes_back_ends_it() {
    assert_eq!(aligned(10, 4, |_| Ok(0)).unwrap_err().kind(), Kind::Internal);
    assert_eq!(aligned(10, 0, Ok).unwrap_err().kind(), Kind::Usage);
    assert_eq!(aligned(1 << 40, 1, Ok).unwrap_err().kind(), Kind::Limit);
    assert_eq!(aligned(10, 4, Ok).unwrap(), [4, 8]);
    assert_eq!(aligned(u64::MAX, u64::MAX / 2, |at| Ok(at.saturating_add(7))).unwrap().len(), 1);
}

/// The examples that people are shown.
#[test]
fn the_documented_layouts_are_read() {
    let page = include_str!("../../../../docs/layouts.md");
    let texts: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|t| t.split("```").next()).collect();
    assert_eq!(texts.len(), 2);
    for text in texts {
        let layout = Layout::parse(text).unwrap();
        assert_eq!(
            layout.held(&[0, 1]).unwrap().collect::<Vec<_>>(),
            std::slice::from_ref(&(0..layout.length()))
        );
    }
}
