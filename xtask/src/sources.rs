//! Rules on single files: length, banned calls, `unsafe`, large files, paths of somebody's machine.

use crate::Problem;

/// A tracked file.
#[derive(Debug, Clone)]
pub struct File {
    /// Relative to the root, with `/`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Its text, if it is UTF-8 and not large.
    pub text: Option<String>,
}

/// A tracked file must not be larger.
pub const LARGE: u64 = 1 << 20;
const WARN_LINES: usize = 600;
const MAX_LINES: usize = 800;
const CODE: &[&str] = &[".rs", ".py", ".c", ".cpp", ".h", ".hpp", ".sh"];
/// Made by a program out of files that are looked at themselves.
const GENERATED: &[&str] = &["include/stead.h", "include/stead_admin.h"];

/// A call that library code must not make.
struct Ban {
    /// What is looked for in a line, outside comments and tests.
    call: &'static str,
    /// Path prefixes where the ban holds.
    within: &'static [&'static str],
    /// Path prefixes where it does not.
    except: &'static [&'static str],
    /// What to use.
    instead: &'static str,
}

const LIBS: &[&str] = &["crates/"];
const PURE: &[&str] = &["crates/core/", "crates/simd/", "crates/kernel/", "crates/model/"];

const BANS: &[Ban] = &[
    Ban {
        call: "fs::read(",
        within: &["crates/format/", "crates/run/", "crates/kernel/", "crates/read/"],
        except: &[],
        instead: "data files are read through stead_store::Source, in bounded pieces",
    },
    Ban {
        call: "fs::read_to_string(",
        within: &["crates/format/", "crates/run/", "crates/kernel/", "crates/read/"],
        // It reads what the system says about the process.
        except: &["crates/run/src/clock.rs"],
        instead: "data files are read through stead_store::Source, in bounded pieces",
    },
    Ban {
        call: "read_to_end(",
        within: LIBS,
        except: &[],
        instead: "read into a buffer of fixed size; a file has no bound",
    },
    Ban {
        call: "std::fs",
        within: PURE,
        except: &[],
        instead: "this room does no I/O; whoever calls it hands in bytes",
    },
    Ban {
        call: "File::open",
        within: PURE,
        except: &[],
        instead: "this room does no I/O; whoever calls it hands in bytes",
    },
    Ban {
        call: "println!",
        within: LIBS,
        // What a build script prints is for Cargo.
        except: &[
            "crates/cli/",
            "crates/capi/build.rs",
            "crates/store/build_id.rs",
            "crates/mpi-capi/build.rs",
            "crates/read/build.rs",
            "crates/run/build.rs",
        ],
        instead: "libraries return values; only the command prints",
    },
    Ban {
        call: "Instant::now",
        within: LIBS,
        except: &[
            "crates/run/",
            "crates/mpi/src/clock.rs",
            "crates/read/src/clock.rs",
            "crates/read/tests/",
            "crates/stage/src/clock.rs",
            "crates/stream/src/clock.rs",
            "crates/stream/tests/",
            "crates/daemon/src/clock.rs",
            "crates/cli/",
            "crates/bench/",
        ],
        instead: "take the time, or a clock, from the caller",
    },
    Ban {
        call: "SystemTime::now",
        within: LIBS,
        except: &[
            "crates/daemon/src/clock.rs",
            "crates/read/src/clock.rs",
            "crates/stage/src/clock.rs",
            "crates/stream/src/clock.rs",
            "crates/cli/",
            "crates/bench/",
        ],
        instead: "take the time, or a clock, from the caller",
    },
    Ban {
        call: "thread::sleep",
        within: LIBS,
        // It plays a slow device; a limit of bytes a second waits for nothing but time; other processes do not say when
        // they are ready; and what people look at changes once in a while.
        except: &[
            "crates/store/src/faulty.rs",
            "crates/stage/src/",
            "crates/daemon/src/clock.rs",
            "crates/mpi/src/clock.rs",
            "crates/stream/src/clock.rs",
            "crates/cli/src/admin.rs",
            "crates/cli/src/handed.rs",
        ],
        instead: "wait for the event itself: a condition variable, a channel, a completion queue",
    },
    Ban {
        call: "spin_loop",
        within: LIBS,
        except: &[],
        instead: "nothing spins; wait on a condition variable or a channel",
    },
    Ban {
        call: "yield_now",
        within: LIBS,
        // MPI can be waited for in no other way than by asking; it sleeps when nothing moves. In models it says where
        // others may come in between.
        except: &[
            "crates/mpi/src/progress.rs",
            "crates/read/src/model.rs",
            "crates/read/src/sync.rs",
            "crates/stream/src/board/model.rs",
        ],
        instead: "nothing spins; wait on a condition variable or a channel",
    },
    Ban {
        call: "process::exit",
        within: LIBS,
        except: &["crates/cli/"],
        instead: "return an Error; only the command ends the process",
    },
    Ban { call: "TcpListener", within: LIBS, except: &[], instead: "stead opens no TCP port" },
    Ban {
        call: "static mut",
        within: LIBS,
        except: &[],
        instead: "a Mutex, an atomic or a OnceLock",
    },
    Ban {
        call: "from_utf8_unchecked",
        within: LIBS,
        except: &[],
        instead: "str::from_utf8, or work on bytes",
    },
];

