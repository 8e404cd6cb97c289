//! What ranks of both kinds say to each other. Whatever comes from another rank may be anything: it becomes an error.
//!
//! Each message begins with the version of who sends it; a head of a few bytes follows, and behind it a job or a report.

use super::{Job, View};
use crate::Snapshot;
use crate::meeting;
use crate::outputs::Carried;
use crate::report::{Metrics, Plan, PlannedKernel, RankMetrics, Report};
use crate::told::Told;
use crate::values;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use stead_core::{Error, Result, Value, limits};
use stead_format::OpenOptions;
use stead_store::{Engine, IoOptions};

/// What compute ranks say to the head.
pub const ASKS: u32 = 0x5400_0000;
/// What the head says to other storage ranks.
pub const ORDERS: u32 = 0x5400_0001;
/// What the head says to a compute rank: of each ask under way a tag.
pub const ANSWERS: u32 = 0x5400_0010;
/// That nothing will be answered any more, and why.
pub const OVER: u32 = 0x5400_0002;
/// Asks of a compute rank that are under way.
pub const SLOTS: usize = 16;

/// From a compute rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// A job, which follows; a large one when there is room. The answer comes with the tag of the slot; `number` is that of no other ask of this rank.
    Run { slot: u8, number: u64, watched: bool },
    /// Of a job of so many bytes, which is sent when there is room for it.
    Room { slot: u8, number: u64, bytes: u64 },
    /// An ask is not wanted any more.
    Cancel { number: u64 },
    /// It will ask for nothing more.
    Bye,
}

/// From the head to the other storage ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// All storage ranks run the job that follows.
    Run,
    /// Nobody asks any more.
    End,
}

/// From the head to a compute rank, about the ask of that number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Pass, bytes, bytes of the pass, rows, seconds.
    Far {
        number: u64,
        far: (u64, u64, u64, u64, f64),
    },
    /// There is room for it.
    Room {
        number: u64,
    },
    /// A report follows.
    Done {
        number: u64,
    },
    Failed {
        number: u64,
        why: Told,
    },
}

impl Answer {
    pub fn far(number: u64, s: &Snapshot) -> Answer {
        Answer::Far { number, far: (s.pass, s.bytes, s.total_bytes, s.rows, s.seconds) }
    }

    /// Which ask it is about.
    pub fn number(&self) -> u64 {
        match self {
            Answer::Far { number, .. }
            | Answer::Room { number }
            | Answer::Done { number }
            | Answer::Failed { number, .. } => *number,
        }
    }
}

pub fn malformed() -> Error {
    Error::format("a message from another rank is malformed")
}

/// A message.
pub fn frame(head: &impl Serialize, rest: &[u8]) -> Result<Vec<u8>> {
    let mut out = vec![meeting::NAME.len() as u8];
    out.extend_from_slice(meeting::NAME.as_bytes());
    let head = postcard::to_stdvec(head)
        .map_err(|e| Error::internal(format!("cannot encode a message: {e}")))?;
    out.extend_from_slice(&head);
    out.extend_from_slice(rest);
    Ok(out)
}

/// The head of a message, and what follows it.
///
/// # Errors
/// `Usage` if it comes from another version of stead, `Format` for what is no message.
pub fn open<T: DeserializeOwned>(frame: &[u8]) -> Result<(T, &[u8])> {
    let (len, rest) = frame.split_first().ok_or_else(malformed)?;
    let (name, rest) = rest.split_at_checked(usize::from(*len)).ok_or_else(malformed)?;
    if name != meeting::NAME.as_bytes() {
        let theirs = String::from_utf8_lossy(name);
        let plain = !theirs.is_empty() && theirs.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        if !plain {
            return Err(malformed());
        }
        return Err(Error::usage(format!(
            "ranks run different versions of stead: {} here and {theirs} on another one",
            meeting::NAME
        ))
        .with_hint("start the same version on all ranks"));
    }
    postcard::take_from_bytes(rest).map_err(|_| malformed())
}

/// What a view is made of.
type Pattern = (u64, u64, Vec<(u64, u64)>, u64, u64);

/// A job as bytes.
#[derive(Serialize, Deserialize)]
struct Asked {
    inputs: Vec<String>,
    open: OpenOptions,
    view: Option<Pattern>,
    file_bytes: Option<u64>,
    kernels: Vec<String>,
    operations: Vec<String>,
    filter: Option<String>,
    by: Vec<String>,
    threads: u64,
    memory: u64,
    chunk: u64,
    engine: u8,
    depth: u64,
    direct: bool,
    lenient: bool,
}

