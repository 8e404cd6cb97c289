//! Programs on several nodes whose streams reach each other.

use crate::error::{stead_error, stead_status};
use crate::guard::{call, look};
use crate::stream;
use crate::table::{self, Object};
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;
use stead::fabric::Fabric;
use stead::fabric::foreign::{self, stead_make_fabric_fn};
use stead::stream::Coupling;
use stead::{Result, limits};

/// Programs on several nodes whose streams reach each other: ranks of one job, each of which is of a part, such as the simulation or the
/// analysis. Made by stead_coupling_new, freed with stead_coupling_free.
pub struct stead_coupling {
    _opaque: [u8; 0],
}

/// What the table has of a coupling.
struct CouplingFace(Arc<Coupling>);

impl Object for CouplingFace {
    type Handle = stead_coupling;
    const NAME: &'static str = "coupling";
}

/// The coupling of a member of options; none for NULL.
pub fn optional(coupling: *const stead_coupling) -> Result<Option<Arc<Coupling>>> {
    if coupling.is_null() {
        return Ok(None);
    }
    table::get::<CouplingFace>(coupling).map(|face| Some(face.0.clone()))
}

/// Makes a coupling of all ranks of a fabric, which is made first: all ranks of the job call this, whatever program they run, and each says
/// the name of the part that it is of: letters, digits, '.', '-' and '_'. All ranks of a part write a stream together, or read it, in their
/// order. With MPI, stead_mpi_coupling of stead_mpi.h is simpler.
///
/// All ranks are to come within `timeout_ms` milliseconds after the fabric was made, or ten minutes if it is 0.
///
/// `dataspaces` are folders of dataspaces such as "memory=/dev/shm/me", before those that are configured: streams lie in "memory".
///
/// A thread answers readers of other nodes, until no rank has a coupling any more; a rank may free its own before others do.
///
/// Errors: STEAD_USAGE for a name that is none; STEAD_PERMISSION if the folder of streams is not private to this user; STEAD_TIMEOUT if
/// a rank has not come, with its number; STEAD_PEER if another rank fails, or is gone; those of `make`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_coupling_new(
    make: stead_make_fabric_fn,
    data: *mut c_void,
    part: *const c_char,
    dataspaces: *const *const c_char,
    dataspaces_count: usize,
    timeout_ms: u64,
    coupling: *mut *mut stead_coupling,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(coupling, "place for the coupling");
        let timeout = stream::time(timeout_ms, Duration::from_secs(limits::PEER_DEADLINE_S));
        // SAFETY: the caller keeps what the header says of the function.
        let fabric: Arc<dyn Fabric> = Arc::new(unsafe { foreign::make(make, data)? });
        // Others are in the same call, and hear of what is wrong here.
        let given = out.and_then(|out| {
            let spaces = stream::spaces(c, dataspaces, dataspaces_count)?;
            Ok((out, c.text(part, "part")?, spaces))
        });
        match given {
            Ok((out, part, spaces)) => {
                let made = Coupling::new(fabric, part, &spaces, timeout)?;
                out.put(table::insert(CouplingFace(made)));
                Ok(())
            }
            Err(e) => Err(Coupling::refuse(&*fabric, timeout, e)),
        }
    })
}

/// Which of the parts, by their names, this rank is of, from 0 on. 0 for what is no coupling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_coupling_part(coupling: *const stead_coupling) -> u64 {
    look!(0, |_c| Ok(table::get::<CouplingFace>(coupling)?.0.number() as u64))
}

/// Which rank of its part this is, from 0 on. 0 for what is no coupling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_coupling_rank(coupling: *const stead_coupling) -> u64 {
    look!(0, |_c| Ok(table::get::<CouplingFace>(coupling)?.0.rank()))
}

/// How many ranks its part has. 0 for what is no coupling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_coupling_ranks(coupling: *const stead_coupling) -> u64 {
    look!(0, |_c| Ok(table::get::<CouplingFace>(coupling)?.0.ranks()))
}

/// Which rank of all, in the communicator that the coupling was made of, a rank of its part is. 0 for what is no rank of it, and no coupling.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_coupling_member(coupling: *const stead_coupling, rank: u64) -> u64 {
    look!(0, |_c| {
        let face = table::get::<CouplingFace>(coupling)?;
        let ranks = face.0.part().map_or(&[][..], |part| &part.ranks);
        let member = usize::try_from(rank).ok().and_then(|rank| ranks.get(rank));
        Ok(member.map_or(0, |member| *member as u64))
    })
}

/// Frees a coupling. Writers and readers that are open go on. NULL is nothing to do; a handle that is none any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_coupling_free(coupling: *mut stead_coupling) {
    look!((), |_c| table::remove::<CouplingFace>(coupling))
}
