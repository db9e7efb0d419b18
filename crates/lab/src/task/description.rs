//! A task description as it is written: TOML. What it says is checked in `check.rs`.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use toml::Spanned;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    pub name: Option<String>,
    pub about: Option<String>,
    pub kernel: Spanned<Kernel>,
    #[serde(default)]
    pub sizes: BTreeMap<String, Spanned<Several<i64>>>,
    #[serde(default)]
    pub constants: BTreeMap<String, Spanned<Formula>>,
    #[serde(default)]
    pub input: Vec<Spanned<Buffer>>,
    #[serde(default)]
    pub output: Vec<Spanned<Buffer>>,
    #[serde(default)]
    pub inout: Vec<Spanned<Buffer>>,
    #[serde(default)]
    pub scratch: Vec<Spanned<Buffer>>,
    #[serde(default)]
    pub launch: Vec<Spanned<Launch>>,
    pub reference: Option<Spanned<Reference>>,
    pub tolerance: Option<Spanned<Tolerance>>,
    pub work: Option<Spanned<Work>>,
    pub time: Option<BTreeMap<String, Spanned<i64>>>,
}

/// `[kernel]`: the source and, if there is one launch, that.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    pub source: Spanned<String>,
    #[serde(default)]
    pub options: Vec<String>,
    #[serde(default)]
    pub deterministic: bool,
    pub steps: Option<Spanned<u64>>,
    pub entry: Option<Spanned<String>>,
    pub grid: Option<Spanned<Several<Formula>>>,
    pub block: Option<Spanned<Several<Formula>>>,
    pub cluster: Option<Spanned<Several<Formula>>>,
    pub shared: Option<Spanned<Formula>>,
    pub arguments: Option<Spanned<Vec<Formula>>>,
}

/// `[[launch]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    pub entry: Option<Spanned<String>>,
    pub grid: Spanned<Several<Formula>>,
    pub block: Spanned<Several<Formula>>,
    pub cluster: Option<Spanned<Several<Formula>>>,
    pub shared: Option<Spanned<Formula>>,
    pub arguments: Spanned<Vec<Formula>>,
    pub repeat: Option<Spanned<Formula>>,
}

/// `[[input]]`, `[[output]]`, `[[inout]]`, `[[scratch]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    pub name: Spanned<String>,
    pub element: Spanned<String>,
    pub shape: Spanned<Several<Formula>>,
    pub values: Option<Spanned<Formula>>,
    pub file: Option<Spanned<String>>,
    pub may_alias: Option<Spanned<String>>,
    pub tolerance: Option<Spanned<Tolerance>>,
}

/// `[reference]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    pub expression: Option<Spanned<String>>,
    pub expressions: Option<BTreeMap<String, Spanned<String>>>,
    pub python: Option<Spanned<String>>,
    pub function: Option<String>,
    pub seconds: Option<Spanned<f64>>,
    pub files: Option<BTreeMap<String, Spanned<String>>>,
    pub kernel: Option<Spanned<String>>,
    pub source: Option<Spanned<String>>,
    pub grid: Option<Spanned<Several<Formula>>>,
    pub block: Option<Spanned<Several<Formula>>>,
    pub arguments: Option<Spanned<Vec<Formula>>>,
}

/// `[tolerance]`, also of one output.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tolerance {
    pub absolute: Option<f64>,
    pub relative: Option<f64>,
    pub depth: Option<Spanned<Formula>>,
}

/// `[work]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    pub flops: Option<Spanned<Formula>>,
    pub bytes: Option<Spanned<Formula>>,
}

/// A number, or an expression as text.
#[derive(Clone, Debug, PartialEq)]
pub enum Formula {
    Whole(i64),
    Number(f64),
    Text(String),
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Formula::Whole(number) => number.fmt(f),
            Formula::Number(number) => number.fmt(f),
            Formula::Text(text) => text.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Formula {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl Visitor<'_> for Visit {
            type Value = Formula;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or an expression in quotation marks")
            }

            fn visit_i64<E>(self, number: i64) -> Result<Formula, E> {
                Ok(Formula::Whole(number))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Formula, E> {
                Ok(Formula::Number(number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Formula, E> {
                Ok(Formula::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// One thing, or a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Several<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Several<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<T>(std::marker::PhantomData<T>);
        macro_rules! single {
            ($($visit:ident: $type:ty),*) => {
                $(fn $visit<E: serde::de::Error>(self, value: $type) -> Result<Several<T>, E> {
                    let one = serde::de::IntoDeserializer::<E>::into_deserializer(value);
                    T::deserialize(one).map(|one| Several(vec![one]))
                })*
            };
        }
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Visit<T> {
            type Value = Several<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, an expression in quotation marks, or a list of them")
            }

            single!(visit_i64: i64, visit_f64: f64, visit_str: &str);

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Several<T>, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Several)
            }
        }
        deserializer.deserialize_any(Visit(std::marker::PhantomData))
    }
}
