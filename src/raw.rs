//! Single steps over plain little-endian values, to trade data with other programs.
//!
//! A job is made from shapes alone and knows how many bytes it takes and gives:
//! a caller can compare the sizes of its files before it reads any of them.

use crate::backend::ops::{
    MapRoutes, Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut, QuantizeRows, QuantizeScatter, Rows,
    Weights,
};
use crate::backend::{Backend, DeviceRoutes, HostBytes, RoutingMap};
use crate::routing::Routes;
use crate::rows::RowFormat;
use crate::{Error, Layout, Result, WeightType, format, host_vec, q8_1};

/// Where quantized activations go: the blocks that products read, or row-major ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivationFormat {
    /// q8_1 in one of its layouts, ordered for products.
    Product(Layout),
    /// Blocks row after row.
    Rows(RowFormat),
}

impl std::str::FromStr for ActivationFormat {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        if let Ok(layout) = s.parse() {
            return Ok(Self::Product(layout));
        }
        s.parse().map(Self::Rows).map_err(|_| {
            Error::invalid("layout", s, "D4, DS4, D2S6 (for products), q8_0, q8_1 or q8_K (rows)")
        })
    }
}

impl std::fmt::Display for ActivationFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Product(layout) => layout.fmt(f),
            Self::Rows(format) => format.fmt(f),
        }
    }
}

/// Quantizes rows of f32.
#[derive(Debug, Clone, Copy)]
pub struct Quantize {
    format: ActivationFormat,
    rows: usize,
    cols: usize,
    input_bytes: usize,
    output_bytes: usize,
}

impl Quantize {
    /// `rows` rows of `cols` values.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no columns, columns that are not whole blocks of
    /// a row-major format, and sizes past 2^63 bytes.
    pub fn new(format: ActivationFormat, rows: usize, cols: usize) -> Result<Self> {
        at_least_one("columns", cols)?;
        let output = match format {
            ActivationFormat::Product(_) => {
                let most = i32::MAX as usize - q8_1::PAD;
                if rows.max(cols) > most {
                    let given = format!("{rows} x {cols}");
                    return Err(Error::invalid("input", given, format!("at most {most} each")));
                }
                q8_1::bytes(rows, cols).ok()
            }
            ActivationFormat::Rows(format) => {
                whole_blocks(format, cols, format.block_values())?;
                (cols / format.block_values())
                    .checked_mul(format.block_bytes())
                    .and_then(|row| row.checked_mul(rows))
            }
        };
        Ok(Self {
            format,
            rows,
            cols,
            input_bytes: size("input", &[rows, cols, 4])?,
            output_bytes: fits("output", output)?,
        })
    }

    /// Bytes of the input: rows x cols f32.
    pub fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// Bytes of the result.
    pub fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Runs it. Row-major formats are made on the host.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the input has another size, and those of the backend.
    pub fn run(&self, backend: &dyn Backend, input: &[u8]) -> Result<Vec<u8>> {
        expect_bytes("input", input, self.input_bytes)?;
        let x = f32s(input)?;
        let layout = match self.format {
            ActivationFormat::Rows(format) => return format.quantize(&x, self.cols),
            ActivationFormat::Product(layout) => layout,
        };
        room(backend, &[self.input_bytes, self.output_bytes])?;
        let x = backend.from_slice(&x)?;
        let mut out = backend.alloc::<u8>(self.output_bytes)?;
        let x = Matrix::dense("input", &x, self.rows, self.cols)?;
        let rows = Q8RowsMut::new(&mut out, layout, self.rows, self.cols)?;
        if self.rows > 0 {
            QuantizeRows::new(x, rows)?.launch(backend)?;
        }
        backend.download(&out)
    }
}

/// Decodes quantized weights to f32.
#[derive(Debug, Clone, Copy)]
pub struct Dequantize {
    ty: WeightType,
    input_bytes: usize,
    output_bytes: usize,
}

impl Dequantize {
    /// `rows` rows of `cols` values.
    ///
    /// # Errors
    /// [`Error::Invalid`] for columns that are not whole blocks, and sizes past 2^63 bytes.
    pub fn new(ty: WeightType, rows: usize, cols: usize) -> Result<Self> {
        let row = row_bytes(ty, cols)?;
        Ok(Self {
            ty,
            input_bytes: size("input", &[rows, row])?,
            output_bytes: size("output", &[rows, cols, 4])?,
        })
    }

