//! Some of the elements, drawn by a seed: the same ones in every step, on every rank.

use crate::form::Form;
use crate::value::{Value, bytes_of, zeros};
use std::collections::HashSet;
use std::sync::Arc;
use stead_core::{Bounds, Error, Result};

/// Elements that are drawn at most.
const MAX_ELEMENTS: u64 = 1 << 26;

/// Whether it can be a sample.
pub fn check(every: Option<u64>, elements: Option<u64>) -> Result<()> {
    match (every, elements) {
        (None, None) => Err(Error::usage(
            "it needs 'every', a number of steps, or 'elements', how many are drawn",
        )),
        (Some(0), _) => Err(Error::usage("a sample every 0 steps; it must be 1 or more")),
        (_, Some(0)) => Err(Error::usage("a sample of 0 elements; it must be 1 or more")),
        (_, Some(n)) if n > MAX_ELEMENTS => {
            Err(Error::limit(format!("a sample of {n} elements; at most {MAX_ELEMENTS} are drawn")))
        }
        _ => Ok(()),
    }
}

/// What comes out.
pub fn form(of: &Form, elements: Option<u64>) -> Result<Form> {
    let Some(n) = elements else { return Ok(of.clone()) };
    let all = of.whole()?.elements();
    let dims = vec!["sample".to_owned()];
    Ok(Form { shape: vec![n.min(all)], dims, ..of.clone() })
}

/// The next of a row of numbers (Steele and others, "Fast splittable pseudorandom number generators", 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Below `n`, each number as likely as any other but for one in 2^64.
fn below(state: &mut u64, n: u64) -> u64 {
    let wide = u128::from(next(state)) * u128::from(n);
    u64::try_from(wide >> 64).unwrap_or(0)
}

/// The places of `n` of `all` elements, ascending (Floyd's algorithm).
fn draw(all: u64, n: u64, seed: u64) -> Vec<u64> {
    if n >= all {
        return (0..all).collect();
    }
    let mut state = seed;
    let mut drawn = HashSet::new();
    for last in all - n..all {
        let at = below(&mut state, last + 1);
        if !drawn.insert(at) {
            drawn.insert(last);
        }
    }
    let mut places: Vec<u64> = drawn.into_iter().collect();
    places.sort_unstable();
    places
}

/// Bytes that it takes at most to draw so many: they are in a set before they are in order.
pub fn drawn_bytes(n: u64) -> u64 {
    n.saturating_mul(32)
}

/// What was drawn before: the same in every step, as long as the array and what is wanted are the same.
#[derive(Debug, Default)]
pub struct Drawn {
    of: Option<(u64, Bounds)>,
    places: Vec<u64>,
    /// How often it was drawn.
    #[cfg(test)]
    often: u64,
}

impl Drawn {
    fn places(&mut self, of: &Form, (n, seed): (u64, u64), wanted: &Bounds) -> Result<&[u64]> {
        let is = (of.whole()?.elements(), wanted.clone());
        if self.of.as_ref() != Some(&is) {
            self.places = places(of, n, seed, wanted)?;
            self.of = Some(is);
            #[cfg(test)]
            {
                self.often += 1;
            }
        }
        Ok(&self.places)
    }
}

/// Those that a box of the sample has.
fn places(of: &Form, n: u64, seed: u64, wanted: &Bounds) -> Result<Vec<u64>> {
    let drawn = draw(of.whole()?.elements(), n, seed);
    let side = wanted.sides().next().unwrap_or(0..0);
    let end = |n| usize::try_from(n).unwrap_or(usize::MAX);
    Ok(drawn.get(end(side.start)..end(side.end)).unwrap_or(&[]).to_vec())
}

/// Elements of the array behind each index of the first dimension.
fn behind(of: &Form) -> u64 {
    of.shape.iter().skip(1).product::<u64>().max(1)
}

/// The box that has all of them: stretches of the first dimension.
pub fn needs(of: &Form, n: u64, seed: u64, wanted: &Bounds) -> Result<Bounds> {
    let whole = of.whole()?;
    let places = places(of, n, seed, wanted)?;
    let behind = behind(of);
    match (places.first(), places.last()) {
        (Some(first), Some(last)) if whole.ndim() > 0 => {
            let slab = whole.slab(0, first / behind..last / behind + 1);
            slab.ok_or_else(|| Error::internal("a sample of no elements"))
        }
        (Some(_), _) => Ok(whole),
        _ => Bounds::new(vec![0; whole.ndim()], vec![0; whole.ndim()]),
    }
}

/// A box of the sample.
pub fn sample(
    of: &Form,
    value: &Value,
    draw: (u64, u64),
    wanted: &Bounds,
    drawn: &mut Drawn,
) -> Result<Value> {
    let size = of.dtype.size();
    let mut bytes = zeros(bytes_of(wanted, of.dtype)?)?;
    let places = drawn.places(of, draw, wanted)?;
    for (place, to) in places.iter().zip(bytes.chunks_exact_mut(size)) {
        let mut rest = *place;
        let mut at: Vec<u64> = of
            .shape
            .iter()
            .rev()
            .map(|n| {
                let index = rest % (*n).max(1);
                rest /= (*n).max(1);
                index
            })
            .collect();
        at.reverse();
        let count = vec![1; at.len()];
        value.copy(&Bounds::new(at, count)?, to)?;
    }
    Value::own(of.dtype, wanted.clone(), Arc::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_drawn_once_for_all_steps_of_the_same_form() {
        let form =
            |n: u64| Form::of(&stead_stream::Definition::new("T", stead_core::DType::U8, [n]));
        let value = |n: u64| {
            let bytes = (0..n).map(|i| u8::try_from(i).unwrap()).collect();
            let whole = Bounds::new([0], [n]).unwrap();
            Value::own(stead_core::DType::U8, whole, Arc::new(bytes)).unwrap()
        };
        let wanted = Bounds::new([1], [3]).unwrap();
        let mut drawn = Drawn::default();
        let mut seen = Vec::new();
        for n in [100, 100, 100, 90] {
            let some = sample(&form(n), &value(n), (5, 3), &wanted, &mut drawn).unwrap();
            seen.push(some.gather(1).unwrap());
        }
        assert_eq!(drawn.often, 2);
        let own = |n| draw(n, 5, 3)[1..4].iter().map(|i| *i as u8).collect::<Vec<_>>();
        assert_eq!(seen, [own(100), own(100), own(100), own(90)]);
    }

    #[test]
    fn what_is_drawn_is_different_and_the_same_for_a_seed() {
        for (all, n) in [(1, 1), (10, 3), (10, 10), (10, 20), (1000, 999), (1 << 40, 50)] {
            let drawn = draw(all, n, 7);
            assert_eq!(drawn.len() as u64, n.min(all));
            assert!(drawn.windows(2).all(|two| two[0] < two[1]));
            assert!(drawn.iter().all(|at| *at < all));
            assert_eq!(drawn, draw(all, n, 7));
        }
        assert_ne!(draw(1 << 40, 5, 1), draw(1 << 40, 5, 2));
        // Each element comes about as often as any other.
        let mut often = [0; 10];
        for seed in 0..3000 {
            draw(10, 3, seed).iter().for_each(|at| often[*at as usize] += 1);
        }
        assert!(often.iter().all(|n| (800..1000).contains(n)), "{often:?}");
    }
}
