//! How scores become experts and weights.

use crate::{Error, Result};

/// What the score s of an expert is worth: its gate value p.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
    /// Softmax over the chosen experts; p is s itself where experts are chosen.
    SoftmaxOfChosen,
    /// `1 / (1 + exp(-s))`.
    Sigmoid,
    /// `sqrt(ln(1 + exp(s)))`.
    SqrtSoftplus,
    /// Each choice in turn is the best of those left, and weighs its share of a softmax over
    /// those left that are near it: `(s_max - s) / max(|s|, s_max) <= near`.
    Sparsemixer {
        /// How near; twice the jitter that the model was trained with.
        near: f32,
    },
}

/// What a group of experts is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupScore {
    /// The sum of its two best experts.
    TopTwo,
    /// Its best expert.
    Max,
}

/// Equal groups of consecutive experts, of which some are chosen first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    /// Groups; they divide the experts.
    pub count: usize,
    /// Groups whose experts can be chosen.
    pub used: usize,
    /// What a group is worth.
    pub score: GroupScore,
}

/// What the chosen ones' gate values are divided by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Norm {
    /// Nothing.
    None,
    /// `max(sum + epsilon, least)`, the sum over the chosen ones in their order.
    Sum {
        /// Added to the sum; 0 for nothing.
        epsilon: f32,
        /// The least that is divided by; 0 for any.
        least: f32,
    },
}

/// How scores become experts and weights.
///
/// Experts are chosen by their scores, in descending order, ties to the smaller id; with a
/// selection bias or groups by their gate values plus the bias. `docs/numerics.md` has each step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouterOptions {
    /// What a score is worth.
    pub gating: Gating,
    /// Scores become `cap * tanh(s / cap)` first; 0 for no cap.
    pub softcap: f32,
    /// Groups, of which some are chosen first.
    pub groups: Option<Groups>,
    /// What gate values are divided by. Softmax of the chosen and sparsemixer have none.
    pub norm: Norm,
    /// What every weight is multiplied by at the end.
    pub scale: f32,
}

impl Default for RouterOptions {
    fn default() -> Self {
        Self::SOFTMAX_OF_CHOSEN
    }
}

impl RouterOptions {
    /// The chosen ones' softmax: their weights sum to 1.
    pub const SOFTMAX_OF_CHOSEN: Self = Self {
        gating: Gating::SoftmaxOfChosen,
        softcap: 0.0,
        groups: None,
        norm: Norm::None,
        scale: 1.0,
    };
    /// The softmax over all experts.
    pub const SOFTMAX: Self = Self { gating: Gating::Softmax, ..Self::SOFTMAX_OF_CHOSEN };
    /// The most experts that anything but a softmax of plain scores chooses from.
    pub const MOST_EXPERTS: usize = 1024;
    /// The most experts that it chooses.
    pub const MOST_CHOSEN: usize = 32;
    /// The most groups.
    pub const MOST_GROUPS: usize = 64;

    /// With another factor at the end.
    #[must_use]
    pub const fn scaled(self, scale: f32) -> Self {
        Self { scale, ..self }
    }

    /// Whether it is a softmax of scores as they are, over the chosen ones or over all.
    pub fn is_plain(&self) -> bool {
        matches!(self.gating, Gating::Softmax | Gating::SoftmaxOfChosen)
            && self.groups.is_none()
            && self.softcap == 0.0
            && self.norm == Norm::None
    }

    /// The number by which kernels know the gating, and its parameter.
    pub fn gating_parameters(&self) -> (u32, f32) {
        match self.gating {
            Gating::SoftmaxOfChosen => (0, 0.0),
            Gating::Softmax => (1, 0.0),
            Gating::Sigmoid => (2, 0.0),
            Gating::SqrtSoftplus => (3, 0.0),
            Gating::Sparsemixer { near } => (4, near),
        }
    }

