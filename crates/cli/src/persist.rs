//! `stead persist`: what stays on the node, and who else may read it.

use crate::args::{Described, PersistArgs, PersistVerb};
use crate::{output, table};
use stead::daemon::{PersistAsk, Persisted};
use stead::stage::location;
use stead::{Result, units};

pub fn persist(a: &PersistArgs) -> Result<()> {
    let ask = match &a.what {
        PersistVerb::Store { location: at, expires } => {
            PersistAsk::Store { location: location(at)?, seconds: *expires }
        }
        PersistVerb::Delete { location: at } => PersistAsk::Delete { location: location(at)? },
        PersistVerb::Share { location: at, user } => {
            PersistAsk::Share { location: location(at)?, user: user.clone() }
        }
        PersistVerb::Unshare { location: at, user } => {
            PersistAsk::Unshare { location: location(at)?, user: user.clone() }
        }
        PersistVerb::List { format } => {
            let list = stead::daemon::persist(PersistAsk::List {})?;
            return match format {
                Described::Json => output::json(&list),
                Described::Table => output::text(&page(&list)),
            };
        }
    };
    stead::daemon::persist(ask).map(|_| ())
}

fn page(list: &[Persisted]) -> String {
    if list.is_empty() {
        return "nothing is kept or shared\n".to_owned();
    }
    let row = |one: &Persisted| {
        let kept = match (one.kept, one.left) {
            (false, _) => "no".to_owned(),
            (true, None) => "for ever".to_owned(),
            (true, Some(0.0)) => "no longer".to_owned(),
            (true, Some(left)) => units::format_seconds(left),
        };
        let shared: Vec<String> = one.shared.iter().map(u32::to_string).collect();
        vec![one.location.clone(), one.path.clone(), kept, shared.join(",")]
    };
    table::plain(&["what", "path", "kept", "shared with"], list.iter().map(row).collect())
}