    /// Bytes of the blocks.
    pub fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// Bytes of the result: rows x cols f32.
    pub fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the input has another size.
    pub fn run(&self, input: &[u8]) -> Result<Vec<u8>> {
        expect_bytes("input", input, self.input_bytes)?;
        let mut values = host_vec(self.output_bytes / 4)?;
        format::dequantize(self.ty, input, &mut values)?;
        bytes_of(&values)
    }
}

/// Multiplies rows of f32 with quantized weights.
#[derive(Debug, Clone, Copy)]
pub struct Mmq {
    ty: WeightType,
    rows: usize,
    cols: usize,
    input_rows: usize,
    routed: Option<Routed>,
    weight_bytes: usize,
    input_bytes: usize,
    ids_bytes: usize,
    output_bytes: usize,
}

/// Which experts there are, and how many each token chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routed {
    /// Experts.
    pub experts: usize,
    /// Experts each token names.
    pub k: usize,
}

impl Mmq {
    /// `input_rows` rows of `cols` values times a matrix of `rows` x `cols`; or
    /// that many tokens times the matrices of the experts that each names.
    ///
    /// # Errors
    /// [`Error::Invalid`] for sizes of 0, columns that are not whole blocks,
    /// and sizes past 2^63 bytes.
    pub fn new(
        ty: WeightType,
        rows: usize,
        cols: usize,
        input_rows: usize,
        routed: Option<Routed>,
    ) -> Result<Self> {
        let row = row_bytes(ty, cols)?;
        at_least_one("rows", rows)?;
        let Routed { experts, k } = routed.unwrap_or(Routed { experts: 1, k: 1 });
        at_least_one("experts", experts)?;
        at_least_one("experts per token (k)", k)?;
        Ok(Self {
            ty,
            rows,
            cols,
            input_rows,
            routed,
            weight_bytes: size("weights", &[experts, rows, row])?,
            input_bytes: size("input", &[input_rows, cols, 4])?,
            ids_bytes: match routed {
                Some(_) => size("ids", &[input_rows, k, 4])?,
                None => 0,
            },
            output_bytes: size("output", &[input_rows, k, rows, 4])?,
        })
    }

    /// Bytes of the weights: experts x rows x a row's blocks.
    pub fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }

    /// Bytes of the input: input rows x cols f32.
    pub fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// Bytes of the ids: input rows x k i32; 0 where nothing is routed.
    pub fn ids_bytes(&self) -> usize {
        self.ids_bytes
    }

    /// Bytes of the result: input rows x k x rows f32, in the order of (token, choice).
    pub fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`Error::Invalid`] where something has another size, [`Error::ExpertId`]
    /// for ids that are none, and those of the backend.
    pub fn run(
        &self,
        backend: &dyn Backend,
        weights: HostBytes,
        input: &[u8],
        ids: &[u8],
    ) -> Result<Vec<u8>> {
        expect_bytes("weights", weights.as_slice(), self.weight_bytes)?;
        expect_bytes("input", input, self.input_bytes)?;
        expect_bytes("ids", ids, self.ids_bytes)?;
        let Routed { experts, k } = self.routed.unwrap_or(Routed { experts: 1, k: 1 });
        let routes = match self.routed {
            Some(_) => {
                let ids = ids.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b)).collect();
                let weights = vec![1.0; self.ids_bytes / 4];
                Some(Routes::new(ids, weights, k, experts)?)
            }
            None => None,
        };
        let routed_rows = self.input_rows * k;
        let q8_bytes = q8_1::bytes(routed_rows, self.cols)?;
        // The result is on the device, then on the host twice: in rows and in order.
        let out = self.output_bytes;
        room(backend, &[self.weight_bytes, self.input_bytes, q8_bytes, out, out, out])?;
        if routed_rows == 0 {
            return Ok(Vec::new());
        }

        let weights = backend.import(weights)?;
        let weights = Weights::dense("weights", &weights, self.ty, experts, self.rows, self.cols)?;
        let x = backend.from_slice(&f32s(input)?)?;
        let x = Matrix::dense("input", &x, self.input_rows, self.cols)?;
        let mut q8 = backend.alloc::<u8>(q8_bytes)?;
        let layout = self.ty.layout();
        let q8_rows = Q8RowsMut::new(&mut q8, layout, routed_rows, self.cols)?;
        let map = match &routes {
            Some(routes) => {
                let device = DeviceRoutes::upload(backend, routes)?;
                let mut map = RoutingMap::with_capacity(backend, self.input_rows, k, experts)?;
                MapRoutes::new(device.view(), &mut map)?.launch(backend)?;
                QuantizeScatter::new(x, &map, q8_rows)?.launch(backend)?;
                Some(map)
            }
            None => {
                QuantizeRows::new(x, q8_rows)?.launch(backend)?;
                None
            }
        };
        let mut dst = backend.alloc::<f32>(routed_rows * self.rows)?;
        let activations = Q8Rows::new(&q8, layout, routed_rows, self.cols)?;
        let rows_of = map.as_ref().map_or(Rows::Dense, Rows::Experts);
        let to = MatrixMut::dense("output", &mut dst, routed_rows, self.rows)?;
        Product::new(weights, activations, rows_of, to)?.launch(backend)?;
        let y: Vec<f32> = backend.download(&dst)?;
        let Some(map) = map else {
            return bytes_of(&y);
        };
        let slots: Vec<u32> = backend.download(map.slot())?;
        let mut ordered: Vec<u8> = host_vec(self.output_bytes)?;
        for (slot, to) in slots.into_iter().zip(ordered.chunks_exact_mut(self.rows * 4)) {
            let row = &y[slot as usize * self.rows..][..self.rows];
            to.copy_from_slice(bytemuck::cast_slice(row));
        }
        Ok(ordered)
    }
}

