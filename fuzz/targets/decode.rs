//! gzip and zstd: damaged streams end in an error; reads of any size and the parallel way give one answer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_core::Result;
use stead_format::decode::{Codec, Decoder};
use stead_format::parallel::ParallelDecoder;
use stead_fuzz::sources;

/// More than this and the input is a bomb: all ways must still agree up to here.
const ENOUGH: usize = 1 << 22;

fn serial(data: &[u8], codec: Codec, step: usize) -> Result<Vec<u8>> {
    let mut decoder = Decoder::new(sources(&[data]).remove(0), codec)?;
    let mut out = Vec::new();
    let mut piece = vec![0; step];
    while out.len() < ENOUGH {
        match decoder.read(&mut piece)? {
            0 => break,
            n => out.extend_from_slice(&piece[..n]),
        }
    }
    out.truncate(ENOUGH);
    Ok(out)
}

fn parallel(data: &[u8], codec: Codec) -> Result<Vec<u8>> {
    let decoder = ParallelDecoder::new(sources(&[data]).remove(0), codec)?;
    let (mut out, mut piece) = (Vec::new(), Vec::new());
    while out.len() < ENOUGH {
        let Some((info, work)) = decoder.take(&mut piece) else { break };
        decoder.decode(work, &mut piece)?;
        assert_eq!(info.offset, out.len() as u64);
        out.extend_from_slice(&piece);
    }
    out.truncate(ENOUGH);
    Ok(out)
}

fuzz_target!(|data: &[u8]| {
    let codec = Codec::detect(data).unwrap_or(Codec::Gzip);
    let a = serial(data, codec, 1 << 16);
    let b = serial(data, codec, 4099);
    let c = parallel(data, codec);
    match (a, b, c) {
        (Ok(a), Ok(b), Ok(c)) => assert!(a == b && b == c),
        (Err(_), Err(_), Err(_)) => {}
        // A wrong length in a BGZF field is noticed only by the way that uses it.
        (Ok(_), Ok(_), Err(_)) if data.windows(4).any(|w| w == b"BC\x02\0") => {}
        // A bomb whose end is damaged: who reads in larger pieces may see the damage first.
        (a, b, c) => {
            let full = |r: &Result<Vec<u8>>| r.as_ref().map_or(true, |v| v.len() == ENOUGH);
            assert!(full(&a) && full(&b) && full(&c), "one way fails and another does not");
        }
    }
});
