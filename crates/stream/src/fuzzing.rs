//! What a fuzzer feeds with any bytes, of what is not public.

use crate::describe::Shown;
use crate::explain::Explanation;
use crate::share::Share;
use crate::there::Kept;
use crate::wire::{self, Ask, Errand, Found, Knock, Next, Told};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stead_core::Kind;

/// Bytes that a reader or an agent of another node may send: what is understood is what would be sent, and what is not is an error of the
/// right kind. The first byte chooses who hears them. True if they were understood.
pub fn message(bytes: &[u8]) -> bool {
    let Some((which, bytes)) = bytes.split_first() else { return false };
    match which % 11 {
        0 => again::<Knock>(bytes),
        1 => again::<Ask>(bytes),
        2 => again::<Errand>(bytes),
        3 => answered::<Option<Found>>(bytes),
        4 => answered::<Next>(bytes),
        5 => answered::<Option<Told>>(bytes),
        6 => answered::<Vec<u64>>(bytes),
        7 => steps(bytes),
        8 => answered::<Vec<String>>(bytes),
        9 => shown(bytes),
        _ => shared(bytes),
    }
}

/// A message is read, written and read again.
fn again<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> bool {
    let read = match wire::decode::<T>(bytes) {
        Ok(read) => read,
        Err(e) => {
            assert_eq!(e.kind(), Kind::Format);
            return false;
        }
    };
    let once = wire::encode(&read).unwrap_or_default();
    let back = wire::decode::<T>(&once).map(|back| wire::encode(&back).unwrap_or_default());
    assert_eq!(back.ok(), Some(once));
    true
}

/// The same of an answer, which may be an error of the other side.
fn answered<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> bool {
    match wire::heard(bytes) {
        Ok(rest) => again::<T>(rest),
        // Of any kind: it is told as it came.
        Err(e) => !e.message().is_empty() && e.hint().is_none_or(|hint| !hint.is_empty()),
    }
}

/// What a node tells of a stream is told on as it came.
fn shown(bytes: &[u8]) -> bool {
    let shown = wire::heard(bytes).and_then(wire::decode::<Shown>);
    let Ok(told) = shown.and_then(|shown| shown.told("sim", "n1")) else { return false };
    let again = Shown::of(told.clone()).and_then(|shown| shown.told("sim", "n1"));
    assert_eq!(again.map(|again| again.variables).ok(), Some(told.variables));
    true
}

/// What nodes know of a stream is put together, whatever it is.
fn shared(bytes: &[u8]) -> bool {
    let Ok(share) = wire::heard(bytes).and_then(wire::decode::<Share>) else { return false };
    let all = share.all;
    let told = Explanation::of("sim", vec![(None, share.clone()), (Some("n1".into()), share)]);
    assert!(told.elsewhere <= all && told.multiple.is_none_or(f64::is_finite));
    true
}

/// What agents tell of steps, one after the other, as a reader keeps it.
fn steps(bytes: &[u8]) -> bool {
    let Ok(all) = wire::decode::<Vec<(bool, Told)>>(bytes) else { return false };
    let mut kept = Kept::default();
    let mut any = false;
    for (step, (follows, told)) in (0u64..).zip(all) {
        let said = told.said.len();
        match kept.take(step, told, follows) {
            Ok(()) => {
                assert_eq!(kept.told(step).map(|told| told.said.len()), Some(said));
                any = true;
            }
            Err(e) => assert!(e.kind() == Kind::Format && kept.told(step).is_none()),
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{BlockEntry, Definition, Definitions, Place};
    use stead_core::{Bounds, DType};

    #[test]
    fn right_messages_are_understood_and_cut_ones_are_not() {
        let mut definitions = Definitions::new();
        definitions.add(Definition::new("T", DType::F64, [4])).unwrap();
        let block = BlockEntry {
            variable: 0,
            bounds: Bounds::new([0], [4]).unwrap(),
            place: Place { segment: 0, offset: 0, len: 32 },
        };
        let blocks = definitions.encode_blocks(&[block]).unwrap();
        let told = |with: bool| Told {
            at: 1,
            bytes: 32,
            peak: 64,
            said: vec![wire::Said {
                rank: 0,
                hash: definitions.hash(),
                definitions: with.then(|| definitions.encode().unwrap()),
                blocks: blocks.clone(),
            }],
        };
        let first = |which: u8, bytes: Vec<u8>| [vec![which], bytes].concat();
        let all = [
            first(0, wire::encode(&Knock::Talk(7)).unwrap()),
            first(1, wire::encode(&Ask::Next(3, true, 500, 1)).unwrap()),
            first(2, wire::encode(&Errand::LetGo(3, true)).unwrap()),
            first(4, wire::answer(Ok(Next::Step(3, told(true))))),
            first(5, wire::answer(Ok(Some(told(true))))),
            // The second one is told in fewer words.
            first(7, wire::encode(&vec![(true, told(true)), (true, told(false))]).unwrap()),
        ];
        for bytes in all {
            assert!(message(&bytes), "{bytes:?}");
            assert!(!message(&bytes[..bytes.len() - 1]), "{bytes:?}");
        }
        // Nothing was told before.
        assert!(!message(&first(7, wire::encode(&vec![(true, told(false))]).unwrap())));
    }

    #[test]
    fn seeds_are_understood() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/wire");
        let mut seeds = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            assert!(message(&std::fs::read(&path).unwrap()), "{}", path.display());
            seeds += 1;
        }
        assert!(seeds >= 16);
    }
}
