//! What several writers say of a step, put together.

use crate::index::{BlockEntry, Definition, Definitions, shown, start};
use std::collections::HashMap;
use std::sync::Arc;
use stead_core::{Error, Result, limits};

/// What several writers say together.
#[derive(Debug, Clone)]
pub struct Merged {
    /// Every variable that one of them has, in the order of the writers.
    pub definitions: Arc<Definitions>,
    /// For each writer, the number of each of its variables among all.
    pub numbers: Vec<Arc<[u32]>>,
}

impl Merged {
    /// The number among all of a variable of the writer that was said as the `of`-th.
    pub fn number(&self, of: usize, variable: u32) -> Option<u32> {
        self.numbers.get(of)?.get(usize::try_from(variable).ok()?).copied()
    }
}

/// Puts together what writers, of these numbers, say of a step. Those that say the same cost nothing.
///
/// Who gives no names of dimensions agrees with any. Each writer may give attributes of its own.
///
/// # Errors
/// `Usage` if two writers do not agree on the type, the shape or the dimensions of a variable, or on an attribute; `Limit` if
/// all together are too many.
pub fn merge(said: &[(u32, Arc<Definitions>)]) -> Result<Merged> {
    let mut list: Vec<Definition> = Vec::new();
    let mut names: HashMap<&str, u32> = HashMap::new();
    let mut known: HashMap<(u64, usize), Arc<[u32]>> = HashMap::new();
    let mut numbers: Vec<Arc<[u32]>> = Vec::with_capacity(said.len());
    let same = |a: &Definitions, b: &Definitions| a.hash() == b.hash() && a.len() == b.len();
    if let Some(((_, first), rest)) = said.split_first()
        && rest.iter().all(|(_, d)| same(first, d))
    {
        let each: Arc<[u32]> = (0u32..).take(first.len()).collect();
        return Ok(Merged { definitions: first.clone(), numbers: vec![each; said.len()] });
    }
    for (writer, definitions) in said {
        let key = (definitions.hash(), definitions.len());
        if let Some(before) = known.get(&key) {
            numbers.push(before.clone());
            continue;
        }
        let mut mine = Vec::with_capacity(definitions.len());
        for definition in definitions.iter() {
            let next = u32::try_from(list.len()).unwrap_or(u32::MAX);
            let number = *names.entry(definition.name.as_str()).or_insert(next);
            if let Some(all) = list.get_mut(number as usize) {
                join(all, definition).map_err(|d| disagree(said, *writer, definition, d))?;
            } else if list.len() <= limits::MAX_VARIABLES {
                list.push(definition.clone());
            } else {
                // One more than a step can have: the error is told below.
                break;
            }
            mine.push(number);
        }
        let mine: Arc<[u32]> = mine.into();
        known.insert(key, mine.clone());
        numbers.push(mine);
    }
    let mut all = Definitions::new();
    for definition in list {
        all.add(definition)?;
    }
    Ok(Merged { definitions: Arc::new(all), numbers })
}

/// As [`merge`] where all agree; else only those who put blocks of a variable have a say in it. `blocks` are those of each writer. With what comes
/// of it goes, if all do not agree, which variables each has put: it is that of other blocks than these then.
///
/// # Errors
/// As [`merge`].
pub(crate) fn merge_step(
    said: &[(u32, Arc<Definitions>)],
    blocks: &[&[BlockEntry]],
) -> Result<(Merged, Option<Vec<Vec<u64>>>)> {
    match merge(said) {
        Ok(merged) => return Ok((merged, None)),
        // Who agrees in what they put has said nothing wrong.
        Err(_) if said.len() > 1 => {}
        Err(e) => return Err(e),
    }
    let put = put_by(said, blocks);
    let merged = merge_put(said, |at, variable| {
        let word = put.get(at).and_then(|of| of.get(variable as usize / 64));
        word.is_some_and(|word| word & (1 << (variable % 64)) != 0)
    })?;
    Ok((merged, Some(put)))
}

