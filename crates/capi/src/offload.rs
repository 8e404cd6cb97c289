//! Work that some ranks of a job ask others to do, which are where the data are.

use crate::error::{self, stead_error, stead_status};
use crate::guard::{Caller, c_text, call, look};
use crate::options::{self, stead_options};
use crate::own::{self, stead_kernel};
use crate::report::{self, stead_report};
use crate::request::{self, stead_request};
use crate::run::Watch;
use crate::table::{self, Object};
use crate::versions::grows;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use stead::fabric::Fabric;
use stead::fabric::foreign::{self, stead_make_fabric_fn};
use stead::kernels::Own;
use stead::offload::{self, Client, Job, Operations, Role, Roles, Serving, View};
use stead::ranks::Here;
use stead::{Error, Observer, Result};

/// Ranks of a job of which some are storage ranks, as one of them sees it: a compute rank asks, a storage rank serves.
/// Made by stead_offload_open, freed with stead_offload_free.
pub struct stead_offload {
    _opaque: [u8; 0],
}

/// Makes the kernel of an operation's name: fills in `kernel`, whose size and name are set, and returns 0, or calls
/// stead_fail and returns something else. Called by several threads at once. It must not throw or jump out.
pub type stead_resolve_fn = Option<
    unsafe extern "C" fn(
        name: *const c_char,
        kernel: *mut stead_kernel,
        user: *mut c_void,
    ) -> c_int,
>;

/// Which ranks are storage ranks, and how this one serves if it is one. Begin with
/// `stead_offload_options o = {0}; o.size = sizeof o;`: members may be added at its end, and are 0 then.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_offload_options {
    /// sizeof(stead_offload_options).
    pub size: usize,
    /// Storage ranks are those on these hosts, such as "node[1-4]" or "a,b", or with "layout:FILE" on the nodes of a layout that
    /// the first rank reads, the same on all ranks; NULL if each rank says itself what it is.
    pub storage_hosts: *const c_char,
    /// True if this rank is a storage rank. Only where there are no `storage_hosts`.
    pub is_storage: bool,
    /// What a storage rank makes kernels of operations with, or NULL if there are none.
    pub resolve: stead_resolve_fn,
    /// Handed to it.
    pub user: *mut c_void,
    /// The most memory that an ask gets on this node, whatever it asks for; 0 for no such bound.
    pub memory: u64,
}

grows!(stead_offload_options, memory: u64);

/// A stretch of bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_stretch {
    /// Where it begins in the tile.
    pub offset: u64,
    /// How many bytes it has.
    pub length: u64,
}

/// Some of the bytes of a file, as MPI-IO's views say it: from `displacement` on, a tile of `extent` bytes repeats for
/// ever, and of each the stretches are seen, one after the other. Of what is seen `skip` bytes are left out, and `bytes`
/// bytes are meant.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_file_view {
    /// sizeof(stead_file_view).
    pub size: usize,
    /// Where the first tile begins in the file.
    pub displacement: u64,
    /// Bytes of a tile.
    pub extent: u64,
    /// What is seen of each: ascending, none in another, the last one ending no more than `extent` bytes after the first
    /// one begins.
    pub stretches: *const stead_stretch,
    /// How many stretches there are, at most 2^20 when neighbours are one.
    pub stretch_count: usize,
    /// Bytes that are left out at the beginning.
    pub skip: u64,
    /// Bytes that are meant; all of them must be in the file.
    pub bytes: u64,
    /// Bytes that the file has where it was opened: where it has others it is another one, which is an error. 0 if that is
    /// not to be looked at.
    pub file_bytes: u64,
}

grows!(stead_file_view, file_bytes: u64);

/// Over which bytes a request runs, besides its kernels which operations. Begin with
/// `stead_offload_job j = {0}; j.size = sizeof j;`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_offload_job {
    /// sizeof(stead_offload_job).
    pub size: usize,
    /// Files, globs, directories and layouts, as the storage ranks see them.
    pub paths: *const *const c_char,
    /// How many there are; one with a view.
    pub path_count: usize,
    /// How to open them; may be NULL.
    pub options: *const stead_options,
    /// What is seen of the file, or NULL for all of it.
    pub view: *const stead_file_view,
    /// Names of operations, of which `resolve` of the storage ranks makes kernels. Their results come after those of the
    /// request.
    pub operations: *const *const c_char,
    /// How many there are.
    pub operation_count: usize,
    /// What this rank makes kernels of them with, where it runs the job itself.
    pub resolve: stead_resolve_fn,
    /// Handed to it.
    pub user: *mut c_void,
}

