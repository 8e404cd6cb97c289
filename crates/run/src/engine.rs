//! From a request to a report.

mod apart;
mod said;
#[cfg(test)]
mod tests;

use crate::budget::Budget;
use crate::cache::{Cache, Kepts};
use crate::clock::{Watch, peak_memory};
use crate::exchange::Crew;
use crate::joint::{self, Joint};
use crate::meeting::{self, Member};
use crate::news::{ANY, News};
use crate::outputs::{Carried, Outputs};
use crate::pass::{Active, Keep, Observer, Pass, caught};
use crate::pieces;
use crate::place::{self, Placing};
use crate::prepared::{Prepared, Slot};
use crate::report::{Metrics, RankMetrics, Report};
use crate::request::Request;
use crate::scatter::{self, Scatter};
use crate::sides::Sides;
use crate::sink::Ordered;
use crate::split::{self, Split, Splitting};
use crate::vectors::{Inbox, Outbox, Sending};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stead_core::{Cancel, Error, Needs, Result, Value, limits};
use stead_fabric::{Fabric, Local};
use stead_format::{Before, Dataset, Quotes, Scan, ScanOptions, Share, States, Traffic};
use stead_kernel::expr::Filter;
use stead_kernel::{AnyKernel, AnyState, Sink, Step};
use stead_store::AtomicFile;

/// Runs `request` over `dataset` in this process.
pub fn run(
    dataset: &Dataset,
    request: &Request,
    observer: Option<&dyn Observer>,
) -> Result<Report> {
    run_on(&Local::single(), dataset, request, observer)
}

/// Runs `request` over `dataset` together with the other ranks of `fabric`: each takes a share of the bytes, states are merged
/// up a tree, and all ranks get the same results, those that one rank alone would get. All ranks call it, with the same
/// request and files that all of them see; one run at a time on a fabric.
///
/// # Errors
/// As [`run`], the same on all ranks, with rank and host where it is not one of the data. `Usage` if ranks mean different
/// things or run different versions of stead, `Changed` if their files differ, `Peer` if a rank is gone.
pub fn run_on(
    fabric: &dyn Fabric,
    dataset: &Dataset,
    request: &Request,
    observer: Option<&dyn Observer>,
) -> Result<Report> {
    work(fabric, dataset, request, observer, false).map(|(report, _)| report)
}

/// As [`run_on`], for somebody who is elsewhere: files that kernels write are not written here but returned, on rank 0.
///
/// # Errors
/// As [`run_on`]; `Usage` for kernels that write what they make of the data, block by block, and for files without a name
/// that was asked for (`out=`).
pub fn run_for(
    fabric: &dyn Fabric,
    dataset: &Dataset,
    request: &Request,
    observer: Option<&dyn Observer>,
) -> Result<(Report, Carried)> {
    work(fabric, dataset, request, observer, true)
}

fn work(
    fabric: &dyn Fabric,
    dataset: &Dataset,
    request: &Request,
    observer: Option<&dyn Observer>,
    carries: bool,
) -> Result<(Report, Carried)> {
    let crew = Crew::new(fabric, &request.cancel, observer);
    // Those who wait for bytes of other ranks are stopped, too.
    let _stops = dataset.holding().map(|holding| holding.stops.during(&request.cancel));
    let (rank, size) = (crew.rank(), crew.size());
    let prepared = Prepared::new(dataset, request, rank, size, carries).and_then(|p| {
        request.cancel.check()?;
        Ok(p)
    });
    Engine::new(crew, dataset, request, prepared, observer.is_some_and(Observer::looks))
        .and_then(|engine| engine.run(observer))
        .map_err(|e| dataset.locate(e))
}

/// Takes part in [`run_on`] with an error of this rank, which has come no further. Returns the error that all ranks get.
pub fn refuse(fabric: &dyn Fabric, error: Error) -> Error {
    if fabric.size() == 1 {
        return error;
    }
    let mut crew = Crew::new(fabric, &Cancel::new(), None);
    let met = meeting::meet(&mut crew, None, Err(error));
    met.err().unwrap_or_else(|| Error::internal("an error was not told"))
}

/// Ends something that ranks have done after a run, such as to print its report: all of them call this and get the first
/// error of any.
pub fn agree(fabric: &dyn Fabric, mine: Result<()>) -> Result<()> {
    Crew::new(fabric, &Cancel::new(), None).agree(mine)
}

