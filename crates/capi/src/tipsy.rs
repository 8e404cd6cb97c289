//! Tipsy snapshots, of which each task loads its own particles.

use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call, check_size, look, null};
use crate::memory::{self, STEAD_F32, STEAD_F64, stead_dtype};
use crate::session::{self, Given, stead_read_options, stead_session};
use crate::table::{self, Object};
use crate::versions::grows;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use stead::fabric::foreign::stead_make_fabric_fn;
use stead::tipsy::{self, Particles, Snapshot, Species, Values};
use stead::{ByteOrder, DType, Error, Result};

/// A Tipsy snapshot that is open. Made by stead_tipsy_open, ended with stead_tipsy_close. Any number of threads may load
/// from it at the same time.
pub struct stead_tipsy {
    _opaque: [u8; 0],
}

/// A kind of particles: STEAD_GAS and so on. A file has all of one kind in one piece, in this order.
pub type stead_species = c_int;

/// Gas.
pub const STEAD_GAS: stead_species = 0;
/// Dark matter.
pub const STEAD_DARK: stead_species = 1;
/// Stars.
pub const STEAD_STAR: stead_species = 2;

/// What a snapshot is. Members may be added at its end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_tipsy_header {
    /// Its time; in cosmological runs the scale factor.
    pub time: f64,
    /// Number of particles of each species: counts[STEAD_GAS] and so on.
    pub counts: [u64; 3],
    /// Bytes of the header in the file: 32, or 28 in old ones.
    pub header_bytes: u64,
    /// Bytes of one record of each species.
    pub record_bytes: [u64; 3],
    /// STEAD_F32 or STEAD_F64. All else but velocities is STEAD_F32.
    pub positions: stead_dtype,
    /// STEAD_F32 or STEAD_F64.
    pub velocities: stead_dtype,
    /// True in "standard" files, false in "native" ones.
    pub big_endian: bool,
}

grows!(stead_tipsy_header, big_endian: bool);

/// A task's records of one species: whole ones, whatever the number of tasks.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_tipsy_part {
    /// Number of the first one within its species.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Offset of the first one in the file.
    pub offset: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// One number of a record.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_tipsy_field {
    /// Its name: "mass", "x", "rho", ... Lives for ever.
    pub name: *const c_char,
    /// STEAD_F32 or STEAD_F64.
    pub dtype: stead_dtype,
    /// Bytes before it in the record.
    pub offset: usize,
}

/// Where a column of particles is to be put: the caller's memory, an array or a member of an array of structs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_tipsy_column {
    /// Its name: "mass", "x", "y", "z", "vx", "vy", "vz", "phi"; of gas "rho", "temp", "hsmooth", "metals"; of dark matter
    /// "eps"; of stars "metals", "tform", "eps".
    pub name: *const c_char,
    /// The place of the first particle's value, at any address.
    pub data: *mut c_void,
    /// STEAD_F64, or STEAD_F32 where the file has that, too.
    pub dtype: stead_dtype,
    /// Bytes from one value to the next; 0 if they lie side by side.
    pub stride: usize,
}

struct TipsyFace {
    snapshot: Snapshot,
}

impl Object for TipsyFace {
    type Handle = stead_tipsy;
    const NAME: &'static str = "snapshot";
}

/// The names of columns as C has them.
const NAMES: [&CStr; 14] = [
    c"mass", c"x", c"y", c"z", c"vx", c"vy", c"vz", c"rho", c"temp", c"hsmooth", c"metals",
    c"tform", c"eps", c"phi",
];

fn get(snapshot: *const stead_tipsy) -> Result<Arc<TipsyFace>> {
    table::get(snapshot)
}

fn give(snapshot: Snapshot) -> *mut stead_tipsy {
    table::insert(TipsyFace { snapshot })
}

fn species(n: stead_species) -> Result<Species> {
    match n {
        STEAD_GAS => Ok(Species::Gas),
        STEAD_DARK => Ok(Species::Dark),
        STEAD_STAR => Ok(Species::Star),
        _ => Err(Error::usage(format!("no species has the number {n}"))
            .with_hint("use STEAD_GAS, STEAD_DARK or STEAD_STAR")),
    }
}

fn number(dtype: DType) -> stead_dtype {
    if dtype == DType::F64 { STEAD_F64 } else { STEAD_F32 }
}

/// Opens a Tipsy snapshot. Byte order, length of the header and precision are found by the length of the file, which is
/// never written to. `options` may be NULL; what is read is what tasks ask for. Where all ranks of a job load one file, see
/// stead_tipsy_open_ranks, and stead_mpi_tipsy_open of stead_mpi.h.
///
/// Errors: those of stead_file_open; STEAD_FORMAT for a file that is no snapshot, or not a whole one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_tipsy_open(
    path: *const c_char,
    options: *const stead_read_options,
    snapshot: *mut *mut stead_tipsy,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let given = Given { path, options, place: snapshot, what: "snapshot" };
        given.open(c, |path, options| Ok(give(tipsy::open(path, options)?)))
    })
}

