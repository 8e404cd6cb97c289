//! What is asked for of a session, with or without a deadline of its own.

use crate::finish::{AsView, Beside, Into, Strided};
use crate::request::{Pending, Read, ReadInto};
use crate::room::zeros;
use crate::session::Session;
use std::time::Duration;

/// A session whose requests have a deadline of their own: what [`Session::within`] gives. Its functions are those of the
/// session.
#[derive(Clone, Copy)]
pub struct Within<'a> {
    session: &'a Session,
    deadline: Option<Duration>,
}

impl<'a> Within<'a> {
    /// `None` is the deadline of the options.
    pub(crate) fn new(session: &'a Session, deadline: Option<Duration>) -> Within<'a> {
        Within { session, deadline }
    }

    /// As [`Session::read`].
    pub fn read(self, offset: u64, len: usize) -> Read {
        Read(self.session.ask(offset, len, self.deadline, || AsView::new(offset, len)))
    }

    /// As [`Session::read_into`].
    pub fn read_into<B: AsMut<[u8]> + Send + 'static>(
        self,
        offset: u64,
        mut buffer: B,
    ) -> ReadInto<B> {
        let len = buffer.as_mut().len();
        ReadInto(self.session.ask(offset, len, self.deadline, || Into::new(offset, len, buffer)))
    }

    /// As [`Session::read_many`]; each of the reads has the deadline.
    pub fn read_many(self, ranges: &[(u64, usize)]) -> Vec<Read> {
        ranges.iter().map(|(offset, len)| self.read(*offset, *len)).collect()
    }

    /// As [`Session::read_strided`].
    pub fn read_strided(
        self,
        offset: u64,
        len: usize,
        stride: usize,
        count: usize,
    ) -> ReadInto<Vec<u8>> {
        let session = self.session;
        let span = match count {
            0 => Some(0),
            n => stride.checked_mul(n - 1).and_then(|s| s.checked_add(len)),
        };
        let total = len.checked_mul(count);
        let (Some(span), Some(total)) = (span, total) else {
            return ReadInto(session.outside(offset, usize::MAX));
        };
        if len > stride && count > 1 {
            let message = format!("pieces of {len} bytes overlap at a distance of {stride}");
            return ReadInto(Pending::Ready(Some(Err(session.refusal(message, offset)))));
        }
        let span = if len == 0 { 0 } else { span };
        // A range that is refused needs no memory.
        let range = session.range();
        let within = offset >= range.start
            && offset.checked_add(span as u64).is_some_and(|end| end <= range.end);
        let out = match zeros(if within { total } else { 0 }) {
            Ok(out) => out,
            Err(error) => return ReadInto(Pending::Ready(Some(Err(error)))),
        };
        // One piece has no distance to the next.
        let stride = if count > 1 { stride.max(1) } else { len.max(1) };
        let strided = || Strided { offset, len, stride, out, beside: Beside::default() };
        ReadInto(session.ask(offset, span, self.deadline, strided))
    }
}
