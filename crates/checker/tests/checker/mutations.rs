//! Each mutation of a valid history is caught under its number.
