//! The standard names of feed-forward tensors.

/// What a tensor does in the feed-forward part of a block.
///
/// Each has a standard name, `blk.N.` + [`FfnRole::stem`] + `.weight`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FfnRole {
    /// The experts' gates.
    GateExps,
    /// The experts' ups.
    UpExps,
    /// The experts' gates and ups in one tensor, gate rows first.
    GateUpExps,
    /// The experts' downs.
    DownExps,
    /// The router.
    Router,
    /// The shared expert's gate.
    SharedGate,
    /// The shared expert's up.
    SharedUp,
    /// The shared expert's down.
    SharedDown,
    /// The router of the shared expert.
    SharedRouter,
    /// The gate of a dense FFN.
    Gate,
    /// The up of a dense FFN.
    Up,
    /// The down of a dense FFN.
    Down,
}

impl FfnRole {
    /// All roles.
    pub const ALL: [Self; 12] = [
        Self::GateExps,
        Self::UpExps,
        Self::GateUpExps,
        Self::DownExps,
        Self::Router,
        Self::SharedGate,
        Self::SharedUp,
        Self::SharedDown,
        Self::SharedRouter,
        Self::Gate,
        Self::Up,
        Self::Down,
    ];

    /// The middle of the tensor's name.
    pub fn stem(self) -> &'static str {
        match self {
            Self::GateExps => "ffn_gate_exps",
            Self::UpExps => "ffn_up_exps",
            Self::GateUpExps => "ffn_gate_up_exps",
            Self::DownExps => "ffn_down_exps",
            Self::Router => "ffn_gate_inp",
            Self::SharedGate => "ffn_gate_shexp",
            Self::SharedUp => "ffn_up_shexp",
            Self::SharedDown => "ffn_down_shexp",
            Self::SharedRouter => "ffn_gate_inp_shexp",
            Self::Gate => "ffn_gate",
            Self::Up => "ffn_up",
            Self::Down => "ffn_down",
        }
    }

    /// The tensor's name in a block.
    pub fn name(self, block: usize) -> String {
        format!("blk.{block}.{}.weight", self.stem())
    }

    /// Whether the tensor holds one matrix per expert.
    pub fn is_experts(self) -> bool {
        matches!(self, Self::GateExps | Self::UpExps | Self::GateUpExps | Self::DownExps)
    }
}

/// The block and the role that a tensor's name stands for; `None` for all other tensors.
pub fn ffn_role(name: &str) -> Option<(usize, FfnRole)> {
    let (block, rest) = block_of(name)?;
    let stem = rest.strip_suffix(".weight")?;
    let role = FfnRole::ALL.into_iter().find(|role| role.stem() == stem)?;
    Some((block, role))
}

/// Takes `blk.N.rest` apart; N is written without leading zeros.
pub(super) fn block_of(name: &str) -> Option<(usize, &str)> {
    let (digits, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    let block: usize = digits.parse().ok()?;
    (block.to_string() == digits).then_some((block, rest))
}
