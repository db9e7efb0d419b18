//! References.

use std::path::{Path, PathBuf};

use toml::Spanned;

use super::{
    Checked, Checker,
    launches::{Form, Known},
};
use crate::{
    expression::Expression,
    task::{LaunchPlan, Reference, description},
};

/// How long a reference in Python may take, if nothing else is said.
const SECONDS: f64 = 120.0;

impl Checker {
    pub(super) fn reference(
        &mut self,
        reference: Option<&Spanned<description::Reference>>,
        python: Option<PathBuf>,
        known: &Known<'_>,
        kernel_source: &Path,
        launches: &[LaunchPlan],
    ) -> Checked<Reference> {
        let Some(spanned) = reference else {
            return Ok(match python {
                Some(file) => Reference::Python { file, function: "reference".to_owned(), seconds: SECONDS },
                None => Reference::None,
            });
        };
        self.note("reference", spanned);
        let reference = spanned.get_ref();
        let ways = [
            reference.expression.is_some(),
            reference.expressions.is_some(),
            reference.python.is_some(),
            reference.files.is_some(),
            reference.kernel.is_some(),
        ];
        if ways.iter().filter(|&&way| way).count() > 1 {
            return self.wrong("reference", "give one of expression, expressions, python, files and kernel");
        }
        let results: Vec<usize> =
            (0..known.buffers.len()).filter(|&at| known.buffers[at].is_result()).collect();
        if let Some(expression) = &reference.expression {
            self.note("reference.expression", expression);
            let [result] = results.as_slice() else {
                return self.wrong(
                    "reference.expression",
                    "there are several results; give each its own under [reference.expressions]",
                );
            };
            let expression = self.of_elements("reference.expression", expression.get_ref(), known)?;
            return Ok(Reference::Expressions(vec![(*result, expression)]));
        }
        if let Some(expressions) = &reference.expressions {
            let mut found = Vec::new();
            for (name, text) in expressions {
                let field = format!("reference.expressions.{name}");
                self.note(&field, text);
                let result = self.result(&field, name, known)?;
                found.push((result, self.of_elements(&field, text.get_ref(), known)?));
            }
            self.every_result("reference.expressions", &results, found.iter().map(|(at, _)| *at), known)?;
            return Ok(Reference::Expressions(found));
        }
        if let Some(files) = &reference.files {
            let mut found = Vec::new();
            for (name, file) in files {
                let field = format!("reference.files.{name}");
                let result = self.result(&field, name, known)?;
                found.push((result, self.path(&field, file)?));
            }
            self.every_result("reference.files", &results, found.iter().map(|(at, _)| *at), known)?;
            return Ok(Reference::Files(found));
        }
        if let Some(kernel) = &reference.kernel {
            self.note("reference.kernel", kernel);
            let source = match &reference.source {
                Some(source) => self.path("reference.source", source)?,
                None => kernel_source.to_owned(),
            };
            let form = Form {
                entry: Some(kernel),
                grid: reference.grid.as_ref(),
                block: reference.block.as_ref(),
                cluster: None,
                shared: None,
                arguments: reference.arguments.as_ref(),
                repeat: None,
            };
            let mut launch = self.launch("reference", &form, known)?;
            if reference.arguments.is_none() {
                // What the kernel itself is given, if that is clear.
                match launches {
                    [only] => launch.arguments = only.arguments.clone(),
                    _ => {
                        return self.wrong(
                            "reference",
                            "there are several launches; say the reference kernel's `arguments`",
                        );
                    }
                }
            }
            return Ok(Reference::Kernel { source, launch: Box::new(launch) });
        }
        let file = match (&reference.python, python) {
            (Some(file), _) => self.path("reference.python", file)?,
            (None, Some(file)) => file,
            (None, None) => {
                return self
                    .wrong("reference", "give one of expression, expressions, python, files and kernel");
            }
        };
        let seconds = match &reference.seconds {
            None => SECONDS,
            Some(seconds) => {
                self.note("reference.seconds", seconds);
                let seconds = *seconds.get_ref();
                if !(seconds > 0.0 && seconds <= 86_400.0) {
                    return self
                        .wrong("reference.seconds", "it must be more than 0 and at most a day (86400)");
                }
                seconds
            }
        };
        let function = reference.function.clone().unwrap_or_else(|| "reference".to_owned());
        self.name("reference", &function)?;
        Ok(Reference::Python { file, function, seconds })
    }

    pub(super) fn result(&self, field: &str, name: &str, known: &Known<'_>) -> Checked<usize> {
        match known.buffers.iter().position(|buffer| buffer.name == name && buffer.is_result()) {
            Some(place) => Ok(place),
            None => self.wrong(field, "there is no [[output]] or [[inout]] of that name"),
        }
    }

    pub(super) fn every_result(
        &self,
        field: &str,
        results: &[usize],
        found: impl Iterator<Item = usize>,
        known: &Known<'_>,
    ) -> Checked<()> {
        let found: Vec<usize> = found.collect();
        match results.iter().find(|at| !found.contains(at)) {
            Some(&missing) => self.wrong(field, format!("{} is missing", known.buffers[missing].name)),
            None => Ok(()),
        }
    }

    /// An expression over elements at the same place: of buffers that are given, sizes, constants, and `i`, the place.
    pub(super) fn of_elements(&self, field: &str, text: &str, known: &Known<'_>) -> Checked<Expression> {
        let expression = match Expression::parse(text) {
            Ok(expression) => expression,
            Err(error) => return self.wrong(field, error),
        };
        for name in expression.names() {
            let buffer = known.buffers.iter().find(|buffer| buffer.name == *name);
            match buffer {
                Some(buffer) if buffer.is_given() => {}
                Some(_) => return self.wrong(field, format!("{name} holds nothing at the start")),
                None if name == "i" || known.is_number(name) => {}
                None => {
                    return self.wrong(
                        field,
                        format!("{name} is neither an input nor a size nor a constant (nor i, the place)"),
                    );
                }
            }
        }
        Ok(expression)
    }
}
