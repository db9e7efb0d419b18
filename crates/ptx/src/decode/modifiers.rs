//! The modifiers behind an opcode. Each must be understood by someone: what is left over is an error.

use crate::{
    isa::{Mode, Type},
    numeric::Rounding,
};

pub(super) struct Modifiers<'a> {
    parts: Vec<&'a str>,
    used: Vec<bool>,
}

impl<'a> Modifiers<'a> {
    pub fn new(opcode: &'a str) -> Modifiers<'a> {
        let parts: Vec<&str> = opcode.split('.').collect();
        let mut used = vec![false; parts.len()];
        used[0] = true;
        Modifiers { parts, used }
    }

    /// The opcode's first part.
    pub fn name(&self) -> &'a str {
        self.parts[0]
    }

    /// Whether there is such a modifier.
    pub fn has(&self, name: &str) -> bool {
        self.parts[1..].contains(&name)
    }

    /// Takes a modifier.
    pub fn take(&mut self, name: &str) -> bool {
        let mut found = false;
        for (part, used) in self.parts.iter().zip(&mut self.used).skip(1) {
            if *part == name {
                *used = true;
                found = true;
            }
        }
        found
    }

    /// Takes the first of several that is there.
    pub fn take_any<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        choices.iter().find(|(name, _)| self.take(name)).map(|&(_, value)| value)
    }

    /// Takes whatever begins so, and gives the rest of the first.
    pub fn take_prefix(&mut self, prefix: &str) -> Option<&'a str> {
        let mut found = None;
        for (part, used) in self.parts.iter().zip(&mut self.used).skip(1) {
            if let Some(rest) = part.strip_prefix(prefix) {
                *used = true;
                found = found.or(Some(rest));
            }
        }
        found
    }

    /// Hints to caches, and where coherence reaches: they change no result here.
    pub fn take_hints(&mut self) {
        for prefix in ["L1::", "L2::", "evict_"] {
            self.take_prefix(prefix);
        }
        for hint in ["ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "weak", "level"] {
            self.take(hint);
        }
    }

    /// Takes the types, in order.
    pub fn take_types(&mut self) -> Vec<Type> {
        let mut types = Vec::new();
        for (part, used) in self.parts.iter().zip(&mut self.used).skip(1) {
            if let Some(kind) = Type::named(part) {
                *used = true;
                types.push(kind);
            }
        }
        types
    }

    /// Takes the last type.
    pub fn take_type(&mut self) -> Option<Type> {
        self.take_types().pop()
    }

    /// Takes how results are rounded.
    pub fn take_rounding(&mut self) -> Option<Rounding> {
        self.take_any(&[
            ("rn", Rounding::Nearest),
            ("rz", Rounding::Zero),
            ("rm", Rounding::Down),
            ("rp", Rounding::Up),
            ("rna", Rounding::NearestAway),
        ])
    }

    /// Takes all that says how a number is rounded and cut.
    pub fn take_mode(&mut self) -> Mode {
        Mode {
            rounding: self.take_rounding().unwrap_or(Rounding::Nearest),
            flush: self.take("ftz"),
            saturate: self.take("sat"),
            relu: self.take("relu"),
        }
    }

    /// The parts behind the name, for opcodes whose parts mean something by their place.
    pub fn parts(&self) -> &[&'a str] {
        &self.parts[1..]
    }

    /// All are understood.
    pub fn take_all(&mut self) {
        self.used.fill(true);
    }

    /// One that nobody took.
    pub fn unused(&self) -> Option<&'a str> {
        self.parts.iter().zip(&self.used).find(|(_, used)| !**used).map(|(part, _)| *part)
    }
}
