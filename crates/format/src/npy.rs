//! NumPy's `.npy` files: the header, read and written.
//!
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>, versions 1 to 3. The
//! header is a Python dictionary literal; a small parser for exactly that reads it, nothing is evaluated.

use stead_core::{ByteOrder, DType, Error, Order, Result, Shape};
use stead_store::Source;

/// What every `.npy` file begins with.
pub const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Longest header that is read.
const MAX_HEADER: usize = 1 << 20;

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Element type.
    pub dtype: DType,
    /// Byte order of the elements; the machine's own for one-byte elements.
    pub byte_order: ByteOrder,
    /// Order of the elements.
    pub order: Order,
    /// Shape, as the user gave it.
    pub shape: Shape,
    /// Bytes before the first element.
    pub data_offset: u64,
}

/// Reads the header of `source`. The number of bytes after it is not checked.
///
/// # Errors
/// `Format`, with the path and the offset, if it is no `.npy` file, is truncated, or has elements that
/// are no numbers of the supported types.
pub fn read_header(source: &dyn Source) -> Result<Header> {
    let at = |e: Error, offset: u64| e.at_path(source.path()).at_offset(offset);
    let short = |what: &str| {
        at(
            Error::format(format!("truncated .npy file: it ends in {what}"))
                .with_hint("the file was not written or copied to its end; make it again"),
            source.len(),
        )
    };
    let mut start = [0; 12];
    let n = source.len().min(12) as usize;
    source.read_at(0, &mut start[..n])?;
    if n < 6 || &start[..6] != MAGIC {
        return Err(at(Error::format("this is no .npy file: it does not begin as one"), 0)
            .with_hint("name its format, for example --type raw or --type csv"));
    }
    let (length, begin) = match (start[6], n) {
        (1, 10..) => (u64::from(u16::from_le_bytes([start[8], start[9]])), 10),
        (2 | 3, 12) => {
            (u64::from(u32::from_le_bytes([start[8], start[9], start[10], start[11]])), 12)
        }
        (1..=3, _) => return Err(short("its first bytes")),
        (version, _) => {
            let e = Error::format(format!("version {version} of .npy is not known"));
            return Err(at(e, 6).with_hint("versions 1 to 3 can be read; save it again with NumPy"));
        }
    };
    if length > MAX_HEADER as u64 {
        let e = Error::format(format!("a .npy header of {length} bytes; at most 1 MiB is read"));
        return Err(at(e, 8));
    }
    if begin + length > source.len() {
        return Err(short("its header"));
    }
    let mut text = vec![0; length as usize];
    source.read_at(begin, &mut text)?;
    parse(&text, begin + length).map_err(|e| {
        let offset = begin + e.place().offset.unwrap_or(0);
        at(e, offset)
    })
}