/// Little-endian bytes to values.
fn f32s(bytes: &[u8]) -> Result<Vec<f32>> {
    let mut values = host_vec(bytes.len() / 4)?;
    bytemuck::cast_slice_mut(&mut values).copy_from_slice(bytes);
    Ok(values)
}

/// Values to little-endian bytes.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn bytes_of(values: &[f32]) -> Result<Vec<u8>> {
    let mut bytes = host_vec(size_of_val(values))?;
    bytes.copy_from_slice(bytemuck::cast_slice(values));
    Ok(bytes)
}

fn row_bytes(ty: WeightType, cols: usize) -> Result<usize> {
    at_least_one("columns", cols)?;
    whole_blocks(ty, cols, ty.block_values())?;
    ty.row_bytes(cols)
}

fn whole_blocks(format: impl std::fmt::Display, cols: usize, block: usize) -> Result<()> {
    if cols.is_multiple_of(block) {
        return Ok(());
    }
    Err(Error::invalid("columns", cols, format!("a multiple of {block}, the block of {format}")))
}

fn at_least_one(what: &str, given: usize) -> Result<()> {
    if given > 0 { Ok(()) } else { Err(Error::invalid(what, 0, "at least 1")) }
}

/// A product of sizes, if it is one that memory can have.
fn size(what: &str, factors: &[usize]) -> Result<usize> {
    fits(what, factors.iter().try_fold(1usize, |product, &f| product.checked_mul(f)))
}

fn fits(what: &str, bytes: Option<usize>) -> Result<usize> {
    bytes
        .filter(|&bytes| isize::try_from(bytes).is_ok())
        .ok_or_else(|| Error::invalid(what, "these shapes", "a size below 2^63 bytes"))
}

fn expect_bytes(what: &str, given: &[u8], expected: usize) -> Result<()> {
    if given.len() == expected {
        return Ok(());
    }
    Err(Error::invalid(what, format!("{} bytes", given.len()), format!("{expected} bytes")))
}

