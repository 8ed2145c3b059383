//! Views with a shape.

use super::*;

/// A size that must fit; says which operand it was.
fn needed(what: &str, shape: &str, count: Option<usize>, have: usize) -> Result<()> {
    match count {
        Some(count) if count <= have => Ok(()),
        Some(count) => Err(Error::invalid(
            what.to_owned(),
            format!("{have} values"),
            format!("at least {count} for {shape}"),
        )),
        None => Err(Error::invalid(what.to_owned(), shape, "a size below 2^64")),
    }
}

/// Index past the last value of `rows` rows of `cols` values, `stride` apart.
fn extent(rows: usize, cols: usize, stride: usize) -> Option<usize> {
    match rows {
        0 => Some(0),
        _ => (rows - 1).checked_mul(stride)?.checked_add(cols),
    }
}

/// `rows` rows of `cols` f32; row r starts at value `r * stride`. See [`Matrix`] and [`MatrixMut`].
#[derive(Clone, Copy)]
pub struct MatrixOf<D> {
    data: D,
    rows: usize,
    cols: usize,
    stride: usize,
}

/// Rows of f32, to be read.
pub type Matrix<'a> = MatrixOf<Slice<'a, f32>>;

/// Rows of f32, to be written. Values between `cols` and `stride` are not touched.
pub type MatrixMut<'a> = MatrixOf<SliceMut<'a, f32>>;

impl<D: View> MatrixOf<D> {
    /// A view of `data`; `what` names it in errors.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the stride is below `cols`, `data` is too short,
    /// or there are 2^31 rows or columns or more.
    pub fn new(
        what: &str,
        data: impl Into<D>,
        rows: usize,
        cols: usize,
        stride: usize,
    ) -> Result<Self> {
        let data = data.into();
        if stride < cols {
            return Err(Error::invalid(
                format!("{what}: row stride"),
                stride,
                format!("at least {cols}"),
            ));
        }
        let shape = format!("{rows} rows of {cols} (stride {stride})");
        needed(what, &shape, extent(rows, cols, stride), data.len())?;
        // Without columns, or with a stride of 0, any number of rows has room.
        for (name, n) in [("rows", rows), ("columns", cols)] {
            if n > i32::MAX as usize {
                return Err(Error::invalid(format!("{what}: {name}"), n, "below 2^31"));
            }
        }
        Ok(Self { data, rows, cols, stride })
    }

    /// Rows without gaps.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn dense(what: &str, data: impl Into<D>, rows: usize, cols: usize) -> Result<Self> {
        Self::new(what, data, rows, cols, cols)
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Values from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    pub(crate) fn device(&self) -> DeviceId {
        self.data.device()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0 || self.cols == 0
    }

    /// The values from the first of some rows to the last.
    fn range_of_rows(&self, rows: &std::ops::Range<usize>) -> Result<std::ops::Range<usize>> {
        if rows.start > rows.end || rows.end > self.rows {
            return Err(Error::invalid(
                "rows of a matrix",
                format!("{rows:?}"),
                format!("a range inside 0..{}", self.rows),
            ));
        }
        if rows.is_empty() {
            return Ok(0..0);
        }
        // Inside, as the last row is: no overflow.
        let first = rows.start * self.stride;
        Ok(first..first + (rows.len() - 1) * self.stride + self.cols)
    }
}

impl<'a> Matrix<'a> {
    /// The values; row r, column c is value `r * stride + c`.
    pub fn data(&self) -> Slice<'a, f32> {
        self.data
    }

    /// Some of the rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the range is not inside.
    pub fn row_range(&self, rows: std::ops::Range<usize>) -> Result<Self> {
        let data = self.data.slice(self.range_of_rows(&rows)?)?;
        Ok(Self { data, rows: rows.len(), ..*self })
    }
}

impl<'a> MatrixMut<'a> {
    /// The same rows, lent for a shorter time.
    pub fn reborrow(&mut self) -> MatrixMut<'_> {
        let Self { data, rows, cols, stride } = self;
        MatrixOf { data: data.reborrow(), rows: *rows, cols: *cols, stride: *stride }
    }

    /// Some of the rows, to be written.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the range is not inside.
    pub fn row_range(self, rows: std::ops::Range<usize>) -> Result<MatrixMut<'a>> {
        let values = self.range_of_rows(&rows)?;
        Ok(MatrixOf { data: self.data.slice(values)?, rows: rows.len(), ..self })
    }

    /// The values; row r, column c is value `r * stride + c`.
    pub fn data(&mut self) -> SliceMut<'_, f32> {
        self.data.reborrow()
    }
}

/// Rows in q8_1: see [`crate::q8_1`] for the order of the blocks, [`Q8Rows`] and [`Q8RowsMut`].
#[derive(Clone, Copy)]
pub struct Q8RowsOf<D> {
    data: D,
    headers: Headers,
    rows: usize,
    cols: usize,
}

/// Rows in q8_1, to be read.
pub type Q8Rows<'a> = Q8RowsOf<Slice<'a, u8>>;

/// Rows in q8_1, to be written.
pub type Q8RowsMut<'a> = Q8RowsOf<SliceMut<'a, u8>>;

