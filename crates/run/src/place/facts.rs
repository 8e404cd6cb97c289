//! What is known of the machines of a run, as a profile of two sites: the hosts that have the data and those that ask.

use super::{Said, assumed};
use crate::machine::Machine;
use std::collections::BTreeMap;
use stead_core::limits;
use stead_model::{Cost, Link, Profile, Request, Site, Tier};

/// The two sites, and the tier.
const STORAGE: &str = "storage";
const HOSTS: &str = "hosts";
const TIER: &str = "tier";
/// Hosts of each side whose links are looked at.
const LOOKED_AT: usize = 64;

/// What is asked for.
pub struct Work<'w> {
    pub bytes: u64,
    pub format: &'w str,
    pub families: Vec<String>,
    /// Of each of them, as `assumed::steps` counts them.
    pub steps: Vec<f64>,
    pub passes: u32,
    /// Bytes of the columns that kernels look at, for each byte of the data; `None` if they look at something else.
    pub vector_per_byte: Option<f64>,
}

/// What the model is asked.
pub struct Facts {
    pub profile: Profile,
    pub request: Request,
    /// What was not measured.
    pub assumed: Vec<String>,
}

impl Facts {
    /// `measured` is what was measured before, of these hosts or others.
    pub(super) fn new(
        said: &[Said],
        storage: &[bool],
        measured: Option<&Profile>,
        work: &Work<'_>,
    ) -> Facts {
        let empty = Profile { version: 1, ..Profile::default() };
        let mut gathering = Gathering {
            measured: measured.unwrap_or(&empty),
            found: Profile { version: 1, ..Profile::default() },
            assumed: Vec::new(),
        };
        let of = |has: bool| {
            let ranks = said.iter().zip(storage).filter(move |(_, s)| **s == has);
            ranks.map(|(said, _)| said).collect::<Vec<_>>()
        };
        let (stores, asks) = (of(true), of(false));
        gathering.site(STORAGE, &stores, work);
        gathering.site(HOSTS, &asks, work);
        gathering.tier(&stores);
        gathering.link(&stores, &asks);
        let mut request = Request::new(work.bytes, "", work.format)
            .held_on(STORAGE, TIER)
            .asked_by(HOSTS)
            .in_passes(work.passes);
        request.kernels.clone_from(&work.families);
        let per_byte = |steps: &f64| steps / work.bytes.max(1) as f64;
        request.steps_per_byte = work.steps.iter().map(per_byte).collect();
        let cached: f64 = stores.iter().map(|s| s.cached).sum();
        request.cached = (cached / stores.len().max(1) as f64).clamp(0.0, 1.0);
        request.chunk = limits::DEFAULT_CHUNK as u64;
        request.splitting = assumed::SPLITTING;
        request.vector_per_byte = work.vector_per_byte;
        Facts { profile: gathering.found, request, assumed: gathering.assumed }
    }
}

struct Gathering<'m> {
    measured: &'m Profile,
    found: Profile,
    assumed: Vec<String>,
}

