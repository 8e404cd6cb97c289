//! What dataspaces have and hold.

use crate::ends::Base;
use crate::journal::UnderWay;
use crate::manager::Stager;
use crate::place::Place;
use crate::rules;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use stead_core::layout::{Spaces, Terms};
use stead_core::{BucketUrl, Cancel, Error, Result};
use stead_store::device::Device;
use stead_store::quota;

/// A dataspace in numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Its name.
    pub name: String,
    /// Its folder, or the URL of its bucket; none if it is not to be had, for the reason in `error`.
    pub path: Option<String>,
    /// The file system and its device, as `ext4-254:0`; the bucket, as `s3://bucket`.
    pub tier: Option<String>,
    /// Bytes of the file system; of a bucket none, as of the next two.
    pub size: Option<u64>,
    /// Of these, in use.
    pub used: Option<u64>,
    /// Of these, free for this user.
    pub free: Option<u64>,
    /// Bytes a second of large files that transfers read from it and wrote to it, of the pair that was fastest; 0 if there were none.
    pub read_rate: f64,
    /// As `read_rate`, written.
    pub write_rate: f64,
    /// `node` for a folder of this node, `shared` for one of all nodes, `memory`, `bucket`; `pmem` for a folder of this node in persistent memory,
    /// where it was looked at.
    pub kind: String,
    /// The number of the user whose the folder is.
    pub owner: Option<u32>,
    /// That of its group.
    pub group: Option<u32>,
    /// Its rights in octal.
    pub mode: Option<String>,
    /// Bytes that all users together may have there, if that is agreed.
    pub quota: Option<u64>,
    /// Of these, in use, as far as this user sees it.
    pub quota_used: Option<u64>,
    /// Bytes that each user may have there, if that is agreed.
    pub user_quota: Option<u64>,
    /// Of these, in use by this user.
    pub user_quota_used: Option<u64>,
    /// Bytes that transfers of this user under way still have to write there.
    pub coming: u64,
    /// Transfers under way that read or write there: of this user, or, where a daemon tells it and there is a `limit` or a number of
    /// `transfers`, of all users.
    pub running: u64,
    /// Bytes a second of all transfers there together, if that is agreed.
    pub limit: Option<u64>,
    /// Transfers at a time there, of all users, if that is agreed.
    pub transfers: Option<u64>,
    /// Transfers that read or write there give way to others.
    pub gentle: bool,
    /// Seconds after its last change when something there is removed, if that is agreed.
    pub expires: Option<u64>,
    /// Only processes of jobs may use it.
    pub jobs: bool,
    /// Why it is not to be had.
    pub error: Option<String>,
    /// The keys of its configuration and their values, where that alone is told.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
}

/// All dataspaces, the one of regions among them, with what the journal of this user knows of their speed. Where there are quotas, what
/// lies there is walked through.
///
/// # Errors
/// `Cancelled`; those of the journal. That a dataspace is not to be had is said with it.
pub fn usage(stager: &Stager, cancel: &Cancel) -> Result<Vec<Usage>> {
    let (rates, under_way) = (stager.rates()?, stager.journal().under_way()?);
    let means = stager.means();
    let spaces = &means.spaces;
    let told = |name| {
        let usage = one(spaces, name, &rates, &under_way, cancel);
        cancel.check().map(|()| usage)
    };
    spaces.names().chain(spaces.implied_names()).map(told).collect()
}

/// The same, as far as their configuration tells: nothing is asked of what lies there.
pub fn configured(spaces: &Spaces) -> Vec<Usage> {
    let all = spaces.names().chain(spaces.implied_names());
    let set = |name| spaces.config(name).map(|config| config.keys().clone()).unwrap_or_default();
    all.map(|name| Usage { set: set(name), ..said(spaces, name, &terms_of(spaces, name)) })
        .collect()
}

fn terms_of(spaces: &Spaces, name: &str) -> Terms {
    spaces.terms(name).cloned().unwrap_or_default()
}

