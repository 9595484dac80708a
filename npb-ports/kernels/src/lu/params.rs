//! The definition of LU: sizes, time steps and reference results of each class.

use crate::adi::constants::EQUATIONS;
use crate::adi::scheme;
use crate::class::Class;

/// Over-relaxation of both sweeps.
pub const OMEGA: f64 = 1.2;

/// The definition of LU for one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// What BT and SP have, too.
    pub flow: scheme::Params,
    /// The reference's surface integral.
    pub surface: f64,
}

impl Params {
    /// The definition of `class`.
    #[must_use]
    pub fn of(class: Class) -> Self {
        let (n, iterations, dt) = match class {
            Class::S => (12, 50, 0.5),
            Class::W => (33, 300, 1.5e-3),
            Class::A => (64, 250, 2.0),
            Class::B => (102, 250, 2.0),
            Class::C => (162, 250, 2.0),
            Class::D => (408, 300, 1.0),
            Class::E => (1020, 300, 0.5),
            Class::F => (2560, 300, 0.2),
        };
        let (residual, error, surface) = RESULTS[class.index()];
        let flow = scheme::Params {
            n,
            iterations,
            dt,
            residual,
            error,
        };
        Self { flow, surface }
    }

    /// Floating point operations that count for the rate. As the reference programs define it, a
    /// polynomial in the points a side, whatever a program really does.
    #[must_use]
    pub fn operations(&self) -> f64 {
        let n = self.flow.n as f64;
        let step = ((1984.77 * n - 10923.3) * n + 27770.9) * n - 144_010.0;
        f64::from(self.flow.iterations) * step
    }
}

/// Root mean squares of residual and error after the last step, and the surface integral.
type Results = ([f64; EQUATIONS], [f64; EQUATIONS], f64);

/// By class.
#[rustfmt::skip]
const RESULTS: [Results; Class::ALL.len()] = [
    // S
    ([1.619_634_321_097_670_3e-2, 2.197_674_516_482_132e-3, 1.517_992_765_339_918_5e-3, 1.502_958_443_599_432_3e-3, 3.426_407_315_589_646e-2],
     [6.422_331_995_796_092e-4, 8.414_434_204_734_792e-5, 5.858_826_961_648_518_7e-5, 5.847_422_259_515_735e-5, 1.310_334_791_411_129_4e-3],
     7.841_892_886_593_708),
    // W
    ([1.236_511_638_192e1, 1.317_228_477_799, 2.550_120_713_095, 2.326_187_750_252, 2.826_799_444_189e1],
     [4.867_877_144_216e-1, 5.064_652_880_982e-2, 9.281_818_101_96e-2, 8.570_126_542_733e-2, 1.084_277_417_792],
     1.161_399_311_023e1),
    // A
    ([7.790_210_760_668_937e2, 6.340_276_525_969_287e1, 1.949_924_972_729_248e2, 1.784_530_116_041_853_8e2, 1.838_476_034_946_424_8e3],
     [2.996_408_568_547_194_3e1, 2.819_457_636_500_335, 7.347_341_269_877_474, 6.713_922_568_777_705, 7.071_531_568_839_258e1],
     2.603_092_560_488_627_8e1),
    // B
    ([3.553_267_296_998_273_7e3, 2.621_475_079_531_069e2, 8.833_372_185_095_219e2, 7.781_277_473_942_527e2, 7.308_796_959_254_531e3],
     [1.140_117_638_021_270_9e2, 8.109_896_365_542_157, 2.848_059_731_769_830_8e1, 2.590_539_456_783_294e1, 2.605_490_750_485_741_4e2],
     4.788_716_270_330_823e1),
    // C
    ([1.037_669_803_235_378_5e4, 8.922_124_588_010_086e2, 2.562_388_145_826_608_7e3, 2.191_943_438_578_314_3e3, 1.780_780_572_610_612e4],
     [2.159_863_997_169_492_8e2, 1.557_895_592_398_636e1, 5.413_188_630_772_078e1, 4.822_626_431_540_454e1, 4.559_029_100_432_503_6e2],
     6.664_045_535_721_813e1),
    // D
    ([4.868_417_937_025e4, 4.696_371_050_071e3, 1.218_114_549_776e4, 1.033_801_493_461e4, 7.142_398_413_817e4],
     [3.752_393_004_482e2, 3.084_128_893_659e1, 9.434_276_905_469e1, 8.230_686_681_928e1, 7.002_620_636_21e2],
     8.334_101_392_503e1),
    // E
    ([2.099_641_687_874e5, 2.130_403_143_165e4, 5.319_228_789_371e4, 4.509_761_639_833e4, 2.932_360_006_59e5],
     [4.800_572_578_333e2, 4.221_993_400_184e1, 1.210_851_906_824e2, 1.047_888_986_77e2, 8.363_028_257_389e2],
     9.512_163_272_273e1),
    // F
    ([8.505_125_358_152e5, 8.774_655_318_044e4, 2.167_258_198_851e5, 1.838_245_257_371e5, 1.175_556_512_415e6],
     [5.293_914_132_486e2, 4.784_861_621_068e1, 1.337_701_281_659e2, 1.154_215_049_655e2, 8.956_266_851_467e2],
     1.002_509_436_546e2),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_class_s() {
        let operations = Params::of(Class::S).operations();
        assert!((operations / 1e6 - 102.30).abs() < 0.01, "{operations}");
    }
}
