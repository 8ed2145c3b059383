//! A whole model: how fast it reads a prompt and writes a text, step by step.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use strata::backend::Backend;
use strata::backend::ops::Cost;
use strata::format::random::SplitMix64;
use strata::model::{Session, Token};

use super::watched::{Step, Watched};
use super::{Bench, Growth, Table, ratio, shown};
use crate::cli::measure;
use crate::cli::report::{bytes, ms, ops_rate, significant};
use crate::cli::text::Loaded;
use crate::cli::{Failure, Outcome};

/// Tokens and how long they took.
struct Measured {
    tokens: usize,
    time: Duration,
    steps: Vec<Step>,
}

impl Bench<'_> {
    pub(super) fn model(&self, loaded: &Loaded) -> Outcome<Table> {
        let mut table = Table::new(vec![
            "step", "ms", "tokens/s", "bytes", "floor", "x floor", "rate", "x tokens",
        ]);
        let mut growth = Growth(None);
        for &tokens in &self.tokens {
            let new = self.args.new;
            if tokens.saturating_add(new) > loaded.context {
                let most = format!("at most {} with {new} new ones", loaded.context);
                return Err(Failure::Usage(format!("--tokens: given {tokens}, expected {most}")));
            }
            self.bar.set_message(format!("{tokens} tokens"));
            let mut session = loaded.session(tokens + new)?;
            let (prompt, text) = self.one_length(loaded, &mut session, tokens, new)?;
            table.rows.push(vec![format!("{tokens} tokens")]);
            let grown = growth.next(tokens, prompt.time);
            let parts = [("prompt", prompt, grown), ("generation, a token", text, None)];
            let mut both = serde_json::Map::new();
            for (name, measured, grown) in parts {
                let value = self.rows_of(name, &measured, grown, &mut table);
                both.insert(name.split(',').next().unwrap_or(name).to_owned(), value);
            }
            table.json.push(json!({
                "tokens": tokens, "new_tokens": new, "chunk": session.space().chunk,
                "prompt": both["prompt"], "generation": both["generation"],
            }));
        }
        Ok(table)
    }

    /// The prompt and the text behind it: medians of whole runs, and the steps of one more run.
    fn one_length(
        &self,
        loaded: &Loaded,
        session: &mut Session,
        tokens: usize,
        new: usize,
    ) -> Outcome<(Measured, Measured)> {
        let vocab = loaded.model.config().vocab as u64;
        let mut random = SplitMix64::new(self.args.seed);
        let mut id = || (((random.next_u64() >> 32) * vocab) >> 32) as u32;
        let ids: Vec<u32> = (0..tokens + new).map(|_| id()).collect();
        let (prompt, text) = ids.split_at(tokens);
        let token = |id, logits| Token { id, sequence: 0, logits };
        let read: Vec<Token> =
            prompt.iter().enumerate().map(|(at, &id)| token(id, at + 1 == tokens)).collect();
        let run = |session: &mut Session, backend: &dyn Backend| -> Outcome<[Duration; 2]> {
            session.truncate(0, 0)?;
            let start = Instant::now();
            session.append(backend, &loaded.model, &read)?;
            let reading = start.elapsed();
            let start = Instant::now();
            for &id in text {
                session.append(backend, &loaded.model, &[token(id, true)])?;
            }
            Ok([reading, start.elapsed() / new.max(1) as u32])
        };
        let mut times = [Vec::new(), Vec::new()];
        for number in 0..=self.args.runs {
            let measured = run(session, &*loaded.backend)?;
            if number > 0 {
                times.iter_mut().zip(measured).for_each(|(times, time)| times.push(time));
            }
        }
        // Each step waits for itself: a run apart, whose total is not that of the others.
        session.truncate(0, 0)?;
        // On a stream of its own: each waits for the other.
        let mut watch = |tokens: &[Vec<Token>]| -> Outcome<Vec<Step>> {
            loaded.backend.synchronize()?;
            let watched = Watched::new(loaded.backend.fork()?);
            for tokens in tokens {
                session.append(&watched, &loaded.model, tokens)?;
            }
            let backend: &dyn Backend = &watched;
            backend.synchronize()?;
            Ok(watched.steps())
        };
        let of_prompt = watch(std::slice::from_ref(&read))?;
        let each: Vec<Vec<Token>> = text.iter().map(|&id| vec![token(id, true)]).collect();
        let mut of_text = watch(&each)?;
        for step in &mut of_text {
            step.time /= new as u32;
            step.cost =
                Cost { bytes: step.cost.bytes / new as u64, ops: step.cost.ops / new as u64 };
        }
        let [mut reading, mut writing] = times;
        let median = |times: &mut Vec<Duration>| measure::median(times).unwrap_or_default();
        Ok((
            Measured { tokens, time: median(&mut reading), steps: of_prompt },
            Measured { tokens: 1, time: median(&mut writing), steps: of_text },
        ))
    }

    /// A line for the whole, one for each step; the same for scripts.
    fn rows_of(
        &self,
        name: &str,
        measured: &Measured,
        grown: Option<f64>,
        table: &mut Table,
    ) -> Value {
        let cost: Cost = measured.steps.iter().map(|step| step.cost).sum();
        let mut line = |name: String,
                        time,
                        tokens: Option<usize>,
                        cost: Cost,
                        grown: Option<f64>| {
            let floor = self.bandwidth.floor(cost.bytes);
            let speed = tokens.map(|n| n as f64 / crate::cli::report::seconds(time));
            table.rows.push(vec![
                name.clone(),
                ms(time),
                speed.map_or(String::new(), significant),
                bytes(cost.bytes),
                ms(floor),
                significant(ratio(time, floor)),
                if cost.ops > 0 { ops_rate(cost.ops, time) } else { String::new() },
                shown(grown),
            ]);
            json!({
                "step": name.trim_start(), "seconds": time.as_secs_f64(), "tokens_per_second": speed,
                "bytes": cost.bytes, "floor_seconds": floor.as_secs_f64(), "ops": cost.ops,
                "growth": grown,
            })
        };
        let tokens = Some(measured.tokens);
        let mut value = line(format!("  {name}"), measured.time, tokens, cost, grown);
        let steps = measured.steps.iter().map(|step| {
            let name = format!("    {}", step.name);
            let mut value = line(name, step.time, None, step.cost, None);
            value["launches"] = step.launches.into();
            value
        });
        let steps: Vec<Value> = steps.collect();
        value["steps"] = steps.into();
        value
    }
}
