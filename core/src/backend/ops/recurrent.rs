//! Layers that keep a state of each sequence, and read its tokens in order.

use super::super::state::{Runs, States};
use super::*;

/// The most taps of a convolution.
pub const MOST_TAPS: usize = 16;

/// The most values of a delta net's key or value.
pub const MOST_DELTA: usize = 512;

/// Which head of keys a head of values reads, where there are more of the latter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyHeads {
    /// Head h of values reads `h / r`, r heads of values for one of keys.
    Grouped,
    /// It reads h modulo the heads of keys.
    Modulo,
}

/// The states of an operation, and the rows of each.
struct Stateful<'a> {
    batch: &'a TokenBatch,
    runs: Runs,
    values: SliceMut<'a, f32>,
    each: usize,
    lengths: &'a mut [Option<u32>],
}

impl<'a> Stateful<'a> {
    fn new(
        what: &str,
        batch: &'a TokenBatch,
        states: &'a mut States,
        each: Option<usize>,
    ) -> Result<Self> {
        let expected =
            each.ok_or_else(|| Error::invalid(what, "its sizes", "a state below 2^63"))?;
        agree(format!("{what}: values of a state"), states.values(), expected)?;
        let (values, lengths) = states.parts();
        let runs = Runs::new(what, batch, lengths)?;
        Ok(Self { batch, runs, values, each: expected, lengths })
    }

    /// Before a launch: what the states will be of is not known while it may fail.
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("states", self.values.device())?;
        self.batch.read(&to.name("batch"), to.backend)?;
        for (sequence, ..) in self.runs.iter() {
            self.lengths[sequence] = None;
        }
        Ok(())
    }

    fn written(&mut self) {
        for (sequence, length) in self.runs.ends() {
            self.lengths[sequence] = Some(length);
        }
    }

    /// Bytes of the states that are read, and of those that are written.
    fn moved(&self) -> u64 {
        let each = 4 * self.each as u64;
        self.runs.iter().map(|(_, fresh, _)| if fresh { each } else { 2 * each }).sum()
    }

    fn matrix(&mut self) -> MatrixMut<'_> {
        let (rows, each) = (self.lengths.len(), self.each);
        MatrixMut::dense("states", self.values.reborrow(), rows, each).expect("as they are")
    }
}

/// A causal convolution of each column with taps of its own; then SiLU, where it is asked for.
///
/// A state is the last rows of x, one less than there are taps, the oldest first.
pub struct Convolve<'a> {
    x: Matrix<'a>,
    taps: Matrix<'a>,
    silu: bool,
    states: Stateful<'a>,
    out: MatrixMut<'a>,
}

impl<'a> Convolve<'a> {
    /// `x` and `out`: tokens x columns; `taps`: columns x taps, the newest token's last; a state has
    /// `(taps - 1) * columns` values.
    ///
    /// # Errors
    /// [`Error::Invalid`] where shapes differ, there is no column, no tap or more than [`MOST_TAPS`],
    /// or a token does not follow on its sequence's state.
    pub fn new(
        x: Matrix<'a>,
        taps: Matrix<'a>,
        silu: bool,
        batch: &'a TokenBatch,
        states: &'a mut States,
        out: MatrixMut<'a>,
    ) -> Result<Self> {
        agree("convolution: rows", x.rows(), batch.tokens())?;
        agree("convolution: columns of the taps", taps.rows(), x.cols())?;
        agree("convolution: rows of the output", out.rows(), x.rows())?;
        agree("convolution: columns of the output", out.cols(), x.cols())?;
        if taps.cols() == 0 || taps.cols() > MOST_TAPS {
            let expected = format!("1 to {MOST_TAPS}");
            return Err(Error::invalid("convolution: taps", taps.cols(), expected));
        }
        if x.cols() == 0 {
            return Err(Error::invalid("convolution: columns", 0, "at least 1"));
        }
        let each = (taps.cols() - 1).checked_mul(x.cols());
        let states = Stateful::new("convolution", batch, states, each)?;
        Ok(Self { x, taps, silu, states, out })
    }

