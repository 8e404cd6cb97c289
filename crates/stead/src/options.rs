//! Options as text: what the command line, C and configuration files write, and what it means.

use stead_core::layout::Spaces;
use stead_core::{ByteOrder, Error, Order, Result, Shape, units};
use stead_format::OpenOptions;
use stead_format::options::{ColumnType, Header, Quote};
use stead_model::Wish;
use stead_run::Request;
use stead_stage::{Action, Exists};
use stead_store::{Engine, space};

/// The names that [`set`] knows.
pub const NAMES: [&str; 18] = [
    "type",
    "delimiter",
    "quote",
    "header",
    "comment",
    "missing",
    "names",
    "column-type",
    "dtype",
    "shape",
    "order",
    "byte-order",
    "skip",
    "record-length",
    "compression",
    "species",
    "dataspace",
    "storage-hosts",
];

/// Sets one option by the name that it has on the command line (`delimiter`, `record-length`, ...); `_` may
/// stand for `-`. `missing`, `column-type` and `dataspace` add to what was set before, the others replace it.
///
/// ```
/// let mut options = stead::OpenOptions::default();
/// stead::options::set(&mut options, "delimiter", ";")?;
/// stead::options::set(&mut options, "column-type", "zip=text")?;
/// assert_eq!(options.delimiter, Some(b';'));
/// # Ok::<(), stead::Error>(())
/// ```
///
/// # Errors
/// `Usage` for a name or a value that there is not.
pub fn set(o: &mut OpenOptions, name: &str, value: &str) -> Result<()> {
    set_open(o, name, value).map_err(|e| named(name, e))
}

/// What it must be is said of the option, where the name alone was given.
fn named(name: &str, e: Error) -> Error {
    match e.message().strip_prefix("it must be ") {
        Some(what) => Error::usage(format!("option '{name}' must be {what}")),
        None => e,
    }
}

fn set_open(o: &mut OpenOptions, name: &str, value: &str) -> Result<()> {
    match name.replace('_', "-").as_str() {
        "type" | "format" => o.format = Some(value.parse()?),
        "delimiter" => o.delimiter = Some(byte(value)?),
        "quote" => o.quote = quote(value)?,
        "header" => o.header = header(value)?,
        "comment" => o.comment = Some(byte(value)?),
        "missing" => o.missing.get_or_insert_default().push(value.to_string()),
        "names" => o.names = Some(value.split(',').map(String::from).collect()),
        "column-type" => o.column_types.push(column_type(value)?),
        "dtype" => o.dtype = Some(value.parse()?),
        "shape" => o.shape = Some(shape(value)?.dims().to_vec()),
        "order" => o.order = Some(order(value)?),
        "byte-order" => o.byte_order = Some(byte_order(value)?),
        "skip" => o.skip = Some(units::parse_size(value)?),
        "record-length" => o.record_length = Some(units::parse_size(value)?),
        "compression" => o.compression = Some(value.parse()?),
        "species" => o.species = Some(value.parse()?),
        "dataspace" => o.dataspaces.push(dataspace(value)?),
        "storage-hosts" => {
            stead_run::roles::check_hosts(value)?;
            o.storage_hosts = Some(value.to_owned());
        }
        _ => {
            return Err(Error::usage(format!("no option '{name}'"))
                .with_hint(format!("the options are: {}", NAMES.join(", "))));
        }
    }
    Ok(())
}

/// The names that [`set_means`] knows.
pub const MEANS: [&str; 8] =
    ["threads", "memory", "chunk", "engine", "queue-depth", "direct", "lenient", "place"];

