//! Compressed files of many parts (BGZF blocks, zstd frames, gzip members), whole or damaged: decoded by
//! several threads at once they are what one decoder makes of them.
#![no_main]

use flate2::{Compress, Compression, Crc, FlushCompress};
use libfuzzer_sys::fuzz_target;
use std::io::Write;
use std::sync::Mutex;
use stead_core::Result;
use stead_format::decode::{Codec, Decoder};
use stead_format::parallel::ParallelDecoder;
use stead_fuzz::{choices, sources};

/// One BGZF block.
fn block(data: &[u8]) -> Vec<u8> {
    let mut deflated = Vec::with_capacity(data.len() + 1024);
    let mut compress = Compress::new(Compression::fast(), false);
    compress.compress_vec(data, &mut deflated, FlushCompress::Finish).expect("there is room");
    let mut crc = Crc::new();
    crc.update(data);
    let mut out = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0".to_vec();
    out.extend(((deflated.len() + 25) as u16).to_le_bytes());
    out.extend(deflated);
    out.extend(crc.sum().to_le_bytes());
    out.extend((data.len() as u32).to_le_bytes());
    out
}

fn member(data: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
    e.write_all(data).expect("memory takes all");
    e.finish().expect("memory takes all")
}

/// A frame, with its content size or without.
fn frame(data: &[u8], sized: bool) -> Vec<u8> {
    if sized {
        return zstd::bulk::compress(data, 1).expect("small enough");
    }
    zstd::encode_all(data, 1).expect("memory takes all")
}

fn serial(data: &[u8], codec: Codec) -> Result<Vec<u8>> {
    let mut decoder = Decoder::new(sources(&[data]).remove(0), codec)?;
    let (mut out, mut piece) = (Vec::new(), vec![0; 5000]);
    loop {
        match decoder.read(&mut piece)? {
            0 => return Ok(out),
            n => out.extend_from_slice(&piece[..n]),
        }
    }
}

fn parallel(data: &[u8], codec: Codec, threads: usize) -> Result<Vec<u8>> {
    let decoder = ParallelDecoder::new(sources(&[data]).remove(0), codec)?;
    let chunks = Mutex::new(Vec::new());
    let worker = || -> Result<()> {
        let mut piece = Vec::new();
        while let Some((info, work)) = decoder.take(&mut piece) {
            decoder.decode(work, &mut piece)?;
            chunks.lock().expect("nobody panics").push((info.index, info.offset, piece.clone()));
        }
        Ok(())
    };
    std::thread::scope(|s| {
        let handles: Vec<_> = (0..threads).map(|_| s.spawn(worker)).collect();
        handles.into_iter().map(|h| h.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    let mut chunks = chunks.into_inner().expect("nobody panics");
    chunks.sort_unstable();
    let mut out = Vec::new();
    for (i, (index, offset, piece)) in chunks.into_iter().enumerate() {
        assert_eq!((index, offset), (i as u64, out.len() as u64));
        out.extend(piece);
    }
    Ok(out)
}

fuzz_target!(|data: &[u8]| {
    let Some(([kind, size, repeat, damage, at, xor], data)) = choices::<6>(data) else { return };
    let codec = if kind & 1 == 0 { Codec::Gzip } else { Codec::Zstd };
    let mut file = Vec::new();
    let mut whole = Vec::new();
    for (i, piece) in data.chunks(usize::from(size) + 1).enumerate() {
        // Repeated, so that chunks of many parts come about.
        let piece = piece.repeat(1 + usize::from(repeat) * 37 / (piece.len() + 1));
        let odd = i % 3 == 2;
        match (codec, kind >> 1 & 3) {
            (Codec::Gzip, 1) => file.extend(member(&piece)),
            (Codec::Gzip, 2) if odd => file.extend(member(&piece)),
            (Codec::Gzip, _) => file.extend(block(&piece)),
            (Codec::Zstd, 2) if odd => file.extend(frame(&piece, false)),
            (Codec::Zstd, 1) => file.extend(frame(&piece, false)),
            (Codec::Zstd, _) => file.extend(frame(&piece, true)),
        }
        whole.extend(piece);
        match codec {
            Codec::Gzip if kind & 8 != 0 => file.extend(block(b"")),
            Codec::Zstd if kind & 8 != 0 => file.extend(b"\x51\x2a\x4d\x18\x02\0\0\0ab"),
            Codec::Zstd if kind & 16 != 0 => file.extend(frame(b"", true)),
            _ => {}
        }
    }
    if file.is_empty() {
        return;
    }
    if damage & 3 == 0 {
        assert!(serial(&file, codec).expect("a valid file") == whole);
        assert!(parallel(&file, codec, 3).expect("a valid file") == whole);
        return;
    }
    let place = (usize::from(damage) << 8 | usize::from(at)) % file.len();
    match damage & 3 {
        1 => file[place] ^= xor.max(1),
        2 => file.truncate(place.max(1)),
        _ => drop(file.drain(place..(place + usize::from(xor)).min(file.len()))),
    }
    if file.is_empty() {
        return;
    }
    match (serial(&file, codec), parallel(&file, codec, 3)) {
        (Ok(a), Ok(b)) => assert!(a == b),
        (Err(_), Err(_)) => {}
        // A wrong length in a BGZF field is noticed only by the way that uses it.
        (Ok(_), Err(_)) if codec == Codec::Gzip => {}
        (a, b) => panic!("in turn {:?}, at once {:?}", a.map(|v| v.len()), b.map(|v| v.len())),
    }
});
