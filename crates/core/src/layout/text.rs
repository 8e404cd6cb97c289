//! Layouts as text: TOML, read strictly.
//!
//! Nothing is guessed: an unknown key, a length that the stripes do not give, a part that occurs twice is an error with its
//! line. So a file that was cut off, or edited by hand with a slip, is never read as another dataset.

use super::build::{check_part, of_part};
use super::{Checksum, Layout, MOST_BYTES, Part, SUFFIX, Stripes};
use crate::{Error, Result, limits, units};
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use toml::Spanned;

/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    version: Spanned<u64>,
    name: Spanned<String>,
    length: Spanned<Size>,
    stripe: Option<Spanned<Size>>,
    cuts: Option<Spanned<Vec<u64>>>,
    on: Option<Spanned<Vec<u32>>>,
    parts: Spanned<Vec<Spanned<RawPart>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPart {
    node: String,
    space: Option<String>,
    path: String,
    length: Size,
    checksum: Option<String>,
}

/// All that is looked at in a file of another version.
#[derive(Deserialize)]
struct Head {
    version: i64,
}

/// A number of bytes, or a text such as `"4MiB"`.
#[derive(Clone, Copy)]
struct Size(u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Size, D::Error> {
        struct Reader;
        impl de::Visitor<'_> for Reader {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or a size such as \"4MiB\"")
            }

            fn visit_u64<E: de::Error>(self, v: u64) -> std::result::Result<Size, E> {
                Ok(Size(v))
            }

            fn visit_i64<E: de::Error>(self, v: i64) -> std::result::Result<Size, E> {
                u64::try_from(v).map(Size).map_err(|_| E::custom(format!("{v} bytes are no size")))
            }

            fn visit_str<E: de::Error>(self, v: &str) -> std::result::Result<Size, E> {
                units::parse_size(v).map(Size).map_err(|e| E::custom(e.message()))
            }
        }
        d.deserialize_any(Reader)
    }
}

/// The one-based line of a byte of `text`.
pub(super) fn line(text: &str, at: usize) -> u64 {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|c| **c == b'\n').count() as u64
}

/// The same error, of format, with the line of `at`.
pub(super) fn at_line(e: &Error, text: &str, at: usize) -> Error {
    let said = Error::format(e.message()).at_line(line(text, at));
    match e.hint() {
        Some(hint) => said.with_hint(hint),
        None => said,
    }
}

/// What the parser of TOML says, in our words: one line, lowercase.
pub(super) fn not_toml(what: &str, hint: &str, e: &toml::de::Error, text: &str) -> Error {
    let said: Vec<&str> = e.message().split('\n').map(str::trim).collect();
    let said = said.join("; ").trim_end_matches(['.', ' ', ';']).to_owned();
    let e2 = Error::format(format!("not {what}: {said}")).with_hint(hint);
    match e.span() {
        Some(span) => e2.at_line(line(text, span.start)),
        None => e2,
    }
}

