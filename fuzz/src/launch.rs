//! Bytes of the links between launch agents.

use shmem_launch::census::text::Job;
use shmem_launch::census::{
    Census, Compared, Doing, Example, Group, Life, Members, Place, Places, Process, RankSet, Span,
    What,
};
use shmem_launch::frame::{
    Command, Frame, FrameReader, FromServer, InputTo, JobOptions, Launch, Machine, Machines,
    PmixJob, PmixPlan, SpawnMode, SpawnedJob, Spawner, ToServer,
};
use shmem_launch::remote::RemoteShell;
use shmem_node::hca_address::AddressPlan;
use shmem_node::template::marker::StaticsRoom;
use shmem_node::waiting::{Collective, Comparison, Form, Number, Remote, TeamKind};
use shmem_pmi::question::{Answer, Question, SpawnCommand, SpawnRequest};

/// However the link is cut, the same frames come out; a frame that is understood is encoded to
/// bytes that mean the same.
///
/// # Panics
/// If not.
pub fn launch_frame(data: &[u8]) {
    let run = |cut: usize| {
        let mut reader = FrameReader::default();
        let mut seen = Vec::new();
        for mut piece in data.chunks(cut.max(1)) {
            loop {
                match reader.next_frame(&mut piece) {
                    Ok(Some(content)) => seen.push(Ok(content.to_vec())),
                    Ok(None) => break,
                    Err(_) => {
                        seen.push(Err(()));
                        return seen;
                    }
                }
            }
        }
        seen
    };
    let whole = run(data.len());
    let cut = usize::from(data.first().copied().unwrap_or(0)) % 16 + 1;
    assert_eq!(whole, run(cut));
    for content in whole.into_iter().flatten().chain([data.to_vec()]) {
        if let Ok(frame) = Frame::decode(&content) {
            if let Frame::Counted { census, .. } = &frame {
                census.text(Job {
                    n_pes: 64,
                    n_nodes: 8,
                    hosts: &[],
                    age: 1,
                });
            }
            let mut out = Vec::new();
            frame.encode(&mut out);
            assert_eq!(
                format!("{:?}", Frame::decode(&out[4..])),
                format!("Ok({frame:?})")
            );
        }
        if let Ok(launch) = Launch::decode(&content) {
            let again = Launch::decode(&launch.encode()).expect("it was encoded here");
            assert_eq!(format!("{again:?}"), format!("{launch:?}"));
        }
        if let Ok(job) = SpawnedJob::decode(&content) {
            assert_eq!(SpawnedJob::decode(&job.encode()), Ok(job));
        }
    }
}

/// A job on two hosts.
fn launch() -> Launch {
    Launch {
        node: 1,
        n_nodes: 2,
        n_pes: 3,
        degree: 16,
        job_id: [1; 16],
        job_key: [2; 32],
        machines: Some(Machines {
            hosts: [("a", 1), ("b", 2)]
                .map(|(name, pes)| Machine {
                    name: name.into(),
                    pes,
                    target: (pes == 2).then(|| "2".into()),
                })
                .into(),
            shell: RemoteShell {
                words: vec!["ssh".into()],
                shmrun: b"shmrun".to_vec(),
                timeout_ns: 1 << 35,
                ..RemoteShell::default()
            },
        }),
        addresses: AddressPlan::Routed {
            anchor: "10.5.0.1".parse().ok(),
        },
        statics: StaticsRoom {
            bytes: 8192,
            layout: 7,
        },
        spins: None,
        options: JobOptions {
            report: true,
            ..JobOptions::default()
        },
        spawn: SpawnMode::Template { may_execute: true },
        commands: vec![Command {
            procs: 3,
            program: b"./ring".to_vec(),
            argv: vec![b"ring".to_vec()],
            dir: None,
            env: vec![(b"B".to_vec(), b"c".to_vec())],
        }],
        input: InputTo::Rank(0),
        ignored: 0,
        spawner: Some(Spawner {
            job_id: "1.0".into(),
            preputs: vec![(b"key".to_vec(), b"value".to_vec())],
        }),
        pmix: Some(PmixPlan {
            why: "so".into(),
            library: Some("/l/libpmix.so.2".into()),
        }),
        env: vec![(b"A".to_vec(), b"b".to_vec())],
        cwd: b"/".to_vec(),
        file_mask: 0o22,
        soft_limits: Vec::new(),
    }
}

