//! Functions of C: those that a program has, and those in shared libraries that a graph names.
//!
//! What a function does with the memory that it is given cannot be looked into. So libraries are loaded only where somebody says that they are
//! to be, by the path that the graph has for them and by no other one: no variable of the environment says where they are looked for.

use crate::check::retold;
use crate::graph::{Graph, Operator};
use crate::op::{Function, Given, Home, Wanted, home};
use crate::run::Functions;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, absolute};
use std::sync::Arc;
use stead_core::{DType, Error, Kind, Result};

/// An array that a function of C is given, or is to make: `stead_flow_array` of `stead.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CArray {
    /// Its elements, in C order.
    pub data: *const c_void,
    /// How many bytes they are.
    pub bytes: usize,
    /// Their type, as `STEAD_F64` and so on.
    pub dtype: c_int,
    /// How many dimensions it has.
    pub ndim: usize,
    /// Their lengths.
    pub shape: *const u64,
}

/// A function of C: `stead_flow_fn` of `stead.h`.
pub type CFunction = unsafe extern "C" fn(
    given: *const CArray,
    count: usize,
    wanted: *const CArray,
    to: *mut c_void,
    user: *mut c_void,
) -> c_int;

/// What a program gives to be given back to its function.
struct User(*mut c_void);

// SAFETY: whoever gives the function says that it may have it in the threads that run the flow.
unsafe impl Send for User {}
// SAFETY: as above; it is only handed on.
unsafe impl Sync for User {}

impl User {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// The number of an element type in `stead.h`.
fn number(dtype: DType) -> c_int {
    let place = DType::ALL.iter().position(|known| *known == dtype);
    place.and_then(|place| c_int::try_from(place + 1).ok()).unwrap_or(0)
}

/// A function of C as one of flows. What it does not return 0 for is an error with this name.
///
/// # Safety
/// The function may be called in any thread, with arrays that live as long as the call, writes no more than `wanted.bytes` bytes to `to`, and
/// does not unwind; `user` may be handed to it as long as the function is had.
pub unsafe fn of_c(name: &str, function: CFunction, user: *mut c_void) -> Function {
    let (user, name) = (User(user), name.to_owned());
    Arc::new(move |given: &[Given], wanted: &Wanted, to: &mut [u8]| {
        let array = |data: *const u8, bytes, dtype, shape: &[u64]| CArray {
            data: data.cast(),
            bytes,
            dtype: number(dtype),
            ndim: shape.len(),
            shape: shape.as_ptr(),
        };
        let arrays: Vec<CArray> = given
            .iter()
            .map(|g| array(g.bytes().as_ptr(), g.bytes().len(), g.dtype, g.bounds.count()))
            .collect();
        let target = to.as_mut_ptr();
        let made = array(target.cast_const(), to.len(), wanted.dtype, wanted.bounds.count());
        // SAFETY: whoever gave the function has said that it may be called so; the arrays outlive the call.
        let failed =
            unsafe { function(arrays.as_ptr(), arrays.len(), &made, target.cast(), user.get()) };
        match failed {
            0 => Ok(()),
            n => Err(Error::data(format!("function '{name}' has failed with {n}"))),
        }
    })
}

/// Loads the functions that a graph names in libraries, such as `libheat.so:warmer`, and that are not among these yet. Paths are relative to
/// a folder: that of the graph's file. What is loaded stays so until the process ends.
///
/// # Errors
/// `NotFound` if a library or a function in it is not there; `Usage` for what cannot be loaded, with the reason. They name the node.
///
/// # Safety
/// The code of the libraries is run with the rights of this process, when they are loaded and when the flow runs: they are trusted, as whoever
/// gives the graph is that names them. What it names in them are functions as `stead_flow_fn` of `stead.h`, which do what [`of_c`] says
/// with NULL as `user`.
pub unsafe fn load(graph: &Graph, folder: &Path, functions: &mut Functions) -> Result<()> {
    for (name, op) in &graph.node {
        let Operator::Map { function, .. } = op else { continue };
        if functions.contains_key(function) {
            continue;
        }
        let Home::Library(path, symbol) = home(function) else { continue };
        // SAFETY: the caller trusts the library, and says that it is a function of this sort.
        let loaded = unsafe { function_in(path, symbol, folder) }
            .map_err(|e| retold(&e, format!("node '{name}': {}", e.message())))?;
        // SAFETY: the same; it is given nothing as `user`.
        let loaded = unsafe { of_c(function, loaded, std::ptr::null_mut()) };
        functions.insert(function.clone(), loaded);
    }
    Ok(())
}

/// A function in a library.
///
/// # Safety
/// As of [`load`].
unsafe fn function_in(path: &str, symbol: &str, folder: &Path) -> Result<CFunction> {
    // The linker looks for what has no folder in its name where the environment says.
    let at = absolute(folder.join(path)).map_err(|e| Error::io("find", Path::new(path), e))?;
    if let Err(e) = std::fs::metadata(&at) {
        let e = Error::io("load", &at, e);
        return Err(Error::new(e.kind(), format!("library '{}': {}", at.display(), e.message())));
    }
    let odd = || Error::usage("a name with a zero byte in it");
    let file = CString::new(at.as_os_str().as_bytes()).map_err(|_| odd())?;
    let name = CString::new(symbol).map_err(|_| odd())?;
    // SAFETY: a path that ends with a zero byte, of a library that the caller trusts.
    let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(Error::usage(format!("cannot load '{}': {}", at.display(), why()))
            .with_hint("is it a shared library of this machine: cc -shared -fPIC?"));
    }
    // SAFETY: a library that is never closed, and a name that ends with a zero byte.
    let function = unsafe { libc::dlsym(library, name.as_ptr()) };
    if function.is_null() {
        let message = format!("library '{}' has no function '{symbol}'", at.display());
        return Err(Error::new(Kind::NotFound, message)
            .with_hint("it may be static, or one of C++ without extern \"C\""));
    }
    // SAFETY: it is no NULL, and the caller says that it is a function of this sort.
    Ok(unsafe { std::mem::transmute::<*mut c_void, CFunction>(function) })
}

