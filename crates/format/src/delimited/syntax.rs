//! Where records end: the automaton of quotes.
//!
//! A newline between quotes is data, so whether a newline ends a record depends on every quote before it
//! in the file. The automaton has six states, and what a stretch of bytes does to it is a map from states
//! to states, which can be computed without knowing the state at its start. Such maps are composed in file
//! order, so that extents can be looked at in any order.

use memchr::{memchr, memchr_iter, memchr2};

/// Where in a record a byte lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum State {
    /// At the first byte of a record.
    #[default]
    Record = 0,
    /// At the first byte of a field that is not the first one.
    Field = 1,
    /// In a field without quotes, or after the quotes of one.
    Plain = 2,
    /// Between quotes.
    Quoted = 3,
    /// Right after a quote between quotes: the end of them, or the first half of a doubled quote.
    Closed = 4,
    /// In a comment line.
    Comment = 5,
}

impl State {
    const ALL: [State; 6] =
        [State::Record, State::Field, State::Plain, State::Quoted, State::Closed, State::Comment];

    /// The state of a number.
    pub fn of(number: u8) -> Option<State> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// What a stretch of bytes does to the state, for every state it may begin in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition([State; 6]);

impl Transition {
    /// The state after the stretch.
    pub fn apply(&self, before: State) -> State {
        self.0[before as usize]
    }

    /// What this stretch and the next one do together.
    pub fn then(&self, next: &Transition) -> Transition {
        Transition(self.0.map(|s| next.apply(s)))
    }

    /// Whatever the state is, this one comes after it.
    pub fn to(state: State) -> Transition {
        Transition([state; 6])
    }

    /// The state after each of [`State::of`], in order.
    pub fn states(&self) -> [State; 6] {
        self.0
    }

    /// As [`Transition::states`] gives them.
    pub fn from_states(states: [State; 6]) -> Transition {
        Transition(states)
    }
}

impl Default for Transition {
    /// That of no bytes.
    fn default() -> Self {
        Transition(State::ALL)
    }
}

/// The bytes with a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syntax {
    /// Between fields.
    pub delimiter: u8,
    /// Around fields that hold delimiters, newlines or quotes (doubled).
    pub quote: Option<u8>,
    /// At the start of lines that are no records.
    pub comment: Option<u8>,
}

impl Syntax {
    /// Lines: every newline ends a record.
    pub const LINES: Syntax = Syntax { delimiter: b'\n', quote: None, comment: None };

    /// True if every newline ends a record, so that one can be found from anywhere.
    pub fn is_simple(&self) -> bool {
        self.quote.is_none()
    }

    /// The state after one byte.
    fn step(&self, state: State, b: u8) -> State {
        use State::{Closed, Comment, Field, Plain, Quoted, Record};
        let open = |b: u8| {
            if b == b'\n' {
                Record
            } else if b == self.delimiter {
                Field
            } else {
                Plain
            }
        };
        match state {
            Comment => {
                if b == b'\n' {
                    Record
                } else {
                    Comment
                }
            }
            Quoted => {
                if Some(b) == self.quote {
                    Closed
                } else {
                    Quoted
                }
            }
            Record if Some(b) == self.comment => Comment,
            Record | Field | Closed if Some(b) == self.quote => Quoted,
            _ => open(b),
        }
    }

    /// The state after `text`.
    pub fn advance(&self, mut state: State, text: &[u8]) -> State {
        let (Some(quote), None) = (self.quote, self.comment) else {
            return text.iter().fold(state, |s, b| self.step(s, *b));
        };
        let mut i = 0;
        while i < text.len() {
            match memchr(quote, &text[i..]) {
                None if state == State::Quoted => return State::Quoted,
                // Without quotes the last byte says it all.
                None => return self.step(State::Plain, text[text.len() - 1]),
                Some(n) => {
                    if n > 0 && state != State::Quoted {
                        state = self.step(State::Plain, text[i + n - 1]);
                    }
                    state = self.step(state, quote);
                    i += n + 1;
                }
            }
        }
        state
    }