/// A bit for each variable of each writer of which it has put something.
pub(crate) fn put_by(said: &[(u32, Arc<Definitions>)], blocks: &[&[BlockEntry]]) -> Vec<Vec<u64>> {
    let of = |((_, definitions), blocks): (&(u32, Arc<Definitions>), &&[BlockEntry])| {
        let mut bits = vec![0u64; definitions.len().div_ceil(64)];
        for block in *blocks {
            if let Some(word) = bits.get_mut(block.variable as usize / 64) {
                *word |= 1 << (block.variable % 64);
            }
        }
        bits
    };
    said.iter().zip(blocks).map(of).collect()
}

/// As [`merge`], where writers that put nothing of a variable have no say in what it is: `puts` tells whether the one that was said as
/// the so many-th has a block of its variable of a number. Of a variable that nobody puts, the first one counts.
///
/// # Errors
/// As [`merge`], of writers that put blocks of a variable.
pub fn merge_put(
    said: &[(u32, Arc<Definitions>)],
    puts: impl Fn(usize, u32) -> bool,
) -> Result<Merged> {
    let mut list: Vec<Option<Definition>> = Vec::new();
    let mut names: HashMap<&str, u32> = HashMap::new();
    let mut numbers: Vec<Arc<[u32]>> = Vec::with_capacity(said.len());
    for (_, definitions) in said {
        let mut mine = Vec::with_capacity(definitions.len());
        for definition in definitions.iter() {
            let next = u32::try_from(list.len()).unwrap_or(u32::MAX);
            let number = *names.entry(definition.name.as_str()).or_insert(next);
            if number == next {
                if list.len() > limits::MAX_VARIABLES {
                    // One more than a step can have: the error is told below.
                    break;
                }
                list.push(None);
            }
            mine.push(number);
        }
        numbers.push(mine.into());
    }
    for is_put in [true, false] {
        for (at, (writer, definitions)) in said.iter().enumerate() {
            let of = numbers.get(at).map_or(&[][..], |numbers| numbers);
            for (variable, (definition, number)) in (0u32..).zip(definitions.iter().zip(of)) {
                if puts(at, variable) != is_put {
                    continue;
                }
                match list.get_mut(*number as usize) {
                    Some(Some(all)) if is_put => join(all, definition).map_err(|differs| {
                        let has = |at: usize, d: &Definitions| {
                            d.find(&definition.name).is_some_and(|(n, _)| puts(at, n))
                        };
                        let those = said.iter().enumerate().filter(|(at, (_, d))| has(*at, d));
                        let those: Vec<_> = those.map(|(_, said)| said.clone()).collect();
                        disagree(&those, *writer, definition, differs)
                    })?,
                    Some(free @ None) => *free = Some(definition.clone()),
                    _ => {}
                }
            }
        }
    }
    let mut all = Definitions::new();
    for definition in list.into_iter().flatten() {
        all.add(definition)?;
    }
    Ok(Merged { definitions: Arc::new(all), numbers })
}

/// What two writers say differently.
enum Differs<'d> {
    Form,
    Attribute(&'d str),
}

/// Adds what a writer says of a variable to what others do.
fn join<'d>(all: &mut Definition, more: &'d Definition) -> Result<(), Differs<'d>> {
    let dims = all.dims.is_empty() || more.dims.is_empty() || all.dims == more.dims;
    if all.dtype != more.dtype || all.shape != more.shape || !dims {
        return Err(Differs::Form);
    }
    if all.dims.is_empty() {
        all.dims.clone_from(&more.dims);
    }
    for (key, value) in &more.attributes {
        match all.attributes.get(key) {
            None => {
                all.attributes.insert(key.clone(), value.clone());
            }
            Some(before) if before == value => {}
            Some(_) => return Err(Differs::Attribute(key)),
        }
    }
    Ok(())
}

