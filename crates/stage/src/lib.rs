//! Staging: moves of files and trees of files between dataspaces that survive whatever ends them.
//!
//! A [`Request`] says what is wanted. It is planned into a list of names, which a journal keeps; threads copy the files in batches
//! under temporary names, and each gets its own when its bytes are durable. Whoever starts again goes on where the journal says.

mod acl;
mod again;
mod budget;
mod bytes;
mod changes;
mod check;
mod clear;
mod clock;
mod commit;
mod compare;
mod copy;
mod down;
mod drive;
mod ends;
mod enough;
mod filter;
mod gentle;
mod given_up;
mod job;
mod journal;
mod keep;
mod limiter;
mod list;
mod manager;
mod meta;
mod moving;
mod others;
mod pace;
mod pattern;
mod place;
mod plan;
mod pull;
mod queue;
pub mod remote;
mod request;
mod room;
mod rules;
mod seats;
mod serve;
mod speeds;
mod status;
mod strays;
mod sum;
mod touch;
pub mod tree;
mod turns;
mod up;
mod usage;
mod work;

pub use changes::{Change, Does};
pub use check::{Checked, Difference, Is};
pub use clear::{Cleared, Over};
pub use ends::fixed as fixed_location;
pub use journal::Journal;
pub use keep::Persisted;
pub use manager::{Means, Stager, fixed, state_folder};
pub use moving::Moving;
pub use others::Others;
pub use queue::{Kind, Load, Queue, Share, Standing, Totals};
pub use request::{Action, Exists, Options, Request};
pub use rules::{Jobs, keep_to_jobs};
pub use status::{Failure, Preview, Progress, State, Status, Watcher, ended_with};
pub use usage::{Usage, configured, usage};
