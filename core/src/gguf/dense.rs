//! A dense FFN, and the same seen as a mixture of experts.

use super::{FfnRole, Gguf, GgufError, Matrix, Result, shown};

/// The most numbers that a message lists.
const LISTED: usize = 24;

/// The dense feed-forward part of one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenseTensors {
    /// The block's number.
    pub block: usize,
    /// The gate: `[width, ffn]`.
    pub gate: Matrix,
    /// The up: `[width, ffn]`.
    pub up: Matrix,
    /// The down: `[ffn, width]`.
    pub down: Matrix,
    /// Values of a token.
    pub width: usize,
    /// Hidden neurons.
    pub ffn: usize,
    /// Other tensors that act on the FFN, biases say, and that this description leaves out: who
    /// computes without them computes something else.
    pub others: Vec<String>,
    file: String,
}

/// How one tensor of a dense FFN is read as experts, without moving a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertView {
    /// Rows of one expert.
    pub rows: usize,
    /// Columns of one expert.
    pub cols: usize,
    /// Bytes from one row to the next: that of the whole tensor.
    pub row_stride: usize,
    /// Bytes from one expert's first row to the next one's.
    pub expert_stride: usize,
}

/// A dense FFN as `experts` equal experts. Every token uses all of them with weight 1, and their
/// sum is the dense FFN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenseSplit {
    /// Experts.
    pub experts: usize,
    /// Hidden neurons of one.
    pub ffn: usize,
    /// Runs of the gate's rows.
    pub gate: ExpertView,
    /// Runs of the up's rows.
    pub up: ExpertView,
    /// Runs of the down's columns, cut between blocks.
    pub down: ExpertView,
}

impl Gguf {
    /// Describes the dense FFN of a block.
    ///
    /// # Errors
    /// [`GgufError`] naming the tensor or key that is missing or does not agree with the others.
    pub fn dense(&self, block: usize) -> Result<DenseTensors> {
        let meta = self.model_meta()?;
        let roles = [FfnRole::Gate, FfnRole::Up, FfnRole::Down];
        let find = |role: FfnRole| self.tensor(&role.name(block));
        let there = roles.into_iter().find_map(find).ok_or_else(|| {
            let field = format!("tensor {}", FfnRole::Gate.name(block));
            GgufError::missing(self.head().name(), field, "a dense FFN was asked for")
        })?;
        let need = |role| find(role).ok_or_else(|| self.absent(role, block, there));
        let (gate, up, down) = (need(roles[0])?, need(roles[1])?, need(roles[2])?);
        let (width, ffn) = (gate.dim(0), down.dim(0));
        self.agree(&meta, "embedding_length", block, width, gate)?;
        self.agree(&meta, "feed_forward_length", block, ffn, down)?;
        let why = "[width, ffn], where ffn is the columns of ffn_down";
        let down = self.matrix(down, [ffn, width], "[ffn, width]")?;
        Ok(DenseTensors {
            block,
            gate: self.matrix(gate, [width, ffn], why)?,
            up: self.matrix(up, [width, ffn], why)?,
            width: down.rows,
            ffn: down.cols,
            down,
            others: self.others(block, acts_on_dense),
            file: self.head().name().to_owned(),
        })
    }
}

impl DenseTensors {
    /// Cuts the hidden neurons into `experts` equal runs.
    ///
    /// # Errors
    /// [`GgufError::Field`] listing the numbers of experts that work, unless the runs are equal
    /// and begin at blocks of the down tensor.
    pub fn split(&self, experts: usize) -> Result<DenseSplit> {
        let ty = self.down.tensor.tensor_type();
        let (block, block_bytes) = (ty.block_values(), ty.block_bytes());
        let ffn = self.ffn.checked_div(experts).unwrap_or(0);
        if ffn == 0 || !self.ffn.is_multiple_of(experts) || !ffn.is_multiple_of(block) {
            let field = format!("experts to split tensor {} into", shown(self.down.tensor.name()));
            let expected = format!(
                "one of {}: equal parts of {} columns in whole blocks of {block}",
                divisors(self.ffn / block),
                self.ffn
            );
            return Err(GgufError::field(&self.file, field, experts, expected));
        }
        let rows = |matrix: &Matrix| ExpertView {
            rows: ffn,
            cols: matrix.cols,
            row_stride: matrix.row_bytes,
            expert_stride: ffn * matrix.row_bytes,
        };
        Ok(DenseSplit {
            experts,
            ffn,
            gate: rows(&self.gate),
            up: rows(&self.up),
            down: ExpertView {
                rows: self.down.rows,
                cols: ffn,
                row_stride: self.down.row_bytes,
                expert_stride: ffn / block * block_bytes,
            },
        })
    }
}

/// Whether a tensor of this stem acts between a dense FFN's input and output.
fn acts_on_dense(stem: &str) -> bool {
    matches!(stem, "ffn_gate" | "ffn_up" | "ffn_down" | "ffn_sub_norm" | "ffn_act")
}

/// The divisors of a number, in order; the middle ones left out if there are many.
fn divisors(n: usize) -> String {
    let mut small = Vec::new();
    let mut large = Vec::new();
    for d in (1..).take_while(|d| d * d <= n) {
        if n.is_multiple_of(d) {
            small.push(d);
            if d != n / d {
                large.push(n / d);
            }
        }
    }
    small.extend(large.into_iter().rev());
    let text: Vec<String> = small.iter().map(usize::to_string).collect();
    match text.len() {
        0..=LISTED => text.join(", "),
        len => {
            let half = LISTED / 2;
            format!("{}, ..., {}", text[..half].join(", "), text[len - half..].join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::divisors;

    #[test]
    fn divisors_are_complete_and_in_order() {
        assert_eq!(divisors(48), "1, 2, 3, 4, 6, 8, 12, 16, 24, 48");
        assert_eq!(divisors(49), "1, 7, 49");
        assert_eq!(divisors(1), "1");
        assert_eq!(divisors(0), "");
    }

    #[test]
    fn long_lists_of_divisors_are_cut() {
        let text = divisors(720_720);
        assert!(text.starts_with("1, 2, 3,") && text.ends_with(", 360360, 720720"), "{text}");
        assert_eq!(text.split(", ").count(), super::LISTED + 1);
    }
}
