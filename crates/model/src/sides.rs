//! The two sides of a request as numbers: who has the data and who asks, with what is left of them by others.

use crate::profile::missing;
use crate::{Link, Load, Profile, Request, Site};
use std::collections::HashMap;
use stead_core::{Error, Result};

/// What kernels of one scan take at a site, for each byte of the file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    /// Core-seconds of parsing.
    pub(crate) parse: f64,
    /// Core-seconds of computing.
    pub(crate) compute: f64,
    /// Bytes of states, whatever the data.
    pub(crate) result: f64,
    /// Bytes of results.
    pub(crate) result_per_byte: f64,
    /// Bytes of numbers.
    pub(crate) vector: f64,
    /// Core-seconds of taking a byte from the tier, of sending one and of receiving one.
    pub(crate) take: f64,
    pub(crate) send: f64,
    pub(crate) receive: f64,
}

impl Work {
    /// Parsing is done once for all kernels; the rest adds up.
    fn of(profile: &Profile, request: &Request, site: &Site) -> Result<Work> {
        let mut all = Work::default();
        let mut vectors = true;
        for (i, kernel) in request.kernels.iter().enumerate() {
            let steps = request.steps_per_byte.get(i).copied().unwrap_or(0.0);
            let c = profile.cost(kernel, &request.format, site)?;
            let per_byte = c.core_s_per_gb / 1e9;
            all.parse = all.parse.max(per_byte * c.parse_share);
            all.compute += per_byte * (1.0 - c.parse_share) + steps * c.core_s_per_gstep / 1e9;
            all.result += c.result_bytes;
            all.result_per_byte += c.result_per_byte;
            all.vector += c.vector_per_byte;
            vectors &= c.vector_per_byte > 0.0;
        }
        if !vectors {
            all.vector = 0.0;
        }
        all.vector = request.vector_per_byte.unwrap_or(all.vector);
        Ok(all)
    }
}

/// Hosts of one site.
#[derive(Debug, Clone)]
pub(crate) struct Hosts {
    pub(crate) site: String,
    pub(crate) hosts: f64,
    /// Cores of each that are ours.
    pub(crate) cores: f64,
    pub(crate) work: Work,
    pub(crate) memory: f64,
    pub(crate) request_s: f64,
    /// Seconds of a pass, whatever the data.
    pub(crate) pass_s: f64,
}

impl Hosts {
    fn of(profile: &Profile, request: &Request, load: &Load, name: &str) -> Result<Hosts> {
        let site = profile.site(name)?;
        // Threads of others share the cores fairly with ours.
        let load = load.of(name).unwrap_or(site.load);
        let cores = site.cores / (1.0 + load);
        Ok(Hosts {
            site: name.to_owned(),
            hosts: f64::from(site.hosts),
            cores,
            work: Work::of(profile, request, site)?,
            memory: site.memory_bytes,
            request_s: site.request_s,
            pass_s: site.pass_core_s / cores.min(1.0),
        })
    }
}

/// A link between two sites as it is at the moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wire {
    /// Bytes in a second of each host's port.
    pub(crate) rate: f64,
    pub(crate) latency: f64,
    /// Core-seconds of a byte at both ends.
    pub(crate) send: f64,
    pub(crate) receive: f64,
}

impl Wire {
    /// The lower rate and the longer latency.
    pub(crate) fn worse(self, o: Wire) -> Wire {
        Wire { rate: self.rate.min(o.rate), ..self.port(o) }
    }

    /// One port that leads to several: the best rate; the longest latency and the most work, so that a faster link is never worse.
    fn port(self, o: Wire) -> Wire {
        Wire {
            rate: self.rate.max(o.rate),
            latency: self.latency.max(o.latency),
            send: self.send.max(o.send),
            receive: self.receive.max(o.receive),
        }
    }
}

/// Nothing lies between.
const NO_WIRE: Wire = Wire { rate: f64::INFINITY, latency: 0.0, send: 0.0, receive: 0.0 };

/// What the links of a profile mean for a request.
struct Wires {
    /// From each store to who asks, and back.
    out: Vec<Option<Wire>>,
    back: Vec<Option<Wire>>,
    /// The port of each host that asks.
    ports: Vec<Option<Wire>>,
    among_stores: Option<Wire>,
    among_asks: Option<Wire>,
}