impl Layout {
    /// True for the names of layout files.
    pub fn is_name(name: &str) -> bool {
        name.len() > SUFFIX.len() && name.ends_with(SUFFIX)
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// `Format` with the line, for anything that a layout written by stead does not have; `Limit` for a text of more than
    /// [`limits::MAX_LAYOUT_BYTES`]. The caller adds the path.
    pub fn parse(text: &str) -> Result<Layout> {
        if text.len() > limits::MAX_LAYOUT_BYTES {
            return Err(Error::limit(format!(
                "a layout of {}; at most {} are read",
                units::format_size(text.len() as u64),
                units::format_size(limits::MAX_LAYOUT_BYTES as u64)
            )));
        }
        let raw: Raw = match toml::from_str(text) {
            Ok(raw) => raw,
            // A later version may have keys that this one does not know: that is what is wrong, then.
            Err(e) => {
                return Err(match toml::from_str::<Head>(text) {
                    Ok(head) if head.version != VERSION as i64 => other_version(head.version),
                    _ => {
                        let hint = "docs/layouts.md describes the keys of a layout file";
                        not_toml("a layout", hint, &e, text)
                    }
                });
            }
        };
        if *raw.version.get_ref() != VERSION {
            let version = i64::try_from(*raw.version.get_ref()).unwrap_or(i64::MAX);
            return Err(other_version(version).at_line(line(text, raw.version.span().start)));
        }
        build(raw, text)
    }
}

fn other_version(version: i64) -> Error {
    Error::format(format!("a layout of version {version}; this stead reads version {VERSION}"))
        .with_hint("it was written by another version of stead")
}

fn build(raw: Raw, text: &str) -> Result<Layout> {
    let listed = raw.parts.span().start;
    let mut parts = Vec::with_capacity(raw.parts.get_ref().len().min(limits::MAX_PARTS));
    let mut said = Vec::with_capacity(parts.capacity());
    for (i, part) in raw.parts.into_inner().into_iter().enumerate() {
        let at = part.span().start;
        let part = part.into_inner();
        let checksum = part.checksum.as_deref().map(Checksum::parse).transpose();
        let checksum = checksum.map_err(|e| at_line(&of_part(i, &e), text, at))?;
        let RawPart { node, space, path, length, .. } = part;
        let part = Part { node, space, path, length: length.0, checksum };
        check_part(&part).map_err(|e| at_line(&of_part(i, &e), text, at))?;
        said.push((length.0, at));
        parts.push(part);
    }
    let length = *raw.length.get_ref();
    if length.0 > MOST_BYTES {
        let e = Error::format(format!("a file of {} bytes; at most {MOST_BYTES}", length.0));
        return Err(e.at_line(line(text, raw.length.span().start)));
    }
    let name = raw.name.span().start;
    let file_name = raw.name.into_inner();
    let layout = match (raw.stripe, raw.cuts) {
        (Some(stripe), None) => {
            if let Some(on) = raw.on {
                let e = Error::format(
                    "'on' places the stripes between 'cuts', of which there are none",
                );
                return Err(e.at_line(line(text, on.span().start)));
            }
            Layout::even(file_name, length.0, stripe.get_ref().0, parts)
                .map_err(|e| at_line(&e, text, stripe.span().start))?
        }
        (None, Some(cuts)) => {
            let on = raw.on.as_ref().map(|on| on.get_ref().as_slice());
            Layout::cut(file_name, length.0, cuts.get_ref(), on, parts)
                .map_err(|e| at_line(&e, text, cuts.span().start))?
        }
        (Some(_), Some(cuts)) => {
            let e = Error::format("a layout has a 'stripe' or 'cuts', not both");
            return Err(e.at_line(line(text, cuts.span().start)));
        }
        (None, None) => {
            let e = Error::format("a layout needs a 'stripe' or 'cuts'");
            return Err(e.at_line(line(text, name)));
        }
    };
    for (i, (part, (length, at))) in layout.parts.iter().zip(said).enumerate() {
        if part.length != length {
            let e = Error::format(format!(
                "part {i} has {length} bytes, but its stripes have {} of a file of {}",
                part.length, layout.length
            ));
            return Err(e.at_line(line(text, at)).with_hint(
                "the length of the file, the stripes and the lengths of the parts must agree",
            ));
        }
    }
    if layout.parts.is_empty() {
        return Err(Error::format("a layout without parts").at_line(line(text, listed)));
    }
    Ok(layout)
}

impl Checksum {
    /// Reads `algorithm:digest`, the digest in hexadecimal.
    ///
    /// # Errors
    /// `Usage` for anything else.
    pub fn parse(text: &str) -> Result<Checksum> {
        let bad = || {
            let shown: String = text.chars().take(60).flat_map(char::escape_debug).collect();
            Error::usage(format!("'{shown}' is not a checksum"))
                .with_hint("write the algorithm and the sum in hexadecimal: crc32c:1a2b3c4d")
        };
        let (algorithm, digits) = text.split_once(':').ok_or_else(bad)?;
        let hex = |c: u8| (c as char).to_digit(16).filter(|_| !c.is_ascii_uppercase());
        let digest: Option<Vec<u8>> = digits
            .as_bytes()
            .chunks(2)
            .map(|d| match d {
                [a, b] => Some((hex(*a)? * 16 + hex(*b)?) as u8),
                _ => None,
            })
            .collect();
        let sum = Checksum { algorithm: algorithm.to_owned(), digest: digest.ok_or_else(bad)? };
        sum.check().map_err(|_| bad())?;
        Ok(sum)
    }

    pub(super) fn check(&self) -> Result<()> {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let named = (1..=32).contains(&self.algorithm.len()) && self.algorithm.bytes().all(plain);
        if named && (1..=64).contains(&self.digest.len()) {
            return Ok(());
        }
        Err(Error::usage(format!(
            "a checksum of {} bytes by '{}'",
            self.digest.len(),
            self.algorithm.escape_debug()
        )))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.algorithm)?;
        self.digest.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// A text in the quotes and escapes of TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A list of numbers, a few on each line.
fn numbers<N: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    list: impl Iterator<Item = N>,
) -> fmt::Result {
    write!(f, "{key} = [")?;
    for (i, n) in list.enumerate() {
        f.write_str(if i % 8 == 0 { "\n  " } else { " " })?;
        write!(f, "{n},")?;
    }
    f.write_str("\n]\n")
}

/// The text form, which [`Layout::parse`] reads back to the same layout.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "version = {VERSION}")?;
        writeln!(f, "name = {}", quoted(&self.name))?;
        writeln!(f, "length = {}", self.length)?;
        match &self.stripes {
            Stripes::Even(stripe) => writeln!(f, "stripe = {stripe}")?,
            Stripes::Cut(cut) => {
                numbers(f, "cuts", cut.starts.iter().skip(1))?;
                if cut.placed {
                    numbers(f, "on", cut.on.iter())?;
                }
            }
        }
        f.write_str("parts = [\n")?;
        for part in &self.parts {
            write!(f, "  {{ node = {}, ", quoted(&part.node))?;
            if let Some(space) = &part.space {
                write!(f, "space = {}, ", quoted(space))?;
            }
            write!(f, "path = {}, length = {}", quoted(&part.path), part.length)?;
            if let Some(sum) = &part.checksum {
                write!(f, ", checksum = {}", quoted(&sum.to_string()))?;
            }
            f.write_str(" },\n")?;
        }
        f.write_str("]\n")
    }
}
