//! C++ names of functions from their mangled ones, as the Itanium C++ ABI defines them and NVIDIA's compilers write them.
//!
//! Whatever a kernel's name can contain is understood: namespaces, templates, their arguments, substitutions, lambdas, function
//! pointers. Expressions in template arguments are not; such a name stays as it is.

/// How deep types may be nested.
const DEPTH: usize = 64;

/// The most bytes of a name, because a substitution can double it again and again.
const LONGEST: usize = 4096;

/// A function's name, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FunctionName {
    /// With its namespaces, template arguments and parameters: `void ns::scale<float>(const float*, int)`.
    pub full: String,
    /// Without result and parameters: `ns::scale<float>`.
    pub qualified: String,
    /// Without namespaces and template arguments: `scale`.
    pub plain: String,
}

/// Takes a mangled name apart; `None` for one that is not mangled, as of an `extern "C"` function, or not understood.
pub(crate) fn demangle(name: &str) -> Option<FunctionName> {
    let rest = name.strip_prefix("_Z")?;
    let mut parser =
        Parser { rest, substitutions: Vec::new(), arguments: Vec::new(), depth: 0, nested: false };
    let Name { text, plain, template, special } = parser.name()?;
    let mut full = text.clone();
    if !parser.rest.is_empty() && !parser.rest.starts_with('.') {
        // Functions that are templates have their result first.
        let result = if template && !special { parser.ty()?.text() + " " } else { String::new() };
        let parameters = parser.parameters(|rest| rest.is_empty() || rest.starts_with('.'))?;
        full = format!("{result}{text}{parameters}");
    }
    let whole = parser.rest.is_empty() || parser.rest.starts_with('.');
    whole.then_some(FunctionName { full, qualified: text, plain })
}

/// A name without its spaces, to compare names as people write them.
pub(crate) fn without_spaces(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_whitespace()).collect()
}

#[derive(Clone, Debug, Default)]
struct Name {
    text: String,
    plain: String,
    /// Whether it ends in template arguments.
    template: bool,
    /// Whether it is a constructor, a destructor or a conversion, which have no result.
    special: bool,
}

/// A type. What is declared stands between its halves, as in `int (*` and `)(float)`.
#[derive(Clone, Debug, Default)]
struct Ty {
    left: String,
    right: String,
    /// Whether it is a pointer or a reference, whose qualifiers come behind it.
    pointer: bool,
}

impl Ty {
    fn new(left: impl Into<String>) -> Ty {
        Ty { left: left.into(), ..Ty::default() }
    }

    fn text(&self) -> String {
        format!("{}{}", self.left, self.right)
    }

    fn pointer_to(mut self, mark: &str) -> Ty {
        if self.right.starts_with(['(', '[']) {
            self.left += " (";
            self.right.insert(0, ')');
        }
        self.left += mark;
        Ty { pointer: true, ..self }
    }

    fn qualified(mut self, word: &str) -> Ty {
        if self.pointer {
            self.left += &format!(" {word}");
        } else if self.left.split(' ').all(|known| known != word) {
            self.left = format!("{word} {}", self.left);
        }
        self
    }
}

struct Parser<'a> {
    rest: &'a str,
    substitutions: Vec<Ty>,
    /// The arguments of the outermost template, for its parameters.
    arguments: Vec<String>,
    depth: usize,
    /// Whether template arguments are being read, whose own templates' arguments are not for the function's parameters.
    nested: bool,
}

