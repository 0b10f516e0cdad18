//! The same configuration and the same traffic through two servers, and what each made of it.
//!
//! - [`Case`] is one exchange: what a caller and the next hop send, byte for byte (`tests/differential/*.txt`,
//!   the torture messages, and [`generated`] ones);
//! - [`play`] sends all cases of a profile through one server and returns an [`Outcome`] for each;
//! - [`differences`] compares two servers' outcomes, [`Expected`] is the list of those that are known;
//! - [`Normal`] is an outcome in the form in which they are compared; it tells what a careless next hop would
//!   read, too.

mod compare;
mod draft;
mod generated;
mod normal;
mod readers;
mod stage;
mod text;
mod traffic;

pub use compare::{Difference, Expected, differences};
pub use generated::generated;
pub use normal::Normal;
pub use readers::DOES_NOT_UNFOLD;
pub use stage::{Outcome, Play, play};
pub use traffic::{Case, torture, traffic};
