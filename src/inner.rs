//! What the other members of this workspace and the tests use beyond the public API: the seam of the store and
//! the words of its rows. No version number promises anything about this module.

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
