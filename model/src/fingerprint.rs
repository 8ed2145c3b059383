//! Which model this is: what a saved state is checked against.

use sha2::{Digest, Sha256};
use strata_core::Result;
use strata_core::gguf::{Gguf, TensorInfo};

use crate::config::Config;

/// Bytes of a tensor's beginning, and of its end, that are looked at: all of a large model's would
/// take minutes to read.
const ENDS: usize = 4096;

/// SHA-256 of the architecture, its keys, the choice of rope factors, and of every tensor's name,
/// type, shape, and first and last 4,096 bytes.
pub fn fingerprint(gguf: &Gguf, config: &Config) -> Result<[u8; 32]> {
    let mut all = Sha256::new();
    let mut add = |bytes: &[u8]| {
        all.update((bytes.len() as u64).to_le_bytes());
        all.update(bytes);
    };
    let own = format!("{}.", config.architecture);
    let mut keys: Vec<_> =
        gguf.head().metadata().filter(|(key, _)| key.starts_with(&own)).collect();
    keys.sort_by_key(|&(key, _)| key);
    add(own.as_bytes());
    add(format!("{:?}", config.factors).as_bytes());
    for (key, value) in keys {
        add(key.as_bytes());
        add(format!("{value:?}").as_bytes());
    }
    let mut tensors: Vec<&TensorInfo> = gguf.tensors().collect();
    tensors.sort_by_key(|tensor| tensor.name());
    for tensor in tensors {
        let bytes = gguf.tensor_bytes(tensor)?;
        add(tensor.name().as_bytes());
        add(format!("{} {:?}", tensor.tensor_type(), tensor.dims()).as_bytes());
        add(&bytes[..bytes.len().min(ENDS)]);
        add(&bytes[bytes.len().saturating_sub(ENDS)..]);
    }
    Ok(all.finalize().into())
}
