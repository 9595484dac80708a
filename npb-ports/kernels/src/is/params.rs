//! Problem sizes, and where some keys must end up.

use crate::class::Class;

/// Rankings in the timed region.
pub const ITERATIONS: u32 = 10;

/// Keys whose ranks are verified in each iteration.
pub const TESTS: usize = 5;

/// The definition of a problem class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The class.
    pub class: Class,
    /// There are 2^n keys.
    pub log_keys: u32,
    /// They are less than 2^n, 16 or more.
    pub log_limit: u32,
    /// Their range is cut into 2^n buckets; a PE owns whole ones.
    pub log_buckets: u32,
    /// Places of keys whose ranks are verified, and what their ranks are about.
    tests: [(u64, i64); TESTS],
}

impl Params {
    /// The parameters of `class`. There is no class F.
    #[must_use]
    pub fn of(class: Class) -> Option<Self> {
        let ([log_keys, log_limit, log_buckets], places, ranks) = match class {
            Class::S => (
                [16, 11, 9],
                [48427, 17148, 23627, 62548, 4431],
                [0, 18, 346, 64917, 65463],
            ),
            Class::W => (
                [20, 16, 10],
                [357773, 934767, 875723, 898999, 404505],
                [1249, 11698, 1039987, 1043896, 1048018],
            ),
            Class::A => (
                [23, 19, 10],
                [2112377, 662041, 5336171, 3642833, 4250760],
                [104, 17523, 123928, 8288932, 8388264],
            ),
            Class::B => (
                [25, 21, 10],
                [41869, 812306, 5102857, 18232239, 26860214],
                [33422937, 10244, 59149, 33135281, 99],
            ),
            Class::C => (
                [27, 23, 10],
                [44172927, 72999161, 74326391, 129606274, 21736814],
                [61147, 882988, 266290, 133997595, 133525895],
            ),
            Class::D => (
                [31, 27, 10],
                [1317351170, 995930646, 1157283250, 1503301535, 1453734525],
                [1, 36538729, 1978098519, 2145192618, 2147425337],
            ),
            Class::E => (
                [35, 31, 10],
                [
                    21492309536,
                    24606226181,
                    12608530949,
                    4065943607,
                    3324513396,
                ],
                [3, 27580354, 3248475153, 30048754302, 31485259697],
            ),
            Class::F => return None,
        };
        Some(Self {
            class,
            log_keys,
            log_limit,
            log_buckets,
            tests: std::array::from_fn(|i| (places[i], ranks[i])),
        })
    }

    /// Keys of all PEs.
    #[must_use]
    pub fn keys(&self) -> u64 {
        1 << self.log_keys
    }

    /// Buckets.
    #[must_use]
    pub fn buckets(&self) -> usize {
        1 << self.log_buckets
    }

    /// The bucket of a key is the key, shifted to the right by so many bits.
    #[must_use]
    pub fn shift(&self) -> u32 {
        self.log_limit - self.log_buckets
    }

    /// Places in the sequence of the keys whose ranks are verified.
    #[must_use]
    pub fn tested(&self) -> [u64; TESTS] {
        self.tests.map(|(place, _)| place)
    }

    /// The rank of a tested key in an iteration, from 1. Each iteration makes one key small and one large, so that ranks
    /// move as keys are above or below those that were there before.
    #[must_use]
    pub fn rank(&self, test: usize, iteration: u32) -> u64 {
        let rises = match self.class {
            Class::W | Class::D => test < 2,
            Class::B => matches!(test, 1 | 2 | 4),
            _ => test < 3,
        };
        let i = i64::from(iteration);
        let steps = match self.class {
            Class::A => i - 1,
            Class::W if rises => i - 2,
            Class::E => i - 2,
            _ => i,
        };
        let falls_back = match (self.class, test, iteration) {
            (Class::E, 2, 5..) => 2,
            (Class::E, 2, 3..) => 1,
            _ => 0,
        };
        let change = if rises { steps - falls_back } else { -steps };
        self.tests[test].1.saturating_add(change).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_classes_but_the_largest() {
        for class in Class::ALL {
            let Some(params) = Params::of(class) else {
                assert_eq!(class, Class::F);
                continue;
            };
            let (keys, limit) = (params.keys(), 1 << params.log_limit);
            assert!(params.buckets() <= limit && params.shift() < 32);
            assert!(params.tested().into_iter().all(|place| place < keys));
            for iteration in 1..=ITERATIONS {
                assert!((0..TESTS).all(|test| params.rank(test, iteration) < keys));
            }
        }
    }

    #[test]
    fn ranks_move_as_published() {
        let ranks = |class, iteration| {
            let params = Params::of(class).unwrap();
            std::array::from_fn(|test| params.rank(test, iteration))
        };
        assert_eq!(ranks(Class::S, 1), [1, 19, 347, 64916, 65462]);
        assert_eq!(ranks(Class::W, 1), [1248, 11697, 1039986, 1043895, 1048017]);
        assert_eq!(ranks(Class::A, 10), [113, 17532, 123937, 8288923, 8388255]);
        assert_eq!(ranks(Class::B, 2), [33422935, 10246, 59151, 33135279, 101]);
        assert_eq!(
            ranks(Class::C, 3),
            [61150, 882991, 266293, 133997592, 133525892]
        );
        assert_eq!(
            ranks(Class::D, 1),
            [2, 36538730, 1978098518, 2145192617, 2147425336]
        );
        let e = |iteration| ranks(Class::E, iteration);
        assert_eq!(e(2), [3, 27580354, 3248475153, 30048754302, 31485259697]);
        assert_eq!(e(3)[2..4], [3248475153, 30048754301]);
        assert_eq!(e(5), [6, 27580357, 3248475154, 30048754299, 31485259694]);
    }
}
