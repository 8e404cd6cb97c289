use super::*;
use flate2::write::{DeflateEncoder, GzEncoder};
use proptest::prelude::*;
use std::io::Write;
use stead_core::Kind;
use stead_store::MemorySource;

fn bgzf_block(data: &[u8]) -> Vec<u8> {
    let mut e = DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    e.write_all(data).unwrap();
    let deflated = e.finish().unwrap();
    let mut crc = Crc::new();
    crc.update(data);
    let mut out = vec![0x1F, 0x8B, 8, 4, 0, 0, 0, 0, 0, 255, 6, 0, b'B', b'C', 2, 0];
    out.extend(((deflated.len() + 25) as u16).to_le_bytes());
    out.extend(deflated);
    out.extend(crc.sum().to_le_bytes());
    out.extend((data.len() as u32).to_le_bytes());
    out
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut e = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    e.write_all(data).unwrap();
    e.finish().unwrap()
}

/// A frame that says its content size, or one that does not.
fn frame(data: &[u8], sized: bool) -> Vec<u8> {
    let mut e = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    e.include_checksum(data.len().is_multiple_of(2)).unwrap();
    if sized {
        e.set_pledged_src_size(Some(data.len() as u64)).unwrap();
    }
    e.write_all(data).unwrap();
    e.finish().unwrap()
}

fn text(n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| format!("{i},{}\n", i * i % 977).into_bytes()).collect()
}

fn decode(data: &[u8], codec: Codec, workers: usize) -> Result<Vec<u8>> {
    let source = Arc::new(MemorySource::new("f", data.to_vec()));
    let decoder = ParallelDecoder::new(source, codec)?;
    let chunks = Mutex::new(Vec::new());
    let errors = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for _ in 0..workers {
            s.spawn(|| {
                let mut buf = Vec::new();
                loop {
                    let Some((info, work)) = decoder.take(&mut buf) else { return };
                    match decoder.decode(work, &mut buf) {
                        Ok(()) => chunks.lock().unwrap().push((info, buf.clone())),
                        Err(e) => return errors.lock().unwrap().push((info.index, e)),
                    }
                }
            });
        }
    });
    let mut errors = errors.into_inner().unwrap();
    errors.sort_by_key(|(index, _)| std::cmp::Reverse(*index));
    if let Some((_, e)) = errors.pop() {
        return Err(e);
    }
    let mut chunks = chunks.into_inner().unwrap();
    chunks.sort_by_key(|(info, _)| info.index);
    let (mut out, mut compressed) = (Vec::new(), 0);
    for (i, (info, bytes)) in chunks.iter().enumerate() {
        assert_eq!((info.index, info.offset), (i as u64, out.len() as u64));
        assert_eq!(info.last, i + 1 == chunks.len());
        compressed += info.compressed;
        out.extend_from_slice(bytes);
    }
    assert_eq!(compressed, data.len() as u64);
    Ok(out)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_mixture_of_parts(
        parts in prop::collection::vec((0usize..6, 0usize..60_000), 1..12),
        many in 0usize..30,
        workers in 1usize..4,
        zstd: bool,
    ) {
        let big = text(120_000);
        let (mut data, mut want) = (Vec::new(), Vec::new());
        let each = parts.iter().copied().chain(std::iter::repeat_n((1, 60_000), many));
        for (kind, len) in each {
            let part = &big[..len];
            want.extend_from_slice(part);
            data.extend(match (zstd, kind) {
                (false, 0) => gzip(part),
                (false, _) => bgzf_block(part),
                (true, 0) => frame(part, false),
                (true, 1) => {
                    want.extend_from_slice(&big);
                    [frame(part, true), frame(&big, true)].concat()
                }
                (true, 2) => [&[0x5A, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3], &frame(part, true)[..]].concat(),
                (true, _) => frame(part, true),
            });
        }
        let codec = if zstd { Codec::Zstd } else { Codec::Gzip };
        prop_assert!(decode(&data, codec, workers).unwrap() == want);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), which in 0usize..3) {
        let block = bgzf_block(b"x");
        let zstd: [&[u8]; 2] = [&[0x28, 0xB5, 0x2F, 0xFD], &[0x50, 0x2A, 0x4D, 0x18]];
        let magic = [zstd[0], zstd[1], &block[..18]][which];
        let data = [magic, &bytes].concat();
        let _ = decode(&data, if which == 2 { Codec::Gzip } else { Codec::Zstd }, 1);
    }
}