struct Engine<'a> {
    /// All ranks.
    crew: Crew<'a>,
    /// Those that compute and those that wait for them, where not all compute.
    sides: Option<Sides<'a>>,
    dataset: &'a Dataset,
    request: &'a Request,
    names: Vec<String>,
    filter: Option<Filter>,
    budget: Budget,
    slots: Vec<Slot>,
    /// Blocks kept from an earlier pass.
    kept: Option<Kepts>,
    /// Of which blocks could not all be kept.
    too_many: Option<Needs>,
    outputs: Outputs,
    carried: Option<Carried>,
    /// What kernels have written, by their number, where the first rank waits for it.
    made: Vec<(usize, Vec<u8>)>,
    /// Outputs that all of several ranks write.
    joints: Vec<Joint>,
    /// Outputs of which each rank has a part near its data.
    scatters: Vec<Scatter>,
    /// The run, among those of rank 0's process.
    number: u64,
    nodes: usize,
    /// Rank 0 wants to know how far all are.
    watched: bool,
    /// What this rank alone has failed at since all were together: told when they are again.
    trouble: Option<Error>,
    /// Bytes that this rank has read.
    bytes: u64,
    /// Of these, those that were read for `before` and are not in a pass yet.
    looked: u64,
    /// What lies before this rank's share does to its quotes, once that is known.
    before: Option<Before>,
    share: Share,
    /// What this rank looks at for others, where quotes matter and others compute on what it has.
    looks: Option<Share>,
    /// Chunks are given to ranks while they compute.
    split: Option<Split>,
    /// Of which quotes are open where a chunk may begin.
    states: Option<States>,
    /// Columns are sent to those who have asked.
    vectors: Option<Sending>,
    /// Bytes that those who have asked for data have computed on, in the first pass; where chunks are given out, in all.
    asked: u64,
    /// Why this is its share, where there was a choice.
    placing: Option<Placing>,
}

impl<'a> Engine<'a> {
    /// Meets the other ranks.
    fn new(
        mut crew: Crew<'a>,
        dataset: &'a Dataset,
        request: &'a Request,
        prepared: Result<Prepared>,
        watched: bool,
    ) -> Result<Self> {
        let engine = |crew, prepared: Prepared, budget| Engine {
            crew,
            sides: None,
            dataset,
            request,
            names: prepared.names,
            filter: prepared.filter,
            budget,
            slots: prepared.slots,
            kept: None,
            too_many: None,
            outputs: prepared.outputs,
            carried: prepared.carried,
            made: Vec::new(),
            joints: Vec::new(),
            scatters: Vec::new(),
            number: 0,
            nodes: 1,
            watched: false,
            trouble: None,
            bytes: 0,
            looked: 0,
            before: None,
            share: prepared.share,
            looks: None,
            split: None,
            states: None,
            vectors: None,
            asked: 0,
            placing: None,
        };
        if crew.size() == 1 {
            let prepared = prepared?;
            let budget = Budget::of(request)?.ordered(prepared.ordered().is_some());
            return Ok(engine(crew, prepared, budget));
        }
        let mine = prepared.and_then(|p| {
            let kernels: Vec<_> = p.slots.iter().filter_map(|s| s.kernel.clone()).collect();
            let meant = meeting::meant(dataset, request, &kernels)?;
            let member = Member::new(&crew, dataset, request, &p.share, watched);
            Ok((p, (meant, member)))
        });
        let (prepared, mine) = match mine {
            Ok((prepared, mine)) => (Some(prepared), Ok(mine)),
            Err(e) => (None, Err(e)),
        };
        let members = meeting::meet(&mut crew, Some(dataset), mine)?;
        let (Some(prepared), Some(first)) = (prepared, members.first()) else {
            return Err(Error::internal("an error was not told"));
        };
        // The same for all, errors too.
        let nodes = meeting::nodes(&crew.fabric);
        let budget = Budget::of_ranks(&members, &nodes, crew.rank(), dataset.total_bytes())?;
        crew.states = budget.states;
        let ordered = prepared.ordered();
        let mut engine = engine(crew, prepared, budget.ordered(ordered.is_some()));
        engine.number = first.run;
        engine.watched = first.watched;
        engine.nodes = nodes.len();
        let mut pulls = false;
        if let Some(apart) = dataset.holding().and_then(|h| h.apart.as_ref()) {
            let asked = place::Asked::new(&engine.slots, engine.filter.as_ref());
            let kept = engine.budget.kept;
            let part = place::choose(&engine.crew, dataset, apart, request, (kept, &asked))?;
            (engine.share, engine.looks, engine.split) = (part.share, part.looks, part.split);
            engine.vectors = part.vectors;
            pulls = part.placing.place == "pull";
            engine.placing = Some(part.placing);
            engine.crew.shares = members.iter().map(|m| m.share(pulls).says(dataset)).collect();
            engine.part(part.computing)?;
        }
        ordered.map_or(Ok(()), |name| meeting::in_order(&members, pulls, &name))?;
        let maps = engine.slots.iter().filter(|s| s.maps).filter_map(|s| s.output.clone());
        let maps: Vec<PathBuf> = maps.collect();
        match dataset.holding() {
            Some(holding) => engine.scatters = scatter::open(&engine.crew, holding, &maps)?,
            None => engine.joints = joint::open(&engine.crew, &maps)?,
        }
        Ok(engine)
    }

