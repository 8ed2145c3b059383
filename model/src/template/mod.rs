//! Chat templates: a conversation to the text that a model was trained on.
//!
//! Templates are Jinja, run by `minijinja` with what the `transformers` library gives them:
//! `trim_blocks`, `lstrip_blocks`, loop controls, `raise_exception`, `strftime_now`, `tojson`,
//! Python's methods of strings and maps, `generation` blocks. The date is an input.
//!
//! What came from the conversation is marked until it is tokens: see [`Prompt`].

mod date;
mod guard;
mod python;

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, ErrorKind, Value};
use strata_core::gguf::Gguf;
use strata_core::{Error, Result};

use crate::tokenizer::{Prompt, Tokenizer};
pub use date::Date;
use guard::Guard;

/// The metadata key of a model's template.
const KEY: &str = "tokenizer.chat_template";

/// Steps that a template may take: about a second. Long conversations take a hundredth of that.
const STEPS: u64 = 5_000_000;

/// A value of a conversation: what JSON has. Made with [`json`], or from anything that `serde`
/// serializes.
pub type Json = Value;

/// Parses JSON; the order of keys is kept.
///
/// # Errors
/// [`Error::Invalid`] with the place where it is no JSON.
pub fn json(text: &str) -> Result<Json> {
    serde_json::from_str(text).map_err(|error| Error::invalid("JSON", error, "a JSON value"))
}

/// What a template is given.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// A list of messages: maps with a `role`, mostly a `content`, and whatever else the template
    /// knows.
    pub messages: Json,
    /// Descriptions of tools, or `Json::from(())` for none.
    pub tools: Json,
    /// Whether the text ends where the model's answer begins.
    pub add_generation_prompt: bool,
    /// What `strftime_now` shows.
    pub date: Date,
    /// Other variables by name, as `enable_thinking`.
    pub variables: Vec<(String, Json)>,
}

impl Conversation {
    /// A conversation without tools and variables that waits for an answer.
    pub fn new(messages: Json, date: Date) -> Self {
        let tools = Json::from(());
        Self { messages, tools, add_generation_prompt: true, date, variables: Vec::new() }
    }

    /// One message of a user.
    pub fn of_user(content: &str, date: Date) -> Self {
        let message = Json::from_iter([("role", "user"), ("content", content)]);
        Self::new(Json::from(vec![message]), date)
    }
}

/// A chat template.
#[derive(Debug)]
pub struct Template {
    key: String,
    environment: Environment<'static>,
}

impl Template {
    /// Reads a model's template, or the one of a name (`tokenizer.chat_template.NAME`).
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the key if there is none, and the line if it does not parse. No
    /// other template stands in for it.
    pub fn load(gguf: &Gguf, name: Option<&str>) -> Result<Self> {
        let key = match name {
            Some(name) => format!("{KEY}.{name}"),
            None => KEY.to_owned(),
        };
        match gguf.head().str(&key)? {
            Some(source) => Self::parse(&key, source),
            None => Err(Error::invalid(key, "nothing", "the chat template of the model")),
        }
    }

    /// A template from its source.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the line if it does not parse.
    pub fn new(source: &str) -> Result<Self> {
        Self::parse(KEY, source)
    }

