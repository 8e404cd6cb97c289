//! Files, stripes and ranks, for the tests beside this folder.

// Each of these tests takes what it needs of it.
#![allow(dead_code, clippy::expect_used, clippy::panic)]

pub mod cases;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stead::fabric::{Fabric, Local};
use stead::layout::Get;
use stead::ranks::Here;
use stead::{Dataset, Error, Request, Result, Value};
use stead_core::layout::{Layout, Part};

/// Rows with quotes, some of them around newlines, missing values, and values of any size.
pub fn table(rows: usize) -> String {
    let row = |i: usize| {
        let x = match i % 9 {
            0 => "NA".to_owned(),
            1 => format!("{i}e200"),
            2 => format!("-{i}.5e-200"),
            _ => format!("{}.25", i * 37 % 101),
        };
        let note = match i % 5 {
            0 => format!("\"two\nlines, {i}\""),
            1 => format!("\"he said \"\"{i}\"\"\""),
            _ => format!("plain {i}"),
        };
        format!("{i},{x},g{},{note}\n", i % 3)
    };
    std::iter::once("id,x,group,note\n".to_owned()).chain((0..rows).map(row)).collect()
}

/// A version 1 `.npy` of f64.
pub fn npy(shape: &str, fortran: &str, values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    let mut out = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    let dict = format!("{{'descr': '<f8', 'fortran_order': {fortran}, 'shape': ({shape}), }}");
    out.extend_from_slice(format!("{dict:<117}\n").as_bytes());
    values.into_iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
    out
}

/// So many values, none of them in order.
pub fn wave(values: usize) -> impl Iterator<Item = f64> {
    (0..values).map(|i| (i * 37 % 101) as f64 / 7.0)
}

pub fn request(kernels: &[&str]) -> Request {
    Request { kernels: kernels.iter().map(|k| k.to_string()).collect(), ..Request::default() }
}

pub fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).expect("write");
    path
}

pub fn named(path: &Path) -> Vec<String> {
    vec![path.to_string_lossy().into_owned()]
}

pub fn open(path: &Path) -> Dataset {
    stead::open(&named(path)).expect("open")
}

pub fn text(results: &[(String, Value)]) -> String {
    serde_json::to_string(&Value::Map(results.to_vec())).expect("json")
}

/// All files under a folder.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Puts a file over nodes in stripes of so many bytes; its layout.
pub fn put(dir: &Path, name: &str, bytes: &[u8], stripe: u64, nodes: &[&str]) -> PathBuf {
    let folder = dir.join(format!("{name}.{stripe}.{}", nodes.len()));
    std::fs::create_dir_all(&folder).expect("folder");
    let place = |(i, node): (usize, &&str)| {
        Part::new(*node, folder.join(format!("part{i}")).to_string_lossy())
    };
    let parts = nodes.iter().enumerate().map(place).collect();
    let layout = Layout::even(name, bytes.len() as u64, stripe, parts).expect("layout");
    let mut files = vec![Vec::new(); nodes.len()];
    for p in layout.pieces(0..layout.length()) {
        files[p.part].extend_from_slice(&bytes[p.offset as usize..(p.offset + p.len) as usize]);
    }
    for (part, file) in layout.parts().iter().zip(files) {
        std::fs::write(&part.path, file).expect("part");
    }
    write(&folder, &format!("{name}.stead-layout.toml"), layout.to_string())
}

/// An output, which is removed: a file, or a layout of parts near the data.
pub fn output(path: &Path, scattered: bool) -> Vec<u8> {
    let layout = PathBuf::from(format!("{}.stead-layout.toml", path.display()));
    assert_eq!(layout.exists(), scattered, "{}", path.display());
    assert_eq!(path.exists(), !scattered, "{}", path.display());
    if !scattered {
        let bytes = std::fs::read(path).expect("output");
        std::fs::remove_file(path).expect("remove");
        return bytes;
    }
    let back = path.with_extension("back");
    let get = Get { layout: layout.clone(), output: Some(back.clone()), ..Get::default() };
    stead::layout::get(&get, None).expect("get");
    let bytes = std::fs::read(&back).expect("output");
    for part in stead::layout::read(&layout).expect("layout").parts() {
        std::fs::remove_file(&part.path).expect("remove");
    }
    std::fs::remove_file(&layout).expect("remove");
    std::fs::remove_file(&back).expect("remove");
    bytes
}

/// What each of these ranks gets.
fn all<F: Fabric, T: Send>(group: impl Iterator<Item = F>, work: impl Fn(F) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = group.map(|f| scope.spawn(move || work(f))).collect();
        all.into_iter().map(|t| t.join().expect("no panic")).collect()
    })
}

/// What each rank of a group on one node gets; nobody waits for another one longer than a test may take.
pub fn each_of<T: Send>(ranks: usize, work: impl Fn(&Local) -> T + Sync) -> Vec<T> {
    let group = Local::group_with_deadline(ranks, Duration::from_secs(60));
    all(group.into_iter(), |fabric| work(&fabric))
}

/// What ranks on these hosts get.
pub fn each<T: Send>(
    hosts: &[&str],
    work: impl Fn(&Arc<dyn Fabric>, &Here) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let nodes: Vec<usize> =
        hosts.iter().map(|h| hosts.iter().position(|o| o == h).unwrap_or(0)).collect();
    let group = Local::over_nodes(&nodes, Duration::from_secs(60));
    all(group.into_iter(), |fabric| {
        let here = Here { host: hosts[fabric.rank()].to_owned(), folder: None };
        work(&(Arc::new(fabric) as Arc<dyn Fabric>), &here)
    })
}

/// The error of all ranks, which tell the same one.
pub fn error<T>(all: Vec<Result<T>>) -> Error {
    let told = |r: Result<T>| r.err().expect("an error");
    let mut errors: Vec<Error> = all.into_iter().map(told).collect();
    let first = errors.remove(0);
    for other in errors {
        assert_eq!((other.to_string(), other.kind()), (first.to_string(), first.kind()));
    }
    first
}
