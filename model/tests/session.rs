//! Whole models that are written here, on the CPU: what a token's logits depend on, and what not.

mod made;

use made::{ALL, VOCAB, bits, cpu, has_states, ids, load, made, space, tokens, untied};
use strata_core::Result;
use strata_model::{Model, Session, Space, Token};

#[test]
fn chunks_threads_and_cuts_change_no_byte() {
    let ids = ids(150, 0);
    for architecture in ALL {
        let mut first: Option<Vec<u32>> = None;
        for (chunk, threads) in [(512, 1), (1, 2), (7, 1), (63, 2), (64, 2), (65, 3)] {
            let backend = cpu(threads);
            let model = load(architecture, &*backend);
            let mut session = Session::new(&*backend, &model, space(chunk)).unwrap();
            let logits = session.append(&*backend, &model, &tokens(&ids, 0)).unwrap();
            assert_eq!(logits.len(), ids.len());
            assert!(logits.iter().flatten().all(|value| value.is_finite()), "{architecture}");
            let bits = bits(&logits);
            assert_eq!(
                first.get_or_insert(bits.clone()),
                &bits,
                "{architecture}: {chunk}, {threads}"
            );
        }
        let backend = cpu(2);
        let model = load(architecture, &*backend);
        for cut in [1, 19, 20, 21, 63, 64, 65, 149] {
            let mut session = Session::new(&*backend, &model, space(512)).unwrap();
            let mut logits = session.append(&*backend, &model, &tokens(&ids[..cut], 0)).unwrap();
            logits.extend(session.append(&*backend, &model, &tokens(&ids[cut..], 0)).unwrap());
            assert_eq!(first.as_ref(), Some(&bits(&logits)), "{architecture}: cut at {cut}");
        }
    }
}

#[test]
fn a_token_depends_on_those_before_it_alone() {
    let backend = cpu(2);
    for architecture in ALL {
        let model = load(architecture, &*backend);
        let run = |ids: &[u32]| -> Vec<Vec<f32>> {
            let mut session = Session::new(&*backend, &model, space(512)).unwrap();
            session.append(&*backend, &model, &tokens(ids, 0)).unwrap()
        };
        let base = ids(90, 0);
        let logits = run(&base);
        let mut other = base.clone();
        other[40] = (other[40] + 1) % VOCAB as u32;
        let changed = run(&other);
        assert_eq!(bits(&logits[..40]), bits(&changed[..40]), "{architecture}");
        for at in 40..90 {
            // Two blocks with a window of 20 and a full one between: all that follow see it.
            assert_ne!(bits(&logits[at..=at]), bits(&changed[at..=at]), "{architecture}: {at}");
        }
    }
}

#[test]
fn sequences_are_as_if_alone() {
    let backend = cpu(2);
    for architecture in ALL {
        let model = load(architecture, &*backend);
        let texts = [ids(40, 1), ids(3, 2), ids(70, 3)];
        let alone: Vec<Vec<u32>> = texts
            .iter()
            .map(|text| {
                let mut session = Session::new(&*backend, &model, space(512)).unwrap();
                bits(&session.append(&*backend, &model, &tokens(text, 0)).unwrap())
            })
            .collect();
        let mut session =
            Session::new(&*backend, &model, Space { sequences: 3, ..space(16) }).unwrap();
        // One token of each in turn; only every second one's logits of the last text.
        let mut all = Vec::new();
        for at in 0..70 {
            for (sequence, text) in texts.iter().enumerate() {
                if let Some(&id) = text.get(at) {
                    all.push(Token { id, sequence, logits: sequence < 2 || at % 2 == 0 });
                }
            }
        }
        let mut logits = session.append(&*backend, &model, &all).unwrap().into_iter();
        let mut mixed = [Vec::new(), Vec::new(), Vec::new()];
        for token in all.iter().filter(|token| token.logits) {
            mixed[token.sequence].extend(bits(&[logits.next().unwrap()]));
        }
        assert_eq!(mixed[..2], alone[..2], "{architecture}");
        let vocab = VOCAB as usize;
        let rows = alone[2].chunks(vocab).step_by(2).flatten().copied();
        assert!(rows.eq(mixed[2].iter().copied()), "{architecture}");
        assert_eq!([0, 1, 2].map(|sequence| session.len(sequence)), [40, 3, 70]);
    }
}

