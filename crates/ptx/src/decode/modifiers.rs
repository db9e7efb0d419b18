//! The modifiers of an opcode. Decoding takes those that it implements; one that is left over is an error.

use crate::{
    isa::{Mode, Scope, Semantics, Type},
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

    /// Takes the first of several modifiers that is present.
    pub fn take_any<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        choices.iter().find(|(name, _)| self.take(name)).map(|&(_, value)| value)
    }

    /// Takes all modifiers with a prefix, and returns the rest of the first.
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

    /// Takes cache hints and coherence scopes, which change no result here.
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

    /// Takes the rounding mode.
    pub fn take_rounding(&mut self) -> Option<Rounding> {
        self.take_any(&[
            ("rn", Rounding::Nearest),
            ("rz", Rounding::Zero),
            ("rm", Rounding::Down),
            ("rp", Rounding::Up),
            ("rna", Rounding::NearestAway),
        ])
    }

    /// Takes all modifiers of rounding, flushing and saturation.
    pub fn take_mode(&mut self) -> Mode {
        Mode {
            rounding: self.take_rounding().unwrap_or(Rounding::Nearest),
            flush: self.take("ftz"),
            saturate: self.take("sat"),
            relu: self.take("relu"),
            contractible: false,
        }
    }

    /// Takes a scope; without one it is the device.
    pub fn take_scope(&mut self) -> Scope {
        let scopes = [
            ("cta", Scope::Block),
            ("cluster", Scope::Cluster),
            ("gpu", Scope::Device),
            ("sys", Scope::Device),
        ];
        self.take_any(&scopes).unwrap_or_default()
    }

    /// Takes what says how an access is ordered, and whether there is anything that makes it strong.
    pub fn take_semantics(&mut self) -> (bool, Semantics) {
        let both = self.take("acq_rel");
        let [acquire, release] = ["acquire", "release"].map(|word| self.take(word) || both);
        let other =
            ["volatile", "relaxed", "mmio"].into_iter().fold(false, |any, word| any | self.take(word));
        (acquire || release || other, Semantics { acquire, release, scope: self.take_scope() })
    }

    /// All modifiers, for opcodes whose modifiers mean something by position.
    pub fn parts(&self) -> &[&'a str] {
        &self.parts[1..]
    }

    /// Takes all modifiers.
    pub fn take_all(&mut self) {
        self.used.fill(true);
    }

    /// A modifier that was not taken.
    pub fn unused(&self) -> Option<&'a str> {
        self.parts.iter().zip(&self.used).find(|(_, used)| !**used).map(|(part, _)| *part)
    }
}