grows!(stead_offload_job, user: *mut c_void);

/// What a rank is, and what it has for it.
struct Site {
    fabric: Arc<dyn Fabric>,
    roles: Roles,
    here: Here,
    serving: Serving,
    /// Of a compute rank.
    client: Option<Client>,
    /// Whoever serves takes it: that is done once.
    serves: Mutex<bool>,
}

impl Object for Site {
    type Handle = stead_offload;
    const NAME: &'static str = "way to storage ranks";
}

/// A function of the caller that makes kernels.
struct Resolver {
    call: unsafe extern "C" fn(*const c_char, *mut stead_kernel, *mut c_void) -> c_int,
    user: *mut c_void,
}

// SAFETY: the header says of the function that several threads call it, with that pointer.
unsafe impl Send for Resolver {}
// SAFETY: as above.
unsafe impl Sync for Resolver {}

impl Resolver {
    fn operations(call: stead_resolve_fn, user: *mut c_void) -> Option<Operations> {
        let resolver = Resolver { call: call?, user };
        Some(Arc::new(move |name| resolver.make(name)))
    }

    fn make(&self, name: &str) -> Result<Own> {
        let text = c_text(name);
        let mut kernel = stead_kernel {
            size: size_of::<stead_kernel>(),
            name: text.as_ptr(),
            state_size: 0,
            numbers: std::ptr::null(),
            number_count: 0,
            texts: std::ptr::null(),
            text_count: 0,
            needs: 0,
            init: None,
            update: None,
            merge: None,
            finish: None,
            user: std::ptr::null_mut(),
            release: None,
        };
        own::told(
            // SAFETY: the caller's function, with a name and a place that are good during the call.
            || unsafe { (self.call)(text.as_ptr(), &raw mut kernel, self.user) },
            |told, code| match told {
                Some((kind, message)) => Error::new(kind, message),
                None => Error::new(
                    error::kind(code).unwrap_or(stead::Kind::Usage),
                    format!("the operation '{name}' was refused with the number {code}"),
                ),
            },
        )?;
        // Whatever it has written there, the result has the name that was asked for.
        kernel.name = text.as_ptr();
        let mut made = Err(Error::internal("no kernel"));
        // SAFETY: the struct is of this version, and what it points to is as the header says.
        unsafe {
            crate::guard::value((), |c| {
                made = own::take(c, &raw const kernel);
                Ok(())
            });
        }
        made
    }
}

/// Makes storage ranks of some ranks of a fabric, which is made first. Collective: all ranks call it. With MPI,
/// stead_MPI_Storage_init of stead_mpi_io.h is simpler.
///
/// Errors: STEAD_USAGE on all ranks if there is no storage rank, a host has no rank, ranks are given different hosts, or
/// one of them gives arguments that make no sense, but for `make`, without which it can tell nobody; STEAD_PEER if a rank
/// is gone; those of `make`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_offload_open(
    make: stead_make_fabric_fn,
    data: *mut c_void,
    options: *const stead_offload_options,
    offload: *mut *mut stead_offload,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        // A place that is there is NULL from now on, whatever comes.
        let out = c.out_handle(offload, "place for the way to storage ranks");
        // SAFETY: the caller keeps what the header says of the function.
        let fabric: Arc<dyn Fabric> = Arc::new(unsafe { foreign::make(make, data)? });
        let here = Here::default();
        let given = out.and_then(|out| {
            let o = c.grown(options, "options")?;
            Ok((out, o, c.optional_text(o.storage_hosts, "storage hosts")?))
        });
        let (out, options, hosts) = match given {
            Ok(given) => given,
            // Others are in the same call and hear of it.
            Err(e) => return Roles::agree(&*fabric, &here, Err(e)).map(drop),
        };
        let roles = match hosts {
            Some(hosts) => Roles::by_hosts(&*fabric, &here, hosts)?,
            None if options.is_storage => Roles::agree(&*fabric, &here, Ok(Role::Storage))?,
            None => Roles::agree(&*fabric, &here, Ok(Role::Compute))?,
        };
        let serving = Serving {
            operations: Resolver::operations(options.resolve, options.user),
            memory: Some(options.memory).filter(|m| *m > 0),
            ..Serving::default()
        };
        let serves = roles.of(fabric.rank()) == Role::Storage;
        let client = if serves { None } else { Some(Client::new(fabric.clone(), roles.clone())?) };
        let serves = Mutex::new(serves);
        out.put(table::insert(Site { fabric, roles, here, serving, client, serves }));
        Ok(())
    })
}

