//! Measures machines for the planner: how fast their tiers are read, what goes over the links between them, and what kernels
//! take on their cores.
//!
//! All ranks take part. The first rank of each host measures its host; the others wait. Hosts measure kernels and tiers at
//! the same time, and links one after the other, so that none disturbs another one; those of one machine measure their cores in
//! turn, and together, too. All ranks get the same profile.

mod cores;
mod kernels;
mod links;
mod tiers;

use crate::clock::Watch;
use crate::exchange::Crew;
use crate::machine::Machine;
use crate::meeting;
use crate::spread::Here;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use stead_core::{Cancel, Error, Result, units};
use stead_fabric::{Fabric, Local};
use stead_model::{Cost, Link, Profile, Shared, Site, Tier};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Calibrate {
    /// Where data lie: folders, in each of which a file is made for it and removed, or files, which are read only. Each is
    /// looked for on each host, and must be on one.
    pub tiers: Vec<PathBuf>,
    /// Seconds that all of it may take, about.
    pub seconds: f64,
    /// Stops it.
    pub cancel: Cancel,
}

impl Default for Calibrate {
    fn default() -> Calibrate {
        Calibrate { tiers: Vec::new(), seconds: SECONDS, cancel: Cancel::new() }
    }
}

/// Unless told otherwise.
pub const SECONDS: f64 = 20.0;
/// What may be asked for.
const LEAST_SECONDS: f64 = 0.1;
const MOST_SECONDS: f64 = 3600.0;

/// Of these seconds, what each sort of measurement gets.
const FOR_CORES: f64 = 0.05;
const FOR_KERNELS: f64 = 0.40;
const FOR_TIERS: f64 = 0.35;
const FOR_LINKS: f64 = 0.20;

/// Steps that all ranks take together for one request: to open it, to meet, to merge and to end. The model counts what a request
/// takes on both sides.
const STEPS_OF_A_REQUEST: f64 = 8.0;
const SIDES: f64 = 2.0;

/// Hosts whose kernels are told one by one where they are not as their speed says.
const FEW_HOSTS: usize = 16;
/// And by how much they are not.
const UNLIKE: f64 = 0.2;

/// Hears what is measured now; about ten times a second or less.
pub type Telling<'t> = Option<&'t (dyn Fn(&str) + Sync)>;

/// What one host has measured of itself.
#[derive(Debug, Clone)]
struct Measured {
    /// Core-seconds of a pass.
    pass_s: f64,
    kernels: Vec<Cost>,
    tiers: Vec<Tier>,
    /// Which of the paths that were named are here.
    seen: Vec<bool>,
}

/// What tiers are attached to on their way.
const HERE: &str = "here";

impl Measured {
    const NOTHING: Measured =
        Measured { pass_s: 0.0, kernels: Vec::new(), tiers: Vec::new(), seen: Vec::new() };

    /// For other ranks: a profile of one site.
    fn tell(self) -> Result<Vec<u8>> {
        let at_home = |t: Tier| Tier { site: HERE.to_owned(), ..t };
        let profile = Profile {
            version: 1,
            sites: vec![Site { pass_core_s: self.pass_s, ..Site::new(HERE, 1.0) }],
            tiers: self.tiers.into_iter().map(at_home).collect(),
            kernels: self.kernels,
            ..Profile::default()
        };
        encode(&(profile.to_text()?, self.seen))
    }

    fn heard(word: &[u8]) -> Result<Measured> {
        let (text, seen): (String, Vec<bool>) = decode(word)?;
        let Profile { sites, tiers, kernels, .. } = Profile::parse(&text)?;
        let pass_s = sites.first().map_or(0.0, |s| s.pass_core_s);
        Ok(Measured { pass_s, kernels, tiers, seen })
    }
}

/// Measures this machine.
///
/// # Errors
/// As [`calibrate_on`].
pub fn calibrate(options: &Calibrate, telling: Telling<'_>) -> Result<Profile> {
    calibrate_on(&Local::single(), &Here::default(), options, telling)
}

/// Measures the machines that the ranks of `fabric` are on. All of them call this, with the same options, and get the same
/// profile: a site for each host, by its name.
///
/// # Errors
/// The same on all ranks: `Usage` for seconds without sense, `NotFound` for a tier that no host has, `NoSpace`, `Permission` and
/// `Io` where one cannot be written to or read, `Peer` if a rank is gone, `Cancelled`.
pub fn calibrate_on(
    fabric: &dyn Fabric,
    here: &Here,
    options: &Calibrate,
    telling: Telling<'_>,
) -> Result<Profile> {
    let mut crew = Crew::new(fabric, &options.cancel, None);
    crew.host.clone_from(&here.host);
    let (machines, number) = meet(&mut crew, options)?;
    let hosts = Hosts::of(&machines);
    let leads = hosts.ranks.iter().position(|ranks| ranks.first() == Some(&crew.rank()));
    let first = leads.is_some();
    let tell = |what: &str| telling.iter().for_each(|t| t(what));
    let cores = cores::measure(&crew, &hosts.machines(&machines), leads, options)?;
    let measured = match first {
        true => measure(options, &tell),
        false => Ok(Measured::NOTHING),
    };
    let encoded = measured.and_then(|m| m.tell());
    let measured: Vec<Measured> =
        crew.gather(encoded)?.iter().map(|w| Measured::heard(w)).collect::<Result<_>>()?;
    if let Some(path) = unseen(options, &measured) {
        return Err(Error::new(stead_core::Kind::NotFound, "no such folder or file on any host")
            .at_path(path)
            .with_hint("name folders or files of the storage whose speed matters"));
    }
    let step_s = step(&crew)?;
    let leaders: Vec<usize> = hosts.ranks.iter().filter_map(|r| r.first().copied()).collect();
    let link = links::Links::new(&crew, number);
    let found = link.measure(&leaders, options.seconds * FOR_LINKS, &tell)?;
    let profile = hosts.profile(&machines, &measured, &found, (step_s, &cores));
    profile.check()?;
    Ok(profile)
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(value)
        .map_err(|e| Error::internal(format!("cannot encode a measurement: {e}")))
}

