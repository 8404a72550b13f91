//! What the macros accept and refuse stands in `tests/`. This library runs the examples of their documentation.

#[cfg(doctest)]
mod examples {
    #[doc = include_str!("../../macros/src/doc/event.md")]
    struct Event;

    #[doc = include_str!("../../macros/src/doc/handler.md")]
    struct Handler;

    #[doc = include_str!("../../macros/src/doc/fallback.md")]
    struct Fallback;
}