    /// Whether k of so many experts can be chosen so, `biased`: with a bias on scores or choice.
    ///
    /// # Errors
    /// [`Error::Invalid`] where they cannot, or a number is out of range.
    pub fn check(&self, experts: usize, k: usize, biased: bool) -> Result<()> {
        if k == 0 {
            return Err(Error::invalid("top-k: k", k, "at least 1"));
        }
        if k > experts {
            let expected = format!("at most the {experts} experts");
            return Err(Error::invalid("top-k: k", k, expected));
        }
        if !self.scale.is_finite() {
            return Err(Error::invalid("router: scale", self.scale, "a finite number"));
        }
        if self.is_plain() && !biased {
            return Ok(());
        }
        if experts > Self::MOST_EXPERTS || k > Self::MOST_CHOSEN {
            let expected = format!(
                "at most {} of {} with a router that is more than softmax",
                Self::MOST_CHOSEN,
                Self::MOST_EXPERTS
            );
            return Err(Error::invalid("router", format!("{k} of {experts} experts"), expected));
        }
        for (what, value) in self.numbers() {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::invalid(format!("router: {what}"), value, "0 or above"));
            }
        }
        let no_norm = matches!(self.gating, Gating::SoftmaxOfChosen | Gating::Sparsemixer { .. });
        if no_norm && self.norm != Norm::None {
            let expected = "none with a gating that has its own";
            return Err(Error::invalid("router: norm", format!("{:?}", self.norm), expected));
        }
        match self.groups {
            None => Ok(()),
            Some(groups) => self.check_groups(groups, experts, k),
        }
    }

    fn numbers(&self) -> Vec<(&'static str, f32)> {
        let mut numbers = vec![("softcap", self.softcap)];
        if let Norm::Sum { epsilon, least } = self.norm {
            numbers.extend([("epsilon", epsilon), ("least sum", least)]);
        }
        if let Gating::Sparsemixer { near } = self.gating {
            numbers.push(("nearness", near));
        }
        numbers
    }

    fn check_groups(&self, groups: Groups, experts: usize, k: usize) -> Result<()> {
        let Groups { count, used, .. } = groups;
        if matches!(self.gating, Gating::Sparsemixer { .. }) {
            return Err(Error::invalid("router: groups", count, "none with sparsemixer"));
        }
        if count == 0 || count > Self::MOST_GROUPS || !experts.is_multiple_of(count) {
            let expected = format!("1 to {}, a divisor of {experts}", Self::MOST_GROUPS);
            return Err(Error::invalid("router: groups", count, expected));
        }
        if used == 0 || used > count {
            let expected = format!("1 to {count}, the groups");
            return Err(Error::invalid("router: groups used", used, expected));
        }
        match k <= used * (experts / count) {
            true => Ok(()),
            false => {
                let most = used * (experts / count);
                let expected = format!("at most {most}, the experts of {used} groups");
                Err(Error::invalid("top-k: k", k, expected))
            }
        }
    }
}

impl std::fmt::Display for RouterOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.gating {
            Gating::Softmax => "all",
            Gating::SoftmaxOfChosen => "chosen",
            Gating::Sigmoid => "sigmoid",
            Gating::SqrtSoftplus => "sqrt-softplus",
            Gating::Sparsemixer { .. } => "sparsemixer",
        })?;
        if self.softcap != 0.0 {
            write!(f, ",softcap={}", self.softcap)?;
        }
        if let Some(Groups { count, used, score }) = self.groups {
            let by = if score == GroupScore::TopTwo { "top-two" } else { "max" };
            write!(f, ",groups={used}-of-{count}-by-{by}")?;
        }
        if let Norm::Sum { epsilon, least } = self.norm {
            write!(f, ",norm={epsilon:e}-{least:e}")?;
        }
        match self.scale == 1.0 {
            true => Ok(()),
            false => write!(f, ",scale={}", self.scale),
        }
    }
}
