//! Compressed files: gzip and zstd, decoded from the start to the end.
//!
//! Files of many members (gzip) or frames (zstd) are one stream, as `gzip -d` and `zstd -d` take them.
//! Checksums are checked. For decoding on many cores see [`crate::parallel`].

use crate::options::Compression;
use flate2::bufread::GzDecoder;
use std::io::{BufRead, ErrorKind, Read};
use std::sync::Arc;
use stead_core::{Error, Kind, Result};
use stead_store::Source;

/// Largest zstd window, as a power of two: decoding keeps this much of the past, 128 MiB.
pub(crate) const WINDOW_LOG_MAX: u32 = 27;
/// Compressed bytes read at a time.
const INPUT_BYTES: usize = 256 << 10;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// gzip (RFC 1952), bgzip too.
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Codec {
    /// Bytes at the start of a file that [`Codec::detect`] wants to see.
    pub const MAGIC_BYTES: usize = 4;

    /// Finds the compression by the first bytes of a file.
    pub fn detect(head: &[u8]) -> Option<Self> {
        match head {
            // The third byte is the method; deflate is the only one there is.
            [0x1F, 0x8B, 0x08, ..] => Some(Codec::Gzip),
            [0x28, 0xB5, 0x2F, 0xFD, ..] => Some(Codec::Zstd),
            // A skippable frame, with which the parallel zstd tools begin.
            [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => Some(Codec::Zstd),
            _ => None,
        }
    }

    /// As [`Codec::detect`], for a source.
    pub fn of(source: &dyn Source) -> Result<Option<Self>> {
        let mut head = [0; Self::MAGIC_BYTES];
        let n = source.len().min(Self::MAGIC_BYTES as u64) as usize;
        source.read_at(0, &mut head[..n])?;
        Ok(Self::detect(&head[..n]))
    }

    /// As said, or else as [`Codec::of`] finds it.
    pub fn chosen(source: &dyn Source, said: Option<Compression>) -> Result<Option<Self>> {
        match said {
            None => Self::of(source),
            Some(Compression::None) => Ok(None),
            Some(Compression::Gzip) => Ok(Some(Codec::Gzip)),
            Some(Compression::Zstd) => Ok(Some(Codec::Zstd)),
        }
    }

    /// `gzip` or `zstd`.
    pub fn name(self) -> &'static str {
        match self {
            Codec::Gzip => "gzip",
            Codec::Zstd => "zstd",
        }
    }
}

/// Decodes one source from some byte to its end.
///
/// Memory: 256 KiB of input and the window of the format (32 KiB for gzip, at most 128 MiB for zstd).
pub struct Decoder {
    kind: Codec,
    source: Arc<dyn Source>,
    inner: Inner,
    produced: u64,
}

enum Inner {
    /// Between two members.
    Between(Input),
    Gzip(Box<GzDecoder<Input>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, Input>>),
    End(u64),
}

impl Decoder {
    /// A decoder of all of `source`, which must not be empty.
    pub fn new(source: Arc<dyn Source>, kind: Codec) -> Result<Self> {
        Self::from_offset(source, kind, 0)
    }

    /// A decoder from `offset`, at which a member or frame must begin.
    pub fn from_offset(source: Arc<dyn Source>, kind: Codec, offset: u64) -> Result<Self> {
        let input =
            Input { source: source.clone(), buffer: Vec::new(), taken: 0, offset, failed: None };
        let inner = match kind {
            Codec::Gzip => Inner::Between(input),
            Codec::Zstd => {
                let broken = |e: std::io::Error| {
                    Error::internal(format!("cannot set up zstd: {e}")).at_path(source.path())
                };
                let mut d = zstd::stream::read::Decoder::with_buffer(input).map_err(broken)?;
                d.window_log_max(WINDOW_LOG_MAX).map_err(broken)?;
                Inner::Zstd(Box::new(d))
            }
        };
        Ok(Decoder { kind, source, inner, produced: 0 })
    }

    /// How the source is compressed.
    pub fn compression(&self) -> Codec {
        self.kind
    }

    /// Offset in the compressed source up to which it was decoded.
    pub fn consumed(&self) -> u64 {
        match &self.inner {
            Inner::Between(i) => i.position(),
            Inner::Gzip(d) => d.get_ref().position(),
            Inner::Zstd(d) => d.get_ref().position(),
            Inner::End(at) => *at,
        }
    }

    /// Decoded bytes handed out.
    pub fn produced(&self) -> u64 {
        self.produced
    }

