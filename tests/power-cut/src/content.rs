//! What a file holds: what is safe of it, and what was done to it since.

use std::collections::{BTreeMap, HashMap};

/// What a disk writes whole.
const SECTOR: u64 = 512;

#[derive(Debug)]
pub(crate) enum Change {
    Write { offset: u64, data: Vec<u8> },
    Truncate(u64),
}

#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) safe: Vec<u8>,
    /// By the number of the operation.
    pub(crate) unsynced: Vec<(u64, Change)>,
}

impl Content {
    /// Makes safe what was done before an operation.
    pub(crate) fn sync(&mut self, before: u64) {
        let safe = self.unsynced.partition_point(|(sequence, _)| *sequence < before);
        for (_, change) in self.unsynced.drain(..safe) {
            apply(&mut self.safe, &change, |_| true);
        }
    }

    /// The content after a power cut; `below` chooses how many of so many changes survive.
    pub(crate) fn after(&self, below: &impl Fn(usize) -> usize) -> Vec<u8> {
        // For each sector, how many of the changes to it survive: it holds one of the contents that it has had.
        let mut touched: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, (_, change)) in self.unsynced.iter().enumerate() {
            if let Change::Write { offset, data } = change {
                for sector in offset / SECTOR..(offset + data.len() as u64).div_ceil(SECTOR) {
                    touched.entry(sector).or_default().push(index);
                }
            }
        }
        let last: HashMap<u64, Option<usize>> = touched
            .into_iter()
            .map(|(sector, indexes)| {
                let kept = below(indexes.len());
                (
                    sector,
                    kept.checked_sub(1).and_then(|last| indexes.get(last).copied()),
                )
            })
            .collect();
        let mut content = self.safe.clone();
        for (index, (_, change)) in self.unsynced.iter().enumerate() {
            let whole = matches!(change, Change::Truncate(_)) && below(1) == 1;
            apply(&mut content, change, |sector| match sector {
                Some(sector) => last
                    .get(&sector)
                    .copied()
                    .flatten()
                    .is_some_and(|last| index <= last),
                None => whole,
            });
        }
        content
    }
}

/// Applies a change as far as `survives` says of each of its sectors, or of a truncation as a whole.
fn apply(content: &mut Vec<u8>, change: &Change, survives: impl Fn(Option<u64>) -> bool) {
    match change {
        Change::Truncate(length) => {
            if survives(None) {
                content.resize(*length as usize, 0);
            }
        }
        Change::Write { offset, data } => {
            let mut at = *offset;
            let mut rest = data.as_slice();
            while !rest.is_empty() {
                let sector = at / SECTOR;
                let room = ((sector + 1) * SECTOR - at) as usize;
                let (part, behind) = rest.split_at(room.min(rest.len()));
                let end = at as usize + part.len();
                if survives(Some(sector)) {
                    if content.len() < end {
                        content.resize(end, 0);
                    }
                    if let Some(place) = content.get_mut(at as usize..end) {
                        place.copy_from_slice(part);
                    }
                }
                at = end as u64;
                rest = behind;
            }
        }
    }
}
