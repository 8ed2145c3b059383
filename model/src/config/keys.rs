//! The metadata of one architecture, and which keys of it nobody has read.

use std::cell::RefCell;
use std::collections::BTreeSet;

use strata_core::gguf::{Gguf, Value};
use strata_core::{Error, Result};

/// Reads `ARCHITECTURE.KEY` values and remembers which.
pub(super) struct Keys<'a> {
    gguf: &'a Gguf,
    prefix: String,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Keys<'a> {
    pub fn new(gguf: &'a Gguf, architecture: &str) -> Self {
        Self { gguf, prefix: format!("{architecture}."), read: RefCell::default() }
    }

    /// A key's whole name.
    pub fn name(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn value(&self, key: &str) -> Option<Value<'a>> {
        self.read.borrow_mut().insert(key.to_owned());
        self.gguf.value(&self.name(key))
    }

    /// Counts keys as read that somebody else reads.
    pub fn taken(&self, keys: &[&str]) {
        self.read.borrow_mut().extend(keys.iter().map(|&key| key.to_owned()));
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        convert(&value).map(Some).ok_or_else(|| {
            let given = match value.as_array() {
                Some(array) => format!("an array of {} {}", array.len(), array.element()),
                None => format!("a {}", value.ty()),
            };
            Error::invalid(self.name(key), given, expected)
        })
    }

    /// A size; 0, which writers put where there is none, is `None`.
    pub fn size(&self, key: &str) -> Result<Option<usize>> {
        let size = |value: &Value<'_>| usize::try_from(value.as_u64()?).ok();
        Ok(self.typed(key, "a non-negative integer", size)?.filter(|&size| size > 0))
    }

    /// A size that has to be there.
    pub fn need(&self, key: &str) -> Result<usize> {
        self.size(key)?
            .ok_or_else(|| Error::invalid(self.name(key), "nothing", "a number of 1 or more"))
    }

    /// A number; `None` without the key.
    pub fn number(&self, key: &str) -> Result<Option<f32>> {
        let number = self.typed(key, "an f32", Value::as_f32)?;
        match number {
            Some(given) if !given.is_finite() => {
                Err(Error::invalid(self.name(key), given, "a finite number"))
            }
            number => Ok(number),
        }
    }

    /// A number where 0 means that there is none.
    pub fn factor(&self, key: &str) -> Result<Option<f32>> {
        Ok(self.number(key)?.filter(|&given| given != 0.0))
    }

    /// A bool; `None` without the key.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a bool", Value::as_bool)
    }

    /// A string; `None` without the key.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a string of UTF-8", Value::as_str)
    }

    /// An integer for each of `blocks` blocks, from one for all or from an array. A longer array
    /// is taken from its start: blocks behind the trunk have values too.
    pub fn of_blocks(&self, key: &str, blocks: usize) -> Result<Option<Vec<usize>>> {
        let integer = |value: &Value<'_>| match value.as_bool() {
            Some(flag) => Some(usize::from(flag)),
            None => usize::try_from(value.as_u64()?).ok(),
        };
        let expected = format!("a non-negative integer, or one for each of {blocks} blocks");
        self.typed(key, &expected, |value| match value.as_array() {
            None => Some(vec![integer(value)?; blocks]),
            Some(array) => {
                let all: Vec<usize> =
                    array.iter().map(|value| integer(&value)).collect::<Option<_>>()?;
                all.get(..blocks).map(<[usize]>::to_vec)
            }
        })
    }

    /// Whether a key is there.
    pub fn has(&self, key: &str) -> bool {
        self.gguf.value(&self.name(key)).is_some()
    }

    /// Whether a key holds an array.
    pub fn is_array(&self, key: &str) -> bool {
        self.gguf.value(&self.name(key)).is_some_and(|value| value.as_array().is_some())
    }

    /// The architecture's keys that were not read, whole names, in the file's order.
    pub fn unread(&self) -> Vec<String> {
        let read = self.read.borrow();
        let metadata = self.gguf.head().metadata();
        let unread = metadata.filter(|(key, _)| {
            key.strip_prefix(self.prefix.as_str()).is_some_and(|key| !read.contains(key))
        });
        unread.map(|(key, _)| key.to_owned()).collect()
    }
}