fn parse(text: &[u8], data_offset: u64) -> Result<Header> {
    let mut p = Parser { text, at: 0 };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    p.expect(b'{')?;
    while p.peek() != Some(b'}') {
        let begin = p.at;
        let key = p.string()?;
        p.expect(b':')?;
        match key {
            b"descr" if descr.is_none() => descr = Some(p.descr()?),
            b"fortran_order" if fortran.is_none() => fortran = Some(p.boolean()?),
            b"shape" if shape.is_none() => shape = Some(p.tuple()?),
            _ => {
                p.at = begin;
                return Err(p.bad("one of 'descr', 'fortran_order', 'shape', each once"));
            }
        }
        if p.peek() == Some(b',') {
            p.at += 1;
        } else if p.peek() != Some(b'}') {
            return Err(p.bad("',' or '}'"));
        }
    }
    p.expect(b'}')?;
    if p.peek().is_some() {
        return Err(p.bad("the end of the header"));
    }
    match (descr, fortran, shape) {
        (Some((dtype, byte_order)), Some(fortran), Some(shape)) => Ok(Header {
            dtype,
            byte_order,
            order: if fortran { Order::Fortran } else { Order::C },
            shape: Shape::new(shape)?,
            data_offset,
        }),
        _ => Err(Error::format("the .npy header lacks 'descr', 'fortran_order' or 'shape'")),
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn bad(&self, expected: &str) -> Error {
        let found = match self.text.get(self.at) {
            Some(c) => format!("'{}'", c.escape_ascii()),
            None => "its end".into(),
        };
        Error::format(format!("malformed .npy header: expected {expected}, found {found}"))
            .at_offset(self.at as u64)
            .with_hint("save the array again with NumPy, or read it as --type raw with --skip")
    }

    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(|c| matches!(c, b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, c: u8) -> Result<()> {
        if self.peek() == Some(c) {
            self.at += 1;
            return Ok(());
        }
        Err(self.bad(&format!("'{}'", c as char)))
    }

    fn string(&mut self) -> Result<&'a [u8]> {
        let quote = match self.peek() {
            Some(q @ (b'\'' | b'"')) => q,
            _ => return Err(self.bad("a string")),
        };
        let rest = &self.text[self.at + 1..];
        match rest.iter().position(|c| *c == quote || *c == b'\\') {
            Some(n) if rest[n] == quote => {
                self.at += n + 2;
                Ok(&rest[..n])
            }
            _ => Err(self.bad("a string without escapes")),
        }
    }

    fn boolean(&mut self) -> Result<bool> {
        self.peek();
        for (word, value) in [(&b"True"[..], true), (&b"False"[..], false)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.bad("True or False"))
    }

    fn tuple(&mut self) -> Result<Vec<u64>> {
        let mut dims = Vec::new();
        self.expect(b'(')?;
        while self.peek() != Some(b')') {
            let rest = &self.text[self.at..];
            let n = rest.iter().take_while(|c| c.is_ascii_digit()).count();
            let number = std::str::from_utf8(&rest[..n]).ok().and_then(|s| s.parse().ok());
            let Some(number) = number else {
                return Err(self.bad("a length that fits 64 bits"));
            };
            dims.push(number);
            self.at += n;
            // Python 2 wrote long integers with an L.
            if self.text.get(self.at) == Some(&b'L') {
                self.at += 1;
            }
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b')') if dims.len() > 1 => {}
                _ => return Err(self.bad("','")),
            }
        }
        self.expect(b')')?;
        Ok(dims)
    }

    fn descr(&mut self) -> Result<(DType, ByteOrder)> {
        const HINT: &str = "supported are f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 with '<', '>', '=' or '|'; \
                            convert it with NumPy: numpy.save(file, array.astype('f8'))";
        if self.peek() == Some(b'[') {
            return Err(Error::format(
                "this .npy file holds records of several fields (a structured type), not numbers",
            )
            .at_offset(self.at as u64)
            .with_hint(
                "save each field as an array of its own: numpy.save(file, array['field'])",
            ));
        }
        let at = self.at as u64;
        let text = self.string()?;
        let (order, name) = match text {
            [b'<', rest @ ..] => (Some(ByteOrder::Little), rest),
            [b'>', rest @ ..] => (Some(ByteOrder::Big), rest),
            [b'=' | b'|', rest @ ..] => (None, rest),
            rest => (None, rest),
        };
        let dtype = match name {
            b"f4" => DType::F32,
            b"f8" => DType::F64,
            b"i1" => DType::I8,
            b"i2" => DType::I16,
            b"i4" => DType::I32,
            b"i8" => DType::I64,
            b"u1" => DType::U8,
            b"u2" => DType::U16,
            b"u4" => DType::U32,
            b"u8" => DType::U64,
            _ => {
                return Err(Error::format(format!(
                    "elements of type '{}' cannot be read as numbers",
                    text.escape_ascii()
                ))
                .at_offset(at)
                .with_hint(HINT));
            }
        };
        Ok((dtype, order.unwrap_or(ByteOrder::NATIVE)))
    }
}

