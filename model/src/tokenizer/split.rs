//! How text is cut into pieces before the merges: one list of rules for every `tokenizer.ggml.pre`.
//!
//! The published rules look ahead in one place only: `\s+(?!\S)|\s+`, a run of white space that
//! leaves its last character to the word behind it. That is done here by hand, so that the rest is
//! what the `regex` crate runs in linear time, whatever the text. Possessive repeats are left out
//! where they make no difference, `(?i:...)` is written out in ASCII.

use regex::Regex;
use strata_core::{Error, Result};

const CONTRACTIONS: &str = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])";
const GPT2: &str = r"'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
/// The last rule of DeepSeek V3's list, which others share.
const DEEPSEEK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##;
const UPPER: &str = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}";
const LOWER: &str = r"\p{Ll}\p{Lm}\p{Lo}\p{M}";
/// Letters of scripts with two cases, as DeepSeek LLM's rule lists them.
const CASED: &[(u32, u32)] = &[
    (0x41, 0x5A),
    (0x61, 0x7A),
    (0xB5, 0xB5),
    (0xC0, 0xD6),
    (0xD8, 0xF6),
    (0xF8, 0x1BA),
    (0x1BC, 0x1BF),
    (0x1C4, 0x293),
    (0x295, 0x2AF),
    (0x370, 0x373),
    (0x376, 0x377),
    (0x37B, 0x37D),
    (0x37F, 0x37F),
    (0x386, 0x386),
    (0x388, 0x38A),
    (0x38C, 0x38C),
    (0x38E, 0x3A1),
    (0x3A3, 0x3F5),
    (0x3F7, 0x481),
    (0x48A, 0x52F),
    (0x531, 0x556),
    (0x10A0, 0x10C5),
    (0x13A0, 0x13F5),
    (0x13F8, 0x13FD),
    (0x1C90, 0x1CBA),
    (0x1CBD, 0x1CBF),
    (0x1D00, 0x1D2B),
    (0x1D6B, 0x1D77),
    (0x1D79, 0x1D9A),
    (0x1E00, 0x1F15),
    (0x1F18, 0x1F1D),
    (0x1F20, 0x1F45),
    (0x1F48, 0x1F4D),
    (0x1F50, 0x1F57),
    (0x1F59, 0x1F59),
    (0x1F5B, 0x1F5B),
    (0x1F5D, 0x1F5D),
    (0x1F5F, 0x1F7D),
    (0x1F80, 0x1FB4),
    (0x1FB6, 0x1FBC),
    (0x1FBE, 0x1FBE),
    (0x1FC2, 0x1FC4),
    (0x1FC6, 0x1FCC),
    (0x1FD0, 0x1FD3),
    (0x1FD6, 0x1FDB),
    (0x1FE0, 0x1FEC),
    (0x1FF2, 0x1FF4),
    (0x1FF6, 0x1FFC),
    (0x2102, 0x2102),
    (0x2107, 0x2107),
    (0x210A, 0x2113),
    (0x2115, 0x2115),
    (0x2119, 0x211D),
    (0x2124, 0x2124),
    (0x2126, 0x2126),
    (0x2128, 0x2128),
    (0x212A, 0x212D),
    (0x212F, 0x2134),
    (0x2139, 0x2139),
    (0x213C, 0x213F),
    (0x2145, 0x2149),
    (0x214E, 0x214E),
    (0x2183, 0x2184),
    (0x2C00, 0x2C7B),
    (0x2C7E, 0x2CE4),
    (0x2CEB, 0x2CEE),
    (0x2CF2, 0x2CF3),
    (0xA640, 0xA66D),
    (0xA680, 0xA69B),
    (0xA722, 0xA76F),
    (0xA771, 0xA787),
    (0xA78B, 0xA78E),
    (0xAB70, 0xABBF),
    (0xFB00, 0xFB06),
    (0xFB13, 0xFB17),
    (0xFF21, 0xFF3A),
    (0xFF41, 0xFF5A),
    (0x10400, 0x1044F),
    (0x104B0, 0x104D3),
    (0x104D8, 0x104FB),
    (0x10C80, 0x10CB2),
    (0x10CC0, 0x10CF2),
    (0x118A0, 0x118DF),
    (0x1E900, 0x1E943),
];