    fn run(mut self, observer: Option<&dyn Observer>) -> Result<(Report, Carried)> {
        let report = self.work(observer);
        if report.is_err() && self.crew.size() > 1 && self.crew.fabric.alive(0).is_err() {
            // Who has made the temporary names cannot remove them.
            self.joints.iter().for_each(Joint::remove);
        }
        Ok((report?, self.carried.unwrap_or_default()))
    }

    fn work(&mut self, observer: Option<&dyn Observer>) -> Result<Report> {
        let watch = Watch::start();
        let mut metrics = Metrics::default();
        let mut scan_plan = Vec::new();
        if self.sides.is_none() {
            self.passes(&mut metrics, &mut scan_plan, observer)?;
        } else if let Err(e) = self.apart(&mut metrics, &mut scan_plan, observer) {
            self.trouble = Some(e);
        }
        metrics.seconds = watch.seconds();
        metrics.cpu_seconds = watch.cpu_seconds();
        metrics.peak_memory_bytes = peak_memory();
        self.together(&mut metrics)?;
        let bytes = metrics.bytes_read as f64;
        if bytes > 0.0 {
            metrics.bytes_per_second = bytes / metrics.seconds.max(1e-9);
            metrics.core_seconds_per_gb = metrics.cpu_seconds / bytes * 1e9;
        }
        if let Some(placing) = &mut self.placing {
            let passes = if self.split.is_some() { metrics.passes } else { 1 };
            let all = self.dataset.total_bytes().saturating_mul(passes);
            placing.took = place::took(&metrics, self.asked, all);
        }
        let plan = self.plan(scan_plan);
        let report = Report { results: self.results(), plan, metrics };
        let outputs = std::mem::take(&mut self.outputs);
        if self.crew.size() == 1 {
            outputs.commit()?;
        } else if self.slots.iter().any(|s| s.output.is_some()) {
            // The outputs get their names now.
            self.crew.fabric.decided();
            match self.scatters.is_empty() {
                true => self.crew.agree(outputs.commit())?,
                false => scatter::commit(&self.crew, self.dataset, outputs, &mut self.scatters)?,
            }
        }
        Ok(report)
    }

    fn passes(
        &mut self,
        metrics: &mut Metrics,
        scan_plan: &mut Vec<(String, Value)>,
        observer: Option<&dyn Observer>,
    ) -> Result<()> {
        while self.slots.iter().any(|s| s.kernel.is_some()) {
            metrics.passes += 1;
            if metrics.passes > limits::MAX_ROUNDS as u64 {
                return Err(Error::limit(format!("no end after {} passes", limits::MAX_ROUNDS)));
            }
            self.pass(metrics, scan_plan, observer)?;
        }
        Ok(())
    }

