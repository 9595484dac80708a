//! Dialogues of PMI-1 as foreign clients and servers hold them, byte for byte. What the clients say
//! was recorded between MPICH 4.0.2 and Hydra 4.0.2.

use shmem_pmi::question::{Answer, NO_SUCH_NAME, Question};
use shmem_pmi::server::{Job, NodePlace, NodeServer, Output};
use shmem_pmi::tree::Tree;
use shmem_pmi::wire::Reply;
use shmem_pmi::wire::v1::{Decoder, Incoming};

/// A job on one node, a table of names, and no way to start anything but in words.
struct World {
    server: NodeServer,
    names: Vec<(Vec<u8>, Vec<u8>)>,
    spawned: Vec<Question>,
}

impl World {
    fn new(size: u32) -> Self {
        let job = Job {
            id: "kvs_3811_0_765958246_vm".into(),
            size,
            appnum: 0,
            process_mapping: format!("(vector,(0,1,{size}))"),
            attributes: vec![("universeSize".into(), "4".into())],
            ..Job::default()
        };
        let node_of_rank = vec![0; size as usize];
        let place = NodePlace::in_tree(&Tree::new(1, 2), 0, &node_of_rank);
        Self {
            server: NodeServer::new(job, place).unwrap(),
            names: Vec::new(),
            spawned: Vec::new(),
        }
    }

