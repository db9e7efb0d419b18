//! Everything is evaluated for every size, so that what is wrong is known before anything runs.

use super::{Checked, Checker};
use crate::{
    inputs::Distribution,
    task::{MAX_BYTES, Reference, Role, Task, Values},
};

impl Checker {
    /// Evaluates everything for every size, so that what is wrong is known before anything runs.
    pub(super) fn every_size(&self, task: &Task) -> Checked<()> {
        for sizes in task.sizes.iter().chain([&task.time]) {
            let scope = task.scope(sizes)?;
            let at = |field: &str, what: String| self.wrong::<()>(field, format!("with {sizes}: {what}"));
            let mut bytes = 0u64;
            for buffer in &task.buffers {
                let kind = match buffer.role {
                    Role::Input => "input",
                    Role::InOut => "inout",
                    Role::Output => "output",
                    Role::Scratch => "scratch",
                };
                let field = format!("{kind} {}.shape", buffer.name);
                let elements = match buffer.elements(&scope) {
                    Ok(elements) => elements as u64,
                    Err(error) => return at(&field, error.to_string()),
                };
                let own = elements.saturating_mul(buffer.element.bytes() as u64);
                bytes = bytes.saturating_add(own);
                if bytes > MAX_BYTES {
                    let what = format!(
                        "the buffers have {} together; at most {} are possible",
                        gigabytes(bytes),
                        gigabytes(MAX_BYTES)
                    );
                    return at(&field, what);
                }
                if let Values::Random(values) = &buffer.values {
                    match task.distribution(values, &scope) {
                        Err(error) => {
                            return at(&format!("{kind} {}.values", buffer.name), error.to_string());
                        }
                        Ok(distribution) => {
                            if let Some(what) = impossible(distribution) {
                                return at(&format!("{kind} {}.values", buffer.name), what);
                            }
                        }
                    }
                }
                if let Some(input) = buffer.may_alias
                    && task.buffers[input].elements(&scope).ok() != Some(elements as usize)
                {
                    return at(
                        &format!("{kind} {}.may_alias", buffer.name),
                        "the input has another number of elements".to_owned(),
                    );
                }
            }
            for (number, launch) in task.launches.iter().enumerate() {
                let field =
                    if task.launches.len() == 1 && self.places.iter().all(|(name, _)| name != "launch 1") {
                        "kernel".to_owned()
                    } else {
                        format!("launch {}", number + 1)
                    };
                if let Err((part, what)) = launch.check(&scope) {
                    return at(&format!("{field}.{part}"), what);
                }
            }
            if let Reference::Kernel { launch, .. } = &task.reference
                && let Err((part, what)) = launch.check(&scope)
            {
                return at(&format!("reference.{part}"), what);
            }
            for (field, expression) in [
                ("work.flops", &task.work.flops),
                ("work.bytes", &task.work.bytes),
                ("tolerance.depth", &task.tolerance.depth),
            ] {
                if let Some(expression) = expression {
                    match expression.evaluate(&scope) {
                        Ok(value) if value.is_finite() && value >= 0.0 => {}
                        Ok(value) => return at(field, format!("`{expression}` is {value}")),
                        Err(error) => return at(field, error.to_string()),
                    }
                }
            }
        }
        if matches!(task.reference, Reference::Files(_)) && task.sizes.len() > 1 {
            return self
                .wrong("reference.files", "files hold the results of one size, but [sizes] lists several");
        }
        Ok(())
    }
}

/// What is wrong with a distribution.
fn impossible(distribution: Distribution) -> Option<String> {
    use Distribution::*;
    let (a, b) = match distribution {
        Uniform(a, b) | Normal(a, b) | Integers(a, b) | Sorted(a, b) => (a, b),
        // Any number can stand everywhere, NaN and infinities too.
        Constant(_) | Index | Special | Permutation => return None,
    };
    if !(a.is_finite() && b.is_finite()) {
        return Some(format!("its parameters are {a} and {b}; they must be finite"));
    }
    let ordered =
        matches!(distribution, Normal(..)) || a < b || (a == b && !matches!(distribution, Integers(..)));
    (!ordered).then(|| format!("there is nothing between {a} and {b}"))
}

fn gigabytes(bytes: u64) -> String {
    let gigabytes = bytes as f64 / 1e9;
    if gigabytes >= 1000.0 { format!("{:.1} TB", gigabytes / 1000.0) } else { format!("{gigabytes:.1} GB") }
}
