//! What stands before the data in a file: a byte order mark, comments, a header.

use crate::decode::{Codec, Decoder};
use crate::delimited::fields;
use crate::delimited::syntax::Syntax;
use std::sync::Arc;
use stead_core::{Error, Result};
use stead_store::Source;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// The start of a file.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// Bytes of the byte order mark.
    pub bom: usize,
    /// Offset of the first byte after mark and header.
    pub data_start: u64,
    /// The header's fields, if there is a header.
    pub header: Vec<String>,
}

/// Length of the byte order mark of `text`.
pub fn bom(text: &[u8]) -> usize {
    if text.starts_with(BOM) { BOM.len() } else { 0 }
}

/// Reads the first `len` (decompressed) bytes of a source, or all of it if it is shorter.
pub fn first_bytes(source: &Arc<dyn Source>, codec: Option<Codec>, len: usize) -> Result<Vec<u8>> {
    let mut buf = Vec::new();
    match codec {
        None => {
            buf.resize(usize::try_from(source.len()).unwrap_or(usize::MAX).min(len), 0);
            source.read_at(0, &mut buf)?;
        }
        Some(codec) => {
            buf.resize(len, 0);
            let n = Decoder::new(source.clone(), codec)?.read(&mut buf)?;
            buf.truncate(n);
        }
    }
    Ok(buf)
}

/// Finds the end of the header. `read` gives the first so many bytes of the file, or all of it.
pub fn read(
    syntax: &Syntax,
    header: bool,
    max_record: usize,
    mut read: impl FnMut(usize) -> Result<Vec<u8>>,
) -> Result<Head> {
    if !header {
        let bom = bom(&read(BOM.len())?);
        return Ok(Head { bom, data_start: bom as u64, header: Vec::new() });
    }
    let mut len = 4096;
    loop {
        let text = read(len)?;
        let eof = text.len() < len;
        let bom = bom(&text);
        if let Some((at, record)) = fields::records(syntax, &text[bom..], eof).next() {
            let names = fields::split(syntax, record);
            return Ok(Head {
                bom,
                data_start: (bom + at + record.len()) as u64,
                header: names
                    .iter()
                    .map(|n| String::from_utf8_lossy(n).trim().to_string())
                    .collect(),
            });
        }
        if eof {
            return Ok(Head { bom, data_start: text.len() as u64, header: Vec::new() });
        }
        if len >= max_record {
            return Err(Error::limit(format!("the header is longer than {max_record} bytes"))
                .at_offset(0)
                .with_hint("name the format if this is no delimited text (--type lines)"));
        }
        len = len.saturating_mul(2);
    }
}