/// PEs that do different things.
fn census() -> Census {
    let waits = |what, within| Doing::Waits {
        what,
        within,
        process: None,
    };
    let barrier = What::Collective {
        call: Collective::Barrier,
        kind: TeamKind::Split,
        members: Members::Strided {
            first: 1,
            stride: 2,
            size: 32,
        },
        number: Some(7),
    };
    let word = What::Memory {
        form: Form::Until,
        place: Place::Heap(64),
        count: 1,
        compared: Some(Compared {
            number: Number::I32,
            cmp: Comparison::Ge,
            value: 7,
            now: Some(0),
        }),
    };
    let quiet = What::Remote {
        what: Remote::Quiet,
        pe: Some(9),
    };
    let computes = Doing::Runs {
        life: Life::Running,
        process: Some(Process {
            state: b'S',
            place: "hrtimer_nanosleep".into(),
        }),
        begun: Some(6),
    };
    let doing = [waits(barrier, Some(quiet)), waits(word, None), computes];
    let groups = (0u32..).zip(doing).map(|(rank, doing)| Group {
        doing,
        ranks: RankSet::range(10 * rank..10 * rank + 8),
        example: Example {
            rank: 10 * rank,
            node: 1,
            pid: 4711,
        },
        age: Some(Span::of(1 << 33)),
        cpu: None,
        begun: Span::of(6),
        for_whom: RankSet::range(20..21),
        operations: 3,
        places: Places::of("src/sort.rs:14".into()),
    });
    Census::of(1, groups)
}

/// Some frames, one after the other.
#[must_use]
pub fn launch_frame_seeds() -> Vec<Vec<u8>> {
    let launch = launch().encode();
    let job = SpawnedJob {
        number: 2,
        spawner: "1.0".into(),
        request: SpawnRequest {
            commands: vec![SpawnCommand {
                program: b"./child".to_vec(),
                args: vec![b"x".to_vec()],
                procs: 2,
                info: vec![(b"wdir".to_vec(), b"/".to_vec())],
            }],
            preputs: vec![(b"key".to_vec(), b"value".to_vec())],
        },
    };
    let question = Question::Spawn(job.request.clone()).encode();
    let answer = Answer::Done.encode();
    let job = job.encode();
    let frames = [
        Frame::Launch(&launch),
        Frame::Go,
        Frame::Credit(70_000),
        Frame::Stdin(b"input"),
        Frame::Signal(15),
        Frame::Stop { grace_ns: 1 << 30 },
        Frame::Done(Box::default()),
        Frame::Pmi(b"a message"),
        Frame::Ask {
            asker: 1,
            ticket: 2,
            question: &question,
        },
        Frame::Answer {
            asker: 1,
            ticket: 2,
            answer: &answer,
        },
        Frame::Job(&job),
        Frame::Respawn { rank: 1, count: 1 },
        Frame::Disconnected,
        Frame::Leaving,
        Frame::Count {
            number: 3,
            budget_ms: 4000,
        },
        Frame::Counted {
            number: 3,
            census: Box::new(census()),
        },
        Frame::Trace {
            number: 3,
            pes: vec![Example {
                rank: 4,
                node: 1,
                pid: 77,
            }],
            budget_ms: 9000,
        },
        Frame::Traced {
            number: 3,
            rank: 4,
            text: "#0 main".into(),
        },
    ];
    let mut stream = Vec::new();
    let mut seeds = Vec::new();
    for frame in frames {
        let start = stream.len();
        frame.encode(&mut stream);
        seeds.push(stream[start..].to_vec());
    }
    seeds.push(stream);
    seeds
}

/// A message between an agent and its PMIx server that is understood is encoded to bytes that mean the same.
///
/// # Panics
/// If not.
pub fn pmix_server(data: &[u8]) {
    if let Ok(message) = ToServer::decode(data) {
        let mut out = Vec::new();
        message.encode(&mut out);
        assert_eq!(ToServer::decode(&out[4..]).as_ref(), Ok(&message));
    }
    if let Ok(message) = FromServer::decode(data) {
        let mut out = Vec::new();
        message.encode(&mut out);
        // Of words only the beginning is sent.
        if !matches!(message, FromServer::Abort { .. }) {
            assert_eq!(FromServer::decode(&out[4..]).as_ref(), Ok(&message));
        }
    }
}

/// Such messages.
#[must_use]
pub fn pmix_server_seeds() -> Vec<Vec<u8>> {
    let job = PmixJob {
        namespace: "shmrun-1".into(),
        node: 1,
        nodes: vec![("a".into(), 2), ("b".into(), 3)],
        programs: vec![5],
        dir: "/tmp/x".into(),
        library: None,
    };
    let (id, status, rank, data) = (3, -46, 2, &b"blob"[..]);
    let to = [
        ToServer::Serve(job),
        ToServer::Fenced { id, status, data },
        ToServer::Lookup { id, rank },
    ];
    let from = [
        FromServer::Ready {
            common: vec![b"A=1".to_vec()],
            own: vec![vec![b"R=0".to_vec()], vec![b"R=1".to_vec()]],
        },
        FromServer::Abort {
            rank,
            status,
            message: "no".into(),
        },
        FromServer::Fence {
            id,
            ranks: vec![0, 2],
            data,
        },
        FromServer::PutBy { id, status, data },
    ];
    let content = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        encode(&mut out);
        out.split_off(4)
    };
    let to = to.iter().map(|message| content(&|out| message.encode(out)));
    let from = from
        .iter()
        .map(|message| content(&|out| message.encode(out)));
    to.chain(from).collect()
}
