//! Layouts out of their pieces: every rule that a layout obeys is checked here, whoever made it.

use super::{Cut, Layout, MOST_BYTES, Part, Stripes, nodes, space, too_many};
use crate::{Error, Result, limits};
use std::collections::HashSet;

impl Layout {
    /// A file of `length` bytes in stripes of `stripe` bytes. Lengths of parts are computed, whatever they are in
    /// `parts`.
    ///
    /// # Errors
    /// `Usage` for a stripe of 0 bytes, no parts, two parts in one place or names that are none; `Limit` for more stripes
    /// or parts than there may be.
    pub fn even(
        name: impl Into<String>,
        length: u64,
        stripe: u64,
        parts: Vec<Part>,
    ) -> Result<Layout> {
        if stripe == 0 {
            return Err(Error::usage("a stripe of 0 bytes").with_hint("take for example 4MiB"));
        }
        let mut layout = Layout::named(name.into(), length, Stripes::Even(stripe), parts)?;
        let stripes = length.div_ceil(stripe);
        if stripes > limits::MAX_STRIPES {
            return Err(Error::limit(format!(
                "stripes of {stripe} bytes make {stripes} of them; at most {} are supported",
                limits::MAX_STRIPES
            ))
            .with_hint(format!(
                "take stripes of {} bytes or more",
                length.div_ceil(limits::MAX_STRIPES)
            )));
        }
        let n = layout.parts.len() as u64;
        let (full, rest) = (length / stripe, length % stripe);
        for (p, part) in (0u64..).zip(&mut layout.parts) {
            let short = if full % n == p { rest } else { 0 };
            part.length = (full / n + u64::from(p < full % n)) * stripe + short;
        }
        Ok(layout)
    }

    /// A file of `length` bytes that is cut at `cuts`: ascending offsets between its stripes, of which there is one more.
    /// Equal ones have an empty stripe between them. Stripe `i` is on part `on[i]`, or `i` mod `n` where `on` is `None`.
    ///
    /// # Errors
    /// As [`Layout::even`], and `Usage` for cuts that descend or lie beyond the end.
    pub fn cut(
        name: impl Into<String>,
        length: u64,
        cuts: &[u64],
        on: Option<&[u32]>,
        parts: Vec<Part>,
    ) -> Result<Layout> {
        too_many("cuts", cuts.len(), limits::MAX_CUTS)?;
        let n = parts.len().max(1);
        let stripes = cuts.len() + 1;
        if let Some(at) = (1..cuts.len()).find(|i| cuts[*i] < cuts[i - 1]) {
            return Err(Error::usage(format!(
                "cuts must ascend, and {} comes after {}",
                cuts[at],
                cuts[at - 1]
            )));
        }
        if let Some(last) = cuts.last().filter(|c| **c > length) {
            return Err(Error::usage(format!("a cut at {last} of a file of {length} bytes")));
        }
        if let Some(on) = on {
            if on.len() != stripes {
                return Err(Error::usage(format!(
                    "{} cuts make {stripes} stripes, and {} are placed",
                    cuts.len(),
                    on.len()
                )));
            }
            if let Some(p) = on.iter().find(|p| **p as usize >= n) {
                return Err(Error::usage(format!(
                    "a stripe on part {p} of {n}; they count from 0"
                )));
            }
        }
        let mut cut = Cut {
            starts: Vec::with_capacity(stripes),
            within: Vec::with_capacity(stripes),
            on: Vec::with_capacity(stripes),
            of_part: vec![Vec::new(); n],
            placed: on.is_some_and(|on| on.iter().enumerate().any(|(i, p)| *p as usize != i % n)),
        };
        let mut lengths = vec![0u64; n];
        for i in 0..stripes {
            let start = if i == 0 { 0 } else { cuts[i - 1] };
            let end = cuts.get(i).copied().unwrap_or(length);
            let part = on.map_or(i % n, |on| on[i] as usize);
            cut.starts.push(start);
            cut.within.push(lengths[part]);
            cut.on.push(part as u32);
            cut.of_part[part].push(i as u32);
            lengths[part] += end - start;
        }
        let mut layout = Layout::named(name.into(), length, Stripes::Cut(cut), parts)?;
        for (part, length) in layout.parts.iter_mut().zip(lengths) {
            part.length = length;
        }
        Ok(layout)
    }

