//! From a request to a report.

use crate::budget::Budget;
use crate::cache::{Cache, Kepts};
use crate::clock::{Watch, peak_memory};
use crate::exchange;
use crate::outputs::Outputs;
use crate::pass::{Active, Observer, Pass};
use crate::report::{Metrics, Plan, PlannedKernel, Report};
use crate::request::Request;
use crate::sink::Ordered;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stead_core::{Error, Needs, Result, Value, limits};
use stead_fabric::{Fabric, Local};
use stead_format::{Dataset, ScanOptions, Share};
use stead_kernel::expr::Filter;
use stead_kernel::registry::Pick;
use stead_kernel::{AnyKernel, AnyState, Context, Grouped, Spec, Step, registry};
use stead_simd::Vectors;
use stead_store::AtomicFile;

/// Runs `request` over `dataset` in this process.
pub fn run(
    dataset: &Dataset,
    request: &Request,
    observer: Option<&dyn Observer>,
) -> Result<Report> {
    run_on(&Local::single(), dataset, request, observer)
}

/// Runs `request` over `dataset` together with the other ranks of `fabric`; all ranks call it with the
/// same arguments and get the same results.
pub fn run_on(
    fabric: &dyn Fabric,
    dataset: &Dataset,
    request: &Request,
    observer: Option<&dyn Observer>,
) -> Result<Report> {
    Engine::new(fabric, dataset, request)?.run(observer).map_err(|e| dataset.locate(e))
}

/// One kernel and the specifications that it answers.
struct Slot {
    /// Index in the request and the member of the result that is the answer.
    answers: Vec<(usize, Pick)>,
    needs: Needs,
    /// The file that it writes.
    output: Option<PathBuf>,
    passes: u64,
    /// The kernel of the next pass; `None` when done.
    kernel: Option<Arc<dyn AnyKernel>>,
    value: Value,
}

struct Engine<'a> {
    fabric: &'a dyn Fabric,
    dataset: &'a Dataset,
    request: &'a Request,
    /// What the results are called: specifications, then kernels of the caller's own.
    names: Vec<String>,
    filter: Option<Filter>,
    budget: Budget,
    slots: Vec<Slot>,
    /// Blocks kept from an earlier pass.
    kept: Option<Kepts>,
    outputs: Outputs,
}

impl<'a> Engine<'a> {
    fn new(fabric: &'a dyn Fabric, dataset: &'a Dataset, request: &'a Request) -> Result<Self> {
        let asked = request.kernels.len() + request.own.len();
        if asked == 0 {
            return Err(Error::usage("no kernel is asked for").with_hint(
                "name at least one, for example -k rows -k mean:COLUMN; 'stead kernels' lists all",
            ));
        }
        if asked > limits::MAX_KERNELS {
            return Err(Error::usage(format!(
                "more than {} kernels in one request",
                limits::MAX_KERNELS
            )));
        }
        vectors()?;
        let schema = dataset.schema();
        let mut specs: Vec<Spec> = Vec::new();
        for text in &request.kernels {
            if !specs.iter().any(|s| s.text == *text) {
                specs.push(Spec::parse(text)?);
            }
        }
        let mut names: Vec<String> = specs.iter().map(|s| s.text.clone()).collect();
        for own in &request.own {
            if names.iter().any(|n| n == own.name()) {
                return Err(Error::usage(format!("two kernels are called '{}'", own.name()))
                    .with_hint("give each kernel of your own a name that no other result has"));
            }
            names.push(own.name().to_string());
        }
        let by = request.by.iter().map(|c| schema.column(c)).collect::<Result<Vec<_>>>()?;
        // What lies in memory has a name, but no place beside it to write to.
        let path = dataset.sources()[0].file().map(|_| dataset.path());
        let context = Context { schema, path, grouped: !by.is_empty() };
        let built = specs
            .iter()
            .map(|s| registry::build(s, &context))
            .chain(request.own.iter().map(|o| o.build(&context)))
            .collect::<Result<Vec<_>>>()?;
        let slots = registry::fuse(built)
            .into_iter()
            .map(|(kernel, answers)| {
                let (needs, output) = (kernel.needs(), kernel.output());
                let kernel =
                    if by.is_empty() { kernel } else { Grouped::wrap(kernel, by.clone(), schema)? };
                let (kernel, value) = (Some(kernel), Value::Null);
                Ok(Slot { answers, needs, output, passes: 0, kernel, value })
            })
            .collect::<Result<Vec<_>>>()?;
        let filter = request.filter.as_deref().map(|f| Filter::parse(f, schema)).transpose()?;
        let budget = Budget::of(request)?;
        let mut outputs = Outputs::default();
        for path in slots.iter().filter_map(|s: &Slot| s.output.as_ref()).chain(&request.outputs) {
            outputs.claim(dataset, path)?;
        }
        Ok(Engine { fabric, dataset, request, names, filter, budget, slots, kept: None, outputs })
    }