/// Files that may hold `unsafe`: the functions of the C ABI, engines that talk to the system, and vector code. One
/// thought each.
const UNSAFE: &[&str] = &[
    "crates/capi/src/admin.rs",
    "crates/capi/src/block.rs",
    "crates/capi/src/builder.rs",
    "crates/capi/src/calibrate.rs",
    "crates/capi/src/cancel.rs",
    "crates/capi/src/daemon.rs",
    "crates/capi/src/daemon_flow.rs",
    "crates/capi/src/dataset.rs",
    "crates/capi/src/error.rs",
    "crates/capi/src/flow.rs",
    "crates/capi/src/guard.rs",
    "crates/capi/src/layout.rs",
    "crates/capi/src/listing.rs",
    "crates/capi/src/memory.rs",
    "crates/capi/src/offload.rs",
    "crates/capi/src/options.rs",
    "crates/capi/src/own.rs",
    "crates/capi/src/pending.rs",
    "crates/capi/src/persist.rs",
    "crates/capi/src/queue.rs",
    "crates/capi/src/ranks.rs",
    "crates/capi/src/region.rs",
    "crates/capi/src/report.rs",
    "crates/capi/src/request.rs",
    "crates/capi/src/run.rs",
    "crates/capi/src/session.rs",
    "crates/capi/src/stage.rs",
    "crates/capi/src/stage_request.rs",
    "crates/capi/src/stream.rs",
    "crates/capi/src/stream_buffer.rs",
    "crates/capi/src/stream_coupling.rs",
    "crates/capi/src/stream_reader.rs",
    "crates/capi/src/stream_step.rs",
    "crates/capi/src/stream_subscription.rs",
    "crates/capi/src/stream_writer.rs",
    "crates/capi/src/text.rs",
    "crates/capi/src/tipsy.rs",
    "crates/capi/src/under_way.rs",
    "crates/capi/src/value.rs",
    "crates/capi/src/versions.rs",
    "crates/capi/src/view.rs",
    "crates/cli/src/flow.rs",
    "crates/fabric/src/foreign.rs",
    "crates/fabric/src/functions.rs",
    "crates/flow/src/library.rs",
    "crates/format/src/delimited/four.rs",
    "crates/format/src/delimited/simd.rs",
    "crates/python/src/bytes.rs",
    "crates/python/src/flow.rs",
    "crates/python/src/lend.rs",
    "crates/python/src/ranks.rs",
    "crates/kernel/src/bytes/digits.rs",
    "crates/kernel/src/gram/tile.rs",
    "crates/kernel/src/render/sample.rs",
    "crates/mpi-capi/src/face.rs",
    "crates/mpi/src/raw.rs",
    "crates/simd/src/avx2.rs",
    "crates/simd/src/avx512.rs",
    "crates/simd/src/neon.rs",
    "crates/stage/src/gentle.rs",
    "crates/store/src/arena/piece.rs",
    "crates/store/src/buffer.rs",
    "crates/store/src/cache.rs",
    "crates/store/src/commons/fork.rs",
    "crates/store/src/commons/memory.rs",
    "crates/store/src/commons/mod.rs",
    "crates/store/src/layout.rs",
    "crates/store/src/mapped.rs",
    "crates/store/src/queue_reads.rs",
    "crates/store/src/segment.rs",
    "crates/store/src/shared.rs",
    "crates/store/src/sigbus.rs",
    "crates/store/src/uring.rs",
];

/// Checks all files.
pub fn check(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for f in files {
        if f.bytes > LARGE {
            problems.push(Problem::new(
                &f.path,
                format!("has {} bytes; data is fetched or generated, not committed", f.bytes),
            ));
        }
        let Some(text) = &f.text else { continue };
        problems.extend(length(&f.path, text));
        problems.extend(machine_paths(&f.path, text));
        if f.path.ends_with(".rs") {
            problems.extend(banned(&f.path, text));
        }
    }
    problems
}

fn length(path: &str, text: &str) -> Option<Problem> {
    let lines = text.lines().count();
    let code = CODE.iter().any(|e| path.ends_with(e)) && !GENERATED.contains(&path);
    if !code || lines <= WARN_LINES {
        return None;
    }
    Some(if lines > MAX_LINES {
        Problem::new(
            path,
            format!("has {lines} lines, more than {MAX_LINES}; one file, one thought: split it"),
        )
    } else {
        Problem::warning(path, format!("has {lines} lines; think of splitting it"))
    })
}