/// Opens a snapshot on all ranks of a fabric, as stead_file_open_ranks opens a file: all ranks call this, with the same path
/// and options. Loading is of no concern to other ranks, but each byte is read from the file system by one of them.
///
/// Errors: those of stead_file_open_ranks; STEAD_FORMAT, on all ranks, as for stead_tipsy_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_tipsy_open_ranks(
    make: stead_make_fabric_fn,
    data: *mut c_void,
    path: *const c_char,
    options: *const stead_read_options,
    snapshot: *mut *mut stead_tipsy,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let given = Given { path, options, place: snapshot, what: "snapshot" };
        given.open_ranks(c, make, data, |file| Ok(give(tipsy::of(file)?)))
    })
}

/// Copies what a snapshot is to `header`, which has `size` bytes: sizeof(stead_tipsy_header) of the header that the caller
/// was compiled with. What only a later one has is 0.
///
/// Errors: STEAD_USAGE for a size that no version has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_tipsy_describe(
    snapshot: *const stead_tipsy,
    header: *mut stead_tipsy_header,
    size: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_grown(header, size, "place for the header")?;
        let face = get(snapshot)?;
        let h = face.snapshot.header();
        out.put(stead_tipsy_header {
            time: h.time,
            counts: Species::ALL.map(|k| h.count(k)),
            header_bytes: h.bytes,
            record_bytes: Species::ALL.map(|k| h.record_bytes(k)),
            positions: number(h.positions),
            velocities: number(h.velocities),
            big_endian: h.byte_order == ByteOrder::Big,
        });
        Ok(())
    })
}

/// Number of fields of a record of a species, 0 if the handle is no snapshot or there is no such species. They are written
/// to `fields` in the order of the file, as many as fit into `room`; it may be NULL if `room` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_tipsy_fields(
    snapshot: *const stead_tipsy,
    species: stead_species,
    fields: *mut stead_tipsy_field,
    room: usize,
) -> usize {
    look!(0, |c| {
        let all = get(snapshot)?.snapshot.header().fields(self::species(species)?);
        let field = |f: &tipsy::Field| {
            let name = NAMES.iter().find(|n| n.to_bytes() == f.name.as_bytes());
            let name = name.map_or(std::ptr::null(), |n| n.as_ptr());
            stead_tipsy_field { name, dtype: number(f.dtype), offset: f.offset }
        };
        c.fill(fields, room, "place for the fields", all.iter().map(field))?;
        Ok(all.len())
    })
}

/// Which records of a species are those of task `task` of `tasks`, numbered from 0. Together the tasks have each once, in
/// order; there may be more tasks than records.
///
/// Errors: STEAD_USAGE if there is no such species or task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_tipsy_share(
    snapshot: *const stead_tipsy,
    species: stead_species,
    task: usize,
    tasks: usize,
    part: *mut stead_tipsy_part,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(part, "place for the part")?;
        let part = get(snapshot)?.snapshot.header().part(self::species(species)?, task, tasks)?;
        let tipsy::Part { first, count, offset, bytes } = part;
        out.put(stead_tipsy_part { first, count, offset, bytes });
        Ok(())
    })
}

/// Loads columns of the particles of task `task` of `tasks` into the caller's memory, which has room for as many values as
/// stead_tipsy_share says, and waits for them. Beside it, it takes a few MiB, however many particles there are. Not all that
/// was asked for may be there after a failure.
///
/// Errors: STEAD_USAGE for a species, task or column that there is not, and for an array of STEAD_F32 where the file has
/// STEAD_F64; those of stead_read_view, STEAD_CHANGED if the file became shorter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_tipsy_load(
    snapshot: *const stead_tipsy,
    species: stead_species,
    task: usize,
    tasks: usize,
    columns: *const stead_tipsy_column,
    n: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let face = get(snapshot)?;
        let (snapshot, species) = (&face.snapshot, self::species(species)?);
        let part = snapshot.header().part(species, task, tasks)?;
        let places =
            Places::new(c, snapshot, species, part.count, c.slice(columns, n, "columns")?)?;
        let mut done = 0;
        snapshot.load_each(species, task, tasks, &places.names, &mut |particles| {
            places.put(particles, done);
            done += particles.len();
            Ok(())
        })
    })
}

