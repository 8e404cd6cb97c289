//! What a fuzzer feeds with any bytes, of what is not public.

use crate::admin::Kept;
use crate::broker::sharing::Part;
use crate::control::{self, Order, Report};
use rustix::net::SendFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use stead_core::Kind;

/// Packets between the broker and a worker, one a line: the first byte chooses which of them says them. What is understood is what would
/// be said, and what is not is an error of the right kind; a worker that was told nothing is believed nothing, and what an
/// administrator has changed can be written down and read. True if all of them were understood.
pub fn packets(bytes: &[u8]) -> bool {
    let Some((which, bytes)) = bytes.split_first() else { return false };
    let Ok(ends) = control::pair() else { return false };
    let mut lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    if which % 2 == 1 {
        return lines.all(|line| again::<Order>(&ends, line).is_some());
    }
    let (mut kept, mut part) = (Kept::default(), Part::default());
    lines.all(|line| match again::<Report>(&ends, line) {
        Some(Report::Admin { change, .. }) => {
            // Whether it makes sense or not.
            let _ = kept.apply(change);
            let text = serde_json::to_vec(&kept).unwrap_or_default();
            assert_eq!(serde_json::from_slice::<Kept>(&text).ok().as_ref(), Some(&kept));
            true
        }
        Some(Report::Load { seen, kinds, next }) => {
            part.hear(seen, kinds, &next);
            assert_eq!(part.running(), 0);
            true
        }
        said => said.is_some(),
    })
}

/// The same, but for the last bits of numbers that are no whole ones, which come back from JSON as they were but for these.
pub fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
            (a - b).abs() <= a.abs() * 1e-12 + f64::MIN_POSITIVE
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same =
                |((k, a), (l, b)): ((&String, &Value), (&String, &Value))| k == l && alike(a, b);
            a.len() == b.len() && a.iter().zip(b).all(same)
        }
        (a, b) => a == b,
    }
}

/// A packet is taken, said again and taken again.
fn again<T>((to, from): &(OwnedFd, OwnedFd), packet: &[u8]) -> Option<T>
where
    T: Serialize + DeserializeOwned + Debug,
{
    rustix::net::send(to, packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).ok()?;
    let taken: T = match control::receive(from) {
        Ok(taken) => taken?.0,
        Err(e) => {
            assert_eq!(e.kind(), Kind::Format, "{e}");
            return None;
        }
    };
    match control::send(to, &taken, None, false) {
        Ok(said) => {
            assert!(said, "there is room for one");
            let back = control::receive::<T>(from).ok().flatten().map(|(back, _)| back);
            let value = |packet: &T| serde_json::to_value(packet).unwrap_or_default();
            let same = back.as_ref().is_some_and(|back| alike(&value(back), &value(&taken)));
            assert!(same, "{back:?} is not {taken:?}");
        }
        // A number may have more digits than it came with.
        Err(e) => assert_eq!(e.kind(), Kind::Limit, "{e}"),
    }
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::word;
    use crate::protocol::{Answer, Ask, Hello};

    fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        let files =
            std::fs::read_dir(folder.join(target)).unwrap().map(|file| file.unwrap().path());
        files.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
    }

    /// True if all of it is frames of this sort.
    fn frames<T: DeserializeOwned>(mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if !matches!(crate::read_frame::<T>(&mut bytes), Ok(Some(_))) {
                return false;
            }
        }
        true
    }

    #[test]
    fn packets_of_the_seeds_are_understood_and_cut_ones_are_not() {
        let seeds = seeds("control");
        assert!(seeds.len() >= 7);
        for (name, bytes) in seeds {
            assert!(packets(&bytes), "{name}");
            assert!(!packets(&bytes[..bytes.len() - 1]), "{name}");
        }
        assert!(!packets(b"\x00\"Renew\"") && !packets(b"\x01{\"Idle\": {\"served\": 1}}"));
        assert!(!packets(b"\x00{\"Idle\": {\"served\": 1, \"more\": 2}}"));
    }

    /// They are the messages of the page that describes the protocol.
    #[test]
    fn frames_of_the_seeds_are_understood() {
        let seeds = seeds("frames");
        assert!(seeds.len() >= 70);
        for (name, bytes) in seeds {
            let is_frame =
                frames::<Ask>(&bytes) || frames::<Answer>(&bytes) || frames::<Hello>(&bytes);
            assert!(is_frame || word::read(&bytes).is_ok(), "{name}");
        }
    }
}
