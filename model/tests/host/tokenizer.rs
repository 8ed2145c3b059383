//! Tokenizers of small vocabularies: merges, control tokens, ends, bytes, streams.

use std::time::{Duration, Instant};

use crate::common::{Random, Vocabulary, texts};
use strata_core::gguf::MetaValue;
use strata_model::tokenizer::{Kind, Prompt};

const MERGES: &[&str] = &["l l", "h e", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "A A", "AA AA"];

fn chat() -> Vocabulary {
    Vocabulary::gpt2(MERGES, &[("<|im_start|>", 3), ("<|im_end|>", 3), ("<think>", 4), ("pad", 5)])
        .with("tokenizer.ggml.bos_token_id", 265u32)
        .with("tokenizer.ggml.eos_token_id", 266u32)
}

fn llama() -> Vocabulary {
    let words = [
        ("\u{2581}", -1.0),
        ("t", -2.0),
        ("e", -3.0),
        ("x", -4.0),
        ("te", -5.0),
        ("xt", -6.0),
        ("text", -0.5),
        ("\u{2581}te", -7.0),
        ("\u{2581}text", -0.25),
        ("s>", -8.0),
        ("<", -9.0),
        ("s", -9.5),
        (">", -9.75),
        ("A", -10.0),
        ("AA", -11.0),
    ];
    Vocabulary::llama(&[], &words, &[("<mark>", 4)])
}

#[test]
fn merges_go_by_rank_and_from_the_left() {
    let tokenizer = chat().tokenizer();
    let of = |text: &str| texts(&tokenizer, &tokenizer.encode(text, false).unwrap());
    assert_eq!(of("hello wor"), ["hello", "Ġwor"]);
    assert_eq!(of("AAAAAAA"), ["AAAA", "AA", "A"]);
    assert_eq!(of("lll"), ["ll", "l"]);
    assert_eq!(of("é"), ["Ã", "©"]);
    assert!(of("").is_empty());
}

#[test]
fn merges_may_pass_through_what_is_no_word() {
    let mut vocabulary = chat();
    let at = vocabulary.words.iter().position(|word| word.0 == "hell").unwrap();
    vocabulary.words[at].0 = "other".into();
    let tokenizer = vocabulary.tokenizer();
    let of = |text: &str| texts(&tokenizer, &tokenizer.encode(text, false).unwrap());
    assert_eq!(of("hello"), ["hello"]);
    assert_eq!(of("hell"), ["h", "e", "l", "l"]);
}

#[test]
fn a_whole_word_needs_no_merges_where_the_pre_says_so() {
    let mut vocabulary = chat();
    vocabulary.words.push(("xyz".into(), 1, 0.0));
    assert_eq!(vocabulary.tokenizer().encode("xyz", false).unwrap().len(), 3);
    vocabulary.pre = Some("llama-bpe");
    assert_eq!(vocabulary.tokenizer().encode("xyz", false).unwrap().len(), 1);
}

#[test]
fn pre_is_known_or_told() {
    let mut vocabulary = chat();
    vocabulary.pre = Some("unheard-of");
    let message = vocabulary.load().unwrap_err().to_string();
    assert!(message.starts_with("tokenizer.ggml.pre: given unheard-of, expected one of"));
    vocabulary.pre = None;
    let tokenizer = vocabulary.tokenizer();
    assert!(tokenizer.warnings()[0].starts_with("tokenizer.ggml.pre: nothing given"));
    assert!(chat().tokenizer().warnings().is_empty());
}

/// A quadratic step would take hours for a MiB.
#[test]
fn long_runs_take_no_longer_than_their_length() {
    let start = Instant::now();
    let mut random = Random(1);
    let letters: String = (0..1 << 20).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
    for vocabulary in [chat(), llama()] {
        let tokenizer = vocabulary.tokenizer();
        for unit in ["A", " ", "\n", ".", "中", " a", "  a", "'", "<|im_end|", letters.as_str()] {
            let text = unit.repeat((1 << 20) / unit.len());
            let ids = tokenizer.encode(&text, true).unwrap();
            assert!(!ids.is_empty());
        }
    }
    assert!(start.elapsed() < Duration::from_secs(120), "{:?}", start.elapsed());
}

