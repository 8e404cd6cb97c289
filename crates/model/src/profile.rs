//! What was measured of the machines.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use stead_core::{Error, Result};

/// Most entries of each list, and the longest name.
const MOST: usize = 4096;
const LONGEST: usize = 255;

/// Sites, tiers, links and costs, as they were measured.
///
/// All numbers are finite and not negative, rates are positive, names are unique: [`Profile::check`] says so, and
/// [`Profile::parse`] calls it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Version of the text form; 1.
    pub version: u32,
    /// When and where it was measured, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Bytes in a second that all hosts together get through what they share: a switch, a bisection. `None`: no bound but
    /// that of the links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_bytes_per_s: Option<f64>,
    /// Places that can run kernels.
    #[serde(default)]
    pub sites: Vec<Site>,
    /// Storage of sites.
    #[serde(default)]
    pub tiers: Vec<Tier>,
    /// What connects sites.
    #[serde(default)]
    pub links: Vec<Link>,
    /// Processors that several sites share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<Shared>,
    /// What kernels take.
    #[serde(default)]
    pub kernels: Vec<Cost>,
}

/// A place that can run kernels: a host, or several equal ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Its name in tiers, links and costs.
    pub name: String,
    /// Number of hosts that are alike.
    #[serde(default = "one_host")]
    pub hosts: u32,
    /// Cores of each host that kernels may use.
    pub cores: f64,
    /// Speed of a core beside the reference core, for costs that were not measured here.
    #[serde(default = "one")]
    pub speed: f64,
    /// Threads of others that want to run, for each core: 0 is idle, 1 is a program on each core.
    #[serde(default)]
    pub load: f64,
    /// Bytes of each host that may keep numbers between passes.
    #[serde(default = "memory")]
    pub memory_bytes: f64,
    /// Seconds that a request costs here before the first byte is read.
    #[serde(default)]
    pub request_s: f64,
    /// Seconds of a core of a host for each pass, whatever the data: to start threads and to end them.
    #[serde(default)]
    pub pass_core_s: f64,
}

/// The storage of a site.
///
/// Read sessions remember how they read a tier best, past the page cache and through it, for each size of blocks: the rate
/// in bytes a second and the blocks in flight. A line of that is a tier here, with `rate` as `bytes_per_s` and `flying` as
/// `depth`; of several sizes of blocks the fastest one. Latency is not known there, and is measured with single reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// Its name; unique within the site.
    pub name: String,
    /// The site that it is attached to.
    pub site: String,
    /// Bytes in a second for each host of the site, with `depth` reads in flight.
    pub bytes_per_s: f64,
    /// Seconds until the first byte of a read.
    #[serde(default)]
    pub latency_s: f64,
    /// Reads in flight at which the rate was measured.
    #[serde(default = "one_host")]
    pub depth: u32,
    /// Seconds of a core of the site for 10^9 bytes that are taken from it to be computed on or sent, if they are in the memory of
    /// the host already: what it takes to have them mapped.
    #[serde(default)]
    pub core_s_per_gb: f64,
}

/// Processors that all hosts of several sites share, as containers of one machine do. What these keep busy at once is no more
/// than that, whatever each of them may have while the others are idle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// The sites.
    pub sites: Vec<String>,
    /// Cores that they have together, as fast as those of the sites.
    pub cores: f64,
}

/// A connection from the hosts of one site to those of another.
///
/// It is full duplex: bytes in one direction do not slow those in the other one down. A link that is not in the profile is
/// like the one in the other direction; hosts of one site are connected as they are with others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Site that sends.
    pub from: String,
    /// Site that receives.
    pub to: String,
    /// Bytes in a second of each host's port.
    pub bytes_per_s: f64,
    /// Seconds from sending to receiving a small message.
    #[serde(default)]
    pub latency_s: f64,
    /// The same on average while all cores of both hosts compute; 0 where that was not measured.
    #[serde(default)]
    pub busy_latency_s: f64,
    /// Seconds of a core of who sends for 10^9 bytes.
    #[serde(default)]
    pub send_core_s_per_gb: f64,
    /// Seconds of a core of who receives.
    #[serde(default)]
    pub receive_core_s_per_gb: f64,
}

/// What a kernel takes in a format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Family of kernels: `sum`, `grep`, `kmeans`.
    pub kernel: String,
    /// Format of the data: `csv`, `raw`; `*` for any.
    pub format: String,
    /// The site where it was measured; `None` for the reference core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Seconds of one core for 10^9 bytes of the file, in one pass: parsing and computing.
    pub core_s_per_gb: f64,
    /// How much of that is parsing, 0 to 1.
    #[serde(default)]
    pub parse_share: f64,
    /// Seconds of one core for 10^9 steps of work that does not follow from bytes, beside those for bytes: samples along the
    /// rays of a picture, a value and one of the centres of clusters.
    #[serde(default)]
    pub core_s_per_gstep: f64,
    /// Bytes of the state that is merged and sent, whatever the data.
    #[serde(default)]
    pub result_bytes: f64,
    /// Bytes of the answer for each byte of the file, such as lines that were found.
    #[serde(default)]
    pub result_per_byte: f64,
    /// Bytes of the numbers that are parsed out of each byte of the file; 0 if there are none to send.
    #[serde(default)]
    pub vector_per_byte: f64,
}

