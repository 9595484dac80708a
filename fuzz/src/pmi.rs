//! Bytes of the PMI-2 socket and of the links between launch agents.

use shmem_pmi::process_mapping::ProcessMapping;
use shmem_pmi::question::{Answer, Question, SpawnCommand, SpawnRequest};
use shmem_pmi::wire::data::Operation;
use shmem_pmi::wire::tree::{self, Direction};
use shmem_pmi::wire::v2::{Decoder, Incoming, Request, Response};
use shmem_pmi::wire::{Command, Fields, InitLine, Reply};

use crate::streams::{Decode, decodes, messages};

decodes!(Decoder, Incoming::Line, Incoming::Body);

/// However the stream is cut, the same messages come out of it; a message that is understood
/// is encoded to bytes that mean the same.
///
/// # Panics
/// If not.
pub fn pmi2(data: &[u8]) {
    for (is_line, bytes) in messages::<Decoder>(data) {
        if is_line {
            let _ = (Command::decode_line(&bytes), Reply::decode_line(&bytes));
        } else {
            body(&bytes);
        }
    }
    body(data);
}

fn body(bytes: &[u8]) {
    if let Ok(fields) = Fields::of_body(bytes) {
        let _ = (fields.command_text(), fields.thread_id());
    }
    // A message begins with six digits of length.
    if let Ok(request) = Request::decode(bytes) {
        let mut out = Vec::new();
        if request.encode(&mut out).is_ok() {
            assert_eq!(Request::decode(&out[6..]).as_ref(), Ok(&request));
        }
    }
    // What is refused is kept as printable text, which is not what was on the wire.
    if let Ok(response) = Response::decode(bytes)
        && !matches!(response.reply, Reply::Refused { .. })
    {
        let mut out = Vec::new();
        if response.encode(&mut out).is_ok() {
            assert_eq!(Response::decode(&out[6..]).as_ref(), Ok(&response));
        }
    }
}

/// The beginning of a conversation, and bodies.
#[must_use]
pub fn pmi2_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![
        b"cmd=kvs-get-response;rc=0;found=TRUE;value=abc;;d;".to_vec(),
        b"cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=3;size=4;appnum=0;"
            .to_vec(),
        b"cmd=abort;isworld=TRUE;msg=over;".to_vec(),
        b"cmd=nla-response;thrid=3;rc=0;request=2;value=00ff;more=TRUE;".to_vec(),
        b"cmd=nla-recv-response;rc=0;value=00ff;".to_vec(),
    ];
    let commands = [
        Command::FullInit {
            job_id: Some("job".into()),
            rank: Some(3),
            threaded: false,
        },
        Command::JobGetId,
        Command::KvsPut {
            job_id: None,
            key: b"key"[..].into(),
            value: b"a;value"[..].into(),
        },
        Command::KvsGet {
            job_id: None,
            source: -1,
            direct: false,
            key: b"key"[..].into(),
        },
        Command::Iallgather {
            value: vec![0xfe, 1].into(),
        },
        Command::Wait { request: 7 },
        Command::Data {
            operation: Operation::Scatter,
            root: 2,
            value: vec![2, 0, 0, 0, 7, 8].into(),
            more: true,
        },
        Command::Send {
            to: 1,
            value: vec![5; 3].into(),
        },
        Command::Receive { from: 1 },
        Command::KvsFence { group: None },
        Command::Finalize,
    ];
    let mut stream = Vec::new();
    InitLine::V2.encode(&mut stream);
    for command in commands {
        let mut out = Vec::new();
        Request::new(command)
            .encode(&mut out)
            .expect("a short request");
        stream.extend_from_slice(&out);
        seeds.push(out.split_off(6));
    }
    seeds.push(stream);
    seeds
}

impl Decode for tree::Decoder {
    type Message = Vec<u8>;

    fn push(&mut self, bytes: &[u8]) {
        Self::push(self, bytes);
    }

    fn next(&mut self) -> Result<Option<Self::Message>, String> {
        self.next_message().map_err(|e| e.to_string())
    }
}

/// However the link is cut, the same messages come out; a message that is understood is
/// encoded to the same bytes.
///
/// # Panics
/// If not.
pub fn pmi_tree(data: &[u8]) {
    for bytes in messages::<tree::Decoder>(data).chain([data.to_vec()]) {
        let Ok(message) = tree::Message::decode(&bytes) else {
            continue;
        };
        if let tree::Body::Data { records, .. } = message.body {
            assert_eq!(records.iter().count(), records.count() as usize);
        }
        if let tree::Body::Fence(pairs) = message.body {
            assert_eq!(pairs.iter().count(), pairs.count() as usize);
        }
        let again = message.encode().expect("as long as it was");
        assert_eq!(again, bytes);
    }
}

