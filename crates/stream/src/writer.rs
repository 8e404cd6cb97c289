//! The writing end of a stream.

mod memory;

use crate::board::{Begun, Entry, Full, Standing, State};
use crate::budget::Shares;
use crate::buffer::Buffer;
use crate::clock;
use crate::coupling::Coupling;
use crate::events::{Event, Told};
use crate::head;
use crate::home::Home;
use crate::index::{BlockEntry, Definition, Definitions, shown};
use crate::memory::{is_alive, me};
use crate::options::{At, Written};
use crate::party::{Party, Seen};
use crate::recorded::{self, CHOSEN, Card, Choice, Job, Of, Quotas, Recorder};
use crate::report::{Cause, Puts, WriterReport};
use crate::returns::Returns;
use crate::stock::{Moment, Stock};
use crate::threads;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stead_core::units::format_size;
use stead_core::{Bounds, DType, Error, Kind, Result};
use stead_store::Folder;
use stead_store::arena::{Arena, Options, Piece, Place};

/// Puts blocks of variables into the steps of a stream. Readers see a step when all writers have ended it.
///
/// What is put is copied once, into memory that readers look at; what was made with [`Writer::empty`] or [`Home::empty`] is not copied. It is freed when
/// all have had it. Dropped without [`Writer::close`], the writer has closed it.
#[derive(Debug)]
pub struct Writer {
    party: Party,
    /// Its place among the writers of this node.
    seat: usize,
    /// Others of this coupling may read what was put as long as it is there.
    coupling: Option<Arc<Coupling>>,
    /// The memory of arrays, and that of what is said of them.
    stock: Arc<Stock>,
    said: Arena,
    definitions: Definitions,
    /// Those that readers know, and where they lie.
    known: Option<(u64, Arc<Piece>)>,
    /// The step that comes next, or is open.
    step: u64,
    open: Option<Open>,
    /// Of the writers of this process, which have different ones.
    number: u64,
    /// Of readers.
    told: Told,
    /// Records what is put, if it is to be.
    recorder: Option<Recorder>,
    /// Gives memory back meanwhile, where others may want it and nothing is recorded.
    returns: Option<Returns>,
    /// What it has done.
    puts: Puts,
    is_closed: bool,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// What a step has so far.
#[derive(Debug, Default)]
struct Open {
    blocks: Vec<BlockEntry>,
    pieces: Vec<Arc<Piece>>,
    bytes: u64,
}

/// Memory for a block that is put without a copy.
#[derive(Debug)]
pub struct Room {
    piece: Arc<Piece>,
    variable: u32,
    bounds: Bounds,
    /// What the variable was when it was given.
    form: (DType, Vec<u64>),
    /// The number of its writer.
    of: u64,
}

/// Keeps the memory of a block from being used for another one, also when all readers have had it.
#[derive(Debug, Clone)]
pub struct Kept(#[allow(dead_code)] Arc<Piece>);

impl Room {
    /// Its bytes, in C order: at first whatever was there before.
    pub fn bytes(&self) -> &[u8] {
        self.piece.as_slice()
    }

    /// The same, to be written; none while it is [kept](Room::keep).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        Arc::get_mut(&mut self.piece).map_or(&mut [], Piece::as_mut_slice)
    }

    /// For who still has its bytes when it is put, such as an array of another language.
    pub fn keep(&self) -> Kept {
        Kept(self.piece.clone())
    }

    /// Which variable it is a block of, as [`Writer::define`] has said.
    pub fn variable(&self) -> u32 {
        self.variable
    }

    /// Which part of its variable it is.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }
}

impl Writer {
    /// Takes the place of a writer of the stream `name`, which begins with the first of them.
    ///
    /// # Errors
    /// `Usage` if other writers say something else of the stream, or somebody is this one already, and if steps of another one were recorded
    /// where it is to be; `Limit` if this process may have no more files open; `NoSpace` if no dataspace has room for what is to
    /// [spill](Written::spill) to one of them; those of the dataspace `memory`, and of the folder that steps are recorded in.
    pub fn open(name: &str, options: &Written) -> Result<Writer> {
        Writer::join(name, options).map_err(Error::of_open_files)
    }