/// Paths that exist on one machine only. Written in pieces so that this file passes its own check.
const MACHINE: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

fn machine_paths(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (i, line) in text.lines().enumerate() {
        for m in MACHINE {
            // `docs/work/x` and `${HOME}/work/` are no absolute paths.
            let absolute = line.match_indices(m).any(|(at, _)| {
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}/*".contains(c))
            });
            if absolute {
                problems.push(Problem::new(
                    format!("{path}:{}", i + 1),
                    format!("names {m}, which is a path of one machine; make it relative"),
                ));
            }
        }
    }
    problems
}

/// The part of a line before a comment. A `//` inside a string cuts too much, which only makes the check
/// miss something, never complain wrongly.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

/// True if `word` stands in `line` with no letter, digit or `_` at either side.
fn has_word(line: &str, word: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    line.match_indices(word).any(|(at, _)| {
        edge(line[..at].chars().next_back()) && edge(line[at + word.len()..].chars().next())
    })
}

fn is_test_file(path: &str) -> bool {
    ["/tests/", "/benches/", "/examples/"].iter().any(|d| path.contains(d))
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs")
}

fn banned(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    if is_test_file(path) || path.starts_with("xtask/") {
        return problems;
    }
    for (i, line) in text.lines().enumerate() {
        // By the habit of the house a file's tests stand at its end.
        if line.starts_with("#[cfg(test)]")
            && !text.lines().nth(i + 1).is_some_and(|l| l.ends_with(';'))
        {
            break;
        }
        let place = || format!("{path}:{}", i + 1);
        let line = code(line);
        for b in BANS {
            let applies = b.within.iter().any(|p| path.starts_with(p))
                && !b.except.iter().any(|p| path.starts_with(p));
            if applies && line.contains(b.call) {
                problems.push(Problem::new(
                    place(),
                    format!("{} is banned here: {}", b.call.trim_end_matches('('), b.instead),
                ));
            }
        }
        if has_word(line, "unsafe") && path.starts_with("crates/") && !UNSAFE.contains(&path) {
            problems.push(Problem::new(
                place(),
                "unsafe is banned here; if there is no safe way, contain it in a file of its own and list it in xtask/src/sources.rs",
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(path: &str, text: &str) -> Vec<Problem> {
        check(&[File { path: path.into(), bytes: text.len() as u64, text: Some(text.into()) }])
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(one("crates/run/src/a.rs", &"\n".repeat(600)), []);
        assert!(one("crates/run/src/a.rs", &"\n".repeat(700))[0].warning);
        assert!(!one("crates/run/src/a.rs", &"\n".repeat(801))[0].warning);
        assert_eq!(one("Cargo.lock", &"\n".repeat(9000)), []);
    }

    #[test]
    fn large_files_are_found() {
        let f = File { path: "x.bin".into(), bytes: LARGE + 1, text: None };
        assert_eq!(check(&[f]).len(), 1);
    }

    #[test]
    fn banned_calls_name_their_replacement() {
        let p = one("crates/format/src/a.rs", "let x = std::fs::read(p)?;");
        assert!(p[0].message.contains("stead_store::Source"), "{p:?}");
        assert_eq!(one("crates/cli/src/a.rs", "println!(\"x\");"), []);
        assert_eq!(one("crates/run/src/a.rs", "println!(\"x\");").len(), 1);
        assert_eq!(one("crates/store/src/a.rs", "let t = Instant::now();").len(), 1);
        assert_eq!(one("crates/run/src/a.rs", "let t = Instant::now();"), []);
    }

    #[test]
    fn comments_and_tests_are_free() {
        assert_eq!(one("crates/run/src/a.rs", "// never println! here"), []);
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n  thread::sleep(x);\n}\n";
        assert_eq!(one("crates/run/src/a.rs", text), []);
        assert_eq!(one("crates/run/tests/a.rs", "thread::sleep(x);"), []);
        // A test module in its own file does not end the code.
        let text = "#[cfg(test)]\nmod tests;\nfn a() { thread::sleep(x) }\n";
        assert_eq!(one("crates/run/src/a.rs", text).len(), 1);
    }

    #[test]
    fn unsafe_is_a_word() {
        assert_eq!(one("crates/run/src/a.rs", "unsafe { x() }").len(), 1);
        assert_eq!(one("crates/run/src/a.rs", "#![forbid(unsafe_code)]"), []);
    }

    #[test]
    fn machine_paths_are_found() {
        let p = concat!("/ho", "me/anna/data.csv");
        assert_eq!(one("docs/a.md", p).len(), 1);
        assert_eq!(one("docs/a.md", "see docs/work/a.md and ./root/x"), []);
    }
}