/// True if this rank is a storage rank; false for what is no handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_offload_is_storage(offload: *const stead_offload) -> bool {
    look!(false, |_c| Ok(table::get::<Site>(offload)?.client.is_none()))
}

/// Number of storage ranks, or of compute ranks; 0 for what is no handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_offload_ranks(
    offload: *const stead_offload,
    storage: bool,
) -> usize {
    look!(0, |_c| {
        let site = table::get::<Site>(offload)?;
        Ok(if storage { site.roles.storage().len() } else { site.roles.compute().len() })
    })
}

/// Has a storage rank work for the compute ranks, until all of them have freed their handles or are gone. Once.
///
/// Errors: STEAD_USAGE on a compute rank, for a second call, and if there is no compute rank; STEAD_PEER if the first
/// storage rank is gone. What asks fail with is told to who has asked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_offload_serve(
    offload: *const stead_offload,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        let site = table::get::<Site>(offload)?;
        if site.client.is_some() {
            return Err(Error::usage("this rank is a compute rank, which does not serve"));
        }
        if !std::mem::take(&mut *site.serves.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Err(Error::usage("this rank has served before, or does now"));
        }
        offload::serve(site.fabric.clone(), &site.roles, &site.here, &site.serving).map(drop)
    })
}

/// What a job and a request are together.
fn job(c: &Caller, given: &stead_offload_job, asked: &stead::Request) -> Result<Job> {
    let view = if given.view.is_null() { None } else { Some(c.grown(given.view, "view")?) };
    let file_bytes = view.as_ref().map(|v| v.file_bytes).filter(|n| *n > 0);
    let view = view.map(|v| {
        let runs = c.slice(v.stretches, v.stretch_count, "stretches of the view")?;
        let runs = runs.iter().map(|s| (s.offset, s.length)).collect();
        View::new(v.displacement, v.extent, runs, v.skip, v.bytes)
    });
    Ok(Job {
        inputs: c.texts(given.paths, given.path_count, "paths")?,
        open: options::of(given.options)?,
        view: view.transpose()?,
        file_bytes,
        kernels: asked.kernels.clone(),
        operations: c.texts(given.operations, given.operation_count, "names of operations")?,
        filter: asked.filter.clone(),
        by: asked.by.clone(),
        threads: asked.threads,
        memory: asked.memory,
        chunk: asked.chunk,
        io: asked.io,
        lenient: asked.lenient,
    })
}

/// Runs `request` over the data of `job` on the storage ranks, and waits for the report; files that kernels write as a
/// whole are written here. With NULL for `offload` this rank runs it itself: programs need not know whether there are
/// storage ranks. Threads of a compute rank may ask at the same time.
///
/// Errors: those of stead_run, with the rank and host of a storage rank where they are its own; STEAD_USAGE on a storage
/// rank, for kernels of one's own (give names of operations), for kernels that write in the order of the data
/// (normalize, grep with a file) on storage ranks, and for names that these do not know; STEAD_PEER if a storage rank is
/// gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_offload_run(
    offload: *const stead_offload,
    job: *const stead_offload_job,
    request: *const stead_request,
    report: *mut *mut stead_report,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(report, "place for the report")?;
        let given = c.grown(job, "job")?;
        let asked = request::of(request)?;
        if let Some(own) = asked.request.own.first() {
            return Err(Error::usage(format!(
                "the kernel '{}' is of this process alone",
                own.name()
            ))
            .with_hint("have storage ranks make it of a name: operations of the job"));
        }
        let job = self::job(c, &given, &asked.request)?;
        let cancel = asked.cancel.unwrap_or_default();
        let watch = asked.progress.map(|watcher| Watch { watcher, cancel: cancel.clone() });
        let observer = watch.as_ref().map(|w| w as &dyn Observer);
        let done = if offload.is_null() {
            let operations = Resolver::operations(given.resolve, given.user);
            let how = Serving { operations, ..Serving::default() };
            offload::alone(&job, &how, &cancel, observer)?
        } else {
            let site = table::get::<Site>(offload)?;
            let client = site.client.as_ref().ok_or_else(|| {
                Error::usage("this rank is a storage rank, which serves and does not ask")
            })?;
            client.run(&job, &cancel, observer)?
        };
        out.put(report::give(done));
        Ok(())
    })
}

