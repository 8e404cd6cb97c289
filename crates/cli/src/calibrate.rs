//! `stead calibrate`.

use crate::args::{CalibrateArgs, Described, When};
use crate::{output, ranks, signals, table};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use stead::fabric::{Fabric, Local};
use stead::plan::{Calibrate, Profile, calibrate_on, save};
use stead::ranks::Here;
use stead::{Cancel, Error, Result, units};

/// What `--format json` prints.
#[derive(Serialize)]
struct Said<'p> {
    path: String,
    profile: &'p Profile,
}

pub fn calibrate(a: &CalibrateArgs) -> Result<()> {
    if a.alone {
        return on(a, None);
    }
    ranks::with(|fabric| on(a, fabric.map(|f| &**f)))
}

/// Where the profile is written.
fn target(a: &CalibrateArgs) -> Result<PathBuf> {
    a.output.clone().or_else(stead::plan::path).ok_or_else(|| {
        Error::usage("there is no place for the profile: the user has no home")
            .with_hint("name a file with --output")
    })
}

/// Measures, alone or as one of several ranks, of which the first one writes and prints what all have measured.
fn on(a: &CalibrateArgs, fabric: Option<&dyn Fabric>) -> Result<()> {
    let cancel = Cancel::new();
    let first = fabric.is_none_or(|f| f.rank() == 0);
    let prepared = signals::watch(&cancel, fabric.is_some())
        .and_then(|done| Ok((done, if first { target(a)? } else { PathBuf::new() })));
    let (done, path) = match (prepared, fabric) {
        (Ok(prepared), _) => prepared,
        (Err(error), None) => return Err(error),
        (Err(error), Some(fabric)) => return Err(stead::ranks::refuse(fabric, error)),
    };
    let options = Calibrate { tiers: a.tiers.clone(), seconds: a.seconds, cancel };
    let line = Line::new(a.progress, first);
    let tell = |what: &str| line.show(what);
    let alone = Local::single();
    let fabric = fabric.unwrap_or(&alone as &dyn Fabric);
    let profile = calibrate_on(fabric, &Here::default(), &options, Some(&tell));
    line.clear();
    let profile = profile?;
    done.cancel();
    let shown = if first {
        save(&profile, &path).and_then(|()| show(a.format, &profile, &path))
    } else {
        Ok(())
    };
    stead::ranks::agree(fabric, shown)
}

fn show(format: Described, profile: &Profile, path: &Path) -> Result<()> {
    match format {
        Described::Json => output::json(&Said { path: path.display().to_string(), profile }),
        Described::Table => output::text(&page(profile, path)),
    }
}

/// What is measured now, on one line of a terminal; a line each into files and pipes, if that is asked for.
struct Line {
    wanted: bool,
    redrawn: bool,
}

impl Line {
    fn new(when: When, first: bool) -> Line {
        let terminal = std::io::stderr().is_terminal();
        let wanted = match when {
            When::Always => true,
            When::Never => false,
            When::Auto => terminal,
        };
        Line { wanted: wanted && first, redrawn: terminal }
    }

    fn show(&self, what: &str) {
        if self.wanted {
            let (begin, end) = if self.redrawn { ("\r\x1b[K", "") } else { ("", "\n") };
            let mut err = std::io::stderr().lock();
            // An error stream that takes no text is no reason to stop.
            let _ = write!(err, "{begin}measuring {what}{end}").and_then(|()| err.flush());
        }
    }