/// Why the linker has refused something, as it says.
fn why() -> String {
    // SAFETY: it gives NULL, or a text that lives until this thread asks it for something again.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the system gives no reason".to_owned();
    }
    // SAFETY: as above; it ends with a zero byte.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(function: &str) -> Graph {
        let text = format!(
            "[read.sim]\n[node.m]\nop = \"map\"\nof = \"sim.T\"\nfunction = \"{function}\"\n[write.out]\nvariables = {{ m = \"m\" }}\n"
        );
        Graph::parse(&text).unwrap()
    }

    #[test]
    fn what_cannot_be_loaded_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("no.so"), "no library").unwrap();
        let ask = |function: &str| {
            let mut functions = Functions::new();
            // SAFETY: none of them is a library.
            let loaded = unsafe { load(&graph(function), folder.path(), &mut functions) };
            loaded.map(|()| functions.len())
        };
        let e = ask("none.so:f").unwrap_err();
        assert_eq!(e.kind(), Kind::NotFound);
        assert!(e.message().contains("node 'm'") && e.message().contains("none.so"), "{e}");
        let e = ask("no.so:f").unwrap_err();
        assert_eq!(e.kind(), Kind::Usage);
        assert!(e.message().contains("no.so'"), "{e}");
        // Others are not its business.
        for function in ["f", "f.py:f", "m:f"] {
            assert_eq!(ask(function).unwrap(), 0);
        }
    }

    #[test]
    fn what_is_given_is_not_loaded() {
        let mut functions = Functions::new();
        functions.insert("none.so:f".to_owned(), Arc::new(|_, _, _| Ok(())));
        // SAFETY: there is no such library.
        unsafe { load(&graph("none.so:f"), Path::new(""), &mut functions) }.unwrap();
        assert_eq!(functions.len(), 1);
    }

    #[test]
    fn numbers_of_types_are_those_of_the_header() {
        assert_eq!((number(DType::F32), number(DType::F64)), (1, 2));
        assert_eq!((number(DType::I8), number(DType::U64)), (3, 10));
    }
}
