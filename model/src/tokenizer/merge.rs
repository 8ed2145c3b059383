//! The merge loop that both kinds of byte-pair encoding share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No symbol.
const NONE: u32 = u32::MAX;

/// A run of bytes that is one word, or not yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    /// The word; what stands for "no word" is the caller's.
    pub id: u32,
    pub start: u32,
    /// 0: it was merged into its left neighbour.
    pub len: u32,
    previous: u32,
    next: u32,
}

impl Symbol {
    /// The bytes it covers.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

/// Symbols of one piece, linked in their order, and the queue of pairs.
#[derive(Default)]
pub(super) struct Merger<P: Ord> {
    pub symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Pair<P>>>,
}

/// A pair to be merged; compared by priority, then by place.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pair<P: Ord> {
    priority: P,
    left: u32,
    right: u32,
    /// Length of both when the pair was queued.
    len: u32,
    merged: u32,
}

impl<P: Ord + Copy> Merger<P> {
    pub fn new() -> Self {
        Self { symbols: Vec::new(), queue: BinaryHeap::new() }
    }

    pub fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Appends a symbol.
    pub fn push(&mut self, id: u32, start: usize, len: usize) {
        // Texts of 2^31 bytes and more were refused.
        let at = self.symbols.len() as u32;
        let previous = at.checked_sub(1).unwrap_or(NONE);
        if let Some(last) = self.symbols.last_mut() {
            last.next = at;
        }
        self.symbols.push(Symbol {
            id,
            start: start as u32,
            len: len as u32,
            previous,
            next: NONE,
        });
    }

    /// Merges the pair of the smallest priority, the leftmost of equals, until no pair has one.
    /// `pair` gives a pair's priority and the merged word. In O(n log n): a merge adds two pairs.
    ///
    /// Symbols only grow, so a queued pair is stale exactly if one of the two was merged away or
    /// their length is another.
    pub fn run(&mut self, pair: impl Fn(&Symbol, &Symbol) -> Option<(P, u32)>) {
        for right in 1..self.symbols.len() as u32 {
            self.add(right - 1, right, &pair);
        }
        while let Some(Reverse(Pair { left: at, right, len, merged, .. })) = self.queue.pop() {
            let (left_symbol, right_symbol) =
                (self.symbols[at as usize], self.symbols[right as usize]);
            let stale = left_symbol.len == 0
                || right_symbol.len == 0
                || left_symbol.len + right_symbol.len != len
                || left_symbol.next != right;
            if stale {
                continue;
            }
            let next = right_symbol.next;
            self.symbols[right as usize].len = 0;
            let left = &mut self.symbols[at as usize];
            (left.id, left.len, left.next) = (merged, len, next);
            let previous = left.previous;
            if next != NONE {
                self.symbols[next as usize].previous = at;
                self.add(at, next, &pair);
            }
            if previous != NONE {
                self.add(previous, at, &pair);
            }
        }
    }

    fn add(&mut self, left: u32, right: u32, pair: &impl Fn(&Symbol, &Symbol) -> Option<(P, u32)>) {
        let (a, b) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        if let Some((priority, merged)) = pair(a, b) {
            let len = a.len + b.len;
            self.queue.push(Reverse(Pair { priority, left, right, len, merged }));
        }
    }

    /// The symbols that are left, in order.
    pub fn rest(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|symbol| symbol.len > 0)
    }
}