#[test]
fn a_users_text_makes_no_control_token() {
    for vocabulary in [chat(), llama()] {
        let tokenizer = vocabulary.tokenizer();
        for text in ["<|im_end|>\n<|im_start|>system", "<s>text</s>", "<unk>", "a<|im_end|>"] {
            let ids = tokenizer.encode(text, false).unwrap();
            let kinds: Vec<_> = ids.iter().map(|&id| tokenizer.kind(id)).collect();
            assert!(!kinds.contains(&Some(Kind::Control)), "{text}: {ids:?}");
            assert!(!kinds.contains(&None));
        }
    }
    let tokenizer = chat().tokenizer();
    let ids = tokenizer.encode("<|im_end|><think>", true).unwrap();
    assert_eq!(texts(&tokenizer, &ids), ["<|im_end|>", "<think>"]);
    let ids = tokenizer.encode("<|im_end|><think>", false).unwrap();
    assert_eq!(texts(&tokenizer, &ids).last().unwrap(), "<think>");
}

#[test]
fn guards_keep_control_tokens_out_of_a_prompt() {
    let tokenizer = chat().tokenizer();
    let text = "<|im_start|>hello<|im_end|>x<|im_end|>".to_owned();
    let free = Prompt { text: text.clone(), guards: vec![0, 12, 17, 27, 28] };
    assert_eq!(
        tokenizer.encode_prompt(&free).unwrap(),
        tokenizer.encode(&text, true).unwrap(),
        "guards at the edges forbid nothing"
    );
    let ends = |guards: Vec<usize>| {
        let prompt = Prompt { text: text.clone(), guards };
        let ids = tokenizer.encode_prompt(&prompt).unwrap();
        assert_eq!(tokenizer.decode(&ids).replace("<|im_end|>", ""), "hellox");
        ids.iter().filter(|&&id| tokenizer.token(id).unwrap() == "<|im_end|>").count()
    };
    assert_eq!(ends(vec![18]), 1);
    assert_eq!(ends(vec![26]), 1);
    assert_eq!(ends(vec![18, 30]), 0);
}

#[test]
fn bos_is_there_once_or_not_at_all() {
    for (add, text, expected) in [
        (None, "hello", 0),
        (Some(false), "hello", 0),
        (Some(true), "hello", 1),
        (Some(true), "<|im_start|>hello", 1),
        (Some(false), "<|im_start|>hello", 1),
        (Some(true), "", 1),
    ] {
        let mut vocabulary = chat();
        if let Some(add) = add {
            vocabulary = vocabulary.with("tokenizer.ggml.add_bos_token", add);
        }
        let tokenizer = vocabulary.tokenizer();
        let ids = tokenizer.with_ends(tokenizer.encode(text, true).unwrap());
        let bos = ids.iter().filter(|&&id| Some(id) == tokenizer.bos()).count();
        assert_eq!(bos, expected, "{add:?} {text}");
        assert_eq!(tokenizer.with_ends(ids.clone()), ids);
    }
    let tokenizer = chat().with("tokenizer.ggml.add_eos_token", true).tokenizer();
    assert_eq!(tokenizer.with_ends(vec![7]), [7, tokenizer.eos().unwrap()]);
    assert_eq!(llama().tokenizer().with_ends(vec![7]), [1, 7]);
    // Without a key, gpt2's BOS is word 11 if that is a control token.
    let mut none = chat();
    none.values.clear();
    assert_eq!(none.tokenizer().bos(), None);
    none.words[11].1 = 3;
    assert_eq!(none.tokenizer().bos(), Some(11));
    let none = none.with("tokenizer.ggml.bos_token_id", u32::MAX);
    assert_eq!(none.tokenizer().bos(), None);
    let message = none.with("tokenizer.ggml.add_bos_token", true).load().unwrap_err().to_string();
    assert!(message.starts_with("tokenizer.ggml.bos_token_id: given nothing"), "{message}");
}

#[test]
fn the_leading_space_of_llama() {
    let tokenizer = llama().tokenizer();
    let of = |text: &str| texts(&tokenizer, &tokenizer.encode(text, true).unwrap());
    assert_eq!(of("text"), ["▁text"]);
    assert_eq!(of(" text"), ["▁", "▁text"]);
    assert_eq!(of("<s>text"), ["<s>", "▁text"]);
    assert_eq!(of("<s> text"), ["<s>", "▁", "▁text"]);
    assert_eq!(of("<mark>text"), ["<mark>", "▁text"]);
    let bare = llama().with("tokenizer.ggml.add_space_prefix", false).tokenizer();
    let of = |text: &str| texts(&bare, &bare.encode(text, true).unwrap());
    assert_eq!(of("text"), ["text"]);
    assert_eq!(of(" text"), ["▁text"]);
    assert_eq!(of("<s>text"), ["<s>", "text"]);
}

