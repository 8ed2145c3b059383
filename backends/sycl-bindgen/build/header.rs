//! Reads the small C grammar of `bridge/strata_sycl.h` and refuses the rest.
//!
//! ```text
//! item      := comment | define | opaque | struct | function
//! define    := '#define' NAME NUMBER
//! opaque    := 'typedef' 'struct' name name ';'
//! struct    := 'typedef' 'struct' name '{' (type name ('[' size ']')? ';')* '}' name ';'
//! function  := type name '(' ('void' | type name (',' type name)*) ')' ';'
//! type      := 'const'? base ('*' 'const'?)*
//! ```
//! Include guards, `#include <stdint.h>` and what lies between `#ifdef
//! __cplusplus` and `#endif` are skipped.

/// A base type and the pointers on it, outermost last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    pub base: String,
    /// For each pointer: whether what it points to is const.
    pub pointers: Vec<bool>,
}

/// A struct field or a parameter.
pub struct Field {
    pub doc: String,
    pub name: String,
    pub ty: Type,
    /// Array length: a number or the name of a define.
    pub array: Option<String>,
}

pub struct Struct {
    pub doc: String,
    pub name: String,
    /// None for an opaque handle.
    pub fields: Option<Vec<Field>>,
}

pub struct Function {
    pub doc: String,
    pub name: String,
    /// None for void.
    pub result: Option<Type>,
    pub params: Vec<Field>,
}

pub struct Define {
    pub doc: String,
    pub name: String,
    pub value: u64,
}

#[derive(Default)]
pub struct Header {
    pub defines: Vec<Define>,
    pub structs: Vec<Struct>,
    pub functions: Vec<Function>,
}

