//! Lines and spawn requests of PMI-1.

use shmem_pmi::question::{SpawnCommand, SpawnRequest};
use shmem_pmi::wire::v1::{Decoder, Incoming, SpawnBlock, encode_spawn};
use shmem_pmi::wire::{Command, Fact, InitLine, Reply};

use crate::streams::{decodes, messages};

decodes!(Decoder, Incoming::Line, Incoming::Block);

/// However the stream is cut, the same messages come out of it; a message that is understood is
/// encoded, if it can be sent at all, to a line that means the same.
///
/// # Panics
/// If not.
pub fn pmi1(data: &[u8]) {
    for (is_line, bytes) in messages::<Decoder>(data) {
        match is_line {
            true => line(&bytes),
            false => block(&bytes),
        }
    }
}

fn line(bytes: &[u8]) {
    let mut out = Vec::new();
    // The words of an abort are sent with other bytes for those that cannot be.
    if let Ok(command) = Command::decode_line(bytes)
        && !matches!(command, Command::Abort { .. })
        && command.encode_line(&mut out).is_ok()
    {
        assert_eq!(Command::decode_line(without_newline(&out)), Ok(command));
    }
    out.clear();
    // Reasons are read as printable text; long lists of errors and unknown facts are left out.
    if let Ok(reply) = Reply::decode_line(bytes)
        && !matches!(
            reply,
            Reply::Refused { .. } | Reply::Spawned { .. } | Reply::Set(Fact::Other)
        )
        && reply.encode_line(&mut out).is_ok()
    {
        // A failed init is told by its number alone.
        assert_eq!(Reply::decode_line(without_newline(&out)), Ok(reply));
    }
}

fn block(bytes: &[u8]) {
    let Ok(block) = SpawnBlock::decode(bytes) else {
        return;
    };
    let request = SpawnRequest {
        commands: vec![block.command.clone()],
        preputs: block.preputs.clone(),
    };
    let mut out = Vec::new();
    if encode_spawn(&request, &mut out).is_err() {
        return;
    }
    let mut decoder = Decoder::new();
    decoder.push(&out);
    let Ok(Some(Incoming::Block(again))) = decoder.next_message() else {
        panic!("a request that is sent is a block");
    };
    let again = SpawnBlock::decode(again).expect("a request that is sent");
    assert_eq!((again.number, again.total), (1, 1));
    assert_eq!(
        (again.command, again.preputs),
        (block.command, block.preputs)
    );
}

fn without_newline(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").expect("a line")
}

/// Conversations, and a request to spawn.
#[must_use]
pub fn pmi1_seeds() -> Vec<Vec<u8>> {
    let text = |text: &str| text.as_bytes().to_vec();
    let mut seeds = vec![
        text("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"),
        text("cmd=initack\ncmd=set size=8\ncmd=set rank=3\ncmd=set debug=0\n"),
        text("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
        text("cmd=get_result rc=0 msg=success value=a=b\\c\n"),
        text("cmd=get_result rc=-1 msg=key_ep-1_not_found value=unknown\n"),
        text("cmd=lookup_result port=p info=ok rc=0 msg=success\ncmd=barrier_out\n"),
        text("cmd=spawn_result rc=0 jobid=j errcodes=0,0,-1\n"),
        text("cmd=abort exitcode=7 message=it is over\n"),
    ];
    let commands = [
        Command::InitAck { id: 3 },
        Command::Init(InitLine {
            version: 1,
            subversion: 1,
        }),
        Command::GetMaxes,
        Command::JobGetId,
        Command::KvsPut {
            job_id: Some("kvs_1".into()),
            key: b"ep-0"[..].into(),
            value: b"addr=0"[..].into(),
        },
        Command::KvsFence { group: None },
        Command::KvsFence {
            group: Some(b"0,1:7"[..].into()),
        },
        Command::KvsGet {
            job_id: Some("kvs_1".into()),
            source: -1,
            key: b"ep-0"[..].into(),
            direct: false,
        },
        Command::NamePublish {
            name: b"s"[..].into(),
            port: b"p"[..].into(),
        },
        Command::Finalize,
    ];
    let mut stream = Vec::new();
    for command in commands {
        command.encode_line(&mut stream).expect("a short line");
    }
    let request = SpawnRequest {
        commands: vec![SpawnCommand {
            program: text("/bin/a"),
            args: vec![text("x"), text("two words")],
            procs: 2,
            info: vec![(text("wdir"), text("/tmp"))],
        }],
        preputs: vec![(text("PARENT"), text("here"))],
    };
    let mut spawn = Vec::new();
    encode_spawn(&request, &mut spawn).expect("a short request");
    seeds.push([&stream[..], &spawn].concat());
    seeds.extend([stream, spawn]);
    seeds
}