    /// Rows.
    pub fn x(&self) -> Matrix<'a> {
        self.x
    }

    /// A row of taps for each column.
    pub fn taps(&self) -> Matrix<'a> {
        self.taps
    }

    /// Whether SiLU follows.
    pub fn silu(&self) -> bool {
        self.silu
    }

    /// Where the tokens stand.
    pub fn batch(&self) -> &'a TokenBatch {
        self.states.batch
    }

    /// The rows of each sequence.
    pub fn runs(&self) -> &Runs {
        &self.states.runs
    }
}

impl Operation for Convolve<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("input", self.x.device())?;
        to.lives_on("taps", self.taps.device())?;
        to.lives_on("output", self.out.device())?;
        self.states.admit(to)
    }

    fn is_empty(&self) -> bool {
        self.x.is_empty()
    }

    fn cost(&self) -> Cost {
        Cost::bytes([self.x.moved(), self.taps.moved(), self.states.moved(), self.out.moved()])
    }

    fn written(&mut self) {
        self.states.written();
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Values(self.out.reborrow()), Output::Values(self.states.matrix())]
    }

    fn form(&self) -> &'static str {
        if self.silu { "silu" } else { "plain" }
    }
}

impl<'a> Checked<Convolve<'a>> {
    /// Output rows, and the states, slot after slot.
    pub fn parts(&mut self) -> (&mut MatrixMut<'a>, SliceMut<'_, f32>) {
        (&mut self.0.out, self.0.states.values.reborrow())
    }
}

/// The numbers of a gated delta net.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeltaShape {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values, a multiple of those.
    pub value_heads: usize,
    /// Values of a query and a key.
    pub key: usize,
    /// Values of a value.
    pub value: usize,
    /// Which head of keys a head of values reads.
    pub order: KeyHeads,
    /// What outputs are multiplied by.
    pub scale: f32,
}

impl DeltaShape {
    /// Values of a sequence's state: for each head of values `key` rows of `value`.
    pub fn state(&self) -> Option<usize> {
        self.value_heads.checked_mul(self.key)?.checked_mul(self.value)
    }

    /// The head of keys that a head of values reads.
    pub fn key_head(&self, value_head: usize) -> usize {
        match self.order {
            KeyHeads::Grouped => value_head / (self.value_heads / self.key_heads),
            KeyHeads::Modulo => value_head % self.key_heads,
        }
    }

    /// Checks that the numbers can be.
    ///
    /// # Errors
    /// [`Error::Invalid`] with what was given and what is expected.
    pub fn check(&self) -> Result<()> {
        let Self { key_heads, value_heads, key, value, .. } = *self;
        if key_heads == 0 || value_heads == 0 || !value_heads.is_multiple_of(key_heads) {
            let given = format!("{value_heads} of values for {key_heads} of keys");
            return Err(Error::invalid("delta net: heads", given, "a multiple, at least one"));
        }
        for (what, size) in [("key", key), ("value", value)] {
            if size == 0 || size > MOST_DELTA {
                let expected = format!("1 to {MOST_DELTA}");
                return Err(Error::invalid(format!("delta net: {what} size"), size, expected));
            }
        }
        Ok(())
    }
}

/// What a gated delta net reads of its tokens.
#[derive(Clone, Copy)]
pub struct DeltaInputs<'a> {
    /// Tokens x heads of queries.
    pub queries: Matrix<'a>,
    /// Tokens x heads of keys.
    pub keys: Matrix<'a>,
    /// Tokens x heads of values.
    pub values: Matrix<'a>,
    /// Tokens x a number for each head of values: its sigmoid is how much of a value is taken.
    pub beta: Matrix<'a>,
    /// The same: its softplus, behind `decay_bias`, times `decay`, is the logarithm of what is left of
    /// the state.
    pub alpha: Matrix<'a>,
    /// One for each head of values.
    pub decay_bias: Slice<'a, f32>,
    /// One for each head of values.
    pub decay: Slice<'a, f32>,
}

