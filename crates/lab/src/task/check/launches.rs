//! Launches and their arguments.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{Checked, Checker};
use crate::{
    Element,
    expression::{Expression, Scope},
    task::{Argument, Buffer, LaunchPlan, description},
};

/// The most launches of a task.
const MAX_LAUNCHES: usize = 256;
/// How often a launch may be repeated.
pub(crate) const MAX_REPEATS: u64 = 10_000;

/// The parts of a launch, wherever they are written.
pub(super) struct Form<'a> {
    pub(super) entry: Option<&'a Spanned<String>>,
    pub(super) grid: Option<&'a Spanned<description::Several<description::Formula>>>,
    pub(super) block: Option<&'a Spanned<description::Several<description::Formula>>>,
    pub(super) cluster: Option<&'a Spanned<description::Several<description::Formula>>>,
    pub(super) shared: Option<&'a Spanned<description::Formula>>,
    pub(super) arguments: Option<&'a Spanned<Vec<description::Formula>>>,
    pub(super) repeat: Option<&'a Spanned<description::Formula>>,
}

/// The names that launches may use.
pub(super) struct Known<'a> {
    pub(super) buffers: &'a [Buffer],
    pub(super) constants: &'a [(String, Expression, Option<Element>)],
    pub(super) sizes: &'a BTreeMap<String, Spanned<description::Several<i64>>>,
}

impl Known<'_> {
    pub(super) fn is_number(&self, name: &str) -> bool {
        self.sizes.contains_key(name) || self.constants.iter().any(|(known, ..)| known == name)
    }

    /// The type of a number that is an argument by its name alone.
    pub(super) fn usual(&self, name: &str) -> Option<Element> {
        if self.sizes.contains_key(name) || name == "step" {
            return Some(Element::I32);
        }
        self.constants.iter().find(|(known, ..)| known == name).and_then(|(_, _, element)| *element)
    }
}

impl LaunchPlan {
    /// Evaluates everything; the part that is wrong otherwise.
    pub(super) fn check(&self, scope: &Scope) -> Result<(), (&'static str, String)> {
        let repeats = match &self.repeat {
            None => 1,
            Some(repeat) => {
                repeat.count(scope, 0, MAX_REPEATS).map_err(|error| ("repeat", error.to_string()))?
            }
        };
        // Those in between are checked when they run.
        for step in [0, repeats.saturating_sub(1)] {
            self.extents(scope, step).map_err(|(part, error)| (part, error.to_string()))?;
            let mut scope = scope.clone();
            scope.set("step", step as f64);
            for argument in &self.arguments {
                if let Argument::Number(_, expression) = argument {
                    expression.evaluate(&scope).map_err(|error| ("arguments", error.to_string()))?;
                }
            }
        }
        Ok(())
    }
}

impl Checker {
    pub(super) fn launches(
        &mut self,
        kernel: &description::Kernel,
        list: &[Spanned<description::Launch>],
        known: &Known<'_>,
    ) -> Checked<Vec<LaunchPlan>> {
        if list.is_empty() {
            let (Some(grid), Some(block), Some(arguments)) = (&kernel.grid, &kernel.block, &kernel.arguments)
            else {
                return self.wrong("kernel", "say how it is launched: `grid`, `block` and `arguments`, or a [[launch]] for each launch");
            };
            let form = Form {
                entry: kernel.entry.as_ref(),
                grid: Some(grid),
                block: Some(block),
                cluster: kernel.cluster.as_ref(),
                shared: kernel.shared.as_ref(),
                arguments: Some(arguments),
                repeat: None,
            };
            return Ok(vec![self.launch("kernel", &form, known)?]);
        }
        let doubled = kernel.grid.is_some()
            || kernel.block.is_some()
            || kernel.arguments.is_some()
            || kernel.entry.is_some();
        if doubled {
            return self.wrong(
                "kernel",
                "there are [[launch]] tables: `entry`, `grid`, `block` and `arguments` belong there",
            );
        }
        if list.len() > MAX_LAUNCHES {
            return self
                .wrong("kernel", format!("there are more than {MAX_LAUNCHES} launches; use `repeat`"));
        }
        let launch = |(number, launch): (usize, &Spanned<description::Launch>)| {
            let field = format!("launch {}", number + 1);
            self.note(&field, launch);
            let launch = launch.get_ref();
            let form = Form {
                entry: launch.entry.as_ref(),
                grid: Some(&launch.grid),
                block: Some(&launch.block),
                cluster: launch.cluster.as_ref(),
                shared: launch.shared.as_ref(),
                arguments: Some(&launch.arguments),
                repeat: launch.repeat.as_ref(),
            };
            self.launch(&field, &form, known)
        };
        list.iter().enumerate().map(launch).collect()
    }

    pub(super) fn launch(&mut self, field: &str, form: &Form<'_>, known: &Known<'_>) -> Checked<LaunchPlan> {
        let mut extents =
            |name: &str, formulas: Option<&Spanned<description::Several<description::Formula>>>| {
                formulas.map_or(Ok(Vec::new()), |formulas| {
                    self.expressions(&format!("{field}.{name}"), formulas, 3)
                })
            };
        let (grid, block) = (extents("grid", form.grid)?, extents("block", form.block)?);
        let cluster = extents("cluster", form.cluster)?;
        let shared =
            form.shared.map(|shared| self.expression(&format!("{field}.shared"), shared)).transpose()?;
        let repeat =
            form.repeat.map(|repeat| self.expression(&format!("{field}.repeat"), repeat)).transpose()?;
        let entry = form.entry.map(|entry| entry.get_ref().clone());
        let arguments = match form.arguments {
            Some(arguments) => self.arguments(&format!("{field}.arguments"), arguments, known)?,
            None => Vec::new(),
        };
        Ok(LaunchPlan { entry, grid, block, cluster, shared, arguments, repeat })
    }

    pub(super) fn arguments(
        &mut self,
        field: &str,
        arguments: &Spanned<Vec<description::Formula>>,
        known: &Known<'_>,
    ) -> Checked<Vec<Argument>> {
        self.note(field, arguments);
        let mut found = Vec::new();
        for (number, argument) in arguments.get_ref().iter().enumerate() {
            let text = match argument {
                description::Formula::Text(text) => text.trim().to_owned(),
                number => {
                    let what = format!(
                        "write a number with its type, such as \"i32: {number}\" or \"f32: {number}\""
                    );
                    return self.wrong(field, what);
                }
            };
            if let Some(place) = known.buffers.iter().position(|buffer| buffer.name == text) {
                found.push(Argument::Buffer(place));
                continue;
            }
            let (element, expression) = match text.split_once(':') {
                Some((element, expression)) => match Element::named(element.trim()) {
                    Some(element) => (element, expression.to_owned()),
                    None => {
                        let shown = kinora_outside::shortened(element, 40);
                        return self.wrong(
                            field,
                            format!("argument {}: {shown:?} is not a type such as i32 or f32", number + 1),
                        );
                    }
                },
                None => match known.usual(&text) {
                    Some(element) => (element, text.clone()),
                    None => {
                        let what = format!(
                            "argument {}: {:?} is neither a buffer nor a size nor a constant; write other numbers with their type, \
                             such as \"i32: n - 1\"",
                            number + 1,
                            kinora_outside::shortened(&text, 80)
                        );
                        return self.wrong(field, what);
                    }
                },
            };
            match Expression::parse(&expression) {
                Ok(expression) => found.push(Argument::Number(element, expression)),
                Err(error) => return self.wrong(field, error),
            }
        }
        Ok(found)
    }
}
