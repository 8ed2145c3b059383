//! Routing on the host: checked routes, top-k, and the stable map.

mod choose;
mod options;

pub use choose::{ChooseSpace, RouterBias, choose};
pub use options::{Gating, GroupScore, Groups, Norm, RouterOptions};

use crate::error::agree;
use crate::{Error, Result};

/// Rows of the expert order are numbered in 31 bits.
const MAX_ROWS: usize = i32::MAX as usize;

/// The experts of each token and their weights, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Routes {
    ids: Vec<i32>,
    weights: Vec<f32>,
    k: usize,
    experts: usize,
}

impl Routes {
    /// `ids[t * k + j]` and `weights[t * k + j]` of each token t.
    ///
    /// # Errors
    /// [`Error::ExpertId`] for the first id outside `0..experts`;
    /// [`Error::Invalid`] where lengths are not a multiple of k, differ, or reach 2^31.
    pub fn new(ids: Vec<i32>, weights: Vec<f32>, k: usize, experts: usize) -> Result<Self> {
        if k == 0 || experts == 0 || experts > i32::MAX as usize {
            return Err(Error::invalid(
                "routes",
                format!("k = {k}, {experts} experts"),
                "at least 1 of each, below 2^31",
            ));
        }
        if !ids.len().is_multiple_of(k) {
            return Err(Error::invalid("routes: ids", ids.len(), format!("a multiple of k = {k}")));
        }
        if weights.len() != ids.len() {
            return Err(Error::invalid("routes: weights", weights.len(), ids.len().to_string()));
        }
        if ids.len() > MAX_ROWS {
            return Err(Error::invalid("routes: ids", ids.len(), "below 2^31"));
        }
        match ids.iter().position(|&id| id < 0 || id as usize >= experts) {
            Some(at) => {
                Err(Error::ExpertId { token: at / k, choice: at % k, id: ids[at], experts })
            }
            None => Ok(Self { ids, weights, k, experts }),
        }
    }

    /// Every token to all experts, with weight 1: a dense FFN seen as experts.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there are no experts or too many rows.
    pub fn all(tokens: usize, experts: usize) -> Result<Self> {
        // Without experts there is nothing to repeat, however many tokens there are.
        let rows = tokens.checked_mul(experts).filter(|&r| experts > 0 && r <= MAX_ROWS);
        let rows = rows.ok_or_else(|| {
            Error::invalid(
                "routes",
                format!("{tokens} x {experts}"),
                "1 expert or more, below 2^31 rows",
            )
        })?;
        let ids = (0..tokens).flat_map(|_| 0..experts as i32).collect();
        Self::new(ids, vec![1.0; rows], experts, experts)
    }

    /// The k chosen experts of each row of `scores`, and their weights: see [`RouterOptions`].
    ///
    /// # Errors
    /// [`Error::Invalid`] as [`RouterOptions::check`], or where `scores` is ragged or a bias
    /// has not one value per expert.
    pub fn top_k(
        scores: &[f32],
        experts: usize,
        k: usize,
        options: &RouterOptions,
        bias: RouterBias<'_>,
    ) -> Result<Self> {
        let biases = [bias.score, bias.selection];
        options.check(experts, k, biases.iter().any(Option::is_some))?;
        if !scores.len().is_multiple_of(experts) {
            return Err(Error::invalid(
                "top-k: scores",
                scores.len(),
                format!("a multiple of the {experts} experts"),
            ));
        }
        for bias in biases.into_iter().flatten() {
            agree("top-k: bias", bias.len(), experts)?;
        }
        let tokens = scores.len() / experts;
        let mut ids = vec![0; tokens * k];
        let mut weights = vec![0.0; tokens * k];
        let mut space = ChooseSpace::default();
        for (t, row) in scores.chunks_exact(experts).enumerate() {
            let out = t * k..(t + 1) * k;
            let (ids, weights) = (&mut ids[out.clone()], &mut weights[out]);
            choose(row, bias, options, &mut space, ids, weights);
        }
        Self::new(ids, weights, k, experts)
    }

