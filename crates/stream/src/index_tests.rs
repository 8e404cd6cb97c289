use super::*;
use proptest::prelude::*;
use stead_core::Kind;

pub(crate) fn definition(name: &str, dtype: DType, shape: &[u64]) -> Definition {
    Definition {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
        dims: Vec::new(),
        attributes: BTreeMap::new(),
    }
}

pub(crate) fn named(name: &str, dims: &[&str]) -> Definition {
    let shape = vec![4; dims.len()];
    let dims = dims.iter().map(|d| d.to_string()).collect();
    Definition { dims, ..definition(name, DType::F64, &shape) }
}

pub(crate) fn with(name: &str, key: &str, value: Attribute) -> Definition {
    let attributes = BTreeMap::from([(key.to_string(), value)]);
    Definition { attributes, ..definition(name, DType::F64, &[4]) }
}

pub(crate) fn of(list: impl IntoIterator<Item = Definition>) -> Definitions {
    let mut all = Definitions::new();
    for (i, definition) in list.into_iter().enumerate() {
        assert_eq!(all.add(definition).unwrap() as usize, i);
    }
    all
}

fn block(variable: u32, start: &[u64], count: &[u64], size: u64) -> BlockEntry {
    let bounds = Bounds::new(start, count).unwrap();
    let place = Place { segment: 3, offset: 64, len: bounds.elements() * size };
    BlockEntry { variable, bounds, place }
}

#[test]
fn what_can_be_no_variable_is_refused() {
    let long = "x".repeat(1025);
    let f = |name: &str| definition(name, DType::F64, &[4]);
    let two = |a: &str, b: &str| named("T", &[a, b]);
    for (wrong, says) in [
        (f(""), "the name of a variable is empty"),
        (f(&long), "longer than 1024 bytes"),
        (f("a\u{1b}[2J"), "control character"),
        (f("a\0"), "control character"),
        (two("x", "x"), "variable 'T': two dimensions have the name 'x'"),
        (two("x", ""), "the name of a dimension is empty"),
        (Definition { shape: vec![4], ..two("x", "y") }, "2 names for 1 dimensions"),
        (definition("T", DType::U8, &[0, u64::MAX, 2]), "more elements"),
        (definition("T", DType::F64, &[1 << 61]), "more bytes"),
        (definition("T", DType::U8, &[1; 33]), "33 dimensions"),
        (with("T", "", Attribute::Int(1)), "the name of an attribute is empty"),
    ] {
        let e = Definitions::new().add(wrong.clone()).unwrap_err();
        assert!(e.kind() == Kind::Usage && e.message().contains(says), "{e}");
        // Nor is it believed where somebody else says it.
        let mut bytes = vec![VERSION];
        bytes.extend(encoded(&wrong).unwrap());
        let e = Definitions::decode(&bytes).unwrap_err();
        assert!(e.kind() == Kind::Format && e.message().contains(says), "{e}");
    }
    let many = (0..=limits::MAX_ATTRIBUTES).map(|i| (i.to_string(), Attribute::Int(0)));
    let many = Definition { attributes: many.collect(), ..f("T") };
    assert!(Definitions::new().add(many).unwrap_err().message().contains("1025 attributes"));
    // These can be.
    let names = ["a b/c", "Temperatur Ä", &long[1..]];
    assert_eq!(of(names.map(f)).len(), 3);
    of([definition("T", DType::U8, &[u64::MAX])]);
}

proptest! {
    /// Whatever is said anew, and how often: they are as if it had been said so at once.
    #[test]
    fn who_says_it_anew_has_said_it(
        shapes in prop::collection::vec(prop::collection::vec(1u64..9, 0..4), 1..6),
        anew in prop::collection::vec((any::<prop::sample::Index>(), prop::collection::vec(1u64..9, 0..4)), 0..200),
    ) {
        let name = |i: usize| format!("v{i}");
        let one = |i: usize, shape: &[u64]| definition(&name(i), DType::I32, shape);
        let mut all = of(shapes.iter().enumerate().map(|(i, shape)| one(i, shape)));
        let mut last = shapes;
        for (which, shape) in anew {
            let i = which.index(last.len());
            prop_assert_eq!(all.replace(one(i, &shape)).unwrap() as usize, i);
            last[i] = shape;
            let whole = block(i as u32, &vec![0; last[i].len()], &last[i], 4);
            prop_assert!(all.check(&whole).is_ok());
            prop_assert!(all.lengths.len() <= 4 + all.len() * limits::MAX_DIMS);
        }
        all.settle().unwrap();
        let at_once = of(last.iter().enumerate().map(|(i, shape)| one(i, shape)));
        prop_assert_eq!(all.hash(), at_once.hash());
        prop_assert_eq!(all.hash(), Definitions::hash_of(&all.encode().unwrap()));
        prop_assert_eq!(all.bytes, at_once.bytes);
        prop_assert_eq!(&all.lengths, &at_once.lengths);
        prop_assert_eq!(all, at_once);
    }
}