#[test]
fn a_sequence_cut_back_goes_on_as_a_fresh_one() {
    let backend = cpu(2);
    for architecture in ALL {
        let model = load(architecture, &*backend);
        let (text, tail) = (ids(130, 1), ids(30, 5));
        for keep in [0, 1, 20, 64, 100] {
            let mut session = Session::new(&*backend, &model, space(512)).unwrap();
            session.append(&*backend, &model, &tokens(&text, 0)).unwrap();
            if has_states(architecture) && keep > 0 {
                let error = session.truncate(0, keep).unwrap_err().to_string();
                assert!(error.contains(&format!("given {keep}, expected 0 or 130")), "{error}");
                continue;
            }
            session.truncate(0, keep).unwrap();
            let logits = session.append(&*backend, &model, &tokens(&tail, 0)).unwrap();
            let mut fresh = Session::new(&*backend, &model, space(512)).unwrap();
            fresh.append(&*backend, &model, &tokens(&text[..keep], 0)).unwrap();
            let expected = fresh.append(&*backend, &model, &tokens(&tail, 0)).unwrap();
            assert_eq!(bits(&logits), bits(&expected), "{architecture}: {keep}");
        }
    }
}

#[test]
fn a_head_that_is_the_embedding_is_as_its_copy() {
    let backend = cpu(2);
    for architecture in ["llama", "gemma3", "qwen3moe"] {
        let run = |gguf| {
            let model = Model::load(&gguf, None, &*backend, &mut |_| ()).unwrap();
            let mut session = Session::new(&*backend, &model, space(64)).unwrap();
            bits(&session.append(&*backend, &model, &tokens(&ids(20, 0), 0)).unwrap())
        };
        assert!(untied(architecture).tensor("output.weight").is_some());
        assert!(made(architecture).tensor("output.weight").is_none());
        assert_eq!(run(made(architecture)), run(untied(architecture)), "{architecture}");
    }
}

#[test]
fn what_a_session_refuses_changes_nothing() {
    let backend = cpu(1);
    let model = load("llama", &*backend);
    let text = |result: Result<Vec<Vec<f32>>>| result.unwrap_err().to_string();
    let small = Space { context: 10, ..space(4) };
    let mut session = Session::new(&*backend, &model, small).unwrap();
    session.append(&*backend, &model, &tokens(&ids(8, 0), 0)).unwrap();
    let past = tokens(&ids(3, 1), 0);
    let message = text(session.append(&*backend, &model, &past));
    assert!(message.contains("given 11, expected at most 10, the context"), "{message}");
    let message = text(session.append(&*backend, &model, &tokens(&[VOCAB as u32], 0)));
    assert!(message.starts_with("token 0: id: given 60, expected less than 60"), "{message}");
    let message = text(session.append(&*backend, &model, &tokens(&[1], 1)));
    assert!(message.starts_with("token 0: sequence: given 1, expected less than 1"), "{message}");
    assert!(session.truncate(0, 9).is_err() && session.truncate(1, 0).is_err());
    assert_eq!(session.len(0), 8);
    // Up to the last place.
    session.append(&*backend, &model, &past[..2]).unwrap();
    assert_eq!(session.len(0), 10);
    for bad in [Space { context: 0, ..space(4) }, Space { context: 201, ..space(4) }] {
        assert!(Session::new(&*backend, &model, bad).is_err());
    }
    assert!(Session::new(&*backend, &model, Space { sequences: 0, ..space(4) }).is_err());
}
