//! Kernels of the caller's own: functions over a state of plain bytes.

use crate::block;
use crate::builder::{self, Said};
use crate::error::{self, stead_status};
use crate::guard::Caller;
use crate::memory::{Release, stead_release_fn};
use crate::versions::grows;
use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::sync::Arc;
use stead::kernels::{Block, Context, Kernel, Needs, Own, Step};
use stead::{Error, Kind, Result};

/// Some records of one file, while stead_kernel.update looks at them: see stead_block_rows and its like.
pub struct stead_block {
    _opaque: [u8; 0],
}

/// What stead_kernel.finish fills: see stead_builder_double and its like.
pub struct stead_builder {
    _opaque: [u8; 0],
}

/// For stead_kernel.needs: the bytes of the records (stead_block_run).
pub const STEAD_NEEDS_BYTES: u32 = 1;
/// For stead_kernel.needs: how many records there are. Known anyway where columns or records are asked for.
pub const STEAD_NEEDS_ROWS: u32 = 2;
/// For stead_kernel.needs: each record's bytes (stead_block_record).
pub const STEAD_NEEDS_RECORDS: u32 = 4;
/// For stead_kernel.needs: blocks, and states to merge, in the order of the data, for merging that is associative and does
/// not commute. Each rank then works with one thread, and ranks whose parts lie between those of others are refused
/// (STEAD_USAGE).
pub const STEAD_NEEDS_ORDER: u32 = 8;

/// Makes the state of no data out of zero bytes. Called once a run; other states begin as copies of it.
pub type stead_init_fn =
    Option<unsafe extern "C" fn(state: *mut c_void, user: *mut c_void) -> c_int>;
/// Adds a block to a state.
pub type stead_update_fn = Option<
    unsafe extern "C" fn(state: *mut c_void, block: *const stead_block, user: *mut c_void) -> c_int,
>;
/// Adds another state to a state.
pub type stead_merge_fn = Option<
    unsafe extern "C" fn(state: *mut c_void, other: *const c_void, user: *mut c_void) -> c_int,
>;
/// Says what a state means, or that there is another pass (stead_builder_again).
pub type stead_finish_fn = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        result: *mut stead_builder,
        user: *mut c_void,
    ) -> c_int,
>;

/// A kernel of one's own: a computation that can be split over blocks, threads and ranks.
///
/// States are `state_size` plain bytes, aligned to 16, that are copied and sent as they are: they hold no pointers,
/// and nothing to free. For the same answer whatever the split, merging must be associative, and commutative unless `needs`
/// has STEAD_NEEDS_ORDER, and the state of no data must add nothing. What a pass hands to the next one stands in the state too, and merging leaves it
/// as it is.
///
/// Every function returns 0, or anything else to stop the run: stead_fail says why. They are called from several
/// threads at the same time, each on states of its own, so what `user` points to must bear that. They must not
/// throw or jump out.
///
/// Begin with `stead_kernel k = {0}; k.size = sizeof k;`: members may be added at its end, and are 0 then.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_kernel {
    /// sizeof(stead_kernel).
    pub size: usize,
    /// The name of the result.
    pub name: *const c_char,
    /// Bytes of a state.
    pub state_size: usize,
    /// Columns wanted as numbers, by name or position; "*" for all that hold numbers.
    pub numbers: *const *const c_char,
    /// How many of these names there are.
    pub number_count: usize,
    /// Columns wanted as text.
    pub texts: *const *const c_char,
    /// How many of these names there are.
    pub text_count: usize,
    /// STEAD_NEEDS_BYTES and so on, or-ed together; 0 if columns are all.
    pub needs: u32,
    /// May be NULL: the state of no data is all zero.
    pub init: stead_init_fn,
    /// Must be there.
    pub update: stead_update_fn,
    /// Must be there.
    pub merge: stead_merge_fn,
    /// Must be there.
    pub finish: stead_finish_fn,
    /// Handed to the functions.
    pub user: *mut c_void,
    /// Called once with `user` when no run and no request uses the kernel any more, or NULL.
    pub release: stead_release_fn,
}

grows!(stead_kernel, release: stead_release_fn);

/// States are no larger.
const MAX_STATE: usize = 1 << 30;

type Update = unsafe extern "C" fn(*mut c_void, *const stead_block, *mut c_void) -> c_int;
type Merge = unsafe extern "C" fn(*mut c_void, *const c_void, *mut c_void) -> c_int;
type Finish = unsafe extern "C" fn(*mut c_void, *mut stead_builder, *mut c_void) -> c_int;

/// What a kernel of the caller consists of, copied out of C.
struct Functions {
    name: String,
    state_size: usize,
    numbers: Vec<String>,
    texts: Vec<String>,
    needs: u32,
    init: stead_init_fn,
    update: Update,
    merge: Merge,
    finish: Finish,
    user: *mut c_void,
    _release: Release,
}

