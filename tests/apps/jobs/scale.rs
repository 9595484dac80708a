//! The model of whole jobs in virtual time (`shmem-model`) beside jobs: what it counts is what they count.

use shmem_model::scale::{Connect, Costs, Machine, Scope, Shape, run};
use shmem_testkit::Job;

use crate::programs::{HELLO, SHMRUN};

/// Connections do not depend on what things cost, nor on who comes first.
#[test]
fn the_model_has_the_connections_of_jobs() {
    for (nodes, per_node, connect, setting) in [
        (4, 16, Connect::OnDemand, "ondemand"),
        (16, 4, Connect::OnDemand, "ondemand"),
        (4, 8, Connect::Static, "static"),
    ] {
        let shape = Shape {
            nodes,
            per_node,
            degree: None,
            connect,
            scope: Scope::All,
            machine: Machine::Emulating(2),
        };
        let costs = Costs {
            turn: 1e6,
            fork: 1e5,
            queue_pair: 1e4,
            ..Costs::default()
        };
        let model = run(shape, costs);
        let options = format!("-n {} --nodes {nodes}", shape.pes());
        let job = Job::reported(SHMRUN, &options, &[HELLO]).env("SHMEM_CONNECT", setting);
        let outcome = job.run().well().expect("a job that ends well");
        let found = outcome.report.expect("a report").figure("connections");
        let expected = (
            2.0 * model.connections as f64,
            f64::from(model.most_connections),
        );
        assert_eq!((found.sum, found.max), expected, "{shape:?}");
    }
}
