//! Blocks of neighbours that this rank looks at, and how they are given back.

use super::service::Out;
use super::wire::BEFORE;
use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use stead_store::Neighbour;

/// What comes of a request.
pub(crate) enum Answer {
    /// The bytes.
    Bytes(Payload),
    /// They lie in the memory of a neighbour.
    Lent(Loan),
}

impl Answer {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Answer::Bytes(payload) => payload.as_ref(),
            Answer::Lent(loan) => loan.as_ref(),
        }
    }
}

/// A message with bytes.
pub(crate) struct Payload(pub(crate) Vec<u8>);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.0.get(BEFORE..).unwrap_or(&[])
    }
}

/// Bytes that lie in the memory of a neighbour. Dropping them gives them back.
pub(crate) struct Loan {
    pub(crate) neighbour: Arc<Neighbour>,
    pub(crate) owner: usize,
    pub(crate) number: u64,
    pub(crate) at: u64,
    pub(crate) len: usize,
    pub(crate) back: Arc<Returns>,
}

impl Loan {
    /// Has its pages at hand, for whoever looks at them next.
    pub(crate) fn prepare(&self) {
        self.neighbour.populate(self.at, self.len);
    }
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        // They were there when the loan was made, and the mapping does not change.
        self.neighbour.bytes(self.at, self.len).unwrap_or(&[])
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.back.give(self.owner, self.number);
    }
}

/// Loans that are to be given back. Whoever drops a view does not wait for messages: a thread sends them, as many as there
/// are by then in one message.
pub(crate) struct Returns {
    due: Mutex<HashMap<usize, Vec<u64>>>,
    sender: Sender<Out>,
}

impl Returns {
    pub(crate) fn new(sender: Sender<Out>) -> Returns {
        Returns { due: Mutex::default(), sender }
    }

    pub(crate) fn give(&self, owner: usize, number: u64) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers = due.entry(owner).or_default();
        numbers.push(number);
        let first = numbers.len() == 1;
        drop(due);
        if first {
            // When the thread has ended, the owner has, too, or is about to, and keeps what was not given back as it is.
            let _ = self.sender.send(Out::Returns(owner));
        }
    }

    /// What is due to an owner.
    pub(crate) fn take(&self, owner: usize) -> Vec<u64> {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.remove(&owner).unwrap_or_default()
    }
}
