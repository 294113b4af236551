//! Enums whose variants are fixed words.

/// Defines an enum whose variants are words on the wire. The first variant is the default.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $first:ident = $first_word:literal $(, $(#[$doc:meta])* $variant:ident = $word:literal)* $(,)? }) => {
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        $(#[$meta])*
        pub enum $name {
            #[default]
            #[serde(rename = $first_word)]
            $first,
            $( $(#[$doc])* #[serde(rename = $word)] $variant, )*
        }

        impl $name {
            pub const ALL: &'static [Self] = &[Self::$first, $(Self::$variant),*];

            pub const fn as_str(self) -> &'static str {
                match self {
                    Self::$first => $first_word,
                    $( Self::$variant => $word, )*
                }
            }

            /// Returns the variant with this word.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == word)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

pub(crate) use words;
