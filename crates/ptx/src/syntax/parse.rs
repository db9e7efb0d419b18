//! From tokens to a module. Nothing recurses deeper than a vector within a list, so no text can exhaust the stack.

use super::{
    token::{self, Placed, Token},
    tree::{Function, Instruction, Location, Module, Operand, Statement},
};
use crate::error::{Place, PtxError};

/// Parses a whole text.
pub(crate) fn parse(text: &str) -> Result<Module<'_>, PtxError> {
    let tokens = token::tokens(text)?;
    let mut parser = Parser { text, tokens: &tokens, at: 0 };
    let mut module = Module::default();
    while parser.peek().is_some() {
        parser.top_level(&mut module)?;
    }
    if module.version == (0, 0) {
        return Err(PtxError::syntax(
            Place { line: 1, column: 1 },
            "expected .version at the start of the module".to_owned(),
        ));
    }
    Ok(module)
}

pub(super) struct Parser<'a, 't> {
    text: &'a str,
    pub(super) tokens: &'t [Placed<'a>],
    pub(super) at: usize,
}

impl<'a> Parser<'a, '_> {
    pub(super) fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).map(|placed| placed.token)
    }

    pub(super) fn peek_after(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at + 1).map(|placed| placed.token)
    }

    pub(super) fn place(&self) -> Place {
        let end = || {
            let line = u32::try_from(self.text.lines().count()).unwrap_or(u32::MAX);
            Place { line: line.max(1), column: 1 }
        };
        self.tokens.get(self.at).map_or_else(end, |placed| placed.place)
    }

    pub(super) fn unexpected<T>(&self, wanted: &str) -> Result<T, PtxError> {
        let found = match self.peek() {
            None => "the text ends".to_owned(),
            Some(Token::Word(word)) => format!("found {word}"),
            Some(Token::Mark(mark)) => format!("found {:?}", char::from(mark)),
            Some(Token::Text(text)) => format!("found {text:?}"),
            Some(_) => "found a number".to_owned(),
        };
        Err(PtxError::syntax(self.place(), format!("expected {wanted}, but {found}")))
    }

    pub(super) fn takes(&mut self, mark: u8) -> bool {
        let there = self.peek() == Some(Token::Mark(mark));
        self.at += usize::from(there);
        there
    }

    pub(super) fn expect(&mut self, mark: u8) -> Result<(), PtxError> {
        if self.takes(mark) { Ok(()) } else { self.unexpected(&format!("{:?}", char::from(mark))) }
    }

    pub(super) fn word(&mut self, wanted: &str) -> Result<&'a str, PtxError> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            _ => self.unexpected(wanted),
        }
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let there = self.peek() == Some(Token::Word(word));
        self.at += usize::from(there);
        there
    }

    /// An integer with a sign.
    pub(super) fn integer(&mut self) -> Result<u64, PtxError> {
        let negative = self.takes(b'-');
        match self.peek() {
            Some(Token::Integer(value)) => {
                self.at += 1;
                Ok(if negative { value.wrapping_neg() } else { value })
            }
            _ => self.unexpected("an integer"),
        }
    }

    fn top_level(&mut self, module: &mut Module<'a>) -> Result<(), PtxError> {
        let place = self.place();
        let word = self.word("a directive")?;
        match word {
            ".version" => module.version = self.version()?,
            ".target" => {
                module.target = self.word("a target")?;
                while self.takes(b',') {
                    self.word("an option of the target")?;
                }
            }
            ".address_size" => {
                if self.integer()? != 64 {
                    return Err(PtxError::syntax(place, "only 64-bit addresses are supported".to_owned()));
                }
            }
            ".file" => {
                let number = self.integer()?;
                let Some(Token::Text(name)) = self.peek() else { return self.unexpected("a file's name") };
                self.at += 1;
                while self.takes(b',') {
                    self.integer()?;
                }
                module.files.push((number, name));
            }
            // Debug information: `.section .debug_str { … }`.
            ".section" => {
                self.word("a section's name")?;
                self.skip_braces()?;
            }
            ".pragma" => self.skip_statement()?,
            ".alias" => {
                let alias = self.word("a function's other name")?;
                self.expect(b',')?;
                module.aliases.push((alias, self.word("a function")?));
                self.expect(b';')?;
            }
            ".visible" | ".extern" | ".weak" | ".common" | ".entry" | ".func" | ".global" | ".const"
            | ".shared" => {
                self.at -= 1;
                self.definition(module)?;
            }
            _ => return Err(PtxError::syntax(place, format!("{word} is not a module-level directive"))),
        }
        Ok(())
    }

    fn version(&mut self) -> Result<(u32, u32), PtxError> {
        let place = self.place();
        let wrong = || PtxError::syntax(place, "expected a version such as 9.0".to_owned());
        let Some(Token::Double(bits)) = self.peek() else { return Err(wrong()) };
        self.at += 1;
        let tenths = f64::from_bits(bits) * 10.0;
        if !(10.0..1000.0).contains(&tenths) {
            return Err(wrong());
        }
        let tenths = tenths.round() as u32;
        Ok((tenths / 10, tenths % 10))
    }

    pub(super) fn skip_statement(&mut self) -> Result<(), PtxError> {
        while !self.takes(b';') {
            if self.peek().is_none() {
                return self.unexpected("';'");
            }
            self.at += 1;
        }
        Ok(())
    }

    fn skip_braces(&mut self) -> Result<(), PtxError> {
        self.expect(b'{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.peek() {
                None => return self.unexpected("'}'"),
                Some(Token::Mark(b'{')) => depth += 1,
                Some(Token::Mark(b'}')) => depth -= 1,
                Some(_) => {}
            }
            self.at += 1;
        }
        Ok(())
    }

    pub(super) fn skip_parentheses(&mut self) -> Result<(), PtxError> {
        self.expect(b'(')?;
        while !self.takes(b')') {
            if self.peek().is_none() {
                return self.unexpected("')'");
            }
            self.at += 1;
        }
        Ok(())
    }

    fn definition(&mut self, module: &mut Module<'a>) -> Result<(), PtxError> {
        let mut external = false;
        loop {
            match self.peek() {
                Some(Token::Word(".extern")) => external = true,
                Some(Token::Word(".visible" | ".weak" | ".common")) => {}
                _ => break,
            }
            self.at += 1;
        }
        if matches!(self.peek(), Some(Token::Word(".entry" | ".func"))) {
            if let Some(function) = self.function(module)? {
                module.functions.push(function);
            }
            return Ok(());
        }
        let mut variable = self.variable()?;
        variable.external = external;
        module.variables.push(variable);
        self.expect(b';')
    }

    /// A function, or `None` for a declaration.
    fn function(&mut self, module: &mut Module<'a>) -> Result<Option<Function<'a>>, PtxError> {
        let entry = self.word("a function")? == ".entry";
        let results = if self.peek() == Some(Token::Mark(b'(')) { self.parameters()? } else { Vec::new() };
        let place = self.place();
        let name = self.word("a function's name")?;
        let parameters = if self.peek() == Some(Token::Mark(b'(')) { self.parameters()? } else { Vec::new() };
        let mut function = Function {
            name,
            place,
            entry,
            results,
            parameters,
            threads: None,
            threads_required: false,
            cluster: None,
            body: Vec::new(),
        };
        loop {
            match self.peek() {
                Some(Token::Mark(b';')) => {
                    self.at += 1;
                    module.declared.push(name);
                    return Ok(None);
                }
                Some(Token::Mark(b'{')) => break,
                Some(Token::Word(directive)) => {
                    self.at += 1;
                    match directive {
                        ".maxntid" => function.threads = Some(self.extents()?),
                        ".reqntid" => {
                            function.threads = Some(self.extents()?);
                            function.threads_required = true;
                        }
                        ".reqnctapercluster" => function.cluster = Some(self.extents()?),
                        ".minnctapersm"
                        | ".maxnreg"
                        | ".maxnctapersm"
                        | ".maxclusterrank"
                        | ".abi_preserve"
                        | ".abi_preserve_control" => {
                            self.integer()?;
                        }
                        ".noreturn" | ".explicitcluster" | ".blocksareclusters" => {}
                        ".attribute" => self.skip_parentheses()?,
                        ".pragma" => self.skip_statement()?,
                        _ => {
                            self.at -= 1;
                            return self.unexpected("a function's body");
                        }
                    }
                }
                _ => return self.unexpected("a function's body"),
            }
        }
        function.body = self.body()?;
        Ok(Some(function))
    }

    /// Up to three numbers; missing ones are 1.
    fn extents(&mut self) -> Result<[u64; 3], PtxError> {
        let mut extents = [1; 3];
        for (i, extent) in extents.iter_mut().enumerate() {
            if i > 0 && !self.takes(b',') {
                break;
            }
            *extent = self.integer()?;
        }
        Ok(extents)
    }

    /// Names up to a semicolon.
    fn names(&mut self, wanted: &str) -> Result<Vec<&'a str>, PtxError> {
        let mut names = Vec::new();
        loop {
            names.push(self.word(wanted)?);
            if !self.takes(b',') {
                break;
            }
        }
        self.expect(b';')?;
        Ok(names)
    }

    fn body(&mut self) -> Result<Vec<Statement<'a>>, PtxError> {
        self.expect(b'{')?;
        let mut depth = 1;
        let mut body = Vec::new();
        loop {
            let place = self.place();
            match (self.peek(), self.peek_after()) {
                (Some(Token::Mark(b'{')), _) => {
                    self.at += 1;
                    depth += 1;
                    body.push(Statement::Open);
                }
                (Some(Token::Mark(b'}')), _) => {
                    self.at += 1;
                    depth -= 1;
                    if depth == 0 {
                        return Ok(body);
                    }
                    body.push(Statement::Close);
                }
                (Some(Token::Mark(b';')), _) => self.at += 1,
                (Some(Token::Word(label)), Some(Token::Mark(b':'))) => {
                    self.at += 2;
                    if self.takes_word(".callprototype") {
                        body.push(Statement::Prototype(label, self.prototype()?));
                    } else if self.takes_word(".calltargets") {
                        body.push(Statement::CallTargets(label, self.names("a function")?));
                    } else {
                        body.push(Statement::Label(label, place));
                        if self.takes_word(".branchtargets") {
                            body.push(Statement::Targets(label, self.names("a label")?));
                        }
                    }
                }
                (Some(Token::Word(".loc")), _) => {
                    self.at += 1;
                    body.push(Statement::Location(self.location()?));
                }
                (Some(Token::Word(".pragma")), _) => self.skip_statement()?,
                (Some(Token::Word(".reg" | ".shared" | ".local" | ".param" | ".global" | ".const")), _) => {
                    body.push(Statement::Declaration(self.variable()?));
                    // `.reg .b32 a, b;` continues with a name of the same type.
                    if self.takes(b',') {
                        self.more_names(&mut body)?;
                    }
                    self.expect(b';')?;
                }
                (Some(Token::Word(_) | Token::Mark(b'@')), _) => {
                    body.push(Statement::Instruction(self.instruction()?));
                }
                _ => return self.unexpected("an instruction"),
            }
        }
    }

    /// The rest of `.loc`.
    fn location(&mut self) -> Result<Location, PtxError> {
        let mut location = Location { file: self.integer()?, line: self.integer()?, inlined_at: None };
        self.integer()?;
        while self.takes(b',') {
            match self.word("function_name or inlined_at")? {
                "function_name" => {
                    self.word("a label")?;
                    if self.takes(b'+') {
                        self.integer()?;
                    }
                }
                "inlined_at" => {
                    location.inlined_at = Some((self.integer()?, self.integer()?));
                    self.integer()?;
                }
                _ => {
                    self.at -= 1;
                    return self.unexpected("function_name or inlined_at");
                }
            }
        }
        Ok(location)
    }

    fn instruction(&mut self) -> Result<Instruction<'a>, PtxError> {
        let mut guard = None;
        if self.takes(b'@') {
            let negated = self.takes(b'!');
            guard = Some((self.word("a predicate")?, negated));
        }
        let place = self.place();
        let opcode = self.word("an opcode")?;
        if opcode.starts_with('.') || opcode.starts_with('%') {
            self.at -= 1;
            return self.unexpected("an opcode");
        }
        let mut operands = Vec::new();
        while !self.takes(b';') {
            if !operands.is_empty() {
                self.expect(b',')?;
            }
            operands.push(self.operand()?);
        }
        Ok(Instruction { place, guard, opcode, operands })
    }

    fn operand(&mut self) -> Result<Operand<'a>, PtxError> {
        match self.peek() {
            Some(Token::Mark(b'{')) => {
                self.at += 1;
                Ok(Operand::Vector(self.list(b'}')?))
            }
            Some(Token::Mark(b'(')) => {
                self.at += 1;
                Ok(Operand::List(self.list(b')')?))
            }
            Some(Token::Mark(b'[')) => {
                self.at += 1;
                self.address()
            }
            _ => self.simple(),
        }
    }

    /// Simple operands up to a closing mark.
    fn list(&mut self, end: u8) -> Result<Vec<Operand<'a>>, PtxError> {
        let mut all = Vec::new();
        while !self.takes(end) {
            if !all.is_empty() {
                self.expect(b',')?;
            }
            all.push(self.simple()?);
        }
        Ok(all)
    }

    fn simple(&mut self) -> Result<Operand<'a>, PtxError> {
        let negative = self.takes(b'-');
        match self.peek() {
            Some(Token::Word(name)) if !negative => {
                self.at += 1;
                if self.takes(b'|') {
                    return Ok(Operand::Pair(name, self.word("a predicate")?));
                }
                if self.peek() == Some(Token::Mark(b'+')) {
                    self.at += 1;
                    return Ok(Operand::Offset(name, self.integer()?));
                }
                Ok(Operand::Name(name))
            }
            Some(Token::Integer(value)) => {
                self.at += 1;
                Ok(Operand::Integer(if negative { value.wrapping_neg() } else { value }))
            }
            Some(Token::Single(bits)) => {
                self.at += 1;
                Ok(Operand::Single(if negative { bits ^ 1 << 31 } else { bits }))
            }
            Some(Token::Double(bits)) => {
                self.at += 1;
                Ok(Operand::Double(if negative { bits ^ 1 << 63 } else { bits }))
            }
            Some(Token::Mark(b'!')) if !negative => {
                self.at += 1;
                Ok(Operand::Not(self.word("a predicate")?))
            }
            _ => self.unexpected("an operand"),
        }
    }

    /// The rest of an address after `[`.
    fn address(&mut self) -> Result<Operand<'a>, PtxError> {
        let base = match self.peek() {
            Some(Token::Word(name)) => {
                self.at += 1;
                Some(name)
            }
            _ => None,
        };
        let mut offset = 0;
        if base.is_none() || self.takes(b'+') || self.peek() == Some(Token::Mark(b'-')) {
            offset = self.integer()?;
        }
        let mut coordinates = Vec::new();
        if self.takes(b',') {
            self.expect(b'{')?;
            coordinates = self.list(b'}')?;
        }
        self.expect(b']')?;
        Ok(Operand::Address { base, offset, coordinates })
    }
}