impl Wires {
    fn new(stores: usize, asks: usize) -> Wires {
        Wires {
            out: vec![None; stores],
            back: vec![None; stores],
            ports: vec![None; asks],
            among_stores: None,
            among_asks: None,
        }
    }

    /// A link between two sites, each of which is a store, one that asks, both or none.
    fn add(&mut self, wire: Wire, from: Ends<'_>, to: Ends<'_>) {
        let join = |at: &mut Option<Wire>, how: fn(Wire, Wire) -> Wire| {
            *at = Some(at.map_or(wire, |w| how(w, wire)));
        };
        if let ((Some(store), _), (_, Some(ask))) = (from, to) {
            join(&mut self.out[*store], Wire::port);
            join(&mut self.ports[*ask], Wire::port);
        }
        if let ((_, Some(_)), (Some(store), _)) = (from, to) {
            join(&mut self.back[*store], Wire::port);
        }
        if from.0.is_some() && to.0.is_some() {
            join(&mut self.among_stores, Wire::worse);
        }
        if from.1.is_some() && to.1.is_some() {
            join(&mut self.among_asks, Wire::worse);
        }
    }
}

/// The place of a site among the stores, and among those that ask.
type Ends<'a> = (Option<&'a usize>, Option<&'a usize>);

/// The links of a profile by their ends; those that are there in one direction only stand for the other one, too.
fn both_ways(profile: &Profile) -> HashMap<(&str, &str), &Link> {
    let mut links = HashMap::new();
    for l in &profile.links {
        links.entry((l.to.as_str(), l.from.as_str())).or_insert(l);
    }
    for l in &profile.links {
        links.insert((l.from.as_str(), l.to.as_str()), l);
    }
    links
}

/// A site that has data.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub(crate) at: Hosts,
    /// Bytes on it.
    pub(crate) bytes: f64,
    /// Bytes in a second from its tier, all hosts together.
    pub(crate) read: f64,
    pub(crate) read_latency: f64,
    /// To who asks, and back.
    pub(crate) out: Wire,
    pub(crate) back: Wire,
    /// How much of the data leaves the host that has it when who asks computes: not all, where they are the same hosts.
    pub(crate) leaves: f64,
}

/// Both sides.
#[derive(Debug, Clone)]
pub(crate) struct Sides {
    pub(crate) stores: Vec<Store>,
    pub(crate) asks: Vec<Hosts>,
    /// Ports of who asks, together: bytes in a second, in and out.
    pub(crate) ports: f64,
    pub(crate) switch: f64,
    /// Among hosts with data, and among those that ask.
    pub(crate) among_stores: Wire,
    pub(crate) among_asks: Wire,
    pub(crate) passes: f64,
    pub(crate) uncached: f64,
    pub(crate) chunk: f64,
    pub(crate) pools: Vec<Pool>,
}

/// Cores that sites share.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) cores: f64,
    /// Which of the stores, and how much of the work of those who ask, is done on them.
    pub(crate) stores: Vec<bool>,
    pub(crate) asks: Vec<bool>,
}