/// Puts the values of whole records into the caller's memory: `bytes` of them, as they lie in the file, such as a read of the
/// session brings. The memory has room for bytes / record_bytes values of each column, and must not overlap the records, nor
/// a column another one.
///
/// Errors: STEAD_USAGE if a record is not whole; else as stead_tipsy_load.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_tipsy_decode(
    snapshot: *const stead_tipsy,
    species: stead_species,
    records: *const c_void,
    bytes: usize,
    columns: *const stead_tipsy_column,
    n: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    // So many records at a time that they and their values stay in the cache.
    const AT_ONCE: u64 = 1024;
    call!(error, |c| {
        let face = get(snapshot)?;
        let (snapshot, species) = (&face.snapshot, self::species(species)?);
        let record = snapshot.header().record_bytes(species);
        let records = c.slice(records.cast::<u8>(), bytes, "records")?;
        if !(bytes as u64).is_multiple_of(record) {
            let message = format!("{bytes} bytes are no whole {species} records of {record} bytes");
            return Err(Error::usage(message)
                .with_hint("stead_tipsy_share says where the records of a task lie"));
        }
        let columns = c.slice(columns, n, "columns")?;
        let places = Places::new(c, snapshot, species, bytes as u64 / record, columns)?;
        let mut particles = Particles::new(snapshot.header(), species, 0, &places.names)?;
        let mut done = 0;
        // A record has 72 bytes at most.
        for records in records.chunks((record * AT_ONCE) as usize) {
            particles.clear();
            particles.add(records)?;
            places.put(&particles, done);
            done += particles.len();
        }
        Ok(())
    })
}

/// The session of a snapshot, over the whole file, for reads that do not wait: stead_tipsy_share says where the records of a
/// task lie, and stead_tipsy_decode makes numbers of them. It is to be closed with stead_session_close, before or after the
/// snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_tipsy_session(
    snapshot: *const stead_tipsy,
    session: *mut *mut stead_session,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(session, "place for the session")?;
        out.put(session::share(get(snapshot)?.snapshot.session().clone(), None));
        Ok(())
    })
}

/// Closes a snapshot and says whether the file is still what it was. The handle is good no more, whatever the outcome. NULL is
/// nothing to do.
///
/// Errors: STEAD_CHANGED if somebody wrote to the file; STEAD_USAGE for a snapshot that was closed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_tipsy_close(
    snapshot: *mut stead_tipsy,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        if snapshot.is_null() {
            return Ok(());
        }
        let face = get(snapshot)?;
        table::remove::<TipsyFace>(snapshot)?;
        face.snapshot.session().check()
    })
}

/// Where values go.
struct Places<'c> {
    c: &'c Caller,
    names: Vec<&'c str>,
    all: Vec<Place>,
}

#[derive(Clone, Copy)]
struct Place {
    data: *mut c_void,
    double: bool,
    stride: usize,
}

impl<'c> Places<'c> {
    /// Places for `count` values of each column.
    fn new(
        c: &'c Caller,
        snapshot: &Snapshot,
        species: Species,
        count: u64,
        columns: &'c [stead_tipsy_column],
    ) -> Result<Places<'c>> {
        if columns.is_empty() {
            return Err(Error::usage("no column was asked for"));
        }
        let mut places = Places { c, names: Vec::new(), all: Vec::new() };
        for column in columns {
            places.names.push(c.text(column.name, "name of a column")?);
        }
        // That there are such columns.
        Particles::new(snapshot.header(), species, 0, &places.names)?;
        let fields = snapshot.header().fields(species);
        for (column, name) in columns.iter().zip(&places.names) {
            let there = fields.iter().find(|f| f.name == *name).map(|f| f.dtype);
            let asked = memory::dtype(column.dtype)?;
            match (asked, there) {
                (DType::F64, _) | (DType::F32, Some(DType::F32)) => {}
                (DType::F32, _) => {
                    return Err(Error::usage("the file has doubles, and the array is of floats")
                        .at_column(*name)
                        .with_hint("give an array of doubles, which takes both"));
                }
                _ => {
                    return Err(Error::usage(format!("an array of {asked} takes no particles"))
                        .at_column(*name)
                        .with_hint("give one of STEAD_F64 or STEAD_F32"));
                }
            }
            let stride = if column.stride == 0 { asked.size() } else { column.stride };
            if stride < asked.size() {
                return Err(
                    Error::usage(format!("values {stride} bytes apart overlap")).at_column(*name)
                );
            }
            let large = || Error::usage(format!("{count} values fit no memory")).at_column(*name);
            let bytes = usize::try_from(count).ok().and_then(|n| n.checked_mul(stride));
            check_size::<u8>(bytes.ok_or_else(large)?, name)?;
            if count > 0 && column.data.is_null() {
                return Err(null("array").at_column(*name));
            }
            places.all.push(Place { data: column.data, double: asked == DType::F64, stride });
        }
        Ok(places)
    }

    /// Puts the values of particles to the places from number `first` on.
    fn put(&self, particles: &Particles, first: usize) {
        for (name, place) in self.names.iter().zip(&self.all) {
            let Place { data, double, stride } = *place;
            match (particles.column(name), double) {
                (Some(Values::F32(v)), false) => {
                    self.c.scatter(data.cast(), stride, first, v.iter().copied());
                }
                (Some(Values::F32(v)), true) => {
                    self.c.scatter(data.cast(), stride, first, v.iter().copied().map(f64::from));
                }
                (Some(Values::F64(v)), true) => {
                    self.c.scatter(data.cast(), stride, first, v.iter().copied());
                }
                // `new` refuses it; and there is every column that was asked for.
                (Some(Values::F64(_)), false) | (None, _) => {}
            }
        }
    }
}
