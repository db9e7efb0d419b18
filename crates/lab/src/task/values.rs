//! What buffers hold at the start, as descriptions write it: `uniform`, `normal(0, 2)`, `integers(0, n)`.

use super::RandomValues;
use crate::{
    expression::{Expression, ExpressionError, Scope},
    inputs::Distribution,
};

/// A distribution without its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Uniform,
    Normal,
    Integers,
    Constant,
    Index,
    Special,
    Sorted,
    Permutation,
}

/// The names, and the parameters where none are given.
const KINDS: [(&str, Kind, &[f64]); 10] = [
    ("uniform", Kind::Uniform, &[-1.0, 1.0]),
    ("normal", Kind::Normal, &[0.0, 1.0]),
    ("integers", Kind::Integers, &[0.0, 10.0]),
    ("constant", Kind::Constant, &[0.0]),
    ("zeros", Kind::Constant, &[0.0]),
    ("ones", Kind::Constant, &[1.0]),
    ("index", Kind::Index, &[]),
    ("special", Kind::Special, &[]),
    ("sorted", Kind::Sorted, &[-1.0, 1.0]),
    ("permutation", Kind::Permutation, &[]),
];

impl RandomValues {
    /// Reads a distribution; what is wrong with it otherwise.
    pub(super) fn parse(text: &str) -> Result<RandomValues, String> {
        let text = text.trim();
        let (name, inside) = match text.split_once('(') {
            None => (text, None),
            Some((name, rest)) => {
                let inside = rest.trim_end().strip_suffix(')').ok_or("a `)` is missing")?;
                (name.trim(), Some(inside))
            }
        };
        let Some(&(_, kind, defaults)) = KINDS.iter().find(|(known, ..)| *known == name) else {
            let known: Vec<&str> = KINDS.iter().map(|(name, ..)| *name).collect();
            let shown: String = name.chars().take(40).collect();
            return Err(format!("there is no distribution {shown:?}; there are {}", known.join(", ")));
        };
        let texts: Vec<String> = match inside {
            None => defaults.iter().map(f64::to_string).collect(),
            Some(inside) => split(inside),
        };
        if texts.len() != defaults.len() {
            return Err(format!("{name} takes {} parameters, not {}", defaults.len(), texts.len()));
        }
        let parameters: Result<Vec<Expression>, _> =
            texts.iter().map(|text| Expression::parse(text)).collect();
        Ok(RandomValues { kind, parameters: parameters.map_err(|error| error.to_string())? })
    }

    /// What it usually is if a description says nothing.
    pub(super) fn usual(whole: bool) -> RandomValues {
        let (kind, parameters) =
            if whole { (Kind::Integers, [0.0, 10.0]) } else { (Kind::Uniform, [-1.0, 1.0]) };
        // Numbers are expressions.
        let parameters =
            parameters.iter().filter_map(|number| Expression::parse(&number.to_string()).ok()).collect();
        RandomValues { kind, parameters }
    }

    /// One number everywhere.
    pub(super) fn constant(number: f64) -> Result<RandomValues, String> {
        let parameter = Expression::parse(&format!("{number:e}")).map_err(|error| error.to_string())?;
        Ok(RandomValues { kind: Kind::Constant, parameters: vec![parameter] })
    }
}

/// Parameters at the commas that lie in no parentheses.
fn split(inside: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0i32);
    for c in inside.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}

impl Kind {
    /// The distribution for some sizes.
    pub fn distribution(
        self,
        parameters: &[Expression],
        scope: &Scope,
    ) -> Result<Distribution, ExpressionError> {
        let mut values = [0.0; 2];
        for (value, parameter) in values.iter_mut().zip(parameters) {
            *value = parameter.evaluate(scope)?;
        }
        let [a, b] = values;
        Ok(match self {
            Kind::Uniform => Distribution::Uniform(a, b),
            Kind::Normal => Distribution::Normal(a, b),
            Kind::Integers => Distribution::Integers(a, b),
            Kind::Constant => Distribution::Constant(a),
            Kind::Index => Distribution::Index,
            Kind::Special => Distribution::Special,
            Kind::Sorted => Distribution::Sorted(a, b),
            Kind::Permutation => Distribution::Permutation,
        })
    }
}
