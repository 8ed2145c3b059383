//! `docs/cases.md` says where each line is tested: what it names must exist.

use std::path::PathBuf;

use strata_conformance::cases;

#[test]
fn every_line_is_tested_where_the_table_says() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| {
        std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    };
    let text = read("docs/cases.md");
    let names: Vec<String> = cases::all().into_iter().map(|case| case.name).collect();
    let tables = [("## Where each is tested", 27), ("## Whole models: where each is tested", 45)];
    for (heading, count) in tables {
        let (_, table) = text.split_once(heading).expect("the table's heading");
        let table = table.split_once("\n## ").map_or(table, |(table, _)| table);
        let mut lines = vec![];
        for row in table.lines().filter(|row| row.starts_with("| ") && !row.starts_with("| line")) {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [line, suite, elsewhere] = cells[..] else { panic!("three cells: {row}") };
            lines.push(line.parse::<usize>().unwrap_or_else(|e| panic!("{line}: {e}")));
            assert!(!suite.is_empty() || !elsewhere.is_empty(), "line {line} is tested nowhere");
            // What stands between backticks: a part of a name, or an option of the command.
            for part in suite.split('`').skip(1).step_by(2).filter(|part| !part.starts_with("--")) {
                assert!(
                    names.iter().any(|name| name.contains(part)),
                    "line {line}: no case {part}"
                );
            }
            for test in elsewhere.split('`').skip(1).step_by(2) {
                let (path, name) = test.split_once(": ").expect("a file and a test");
                assert!(read(path).contains(&format!("fn {name}(")), "line {line}: {test}");
            }
        }
        assert_eq!(lines, (1..=count).collect::<Vec<_>>(), "{heading}");
    }
}
