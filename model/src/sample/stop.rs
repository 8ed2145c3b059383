//! Strings that end a text, found however the text is cut into pieces.

use strata_core::{Error, Result};

/// Lets text through up to the first stop string, and no part of that.
///
/// What may still become a stop string is held back; it comes out as soon as it cannot, and at the
/// end. The stop string that is complete first counts, of two that end at one place the longer one:
/// so the result depends on the text alone.
#[derive(Debug, Clone)]
pub struct Stops {
    stops: Vec<String>,
    held: String,
    stopped: Option<usize>,
}

impl Stops {
    /// Stops at any of some strings; at none, if there are none.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty string, which would stop everything.
    pub fn new(stops: Vec<String>) -> Result<Self> {
        match stops.iter().position(String::is_empty) {
            Some(at) => Err(Error::invalid(format!("stop string {at}"), "\"\"", "some text")),
            None => Ok(Self { stops, held: String::new(), stopped: None }),
        }
    }

    /// The text that may be shown after one more piece. After a stop there is none.
    pub fn push(&mut self, piece: &str) -> String {
        if self.stopped.is_some() {
            return String::new();
        }
        self.held.push_str(piece);
        let found = self.stops.iter().enumerate().filter_map(|(no, stop)| {
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start, no))
        });
        if let Some((_, start, no)) = found.min() {
            self.stopped = Some(no);
            self.held.truncate(start);
            return std::mem::take(&mut self.held);
        }
        let open = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = self.held.len().saturating_sub(longest);
        let places = (from..self.held.len()).filter(|&at| self.held.is_char_boundary(at));
        let keep = places.clone().find(open).unwrap_or(self.held.len());
        let rest = self.held.split_off(keep);
        std::mem::replace(&mut self.held, rest)
    }

    /// What was held back, at the end of the text.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Which stop string was met.
    pub fn stopped(&self) -> Option<&str> {
        self.stops.get(self.stopped?).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut filter = Stops::new(stops.iter().map(|&stop| stop.to_owned()).collect()).unwrap();
        let mut shown: String = pieces.iter().map(|piece| filter.push(piece)).collect();
        shown.push_str(&filter.finish());
        (shown, filter.stopped().map(str::to_owned))
    }

    #[test]
    fn no_part_of_a_stop_is_shown_wherever_it_is_cut() {
        let text = "abUVWXYZcd";
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                let (shown, stopped) = run(&["UVWXYZ"], &pieces);
                assert_eq!((shown.as_str(), stopped.as_deref()), ("ab", Some("UVWXYZ")));
            }
        }
    }

    #[test]
    fn a_false_start_is_shown_whole() {
        let single: Vec<String> = "xUVW!UVUVWXYZ".chars().map(String::from).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        assert_eq!(run(&["UVWXYZ"], &single).0, "xUVW!UV");
        assert_eq!(run(&["UVWXYZ"], &["xUV", "W!"]).0, "xUVW!");
        assert_eq!(run(&["UVWXYZ"], &["xUVW"]), ("xUVW".into(), None), "flushed at the end");
        assert_eq!(run(&["aab"], &["a", "a", "a", "b", "c"]).0, "a");
        assert_eq!(run(&["é中"], &["xé", "é", "中z"]).0, "xé");
    }

    #[test]
    fn text_comes_out_as_soon_as_it_can() {
        let mut filter = Stops::new(vec!["\n\nQ:".into()]).unwrap();
        assert_eq!(filter.push("a\n"), "a");
        assert_eq!(filter.push("\n"), "");
        assert_eq!(filter.push("b"), "\n\nb");
        assert_eq!(filter.push("\n\nQ: more"), "");
        assert_eq!((filter.push("c"), filter.finish()), (String::new(), String::new()));
    }

    #[test]
    fn of_several_the_first_to_end_counts() {
        for pieces in [&["xabcd"][..], &["x", "a", "b", "c", "d"], &["xab", "cd"]] {
            assert_eq!(run(&["abcd", "bc"], pieces), ("xa".into(), Some("bc".into())));
            assert_eq!(run(&["bc", "abc"], pieces), ("x".into(), Some("abc".into())));
        }
        assert_eq!(run(&[], &["all", " of it"]).0, "all of it");
        assert!(Stops::new(vec!["a".into(), String::new()]).is_err());
    }
}
