//! Where to compute on data that some ranks have and others ask for.
//!
//! All ranks tell each other what their machines are, and the first one adds the profile. From that all of them predict what
//! each place would take, and choose the same. The prediction is the model's; what is known of the machines is put together in
//! `facts`, and what nobody has measured is in `assumed`.

pub(crate) mod assumed;
mod facts;
mod sample;

use crate::exchange::Crew;
use crate::machine::Machine;
use crate::prepared::Slot;
use crate::report::Metrics;
use crate::request::Request;
use crate::split::{Holdings, MOST_STRETCHES, Split};
use crate::vectors::Sending;
use facts::{Facts, Work};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stead_core::{Error, Needs, Result};
use stead_format::{Apart, Dataset, Held, Share, vectors};
use stead_kernel::Spec;
use stead_kernel::expr::Filter;
use stead_model::{Decision, Load, Place, Profile, Wish, decide};

/// Where a run computed, what was expected of each place, and what it took.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Placing {
    /// What was wished for: `auto`, `pull`, `push`, `vector` or `split`.
    pub wish: String,
    /// The place: `pull` (the ranks that ask fetch the bytes), `push` (those that have them compute), `vector` (those that have
    /// them parse, and send columns to those that ask) or `split` (both compute).
    pub place: String,
    /// Why, in a sentence.
    pub why: String,
    /// Ranks that have data.
    pub storage_ranks: usize,
    /// Ranks that ask for them.
    pub compute_ranks: usize,
    /// The profile that estimates are from; `None` if nothing was measured.
    pub profile: Option<String>,
    /// What of it was assumed, as it was not measured.
    pub assumed: Vec<String>,
    /// What each place would take, as predicted.
    pub alternatives: Vec<Alternative>,
    /// Places that were not considered.
    pub left_out: Vec<LeftOut>,
    /// What it took.
    pub took: Took,
}

/// What was expected of one place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alternative {
    /// The place.
    pub place: String,
    /// Seconds.
    pub seconds: f64,
    /// Bytes over the network.
    pub moved_bytes: f64,
    /// What all else waits for.
    pub bound_by: String,
    /// How much of the data those who ask compute on, 0 to 1.
    pub asked_share: f64,
}

/// A place that cannot be had, or is not worth a thought.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeftOut {
    /// The place.
    pub place: String,
    /// Why it was left out.
    pub why: String,
}

/// What the place that was chosen took.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Took {
    /// Seconds.
    pub seconds: f64,
    /// Bytes of data and states between ranks.
    pub moved_bytes: u64,
    /// How much of the data those who ask have computed on, 0 to 1.
    pub asked_share: f64,
}

/// Bytes of vectors for each byte of the data, at least.
const LEAST_VECTORS: f64 = 1e-5;

/// What a rank tells the others.
#[derive(Serialize, Deserialize)]
struct Said {
    machine: Machine,
    /// Threads that it was asked to use; 0 for as many as its machine has cores.
    threads: u64,
    tier: Option<String>,
    cached: f64,
    /// Stretches of the data that it holds.
    stretches: u64,
    /// Bytes of blocks that it may keep for later passes.
    kept: u64,
    /// Some of its files are compressed, and so in one piece each.
    compressed: bool,
    /// Bytes of the columns that are asked for, for each byte of the data, as the beginning of a file has it that lies here.
    vector_per_byte: Option<f64>,
    /// The profile of the first rank: where it is, and its text.
    profile: Option<(String, String)>,
}

/// A place that was asked for where there is no choice.
pub fn refuse(request: &Request, dataset: &Dataset) -> Result<()> {
    let apart = dataset.holding().is_some_and(|h| h.apart.is_some());
    match request.place {
        // Who all have the data compute where they are.
        Wish::Auto | Wish::Push => Ok(()),
        _ if !apart => {
            Err(Error::usage("a place to compute was asked for, and all ranks have the data alike")
                .with_hint(
                    "say which hosts have the data, with --storage-hosts (of a layout: --storage-hosts layout), or leave --place out",
                ))
        }
        Wish::Pull | Wish::Vector | Wish::Split => Ok(()),
    }
}