impl Sides {
    pub(crate) fn new(profile: &Profile, request: &Request, load: &Load) -> Result<Sides> {
        profile.check()?;
        let bad = |what: &str| Err(Error::usage(what.to_owned()));
        if request.held.is_empty() || request.asked_by.is_empty() {
            return bad("a request needs a site that has the data and one that asks");
        }
        if request.kernels.is_empty() {
            return bad("a request without kernels");
        }
        let costs = request.splitting;
        if !(0.0..1e9).contains(&costs.seconds) || !(0.0..1e9).contains(&costs.part) {
            return Err(Error::usage("to split a request takes 0 seconds or more"));
        }
        if !request.steps_per_byte.iter().all(|steps| (0.0..1e9).contains(steps)) {
            return Err(Error::usage("kernels take 0 steps or more for a byte"));
        }
        if request.vector_per_byte.is_some_and(|v| !(0.0..1e9).contains(&v)) {
            return bad("a byte of the data has 0 bytes of numbers or more");
        }
        if request.passes == 0 || request.chunk == 0 || !(0.0..=1.0).contains(&request.cached) {
            return bad(
                "a request has 1 or more passes, chunks of 1 byte or more, and is cached by 0 to 1",
            );
        }
        let mut held: HashMap<&str, usize> = HashMap::new();
        for (i, h) in request.held.iter().enumerate() {
            if held.insert(&h.site, i).is_some() {
                return bad("a site has data twice");
            }
        }
        let mut asked: HashMap<&str, usize> = HashMap::new();
        for (i, name) in request.asked_by.iter().enumerate() {
            if asked.insert(name, i).is_some() {
                return bad("a site asks twice");
            }
        }
        let hosts = |name: &str| Hosts::of(profile, request, load, name);
        let mut asks = request.asked_by.iter().map(|a| hosts(a)).collect::<Result<Vec<Hosts>>>()?;
        let asking: f64 = asks.iter().map(|a| a.hosts).sum();
        let mut wires = Wires::new(held.len(), asked.len());
        for ((from, to), link) in both_ways(profile) {
            let rate = link.bytes_per_s * load.left(from, to);
            let (send, receive) = (link.send_core_s_per_gb / 1e9, link.receive_core_s_per_gb / 1e9);
            let wire = Wire { rate, latency: link.latency_s, send, receive };
            wires.add(wire, (held.get(from), asked.get(from)), (held.get(to), asked.get(to)));
        }
        let mut stores = Vec::new();
        for (i, has) in request.held.iter().enumerate() {
            let mut at = hosts(&has.site)?;
            let tier = profile.tier(&has.site, &has.tier)?;
            let same = asked.contains_key(has.site.as_str());
            let leaves = if same { 1.0 - 1.0 / asking.max(1.0) } else { 1.0 };
            if wires.out[i].is_none() && leaves > 0.0 {
                let to = request.asked_by.join("', '");
                return Err(missing(format!("no link from '{}' to '{to}'", has.site)));
            }
            let (out, back) = (wires.out[i].unwrap_or(NO_WIRE), wires.back[i].unwrap_or(NO_WIRE));
            at.work.take = tier.core_s_per_gb / 1e9;
            (at.work.send, at.work.receive) = (out.send * leaves, back.receive * leaves);
            stores.push(Store {
                bytes: has.bytes as f64,
                read: tier.bytes_per_s * at.hosts,
                read_latency: tier.latency_s,
                out,
                back,
                leaves,
                at,
            });
        }
        for (a, port) in asks.iter_mut().zip(&wires.ports) {
            // What it sends goes back where bytes came from, and takes as much.
            let port = port.unwrap_or(NO_WIRE);
            (a.work.send, a.work.receive) = (port.send, port.receive);
        }
        let pools = profile.shared.iter().map(|s| {
            let has = |site: &str| s.sites.iter().any(|name| name == site);
            // Others take of them what they take of the sites.
            let load = s
                .sites
                .iter()
                .filter_map(|name| load.of(name).or(profile.site(name).ok().map(|site| site.load)));
            Pool {
                cores: s.cores / (1.0 + load.fold(0.0, f64::max)),
                stores: stores.iter().map(|s| has(&s.at.site)).collect(),
                asks: asks.iter().map(|a| has(&a.site)).collect(),
            }
        });
        let pools: Vec<Pool> = pools.collect();
        let port = |(a, p): (&Hosts, &Option<Wire>)| a.hosts * p.map_or(f64::INFINITY, |p| p.rate);
        let ports = asks.iter().zip(&wires.ports).map(port).sum();
        // Hosts of a kind of which no link is known are connected as both kinds are.
        let between = stores.iter().map(|s| s.out).reduce(Wire::worse).unwrap_or(NO_WIRE);
        let among_stores = wires.among_stores.unwrap_or(between);
        let among_asks = wires.among_asks.unwrap_or(between);
        Ok(Sides {
            stores,
            asks,
            ports,
            switch: profile.switch_bytes_per_s.unwrap_or(f64::INFINITY),
            among_stores,
            among_asks,
            passes: f64::from(request.passes),
            uncached: 1.0 - request.cached,
            chunk: request.chunk as f64,
            pools,
        })
    }

    pub(crate) fn bytes(&self) -> f64 {
        self.stores.iter().map(|s| s.bytes).sum()
    }

    /// Some hosts have data and ask, too, so that both sides share cores.
    pub(crate) fn share_hosts(&self) -> bool {
        self.stores.iter().any(|s| self.asks.iter().any(|a| a.site == s.at.site))
    }

    /// True if there are numbers to send in place of bytes.
    pub(crate) fn has_vectors(&self) -> bool {
        self.stores.iter().all(|s| s.at.work.vector > 0.0)
            && self.asks.iter().all(|a| a.work.vector > 0.0)
    }
}
