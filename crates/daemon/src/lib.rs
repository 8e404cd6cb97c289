//! The daemon of a node: it takes transfers of all users, does them with the rights of each, and tells how far they are.
//!
//! The broker (`broker`) owns the socket. It reads nothing that users send: it looks whose a connection is and hands it to the
//! worker of that user, a process that has the rights of that user and no others (`rights`). The worker (`worker`) has the
//! user's journal and queue, and answers (`protocol`). How many transfers each user has under way at a time, and how many bytes a second
//! in each dataspace, the broker says (`share`). Flows run in the worker, too (`flows`). Daemons of several nodes may be a pool (`pool`): a connection to another node goes through both (`reach`).

mod admin;
mod administer;
mod answers;
mod besides;
mod broker;
mod calendar;
mod client;
mod clients;
mod clock;
mod coming;
mod control;
mod counts;
mod flows;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod job;
mod log;
mod metrics;
mod notify;
mod persist;
pub mod pool;
pub mod protocol;
mod reach;
mod refuse;
mod rights;
mod share;
mod socket;
mod streams;
mod tidy;
mod turn;
mod worker;

pub use admin::Numbers;
pub use besides::{dataspaces_besides, dataspaces_named, learn};
pub use broker::{Settings, serve, serve_in_pool, serves_all};
pub use client::{Client, nobody};
pub use clients::Clients;
pub use flows::{FlowOptions, FlowStanding, FlowState};
pub use frame::{MOST as MOST_FRAME, read as read_frame, write as write_frame};
pub use persist::{PersistAsk, persist};
pub use reach::ByDaemon;
pub use rights::user_number;
pub use socket::socket_path;
pub use streams::StreamNodes;
pub use worker::work;