#[test]
fn what_can_be_split_is() {
    let splits = |data: Vec<u8>, codec| {
        ParallelDecoder::new(Arc::new(MemorySource::new("f", data)), codec).unwrap().splits()
    };
    let t = text(1000);
    assert!(splits([bgzf_block(&t), bgzf_block(&t)].concat(), Codec::Gzip));
    assert!(!splits([gzip(&t), gzip(&t)].concat(), Codec::Gzip));
    assert!(splits([frame(&t, true), frame(&t, true)].concat(), Codec::Zstd));
    assert!(!splits(frame(&t, true), Codec::Zstd));
    assert!(!splits(frame(&t, false), Codec::Zstd));
}

#[test]
fn a_frame_with_a_huge_window_is_decoded_in_turn() {
    let t = text(1000);
    let mut data = [frame(&t, false), frame(&t, false)].concat();
    // A window of 2 GiB, and a content size of four bytes, so that only the window forbids the split.
    let mut huge = vec![0x28, 0xB5, 0x2F, 0xFD, 0x80, 21 << 3, 0, 0, 0, 0];
    huge.extend([0x01, 0x00, 0x00]);
    let found = |at: u64, data: &[u8]| {
        find(&MemorySource::new("f", data.to_vec()), Codec::Zstd, at).unwrap()
    };
    assert!(matches!(found(0, &huge), Found::Stream));
    huge[5] = 1 << 3;
    assert!(matches!(found(0, &huge), Found::Part(Part { decoded: 0, .. })));
    let at = data.len() as u64;
    data.extend(&huge);
    assert!(matches!(found(at, &data), Found::Part(Part { compressed: 13, .. })));
    assert!(decode(&data, Codec::Zstd, 2).unwrap() == [&t[..], &t].concat());
}

#[test]
fn truncated_and_corrupt_parts_are_errors() {
    let t = text(2000);
    for (codec, whole) in [
        (Codec::Gzip, [bgzf_block(&t), bgzf_block(&t)].concat()),
        (Codec::Zstd, [frame(&t[1..], true), frame(&t[1..], true)].concat()),
    ] {
        for n in (1..whole.len()).filter(|n| *n != whole.len() / 2) {
            let e = decode(&whole[..n], codec, 1).unwrap_err();
            assert_eq!(e.kind(), Kind::Format, "{codec:?} {n}");
            assert!(e.place().path.is_some() && e.place().offset.is_some());
        }
    }
    let mut bad = [bgzf_block(&t), bgzf_block(&t)].concat();
    let n = bad.len();
    bad[n - 6] ^= 1;
    let e = decode(&bad, Codec::Gzip, 2).unwrap_err();
    assert!(e.message().contains("checksum") && e.place().offset == Some(n as u64 / 2), "{e}");
    let mut bad = bgzf_block(&t);
    let n = bad.len();
    bad[n - 4] ^= 1;
    assert_eq!(decode(&bad, Codec::Gzip, 1).unwrap_err().kind(), Kind::Format);
}

#[test]
fn parts_without_content_do_not_gather_without_bound() {
    let (bgzf, zstd) = (bgzf_block(b""), frame(b"", true));
    for (codec, part) in [(Codec::Gzip, bgzf), (Codec::Zstd, zstd)] {
        let data = part.repeat(3 * MAX_PARTS + 5);
        let source = Arc::new(MemorySource::new("f", data.clone()));
        let decoder = ParallelDecoder::new(source, codec).unwrap();
        let (mut buf, mut sizes) = (Vec::new(), Vec::new());
        while let Some((info, work)) = decoder.take(&mut buf) {
            decoder.decode(work, &mut buf).unwrap();
            assert!(buf.is_empty());
            sizes.push(info.compressed);
        }
        let most = (MAX_PARTS * part.len()) as u64;
        assert_eq!(sizes, [most, most, most, 5 * part.len() as u64]);
        assert_eq!(decode(&data, codec, 3).unwrap(), b"");
    }
}