    fn parse(key: &str, source: &str) -> Result<Self> {
        let mut environment = Environment::new();
        environment.set_fuel(Some(STEPS));
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(|out, _, value| {
            let mut text = String::new();
            python::write_str(&mut text, value);
            out.write_str(&text).map_err(minijinja::Error::from)
        });
        environment.add_filter("tojson", |value: Value, arguments: Kwargs| {
            python::tojson(&value, arguments)
        });
        environment.add_filter("string", |value: Value| {
            let mut text = String::new();
            python::write_str(&mut text, &value);
            text
        });
        // None is no list of nothing.
        environment.add_test("iterable", |value: Value| {
            use ValueKind::{Iterable, Map, Seq, String};
            matches!(value.kind(), Seq | Map | String | Iterable)
        });
        environment.add_function("raise_exception", |message: String| -> Result<Value, _> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        let key = key.to_owned();
        environment
            .add_template_owned("chat", without_generation(source)?)
            .map_err(|error| told(&key, &error, "a Jinja template"))?;
        Ok(Self { key, environment })
    }

    /// Renders a conversation for a tokenizer. The prompt's guards keep control tokens from coming
    /// of any string of it, but for roles: those are names, and templates make control tokens of
    /// them.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the line of the template that fails or refuses, and for messages
    /// that are no list of maps with a role of letters, digits, `_` and `-`.
    pub fn render(&self, tokenizer: &Tokenizer, conversation: &Conversation) -> Result<Prompt> {
        let Conversation { messages, tools, add_generation_prompt, date, variables } = conversation;
        check(messages)?;
        let mut values = vec![messages, tools];
        values.extend(variables.iter().map(|(_, value)| value));
        let controls = tokenizer.controls().map(|text| String::from_utf8_lossy(text).into_owned());
        let guard = Guard::new(controls.collect(), &values)?;

        let word = |id: Option<u32>| -> Value {
            let text = id.and_then(|id| tokenizer.token(id));
            text.map_or_else(|| Value::from(()), |text| Value::from(&*text))
        };
        let mut context: Vec<(String, Value)> = vec![
            ("messages".into(), guard.value(messages, "role")),
            ("tools".into(), guard.value(tools, "")),
            ("documents".into(), Value::from(())),
            ("add_generation_prompt".into(), Value::from(*add_generation_prompt)),
            ("bos_token".into(), word(tokenizer.bos())),
            ("eos_token".into(), word(tokenizer.eos())),
        ];
        context
            .extend(variables.iter().map(|(name, value)| (name.clone(), guard.value(value, ""))));
        let date = *date;
        let now = move |format: &str| -> Result<String, minijinja::Error> {
            date.format(format).map_err(|directive| {
                let message = format!("strftime_now: {directive} is not known");
                minijinja::Error::new(ErrorKind::InvalidOperation, message)
            })
        };
        context.push(("strftime_now".into(), Value::from_function(now)));

        let rendered = self
            .environment
            .get_template("chat")
            .and_then(|template| template.render(Value::from_iter(context)))
            .map_err(|error| told(&self.key, &error, "a conversation that the template takes"))?;
        Ok(guard.prompt(&rendered))
    }
}

/// Refuses messages that no template takes.
fn check(messages: &Value) -> Result<()> {
    if messages.kind() != ValueKind::Seq {
        let given = messages.kind();
        return Err(Error::invalid("messages", given, "a list of maps with a role and a content"));
    }
    for (at, message) in messages.try_iter().into_iter().flatten().enumerate() {
        let role = message.get_attr("role").unwrap_or_default();
        let name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !role.as_str().is_some_and(|role| !role.is_empty() && role.chars().all(name)) {
            let given =
                role.as_str().map_or_else(|| role.kind().to_string(), |role| format!("{role:?}"));
            let expected = "a name of letters, digits, _ and -";
            return Err(Error::invalid(format!("messages[{at}].role"), given, expected));
        }
    }
    Ok(())
}

/// `{% generation %}` marks what a model wrote, for training; here it is a block like any other.
fn without_generation(source: &str) -> Result<String> {
    let tag =
        regex::Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").map_err(|error| {
            Error::invalid("the rule for generation blocks", error, "a regular expression")
        })?;
    let plain = |found: &regex::Captures<'_>| {
        let word = if found.get(2).is_some() { "endif" } else { "if true" };
        format!("{{%{} {word} {}%}}", &found[1], &found[3])
    };
    Ok(tag.replace_all(source, plain).into_owned())
}

/// An error of a template, with its line.
fn told(key: &str, error: &minijinja::Error, expected: &str) -> Error {
    let mut given = String::new();
    if let Some(line) = error.line() {
        let _ = write!(given, "line {line}: ");
    }
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    given.push_str(&detail);
    Error::invalid(key, given, expected)
}