    fn run(mut self, observer: Option<&dyn Observer>) -> Result<Report> {
        let watch = Watch::start();
        let mut metrics = Metrics::default();
        let mut scan_plan = Vec::new();
        while self.slots.iter().any(|s| s.kernel.is_some()) {
            metrics.passes += 1;
            if metrics.passes > limits::MAX_ROUNDS as u64 {
                return Err(Error::limit(format!("no end after {} passes", limits::MAX_ROUNDS)));
            }
            self.pass(&mut metrics, &mut scan_plan, observer)?;
        }
        metrics.seconds = watch.seconds();
        metrics.cpu_seconds = watch.cpu_seconds();
        let bytes = metrics.bytes_read as f64;
        if bytes > 0.0 {
            metrics.bytes_per_second = bytes / metrics.seconds.max(1e-9);
            metrics.core_seconds_per_gb = metrics.cpu_seconds / bytes * 1e9;
        }
        metrics.peak_memory_bytes = peak_memory();
        let plan = self.plan(scan_plan);
        let report = Report { results: self.results(), plan, metrics };
        self.request.cancel.check()?;
        self.outputs.commit()?;
        Ok(report)
    }

    /// One pass with all kernels that are not done.
    fn pass(
        &mut self,
        metrics: &mut Metrics,
        scan_plan: &mut Vec<(String, Value)>,
        observer: Option<&dyn Observer>,
    ) -> Result<()> {
        let mut needs = Needs::default();
        let mut active = Vec::new();
        let mut indices = Vec::new();
        for (i, slot) in self.slots.iter_mut().enumerate() {
            let Some(kernel) = slot.kernel.take() else { continue };
            slot.passes += 1;
            needs.add(&kernel.needs());
            indices.push(i);
            let sink = match kernel.sink() {
                None => None,
                Some(_) if self.fabric.size() > 1 => {
                    return Err(Error::usage("a kernel that writes a file runs on one rank only"));
                }
                Some(sink) => {
                    Some(Ordered::create(&sink, self.budget.threads, self.budget.pending)?)
                }
            };
            active.push(Active { kernel, sink });
        }
        let kernels: Vec<Arc<dyn AnyKernel>> = active.iter().map(|a| a.kernel.clone()).collect();
        let mine = self.scan(needs, &active, metrics.passes, scan_plan, observer);
        let tag = (metrics.passes as u32).wrapping_mul(2);
        let (states, counters) = exchange::total(self.fabric, tag, &kernels, mine)?;
        let [bytes, rows, kept, skipped, rounded, uncounted] = counters[..] else {
            return Err(Error::format("ranks sent different counters"));
        };
        metrics.bytes_read += bytes;
        if metrics.passes == 1 {
            let counted = uncounted == 0;
            metrics.rows = counted.then_some(rows);
            metrics.rows_kept = counted.then_some(kept);
            metrics.rows_skipped = skipped;
            metrics.integers_rounded = rounded;
        }
        for ((i, a), state) in indices.into_iter().zip(active).zip(states) {
            match a.kernel.finish(state)? {
                Step::Next(k) => self.slots[i].kernel = Some(k),
                Step::Done(v) => self.slots[i].value = v,
                Step::File { path, bytes, value } => {
                    if self.fabric.rank() == 0 {
                        let mut file = AtomicFile::create(&path)?;
                        file.write_all(&bytes)?;
                        self.outputs.keep(file);
                    }
                    self.slots[i].value = value;
                }
            }
            if let Some(sink) = a.sink {
                self.outputs.keep(sink.end()?);
            }
        }
        Ok(())
    }