fn one() -> f64 {
    1.0
}

fn one_host() -> u32 {
    1
}

/// What an idle host can spare: as the default budget of a run.
fn memory() -> f64 {
    stead_core::limits::DEFAULT_MEMORY as f64
}

impl Site {
    /// One host of so many cores, as fast as the reference, idle.
    pub fn new(name: impl Into<String>, cores: f64) -> Site {
        Site {
            name: name.into(),
            hosts: 1,
            cores,
            speed: 1.0,
            load: 0.0,
            memory_bytes: memory(),
            request_s: 0.0,
            pass_core_s: 0.0,
        }
    }
}

impl Tier {
    /// Storage of a site that is read at so many bytes a second, without delay, and taken from for nothing.
    pub fn new(name: impl Into<String>, site: impl Into<String>, bytes_per_s: f64) -> Tier {
        let (name, site) = (name.into(), site.into());
        Tier { name, site, bytes_per_s, latency_s: 0.0, depth: 1, core_s_per_gb: 0.0 }
    }
}

impl Link {
    /// A connection that takes so many bytes a second, without delay and for nothing.
    pub fn new(from: impl Into<String>, to: impl Into<String>, bytes_per_s: f64) -> Link {
        Link {
            from: from.into(),
            to: to.into(),
            bytes_per_s,
            latency_s: 0.0,
            busy_latency_s: 0.0,
            send_core_s_per_gb: 0.0,
            receive_core_s_per_gb: 0.0,
        }
    }
}

impl Profile {
    /// Checks all that the fields promise.
    ///
    /// # Errors
    /// `Format`, with the entry and what is wrong with it.
    pub fn check(&self) -> Result<()> {
        if self.version != crate::text::VERSION {
            return Err(crate::text::other_version(i64::from(self.version)));
        }
        let lists = [
            self.sites.len(),
            self.tiers.len(),
            self.links.len(),
            self.kernels.len(),
            self.shared.len(),
        ];
        if lists.iter().any(|n| *n > MOST) {
            return Err(Error::format(format!("more than {MOST} entries in a list")));
        }
        if let Some(rate) = self.switch_bytes_per_s {
            positive("the switch", "switch_bytes_per_s", rate)?;
        }
        let mut sites = HashSet::new();
        for s in &self.sites {
            let what = format!("site '{}'", shown(&s.name));
            name(&what, &s.name)?;
            if !sites.insert(s.name.as_str()) {
                return Err(Error::format(format!("{what} is there twice")));
            }
            count(&what, "hosts", s.hosts)?;
            positive(&what, "cores", s.cores)?;
            positive(&what, "speed", s.speed)?;
            within(&what, "load", s.load, 1e6)?;
            within(&what, "memory_bytes", s.memory_bytes, MUCH)?;
            within(&what, "request_s", s.request_s, MUCH)?;
            within(&what, "pass_core_s", s.pass_core_s, MUCH)?;
        }
        let known = |what: &str, site: &str| {
            if sites.contains(site) {
                return Ok(());
            }
            Err(Error::format(format!("{what} names site '{}', which is not there", shown(site))))
        };
        let mut tiers = HashSet::new();
        for t in &self.tiers {
            let what = format!("tier '{}' of '{}'", shown(&t.name), shown(&t.site));
            name(&what, &t.name)?;
            known(&what, &t.site)?;
            if !tiers.insert((t.name.as_str(), t.site.as_str())) {
                return Err(Error::format(format!("{what} is there twice")));
            }
            positive(&what, "bytes_per_s", t.bytes_per_s)?;
            within(&what, "latency_s", t.latency_s, MUCH)?;
            within(&what, "core_s_per_gb", t.core_s_per_gb, MUCH)?;
            count(&what, "depth", t.depth)?;
        }
        let mut links = HashSet::new();
        for l in &self.links {
            let what = format!("link from '{}' to '{}'", shown(&l.from), shown(&l.to));
            known(&what, &l.from)?;
            known(&what, &l.to)?;
            if !links.insert((l.from.as_str(), l.to.as_str())) {
                return Err(Error::format(format!("{what} is there twice")));
            }
            positive(&what, "bytes_per_s", l.bytes_per_s)?;
            within(&what, "latency_s", l.latency_s, MUCH)?;
            within(&what, "busy_latency_s", l.busy_latency_s, MUCH)?;
            within(&what, "send_core_s_per_gb", l.send_core_s_per_gb, MUCH)?;
            within(&what, "receive_core_s_per_gb", l.receive_core_s_per_gb, MUCH)?;
        }
        for s in &self.shared {
            let what = format!("cores that {} sites share", s.sites.len());
            positive(&what, "cores", s.cores)?;
            s.sites.iter().try_for_each(|site| known(&what, site))?;
        }
        let mut kernels = HashSet::new();
        for c in &self.kernels {
            let what = format!("kernel '{}' in '{}'", shown(&c.kernel), shown(&c.format));
            name(&what, &c.kernel)?;
            name(&what, &c.format)?;
            if let Some(site) = &c.site {
                known(&what, site)?;
            }
            if !kernels.insert((c.kernel.as_str(), c.format.as_str(), c.site.as_deref())) {
                return Err(Error::format(format!("{what} is there twice")));
            }
            within(&what, "core_s_per_gb", c.core_s_per_gb, MUCH)?;
            within(&what, "parse_share", c.parse_share, 1.0)?;
            within(&what, "core_s_per_gstep", c.core_s_per_gstep, MUCH)?;
            within(&what, "result_bytes", c.result_bytes, MUCH)?;
            within(&what, "result_per_byte", c.result_per_byte, 1e6)?;
            within(&what, "vector_per_byte", c.vector_per_byte, 1e6)?;
        }
        Ok(())
    }