// SAFETY: the pointer is only handed back to the caller's functions, which the header says are called from several
// threads.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

/// Takes a kernel over from C.
pub fn take(c: &Caller, kernel: *const stead_kernel) -> Result<Own> {
    let k = c.grown(kernel, "kernel")?;
    let release = Release::new(k.release, k.user);
    let name = c.text(k.name, "name of the kernel")?.to_string();
    if name.is_empty() || name.contains('\0') {
        return Err(Error::usage("a kernel needs a name"));
    }
    if k.state_size > MAX_STATE {
        return Err(Error::usage(format!("a state of {} bytes is too large", k.state_size))
            .with_hint(format!("a state has at most {MAX_STATE} bytes")));
    }
    const KNOWN: u32 =
        STEAD_NEEDS_BYTES | STEAD_NEEDS_ROWS | STEAD_NEEDS_RECORDS | STEAD_NEEDS_ORDER;
    let unknown = k.needs & !KNOWN;
    if unknown != 0 {
        return Err(Error::usage(format!("there is no need with the bits {unknown:#x}")));
    }
    let lacks = |what: &str| Error::usage(format!("the kernel '{name}' has no function '{what}'"));
    let functions = Arc::new(Functions {
        state_size: k.state_size,
        numbers: c.texts(k.numbers, k.number_count, "columns of numbers")?,
        texts: c.texts(k.texts, k.text_count, "columns of text")?,
        needs: k.needs,
        init: k.init,
        update: k.update.ok_or_else(|| lacks("update"))?,
        merge: k.merge.ok_or_else(|| lacks("merge"))?,
        finish: k.finish.ok_or_else(|| lacks("finish"))?,
        user: k.user,
        name: name.clone(),
        _release: release,
    });
    Ok(Own::new(name, move |context| Called::new(functions.clone(), context)))
}

/// A state: bytes of the caller's, aligned to 16.
struct State(Vec<u128>);

const _: () = assert!(align_of::<u128>() >= 16);

impl State {
    /// As many bytes, all zero.
    fn zero(bytes: usize) -> Result<State> {
        let words = bytes.div_ceil(16).max(1);
        let mut v = Vec::new();
        v.try_reserve_exact(words)
            .map_err(|_| Error::limit(format!("no memory for a state of {bytes} bytes")))?;
        v.resize(words, 0);
        Ok(State(v))
    }

    fn pointer(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(bytemuck::cast_slice(&self.0))
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<State, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = State;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the bytes of a state")
            }

            fn visit_bytes<E: serde::de::Error>(self, b: &[u8]) -> Result<State, E> {
                if !b.len().is_multiple_of(16) {
                    return Err(E::custom("a state of an odd length"));
                }
                let mut words = vec![0u128; b.len() / 16];
                bytemuck::cast_slice_mut(&mut words).copy_from_slice(b);
                Ok(State(words))
            }
        }
        d.deserialize_bytes(Bytes)
    }
}

/// A kernel whose columns are known.
struct Called {
    functions: Arc<Functions>,
    /// Schema indices in the caller's order.
    numbers: Vec<usize>,
    texts: Vec<usize>,
    needs: Needs,
    /// The state of no data.
    empty: Vec<u128>,
}

impl Called {
    fn new(functions: Arc<Functions>, context: &Context<'_>) -> Result<Called> {
        let f = &functions;
        let mut numbers = Vec::new();
        for name in &f.numbers {
            if name == "*" {
                numbers.extend(context.schema.numbers());
            } else {
                numbers.push(context.schema.number(name)?);
            }
        }
        let texts = f.texts.iter().map(|t| context.schema.column(t)).collect::<Result<Vec<_>>>()?;
        let mut needs = Needs {
            // Records alone would be no more than places.
            bytes: f.needs & (STEAD_NEEDS_BYTES | STEAD_NEEDS_RECORDS) != 0,
            rows: f.needs & STEAD_NEEDS_ROWS != 0,
            records: f.needs & STEAD_NEEDS_RECORDS != 0,
            order: f.needs & STEAD_NEEDS_ORDER != 0,
            ..Needs::default()
        };
        needs.add(&Needs { numbers: numbers.clone(), texts: texts.clone(), ..Needs::default() });
        let mut empty = State::zero(f.state_size)?;
        if let Some(init) = f.init {
            // SAFETY: the caller's function, with a state of the size that was asked for and the caller's pointer.
            f.run("init", || unsafe { init(empty.pointer(), f.user) })?;
        }
        Ok(Called { numbers, texts, needs, empty: empty.0, functions })
    }
}

