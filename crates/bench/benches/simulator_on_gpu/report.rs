//! The comparison as a table and as JSON.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use kinora_bench::write_json;
use kinora_cuda::driver::Device;
use serde_json::json;

use crate::{
    Failure,
    agreement::{Agreement, Row},
    bounds::Class,
};

/// A line per path, table, kernel and type, then one per class, then what failed.
pub fn text(agreement: &Agreement) -> String {
    let mut text = format!(
        "{:<16} {:<24} {:<28} {:<5} {:<11} {:>6} {:>9} {:>9} {:>9} {:>8} {:>9} {:>6}\n",
        "path",
        "table",
        "kernel",
        "type",
        "class",
        "calls",
        "elements",
        "differ",
        "steps",
        "ulps",
        "relative",
        "bound"
    );
    for row in agreement.rows() {
        text += &line(row);
    }
    text.push('\n');
    for (class, (rows, elements, differ, apart)) in classes(agreement) {
        let reason = class.reason();
        let _ = writeln!(
            text,
            "{:<11} {rows} rows, {differ} of {elements} elements differ, {apart} rows too far apart: {reason}",
            name(class)
        );
    }
    for failed in &agreement.failed {
        let _ = writeln!(text, "✗ {failed}");
    }
    text
}

fn line(row: &Row) -> String {
    let Row { key, calls, distance, bound, agrees, .. } = row;
    format!(
        "{:<16} {:<24} {:<28} {:<5} {:<11} {calls:>6} {:>9} {:>9} {:>9} {:>8.2} {:>9.1e} {bound:>6}{}\n",
        key.path,
        key.table,
        key.implementation,
        key.dtype,
        name(key.class),
        distance.elements,
        distance.elements - distance.equal - distance.other_nans,
        distance.steps,
        distance.ulps,
        distance.relative,
        if *agrees { "" } else { " ✗" }
    )
}

fn name(class: Class) -> String {
    format!("{class:?}").to_lowercase()
}

/// For each class: rows, elements, elements that differ, and rows that are too far apart.
fn classes(agreement: &Agreement) -> BTreeMap<Class, (u64, u64, u64, u64)> {
    let mut classes = BTreeMap::new();
    for row in agreement.rows() {
        let (rows, elements, differ, apart) = classes.entry(row.key.class).or_insert((0, 0, 0, 0));
        let distance = &row.distance;
        *rows += 1;
        *elements += distance.elements;
        *differ += distance.elements - distance.equal - distance.other_nans;
        *apart += u64::from(!row.agrees);
    }
    classes
}

/// Writes everything as JSON.
pub fn write(file: &Path, agreement: &Agreement, device: &Device) -> Result<(), Failure> {
    let info = device.info();
    let classes: Vec<_> =
        Class::ALL.iter().map(|class| json!({"class": class, "reason": class.reason()})).collect();
    let document = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "device": info.name,
        "driver": info.driver.to_string(),
        "classes": classes,
        "rows": agreement.rows().collect::<Vec<_>>(),
        "failed": agreement.failed,
    });
    Ok(write_json(file, &document)?)
}