/// Whether so much memory is there, asked before any of it is taken.
fn room(backend: &dyn Backend, bytes: &[usize]) -> Result<()> {
    let asked = bytes.iter().fold(0u64, |sum, &b| sum.saturating_add(b as u64));
    let memory = backend.memory()?;
    if asked <= memory.free {
        return Ok(());
    }
    Err(Error::OutOfMemory {
        device: backend.id().to_string(),
        asked,
        free: memory.free,
        total: memory.total,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::format::random_blocks;
    use crate::prefill::normals;
    use crate::reference;

    fn cpu() -> Box<dyn Backend> {
        Device::open("cpu").unwrap()
    }

    #[test]
    fn routed_products_stand_in_the_order_of_the_ids() {
        let (ty, experts, k, rows, cols, tokens) = (WeightType::Q4_1, 3, 2, 5, 64, 4);
        let weights = random_blocks(ty, 7, experts * rows * cols / ty.block_values());
        let x = normals(3, tokens * cols);
        // One token names an expert twice.
        let ids = [2, 0, 1, 1, 0, 2, 2, 1];
        let id_bytes: Vec<u8> = ids.iter().flat_map(|id: &i32| id.to_le_bytes()).collect();
        let job = Mmq::new(ty, rows, cols, tokens, Some(Routed { experts, k })).unwrap();
        let out =
            job.run(&*cpu(), weights.clone().into(), &bytes_of(&x).unwrap(), &id_bytes).unwrap();
        assert_eq!(out.len(), job.output_bytes());

        let q8 = reference::quantize(&x, tokens, cols, cols, None, ty.layout());
        let row = ty.row_bytes(cols).unwrap();
        let mut wanted = Vec::new();
        for (i, &id) in ids.iter().enumerate() {
            let expert = &weights[id as usize * rows * row..][..rows * row];
            wanted.extend(reference::mmq(ty, expert, rows, cols, row, &q8, tokens, &[i / k]));
        }
        assert_eq!(out, bytes_of(&wanted).unwrap());
    }

    #[test]
    fn dense_products_and_quantization_are_the_reference_s() {
        let (ty, rows, cols, tokens) = (WeightType::Q2_K, 17, 512, 3);
        let weights = random_blocks(ty, 7, rows * cols / ty.block_values());
        let x = normals(5, tokens * cols);
        let q8 = reference::quantize(&x, tokens, cols, cols, None, ty.layout());
        let row = ty.row_bytes(cols).unwrap();
        let wanted = reference::mmq(ty, &weights, rows, cols, row, &q8, tokens, &[0, 1, 2]);

        let job = Quantize::new(ActivationFormat::Product(ty.layout()), tokens, cols).unwrap();
        assert_eq!(job.run(&*cpu(), &bytes_of(&x).unwrap()).unwrap(), q8);
        let job = Mmq::new(ty, rows, cols, tokens, None).unwrap();
        let out = job.run(&*cpu(), weights.into(), &bytes_of(&x).unwrap(), &[]).unwrap();
        assert_eq!(out, bytes_of(&wanted).unwrap());
    }

    #[test]
    fn nothing_in_nothing_out() {
        let job = Mmq::new(WeightType::Q8_0, 4, 32, 0, Some(Routed { experts: 2, k: 1 })).unwrap();
        let out = job.run(&*cpu(), vec![0; 2 * 4 * 34].into(), &[], &[]).unwrap();
        assert!(out.is_empty());
        let job = Quantize::new("D4".parse().unwrap(), 0, 5).unwrap();
        assert!(job.run(&*cpu(), &[]).unwrap().is_empty());
        assert!(Dequantize::new(WeightType::Q8_0, 0, 32).unwrap().run(&[]).unwrap().is_empty());
    }

    #[test]
    fn refusals_say_what_was_given() {
        let most = usize::MAX;
        let error = |e: Option<Error>| e.unwrap().to_string();
        assert_eq!(
            error(Quantize::new("q8_K".parse().unwrap(), 1, 100).err()),
            "columns: given 100, expected a multiple of 256, the block of q8_K"
        );
        assert!(error(Quantize::new("D4".parse().unwrap(), most, 512).err()).contains("at most"));
        assert!(error(Quantize::new("D4".parse().unwrap(), 0, most).err()).contains("at most"));
        assert!(error(Quantize::new("q8_0".parse().unwrap(), most, 32).err()).contains("2^63"));
        assert!(error(Dequantize::new(WeightType::Q8_0, most, 32).err()).contains("2^63"));
        assert!(error(Mmq::new(WeightType::Q8_0, 0, 32, 1, None).err()).starts_with("rows"));
        assert!(error(Mmq::new(WeightType::Q8_0, 1, 0, 1, None).err()).starts_with("columns"));
        let job = Mmq::new(WeightType::Q8_0, 1, 32, 1, Some(Routed { experts: 2, k: 1 })).unwrap();
        let bad = job.run(&*cpu(), vec![0; 68].into(), &[0; 128], &5i32.to_le_bytes());
        assert_eq!(error(bad.err()), "token 0, choice 0: expert id 5, expected 0..2");
        let short = job.run(&*cpu(), vec![0; 67].into(), &[0; 128], &[0; 4]);
        assert_eq!(error(short.err()), "weights: given 67 bytes, expected 68 bytes");
        // A result that no machine has room for, from files that are small enough.
        let (rows, tokens) = (1 << 28, 1 << 28);
        let job = Mmq::new(WeightType::Q8_0, rows, 32, tokens, None).unwrap();
        assert_eq!(job.output_bytes(), 1 << 58);
    }
}