impl Parser<'_> {
    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn peek(&self) -> char {
        self.rest.chars().next().unwrap_or('\0')
    }

    fn number(&mut self) -> Option<usize> {
        let digits = self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        number.parse().ok()
    }

    /// The number of a substitution or template parameter: `_` is the first, `0_` the second.
    fn sequence(&mut self, radix: u32) -> Option<usize> {
        let end = self.rest.find('_')?;
        let (digits, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        if digits.is_empty() {
            return Some(0);
        }
        usize::from_str_radix(digits, radix).ok()?.checked_add(1)
    }

    /// Remembers something that a substitution may name.
    fn remember(&mut self, ty: &Ty) -> Option<()> {
        (ty.left.len() + ty.right.len() <= LONGEST && self.substitutions.len() < 1024).then_some(())?;
        self.substitutions.push(ty.clone());
        Some(())
    }

    fn source_name(&mut self) -> Option<String> {
        let length = self.number()?;
        let name = self.rest.get(..length)?;
        self.rest = &self.rest[length..];
        while self.eat("B") {
            // ABI tags.
            let length = self.number()?;
            self.rest = self.rest.get(length..)?;
        }
        let hidden = name.starts_with("_GLOBAL__N") || name.starts_with("_INTERNAL");
        Some(if hidden { "(anonymous namespace)".to_owned() } else { name.to_owned() })
    }

    /// The name of a function, a variable or a class.
    fn name(&mut self) -> Option<Name> {
        self.deeper(|parser| match parser.peek() {
            'N' => parser.nested_name(),
            'Z' => parser.local_name(),
            _ => {
                let substituted = parser.peek() == 'S' && !parser.rest.starts_with("St");
                let mut name = if parser.eat("St") {
                    let Name { text, plain, special, .. } = parser.unqualified("")?;
                    Name { text: format!("std::{text}"), plain, template: false, special }
                } else if parser.peek() == 'S' {
                    let text = parser.substitution()?.text();
                    let plain = last_part(&text);
                    Name { text, plain, template: false, special: false }
                } else {
                    parser.unqualified("")?
                };
                if parser.peek() == 'I' {
                    // A template is remembered without its arguments, too, unless it was named by a substitution.
                    if !substituted {
                        parser.remember(&Ty::new(name.text.clone()))?;
                    }
                    name.text += &parser.template_arguments()?;
                    name.template = true;
                }
                Some(name)
            }
        })
    }

    fn nested_name(&mut self) -> Option<Name> {
        self.eat("N");
        while self.eat("r") || self.eat("V") || self.eat("K") || self.eat("R") || self.eat("O") {}
        let mut name = Name::default();
        while !self.eat("E") {
            name.special = false;
            match self.peek() {
                'S' if !self.rest.starts_with("St") => {
                    let text = self.substitution()?.text();
                    name = Name { plain: last_part(&text), text, ..Name::default() };
                    continue;
                }
                'S' => {
                    self.eat("St");
                    name = Name { text: "std".to_owned(), plain: "std".to_owned(), ..Name::default() };
                    continue;
                }
                'T' => {
                    name.text = self.template_parameter()?;
                    name.template = false;
                }
                'I' => {
                    name.text += &self.template_arguments()?;
                    name.template = true;
                }
                _ => {
                    let part = self.unqualified(&name.plain)?;
                    let joined = if name.text.is_empty() {
                        part.text.clone()
                    } else {
                        format!("{}::{}", name.text, part.text)
                    };
                    name = Name { text: joined, template: false, ..part };
                }
            }
            if name.text.is_empty() || self.rest.is_empty() {
                return None;
            }
            // The whole name is not remembered here; as a class it is by whoever asked.
            if self.peek() != 'E' {
                self.remember(&Ty::new(name.text.clone()))?;
            }
        }
        (!name.text.is_empty()).then_some(name)
    }

    /// A name within a function.
    fn local_name(&mut self) -> Option<Name> {
        self.eat("Z");
        let outer = self.name()?;
        if self.peek() != 'E' {
            if outer.template && !outer.special {
                self.ty()?;
            }
            self.parameters(|rest| rest.starts_with('E'))?;
        }
        self.eat("E").then_some(())?;
        if self.eat("s") {
            return Some(outer);
        }
        let inner = self.name()?;
        if self.eat("_") {
            // Which of several of that name it is.
            if self.eat("_") {
                self.number()?;
                self.eat("_").then_some(())?;
            } else {
                self.number()?;
            }
        }
        Some(Name { text: format!("{}::{}", outer.text, inner.text), ..inner })
    }

    /// One part of a name. `class` is the part before it, which constructors are named after.
    fn unqualified(&mut self, class: &str) -> Option<Name> {
        self.eat("L");
        let special = |text: String| Name { plain: text.clone(), text, template: false, special: true };
        if self.peek().is_ascii_digit() {
            let text = self.source_name()?;
            return Some(Name { plain: text.clone(), text, ..Name::default() });
        }
        if self.eat("Ul") {
            let parameters = self.parameters(|rest| rest.starts_with('E'))?;
            self.eat("E").then_some(())?;
            let number = self.sequence(10)? + 1;
            let text = format!("{{lambda{parameters}#{number}}}");
            return Some(Name { plain: text.clone(), text, ..Name::default() });
        }
        if self.eat("Ut") {
            let text = format!("{{unnamed type#{}}}", self.sequence(10)? + 1);
            return Some(Name { plain: text.clone(), text, ..Name::default() });
        }
        for (codes, destructor) in [(["C1", "C2", "C3"], false), (["D0", "D1", "D2"], true)] {
            if codes.iter().any(|code| self.eat(code)) {
                return Some(special(format!("{}{class}", if destructor { "~" } else { "" })));
            }
        }
        if self.eat("cv") {
            return Some(special(format!("operator {}", self.ty()?.text())));
        }
        let (code, sign) = OPERATORS.iter().find(|(code, _)| self.rest.starts_with(code))?;
        self.rest = &self.rest[code.len()..];
        let text = format!("operator{sign}");
        Some(Name { plain: text.clone(), text, ..Name::default() })
    }

    fn substitution(&mut self) -> Option<Ty> {
        self.eat("S").then_some(())?;
        let known = [
            ("t", "std"),
            ("a", "std::allocator"),
            ("b", "std::basic_string"),
            ("s", "std::string"),
            ("i", "std::istream"),
            ("o", "std::ostream"),
            ("d", "std::iostream"),
        ];
        if let Some((_, name)) = known.iter().find(|(code, _)| self.eat(code)) {
            return Some(Ty::new(*name));
        }
        let number = self.sequence(36)?;
        self.substitutions.get(number).cloned()
    }

    fn template_parameter(&mut self) -> Option<String> {
        self.eat("T").then_some(())?;
        let number = self.sequence(10)?;
        self.arguments.get(number).cloned()
    }

    fn template_arguments(&mut self) -> Option<String> {
        self.eat("I").then_some(())?;
        let outer = std::mem::replace(&mut self.nested, true);
        let mut arguments = Vec::new();
        while !self.eat("E") {
            arguments.push(self.template_argument()?);
        }
        self.nested = outer;
        let shown: Vec<&str> =
            arguments.iter().map(String::as_str).filter(|argument| !argument.is_empty()).collect();
        let text = format!("<{}>", shown.join(", "));
        if !self.nested {
            self.arguments = arguments;
        }
        Some(text)
    }

    fn template_argument(&mut self) -> Option<String> {
        self.deeper(|parser| match parser.peek() {
            'L' => parser.literal(),
            'J' => {
                parser.eat("J");
                let mut all = Vec::new();
                while !parser.eat("E") {
                    all.push(parser.template_argument()?);
                }
                Some(all.join(", "))
            }
            'X' => None,
            _ => Some(parser.ty()?.text()),
        })
    }

    /// A constant, such as `Li256E`.
    fn literal(&mut self) -> Option<String> {
        self.eat("L").then_some(())?;
        if self.eat("_Z") {
            let name = self.name()?;
            if self.peek() != 'E' {
                if name.template {
                    self.ty()?;
                }
                self.parameters(|rest| rest.starts_with('E'))?;
            }
            self.eat("E").then_some(())?;
            return Some(format!("&{}", name.text));
        }
        let kind = self.peek();
        let ty = self.ty()?.text();
        let end = self.rest.find('E')?;
        let (value, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        let value = value.replacen('n', "-", 1);
        Some(match (kind, value.as_str()) {
            ('b', "0") => "false".to_owned(),
            ('b', "1") => "true".to_owned(),
            ('i', _) => value,
            ('j', _) => value + "u",
            ('l', _) => value + "l",
            ('m', _) => value + "ul",
            ('x', _) => value + "ll",
            ('y', _) => value + "ull",
            _ => format!("({ty}){value}"),
        })
    }

    fn parameters(&mut self, ends: impl Fn(&str) -> bool) -> Option<String> {
        let mut all = Vec::new();
        while !ends(self.rest) {
            let ty = self.ty()?.text();
            if !ty.is_empty() {
                all.push(ty);
            }
        }
        if all == ["void"] {
            all.clear();
        }
        Some(format!("({})", all.join(", ")))
    }

    fn ty(&mut self) -> Option<Ty> {
        self.deeper(Parser::shallow_ty)
    }

    fn shallow_ty(&mut self) -> Option<Ty> {
        let letter = self.peek();
        if let Some((_, name)) = BUILT_IN.iter().find(|(code, _)| *code == letter) {
            self.rest = &self.rest[1..];
            return Some(Ty::new(*name));
        }
        let ty = match letter {
            'P' | 'R' | 'O' => {
                self.rest = &self.rest[1..];
                let mark = match letter {
                    'P' => "*",
                    'R' => "&",
                    _ => "&&",
                };
                self.ty()?.pointer_to(mark)
            }
            'K' | 'V' | 'r' => {
                let mut words = Vec::new();
                while let Some(word) = [("r", "__restrict__"), ("V", "volatile"), ("K", "const")]
                    .iter()
                    .find_map(|&(code, word)| self.eat(code).then_some(word))
                {
                    words.push(word);
                }
                words.iter().rev().fold(self.ty()?, |ty, word| ty.qualified(word))
            }
            'A' => {
                self.eat("A");
                let extent = if self.peek() == '_' { String::new() } else { self.number()?.to_string() };
                self.eat("_").then_some(())?;
                let mut ty = self.ty()?;
                ty.right.insert_str(0, &format!("[{extent}]"));
                ty
            }
            'F' => {
                self.eat("F");
                self.eat("Y");
                let mut ty = self.ty()?;
                let parameters = self.parameters(|rest| rest.starts_with('E'))?;
                self.eat("E");
                ty.right.insert_str(0, &parameters);
                ty.pointer = false;
                ty
            }
            'M' => {
                self.eat("M");
                let class = self.ty()?.text();
                self.ty()?.pointer_to(&format!("{class}::*"))
            }
            'T' => {
                let parameter = Ty::new(self.template_parameter()?);
                let pointer = parameter.left.ends_with(['*', '&']);
                Ty { pointer, ..parameter }
            }
            'S' if !self.rest.starts_with("St") => {
                let ty = self.substitution()?;
                if self.peek() != 'I' {
                    return Some(ty);
                }
                Ty::new(ty.text() + &self.template_arguments_of_type()?)
            }
            'D' => return self.extended(),
            'u' => {
                self.eat("u");
                Ty::new(self.source_name()?)
            }
            _ => {
                let outer = std::mem::replace(&mut self.nested, true);
                let name = self.name()?;
                self.nested = outer;
                Ty::new(name.text)
            }
        };
        self.remember(&ty)?;
        Some(ty)
    }

    fn template_arguments_of_type(&mut self) -> Option<String> {
        let outer = std::mem::replace(&mut self.nested, true);
        let text = self.template_arguments();
        self.nested = outer;
        text
    }

    /// Types that start with `D`.
    fn extended(&mut self) -> Option<Ty> {
        for (code, name) in [
            ("Dn", "std::nullptr_t"),
            ("Dh", "_Float16"),
            ("DF16_", "_Float16"),
            ("DF16b", "__bf16"),
            ("Du", "char8_t"),
            ("Ds", "char16_t"),
            ("Di", "char32_t"),
            ("Da", "auto"),
            ("Dc", "decltype(auto)"),
        ] {
            if self.eat(code) {
                return Some(Ty::new(name));
            }
        }
        if self.eat("Dp") {
            let ty = self.ty()?;
            self.remember(&ty)?;
            return Some(ty);
        }
        if self.eat("Dv") {
            let lanes = self.number()?;
            self.eat("_").then_some(())?;
            let ty = Ty::new(format!("{} __vector({lanes})", self.ty()?.text()));
            self.remember(&ty)?;
            return Some(ty);
        }
        None
    }

    /// Guards against names that nest without end, or that grow too long.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth >= DEPTH || self.rest.len() > LONGEST {
            return None;
        }
        self.depth += 1;
        let found = inner(self);
        self.depth -= 1;
        found
    }
}