/// Sets one of a request's means by the name that it has on the command line.
///
/// # Errors
/// `Usage` for a name or a value that there is not.
pub fn set_means(r: &mut Request, name: &str, value: &str) -> Result<()> {
    let size = || {
        usize::try_from(units::parse_size(value)?)
            .map_err(|_| Error::usage(format!("'{value}' is too large")))
    };
    let count = || {
        value.parse::<usize>().map_err(|_| Error::usage(format!("'{value}' is no whole number")))
    };
    match name.replace('_', "-").as_str() {
        "threads" => r.threads = count()?,
        "memory" => r.memory = units::parse_size(value)?,
        "chunk" => r.chunk = size()?,
        "engine" => r.io.engine = engine(value)?,
        "queue-depth" => r.io.depth = count()?,
        "direct" => r.io.direct = yes(value)?,
        "lenient" => r.lenient = yes(value)?,
        "place" => r.place = place(value)?,
        _ => {
            return Err(Error::usage(format!("no option '{name}'"))
                .with_hint(format!("the options are: {}", MEANS.join(", "))));
        }
    }
    Ok(())
}

/// The names that [`set_stage`] knows.
pub const STAGE: [&str; 18] = [
    "exists",
    "delete",
    "max-delete",
    "checksum",
    "verify",
    "skip-special",
    "durable",
    "gentle",
    "limit",
    "priority",
    "retries",
    "exclude",
    "include",
    "min-size",
    "max-size",
    "min-age",
    "max-age",
    "file",
];

/// Sets one of the options of a transfer; `_` may stand for `-`. Patterns of names, and listed names, are added to those that there are.
///
/// ```
/// let mut options = stead::stage::Options::default();
/// stead::options::set_stage(&mut options, "limit", "200MiB")?;
/// assert_eq!(options.limit, Some(200 << 20));
/// # Ok::<(), stead::Error>(())
/// ```
///
/// # Errors
/// `Usage` for a name or a value that there is not.
pub fn set_stage(o: &mut stead_stage::Options, name: &str, value: &str) -> Result<()> {
    set_transfer(o, name, value).map_err(|e| named(name, e))
}

fn set_transfer(o: &mut stead_stage::Options, name: &str, value: &str) -> Result<()> {
    let number = || Error::usage(format!("'{value}' is no number that {name} may be"));
    match name.replace('_', "-").as_str() {
        "exists" => o.exists = exists(value)?,
        "delete" => o.delete = yes(value)?,
        "max-delete" => o.max_delete = Some(value.parse().map_err(|_| number())?),
        "checksum" => o.checksum = yes(value)?,
        "verify" => o.verify = yes(value)?,
        "skip-special" => o.skip_special = yes(value)?,
        "durable" => o.durable = yes(value)?,
        "gentle" => o.gentle = yes(value)?,
        "limit" => o.limit = if value == "none" { None } else { Some(units::parse_size(value)?) },
        "priority" => o.priority = value.parse().map_err(|_| number())?,
        "retries" => o.retries = value.parse().map_err(|_| number())?,
        "exclude" => o.exclude.push(value.to_owned()),
        "include" => o.include.push(value.to_owned()),
        "min-size" => o.min_size = Some(units::parse_size(value)?),
        "max-size" => o.max_size = Some(units::parse_size(value)?),
        "min-age" => o.min_age = Some(units::parse_time(value)?),
        "max-age" => o.max_age = Some(units::parse_time(value)?),
        "file" => o.files.push(value.to_owned()),
        _ => {
            return Err(Error::usage(format!("no option '{name}'"))
                .with_hint(format!("the options are: {}", STAGE.join(", "))));
        }
    }
    Ok(())
}

/// What a transfer does: `copy`, `move`, `sync` or `remove`.
///
/// # Errors
/// `Usage` for anything else.
pub fn action(s: &str) -> Result<Action> {
    match s {
        "copy" => Ok(Action::Copy),
        "move" => Ok(Action::Move),
        "sync" => Ok(Action::Sync),
        "remove" => Ok(Action::Remove),
        _ => Err(Error::usage(format!("unknown action '{}'", s.escape_debug()))
            .with_hint("use copy, move, sync or remove")),
    }
}

fn exists(s: &str) -> Result<Exists> {
    match s {
        "refuse" => Ok(Exists::Refuse),
        "replace" => Ok(Exists::Replace),
        "skip" => Ok(Exists::Skip),
        "newer" => Ok(Exists::Newer),
        _ => Err(Error::usage(format!("unknown rule '{}' for what is there", s.escape_debug()))
            .with_hint("use refuse, replace, skip or newer")),
    }
}