fn decode<'b, T: Deserialize<'b>>(word: &'b [u8]) -> Result<T> {
    postcard::from_bytes(word)
        .map_err(|_| Error::format("a message from another rank is malformed"))
}

static CALIBRATIONS: AtomicU32 = AtomicU32::new(0);

/// What a rank says first: what it was asked for, what its machine is, and how often its process has measured.
type Said = (String, Machine, u32);

/// Ranks see that all run the same version and ask for the same, and tell each other what their machines are. With a number
/// that the first one gives.
fn meet(crew: &mut Crew<'_>, options: &Calibrate) -> Result<(Vec<Machine>, u32)> {
    let number = CALIBRATIONS.fetch_add(1, Ordering::Relaxed);
    let asked = format!("{} {:?}", options.seconds, options.tiers);
    let mine = match options.seconds {
        s if (LEAST_SECONDS..=MOST_SECONDS).contains(&s) => {
            encode(&(asked.clone(), Machine::here(&crew.host), number)).map(|said| vec![said])
        }
        s => Err(Error::usage(format!("{s} seconds to measure in"))
            .with_hint(format!("take {LEAST_SECONDS} to {MOST_SECONDS}"))),
    };
    let mut join = |mut a: Vec<Vec<u8>>, b: Vec<Vec<u8>>| {
        a.extend(b);
        Ok(a)
    };
    let words = match crew.size() {
        1 => mine?,
        _ => crew.words(meeting::NAME, mine, &mut join)?,
    };
    let said: Vec<Said> = words.iter().map(|w| decode(w)).collect::<Result<_>>()?;
    if said.len() != crew.size() || said.iter().any(|(theirs, ..)| *theirs != asked) {
        return Err(Error::usage("ranks were asked to measure different things")
            .with_hint("all ranks measure the same, with the same seconds and tiers"));
    }
    let number = said.first().map_or(0, |(.., number)| *number);
    let machines: Vec<Machine> = said.into_iter().map(|(_, machine, _)| machine).collect();
    crew.hosts = machines.iter().map(|m| m.host.clone()).collect();
    Ok((machines, number))
}

/// What the first rank of a host measures.
fn measure(options: &Calibrate, tell: &dyn Fn(&str)) -> Result<Measured> {
    let kernels = kernels::measure(options.seconds * FOR_KERNELS, &options.cancel, tell)?;
    let pass_s = kernels::pass(&options.cancel)?;
    let mut measured = Measured { pass_s, kernels, ..Measured::NOTHING };
    let each = options.seconds * FOR_TIERS / options.tiers.len().max(1) as f64;
    for path in &options.tiers {
        options.cancel.check()?;
        let there = std::fs::metadata(path).is_ok();
        measured.seen.push(there);
        if there {
            tell(&format!("reading {}", path.display()));
            for tier in tiers::measure(path, each, &options.cancel)? {
                // Two folders of one device are one tier.
                match measured.tiers.iter_mut().find(|t| t.name == tier.name) {
                    None => measured.tiers.push(tier),
                    Some(same) if tier.bytes_per_s > same.bytes_per_s => *same = tier,
                    Some(_) => {}
                }
            }
        }
    }
    Ok(measured)
}

/// A path that no host has.
fn unseen<'o>(options: &'o Calibrate, measured: &[Measured]) -> Option<&'o PathBuf> {
    let seen = |i: usize| measured.iter().any(|m| m.seen.get(i) == Some(&true));
    options.tiers.iter().enumerate().find(|(i, _)| !seen(*i)).map(|(_, path)| path)
}

/// Seconds that all ranks take for one step together: less than what a quarter of them took. A host that may use a part of its
/// processors only has none left after what was measured before, as it has at the start of a run.
fn step(crew: &Crew<'_>) -> Result<f64> {
    const TRIES: usize = 32;
    if crew.size() == 1 {
        return Ok(0.0);
    }
    let mut took = Vec::with_capacity(TRIES);
    for _ in 0..TRIES {
        let watch = Watch::start();
        crew.agree(Ok(()))?;
        took.push(watch.seconds());
    }
    // That of the first rank, so that all say the same.
    took.sort_by(f64::total_cmp);
    let words = crew.gather(encode(&took.get(TRIES / 4).copied().unwrap_or(0.0)))?;
    decode(words.first().map_or(&[][..], Vec::as_slice))
}

