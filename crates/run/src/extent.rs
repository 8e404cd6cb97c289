//! Which bytes are a rank's: to say what is lost with it, and to see whether ranks have the data in their order.

use serde::{Deserialize, Serialize};
use stead_format::{Dataset, Share};

/// The first and the last byte of a rank's share, and how many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Source and offset.
    first: (u32, u64),
    end: (u32, u64),
    bytes: u64,
    /// It is one part of all, which units of work are cut from: its ends are known about.
    even: bool,
}

impl Extent {
    pub fn of(share: &Share, dataset: &Dataset) -> Extent {
        match share {
            Share::Even { rank, size } => {
                let range = Share::of(dataset.total_bytes(), *rank, *size);
                let place = |at: u64| {
                    let (mut found, mut before) = ((0, 0), 0u64);
                    for (i, source) in (0u32..).zip(dataset.sources()) {
                        if at >= before {
                            found = (i, at - before);
                        }
                        before = before.saturating_add(source.len());
                        if at <= before {
                            break;
                        }
                    }
                    found
                };
                let (first, end) = (place(range.start), place(range.end));
                Extent { first, end, bytes: range.end - range.start, even: true }
            }
            Share::Held(held) => match (held.first(), held.last()) {
                (Some(a), Some(z)) => Extent {
                    first: (a.source, a.bytes.start),
                    end: (z.source, z.bytes.end),
                    bytes: held.iter().map(|h| h.bytes.end - h.bytes.start).sum(),
                    even: false,
                },
                _ => Extent::default(),
            },
        }
    }

    pub fn is_none(&self) -> bool {
        self.bytes == 0
    }

    /// True if what ranks have comes in the order of ranks.
    pub fn in_order<'e>(all: impl Iterator<Item = &'e Extent>) -> bool {
        let some: Vec<&Extent> = all.filter(|e| !e.is_none()).collect();
        some.windows(2).all(|w| w[0].end <= w[1].first)
    }

    /// As it stands behind the error of a rank that is gone.
    pub fn says(&self, dataset: &Dataset) -> String {
        if self.is_none() {
            return "; its share: none of the data".to_owned();
        }
        let path = |source: u32| {
            let source = dataset.sources().get(source as usize);
            source.map_or_else(String::new, |s| s.path().display().to_string())
        };
        let about = if self.even { "about " } else { "" };
        let (a, z, n) = (self.first, self.end, self.bytes);
        if a.0 != z.0 {
            let (of, to) = (path(a.0), path(z.0));
            return format!(
                "; its share: {about}{n} bytes, from byte {} of {of} to byte {} of {to}",
                a.1, z.1
            );
        }
        match z.1.checked_sub(a.1) {
            Some(len) if len == n => {
                format!("; its share: {about}bytes {} to {} of {}", a.1, z.1, path(a.0))
            }
            _ => format!("; its share: {n} bytes of {}, between {} and {}", path(a.0), a.1, z.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use stead_format::{FormatType, Held, OpenOptions};
    use stead_store::{MemorySource, Source};

    fn dataset() -> Dataset {
        let source = |name, len: usize| {
            Arc::new(MemorySource::new(name, "\n".repeat(len).into_bytes())) as Arc<dyn Source>
        };
        let options = OpenOptions { format: Some(FormatType::Lines), ..OpenOptions::default() };
        Dataset::from_sources(vec![source("a", 100), source("b", 0), source("c", 50)], &options)
            .unwrap()
    }

    #[test]
    fn shares_are_said_by_their_ends() {
        let data = dataset();
        let even = |rank, size| Extent::of(&Share::Even { rank, size }, &data);
        assert_eq!(even(0, 3).says(&data), "; its share: about bytes 0 to 50 of a");
        assert_eq!(
            even(1, 2).says(&data),
            "; its share: about 75 bytes, from byte 75 of a to byte 50 of c"
        );
        assert!(Extent::in_order((0..7).map(|r| even(r, 7)).collect::<Vec<_>>().iter()));
        let held = |all: &[(u32, u64, u64)]| {
            let held = |(source, start, end): &(u32, u64, u64)| Held {
                source: *source,
                bytes: *start..*end,
            };
            Extent::of(&Share::held(all.iter().map(held)).unwrap(), &data)
        };
        assert_eq!(held(&[(0, 3, 9)]).says(&data), "; its share: bytes 3 to 9 of a");
        let (some, other) = (held(&[(0, 3, 9), (0, 20, 30)]), held(&[(0, 9, 20)]));
        assert_eq!(some.says(&data), "; its share: 16 bytes of a, between 3 and 30");
        assert_eq!(held(&[]).says(&data), "; its share: none of the data");
        let last = held(&[(0, 30, 100), (2, 0, 50)]);
        assert_eq!(last.says(&data), "; its share: 120 bytes, from byte 30 of a to byte 50 of c");
        assert!(!Extent::in_order([&some, &other].into_iter()));
        assert!(Extent::in_order([&some, &held(&[]), &last].into_iter()));
        assert!(!Extent::in_order([&last, &some].into_iter()));
    }
}