/// The error of a writer that says something else than one before it, which is looked for.
fn disagree(
    said: &[(u32, Arc<Definitions>)],
    writer: u32,
    definition: &Definition,
    differs: Differs<'_>,
) -> Error {
    let name = &definition.name;
    let says = |d: &Definition| match differs {
        Differs::Form => Some(d.form()),
        Differs::Attribute(key) => d.attributes.get(key).map(|a| start(&a.to_string())),
    };
    // The dimensions may have their names from another writer than the first one.
    let other = |d: &Definition| match differs {
        Differs::Form => matches!(join(&mut d.clone(), definition), Err(Differs::Form)),
        Differs::Attribute(key) => d.attributes.get(key) != definition.attributes.get(key),
    };
    let before = said.iter().find_map(|(writer, all)| {
        let (_, d) = all.find(name)?;
        other(d).then(|| says(d).map(|says| (*writer, says))).flatten()
    });
    let (first, before) = before.unwrap_or((writer, String::new()));
    let what = match differs {
        Differs::Form => format!("variable '{}'", shown(name)),
        Differs::Attribute(key) => {
            format!("attribute '{}' of variable '{}'", shown(key), shown(name))
        }
    };
    let mine = says(definition).unwrap_or_default();
    Error::usage(format!(
        "writers disagree about {what}: writer {first} says {before}, writer {writer} says {mine}"
    ))
    .with_hint("all writers of a step define a variable alike, with the shape of the whole array; each puts blocks of it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Attribute;
    use crate::index::tests::{definition, named, of, one, with};
    use proptest::prelude::*;
    use stead_core::{DType, Kind};

    fn said(all: &[Definitions]) -> Vec<(u32, Arc<Definitions>)> {
        (0..).zip(all).map(|(i, d)| (i * 10, Arc::new(d.clone()))).collect()
    }

    #[test]
    fn writers_that_disagree_are_named_with_what_they_say() {
        let f64s = |shape: &[u64]| {
            of([definition("U", DType::U8, &[]), definition("T", DType::F64, shape)])
        };
        let unit = |u: &str| of([with("T", "unit", Attribute::Text(u.into()))]);
        let wrong: [(Vec<Definitions>, &str); 5] = [
            (
                vec![f64s(&[4, 5]), f64s(&[4, 5]), f64s(&[4, 6])],
                "variable 'T': writer 0 says f64 [4, 5], writer 20 says f64 [4, 6]",
            ),
            (
                vec![of([]), of([definition("T", DType::F32, &[4, 5])]), f64s(&[4, 5])],
                "variable 'T': writer 10 says f32 [4, 5], writer 20 says f64 [4, 5]",
            ),
            (
                // The first says no names, and another attribute, which is not what is wrong first.
                vec![
                    unit("m"),
                    of([named("T", &["x"])]),
                    of([Definition {
                        dims: vec!["y".into()],
                        ..with("T", "unit", Attribute::Int(1))
                    }]),
                ],
                "variable 'T': writer 10 says f64 [4] (x), writer 20 says f64 [4] (y)",
            ),
            (
                vec![of([definition("T", DType::F64, &[4])]), unit("m"), unit("km")],
                "attribute 'unit' of variable 'T': writer 10 says \"m\", writer 20 says \"km\"",
            ),
            (
                vec![unit("1"), of([with("T", "unit", Attribute::Int(1))])],
                "attribute 'unit' of variable 'T': writer 0 says \"1\", writer 10 says 1",
            ),
        ];
        for (all, says) in wrong {
            let e = merge(&said(&all)).unwrap_err();
            assert_eq!(e.kind(), Kind::Usage);
            assert_eq!(e.message(), format!("writers disagree about {says}"));
            assert!(e.hint().is_some());
        }
    }

    #[test]
    fn what_writers_say_is_put_together() {
        let a =
            of([definition("a", DType::F32, &[2]), with("b", "unit", Attribute::Text("m".into()))]);
        let b = of([
            definition("c", DType::I8, &[]),
            Definition { dims: vec!["x".into()], ..with("b", "long", Attribute::Text("B".into())) },
        ]);
        let merged = merge(&said(&[a.clone(), b.clone(), a.clone(), Definitions::new()])).unwrap();
        let all = &merged.definitions;
        assert_eq!(all.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        let both = &all.find("b").unwrap().1;
        assert_eq!(both.dims, ["x"]);
        assert_eq!(both.attributes.keys().collect::<Vec<_>>(), ["long", "unit"]);
        let numbers: Vec<&[u32]> = merged.numbers.iter().map(|n| &n[..]).collect();
        assert_eq!(numbers, [&[0, 1][..], &[2, 1], &[0, 1], &[]]);
        assert_eq!(
            (merged.number(1, 0), merged.number(1, 2), merged.number(4, 0)),
            (Some(2), None, None)
        );
        assert_eq!(all.hash(), Definitions::hash_of(&all.encode().unwrap()));
        // Those that say the same share one.
        let alike = said(&[a.clone(), a.clone(), a]);
        let merged = merge(&alike).unwrap();
        assert!(Arc::ptr_eq(&merged.definitions, &alike[0].1));
        assert!(merged.numbers.iter().all(|n| n[..] == [0, 1]) && merged.numbers.len() == 3);
        assert!(merge(&[]).unwrap().definitions.is_empty());
    }

    #[test]
    fn who_puts_nothing_of_a_variable_has_no_say_in_it() {
        let long =
            |n: u64| of([definition("a", DType::F32, &[n]), definition("b", DType::F32, &[n])]);
        let writers = said(&[long(4), long(5), long(5)]);
        assert!(merge(&writers).is_err());
        // The first one puts nothing of either.
        let merged = merge_put(&writers, |at, _| at > 0).unwrap();
        assert_eq!(merged.definitions, writers[1].1);
        assert!(merged.numbers.iter().all(|n| n[..] == [0, 1]));
        // It puts one of them, and so does another one.
        let error = merge_put(&writers, |at, variable| at > 0 || variable == 1).unwrap_err();
        assert!(
            error.message().contains("about variable 'b': writer 0 says f32 [4], writer 10 says"),
            "{error}"
        );
        // The one that puts nothing is not named for those that differ.
        let writers = said(&[long(3), long(4), long(5)]);
        let error = merge_put(&writers, |at, _| at > 0).unwrap_err();
        assert!(
            error.message().contains("writer 10 says f32 [4], writer 20 says f32 [5]"),
            "{error}"
        );
        // Nobody puts anything.
        assert_eq!(merge_put(&writers, |_, _| false).unwrap().definitions, writers[0].1);
        // Numbers are those of the order of the writers, whoever puts.
        let other = said(&[
            of([definition("x", DType::I8, &[])]),
            of([definition("y", DType::I8, &[]), definition("x", DType::F64, &[])]),
        ]);
        let merged = merge_put(&other, |at, _| at == 1).unwrap();
        let names: Vec<_> = merged.definitions.iter().map(|d| (d.name.as_str(), d.dtype)).collect();
        assert_eq!(names, [("x", DType::F64), ("y", DType::I8)]);
        assert_eq!(merged.numbers[1][..], [1, 0]);
    }

    proptest! {
        #[test]
        fn a_union_has_what_each_writer_has(
            list in prop::collection::vec(one(), 1..8),
            has in prop::collection::vec(prop::collection::vec(any::<bool>(), 8), 1..6),
        ) {
            let list: Vec<Definition> = (0..).zip(list).map(|(i, d)| Definition { name: format!("v{i}"), ..d }).collect();
            // Each writer has some of them, the attributes of half, and the names of half of the dimensions.
            let writers: Vec<Definitions> = has
                .iter()
                .enumerate()
                .map(|(w, has)| {
                    let mine = list.iter().zip(has).enumerate().filter(|(_, (_, has))| **has);
                    of(mine.map(|(i, (d, _))| {
                        let mut d = d.clone();
                        if (w + i) % 2 == 0 {
                            d.attributes.clear();
                        } else {
                            d.dims.clear();
                        }
                        d
                    }))
                })
                .collect();
            let merged = merge(&said(&writers)).unwrap();
            for (w, writer) in writers.iter().enumerate() {
                prop_assert_eq!(merged.numbers[w].len(), writer.len());
                for (i, mine) in writer.iter().enumerate() {
                    let number = merged.number(w, i as u32).unwrap();
                    let all = merged.definitions.get(number).unwrap();
                    prop_assert_eq!((&all.name, all.dtype, &all.shape), (&mine.name, mine.dtype, &mine.shape));
                    prop_assert!(mine.dims.is_empty() || mine.dims == all.dims);
                    prop_assert!(mine.attributes.iter().all(|(k, v)| all.attributes.get(k) == Some(v)));
                }
            }
            let some = list.iter().filter(|d| writers.iter().any(|w| w.find(&d.name).is_some())).count();
            prop_assert_eq!(merged.definitions.len(), some);
        }
    }
}
