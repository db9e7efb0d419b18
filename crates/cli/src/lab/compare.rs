//! `kinora lab compare`: two kernels for one task.

use kinora_lab::{Task, Verdict, report};
use serde_json::json;

use super::{arguments::CompareArgs, observed, of_task, options};
use crate::{answer, failure::Failure, print, standard_output::print_styled};

/// Runs both and shows them side by side.
pub fn run(arguments: &CompareArgs) -> Result<(), Failure> {
    let description = match &arguments.task {
        Some(task) => task.clone(),
        None => arguments.first.with_file_name("task.toml"),
    };
    if arguments.task.is_none() && !description.is_file() {
        let text =
            format!("there is no {} beside the first kernel; name a task with --task", description.display());
        return Err(Failure::Usage(text));
    }
    let task = Task::open(&description).map_err(of_task)?;
    let options = options(&arguments.method)?;
    let outcomes = [&arguments.first, &arguments.second]
        .map(|source| observed(&task.with_source(source), &options, arguments.method.json));
    let [first, second] = &outcomes;
    if !arguments.method.json {
        for outcome in outcomes.iter().filter(|outcome| outcome.verdict > Verdict::Unchecked) {
            print_styled(&outcome.text())?;
        }
        print(&report::side_by_side(first, second))?;
    }
    let worst = outcomes.iter().max_by_key(|outcome| outcome.verdict);
    let quantities = report::quantities(first, second);
    let answered = json!({"first": first, "second": second, "quantities": quantities});
    answer(arguments.method.json, answered, worst.and_then(super::failure))
}