const ENGINES: [Engine; 3] = [Engine::Auto, Engine::Uring, Engine::Pread];

impl Job {
    /// As bytes.
    ///
    /// # Errors
    /// `Limit` above [`limits::MAX_JOB_BYTES`].
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let view = |v: &View| {
            let (displacement, extent, runs, skip, bytes) = v.parts();
            (displacement, extent, runs.to_vec(), skip, bytes)
        };
        let engine = ENGINES.iter().position(|e| *e == self.io.engine).unwrap_or(0) as u8;
        let asked = Asked {
            inputs: self.inputs.clone(),
            open: self.open.clone(),
            view: self.view.as_ref().map(view),
            file_bytes: self.file_bytes,
            kernels: self.kernels.clone(),
            operations: self.operations.clone(),
            filter: self.filter.clone(),
            by: self.by.clone(),
            threads: self.threads as u64,
            memory: self.memory,
            chunk: self.chunk as u64,
            engine,
            depth: self.io.depth as u64,
            direct: self.io.direct,
            lenient: self.lenient,
        };
        let bytes = postcard::to_stdvec(&asked)
            .map_err(|e| Error::internal(format!("cannot encode a job: {e}")))?;
        if bytes.len() > limits::MAX_JOB_BYTES {
            return Err(Error::limit(format!(
                "what is asked for takes {} bytes; at most {} are sent",
                bytes.len(),
                limits::MAX_JOB_BYTES
            ))
            .with_hint("name a glob or a directory in place of its files"));
        }
        Ok(bytes)
    }

    /// From bytes.
    ///
    /// # Errors
    /// `Format` for what is none; those of [`View::new`].
    pub(super) fn decode(bytes: &[u8]) -> Result<Job> {
        if bytes.len() > limits::MAX_JOB_BYTES {
            return Err(malformed());
        }
        let (a, rest) = postcard::take_from_bytes::<Asked>(bytes).map_err(|_| malformed())?;
        if !rest.is_empty() {
            return Err(malformed());
        }
        let size = |n: u64| usize::try_from(n).map_err(|_| malformed());
        let view = a.view.map(|(d, e, runs, s, b)| View::new(d, e, runs, s, b)).transpose()?;
        let engine = ENGINES.get(usize::from(a.engine)).copied().ok_or_else(malformed)?;
        Ok(Job {
            inputs: a.inputs,
            open: a.open,
            view,
            file_bytes: a.file_bytes,
            kernels: a.kernels,
            operations: a.operations,
            filter: a.filter,
            by: a.by,
            threads: size(a.threads)?,
            memory: a.memory,
            chunk: size(a.chunk)?,
            io: IoOptions { engine, depth: size(a.depth)?, direct: a.direct },
            lenient: a.lenient,
        })
    }
}

/// A report without its values, which follow: first those of results, then those of the scan. Then come the files.
#[derive(Serialize, Deserialize)]
struct Answered {
    results: Vec<String>,
    scan: Vec<String>,
    plan: Planned,
    took: Took,
    /// What files are to be called, and how many bytes they have.
    files: Vec<(Vec<u8>, u64)>,
}

#[derive(Serialize, Deserialize)]
struct Planned {
    format: String,
    files: u64,
    bytes: u64,
    threads: u64,
    ranks: u64,
    nodes: u64,
    vectors: String,
    chunk_bytes: u64,
    memory_bytes: u64,
    filter: Option<String>,
    by: Vec<String>,
    kernels: Vec<PlannedKernel>,
}

/// [`Metrics`], all of whose members are always there.
#[derive(Serialize, Deserialize)]
struct Took {
    seconds: f64,
    cpu_seconds: f64,
    passes: u64,
    bytes_read: u64,
    rows: Option<u64>,
    rows_kept: Option<u64>,
    rows_skipped: u64,
    integers_rounded: u64,
    bytes_per_second: f64,
    core_seconds_per_gb: f64,
    peak_memory_bytes: u64,
    bytes_sent: u64,
    bytes_fetched: u64,
    ranks: Vec<RankMetrics>,
}

