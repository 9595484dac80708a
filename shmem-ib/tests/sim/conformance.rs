//! The conformance suite on the simulated fabric, in a perfect network, in a bad one, and with streams.

use shmem_ib::soft::stream::StreamConfig;
use shmem_ib::verbs::Mtu;
use shmem_ib_kit::conformance::{Beyond, Fabric};
use shmem_ib_kit::sim::{NetConfig, PipeConfig, SimFabric, SimHca};

struct Sim(SimFabric);

impl Fabric for Sim {
    type H = SimHca;

    fn hcas(&self) -> [&SimHca; 2] {
        [&self.0.hcas()[0], &self.0.hcas()[1]]
    }

    fn beyond(&self) -> Beyond {
        Beyond::SOFTWARE
    }

    fn advance(&self) {
        self.0.step();
    }
}

mod perfect {
    use super::*;

    const fn config(mtu: Mtu) -> NetConfig {
        NetConfig {
            mtu,
            ..NetConfig::perfect(1)
        }
    }
    shmem_ib_kit::conformance_matrix!(|mtu| Sim(SimFabric::new(config(mtu), 2)));
}

/// Every WRITE and READ goes by a stream as soon as there is one, and streams break.
mod streams {
    use super::*;

    fn open() -> Sim {
        let pipes = PipeConfig {
            break_ppm: 20_000,
            portion: 5000,
            ..PipeConfig::reliable(3, StreamConfig::from_bytes(1))
        };
        let config = NetConfig {
            mtu: Mtu::M1024,
            ..NetConfig::perfect(3)
        };
        Sim(SimFabric::with_streams(config, 2, pipes))
    }
    shmem_ib_kit::conformance_tests!(open());
}

mod bad {
    use super::*;

    const fn config(mtu: Mtu) -> NetConfig {
        NetConfig {
            loss_ppm: 50_000,
            duplicate_ppm: 50_000,
            reorder_ppm: 50_000,
            jitter_ns: 5_000,
            mtu,
            ..NetConfig::perfect(2)
        }
    }
    shmem_ib_kit::conformance_matrix!(reliable | mtu | Sim(SimFabric::new(config(mtu), 2)));
}