    /// What `text` does to every state, in one look at the bytes.
    pub fn transition(&self, text: &[u8]) -> Transition {
        let (Some(quote), None) = (self.quote, self.comment) else {
            return Transition(State::ALL).of(|s| self.advance(s, text));
        };
        let first = text.iter().position(|b| *b != quote).unwrap_or(text.len());
        let start = State::ALL.map(|s| text[..first].iter().fold(s, |s, b| self.step(s, *b)));
        let Some(byte) = text.get(first) else { return Transition(start) };
        // After a byte that is no quote there are two cases left: between quotes or not.
        let mut ends = [self.step(State::Plain, *byte), State::Quoted];
        let rest = &text[first + 1..];
        let past = |s: State, gap: &[u8]| match gap.last() {
            Some(last) if s != State::Quoted => self.step(State::Plain, *last),
            _ => s,
        };
        let mut at = 0;
        for q in memchr_iter(quote, rest) {
            let gap = &rest[at..q];
            ends = ends.map(|s| self.step(past(s, gap), quote));
            at = q + 1;
        }
        ends = ends.map(|s| past(s, &rest[at..]));
        Transition(start.map(|s| ends[usize::from(s == State::Quoted)]))
    }

    /// The index after the record that begins (or goes on, by `state`) at `from`; the state at the end
    /// of `text` if the record does not end in it.
    pub fn record_end(&self, text: &[u8], from: usize, state: State) -> Result<usize, State> {
        let Some(quote) = self.quote else {
            return memchr(b'\n', &text[from..]).map(|n| from + n + 1).ok_or(State::Plain);
        };
        let mut state = state;
        let mut i = from;
        if self.comment.is_some()
            && (state == State::Comment
                || state == State::Record && text.get(i).copied() == self.comment)
        {
            return memchr(b'\n', &text[i..]).map(|n| i + n + 1).ok_or(State::Comment);
        }
        while i < text.len() {
            if state == State::Quoted {
                let Some(n) = memchr(quote, &text[i..]) else { return Err(State::Quoted) };
                i += n + 1;
                state = State::Closed;
                continue;
            }
            let Some(n) = memchr2(quote, b'\n', &text[i..]) else {
                return Err(self.step(State::Plain, text[text.len() - 1]));
            };
            if text[i + n] == b'\n' {
                return Ok(i + n + 1);
            }
            if n > 0 {
                state = self.step(State::Plain, text[i + n - 1]);
            }
            state = self.step(state, quote);
            i += n + 1;
        }
        Err(state)
    }
}

impl Transition {
    /// Maps every distinct state once.
    fn of(self, f: impl Fn(State) -> State) -> Transition {
        let mut known = [None; 6];
        Transition(self.0.map(|s| *known[s as usize].get_or_insert_with(|| f(s))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CSV: Syntax = Syntax { delimiter: b',', quote: Some(b'"'), comment: None };
    const NOTED: Syntax = Syntax { comment: Some(b'#'), ..CSV };

    proptest! {
        #[test]
        fn the_fast_walk_is_the_slow_one(text in "[\",a\n#\r]{0,24}", cut in 0usize..24) {
            for syntax in [CSV, NOTED] {
                let bytes = text.as_bytes();
                for s in State::ALL {
                    if s == State::Comment && syntax.comment.is_none() {
                        continue;
                    }
                    let slow = bytes.iter().fold(s, |s, b| syntax.step(s, *b));
                    prop_assert_eq!(syntax.advance(s, bytes), slow);
                    prop_assert_eq!(syntax.transition(bytes).apply(s), slow);
                    let (a, b) = bytes.split_at(cut.min(bytes.len()));
                    let two = syntax.transition(b).apply(syntax.transition(a).apply(s));
                    prop_assert_eq!(two, slow);
                    // A record ends at the first byte after which a new one may start.
                    let mut at = s;
                    let mut end = Err(slow);
                    for (i, b) in bytes.iter().enumerate() {
                        at = syntax.step(at, *b);
                        if at == State::Record {
                            end = Ok(i + 1);
                            break;
                        }
                    }
                    prop_assert_eq!(syntax.record_end(bytes, 0, s), end);
                }
            }
        }
    }
}
