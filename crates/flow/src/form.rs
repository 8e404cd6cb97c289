//! What a value is, without its elements: type, shape, names of dimensions, attributes.

use crate::graph::{Cut, Dim, Slice};
use std::collections::BTreeMap;
use stead_core::schema::distance;
use stead_core::{Bounds, DType, Error, Result, limits};
use stead_stream::{Attribute, Definition};

/// The type and the shape of a whole value.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// The type of its elements.
    pub dtype: DType,
    /// The lengths of its dimensions; none of a single number.
    pub shape: Vec<u64>,
    /// The names of its dimensions, or none.
    pub dims: Vec<String>,
    /// What else is said of it.
    pub attributes: BTreeMap<String, Attribute>,
}

/// What a slice takes of one dimension: `count` indices from `start` on, every `step`-th of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The first one.
    pub start: u64,
    /// How many.
    pub count: u64,
    /// From one to the next; at least 1.
    pub step: u64,
    /// True if the dimension goes: `count` is 1 then.
    pub gone: bool,
}

impl Form {
    /// That of a variable.
    pub fn of(definition: &Definition) -> Form {
        Form {
            dtype: definition.dtype,
            shape: definition.shape.clone(),
            dims: definition.dims.clone(),
            attributes: definition.attributes.clone(),
        }
    }

    /// What a variable of this form is.
    pub fn definition(&self, name: &str) -> Definition {
        Definition {
            name: name.to_owned(),
            dtype: self.dtype,
            shape: self.shape.clone(),
            dims: self.dims.clone(),
            attributes: self.attributes.clone(),
        }
    }

    /// All of it.
    ///
    /// # Errors
    /// `Usage` for shapes that no array can have.
    pub fn whole(&self) -> Result<Bounds> {
        if self.shape.len() > limits::MAX_DIMS {
            return Err(Error::usage(format!(
                "{} dimensions come out; at most {} are supported",
                self.shape.len(),
                limits::MAX_DIMS
            )));
        }
        Bounds::new(vec![0; self.shape.len()], &self.shape)
    }

    /// As in messages: `f64 [3, 4] (y, x)`.
    pub fn describe(&self) -> String {
        match self.dims.is_empty() {
            true => format!("{} {:?}", self.dtype, self.shape),
            false => format!("{} {:?} ({})", self.dtype, self.shape, self.dims.join(", ")),
        }
    }

    /// The same with other elements.
    pub fn with_dtype(&self, dtype: DType) -> Form {
        Form { dtype, ..self.clone() }
    }

    /// The place of a dimension.
    ///
    /// # Errors
    /// `Usage` if there is none.
    pub fn dim(&self, dim: &Dim) -> Result<usize> {
        match dim {
            Dim::Place(n) => {
                let ndim = self.shape.len();
                let from_end =
                    || usize::try_from(n.unsigned_abs()).ok().and_then(|n| ndim.checked_sub(n));
                let place = if *n < 0 { from_end() } else { usize::try_from(*n).ok() };
                place.filter(|p| *p < ndim).ok_or_else(|| {
                    Error::usage(format!("there is no dimension {n} in {}", self.describe()))
                })
            }
            Dim::Name(name) => self.dims.iter().position(|d| d == name).ok_or_else(|| {
                let e =
                    Error::usage(format!("there is no dimension '{name}' in {}", self.describe()));
                let close = self.dims.iter().map(|d| (distance(d, name), d)).min();
                match close.filter(|(d, _)| *d <= 1 && name.len() > 1) {
                    Some((_, close)) => e.with_hint(format!("did you mean '{close}'?")),
                    None if self.dims.is_empty() && !self.shape.is_empty() => e.with_hint(
                        "its dimensions have no names: say which one by its place, from 0 on",
                    ),
                    None => e,
                }
            }),
        }
    }

    /// The places of several, ascending.
    ///
    /// # Errors
    /// As [`Form::dim`]; `Usage` for one that is named twice.
    pub fn places(&self, dims: &[Dim]) -> Result<Vec<usize>> {
        let mut places = dims.iter().map(|d| self.dim(d)).collect::<Result<Vec<_>>>()?;
        places.sort_unstable();
        match places.windows(2).find(|two| two.first() == two.last()) {
            Some(_) => Err(Error::usage("a dimension is named twice")),
            None => Ok(places),
        }
    }

    /// Without some dimensions.
    pub fn without(&self, places: &[usize]) -> Form {
        let kept = |i: &usize| !places.contains(i);
        let shape = self.shape.iter().enumerate().filter(|(i, _)| kept(i)).map(|(_, n)| *n);
        let dims = self.dims.iter().enumerate().filter(|(i, _)| kept(i)).map(|(_, d)| d.clone());
        Form { shape: shape.collect(), dims: dims.collect(), ..self.clone() }
    }

    /// With a new first dimension.
    ///
    /// # Errors
    /// `Usage` if there is one of its name.
    pub fn with_first(&self, name: &str, length: u64) -> Result<Form> {
        if self.dims.iter().any(|d| d == name) {
            return Err(Error::usage(format!(
                "a new dimension '{name}' would be the second one of {}",
                self.describe()
            )));
        }
        let mut form = self.clone();
        form.shape.insert(0, length);
        // A single number has no names because it has no dimensions.
        if !form.dims.is_empty() || form.shape.len() == 1 {
            form.dims.insert(0, name.to_owned());
        }
        form.whole()?;
        Ok(form)
    }