/// A report and files, as bytes.
pub fn encode_report(report: Report, files: Carried) -> Result<Vec<u8>> {
    let Report { results, plan, metrics } = report;
    let Plan {
        format,
        files: of_files,
        bytes,
        threads,
        ranks,
        nodes,
        vectors,
        chunk_bytes,
        memory_bytes,
        // Who asks had no choice.
        place: _,
        filter,
        by,
        kernels,
        scan,
    } = plan;
    let m = metrics;
    let names = |pairs: &[(String, Value)]| pairs.iter().map(|(name, _)| name.clone()).collect();
    let told = Answered {
        results: names(&results),
        scan: names(&scan),
        plan: Planned {
            format,
            files: of_files as u64,
            bytes,
            threads: threads as u64,
            ranks: ranks as u64,
            nodes: nodes as u64,
            vectors: vectors.to_owned(),
            chunk_bytes: chunk_bytes as u64,
            memory_bytes,
            filter,
            by,
            kernels,
        },
        took: Took {
            seconds: m.seconds,
            cpu_seconds: m.cpu_seconds,
            passes: m.passes,
            bytes_read: m.bytes_read,
            rows: m.rows,
            rows_kept: m.rows_kept,
            rows_skipped: m.rows_skipped,
            integers_rounded: m.integers_rounded,
            bytes_per_second: m.bytes_per_second,
            core_seconds_per_gb: m.core_seconds_per_gb,
            peak_memory_bytes: m.peak_memory_bytes,
            bytes_sent: m.bytes_sent,
            bytes_fetched: m.bytes_fetched,
            ranks: m.ranks,
        },
        files: files
            .iter()
            .map(|(path, bytes)| (path.as_os_str().as_bytes().to_vec(), bytes.len() as u64))
            .collect(),
    };
    let mut out = postcard::to_stdvec(&told)
        .map_err(|e| Error::internal(format!("cannot encode a report: {e}")))?;
    results.iter().chain(&scan).try_for_each(|(_, value)| values::put(value, &mut out))?;
    files.iter().for_each(|(_, bytes)| out.extend_from_slice(bytes));
    Ok(out)
}