/// The one in the middle; takes the order of them away. 0 of none.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The hosts of the ranks, in the order of their first ranks.
struct Hosts {
    names: Vec<String>,
    ranks: Vec<Vec<usize>>,
}

impl Hosts {
    fn of(machines: &[Machine]) -> Hosts {
        let mut hosts = Hosts { names: Vec::new(), ranks: Vec::new() };
        let mut known = BTreeMap::<&str, usize>::new();
        for (rank, machine) in machines.iter().enumerate() {
            let next = known.len();
            let host = *known.entry(&machine.host).or_insert(next);
            if host == next {
                hosts.names.push(machine.host.clone());
                hosts.ranks.push(Vec::new());
            }
            hosts.ranks[host].push(rank);
        }
        hosts
    }

    /// What the first rank of each host sees.
    fn machines<'m>(&self, machines: &'m [Machine]) -> Vec<&'m Machine> {
        self.ranks.iter().filter_map(|r| machines.get(*r.first()?)).collect()
    }

    fn profile(
        &self,
        machines: &[Machine],
        measured: &[Measured],
        links: &[links::Found],
        (step_s, cores): (f64, &cores::Cores),
    ) -> Profile {
        let of = |host: usize| self.ranks[host].first().and_then(|rank| measured.get(*rank));
        let reference = of(0).map(|m| m.kernels.clone()).unwrap_or_default();
        let mut profile = Profile { version: 1, ..Profile::default() };
        for (host, name) in self.names.iter().enumerate() {
            let there: Vec<&Machine> =
                self.ranks[host].iter().filter_map(|r| machines.get(*r)).collect();
            let Some(measured) = of(host) else { continue };
            let speed = speed(&reference, &measured.kernels);
            profile.sites.push(Site {
                speed,
                pass_core_s: measured.pass_s,
                request_s: step_s * STEPS_OF_A_REQUEST / SIDES,
                ..Site::new(name.clone(), Machine::cores(&there) * cores.alone(host))
            });
            profile
                .tiers
                .extend(measured.tiers.iter().map(|t| Tier { site: name.clone(), ..t.clone() }));
            if host > 0 && self.names.len() <= FEW_HOSTS {
                profile.kernels.extend(unlike(&reference, &measured.kernels, speed, name));
            }
        }
        profile.kernels.splice(0..0, reference);
        for there in &cores.shared {
            let of = |host: &usize| {
                let ranks = self.ranks[*host].iter().filter_map(|r| machines.get(*r));
                Machine::cores(&ranks.collect::<Vec<_>>()) * cores.together(*host)
            };
            profile.shared.push(Shared {
                sites: there.iter().map(|host| self.names[*host].clone()).collect(),
                cores: there.iter().map(of).sum(),
            });
        }
        let name = |rank: usize| machines.get(rank).map(|m| m.host.clone()).unwrap_or_default();
        profile.links.extend(links.iter().map(|l| Link {
            from: name(l.from),
            to: name(l.to),
            bytes_per_s: l.bytes_per_s,
            latency_s: l.latency_s,
            busy_latency_s: l.busy_latency_s,
            send_core_s_per_gb: l.send_s * 1e9,
            receive_core_s_per_gb: l.receive_s * 1e9,
        }));
        profile.note = format!(
            "measured by stead {} on {} host(s)",
            env!("CARGO_PKG_VERSION"),
            units::format_count(self.names.len() as u64)
        );
        profile
    }
}

/// What a kernel takes with a step for each byte.
fn whole(cost: &Cost) -> f64 {
    cost.core_s_per_gb + cost.core_s_per_gstep
}

/// How fast cores are beside those of the reference: the mean, over kernels, of how many times as fast.
fn speed(reference: &[Cost], theirs: &[Cost]) -> f64 {
    let ratios = reference.iter().filter_map(|r| {
        let same = theirs.iter().find(|t| (&t.kernel, &t.format) == (&r.kernel, &r.format))?;
        let ratio = whole(r) / whole(same);
        (ratio.is_finite() && ratio > 0.0).then(|| ratio.ln())
    });
    let ratios: Vec<f64> = ratios.collect();
    match ratios.len() {
        0 => 1.0,
        n => (ratios.iter().sum::<f64>() / n as f64).exp().clamp(1e-3, 1e3),
    }
}

/// Kernels that take another time at a site than the speed of its cores says.
fn unlike(reference: &[Cost], theirs: &[Cost], speed: f64, site: &str) -> Vec<Cost> {
    let odd = theirs.iter().filter(|t| {
        let same = reference.iter().find(|r| (&r.kernel, &r.format) == (&t.kernel, &t.format));
        same.is_none_or(|r| {
            let said = whole(r) / speed;
            (whole(t) - said).abs() > UNLIKE * said
        })
    });
    odd.map(|t| Cost { site: Some(site.to_owned()), ..t.clone() }).collect()
}

#[cfg(test)]
mod tests;
