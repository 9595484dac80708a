//! The conformance suite on the simulated fabric, in a perfect network and in a bad one.

use shmem_ib::conformance::Fabric;
use shmem_ib::sim::{NetConfig, SimFabric, SimHca};

struct Sim(SimFabric);

impl Fabric for Sim {
    type H = SimHca;

    fn hcas(&self) -> [&SimHca; 2] {
        [&self.0.hcas()[0], &self.0.hcas()[1]]
    }

    fn advance(&self) {
        self.0.step();
    }
}

mod perfect {
    use super::*;
    shmem_ib::conformance_tests!(Sim(SimFabric::new(NetConfig::perfect(1), 2)));
}

mod bad {
    use super::*;

    const CONFIG: NetConfig = NetConfig {
        loss_ppm: 50_000,
        duplicate_ppm: 50_000,
        reorder_ppm: 50_000,
        jitter_ns: 5_000,
        ..NetConfig::perfect(2)
    };
    shmem_ib::conformance_tests!(reliable Sim(SimFabric::new(CONFIG, 2)));
}