/// A header for little-endian f64: version 1, or 2 if it is longer than 64 KiB, padded so that the data
/// begin at a multiple of 64 bytes.
pub fn header(shape: &[u64], fortran: bool) -> Vec<u8> {
    let mut dims: String = shape.iter().map(|d| d.to_string()).collect::<Vec<_>>().join(", ");
    if shape.len() == 1 {
        dims.push(',');
    }
    let order = if fortran { "True" } else { "False" };
    let text = format!("{{'descr': '<f8', 'fortran_order': {order}, 'shape': ({dims}), }}");
    let pad = |prefix: usize| (prefix + text.len() + 1).next_multiple_of(64) - prefix;
    let mut out = MAGIC.to_vec();
    match u16::try_from(pad(10)) {
        Ok(n) => {
            out.extend([1, 0]);
            out.extend(n.to_le_bytes());
        }
        Err(_) => {
            // A shape is no longer than memory, and 4 GiB of digits are beyond any.
            let n = u32::try_from(pad(12)).unwrap_or(u32::MAX);
            out.extend([2, 0]);
            out.extend(n.to_le_bytes());
        }
    }
    out.extend(text.as_bytes());
    let end = (out.len() + 1).next_multiple_of(64);
    out.resize(end - 1, b' ');
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stead_core::Kind;
    use stead_store::MemorySource;

    fn read(bytes: &[u8]) -> Result<Header> {
        read_header(&MemorySource::new("f.npy", bytes.to_vec()))
    }

    fn v1(text: &str) -> Vec<u8> {
        let mut out = b"\x93NUMPY\x01\x00".to_vec();
        out.extend((text.len() as u16).to_le_bytes());
        out.extend(text.as_bytes());
        out
    }

    #[test]
    fn headers_as_numpy_and_others_write_them() {
        let h =
            read(&v1("{'descr': '>i4', 'fortran_order': True, 'shape': (3, 4), }   \n")).unwrap();
        assert_eq!((h.dtype, h.byte_order, h.order), (DType::I32, ByteOrder::Big, Order::Fortran));
        assert_eq!((h.shape.dims(), h.data_offset), (&[3, 4][..], 72));
        let h = read(&v1("{\"shape\":(),\"fortran_order\":False,\"descr\":\"|u1\"}")).unwrap();
        assert_eq!((h.dtype, h.shape.ndim()), (DType::U8, 0));
        assert_eq!(
            read(&v1("{'descr':'<f8','fortran_order':False,'shape':(7L,)}")).unwrap().shape.dims(),
            [7]
        );
        let mut v2 = b"\x93NUMPY\x02\x00".to_vec();
        v2.extend(60u32.to_le_bytes());
        v2.extend(
            format!("{:60}", "{'descr': '<f4', 'fortran_order': False, 'shape': (5,)}").bytes(),
        );
        assert_eq!(read(&v2).unwrap().data_offset, 72);
    }

    #[test]
    fn bad_headers_say_what_is_wrong() {
        let shape = |s: &str| v1(&format!("{{'descr':'<f8','fortran_order':False,'shape':{s}}}"));
        let descr = |s: &str| v1(&format!("{{'descr':{s},'fortran_order':False,'shape':(1,)}}"));
        for (bytes, words) in [
            (b"PK\x03\x04".to_vec(), "no .npy file"),
            (b"\x93NUMPY\x01".to_vec(), "truncated"),
            (b"\x93NUMPY\x09\x00\x00\x00\x00\x00\x00\x00".to_vec(), "version 9"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), "at most 1 MiB"),
            (v1("{")[..10].to_vec(), "truncated"),
            (shape("(1, 2"), "malformed"),
            (shape("(-1,)"), "fits 64 bits"),
            (shape("(99999999999999999999999,)"), "fits 64 bits"),
            (shape("(4294967296, 4294967296)"), "64 bits can count"),
            (shape("(1)"), "malformed"),
            (descr("'<c16'"), "'<c16' cannot be read"),
            (descr("'<U8'"), "cannot be read"),
            (descr("'|b1'"), "cannot be read"),
            (descr("[('a','<f8')]"), "structured"),
            (v1("{}"), "lacks"),
            (v1("{'descr':'<f8','descr':'<f8'}"), "each once"),
            (v1("__import__('os')"), "malformed"),
        ] {
            let e = read(&bytes).unwrap_err();
            assert_eq!(e.kind(), Kind::Format);
            assert!(e.message().contains(words), "{e} / {words}");
        }
    }

    #[test]
    fn written_headers_are_aligned_and_read_back() {
        for shape in [vec![], vec![0], vec![5], vec![2, 3], vec![u64::MAX, 1], vec![1; 32]] {
            for fortran in [false, true] {
                let bytes = header(&shape, fortran);
                assert_eq!(bytes.len() % 64, 0);
                let h = read(&bytes).unwrap();
                assert_eq!(h.shape.dims(), shape);
                assert_eq!(h.order, if fortran { Order::Fortran } else { Order::C });
                assert_eq!(h.data_offset, bytes.len() as u64);
            }
        }
        let long = header(&vec![1; 40_000], false);
        assert_eq!((long[6], long.len() % 64), (2, 0));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), n in 0u16..200) {
            let _ = read(&bytes);
            let mut whole = b"\x93NUMPY\x01\x00".to_vec();
            whole.extend(n.to_le_bytes());
            whole.append(&mut bytes);
            let _ = read(&whole);
        }
    }
}
