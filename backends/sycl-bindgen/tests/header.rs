//! The header reader refuses what it does not understand.

#[allow(dead_code)]
#[path = "../build/generate.rs"]
mod generate;
#[allow(dead_code)]
#[path = "../build/header.rs"]
mod header;

const GOOD: &str = "/* N. */\n#define STRATA_SYCL_N 3\n/* H. */\ntypedef struct strata_sycl_h strata_sycl_h;\n\
    /* S. */\ntypedef struct strata_sycl_s {\n/* A. */ uint8_t a[STRATA_SYCL_N];\n/* B. */ uint64_t b;\n} strata_sycl_s;\n\
    /* F. */\nint32_t strata_sycl_f(const char *const *texts, strata_sycl_h **out);\n";

#[test]
fn reads_what_it_documents() {
    let parsed = header::parse(GOOD).unwrap();
    let rust = generate::rust(&parsed).unwrap();
    for part in [
        "pub const N: u32 = 3;",
        "pub a: [u8; 3],",
        "assert!(size_of::<S>() == 16)",
        "offset_of!(S, b) == 8",
        "fn(texts: *const *const core::ffi::c_char, out: *mut *mut H) -> i32",
    ] {
        assert!(rust.contains(part), "{part} is not in:\n{rust}");
    }
    let checks = generate::layout_checks(&parsed).unwrap();
    assert!(checks.contains("offsetof(strata_sycl_s, b) == 8"), "{checks}");
}

#[test]
fn refuses_everything_else() {
    let function = "/* F. */\nint32_t strata_sycl_f(int32_t a);\n";
    let cases = [
        ("", "no function"),
        ("/* F. */ int32_t strata_sycl_f(int32_t);", "a name"),
        ("int32_t strata_sycl_f(int32_t a);", "a comment before"),
        ("/* F. */ int32_t strata_sycl_f(int32_t a)", "ends inside"),
        ("/* F. */ int32_t strata_sycl_f(int32_t a) { }", "`;`"),
        ("/* F. */ int32_t strata_sycl_f(int32_t a, ...);", "`.`"),
        ("/* N. */\n#define N (1 << 3)\n", "not understood"),
        ("/* N. */\n#define N x\n", "a number"),
        ("#pragma once\n", "not understood"),
        ("#include \"other.h\"\n", "not understood"),
        ("/* open", "does not end"),
        ("/* U. */ typedef union u { /* A. */ int32_t a; } u;", "`struct`"),
        ("/* E. */ enum e { a };", "`(`"),
    ];
    for (text, wanted) in cases {
        let e = header::parse(text).err().unwrap_or_else(|| panic!("accepted: {text}"));
        assert!(e.contains(wanted), "{text}: {e}");
    }
    let unknown = "/* F. */ long strata_sycl_f(void);";
    let cases = [
        (unknown.to_string(), "type `long`"),
        ("/* F. */ int32_t other_f(void);".into(), "does not start with"),
        (
            format!("/* S. */ typedef struct s {{ /* A. */ uint8_t a[N]; }} s;\n{function}"),
            "array length",
        ),
        (
            format!(
                "/* H. */ typedef struct h h;\n/* S. */ typedef struct s {{ /* A. */ h a; }} s;\n{function}"
            ),
            "only be pointed to",
        ),
    ];
    for (text, wanted) in cases {
        let e = generate::rust(&header::parse(&text).unwrap()).unwrap_err();
        assert!(e.contains(wanted), "{text}: {e}");
    }
}
