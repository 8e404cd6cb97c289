//! What is asked for, and what the machines are doing at the moment.

use stead_core::limits;

/// Kernels over data that lies somewhere, asked for by somebody.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Bytes of the data on each site that has some. Bytes of a site of several hosts are spread evenly over them.
    pub held: Vec<Held>,
    /// Sites that ask, the first of which gets the answer. All their hosts take part in *pull*.
    pub asked_by: Vec<String>,
    /// Families of kernels that run in one scan.
    pub kernels: Vec<String>,
    /// Steps of each of these for a byte of the data, as [`Cost::core_s_per_gstep`](crate::Cost::core_s_per_gstep) counts
    /// them; none of those that are not named.
    pub steps_per_byte: Vec<f64>,
    /// Format of the data.
    pub format: String,
    /// Passes over the data; 1 or more.
    pub passes: u32,
    /// How much of the data is in the memory of the storage hosts already, 0 to 1.
    pub cached: f64,
    /// Bytes that are read, sent and computed on at a time.
    pub chunk: u64,
    /// Bytes of numbers for each byte of the data, all kernels together, if that is known of this request; else what the
    /// kernels' costs say adds up. None to send where it is 0.
    pub vector_per_byte: Option<f64>,
    /// What it takes to split it, beside the work.
    pub splitting: Splitting,
    /// Bytes of data that `held_on` adds next.
    bytes: u64,
}

/// What it takes to give parts of the work to both sides; nothing unless told otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Splitting {
    /// Seconds of each pass, whatever the data.
    pub seconds: f64,
    /// So much of what the slower side would take for all of it, 0 or more: its last chunk, for which the other one waits.
    pub part: f64,
}

/// Data of one site.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// The site.
    pub site: String,
    /// The tier of that site.
    pub tier: String,
    /// Bytes on all its hosts together.
    pub bytes: u64,
}

impl Request {
    /// `bytes` of data in `format` for one kernel, in one pass.
    pub fn new(bytes: u64, kernel: impl Into<String>, format: impl Into<String>) -> Request {
        Request {
            held: Vec::new(),
            asked_by: Vec::new(),
            kernels: vec![kernel.into()],
            steps_per_byte: Vec::new(),
            format: format.into(),
            passes: 1,
            cached: 0.0,
            chunk: limits::DEFAULT_CHUNK as u64,
            vector_per_byte: None,
            splitting: Splitting::default(),
            bytes,
        }
    }

    /// All bytes that [`Request::new`] named are on this site; called for several sites, on the last of them.
    /// [`Request::with_held`] adds others.
    pub fn held_on(mut self, site: impl Into<String>, tier: impl Into<String>) -> Request {
        let bytes = std::mem::take(&mut self.bytes);
        self.with_held(site, tier, bytes)
    }

    /// Adds `bytes` on a site.
    pub fn with_held(
        mut self,
        site: impl Into<String>,
        tier: impl Into<String>,
        bytes: u64,
    ) -> Request {
        self.held.push(Held { site: site.into(), tier: tier.into(), bytes });
        self
    }

    /// Adds a site that asks.
    pub fn asked_by(mut self, site: impl Into<String>) -> Request {
        self.asked_by.push(site.into());
        self
    }

    /// The same in so many passes.
    pub fn in_passes(self, passes: u32) -> Request {
        Request { passes, ..self }
    }

    /// Adds a kernel to the scan.
    pub fn with_kernel(mut self, kernel: impl Into<String>) -> Request {
        self.kernels.push(kernel.into());
        self
    }
}

/// What the machines do for others at the moment. What is not named is as the profile says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Load {
    sites: Vec<(String, f64)>,
    links: Vec<(String, String, f64)>,
}

impl Load {
    /// As the profile says.
    pub fn none() -> Load {
        Load::default()
    }

    /// `load` threads of others want to run on each core of `site`. Numbers that are no load are taken for 0.
    pub fn on(mut self, site: impl Into<String>, load: f64) -> Load {
        self.sites.push((site.into(), if load > 0.0 { load.min(1e6) } else { 0.0 }));
        self
    }

    /// Others use `busy` of the link from one site to another, 0 to 1.
    pub fn between(mut self, from: impl Into<String>, to: impl Into<String>, busy: f64) -> Load {
        self.links.push((from.into(), to.into(), busy));
        self
    }

    /// The load of a site, if it is named here; the last word counts.
    pub(crate) fn of(&self, site: &str) -> Option<f64> {
        self.sites.iter().rev().find(|(s, _)| s == site).map(|(_, l)| *l)
    }

    /// How much of a link is left for us. Somebody who uses all of it leaves us a fair half.
    pub(crate) fn left(&self, from: &str, to: &str) -> f64 {
        let link = self.links.iter().rev().find(|(f, t, _)| f == from && t == to);
        link.map_or(1.0, |(_, _, busy)| if *busy > 0.0 { (1.0 - busy).max(0.5) } else { 1.0 })
    }
}
