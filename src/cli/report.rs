//! Figures and tables as text.

use std::time::Duration;

/// A table: the first column to the left, the others to the right.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let columns = head.len();
    let width = |c: usize| {
        rows.iter()
            .filter_map(|row| row.get(c))
            .map(|cell| cell.chars().count())
            .chain([head[c].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |cells: &[&str]| {
        let mut line = String::new();
        for (c, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
            match c {
                0 => line.push_str(&format!("{cell:<width$}")),
                _ => line.push_str(&format!("  {cell:>width$}")),
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    };
    let mut text = line(head);
    for row in rows {
        text.push_str(&line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    text
}

/// Milliseconds, with four digits or so.
pub fn ms(time: Duration) -> String {
    significant(time.as_secs_f64() * 1e3)
}

/// Bytes in decimal units, as bandwidths are given.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, &["B", "kB", "MB", "GB", "TB"])
}

/// Operations.
pub fn ops(ops: u64) -> String {
    scaled(ops as f64, &["op", "kop", "Mop", "Gop", "Top", "Pop"])
}

/// Operations a second.
pub fn ops_rate(ops: u64, time: Duration) -> String {
    scaled(ops as f64 / seconds(time), &["OPS", "kOPS", "MOPS", "GOPS", "TOPS", "POPS"])
}

/// Gigabytes a second.
pub fn gb_per_s(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / seconds(time) / 1e9
}

/// A time that can be divided by.
pub fn seconds(time: Duration) -> f64 {
    time.as_secs_f64().max(1e-9)
}

fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value:.0} {}", units[0]),
        _ => format!("{} {}", significant(value), units[unit]),
    }
}

/// Three significant digits, more before the point.
pub fn significant(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// The most memory the process has had at once, in bytes, where the system tells it.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_500_000), "1.50 MB");
        assert_eq!(ops(2_000_000_000), "2.00 Gop");
        assert_eq!(ms(Duration::from_micros(1234)), "1.23");
        assert_eq!(ops_rate(150_000_000_000, Duration::from_secs(1)), "150 GOPS");
        assert_eq!(significant(0.0), "0.0000");
    }

    #[test]
    fn tables_line_up() {
        let rows = vec![vec!["a".into(), "1".into()], vec!["long".into(), "100".into()]];
        assert_eq!(table(&["name", "n"], &rows), "name    n\na       1\nlong  100\n");
    }
}
