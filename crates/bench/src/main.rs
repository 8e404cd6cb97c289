//! Makes the data sets of the benchmarks from a seed: the same bytes on every machine. And reads a file once, as
//! the measure for scans.

mod read;
mod sessions;

use clap::{Parser, Subcommand, ValueEnum};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use stead::units;

/// Make a data set of the benchmarks, or read a file
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    data: Option<Made>,
}

#[derive(Subcommand)]
enum Other {
    Sessions(sessions::Sessions),
}

#[derive(clap::Args)]
struct Made {
    /// What to make
    kind: Data,
    /// Where to write it; for 'read', what to read
    out: PathBuf,
    /// About how many bytes
    #[arg(long, default_value = "1GB", value_parser = |s: &str| units::parse_size(s).map_err(|e| e.to_string()))]
    bytes: u64,
    /// The seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Data {
    /// Log as CSV: timestamp, level, message, 8 numeric columns
    Log,
    /// Strings of 128 bytes: records of one length
    Strings,
    /// Rows of 10 f64 around 20 centres, for k-means
    Points,
    /// Rows of 64 f64
    Matrix,
    /// A cube of f32 with blobs, for rendering
    Volume,
    /// A standard Tipsy file: 3 gas, 5 dark and 2 star particles in ten
    Particles,
    /// Nothing: look at every byte of a file once, with all cores, and say how long it took
    Read,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let Some(a) = args.data else {
        let Some(Other::Sessions(a)) = args.other else { return ExitCode::FAILURE };
        let mut print = |line: String| {
            let _ = writeln!(std::io::stdout(), "{line}");
        };
        return match sessions::measure(&a, &mut print) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                let _ = writeln!(std::io::stderr(), "stead-bench: {e}");
                ExitCode::FAILURE
            }
        };
    };
    let done = match a.kind {
        Data::Read => read::once(&a.out)
            .map_err(|e| e.to_string())
            .and_then(|s| writeln!(std::io::stdout(), "{s}").map_err(|e| e.to_string())),
        _ => make(&a).map_err(|e| e.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "stead-bench: {}: {e}", a.out.display());
            ExitCode::FAILURE
        }
    }
}

struct Random(Pcg64Mcg);

impl Random {
    /// Uniform in 0..1.
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.unit() * n as f64) as u64
    }

    /// Close to normal: the sum of twelve uniforms.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

fn make(a: &Made) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, std::fs::File::create(&a.out)?);
    let mut r = Random(Pcg64Mcg::seed_from_u64(a.seed));
    match a.kind {
        Data::Read => {}
        Data::Log => log(&mut out, &mut r, a.bytes)?,
        Data::Strings => {
            for i in 0..a.bytes / 128 {
                let hit = r.below(1000) == 0;
                let mut line: Vec<u8> = (0..127).map(|_| b'a' + r.below(26) as u8).collect();
                if hit {
                    line[40..52].copy_from_slice(b"needle-in-it");
                }
                let number = format!("{i:09}");
                line[..9].copy_from_slice(number.as_bytes());
                line.push(b'\n');
                out.write_all(&line)?;
            }
        }
        Data::Points => {
            let rows = a.bytes / 80;
            npy(&mut out, &format!("({rows}, 10)"), "<f8")?;
            let centres: Vec<[f64; 10]> =
                (0..20).map(|_| std::array::from_fn(|_| r.unit() * 100.0)).collect();
            for _ in 0..rows {
                let c = centres[r.below(20) as usize];
                for x in c {
                    out.write_all(&(x + r.normal() * 5.0).to_le_bytes())?;
                }
            }
        }
        Data::Matrix => {
            let rows = a.bytes / 512;
            npy(&mut out, &format!("({rows}, 64)"), "<f8")?;
            for _ in 0..rows * 64 {
                out.write_all(&(r.unit() - 0.5).to_le_bytes())?;
            }
        }
        Data::Volume => {
            let n = ((a.bytes / 4) as f64).cbrt().round() as u64;
            npy(&mut out, &format!("({n}, {n}, {n})"), "<f4")?;
            let blobs: Vec<[f64; 4]> =
                (0..30).map(|_| [r.unit(), r.unit(), r.unit(), 0.02 + 0.1 * r.unit()]).collect();
            let at = |i: u64| (i as f64 + 0.5) / n as f64;
            for z in 0..n {
                for y in 0..n {
                    for x in 0..n {
                        let v: f64 = blobs
                            .iter()
                            .map(|[bx, by, bz, s]| {
                                let (dx, dy, dz) = (at(x) - bx, at(y) - by, at(z) - bz);
                                (1.0 - (dx * dx + dy * dy + dz * dz) / (s * s)).max(0.0)
                            })
                            .sum();
                        out.write_all(&(v as f32).to_le_bytes())?;
                    }
                }
            }
        }
        Data::Particles => particles(&mut out, &mut r, a.bytes)?,
    }
    out.flush()
}

/// Records of 12, 9 and 11 floats: a mass, positions, velocities, and what else a species has.
fn particles(out: &mut impl Write, r: &mut Random, bytes: u64) -> std::io::Result<()> {
    let ten = bytes / (3 * 48 + 5 * 36 + 2 * 44);
    let counts = [3 * ten, 5 * ten, 2 * ten];
    let (single, order) = (stead::DType::F32, stead::ByteOrder::Big);
    let header = stead::tipsy::Header::new(1.0, counts, order, single, single)
        .map_err(std::io::Error::other)?;
    out.write_all(&header.encode())?;
    for (n, rest) in counts.into_iter().zip([5, 2, 4]) {
        for _ in 0..n {
            out.write_all(&(1e-8 * (1.0 + r.unit()) as f32).to_be_bytes())?;
            for _ in 0..6 {
                out.write_all(&((r.unit() - 0.5) as f32).to_be_bytes())?;
            }
            for _ in 0..rest {
                out.write_all(&(r.unit() as f32).to_be_bytes())?;
            }
        }
    }
    Ok(())
}

fn log(out: &mut impl Write, r: &mut Random, bytes: u64) -> std::io::Result<()> {
    const LEVELS: [&str; 5] = ["DEBUG", "INFO", "INFO", "WARN", "ERROR"];
    const WORDS: [&str; 12] = [
        "disk", "read", "write", "timeout", "node", "retry", "ok", "cache", "miss", "queue",
        "flush", "done",
    ];
    let header = "timestamp,level,message,bytes,latency_ms,cpu,mem,temp,load,errors,score\n";
    out.write_all(header.as_bytes())?;
    let mut written = header.len() as u64;
    let mut second = 1_600_000_000u64;
    while written < bytes {
        second += r.below(3);
        let s = format!(
            "{second},{},{} {} {},{},{:.3},{:.4},{},{:.2},{:.6},{},{:.5e}\n",
            LEVELS[r.below(5) as usize],
            WORDS[r.below(12) as usize],
            WORDS[r.below(12) as usize],
            r.below(10_000),
            r.below(1 << 24),
            r.unit() * 250.0,
            r.unit(),
            r.below(1 << 34),
            20.0 + r.unit() * 70.0,
            r.normal() * 3.0,
            r.below(4),
            r.normal() * 1e4,
        );
        out.write_all(s.as_bytes())?;
        written += s.len() as u64;
    }
    Ok(())
}

/// A version 1 header, padded to 128 bytes.
fn npy(out: &mut impl Write, shape: &str, descr: &str) -> std::io::Result<()> {
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    out.write_all(b"\x93NUMPY\x01\x00\x76\x00")?;
    out.write_all(format!("{dict:<117}\n").as_bytes())
}
