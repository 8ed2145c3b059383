//! Progress, on standard error, only on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over bytes.
pub fn bytes(what: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    styled(bar, "{msg} {wide_bar} {bytes}/{total_bytes}", what)
}

/// A bar over a count.
pub fn counted(what: &str, total: u64) -> ProgressBar {
    styled(ProgressBar::new(total), "{wide_bar} {pos}/{len} {msg}", what)
}

/// Something that takes a while.
pub fn spinner(what: &str) -> ProgressBar {
    let bar = styled(ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}", what);
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn styled(bar: ProgressBar, template: &str, what: &str) -> ProgressBar {
    // indicatif draws nothing unless standard error is a terminal.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}
