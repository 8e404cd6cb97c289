//! Where streams are: a folder of this user in the dataspace `memory`, with a folder for each, that has its board and the memory of its
//! writers.
//!
//! A stream that has ended stays there for those who come late, until its last reader has gone or somebody writes another one of the
//! name. To go, it first gets another name, so that nobody finds a part of it, and then its files are removed; who has them mapped
//! looks on.

use crate::board::{Agreed, Board, Guard, Policy, Rule, Seat, Standing, State, Taken};
use crate::budget::Budget;
use crate::clock;
use crate::coupling::Placed;
use crate::describe::Description;
use crate::explain::Explanation;
use crate::memory::{Shared, began, is_alive, me, namespace, token};
use crate::options::{Read, Stop};
use crate::recorded;
use crate::share::{self, Share};
use crate::words::Who;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::time::{Duration, Instant};
use stead_core::layout::Spaces;
use stead_core::{Error, Kind, Result, limits};
use stead_store::region::{SPACE, folder_of_streams};
use stead_store::{Folder, Root, Watch, Words, process};

pub(crate) const BOARD: &str = "board";
/// Somebody else may found, or remove, a stream at the same time, so often in a row.
const AGAIN: usize = 100;
/// A stream that has ended and that nobody has read stays so long.
const LINGERS: Duration = Duration::from_secs(600);

/// Whether something can be called so: letters, digits, `.`, `-` and `_`, as names of nodes.
///
/// # Errors
/// `Usage`.
pub fn check_name(name: &str) -> Result<()> {
    if stead_core::is_node(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    Err(Error::usage(format!("'{shown}' is no name for a stream"))
        .with_hint("use letters, digits, '.', '-' and '_', up to 253 of them, and no '.' or '-' at the beginning"))
}

/// The folder of all streams of this user.
#[derive(Debug, Clone)]
pub struct Home {
    folder: Folder,
    /// Bytes that all of them may have together, where something is agreed of `memory`.
    budget: Option<u64>,
}

/// A stream that was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) folder: Folder,
    pub(crate) board: Board<Shared>,
}

impl Home {
    /// Opens the folder, and makes it if it is not there.
    ///
    /// # Errors
    /// Those of [`Root::open`]; `Permission` if it is somebody else's.
    pub fn open(spaces: &Spaces) -> Result<Home> {
        let root = Root::open(spaces, SPACE)?.folder();
        let hint = "let [dataspace.memory] of stead.toml name another folder in memory";
        let folder = private(&root, &folder_of_streams(process::user()), hint)?;
        let terms = spaces.terms(SPACE);
        let budget = terms.and_then(|of| of.quota.into_iter().chain(of.user_quota).min());
        Ok(Home { folder, budget })
    }

    /// The folder itself.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Takes the place of a writer of a stream, which is founded if the others have not done so.
    ///
    /// # Errors
    /// `Usage` if the others agree on something else, if somebody else is this writer, or was; `Timeout` if somebody keeps it locked.
    pub(crate) fn join(
        &self,
        name: &str,
        agreed: &Agreed,
        placed: &Placed,
        me: Who,
    ) -> Result<Found> {
        check_name(name)?;
        self.sweep();
        let joined = self.join_or_found(name, agreed, placed, me);
        if joined.is_err() {
            // Where no stream could be founded there is none: what is not empty stays.
            let _ = self.folder.remove_folder(OsStr::new(name));
        }
        joined
    }