/// Where to compute: `auto`, `pull`, `push`, `vector` or `split`.
///
/// # Errors
/// `Usage` for anything else.
pub fn place(s: &str) -> Result<Wish> {
    Wish::parse(s)
}

/// One byte; `\t` and `tab` are the tab.
pub fn byte(s: &str) -> Result<u8> {
    match s.as_bytes() {
        [b] => Ok(*b),
        b"\\t" | b"tab" => Ok(b'\t'),
        _ => Err(Error::usage("it must be one byte, such as ; or \\t")),
    }
}

/// A byte, `none`, or `auto`.
pub fn quote(s: &str) -> Result<Quote> {
    match s {
        "none" => Ok(Quote::None),
        "auto" => Ok(Quote::Auto),
        _ => byte(s).map(Quote::Byte),
    }
}

/// `yes`, `no`, or `auto`.
pub fn header(s: &str) -> Result<Header> {
    match s {
        "yes" => Ok(Header::Yes),
        "no" => Ok(Header::No),
        "auto" => Ok(Header::Auto),
        _ => Err(Error::usage("it must be yes or no")),
    }
}

/// `C` (last index fastest) or `F`.
pub fn order(s: &str) -> Result<Order> {
    match s {
        "C" | "c" => Ok(Order::C),
        "F" | "f" => Ok(Order::Fortran),
        _ => Err(Error::usage("it must be C or F")),
    }
}

/// `little` or `big`.
pub fn byte_order(s: &str) -> Result<ByteOrder> {
    match s {
        "little" => Ok(ByteOrder::Little),
        "big" => Ok(ByteOrder::Big),
        _ => Err(Error::usage("it must be little or big")),
    }
}

/// `NAME=number` or `NAME=text`.
pub fn column_type(s: &str) -> Result<(String, ColumnType)> {
    let (name, kind) =
        s.rsplit_once('=').ok_or_else(|| Error::usage("it must be NAME=number or NAME=text"))?;
    Ok((name.to_string(), kind.parse()?))
}

/// `NAME=/PATH`: the name of a dataspace and its folder.
pub fn dataspace(s: &str) -> Result<String> {
    Spaces::default().give(s, &space::variable)?;
    Ok(s.to_string())
}

/// Lengths with `x` or commas between them, such as `300x300x300`.
pub fn shape(s: &str) -> Result<Shape> {
    let dims = s
        .split(['x', ','])
        .map(|d| {
            d.trim().parse::<u64>().map_err(|_| {
                Error::usage(format!("'{d}' is not a length; write for example 300x300x300"))
            })
        })
        .collect::<Result<Vec<_>>>()?;
    Shape::new(dims)
}

/// `auto`, `uring` or `pread`.
pub fn engine(s: &str) -> Result<Engine> {
    match s {
        "auto" => Ok(Engine::Auto),
        "uring" => Ok(Engine::Uring),
        "pread" => Ok(Engine::Pread),
        _ => {
            Err(Error::usage(format!("unknown engine '{s}'")).with_hint("use auto, uring or pread"))
        }
    }
}

