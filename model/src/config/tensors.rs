//! The tensors that a model reads: each is asked for by name and shape, and none is left over.

use std::cell::RefCell;
use std::collections::BTreeSet;

use strata_core::gguf::Gguf;
use strata_core::{Error, Result};

/// A matrix that multiplies activations: its tensor, and what is done to the product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// The tensor, `[cols, rows]`.
    pub weight: String,
    /// Values of an input row.
    pub cols: usize,
    /// Values of an output row.
    pub rows: usize,
    /// A tensor of one value that the product is multiplied by.
    pub scale: Option<String>,
    /// A tensor of `rows` values that is added.
    pub bias: Option<String>,
    /// Whether the scale comes behind the bias, as in dense networks; else before it.
    pub bias_first: bool,
}

/// A norm's weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Norm {
    /// The tensor of factors.
    pub weight: String,
    /// The tensor that is added.
    pub bias: Option<String>,
}

/// Whether a tensor is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// The architecture has none.
    No,
    /// It may be there.
    May,
    /// It has to be there.
    Must,
}

/// Hands out tensors and remembers which.
pub(super) struct Tensors<'a> {
    gguf: &'a Gguf,
    claimed: RefCell<BTreeSet<String>>,
}

impl<'a> Tensors<'a> {
    pub fn new(gguf: &'a Gguf) -> Self {
        Self { gguf, claimed: RefCell::default() }
    }

    /// Takes tensors that somebody else checked.
    pub fn taken(&self, names: Vec<String>) {
        self.claimed.borrow_mut().extend(names);
    }

    /// Whether a tensor is there, without taking it.
    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// The sizes of a tensor that has to be there, without taking it.
    pub fn dims(&self, name: &str) -> Result<Vec<usize>> {
        let tensor = self.gguf.tensor(name).ok_or_else(|| missing(name, &[]))?;
        Ok(tensor.dims().iter().map(|&dim| usize::try_from(dim).unwrap_or(usize::MAX)).collect())
    }

    /// Takes a tensor of a shape, if it is there.
    pub fn may(&self, name: &str, dims: &[usize]) -> Result<Option<String>> {
        if !self.has(name) {
            return Ok(None);
        }
        let given = self.dims(name)?;
        let plain = |dims: &[usize]| {
            let ones = dims.iter().rev().take_while(|&&dim| dim == 1).count();
            dims[..dims.len() - ones].to_vec()
        };
        if plain(&given) != plain(dims) {
            let what = format!("tensor {name}: dims");
            return Err(Error::invalid(what, format!("{given:?}"), format!("{dims:?}")));
        }
        self.claimed.borrow_mut().insert(name.to_owned());
        Ok(Some(name.to_owned()))
    }

    /// Takes a tensor that has to be there.
    pub fn must(&self, name: &str, dims: &[usize]) -> Result<String> {
        self.may(name, dims)?.ok_or_else(|| missing(name, dims))
    }

    /// Takes a tensor as its presence says.
    pub fn take(&self, presence: Presence, name: &str, dims: &[usize]) -> Result<Option<String>> {
        match presence {
            Presence::No => Ok(None),
            Presence::May => self.may(name, dims),
            Presence::Must => self.must(name, dims).map(Some),
        }
    }

    /// A matrix with the tensors beside it; `stem` is its name without `.weight`.
    pub fn projection(
        &self,
        stem: &str,
        [cols, rows]: [usize; 2],
        bias: Presence,
        scaled: bool,
    ) -> Result<Projection> {
        let scale = if scaled { Presence::May } else { Presence::No };
        Ok(Projection {
            weight: self.must(&format!("{stem}.weight"), &[cols, rows])?,
            cols,
            rows,
            scale: self.take(scale, &format!("{stem}.scale"), &[1])?,
            bias: self.take(bias, &format!("{stem}.bias"), &[rows])?,
            bias_first: false,
        })
    }

    /// A norm over `size` values.
    pub fn norm(&self, stem: &str, size: usize, bias: bool) -> Result<Norm> {
        let bias = if bias { Presence::Must } else { Presence::No };
        Ok(Norm {
            weight: self.must(&format!("{stem}.weight"), &[size])?,
            bias: self.take(bias, &format!("{stem}.bias"), &[size])?,
        })
    }

    /// The tensors that were not taken, in the file's order: those that `skip` gives a reason for,
    /// with it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for one without a reason.
    pub fn rest(
        &self,
        skip: impl Fn(&str) -> Option<&'static str>,
    ) -> Result<Vec<(String, &'static str)>> {
        let claimed = self.claimed.borrow();
        let rest = self.gguf.tensors().map(|tensor| tensor.name());
        let rest = rest.filter(|name| !claimed.contains(*name)).map(|name| match skip(name) {
            Some(reason) => Ok((name.to_owned(), reason)),
            None => {
                let expected = "only tensors that this architecture reads or is known to leave out";
                Err(Error::invalid("tensors", name.escape_debug(), expected))
            }
        });
        rest.collect()
    }
}

fn missing(name: &str, dims: &[usize]) -> Error {
    let expected = match dims {
        [] => "it to be there".to_owned(),
        dims => format!("dims {dims:?}"),
    };
    Error::invalid(format!("tensor {name}"), "nothing", expected)
}
