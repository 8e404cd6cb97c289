//! Memory that programs and transfers share, by a name.

use crate::error::{stead_error, stead_status};
use crate::guard::{call, look};
use crate::table::{self, Object};
use crate::text;
use std::ffi::{c_char, c_void};
use stead::Region;
use stead::stage::dataspaces;

/// Memory with a name, which transfers know as "memory://NAME". Made by stead_region_create and stead_region_open, freed with
/// stead_region_close. Several threads may use it.
pub struct stead_region {
    _opaque: [u8; 0],
}

/// What the table has of a region.
struct RegionFace(Region);

impl Object for RegionFace {
    type Handle = stead_region;
    const NAME: &'static str = "region";
}

/// Makes a region of `size` bytes, all zero: a file in memory, which is mapped. It has all its memory from the beginning on, and stays
/// when the program has ended, until it is removed. `name` is a path in the dataspace "memory".
///
/// Errors: STEAD_USAGE if there is one of the name, without bytes, for names that are none; STEAD_NO_SPACE if there is not as much
/// memory; STEAD_PERMISSION if the folder of regions is not private to this user.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_region_create(
    name: *const c_char,
    size: u64,
    region: *mut *mut stead_region,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(region, "place for the region")?;
        let name = c.text(name, "name")?;
        out.put(table::insert(RegionFace(Region::create(&dataspaces()?, name, size)?)));
        Ok(())
    })
}

/// Maps a region that is there: one that was made, or a file that a transfer brought to "memory://NAME".
///
/// Errors: STEAD_NOT_FOUND; STEAD_USAGE for what is no file; STEAD_NO_SPACE if it has holes that there is no memory for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_region_open(
    name: *const c_char,
    region: *mut *mut stead_region,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(region, "place for the region")?;
        let name = c.text(name, "name")?;
        out.put(table::insert(RegionFace(Region::open(&dataspaces()?, name)?)));
        Ok(())
    })
}

/// Where its bytes are, to be read and written until it is closed; NULL if it has none, or is no region. They begin with a page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_region_data(region: *const stead_region) -> *mut c_void {
    look!(std::ptr::null_mut(), |_c| {
        let face = table::get::<RegionFace>(region)?;
        Ok(if face.0.is_empty() { std::ptr::null_mut() } else { face.0.start().cast() })
    })
}

/// Its bytes; 0 if it is no region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_region_size(region: *const stead_region) -> u64 {
    look!(0, |_c| Ok(table::get::<RegionFace>(region)?.0.len() as u64))
}

/// Says that its bytes were changed, which the system does not notice: a transfer "sync" goes by the time of change. Closing it says so,
/// too.
///
/// Errors: STEAD_IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_region_touch(
    region: *const stead_region,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| table::get::<RegionFace>(region)?.0.touch())
}

/// Lets go of a region, which stays. Its address is of no use any more. NULL is nothing to do; a handle that is no region any more
/// is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_region_close(region: *mut stead_region) {
    look!((), |_c| table::remove::<RegionFace>(region))
}

/// Removes the region `name`. Its memory goes when nobody has it mapped any more.
///
/// Errors: STEAD_NOT_FOUND if there is none; STEAD_USAGE for names that are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_region_remove(
    name: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let name = c.text(name, "name")?;
        if Region::remove(&dataspaces()?, name)? {
            return Ok(());
        }
        let message = format!("there is no region '{name}'");
        Err(stead::Error::new(stead::Kind::NotFound, message))
    })
}

/// All regions of this user as JSON: a list of objects with `name` and `size`, in bytes. To be freed with stead_text_free.
///
/// Errors: STEAD_PERMISSION if the folder of regions is not private to this user.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_region_list(
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    #[derive(serde::Serialize)]
    struct Listed {
        name: String,
        size: u64,
    }
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        let all = Region::list(&dataspaces()?)?.into_iter();
        let all: Vec<Listed> = all.map(|(name, size)| Listed { name, size }).collect();
        text::give(out, &text::json(&all)?);
        Ok(())
    })
}
