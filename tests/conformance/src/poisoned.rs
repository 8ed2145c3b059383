//! Output buffers on a device, with poison before and behind what is written.

use bytemuck::Pod;
use strata_core::Result;
use strata_core::backend::ops::{MatrixMut, Q8RowsMut};
use strata_core::backend::{Backend, Buffer, SliceMut};
use strata_core::q8_1::{self, Headers};

use crate::output::{Output, Shape};

/// The byte that every output buffer is filled with before a launch.
pub const POISON: u8 = 0xa5;

/// Bytes of poison before and behind each output, inside its own buffer.
/// A multiple of 256, so that an output starts as aligned as its allocation.
const MARGIN: usize = 512;

/// An output buffer with poison in it, before it and behind it.
#[derive(Debug)]
pub struct Poisoned<T> {
    buffer: Buffer<T>,
    start: usize,
    len: usize,
}

impl<T: Pod> Poisoned<T> {
    /// Room for `len` values, `offset` values past an aligned address.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn new(backend: &dyn Backend, len: usize, offset: usize) -> Result<Self> {
        let margin = MARGIN / size_of::<T>();
        let start = margin + offset;
        let mut buffer = backend.alloc(start + len + margin)?;
        backend.fill(&mut buffer, POISON)?;
        Ok(Self { buffer, start, len })
    }

    /// Where the operation writes.
    pub fn view(&mut self) -> SliceMut<'_, T> {
        let range = self.start..self.start + self.len;
        self.buffer.slice_mut(range).expect("the output lies inside its buffer")
    }

    /// The first byte of the output.
    pub fn start(&self) -> usize {
        self.start * size_of::<T>()
    }

    /// All bytes, once the stream has come so far.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn read(&self, backend: &dyn Backend, what: &str, shape: Shape) -> Result<Output> {
        let bytes = bytemuck::cast_slice(&backend.download(&self.buffer)?).to_vec();
        Ok(Output { what: what.into(), bytes, shape, expected: None })
    }
}

/// A matrix of f32 to be written, and its place in a poisoned buffer.
#[derive(Debug)]
pub struct OutMatrix {
    /// The buffer.
    pub memory: Poisoned<f32>,
    rows: usize,
    cols: usize,
    stride: usize,
}

impl OutMatrix {
    /// Room for `rows` rows of `cols`, `stride` values apart, `offset` values
    /// past an aligned address.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn new(
        backend: &dyn Backend,
        rows: usize,
        cols: usize,
        stride: usize,
        offset: usize,
    ) -> Result<Self> {
        // Whole rows: the gap behind the last one is canary too.
        let memory = Poisoned::new(backend, rows * stride, offset)?;
        Ok(Self { memory, rows, cols, stride })
    }

    /// The view an operation takes.
    ///
    /// # Errors
    /// As [`MatrixMut::new`].
    pub fn view(&mut self) -> Result<MatrixMut<'_>> {
        let (rows, cols, stride) = (self.rows, self.cols, self.stride);
        MatrixMut::new("output", self.memory.view(), rows, cols, stride)
    }

    /// Sets its rows, for an operation that changes them in place; `values` has no gaps.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn set(&mut self, backend: &dyn Backend, values: &[f32]) -> Result<()> {
        let (cols, stride) = (self.cols, self.stride);
        let mut whole = vec![f32::from_ne_bytes([POISON; 4]); self.rows * stride];
        for row in 0..self.rows {
            whole[row * stride..][..cols].copy_from_slice(&values[row * cols..][..cols]);
        }
        backend.upload(self.memory.view(), &whole)
    }

    /// See [`Poisoned::read`].
    ///
    /// # Errors
    /// Those of the backend.
    pub fn read(&self, backend: &dyn Backend, what: &str) -> Result<Output> {
        let &Self { rows, cols, stride, .. } = self;
        let shape = Shape::Matrix { start: self.memory.start(), rows, cols, stride };
        self.memory.read(backend, what, shape)
    }
}

/// q8_1 rows to be written, and their place in a poisoned buffer.
#[derive(Debug)]
pub struct OutQ8 {
    /// The buffer.
    pub memory: Poisoned<u8>,
    headers: Headers,
    rows: usize,
    cols: usize,
}

impl OutQ8 {
    /// Room for `rows` rows of `cols`.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn new(
        backend: &dyn Backend,
        headers: impl Into<Headers>,
        rows: usize,
        cols: usize,
    ) -> Result<Self> {
        let headers = headers.into();
        let memory = Poisoned::new(backend, q8_1::bytes(rows, cols)?, 0)?;
        Ok(Self { memory, headers, rows, cols })
    }

    /// The view an operation takes.
    ///
    /// # Errors
    /// As [`Q8RowsMut::new`].
    pub fn view(&mut self) -> Result<Q8RowsMut<'_>> {
        let (headers, rows, cols) = (self.headers, self.rows, self.cols);
        Q8RowsMut::new(self.memory.view(), headers, rows, cols)
    }

    /// See [`Poisoned::read`].
    ///
    /// # Errors
    /// Those of the backend.
    pub fn read(&self, backend: &dyn Backend, what: &str) -> Result<Output> {
        let &Self { headers: Headers { layout, .. }, rows, cols, .. } = self;
        let shape = Shape::Q8 { start: self.memory.start(), layout, rows, cols };
        self.memory.read(backend, what, shape)
    }
}