/// The last part of a qualified name, without template arguments.
fn last_part(name: &str) -> String {
    let mut depth = 0usize;
    let mut start = 0;
    let mut end = name.len();
    for (at, letter) in name.char_indices() {
        match letter {
            '<' => {
                if depth == 0 {
                    end = at;
                }
                depth += 1;
            }
            '>' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => {
                start = at + 1;
                end = name.len();
            }
            _ => {}
        }
    }
    name.get(start..end).unwrap_or(name).to_owned()
}

const BUILT_IN: [(char, &str); 21] = [
    ('v', "void"),
    ('w', "wchar_t"),
    ('b', "bool"),
    ('c', "char"),
    ('a', "signed char"),
    ('h', "unsigned char"),
    ('s', "short"),
    ('t', "unsigned short"),
    ('i', "int"),
    ('j', "unsigned int"),
    ('l', "long"),
    ('m', "unsigned long"),
    ('x', "long long"),
    ('y', "unsigned long long"),
    ('n', "__int128"),
    ('o', "unsigned __int128"),
    ('f', "float"),
    ('d', "double"),
    ('e', "long double"),
    ('g', "__float128"),
    ('z', "..."),
];

const OPERATORS: [(&str, &str); 30] = [
    ("cl", "()"),
    ("ix", "[]"),
    ("pl", "+"),
    ("mi", "-"),
    ("ml", "*"),
    ("dv", "/"),
    ("rm", "%"),
    ("an", "&"),
    ("or", "|"),
    ("eo", "^"),
    ("aS", "="),
    ("pL", "+="),
    ("mI", "-="),
    ("mL", "*="),
    ("dV", "/="),
    ("ls", "<<"),
    ("rs", ">>"),
    ("eq", "=="),
    ("ne", "!="),
    ("lt", "<"),
    ("gt", ">"),
    ("le", "<="),
    ("ge", ">="),
    ("nt", "!"),
    ("aa", "&&"),
    ("oo", "||"),
    ("pp", "++"),
    ("mm", "--"),
    ("pt", "->"),
    ("co", "~"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What `c++filt` says, with `const` in front.
    #[test]
    fn names_of_kernels() {
        for (mangled, full, qualified, plain) in [
            ("_Z5scalePKfPfi", "scale(const float*, float*, int)", "scale", "scale"),
            ("_Z1kv", "k()", "k", "k"),
            (
                "_Z5scaleIfEvPKT_PS0_i",
                "void scale<float>(const float*, float*, int)",
                "scale<float>",
                "scale",
            ),
            (
                "_Z6reduceIfLi256ELb1EEvPKT_PS0_m",
                "void reduce<float, 256, true>(const float*, float*, unsigned long)",
                "reduce<float, 256, true>",
                "reduce",
            ),
            ("_ZN2ns5outer1kEPi", "ns::outer::k(int*)", "ns::outer::k", "k"),
            (
                "_ZN2ns1kINS_3AddEdEEvT_PT0_S4_",
                "void ns::k<ns::Add, double>(ns::Add, double*, double*)",
                "ns::k<ns::Add, double>",
                "k",
            ),
            (
                "_ZN12_GLOBAL__N_11kEPVj",
                "(anonymous namespace)::k(volatile unsigned int*)",
                "(anonymous namespace)::k",
                "k",
            ),
            ("_Z1kPFffEPA16_f", "k(float (*)(float), float (*)[16])", "k", "k"),
            ("_Z1kIL_Z3addffEEvPf", "void k<&add>(float*)", "k<&add>", "k"),
            ("_Z1kIJifEEvDpT_", "void k<int, float>(int, float)", "k<int, float>", "k"),
            ("_Z1kI6__halfEvP7__half2PKT_", "void k<__half>(__half2*, const __half*)", "k<__half>", "k"),
            ("_Z1kILj32ELin1EEvv", "void k<32u, -1>()", "k<32u, -1>", "k"),
            ("_ZN1SclEPf", "S::operator()(float*)", "S::operator()", "operator()"),
            ("_Z1kSt4pairIifE", "k(std::pair<int, float>)", "k", "k"),
            ("_Z1kPKfS0_Pf", "k(const float*, const float*, float*)", "k", "k"),
        ] {
            let found = demangle(mangled).unwrap_or_else(|| panic!("{mangled}"));
            assert_eq!(
                (found.full.as_str(), found.qualified.as_str(), found.plain.as_str()),
                (full, qualified, plain)
            );
        }
    }

    #[test]
    fn what_is_no_mangled_name_is_none() {
        for name in [
            "",
            "_Z1kIXadL_Z3addffEEEvPf",
            "scale",
            "_Z",
            "_Z5sca",
            "_ZN",
            "_ZNE",
            "_Z1kS_",
            "_Z1kT_",
            "_Z99999999999999999999k",
            "_Z1kIEE",
            "_Zé",
        ] {
            assert_eq!(demangle(name), None, "{name}");
        }
        // Nesting and doubling end.
        assert_eq!(demangle(&format!("_Z1k{}i", "P".repeat(3000))), None);
        let doubling = format!("_Z1kPFv{}", "PFvS_S_E".repeat(200));
        assert_eq!(demangle(&doubling), None);
    }
}