    fn join_or_found(
        &self,
        name: &str,
        agreed: &Agreed,
        placed: &Placed,
        me: Who,
    ) -> Result<Found> {
        let (writer, ranks) = (placed.seat, &placed.ranks);
        let words = agreed.words().ok_or_else(|| unlikely(agreed))?;
        for _ in 0..AGAIN {
            // Somebody may remove what he takes for left.
            let gone = |e: &Error| e.kind() == Kind::NotFound;
            let folder = match self.folder.make(OsStr::new(name), true) {
                Err(e) if gone(&e) => continue,
                made => made?.0,
            };
            if let Some(board) = look(&folder)? {
                let guard = lock(name, &board, me)?;
                board.reap(&guard, &is_alive);
                // Who comes to writers of the same run was begun while they were there.
                give_up(&board, &guard, began()?);
                if board.state() != State::Live {
                    self.retire(name, &board, &guard)?;
                    continue;
                }
                if !self.is_called(name, &board)? {
                    continue;
                }
                if board.agreed().run != agreed.run {
                    return Err(another(name));
                }
                if board.agreed() != *agreed {
                    return Err(unlike(name, &board.agreed(), agreed));
                }
                board
                    .join(&guard, writer, me, &is_alive)
                    .map_err(|taken| no_writer(name, writer, agreed, &taken))?;
                drop(guard);
                return Ok(Found { folder, board });
            }
            let draft = match Words::create(&folder, BOARD, words) {
                Err(e) if gone(&e) => continue,
                draft => draft?,
            };
            let names = (token(), namespace()?);
            let new = Board::found(Shared(&*draft), agreed, names, clock::since_1970());
            let new = new.ok_or_else(|| Error::internal("a board has too few words"))?;
            (0..).zip(ranks).for_each(|(writer, rank)| new.set_rank(writer, *rank));
            // Nobody is to find a stream without writers, which is one that was left.
            let guard = lock(name, &new, me)?;
            new.join(&guard, writer, me, &is_alive)
                .map_err(|taken| no_writer(name, writer, agreed, &taken))?;
            drop(guard);
            match draft.publish() {
                Ok(Some(words)) => {
                    let odd = || Error::internal("a board is not what was founded");
                    let board = Board::open(Shared(words)).ok_or_else(odd)?;
                    let is_called = self.is_called(name, &board);
                    if matches!(is_called, Ok(true)) {
                        return Ok(Found { folder, board });
                    }
                    // Somebody has taken the folder's name from it for a stream before this one, and so nobody finds what is in it; or
                    // that cannot be told, and who comes next is to found another one.
                    board.abandon(&lock(name, &board, me)?);
                    is_called?;
                }
                Ok(None) => {}
                Err(e) if gone(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Err(Error::new(Kind::Io, format!("stream '{name}' comes and goes all the time")))
    }

    /// The stream of this name, as soon as there is one that fits.
    ///
    /// # Errors
    /// `Timeout` if nobody does until then; that of what ends the wait.
    pub(crate) fn find(
        &self,
        name: &str,
        fits: impl Fn(&Board<Shared>) -> bool,
        until: Instant,
        stop: &Stop,
    ) -> Result<Found> {
        check_name(name)?;
        self.sweep();
        // Most often it is there: to watch a folder takes the system far longer, when it ends it.
        if let Ok(found) = self.get(name)
            && fits(&found.board)
        {
            return Ok(found);
        }
        // From before the first look on: what comes meanwhile ends the next wait.
        let above = Watch::new(&self.folder)?;
        loop {
            let mut within = None;
            match self.folder.enter(OsStr::new(name)) {
                Ok(folder) => {
                    within = Some(Watch::new(&folder)?);
                    if let Some(board) = look(&folder)?
                        && fits(&board)
                    {
                        return Ok(Found { folder, board });
                    }
                }
                Err(e) if e.kind() == Kind::NotFound => {}
                Err(e) => return Err(e),
            }
            let left = until.saturating_duration_since(clock::now());
            if left.is_zero() {
                let message = format!("nobody writes a stream '{name}'");
                let at = self.folder.shown().display();
                return Err(Error::new(Kind::Timeout, message).with_hint(format!(
                    "begin its writers, on this node and as this user, or wait longer for them; it would be in {at}"
                )));
            }
            stop.check()?;
            within.as_ref().unwrap_or(&above).wait(stop.at_most(left));
        }
    }

    /// The stream of this name, if there is one.
    ///
    /// # Errors
    /// `NotFound`; system errors.
    pub(crate) fn get(&self, name: &str) -> Result<Found> {
        check_name(name)?;
        let none = || Error::new(Kind::NotFound, format!("there is no stream '{name}'"));
        match self.folder.enter(OsStr::new(name)) {
            Ok(folder) => match look(&folder)? {
                Some(board) => Ok(Found { folder, board }),
                None => Err(none()),
            },
            Err(e) if e.kind() == Kind::NotFound => Err(none()),
            Err(e) => Err(e),
        }
    }

    /// Bytes that all streams of this user may have together; `None` where nothing is agreed.
    pub(crate) fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// All that have memory here, by what people call them: also those that are found by no name any more. What comes or goes meanwhile may
    /// be among them.
    pub(crate) fn boards(&self) -> Result<Vec<(String, Board<Shared>)>> {
        let (mut all, mut known) = (Vec::new(), HashSet::new());
        for names in self.folder.names(1 << 12)? {
            for name in names? {
                let Some(text) = name.to_str() else { continue };
                let board = self.folder.enter(&name).and_then(|folder| look(&folder));
                let Ok(Some(board)) = board else { continue };
                if known.insert(board.token()) {
                    let called = text.strip_prefix('.').and_then(|rest| rest.rsplit_once('.'));
                    let called = called.map(|(name, _)| format!("{name} (before)"));
                    all.push((called.unwrap_or_else(|| text.to_owned()), board));
                }
            }
        }
        Ok(all)
    }

    /// Sees what changes in this folder from now on.
    pub(crate) fn watch(&self) -> Result<Watch> {
        Watch::new(&self.folder)
    }

    /// The streams that there are, in order: also those that cannot be looked at, such as one of another version of stead.
    ///
    /// # Errors
    /// System errors.
    pub fn list(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for names in self.folder.names(1 << 12)? {
            for name in names? {
                let Some(name) = name.to_str().filter(|name| check_name(name).is_ok()) else {
                    continue;
                };
                // One that is odd is there all the same; whoever looks at it is told how.
                match self.get(name) {
                    Err(e) if e.kind() == Kind::NotFound => {}
                    _ => all.push(name.to_owned()),
                }
            }
        }
        all.sort();
        Ok(all)
    }

    /// What there is to know of a stream: who takes part, how far each is, and which steps there are.
    ///
    /// # Errors
    /// `NotFound`; `Timeout` if somebody keeps it locked.
    pub fn describe(&self, name: &str) -> Result<Description> {
        let found = self.get(name)?;
        let guard = lock(name, &found.board, me()?)?;
        found.board.reap(&guard, &is_alive);
        let told = Description::of(name, &found.board);
        let seen = share::see(&found, &found.board);
        drop(guard);
        // Who is there is to be seen also where what was said is damaged.
        let variables = seen.and_then(|seen| seen.variables()).unwrap_or_default();
        let budget = Budget::of(self)?;
        Ok(Description { variables, budget, ..told })
    }

    /// Who will get what from whom of a step, as far as writers of this node are concerned: see [`Explanation`]. As many readers as `more`
    /// are assumed beside those that are there.
    ///
    /// # Errors
    /// As [`Home::describe`]; `Format` if what writers say is damaged, `Usage` if they do not agree; `Limit` if there are too many who get
    /// something.
    pub fn explain(&self, name: &str, more: u64) -> Result<Explanation> {
        Ok(Explanation::of(name, vec![(None, self.share(name, more)?)]))
    }

    /// The same, to be put together with what other nodes know.
    pub(crate) fn share(&self, name: &str, more: u64) -> Result<Share> {
        let found = self.get(name)?;
        let guard = lock(name, &found.board, me()?)?;
        found.board.reap(&guard, &is_alive);
        let seen = share::see(&found, &found.board);
        drop(guard);
        seen?.share(&found, more)
    }

    /// True while this board is the one that is found by the name.
    pub(crate) fn is_called(&self, name: &str, board: &Board<Shared>) -> Result<bool> {
        match self.folder.enter(OsStr::new(name)) {
            Ok(folder) => Ok(look_anyhow(&folder)?.is_some_and(|now| now.token() == board.token())),
            Err(e) if e.kind() == Kind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Takes its name from a stream that is over, so that there can be another one, and removes it if nobody reads it.
    pub(crate) fn retire(
        &self,
        name: &str,
        board: &Board<Shared>,
        _: &Guard<'_, Shared>,
    ) -> Result<()> {
        if !self.is_called(name, board)? {
            return Ok(());
        }
        let hidden = format!(".{name}.{:016x}", board.token());
        self.folder.rename(OsStr::new(name), &self.folder, OsStr::new(&hidden), false)?;
        if !is_read(board) {
            self.clear(OsStr::new(&hidden))?;
        }
        Ok(())
    }

    /// Removes a folder that nobody finds by the name of its stream any more.
    fn clear(&self, hidden: &OsStr) -> Result<()> {
        let folder = match self.folder.enter(hidden) {
            Err(e) if e.kind() == Kind::NotFound => return Ok(()),
            folder => folder?,
        };
        if let Ok(Some(board)) = look_anyhow(&folder) {
            let run = board.agreed().run;
            let ranks = (0..board.writers()).map(|writer| board.rank_of(writer));
            recorded::forget(&folder, if run == 0 { board.token() } else { run }, ranks);
        }
        // The board last: whoever is killed meanwhile leaves what others still know.
        for names in folder.names(1 << 12)? {
            for name in names? {
                if name != OsStr::new(BOARD) {
                    folder.remove_file(&name)?;
                }
            }
        }
        folder.remove_file(OsStr::new(BOARD))?;
        self.folder.remove_folder(hidden)?;
        Ok(())
    }

    /// Removes a stream that is over when its last reader has gone, and none of a group is awaited. What nobody has read stays for a while.
    pub(crate) fn leave(&self, name: &str, board: &Board<Shared>, guard: &Guard<'_, Shared>) {
        if board.state() == State::Live || !board.has_been_read() {
            return;
        }
        // Who was killed is seen by nobody else who would remove it.
        board.reap(guard, &is_alive);
        if !is_read(board) && !is_awaited(board) {
            // What cannot be removed now is when somebody sweeps.
            let _ = self.retire(name, board, guard);
            let _ = self.clear(OsStr::new(&format!(".{name}.{:016x}", board.token())));
        }
    }

    /// Removes a stream, whoever takes part in it: who does is told that it was. False if there was none.
    ///
    /// # Errors
    /// `Usage` if somebody writes or reads it and `force` is not set.
    pub fn remove(&self, name: &str, force: bool) -> Result<bool> {
        check_name(name)?;
        let there = self.folder.enter(OsStr::new(name)).and_then(|folder| {
            let board = if force { look_anyhow(&folder) } else { look(&folder) }?;
            Ok(board.map(|board| Found { folder, board }))
        });
        let found = match there {
            Err(e) if e.kind() == Kind::NotFound => return Ok(false),
            Ok(None) => return Ok(false),
            Ok(Some(found)) => found,
            Err(e) => return Err(e),
        };
        let guard = lock(name, &found.board, me()?)?;
        found.board.reap(&guard, &is_alive);
        let board = &found.board;
        let live = board.state() == State::Live && board.never_came(&is_alive).is_none();
        if !force && (live || is_read(board) || is_awaited(board)) {
            let message = format!("stream '{name}' is being written or read");
            return Err(Error::usage(message)
                .with_hint("wait until they are done, or force it: stead stream rm --force"));
        }
        board.abandon(&guard);
        self.retire(name, board, &guard)?;
        self.clear(OsStr::new(&format!(".{name}.{:016x}", board.token())))?;
        Ok(true)
    }

    /// Removes what others have left: streams that are over, when all who have read them have gone, or some time after if nobody has. What
    /// cannot be removed stays.
    fn sweep(&self) {
        let Ok(names) = self.folder.names(1 << 12) else { return };
        for name in names.filter_map(Result::ok).flatten() {
            let _ = self.sweep_one(&name);
        }
    }

    /// The same for who waits for memory: of streams that are not over nothing goes, and so their locks are left alone.
    pub(crate) fn sweep_over(&self) {
        let Ok(names) = self.folder.names(1 << 12) else { return };
        for name in names.filter_map(Result::ok).flatten() {
            let board = self.folder.enter(&name).and_then(|folder| look(&folder));
            let is_over = |board: &Board<Shared>| {
                let mut writers = (0..board.writers()).map(|writer| board.writer(writer));
                let dead = |seat: Seat| seat.standing == Standing::Here && !is_alive(seat.who);
                board.state() != State::Live || writers.any(dead)
            };
            if matches!(&board, Ok(Some(board)) if is_over(board)) {
                let _ = self.sweep_one(&name);
            }
        }
    }

    fn sweep_one(&self, name: &OsStr) -> Result<()> {
        let folder = self.folder.enter(name)?;
        let Some(text) = name.to_str() else { return Ok(()) };
        let Some(board) = look(&folder)? else {
            // Somebody may be about to found it: what is not empty stays.
            let hidden = text.starts_with('.');
            return if hidden {
                self.clear(name)
            } else {
                self.folder.remove_folder(name).map(|_| ())
            };
        };
        let guard = lock(text, &board, me()?)?;
        board.reap(&guard, &is_alive);
        if is_read(&board) {
            return Ok(());
        }
        if text.starts_with('.') {
            return self.clear(name);
        }
        if is_awaited(&board) {
            return Ok(());
        }
        let lingers = u64::try_from(LINGERS.as_nanos()).unwrap_or(u64::MAX);
        let since = clock::since_1970().saturating_sub(lingers);
        let over = board.has_been_read() || board.ended_at() < since;
        give_up(&board, &guard, since);
        if board.state() != State::Live && over {
            self.retire(text, &board, &guard)?;
        }
        Ok(())
    }
}

/// The folder of this name in another one, which is this user's alone, and is made if it is not there.
///
/// # Errors
/// `Permission` with this hint if it is somebody else's, or open to others; system errors.
pub(crate) fn private(root: &Folder, name: &str, hint: &str) -> Result<Folder> {
    let (folder, _) = root.make(OsStr::new(name), true)?;
    let meta = folder.own_meta().map_err(|e| e.at_path(folder.shown()))?;
    if meta.uid == process::user() && meta.mode & 0o077 == 0 {
        return Ok(folder);
    }
    Err(Error::new(Kind::Permission, "this folder is not private to this user")
        .at_path(folder.shown())
        .with_hint(hint))
}

/// The board in a folder; `None` if there is none yet.
///
/// # Errors
/// `Format` if it is something else; `Usage` if its processes are not known here.
pub(crate) fn look(folder: &Folder) -> Result<Option<Board<Shared>>> {
    let (board, own) = (look_anyhow(folder)?, namespace()?);
    if board.as_ref().is_none_or(|board| board.namespace() == own) {
        return Ok(board);
    }
    // Whoever lives there would count as dead, and his memory as free.
    Err(Error::usage("this is the stream of programs in another container, of which this one cannot know whether they live")
        .at_path(folder.shown())
        .with_hint("run the programs in one namespace of process numbers (docker: --pid=container:NAME; apptainer: without --pid), give each container its own folder for memory, or remove what is left of one that is gone: stead stream rm --force NAME"))
}

/// The same, wherever its processes are.
fn look_anyhow(folder: &Folder) -> Result<Option<Board<Shared>>> {
    match Words::open(folder, BOARD, limits::MAX_BOARD_WORDS) {
        Ok(words) => Board::open(Shared(words)).map(Some).ok_or_else(|| {
            Error::format("this is the stream of another version of stead")
                .at_path(folder.at(OsStr::new(BOARD)))
                .with_hint("end its programs, and remove the folder that it is in")
        }),
        Err(e) if e.kind() == Kind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Ends a stream whose last writer has left it before this time, while others have never come.
fn give_up(board: &Board<Shared>, guard: &Guard<'_, Shared>, since: u64) {
    if board.ended_at() < since
        && let Some(writer) = board.never_came(&is_alive)
    {
        board.fail(guard, writer);
    }
}

/// True if somebody reads it.
fn is_read(board: &Board<Shared>) -> bool {
    board.readers().iter().any(|seat| seat.standing == Standing::Here)
}

/// True if ranks of a group may still come, which are to find it by its name.
fn is_awaited(board: &Board<Shared>) -> bool {
    board.groups() > 0
}

/// The lock of a board.
pub(crate) fn lock<'b, W: crate::words::Words>(
    name: &str,
    board: &'b Board<W>,
    me: Who,
) -> Result<Guard<'b, W>> {
    board.lock(me, &is_alive).map_err(|who| {
        let message = format!("process {} keeps stream '{name}' locked", who.number);
        Error::new(Kind::Timeout, message).with_hint("is it stopped? let it go on, or end it")
    })
}

fn unlikely(agreed: &Agreed) -> Error {
    let Agreed { writers, keep, queue, .. } = agreed;
    Error::usage(format!(
        "{writers} writers that keep {keep} steps and queue {queue} are too few or too many"
    ))
    .with_hint("there are 1 to 4096 writers on a node, and at least one step is queued")
}

fn unlike(name: &str, there: &Agreed, mine: &Agreed) -> Error {
    let said = |a: &Agreed| {
        let Agreed { writers, keep, queue, memory, expect, all, record, .. } = a;
        let place = match *record {
            0 => String::new(),
            recorded::CHOSEN => format!(", spill '{}'", recorded::AUTO),
            place => format!(", persist in folder {:04x}", place & 0xFFFF),
        };
        let of = if all == writers { String::new() } else { format!(" of {all} here") };
        format!(
            "writers {writers}{of}, keep {keep}, queue {queue}, memory {memory}, readers {expect}{place}"
        )
    };
    Error::usage(format!(
        "stream '{name}' has {}, and this writer says {}",
        said(there),
        said(mine)
    ))
    .with_hint(
        "all writers of a stream are to say the same; or another program writes one of this name",
    )
}

fn another(name: &str) -> Error {
    Error::usage(format!("stream '{name}' is being written by somebody else"))
        .with_hint("give it another name, or wait until it is closed")
}

fn no_writer(name: &str, writer: usize, agreed: &Agreed, taken: &Taken) -> Error {
    let is = |how: &str| Error::usage(format!("writer {writer} of stream '{name}' {how}"));
    match taken {
        Taken::By(who) => is(&format!("is process {} already", who.number))
            .with_hint("give each writer a number of its own, or the stream another name"),
        Taken::Was(_) => is("has closed it, and the others have not")
            .with_hint("let all writers begin anew, when those that are left have ended"),
        _ => is(&format!("is none: there are {}", agreed.writers)),
    }
}

/// What a group says of itself.
fn said(policy: Policy) -> String {
    let behind = match policy.rule {
        Rule::Block => "block",
        Rule::Drop => "drop",
        Rule::Spill => "spill",
    };
    let queue = policy.queue.map_or_else(|| "of the stream".to_owned(), |queue| queue.to_string());
    format!("behind {behind}, queue {queue}, keep {}", policy.keep)
}

/// Why somebody is not a reader.
pub(crate) fn no_reader(name: &str, options: &Read, taken: &Taken) -> Error {
    let Read { group, rank, ranks, .. } = options;
    let is = |how: String| {
        Error::usage(format!("rank {rank} of the readers '{group}' of stream '{name}' {how}"))
    };
    match taken {
        Taken::By(who) => is(format!("is process {} already", who.number))
            .with_hint("give each rank a number of its own, or the group another name"),
        Taken::Other(size, _) if size != ranks => {
            is(format!("says that there are {ranks}, and others say {size}"))
                .with_hint("all ranks of a group say how many they are")
        }
        Taken::Other(_, there) => {
            let (mine, there) = (said(options.policy()), said(*there));
            is(format!("says something else than others: {mine}, and they say {there}"))
                .with_hint("all ranks of a group say the same of what happens when it is behind, of queue and of keep")
        }
        Taken::Unfit(most) => {
            let policy = said(options.policy());
            is(format!("says {policy}, and the stream has places for {most} steps that are kept and queued"))
                .with_hint("keep or queue fewer, or let writers give the stream a larger keep or queue: places are made for those")
        }
        Taken::Full => is("finds no place".to_owned())
            .with_hint("there may be 64 groups and 1024 readers at a time on a node"),
        _ => is(format!("is none of {ranks}, or the name of the group is longer than 64 bytes")),
    }
}