/// A family of `pre` values that are cut alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Default,
    Gpt2,
    /// GPT-2's, after single digits.
    Digits,
    Falcon,
    Llama3,
    Qwen2,
    Qwen35,
    Gpt4o,
    Tekken,
    DeepseekV3,
    DeepseekLlm,
    DeepseekCoder,
    Bailing,
    ExaoneMoe,
    SeedCoder,
    Afmoe,
    KimiK2,
}

/// What a `pre` means.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pre {
    family: Family,
    /// A piece that is a word is that word, without merges.
    pub ignore_merges: bool,
    /// BOS is added where `add_bos_token` does not say.
    pub add_bos: bool,
}

/// The known values of `tokenizer.ggml.pre`: family, whether merges are skipped for whole words,
/// whether BOS is added without a key.
const PRES: &[(&str, Family, bool, bool)] = &[
    ("default", Family::Default, false, false),
    ("llama3", Family::Llama3, true, true),
    ("llama-v3", Family::Llama3, true, true),
    ("llama-bpe", Family::Llama3, true, true),
    ("falcon3", Family::Llama3, true, true),
    ("falcon-h1", Family::Llama3, true, true),
    ("lfm2", Family::Llama3, true, true),
    ("pixtral", Family::Llama3, true, true),
    ("glm4", Family::Llama3, true, false),
    ("glm5", Family::Llama3, true, false),
    ("chatglm-bpe", Family::Llama3, false, false),
    ("dbrx", Family::Llama3, false, false),
    ("smaug-bpe", Family::Llama3, false, false),
    ("qwen2", Family::Qwen2, false, false),
    ("deepseek-r1-qwen", Family::Qwen2, false, false),
    ("hunyuan", Family::Qwen2, false, false),
    ("megrez", Family::Qwen2, false, false),
    ("solar-open", Family::Qwen2, false, false),
    ("stablelm2", Family::Qwen2, false, false),
    ("grok-2", Family::Qwen2, false, false),
    ("qwen35", Family::Qwen35, false, false),
    ("gpt-2", Family::Gpt2, false, false),
    ("olmo", Family::Gpt2, false, false),
    ("phi-2", Family::Gpt2, false, false),
    ("exaone4", Family::Gpt2, false, false),
    ("jais", Family::Gpt2, false, false),
    ("mpt", Family::Gpt2, false, false),
    ("trillion", Family::Gpt2, false, false),
    ("granite-docling", Family::Gpt2, false, false),
    ("smollm", Family::Digits, false, false),
    ("starcoder", Family::Digits, false, false),
    ("refact", Family::Digits, false, false),
    ("command-r", Family::Digits, false, false),
    ("codeshell", Family::Digits, false, false),
    ("exaone", Family::Digits, false, false),
    ("minerva-7b", Family::Digits, false, false),
    ("mellum2", Family::Digits, false, false),
    ("falcon", Family::Falcon, false, false),
    ("gpt-4o", Family::Gpt4o, false, false),
    ("llama4", Family::Gpt4o, false, false),
    ("kanana2", Family::Gpt4o, false, false),
    ("minimax-m2", Family::Gpt4o, false, false),
    ("tekken", Family::Tekken, true, true),
    ("deepseek-v3", Family::DeepseekV3, false, false),
    ("hunyuan-dense", Family::DeepseekV3, false, false),
    ("joyai-llm", Family::DeepseekV3, false, false),
    ("deepseek-llm", Family::DeepseekLlm, false, false),
    ("deepseek-coder", Family::DeepseekCoder, false, false),
    ("bailingmoe", Family::Bailing, false, false),
    ("bailingmoe2", Family::Bailing, false, false),
    ("llada-moe", Family::Bailing, false, false),
    ("exaone-moe", Family::ExaoneMoe, false, false),
    ("seed-coder", Family::SeedCoder, false, false),
    ("afmoe", Family::Afmoe, false, false),
    ("kimi-k2", Family::KimiK2, false, false),
];

