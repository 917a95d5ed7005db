//! Chance as a value that is handed in: identifiers, name suffixes and jitter.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use uuid::Uuid;

/// The letters of generated name suffixes: those of the reference API server, which avoid vowels and look-alikes.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A source of randomness.
pub trait Random: Debug + Send + Sync {
    /// Sixty-four random bits.
    fn bits(&self) -> u64;

    /// A number from 0 (inclusive) to 1 (exclusive).
    fn fraction(&self) -> f64 {
        // The 53 bits that a double holds exactly.
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A random (version 4) identifier.
    fn uuid(&self) -> Uuid {
        let (high, low) = (self.bits(), self.bits());
        uuid::Builder::from_random_bytes(((u128::from(high) << 64) | u128::from(low)).to_be_bytes())
            .into_uuid()
    }

    /// A suffix of `length` letters for a generated name.
    fn suffix(&self, length: usize) -> String {
        (0..length)
            .map(|_| {
                let index = (self.bits() % SUFFIX_LETTERS.len() as u64) as usize;
                char::from(SUFFIX_LETTERS.get(index).copied().unwrap_or(b'x'))
            })
            .collect()
    }
}

/// A source that several parts share.
pub type SharedRandom = Arc<dyn Random>;

/// The operating system's randomness.
pub fn system() -> SharedRandom {
    Arc::new(SystemRandom)
}

#[derive(Debug)]
struct SystemRandom;

impl Random for SystemRandom {
    fn bits(&self) -> u64 {
        // A version 4 identifier carries 122 bits of the operating system's randomness; folding the two halves
        // leaves every bit of the result random, also where the version and variant are fixed.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        let (again, _) = Uuid::new_v4().as_u64_pair();
        high.rotate_left(32) ^ low ^ again
    }

    fn uuid(&self) -> Uuid {
        Uuid::new_v4()
    }
}

/// A repeatable source, for tests (SplitMix64).
#[derive(Debug)]
pub struct SeededRandom {
    state: Mutex<u64>,
}

impl SeededRandom {
    /// A source whose sequence follows from `seed`.
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(seed),
        })
    }
}

impl Random for SeededRandom {
    fn bits(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_identifiers() {
        let (one, two) = (SeededRandom::new(7), SeededRandom::new(7));
        assert_eq!(one.uuid(), two.uuid());
        assert_eq!(one.suffix(5), two.suffix(5));
        assert_eq!(one.uuid().get_version_num(), 4);
    }

    #[test]
    fn fractions_stay_below_one_and_suffixes_use_the_known_letters() {
        let random = SeededRandom::new(1);
        for _ in 0..1_000 {
            let fraction = random.fraction();
            assert!((0.0..1.0).contains(&fraction));
        }
        assert!(
            system()
                .suffix(64)
                .bytes()
                .all(|letter| SUFFIX_LETTERS.contains(&letter))
        );
        assert_ne!(system().uuid(), system().uuid());
    }
}
