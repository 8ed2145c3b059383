//! How kernels are compiled for a device.

/// How the product multiplies bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dot {
    /// In C++; the device's compiler picks instructions.
    Plain = 0,
    /// `vpdpbusd` on 512-bit registers, of the CPU that the device is.
    Avx512Vnni = 1,
    /// `vpdpbusd` on 256-bit registers.
    AvxVnni = 2,
    /// `joint_matrix`: a device's matrix units, a sub-group's tile at once.
    JointMatrix = 3,
    /// The same tiles by a loop: runs what is around them on any device.
    MatrixByHand = 4,
}

impl Dot {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Plain, Self::Avx512Vnni, Self::AvxVnni, Self::JointMatrix, Self::MatrixByHand];

    /// Whether a sub-group multiplies tiles.
    pub const fn is_matrix(self) -> bool {
        matches!(self, Self::JointMatrix | Self::MatrixByHand)
    }

    /// The name, as `avx512-vnni`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Avx512Vnni => "avx512-vnni",
            Self::AvxVnni => "avx-vnni",
            Self::JointMatrix => "joint-matrix",
            Self::MatrixByHand => "matrix-by-hand",
        }
    }
}

/// The shape of a device's kernels.
///
/// A work-item holds `lanes` values in a vector. On a GPU that is 1, and its
/// neighbours in the sub-group hold the others; on a CPU device a work-item is
/// a thread and its vector a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Form {
    /// Values of a vector: 1, 8 or 16.
    pub lanes: u32,
    /// Sub-group size; only where `lanes` is 1.
    pub sub_group: u32,
    /// Work-items of a work-group of the product; 1 where `lanes` is more.
    pub work_group: u32,
    /// Vectors of weight rows that a work-item of the product holds.
    pub vectors: u32,
    /// Activation rows of a work-group of the product.
    pub tile_tokens: u32,
    /// Activation rows multiplied at once, a divisor of `tile_tokens`.
    pub step: u32,
    /// How bytes are multiplied.
    pub dot: Dot,
}

impl Form {
    /// For a CPU device whose registers hold `lanes` floats.
    pub const fn cpu(lanes: u32, dot: Dot) -> Self {
        Self { lanes, sub_group: 1, work_group: 1, vectors: 1, tile_tokens: 64, step: 8, dot }
    }

    /// For a GPU, or any device with this sub-group size: `work_group` is a
    /// multiple of it.
    pub const fn gpu(sub_group: u32, work_group: u32, dot: Dot) -> Self {
        Self { lanes: 1, sub_group, work_group, vectors: 1, tile_tokens: 16, step: 8, dot }
    }

    /// Weight rows of a work-group of the product.
    pub const fn tile_rows(&self) -> u32 {
        self.lanes * self.work_group * self.vectors
    }

    /// Rows of q8_1 blocks that are quantized in turn: a unit of a step's work.
    pub const fn unit_rows(&self) -> u32 {
        if self.lanes > 1 { 16 } else { 1 }
    }

    /// Columns of a unit of work, where a step works on columns.
    pub const fn columns(&self) -> u32 {
        if self.lanes > 1 { 4 * self.lanes } else { 1 }
    }

    /// Tokens that share a tile of transposed router rows.
    pub const fn score_tokens(&self) -> u32 {
        if self.lanes > 1 { 16 } else { 1 }
    }
}