    /// Fills `out` as far as the data go; less than `out.len()` only at the end.
    ///
    /// # Errors
    /// `Format` for corrupt or truncated data, `Limit` for a zstd window above 128 MiB, both with the
    /// compressed offset; errors of the source. After an error the decoder must not be asked again.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            let n = self.step(&mut out[filled..])?;
            if n == 0 && matches!(self.inner, Inner::End(_)) {
                break;
            }
            filled += n;
        }
        self.produced += filled as u64;
        Ok(filled)
    }

    /// Reads some bytes, or goes on to the next member, or comes to the end.
    fn step(&mut self, out: &mut [u8]) -> Result<usize> {
        let result = match &mut self.inner {
            Inner::End(_) => return Ok(0),
            Inner::Between(_) => return self.next_member(),
            Inner::Gzip(d) => d.read(out),
            Inner::Zstd(d) => d.read(out),
        };
        match result {
            Ok(0) => {
                let at = self.consumed();
                self.inner = match std::mem::replace(&mut self.inner, Inner::End(at)) {
                    Inner::Gzip(d) => Inner::Between(d.into_inner()),
                    _ => Inner::End(at),
                };
                Ok(0)
            }
            Ok(n) => Ok(n),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(0),
            Err(e) => Err(self.explain(e)),
        }
    }

    /// Begins the next gzip member. Zeros after the last one are padding, as `gzip` takes them.
    fn next_member(&mut self) -> Result<usize> {
        let at = self.consumed();
        let Inner::Between(mut input) = std::mem::replace(&mut self.inner, Inner::End(at)) else {
            return Ok(0);
        };
        loop {
            let rest = match input.fill_buf() {
                Ok(rest) => rest,
                Err(e) => return Err(input.failed.take().unwrap_or_else(|| self.corrupt(&e, at))),
            };
            match rest.first() {
                None => self.inner = Inner::End(input.position()),
                Some(0) if at > 0 => {
                    let zeros = rest.iter().take_while(|b| **b == 0).count();
                    input.consume(zeros);
                    continue;
                }
                Some(0x1F) => self.inner = Inner::Gzip(Box::new(GzDecoder::new(input))),
                Some(b) => {
                    let e =
                        std::io::Error::other(format!("found byte {b:#04x} after the last member"));
                    return Err(self.corrupt(&e, input.position()));
                }
            }
            return Ok(0);
        }
    }

    fn explain(&mut self, e: std::io::Error) -> Error {
        let at = self.consumed();
        let failed = match &mut self.inner {
            Inner::Gzip(d) => d.get_mut().failed.take(),
            Inner::Zstd(d) => d.get_mut().failed.take(),
            Inner::Between(_) | Inner::End(_) => None,
        };
        failed.unwrap_or_else(|| self.corrupt(&e, at))
    }

    fn corrupt(&self, e: &std::io::Error, at: u64) -> Error {
        let e = if e.kind() == ErrorKind::UnexpectedEof || at >= self.source.len() {
            truncated(self.kind)
        } else {
            broken(self.kind, &e.to_string())
        };
        e.at_path(self.source.path()).at_offset(at)
    }
}

/// The error for data that end too early.
pub(crate) fn truncated(kind: Codec) -> Error {
    Error::format(format!("truncated {} data: the file ends in the middle", kind.name()))
        .with_hint("the file was not written or copied to its end; make it again")
}

/// The error for data that cannot be decoded; `why` comes from the decoder.
pub(crate) fn broken(kind: Codec, why: &str) -> Error {
    if why.contains("too much memory") {
        return Error::new(
            Kind::Limit,
            "this zstd file needs a window of more than 128 MiB to decode",
        )
        .with_hint("compress it again without --ultra or --long above 27, or decompress it first");
    }
    let why = why.trim_start_matches("corrupt ").to_lowercase();
    Error::format(format!(
        "corrupt {} data near this byte of the compressed file: {why}",
        kind.name()
    ))
    .with_hint(
        "get the file again from where it came; checking it with 'gzip -t' or 'zstd -t' helps",
    )
}

/// A source as a stream of compressed bytes.
struct Input {
    source: Arc<dyn Source>,
    /// Bytes read and not yet taken, unless the source lends them.
    buffer: Vec<u8>,
    /// Of `buffer`, what was taken.
    taken: usize,
    /// Where in the source `buffer` begins.
    offset: u64,
    /// The source's own error, which `io::Error` cannot carry whole.
    failed: Option<Error>,
}

impl Input {
    fn position(&self) -> u64 {
        self.offset + self.taken as u64
    }
}