/// One rule: matches and the gaps between them become pieces.
enum Rule {
    /// Whether runs of white space up to a line's end are an alternative of their own.
    Match(Regex, bool),
    /// Runs of digits, in threes counted from their right end.
    Thousands(Regex),
}

/// Cuts text into pieces.
pub(super) struct Splitter(Vec<Rule>);

/// Finds what a `pre` means.
pub(super) fn pre(name: &str) -> Result<Pre> {
    let found = PRES.iter().find(|(known, ..)| *known == name);
    let &(_, family, ignore_merges, add_bos) = found.ok_or_else(|| {
        let known: Vec<_> = PRES.iter().map(|(known, ..)| *known).collect();
        let expected = format!("one of {}", known.join(", "));
        Error::invalid("tokenizer.ggml.pre", name.escape_debug(), expected)
    })?;
    Ok(Pre { family, ignore_merges, add_bos })
}

impl Splitter {
    /// The rules of a `pre`.
    pub fn new(pre: Pre) -> Result<Self> {
        // The rules of the GPT-4 line, with their letters, digits, punctuation and its tail.
        let gpt4 = |letters: &str, digits: &str, other: &str, tail: &str, lines: &str| {
            format!(r"{letters}|{digits}| ?[^\s{other}]+{tail}|{lines}|\s+")
        };
        let cased = |upper: &str, lower: &str, end: &str| {
            let first = r"[^\r\n\p{L}\p{N}]?";
            format!("{first}{upper}*{lower}+{end}|{first}{upper}+{lower}*{end}")
        };
        let words = |letters: &str| format!(r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letters}+");
        let (ln, lines, newlines) = (r"\p{L}\p{N}", r"\s*[\r\n]+", r"[\r\n]*");
        let contraction = format!("(?:{CONTRACTIONS})?");
        let class = |text: &str| format!("[{text}]");
        let list: Vec<String> = match pre.family {
            Family::Default => vec![
                r"[\p{P}$+<=>^~|]+".into(),
                GPT2.into(),
                r"\p{N}+".into(),
                "[0-9][0-9][0-9]".into(),
            ],
            Family::Gpt2 => vec![GPT2.into()],
            Family::Digits => vec![r"\p{N}".into(), GPT2.into()],
            Family::Falcon => {
                vec![r"[\p{P}$+<=>^~|`]+".into(), GPT2.into(), "[0-9][0-9][0-9]".into()]
            }
            Family::Llama3 => vec![gpt4(&words(r"\p{L}"), r"\p{N}{1,3}", ln, newlines, lines)],
            Family::Qwen2 => vec![gpt4(&words(r"\p{L}"), r"\p{N}", ln, newlines, lines)],
            Family::Qwen35 => {
                let other = r"\p{L}\p{M}\p{N}";
                vec![gpt4(&words(r"[\p{L}\p{M}]"), r"\p{N}", other, newlines, lines)]
            }
            Family::Gpt4o => {
                let letters = cased(&class(UPPER), &class(LOWER), &contraction);
                vec![gpt4(&letters, r"\p{N}{1,3}", ln, r"[\r\n/]*", lines)]
            }
            Family::Tekken => {
                let letters = cased(&class(UPPER), &class(LOWER), "");
                vec![gpt4(&letters, r"\p{N}", ln, r"[\r\n/]*", lines)]
            }
            Family::KimiK2 => {
                let but_han = |text: &str| format!(r"[[{text}]&&[^\p{{Han}}]]");
                let letters = cased(&but_han(UPPER), &but_han(LOWER), &contraction);
                let letters = format!(r"\p{{Han}}+|{letters}");
                vec![gpt4(&letters, r"\p{N}{1,3}", ln, newlines, lines)]
            }
            Family::DeepseekV3 => vec![
                r"\p{N}{1,3}".into(),
                r"[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+".into(),
                DEEPSEEK.into(),
            ],
            Family::DeepseekLlm => {
                let cased: String =
                    CASED.iter().map(|(a, b)| format!(r"\u{{{a:X}}}-\u{{{b:X}}}")).collect();
                vec![
                    r"[\r\n]".into(),
                    format!(r"\s?[{cased}]+"),
                    r"\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3000}-\u{3002}]+"
                        .into(),
                    r"\s+$".into(),
                    r"[\u{4E00}-\u{9FA5}\u{800}-\u{4E00}\u{AC00}-\u{D7FF}]+".into(),
                    r"\p{N}+".into(),
                ]
            }
            Family::DeepseekCoder => vec![
                r"[\r\n]".into(),
                r"\s?\p{L}+".into(),
                r"\s?\p{P}+".into(),
                r"[\u{4E00}-\u{9FA5}\u{800}-\u{4E00}\u{AC00}-\u{D7FF}]+".into(),
                r"\p{N}".into(),
            ],
            Family::Bailing => {
                vec![gpt4(&words(r"\p{L}"), r"\p{N}", ln, newlines, r"\s*[\r\n]")]
            }
            Family::ExaoneMoe => {
                let letters = words(r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)");
                vec![gpt4(&letters, r"\p{N}", ln, r"[\r\n/]?", r"\s*[\r\n]")]
            }
            Family::SeedCoder => {
                vec![gpt4(&words(r"\p{L}"), r"\p{N}", r"\p{L}\p{N}\r\n", "", lines)]
            }
            Family::Afmoe => vec![
                r"\p{N}+".into(),
                concat!(
                    r"[\u{4E00}-\u{9FFF}\u{3400}-\u{4DBF}\u{8C48}-\u{FAFF}\u{3040}-\u{309F}",
                    r"\u{30A0}-\u{30FF}\u{FF65}-\u{FF9F}\u{2F00}-\u{2FDF}\u{E40}-\u{E7F}",
                    r"\u{E80}-\u{EFF}\u{1780}-\u{17FF}\u{1000}-\u{109F}\u{AA60}-\u{AA7F}",
                    r"\u{A9E0}-\u{A9FF}\u{AC00}-\u{D7AF}\u{1100}-\u{11FF}]+"
                )
                .into(),
                DEEPSEEK.into(),
            ],
        };
        let rules = list.into_iter().enumerate().map(|(at, text)| {
            let regex = Regex::new(&text).map_err(|error| {
                Error::invalid(format!("rule {at} of the splitter"), error, "a regular expression")
            })?;
            Ok(match (pre.family, at) {
                (Family::Afmoe, 0) => Rule::Thousands(regex),
                _ => Rule::Match(regex, text != GPT2),
            })
        });
        rules.collect::<Result<_>>().map(Self)
    }