impl Kernel for Called {
    type State = State;

    fn needs(&self) -> Needs {
        self.needs.clone()
    }

    fn init(&self) -> State {
        State(self.empty.clone())
    }

    fn update(&self, state: &mut State, block: &Block<'_>) -> Result<()> {
        let f = &self.functions;
        let view = block::View::new(block, &self.numbers, &self.texts);
        view.lend(|b| {
            // SAFETY: the caller's function, with a state of its own and a block that is good during the call.
            f.run("update", || unsafe { (f.update)(state.pointer(), b, f.user) })
        })
        .map_err(|e| e.at_source(block.source))
    }

    fn merge(&self, state: &mut State, mut other: State) -> Result<()> {
        let f = &self.functions;
        // SAFETY: the caller's function, with two states of its own.
        f.run("merge", || unsafe { (f.merge)(state.pointer(), other.pointer(), f.user) })
    }

    fn check(&self, state: &State) -> Result<()> {
        if state.0.len() == self.empty.len() {
            return Ok(());
        }
        Err(Error::format(format!("a state of kernel '{}' has another size", self.functions.name)))
    }

    fn finish(&self, mut state: State) -> Result<Step> {
        let f = &self.functions;
        let said = builder::fill(|b| {
            // SAFETY: the caller's function, with a state of its own and a builder that is good during the call.
            f.run("finish", || unsafe { (f.finish)(state.pointer(), b, f.user) })
        })?;
        Ok(match said {
            Said::Result(value) => Step::Done(value),
            Said::Again => Step::Next(Arc::new(Called {
                functions: self.functions.clone(),
                numbers: self.numbers.clone(),
                texts: self.texts.clone(),
                needs: self.needs.clone(),
                empty: state.0,
            })),
        })
    }

    fn state_bytes(&self, state: &State) -> usize {
        size_of::<State>() + size_of_val(&state.0[..])
    }
}

thread_local! {
    /// What `stead_fail` was told on this thread.
    static FAILURE: RefCell<Option<(Kind, String)>> = const { RefCell::new(None) };
}

/// Keeps what a callback says before it returns that it failed.
pub fn fail(kind: Kind, message: String) {
    FAILURE.with(|f| *f.borrow_mut() = Some((kind, message)));
}

/// Calls a function of the caller; what it has said before it returned something else than 0 becomes an error.
pub fn told(
    call: impl FnOnce() -> c_int,
    error: impl FnOnce(Option<(Kind, String)>, c_int) -> Error,
) -> Result<()> {
    FAILURE.with(|f| f.borrow_mut().take());
    let code = call();
    let told = FAILURE.with(|f| f.borrow_mut().take());
    if code == 0 { Ok(()) } else { Err(error(told, code)) }
}

impl Functions {
    fn run(&self, what: &str, call: impl FnOnce() -> c_int) -> Result<()> {
        told(call, |told, code| match told {
            Some((kind, message)) => Error::new(kind, format!("kernel '{}': {message}", self.name)),
            None => Error::new(
                error::kind(code).unwrap_or(Kind::Data),
                format!("the function '{what}' of kernel '{}' returned {code}", self.name),
            ),
        })
    }
}

/// For functions of a kernel of one's own: says why they are about to fail. `kind` is STEAD_DATA or another kind, and
/// what is none becomes STEAD_DATA. The message is copied. Returns the kind, so that
/// `return stead_fail(STEAD_DATA, "a negative weight");` does all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_fail(kind: stead_status, message: *const c_char) -> stead_status {
    let kind = error::kind(kind).unwrap_or(Kind::Data);
    crate::guard::look!(error::number(kind), |c| {
        let message = c.optional_text(message, "message")?.unwrap_or("failed");
        fail(kind, message.to_string());
        Ok(error::number(kind))
    })
}

/// True for a missing value in a column of numbers, and for no other NaN.
#[unsafe(no_mangle)]
pub extern "C" fn stead_is_missing(number: f64) -> bool {
    stead::kernels::is_missing(number)
}

