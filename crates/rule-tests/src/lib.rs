//! The property tests of the rules stand in `tests/`. This library is empty.