    /// The end of the work of all ranks: none of them has failed. Adds up what they took.
    fn together(&mut self, metrics: &mut Metrics) -> Result<()> {
        let trouble = self.trouble.take();
        let well = trouble.map_or_else(|| self.request.cancel.check(), Err);
        if self.crew.size() == 1 {
            return well;
        }
        let (bytes_fetched, bytes_served) =
            self.dataset.holding().map_or((0, 0), |holding| holding.traffic.take());
        let mine = RankMetrics {
            bytes_fetched,
            bytes_served,
            host: self.crew.host.clone(),
            process: std::process::id(),
            threads: self.budget.threads,
            // What was looked at for others is in no pass of this rank.
            bytes_read: self.bytes + std::mem::take(&mut self.looked),
            bytes_sent: self.crew.fabric.sent() + self.sides.as_ref().map_or(0, Sides::sent),
            cpu_seconds: metrics.cpu_seconds,
            peak_memory_bytes: metrics.peak_memory_bytes,
        };
        let bad = |_| Error::format("what another rank took is malformed");
        if let Err(e) = &well {
            // What has failed here may have kept this rank, and no other one, from another pass.
            self.news(metrics.passes + 1).failed(e);
        }
        let mine = well.and_then(|()| postcard::to_stdvec(&mine).map_err(bad));
        let all = self.crew.gather(mine)?;
        let ranks: Vec<RankMetrics> =
            all.iter().map(|r| postcard::from_bytes(r).map_err(bad)).collect::<Result<_>>()?;
        // Ranks that are threads of one process see the same processor time.
        let own = |i: usize, r: &RankMetrics| {
            !ranks[..i].iter().any(|o| (&o.host, o.process) == (&r.host, r.process))
        };
        let seconds = ranks.iter().enumerate().filter(|(i, r)| own(*i, r));
        metrics.cpu_seconds = seconds.map(|(_, r)| r.cpu_seconds).sum();
        metrics.bytes_read = ranks.iter().fold(0, |n, r| n.saturating_add(r.bytes_read));
        metrics.bytes_sent = ranks.iter().fold(0, |n, r| n.saturating_add(r.bytes_sent));
        metrics.bytes_fetched = ranks.iter().fold(0, |n, r| n.saturating_add(r.bytes_fetched));
        metrics.peak_memory_bytes = ranks.iter().map(|r| r.peak_memory_bytes).max().unwrap_or(0);
        metrics.ranks = ranks;
        Ok(())
    }

    /// One pass with all kernels that are not done. An error is one that all ranks get.
    fn pass(
        &mut self,
        metrics: &mut Metrics,
        scan_plan: &mut Vec<(String, Value)>,
        observer: Option<&dyn Observer>,
    ) -> Result<()> {
        let mut needs = Needs::default();
        let mut kernels = Vec::new();
        let mut indices = Vec::new();
        for (i, slot) in self.slots.iter_mut().enumerate() {
            let Some(kernel) = slot.kernel.take() else { continue };
            slot.passes += 1;
            needs.add(&kernel.needs());
            indices.push(i);
            kernels.push(kernel);
        }
        let active = match self.trouble.take() {
            Some(e) => Err(e),
            None => self.active(&kernels),
        };
        let active = self.look_before(&needs, active)?;
        let vectors = self.in_vectors(&needs).cloned();
        let news = Arc::new(self.news(metrics.passes));
        self.computing().fabric.tell_by(news.clone());
        let mine = active.and_then(|active| {
            let mine = self.scan(needs, &active, metrics.passes, scan_plan, observer, &news)?;
            // A stop that came after the last block is contributed too.
            self.request.cancel.check()?;
            self.wanted(&news)?;
            Ok((mine, active))
        });
        let turn = (self.number, metrics.passes);
        vectors.iter().for_each(|v| v.leave(self.crew.fabric.inner(), turn));
        let (mine, active) = match mine {
            Ok((mine, active)) => (Ok(mine), active),
            Err(e) => {
                news.failed(&e);
                // The rank that has failed looks for the line; the others need not.
                (Err(self.dataset.locate(e)), Vec::new())
            }
        };
        let (states, counters, ended) = pieces::total(self.computing(), &kernels, mine)?;
        let [bytes, rows, kept, skipped, rounded, uncounted, asked, done, unkept] = counters[..]
        else {
            return Err(Error::format("ranks sent different counters"));
        };
        self.split.as_ref().map_or(Ok(()), |split| split.check(done))?;
        metrics.bytes_read += bytes;
        if vectors.is_some() && unkept > 0 {
            // Nobody knows who had what: it is asked for again, by all.
            self.kept = None;
        }
        if metrics.passes == 1 {
            let counted = uncounted == 0;
            metrics.rows = counted.then_some(rows);
            metrics.rows_kept = counted.then_some(kept);
            metrics.rows_skipped = skipped;
            metrics.integers_rounded = rounded;
        }
        if metrics.passes == 1 || self.split.is_some() {
            self.asked += asked;
        }
        let sinks: Vec<PathBuf> = kernels.iter().filter_map(|k| Some(k.sink()?.path)).collect();
        let finished = caught(|| self.finish(indices, kernels, states, ended));
        self.end(&sinks, finished, active)
    }

