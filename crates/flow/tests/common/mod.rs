//! Streams in a folder of their own, writers and readers of them.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Bounds, DType, Kind, Result};
use stead_flow::{Flow, Functions, Graph, Options, Report};
use stead_kernel::exact::ExactSum;
use stead_stream::{Definition, Read, Reader, Writer, Written};

pub struct Place {
    #[allow(dead_code)]
    dir: tempfile::TempDir,
    pub spaces: Spaces,
}

/// A variable of a step: what it is, and its bytes in C order.
pub type Variable = (Definition, Vec<u8>);
pub type Step = BTreeMap<String, Variable>;

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut spaces = Spaces::default();
        spaces.imply("memory", dir.path().join("own").to_str().unwrap());
        Place { dir, spaces }
    }

    pub fn written(&self) -> Written {
        let timeout = Duration::from_secs(60);
        Written { spaces: self.spaces.clone(), timeout, readers: 1, ..Written::default() }
    }

    pub fn read(&self) -> Read {
        let timeout = Duration::from_secs(60);
        Read { spaces: self.spaces.clone(), timeout, ..Read::default() }
    }

    pub fn options(&self) -> Options {
        let timeout = Duration::from_secs(60);
        Options { spaces: self.spaces.clone(), timeout, threads: 2, ..Options::default() }
    }

    /// Writes steps by so many writers, each of which has a stretch of the first dimension.
    pub fn write(&self, name: &str, steps: &[Step], writers: u64) {
        std::thread::scope(|scope| {
            for rank in 0..writers {
                scope.spawn(move || self.write_as(name, steps, rank, writers).unwrap());
            }
        });
    }

    fn write_as(&self, name: &str, steps: &[Step], rank: u64, writers: u64) -> Result<()> {
        let mut writer = Writer::open(name, &Written { rank, writers, ..self.written() })?;
        for step in steps {
            writer.begin()?;
            for (definition, bytes) in step.values() {
                let number = writer.define(definition.clone())?;
                let (first, rest) = match definition.shape.split_first() {
                    Some((first, rest)) => (*first, rest),
                    None if rank == 0 => {
                        writer.put(number, &Bounds::new([], [])?, bytes)?;
                        continue;
                    }
                    None => continue,
                };
                let (from, to) = (first * rank / writers, first * (rank + 1) / writers);
                let start: Vec<u64> = [from].into_iter().chain(rest.iter().map(|_| 0)).collect();
                let count: Vec<u64> = [to - from].into_iter().chain(rest.iter().copied()).collect();
                let row = bytes.len() / (first as usize).max(1);
                let part = &bytes[from as usize * row..to as usize * row];
                writer.put(number, &Bounds::new(start, count)?, part)?;
            }
            writer.end()?;
        }
        writer.close()
    }

    /// All steps of a stream.
    pub fn collect(&self, name: &str) -> Result<Vec<Step>> {
        let mut reader = Reader::open(name, &self.read())?;
        let mut steps = Vec::new();
        while let Some(step) = reader.next_step()? {
            let mut all = Step::new();
            for definition in step.variables() {
                let shape = &definition.shape;
                let whole = Bounds::new(vec![0; shape.len()], shape)?;
                let mut bytes = vec![0; whole.elements() as usize * definition.dtype.size()];
                step.get_into(&definition.name, &whole, &mut bytes)?;
                all.insert(definition.name.clone(), (definition.clone(), bytes));
            }
            steps.push(all);
        }
        Ok(steps)
    }

    /// Runs a flow over one stream that is read, `sim`, and gives what each of the streams that it writes had.
    pub fn run(
        &self,
        text: &str,
        functions: &Functions,
        steps: &[Step],
        (writers, ranks): (u64, u64),
    ) -> (Result<Report>, BTreeMap<String, Vec<Step>>) {
        let mut graph = Graph::parse(text).unwrap();
        graph.write.values_mut().for_each(|output| output.readers = Some(1));
        let flow = Flow::new(&graph, functions.clone()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Who has failed reads no more, and the writer is told.
                let _ = self.write_quietly("sim", steps, writers);
            });
            let collecting: Vec<_> = graph
                .write
                .keys()
                .map(|name| (name, scope.spawn(move || self.collect(name))))
                .collect();
            let running: Vec<_> = (0..ranks)
                .map(|rank| {
                    let flow = &flow;
                    let options = Options { rank, ranks, ..self.options() };
                    scope.spawn(move || flow.run(&options))
                })
                .collect();
            let mut reports: Vec<Result<Report>> =
                running.into_iter().map(|thread| thread.join().unwrap()).collect();
            let collected = collecting
                .into_iter()
                .filter_map(|(name, thread)| Some((name.clone(), thread.join().unwrap().ok()?)))
                .collect();
            // The first cause: others are told that somebody has failed.
            let cause = |r: &Result<Report>| r.as_ref().is_err_and(|e| e.kind() != Kind::Peer);
            let failed = reports.iter().position(cause);
            let failed = failed.or_else(|| reports.iter().position(Result::is_err)).unwrap_or(0);
            (reports.swap_remove(failed), collected)
        })
    }

    fn write_quietly(&self, name: &str, steps: &[Step], writers: u64) -> Result<()> {
        std::thread::scope(|scope| {
            let each: Vec<_> = (0..writers)
                .map(|rank| scope.spawn(move || self.write_as(name, steps, rank, writers)))
                .collect();
            each.into_iter().try_for_each(|thread| thread.join().unwrap())
        })
    }
}

