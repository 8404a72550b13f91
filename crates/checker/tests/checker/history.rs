//! Histories are read back as they were written.
