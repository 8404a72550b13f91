//! Property tests of the rules and compile tests of the macros live in `tests/`; this library is empty.