impl Header {
    /// The value of an array length.
    pub fn length(&self, text: &str) -> Result<u64, String> {
        if let Ok(n) = text.parse() {
            return Ok(n);
        }
        let known = self.defines.iter().find(|d| d.name == text);
        known
            .map(|d| d.value)
            .ok_or_else(|| format!("array length `{text}` is not a number or an earlier #define"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Mark(char),
    Comment(String),
    /// A `#define` with its name and value.
    Define(String, String),
}

/// Splits the text; the number is the line, for errors.
fn tokens(text: &str) -> Result<Vec<(usize, Token)>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    let mut line = 1;
    let mut skipping = false;
    while let Some(c) = rest.chars().next() {
        if c == '#' {
            let end = rest.find('\n').unwrap_or(rest.len());
            let words: Vec<&str> = rest[..end].split_whitespace().collect();
            match words[..] {
                ["#ifdef", "__cplusplus"] => skipping = true,
                ["#endif"] => skipping = false,
                ["#ifndef", _] | ["#define", _] | ["#include", "<stdint.h>"] => {}
                ["#define", name, value] => {
                    out.push((line, Token::Define(name.into(), value.into())));
                }
                _ => return Err(format!("line {line}: `{}` is not understood", &rest[..end])),
            }
            rest = &rest[end..];
            continue;
        }
        let length = if let Some(body) = rest.strip_prefix("/*") {
            let end =
                body.find("*/").ok_or_else(|| format!("line {line}: a comment does not end"))?;
            out.push((line, Token::Comment(clean(&body[..end]))));
            end + 4
        } else if c.is_ascii_alphanumeric() || c == '_' {
            let word = |ch: char| ch.is_ascii_alphanumeric() || ch == '_';
            let end = rest.find(|ch| !word(ch)).unwrap_or(rest.len());
            if !skipping {
                out.push((line, Token::Word(rest[..end].into())));
            }
            end
        } else if c.is_ascii_whitespace() || skipping {
            c.len_utf8()
        } else if "*(),;{}[]".contains(c) {
            out.push((line, Token::Mark(c)));
            1
        } else {
            return Err(format!("line {line}: `{c}` is not understood"));
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    Ok(out)
}

/// The text of a comment without its stars and indentation.
fn clean(comment: &str) -> String {
    let lines = comment.lines().map(|l| l.trim().trim_start_matches('*').trim());
    lines.collect::<Vec<_>>().join("\n").trim().to_string()
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    /// The last comment, waiting for what it documents.
    doc: String,
}

impl Parser {
    fn peek(&mut self) -> Option<Token> {
        while let Some((_, Token::Comment(text))) = self.tokens.get(self.at) {
            self.doc = text.clone();
            self.at += 1;
        }
        self.tokens.get(self.at).map(|(_, t)| t.clone())
    }

    fn next(&mut self) -> Result<Token, String> {
        let token = self.peek().ok_or("the file ends inside a declaration")?;
        self.at += 1;
        Ok(token)
    }

    fn error(&self, wanted: &str) -> String {
        let (line, token) = &self.tokens[self.at.saturating_sub(1).min(self.tokens.len() - 1)];
        format!("line {line}: expected {wanted}, found {token:?}")
    }

    fn word(&mut self) -> Result<String, String> {
        match self.next()? {
            Token::Word(w) => Ok(w),
            _ => Err(self.error("a name")),
        }
    }

    fn mark(&mut self, mark: char) -> Result<(), String> {
        match self.next()? {
            Token::Mark(m) if m == mark => Ok(()),
            _ => Err(self.error(&format!("`{mark}`"))),
        }
    }

    fn take(&mut self, token: &Token) -> bool {
        let found = self.peek().as_ref() == Some(token);
        self.at += usize::from(found);
        found
    }

    /// The pending comment; an item without one is refused, as every public
    /// item has to say what it is.
    fn documented(&mut self) -> Result<String, String> {
        let doc = std::mem::take(&mut self.doc);
        if doc.is_empty() {
            return Err(self.error("a comment before this item"));
        }
        Ok(doc)
    }

    fn ty(&mut self) -> Result<Type, String> {
        let constant = Token::Word("const".into());
        let mut is_const = self.take(&constant);
        let base = self.word()?;
        let mut pointers = Vec::new();
        while self.take(&Token::Mark('*')) {
            pointers.push(is_const);
            is_const = self.take(&constant);
        }
        Ok(Type { base, pointers })
    }

    fn field(&mut self) -> Result<Field, String> {
        self.peek();
        let doc = self.documented()?;
        let ty = self.ty()?;
        let name = self.word()?;
        let mut array = None;
        if self.take(&Token::Mark('[')) {
            array = Some(self.word()?);
            self.mark(']')?;
        }
        self.mark(';')?;
        Ok(Field { doc, name, ty, array })
    }

    fn structure(&mut self) -> Result<Struct, String> {
        let doc = self.documented()?;
        if self.word()? != "struct" {
            return Err(self.error("`struct`"));
        }
        let name = self.word()?;
        let mut fields = None;
        if self.take(&Token::Mark('{')) {
            let mut list = Vec::new();
            while !self.take(&Token::Mark('}')) {
                list.push(self.field()?);
            }
            fields = Some(list);
        }
        if self.word()? != name {
            return Err(self.error(&format!("`{name}` again")));
        }
        self.mark(';')?;
        Ok(Struct { doc, name, fields })
    }

    fn function(&mut self) -> Result<Function, String> {
        let doc = self.documented()?;
        let result = self.ty()?;
        let name = self.word()?;
        self.mark('(')?;
        let mut params = Vec::new();
        loop {
            let ty = self.ty()?;
            if params.is_empty() && ty.base == "void" && ty.pointers.is_empty() {
                self.mark(')')?;
                break;
            }
            let name = self.word()?;
            params.push(Field { doc: String::new(), name, ty, array: None });
            if self.take(&Token::Mark(')')) {
                break;
            }
            self.mark(',')?;
        }
        self.mark(';')?;
        let is_void = result.base == "void" && result.pointers.is_empty();
        Ok(Function { doc, name, result: (!is_void).then_some(result), params })
    }
}

/// Reads a header; the error names the line and what was expected there.
pub fn parse(text: &str) -> Result<Header, String> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, doc: String::new() };
    let mut header = Header::default();
    while let Some(token) = parser.peek() {
        match token {
            Token::Define(name, value) => {
                parser.at += 1;
                let doc = parser.documented()?;
                let value = value
                    .parse()
                    .map_err(|_| parser.error(&format!("a number for {name}, not {value}")))?;
                header.defines.push(Define { doc, name, value });
            }
            Token::Word(w) if w == "typedef" => {
                parser.at += 1;
                header.structs.push(parser.structure()?);
            }
            Token::Word(_) => header.functions.push(parser.function()?),
            _ => {
                parser.at += 1;
                return Err(parser.error("a declaration"));
            }
        }
    }
    if header.functions.is_empty() {
        return Err("no function was found".into());
    }
    Ok(header)
}