    /// Answers, or kernels of the next pass; some have `ended` already.
    fn finish(
        &mut self,
        indices: Vec<usize>,
        kernels: Vec<Arc<dyn AnyKernel>>,
        states: Vec<AnyState>,
        mut ended: HashMap<usize, Step>,
    ) -> Result<()> {
        let all = indices.into_iter().zip(kernels).zip(states).enumerate();
        for (n, ((i, kernel), state)) in all {
            match ended.remove(&n).map_or_else(|| kernel.finish(state), Ok)? {
                Step::Next(k) => self.slots[i].follow(k)?,
                Step::Done(v) => self.slots[i].value = v,
                Step::File { path, bytes, value } => {
                    if self.crew.rank() == 0 {
                        self.write(path, bytes)?;
                    } else if self
                        .sides
                        .as_ref()
                        .is_some_and(|s| s.tells() && s.waiting.contains(&0))
                    {
                        self.made.push((i, bytes));
                    }
                    // One of them is enough.
                    self.slots[i].value = value;
                }
            }
        }
        Ok(())
    }

    /// A file that a kernel has made.
    fn write(&mut self, path: PathBuf, bytes: Vec<u8>) -> Result<()> {
        if let Some(carried) = &mut self.carried {
            carried.push((path, bytes));
            return Ok(());
        }
        let mut file = AtomicFile::create(&path)?;
        file.write_all(&bytes)?;
        self.outputs.keep(file);
        Ok(())
    }

    /// Ends the outputs of the pass, which are these.
    fn end(&mut self, sinks: &[PathBuf], finished: Result<()>, active: Vec<Active>) -> Result<()> {
        let parts = finished.and_then(|()| {
            active.into_iter().filter_map(|a| a.sink).map(Ordered::end).collect::<Result<Vec<_>>>()
        });
        let files = if self.crew.size() == 1 {
            parts?
                .into_iter()
                .map(|part| {
                    let body = part.body;
                    part.end(body)
                })
                .collect()
        } else if !sinks.is_empty() && self.dataset.holding().is_some() {
            scatter::assemble(&self.crew, parts, sinks, &mut self.scatters)
                .map(|()| Ok(Vec::new()))?
        } else if !sinks.is_empty() {
            joint::assemble(&self.crew, parts, &self.joints)?
        } else {
            parts.map(|_| Vec::new())
        };
        match files {
            Ok(files) => files.into_iter().for_each(|f| self.outputs.keep(f)),
            Err(e) if self.crew.size() == 1 => return Err(e),
            Err(e) => self.trouble = Some(e),
        }
        Ok(())
    }