/// A missing value, for results and for arrays in memory.
#[unsafe(no_mangle)]
pub extern "C" fn stead_missing() -> f64 {
    stead::kernels::MISSING
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead::fabric::Local;
    use stead::{DType, Dataset, Request, TableColumn, Value};

    unsafe extern "C" fn update(s: *mut c_void, b: *const stead_block, _: *mut c_void) -> c_int {
        // SAFETY: a state of 24 bytes, and the block of this call.
        unsafe {
            let s = &mut *s.cast::<[u64; 3]>();
            let x = block::stead_block_numbers(b, 0);
            let x = std::slice::from_raw_parts(x, block::stead_block_rows(b));
            s[1] += x.iter().filter(|x| **x > s[0] as f64).count() as u64;
        }
        0
    }

    unsafe extern "C" fn merge(s: *mut c_void, o: *const c_void, _: *mut c_void) -> c_int {
        // SAFETY: two states of 24 bytes.
        unsafe { (*s.cast::<[u64; 3]>())[1] += (*o.cast::<[u64; 3]>())[1] };
        0
    }

    /// Counts what is greater than a third of what the pass before has counted, in three passes.
    unsafe extern "C" fn finish(s: *mut c_void, b: *mut stead_builder, _: *mut c_void) -> c_int {
        // SAFETY: a state of 24 bytes, and the builder of this call.
        unsafe {
            let s = &mut *s.cast::<[u64; 3]>();
            if s[2] == 2 {
                return builder::stead_builder_int(b, s[1]);
            }
            *s = [s[1] / 3, 0, s[2] + 1];
            builder::stead_builder_again(b)
        }
    }

    /// Asks for a kernel over the column `x`.
    fn request(needs: u32, update: stead_update_fn, finish: stead_finish_fn) -> Request {
        let names = [c"x".as_ptr()];
        let kernel = stead_kernel {
            size: size_of::<stead_kernel>(),
            name: c"own".as_ptr(),
            state_size: 24,
            numbers: names.as_ptr(),
            number_count: 1,
            texts: std::ptr::null(),
            text_count: 0,
            needs,
            init: None,
            update,
            merge: Some(merge),
            finish,
            user: std::ptr::null_mut(),
            release: None,
        };
        // SAFETY: the struct and what it points to are as the header says.
        let own = unsafe { crate::guard::value(None, |c| take(c, &raw const kernel).map(Some)) };
        let own = vec![own.expect("a kernel")];
        Request { own, threads: 2, chunk: 4096, ..Request::default() }
    }

    unsafe extern "C" fn lengths(s: *mut c_void, b: *const stead_block, _: *mut c_void) -> c_int {
        // SAFETY: a state of 24 bytes, and the block of this call.
        unsafe {
            let s = &mut *s.cast::<[u64; 3]>();
            for row in 0..block::stead_block_rows(b) {
                let mut len = 0;
                block::stead_block_record(b, row, &raw mut len);
                s[1] += len as u64;
            }
        }
        0
    }

    /// Counts in four passes, and answers with what the last one has counted.
    unsafe extern "C" fn fourth(s: *mut c_void, b: *mut stead_builder, _: *mut c_void) -> c_int {
        // SAFETY: a state of 24 bytes, and the builder of this call.
        unsafe {
            let s = &mut *s.cast::<[u64; 3]>();
            if s[2] == 3 {
                return builder::stead_builder_int(b, s[1]);
            }
            *s = [0, 0, s[2] + 1];
            builder::stead_builder_again(b)
        }
    }

    #[test]
    fn each_pass_sees_the_bytes_of_records() {
        let rows: String = (0..5000).map(|i| format!("{i},a\n")).collect();
        let data = stead::open_memory("t.csv", format!("x,y\n{rows}"), &Default::default());
        let data = data.expect("data");
        let ask = |data| {
            let request = request(STEAD_NEEDS_RECORDS, Some(lengths), Some(fourth));
            stead::run(data, &request, None)
        };
        assert_eq!(ask(&data).expect("run").results[0].1, Value::Int(rows.len() as u64));
        // What has no bytes has none to show.
        let data = Arc::new(1f64.to_ne_bytes());
        let column = TableColumn { name: "x".into(), dtype: DType::F64, data };
        let e = ask(&Dataset::table(vec![column]).expect("table")).expect_err("no bytes");
        assert_eq!(e.kind(), stead::Kind::Usage);
    }

    #[test]
    fn states_travel_between_ranks_as_they_are() {
        let x: Vec<u8> = (0..10_000).flat_map(|i| f64::from(i).to_ne_bytes()).collect();
        let column = TableColumn { name: "x".into(), dtype: DType::F64, data: Arc::new(x) };
        let data = Dataset::table(vec![column]).expect("table");
        let request = request(0, Some(update), Some(finish));
        let (data, request) = (&data, &request);
        for ranks in [1, 3] {
            let run = |f: Local| stead::run_on(&f, data, request, None).map(|r| r.results);
            let each: Vec<_> = std::thread::scope(|s| {
                let group = Local::group(ranks).into_iter();
                let all: Vec<_> = group.map(|f| s.spawn(move || run(f))).collect();
                all.into_iter().map(|t| t.join().expect("rank")).collect()
            });
            for results in each {
                // 9999 are greater than 0, 6666 than 3333, 7777 than 2222.
                assert_eq!(results.expect("run")[0].1, Value::Int(7777));
            }
        }
    }
}