/// A message of two of the three kinds, in both directions.
#[must_use]
pub fn pmi_tree_seeds() -> Vec<Vec<u8>> {
    let message = |direction, body| {
        tree::Message {
            direction,
            request: 1,
            body,
        }
        .encode()
        .expect("a short message")
    };
    let gather = tree::Body::Gather {
        value_len: 2,
        values: b"aabbcc",
    };
    let failed = tree::Body::Failed {
        rank: 2,
        reason: "lost",
    };
    let mut seeds = vec![
        message(Direction::Up, gather),
        message(Direction::Down, gather),
        message(Direction::Down, failed),
    ];
    // Kinds, from the layout of the format: puts, changed keys, NLA up and down.
    let pair: &[u8] = &[1, 0, 0, 0, 1, 0, 0, 0, b'k'];
    let record: &[u8] = &[
        3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 9,
    ];
    for (kind, body) in [(21, pair), (24, pair), (25, record), (26, record)] {
        let mut message = vec![tree::VERSION, kind, 0, 0, body.len() as u8, 0, 0, 0];
        message.extend_from_slice(&[0; 8]);
        message.extend_from_slice(body);
        assert!(tree::Message::decode(&message).is_ok(), "kind {kind}");
        seeds.push(message);
    }
    seeds.push(seeds.concat());
    seeds
}

/// A mapping that is understood says the same as text.
///
/// # Panics
/// If not.
pub fn process_mapping(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(mapping) = text.parse::<ProcessMapping>() else {
        return;
    };
    assert_eq!(mapping.to_string().parse(), Ok(mapping.clone()));
    assert_eq!(mapping.to_nodes(100).len(), 100);
}

/// Two mappings.
#[must_use]
pub fn process_mapping_seeds() -> Vec<Vec<u8>> {
    vec![
        b"(vector,(0,4,2))".to_vec(),
        b"(vector,(0,2,1),(1,3,4))".to_vec(),
    ]
}

/// A question or answer that is understood is encoded to bytes that mean the same, and no more of them.
///
/// # Panics
/// If not.
pub fn pmi_question(data: &[u8]) {
    if let Ok(question) = Question::decode(data) {
        let bytes = question.encode();
        assert!(bytes.len() <= data.len());
        assert_eq!(Question::decode(&bytes), Ok(question));
    }
    if let Ok(answer) = Answer::decode(data) {
        let bytes = answer.encode();
        assert!(bytes.len() <= data.len());
        assert_eq!(Answer::decode(&bytes), Ok(answer));
    }
}

/// Questions and answers of several kinds.
#[must_use]
pub fn pmi_question_seeds() -> Vec<Vec<u8>> {
    let (key, value) = (b"key".to_vec(), b"value".to_vec());
    let spawn = SpawnRequest {
        commands: vec![SpawnCommand {
            program: b"/bin/a".to_vec(),
            args: vec![b"x".to_vec(), Vec::new()],
            procs: 3,
            info: vec![(b"wdir".to_vec(), b"/tmp".to_vec())],
        }],
        preputs: vec![(key.clone(), value.clone())],
    };
    let questions = [
        Question::Lookup { key: key.clone() },
        Question::Fetch {
            owner: 3,
            key: key.clone(),
        },
        Question::Receive { from: 3 },
        Question::Publish {
            name: key.clone(),
            port: value.clone(),
        },
        Question::Spawn(spawn),
    ];
    let answers = [
        Answer::Bytes(value.clone()),
        Answer::Value {
            key: key.clone(),
            value: Some(value),
        },
        Answer::Value { key, value: None },
        Answer::Refused {
            rc: -1,
            reason: "no".into(),
        },
    ];
    let questions = questions.iter().map(Question::encode);
    questions
        .chain(answers.iter().map(Answer::encode))
        .collect()
}

/// What agents tell each other for PMIx: what is understood is encoded to bytes that mean the same.
///
/// # Panics
/// If not.
pub fn pmix_message(data: &[u8]) {
    use shmem_pmi::server::pmix::Message;
    if let Ok(message) = Message::decode(data) {
        assert_eq!(Message::decode(&message.encode()).as_ref(), Ok(&message));
        if let Message::Joined { fence } | Message::Complete { fence } = message
            && let Some(ranks) = fence.ranks()
        {
            assert!(ranks.is_within(&ranks));
        }
    }
}

/// A message of each kind.
#[must_use]
pub fn pmix_message_seeds() -> Vec<Vec<u8>> {
    use shmem_pmi::server::pmix::{Message, Part};
    let ranks = [0, 1, 2, 7, 9].into_iter().collect();
    let fence = Part::new(&ranks, 5, -1, b"blob");
    let (asker, ticket) = (3, 1 << 40);
    let messages = [
        Message::Joined {
            fence: fence.clone(),
        },
        Message::Complete { fence },
        Message::Ask {
            asker,
            ticket,
            rank: 5,
        },
        Message::Answer {
            asker,
            ticket,
            status: 0,
            data: b"blob",
        },
    ];
    messages.iter().map(Message::encode).collect()
}
