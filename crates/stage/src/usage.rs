//! What dataspaces have and hold.

use crate::ends::Base;
use crate::manager::Stager;
use crate::place::Place;
use serde::{Deserialize, Serialize};
use stead_core::layout::Spaces;
use stead_core::{Cancel, Error, Result};

/// A dataspace in numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Why it is not to be had.
    pub error: Option<String>,
}

/// All dataspaces, with what the journal of this user knows of their speed.
///
/// # Errors
/// Those of the journal. That a dataspace is not to be had is said with it.
pub fn usage(spaces: &Spaces, stager: &Stager) -> Result<Vec<Usage>> {
    let rates = stager.rates()?;
    Ok(spaces.names().map(|name| one(spaces, name, &rates)).collect())
}

fn one(spaces: &Spaces, name: &str, rates: &[(String, f64)]) -> Usage {
    let mut usage = Usage {
        name: name.to_owned(),
        path: spaces.place(name).ok().map(str::to_owned),
        tier: None,
        size: None,
        used: None,
        free: None,
        read_rate: 0.0,
        write_rate: 0.0,
        error: None,
    };
    let look = || {
        let base = Base::Space(name.to_owned(), spaces.place(name)?.to_owned());
        let place = base.open(spaces, &Cancel::new())?;
        let stat = match &place {
            Place::Bucket(_) => None,
            Place::Folder(folder) => {
                let failed = |e: std::io::Error| Error::io("look at", folder.shown(), e);
                Some(rustix::fs::fstatvfs(folder).map_err(|e| failed(e.into()))?)
            }
        };
        Ok((place.tier().unwrap_or_default(), stat))
    };
    let found: Result<_> = look();
    match found {
        Ok((tier, stat)) => {
            if let Some(stat) = stat {
                let bytes = |blocks: u64| Some(blocks.saturating_mul(stat.f_frsize));
                usage.size = bytes(stat.f_blocks);
                usage.used = bytes(stat.f_blocks.saturating_sub(stat.f_bfree));
                usage.free = bytes(stat.f_bavail);
            }
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
        }
        Err(e) => usage.error = Some(e.to_string()),
    }
    usage
}
