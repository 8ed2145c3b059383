//! A sequence that is saved and continued elsewhere.

mod made;

use made::{ALL, bits, cpu, has_states, ids, load, made, seeded, space, tokens};
use strata_core::attention::PAGE;
use strata_model::{Model, Session, Space, State};

#[test]
fn what_is_continued_elsewhere_is_as_if_it_had_stayed() {
    for architecture in ALL {
        let here = cpu(2);
        let model = load(architecture, &*here);
        for cut in [1, PAGE - 1, PAGE, PAGE + 1] {
            let (text, tail) = (ids(cut, 3), ids(32, 5));
            let mut session = Session::new(&*here, &model, space(7)).unwrap();
            let read = session.append(&*here, &model, &tokens(&text, 0)).unwrap();
            let bytes = session.save(&*here, &model, 0, 41).unwrap();
            let stayed = session.append(&*here, &model, &tokens(&tail, 0)).unwrap();

            // Another backend, other threads, another place in a session of another size.
            let there = cpu(1);
            let model = load(architecture, &*there);
            let other = Space { sequences: 3, context: 120, ..space(16) };
            let mut session = Session::new(&*there, &model, other).unwrap();
            let taken = tokens(&ids(70, 9), 2);
            session.append(&*there, &model, &taken).unwrap();
            let state = State::read(&bytes).unwrap();
            assert_eq!((state.tokens(), state.drawn()), (&text[..], 41));
            session.restore(&*there, &model, 2, &state).unwrap();
            assert_eq!(session.tokens(2).unwrap(), text);
            assert_eq!(session.logits(2).unwrap(), read.last().unwrap(), "{architecture}: {cut}");
            // The same bytes from where it is now.
            assert_eq!(session.save(&*there, &model, 2, 41).unwrap(), bytes, "{architecture}");
            let went_on = session.append(&*there, &model, &tokens(&tail, 2)).unwrap();
            assert_eq!(bits(&stayed), bits(&went_on), "{architecture}: {cut}");
        }
    }
}

#[test]
fn what_is_no_state_of_this_model_is_refused_and_changes_nothing() {
    let backend = cpu(1);
    let model = load("llama", &*backend);
    let mut session = Session::new(&*backend, &model, space(64)).unwrap();
    session.append(&*backend, &model, &tokens(&ids(10, 1), 0)).unwrap();
    let state = session.save(&*backend, &model, 0, 0).unwrap();
    let refused = |bytes: &[u8]| State::read(bytes).unwrap_err().to_string();
    // Cut anywhere, longer, or with a byte changed anywhere.
    for at in (0..state.len()).step_by(97).chain([1, 8, 12, state.len() - 1]) {
        assert!(refused(&state[..at]).starts_with("saved state: given "), "{at}");
        let mut flipped = state.clone();
        flipped[at] ^= 0x10;
        assert!(refused(&flipped).starts_with("saved state: given "), "{at}");
    }
    assert!(refused(&[&state[..], &[0]].concat()).contains("do not fit their checksum"));
    assert!(refused(b"GGUF").contains("do not begin as one"));
    let mut later = state.clone();
    later[8] = 200;
    assert!(refused(&later).contains("given version 200, expected version 1"));

    let state = State::read(&state).unwrap();
    // Of the same shape with other weights, and of another shape.
    for other in [seeded("llama", 2), made("qwen3moe")] {
        let other = Model::load(&other, None, &*backend, &mut |_| ()).unwrap();
        let mut session = Session::new(&*backend, &other, space(64)).unwrap();
        session.append(&*backend, &other, &tokens(&ids(3, 1), 0)).unwrap();
        let error = session.restore(&*backend, &other, 0, &state).unwrap_err().to_string();
        assert_eq!(error, "saved state: given one of another model, expected one of this model");
        assert_eq!(session.tokens(0).unwrap(), ids(3, 1));
    }
    let small = Space { context: 9, ..space(4) };
    let mut session = Session::new(&*backend, &model, small).unwrap();
    let error = session.restore(&*backend, &model, 0, &state).unwrap_err().to_string();
    assert!(error.contains("given 10 tokens, expected at most 9, the context"), "{error}");
    let error = session.restore(&*backend, &model, 1, &state).unwrap_err().to_string();
    assert!(error.contains("sequence: given 1, expected less than 1"), "{error}");
    assert!(session.save(&*backend, &model, 1, 0).is_err());
    assert!(session.is_empty());
}

#[test]
fn a_beginning_that_is_there_is_not_read_again() {
    let backend = cpu(2);
    for architecture in ALL {
        let model = load(architecture, &*backend);
        let text = ids(100, 1);
        let fresh = |ids: &[u32]| {
            let mut session = Session::new(&*backend, &model, space(64)).unwrap();
            session.append(&*backend, &model, &tokens(ids, 0)).unwrap().pop().unwrap()
        };
        let mut session = Session::new(&*backend, &model, space(64)).unwrap();
        session.append(&*backend, &model, &tokens(&text, 0)).unwrap();
        let more = [&text[..], &[3]].concat();
        let other = [&text[..65], &ids(20, 8)].concat();
        // The same again, one more, the first part with another tail, another text, and nothing.
        for (ids, kept) in
            [(&text, 99), (&more, 100), (&other, 65), (&ids(40, 7), 0), (&Vec::new(), 0)]
        {
            // A state is of all tokens: it is kept whole, or not at all.
            let whole = !has_states(architecture) || kept == session.len(0);
            let kept = if whole { kept } else { 0 };
            let common = session.reuse(0, ids).unwrap();
            assert_eq!(common, kept, "{architecture}");
            assert_eq!(session.len(0), kept);
            let rows = session.append(&*backend, &model, &tokens(&ids[kept..], 0)).unwrap();
            if let Some(last) = rows.last() {
                assert_eq!(*last, fresh(ids), "{architecture}: {kept} kept");
            }
        }
    }
}