    fn join(name: &str, options: &Written) -> Result<Writer> {
        let place = options.recorded()?;
        let record = match place {
            None => 0,
            Some(At::Chosen) => CHOSEN,
            Some(At::Named(at)) => recorded::spot(at, &options.spaces)?.1,
        };
        let home = match &options.coupling {
            Some(coupling) => coupling.home().clone(),
            None => Home::open(&options.spaces)?,
        };
        let me = me()?;
        let placed = options.placed(name)?;
        let (seat, agreed) = (placed.seat, options.agreed(&placed, record));
        let found = home.join(name, &agreed, &placed, me)?;
        let folder = found.folder.clone();
        // Fresh pages take much longer than those that were used before.
        let shares = Shares::of(&home, found.board.token());
        let most = shares.as_ref().map_or(u64::MAX, Shares::most).min(options.memory);
        let keep_free = most / agreed.writers.max(1);
        let of = Options { keep_free, ..Options::default() };
        let arena = Arena::new(&found.folder, &head::prefix(seat), of)?;
        let said = Arena::new(&found.folder, &head::said(seat), Options::default())?;
        let mut writer = Writer {
            party: Party::new(name, home, found, me, (options.timeout, &options.stop)),
            seat,
            coupling: options.coupling.clone(),
            stock: Arc::new(Stock::new(arena, seat, shares)),
            said,
            definitions: Definitions::new(),
            known: None,
            step: 0,
            open: None,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            told: Told::default(),
            recorder: None,
            returns: None,
            puts: Puts::default(),
            is_closed: false,
        };
        if let Some(coupling) = &writer.coupling {
            coupling.writes(name, agreed.run);
        }
        let gone = || Error::new(Kind::Peer, format!("stream '{name}' was removed"));
        if place.is_none() && writer.stock.shares().is_some() {
            let board = crate::home::look(&folder)?.ok_or_else(gone)?;
            writer.returns = Some(Returns::begin(board, writer.stock.clone())?);
        }
        if let Some(place) = place {
            let run = if agreed.run == 0 { writer.party.board.token() } else { agreed.run };
            let card = Card::new(name, agreed.all, run, options.persist.is_none());
            let spaces = &options.spaces;
            let own = |e: Error| e.and(&format!(", where stream '{name}' is recorded"));
            let open = || -> Result<(Folder, Result<Recorder>)> {
                let at = match place {
                    // What a stream before it has left there may have gone since.
                    At::Named(at) => recorded::spot(at, spaces)?.0,
                    At::Chosen => {
                        let bytes = options.spill_limit.unwrap_or(options.memory);
                        let choice = Choice { spaces, card: &card, bytes };
                        choice.settle(&folder, writer.party.deadline(), &options.stop)?
                    }
                };
                let of = Of {
                    name,
                    card: card.clone(),
                    rank: writer.party.board.rank_of(seat),
                    seat,
                    board: crate::home::look(&folder)?.ok_or_else(gone)?,
                    stock: writer.stock.clone(),
                    me,
                    limit: options.spill_limit,
                    quotas: Quotas::of(spaces, &at, (name, me), &folder),
                };
                let recorder = Recorder::open(&at, of);
                Ok((at, recorder))
            };
            let (at, recorder) = match open()? {
                // Writers of another node, which were the last ones in it, have removed it meanwhile.
                (_, Err(e)) if e.kind() == Kind::NotFound => open()?,
                opened => opened,
            };
            writer.recorder = Some(recorder.map_err(own)?);
            recorded::tell(&folder, &at)?;
        }
        Ok(writer)
    }

