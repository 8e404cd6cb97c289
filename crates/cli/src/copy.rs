//! `stead put` and `stead get`.

use crate::args::{Copying, Described, GetArgs, PutArgs};
use crate::progress::Bar;
use crate::{output, ranks, signals};
use stead::fabric::Fabric;
use stead::layout::{Copied, Get, Put, get_on, put_on};
use stead::{Cancel, Observer, OpenOptions, Result, units};

pub fn put(a: &PutArgs) -> Result<()> {
    let cancel = Cancel::new();
    let request = Put {
        file: a.file.clone(),
        over: a.over.clone(),
        stripe: a.stripe,
        align: a.align.is_some(),
        options: OpenOptions {
            format: a.kind,
            quote: a.quote.unwrap_or_default(),
            dtype: a.dtype,
            shape: a.shape.as_ref().map(|s| s.dims().to_vec()),
            skip: a.skip,
            record_length: a.record_length,
            ..OpenOptions::default()
        },
        parts: a.parts,
        name: a.name.clone(),
        layout: a.layout.clone(),
        force: a.force,
        dataspaces: a.copying.dataspace.clone(),
        threads: a.copying.threads,
        cancel: cancel.clone(),
    };
    copy(&a.copying, &cancel, &|fabric, observer| match fabric {
        Some(fabric) => put_on(fabric, &request, observer),
        None => stead::layout::put(&request, observer),
    })
}

pub fn get(a: &GetArgs) -> Result<()> {
    let cancel = Cancel::new();
    let request = Get {
        layout: a.layout.clone(),
        output: a.output.clone(),
        force: a.force,
        dataspaces: a.copying.dataspace.clone(),
        threads: a.copying.threads,
        cancel: cancel.clone(),
    };
    copy(&a.copying, &cancel, &|fabric, observer| match fabric {
        Some(fabric) => get_on(fabric, &request, observer),
        None => stead::layout::get(&request, observer),
    })
}

type Work<'w> = &'w dyn Fn(Option<&dyn Fabric>, Option<&dyn Observer>) -> Result<Copied>;

/// Copies, alone or as one of several ranks, of which the first one prints what all of them have copied.
fn copy(a: &Copying, cancel: &Cancel, work: Work<'_>) -> Result<()> {
    if a.alone {
        return copy_on(a, cancel, work, None);
    }
    ranks::with(|fabric| copy_on(a, cancel, work, fabric.map(|f| &**f)))
}

fn copy_on(
    a: &Copying,
    cancel: &Cancel,
    work: Work<'_>,
    fabric: Option<&dyn Fabric>,
) -> Result<()> {
    let done = match (signals::watch(cancel, fabric.is_some()), fabric) {
        (Ok(done), _) => done,
        (Err(error), None) => return Err(error),
        (Err(error), Some(fabric)) => return Err(stead::ranks::refuse(fabric, error)),
    };
    let first = fabric.is_none_or(|f| f.rank() == 0);
    let bar = if first { Bar::new(a.progress) } else { None };
    let result = work(fabric, bar.as_ref().map(|b| b as &dyn Observer));
    if let Some(bar) = &bar {
        bar.clear();
    }
    let copied = result?;
    done.cancel();
    let shown = match a.format {
        _ if !first => Ok(()),
        Described::Json => output::json(&copied),
        Described::Table => output::text(&page(&copied)),
    };
    match fabric {
        Some(fabric) => stead::ranks::agree(fabric, shown),
        None => shown,
    }
}

fn page(c: &Copied) -> String {
    let rows = [
        ("file", c.file.display().to_string()),
        ("layout", c.layout.display().to_string()),
        (
            "size",
            format!(
                "{} in {} part(s) on {} node(s)",
                units::format_size(c.bytes),
                c.parts,
                c.nodes
            ),
        ),
        (
            "took",
            format!(
                "{}, {}/s, by {} rank(s)",
                units::format_seconds(c.seconds),
                units::format_size(c.bytes_per_second as u64),
                c.ranks
            ),
        ),
    ];
    rows.iter().map(|(key, value)| format!("{key:6}  {value}\n")).collect()
}
