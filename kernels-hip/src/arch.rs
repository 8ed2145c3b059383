// Shared by the library and its build script.

/// The architectures that are compiled for and looked at before a release:
/// name and lanes of a wave.
pub const KNOWN: [(&str, u32); 14] = [
    ("gfx906", 64),
    ("gfx908", 64),
    ("gfx90a", 64),
    ("gfx942", 64),
    ("gfx950", 64),
    ("gfx1030", 32),
    ("gfx1100", 32),
    ("gfx1101", 32),
    ("gfx1102", 32),
    ("gfx1103", 32),
    ("gfx1150", 32),
    ("gfx1151", 32),
    ("gfx1200", 32),
    ("gfx1201", 32),
];

/// Lanes of a wave as the kernels are compiled, for an architecture's name.
///
/// gfx9 has waves of 64 only; later ones run 32 by choice of the compiler.
/// `None` for what the kernels do not compile for: they need the four-way
/// integer dot product, which came with gfx906 and, past gfx9, with gfx1011.
pub fn wave(arch: &str) -> Option<u32> {
    let digits = arch.strip_prefix("gfx")?;
    if !digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return None;
    }
    match digits.len() {
        3 if digits >= "906" && digits != "909" && digits != "90c" => Some(64),
        // gfx1250 and later have other matrix instructions.
        4 if ("1030".."1250").contains(&digits) => Some(32),
        _ => None,
    }
}
