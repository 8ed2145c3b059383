//! Which rows of which expert are worked on together, and in which order.

use std::ops::Range;

use super::SLAB;

/// Bytes that the codes of the routed rows of one unit may take: they are
/// walked once per tile of weight rows, out of the second cache.
const ROUTED_BYTES: usize = 512 << 10;
/// Units per thread that the work is cut into, so that threads end together.
const UNITS_PER_THREAD: usize = 12;
/// What decoding a weight costs, in products.
const DECODE: usize = 24;
/// The same where one routed row meets it as it is decoded.
const DECODE_ONE: usize = 3;
/// Products of a launch that are done before another thread would have come: about 30 us.
const FEW: usize = 4 << 20;

/// Some weight rows of one expert times some of its routed rows.
pub(super) struct Unit {
    pub expert: usize,
    pub rows: Range<usize>,
    pub weight_rows: Range<usize>,
}

/// Routed rows of one expert that are worked on together.
pub(super) struct Part {
    expert: usize,
    rows: Range<usize>,
    /// The first of its units.
    first: usize,
    /// Weight rows of each of its units.
    span: usize,
}

/// All units of a launch.
pub(super) struct Plan {
    parts: Vec<Part>,
    units: usize,
    weight_rows: usize,
    /// Threads that the work pays for.
    threads: usize,
}

/// The most routed rows of a part.
fn most_rows(cols: usize) -> usize {
    // Codes are two bytes at most.
    (ROUTED_BYTES / (2 * cols.next_multiple_of(SLAB))).clamp(16, 512)
}

impl Plan {
    /// The most parts that [`new`](Self::new) cuts these rows into.
    pub(super) fn most_parts(bounds: &[u32], cols: usize) -> usize {
        let most = most_rows(cols);
        bounds.windows(2).map(|bounds| ((bounds[1] - bounds[0]) as usize).div_ceil(most)).sum()
    }

    /// Cuts the rows that `bounds` gives each expert; experts without rows get no unit. `parts`
    /// has room for them.
    pub(super) fn new(
        mut parts: Vec<Part>,
        bounds: &[u32],
        weight_rows: usize,
        cols: usize,
        tile_rows: usize,
        threads: usize,
    ) -> Self {
        let most = most_rows(cols);
        for (expert, bounds) in bounds.windows(2).enumerate() {
            let rows = bounds[0] as usize..bounds[1] as usize;
            if rows.is_empty() {
                continue;
            }
            // Parts of about one size: a short last one would decode for nothing.
            let size = rows.len().div_ceil(rows.len().div_ceil(most));
            for start in rows.clone().step_by(size) {
                let rows = start..rows.end.min(start + size);
                parts.push(Part { expert, rows, first: 0, span: 0 });
            }
        }
        // Heavy ones first: the light ones then fill the gaps at the end.
        parts.sort_unstable_by_key(|part| (std::cmp::Reverse(part.rows.len()), part.rows.start));
        let cost = |part: &Part| match part.rows.len() {
            1 => 1 + DECODE_ONE,
            rows => rows + DECODE,
        };
        let total = parts.iter().map(cost).sum::<usize>() * weight_rows;
        let threads = if total.saturating_mul(cols) <= FEW { 1 } else { threads };
        let target = total / (threads * UNITS_PER_THREAD);
        let mut units = 0;
        for part in &mut parts {
            let span = if threads == 1 { weight_rows } else { target / cost(part) };
            let spans = weight_rows.div_ceil(span.clamp(tile_rows, weight_rows.max(tile_rows)));
            part.span = weight_rows.div_ceil(spans).next_multiple_of(tile_rows);
            part.first = units;
            units += weight_rows.div_ceil(part.span);
        }
        Self { parts, units, weight_rows, threads }
    }

    pub(super) fn units(&self) -> usize {
        self.units
    }

    /// Whether one thread is done before another would have come.
    pub(super) fn is_small(&self) -> bool {
        self.threads == 1
    }

    /// The rows of the largest unit.
    pub(super) fn most_rows(&self) -> usize {
        self.parts.first().map_or(0, |part| part.rows.len())
    }

    pub(super) fn unit(&self, i: usize) -> Unit {
        let part = &self.parts[self.parts.partition_point(|part| part.first <= i) - 1];
        let start = (i - part.first) * part.span;
        Unit {
            expert: part.expert,
            rows: part.rows.clone(),
            weight_rows: start..self.weight_rows.min(start + part.span),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn units_cover_every_product_once(
            counts in proptest::collection::vec(prop_oneof![Just(0usize), 1usize..2000], 1..20),
            weight_rows in 1usize..300,
            cols in 1usize..9000,
            tile_rows in prop_oneof![Just(16usize), Just(32)],
            threads in 1usize..9,
        ) {
            let mut bounds = vec![0u32];
            for count in &counts {
                bounds.push(bounds.last().unwrap() + *count as u32);
            }
            let plan = Plan::new(Vec::new(), &bounds, weight_rows, cols, tile_rows, threads);
            prop_assert!(plan.parts.len() <= Plan::most_parts(&bounds, cols));
            let rows = *bounds.last().unwrap() as usize;
            let mut seen = vec![0usize; rows];
            for i in 0..plan.units() {
                let unit = plan.unit(i);
                prop_assert!(unit.rows.len() <= plan.most_rows());
                prop_assert!(!unit.rows.is_empty() && !unit.weight_rows.is_empty());
                prop_assert!(unit.rows.start >= bounds[unit.expert] as usize);
                prop_assert!(unit.rows.end <= bounds[unit.expert + 1] as usize);
                prop_assert_eq!(unit.weight_rows.start % tile_rows, 0);
                prop_assert!(unit.weight_rows.end <= weight_rows);
                for row in unit.rows {
                    seen[row] += unit.weight_rows.len();
                }
            }
            prop_assert!(seen.iter().all(|&n| n == weight_rows));
        }
    }
}
