//! The pages of the repository, so that their code is compiled as the code of the docs is.

#[doc = include_str!("../README.md")]
pub struct Readme;

#[doc = include_str!("../docs/handlers.md")]
pub struct Handlers;

#[doc = include_str!("../docs/upgrades.md")]
pub struct Upgrades;

#[doc = include_str!("../docs/other-clients.md")]
pub struct OtherClients;

#[doc = include_str!("../docs/extending.md")]
pub struct Extending;
