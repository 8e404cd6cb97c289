//! `stead flow`: operators between streams.

use crate::args::{Described, FlowArgs, FlowRunArgs, FlowVerb};
use crate::{background, output, ranks, signals, table};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stead::daemon::StreamNodes;
use stead::fabric::Fabric;
use stead::flow::{
    Checked, Description, Flow, Functions, Graph, NodeDescription, Options, Report, check, draw,
    load,
};
use stead::stream::{Coupling, dataspaces};
use stead::{Cancel, Error, Result, units, write_file};

pub fn flow(a: &FlowArgs) -> Result<()> {
    match &a.what {
        FlowVerb::Check { file, live, format } => {
            let mut checked = checked(file)?;
            if *live {
                checked = checked.live(&dataspaces()?).map_err(|e| e.at_path(file))?;
            }
            let told = checked.describe();
            match format {
                Described::Json => output::json(&told),
                Described::Table => {
                    let (reads, nodes, writes) =
                        (told.reads.len(), told.nodes.len(), told.writes.len());
                    output::text(&format!(
                        "flow '{}' makes sense{}: it reads {}, has {}, and writes {}\n",
                        told.name,
                        if *live { " of what its streams have" } else { "" },
                        count(reads, "stream"),
                        count(nodes, "node"),
                        count(writes, "stream"),
                    ))
                }
            }
        }
        FlowVerb::Show { file, output: None, format } => {
            let told = checked(file)?.describe();
            match format {
                Described::Json => output::json(&told),
                Described::Table => output::text(&page(&told)),
            }
        }
        FlowVerb::Show { file, output: Some(to), .. } => show(&checked(file)?, to),
        FlowVerb::Run(a) if a.background => background::begin(a),
        FlowVerb::Run(a) if a.alone || a.rank.is_some() || a.ranks.is_some() => run(a, None),
        FlowVerb::Run(a) => ranks::with(|fabric| run(a, fabric)),
        FlowVerb::List { all, of, format } => background::list(*all, of, *format),
        FlowVerb::Wait { flow, timeout, of, format } => {
            background::wait(*flow, *timeout, of, *format)
        }
        FlowVerb::Cancel { flow, of, format } => background::cancel(*flow, of, *format),
    }
}

/// Alone, or as one of the ranks of a launcher, of which the first one prints what all have done.
fn run(a: &FlowRunArgs, fabric: Option<&Arc<dyn Fabric>>) -> Result<()> {
    let prepare = || {
        let (graph, mut functions) = (Graph::load(&a.file)?, Functions::new());
        if a.load {
            let folder = a.file.parent().unwrap_or(Path::new(""));
            // SAFETY: whoever runs it has said that the libraries of this file are trusted.
            unsafe { load(&graph, folder, &mut functions) }.map_err(|e| e.at_path(&a.file))?;
        }
        let flow = Flow::new(&graph, functions).map_err(|e| e.at_path(&a.file))?;
        let cancel = Cancel::new();
        let done = signals::watch(&cancel, false)?;
        Ok((flow, dataspaces()?, cancel, done))
    };
    let timeout = Duration::from_secs(a.timeout);
    let (flow, spaces, cancel, done) = match (prepare(), fabric) {
        (Ok(prepared), _) => prepared,
        (Err(e), None) => return Err(e),
        (Err(e), Some(fabric)) => return Err(Coupling::refuse(&**fabric, timeout, e)),
    };
    let options = Options {
        spaces,
        rank: a.rank.unwrap_or(0),
        ranks: a.ranks.unwrap_or(1),
        steps: a.steps,
        threads: a.threads,
        memory: a.memory,
        timeout,
        stop: cancel.into(),
        nodes: StreamNodes::usual(),
        ..Options::default()
    };
    let (report, first) = match fabric {
        None => (flow.run(&options)?, true),
        Some(fabric) => {
            let coupling = Coupling::new(fabric.clone(), "flow", &options.spaces, timeout)?;
            let report = flow.run_with(&coupling, &options)?;
            (report, coupling.rank() == 0)
        }
    };
    done.cancel();
    match a.format {
        _ if !first => Ok(()),
        Described::Json => output::json(&report),
        Described::Table => output::text(&ran(&report)),
    }
}

fn checked(file: &Path) -> Result<Checked> {
    check(&Graph::load(file)?).map_err(|e| e.at_path(file))
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn show(checked: &Checked, to: &Path) -> Result<()> {
    let kind = to.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    match kind.as_deref() {
        Some("svg") => write_file(to, draw::svg(checked).as_bytes()),
        Some("png") => write_file(to, &draw::png(checked)?),
        _ => Err(Error::usage(format!("'{}' is no picture", to.display()))
            .with_hint("name a file that ends with .svg or .png")),
    }
}

fn page(told: &Description) -> String {
    let made = |node: &NodeDescription| {
        let each = node.makes.iter().map(|form| form.as_deref().unwrap_or("-"));
        each.collect::<Vec<_>>().join("; ")
    };
    let reads = told.reads.iter().map(|read| {
        let what = match read.stream == read.name {
            true => "read".to_owned(),
            false => format!("read stream {}", read.stream),
        };
        vec![read.name.clone(), what, read.variables.join(", "), String::new(), String::new()]
    });
    let nodes = told.nodes.iter().map(|node| {
        let (name, does, when) = (node.name.clone(), node.does.clone(), node.when.clone());
        vec![name, does, node.of.join(", "), made(node), when]
    });
    let writes = told.writes.iter().map(|write| {
        let each = write.variables.iter().map(|(name, of)| match name == of {
            true => name.clone(),
            false => format!("{name} = {of}"),
        });
        let of = each.collect::<Vec<_>>().join(", ");
        vec![write.stream.clone(), "write".to_owned(), of, String::new(), write.when.clone()]
    });
    let rows = reads.chain(nodes).chain(writes).collect();
    table::left(&["name", "does", "of", "makes", "when"], rows)
}

pub fn ran(report: &Report) -> String {
    let mut out = count(usize::try_from(report.steps).unwrap_or(usize::MAX), "step");
    if report.dropped > 0 {
        out += &format!(", and {} that went before they were read", report.dropped);
    }
    if report.unpaired > 0 {
        out += &format!(", and {} of one stream that another has not", report.unpaired);
    }
    if report.fetched > 0 {
        out += &format!(", {} from other nodes", units::format_size(report.fetched));
    }
    out += "\n";
    let rows = report.streams.iter().map(|sent| {
        vec![sent.stream.clone(), sent.steps.to_string(), units::format_size(sent.bytes)]
    });
    out + &table::plain(&["stream", "steps", "written"], rows.collect())
}