    /// The number of the step that is open, or comes next.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Says what a variable is, and gives its number. One of the name that is the same has the number that it had; another one takes
    /// its place, from the next step on: shapes may change with each.
    ///
    /// # Errors
    /// `Usage` for one that can be none, or is another within a step; `Limit` where there are too many.
    pub fn define(&mut self, definition: Definition) -> Result<u32> {
        match self.definitions.find(&definition.name) {
            None => self.definitions.add(definition),
            Some((number, there)) if *there == definition => Ok(number),
            Some((number, _)) => {
                let put = |open: &Open| open.blocks.iter().any(|b| b.variable == number);
                if self.open.as_ref().is_some_and(put) {
                    let name = shown(&definition.name);
                    return Err(Error::usage(format!(
                        "variable '{name}' is another one than in what was put into step {}",
                        self.step
                    ))
                    .with_hint("all blocks of a step are of one array"));
                }
                self.definitions.replace(definition)
            }
        }
    }

    /// What the variable of a number is.
    ///
    /// # Errors
    /// `Usage` if there is none.
    pub fn definition(&self, variable: u32) -> Result<&Definition> {
        self.definitions
            .get(variable)
            .ok_or_else(|| Error::usage(format!("there is no variable {variable}")))
    }

    /// What the variable of a name is, if there is one, and its number.
    pub fn find(&self, name: &str) -> Option<(u32, &Definition)> {
        self.definitions.find(name)
    }

    /// What has become of readers since this was asked last: who has come to writers of this node, who has gone, in order or not, and
    /// how many steps each was given.
    ///
    /// # Errors
    /// `Timeout` if somebody keeps the stream locked.
    pub fn events(&mut self) -> Result<Vec<Event>> {
        let guard = self.party.lock()?;
        self.party.board.reap(&guard, &is_alive);
        let (readers, complete) = (self.party.board.readers(), self.party.board.complete());
        drop(guard);
        Ok(self.told.news(readers, complete))
    }

    /// What it has done so far, for whom it has waited, and the memory of the stream.
    pub fn report(&self) -> WriterReport {
        let board = &self.party.board;
        self.puts.report(board.rank_of(self.seat), board)
    }

    /// Begins a step, when there is room for it: readers that are waited for are not too far behind.
    ///
    /// # Errors
    /// `Usage` within a step; `Timeout`; `Peer` if another writer has ended.
    pub fn begin(&mut self) -> Result<u64> {
        self.check()?;
        if self.open.is_some() {
            return Err(Error::usage(format!("step {} was begun and is not ended", self.step)));
        }
        let until = self.party.deadline();
        loop {
            let seen = Seen::Writer(self.party.board.seen_by_writers());
            if self.recorder.as_ref().is_some_and(|recorder| !recorder.has_room()) {
                self.party.wait(seen, until, || self.what_is_recorded())?;
                self.check()?;
                continue;
            }
            let guard = self.party.lock()?;
            let begun = self.party.board.begin(&guard, self.step);
            if matches!(begun, Begun::Full(_)) && self.spills() {
                self.party.board.hurry(&guard);
            }
            drop(guard);
            match begun {
                Begun::Yes => {
                    self.open = Some(Open::default());
                    self.reclaim(Moment::Within);
                    return Ok(self.step);
                }
                Begun::Over(state) => return Err(self.over(state)),
                Begun::Full(full) => {
                    let begun = clock::now();
                    let waited = self.party.wait(seen, until, || self.who_is_waited_for(full));
                    self.puts.waited(cause(full), begun.elapsed());
                    waited?;
                }
            }
        }
    }

    fn over(&self, state: crate::board::State) -> Error {
        self.party
            .over(state)
            .unwrap_or_else(|| Error::usage(format!("stream '{}' has ended", self.party.name)))
    }

    fn check(&self) -> Result<()> {
        match self.is_closed {
            true => Err(Error::usage(format!("stream '{}' is closed", self.party.name))),
            false => self.recorder.as_ref().map_or(Ok(()), Recorder::check),
        }
    }

    fn spills(&self) -> bool {
        self.recorder.as_ref().is_some_and(|recorder| recorder.spills)
    }

