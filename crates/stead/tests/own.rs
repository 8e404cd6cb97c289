//! Kernels that the caller brings, and data that lie in memory.

#![allow(clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stead::kernels::{Block, Kernel, Needs, Own, Step};
use stead::{DType, Dataset, Error, Kind, OpenOptions, Request, Result, TableColumn, Value};

/// Number of values above a limit.
struct Above {
    column: usize,
    limit: f64,
}

impl Kernel for Above {
    type State = u64;

    fn needs(&self) -> Needs {
        Needs { numbers: vec![self.column], ..Needs::default() }
    }

    fn init(&self) -> u64 {
        0
    }

    fn update(&self, state: &mut u64, block: &Block<'_>) -> Result<()> {
        *state += block.numbers(self.column).iter().filter(|x| **x > self.limit).count() as u64;
        Ok(())
    }

    fn merge(&self, state: &mut u64, other: u64) -> Result<()> {
        *state += other;
        Ok(())
    }

    fn finish(&self, state: u64) -> Result<Step> {
        Ok(Step::Done(Value::Int(state)))
    }
}

fn above(limit: f64) -> Own {
    Own::new("above", move |c| Ok(Above { column: c.schema.column("x")?, limit }))
}

fn table() -> Dataset {
    let x: Vec<u8> = (0..10_000).flat_map(|i| f64::from(i).to_ne_bytes()).collect();
    let k: Vec<u8> = (0..10_000).map(|i| (i % 3) as u8).collect();
    let column = |name: &str, dtype, data: Vec<u8>| TableColumn {
        name: name.into(),
        dtype,
        data: Arc::new(data),
    };
    Dataset::table(vec![column("x", DType::F64, x), column("k", DType::U8, k)]).expect("table")
}

fn request(own: Own) -> Request {
    Request { own: vec![own], chunk: 4096, ..Request::default() }
}

#[test]
fn a_kernel_of_ones_own_runs_beside_others() {
    for threads in [1, 3] {
        let r = Request { kernels: vec!["mean:x".into()], threads, ..request(above(9000.0)) };
        let report = stead::run(&table(), &r, None).expect("run");
        assert_eq!(report.result("above"), Some(&Value::Int(999)));
        assert_eq!(report.result("mean:x"), Some(&Value::Float(4999.5)));
    }
}

#[test]
fn it_takes_part_in_filters_and_groups() {
    let r =
        Request { filter: Some("x < 9003".into()), by: vec!["k".into()], ..request(above(9000.0)) };
    let report = stead::run(&table(), &r, None).expect("run");
    let groups = report.result("above").expect("result");
    let of = |k: &str| groups.get(k).cloned();
    assert_eq!(
        [of("0"), of("1"), of("2")],
        [Some(Value::Int(0)), Some(Value::Int(1)), Some(Value::Int(1))]
    );
}

#[test]
fn mistakes_are_told() {
    let run = |r: &Request| stead::run(&table(), r, None).map_err(|e| (e.kind(), e.to_string()));
    let twice = Request { own: vec![above(1.0), above(2.0)], ..Request::default() };
    assert!(matches!(run(&twice), Err((Kind::Usage, m)) if m.contains("above")));
    let unknown =
        request(Own::new("y", |c| Ok(Above { column: c.schema.column("nope")?, limit: 0.0 })));
    assert!(matches!(run(&unknown), Err((Kind::Usage, m)) if m.contains("nope")));
    let bytes = Request { kernels: vec!["entropy".into()], ..Request::default() };
    assert!(matches!(run(&bytes), Err((Kind::Usage, _))));
    let beside = Request { kernels: vec!["normalize:x".into()], ..Request::default() };
    assert!(matches!(run(&beside), Err((Kind::Usage, m)) if m.contains("out=")));
}

/// Wants the order of the data in the second pass alone.
struct Later(bool);

impl Kernel for Later {
    type State = u64;

    fn needs(&self) -> Needs {
        Needs { rows: true, order: self.0, ..Needs::default() }
    }

    fn init(&self) -> u64 {
        0
    }

    fn update(&self, _: &mut u64, _: &Block<'_>) -> Result<()> {
        Ok(())
    }

    fn merge(&self, _: &mut u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn finish(&self, _: u64) -> Result<Step> {
        Ok(Step::Next(Arc::new(Later(true))))
    }
}

#[test]
fn who_wants_the_order_says_so_in_the_first_pass() {
    let late = request(Own::new("late", |_| Ok(Later(false))));
    let e = stead::run(&table(), &late, None).map(drop).expect_err("refused");
    assert!(e.kind() == Kind::Usage && e.message().contains("in a later pass"), "{e}");
}

#[test]
fn text_in_memory_is_a_dataset() {
    let text = stead::open_memory("delays.csv", "x,y\n1,2\n3,4\n", &OpenOptions::default());
    let r = Request { kernels: vec!["sum:y".into()], ..request(above(1.0)) };
    let report = stead::run(&text.expect("open"), &r, None).expect("run");
    assert_eq!(report.result("sum:y"), Some(&Value::Float(6.0)));
    assert_eq!(report.result("above"), Some(&Value::Int(1)));
}

#[test]
fn clusters_of_a_table_are_found() {
    for (init, chunk) in [("kmeans++", 64), ("random", 4096), ("kmeans++", 4096)] {
        let kernel = format!("kmeans:k,k=3,init={init}");
        let r = Request { kernels: vec![kernel.clone()], chunk, ..Request::default() };
        let report = stead::run(&table(), &r, None).expect("run");
        let inertia = report.result(&kernel).and_then(|v| v.get("inertia")).cloned();
        assert_eq!(inertia, Some(Value::Float(0.0)));
    }
}

/// Gives up at its first block, and is slow at all others.
struct Tired(Arc<AtomicU64>);

impl Kernel for Tired {
    type State = u64;

    fn needs(&self) -> Needs {
        Needs { rows: true, ..Needs::default() }
    }

    fn init(&self) -> u64 {
        0
    }

    fn update(&self, _: &mut u64, _: &Block<'_>) -> Result<()> {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(Error::cancelled());
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        Ok(())
    }

    fn merge(&self, _: &mut u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn finish(&self, _: u64) -> Result<Step> {
        Ok(Step::Done(Value::Null))
    }
}

#[test]
fn a_kernel_that_gives_up_stops_all_workers() {
    let calls = Arc::new(AtomicU64::new(0));
    let own = {
        let calls = calls.clone();
        Own::new("tired", move |_| Ok(Tired(calls.clone())))
    };
    let r = Request { threads: 3, chunk: 1, ..request(own) };
    let e = stead::run(&table(), &r, None).map(|_| ()).map_err(|e| e.kind());
    assert_eq!(e, Err(Kind::Cancelled));
    // One for each of the rows, were it not for the one.
    assert!(calls.load(Ordering::Relaxed) < 10_000);
}
