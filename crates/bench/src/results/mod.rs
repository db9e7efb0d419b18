//! The results of a run: plain data, saved as JSON, from which tables, comparisons and plots are made.

mod compare;
mod date;
mod file;
mod model;
mod plot;
mod table;

pub use compare::{Change, Comparison, Verdict, compare};
pub use date::{date_of, now};
pub use file::write_json;
pub use model::{
    CPU, CaseResults, Clock, Entry, FORMAT, Gpu, KINORA, Method, Results, ResultsError, SuiteResults, Version,
};
pub use plot::svg;
pub use table::{comparison_text, header, row, suite_footer, suite_header};
