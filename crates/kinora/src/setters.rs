//! Options that can grow: a struct that is `#[non_exhaustive]`, and a setter for each of its fields.

/// A setter for each field named, which takes the value and gives back the whole: `options.quality(90).overwrite(true)`.
macro_rules! setters {
    ($($(#[$attribute:meta])* $field:ident: $type:ty),+ $(,)?) => {$(
        $(#[$attribute])*
        #[doc = concat!("The same with another [`", stringify!($field), "`](field@Self::", stringify!($field), ").")]
        #[must_use]
        pub fn $field(mut self, $field: $type) -> Self {
            self.$field = $field.into();
            self
        }
    )+};
}

pub(crate) use setters;
