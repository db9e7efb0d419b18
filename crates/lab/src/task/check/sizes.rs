//! Sizes and constants.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{Checked, Checker};
use crate::{
    Element,
    expression::Expression,
    task::{Sizes, description},
};

/// The most sizes of a task.
const MAX_SIZES: usize = 64;
/// The largest value of a size: beyond it, f64 does not count every number.
const MAX_SIZE: i64 = 1 << 48;

impl Checker {
    /// The lists of sizes, taken row by row: lists of one value go with every row.
    pub(super) fn sizes(
        &mut self,
        sizes: &BTreeMap<String, Spanned<description::Several<i64>>>,
    ) -> Checked<Vec<Sizes>> {
        let mut rows = 1;
        for (name, values) in sizes {
            let field = format!("sizes.{name}");
            self.note(&field, values);
            self.name(&field, name)?;
            let values = &values.get_ref().0;
            if values.is_empty() || values.len() > MAX_SIZES {
                return self
                    .wrong(&field, format!("it has {} values; 1 to {MAX_SIZES} are possible", values.len()));
            }
            if let Some(value) = values.iter().find(|value| !(0..=MAX_SIZE).contains(*value)) {
                return self.wrong(&field, format!("{value} is not a size: it must be from 0 to {MAX_SIZE}"));
            }
            if values.len() > 1 {
                if rows > 1 && rows != values.len() {
                    let what = format!(
                        "it has {} values, but another size has {rows}: lists are taken row by row, so that they need the same \
                         length (or one value, which goes with every row)",
                        values.len()
                    );
                    return self.wrong(&field, what);
                }
                rows = values.len();
            }
        }
        let row = |row: usize| {
            let value = |values: &[i64]| values.get(row).or(values.first()).copied().unwrap_or(0) as u64;
            Sizes(sizes.iter().map(|(name, values)| (name.clone(), value(&values.get_ref().0))).collect())
        };
        Ok((0..rows).map(row).collect())
    }

    /// Constants in an order in which each uses only those before it.
    #[allow(clippy::type_complexity)]
    pub(super) fn constants(
        &mut self,
        constants: &BTreeMap<String, Spanned<description::Formula>>,
        sizes: &BTreeMap<String, Spanned<description::Several<i64>>>,
    ) -> Checked<Vec<(String, Expression, Option<Element>)>> {
        let mut left = Vec::new();
        for (name, formula) in constants {
            let field = format!("constants.{name}");
            let expression = match formula.get_ref() {
                // Infinities and NaN have no digits.
                description::Formula::Number(number) if !number.is_finite() => {
                    self.note(&field, formula);
                    return self.wrong(&field, "it is not a finite number");
                }
                description::Formula::Number(number) => {
                    self.note(&field, formula);
                    self.parsed(&field, &description::Formula::Text(format!("{number:e}")))?
                }
                _ => self.expression(&field, formula)?,
            };
            self.name(&field, name)?;
            if sizes.contains_key(name) {
                return self.wrong(&field, "a size has the same name");
            }
            let element = match formula.get_ref() {
                description::Formula::Whole(_) => Some(Element::I32),
                description::Formula::Number(_) => Some(Element::F32),
                description::Formula::Text(_) => None,
            };
            left.push((name.clone(), expression, element));
        }
        let mut ordered: Vec<(String, Expression, Option<Element>)> = Vec::new();
        while !left.is_empty() {
            let is_known =
                |name: &String| sizes.contains_key(name) || ordered.iter().any(|(known, ..)| known == name);
            let ready = left.iter().position(|(_, expression, _)| expression.names().iter().all(is_known));
            let Some(ready) = ready else {
                // Other expressions only wait for this one. The error names the expression with the unknown name.
                let unknown = left.iter().find_map(|(name, expression, _)| {
                    let is_unknown = |name: &&String| !is_known(name) && !constants.contains_key(*name);
                    Some((name, expression, expression.names().iter().find(is_unknown)?))
                });
                let (name, what) = match unknown {
                    Some((name, expression, unknown)) => {
                        let what =
                            format!("`{expression}` names {unknown}, which is neither a size nor a constant");
                        (name, what)
                    }
                    None => {
                        let (name, expression, _) = &left[0];
                        let circle = "leads back to itself: constants must not define each other in a circle";
                        (name, format!("`{expression}` {circle}"))
                    }
                };
                return self.wrong(&format!("constants.{name}"), what);
            };
            ordered.push(left.remove(ready));
        }
        Ok(ordered)
    }

    /// The sizes that are timed: the last of the list, with the values of `[time]` in place of its own.
    pub(super) fn time(
        &mut self,
        sizes: &[Sizes],
        time: Option<&BTreeMap<String, Spanned<i64>>>,
    ) -> Checked<Sizes> {
        let mut chosen = sizes.last().cloned().unwrap_or_default();
        for (name, value) in time.into_iter().flatten() {
            let field = format!("time.{name}");
            self.note(&field, value);
            match (chosen.0.get_mut(name), *value.get_ref()) {
                (Some(size), value @ 0..=MAX_SIZE) => *size = value as u64,
                (Some(_), value) => return self.wrong(&field, format!("{value} is not a size")),
                (None, _) => return self.wrong(&field, "there is no such size under [sizes]"),
            }
        }
        Ok(chosen)
    }
}