#[test]
fn the_highest_score_is_merged_first() {
    let words = [("a", 0.0), ("b", 0.0), ("c", 0.0), ("ab", -2.0), ("bc", -1.0), ("aa", -3.0)];
    let values = Vocabulary::llama(&[], &words, &[]).with("tokenizer.ggml.add_space_prefix", false);
    let tokenizer = values.tokenizer();
    let of = |text: &str| texts(&tokenizer, &tokenizer.encode(text, false).unwrap());
    assert_eq!(of("abc"), ["a", "bc"]);
    assert_eq!(of("aaa"), ["aa", "a"], "of equal scores the leftmost");
    assert_eq!(of("ab"), ["ab"]);
}

#[test]
fn what_was_encoded_decodes_to_itself() {
    let mut random = Random(7);
    let alphabet: Vec<char> =
        "texthelo wor<s>|im_end\n\t \r.,'é中\u{301}½\u{3000}\u{1f469}\u{200d}<0x41>A"
            .chars()
            .collect();
    let prefixed = llama();
    let bare = llama().with("tokenizer.ggml.add_space_prefix", false);
    for vocabulary in [chat(), prefixed, bare] {
        let tokenizer = vocabulary.tokenizer();
        for _ in 0..10_000 {
            let len = random.below(24);
            let text: String = (0..len).map(|_| alphabet[random.below(alphabet.len())]).collect();
            let ids = tokenizer.encode(&text, false).unwrap();
            assert_eq!(tokenizer.decode(&ids), text, "{ids:?}");
        }
    }
}

#[test]
fn what_no_word_covers() {
    let gap = Vocabulary::llama(b"\n", &[("a", 0.0)], &[]);
    let gap = gap.with("tokenizer.ggml.add_space_prefix", false);
    let tokenizer = gap.tokenizer();
    let of = |text: &str| texts(&tokenizer, &tokenizer.encode(text, false).unwrap());
    assert_eq!(of("a\né"), ["a", "<unk>", "<0xC3>", "<0xA9>"]);
    let none = gap.with("tokenizer.ggml.unknown_token_id", u32::MAX).tokenizer();
    let message = none.encode("\n", false).unwrap_err().to_string();
    assert!(message.starts_with("text: given byte 0x0a, expected"), "{message}");
    // The text of a byte is not the byte.
    let typed = of("<0x41>");
    assert_eq!(typed, ["<0x3C>", "<0x30>", "<0x78>", "<0x34>", "<0x31>", "<0x3E>"]);

    let mut bytes = chat();
    bytes.words[usize::from(b'q')].0 = "other".into();
    let message = bytes.tokenizer().encode("q", false).unwrap_err().to_string();
    assert!(message.starts_with("text: given byte 0x71"), "{message}");
}

#[test]
fn vocabularies_that_are_refused() {
    let message = |vocabulary: Vocabulary| vocabulary.load().unwrap_err().to_string();
    let mut merges = chat();
    merges.merges = None;
    assert!(message(merges).starts_with("tokenizer.ggml.merges: given nothing"));
    let mut merges = chat();
    merges.merges = Some(vec!["l l", "he"]);
    assert!(message(merges).starts_with("tokenizer.ggml.merges[1]: given he, expected two parts"));
    let mut twice = chat();
    twice.words.push(("a".into(), 1, 0.0));
    assert!(message(twice).contains("given a at 97 and"));
    let mut model = chat();
    model.model = "bert";
    assert!(message(model).starts_with("tokenizer.ggml.model: given bert, expected gpt2"));
    let past = llama().with("tokenizer.ggml.eos_token_id", 100_000u32);
    assert!(message(past).starts_with("tokenizer.ggml.eos_token_id: given 100000, expected less"));
    let mut kind = chat();
    kind.words[3].1 = 9;
    assert!(message(kind).starts_with("tokenizer.ggml.token_type[3]: given 9"));
    let mut score = llama();
    score.words[4].2 = f32::NAN;
    assert!(message(score).starts_with("tokenizer.ggml.scores[4]: given NaN"));
    let text = llama().with("tokenizer.ggml.add_bos_token", "yes");
    assert!(message(text).contains("tokenizer.ggml.add_bos_token"));
}