    /// What comes back, PE by PE, when PE `local` says `text`.
    fn say(&mut self, local: usize, text: &str) -> Vec<String> {
        self.server.handle_client_bytes(local, text.as_bytes());
        let mut replies = vec![String::new(); self.server.job().size as usize];
        while let Some(output) = self.server.poll_output() {
            match output {
                Output::ToClient { local, bytes } => {
                    replies[local] += std::str::from_utf8(&bytes).unwrap();
                }
                Output::Ask {
                    asker,
                    ticket,
                    question,
                } => {
                    let answer = self.answer(question);
                    self.server.handle_answer(asker, ticket, answer);
                }
                Output::Finalized { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        replies
    }

    fn answer(&mut self, question: Question) -> Answer {
        match question {
            Question::Publish { name, port } => {
                self.names.push((name, port));
                Answer::Done
            }
            Question::LookupName { name } => {
                match self.names.iter().find(|(known, _)| *known == name) {
                    Some((_, port)) => Answer::Port(port.clone()),
                    None => Answer::Refused {
                        rc: 1,
                        reason: NO_SUCH_NAME.into(),
                    },
                }
            }
            Question::Unpublish { name } => {
                self.names.retain(|(known, _)| *known != name);
                Answer::Done
            }
            spawn => {
                self.spawned.push(spawn);
                Answer::Spawned {
                    job_id: "kvs_1".into(),
                }
            }
        }
    }
}

/// One of two ranks, as far as it needs nobody else.
const ALONE: [(&str, &str); 7] = [
    (
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
    ),
    (
        "cmd=get_maxes\n",
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0\n",
    ),
    ("cmd=get_appnum\n", "cmd=appnum rc=0 appnum=0\n"),
    (
        "cmd=get_my_kvsname\n",
        "cmd=my_kvsname rc=0 kvsname=kvs_3811_0_765958246_vm\n",
    ),
    (
        "cmd=get kvsname=kvs_3811_0_765958246_vm key=PMI_process_mapping\n",
        "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))\n",
    ),
    ("cmd=get_universe_size\n", "cmd=universe_size rc=0 size=4\n"),
    (
        "cmd=get kvsname=kvs_3811_0_765958246_vm key=-bcast-1-0\n",
        "cmd=get_result rc=-1 msg=key_-bcast-1-0_not_found value=unknown\n",
    ),
];

#[test]
fn two_ranks_start_and_end() {
    let mut world = World::new(2);
    for rank in 0..2 {
        for (request, reply) in ALONE {
            assert_eq!(world.say(rank, request)[rank], reply);
        }
    }
    let barrier = |world: &mut World, first: usize| {
        assert_eq!(world.say(first, "cmd=barrier_in\n"), ["", ""]);
        let out = "cmd=barrier_out rc=0\n";
        assert_eq!(world.say(1 - first, "cmd=barrier_in\n"), [out, out]);
    };
    barrier(&mut world, 0);
    let name = "2F6465762F73686D2F6D706963685F736861725F746D70707A725A6863";
    let put = format!("cmd=put kvsname=kvs_3811_0_765958246_vm key=-bcast-1-0 value={name}\n");
    assert_eq!(world.say(0, &put)[0], "cmd=put_result rc=0 msg=success\n");
    // Not visible before the barrier, not even to who put it.
    let (get, nothing) = ALONE[6];
    assert_eq!(world.say(0, get)[0], nothing);
    assert_eq!(world.say(1, get)[1], nothing);
    barrier(&mut world, 1);
    let value = format!("cmd=get_result rc=0 msg=success value={name}\n");
    assert_eq!(world.say(1, get)[1], value);
    assert_eq!(world.say(0, get)[0], value);
    // Another value under the same key replaces the first one, after the next barrier.
    world.say(1, &put.replace(name, "new"));
    assert_eq!(world.say(0, get)[0], value);
    barrier(&mut world, 0);
    assert_eq!(world.say(0, get)[0], value.replace(name, "new"));
    for rank in 0..2 {
        let replies = world.say(rank, "cmd=finalize\n");
        assert_eq!(replies[rank], "cmd=finalize_ack rc=0\n");
    }
    assert!(world.server.is_idle());
}

#[test]
fn rank_and_size_over_a_port() {
    let mut world = World::new(2);
    assert_eq!(
        world.say(1, "cmd=initack pmiid=1\n")[1],
        "cmd=initack rc=0\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n"
    );
    for (request, reply) in ALONE {
        assert_eq!(world.say(1, request)[1], reply);
    }
    world
        .server
        .handle_client_bytes(0, b"cmd=initack pmiid=1\n");
    let outputs: Vec<_> = std::iter::from_fn(|| world.server.poll_output()).collect();
    let [
        Output::ToClient { local: 0, bytes },
        Output::ProtocolError { local: 0, text },
    ] = &outputs[..]
    else {
        panic!("{outputs:?}");
    };
    assert!(bytes.starts_with(b"cmd=initack rc=3 msg="));
    assert!(text.contains("calls itself PE 1"), "{text}");
}

#[test]
fn names() {
    let mut world = World::new(1);
    for (request, reply) in [
        ALONE[0],
        (
            "cmd=publish_name service=srv port=tag#0$host$port#1\n",
            "cmd=publish_result info=ok rc=0 msg=success\n",
        ),
        (
            "cmd=lookup_name service=srv\n",
            "cmd=lookup_result port=tag#0$host$port#1 info=ok rc=0 msg=success\n",
        ),
        (
            "cmd=lookup_name service=none\n",
            "cmd=lookup_result rc=1 msg=service_not_found\n",
        ),
        (
            "cmd=unpublish_name service=srv\n",
            "cmd=unpublish_result info=ok rc=0 msg=success\n",
        ),
        (
            "cmd=lookup_name service=srv\n",
            "cmd=lookup_result rc=1 msg=service_not_found\n",
        ),
    ] {
        assert_eq!(world.say(0, request), [reply]);
    }
}

/// Two programs, in the pieces in which MPICH writes them.
const SPAWN: [&str; 4] = [
    "mcmd=spawn\nnprocs=1\nexecname=./s\ntotspawns=2\nspawnssofar=1\narg1=two words\n",
    "arg2=x=1\n",
    "argcnt=2\npreput_num=1\npreput_key_0=PARENT_ROOT_PORT_NAME\n\
     preput_val_0=tag#0$description#vm$port#47839$ifname#127.0.0.1$\n\
     info_num=1\ninfo_key_0=wdir\ninfo_val_0=/tmp\nendcmd\n",
    "mcmd=spawn\nnprocs=2\nexecname=./t\ntotspawns=2\nspawnssofar=2\nargcnt=0\npreput_num=1\n\
     preput_key_0=PARENT_ROOT_PORT_NAME\n\
     preput_val_0=tag#0$description#vm$port#47839$ifname#127.0.0.1$\ninfo_num=0\nendcmd\n",
];

#[test]
fn spawn_of_two_programs() {
    let mut world = World::new(1);
    world.say(0, ALONE[0].0);
    for piece in &SPAWN[..3] {
        assert_eq!(world.say(0, piece), [""]);
    }
    let reply = "cmd=spawn_result rc=0 jobid=kvs_1 errcodes=0,0,0\n";
    assert_eq!(world.say(0, SPAWN[3]), [reply]);
    let [Question::Spawn(request)] = &world.spawned[..] else {
        panic!("{:?}", world.spawned);
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let programs: Vec<_> = request.commands.iter().map(|c| text(&c.program)).collect();
    assert_eq!(programs, ["./s", "./t"]);
    let procs: Vec<_> = request.commands.iter().map(|c| c.procs).collect();
    assert_eq!(procs, [1, 2]);
    assert_eq!(request.commands[0].args, [&b"two words"[..], b"x=1"]);
    assert_eq!(request.commands[0].info.len(), 1);
    assert_eq!(request.preputs.len(), 1);
    assert_eq!(text(&request.preputs[0].0), "PARENT_ROOT_PORT_NAME");
}

#[test]
fn a_bad_spawn_request_has_one_reply() {
    let mut world = World::new(1);
    world.say(0, ALONE[0].0);
    let all = SPAWN.concat();
    for (from, to, why) in [
        ("nprocs=1", "nprocs=0", "nprocs"),
        ("execname=./t", "x=y", "execname"),
        ("spawnssofar=2", "spawnssofar=1", "block_1_of_2"),
        ("argcnt=2", "argcnt=3", "argcnt"),
    ] {
        let replies = world.say(0, &all.replace(from, to));
        assert!(
            replies[0].starts_with("cmd=spawn_result rc=-1 msg="),
            "{replies:?}"
        );
        assert!(replies[0].contains(why), "{replies:?}");
        assert_eq!(replies[0].lines().count(), 1, "{replies:?}");
    }
    assert_eq!(world.spawned.len(), 0);
    assert!(world.say(0, &all)[0].starts_with("cmd=spawn_result rc=0"));
}

#[test]
fn served_byte_by_byte_and_all_at_once() {
    let requests: String = ALONE.iter().map(|(request, _)| *request).collect();
    let replies: String = ALONE.iter().map(|(_, reply)| *reply).collect();
    let mut world = World::new(2);
    assert_eq!(world.say(0, &requests)[0], replies);
    let dribbled = requests
        .chars()
        .map(|c| world.say(1, &c.to_string()).remove(1));
    assert_eq!(dribbled.collect::<String>(), replies);
}

/// The lines of Hydra 4.0.2 and Slurm 22.05 are understood.
#[test]
fn replies_of_foreign_servers() {
    let stream = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n\
        cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n\
        cmd=appnum appnum=0\n\
        cmd=my_kvsname kvsname=kvs_3811_0_765958246_vm\n\
        cmd=get_result rc=0 msg=success value=(vector,(0,1,1))\n\
        cmd=barrier_out\n\
        cmd=put_result rc=0 msg=success\n\
        cmd=publish_result info=ok rc=0 msg=success\n\
        cmd=lookup_result port=tag#0$host$port#1 info=ok rc=0 msg=success\n\
        cmd=lookup_result rc=1 msg=service_not_found\n\
        cmd=spawn_result rc=0\n\
        cmd=finalize_ack\n\
        cmd=universe_size rc=0 size=2\n\
        cmd=appnum rc=0 appnum=-1\n\
        cmd=get_result rc=1\n";
    let mut decoder = Decoder::new();
    let mut names = Vec::new();
    for byte in stream.bytes() {
        decoder.push(&[byte]);
        while let Some(message) = decoder.next_message().unwrap() {
            let Incoming::Line(line) = message else {
                panic!("{message:?}");
            };
            names.push(Reply::decode_line(line).unwrap().line_name().to_owned());
        }
    }
    let expected: Vec<_> = stream
        .lines()
        .map(|line| {
            line.split_ascii_whitespace()
                .next()
                .unwrap()
                .replace("cmd=", "")
        })
        .collect();
    assert_eq!(names, expected);
}
