//! One token's choice of experts, as the CPU makes it.

use super::{Gating, GroupScore, Groups, Norm, RouterOptions, key};
use crate::numerics::{canonical, exp, sigmoid, softcap, softplus};

/// Biases of a router, each one value per expert.
#[derive(Debug, Clone, Copy, Default)]
pub struct RouterBias<'a> {
    /// Added to the scores.
    pub score: Option<&'a [f32]>,
    /// Added to gate values where experts are chosen; weights do not see it.
    pub selection: Option<&'a [f32]>,
}

/// Memory for [`choose`], kept from token to token.
#[derive(Debug, Default)]
pub struct ChooseSpace {
    scores: Vec<f32>,
    values: Vec<f32>,
    groups: Vec<f32>,
    allowed: Vec<bool>,
}

/// One token's experts and weights by any router; `ids` and `weights` hold k values each.
/// Whether all scores, with their bias, and what experts are chosen by are finite.
///
/// # Panics
/// Where lengths do not fit together as [`RouterOptions::check`] has them.
pub fn choose(
    scores: &[f32],
    bias: RouterBias<'_>,
    options: &RouterOptions,
    space: &mut ChooseSpace,
    ids: &mut [i32],
    weights: &mut [f32],
) -> bool {
    let ChooseSpace { scores: changed, values, groups: group_values, allowed } = space;
    let mut s = scores;
    let mut finite = all_finite(s);
    if bias.score.is_some() || options.softcap != 0.0 {
        changed.clear();
        changed.extend_from_slice(scores);
        if let Some(bias) = bias.score {
            changed.iter_mut().zip(bias).for_each(|(s, b)| *s += b);
            finite = all_finite(changed);
        }
        if options.softcap != 0.0 {
            changed.iter_mut().for_each(|s| *s = softcap(*s, options.softcap));
        }
        s = changed;
    }
    let by_value = bias.selection.is_some() || options.groups.is_some();
    let all = match options.gating {
        Gating::Softmax => SoftmaxOfAll::new(s),
        _ => SoftmaxOfAll { max: 0.0, sum: 1.0 },
    };
    if by_value {
        values.clear();
        values.extend(s.iter().map(|&s| gate(options.gating, &all, s)));
        if let Some(bias) = bias.selection {
            values.iter_mut().zip(bias).for_each(|(v, b)| *v += b);
            finite &= all_finite(values);
        }
    }
    let values: &[f32] = if by_value { values } else { s };
    match options.groups {
        Some(groups) => {
            allow(values, groups, group_values, allowed);
            best(values, |e| allowed[e], ids);
        }
        None => best(values, |_| true, ids),
    }
    weigh(s, &all, options, ids, weights);
    finite
}

fn all_finite(values: &[f32]) -> bool {
    values.iter().fold(true, |all, v| all & v.is_finite())
}

/// The softmax over all experts.
struct SoftmaxOfAll {
    max: f32,
    sum: f32,
}

impl SoftmaxOfAll {
    fn new(s: &[f32]) -> Self {
        let max = s.iter().fold(s[0], |max, &s| if key(s) > key(max) { s } else { max });
        Self { max, sum: s.iter().fold(0.0, |sum, &s| sum + exp(s - max)) }
    }
}

/// What a score is worth.
fn gate(gating: Gating, all: &SoftmaxOfAll, s: f32) -> f32 {
    match gating {
        Gating::Softmax => exp(s - all.max) / all.sum,
        Gating::SoftmaxOfChosen | Gating::Sparsemixer { .. } => s,
        Gating::Sigmoid => sigmoid(s),
        Gating::SqrtSoftplus => softplus(s).sqrt(),
    }
}

/// Whether each expert's group is among those used.
fn allow(values: &[f32], groups: Groups, worth: &mut Vec<f32>, allowed: &mut Vec<bool>) {
    let each = values.len() / groups.count;
    worth.clear();
    worth.extend(values.chunks_exact(each).map(|group| {
        let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
        for &v in group {
            let v = key(v);
            if v > first {
                (first, second) = (v, first);
            } else if v > second {
                second = v;
            }
        }
        match groups.score {
            GroupScore::TopTwo if each > 1 => first + second,
            _ => first,
        }
    }));
    let mut used = [0; RouterOptions::MOST_GROUPS];
    best(worth, |_| true, &mut used[..groups.used]);
    allowed.clear();
    allowed.resize(values.len(), false);
    for &group in &used[..groups.used] {
        allowed[group as usize * each..][..each].fill(true);
    }
}

/// The ids of the best values, in descending order, ties to the smaller id; NaN is -inf.
pub(super) fn best(values: &[f32], allowed: impl Fn(usize) -> bool, ids: &mut [i32]) {
    let k = ids.len();
    // Insertion into the k best so far: a later id of equal value goes behind.
    let mut found = 0;
    for (e, &value) in values.iter().enumerate() {
        let value = key(value);
        if !allowed(e) || found == k && value <= key(values[ids[k - 1] as usize]) {
            continue;
        }
        let mut at = found.min(k - 1);
        while at > 0 && value > key(values[ids[at - 1] as usize]) {
            ids[at] = ids[at - 1];
            at -= 1;
        }
        ids[at] = e as i32;
        found = (found + 1).min(k);
    }
}

/// The weights of the chosen ones.
fn weigh(s: &[f32], all: &SoftmaxOfAll, options: &RouterOptions, ids: &[i32], weights: &mut [f32]) {
    let chosen = ids.iter().map(|&id| s[id as usize]);
    match options.gating {
        Gating::SoftmaxOfChosen => {
            let first = s[ids[0] as usize];
            let max = chosen.clone().fold(first, |max, s| if key(s) > key(max) { s } else { max });
            let mut sum = 0.0;
            for (weight, s) in weights.iter_mut().zip(chosen) {
                *weight = exp(s - max);
                sum += *weight;
            }
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        Gating::Sparsemixer { near } => {
            for j in 0..ids.len() {
                weights[j] = 1.0 / near_sum(s, &ids[..=j], near);
            }
        }
        gating => {
            for (weight, s) in weights.iter_mut().zip(chosen) {
                *weight = gate(gating, all, s);
            }
        }
    }
    if let Norm::Sum { epsilon, least } = options.norm {
        let sum = weights.iter().fold(0.0, |sum, weight| sum + weight) + epsilon;
        let divisor = if sum < least { least } else { sum };
        weights.iter_mut().for_each(|weight| *weight /= divisor);
    }
    weights.iter_mut().for_each(|weight| *weight = canonical(*weight * options.scale));
}

/// The sum of `exp(s - max)` over those left that are near the last chosen one, the best of them.
fn near_sum(s: &[f32], chosen: &[i32], near: f32) -> f32 {
    let (&last, before) = chosen.split_last().expect("a choice at least");
    let max = s[last as usize];
    let mut sum = 0.0;
    for (e, &s) in s.iter().enumerate() {
        let magnitude = if s.abs() < max { max } else { s.abs() };
        // What is no number is not far either.
        let far = (max - s) / magnitude > near;
        if !before.contains(&(e as i32)) && !far {
            sum += exp(s - max);
        }
    }
    sum
}