/// A report and files, from bytes.
///
/// # Errors
/// `Format` for what is none.
pub fn decode_report(bytes: &[u8]) -> Result<(Report, Carried)> {
    let (told, mut rest) = postcard::take_from_bytes::<Answered>(bytes).map_err(|_| malformed())?;
    let mut values = |names: Vec<String>| {
        let value = |name| Ok((name, values::take(&mut rest)?));
        names.into_iter().map(value).collect::<Result<Vec<_>>>()
    };
    let (results, scan) = (values(told.results)?, values(told.scan)?);
    let file = |(path, len): (Vec<u8>, u64)| {
        let len = usize::try_from(len).map_err(|_| malformed())?;
        let (bytes, after) = rest.split_at_checked(len).ok_or_else(malformed)?;
        rest = after;
        Ok((PathBuf::from(OsStr::from_bytes(&path)), bytes.to_vec()))
    };
    let files = told.files.into_iter().map(file).collect::<Result<_>>()?;
    if !rest.is_empty() {
        return Err(malformed());
    }
    let size = |n: u64| usize::try_from(n).map_err(|_| malformed());
    let (p, m) = (told.plan, told.took);
    let known = ["avx512", "avx2", "neon", "portable"];
    let vectors = known.into_iter().find(|v| *v == p.vectors).unwrap_or("other");
    let plan = Plan {
        format: p.format,
        files: size(p.files)?,
        bytes: p.bytes,
        threads: size(p.threads)?,
        ranks: size(p.ranks)?,
        nodes: size(p.nodes)?,
        vectors,
        chunk_bytes: size(p.chunk_bytes)?,
        memory_bytes: p.memory_bytes,
        place: None,
        filter: p.filter,
        by: p.by,
        kernels: p.kernels,
        scan,
    };
    let metrics = Metrics {
        seconds: m.seconds,
        cpu_seconds: m.cpu_seconds,
        passes: m.passes,
        bytes_read: m.bytes_read,
        rows: m.rows,
        rows_kept: m.rows_kept,
        rows_skipped: m.rows_skipped,
        integers_rounded: m.integers_rounded,
        bytes_per_second: m.bytes_per_second,
        core_seconds_per_gb: m.core_seconds_per_gb,
        peak_memory_bytes: m.peak_memory_bytes,
        bytes_sent: m.bytes_sent,
        bytes_fetched: m.bytes_fetched,
        ranks: m.ranks,
    };
    Ok((Report { results, plan, metrics }, files))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tests::value;
    use proptest::prelude::*;
    use stead_core::Kind;

    fn job() -> Job {
        Job {
            inputs: vec!["a".into(), "b/%r".into()],
            open: OpenOptions {
                format: Some(stead_format::FormatType::Csv),
                missing: Some(vec!["x".into()]),
                ..OpenOptions::default()
            },
            view: Some(View::new(3, 64, vec![(0, 8), (16, 1)], 5, 99).unwrap()),
            file_bytes: Some(1 << 40),
            kernels: vec!["mean:x".into()],
            operations: vec!["mine".into()],
            filter: Some("x > 1".into()),
            by: vec!["g".into()],
            threads: 3,
            memory: 1 << 40,
            chunk: 77,
            io: IoOptions { engine: Engine::Pread, depth: 9, direct: true },
            lenient: true,
        }
    }

    fn report(values: Vec<Value>) -> Report {
        let named = |(i, v)| (format!("k{i}"), v);
        let results: Vec<(String, Value)> = values.into_iter().enumerate().map(named).collect();
        let plan = Plan {
            vectors: "avx2",
            kernels: vec![PlannedKernel {
                answers: vec!["k0".into()],
                columns: vec!["x".into()],
                bytes: true,
                passes: 2,
            }],
            scan: vec![("engine".into(), Value::Text("pread".into()))],
            ..Plan::default()
        };
        let metrics =
            Metrics { rows: Some(3), ranks: vec![RankMetrics::default()], ..Metrics::default() };
        Report { results, plan, metrics }
    }

    /// The same to the bit, NaN too.
    fn text_of(r: &Report) -> String {
        format!("{r:?}")
    }

    /// Bits of all floats.
    fn bits(v: &Value, out: &mut Vec<u64>) {
        match v {
            Value::Float(f) => out.push(f.to_bits()),
            Value::List(all) => all.iter().for_each(|v| bits(v, out)),
            Value::Map(all) => all.iter().for_each(|(_, v)| bits(v, out)),
            _ => {}
        }
    }

    #[test]
    fn jobs_come_as_they_were_sent() {
        for job in [job(), Job::default()] {
            let back = Job::decode(&job.encode().unwrap()).unwrap();
            assert_eq!(format!("{back:?}"), format!("{job:?}"));
        }
        let bytes = job().encode().unwrap();
        for len in 0..bytes.len() {
            assert_eq!(Job::decode(&bytes[..len]).unwrap_err().kind(), Kind::Format, "{len}");
        }
        let many = Job { inputs: vec!["x".repeat(1 << 20); 100], ..Job::default() };
        assert_eq!(many.encode().unwrap_err().kind(), Kind::Limit);
    }

    #[test]
    fn messages_of_other_versions_are_told() {
        let whole = frame(&Ask::Bye, b"rest").unwrap();
        assert_eq!(open::<Ask>(&whole).unwrap(), (Ask::Bye, &b"rest"[..]));
        let mut other = b"\x07stead 9".to_vec();
        other.extend_from_slice(&[1, 2, 3]);
        let e = open::<Ask>(&other).unwrap_err();
        assert!(e.kind() == Kind::Usage && e.message().contains("stead 9 on another one"), "{e}");
        for bad in [&[][..], &[0], &[200, 1], &[3, 1, 2, 3], &whole[..whole.len() - 5]] {
            assert_eq!(open::<Ask>(bad).unwrap_err().kind(), Kind::Format, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn reports_come_as_they_were_sent(values in prop::collection::vec(value(), 0..5), file in ".{0,20}") {
            let files = vec![(PathBuf::from("a b/ü.png"), file.into_bytes())];
            let sent = report(values);
            let bytes = encode_report(sent.clone(), files.clone()).unwrap();
            let (back, carried) = decode_report(&bytes).unwrap();
            prop_assert_eq!(text_of(&back), text_of(&sent));
            let all = |r: &Report| {
                let mut all = Vec::new();
                r.results.iter().for_each(|(_, v)| bits(v, &mut all));
                all
            };
            prop_assert_eq!(all(&back), all(&sent));
            prop_assert_eq!(carried, files);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = open::<Ask>(&bytes).map(drop);
            let _ = open::<Answer>(&bytes).map(drop);
            let _ = Job::decode(&bytes).map(drop);
            let _ = decode_report(&bytes).map(drop);
        }

        #[test]
        fn no_changed_bytes_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let frames = [
                job().encode().unwrap(),
                encode_report(report(vec![Value::floats([1.0, 2.0]), Value::map([("a", Value::Int(1))])]), vec![]).unwrap(),
            ];
            for mut bytes in frames {
                let at = at.index(bytes.len());
                bytes[at] = byte;
                bytes.truncate(1 + cut.index(bytes.len()));
                let _ = Job::decode(&bytes).map(drop);
                let _ = decode_report(&bytes).map(drop);
            }
        }
    }
}