    fn clear(&self) {
        if self.wanted && self.redrawn {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn rate(bytes_per_s: f64) -> String {
    format!("{}/s", units::format_size(bytes_per_s as u64))
}

/// The profile, for people.
fn page(p: &Profile, path: &Path) -> String {
    let mut s = format!("profile  {}\n\n", path.display());
    let mut add = |header: &[&str], rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            s.push_str(&table::plain(header, rows));
            s.push('\n');
        }
    };
    let site = |site: &stead::plan::Site| {
        vec![
            site.name.clone(),
            // A part of a core is what containers may have.
            match site.cores.fract() == 0.0 {
                true => format!("{:.0}", site.cores),
                false => format!("{:.2}", site.cores),
            },
            format!("{:.2}", site.speed),
            units::format_seconds(site.request_s),
        ]
    };
    add(&["host", "cores", "speed", "a request"], p.sites.iter().map(site).collect());
    let shared = |s: &stead::plan::Shared| vec![s.sites.join(", "), format!("{:.2}", s.cores)];
    add(&["hosts that share cores", "cores"], p.shared.iter().map(shared).collect());
    let tier = |t: &stead::plan::Tier| {
        vec![
            format!("{} of {}", t.name, t.site),
            rate(t.bytes_per_s),
            units::format_seconds(t.latency_s),
            t.depth.to_string(),
            format!("{:.3}", t.core_s_per_gb),
        ]
    };
    add(
        &["tier", "read at", "latency", "in flight", "core-s per GB"],
        p.tiers.iter().map(tier).collect(),
    );
    let link = |l: &stead::plan::Link| {
        vec![
            format!("{} -> {}", l.from, l.to),
            rate(l.bytes_per_s),
            units::format_seconds(l.latency_s),
            units::format_seconds(l.busy_latency_s),
            format!("{:.3}, {:.3}", l.send_core_s_per_gb, l.receive_core_s_per_gb),
        ]
    };
    add(
        &["link", "sent at", "latency", "while busy", "core-s per GB"],
        p.links.iter().map(link).collect(),
    );
    // Those of the reference; hosts that are unlike it are in the file.
    let mut formats: Vec<&str> = Vec::new();
    let mut costs = BTreeMap::<&str, BTreeMap<&str, f64>>::new();
    for c in p.kernels.iter().filter(|c| c.site.is_none()) {
        if !formats.contains(&c.format.as_str()) {
            formats.push(&c.format);
        }
        costs.entry(&c.kernel).or_default().insert(&c.format, c.core_s_per_gb);
    }
    let row = |(kernel, of): (&&str, &BTreeMap<&str, f64>)| {
        let cost = |f: &&str| of.get(f).map_or("-".to_owned(), |c| format!("{c:.3}"));
        std::iter::once((*kernel).to_owned()).chain(formats.iter().map(cost)).collect()
    };
    let header: Vec<&str> = std::iter::once("core-seconds per GB").chain(formats.clone()).collect();
    add(&header, costs.iter().map(row).collect());
    s.truncate(s.trim_end().len());
    s.push('\n');
    s
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead::plan::{Cost, Link, Site, Tier};

    #[test]
    fn a_page_has_what_the_profile_has() {
        let cost = |kernel: &str, format: &str| Cost {
            kernel: kernel.into(),
            format: format.into(),
            site: None,
            core_s_per_gb: 1.25,
            parse_share: 0.0,
            core_s_per_gstep: 0.0,
            result_bytes: 0.0,
            result_per_byte: 0.0,
            vector_per_byte: 0.0,
        };
        let profile = Profile {
            version: 1,
            sites: vec![Site::new("alpha", 4.0)],
            tiers: vec![Tier { latency_s: 8e-5, depth: 16, ..Tier::new("ext4", "alpha", 2e9) }],
            links: vec![Link { latency_s: 5e-5, ..Link::new("alpha", "beta", 1.17e8) }],
            kernels: vec![cost("sum", "csv"), cost("grep", "lines")],
            ..Profile::default()
        };
        let page = page(&profile, Path::new("p.toml"));
        for says in ["p.toml", "alpha", "ext4 of alpha", "1.9 GiB/s", "80 us", "alpha -> beta"] {
            assert!(page.contains(says), "{says}: {page}");
        }
        let sum = page.lines().find(|l| l.trim_start().starts_with("sum")).expect("a line");
        assert_eq!(sum.split_whitespace().collect::<Vec<_>>(), ["sum", "1.250", "-"]);
    }
}
