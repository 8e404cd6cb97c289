//! What has become of readers, as writers are told of it.

use crate::board::{Seat, Standing};
use crate::describe::{Peer, Presence, peer};
use serde::Serialize;
use std::collections::HashMap;

/// A reader has come, has closed the stream, or has ended without a word.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// Which reader it is, which steps it was given, how many it has missed, and which comes next for it. Its [`presence`](Peer::presence) is what has become of it.
    #[serde(flatten)]
    pub reader: Peer,
}

/// What was told so far.
#[derive(Debug, Default)]
pub(crate) struct Told(HashMap<u64, Standing>);

impl Told {
    /// What is new since the last time.
    pub(crate) fn news(&mut self, seats: Vec<Seat>, complete: u64) -> Vec<Event> {
        let mut now = HashMap::with_capacity(seats.len());
        let mut events = Vec::new();
        for seat in seats {
            let (number, standing) = (seat.number, seat.standing);
            let before = self.0.get(&number).copied();
            let reader = peer(seat);
            // Who is done for good is past every step.
            let reader = Peer { step: reader.step.min(complete), ..reader };
            if before.is_none() && standing != Standing::Here {
                events.push(Event { reader: Peer { presence: Presence::Here, ..reader.clone() } });
            }
            if before != Some(standing) {
                events.push(Event { reader });
            }
            now.insert(number, standing);
        }
        // Places of those who have gone are those of others by and by.
        self.0 = now;
        events
    }
}
