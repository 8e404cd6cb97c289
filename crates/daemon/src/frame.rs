//! Frames: four bytes with the length, little-endian, and so many bytes of JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{ErrorKind, Read, Write};
use stead_core::{Error, Kind, Result};
use stead_stage::remote::Part;

/// Bytes of a frame, at most.
pub const MOST: usize = 4 << 20;
/// Memory is taken for so many bytes at a time, as they come: a length alone takes none.
const AT_ONCE: usize = 64 << 10;
/// Bytes of a file that are handed on at a time.
const PART: usize = 1 << 20;

/// Reads one frame; none at the end, between two.
///
/// # Errors
/// `Format` for what is none, of more than [`MOST`] bytes, or cut off; `Timeout` if the rest does not come in the time that the
/// connection has; system errors.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<Option<T>> {
    read_by(from, |_| Ok(())).map(|frame| frame.map(|(value, ())| value))
}

/// The same. Before memory is taken for it, `room` is told its length; what that gives comes with the frame.
///
/// # Errors
/// As [`read`]; that of `room`.
pub(crate) fn read_by<T: DeserializeOwned, R>(
    from: &mut impl Read,
    room: impl FnOnce(usize) -> Result<R>,
) -> Result<Option<(T, R)>> {
    let mut head = [0u8; 4];
    let mut got = 0;
    while got < head.len() {
        match from.read(head.get_mut(got..).unwrap_or_default()) {
            Ok(0) if got == 0 => return Ok(None),
            Ok(0) => return Err(cut_off()),
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(failed("read from", e)),
        }
    }
    let len = u32::from_le_bytes(head) as usize;
    if len > MOST {
        return Err(Error::format(format!("a frame of {len} bytes; at most {MOST} are read")));
    }
    let room = room(len)?;
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let (old, more) = (bytes.len(), AT_ONCE.max(bytes.len()).min(len - bytes.len()));
        bytes.resize(old + more, 0);
        from.read_exact(bytes.get_mut(old..).unwrap_or_default()).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => cut_off(),
            _ => failed("read from", e),
        })?;
    }
    let bad = |e: serde_json::Error| Error::format(format!("a frame that is not understood: {e}"));
    serde_json::from_slice(&bytes).map(|value| Some((value, room))).map_err(bad)
}

/// Writes one.
///
/// # Errors
/// `Limit` for one of more than [`MOST`] bytes; `Timeout` if nobody reads; system errors.
pub fn write(to: &mut impl Write, value: &impl Serialize) -> Result<()> {
    write_all(to, &[value], &[])
}

/// Writes several, and then these bytes, which are none.
///
/// # Errors
/// As [`write`].
pub(crate) fn write_all(
    to: &mut impl Write,
    values: &[&impl Serialize],
    then: &[u8],
) -> Result<()> {
    let mut bytes = Vec::new();
    values.iter().try_for_each(|value| add(&mut bytes, value))?;
    bytes.extend_from_slice(then);
    // In one piece: whoever reads is woken once.
    to.write_all(&bytes).and_then(|()| to.flush()).map_err(|e| failed("write to", e))
}

/// Adds a frame to these bytes.
fn add(bytes: &mut Vec<u8>, value: &impl Serialize) -> Result<()> {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    serde_json::to_writer(&mut *bytes, value)
        .map_err(|e| Error::internal(format!("no text of a frame: {e}")))?;
    let len = bytes.len() - start - 4;
    let length = u32::try_from(len).ok().filter(|_| len <= MOST).ok_or_else(|| {
        Error::limit(format!("a frame of {len} bytes; at most {MOST} are sent"))
            .with_hint("name a folder or a pattern in place of its files")
    })?;
    if let Some(head) = bytes.get_mut(start..start + 4) {
        head.copy_from_slice(&length.to_le_bytes());
    }
    Ok(())
}

/// What comes before the end of bytes that come in parts, and before a hole.
const ENDED: u32 = 0;
const HOLE: u32 = u32::MAX;

/// Writes bytes of a file, or how long a hole of it is: what comes before an answer that has such.
///
/// # Errors
/// As [`write`].
pub(crate) fn write_part(to: &mut impl Write, part: Part<'_>) -> Result<()> {
    let failed = |e| failed("write to", e);
    match part {
        Part::Bytes([]) => Ok(()),
        Part::Bytes(bytes) => {
            let len = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= MOST);
            let len = len.ok_or_else(|| Error::internal("too many bytes in one part"))?;
            to.write_all(&len.to_le_bytes()).and_then(|()| to.write_all(bytes)).map_err(failed)
        }
        Part::Hole(len) => {
            let mut head = [0; 12];
            let (mark, of) = head.split_at_mut(4);
            mark.copy_from_slice(&HOLE.to_le_bytes());
            of.copy_from_slice(&len.to_le_bytes());
            to.write_all(&head).map_err(failed)
        }
    }
}