/// What is asked of the data.
pub struct Asked<'a> {
    needs: Needs,
    filter: Option<&'a Filter>,
    /// A kernel writes what it makes of each record.
    maps: bool,
}

impl<'a> Asked<'a> {
    pub fn new(slots: &[Slot], filter: Option<&'a Filter>) -> Asked<'a> {
        let mut needs = Needs::default();
        slots.iter().filter_map(|s| s.kernel.as_ref()).for_each(|k| needs.add(&k.needs()));
        Asked { needs, filter, maps: slots.iter().any(|s| s.maps) }
    }
}

/// What is known of a request that decides what can be done.
struct Can<'c> {
    said: &'c [Said],
    needs: &'c Needs,
    maps: bool,
    /// The data are text, of which columns are parsed.
    parsed: bool,
    wish: Wish,
    vector_per_byte: Option<f64>,
}

impl Can<'_> {
    /// Why not; `None` if it can be done.
    fn refusal(&self, place: Place) -> Option<&'static str> {
        if self.needs.order && !matches!(place, Place::Pull | Place::Push) {
            return Some("a kernel wants the data in their order");
        }
        match place {
            Place::Push => None,
            _ if self.maps => {
                Some("what a kernel writes of each record stays with those that have the data")
            }
            Place::Pull => None,
            // All ranks of a split know what each of them holds.
            Place::Split => {
                let stretches = self.said.iter().fold(0u64, |n, s| n.saturating_add(s.stretches));
                if self.said.iter().any(|s| s.compressed) {
                    return Some("the data are compressed");
                }
                (stretches > MOST_STRETCHES).then_some("the data lie in too many stretches")
            }
            Place::VectorUp => {
                // As pull, but for who asks for it.
                let as_many = !self.parsed && self.vector_per_byte.is_some_and(|v| v >= 1.0);
                let vain = as_many && self.wish != Wish::Vector;
                let vain = vain.then_some(
                    "nothing is parsed, and the columns take as many bytes as the data or more",
                );
                vectors::refusal(self.needs).or(vain)
            }
            // The data do not lie with those who ask.
            Place::VectorDown => Some("the data lie with the storage ranks"),
        }
    }
}

/// What a rank does in a place.
pub struct Part {
    /// Its part of the work.
    pub share: Share,
    /// What it looks at for the others, where quotes matter: bytes that it has, cut where their parts begin.
    pub looks: Option<Share>,
    /// How chunks are given to ranks, where both sides compute.
    pub split: Option<Split>,
    /// The ranks that compute, where the others wait for them.
    pub computing: Option<Vec<usize>>,
    /// How columns are sent, where those who ask compute on them.
    pub vectors: Option<Sending>,
    /// What there is to be said about it.
    pub placing: Placing,
}

/// Cuts what a rank holds where parts of others begin, but for the places in which it begins anyway.
fn cut(held: &[Held], cuts: &[(u32, u64)]) -> Share {
    let mut pieces = Vec::with_capacity(held.len());
    for h in held {
        let from = cuts.partition_point(|cut| *cut <= (h.source, h.bytes.start));
        let to = cuts.partition_point(|cut| *cut < (h.source, h.bytes.end));
        let mut start = h.bytes.start;
        for (_, at) in &cuts[from..to.max(from)] {
            pieces.push(Held { source: h.source, bytes: start..*at });
            start = *at;
        }
        pieces.push(Held { source: h.source, bytes: start..h.bytes.end });
    }
    Share::Held(pieces.into())
}