#[test]
fn what_cannot_be_said_anew_changes_nothing() {
    let mut all = of([definition("a", DType::F32, &[3])]);
    let before = all.clone();
    for (wrong, says) in [
        (definition("b", DType::F32, &[3]), "no variable 'b'"),
        (definition("a", DType::F64, &[1 << 61]), "more bytes"),
    ] {
        let e = all.replace(wrong).unwrap_err();
        assert!(e.kind() == Kind::Usage && e.message().contains(says), "{e}");
    }
    let long = "x".repeat(limits::MAX_DEFINITIONS_BYTES);
    let large = Definition { shape: vec![3], ..with("a", "k", Attribute::Text(long)) };
    assert_eq!(all.replace(large).unwrap_err().kind(), Kind::Limit);
    assert!(all.is_settled && all == before && all.hash() == before.hash());
}

#[test]
fn a_name_is_one_variable() {
    let mut all = of([definition("a", DType::F32, &[]), definition("b", DType::F64, &[2])]);
    let before = all.hash();
    let e = all.add(definition("a", DType::F32, &[])).unwrap_err();
    assert!(e.kind() == Kind::Usage && e.message().contains("'a' is defined twice"), "{e}");
    assert_eq!((all.len(), all.hash()), (2, before));
    assert_eq!(all.find("b").map(|(n, d)| (n, d.dtype)), Some((1, DType::F64)));
    assert_eq!((all.find("c"), all.get(2)), (None, None));
    let one = encoded(&definition("a", DType::F32, &[])).unwrap();
    let e = Definitions::decode(&[&[VERSION], &one[..], &one[..]].concat()).unwrap_err();
    assert!(e.kind() == Kind::Format && e.message().contains("defined twice"), "{e}");
}

#[test]
fn more_than_can_be_is_refused() {
    let text = "x".repeat(limits::MAX_DEFINITIONS_BYTES / 2);
    let mut all = of([with("a", "text", Attribute::Text(text.clone()))]);
    let e = all.add(with("b", "text", Attribute::Text(text))).unwrap_err();
    assert!(e.kind() == Kind::Limit && e.message().contains("more than"), "{e}");
    assert_eq!(all.len(), 1);
}

#[test]
fn the_hash_changes_with_anything_that_is_said() {
    let plain = definition("T", DType::F64, &[4]);
    let list = [
        vec![],
        vec![plain.clone()],
        vec![definition("U", DType::F64, &[4])],
        vec![definition("T", DType::I64, &[4])],
        vec![definition("T", DType::F64, &[5])],
        vec![definition("T", DType::F64, &[4, 1])],
        vec![named("T", &["x"])],
        vec![named("T", &["y"])],
        vec![with("T", "a", Attribute::Int(1))],
        vec![with("T", "a", Attribute::Ints(vec![1]))],
        vec![with("T", "a", Attribute::Float(0.0))],
        vec![with("T", "a", Attribute::Float(-0.0))],
        vec![plain.clone(), definition("U", DType::F64, &[4])],
        vec![definition("U", DType::F64, &[4]), plain.clone()],
    ];
    let hashes: std::collections::HashSet<u64> =
        list.iter().map(|l| of(l.iter().cloned()).hash()).collect();
    assert_eq!(hashes.len(), list.len());
}

