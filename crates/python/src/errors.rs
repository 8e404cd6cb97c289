//! Errors of stead as exceptions of the package (`stead._errors`), which derive from Python's own.

use pyo3::prelude::*;
use stead::{Error, Kind};

/// The name under which `stead._errors` knows a kind.
fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Usage => "usage",
        Kind::NotFound => "not_found",
        Kind::Permission => "permission",
        Kind::Format => "format",
        Kind::Data => "data",
        Kind::Changed => "changed",
        Kind::Limit => "limit",
        Kind::NoSpace => "no_space",
        Kind::Io => "io",
        Kind::Cancelled => "cancelled",
        Kind::Peer => "peer",
        Kind::Timeout => "timeout",
        _ => "internal",
    }
}

/// The exception that says what `e` says.
pub fn raise(e: Error) -> PyErr {
    Python::attach(|py| {
        let place = e.place();
        let make = || {
            py.import("stead._errors")?.getattr("make")?.call1((
                name(e.kind()),
                e.to_string(),
                e.hint().map(words),
                place.path.as_ref().map(|p| p.to_string_lossy().into_owned()),
                place.line,
                place.offset,
                place.column.as_deref(),
            ))
        };
        match make() {
            Ok(exception) => PyErr::from_value(exception),
            // The package is broken; its error says how.
            Err(broken) => broken,
        }
    })
}

/// Hints name the options of the command; here they are the arguments of `open` and `run`.
fn words(hint: &str) -> String {
    const SAME: &[(&str, &str)] = &[
        ("--column-type NAME=text", "column_types={NAME: \"text\"}"),
        ("--column-type NAME=number", "column_types={NAME: \"number\"}"),
        ("--record-length BYTES", "record_length=BYTES"),
        ("--missing TOKEN", "missing=[TOKEN]"),
        ("--compression none", "compression=\"none\""),
        ("--type lines", "type=\"lines\""),
        ("--type raw", "type=\"raw\""),
        ("--header yes", "header=True"),
        ("--header no", "header=False"),
        ("--quote none", "quote=False"),
        ("--by COLUMN", "by=COLUMN"),
        ("--lenient", "lenient=True"),
        ("-k hist:COLUMN", "stead.hist(COLUMN)"),
        ("-k rows -k mean:COLUMN", "stead.rows(), stead.mean(COLUMN)"),
        ("'stead kernels' lists", "stead.kernels() lists"),
        ("'stead describe'", "ds.describe()"),
    ];
    const COMMANDS: &[&str] = &["stead ", "mpirun ", "docker: ", "apptainer: "];
    let mut text = hint.to_string();
    for (command, python) in SAME {
        text = text.replace(command, python);
    }
    // What is left are options whose names are those of arguments: --memory, --where, --skip.
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find("--") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '-')).unwrap_or(rest.len());
        // An option of a whole command stays one.
        let clause = out.rsplit([';', ',']).next().unwrap_or(&out);
        match COMMANDS.iter().any(|command| clause.contains(command)) {
            true => out.push_str(&rest[..end]),
            false => out.push_str(&rest[2..end].replace('-', "_")),
        }
        rest = &rest[end..];
    }
    out + rest
}
