//! The parameters that a kernel declares: `// tune: TILE = 64, 128`.

use std::collections::BTreeMap;

use super::TuneError;

/// A parameter and the values to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The macro.
    pub name: String,
    /// Its values, in the order of the source.
    pub values: Vec<i64>,
}

/// Values of all parameters.
pub type Choice = BTreeMap<String, i64>;

/// The most choices that are searched.
const MOST: usize = 10_000;

/// The parameters of a source.
///
/// # Errors
/// If a declaration is wrong, or if there are far too many choices.
pub fn parameters(source: &str) -> Result<Vec<Parameter>, TuneError> {
    let mut all: Vec<Parameter> = Vec::new();
    for (number, line) in (1..).zip(source.lines()) {
        let Some(text) = line.trim().strip_prefix("//").and_then(|text| text.trim().strip_prefix("tune:"))
        else {
            continue;
        };
        let wrong = |what: &str| TuneError::Declaration { line: number, what: what.to_owned() };
        let (name, values) = text.split_once('=').ok_or_else(|| wrong("write `// tune: TILE = 64, 128`"))?;
        let name = name.trim();
        let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        if !is_name {
            return Err(wrong("the name before `=` must be that of a macro"));
        }
        if all.iter().any(|known| known.name == name) {
            return Err(wrong("this parameter is declared twice"));
        }
        let values: Result<Vec<i64>, _> = values.split(',').map(|value| value.trim().parse()).collect();
        let mut values = values.map_err(|_| wrong("the values must be whole numbers with commas between"))?;
        let mut seen = std::collections::BTreeSet::new();
        values.retain(|value| seen.insert(*value));
        all.push(Parameter { name: name.to_owned(), values });
    }
    if all.is_empty() {
        return Err(TuneError::Nothing);
    }
    let count = all.iter().try_fold(1usize, |count, parameter| count.checked_mul(parameter.values.len()));
    match count {
        Some(count) if count <= MOST => Ok(all),
        _ => Err(TuneError::TooMany { most: MOST }),
    }
}

/// Every combination of the parameters' values; the last parameter varies fastest.
pub fn choices(parameters: &[Parameter]) -> Vec<Choice> {
    let mut all = vec![Choice::new()];
    for parameter in parameters {
        let each = |choice: &Choice| {
            let with = |value: &i64| {
                let mut choice = choice.clone();
                choice.insert(parameter.name.clone(), *value);
                choice
            };
            parameter.values.iter().map(with).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(each).collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_become_every_combination() {
        let found =
            parameters("// tune: TILE = 64,128\nint x; // tune: no\n  //tune: ITEMS=1, 2 ,4\n").unwrap();
        assert_eq!(found[0], Parameter { name: "TILE".to_owned(), values: vec![64, 128] });
        let all = choices(&found);
        assert_eq!(all.len(), 6);
        assert_eq!((all[1]["TILE"], all[1]["ITEMS"]), (64, 2));
    }

    #[test]
    fn wrong_declarations_are_named_by_line() {
        for (text, line) in [
            ("// tune: TILE", 1),
            ("\n// tune: 4TILE = 1", 2),
            ("// tune: A = 1, x", 1),
            ("// tune: A = 1\n// tune: A = 2", 2),
            ("// tune: A =", 1),
        ] {
            match parameters(text) {
                Err(TuneError::Declaration { line: found, .. }) => assert_eq!(found, line, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert!(matches!(parameters("int x;"), Err(TuneError::Nothing)));
        let many: String = (0..6).map(|i| format!("// tune: P{i} = 1,2,3,4,5\n")).collect();
        assert!(matches!(parameters(&many), Err(TuneError::TooMany { .. })));
    }
}