impl<D: View> Q8RowsOf<D> {
    /// A view of the first [`q8_1::bytes`] of `data`. What is written through it has such
    /// headers; a [`Layout`] alone means sums of the values.
    ///
    /// # Errors
    /// [`Error::Invalid`] where `data` is too short.
    pub fn new(
        data: impl Into<D>,
        headers: impl Into<Headers>,
        rows: usize,
        cols: usize,
    ) -> Result<Self> {
        let headers = headers.into();
        let data = data.into();
        let bytes = q8_1::bytes(rows, cols)?;
        needed("q8_1 rows", &format!("{rows} x {cols}"), Some(bytes), data.len())?;
        if rows > i32::MAX as usize || cols > i32::MAX as usize - q8_1::PAD {
            return Err(Error::invalid("q8_1 rows", format!("{rows} x {cols}"), "below 2^31 each"));
        }
        Ok(Self { data: data.first(bytes)?, headers, rows, cols })
    }

    /// What their headers hold.
    pub fn layout(&self) -> Layout {
        self.headers.layout
    }

    /// What their headers hold, and what the sums in them are of.
    pub fn headers(&self) -> Headers {
        self.headers
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns, without padding.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Blocks along k, with padding.
    pub fn k_blocks(&self) -> usize {
        q8_1::k_blocks(self.cols)
    }

    pub(super) fn device(&self) -> DeviceId {
        self.data.device()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0 || self.cols == 0
    }
}

impl<'a> Q8Rows<'a> {
    /// The blocks.
    pub fn data(&self) -> Slice<'a, u8> {
        self.data
    }
}

impl Q8RowsMut<'_> {
    /// The same rows, lent for a shorter time.
    pub fn reborrow(&mut self) -> Q8RowsMut<'_> {
        let Self { data, headers, rows, cols } = self;
        Q8RowsOf { data: data.reborrow(), headers: *headers, rows: *rows, cols: *cols }
    }

    /// The blocks.
    pub fn data(&mut self) -> SliceMut<'_, u8> {
        self.data.reborrow()
    }
}

/// Bytes between the rows and the experts of [`Weights`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strides {
    /// From one row to the next.
    pub row: usize,
    /// From one expert to the next.
    pub expert: usize,
}

impl Strides {
    /// Those of experts one after the other, whose rows have no gaps; `what` names the tensor in
    /// errors.
    ///
    /// # Errors
    /// [`Error::Invalid`] where `cols` is not a multiple of the type's block, or an expert is too
    /// large to be.
    pub fn dense(what: &str, ty: WeightType, rows: usize, cols: usize) -> Result<Self> {
        let row = ty.row_bytes(cols)?;
        let expert = rows
            .checked_mul(row)
            .ok_or_else(|| Error::invalid(what, format!("{rows} x {cols}"), "below 2^64 bytes"))?;
        Ok(Self { row, expert })
    }
}

/// `experts` matrices of `rows x cols` quantized weights.
///
/// Row r of expert e starts at byte `e * strides.expert + r * strides.row`.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    data: Slice<'a, u8>,
    ty: WeightType,
    experts: usize,
    rows: usize,
    cols: usize,
    strides: Strides,
}

impl<'a> Weights<'a> {
    /// A view of `data`; `what` names the tensor in errors.
    ///
    /// # Errors
    /// [`Error::Invalid`] where `cols` is not a multiple of the type's block,
    /// the row stride is below a row's bytes, or `data` is too short.
    pub fn strided(
        what: &str,
        data: impl Into<Slice<'a, u8>>,
        ty: WeightType,
        experts: usize,
        rows: usize,
        cols: usize,
        strides: Strides,
    ) -> Result<Self> {
        let data = data.into();
        let row_bytes = ty.row_bytes(cols).map_err(|_| {
            Error::invalid(
                format!("{what}: columns"),
                cols,
                format!("a multiple of {}, the block of {ty}", ty.block_values()),
            )
        })?;
        for (name, n) in [("experts", experts), ("rows", rows), ("columns", cols)] {
            if n == 0 || n > i32::MAX as usize - q8_1::PAD {
                return Err(Error::invalid(format!("{what}: {name}"), n, "1 to 2^31 - 513"));
            }
        }
        if strides.row < row_bytes {
            return Err(Error::invalid(
                format!("{what}: row stride"),
                format!("{} bytes", strides.row),
                format!("at least {row_bytes}"),
            ));
        }
        let extent = extent(rows, row_bytes, strides.row)
            .and_then(|one| (experts - 1).checked_mul(strides.expert)?.checked_add(one));
        let shape = format!("{experts} experts of {rows} x {cols} {ty}");
        needed(what, &shape, extent, data.len())?;
        Ok(Self { data, ty, experts, rows, cols, strides })
    }

    /// Experts one after the other, rows without gaps.
    ///
    /// # Errors
    /// As [`strided`](Self::strided).
    pub fn dense(
        what: &str,
        data: impl Into<Slice<'a, u8>>,
        ty: WeightType,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Self> {
        let strides = Strides::dense(what, ty, rows, cols)?;
        Self::strided(what, data, ty, experts, rows, cols, strides)
    }

    /// The bytes.
    pub fn data(&self) -> Slice<'a, u8> {
        self.data
    }

    /// Their type.
    pub fn ty(&self) -> WeightType {
        self.ty
    }

    /// Matrices.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Rows of each: the outputs of a product.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of each: the length of a dot product.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes from one row to the next.
    pub fn row_stride(&self) -> usize {
        self.strides.row
    }

    /// Bytes from one expert to the next.
    pub fn expert_stride(&self) -> usize {
        self.strides.expert
    }
}
