//! The one source of chance: SplitMix64 (Steele, Lea, Flood 2014). Equal seeds give equal worlds.

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Prng(u64);

impl Prng {
    /// A generator; near seeds give unrelated numbers.
    pub fn new(seed: u64) -> Prng {
        let mut prng = Prng(seed ^ 0x5349_4d55_4c41_5445);
        prng.number();
        prng
    }

    /// A generator of its own for one part of the world, so that what one part draws does not move the others.
    pub fn part(seed: u64, part: &str) -> Prng {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Prng::new(part.bytes().fold(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), mix))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `first` to `last`.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// Whether one of a hundred such throws in `percent` cases comes out.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// A word of letters and digits that nothing else in this world has.
    pub fn word(&mut self) -> String {
        format!("{:x}", self.number() >> 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_are_equal_and_near_ones_are_not() {
        let of = |seed| Prng::new(seed).number();
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        assert_ne!(Prng::part(7, "phones").number(), Prng::part(7, "network").number());
    }

    #[test]
    fn numbers_stay_in_their_bounds() {
        let mut prng = Prng::new(1);
        for _ in 0..1_000 {
            assert!((3..=5).contains(&prng.between(3, 5)));
            assert!(prng.below(2) < 2);
        }
        assert_eq!(prng.below(0), 0);
        assert!(!prng.chance(0) && prng.chance(100));
    }
}
