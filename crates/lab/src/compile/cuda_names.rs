//! What kernels are called in PTX, and in their source.

/// The kernels of PTX, in its order.
pub fn entries(ptx: &str) -> Vec<String> {
    let name = |line: &str| {
        let (before, after) = line.split_once(".entry")?;
        // Nothing else than linkage stands before the directive; a comment may hold the word.
        if !before.split_whitespace().all(|word| word.starts_with('.')) {
            return None;
        }
        let name: String = after.trim_start().chars().take_while(|&c| is_identifier(c)).collect();
        (!name.is_empty()).then_some(name)
    };
    ptx.lines().filter_map(name).collect()
}

fn is_identifier(c: char) -> bool {
    c.is_alphanumeric() || "_$%".contains(c)
}

/// A kernel's name without what the C++ ABI adds to it: `scale` of `_Z5scalePfi` and of `_ZN2ns5scaleIfEEvPT_i`.
pub fn base_name(name: &str) -> &str {
    let Some(encoded) = name.strip_prefix("_Z") else { return name };
    let mut rest = encoded.strip_prefix('N').unwrap_or(encoded);
    let mut last = name;
    // The last of the names in a row is the function's; those before are its namespaces'.
    loop {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (Ok(length), true) = (rest[..digits].parse::<usize>(), digits > 0) else { return last };
        let Some(part) = rest.get(digits..digits.saturating_add(length)) else { return last };
        last = part;
        rest = &rest[digits + length..];
        if !encoded.starts_with('N') {
            return last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        for (mangled, name) in [
            ("scale", "scale"),
            ("_Z5scalePfi", "scale"),
            ("_Z5scaleIfLi4EEvPT_i", "scale"),
            ("_ZN2ns5inner5scaleEPf", "scale"),
            ("_ZN2ns5scaleIfEEvPT_i", "scale"),
            ("_Z", "_Z"),
            ("_Z99scale", "_Z99scale"),
            ("_Z99999999999999999999999scale", "_Z99999999999999999999999scale"),
            ("_Z2äb", "ä"),
            ("_Z1äb", "_Z1äb"),
        ] {
            assert_eq!(base_name(mangled), name);
        }
    }

    #[test]
    fn the_entries_of_ptx_are_its_kernels() {
        let ptx = ".version 8.0\n// .entry no\n.visible .entry _Z5scalePfi(\n.param .u64 a)\n{ }\n.entry\tplain()\n\
                   .weak .entry  weak (\n.func f\n";
        assert_eq!(entries(ptx), ["_Z5scalePfi", "plain", "weak"]);
    }
}