/// Chooses, the same on all ranks.
pub fn choose(
    crew: &Crew<'_>,
    dataset: &Dataset,
    apart: &Apart,
    request: &Request,
    (kept, asked): (u64, &Asked<'_>),
) -> Result<Part> {
    let has = dataset.share(crew.rank(), crew.size())?;
    let held = match &has {
        Share::Held(held) => &held[..],
        Share::Even { .. } => return Err(Error::internal("it is not said what ranks hold")),
    };
    let mine = said(crew, dataset, apart, request, (held, kept, asked));
    let said: Vec<Said> = together(crew, mine)?;
    // Nothing was seen of data that have no bytes, or none that can be read. Heads of vectors go where no record does.
    let seen = said.iter().find_map(|s| s.vector_per_byte).unwrap_or(1.0).max(LEAST_VECTORS);
    let can = Can {
        said: &said,
        needs: &asked.needs,
        maps: asked.maps,
        parsed: matches!(assumed::format(dataset.format_name()), "csv" | "lines"),
        wish: request.place,
        vector_per_byte: vectors::refusal(&asked.needs).is_none().then_some(seen),
    };
    let (decision, placing, passes) = decided(&can, dataset, apart, request)?;
    let possible = |place| can.refusal(place).is_none();
    let chosen = decision.among(|place| request.place.allows(place) && possible(place));
    let Some(chosen) = chosen else {
        let place = match request.place {
            Wish::Split => Place::Split,
            Wish::Pull => Place::Pull,
            _ => Place::VectorUp,
        };
        let why = can.refusal(place).unwrap_or("there is none that can be had");
        let take = if asked.maps { "auto or push" } else { "auto, pull or push" };
        return Err(Error::usage(format!("the place '{place}' cannot be had: {why}"))
            .with_hint(format!("take --place {take}")));
    };
    let why = decision.about(chosen, possible);
    let placing = Placing { place: chosen.place.to_string(), why, ..placing };
    let part =
        |share, looks, split| Part { share, looks, split, computing: None, vectors: None, placing };
    let ranks =
        |have: bool| (0..crew.size()).filter(|r| apart.storage.get(*r) == Some(&have)).collect();
    Ok(match chosen.place {
        Place::Pull => Part {
            computing: Some(ranks(false)),
            ..part(apart.pulled.clone(), Some(cut(held, &apart.cuts)), None)
        },
        Place::VectorUp => {
            Part { vectors: Some(Sending::new(&apart.storage)), ..part(has, None, None) }
        }
        Place::Split => {
            let told = together(crew, Ok(Holdings::tell(held)))?;
            let lengths: Vec<u64> = dataset.sources().iter().map(|s| s.len()).collect();
            let unit = assumed::unit(&request.kernels, dataset)?;
            let holdings = Holdings::new(told, &lengths)?.in_units(unit);
            let looks = Some(holdings.cut(crew.rank()));
            let split = Split {
                holdings,
                storage: apart.storage.to_vec(),
                asked_share: chosen.asked_share,
                seconds: chosen.seconds / f64::from(passes),
                ..Split::default()
            };
            part(has, looks, Some(split))
        }
        // All ranks say of what was written that it is whole, and know where it is.
        _ if asked.maps => part(has, None, None),
        _ => Part { computing: Some(ranks(true)), ..part(has, None, None) },
    })
}

/// What each rank says.
fn together<T: Serialize + DeserializeOwned>(crew: &Crew<'_>, mine: Result<T>) -> Result<Vec<T>> {
    let encode = |mine: T| {
        postcard::to_stdvec(&mine)
            .map_err(|e| Error::internal(format!("cannot encode what a rank has: {e}")))
    };
    let malformed = |_| Error::format("a message from another rank is malformed");
    let words = crew.gather(mine.and_then(encode))?;
    words.iter().map(|w| postcard::from_bytes(w).map_err(malformed)).collect()
}

/// What the place that was chosen took.
///
/// Of `all` bytes of the data, those who ask have computed on `asked`.
pub fn took(metrics: &Metrics, asked: u64, all: u64) -> Took {
    Took {
        seconds: metrics.seconds,
        moved_bytes: metrics.bytes_fetched.saturating_add(metrics.bytes_sent),
        asked_share: if all > 0 { (asked as f64 / all as f64).min(1.0) } else { 0.0 },
    }
}

fn said(
    crew: &Crew<'_>,
    dataset: &Dataset,
    apart: &Apart,
    request: &Request,
    (held, kept, asked): (&[Held], u64, &Asked<'_>),
) -> Result<Said> {
    let profile = match (crew.rank(), request.place) {
        (0, Wish::Auto) => crate::profile::load()?,
        // Nothing depends on it.
        (0, _) => crate::profile::load().ok().flatten(),
        _ => None,
    };
    let has = apart.storage.get(crew.rank()) == Some(&true);
    let text = |(path, profile): (std::path::PathBuf, Profile)| {
        Ok((path.display().to_string(), profile.to_text()?))
    };
    Ok(Said {
        machine: Machine::here(&crew.host),
        threads: request.threads as u64,
        tier: apart.tier.clone(),
        cached: apart.cached,
        stretches: held.len() as u64,
        kept,
        compressed: has && dataset.is_compressed()?,
        vector_per_byte: if has { sample::look(dataset, held, asked) } else { None },
        profile: profile.map(text).transpose()?,
    })
}

/// What the model says of it.
fn decided(
    can: &Can<'_>,
    dataset: &Dataset,
    apart: &Apart,
    request: &Request,
) -> Result<(Decision, Placing, u32)> {
    let said = can.said;
    let told = said.first().and_then(|s| s.profile.as_ref());
    let measured = told.map(|(_, text)| Profile::parse(text)).transpose()?;
    let (mut families, mut steps) = (Vec::<String>::new(), Vec::<f64>::new());
    let mut passes = 1;
    let (bytes, dims) = (dataset.total_bytes(), dataset.schema().shape.as_ref().map(|s| s.dims()));
    for text in &request.kernels {
        let spec = Spec::parse(text)?;
        passes = passes.max(assumed::passes(&spec));
        let family = assumed::family(&spec);
        let takes = assumed::steps(&spec, bytes, dims);
        match families.iter().position(|f| *f == family) {
            Some(same) => steps[same] += takes,
            None => {
                families.push(family);
                steps.push(takes);
            }
        }
    }
    if !request.own.is_empty() {
        families.push(assumed::OWN.to_owned());
    }
    let work = Work {
        bytes,
        format: assumed::format(dataset.format_name()),
        families,
        steps,
        passes,
        vector_per_byte: can.vector_per_byte,
        unit: assumed::unit(&request.kernels, dataset)?,
    };
    let facts = Facts::new(said, &apart.storage, measured.as_ref(), &work);
    let decision = decide(&facts.profile, &facts.request, &Load::none())?;
    let alternative = |e: &stead_model::Estimate| Alternative {
        place: e.place.to_string(),
        seconds: e.seconds,
        moved_bytes: e.moved_bytes,
        bound_by: e.binds().to_string(),
        asked_share: e.asked_share,
    };
    let storage_ranks = apart.storage.iter().filter(|has| **has).count();
    let placing = Placing {
        wish: match request.place {
            Wish::Auto => "auto",
            Wish::Pull => "pull",
            Wish::Push => "push",
            Wish::Vector => "vector",
            Wish::Split => "split",
        }
        .to_owned(),
        storage_ranks,
        compute_ranks: apart.storage.len() - storage_ranks,
        profile: told.map(|(path, _)| path.clone()),
        assumed: facts.assumed,
        alternatives: decision
            .alternatives()
            .iter()
            .filter(|e| can.refusal(e.place).is_none())
            .map(alternative)
            .collect(),
        left_out: [Place::Pull, Place::VectorUp, Place::Split]
            .into_iter()
            .filter_map(|place| {
                let why = can.refusal(place)?.to_owned();
                Some(LeftOut { place: place.to_string(), why })
            })
            .collect(),
        ..Placing::default()
    };
    Ok((decision, placing, passes))
}

#[cfg(test)]
mod tests;
