//! Where results go: never over what is read, whole or not at all, and nothing left behind.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::support::{Folder, Model, command, strata};

const SMALL: &str = "prefill --backend cpu --experts 2 --top-k 1 --width 256 --ffn 32 --tokens 3";

#[test]
fn no_input_is_replaced() {
    let folder = Folder::new();
    let model = Model::default().write(&folder, "m.gguf");
    let npy = [strata::npy::Header::write(2, 64), vec![0; 2 * 64 * 4]].concat();
    let input = folder.write("x.npy", &npy);
    let plain = folder.write("x.f32", &[0; 256]);
    let blocks = folder.write("w.bin", &[0; 4 * 34]);
    let ids = folder.write("ids.i32", &[0; 8]);
    let prefill = format!("prefill --backend cpu --model {model} --input {input} --out");
    let mmq = format!(
        "raw mmq --backend cpu --type q8_0 --rows 2 --cols 32 --weights {blocks} --input {plain} \
         --input-rows 2 --experts 2 --ids {ids} --top-k 1"
    );
    let quantize = format!("raw quantize --backend cpu --layout D4 --rows 1 --cols 64 {plain}");
    let dequantize = format!("raw dequantize --type q8_0 --rows 4 --cols 32 {blocks}");
    for (args, reads) in [
        (&prefill, vec![&model, &input]),
        (&mmq, vec![&blocks, &plain, &ids]),
        (&quantize, vec![&plain]),
        (&dequantize, vec![&blocks]),
    ] {
        for read in reads {
            let before = std::fs::read(read).unwrap();
            let (soft, hard) = (folder.path("soft"), folder.path("hard"));
            symlink(read, &soft).unwrap();
            std::fs::hard_link(read, &hard).unwrap();
            let folder_name = std::path::Path::new(read).parent().unwrap().display();
            let around = format!("{folder_name}/./{}", read.rsplit('/').next().unwrap());
            for out in [read, &soft, &hard, &around] {
                let ended = strata(&format!("{args} {out}"));
                assert_eq!(ended.code, Some(1), "{args} {out}: {ended:?}");
                assert_eq!(std::fs::read(read).unwrap(), before, "{args} {out}");
                assert!(ended.stderr.contains("which is read"), "{args} {out}: {ended:?}");
            }
            std::fs::remove_file(&soft).unwrap();
            std::fs::remove_file(&hard).unwrap();
        }
    }
    assert_eq!(folder.files(), ["ids.i32", "m.gguf", "w.bin", "x.f32", "x.npy"]);
}

#[test]
fn an_array_on_standard_output_stands_alone() {
    let folder = Folder::new();
    let file = folder.path("y.npy");
    let report = strata(&format!("{SMALL} --out {file}")).ok();
    let expected = std::fs::read(&file).unwrap();
    for name in ["-", "/dev/stdout", "/dev/fd/1"] {
        for json in ["", " --json"] {
            let args = format!("{SMALL} --out {name}{json}");
            let output = command(args.split(' ')).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert_eq!(output.stdout, expected, "{args}");
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert!(stderr.contains("checksum"), "{stderr}");
        }
        // A file behind standard output holds the array and nothing else, too.
        let behind = folder.path("behind.npy");
        let args = format!("{SMALL} --out {name}");
        let to = std::fs::File::create(&behind).unwrap();
        assert!(
            command(args.split(' ')).stdout(to).stderr(Stdio::null()).status().unwrap().success()
        );
        assert_eq!(std::fs::read(&behind).unwrap(), expected, "{name}");
    }
    assert!(report.contains("checksum"));
    assert!(!std::path::Path::new("-").exists());
    let raw = format!("raw dequantize --type q8_0 --rows 1 --cols 32 {} -", {
        folder.write("w.bin", &[0; 34])
    });
    assert_eq!(command(raw.split(' ')).output().unwrap().stdout, [0; 128]);
}

#[test]
fn a_signal_leaves_nothing_and_ends_it() {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    let folder = Folder::new();
    let out = folder.write("y.npy", b"before");
    let args = format!("{SMALL} --runs 1000000 --out {out}");
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let mut command = command(args.split(' '));
        // These tests may run where a signal is ignored, as behind `nohup` or a shell's `&`.
        // SAFETY: `signal` may be called between fork and exec.
        unsafe {
            command.pre_exec(move || match libc::signal(number, libc::SIG_DFL) {
                libc::SIG_ERR => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while folder.files().len() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(60), "no file was begun");
            std::thread::sleep(Duration::from_millis(5));
        }
        let kill = format!("kill -{name} {}", child.id());
        assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().signal(), Some(number), "{name}");
        assert_eq!(folder.files(), ["y.npy"], "{name}");
        assert_eq!(std::fs::read(&out).unwrap(), b"before");
    }
}

#[test]
fn a_file_that_may_not_grow_leaves_nothing() {
    let folder = Folder::new();
    let args = format!("{SMALL} --out {}", folder.path("y.npy"));
    let strata = env!("CARGO_BIN_EXE_strata");
    // One block of 512 or 1024 bytes; the array has over 3000.
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", &format!("ulimit -f 1; exec {strata} {args} 2>/dev/null >/dev/null")]);
    assert_eq!(limited.status().unwrap().code(), Some(1));
    assert!(folder.files().is_empty(), "{:?}", folder.files());
}

#[test]
fn names_do_not_collide_and_permissions_stay() {
    let folder = Folder::new();
    let out = folder.write("y.npy", b"before");
    // What an earlier run under the same process id left, as in a container.
    for pid in 1..100 {
        folder.write(&format!(".y.npy.{pid}.tmp"), b"");
    }
    std::fs::set_permissions(&out, PermissionsExt::from_mode(0o600)).unwrap();
    strata(&format!("{SMALL} --out {out}")).ok();
    assert_eq!(std::fs::metadata(&out).unwrap().mode() & 0o777, 0o600);
    // A new file has those of any new file.
    let (new, other) = (folder.path("new.npy"), folder.write("other", b""));
    strata(&format!("{SMALL} --out {new}")).ok();
    let mode = |path: &str| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&new), mode(&other));
}

#[test]
fn a_model_cut_short_while_it_is_read_is_named() {
    let folder = Folder::new();
    let model = Model::default().write(&folder, "cut.gguf");
    // Weights are used where they are mapped: many runs are still reading them.
    let args = format!(
        "prefill --backend cpu --model {model} --tokens 512 --runs 1000000 --threads 1 --out {}",
        folder.path("y.npy")
    );
    let mut child =
        command(args.split(' ')).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    std::fs::File::options().write(true).open(&model).unwrap().set_len(4096).unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cut.gguf: given fewer bytes than when it was opened"), "{stderr}");
    assert_eq!(folder.files(), ["cut.gguf"]);
}