    fn news(&self, pass: u64) -> News<'a> {
        let pass = if self.waits() { ANY } else { pass };
        let news = News::new(self.crew.fabric.whole(), self.number, pass, self.watched);
        let news = match &self.sides {
            Some(sides) => news.of(sides.computing.clone()),
            None => news,
        };
        if let Share::Even { .. } = self.share { news } else { news.in_no_order() }
    }

    /// The kernels with their outputs.
    fn active(&mut self, kernels: &[Arc<dyn AnyKernel>]) -> Result<Vec<Active>> {
        let (threads, pending) = (self.budget.threads, self.budget.pending);
        let (rank, share) = (self.crew.rank(), &self.share);
        let sink = |joints: &mut [Joint], scatters: &mut [Scatter], sink: Sink| {
            let scatter = scatters.iter_mut().find(|s| s.path() == sink.path);
            if let (Some(scatter), Share::Held(held)) = (scatter, share) {
                return scatter.sink(&sink, rank, (threads, pending), held.clone());
            }
            let joint = joints.iter_mut().find(|j| j.path() == sink.path);
            let ordered = match joint {
                None => {
                    let file = AtomicFile::create(&sink.path)?;
                    Ordered::create(&sink, file, threads, pending)
                }
                Some(Joint::First(_, file)) => {
                    let file = file.take();
                    let mut file =
                        file.ok_or_else(|| Error::internal("an output is written twice"))?;
                    file.clear()?;
                    Ordered::create(&sink, file, threads, pending)
                }
                Some(Joint::Other(..)) => Ordered::part_of(&sink, threads, pending),
            };
            ordered.map(Some)
        };
        kernels
            .iter()
            .map(|kernel| {
                let (joints, scatters) = (&mut self.joints, &mut self.scatters);
                let sink = kernel.sink().map(|s| sink(joints, scatters, s)).transpose()?;
                Ok(Active { kernel: kernel.clone(), sink: sink.flatten() })
            })
            .collect()
    }

    /// True if others have the data, and this rank has none.
    fn asks(&self) -> bool {
        let apart = self.dataset.holding().and_then(|h| h.apart.as_ref());
        apart.is_some_and(|a| a.storage.get(self.crew.rank()) == Some(&false))
    }

    /// What the scan of a pass with these needs is asked for.
    fn options(&self, needs: &Needs) -> ScanOptions {
        let mut needs = needs.clone();
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
        if self.asks() && options.io.depth > 1 {
            // What comes from afar takes nothing of the queue's memory, and a link is busy only while enough is under way.
            let far = crate::spread::AHEAD / self.budget.threads.max(1);
            options.io.depth = options.io.depth.max(far);
        }
        options.share = self.share.clone();
        options.before = self.before.clone();
        options.lenient = self.request.lenient;
        options.max_record = self.budget.max_record;
        options.cancel = self.request.cancel.clone();
        options
    }

    /// Where quotes matter, finds out in which state this rank's share begins, once: each rank looks at its own share, and
    /// all tell each other what it does. `mine` is what this rank has so far; an error is that of all ranks.
    fn look_before<T>(&mut self, needs: &Needs, mine: Result<T>) -> Result<Result<T>> {
        let mut options = self.options(needs);
        if let Some(looks) = &self.looks {
            options.share = looks.clone();
        }
        let known = self.before.is_some() || self.crew.size() == 1;
        if known || !self.dataset.is_chained(&options) {
            return Ok(mine);
        }
        let looked = mine.and_then(|mine| {
            let (quotes, bytes) = self.dataset.quotes(&options, self.budget.threads)?;
            self.looked = bytes;
            Ok((mine, quotes))
        });
        let (mine, quotes) = match looked {
            Ok((mine, quotes)) => (Some(mine), Ok(quotes.bytes())),
            Err(e) => (None, Err(self.dataset.locate(e))),
        };
        let crew = if self.looks.is_some() { &self.crew } else { self.computing() };
        let (all, rank) = (crew.gather(quotes)?, crew.rank());
        let all = all.iter().map(|q| Quotes::from_bytes(q)).collect::<Result<Vec<_>>>()?;
        self.before = Some(match (&self.looks, &self.share) {
            (Some(_), Share::Held(mine)) => {
                let states = Quotes::states(&all)?;
                let before = states.at(mine)?;
                self.states = Some(states);
                before
            }
            _ => Quotes::before(&all, rank)?,
        });
        Ok(mine.ok_or_else(|| Error::internal("an error was not told")))
    }

    /// This rank's share of a pass: states, and the counters bytes, rows, kept, skipped, rounded, 1 if rows are not
    /// counted, bytes that one without data has computed on, those of chunks, and 1 if what was to be kept is not.
    fn scan(
        &mut self,
        needs: Needs,
        active: &[Active],
        number: u64,
        scan_plan: &mut Vec<(String, Value)>,
        observer: Option<&dyn Observer>,
        news: &News<'_>,
    ) -> Result<(Vec<AnyState>, Vec<u64>)> {
        let pass = Pass {
            active,
            threads: self.budget.threads,
            states: self.budget.states,
            number,
            observer,
            cancel: &self.request.cancel,
            news,
        };
        if let Some(kept) = self.kept.as_ref().filter(|k| k.serves(&needs)) {
            let (states, rows) = pass.run(&kept.scan(), None, None)?;
            return Ok((states, vec![0, rows, rows, 0, 0, 0, 0, 0, 0]));
        }
        let asks = self.asks();
        // Unless kernels say so, the first pass does not know whether there will be another one.
        let mut later = if number > 1 { needs.clone() } else { Needs::default() };
        active.iter().filter(|a| a.kernel.more_passes()).for_each(|a| later.add(&a.kernel.needs()));
        if let Some(split) = self.split.as_ref() {
            let splitting = Splitting {
                split,
                fabric: &self.crew.fabric,
                dataset: self.dataset,
                run: self.number,
                options: self.options(&needs),
                later,
                most_kept: self.budget.kept,
                states: self.states.as_ref(),
                filter: self.filter.as_ref(),
                active,
                threads: self.budget.threads,
                most_states: self.budget.states,
                pass: number,
                observer,
                cancel: &self.request.cancel,
            };
            let sum = splitting.run()?;
            let [bytes, rows, kept, skipped, rounded, counted] = sum.counters;
            let bytes = bytes + std::mem::take(&mut self.looked);
            self.bytes += bytes;
            if number == 1 {
                *scan_plan = sum.plan;
            }
            let asked = if asks { counted } else { 0 };
            let counters =
                vec![bytes, rows, kept, skipped, rounded, sum.uncounted, asked, counted, 0];
            return Ok((sum.states, counters));
        }
        let cache = Cache::new(&later, self.budget.kept);
        let wanted = cache.is_some();
        let cache = cache.filter(|_| !self.too_many.as_ref().is_some_and(|n| later.includes(n)));
        let vectors = self.in_vectors(&needs).cloned();
        if let Some(vectors) = vectors.as_ref().filter(|v| !v.sends(self.crew.rank())) {
            let (fabric, turn) = (self.crew.fabric.inner(), (self.number, number));
            let (cancel, of) = (&self.request.cancel, (needs, self.dataset.sources().len()));
            let came = self.traffic(|t| &t.fetched)?;
            let inbox = Inbox::open(fabric, vectors, turn, of, news, cancel, came)?;
            if number == 1 {
                *scan_plan = inbox.plan();
            }
            let (states, _) = pass.run(&inbox, None, cache.as_ref().map(|c| c as &dyn Keep))?;
            drop(inbox);
            let unkept = self.keeps(&later, wanted, cache);
            return Ok((states, vec![0, 0, 0, 0, 0, 0, 0, 0, unkept]));
        }
        let _leftovers = split::Leftovers { dataset: self.dataset, share: self.share.clone() };
        let scan = self.dataset.scan(&self.options(&needs))?;
        if number == 1 {
            *scan_plan = scan.plan();
        }
        let (states, kept) = match &vectors {
            None => {
                let keep = cache.as_ref().map(|c| c as &dyn Keep);
                pass.run(scan.as_ref(), self.filter.as_ref(), keep)?
            }
            Some(vectors) => {
                let (fabric, turn) = (self.crew.fabric.inner(), (self.number, number));
                let cancel = &self.request.cancel;
                let sent = self.traffic(|t| &t.served)?;
                let outbox = Outbox::new(fabric, vectors, turn, &needs, news, cancel, sent);
                let sending = Pass { active: &[], ..pass };
                let (_, kept) = sending.run(scan.as_ref(), self.filter.as_ref(), Some(&outbox))?;
                (active.iter().map(|a| a.kernel.init()).collect(), kept)
            }
        };
        for source in self.dataset.sources() {
            source.check()?;
        }
        let p = scan.progress();
        let get = |c: &std::sync::atomic::AtomicU64| c.load(Ordering::Relaxed);
        let uncounted = u64::from(!scan.counts_rows());
        let bytes = get(&p.bytes) + std::mem::take(&mut self.looked);
        let asked = if asks || vectors.is_some() { bytes } else { 0 };
        let (rows, skipped, rounded) = (get(&p.rows), get(&p.skipped), get(&p.rounded));
        self.bytes += bytes;
        drop(scan);
        let unkept = self.keeps(&later, wanted, cache);
        Ok((states, vec![bytes, rows, kept, skipped, rounded, uncounted, asked, 0, unkept]))
    }

    /// Later passes are over what was kept; 1 if it was not all. Who sends columns to others keeps nothing, and has no part in
    /// these passes.
    fn keeps(&mut self, later: &Needs, wanted: bool, cache: Option<Cache>) -> u64 {
        self.kept = cache.and_then(Cache::ready);
        if wanted && self.kept.is_none() {
            self.too_many = Some(later.clone());
        }
        u64::from(wanted && self.kept.is_none())
    }

    /// How columns move in a pass with these needs, if they do.
    fn in_vectors(&self, needs: &Needs) -> Option<&Sending> {
        let kept = self.kept.as_ref().is_some_and(|k| k.serves(needs));
        self.vectors.as_ref().filter(|v| !kept && v.serves(needs))
    }

    /// What counts bytes between ranks.
    fn traffic(&self, which: fn(&Traffic) -> &AtomicU64) -> Result<&AtomicU64> {
        let holding = self.dataset.holding().map(|h| which(&h.traffic));
        holding.ok_or_else(|| Error::internal("it is not said what ranks hold"))
    }
}