/// A gated delta net: token after token, each head's state decays, takes in the token's value in place
/// of what it has for the token's key, and answers the token's query.
pub struct DeltaNet<'a> {
    shape: DeltaShape,
    inputs: DeltaInputs<'a>,
    states: Stateful<'a>,
    out: MatrixMut<'a>,
}

impl<'a> DeltaNet<'a> {
    /// `out`: tokens x heads of values; a state has [`DeltaShape::state`] values.
    ///
    /// # Errors
    /// [`Error::Invalid`] where shapes differ, or a token does not follow on its sequence's state.
    pub fn new(
        shape: DeltaShape,
        inputs: DeltaInputs<'a>,
        batch: &'a TokenBatch,
        states: &'a mut States,
        out: MatrixMut<'a>,
    ) -> Result<Self> {
        shape.check()?;
        let heads = shape.value_heads;
        let keys = shape.key_heads.saturating_mul(shape.key);
        let all = heads.saturating_mul(shape.value);
        for (what, m, cols) in [
            ("queries", &inputs.queries, keys),
            ("keys", &inputs.keys, keys),
            ("values", &inputs.values, all),
            ("beta", &inputs.beta, heads),
            ("alpha", &inputs.alpha, heads),
        ] {
            agree(format!("delta net: rows of {what}"), m.rows(), batch.tokens())?;
            agree(format!("delta net: columns of {what}"), m.cols(), cols)?;
        }
        agree("delta net: biases of the decay", inputs.decay_bias.len(), heads)?;
        agree("delta net: decays", inputs.decay.len(), heads)?;
        agree("delta net: rows of the output", out.rows(), batch.tokens())?;
        agree("delta net: columns of the output", out.cols(), all)?;
        let states = Stateful::new("delta net", batch, states, shape.state())?;
        Ok(Self { shape, inputs, states, out })
    }

    /// The numbers.
    pub fn shape(&self) -> DeltaShape {
        self.shape
    }

    /// What it reads of its tokens.
    pub fn inputs(&self) -> DeltaInputs<'a> {
        self.inputs
    }

    /// Where the tokens stand.
    pub fn batch(&self) -> &'a TokenBatch {
        self.states.batch
    }

    /// The rows of each sequence.
    pub fn runs(&self) -> &Runs {
        &self.states.runs
    }
}

impl Operation for DeltaNet<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        let DeltaInputs { queries, keys, values, beta, alpha, decay_bias, decay } = &self.inputs;
        for (what, m) in [
            ("queries", queries),
            ("keys", keys),
            ("values", values),
            ("beta", beta),
            ("alpha", alpha),
        ] {
            to.lives_on(what, m.device())?;
        }
        to.lives_on("biases of the decay", decay_bias.device())?;
        to.lives_on("decays", decay.device())?;
        to.lives_on("output", self.out.device())?;
        self.states.admit(to)
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn cost(&self) -> Cost {
        let DeltaInputs { queries, keys, values, beta, alpha, decay_bias, decay } = &self.inputs;
        let inputs = [queries, keys, values, beta, alpha].map(|m| m.moved()).into_iter().sum();
        let rates = decay_bias.moved() + decay.moved();
        let DeltaShape { key, value, .. } = self.shape;
        // What is known of the key, what is put there instead, and the answer.
        let rows = 3 * self.out.rows() * self.shape.value_heads;
        Cost::bytes([inputs, rates, self.states.moved(), self.out.moved()])
            .products(rows, value, key)
    }

    fn written(&mut self) {
        self.states.written();
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Values(self.out.reborrow()), Output::Values(self.states.matrix())]
    }
}

impl<'a> Checked<DeltaNet<'a>> {
    /// Output rows, and the states, slot after slot.
    pub fn parts(&mut self) -> (&mut MatrixMut<'a>, SliceMut<'_, f32>) {
        (&mut self.0.out, self.0.states.values.reborrow())
    }
}
