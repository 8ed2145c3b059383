//! The choice of experts.

use crate::numerics::{canonical, exp, sigmoid, softcap, softplus};
use crate::routing::{Gating, GroupScore, Norm, RouterBias, RouterOptions};

/// One token's experts, their weights, and whether all scores with their bias, and what experts
/// are chosen by, are finite.
pub fn top_k(
    scores: &[f32],
    bias: RouterBias<'_>,
    options: &RouterOptions,
    k: usize,
) -> (Vec<i32>, Vec<f32>, bool) {
    let mut s = scores.to_vec();
    if let Some(bias) = bias.score {
        s = s.iter().zip(bias).map(|(s, b)| s + b).collect();
    }
    let mut finite = s.iter().all(|s| s.is_finite());
    if options.softcap != 0.0 {
        s = s.iter().map(|&s| softcap(s, options.softcap)).collect();
    }

    // What experts are chosen by.
    let all = s[order(&s, &every(&s))[0]];
    let sum: f32 = s.iter().fold(0.0, |sum, &s| sum + exp(s - all));
    let gate = |s: f32| match options.gating {
        Gating::Softmax => exp(s - all) / sum,
        Gating::Sigmoid => sigmoid(s),
        Gating::SqrtSoftplus => softplus(s).sqrt(),
        Gating::SoftmaxOfChosen | Gating::Sparsemixer { .. } => s,
    };
    let by_gate = bias.selection.is_some() || options.groups.is_some();
    let mut value: Vec<f32> = s.iter().map(|&s| if by_gate { gate(s) } else { s }).collect();
    if let Some(bias) = bias.selection {
        value = value.iter().zip(bias).map(|(v, b)| v + b).collect();
    }
    finite &= value.iter().all(|v| v.is_finite());

    // Experts of the groups in use.
    let mut allowed = every(&s);
    if let Some(groups) = options.groups {
        let each = s.len() / groups.count;
        let worth: Vec<f32> = (0..groups.count)
            .map(|g| {
                let of_group: Vec<usize> = (g * each..(g + 1) * each).collect();
                let best: Vec<f32> =
                    order(&value, &of_group).iter().map(|&e| key(value[e])).collect();
                match groups.score {
                    GroupScore::TopTwo if each > 1 => best[0] + best[1],
                    _ => best[0],
                }
            })
            .collect();
        let used = order(&worth, &every(&worth))[..groups.used].to_vec();
        allowed.retain(|e| used.contains(&(e / each)));
    }
    let chosen = order(&value, &allowed)[..k].to_vec();

    // Weights.
    let p: Vec<f32> = match options.gating {
        Gating::SoftmaxOfChosen => {
            let max = s[order(&s, &chosen)[0]];
            let p: Vec<f32> = chosen.iter().map(|&e| exp(s[e] - max)).collect();
            let sum = p.iter().fold(0.0, |sum, p| sum + p);
            p.iter().map(|p| p / sum).collect()
        }
        Gating::Sparsemixer { near } => (0..k)
            .map(|j| {
                let max = s[chosen[j]];
                let mut sum = 0.0;
                for (e, &s) in s.iter().enumerate() {
                    let magnitude = if s.abs() < max { max } else { s.abs() };
                    let far = (max - s) / magnitude > near;
                    if !chosen[..j].contains(&e) && !far {
                        sum += exp(s - max);
                    }
                }
                1.0 / sum
            })
            .collect(),
        _ => chosen.iter().map(|&e| gate(s[e])).collect(),
    };
    let divisor = match options.norm {
        Norm::None => None,
        Norm::Sum { epsilon, least } => {
            let sum = p.iter().fold(0.0, |sum, p| sum + p) + epsilon;
            Some(if sum < least { least } else { sum })
        }
    };
    let weights = p
        .iter()
        .map(|&p| canonical(divisor.map_or(p, |divisor| p / divisor) * options.scale))
        .collect();
    (chosen.iter().map(|&e| e as i32).collect(), weights, finite)
}

fn every(values: &[f32]) -> Vec<usize> {
    (0..values.len()).collect()
}

/// NaN is -inf.
fn key(value: f32) -> f32 {
    if value.is_nan() { f32::NEG_INFINITY } else { value }
}

/// `of` in descending value, -0 as +0, ties in their order.
fn order(values: &[f32], of: &[usize]) -> Vec<usize> {
    let mut order = of.to_vec();
    order.sort_by(|&a, &b| key(values[b]).partial_cmp(&key(values[a])).expect("a NaN has a key"));
    order
}