/// Says good-bye, if this is a compute rank, whose requests that are under way are cancelled, and frees the handle. NULL
/// is nothing to do; a handle that is none any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_offload_free(offload: *mut stead_offload) {
    look!((), |_c| {
        if let Ok(site) = table::get::<Site>(offload)
            && let Some(client) = &site.client
        {
            client.close();
        }
        table::remove::<Site>(offload)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{stead_block_run, stead_block_run_count};
    use crate::builder;
    use crate::own::{STEAD_NEEDS_BYTES, stead_block, stead_builder, stead_fail};
    use std::ffi::CString;
    use std::ptr::{null, null_mut};
    use stead::fabric::Local;
    use stead::fabric::foreign::Functions;

    /// Gives the fabric that `data` points to.
    unsafe extern "C" fn lent(data: *mut c_void, place: *mut Functions, _: *mut c_char) -> c_int {
        // SAFETY: both point to such a record.
        unsafe { place.write(data.cast::<Functions>().read()) };
        0
    }

    unsafe extern "C" fn update(s: *mut c_void, b: *const stead_block, _: *mut c_void) -> c_int {
        // SAFETY: a state of 8 bytes, and the block of this call.
        unsafe {
            for i in 0..stead_block_run_count(b) {
                let mut len = 0;
                let at = stead_block_run(b, i, &raw mut len).cast::<u8>();
                let bytes = std::slice::from_raw_parts(at, len);
                *s.cast::<u64>() += bytes.iter().map(|b| u64::from(*b)).sum::<u64>();
            }
        }
        0
    }

    unsafe extern "C" fn merge(s: *mut c_void, o: *const c_void, _: *mut c_void) -> c_int {
        // SAFETY: two states of 8 bytes.
        unsafe { *s.cast::<u64>() += *o.cast::<u64>() };
        0
    }

    unsafe extern "C" fn finish(s: *mut c_void, b: *mut stead_builder, _: *mut c_void) -> c_int {
        // SAFETY: a state of 8 bytes, and the builder of this call.
        unsafe { builder::stead_builder_int(b, *s.cast::<u64>()) }
    }

    /// Knows one name.
    unsafe extern "C" fn resolve(n: *const c_char, k: *mut stead_kernel, _: *mut c_void) -> c_int {
        // SAFETY: a name, and a kernel to be filled in.
        unsafe {
            if std::ffi::CStr::from_ptr(n) != c"bytes added up" {
                return stead_fail(error::STEAD_USAGE, c"it is none of ours".as_ptr());
            }
            (*k).state_size = 8;
            (*k).needs = STEAD_NEEDS_BYTES;
            (*k).update = Some(update);
            (*k).merge = Some(merge);
            (*k).finish = Some(finish);
        }
        0
    }

    const ROWS: u64 = 30_000;

    /// Asks for the second of each three bytes, from the tenth on, once by a kernel and once by an operation.
    fn ask(
        site: *const stead_offload,
        path: &CString,
        operation: &CString,
    ) -> (stead_status, String) {
        let (mut request, mut report) = (null_mut(), null_mut());
        let mut options = null_mut();
        let stretch = [stead_stretch { offset: 1, length: 1 }];
        let view = stead_file_view {
            size: size_of::<stead_file_view>(),
            displacement: 0,
            extent: 3,
            stretches: stretch.as_ptr(),
            stretch_count: 1,
            skip: 10,
            bytes: ROWS - 10,
            file_bytes: 3 * ROWS,
        };
        let (paths, operations) = ([path.as_ptr()], [operation.as_ptr()]);
        let none = null_mut();
        // SAFETY: all places are good.
        unsafe {
            options::stead_options_new(&mut options, none);
            for (name, value) in [(c"type", c"raw"), (c"dtype", c"u8")] {
                options::stead_options_set(options, name.as_ptr(), value.as_ptr(), none);
            }
            request::stead_request_new(&mut request, none);
            request::stead_request_kernel(request, c"sum:value".as_ptr(), none);
            let job = stead_offload_job {
                size: size_of::<stead_offload_job>(),
                paths: paths.as_ptr(),
                path_count: 1,
                options,
                view: &raw const view,
                operations: operations.as_ptr(),
                operation_count: 1,
                resolve: Some(resolve),
                user: null_mut(),
            };
            let status = stead_offload_run(site, &raw const job, request, &mut report, none);
            let said = if status == error::STEAD_OK {
                let (mut sum, mut added) = (0.0, 0.0);
                report::stead_report_double(report, c"sum:value".as_ptr(), &mut sum, none);
                report::stead_report_double(report, operation.as_ptr(), &mut added, none);
                format!("{sum} {added}")
            } else {
                std::ffi::CStr::from_ptr(crate::guard::last()).to_string_lossy().into_owned()
            };
            report::stead_report_free(report);
            request::stead_request_free(request);
            options::stead_options_free(options);
            (status, said)
        }
    }

    fn rank(fabric: Local, storage: bool, path: &CString, wanted: &str) {
        let mut functions = foreign::lend(Arc::new(fabric));
        let mut options = stead_offload_options {
            size: size_of::<stead_offload_options>(),
            storage_hosts: null(),
            is_storage: storage,
            resolve: Some(resolve),
            user: null_mut(),
            memory: 0,
        };
        let mut site = null_mut();
        let data = (&raw mut functions).cast();
        // SAFETY: all places are good.
        unsafe {
            assert_eq!(
                stead_offload_open(Some(lent), data, &raw mut options, &mut site, null_mut()),
                0
            );
            assert_eq!(stead_offload_is_storage(site), storage);
            assert_eq!((stead_offload_ranks(site, true), stead_offload_ranks(site, false)), (2, 2));
            if storage {
                assert_eq!(ask(site, path, &c"bytes added up".into()).0, error::STEAD_USAGE);
                assert_eq!(stead_offload_serve(site, null_mut()), 0);
                assert_eq!(stead_offload_serve(site, null_mut()), error::STEAD_USAGE);
            } else {
                assert_eq!(stead_offload_serve(site, null_mut()), error::STEAD_USAGE);
                for _ in 0..3 {
                    assert_eq!(ask(site, path, &c"bytes added up".into()), (0, wanted.to_string()));
                }
                let (status, said) = ask(site, path, &c"nobody's".into());
                assert_eq!(status, error::STEAD_USAGE, "{said}");
                assert!(said.contains("none of ours"), "{said}");
            }
            stead_offload_free(site);
            assert!(!stead_offload_is_storage(site));
        }
    }

    #[test]
    fn ranks_ask_ranks_and_get_what_they_would_compute_themselves() {
        let path = std::env::temp_dir().join(format!("stead-capi-offload-{}", std::process::id()));
        let bytes: Vec<u8> = (0..3 * ROWS).map(|i| (i * 7 % 251) as u8).collect();
        std::fs::write(&path, &bytes).expect("written");
        let name = CString::new(path.to_string_lossy().as_bytes()).expect("a path");
        let sum: u64 = bytes.chunks(3).skip(10).map(|c| u64::from(c[1])).sum();
        let wanted = format!("{sum} {sum}");
        assert_eq!(ask(null(), &name, &c"bytes added up".into()), (0, wanted.clone()));
        std::thread::scope(|s| {
            for (i, fabric) in Local::group(4).into_iter().enumerate() {
                let (name, wanted) = (&name, wanted.as_str());
                s.spawn(move || rank(fabric, i % 2 == 1, name, wanted));
            }
        });
        std::fs::remove_file(&path).expect("removed");
        let (status, said) = ask(null(), &name, &c"bytes added up".into());
        assert_eq!(status, error::STEAD_NOT_FOUND, "{said}");
    }
}
