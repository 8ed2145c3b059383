//! The arguments of kernels, as the device reads them.
//!
//! Every entry point takes one structure. Pointers in it are device addresses; 0 stands
//! for null. Sizes are in values unless they say bytes. A step declares its own by
//! [`arguments!`], which also says where the sources declare the same.

/// A device address.
pub(crate) type Address = u64;

/// A structure of a kernel source and the memory it takes.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The file, in `kernels-cuda/kernels`.
    pub file: &'static str,
    /// What it is called.
    pub name: &'static str,
    /// Its fields: name, first byte, bytes.
    pub fields: &'static [(&'static str, usize, usize)],
    /// Bytes of the whole.
    pub bytes: usize,
}

/// What a kernel can be launched with.
pub(crate) trait Arguments: Copy {
    /// Where its fields lie.
    const LAYOUT: Layout;
}

/// Declares a structure that kernels take, called as in the file of their sources.
macro_rules! arguments {
    (
        $(#[$doc:meta])*
        $name:ident in $file:literal {
            $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default)]
        pub(crate) struct $name {
            $($(#[$field_doc])* pub(crate) $field: $type,)*
        }

        impl $crate::args::Arguments for $name {
            const LAYOUT: $crate::args::Layout = $crate::args::Layout {
                file: $file,
                name: stringify!($name),
                fields: &[$((
                    stringify!($field),
                    std::mem::offset_of!($name, $field),
                    size_of::<$type>(),
                )),*],
                bytes: size_of::<$name>(),
            };
        }
    };
}
pub(crate) use arguments;

arguments! {
    /// Where the first token with a value that is not finite is reported.
    ReportTo in "quantize.cuh" {
        /// The word that keeps the minimum of `token << 3 | kind`; null: nowhere.
        word: Address,
        /// Kind of a value.
        value_kind: u32,
        /// Kind of a stored scale or sum.
        header_kind: u32,
    }
}
