//! Declarations of variables, registers and parameters, and initial values.

use super::{
    parse::Parser,
    token::Token,
    tree::{Prototype, Space, Statement, Value, Variable},
};
use crate::error::PtxError;

impl<'a> Parser<'a, '_> {
    pub(super) fn parameters(&mut self) -> Result<Vec<Variable<'a>>, PtxError> {
        self.expect(b'(')?;
        let mut all = Vec::new();
        while !self.takes(b')') {
            if !all.is_empty() {
                self.expect(b',')?;
            }
            all.push(self.variable()?);
        }
        Ok(all)
    }

    /// A declaration without its terminator, which the caller takes.
    pub(super) fn variable(&mut self) -> Result<Variable<'a>, PtxError> {
        let space = match self.word("a state space")? {
            ".reg" => Space::Register,
            ".global" => Space::Global,
            ".const" => Space::Constant,
            ".shared" | ".shared::cta" => Space::Shared,
            ".local" => Space::Local,
            ".param" => Space::Parameter,
            _ => {
                self.at -= 1;
                return self.unexpected("a state space");
            }
        };
        let mut align = 0;
        let mut lanes = 1;
        let mut type_name = None;
        let name = loop {
            let place = self.place();
            let word = self.word("a type")?;
            match word {
                ".align" => align = self.integer()?,
                ".v2" => lanes = 2,
                ".v4" => lanes = 4,
                // An attribute of a pointer parameter: the state space that it points to.
                ".ptr" | ".global" | ".shared" | ".const" | ".local" | ".managed" => {}
                ".v8" => lanes = 8,
                ".attribute" => self.skip_parentheses()?,
                _ if word.starts_with('.') && type_name.is_none() => type_name = Some(&word[1..]),
                _ if word.starts_with('.') => {
                    return Err(PtxError::syntax(place, format!("unexpected {word} in a declaration")));
                }
                _ => break word,
            }
        };
        let place = self.tokens.get(self.at.saturating_sub(1)).map_or_else(|| self.place(), |t| t.place);
        let Some(type_name) = type_name else {
            return Err(PtxError::syntax(place, format!("{name} has no type")));
        };
        let mut variable = Variable {
            space,
            name,
            place,
            type_name,
            lanes,
            copies: None,
            align,
            elements: Some(1),
            external: false,
            values: Vec::new(),
        };
        if self.takes(b'<') {
            variable.copies = Some(self.integer()?);
            self.expect(b'>')?;
        }
        while self.takes(b'[') {
            if self.takes(b']') {
                variable.elements = None;
                continue;
            }
            let count = self.integer()?;
            let product = variable.elements.unwrap_or(1).checked_mul(count);
            variable.elements =
                Some(product.ok_or_else(|| PtxError::syntax(place, format!("{name} is too large")))?);
            self.expect(b']')?;
        }
        if self.takes(b'=') {
            variable.values = self.values()?;
        }
        Ok(variable)
    }

    /// An initial value; nested braces are flattened.
    fn values(&mut self) -> Result<Vec<Value<'a>>, PtxError> {
        let mut values = Vec::new();
        let mut depth = 0u32;
        loop {
            let negative = self.takes(b'-');
            match self.peek() {
                Some(Token::Mark(b'{')) => depth += 1,
                Some(Token::Mark(b'}')) if depth > 0 => depth -= 1,
                Some(Token::Mark(b',')) if depth > 0 => {}
                // Some bytes of an address: `0xFF00(generic(x)+8)`.
                Some(Token::Integer(mask)) if self.peek_after() == Some(Token::Mark(b'(')) => {
                    self.at += 2;
                    let inner = self.word("a variable")?;
                    self.at -= 1;
                    let (name, offset) = self.symbol_address(inner)?;
                    self.at += 1;
                    if self.peek() != Some(Token::Mark(b')')) {
                        return self.unexpected("')'");
                    }
                    values.push(Value::Masked(mask, name, offset));
                }
                Some(Token::Integer(value)) => {
                    values.push(Value::Integer(if negative { value.wrapping_neg() } else { value }));
                }
                Some(Token::Single(bits)) => values.push(Value::Single(bits)),
                Some(Token::Double(bits)) => values.push(Value::Double(bits)),
                Some(Token::Word(word)) => {
                    let (name, offset) = self.symbol_address(word)?;
                    values.push(Value::Address(name, offset));
                }
                _ => return self.unexpected("a value"),
            }
            self.at += 1;
            if depth == 0 {
                return Ok(values);
            }
        }
    }

    /// A symbol's address in an initial value, which starts with a word; stays at its last token.
    fn symbol_address(&mut self, word: &'a str) -> Result<(&'a str, u64), PtxError> {
        let mut name = word;
        if word == "generic" {
            self.at += 1;
            self.expect(b'(')?;
            name = self.word("a variable")?;
            if self.peek() != Some(Token::Mark(b')')) {
                return self.unexpected("')'");
            }
        }
        let mut offset = 0;
        if self.peek_after() == Some(Token::Mark(b'+')) {
            self.at += 2;
            offset = self.integer()?;
            self.at -= 1;
        }
        Ok((name, offset))
    }

    /// The rest of `.callprototype`: results, the name `_`, parameters.
    pub(super) fn prototype(&mut self) -> Result<Prototype<'a>, PtxError> {
        let results = if self.peek() == Some(Token::Mark(b'(')) { self.parameters()? } else { Vec::new() };
        self.word("_")?;
        let parameters = if self.peek() == Some(Token::Mark(b'(')) { self.parameters()? } else { Vec::new() };
        self.skip_statement()?;
        Ok(Prototype { results, parameters })
    }

    pub(super) fn more_names(&mut self, body: &mut Vec<Statement<'a>>) -> Result<(), PtxError> {
        let Some(Statement::Declaration(first)) = body.last().cloned() else {
            return self.unexpected("a declaration");
        };
        loop {
            let place = self.place();
            let name = self.word("a name")?;
            let mut copies = None;
            if self.takes(b'<') {
                copies = Some(self.integer()?);
                self.expect(b'>')?;
            }
            body.push(Statement::Declaration(Variable { name, place, copies, ..first.clone() }));
            if !self.takes(b',') {
                return Ok(());
            }
        }
    }
}