    /// This rank's share of a pass: states, and the counters bytes, rows, kept, skipped, rounded, and 1
    /// if rows are not counted.
    fn scan(
        &mut self,
        needs: Needs,
        active: &[Active],
        number: u64,
        scan_plan: &mut Vec<(String, Value)>,
        observer: Option<&dyn Observer>,
    ) -> Result<(Vec<AnyState>, Vec<u64>)> {
        let pass = Pass {
            active,
            threads: self.budget.threads,
            states: self.budget.states,
            number,
            observer,
            cancel: &self.request.cancel,
        };
        if let Some(kept) = self.kept.as_ref().filter(|k| k.serves(&needs)) {
            let (states, rows) = pass.run(&kept.scan(), None, None)?;
            return Ok((states, vec![0, rows, rows, 0, 0, 0]));
        }
        // Unless kernels say so, the first pass does not know whether there will be another one.
        let mut later = if number > 1 { needs.clone() } else { Needs::default() };
        active.iter().filter(|a| a.kernel.more_passes()).for_each(|a| later.add(&a.kernel.needs()));
        let cache = Cache::new(&later, self.budget.kept);
        let mut needs = needs;
        if let Some(f) = &self.filter {
            needs.add(&f.needs());
            needs.rows = true;
            // A filtered block's bytes are those of its records.
            needs.records |= needs.bytes;
        }
        let mut options = ScanOptions::new(needs);
        options.chunk = self.budget.chunk;
        options.io = self.request.io;
        options.io.depth = self.budget.depth;
        options.share = Share { rank: self.fabric.rank(), size: self.fabric.size() };
        options.lenient = self.request.lenient;
        options.max_record = self.budget.max_record;
        options.cancel = self.request.cancel.clone();
        let scan = self.dataset.scan(&options)?;
        if number == 1 {
            *scan_plan = scan.plan();
        }
        let (states, kept) = pass.run(scan.as_ref(), self.filter.as_ref(), cache.as_ref())?;
        for source in self.dataset.sources() {
            source.check()?;
        }
        let p = scan.progress();
        let get = |c: &std::sync::atomic::AtomicU64| c.load(Ordering::Relaxed);
        let uncounted = u64::from(!scan.counts_rows());
        let counters =
            vec![get(&p.bytes), get(&p.rows), kept, get(&p.skipped), get(&p.rounded), uncounted];
        drop(scan);
        self.kept = cache.and_then(Cache::ready);
        Ok((states, counters))
    }

    /// The results by name. Values are moved out of the slots: those of many groups are large.
    fn results(&mut self) -> Vec<(String, Value)> {
        let mut results: Vec<(String, Value)> =
            self.names.iter().map(|n| (n.clone(), Value::Null)).collect();
        let grouped = !self.request.by.is_empty();
        for slot in &mut self.slots {
            let last = slot.answers.len().saturating_sub(1);
            for (n, (index, pick)) in slot.answers.iter().enumerate() {
                results[*index].1 = match &mut slot.value {
                    // A grouped result is a map from group to the kernel's own result.
                    Value::Map(groups) if grouped && pick.member.is_some() => {
                        Value::Map(groups.iter().map(|(g, v)| (g.clone(), pick.of(v))).collect())
                    }
                    whole if pick.is_all() && n == last => std::mem::replace(whole, Value::Null),
                    whole => pick.of(whole),
                };
            }
        }
        results
    }

    fn plan(&self, scan: Vec<(String, Value)>) -> Plan {
        let schema = self.dataset.schema();
        let kernels = self
            .slots
            .iter()
            .map(|s| PlannedKernel {
                answers: s.answers.iter().map(|(i, _)| self.names[*i].clone()).collect(),
                // Who asks for rows of an array reads all of it.
                columns: match s.needs.matrix {
                    true => schema.columns.iter().map(|c| c.name.clone()).collect(),
                    false => s
                        .needs
                        .numbers
                        .iter()
                        .chain(&s.needs.texts)
                        .filter_map(|c| schema.columns.get(*c).map(|c| c.name.clone()))
                        .collect(),
                },
                bytes: s.needs.bytes,
                passes: s.passes,
            })
            .collect();
        Plan {
            format: self.dataset.format_name().to_string(),
            files: self.dataset.files(),
            bytes: self.dataset.total_bytes(),
            threads: self.budget.threads,
            ranks: self.fabric.size(),
            vectors: Vectors::chosen().name(),
            chunk_bytes: self.budget.chunk,
            memory_bytes: self.request.memory,
            filter: self.filter.as_ref().map(|f| f.to_string()),
            by: self.request.by.clone(),
            kernels,
            scan,
        }
    }
}

/// An error if vectors were named that there are not.
fn vectors() -> Result<()> {
    match stead_simd::complaint() {
        Some(c) => Err(Error::usage(c).with_hint("leave the variable out to use the best vectors")),
        None => Ok(()),
    }
}
