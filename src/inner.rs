//! What the other members of this workspace and the tests use beyond the public API: the seam of the store and
//! the words of its rows. No version number promises anything about this module.

pub use crate::{
    instance::{Claim, ClusterView, Member, seed_identities},
    record::{Cancel, Change, Deadline, Due, Named, NewRecord, Settlement, Stop},
    store::{memory::conditions, *},
};
