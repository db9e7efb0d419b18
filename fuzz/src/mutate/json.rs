//! Changes of JSON texts.

use serde_json::{Map, Number, Value, json};

use super::random::Random;

/// The text with one to three of its values changed; `None` if it is not JSON.
pub fn change(text: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut document: Value = serde_json::from_slice(text).ok()?;
    for _ in 0..=random.below(3) {
        let donor = nth(&mut document, &mut { random.below(64) }).map(|value| value.clone());
        let count = count(&document);
        if let Some(value) = nth(&mut document, &mut { random.below(count) }) {
            change_value(value, donor, random);
        }
    }
    serde_json::to_vec(&document).ok()
}

/// Changes one value; `donor` is another of the document.
fn change_value(value: &mut Value, donor: Option<Value>, random: &mut Random) {
    match (random.below(8), &mut *value) {
        (0, _) => *value = donor.unwrap_or(Value::Null),
        (1 | 2, Value::Object(fields)) => change_fields(fields, donor, random),
        (1 | 2, Value::Array(items)) => change_items(items, random),
        (3, Value::String(text)) => change_text(text, random),
        (4 | 5, Value::Number(number)) => *number = near(number, random),
        _ => *value = hostile(random),
    }
}

/// Removes, renames or adds a field.
fn change_fields(fields: &mut Map<String, Value>, donor: Option<Value>, random: &mut Random) {
    let names: Vec<String> = fields.keys().cloned().collect();
    let Some(name) = random.of(&names) else { return };
    match random.below(3) {
        0 => drop(fields.remove(name)),
        1 => {
            let value = fields.remove(name).unwrap_or_default();
            let mut name = name.clone();
            change_text(&mut name, random);
            fields.insert(name, value);
        }
        _ => {
            let value = donor.unwrap_or_else(|| hostile(random));
            fields.insert(name.clone(), value);
        }
    }
}

/// Removes, repeats or swaps items.
fn change_items(items: &mut Vec<Value>, random: &mut Random) {
    let (from, to) = (random.below(items.len()), random.below(items.len()));
    match (random.below(4), items.get(from).cloned()) {
        (0, Some(_)) => drop(items.remove(from)),
        (1, Some(item)) => items.insert(to, item),
        (2, Some(_)) => items.swap(from, to),
        (_, Some(item)) => items.extend(std::iter::repeat_n(item, random.below(20))),
        (_, None) => items.push(hostile(random)),
    }
}

fn change_text(text: &mut String, random: &mut Random) {
    match random.below(4) {
        0 => text.clear(),
        1 => drop(text.pop()),
        2 => text.push(*random.of(&['a', '\0', '\n', '\u{1b}', '/', '.', 'é', '\u{202e}']).unwrap_or(&'a')),
        _ => *text = text.repeat(1 + random.below(9)),
    }
}

/// A number not far from another.
fn near(number: &Number, random: &mut Random) -> Number {
    match (number.as_i64(), number.as_f64()) {
        (Some(whole), _) => match random.below(4) {
            0 => whole.wrapping_add(1),
            1 => whole.wrapping_sub(1),
            2 => whole.wrapping_mul(2),
            _ => whole / 2,
        }
        .into(),
        (None, Some(real)) => {
            let changed = real * random.of(&[0.5, 2.0, -1.0, 1e10, 0.0]).copied().unwrap_or(1.0);
            Number::from_f64(changed).unwrap_or_else(|| 0.into())
        }
        _ => 0.into(),
    }
}

/// A value that programs stumble over.
fn hostile(random: &mut Random) -> Value {
    match random.below(10) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!([]),
        3 => json!({}),
        4 => json!(""),
        5 => json!(-((random.hostile_integer() >> 1) as i64)),
        6 => json!(*random.of(&[0.0, -0.0, 1e-320, 1e308, -1e308, 0.1, 4e38]).unwrap_or(&0.0)),
        7 => json!([random.hostile_integer(), random.hostile_integer()]),
        _ => json!(random.hostile_integer()),
    }
}

/// How many values there are, at all depths.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

/// The value with a number, counted as [`count`] does.
fn nth<'a>(value: &'a mut Value, number: &mut usize) -> Option<&'a mut Value> {
    if *number == 0 {
        return Some(value);
    }
    *number -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth(item, number)),
        Value::Object(fields) => fields.values_mut().find_map(|field| nth(field, number)),
        _ => None,
    }
}