    /// What holds for all layouts.
    fn named(name: String, length: u64, stripes: Stripes, parts: Vec<Part>) -> Result<Layout> {
        space::check_file_name(&name)?;
        if length > MOST_BYTES {
            return Err(Error::limit(format!("a file of {length} bytes; at most {MOST_BYTES}")));
        }
        if parts.is_empty() {
            return Err(Error::usage("a layout without parts"));
        }
        too_many("parts", parts.len(), limits::MAX_PARTS)?;
        let mut places = HashSet::with_capacity(parts.len());
        for (i, part) in parts.iter().enumerate() {
            check_part(part).map_err(|e| of_part(i, &e))?;
            if !places.insert((&part.node, &part.space, &part.path)) {
                return Err(of_part(
                    i,
                    &Error::usage(format!("{} on {} is a part already", part.path, part.home())),
                ));
            }
        }
        Ok(Layout { name, length, stripes, parts })
    }

    /// The same layout with a checksum for each part, in the order of the parts.
    ///
    /// # Errors
    /// `Usage` if there is not one for each part.
    pub fn with_checksums(mut self, sums: Vec<super::Checksum>) -> Result<Layout> {
        if sums.len() != self.parts.len() {
            return Err(Error::usage(format!(
                "{} checksums for {} parts",
                sums.len(),
                self.parts.len()
            )));
        }
        for (part, sum) in self.parts.iter_mut().zip(sums) {
            sum.check()?;
            part.checksum = Some(sum);
        }
        Ok(self)
    }
}

/// Says of which part an error is.
pub(super) fn of_part(i: usize, e: &Error) -> Error {
    let said = Error::new(e.kind(), format!("part {i}: {}", e.message()));
    match e.hint() {
        Some(hint) => said.with_hint(hint),
        None => said,
    }
}

/// Names and path of a part.
pub(super) fn check_part(part: &Part) -> Result<()> {
    nodes::check(&part.node)?;
    match &part.space {
        Some(space) => {
            space::check_space(space)?;
            space::check_relative(&part.path)?;
        }
        None => space::check_path(&part.path)?,
    }
    match &part.checksum {
        Some(sum) => sum.check(),
        None => Ok(()),
    }
}

/// Where to cut a file of `length` bytes so that stripes have about `stripe` bytes and begin where records begin.
/// `next(offset)` says where the first record at or after `offset` begins; the length, if there is none. It is asked once
/// for each stripe, in ascending order.
///
/// # Errors
/// `Usage` for a stripe of 0 bytes, `Limit` for more than [`limits::MAX_CUTS`] stripes, `Internal` for a `next` that goes
/// back, and those of `next`.
pub fn aligned(
    length: u64,
    stripe: u64,
    mut next: impl FnMut(u64) -> Result<u64>,
) -> Result<Vec<u64>> {
    if stripe == 0 {
        return Err(Error::usage("a stripe of 0 bytes").with_hint("take for example 4MiB"));
    }
    let mut cuts = Vec::new();
    let mut target = stripe;
    while target < length {
        let cut = next(target)?;
        if cut < target {
            return Err(Error::internal(format!("the first record after {target} is at {cut}")));
        }
        if cut >= length {
            break;
        }
        too_many("cuts", cuts.len() + 1, limits::MAX_CUTS)?;
        cuts.push(cut);
        // A record longer than a stripe moves the next target, so that no stripe is empty.
        let Some(after) = (cut / stripe + 1).checked_mul(stripe) else { break };
        target = after;
    }
    Ok(cuts)
}
