//! From what a description says to a task that can be run, or to what is wrong with it and where.

mod buffers;
mod every_size;
mod launches;
mod reference;
mod sizes;

use std::path::{Component, Path, PathBuf};

use toml::Spanned;

use self::launches::Known;
pub(crate) use self::launches::MAX_REPEATS;
use super::{Place, Task, TaskError, Tolerance, Work, description};
use crate::expression::Expression;

/// The task of a text. `python` is the file that declared it.
pub(super) fn task(
    text: &str,
    folder: &Path,
    file: String,
    python: Option<PathBuf>,
    anywhere: bool,
) -> Result<Task, TaskError> {
    // A declaration in Python was turned into text here: nobody knows its lines.
    let lines = (python.is_none() && !anywhere).then(|| text.to_owned());
    let mut checker = Checker { file, lines, folder: folder.to_owned(), anywhere, places: Vec::new() };
    let description: description::Description = toml::from_str(text).map_err(|error| {
        let place = checker.place(error.span());
        TaskError::Form { place, what: error.message().replace("expected i64", "expected a whole number") }
    })?;
    checker.task(description, python)
}

struct Checker {
    file: String,
    lines: Option<String>,
    folder: PathBuf,
    anywhere: bool,
    places: Vec<(String, Place)>,
}

type Checked<T> = Result<T, TaskError>;

impl Checker {
    fn place(&self, span: Option<std::ops::Range<usize>>) -> Place {
        let line = self.lines.as_ref().zip(span).map(|(text, span)| {
            let end = span.start.min(text.len());
            1 + text.as_bytes()[..end].iter().filter(|&&byte| byte == b'\n').count()
        });
        Place { file: self.file.clone(), line }
    }

    /// Remembers where a field stands.
    fn note<T>(&mut self, field: &str, value: &Spanned<T>) {
        let place = self.place(Some(value.span()));
        self.places.push((field.to_owned(), place));
    }

    fn wrong<T>(&self, field: &str, what: impl std::fmt::Display) -> Checked<T> {
        // The closest field whose place is known: the buffer, say, if its shape is not.
        let known = self.places.iter().filter(|(known, _)| field.starts_with(known.as_str()));
        let known = known.max_by_key(|(known, _)| known.len());
        let place =
            known.map_or_else(|| Place { file: self.file.clone(), line: None }, |(_, place)| place.clone());
        Err(TaskError::Field { place, field: field.to_owned(), what: what.to_string() })
    }

    fn expression(&mut self, field: &str, formula: &Spanned<description::Formula>) -> Checked<Expression> {
        self.note(field, formula);
        self.parsed(field, formula.get_ref())
    }

    fn parsed(&self, field: &str, formula: &description::Formula) -> Checked<Expression> {
        match Expression::parse(&formula.to_string()) {
            Ok(expression) => Ok(expression),
            Err(error) => self.wrong(field, error),
        }
    }

    fn expressions(
        &mut self,
        field: &str,
        formulas: &Spanned<description::Several<description::Formula>>,
        most: usize,
    ) -> Checked<Vec<Expression>> {
        self.note(field, formulas);
        let list = &formulas.get_ref().0;
        if list.len() > most {
            return self.wrong(field, format!("it has {} parts; at most {most} are possible", list.len()));
        }
        list.iter().map(|formula| self.parsed(field, formula)).collect()
    }

    fn name(&self, field: &str, name: &str) -> Checked<()> {
        let mut characters = name.chars();
        let starts = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if starts && name.len() <= 64 && characters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Ok(());
        }
        let shown = kinora_outside::shortened(name, 40);
        self.wrong(
            field,
            format!("{shown:?} is not a name: letters, digits and _, at most 64, no digit first"),
        )
    }

    /// A file within the task's folder.
    fn path(&mut self, field: &str, text: &Spanned<String>) -> Checked<PathBuf> {
        self.note(field, text);
        let path = Path::new(text.get_ref());
        if self.anywhere {
            return Ok(self.folder.join(path));
        }
        let inside = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !inside || path.as_os_str().is_empty() {
            return self
                .wrong(field, "it leaves the task's folder; name a file in it or below it, without `..`");
        }
        let whole = self.folder.join(path);
        // A link may leave the folder as well.
        let (Ok(folder), Ok(resolved)) = (self.folder.canonicalize(), whole.canonicalize()) else {
            return Ok(whole);
        };
        match resolved.starts_with(folder) {
            true => Ok(whole),
            false => self.wrong(field, "it is a link that leaves the task's folder"),
        }
    }

    fn task(&mut self, description: description::Description, python: Option<PathBuf>) -> Checked<Task> {
        self.note("kernel", &description.kernel);
        let sizes = self.sizes(&description.sizes)?;
        let constants = self.constants(&description.constants, &description.sizes)?;
        let time = self.time(&sizes, description.time.as_ref())?;
        let mut names: Vec<String> = description.sizes.keys().cloned().collect();
        names.extend(constants.iter().map(|(name, ..)| name.clone()));
        let buffers = self.buffers(&description, &names)?;
        let known = Known { buffers: &buffers, constants: &constants, sizes: &description.sizes };
        let kernel = description.kernel.get_ref();
        let source = self.path("kernel.source", &kernel.source)?;
        let launches = self.launches(kernel, &description.launch, &known)?;
        let reference = self.reference(description.reference.as_ref(), python, &known, &source, &launches)?;
        let tolerance = match &description.tolerance {
            Some(tolerance) => self.tolerance("tolerance", tolerance)?,
            None => Tolerance::default(),
        };
        let work = match &description.work {
            Some(work) => {
                let work = work.get_ref();
                let mut side = |field: &str, formula: &Option<Spanned<description::Formula>>| {
                    formula.as_ref().map(|formula| self.expression(field, formula)).transpose()
                };
                Work { flops: side("work.flops", &work.flops)?, bytes: side("work.bytes", &work.bytes)? }
            }
            None => Work::default(),
        };
        if let Some(steps) = &kernel.steps {
            self.note("kernel.steps", steps);
        }
        let folder_name = || {
            let folder = self.folder.canonicalize().ok()?;
            Some(folder.file_name()?.to_string_lossy().into_owned())
        };
        let task = Task {
            name: description.name.clone().or_else(folder_name).unwrap_or_else(|| "task".to_owned()),
            about: description.about.clone(),
            folder: self.folder.clone(),
            source,
            options: kernel.options.clone(),
            deterministic: kernel.deterministic,
            steps: kernel.steps.as_ref().map(|steps| *steps.get_ref()),
            sizes,
            time,
            buffers,
            launches,
            reference,
            tolerance,
            work,
            constants,
            places: self.places.clone(),
        };
        self.every_size(&task)?;
        Ok(task)
    }
}
