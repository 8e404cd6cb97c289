//! Where the fields of a column lie in a text, as a promise that vector code may rely on.

/// Ends of fields in a text, all but the first of which lie in it.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    text: &'a [u8],
    base: usize,
    /// Invariant: `base + e` is at most the length of the text, for all entries `e` but the first.
    ends: &'a [u32],
}

impl<'a> Ends<'a> {
    /// Ends that count from `base`. Those from the first one on that is outside of the text are left out.
    #[inline(always)]
    pub fn new(text: &'a [u8], base: usize, ends: &'a [u32]) -> Self {
        let inside = |e: &u32| base.checked_add(*e as usize).is_some_and(|e| e <= text.len());
        let mut most = 0;
        for e in ends.get(1..).unwrap_or(&[]) {
            most = most.max(*e);
        }
        if inside(&most) {
            return Ends { text, base, ends };
        }
        let n = ends.iter().skip(1).position(|e| !inside(e)).map_or(ends.len(), |n| n + 1);
        Ends { text, base, ends: &ends[..n] }
    }

    /// The fields that lie between the ends number `k` and `k + 1` for `k = first, first + step, ...`.
    pub fn column(&self, first: usize, step: usize) -> Fields<'a> {
        Fields { ends: Ends { ends: self.ends.get(first..).unwrap_or(&[]), ..*self }, step }
    }
}

/// The fields of a column. Field `i` begins after the byte at `base + ends[i * step]` and ends before that at
/// `base + ends[i * step + 1]`. The byte before the first one may have the offset `u32::MAX`, which is -1.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    ends: Ends<'a>,
    step: usize,
}

impl<'a> Fields<'a> {
    /// What they lie in.
    #[inline(always)]
    pub fn text(&self) -> &'a [u8] {
        self.ends.text
    }

    /// What the ends count from.
    #[inline(always)]
    pub fn base(&self) -> usize {
        self.ends.base
    }

    /// The ends; all but the first are offsets in the text, or of its end.
    #[inline(always)]
    pub fn ends(&self) -> &'a [u32] {
        self.ends.ends
    }

    /// Distance of the ends of two fields.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    #[inline(always)]
    pub fn step(&self) -> usize {
        self.step
    }

    /// Number of fields.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends().len().checked_sub(2).map_or(0, |n| n / self.step + 1)
    }

    /// Where field `i` begins and ends in the text.
    #[inline]
    pub fn get(&self, i: usize) -> Option<(usize, usize)> {
        let [start, end] = *self.ends().get(i * self.step..)?.first_chunk()?;
        Some((self.base() + start.wrapping_add(1) as usize, self.base() + end as usize))
    }

    /// All but the first `n` fields.
    #[inline]
    pub fn skip(&self, n: usize) -> Fields<'a> {
        self.ends.column(n.saturating_mul(self.step), self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_outside_are_left_out() {
        let text = b"abc,de,f\ng,h,i\n";
        let ends = [u32::MAX, 3, 6, 8, 10, 12, 14];
        let fields = |base: usize, ends| {
            let f = Ends::new(text, base, ends).column(1, 3);
            let all: Vec<&[u8]> =
                (0..f.len()).filter_map(|i| f.get(i)).map(|(a, b)| &text[a..b]).collect();
            (all, f.skip(1).get(0), f.skip(9).len())
        };
        assert_eq!(fields(0, &ends), (vec![&b"de"[..], b"h"], Some((11, 12)), 0));
        assert_eq!(fields(3, &ends[..3]), (vec![&b"f\n"[..]], None, 0));
        assert_eq!(fields(7, &ends).0, [&b"h,"[..]]);
        assert_eq!(fields(usize::MAX, &ends).0.len(), 0);
    }
}
