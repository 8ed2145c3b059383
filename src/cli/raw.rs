//! `strata raw`: a single step on files of plain values.

use std::path::PathBuf;

use strata::raw::{ActivationFormat, Dequantize, Mmq, Quantize, Routed};
use strata::{WeightType, device::DeviceName};

use super::args::{self, DeviceArgs};
use super::files::read_exactly;
use super::output::Output;
use super::{Failure, Outcome};

/// Run a single step on files of plain little-endian values without headers.
///
/// Sizes follow from the arguments; a file that has another is refused.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    step: Step,
}

#[derive(clap::Subcommand)]
enum Step {
    /// Quantize rows of f32 to blocks of activations
    Quantize(QuantizeArgs),
    /// Decode blocks of weights to f32
    Dequantize(DequantizeArgs),
    /// Multiply rows of f32 with blocks of weights
    ///
    /// The result is input-rows x rows, row after row. With --experts, --ids and
    /// --top-k the weights are that many matrices one after the other, the ids name
    /// the experts of each input row, and the result is (input-rows x top-k) x rows,
    /// in the order of the ids.
    Mmq(MmqArgs),
}

#[derive(clap::Args)]
struct QuantizeArgs {
    /// D4, DS4 or D2S6: q8_1 as products read it, 144-byte blocks ordered by column
    /// block, then row; or q8_0, q8_1, q8_K: blocks row after row
    #[arg(long)]
    layout: ActivationFormat,
    /// Rows of the input
    #[arg(long)]
    rows: usize,
    /// Columns of the input
    #[arg(long)]
    cols: usize,
    #[command(flatten)]
    device: DeviceArgs,
    /// rows x cols f32
    #[arg(value_name = "IN.f32")]
    input: PathBuf,
    /// Where the blocks go; - is standard output
    #[arg(value_name = "OUT.bin")]
    out: PathBuf,
}

#[derive(clap::Args)]
struct DequantizeArgs {
    /// Weight type as ggml spells it: q4_K, iq2_xs, mxfp4
    #[arg(long = "type")]
    ty: WeightType,
    /// Rows of the matrix
    #[arg(long)]
    rows: usize,
    /// Columns of the matrix
    #[arg(long)]
    cols: usize,
    /// Blocks, row after row
    #[arg(value_name = "IN.blocks")]
    input: PathBuf,
    /// Where rows x cols f32 go; - is standard output
    #[arg(value_name = "OUT.f32")]
    out: PathBuf,
}

#[derive(clap::Args)]
struct MmqArgs {
    /// Weight type as ggml spells it: q4_K, iq2_xs, mxfp4
    #[arg(long = "type")]
    ty: WeightType,
    /// Rows of a weight matrix: values of a result
    #[arg(long)]
    rows: usize,
    /// Columns of a weight matrix: values of an input row
    #[arg(long)]
    cols: usize,
    /// Blocks of the weights, row after row
    #[arg(long, value_name = "W.blocks")]
    weights: PathBuf,
    /// Input, input-rows x cols f32
    #[arg(long, value_name = "X.f32")]
    input: PathBuf,
    /// Rows of the input
    #[arg(long, value_name = "N")]
    input_rows: usize,
    /// Weight matrices, of which each input row uses some
    #[arg(long, value_name = "E", requires_all = ["ids", "top_k"])]
    experts: Option<usize>,
    /// Which ones: input-rows x top-k int32
    #[arg(long, value_name = "IDS.i32", requires = "experts")]
    ids: Option<PathBuf>,
    /// How many of them
    #[arg(long, value_name = "K", requires = "experts")]
    top_k: Option<usize>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Where the result goes, f32; - is standard output
    #[arg(value_name = "OUT.f32")]
    out: PathBuf,
}

/// Runs it.
pub fn run(args: &Args) -> Outcome {
    match &args.step {
        Step::Quantize(args) => quantize(args),
        Step::Dequantize(args) => dequantize(args),
        Step::Mmq(args) => mmq(args),
    }
}

fn quantize(args: &QuantizeArgs) -> Outcome {
    let job = Quantize::new(args.layout, args.rows, args.cols).map_err(Failure::usage)?;
    if let (ActivationFormat::Rows(format), DeviceName::Index(kind, _)) =
        (args.layout, args.device.name())
        && kind != strata::backend::BackendKind::Cpu
    {
        return Err(Failure::Usage(format!("--layout {format} is made on the CPU, not on {kind}")));
    }
    let what = format!("{} x {} f32", args.rows, args.cols);
    let input = read_exactly(&args.input, job.input_bytes(), &what)?;
    args::host_room(job.output_bytes().checked_mul(2))?;
    let out = Output::create(&args.out)?;
    out.keeps([&args.input])?;
    out.finish(&[&job.run(&*args.device.open()?, &input)?])
}

fn dequantize(args: &DequantizeArgs) -> Outcome {
    let job = Dequantize::new(args.ty, args.rows, args.cols).map_err(Failure::usage)?;
    let what = format!("{} x {} {}", args.rows, args.cols, args.ty);
    let input = read_exactly(&args.input, job.input_bytes(), &what)?;
    args::host_room(job.output_bytes().checked_mul(2))?;
    let out = Output::create(&args.out)?;
    out.keeps([&args.input])?;
    out.finish(&[&job.run(&input)?])
}

fn mmq(args: &MmqArgs) -> Outcome {
    let routed = match (args.experts, args.top_k) {
        (Some(experts), Some(k)) => Some(Routed { experts, k }),
        _ => None,
    };
    let job =
        Mmq::new(args.ty, args.rows, args.cols, args.input_rows, routed).map_err(Failure::usage)?;
    let matrices = args.experts.map_or(String::new(), |experts| format!("{experts} x "));
    let what = format!("{matrices}{} x {} {}", args.rows, args.cols, args.ty);
    let weights = read_exactly(&args.weights, job.weight_bytes(), &what)?;
    let what = format!("{} x {} f32", args.input_rows, args.cols);
    let input = read_exactly(&args.input, job.input_bytes(), &what)?;
    let ids = match (&args.ids, args.top_k) {
        (Some(ids), Some(k)) => {
            let what = format!("{} x {k} int32", args.input_rows);
            read_exactly(ids, job.ids_bytes(), &what)?
        }
        _ => Vec::new(),
    };
    let out = Output::create(&args.out)?;
    out.keeps([&args.weights, &args.input].into_iter().chain(&args.ids))?;
    out.finish(&[&job.run(&*args.device.open()?, weights.into(), &input, &ids)?])
}