/// Writes that no more parts come.
///
/// # Errors
/// As [`write`].
pub(crate) fn end_parts(to: &mut impl Write) -> Result<()> {
    to.write_all(&ENDED.to_le_bytes()).map_err(|e| failed("write to", e))
}

/// Reads parts up to their end, by way of this memory.
///
/// # Errors
/// Those of `each`; as [`read`].
pub(crate) fn read_parts(
    from: &mut impl Read,
    room: &mut Vec<u8>,
    each: &mut dyn FnMut(Part<'_>) -> Result<()>,
) -> Result<()> {
    let exact = |from: &mut dyn Read, bytes: &mut [u8]| {
        from.read_exact(bytes).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => {
                Error::new(Kind::Peer, "the connection ended within a file")
            }
            _ => failed("read from", e),
        })
    };
    loop {
        let mut head = [0; 4];
        exact(from, &mut head)?;
        match u32::from_le_bytes(head) {
            ENDED => return Ok(()),
            HOLE => {
                let mut len = [0; 8];
                exact(from, &mut len)?;
                each(Part::Hole(u64::from_le_bytes(len)))?;
            }
            len if len as usize <= MOST => {
                let mut left = len as usize;
                room.resize(room.len().max(left.min(PART)), 0);
                while left > 0 {
                    let some = left.min(PART).min(room.len());
                    let bytes = room.get_mut(..some).unwrap_or_default();
                    exact(from, bytes)?;
                    each(Part::Bytes(bytes))?;
                    left -= some;
                }
            }
            len => {
                return Err(Error::format(format!(
                    "a part of {len} bytes; at most {MOST} are read"
                )));
            }
        }
    }
}

fn cut_off() -> Error {
    Error::format("the connection ended within a frame")
}

fn failed(doing: &str, e: std::io::Error) -> Error {
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Error::new(Kind::Timeout, format!("cannot {doing} the connection in time"))
        }
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
            Error::new(
                Kind::Peer,
                format!("cannot {doing} the connection: nobody is there any more"),
            )
        }
        _ => Error::io(doing, "the connection", e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_are_read_as_they_were_written(text in ".{0,300}", n in any::<u64>()) {
            let mut bytes = Vec::new();
            write(&mut bytes, &(&text, n)).unwrap();
            write(&mut bytes, &n).unwrap();
            let mut from = bytes.as_slice();
            prop_assert_eq!(read::<(String, u64)>(&mut from).unwrap(), Some((text, n)));
            prop_assert_eq!(read::<u64>(&mut from).unwrap(), Some(n));
            prop_assert_eq!(read::<u64>(&mut from).unwrap(), None);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = read::<serde_json::Value>(&mut bytes.as_slice());
        }
    }

    proptest! {
        #[test]
        fn parts_are_read_as_they_were_written(
            parts in proptest::collection::vec(prop_oneof![
                (1u64..1 << 40).prop_map(Err),
                proptest::collection::vec(any::<u8>(), 1..100).prop_map(Ok),
            ], 0..6),
            cut in 0usize..20,
        ) {
            let mut bytes = Vec::new();
            for part in &parts {
                let part = match part {
                    Ok(bytes) => Part::Bytes(bytes),
                    Err(len) => Part::Hole(*len),
                };
                write_part(&mut bytes, part).unwrap();
            }
            end_parts(&mut bytes).unwrap();
            let mut got = Vec::new();
            let mut each = |part: Part<'_>| {
                got.push(match part {
                    Part::Bytes(bytes) => Ok(bytes.to_vec()),
                    Part::Hole(len) => Err(len),
                });
                Ok(())
            };
            read_parts(&mut bytes.as_slice(), &mut Vec::new(), &mut each).unwrap();
            prop_assert_eq!(got, parts);
            let cut = bytes.len().saturating_sub(cut + 1);
            prop_assert!(read_parts(&mut &bytes[..cut], &mut Vec::new(), &mut |_| Ok(())).is_err());
        }
    }

    #[test]
    fn frames_that_are_cut_off_or_too_long_are_refused() {
        let mut bytes = Vec::new();
        write(&mut bytes, &"abc").unwrap();
        for n in 1..bytes.len() {
            let e = read::<String>(&mut &bytes[..n]).unwrap_err();
            assert_eq!(e.kind(), Kind::Format, "{n}: {e}");
        }
        let e = read::<String>(&mut &[255u8; 8][..]).unwrap_err();
        assert!(e.kind() == Kind::Format && e.to_string().contains("at most"), "{e}");
        let e = write(&mut Vec::new(), &"x".repeat(MOST)).unwrap_err();
        assert_eq!(e.kind(), Kind::Limit);
    }
}
