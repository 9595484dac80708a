//! PMI: requests as bytes, a node's server that answers them, and the node's key-value store in shared memory.
//!
//! Processor time, in one process, without sockets.

mod cpu_time;
mod setting;

use std::hint::black_box;

use cpu_time::CpuTime;
use criterion::Criterion;
use shmem_node::hca_address::HcaAddresses;
use shmem_node::kvs::StorePlan;
use shmem_node::segment::{JobFacts, NodeSegment};
use shmem_node::settings::{HeapCommit, HeapPages, StoreKind};
use shmem_node::template::marker::StaticsRoom;
use shmem_pmi::server::{Job, NodePlace, NodeServer, Output};
use shmem_pmi::tree::Tree;
use shmem_pmi::wire::{Command, v2};

/// Keys of a store, as a job's PEs put them.
const KEYS: usize = 1024;

fn main() {
    let mut criterion = setting::criterion(CpuTime);
    requests(&mut criterion);
    servers(&mut criterion);
    stores(&mut criterion);
    criterion.final_summary();
}

fn key(n: usize) -> String {
    format!("bc-{n}-seg0")
}

/// A put of PMI-1, and the same of PMI-2 behind its header.
fn puts() -> (Vec<u8>, Vec<u8>) {
    let (key, value) = (key(77), [b'v'; 64]);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let put = Command::KvsPut {
        job_id: Some("job.0".into()),
        key: key.as_bytes().into(),
        value: value[..].into(),
    };
    put.encode_line(&mut first).expect("a short request");
    let request = v2::Request::new(put);
    request.encode(&mut second).expect("a short request");
    (first, second)
}

/// From bytes to requests.
fn requests(criterion: &mut Criterion<CpuTime>) {
    let (first, second) = puts();
    let mut group = criterion.benchmark_group("request");
    group.bench_function("PMI-1", |b| {
        let line = first.strip_suffix(b"\n").expect("it is a line");
        b.iter(|| Command::decode_line(black_box(line)).map(|put| put.name()));
    });
    group.bench_function("PMI-2", |b| {
        let body = &second[v2::HEADER_LEN..];
        b.iter(|| v2::Request::decode(black_box(body)).map(|put| put.command.name()));
    });
    group.finish();
}

/// Gets, from the request's bytes to those of its answer, in a server of one PE that has put something.
fn servers(criterion: &mut Criterion<CpuTime>) {
    let (first, second) = puts();
    let message = |body: &str| format!("{:<6}{body}", body.len()).into_bytes();
    let dialogues = [
        (
            "PMI-1",
            [
                b"cmd=init pmi_version=1 pmi_subversion=1\n".to_vec(),
                first,
                b"cmd=barrier_in\n".to_vec(),
                format!("cmd=get kvsname=job.0 key={}\n", key(77)).into_bytes(),
            ],
        ),
        (
            "PMI-2",
            [
                b"cmd=init pmi_version=2 pmi_subversion=0\n13    cmd=fullinit;".to_vec(),
                second,
                message("cmd=kvs-fence;"),
                message(&format!("cmd=kvs-get;key={};", key(77))),
            ],
        ),
    ];
    let mut group = criterion.benchmark_group("server");
    for (name, requests) in dialogues {
        let job = Job {
            id: "job.0".into(),
            size: 1,
            ..Job::default()
        };
        let place = NodePlace::in_tree(&Tree::new(1, 2), 0, &[0]);
        let mut server = NodeServer::new(job, place).expect("a place in the job");
        let mut ask = |bytes: &[u8]| {
            server.handle_client_bytes(0, bytes);
            let mut answer = Vec::new();
            while let Some(output) = server.poll_output() {
                match output {
                    Output::ToClient { bytes, .. } => answer = bytes,
                    other => panic!("no answer: {other:?}"),
                }
            }
            answer
        };
        let answers = requests.each_ref().map(|request| ask(request));
        let [.., get] = &requests;
        let [.., answer] = &answers;
        let value = answer.windows(64).find(|part| *part == [b'v'; 64]);
        assert!(value.is_some(), "the answer has the value");
        group.bench_function(format!("get/{name}"), |b| b.iter(|| ask(black_box(get))));
    }
    group.finish();
}

/// A node of one PE with a store of this kind.
fn segment(kind: StoreKind) -> NodeSegment {
    let facts = JobFacts {
        job_id: [0; 16],
        job_key: [0; 32],
        node_of: &[0],
        n_nodes: 1,
        node: 0,
        on_machine: 1,
        heap_size: 4096,
        statics: StaticsRoom::default(),
        heap_commit: HeapCommit::Lazy,
        heap_pages: HeapPages::Default,
        store: StorePlan {
            kind,
            log_len: 16 << 20,
        },
        hca_addresses: HcaAddresses::shared(std::net::Ipv4Addr::LOCALHOST.into()),
        spins: 0,
        report: false,
        calls: 0,
    };
    NodeSegment::create(&facts).expect("a node segment")
}

/// The store that PEs read: gets of each kind, and puts of the kinds that replace a value where it lies. (The kind
/// `shared` keeps what is replaced, so that it would be full soon.)
fn stores(criterion: &mut Criterion<CpuTime>) {
    const KINDS: [(&str, StoreKind); 3] = [
        ("shared", StoreKind::Shared),
        ("rwlock", StoreKind::RwLock),
        ("2n", StoreKind::TwoN),
    ];
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let mut group = criterion.benchmark_group("store");
    for (name, kind) in KINDS {
        let mut segment = segment(kind);
        let mut writer = segment.kvs_writer().expect("it is the first writer");
        for key in &keys {
            let put = writer.insert(key.as_bytes(), &[b'v'; 64]);
            put.expect("there is room");
        }
        let reader = segment.view().kvs(0);
        let mut turns = (0..KEYS).cycle();
        let mut next = || keys[turns.next().unwrap_or(0)].as_bytes();
        group.bench_function(format!("get/{name}"), |b| {
            b.iter(|| {
                reader
                    .read(next(), <[u8]>::len)
                    .expect("every key is there")
            });
        });
        if kind == StoreKind::Shared {
            continue;
        }
        let mut value = [b'v'; 64];
        group.bench_function(format!("put/{name}"), |b| {
            b.iter(|| {
                value[0] = value[0].wrapping_add(1);
                writer.insert(next(), &value).expect("there is room")
            });
        });
    }
    group.finish();
}
