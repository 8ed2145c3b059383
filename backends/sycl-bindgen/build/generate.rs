//! Rust declarations and C++ layout checks from a parsed header.
//!
//! Both sides get every size and offset as a number computed here, and refuse
//! to compile when their own compiler sees another: neither can drift.

use crate::header::{Field, Header, Struct, Type};
use std::fmt::Write;

const PREFIX: &str = "strata_sycl_";

/// Rust name, size and alignment of a C base type.
fn base(header: &Header, name: &str) -> Result<(String, u64, u64), String> {
    let plain = match name {
        "char" => ("core::ffi::c_char", 1),
        "uint8_t" => ("u8", 1),
        "int32_t" => ("i32", 4),
        "uint32_t" => ("u32", 4),
        "uint64_t" => ("u64", 8),
        _ => {
            let known = header.structs.iter().any(|s| s.name == name);
            return if known || name == "void" {
                Err(format!("`{name}` can only be pointed to"))
            } else {
                Err(format!("type `{name}` is not known"))
            };
        }
    };
    Ok((plain.0.to_string(), plain.1, plain.1))
}

/// Rust name, size and alignment of a type.
fn layout(header: &Header, ty: &Type) -> Result<(String, u64, u64), String> {
    if ty.pointers.is_empty() {
        return base(header, &ty.base);
    }
    let known = header.structs.iter().any(|s| s.name == ty.base);
    let mut text = match ty.base.as_str() {
        "void" => "core::ffi::c_void".to_string(),
        name if known => rust_name(name),
        name => base(header, name)?.0,
    };
    for is_const in &ty.pointers {
        text = format!("*{} {text}", if *is_const { "const" } else { "mut" });
    }
    Ok((text, 8, 8))
}

/// `strata_sycl_queue` becomes `Queue`.
fn rust_name(c: &str) -> String {
    let mut out = String::new();
    for part in c.trim_start_matches(PREFIX).split('_') {
        let mut chars = part.chars();
        out.extend(chars.next().map(|f| f.to_ascii_uppercase()));
        out.push_str(chars.as_str());
    }
    out
}

fn doc(out: &mut String, text: &str, indent: &str) {
    for line in text.lines() {
        let _ = writeln!(out, "{indent}/// {line}");
    }
}

/// A field's Rust type, size and alignment, its array included.
fn field(header: &Header, f: &Field) -> Result<(String, u64, u64), String> {
    let (text, size, align) = layout(header, &f.ty)?;
    Ok(match &f.array {
        Some(length) => {
            let n = header.length(length)?;
            (format!("[{text}; {n}]"), size * n, align)
        }
        None => (text, size, align),
    })
}

/// Offsets of all fields, and the size of the struct, by the C rules.
fn offsets(header: &Header, fields: &[Field]) -> Result<(Vec<u64>, u64), String> {
    let (mut at, mut most, mut out) = (0u64, 1, Vec::new());
    for f in fields {
        let (_, size, align) = field(header, f)?;
        at = at.next_multiple_of(align);
        out.push(at);
        at += size;
        most = most.max(align);
    }
    Ok((out, at.next_multiple_of(most)))
}

fn structure(out: &mut String, header: &Header, s: &Struct) -> Result<(), String> {
    let name = rust_name(&s.name);
    doc(out, &s.doc, "");
    let Some(fields) = &s.fields else {
        let _ = writeln!(out, "#[repr(C)]\npub struct {name} {{\n    _opaque: [u8; 0],\n}}");
        return Ok(());
    };
    let _ = writeln!(out, "#[repr(C)]\n#[derive(Clone, Copy)]\npub struct {name} {{");
    for f in fields {
        doc(out, &f.doc, "    ");
        let _ = writeln!(out, "    pub {}: {},", f.name, field(header, f)?.0);
    }
    out.push_str("}\n");
    let (at, size) = offsets(header, fields)?;
    let _ = writeln!(out, "const _: () = assert!(size_of::<{name}>() == {size});");
    for (f, at) in fields.iter().zip(at) {
        let _ = writeln!(
            out,
            "const _: () = assert!(core::mem::offset_of!({name}, {}) == {at});",
            f.name
        );
    }
    Ok(())
}

/// The text of `sys.rs`: constants, structs, and the table of functions.
pub fn rust(header: &Header) -> Result<String, String> {
    let mut out = String::from("// Generated from bridge/strata_sycl.h.\n");
    for d in &header.defines {
        doc(&mut out, &d.doc, "");
        let name = d.name.trim_start_matches("STRATA_SYCL_");
        let _ = writeln!(out, "pub const {name}: u32 = {};", d.value);
    }
    for s in &header.structs {
        structure(&mut out, header, s)?;
    }
    let mut load = String::new();
    out.push_str("/// The functions of a loaded bridge.\npub struct Api {\n");
    for f in &header.functions {
        let mut params = Vec::new();
        for p in &f.params {
            params.push(format!("{}: {}", p.name, layout(header, &p.ty)?.0));
        }
        let result = match &f.result {
            Some(ty) => format!(" -> {}", layout(header, ty)?.0),
            None => String::new(),
        };
        let name = f.name.strip_prefix(PREFIX);
        let name = name.ok_or_else(|| format!("`{}` does not start with {PREFIX}", f.name))?;
        doc(&mut out, &f.doc, "    ");
        let _ =
            writeln!(out, "    pub {name}: unsafe extern \"C\" fn({}){result},", params.join(", "));
        let _ = writeln!(load, "            {name}: symbol(c\"{}\"),", f.name);
    }
    let _ = write!(
        out,
        "}}

impl Api {{
    /// Looks every function up.
    ///
    /// # Safety
    /// `address` must give the address of the bridge's function of that name.
    pub unsafe fn load<E>(address: impl Fn(&core::ffi::CStr) -> Result<core::ptr::NonNull<core::ffi::c_void>, E>) -> Result<Self, E> {{
        /// An address as the function pointer type that the field wants.
        unsafe fn cast<F: Copy>(p: core::ptr::NonNull<core::ffi::c_void>) -> F {{
            const {{ assert!(size_of::<F>() == size_of::<*mut core::ffi::c_void>()) }};
            // SAFETY: F is a function pointer type, of a pointer's size and
            // never null; the caller says that the address is that function's.
            unsafe {{ core::mem::transmute_copy(&p.as_ptr()) }}
        }}
        macro_rules! symbol {{
            // SAFETY: the caller of `load` promises the right address, and the
            // field's type comes from the header that the bridge includes.
            ($name:literal) => {{ unsafe {{ cast(address($name)?) }} }};
        }}
        Ok(Self {{
{}        }})
    }}
}}
",
        load.replace("symbol(", "symbol!(")
    );
    Ok(out)
}

/// The text of `layout.inc`: what the C++ compiler has to agree with.
pub fn layout_checks(header: &Header) -> Result<String, String> {
    let mut out = String::from("// Generated from bridge/strata_sycl.h.\n");
    for s in &header.structs {
        let Some(fields) = &s.fields else { continue };
        let (at, size) = offsets(header, fields)?;
        let _ = writeln!(out, "static_assert(sizeof({0}) == {size}, \"{0}\");", s.name);
        for (f, at) in fields.iter().zip(at) {
            let _ = writeln!(
                out,
                "static_assert(offsetof({0}, {1}) == {at}, \"{0}.{1}\");",
                s.name, f.name
            );
        }
    }
    Ok(out)
}