    /// Cuts a text; the pieces put together are the text.
    pub fn pieces<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let mut pieces = vec![text];
        for rule in &self.0 {
            let mut next = Vec::with_capacity(pieces.len());
            pieces.into_iter().for_each(|piece| rule.cut(piece, &mut next));
            pieces = next;
        }
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

impl Rule {
    fn cut<'t>(&self, text: &'t str, out: &mut Vec<&'t str>) {
        let (Self::Match(regex, _) | Self::Thousands(regex)) = self;
        let mut at = 0;
        while let Some(found) = regex.find_at(text, at) {
            if found.start() > at {
                out.push(&text[at..found.start()]);
            }
            let mut run = found.as_str();
            match self {
                Self::Match(_, lines) => {
                    run = leave_last(run, found.end() < text.len(), *lines);
                    out.push(run);
                }
                Self::Thousands(_) => {
                    let mut rest = run;
                    let mut left = run.chars().count();
                    while left > 0 {
                        let take = if left.is_multiple_of(3) { 3 } else { left % 3 };
                        let end = rest.char_indices().nth(take).map_or(rest.len(), |(i, _)| i);
                        out.push(&rest[..end]);
                        rest = &rest[end..];
                        left -= take;
                    }
                }
            }
            at = found.start() + run.len();
        }
        if at < text.len() {
            out.push(&text[at..]);
        }
    }
}