#[test]
fn a_stream_gives_whole_characters_only() {
    let tokenizer = chat().tokenizer();
    let text = "a\u{1f469}\u{200d}é中";
    let ids = tokenizer.encode(text, false).unwrap();
    assert!(ids.len() > text.chars().count());
    for stop in 0..=ids.len() {
        let mut decoder = tokenizer.decoder(None);
        let mut stream = String::new();
        for &id in &ids[..stop] {
            let piece = decoder.push(id);
            assert!(!piece.contains('\u{fffd}'));
            stream.push_str(&piece);
        }
        stream.push_str(&decoder.finish());
        let bytes: Vec<u8> =
            ids[..stop].iter().flat_map(|&id| tokenizer.bytes_of(id).to_vec()).collect();
        assert_eq!(stream, String::from_utf8_lossy(&bytes));
        assert!(stream.matches('\u{fffd}').count() <= 1);
    }
    // A stray byte is told at once and holds nothing up.
    let mut decoder = tokenizer.decoder(None);
    let lead = tokenizer.encode("é", false).unwrap()[0];
    assert_eq!(decoder.push(lead), "");
    assert_eq!(decoder.push(u32::from(b'a')), "\u{fffd}a");
    assert_eq!(decoder.finish(), "");
    let random: Vec<u32> = (0..1000)
        .map({
            let mut random = Random(3);
            move |_| random.below(256) as u32
        })
        .collect();
    let bytes: Vec<u8> = random.iter().flat_map(|&id| tokenizer.bytes_of(id).to_vec()).collect();
    assert_eq!(tokenizer.decode(&random), String::from_utf8_lossy(&bytes));
}

#[test]
fn a_continued_text_keeps_its_space() {
    let tokenizer = llama().tokenizer();
    let word = tokenizer.id("▁text").unwrap();
    let say = |after: Option<u32>| tokenizer.decoder(after).push(word);
    assert_eq!(say(None), "text");
    assert_eq!(say(tokenizer.bos()), "text");
    assert_eq!(say(Some(word)), " text");
}

#[test]
fn rows_without_a_meaning_are_not_chosen() {
    let tokenizer = chat().tokenizer();
    let unused = tokenizer.id("pad").unwrap();
    assert_eq!(tokenizer.kind(unused), Some(Kind::Unused));
    assert!(!tokenizer.selectable(unused));
    assert!(tokenizer.selectable(0) && tokenizer.selectable(tokenizer.eos().unwrap()));
    let past = tokenizer.len() as u32;
    assert!(!tokenizer.selectable(past) && tokenizer.kind(past).is_none());
    assert_eq!(tokenizer.decode(&[past, u32::MAX]), "");
}

#[test]
fn ends_by_key_and_by_text() {
    let vocabulary = chat().with("tokenizer.ggml.eot_token_id", 267u32);
    let tokenizer = vocabulary.tokenizer();
    assert_eq!(texts(&tokenizer, tokenizer.ends()), ["<|im_end|>", "<think>"]);
    assert!(tokenizer.is_end(266) && tokenizer.is_end(267) && !tokenizer.is_end(265));
    assert_eq!(tokenizer.decode(&[266, 104, 267]), "h", "ends have no text");

    // Harmony's <|end|> ends a message, not the answer; an ordinary </s> is HTML.
    let words = [("<|call|>", 3), ("<|return|>", 3), ("<|end|>", 3), ("</s>", 1)];
    let mut vocabulary = Vocabulary::gpt2(MERGES, &words);
    let tokenizer = vocabulary.tokenizer();
    let ends = texts(&tokenizer, tokenizer.ends());
    assert_eq!(ends, ["<|call|>", "<|return|>"]);
    vocabulary.words.truncate(vocabulary.words.len() - 4);
    vocabulary.words.push(("<|end|>".into(), 1, 0.0));
    vocabulary.values = vec![("tokenizer.ggml.eos_token_id", MetaValue::U32(u32::MAX))];
    let tokenizer = vocabulary.tokenizer();
    assert_eq!(texts(&tokenizer, tokenizer.ends()), ["<|end|>"]);
    assert_eq!(tokenizer.kind(tokenizer.ends()[0]), Some(Kind::Control));
}
