//! A whole layer with each kind of router, and without checks, in turns with the usual one.

use std::time::Duration;

use serde_json::json;
use strata::WeightType;
use strata::backend::ops::{Matrix, MatrixMut};
use strata::prefill::{MoeLayer, Options, Routing, Synthetic, Workspace, normals};
use strata::routing::{Gating, GroupScore, Groups, Norm, RouterOptions};

use super::{Bench, Table};
use crate::cli::measure::{self, POISON};
use crate::cli::report::{ms, significant};
use crate::cli::{Outcome, args};

/// What is different about a layer.
struct Variant {
    name: &'static str,
    router: RouterOptions,
    /// A bias of the scores, of the choice.
    biased: [bool; 2],
    checked: bool,
}

const USUAL: Variant = Variant {
    name: "softmax of the chosen",
    router: RouterOptions::SOFTMAX_OF_CHOSEN,
    biased: [false; 2],
    checked: true,
};
const SIGMOID: RouterOptions = RouterOptions {
    gating: Gating::Sigmoid,
    norm: Norm::Sum { epsilon: 1e-20, least: 0.0 },
    scale: 2.5,
    ..RouterOptions::SOFTMAX_OF_CHOSEN
};

/// The usual layer, then the others.
fn variants() -> [Variant; 8] {
    let groups = Some(Groups { count: 8, used: 4, score: GroupScore::TopTwo });
    let plus = RouterOptions { gating: Gating::SqrtSoftplus, ..SIGMOID };
    let sparse =
        RouterOptions { gating: Gating::Sparsemixer { near: 0.02 }, ..RouterOptions::SOFTMAX };
    let choice = [false, true];
    [
        USUAL,
        Variant { name: "the same, unchecked", checked: false, ..USUAL },
        Variant { name: "softmax", router: RouterOptions::SOFTMAX, ..USUAL },
        Variant { name: "softmax of the chosen, biased", biased: [true, false], ..USUAL },
        Variant { name: "sigmoid, choice biased", router: SIGMOID, biased: choice, ..USUAL },
        Variant {
            name: "the same in groups, 4 of 8",
            router: RouterOptions { groups, ..SIGMOID },
            biased: choice,
            ..USUAL
        },
        Variant { name: "sqrt of softplus, choice biased", router: plus, biased: choice, ..USUAL },
        Variant { name: "sparsemixer", router: sparse, ..USUAL },
    ]
}

impl Bench<'_> {
    pub(super) fn routers(&self) -> Outcome<Table> {
        let mut table = Table::new(vec!["router", "ms", "to the first"]);
        for &ty in &self.types {
            for &experts in &self.experts {
                for &tokens in &self.tokens {
                    self.bar.set_message(format!("{ty}, {tokens} tokens"));
                    self.routers_with(ty, experts, tokens, &mut table)?;
                }
            }
        }
        Ok(table)
    }

    fn routers_with(
        &self,
        ty: WeightType,
        experts: usize,
        tokens: usize,
        table: &mut Table,
    ) -> Outcome {
        let (backend, width) = (self.backend, self.args.cols);
        let synthetic = self.synthetic(ty, experts)?;
        let mut layer = synthetic.layer(backend)?;
        let workspace = |checked| {
            let options = Options { timed: true, checked, ..Options::default() };
            Workspace::new(backend, &layer, tokens, options)
        };
        let mut workspaces = [workspace(false)?, workspace(true)?];
        args::host_room(tokens.checked_mul(width).and_then(|n| n.checked_mul(8)))?;
        let x = backend.from_slice(&synthetic.try_input(tokens)?)?;
        let mut y = backend.alloc::<f32>(tokens * width)?;
        let variants: Vec<Variant> = variants()
            .into_iter()
            .filter(|of| of.router.check(experts, self.k, of.biased != [false; 2]).is_ok())
            .collect();
        let mut times = vec![Vec::new(); variants.len()];
        for run in 0..=self.args.runs {
            for (variant, times) in variants.iter().zip(&mut times) {
                layer = routed(backend, &synthetic, layer, variant)?;
                backend.fill(&mut y, POISON)?;
                let x = Matrix::dense("input", &x, tokens, width)?;
                let mut to = MatrixMut::dense("output", &mut y, tokens, width)?;
                let workspace = &mut workspaces[usize::from(variant.checked)];
                let timings = layer.forward(backend, workspace, x, Routing::Router, &mut to)?;
                if run > 0 {
                    times.push(timings.total());
                }
            }
        }
        table.rows.push(vec![format!("{ty}, {experts} experts, {tokens} tokens")]);
        let usual = times[0].clone();
        for (variant, mut times) in variants.iter().zip(times) {
            let mut ratios: Vec<f64> =
                times.iter().zip(&usual).map(|(&time, &to)| super::ratio(time, to)).collect();
            ratios.sort_by(f64::total_cmp);
            let ratio = ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN);
            let time: Duration = measure::median(&mut times).unwrap_or_default();
            table.rows.push(vec![format!("  {}", variant.name), ms(time), significant(ratio)]);
            table.json.push(json!({
                "type": ty.name(), "experts": experts, "tokens": tokens, "router": variant.name,
                "seconds": time.as_secs_f64(), "ratio": ratio,
            }));
        }
        Ok(())
    }
}

/// The layer with another router.
fn routed(
    backend: &dyn strata::backend::Backend,
    synthetic: &Synthetic,
    layer: MoeLayer,
    variant: &Variant,
) -> Outcome<MoeLayer> {
    // Small beside scores, so that tokens still go to all experts.
    let mut bias = normals(synthetic.seed, synthetic.experts);
    bias.iter_mut().for_each(|bias| *bias *= 0.01);
    let bias = |wanted: bool| wanted.then_some(bias.as_slice());
    let [score, choice] = variant.biased;
    let router = synthetic.router(backend)?.biased(backend, bias(score), bias(choice))?;
    Ok(layer.with_router(router, &variant.router)?)
}