/// `\s+(?!\S)|\s+`: a run of white space before something else leaves its last character, if it
/// has two. With `lines`, a run that ends in a line's end is another alternative's match.
fn leave_last(run: &str, more: bool, lines: bool) -> &str {
    let Some(last) = run.chars().next_back().filter(|_| more) else { return run };
    if run.len() == last.len_utf8()
        || (lines && matches!(last, '\r' | '\n'))
        || !run.chars().all(char::is_whitespace)
    {
        return run;
    }
    &run[..run.len() - last.len_utf8()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(name: &str, text: &str) -> Vec<String> {
        let splitter = Splitter::new(pre(name).unwrap()).unwrap();
        splitter.pieces(text).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn every_pre_compiles_and_keeps_every_byte() {
        let text = "don'T  12345\n\n x Café Cafe\u{301} नमस्ते ½ \u{3000}👩‍👩‍👧 \r\n\tHTMLParser/中文ひらがな 9,876 $5.0'll\n";
        for (name, ..) in PRES {
            assert_eq!(pieces(name, text).concat(), text, "{name}");
            assert!(pieces(name, "").is_empty());
        }
    }

    /// Worked out by hand from the rules in docs/tokenizers.md.
    #[test]
    fn one_text_by_every_family() {
        let text = "don'T  12345\n\n x";
        let expect: [(&str, &[&str]); 14] = [
            ("llama-bpe", &["don", "'T", " ", " ", "123", "45", "\n\n", " x"]),
            ("qwen2", &["don", "'T", " ", " ", "1", "2", "3", "4", "5", "\n\n", " x"]),
            ("qwen35", &["don", "'T", " ", " ", "1", "2", "3", "4", "5", "\n\n", " x"]),
            ("gpt-2", &["don", "'", "T", " ", " 12345", "\n\n", " x"]),
            ("smollm", &["don", "'", "T", "  ", "1", "2", "3", "4", "5", "\n\n", " x"]),
            ("gpt-4o", &["don'T", " ", " ", "123", "45", "\n\n", " x"]),
            ("tekken", &["don", "'T", " ", " ", "1", "2", "3", "4", "5", "\n\n", " x"]),
            ("deepseek-v3", &["don", "'T", "  ", "123", "45", "\n\n", " x"]),
            ("deepseek-llm", &["don", "'", "T", "  ", "12345", "\n", "\n", " x"]),
            ("deepseek-coder", &["don", "'", "T", "  ", "1", "2", "3", "4", "5", "\n", "\n", " x"]),
            ("bailingmoe2", &["don", "'T", " ", " ", "1", "2", "3", "4", "5", "\n\n", " x"]),
            ("kimi-k2", &["don'T", " ", " ", "123", "45", "\n\n", " x"]),
            ("afmoe", &["don", "'T", "  ", "12", "345", "\n\n", " x"]),
            ("default", &["don", "'", "T", " ", " ", "123", "45", "\n\n", " x"]),
        ];
        for (name, expect) in expect {
            assert_eq!(pieces(name, text), expect, "{name}");
        }
    }

    #[test]
    fn white_space_leaves_its_last_character() {
        assert_eq!(pieces("gpt-2", "a   b"), ["a", "  ", " b"]);
        assert_eq!(pieces("gpt-2", "a\n\nb  "), ["a", "\n", "\n", "b", "  "]);
        assert_eq!(pieces("llama-bpe", "a \n\n  b"), ["a", " \n\n", " ", " b"]);
        assert_eq!(pieces("llama-bpe", "a\u{3000}\u{3000}1"), ["a", "\u{3000}", "\u{3000}", "1"]);
        assert_eq!(pieces("qwen2", "a\tb"), ["a", "\tb"]);
    }

    #[test]
    fn an_unknown_pre_is_named() {
        let message = pre("qwen\n9").unwrap_err().to_string();
        assert!(message.starts_with("tokenizer.ggml.pre: given qwen\\n9, expected one of default"));
    }
}
