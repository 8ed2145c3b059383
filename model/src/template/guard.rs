//! Marks in what came from a user, carried through a template, so that no control token comes of it.
//!
//! A mark is one of Unicode's noncharacters, which are for a program's own use; one that is in none
//! of the strings. It is put inside of every control token's text that a string holds, after the
//! first character, and where the string's ends could become one together with its surroundings.
//! A template's comparisons, cuts and filters see everything else as it was.

use minijinja::Value;
use minijinja::value::ValueKind;
use strata_core::{Error, Result};

use crate::tokenizer::Prompt;

/// U+FDD0 to U+FDEF.
const MARKS: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// Puts marks into strings and takes them out of the rendered text.
pub(super) struct Guard {
    mark: char,
    controls: Vec<String>,
}

impl Guard {
    /// A guard against the texts of control tokens; `values` is all that will be marked.
    pub fn new(controls: Vec<String>, values: &[&Value]) -> Result<Self> {
        let mut free: Vec<char> = MARKS.collect();
        values.iter().for_each(|value| {
            strings(value, &mut |text| free.retain(|&mark| !text.contains(mark)))
        });
        let Some(&mark) = free.first() else {
            let given = "all of U+FDD0 to U+FDEF";
            return Err(Error::invalid(
                "conversation",
                given,
                "text that leaves one of them unused",
            ));
        };
        Ok(Self { mark, controls })
    }

    /// The value with marks in all of its strings; keys of maps stay, and so does what `but` names
    /// at the top of a map.
    pub fn value(&self, value: &Value, but: &str) -> Value {
        if let Some(text) = value.as_str() {
            return Value::from(self.text(text));
        }
        let items = || value.try_iter().into_iter().flatten();
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                items().map(|item| self.value(&item, but)).collect()
            }
            ValueKind::Map => {
                let entry = |key: Value| {
                    let item = value.get_item(&key).unwrap_or_default();
                    let kept = key.as_str().is_some_and(|key| key == but);
                    let item = if kept { item } else { self.value(&item, "") };
                    (key, item)
                };
                Value::from_iter(items().map(entry))
            }
            _ => value.clone(),
        }
    }

    fn text(&self, text: &str) -> String {
        let mut marks = Vec::new();
        for control in &self.controls {
            let first = control.chars().next().map_or(0, char::len_utf8);
            for (at, _) in text.char_indices() {
                let rest = &text[at..];
                // All of a token, or its beginning at the end of the text.
                let open = control.starts_with(rest) && !is_name(rest);
                if rest.starts_with(control.as_str()) || open {
                    marks.push(at + first);
                }
            }
            // The end of a token at the beginning of the text.
            let mut tails = control.char_indices().skip(1).map(|(at, _)| &control[at..]);
            if tails.any(|tail| !is_name(tail) && text.starts_with(tail)) {
                marks.push(0);
            }
        }
        marks.sort_unstable();
        marks.dedup();
        let mut out = text.to_owned();
        marks.iter().rev().for_each(|&at| out.insert(at, self.mark));
        out
    }

    /// Takes the marks out of a text, and keeps their places.
    pub fn prompt(&self, rendered: &str) -> Prompt {
        let mut prompt = Prompt::default();
        for part in rendered.split(self.mark) {
            prompt.guards.push(prompt.text.len());
            prompt.text.push_str(part);
        }
        // The first part begins at no mark.
        prompt.guards.remove(0);
        prompt.guards.dedup();
        prompt
    }
}

/// Whether a text is the name of a thing, which templates compare, and no part of a token's
/// brackets.
fn is_name(text: &str) -> bool {
    text.chars().all(|character| character.is_alphanumeric() || "_- ".contains(character))
}

/// Calls a function with every string in a value.
fn strings(value: &Value, each: &mut impl FnMut(&str)) {
    if let Some(text) = value.as_str() {
        return each(text);
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return;
    }
    for item in value.try_iter().into_iter().flatten() {
        if value.kind() == ValueKind::Map {
            strings(&value.get_item(&item).unwrap_or_default(), each);
        }
        strings(&item, each);
    }
}