    /// The site of this name.
    ///
    /// # Errors
    /// `Usage` if there is none.
    pub fn site(&self, name: &str) -> Result<&Site> {
        self.sites
            .iter()
            .find(|s| s.name == name)
            .ok_or_else(|| missing(format!("no site '{}'", shown(name))))
    }

    /// A tier of a site.
    ///
    /// # Errors
    /// `Usage` if there is none.
    pub fn tier(&self, site: &str, name: &str) -> Result<&Tier> {
        self.tiers
            .iter()
            .find(|t| t.site == site && t.name == name)
            .ok_or_else(|| missing(format!("no tier '{}' of site '{}'", shown(name), shown(site))))
    }

    /// What connects two sites: the link, or the one in the other direction.
    pub fn link(&self, from: &str, to: &str) -> Option<&Link> {
        let find = |a: &str, b: &str| self.links.iter().find(|l| l.from == a && l.to == b);
        find(from, to).or_else(|| find(to, from))
    }

    /// The cost of a kernel at a site, with `core_s_per_gb` as of a core of that site. What was measured at the site comes
    /// before the reference core, and the format before `*`.
    ///
    /// # Errors
    /// `Usage` if nobody measured it.
    pub fn cost(&self, kernel: &str, format: &str, site: &Site) -> Result<Cost> {
        let find = |format: &str, at: Option<&str>| {
            self.kernels
                .iter()
                .find(|c| c.kernel == kernel && c.format == format && c.site.as_deref() == at)
        };
        let here = |format| find(format, Some(&site.name)).cloned();
        let reference = |format| {
            find(format, None).map(|c| Cost {
                core_s_per_gb: c.core_s_per_gb / site.speed,
                core_s_per_gstep: c.core_s_per_gstep / site.speed,
                site: Some(site.name.clone()),
                ..c.clone()
            })
        };
        here(format)
            .or_else(|| reference(format))
            .or_else(|| here("*"))
            .or_else(|| reference("*"))
            .ok_or_else(|| {
                missing(format!("no cost of '{}' in '{}'", shown(kernel), shown(format)))
            })
    }
}

/// More than any number that means something.
const MUCH: f64 = 1e30;

pub(crate) fn missing(what: String) -> Error {
    Error::usage(format!("the profile has {what}"))
        .with_hint("measure again with `stead calibrate`, or name the place with --place")
}

pub(crate) fn shown(name: &str) -> String {
    name.chars().take(60).flat_map(char::escape_debug).collect()
}

fn name(what: &str, name: &str) -> Result<()> {
    if (1..=LONGEST).contains(&name.len()) && !name.contains(char::is_control) {
        return Ok(());
    }
    Err(Error::format(format!("{what}: names have 1 to {LONGEST} bytes and no control characters")))
}

fn positive(what: &str, key: &str, value: f64) -> Result<()> {
    if (1.0 / MUCH..=MUCH).contains(&value) {
        return Ok(());
    }
    Err(Error::format(format!("{what}: {key} = {value} is not a positive number")))
}

fn within(what: &str, key: &str, value: f64, most: f64) -> Result<()> {
    if (0.0..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::format(format!("{what}: {key} = {value} is not between 0 and {most}")))
}

fn count(what: &str, key: &str, n: u32) -> Result<()> {
    if (1..=1_000_000).contains(&n) {
        return Ok(());
    }
    Err(Error::format(format!("{what}: {key} = {n} is not between 1 and 1000000")))
}
