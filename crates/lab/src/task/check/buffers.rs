//! Buffers, and how far results may be off.

use toml::Spanned;

use super::{Checked, Checker};
use crate::{
    Element,
    task::{Buffer, RandomValues, Role, Tolerance, Values, description},
};

/// The most buffers of a task.
const MAX_BUFFERS: usize = 64;

impl Checker {
    pub(super) fn buffers(
        &mut self,
        description: &description::Description,
        taken: &[String],
    ) -> Checked<Vec<Buffer>> {
        let roles = [
            ("input", Role::Input, &description.input),
            ("inout", Role::InOut, &description.inout),
            ("output", Role::Output, &description.output),
            ("scratch", Role::Scratch, &description.scratch),
        ];
        let mut buffers: Vec<Buffer> = Vec::new();
        for (kind, role, list) in roles {
            for buffer in list {
                let name = buffer.get_ref().name.get_ref().clone();
                self.note(kind, &buffer.get_ref().name);
                self.name(kind, &name)?;
                let field = format!("{kind} {name}");
                self.note(&field, buffer);
                self.note(&field, &buffer.get_ref().name);
                if taken.contains(&name) || buffers.iter().any(|known| known.name == name) || name == "step" {
                    return self.wrong(&field, "something else has the same name");
                }
                let buffer = self.buffer(&field, name, role, buffer.get_ref(), &buffers)?;
                buffers.push(buffer);
            }
        }
        if buffers.len() > MAX_BUFFERS {
            return self.wrong(
                "kernel",
                format!("there are {} buffers; at most {MAX_BUFFERS} are possible", buffers.len()),
            );
        }
        if !buffers.iter().any(Buffer::is_result) {
            return self.wrong(
                "kernel",
                "there is neither an [[output]] nor an [[inout]]: nothing could be checked",
            );
        }
        Ok(buffers)
    }

    pub(super) fn buffer(
        &mut self,
        field: &str,
        name: String,
        role: Role,
        buffer: &description::Buffer,
        before: &[Buffer],
    ) -> Checked<Buffer> {
        let element_field = format!("{field}.element");
        self.note(&element_field, &buffer.element);
        let Some(element) = Element::named(buffer.element.get_ref()) else {
            let known: Vec<&str> = Element::ALL.iter().map(|(name, ..)| *name).collect();
            let shown = kinora_outside::shortened(buffer.element.get_ref(), 40);
            return self.wrong(
                &element_field,
                format!("{shown:?} is not an element; there are {}", known.join(", ")),
            );
        };
        let shape = self.expressions(&format!("{field}.shape"), &buffer.shape, 8)?;
        let given = matches!(role, Role::Input | Role::InOut);
        let values = match (&buffer.values, &buffer.file) {
            (Some(_), Some(file)) => {
                let field = format!("{field}.file");
                self.note(&field, file);
                return self.wrong(&field, "there are `values` too; give one of the two");
            }
            (Some(values), None) => {
                let field = format!("{field}.values");
                self.note(&field, values);
                if !given && role != Role::Scratch {
                    return self.wrong(
                        &field,
                        "an output holds nothing at the start; use [[inout]] if the kernel adds to it",
                    );
                }
                let parsed = match values.get_ref() {
                    description::Formula::Text(text) => RandomValues::parse(text),
                    description::Formula::Whole(number) => RandomValues::constant(*number as f64),
                    description::Formula::Number(number) => RandomValues::constant(*number),
                };
                match parsed {
                    Ok(values) => Values::Random(values),
                    Err(what) => return self.wrong(&field, what),
                }
            }
            (None, Some(file)) => Values::File(self.path(&format!("{field}.file"), file)?),
            (None, None) if given => Values::Random(RandomValues::usual(element.is_whole())),
            (None, None) => Values::Nothing,
        };
        let may_alias = match &buffer.may_alias {
            None => None,
            Some(input) => {
                let field = format!("{field}.may_alias");
                self.note(&field, input);
                let found = before
                    .iter()
                    .position(|known| known.name == *input.get_ref() && known.role == Role::Input);
                match found.filter(|_| role == Role::Output) {
                    Some(found) if before[found].element == element => Some(found),
                    Some(_) => return self.wrong(&field, "the input has other elements"),
                    None => {
                        return self.wrong(
                            &field,
                            "only an output may lie in the place of an input, which it names",
                        );
                    }
                }
            }
        };
        let tolerance = match &buffer.tolerance {
            Some(tolerance) => Some(self.tolerance(&format!("{field}.tolerance"), tolerance)?),
            None => None,
        };
        Ok(Buffer { name, role, element, shape, values, may_alias, tolerance })
    }

    pub(super) fn tolerance(
        &mut self,
        field: &str,
        tolerance: &Spanned<description::Tolerance>,
    ) -> Checked<Tolerance> {
        self.note(field, tolerance);
        let description::Tolerance { absolute, relative, depth } = tolerance.get_ref().clone();
        for number in [absolute, relative].into_iter().flatten() {
            if !(number.is_finite() && number >= 0.0) {
                return self.wrong(field, format!("{number} is not a tolerance: it must be 0 or more"));
            }
        }
        let depth =
            depth.as_ref().map(|depth| self.expression(&format!("{field}.depth"), depth)).transpose()?;
        Ok(Tolerance { absolute, relative, depth })
    }
}
