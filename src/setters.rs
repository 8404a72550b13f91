//! Setters of settings: one line per field of a struct. Code outside of the crate cannot write such a struct
//! as a literal, because the struct may get more fields.

/// A setter under the name of its field; `Option` fields are set to `Some`.
macro_rules! setters {
    ($config:ident { $($field:ident: $type:ty),* $(; some $some:ident: $inner:ty)* $(,)? }) => {
        impl $config {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](field@Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, value: impl Into<$type>) -> Self {
                    self.$field = value.into();
                    self
                }
            )*
            $(
                #[doc = concat!("Sets [`", stringify!($some), "`](field@Self::", stringify!($some), ").")]
                #[must_use]
                pub fn $some(mut self, value: impl Into<$inner>) -> Self {
                    self.$some = Some(value.into());
                    self
                }
            )*
        }
    };
}

pub(crate) use setters;