fn yes(s: &str) -> Result<bool> {
    match s {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(Error::usage("it must be yes or no")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_core::{DType, Kind};
    use stead_format::options::{Compression, FormatType};

    #[test]
    fn every_option_can_be_set() {
        let values = [
            "csv", ";", "'", "yes", "#", "-", "a,b", "a=text", "f32", "2x3", "F", "big", "1KiB",
            "8", "zstd", "dark", "s=/a/b", "n[1-2]",
        ];
        let mut o = OpenOptions::default();
        for (name, value) in NAMES.iter().zip(values) {
            set(&mut o, name, value).expect(name);
        }
        let all = OpenOptions {
            format: Some(FormatType::Csv),
            delimiter: Some(b';'),
            quote: Quote::Byte(b'\''),
            header: Header::Yes,
            comment: Some(b'#'),
            missing: Some(vec!["-".into()]),
            names: Some(vec!["a".into(), "b".into()]),
            column_types: vec![("a".into(), ColumnType::Text)],
            dtype: Some(DType::F32),
            shape: Some(vec![2, 3]),
            order: Some(Order::Fortran),
            byte_order: Some(ByteOrder::Big),
            skip: Some(1024),
            record_length: Some(8),
            compression: Some(Compression::Zstd),
            species: Some(stead_format::tipsy::Species::Dark),
            dataspaces: vec!["s=/a/b".into()],
            storage_hosts: Some("n[1-2]".into()),
        };
        assert_eq!(o, all);
        let mut r = Request::default();
        let values = ["3", "64MiB", "1MiB", "pread", "2", "yes", "yes", "push"];
        for (name, value) in MEANS.iter().zip(values) {
            set_means(&mut r, name, value).expect(name);
        }
        assert_eq!((r.threads, r.memory, r.chunk, r.io.depth), (3, 64 << 20, 1 << 20, 2));
        assert!(r.io.engine == Engine::Pread && r.io.direct && r.lenient);
        assert_eq!(r.place, Wish::Push);
        assert_eq!(place("vector").ok(), Some(Wish::Vector));
        assert_eq!(place("elsewhere").map_err(|e| e.kind()), Err(Kind::Usage));
        let mut o = stead_stage::Options::default();
        let values = [
            "newer", "yes", "9", "yes", "yes", "yes", "no", "yes", "1KiB", "-7", "5", "*.tmp",
            "*.h5", "2", "1KiB", "30min", "2d", "a/b",
        ];
        for (name, value) in STAGE.iter().zip(values) {
            set_stage(&mut o, name, value).expect(name);
        }
        set_stage(&mut o, "exclude", "core").expect("another one");
        let e = set_stage(&mut o, "verify", "maybe").expect_err("neither");
        assert_eq!(e.message(), "option 'verify' must be yes or no");
        let all = stead_stage::Options {
            exists: Exists::Newer,
            delete: true,
            max_delete: Some(9),
            checksum: true,
            verify: true,
            skip_special: true,
            durable: false,
            gentle: true,
            limit: Some(1024),
            priority: -7,
            retries: 5,
            exclude: vec!["*.tmp".to_owned(), "core".to_owned()],
            include: vec!["*.h5".to_owned()],
            min_size: Some(2),
            max_size: Some(1024),
            min_age: Some(1800),
            max_age: Some(2 * 86_400),
            files: vec!["a/b".to_owned()],
        };
        assert_eq!(o, all);
        set_stage(&mut o, "limit", "none").expect("taken back");
        assert_eq!(o.limit, None);
        assert_eq!(action("sync").ok(), Some(Action::Sync));
        assert_eq!(action("mirror").map_err(|e| e.kind()), Err(Kind::Usage));
    }

    #[test]
    fn what_there_is_not_is_refused() {
        let mut o = OpenOptions::default();
        for name in NAMES {
            let bad = set(&mut o, name, "3x,=nonsense").map_err(|e| e.kind());
            assert!(bad == Err(Kind::Usage) || ["missing", "names"].contains(&name), "{name}");
        }
        assert_eq!(set(&mut o, "nope", "1").map_err(|e| e.kind()), Err(Kind::Usage));
        let mut r = Request::default();
        for name in MEANS.iter().chain(&["nope"]) {
            let bad = set_means(&mut r, name, "x").map_err(|e| e.kind());
            assert_eq!(bad, Err(Kind::Usage), "{name}");
        }
        let mut o = stead_stage::Options::default();
        let patterns = ["exclude", "include", "file"];
        for name in STAGE.iter().filter(|name| !patterns.contains(name)).chain(&["nope"]) {
            let bad = set_stage(&mut o, name, "x").map_err(|e| e.kind());
            assert_eq!(bad, Err(Kind::Usage), "{name}");
        }
    }
}
