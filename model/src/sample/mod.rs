//! The choice of a token from logits, on the host.
//!
//! `docs/numerics.md` fixes every step: the same logits, seed and index give the same token on any
//! machine. All arithmetic is f64 with the `libm` crate.

mod random;
mod stop;

use std::cmp::Ordering;

use strata_core::{Error, Result};

pub use random::uniform;
pub use stop::Stops;

/// How tokens are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// 0: the largest logit always. Otherwise logits are divided by it, after the filters.
    pub temperature: f32,
    /// Only the `top_k` largest logits; 0: all.
    pub top_k: usize,
    /// Only the fewest of them whose probabilities sum to `top_p`; 1: all.
    pub top_p: f32,
    /// Only those at least `min_p` times as probable as the first; 0: all.
    pub min_p: f32,
    /// The seed of the random numbers.
    pub seed: u64,
}

impl Default for Options {
    /// Greedy.
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 }
    }
}

/// Chooses tokens. It has no state: what it chooses depends on its arguments alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler(Options);

/// A token that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Candidate {
    id: u32,
    logit: f32,
}

/// The larger logit first, of equals the smaller id; no NaN comes here.
fn order(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
}

impl Sampler {
    /// A sampler.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a temperature that is negative or not finite, and for a `top_p` or
    /// `min_p` outside of 0 to 1.
    pub fn new(options: Options) -> Result<Self> {
        let Options { temperature, top_p, min_p, .. } = options;
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(Error::invalid("temperature", temperature, "0 or more, and finite"));
        }
        for (what, given) in [("top_p", top_p), ("min_p", min_p)] {
            if !(0.0..=1.0).contains(&given) {
                return Err(Error::invalid(what, given, "0 to 1"));
            }
        }
        Ok(Self(options))
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.0
    }

    /// Chooses the token at a position of a sequence: `index` counts the tokens chosen before it
    /// in that sequence, `selectable` says which ids may be chosen.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the position for a logit that is NaN or plus infinity, and if no
    /// selectable logit is above minus infinity.
    pub fn choose(
        &self,
        logits: &[f32],
        selectable: impl Fn(u32) -> bool,
        position: usize,
        index: u64,
    ) -> Result<u32> {
        let mut candidates = Vec::with_capacity(logits.len());
        for (id, &logit) in (0u32..).zip(logits) {
            if logit.is_nan() || logit == f32::INFINITY {
                let what = format!("position {position}: logit of token {id}");
                return Err(Error::invalid(what, logit, "a finite number, or minus infinity"));
            }
            if logit > f32::NEG_INFINITY && selectable(id) {
                candidates.push(Candidate { id, logit });
            }
        }
        let Some(&first) = candidates.iter().min_by(|a, b| order(a, b)) else {
            let given = "none above minus infinity that may be chosen";
            return Err(Error::invalid(
                format!("position {position}: logits"),
                given,
                "one or more",
            ));
        };
        let Options { temperature, top_k, seed, .. } = self.0;
        if temperature == 0.0 || top_k == 1 {
            return Ok(first.id);
        }
        self.filter(&mut candidates);

        let temperature = f64::from(temperature);
        let best = f64::from(first.logit);
        let weight = |c: &Candidate| libm::exp((f64::from(c.logit) - best) / temperature);
        let weights: Vec<f64> = candidates.iter().map(weight).collect();
        let goal = uniform(seed, index) * weights.iter().sum::<f64>();
        let mut sum = 0.0;
        for (candidate, weight) in candidates.iter().zip(&weights) {
            sum += weight;
            if sum > goal {
                return Ok(candidate.id);
            }
        }
        // The sum is the same as above, and the goal is below it.
        Ok(first.id)
    }

    /// Leaves the candidates that pass top-k, top-p and min-p, in this order; one at least.
    fn filter(&self, candidates: &mut Vec<Candidate>) {
        let Options { top_k, top_p, min_p, .. } = self.0;
        if top_k > 0 && top_k < candidates.len() {
            candidates.select_nth_unstable_by(top_k - 1, order);
            candidates.truncate(top_k);
        }
        candidates.sort_unstable_by(order);
        let best = candidates.first().map_or(0.0, |first| f64::from(first.logit));
        let weight = |c: &Candidate| libm::exp(f64::from(c.logit) - best);
        if top_p < 1.0 {
            let total: f64 = candidates.iter().map(weight).sum();
            let goal = f64::from(top_p) * total;
            let mut sum = 0.0;
            let enough = candidates.iter().position(|candidate| {
                sum += weight(candidate);
                sum >= goal
            });
            candidates.truncate(enough.map_or(candidates.len(), |at| at + 1));
        }
        let least = f64::from(min_p);
        candidates.retain(|candidate| weight(candidate) >= least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(temperature: f32, top_k: usize, top_p: f32, min_p: f32) -> Sampler {
        Sampler::new(Options { temperature, top_k, top_p, min_p, seed: 5 }).unwrap()
    }

    /// The ids that 500 draws give, ascending.
    fn drawn(sampler: Sampler, logits: &[f32]) -> Vec<u32> {
        let draw = |index| sampler.choose(logits, |_| true, 0, index).unwrap();
        let mut ids: Vec<u32> = (0..500).map(draw).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    #[test]
    fn ties_go_to_the_smaller_id() {
        let mut logits = vec![-0.5; 128];
        logits[7] = 3.0;
        logits[100] = 3.0;
        for sampler in [sampler(0.0, 0, 1.0, 0.0), sampler(1.0, 1, 1.0, 0.0)] {
            assert_eq!(sampler.choose(&logits, |_| true, 0, 0).unwrap(), 7);
            assert_eq!(sampler.choose(&logits, |id| id != 7, 0, 0).unwrap(), 100);
        }
        assert_eq!(drawn(sampler(1.0, 2, 1.0, 0.0), &logits), [7, 100]);
        assert_eq!(sampler(0.0, 0, 1.0, 0.0).choose(&[-0.0, 0.0], |_| true, 0, 0).unwrap(), 0);
        assert_eq!(drawn(sampler(1.0, 2, 1.0, 0.0), &[1.0, 1.0, 1.0]), [0, 1]);
    }

    #[test]
    fn what_is_no_choice_is_an_error_with_its_position() {
        for sampler in [sampler(0.0, 0, 1.0, 0.0), sampler(1.0, 40, 0.9, 0.05)] {
            let message = |logits: &[f32]| {
                sampler.choose(logits, |id| id != 1, 17, 0).unwrap_err().to_string()
            };
            assert!(message(&[0.0, 0.0, f32::NAN]).starts_with("position 17: logit of token 2:"));
            assert!(message(&[0.0, f32::NAN]).starts_with("position 17: logit of token 1:"));
            assert!(message(&[f32::INFINITY]).contains("given inf"));
            assert!(message(&[f32::NEG_INFINITY, 4.0]).starts_with("position 17: logits:"));
            assert!(message(&[]).starts_with("position 17: logits:"));
        }
    }

    #[test]
    fn what_may_not_be_chosen_never_is() {
        let mut logits = vec![0.0; 128];
        logits[125] = 50.0;
        for sampler in [sampler(0.0, 0, 1.0, 0.0), sampler(1.0, 0, 1.0, 0.0)] {
            for index in 0..200 {
                assert!(sampler.choose(&logits, |id| id < 120, 0, index).unwrap() < 120);
            }
        }
    }

    /// Temperature comes last: 4, 3, 1 have 0.71, 0.26, 0.04 without it.
    #[test]
    fn filters_come_before_the_temperature() {
        let logits = [4.0, 3.0, 1.0];
        assert_eq!(drawn(sampler(0.5, 0, 0.8, 0.0), &logits), [0, 1]);
        assert_eq!(drawn(sampler(5.0, 0, 1.0, 0.0), &logits), [0, 1, 2]);
        assert_eq!(drawn(sampler(5.0, 2, 1.0, 0.0), &logits), [0, 1]);
        assert_eq!(drawn(sampler(5.0, 0, 1.0, 0.3), &logits), [0, 1]);
        assert_eq!(drawn(sampler(5.0, 0, 1.0, 1.0), &logits), [0]);
        assert_eq!(drawn(sampler(5.0, 0, 0.0, 0.0), &logits), [0]);
        assert_eq!(drawn(sampler(1e-30, 0, 1.0, 0.0), &logits), [0]);
    }

    #[test]
    fn draws_follow_the_probabilities_and_the_index_alone() {
        let sampler = sampler(1.0, 0, 1.0, 0.0);
        let logits = [0.0, 0.0, -1e30, std::f32::consts::LN_2];
        let draw = |index| sampler.choose(&logits, |_| true, 0, index).unwrap();
        let ids: Vec<u32> = (0..4000).map(draw).collect();
        let share = |id| ids.iter().filter(|&&given| given == id).count();
        assert!((900..1100).contains(&share(0)) && (900..1100).contains(&share(1)));
        assert!((1900..2100).contains(&share(3)) && share(2) == 0);
        let backwards: Vec<u32> = (0..4000).rev().map(draw).collect();
        assert!(ids.iter().eq(backwards.iter().rev()));
    }

    #[test]
    fn options_out_of_range_are_told() {
        let given = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            Sampler::new(options).unwrap_err().to_string()
        };
        assert!(given(|o| o.temperature = -1.0).starts_with("temperature: given -1"));
        assert!(given(|o| o.temperature = f32::NAN).starts_with("temperature: given NaN"));
        assert!(given(|o| o.top_p = 1.5).starts_with("top_p: given 1.5"));
        assert!(given(|o| o.min_p = -0.1).starts_with("min_p: given -0.1"));
    }
}
