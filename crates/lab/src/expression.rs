//! Arithmetic in task descriptions: `ceil(n / 256)`, or `a * x + y` over the elements of buffers. All of it is in f64.

use std::fmt;

/// The longest text, and how deep parentheses may lie in each other: descriptions come from anywhere.
const LONGEST: usize = 2000;
const DEEPEST: usize = 60;

/// An expression over names.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    text: String,
    names: Vec<String>,
    root: Node,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
    /// A name, by its place among the expression's names.
    Name(usize),
    Negated(Box<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

/// Why a text is no expression, or has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// The text cannot be read.
    #[error("`{text}` is not an expression: {what}")]
    Syntax {
        /// The text.
        text: String,
        /// What is wrong with it.
        what: String,
    },
    /// A name that nothing has.
    #[error("`{text}` names {name}, which is not known here; known are {known}")]
    Unknown {
        /// The text.
        text: String,
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The value is not a number that counts something.
    #[error("{}; it must be a whole number from {least} to {most}", if text == value { format!("it is {value}") } else { format!("`{text}` is {value}") })]
    NotACount {
        /// The text.
        text: String,
        /// What it is.
        value: String,
        /// The smallest that is allowed.
        least: u64,
        /// The largest that is allowed.
        most: u64,
    },
}

macro_rules! functions {
    ($($name:literal => $variant:ident, $arguments:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Function { $($variant),* }

        impl Function {
            const ALL: &[(&'static str, Function, usize)] = &[$(($name, Function::$variant, $arguments)),*];
        }
    };
}
functions! {
    "abs" => Abs, 1;
    "ceil" => Ceil, 1;
    "cos" => Cos, 1;
    "erf" => Erf, 1;
    "exp" => Exp, 1;
    "exp2" => Exp2, 1;
    "floor" => Floor, 1;
    "log" => Log, 1;
    "log10" => Log10, 1;
    "log2" => Log2, 1;
    "max" => Max, 2;
    "min" => Min, 2;
    "pow" => Pow, 2;
    "round" => Round, 1;
    "select" => Select, 3;
    "sign" => Sign, 1;
    "sin" => Sin, 1;
    "sqrt" => Sqrt, 1;
    "tan" => Tan, 1;
    "tanh" => Tanh, 1;
    "trunc" => Trunc, 1;
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// If the text is not one.
    pub fn parse(text: &str) -> Result<Expression, ExpressionError> {
        let shown: String = text.chars().take(80).collect();
        let wrong = |what: String| ExpressionError::Syntax { text: shown.clone(), what };
        if text.len() > LONGEST {
            return Err(wrong(format!("it has more than {LONGEST} characters")));
        }
        let mut parser = Parser { rest: text, names: Vec::new(), depth: 0 };
        let root = parser.comparison().map_err(wrong)?;
        match parser.peek() {
            None => Ok(Expression { text: text.trim().to_owned(), names: parser.names, root }),
            Some(left) => Err(wrong(format!("it goes on with `{left}` where it should end"))),
        }
    }

    /// A number.
    pub(crate) fn number(value: f64) -> Expression {
        Expression { text: value.to_string(), names: Vec::new(), root: Node::Number(value) }
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names in it, each once, in the order in which [`Expression::value`] takes their values.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Its value, if its names have these values.
    pub fn value(&self, values: &[f64]) -> f64 {
        value(&self.root, values)
    }

    /// Its value, with a function that knows what names mean.
    ///
    /// # Errors
    /// If a name means nothing.
    pub fn evaluate(&self, known: &Scope) -> Result<f64, ExpressionError> {
        let values: Result<Vec<f64>, ExpressionError> = self
            .names
            .iter()
            .map(|name| {
                known.get(name).ok_or_else(|| ExpressionError::Unknown {
                    text: self.text.clone(),
                    name: name.clone(),
                    known: known.names(),
                })
            })
            .collect();
        Ok(self.value(&values?))
    }

    /// Its value, if that is a whole number within bounds.
    ///
    /// # Errors
    /// If it is not, or a name means nothing.
    pub fn count(&self, known: &Scope, least: u64, most: u64) -> Result<u64, ExpressionError> {
        let value = self.evaluate(known)?;
        if value.fract() == 0.0 && value >= least as f64 && value <= most as f64 {
            return Ok(value as u64);
        }
        Err(ExpressionError::NotACount { text: self.text.clone(), value: value.to_string(), least, most })
    }
}

/// What names mean: the task's sizes and constants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope(Vec<(String, f64)>);

impl Scope {
    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Gives a name a value, which hides an earlier one.
    pub fn set(&mut self, name: &str, value: f64) {
        self.0.push((name.to_owned(), value));
    }

    /// All names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    fn names(&self) -> String {
        match self.0.as_slice() {
            [] => "none".to_owned(),
            known => known.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
        }
    }
}

fn value(node: &Node, values: &[f64]) -> f64 {
    let truth = |is: bool| f64::from(u8::from(is));
    match node {
        Node::Number(number) => *number,
        Node::Name(name) => values.get(*name).copied().unwrap_or(f64::NAN),
        Node::Negated(node) => -value(node, values),
        Node::Binary(operator, left, right) => {
            let (left, right) = (value(left, values), value(right, values));
            match operator {
                Operator::Add => left + right,
                Operator::Subtract => left - right,
                Operator::Multiply => left * right,
                Operator::Divide => left / right,
                Operator::Remainder => left % right,
                Operator::Less => truth(left < right),
                Operator::LessOrEqual => truth(left <= right),
                Operator::Greater => truth(left > right),
                Operator::GreaterOrEqual => truth(left >= right),
                Operator::Equal => truth(left == right),
                Operator::NotEqual => truth(left != right),
            }
        }
        Node::Call(function, arguments) => {
            let argument = |at: usize| arguments.get(at).map_or(f64::NAN, |node| value(node, values));
            let x = argument(0);
            // Those of the platform's library differ between systems in their last bit.
            match function {
                Function::Abs => x.abs(),
                Function::Ceil => x.ceil(),
                Function::Cos => libm::cos(x),
                Function::Erf => libm::erf(x),
                Function::Exp => libm::exp(x),
                Function::Exp2 => libm::exp2(x),
                Function::Floor => x.floor(),
                Function::Log => libm::log(x),
                Function::Log10 => libm::log10(x),
                Function::Log2 => libm::log2(x),
                Function::Max => either(x, argument(1), x > argument(1)),
                Function::Min => either(x, argument(1), x < argument(1)),
                Function::Pow => libm::pow(x, argument(1)),
                Function::Round => libm::rint(x),
                Function::Select => argument(if x != 0.0 { 1 } else { 2 }),
                Function::Sign => {
                    if x == 0.0 || x.is_nan() {
                        x
                    } else {
                        x.signum()
                    }
                }
                Function::Sin => libm::sin(x),
                Function::Sqrt => x.sqrt(),
                Function::Tan => libm::tan(x),
                Function::Tanh => libm::tanh(x),
                Function::Trunc => x.trunc(),
            }
        }
    }
}

/// The larger or smaller of two; as in CUDA, that which is a number if the other is not.
fn either(x: f64, y: f64, first: bool) -> f64 {
    if first || y.is_nan() { x } else { y }
}

struct Parser<'a> {
    rest: &'a str,
    names: Vec<String>,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn take(&mut self, token: &str) -> bool {
        self.peek();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn one_of(&mut self, operators: &[(&str, Operator)]) -> Option<Operator> {
        let found = operators.iter().find(|(token, _)| self.take(token));
        found.map(|(_, operator)| *operator)
    }

    fn comparison(&mut self) -> Result<Node, String> {
        use Operator::*;
        let operators = [
            ("<=", LessOrEqual),
            (">=", GreaterOrEqual),
            ("==", Equal),
            ("!=", NotEqual),
            ("<", Less),
            (">", Greater),
        ];
        let left = self.sum()?;
        match self.one_of(&operators) {
            Some(operator) => Ok(Node::Binary(operator, Box::new(left), Box::new(self.sum()?))),
            None => Ok(left),
        }
    }

    fn sum(&mut self) -> Result<Node, String> {
        self.row(&[("+", Operator::Add), ("-", Operator::Subtract)], Parser::product)
    }

    fn product(&mut self) -> Result<Node, String> {
        let operators = [("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)];
        self.row(&operators, Parser::factor)
    }

    /// Parts with operators between them, from left to right. A long row is a deep tree.
    fn row(
        &mut self,
        operators: &[(&str, Operator)],
        part: impl Fn(&mut Self) -> Result<Node, String>,
    ) -> Result<Node, String> {
        let mut node = part(self)?;
        let mut length = 0;
        while let Some(operator) = self.one_of(operators) {
            length += 1;
            if length > 10 * DEEPEST {
                return Err("it is too long".to_owned());
            }
            node = Node::Binary(operator, Box::new(node), Box::new(part(self)?));
        }
        Ok(node)
    }

    fn factor(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("its parentheses lie in each other more than {DEEPEST} deep"));
        }
        let node = self.atom();
        self.depth -= 1;
        node
    }

    fn atom(&mut self) -> Result<Node, String> {
        if self.take("-") {
            return Ok(Node::Negated(Box::new(self.factor()?)));
        }
        if self.take("(") {
            let node = self.comparison()?;
            return if self.take(")") { Ok(node) } else { Err("a `)` is missing".to_owned()) };
        }
        match self.peek() {
            None => Err("it ends where a number or a name should be".to_owned()),
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.name(),
            Some(c) => Err(format!("`{c}` is where a number or a name should be")),
        }
    }

    fn number(&mut self) -> Result<Node, String> {
        let bytes = self.rest.as_bytes();
        let mut end = 0;
        while let Some(&byte) = bytes.get(end) {
            let sign = matches!(byte, b'+' | b'-') && matches!(bytes[end - 1], b'e' | b'E');
            if !(byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'_') || sign) {
                break;
            }
            end += 1;
        }
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        let number: f64 =
            digits.replace('_', "").parse().map_err(|_| format!("`{digits}` is not a number"))?;
        Ok(Node::Number(number))
    }

    fn name(&mut self) -> Result<Node, String> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        if self.take("(") {
            return self.call(name);
        }
        let known = self.names.iter().position(|known| known == name);
        let place = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        Ok(Node::Name(place))
    }

    fn call(&mut self, name: &str) -> Result<Node, String> {
        let Some(&(_, function, wanted)) = Function::ALL.iter().find(|(known, ..)| *known == name) else {
            let known: Vec<&str> = Function::ALL.iter().map(|(known, ..)| *known).collect();
            return Err(format!("there is no function {name}; there are {}", known.join(", ")));
        };
        let mut arguments = Vec::new();
        loop {
            arguments.push(self.comparison()?);
            if self.take(")") {
                break;
            }
            if !self.take(",") {
                return Err("a `)` is missing".to_owned());
            }
            if arguments.len() > 3 {
                break;
            }
        }
        match arguments.len() == wanted {
            true => Ok(Node::Call(function, arguments)),
            false => Err(format!("{name} takes {wanted} argument{}", if wanted == 1 { "" } else { "s" })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        let mut scope = Scope::default();
        scope.set("n", 1000.0);
        scope.set("k", 3.0);
        scope
    }

    #[test]
    fn arithmetic_is_as_in_school() {
        for (text, expected) in [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("10 - 4 - 3", 3.0),
            ("-2 * -n", 2000.0),
            ("ceil(n / 256)", 4.0),
            ("n % 256", 232.0),
            ("min(n, 5) + max(k, 7)", 12.0),
            ("pow(2, k)", 8.0),
            ("select(n > 5, 1, 2)", 1.0),
            ("(n <= 999) + (n != 1) + (k == 3) + (k >= 3) + (k < 3)", 3.0),
            ("1e3 + 1.5e-1 + .25 + 1_000", 2000.4),
            ("log2(1024) + sqrt(16) + round(2.5) + trunc(-1.5) + sign(-3)", 14.0),
            ("erf(0) + exp(0) + tanh(0)", 1.0),
        ] {
            let value = Expression::parse(text).unwrap().evaluate(&scope()).unwrap();
            assert!((value - expected).abs() < 1e-12, "{text} is {value}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        let deep = "(".repeat(5000);
        let negated = "-".repeat(1000) + "1";
        let long = "1+".repeat(999) + "1";
        for text in [
            "",
            " ",
            "1 +",
            "(1",
            "1)",
            "n n",
            "f(1)",
            "min(1)",
            "min(1,2,3,4,5,6)",
            "ceil()",
            "1..2",
            "1e",
            "$",
            "ä",
            "a.b",
            "0x10",
            "1 < 2 < 3",
            &deep,
            &negated,
            &long,
            "__import__('os')",
            "exp2(1",
        ] {
            let error = Expression::parse(text).unwrap_err();
            assert!(error.to_string().len() < 400, "{error}");
        }
    }

    #[test]
    fn a_count_is_whole_and_within_bounds() {
        let count = |text: &str| Expression::parse(text).unwrap().count(&scope(), 1, 5000);
        assert_eq!(count("n * k"), Ok(3000));
        for text in ["n / k", "0", "-1", "0 / 0", "1 / 0", "n * n", "sqrt(-1)"] {
            assert!(matches!(count(text), Err(ExpressionError::NotACount { .. })), "{text}");
        }
        let unknown = count("m + 1").unwrap_err().to_string();
        assert!(unknown.contains("names m") && unknown.contains("n, k"), "{unknown}");
    }

    #[test]
    fn the_larger_of_a_number_and_none_is_the_number() {
        let max = Expression::parse("max(a, b)").unwrap();
        assert_eq!((max.value(&[f64::NAN, 1.0]), max.value(&[1.0, f64::NAN])), (1.0, 1.0));
    }
}