    fn what_is_recorded(&self) -> String {
        let waiting = self.recorder.as_ref().map_or(0, Recorder::waiting);
        let (name, step) = (&self.party.name, self.step);
        format!("step {step} of stream '{name}': {waiting} steps before it are not recorded yet")
    }

    fn who_is_waited_for(&self, full: Full) -> String {
        let (name, step) = (&self.party.name, self.step);
        let board = &self.party.board;
        let rank = board.rank_of(self.seat);
        let writer = format!("writer {rank} of stream '{name}' cannot begin step {step}");
        match full {
            Full::Groups => {
                let (there, wanted) = (board.groups(), board.agreed().expect);
                format!("{writer}: {there} groups of readers have come, and it waits for {wanted}")
            }
            Full::Needed(needed) if board.is_spilled(&needed) => {
                let (group, step) = (board.group_of(&needed), needed.step);
                let recorder = self.recorder.as_ref();
                let limit = recorder.and_then(|recorder| recorder.limit);
                let files = limit.map_or_else(String::new, |limit| {
                    let (taken, limit) = (format_size(board.files()), format_size(limit));
                    format!(" (files have {taken} of {limit}, the spill_limit)")
                });
                let lacks = recorder.and_then(Recorder::lacks);
                let lacks = lacks.map_or_else(String::new, |lacks| format!("; {lacks}"));
                let why = if needed.is_kept { "keep it" } else { "have not had it" };
                format!(
                    "{writer}: step {step} is not recorded yet, and the readers '{group}' {why}{files}{lacks}"
                )
            }
            Full::Needed(needed) => format!("{writer}: {}", board.who_is(&needed)),
            Full::Held(oldest) => {
                let holders = board.holders(oldest);
                let who = holders.first().map_or_else(
                    || "steps that are kept take all places".to_owned(),
                    |(process, group, rank)| {
                        format!("rank {rank} of '{group}' ({process}) still looks at step {oldest}")
                    },
                );
                format!("{writer}: {who}")
            }
            Full::Behind(oldest) => {
                let behind = (0..board.writers()).map(|w| board.writer(w));
                let behind = behind.filter(|seat| seat.step <= oldest);
                let said: Vec<String> = behind
                    .take(8)
                    .map(|seat| match seat.standing {
                        Standing::Awaited => format!("writer {} has not come", seat.rank),
                        _ => format!("writer {} (process {}) has not", seat.rank, seat.who.number),
                    })
                    .collect();
                format!("{writer}: step {oldest} is not ended: {}", said.join(", "))
            }
        }
    }

    /// Puts a block of a variable, in C order, into the step that is open. It is copied.
    ///
    /// # Errors
    /// `Usage` outside a step, for bounds out of the shape and bytes that are not as many; `Limit` if a step does not fit the memory of
    /// the stream, or this process may have no more files open; `Timeout`; `NoSpace`.
    pub fn put(&mut self, variable: u32, bounds: &Bounds, bytes: &[u8]) -> Result<()> {
        let mut room = self.empty(variable, bounds)?;
        let len = room.piece.len();
        if bytes.len() != len {
            let name = self.name_of(variable);
            let message = format!(
                "block {bounds} of variable '{name}' has {len} bytes, and {} were given",
                bytes.len()
            );
            return Err(Error::usage(message));
        }
        let threads = threads::of_use(len, 0, self.party.board.writers());
        let copying = AtomicU64::new(0);
        threads::copy(bytes, room.bytes_mut(), threads, &copying);
        self.put_room(room)?;
        self.puts.copied(len as u64, copying.into_inner());
        Ok(())
    }

