//! Property tests of the rules live in `tests/`; this library is empty.