    /// Tokens.
    pub fn tokens(&self) -> usize {
        self.ids.len() / self.k
    }

    /// Chosen experts per token.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Experts to choose from.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Expert ids, `[t * k + j]`.
    pub fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// Weights, `[t * k + j]`.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }
}

/// The order of scores: NaN is -inf, and -0 equals +0.
#[inline]
fn key(score: f32) -> f32 {
    if score.is_nan() { f32::NEG_INFINITY } else { score }
}

/// Rows by expert in ascending id, inside an expert by ascending (token, choice).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// `slot[t * k + j]`: the row.
    pub slot: Vec<u32>,
    /// `src[row]`: the token.
    pub src: Vec<u32>,
    /// `bounds[e]..bounds[e + 1]`: the rows of expert e.
    pub bounds: Vec<u32>,
}

impl Map {
    /// A counting sort, linear in `tokens * k`.
    pub fn new(routes: &Routes) -> Self {
        let rows = routes.ids.len();
        let mut map =
            Self { slot: vec![0; rows], src: vec![0; rows], bounds: vec![0; routes.experts + 1] };
        map_into(&routes.ids, routes.k, &mut map.slot, &mut map.src, &mut map.bounds);
        map
    }
}

/// [`Map::new`] into memory the caller has: `slot` and `src` as long as `ids`,
/// `bounds` one longer than the experts; every id is below `bounds.len() - 1`.
///
/// # Panics
/// Where lengths or ids are others.
pub fn map_into(ids: &[i32], k: usize, slot: &mut [u32], src: &mut [u32], bounds: &mut [u32]) {
    bounds.fill(0);
    for &id in ids {
        bounds[id as usize + 1] += 1;
    }
    let mut rows = 0;
    for bound in bounds.iter_mut() {
        rows += *bound;
        *bound = rows;
    }
    // bounds[e] serves as the next free row of e, which leaves it at the end of e ...
    for (i, &id) in ids.iter().enumerate() {
        let row = &mut bounds[id as usize];
        slot[i] = *row;
        src[*row as usize] = (i / k) as u32;
        *row += 1;
    }
    // ... where e + 1 begins: one step back restores the beginnings.
    let experts = bounds.len() - 1;
    bounds.copy_within(..experts, 1);
    bounds[0] = 0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;
    use proptest::prelude::*;

    #[test]
    fn ties_and_nan() {
        let scores = [1.0, 3.0, f32::NAN, 3.0, -0.0, 0.0];
        let r =
            Routes::top_k(&scores, 6, 6, &RouterOptions::SOFTMAX_OF_CHOSEN, RouterBias::default())
                .unwrap();
        assert_eq!(r.ids(), [1, 3, 0, 4, 5, 2]);
        let r = Routes::top_k(
            &[0.0; 4],
            4,
            2,
            &RouterOptions::SOFTMAX_OF_CHOSEN,
            RouterBias::default(),
        )
        .unwrap();
        assert_eq!((r.ids(), r.weights()), (&[0, 1][..], &[0.5, 0.5][..]));
        let r = Routes::top_k(
            &[0.0; 4],
            4,
            2,
            &RouterOptions::SOFTMAX.scaled(2.0),
            RouterBias::default(),
        )
        .unwrap();
        assert_eq!(r.weights(), [0.5, 0.5]);
    }

    #[test]
    fn refusals_name_the_token() {
        let error = Routes::new(vec![0, 1, 2, -1], vec![0.0; 4], 2, 3).unwrap_err().to_string();
        assert_eq!(error, "token 1, choice 1: expert id -1, expected 0..3");
        let error = Routes::new(vec![0, 3], vec![0.0; 2], 1, 3).unwrap_err().to_string();
        assert_eq!(error, "token 1, choice 0: expert id 3, expected 0..3");
        assert!(Routes::new(vec![0; 3], vec![0.0; 3], 2, 1).is_err());
        assert!(Routes::new(vec![0; 2], vec![0.0; 3], 2, 1).is_err());
        assert!(
            Routes::top_k(&[0.0; 4], 4, 5, &RouterOptions::SOFTMAX, RouterBias::default()).is_err()
        );
        assert!(Routes::all(usize::MAX, 0).is_err());
        assert!(Routes::all(usize::MAX, 2).is_err());
    }

    proptest! {
        #[test]
        fn map_is_a_stable_sort((k, experts, ids) in (1usize..7, 1usize..40).prop_flat_map(|(k, e)| {
            (Just(k), Just(e), proptest::collection::vec(0..e as i32, 0..300))
        })) {
            let ids = ids[..ids.len() / k * k].to_vec();
            let routes = Routes::new(ids.clone(), vec![1.0; ids.len()], k, experts).unwrap();
            let map = Map::new(&routes);
            let mut order: Vec<usize> = (0..ids.len()).collect();
            order.sort_by_key(|&i| ids[i]); // stable
            for (row, &i) in order.iter().enumerate() {
                prop_assert_eq!(map.slot[i] as usize, row);
                prop_assert_eq!(map.src[row] as usize, i / k);
                let e = ids[i] as usize;
                prop_assert!((map.bounds[e]..map.bounds[e + 1]).contains(&(row as u32)));
            }
            prop_assert_eq!(map.bounds[0], 0);
            prop_assert_eq!(map.bounds[experts] as usize, ids.len());
        }

        #[test]
        fn top_k_is_a_sort(scores in proptest::collection::vec(-4i8..4, 1..40), k in 1usize..40) {
            let k = k.min(scores.len());
            let scores: Vec<f32> = scores.into_iter().map(f32::from).collect();
            let routes = Routes::top_k(&scores, scores.len(), k, &RouterOptions::SOFTMAX_OF_CHOSEN, RouterBias::default()).unwrap();
            let mut order: Vec<usize> = (0..scores.len()).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a])); // stable: ties by id
            let ids: Vec<usize> = routes.ids().iter().map(|&i| i as usize).collect();
            prop_assert_eq!(&ids, &order[..k]);
        }

        #[test]
        fn every_router_as_the_reference(
            raw in proptest::collection::vec(-9i8..9, 24),
            bias in proptest::collection::vec(-4i8..4, 24),
            (gating, grouped, biased) in (0usize..5, any::<bool>(), 0usize..4),
            k in 1usize..9,
            odd in 0usize..64,
        ) {
            let mut scores: Vec<f32> = raw.iter().map(|&s| f32::from(s) / 3.0).collect();
            if let Some(score) = scores.get_mut(odd) {
                *score = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][odd % 3];
            }
            let bias: Vec<f32> = bias.iter().map(|&b| f32::from(b) / 5.0).collect();
            let sparsemixer = Gating::Sparsemixer { near: 0.02 };
            let gating = [
                Gating::SoftmaxOfChosen,
                Gating::Softmax,
                Gating::Sigmoid,
                Gating::SqrtSoftplus,
                sparsemixer,
            ][gating];
            let own = matches!(gating, Gating::SoftmaxOfChosen | Gating::Sparsemixer { .. });
            let norm = if own { Norm::None } else { Norm::Sum { epsilon: 1e-20, least: 1e-12 } };
            let score = if k % 2 == 0 { GroupScore::TopTwo } else { GroupScore::Max };
            let groups = Groups { count: 6, used: 2, score };
            let groups = (grouped && gating != sparsemixer).then_some(groups);
            let softcap = if biased == 3 { 2.0 } else { 0.0 };
            let options = RouterOptions { gating, groups, norm, softcap, scale: 2.5 };
            let bias = RouterBias {
                score: (biased & 1 == 1).then_some(&bias[..]),
                selection: (biased & 2 == 2 && gating != sparsemixer).then_some(&bias[..]),
            };
            let routes = Routes::top_k(&scores, 24, k, &options, bias).unwrap();
            let (ids, weights, finite) = reference::top_k(&scores, bias, &options, k);
            prop_assert_eq!(routes.ids(), &ids[..]);
            let bits = |w: &[f32]| w.iter().map(|w| w.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(routes.weights()), bits(&weights));
            prop_assert_eq!(finite, odd >= 24);
        }
    }
}
