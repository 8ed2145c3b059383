//! How an operation is launched: one way for all of them.

use super::*;

/// What an operation says of itself; how it is launched follows from that.
pub(super) trait Operation: Sized {
    /// Checks that all it is made of may be used on the backend's stream now, and takes what it
    /// writes out of other hands.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], [`Error::OtherStream`], [`Error::NotWritten`], and where the
    /// backend or a report cannot take it [`Error::Invalid`].
    fn admit(&mut self, to: &Admission<'_>) -> Result<()>;

    /// Whether there is nothing to write, so that the backend is not called.
    fn is_empty(&self) -> bool;

    /// What it must move and compute.
    fn cost(&self) -> Cost;

    /// After the backend has launched it: what it wrote holds.
    fn written(&mut self) {}

    /// See `Checked::outputs`.
    fn outputs(&mut self) -> Vec<Output<'_>>;

    /// See `Checked::report_word`.
    fn report_word(&mut self) -> Option<SliceMut<'_, u32>> {
        None
    }

    /// See `form` of each.
    fn form(&self) -> &'static str {
        ""
    }
}

/// Something that an operation writes.
pub enum Output<'a> {
    /// Values.
    Values(MatrixMut<'a>),
    /// Pages of digits.
    Bytes(SliceMut<'a, u8>),
    /// Quantized rows.
    Q8(Q8RowsMut<'a>),
    /// Ids of experts: others' kernels index by them.
    Ids(SliceMut<'a, i32>),
    /// A part of a map: others' kernels index by it.
    Map(SliceMut<'a, u32>),
}

impl Output<'_> {
    fn device(&self) -> DeviceId {
        match self {
            Self::Values(m) => m.device(),
            Self::Bytes(s) => s.device(),
            Self::Q8(q) => q.device(),
            Self::Ids(s) => s.device(),
            Self::Map(s) => s.device(),
        }
    }
}

/// Any operation, for what is done with each alike: times, traces.
pub trait Launch: Sized + Sealed {
    /// What it is called in errors.
    const NAME: &'static str;

    /// What it must move and compute at least.
    fn cost(&self) -> Cost;

    /// Launches it.
    ///
    /// # Errors
    /// Those of the operation's own `launch`.
    fn launch(self, backend: &dyn Backend) -> Result<()>;
}

/// Operations are core's.
pub trait Sealed {}
impl<O: Operation> Sealed for O {}

/// The one body of every operation's `launch`.
pub(super) fn launch<O: Operation>(
    mut op: O,
    name: &str,
    backend: &dyn Backend,
    run: impl FnOnce(&dyn Backend, &mut Checked<O>) -> Result<()>,
) -> Result<()> {
    op.admit(&Admission { backend, name })?;
    if op.is_empty() {
        return Ok(());
    }
    let mut op = Checked(op);
    match run(backend, &mut op) {
        // Nothing was launched that could have failed.
        Err(error @ Error::Unsupported { .. }) => return Err(error),
        outcome => backend.stream().outcome(outcome)?,
    }
    op.0.written();
    Ok(())
}

/// Where an operation is to run, and what it is called in errors.
pub(super) struct Admission<'a> {
    pub(super) backend: &'a dyn Backend,
    name: &'a str,
}

impl Admission<'_> {
    /// What an operand is called in errors.
    pub(super) fn name(&self, operand: &str) -> String {
        format!("{}: {operand}", self.name)
    }

    /// An operand that lives on `device`.
    pub(super) fn lives_on(&self, operand: &str, device: DeviceId) -> Result<()> {
        match device == self.backend.id() {
            true => Ok(()),
            false => same_device(&self.name(operand), device, self.backend.id()),
        }
    }

    /// A map that it reads, if any.
    pub(super) fn reads(&self, operand: &str, map: Option<&RoutingMap>) -> Result<()> {
        match map {
            Some(map) => map.read(&self.name(operand), self.backend),
            None => Ok(()),
        }
    }

    /// Where it reports one of `tokens`, if anywhere. A report keeps some bits beside the token:
    /// only so many can be told apart.
    pub(super) fn reports(&self, report: &Option<ReportTo<'_>>, tokens: usize) -> Result<()> {
        let Some(report) = report else { return Ok(()) };
        self.lives_on("report", report.device())?;
        match tokens <= MAX_TOKENS {
            true => Ok(()),
            false => Err(Error::invalid(
                self.name("reported tokens"),
                tokens,
                format!("at most {MAX_TOKENS}"),
            )),
        }
    }
}

/// The operations: the trait of a backend, and its methods with the operation each takes and
/// what that is called.
///
/// Hands the table to a macro of the caller's. All that must name every operation is written
/// from it: `launch` of each, a backend around another, lists for tests.
///
/// ```
/// macro_rules! names {
///     ($($trait:ident { $($method:ident($op:ident) $name:literal)* })*) => {
///         [$($($name),*),*]
///     };
/// }
/// let names = strata_core::for_each_operation!(names);
/// assert!(names.contains(&"product"));
/// ```
#[macro_export]
macro_rules! for_each_operation {
    ($then:ident) => {
        $then! {
            Quantize {
                quantize(QuantizeRows) "quantize"
            }
            Scatter {
                quantize_scatter(QuantizeScatter) "scatter"
            }
            Mmq {
                multiply(Product) "product"
            }
            MoeOps {
                router_scores(RouterScores) "router"
                top_k(TopK) "top-k"
                map_routes(MapRoutes) "map"
                swiglu(SwiGlu) "swiglu"
                swiglu_quantize(SwiGluQuantize) "swiglu + quantize"
                combine(Combine) "combine"
            }
            ModelOps {
                embed(Embed) "embed"
                norm(Norm) "norm"
                add_norm(AddNorm) "add + norm"
                pointwise(Pointwise) "pointwise"
                rope(Rope) "rope"
                float_product(FloatProduct) "float product"
                append_kv(AppendKv) "append"
                attend(Attend) "attention"
                convolve(Convolve) "convolution"
                delta_net(DeltaNet) "delta net"
            }
        }
    };
}

/// `launch` of every operation.
macro_rules! launches {
    ($($trait:ident { $($method:ident($op:ident) $name:literal)* })*) => {$($(
        impl $op<'_> {
            /// What it is called in errors.
            pub const NAME: &'static str = $name;

            #[doc = concat!("Launches it by [`", stringify!($trait), "::", stringify!($method), "`](crate::backend::", stringify!($trait), "::", stringify!($method), ").")]
            ///
            /// # Errors
            /// [`Error::WrongDevice`]; [`Error::OtherStream`] and [`Error::NotWritten`] for what it
            /// indexes by; and those of the backend.
            pub fn launch(self, backend: &dyn Backend) -> Result<()> {
                launch(self, Self::NAME, backend, |backend, op| backend.$method(op))
            }

            /// What it must move and compute at least.
            pub fn cost(&self) -> Cost {
                Operation::cost(self)
            }

            /// Which of its forms this is, where it has several: as `gather`.
            pub fn form(&self) -> &'static str {
                Operation::form(self)
            }
        }

        impl Launch for $op<'_> {
            const NAME: &'static str = $name;

            fn cost(&self) -> Cost {
                Operation::cost(self)
            }

            fn launch(self, backend: &dyn Backend) -> Result<()> {
                $op::launch(self, backend)
            }
        }

        impl Checked<$op<'_>> {
            /// All that it writes, for a backend around another that looks at it; not where it reports.
            pub fn outputs(&mut self) -> Vec<Output<'_>> {
                Operation::outputs(&mut self.0)
            }

            /// What a backend without a kernel for it answers.
            ///
            /// # Errors
            /// [`Error::Unsupported`], always.
            pub fn unsupported(&mut self) -> Result<()> {
                let device = self.outputs().first().map(Output::device);
                let device = device.map_or_else(String::new, |device| device.to_string());
                Err(Error::Unsupported { operation: $op::NAME, device })
            }

            /// The word of the report, if it reports.
            pub fn report_word(&mut self) -> Option<SliceMut<'_, u32>> {
                Operation::report_word(&mut self.0)
            }
        }
    )*)*};
}
for_each_operation!(launches);
