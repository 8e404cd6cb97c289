//! What is known of the machines of a run, as a profile of two sites: the hosts that have the data and those that ask.

use super::{Said, assumed};
use crate::machine::Machine;
use crate::split::LEAST_CHUNK_S;
use std::collections::BTreeMap;
use stead_core::limits;
use stead_model::{Cost, Link, Profile, Request, Shared, Site, Splitting, Tier};

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
    /// Bytes that are computed on together or not at all, where both sides compute; 0 if any can be taken apart.
    pub unit: u64,
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
        let message_s = gathering.link(&stores, &asks);
        gathering.shared(&stores, &asks);
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
        // At the end of each pass one side waits for a chunk of the other one, then all meet.
        let last = assumed::LAST_CHUNKS * work.unit as f64 * stores.len() as f64;
        let least = last / work.bytes.max(1) as f64;
        request.splitting = Splitting {
            seconds: LEAST_CHUNK_S + assumed::MESSAGES * message_s,
            part: least.clamp(assumed::LEAST_PART, 1.0),
        };
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
        let passes = by_host.keys().filter_map(|h| self.known(h)).map(|s| s.pass_core_s);
        let pass_core_s = mean(&passes.collect::<Vec<_>>(), assumed::PASS_S);
        // Blocks are kept if all fit: their columns, where it is known how large these are.
        let kept: u64 = said.iter().fold(0, |n, s| n.saturating_add(s.kept));
        let fits = work.bytes as f64 * work.vector_per_byte.unwrap_or(1.0) <= kept as f64;
        self.found.sites.push(Site {
            memory_bytes: if fits { kept as f64 / by_host.len().max(1) as f64 } else { 0.0 },
            hosts: u32::try_from(by_host.len()).unwrap_or(u32::MAX).clamp(1, 1_000_000),
            speed: mean(&speeds, 1.0),
            request_s,
            pass_core_s,
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
        let core_s_per_gb = assumed::TAKING;
        let none = Tier { latency_s, depth: 4, core_s_per_gb, ..Tier::new("", "", bytes_per_s) };
        let tier = found.unwrap_or(none);
        self.found.tiers.push(Tier { name: TIER.to_owned(), site: STORAGE.to_owned(), ..tier });
    }

    /// The link from those that have the data to those that ask, and back: that in the middle of those that were measured.
    /// Returns the seconds of a small message while all compute.
    fn link(&mut self, stores: &[&Said], asks: &[&Said]) -> f64 {
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
        let of = |what: fn(&Link) -> f64| median(between.iter().map(|l| what(l)).collect());
        let busy = of(|l| l.busy_latency_s).filter(|s| *s > 0.0).unwrap_or(assumed::BUSY_S);
        self.found.links.push(Link {
            latency_s: of(|l| l.latency_s).unwrap_or(assumed::LINK.1),
            busy_latency_s: busy,
            send_core_s_per_gb: of(|l| l.send_core_s_per_gb).unwrap_or(assumed::SENDING),
            receive_core_s_per_gb: of(|l| l.receive_core_s_per_gb).unwrap_or(assumed::SENDING),
            ..Link::new(STORAGE, HOSTS, of(|l| l.bytes_per_s).unwrap_or(assumed::LINK.0))
        });
        busy
    }

    /// Cores that hosts share, as they are on one machine: those of one side, of the other one, and of both. Who shares none has
    /// its own.
    fn shared(&mut self, stores: &[&Said], asks: &[&Said]) {
        let sides: [(&[&str], [&[&Said]; 2]); 3] = [
            (&[STORAGE], [stores, &[]]),
            (&[HOSTS], [asks, &[]]),
            (&[STORAGE, HOSTS], [stores, asks]),
        ];
        for (sites, said) in sides {
            let mut by_host = BTreeMap::<&str, Vec<&Machine>>::new();
            said.iter().copied().flatten().for_each(|s| {
                by_host.entry(&s.machine.host).or_default().push(&s.machine);
            });
            let hosts: Vec<&Machine> =
                by_host.values().filter_map(|m| m.first().copied()).collect();
            let machines = Machine::shared(&hosts);
            if machines.is_empty() {
                continue;
            }
            let own = |at: &usize| {
                let ranks = hosts.get(*at).and_then(|m| by_host.get(m.host.as_str()));
                ranks.map_or(&[][..], Vec::as_slice)
            };
            let of_machine = |there: &Vec<usize>| {
                let ranks: Vec<&Machine> = there.iter().flat_map(|at| own(at).to_vec()).collect();
                let named = |site: &String| there.iter().any(|at| &hosts[*at].host == site);
                let told = self.measured.shared.iter().find(|s| s.sites.iter().any(named));
                let all = Machine::cores(&ranks).min(told.map_or(f64::INFINITY, |s| s.cores));
                // Of these, each host has as many threads as there are cores, and others have so many.
                let load = |at: &usize| Machine::load(own(at), Machine::cores(own(at)));
                let load = there.iter().map(load).fold(f64::INFINITY, f64::min);
                let hosts = there.len() as f64;
                all * hosts / (hosts + load)
            };
            let alone = (0..hosts.len()).filter(|at| !machines.iter().any(|m| m.contains(at)));
            let cores = machines.iter().map(of_machine).sum::<f64>()
                + alone.map(|at| Machine::cores(own(&at))).sum::<f64>();
            let sites = sites.iter().map(|s| (*s).to_owned()).collect();
            self.found.shared.push(Shared { sites, cores });
        }
    }
}