#[test]
fn blocks_that_can_be_none_are_refused() {
    let all = of([definition("T", DType::F32, &[4, 6]), definition("n", DType::I64, &[])]);
    let good = [
        block(0, &[0, 0], &[4, 6], 4),
        block(0, &[3, 5], &[1, 1], 4),
        block(0, &[4, 6], &[0, 0], 4),
        block(1, &[], &[], 8),
    ];
    let bytes = all.encode_blocks(&good).unwrap();
    assert_eq!(all.decode_blocks(&bytes).unwrap(), good);
    let beyond = BlockEntry {
        place: Place { segment: 0, offset: u64::MAX - 7, len: 8 },
        ..block(1, &[], &[], 8)
    };
    for (wrong, says) in [
        (block(2, &[], &[], 8), "variable 2"),
        (
            block(0, &[1, 0], &[4, 6], 4),
            "[1:5, 0:6] of variable 'T' does not lie in its shape [4, 6]",
        ),
        (block(0, &[0], &[4], 4), "does not lie"),
        (block(1, &[0], &[1], 8), "does not lie"),
        (block(0, &[0, 0], &[4, 6], 8), "elements of 4 bytes lies in 192 bytes"),
        (beyond, "lies in 8 bytes at"),
    ] {
        let e = all.encode_blocks(&[good[0].clone(), wrong]).unwrap_err();
        assert!(e.kind() == Kind::Usage && e.message().contains(says), "{e}");
    }
    // As bytes: what fits other definitions does not fit these.
    for other in [
        of([definition("T", DType::F32, &[4, 5]), definition("n", DType::I64, &[])]),
        of([definition("T", DType::F64, &[4, 6]), definition("n", DType::I64, &[])]),
        of([definition("T", DType::F32, &[4, 6])]),
        of([definition("T", DType::F32, &[4, 6, 1]), definition("n", DType::I64, &[])]),
        Definitions::new(),
    ] {
        assert_eq!(other.decode_blocks(&bytes).unwrap_err().kind(), Kind::Format);
    }
}

#[test]
fn bytes_that_are_cut_off_or_too_many_are_refused() {
    let all = of([named("T", &["x", "y"]), with("U", "a", Attribute::Text("km".into()))]);
    let bytes = all.encode().unwrap();
    let first = 1 + encoded(all.get(0).unwrap()).unwrap().len();
    for n in 0..bytes.len() {
        let part = Definitions::decode(&bytes[..n]);
        // Between two definitions nothing is cut off, but the hash is another one.
        assert_eq!(part.is_ok(), n == 1 || n == first, "{n}");
        assert!(part.is_err() || Definitions::hash_of(&bytes[..n]) != all.hash());
    }
    let mut more = bytes.clone();
    more.push(0);
    assert!(Definitions::decode(&more).is_err());
    more[0] = VERSION + 1;
    let e = Definitions::decode(&more).unwrap_err();
    assert!(e.message().contains("form is 2"), "{e}");

    let blocks =
        all.encode_blocks(&[block(0, &[0, 1], &[2, 3], 8), block(1, &[0], &[4], 8)]).unwrap();
    for n in 0..blocks.len() {
        assert_eq!(all.decode_blocks(&blocks[..n]).unwrap_err().kind(), Kind::Format, "{n}");
    }
    let mut more = blocks.clone();
    more.push(0);
    assert!(all.decode_blocks(&more).unwrap_err().message().contains("1 bytes after"));
    for (at, byte) in [(0, 0), (0, 2), (1, 1), (4, 3), (7, 255), (6, 0x40)] {
        let mut wrong = blocks.clone();
        wrong[at] = byte;
        assert!(all.decode_blocks(&wrong).is_err(), "{at} {byte}");
    }
}

#[test]
fn a_count_of_what_is_not_there_takes_no_memory() {
    // A list of dimensions, of attributes, a name: of 2^60 each. Taking memory for them would end the process.
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f];
    let dtype = [1u8];
    for before in [&[VERSION][..], &[VERSION, 1, b'T', dtype[0]], &[VERSION, 1, b'T', dtype[0], 0]]
    {
        let bytes = [before, &huge, &[1; 64]].concat();
        assert_eq!(Definitions::decode(&bytes).unwrap_err().kind(), Kind::Format);
    }
}