    /// Puts the beginning of memory that was made before, as a block of a variable in C order, into the step that is open: where it lies if it can
    /// be found there by readers, and else it is copied. [`Writer::report`] tells which it was. Each time that it is put it counts for the memory of
    /// the stream, until its step has gone. Nobody may write to it meanwhile.
    ///
    /// # Errors
    /// As [`Writer::put`]; `Usage` if it is shorter than the block.
    pub fn put_buffer(&mut self, variable: u32, bounds: &Bounds, buffer: &Buffer) -> Result<()> {
        self.check()?;
        let block = self.block(variable, bounds)?;
        let len = block.place.len;
        let bytes = usize::try_from(len).ok().and_then(|len| buffer.bytes().get(..len));
        let bytes = bytes.ok_or_else(|| {
            let name = self.name_of(variable);
            Error::usage(format!(
                "block {bounds} of variable '{name}' has {len} bytes, and the memory has {}",
                buffer.len()
            ))
        })?;
        match self.take_in(buffer, len)? {
            Some(piece) => {
                let (piece, bounds) = (Arc::new(piece), block.bounds);
                let form = self.form(variable)?;
                self.put_room(Room { piece, variable, bounds, form, of: self.number })
            }
            None => self.put(variable, bounds, bytes),
        }
    }

    fn name_of(&self, variable: u32) -> String {
        self.definitions.get(variable).map_or_else(String::new, |d| shown(&d.name))
    }

    /// Memory for a block of a variable, to be filled and [put](Writer::put_room) without a copy, into this step or a later one.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn empty(&mut self, variable: u32, bounds: &Bounds) -> Result<Room> {
        self.check()?;
        let block = self.block(variable, bounds)?;
        let piece = self.take(block.place.len)?;
        let (bounds, form) = (block.bounds, self.form(variable)?);
        Ok(Room { piece: Arc::new(piece), variable, bounds, form, of: self.number })
    }

    fn form(&self, variable: u32) -> Result<(DType, Vec<u64>)> {
        self.definition(variable).map(|d| (d.dtype, d.shape.clone()))
    }

    /// A block that is to come, and how many bytes it has.
    fn block(&self, variable: u32, bounds: &Bounds) -> Result<BlockEntry> {
        let definition = self.definition(variable)?;
        let bytes = bounds.elements().saturating_mul(definition.dtype.size() as u64);
        let place = Place { segment: 0, offset: 0, len: bytes };
        let block = BlockEntry { variable, bounds: bounds.clone(), place };
        self.definitions.check(&block)?;
        Ok(block)
    }

    /// A stream that is over has no folder any more, when its readers have gone; and new memory is one more file that is open.
    fn gone(&self, e: Error) -> Error {
        match e.kind() {
            Kind::NotFound => self.party.over(self.party.board.state()).unwrap_or(e),
            _ => e.of_open_files(),
        }
    }

    /// Puts a block that was filled in its place.
    ///
    /// # Errors
    /// `Usage` outside a step, and if the variable is another one by now.
    pub fn put_room(&mut self, room: Room) -> Result<()> {
        let Room { piece, variable, bounds, form, of } = room;
        if of != self.number {
            return Err(Error::usage("this is memory of another writer")
                .with_hint("what a writer gives is put by the same one"));
        }
        let block = BlockEntry { variable, bounds, place: piece.place() };
        self.definitions.check(&block)?;
        let now = self.definition(variable)?;
        if (now.dtype, &now.shape) != (form.0, &form.1) {
            let message = format!(
                "variable '{}' has another type or shape than this memory was given for",
                shown(&now.name)
            );
            return Err(
                Error::usage(message).with_hint("ask for new memory after it was defined anew")
            );
        }
        let step = self.step;
        let Some(open) = &mut self.open else {
            let message = format!("step {step} was not begun");
            return Err(Error::usage(message).with_hint("begin it before something is put"));
        };
        open.bytes = open.bytes.saturating_add(block.place.len);
        self.puts.put(block.place.len);
        open.blocks.push(block);
        open.pieces.push(piece);
        Ok(())
    }

