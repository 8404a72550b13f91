//! The items that other crates of this workspace and the tests use in addition to the public API: the seam of
//! the store and the values of its rows. No version number covers this module.

#[cfg(feature = "sqlite")]
pub use crate::store::sql::class_of_code;
#[cfg(feature = "mysql")]
pub use crate::store::sql::class_of_number;
#[cfg(feature = "postgres")]
pub use crate::store::sql::class_of_state;
pub use crate::{
    codec::{DecodeError, EncodeError, decode, encode},
    instance::{Claim, ClusterView, Member, seed_identities},
    record::{BoxedError, Cancel, Change, Deadline, Due, Named, NewRecord, Settlement, Stop},
    store::{memory::conditions, *},
};