/// A variable of doubles, as another type.
pub fn variable(
    name: &str,
    dtype: DType,
    shape: &[u64],
    dims: &[&str],
    x: &[f64],
) -> (String, Variable) {
    let mut bytes = Vec::new();
    for x in x {
        match dtype {
            DType::F64 => bytes.extend(x.to_ne_bytes()),
            DType::F32 => bytes.extend((*x as f32).to_ne_bytes()),
            DType::I64 => bytes.extend((*x as i64).to_ne_bytes()),
            DType::I32 => bytes.extend((*x as i32).to_ne_bytes()),
            DType::I16 => bytes.extend((*x as i16).to_ne_bytes()),
            DType::I8 => bytes.extend((*x as i8).to_ne_bytes()),
            DType::U64 => bytes.extend((*x as u64).to_ne_bytes()),
            DType::U32 => bytes.extend((*x as u32).to_ne_bytes()),
            DType::U16 => bytes.extend((*x as u16).to_ne_bytes()),
            DType::U8 => bytes.extend((*x as u8).to_ne_bytes()),
        }
    }
    let mut definition = Definition::new(name, dtype, shape);
    definition.dims = dims.iter().map(|d| (*d).to_owned()).collect();
    (name.to_owned(), (definition, bytes))
}

/// The elements of a variable as doubles.
pub fn numbers((definition, bytes): &Variable) -> Vec<f64> {
    let each = bytes.chunks_exact(definition.dtype.size());
    each.map(|b| match definition.dtype {
        DType::F64 => f64::from_ne_bytes(b.try_into().unwrap()),
        DType::F32 => f64::from(f32::from_ne_bytes(b.try_into().unwrap())),
        DType::I64 => i64::from_ne_bytes(b.try_into().unwrap()) as f64,
        DType::I32 => f64::from(i32::from_ne_bytes(b.try_into().unwrap())),
        DType::I16 => f64::from(i16::from_ne_bytes(b.try_into().unwrap())),
        DType::I8 => f64::from(i8::from_ne_bytes(b.try_into().unwrap())),
        DType::U64 => u64::from_ne_bytes(b.try_into().unwrap()) as f64,
        DType::U32 => f64::from(u32::from_ne_bytes(b.try_into().unwrap())),
        DType::U16 => f64::from(u16::from_ne_bytes(b.try_into().unwrap())),
        DType::U8 => f64::from(b[0]),
    })
    .collect()
}

/// Their sum, rounded once.
pub fn sum(x: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum = ExactSum::new();
    x.into_iter().for_each(|x| sum.add(x));
    sum.to_f64()
}

/// The function `seen`, which gives what it was given and keeps which parts it was asked for.
pub fn seen(parts: &Arc<Mutex<Vec<Bounds>>>) -> Functions {
    let (mut all, parts) = (Functions::new(), parts.clone());
    all.insert(
        "seen".into(),
        Arc::new(move |given, wanted, to| {
            parts.lock().unwrap().push(wanted.bounds.clone());
            to.copy_from_slice(given[0].bytes());
            Ok(())
        }),
    );
    all
}