impl Read for Input {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = {
            let data = self.fill_buf()?;
            let n = data.len().min(out.len());
            out[..n].copy_from_slice(&data[..n]);
            n
        };
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        if self.taken == self.buffer.len() {
            self.offset = self.position();
            self.taken = 0;
            let rest = self.source.len().saturating_sub(self.offset);
            let n = rest.min(INPUT_BYTES as u64) as usize;
            self.buffer.resize(n, 0);
            if let Err(e) = self.source.read_at(self.offset, &mut self.buffer) {
                self.buffer.clear();
                self.failed = Some(e);
                return Err(std::io::Error::other("the source failed"));
            }
        }
        Ok(&self.buffer[self.taken..])
    }

    fn consume(&mut self, n: usize) {
        self.taken = (self.taken + n).min(self.buffer.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::write::GzEncoder;
    use std::io::Write;
    use stead_store::MemorySource;

    pub(crate) fn text(n: usize) -> Vec<u8> {
        (0..n).flat_map(|i| format!("{},{}\n", i, i * i % 977).into_bytes()).collect()
    }

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut e = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        e.write_all(data).unwrap();
        e.finish().unwrap()
    }

    fn decode(data: &[u8], kind: Codec, step: usize) -> Result<Vec<u8>> {
        let source = Arc::new(MemorySource::new("f", data.to_vec()));
        let mut d = Decoder::new(source, kind)?;
        let (mut out, mut buf) = (Vec::new(), vec![0; step]);
        loop {
            let n = d.read(&mut buf)?;
            out.extend_from_slice(&buf[..n]);
            if n < step {
                assert_eq!(d.produced(), out.len() as u64);
                assert_eq!(d.consumed(), data.len() as u64);
                return Ok(out);
            }
        }
    }

    #[test]
    fn members_and_frames_are_one_stream() {
        let (a, b) = (text(5000), text(70_000));
        let both = [a.clone(), b.clone()].concat();
        let gz = [gzip(&a), gzip(b""), gzip(&b)].concat();
        let zs =
            [zstd::encode_all(&a[..], 3).unwrap(), zstd::encode_all(&b[..], 3).unwrap()].concat();
        assert_eq!(Codec::detect(&gz), Some(Codec::Gzip));
        assert_eq!(Codec::detect(&zs), Some(Codec::Zstd));
        assert_eq!(Codec::detect(b"\x1f\x8b"), None);
        for step in [1, 1000, 1 << 20] {
            assert!(decode(&gz, Codec::Gzip, step).unwrap() == both);
            assert!(decode(&zs, Codec::Zstd, step).unwrap() == both);
        }
        let padded = [gzip(&a), vec![0; 1000]].concat();
        assert!(decode(&padded, Codec::Gzip, 99).unwrap() == a);
    }

    #[test]
    fn any_truncation_is_an_error() {
        let data = text(300);
        for (kind, whole) in
            [(Codec::Gzip, gzip(&data)), (Codec::Zstd, zstd::encode_all(&data[..], 3).unwrap())]
        {
            for n in 1..whole.len() {
                let e = decode(&whole[..n], kind, 4096).unwrap_err();
                assert_eq!(e.kind(), Kind::Format, "{kind:?} {n}");
                assert!(e.message().contains("truncated"), "{kind:?} {n}: {e}");
                assert!(e.place().offset.is_some() && e.place().path.is_some());
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_an_error_or_harmless() {
        let data = text(300);
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(&data).unwrap();
        for (kind, whole) in [(Codec::Gzip, gzip(&data)), (Codec::Zstd, encoder.finish().unwrap())]
        {
            for i in 0..whole.len() * 8 {
                let mut bad = whole.clone();
                bad[i / 8] ^= 1 << (i % 8);
                match decode(&bad, kind, 4096) {
                    // Bits of the header (time, flags) may not matter to the data.
                    Ok(out) => assert!(out == data || i < 18 * 8, "{kind:?} bit {i}"),
                    Err(e) => assert!(matches!(e.kind(), Kind::Format | Kind::Limit), "{e}"),
                }
            }
        }
    }

    #[test]
    fn garbage_after_the_end_and_huge_windows_are_errors() {
        let e = decode(&[gzip(b"a"), b"tail".to_vec()].concat(), Codec::Gzip, 10).unwrap_err();
        assert!(e.message().contains("after the last member"), "{e}");
        // A frame header with a window of 2 GiB: descriptor 0, window byte (31 - 10) << 3.
        let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 21 << 3];
        frame.extend([0x01, 0x00, 0x00]);
        let e = decode(&frame, Codec::Zstd, 10).unwrap_err();
        assert_eq!(e.kind(), Kind::Limit, "{e}");
    }

    #[test]
    fn errors_of_the_source_come_through_whole() {
        let gz = gzip(&text(200_000));
        let bad = stead_store::faulty::Faults { bad_byte: Some(300_000), ..Default::default() };
        let source: Arc<dyn Source> = Arc::new(MemorySource::new("f", gz));
        assert!(source.len() > 300_001);
        let source = Arc::new(stead_store::faulty::FaultySource::new(source, bad));
        let mut decoder = Decoder::new(source, Codec::Gzip).unwrap();
        let mut buf = vec![0; 1 << 20];
        let e = loop {
            match decoder.read(&mut buf) {
                Ok(n) => assert!(n > 0),
                Err(e) => break e,
            }
        };
        assert_eq!((e.kind(), e.place().offset), (Kind::Io, Some(300_000)));
    }
}