/// The names of hosts, each once.
fn names<'s>(said: &[&'s Said]) -> Vec<&'s str> {
    let mut names: Vec<&str> = said.iter().map(|s| s.machine.host.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn mean(values: &[f64], or: f64) -> f64 {
    if values.is_empty() { or } else { values.iter().sum::<f64>() / values.len() as f64 }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

impl Gathering<'_> {
    fn assume(&mut self, what: impl Into<String>) {
        self.assumed.push(what.into());
    }

    /// What was measured of a host.
    fn known(&self, host: &str) -> Option<&Site> {
        self.measured.sites.iter().find(|s| s.name == host)
    }

    /// One side.
    fn site(&mut self, name: &str, said: &[&Said], work: &Work<'_>) {
        let mut by_host = BTreeMap::<&str, Vec<&Said>>::new();
        said.iter().for_each(|s| by_host.entry(&s.machine.host).or_default().push(s));
        let (mut cores, mut speeds) = (Vec::new(), Vec::new());
        for (host, ranks) in &by_host {
            let machines: Vec<&Machine> = ranks.iter().map(|s| &s.machine).collect();
            let there = Machine::cores(&machines);
            let asked: u64 = ranks.iter().map(|s| s.threads).sum();
            let all = ranks.iter().all(|s| s.threads > 0);
            let ours = if all { there.min(asked as f64) } else { there };
            // What was measured of a host that is idle it does not exceed, as one that may use a part of its cores.
            let most = self.known(host).map_or(f64::INFINITY, |s| s.cores);
            cores.push((ours / (1.0 + Machine::load(&machines, there))).min(most));
            speeds.extend(self.known(host).map(|s| s.speed));
        }
        if speeds.len() < by_host.len() && !self.measured.sites.is_empty() {
            let unknown = by_host.keys().filter(|h| self.known(h).is_none()).count();
            let which = if name == STORAGE { "with the data" } else { "that ask" };
            self.assume(format!("the speed of {unknown} host(s) {which}"));
        }
        let requests = by_host.keys().filter_map(|h| self.known(h)).map(|s| s.request_s);
        let request_s = mean(&requests.collect::<Vec<_>>(), assumed::REQUEST_S);
        // Blocks are kept if all fit: their columns, where it is known how large these are.
        let kept: u64 = said.iter().fold(0, |n, s| n.saturating_add(s.kept));
        let fits = work.bytes as f64 * work.vector_per_byte.unwrap_or(1.0) <= kept as f64;
        self.found.sites.push(Site {
            memory_bytes: if fits { kept as f64 / by_host.len().max(1) as f64 } else { 0.0 },
            hosts: u32::try_from(by_host.len()).unwrap_or(u32::MAX).clamp(1, 1_000_000),
            speed: mean(&speeds, 1.0),
            request_s,
            // Hosts have equal shares, so the one with the fewest cores is waited for.
            ..Site::new(name, cores.iter().copied().reduce(f64::min).unwrap_or(1.0))
        });
        for family in &work.families {
            let cost = self.cost(family, work.format, &by_host.keys().copied().collect::<Vec<_>>());
            self.found.kernels.push(Cost { site: Some(name.to_owned()), ..cost });
        }
    }

    /// What a kernel takes on a core of these hosts, on average.
    fn cost(&mut self, family: &str, format: &str, hosts: &[&str]) -> Cost {
        // Hosts that nobody measured are as the reference.
        let reference = Site::new("", 1.0);
        let mut found: Vec<Cost> = Vec::new();
        for host in hosts {
            let site = self.known(host).unwrap_or(&reference);
            found.extend(self.measured.cost(family, format, site).ok());
        }
        let Some(first) = found.first() else {
            let what = format!("what {family} takes over {format}");
            if !self.assumed.contains(&what) {
                self.assume(what);
            }
            return assumed::cost(family, format);
        };
        let of = |cost: fn(&Cost) -> f64| mean(&found.iter().map(cost).collect::<Vec<_>>(), 0.0);
        Cost {
            core_s_per_gb: of(|c| c.core_s_per_gb),
            core_s_per_gstep: of(|c| c.core_s_per_gstep),
            ..first.clone()
        }
    }

    /// The storage that the data lie on: the slowest of its hosts.
    fn tier(&mut self, stores: &[&Said]) {
        let mut found: Option<Tier> = None;
        let mut unknown = false;
        for said in stores {
            let of_host = |t: &&Tier| t.site == said.machine.host;
            let named = |t: &&Tier| said.tier.as_ref() == Some(&t.name);
            let tiers = || self.measured.tiers.iter();
            let tier = tiers().filter(of_host).find(named).or_else(|| tiers().find(named));
            unknown |= tier.is_none();
            let slower = |t: &&Tier| found.as_ref().is_none_or(|f| t.bytes_per_s < f.bytes_per_s);
            found = tier.filter(slower).cloned().or(found.take());
        }
        if unknown {
            self.assume("how fast the data are read");
        }
        let (bytes_per_s, latency_s) = assumed::TIER;
        let none =
            Tier { name: String::new(), site: String::new(), bytes_per_s, latency_s, depth: 4 };
        let tier = found.unwrap_or(none);
        self.found.tiers.push(Tier { name: TIER.to_owned(), site: STORAGE.to_owned(), ..tier });
    }

    /// The link from those that have the data to those that ask, and back: that in the middle of those that were measured.
    fn link(&mut self, stores: &[&Said], asks: &[&Said]) {
        let (stores, asks) = (names(stores), names(asks));
        let mut between: Vec<&Link> = Vec::new();
        for store in stores.iter().take(LOOKED_AT) {
            for ask in asks.iter().take(LOOKED_AT) {
                between.extend(self.measured.link(store, ask));
            }
        }
        if between.is_empty() {
            // Other hosts of the same machine room.
            between.extend(self.measured.links.iter().take(LOOKED_AT));
            if between.is_empty() || self.measured.links.is_empty() {
                self.assume("a network of 1 Gb/s");
            } else {
                self.assume("that these hosts are linked as others are");
            }
        }
        let rate = median(between.iter().map(|l| l.bytes_per_s).collect());
        let latency = median(between.iter().map(|l| l.latency_s).collect());
        self.found.links.push(Link {
            from: STORAGE.to_owned(),
            to: HOSTS.to_owned(),
            bytes_per_s: rate.unwrap_or(assumed::LINK.0),
            latency_s: latency.unwrap_or(assumed::LINK.1),
        });
    }
}