#[test]
fn attributes_are_plain_in_json_and_have_their_kind_in_bytes() {
    let nan = f64::NAN;
    for (attribute, json, bytes) in [
        (Attribute::Text("K".into()), r#""K""#, &[0, 1, b'K'][..]),
        (Attribute::Int(-3), "-3", &[1, 5]),
        (Attribute::Float(0.5), "0.5", &[2, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f]),
        (Attribute::Float(f64::NEG_INFINITY), r#""-Infinity""#, &[2, 0, 0, 0, 0, 0, 0, 0xf0, 0xff]),
        (Attribute::Texts(vec!["x".into(), "y".into()]), r#"["x","y"]"#, &[3, 2, 1, b'x', 1, b'y']),
        (Attribute::Ints(vec![1, -1]), "[1,-1]", &[4, 2, 2, 1]),
        (Attribute::Floats(vec![nan]), r#"["NaN"]"#, &[5, 1, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f]),
        (Attribute::Floats(vec![2.0, 1e300]), "[2.0,1e+300]", &[]),
    ] {
        assert_eq!(serde_json::to_string(&attribute).unwrap(), json);
        // Recordings and other nodes have these.
        let said = postcard::to_stdvec(&attribute).unwrap();
        assert!(bytes.is_empty() || said == bytes, "{attribute}: {said:?}");
        assert_eq!(postcard::from_bytes::<Attribute>(&said).unwrap(), attribute);
    }
}

fn attribute() -> impl Strategy<Value = Attribute> {
    prop_oneof![
        ".{0,6}".prop_map(Attribute::Text),
        any::<i64>().prop_map(Attribute::Int),
        any::<u64>().prop_map(|bits| Attribute::Float(f64::from_bits(bits))),
        prop::collection::vec(".{0,3}", 0..4).prop_map(Attribute::Texts),
        prop::collection::vec(any::<i64>(), 0..4).prop_map(Attribute::Ints),
        prop::collection::vec(any::<f64>(), 0..4).prop_map(Attribute::Floats),
    ]
}

pub(crate) fn one() -> impl Strategy<Value = Definition> {
    let shape = prop_oneof![
        prop::collection::vec(0u64..9, 0..6),
        prop::collection::vec(Just(1u64 << 52), 0..2)
    ];
    let attributes = prop::collection::btree_map("[a-z]{1,3}", attribute(), 0..4);
    (0usize..10, shape, any::<bool>(), attributes).prop_map(|(dtype, shape, names, attributes)| {
        let dims = (0..shape.len()).filter(|_| names).map(|d| format!("d{d}")).collect();
        Definition { name: String::new(), dtype: DType::ALL[dtype], shape, dims, attributes }
    })
}

/// Definitions with some blocks of them.
fn step() -> impl Strategy<Value = (Definitions, Vec<BlockEntry>)> {
    let sides = prop::collection::vec((any::<u64>(), any::<u64>()), 6);
    let blocks = prop::collection::vec((any::<u32>(), sides, any::<u32>(), any::<u32>()), 0..12);
    (prop::collection::vec(one(), 0..8), blocks).prop_map(|(list, blocks)| {
        let name = |(i, d)| Definition { name: format!("v{i}"), ..d };
        let all = of(list.into_iter().enumerate().map(name));
        let block = |(variable, sides, segment, offset): (u32, Vec<(u64, u64)>, u32, u32)| {
            let variable = variable % all.len() as u32;
            let definition = all.get(variable).unwrap();
            let (start, count): (Vec<u64>, Vec<u64>) = (definition.shape.iter().zip(sides))
                .map(|(n, (a, b))| (a % (n + 1), b % (n - a % (n + 1) + 1)))
                .unzip();
            let bounds = Bounds::new(start, count).unwrap();
            let len = bounds.elements() * definition.dtype.size() as u64;
            BlockEntry {
                variable,
                bounds,
                place: Place { segment: segment.into(), offset: offset.into(), len },
            }
        };
        let blocks: Vec<_> =
            if all.is_empty() { Vec::new() } else { blocks.into_iter().map(block).collect() };
        (all, blocks)
    })
}

proptest! {
    #[test]
    fn what_was_encoded_is_decoded((all, blocks) in step()) {
        let bytes = all.encode().unwrap();
        let back = Definitions::decode(&bytes).unwrap();
        prop_assert_eq!(&back, &all);
        prop_assert_eq!(back.hash(), all.hash());
        prop_assert_eq!(Definitions::hash_of(&bytes), all.hash());
        for (i, d) in all.iter().enumerate() {
            prop_assert_eq!(back.find(&d.name), Some((i as u32, d)));
        }
        let bytes = all.encode_blocks(&blocks).unwrap();
        prop_assert_eq!(back.decode_blocks(&bytes).unwrap(), blocks);
    }

    #[test]
    fn damaged_bytes_are_refused_or_are_something_that_can_be(
        (all, blocks) in step(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..6),
    ) {
        let harm = |mut bytes: Vec<u8>| {
            for (at, byte, how) in &damage {
                let at = at.index(bytes.len().max(1));
                match how {
                    0 if at < bytes.len() => bytes[at] = *byte,
                    1 if at < bytes.len() => bytes[at] ^= 1 << (byte % 8),
                    2 => bytes.truncate(at),
                    _ => bytes.insert(at.min(bytes.len()), *byte),
                }
            }
            bytes
        };
        if let Ok(back) = Definitions::decode(&harm(all.encode().unwrap())) {
            let again = Definitions::decode(&back.encode().unwrap());
            prop_assert_eq!(again.ok(), Some(back));
        }
        let bytes = harm(all.encode_blocks(&blocks).unwrap());
        match all.decode_blocks(&bytes) {
            Ok(back) => prop_assert_eq!(all.encode_blocks(&back).unwrap(), bytes),
            Err(e) => prop_assert_eq!(e.kind(), Kind::Format),
        }
    }
}