    /// The same of memory into which something was copied, which has taken so much of a processor: it counts as any copy.
    ///
    /// # Errors
    /// As [`Writer::put_room`].
    pub fn put_copied(&mut self, room: Room, copying: Duration) -> Result<()> {
        let len = room.piece.len() as u64;
        self.put_room(room)?;
        self.puts.copied(len, u64::try_from(copying.as_nanos()).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Ends the step: when all writers have, readers see it.
    ///
    /// # Errors
    /// `Usage` outside a step; `NoSpace`; `Peer` if the stream is over.
    pub fn end(&mut self) -> Result<()> {
        self.check()?;
        let Some(mut open) = self.open.take() else {
            return Err(Error::usage(format!("step {} was not begun", self.step)));
        };
        let written = self.write(&mut open);
        let (entry, hash, definitions) = match written {
            Ok(written) => written,
            Err(e) => {
                // It can be tried again.
                self.open = Some(open);
                return Err(e);
            }
        };
        let guard = match self.party.lock() {
            Ok(guard) => guard,
            Err(e) => {
                self.open = Some(open);
                return Err(e);
            }
        };
        let ended = self.party.board.end(&guard, self.seat, self.step, entry, open.bytes);
        let state = self.party.board.state();
        let pieces = Arc::new(open.pieces);
        if let Some(recorder) = self.recorder.as_ref().filter(|_| ended) {
            let (step, bytes, blocks) = (self.step, open.bytes, open.blocks);
            let pieces = pieces.clone();
            recorder.put(Job { step, bytes, definitions, hash, blocks, pieces });
            self.party.board.ring(&guard, self.seat);
        }
        drop(guard);
        if !ended {
            return Err(self.over(state));
        }
        self.stock.keep(self.step, open.bytes, pieces);
        let (waited, copying) = self.puts.end(self.step);
        self.party.board.set_times(self.seat, waited, copying);
        self.step += 1;
        self.reclaim(Moment::Between);
        Ok(())
    }

    /// Writes down what readers need to know of a step.
    fn write(&mut self, open: &mut Open) -> Result<(Entry, u64, Arc<Piece>)> {
        self.definitions.settle()?;
        let hash = self.definitions.hash();
        let definitions = match &self.known {
            Some((known, piece)) if *known == hash => piece.clone(),
            _ => {
                let piece = Arc::new(self.lay_down(&self.definitions.encode()?)?);
                self.known = Some((hash, piece.clone()));
                piece
            }
        };
        let blocks = self.definitions.encode_blocks(&open.blocks)?;
        let head = head::encode(&definitions.place(), hash, &blocks);
        let index = Arc::new(self.lay_down(&head)?);
        let Place { segment, offset, len } = index.place();
        open.pieces.push(definitions.clone());
        open.pieces.push(index);
        Ok((Entry { segment, offset, len }, hash, definitions))
    }

    /// What is said of a step is small beside its arrays, and does not count.
    fn lay_down(&self, bytes: &[u8]) -> Result<Piece> {
        let mut piece = self.said.take(bytes.len()).map_err(|e| self.gone(e))?;
        piece.as_mut_slice().copy_from_slice(bytes);
        Ok(piece)
    }

    /// Frees what belongs to steps that have gone. True if there was something.
    fn reclaim(&mut self, moment: Moment) -> bool {
        let board = &self.party.board;
        if let Some(recorder) = &self.recorder {
            let there = board.there();
            recorder.forget(|step| there.binary_search(&step).is_ok());
        }
        let any = self.stock.reclaim(board, moment);
        if any
            && board.is_memory_wanted(self.seat)
            && let Ok(guard) = self.party.lock()
        {
            // Who waits for it looks again at once, and not in a while.
            board.tell_writers(&guard);
        }
        any
    }

    /// Closes the stream: readers come to its end when all writers have. What is complete stays for them, and this process may end.
    ///
    /// # Errors
    /// `Usage` within a step, which readers never see: they are told that the stream has failed; that of the disk if steps are recorded, of
    /// which all are durable when this returns; `Timeout` if that takes too long.
    pub fn close(mut self) -> Result<()> {
        let within = self.open.is_some();
        let left = self.leave(within);
        match within {
            false => left,
            true => Err(Error::usage(format!(
                "stream '{}' was closed within step {}, which nobody will see",
                self.party.name, self.step
            ))),
        }
    }

    /// Waits until all writers of this node have come, or the stream is over: for who is to give it up, as a writer that comes later is told
    /// nothing of that, and begins another stream of the name. False if the time is over before, or somebody keeps the stream locked.
    ///
    /// # Errors
    /// That of what ends the wait.
    pub fn wait_for_writers(&self, time: Duration) -> Result<bool> {
        let (until, board) = (clock::after(time), &self.party.board);
        loop {
            let seen = board.seen_by_readers();
            let awaited = |writer| board.writer(writer).standing == Standing::Awaited;
            if board.state() != State::Live || !(0..board.writers()).any(awaited) {
                return Ok(true);
            }
            match self.party.wait(Seen::Reader(seen), until, String::new) {
                Err(e) if e.kind() == Kind::Timeout => return Ok(false),
                waited => waited?,
            }
        }
    }

    /// Gives the stream up: readers are told that it has failed, after what is complete.
    ///
    /// # Errors
    /// `Timeout` if somebody keeps the stream locked.
    pub fn abandon(mut self) -> Result<()> {
        self.leave(true)
    }

    fn leave(&mut self, fails: bool) -> Result<()> {
        if std::mem::replace(&mut self.is_closed, true) || !self.party.is_mine() {
            return Ok(());
        }
        // Bytes stay for those who read them.
        self.returns = None;
        self.stock.leave(&self.party.board);
        self.said.leave();
        let (coupling, recorder) = (self.coupling.take(), self.recorder.take());
        let guard = match self.party.lock() {
            Ok(guard) => guard,
            Err(e) => return self.leave_unheard(fails, coupling.as_deref(), recorder, e),
        };
        self.party.board.close(&guard, self.seat, fails);
        let failed = self.party.board.failed();
        if let Some(recorder) = &recorder {
            recorder.close(self.step, fails);
            self.party.board.ring(&guard, self.seat);
        }
        self.party.home.leave(&self.party.name, &self.party.board, &guard);
        drop(guard);
        if let Some(coupling) = coupling {
            let (name, run) = (&self.party.name, self.party.board.agreed().run);
            coupling.has_written(name, run);
            // Whoever of this node it was: one that was killed says nothing itself.
            if let Some(rank) = failed {
                coupling.failed(name, run, rank);
            }
        }
        // Readers of memory come to the end meanwhile.
        match recorder {
            Some(recorder) => recorder.finish(self.party.deadline(), &self.party.stop),
            None => Ok(()),
        }
    }

    /// Leaves while somebody keeps the stream locked: it says so in its own place, and whoever looks next after those who have ended
    /// makes it known. Steps are recorded as ever.
    fn leave_unheard(
        &self,
        fails: bool,
        coupling: Option<&Coupling>,
        recorder: Option<Recorder>,
        why: Error,
    ) -> Result<()> {
        self.party.board.leave_unheard(self.seat, fails);
        if let Some(coupling) = coupling {
            let board = &self.party.board;
            let (name, run) = (&self.party.name, board.agreed().run);
            coupling.has_written(name, run);
            if fails {
                coupling.failed(name, run, board.rank_of(self.seat));
            }
        }
        if let Some(recorder) = recorder {
            recorder.close(self.step, fails);
            recorder.finish(self.party.deadline(), &self.party.stop)?;
        }
        Err(why)
    }
}

fn cause(full: Full) -> Cause {
    match full {
        Full::Groups => Cause::Groups,
        Full::Needed(needed) => Cause::Reader(needed),
        Full::Held(_) => Cause::Held,
        Full::Behind(_) => Cause::Writers,
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Who panics has not come to an end, and who forgets to close has.
        let _ = self.leave(self.open.is_some() || std::thread::panicking());
    }
}