    /// What a slice takes of each dimension.
    ///
    /// # Errors
    /// `Usage` for dimensions that are not there and indices out of them.
    pub fn taken(&self, slice: &Slice) -> Result<Vec<Taken>> {
        let all = |n: &u64| Taken { start: 0, count: *n, step: 1, gone: false };
        let mut taken: Vec<Taken> = self.shape.iter().map(all).collect();
        let cuts: Vec<(usize, &Cut)> = match slice {
            Slice::ByName(cuts) => {
                let place = |(name, cut)| Ok((self.dim(&Dim::Name(String::clone(name)))?, cut));
                cuts.iter().map(place).collect::<Result<_>>()?
            }
            Slice::ByPlace(cuts) => {
                let is_rest = |cut: &Cut| matches!(cut, Cut::Range(text) if text.trim() == "...");
                let rest = cuts.iter().position(is_rest);
                let named = cuts.len() - usize::from(rest.is_some());
                let ndim = self.shape.len();
                if named > ndim {
                    return Err(Error::usage(format!(
                        "a slice of {named} dimensions of {}",
                        self.describe()
                    )));
                }
                let before = rest.unwrap_or(cuts.len());
                let place = |i: usize| if i < before { i } else { ndim + i - cuts.len() };
                let cuts = cuts.iter().enumerate().filter(|(i, _)| Some(*i) != rest);
                cuts.map(|(i, cut)| (place(i), cut)).collect()
            }
        };
        for (place, cut) in cuts {
            let length = self.shape.get(place).copied().unwrap_or(0);
            let dim = self.dims.get(place).map_or_else(|| place.to_string(), |d| format!("'{d}'"));
            if let Some(t) = taken.get_mut(place) {
                *t = take(cut, length).map_err(|e| {
                    Error::usage(format!("dimension {dim} of length {length}: {}", e.message()))
                })?;
            }
        }
        Ok(taken)
    }
}

/// What is taken of a dimension of some length, as Python's slices take it.
fn take(cut: &Cut, length: u64) -> Result<Taken> {
    let odd = |text: &str| {
        let text: String = text.chars().take(40).flat_map(char::escape_debug).collect();
        Error::usage(format!("'{text}' is no slice; write start:stop:step, such as 2:10 or ::4"))
    };
    let from_end = |n: i64| match n < 0 {
        true => i128::from(length) + i128::from(n),
        false => i128::from(n),
    };
    let text = match cut {
        Cut::At(n) => {
            let at = from_end(*n);
            let at = u64::try_from(at).ok().filter(|at| *at < length);
            let at = at.ok_or_else(|| Error::usage(format!("there is no index {n}")))?;
            return Ok(Taken { start: at, count: 1, step: 1, gone: true });
        }
        Cut::Range(text) => text.trim(),
    };
    if !text.contains(':') {
        let n = text.parse::<i64>().map_err(|_| odd(text))?;
        return take(&Cut::At(n), length);
    }
    let fields: Vec<&str> = text.split(':').map(str::trim).collect();
    let number = |at: usize| match fields.get(at) {
        None | Some(&"") => Ok(None),
        Some(n) => n.parse::<i64>().map(Some).map_err(|_| odd(text)),
    };
    let (start, stop, step) = (number(0)?, number(1)?, number(2)?.unwrap_or(1));
    if fields.len() > 3 {
        return Err(odd(text));
    }
    let Some(step) = u64::try_from(step).ok().filter(|step| *step > 0) else {
        return Err(Error::usage(format!("a step of {step}; it must be 1 or more")));
    };
    let within = |n: i64| u64::try_from(from_end(n).clamp(0, i128::from(length))).unwrap_or(0);
    let (start, stop) = (start.map_or(0, within), stop.map_or(length, within));
    let count = stop.saturating_sub(start).div_ceil(step);
    Ok(Taken { start, count, step, gone: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str, length: u64) -> (u64, u64, u64) {
        let t = take(&Cut::Range(text.into()), length).unwrap();
        (t.start, t.count, t.step)
    }

    #[test]
    fn slices_are_those_of_python() {
        assert_eq!(range("::4", 10), (0, 3, 4));
        assert_eq!(range("2:", 10), (2, 8, 1));
        assert_eq!(range("-3:", 10), (7, 3, 1));
        assert_eq!(range(":-3:2", 10), (0, 4, 2));
        assert_eq!(range("8:3", 10), (8, 0, 1));
        assert_eq!(range("5:100", 10), (5, 5, 1));
        assert_eq!(range("-100:1", 10), (0, 1, 1));
        let one = take(&Cut::Range("-1".into()), 10).unwrap();
        assert_eq!((one.start, one.count, one.gone), (9, 1, true));
        for bad in ["", "a:b", "1:2:3:4", "10", "-11", "::0", "::-1", "x"] {
            assert!(take(&Cut::Range(bad.into()), 10).is_err(), "{bad}");
        }
    }

    #[test]
    fn dots_stand_for_all_that_are_not_named() {
        let form = Form {
            dtype: DType::F32,
            shape: vec![4, 5, 6],
            dims: vec![],
            attributes: Default::default(),
        };
        let taken = form
            .taken(&Slice::ByPlace(vec![
                Cut::At(1),
                Cut::Range("...".into()),
                Cut::Range("::3".into()),
            ]))
            .unwrap();
        let counts: Vec<u64> = taken.iter().map(|t| t.count).collect();
        assert_eq!(counts, [1, 5, 2]);
        assert!(taken[0].gone && !taken[2].gone);
    }
}