fn said(spaces: &Spaces, name: &str, terms: &Terms) -> Usage {
    let mut usage = Usage { name: name.to_owned(), ..Usage::default() };
    match spaces.place(name) {
        Ok(path) => usage.path = Some(path.to_owned()),
        Err(e) => usage.error = Some(e.to_string()),
    }
    usage.kind = match &usage.path {
        Some(path) if BucketUrl::is_meant(path) => "bucket",
        _ if terms.memory || spaces.implied(name).is_some() => "memory",
        _ if terms.shared => "shared",
        _ => "node",
    }
    .to_owned();
    (usage.quota, usage.user_quota) = (terms.quota, terms.user_quota);
    (usage.limit, usage.expires, usage.jobs) = (terms.limit, terms.expires, terms.jobs);
    (usage.transfers, usage.gentle) = (terms.transfers, terms.gentle);
    usage
}

fn one(
    spaces: &Spaces,
    name: &str,
    rates: &[(String, f64)],
    under_way: &[UnderWay],
    cancel: &Cancel,
) -> Usage {
    let terms = terms_of(spaces, name);
    let mut usage = said(spaces, name, &terms);
    for transfer in under_way {
        let here =
            |base: &Base| usage.path.as_ref().is_some_and(|place| rules::is_of(base, name, place));
        let to = transfer.ends.target.as_ref().is_some_and(here);
        if to {
            usage.coming = usage.coming.saturating_add(transfer.left);
        }
        if transfer.running && (to || transfer.ends.sources.iter().any(here)) {
            usage.running += 1;
        }
    }
    if let Err(e) = look(&mut usage, spaces, &terms, rates, under_way, cancel) {
        usage.error = Some(e.to_string());
    }
    usage
}

fn look(
    usage: &mut Usage,
    spaces: &Spaces,
    terms: &Terms,
    rates: &[(String, f64)],
    under_way: &[UnderWay],
    cancel: &Cancel,
) -> Result<()> {
    let place = spaces.place(&usage.name)?;
    let base = match spaces.implied(&usage.name) {
        // To look does not make it: its room is that of the folder that it comes to lie in.
        Some(path) if !Path::new(path).exists() => above(path),
        _ => Base::Space(usage.name.clone(), place.to_owned()),
    };
    let open = base.open(spaces, None, cancel)?;
    let tier = open.tier().unwrap_or_default();
    for (pair, rate) in rates {
        let (from, to) = pair.split_once('>').unwrap_or_default();
        if from == tier {
            usage.read_rate = usage.read_rate.max(*rate);
        }
        if to == tier {
            usage.write_rate = usage.write_rate.max(*rate);
        }
    }
    usage.tier = Some(tier);
    let Place::Folder(folder) = &open else { return Ok(()) };
    if usage.kind == "node" && Device::of(folder).is_some_and(|device| device.is_memory()) {
        usage.kind = "pmem".to_owned();
    }
    let stat =
        rustix::fs::fstatvfs(folder).map_err(|e| Error::io("look at", folder.shown(), e.into()))?;
    let bytes = |blocks: u64| Some(blocks.saturating_mul(stat.f_frsize));
    usage.size = bytes(stat.f_blocks);
    usage.used = bytes(stat.f_blocks.saturating_sub(stat.f_bfree));
    usage.free = bytes(stat.f_bavail);
    if matches!(base, Base::Space(..)) {
        let meta = folder.own_meta()?;
        (usage.owner, usage.group) = (Some(meta.uid), Some(meta.gid));
        usage.mode = Some(format!("{:04o}", meta.mode));
    }
    let used = quota::used(place, terms, &rules::of_these(under_way), &|| cancel.check())?;
    (usage.quota_used, usage.user_quota_used) = (used.all, used.own);
    if terms.memory && !stead_store::tier::is_memory(folder) {
        return Err(Error::usage("this folder does not lie in memory").at_path(folder.shown()));
    }
    Ok(())
}

fn above(path: &str) -> Base {
    let above = path.rsplit_once('/').map(|(above, _)| above).filter(|above| !above.is_empty());
    Base::Path(above.unwrap_or("/").to_owned())
}
