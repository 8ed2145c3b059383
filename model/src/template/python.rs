//! What templates take for granted of Python: how values are written, and JSON.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// Writes a value as Python's `str` does.
pub(super) fn write_str(out: &mut String, value: &Value) {
    match value.as_str() {
        Some(text) => out.push_str(text),
        None => write_repr(out, value),
    }
}

/// Writes a value as Python's `repr` does.
fn write_repr(out: &mut String, value: &Value) {
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
            out.push(quote);
            for character in text.chars() {
                match character {
                    '\n' => out.push_str("\\n"),
                    '\r' => out.push_str("\\r"),
                    '\t' => out.push_str("\\t"),
                    '\\' => out.push_str("\\\\"),
                    _ if character == quote => out.extend(['\\', quote]),
                    _ => out.push(character),
                }
            }
            out.push(quote);
        }
        ValueKind::Map => {
            out.push('{');
            for (at, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_repr(out, &key);
                out.push_str(": ");
                write_repr(out, &value.get_item(&key).unwrap_or_default());
            }
            out.push('}');
        }
        ValueKind::Seq => {
            out.push('[');
            for (at, item) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_repr(out, &item);
            }
            out.push(']');
        }
        _ => out.push_str(&value.to_string()),
    }
}

/// How JSON is laid out.
struct Json {
    indent: Option<String>,
    item: String,
    key: String,
    sorted: bool,
    ascii: bool,
}

/// The filter `tojson`, as the `transformers` library has it: `json.dumps` without HTML escapes.
///
/// # Errors
/// For a value that JSON has no form for, and unknown arguments.
pub(super) fn tojson(value: &Value, arguments: Kwargs) -> Result<String, Error> {
    let indent: Option<Value> = arguments.get("indent")?;
    let indent = indent.filter(|indent| !indent.is_none()).map(|indent| match indent.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(indent.as_usize().unwrap_or(0).min(64)),
    });
    let separators: Option<Value> = arguments.get("separators")?;
    let separator = |at: usize| -> Option<String> {
        separators.as_ref()?.get_item_by_index(at).ok()?.as_str().map(str::to_owned)
    };
    let json = Json {
        item: separator(0).unwrap_or_else(|| if indent.is_some() { "," } else { ", " }.to_owned()),
        key: separator(1).unwrap_or_else(|| ": ".to_owned()),
        sorted: arguments.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ascii: arguments.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        indent,
    };
    arguments.assert_all_used()?;
    let mut out = String::new();
    json.write(&mut out, value, 0)?;
    Ok(out)
}

impl Json {
    fn line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    }

    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&value.to_string()),
            ValueKind::String => self.string(out, value.as_str().unwrap_or_default()),
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorted {
                    keys.sort();
                }
                self.list(out, '{', '}', depth, keys, |out, key| {
                    match key.as_str() {
                        Some(text) => self.string(out, text),
                        None => self.string(out, &key.to_string()),
                    }
                    out.push_str(&self.key);
                    self.write(out, &value.get_item(key)?, depth + 1)
                })?;
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list(out, '[', ']', depth, items, |out, item| {
                    self.write(out, item, depth + 1)
                })?;
            }
            other => {
                let message = format!("tojson: given {other}, expected a value that JSON has");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    fn list(
        &self,
        out: &mut String,
        open: char,
        close: char,
        depth: usize,
        items: Vec<Value>,
        mut write: impl FnMut(&mut String, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        out.push(open);
        for (at, item) in items.iter().enumerate() {
            out.push_str(if at > 0 { &self.item } else { "" });
            self.line(out, depth + 1);
            write(out, item)?;
        }
        if !items.is_empty() {
            self.line(out, depth);
        }
        out.push(close);
        Ok(())
    }

    fn string(&self, out: &mut String, text: &str) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(character))),
                // A guard's marks are no part of the text.
                '\u{fdd0}'..='\u{fdef}' => out.push(character),
                _ if self.ascii && !character.is_ascii() => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                _ => out.push(character),
            }
        }
        out.push('"');
    }
}
