//! Kernels that callers bring along: in Rust, and through the C and Python faces.

use crate::{AnyKernel, Built, Context, Kernel};
use std::fmt;
use std::sync::Arc;
use stead_core::Result;

type Make = dyn Fn(&Context<'_>) -> Result<Arc<dyn AnyKernel>> + Send + Sync;

/// A kernel of the caller's own, and the name that its result has.
///
/// It is made when the columns are known, so that it can look up those it wants by name.
///
/// ```
/// use stead_core::{Block, Needs, Result, Value};
/// use stead_kernel::{Kernel, Own, Step};
///
/// /// Number of values above a limit.
/// struct Above { column: usize, limit: f64 }
///
/// impl Kernel for Above {
///     type State = u64;
///     fn needs(&self) -> Needs {
///         Needs { numbers: vec![self.column], ..Needs::default() }
///     }
///     fn init(&self) -> u64 {
///         0
///     }
///     fn update(&self, state: &mut u64, block: &Block<'_>) -> Result<()> {
///         *state += block.numbers(self.column).iter().filter(|x| **x > self.limit).count() as u64;
///         Ok(())
///     }
///     fn merge(&self, state: &mut u64, other: u64) -> Result<()> {
///         *state += other;
///         Ok(())
///     }
///     fn finish(&self, state: u64) -> Result<Step> {
///         Ok(Step::Done(Value::Int(state)))
///     }
/// }
///
/// let late = Own::new("late", |c| Ok(Above { column: c.schema.column("arr_delay")?, limit: 60.0 }));
/// assert_eq!(late.name(), "late");
/// ```
#[derive(Clone)]
pub struct Own {
    name: String,
    make: Arc<Make>,
}

impl Own {
    /// A kernel whose result stands under `name`; `make` makes it for a dataset. For the same answer
    /// whatever the split, it must keep the laws of [`Kernel`]; one whose merging does not commute asks for
    /// [`Needs::order`](stead_core::Needs::order) in each pass, and is run with one thread on each rank.
    pub fn new<K: Kernel>(
        name: impl Into<String>,
        make: impl Fn(&Context<'_>) -> Result<K> + Send + Sync + 'static,
    ) -> Own {
        Own { name: name.into(), make: Arc::new(move |c| Ok(Arc::new(make(c)?) as _)) }
    }

    /// The name of the result.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes the kernel. It shares its state with no other one.
    pub fn build(&self, context: &Context<'_>) -> Result<Built> {
        let kernel = (self.make)(context)?;
        // No specification has a zero byte.
        Ok(Built { key: format!("\0{}", self.name), kernel, pick: None, level: 0, rows: None })
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Own({})", self.name)
    }
}
