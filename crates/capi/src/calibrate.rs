//! Measuring the machines.

use crate::cancel::{self, stead_cancel};
use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, Out, call};
use crate::text;
use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use stead::fabric::foreign::{self, stead_make_fabric_fn};
use stead::fabric::{Fabric, Local};
use stead::plan::{Calibrate, calibrate_on, path, save};
use stead::ranks::Here;
use stead::{Error, Result};

/// What to measure, and where to write it.
struct Given {
    options: Calibrate,
    output: PathBuf,
}

fn given(
    c: &Caller,
    tiers: (*const *const c_char, usize),
    seconds: f64,
    output: *const c_char,
    cancel: *mut stead_cancel,
) -> Result<Given> {
    let mut options = Calibrate {
        tiers: c.texts(tiers.0, tiers.1, "tiers")?.into_iter().map(PathBuf::from).collect(),
        ..Calibrate::default()
    };
    if seconds != 0.0 {
        options.seconds = seconds;
    }
    if !cancel.is_null() {
        options.cancel = cancel::flag(cancel)?.clone();
    }
    let output = match c.optional_text(output, "path of the profile")? {
        Some(path) => PathBuf::from(path),
        None => path().ok_or_else(|| {
            Error::usage("there is no place for the profile: the user has no home")
                .with_hint("name a file")
        })?,
    };
    Ok(Given { options, output })
}

/// Where the text goes, if it is wanted.
fn place(c: &Caller, profile: *mut *mut c_char) -> Result<Option<Out<*mut c_char>>> {
    let wanted = !profile.is_null();
    wanted.then(|| c.out_handle(profile, "place for the profile")).transpose()
}

/// Measures on all ranks; the first one writes. Returns the profile as text.
fn measure(fabric: &dyn Fabric, given: &Given) -> Result<String> {
    let profile = calibrate_on(fabric, &Here::default(), &given.options, None)?;
    let written = if fabric.rank() == 0 { save(&profile, &given.output) } else { Ok(()) };
    stead::ranks::agree(fabric, written)?;
    profile.to_text()
}

/// Measures this machine for those who choose where to compute, in about so many `seconds` (0 for 20), and writes the profile:
/// how fast cores run kernels, and how fast what is behind each of the `n` folders or files of `tiers` is read. A folder gets
/// a file for it, which is removed; files are only read. `output` is where to write, NULL for where runs look for it:
/// STEAD_PROFILE, or stead/profile.toml in the user's configuration. `profile` may be NULL; else it gets the text, to be freed
/// with stead_text_free. `cancel` may be NULL.
///
/// Errors: STEAD_USAGE for seconds that make no sense; STEAD_NOT_FOUND for a tier that is not there; STEAD_PERMISSION,
/// STEAD_NO_SPACE, STEAD_IO; STEAD_CANCELLED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_calibrate(
    tiers: *const *const c_char,
    n: usize,
    seconds: f64,
    output: *const c_char,
    cancel: *mut stead_cancel,
    profile: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = place(c, profile)?;
        let given = given(c, (tiers, n), seconds, output, cancel)?;
        let measured = measure(&Local::single(), &given)?;
        out.into_iter().for_each(|out| text::give(out, &measured));
        Ok(())
    })
}

/// Measures the machines of all ranks of a fabric, which is made first, and the links between them: all ranks call this, with
/// the same arguments. The first rank writes the profile, and all get its text. As stead_calibrate; a tier is to be there on
/// one of the hosts. With MPI, stead_mpi_calibrate of stead_mpi.h is simpler.
///
/// Errors: those of stead_calibrate, the same on all ranks; STEAD_PEER if a rank is gone; those of `make`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_calibrate_ranks(
    make: stead_make_fabric_fn,
    data: *mut c_void,
    tiers: *const *const c_char,
    n: usize,
    seconds: f64,
    output: *const c_char,
    cancel: *mut stead_cancel,
    profile: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        // A place that is there is NULL from now on, whatever comes.
        let out = place(c, profile);
        // SAFETY: the caller keeps what the header says of the function.
        let fabric = unsafe { foreign::make(make, data)? };
        let given = out.and_then(|out| Ok((out, given(c, (tiers, n), seconds, output, cancel)?)));
        let (out, given) = match given {
            Ok(all) => all,
            // Others are in the same call and hear of it.
            Err(e) => return Err(stead::ranks::refuse(&fabric, e)),
        };
        let measured = measure(&fabric, &given)?;
        out.into_iter().for_each(|out| text::give(out, &measured));
        Ok(())
    })
}
