//! The request to start other processes: one block of lines for each program.

use std::fmt::Display;

use super::line::split_pair;
use super::{MAX_BLOCK, MAX_SENT_LINE};
use crate::question::{SpawnCommand, SpawnRequest};
use crate::wire::{WireError, excerpt};

const COMMAND: &str = "spawn";

/// One block: a program, and which block of the request it is.
///
/// ```text
/// mcmd=spawn
/// nprocs=2
/// execname=/path/prog
/// totspawns=1
/// spawnssofar=1
/// arg1=two words
/// argcnt=1
/// preput_num=1
/// preput_key_0=PARENT_ROOT_PORT_NAME
/// preput_val_0=port
/// info_num=1
/// info_key_0=wdir
/// info_val_0=/tmp
/// endcmd
/// ```
///
/// Some clients repeat the pairs for the key-value space of the new job in every block, others send
/// them in the first alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnBlock {
    /// Number of blocks of the request, at least 1.
    pub total: u32,
    /// Number of this block, from 1.
    pub number: u32,
    /// The program.
    pub command: SpawnCommand,
    /// Pairs for the key-value space of the new job.
    pub preputs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl SpawnBlock {
    /// Number of a block and of all blocks of its request, if these can be read.
    pub fn numbers(block: &[u8]) -> Option<(u32, u32)> {
        Lines(block).numbers().ok()
    }

    /// Reads a block, from `mcmd=spawn` to the line before `endcmd`.
    ///
    /// # Errors
    ///
    /// It is another command, or a line is absent or has an impossible value. The next message can
    /// be read.
    pub fn decode(block: &[u8]) -> Result<Self, WireError> {
        let lines = Lines(block);
        match lines.get("mcmd") {
            Some(b"spawn") => {}
            name => {
                return Err(WireError::UnknownCommand {
                    name: excerpt(name.unwrap_or_default()),
                });
            }
        }
        let (number, total) = lines.numbers()?;
        let program = match lines.get("execname") {
            Some(b"") => return Err(lines.bad("execname", "the name of a program")),
            Some(program) => program.to_vec(),
            None => return Err(lines.missing("execname")),
        };
        let procs = lines.number("nprocs")?;
        let procs = procs.ok_or_else(|| lines.missing("nprocs"))?;
        if procs == 0 {
            return Err(lines.bad("nprocs", "at least 1 process"));
        }
        let count = lines.number("argcnt")?.unwrap_or(0);
        let mut args = Vec::new();
        for (key, value) in lines.pairs() {
            // Arguments stand in their order.
            if args.len() < count as usize && key == format!("arg{}", args.len() + 1).as_bytes() {
                args.push(value.to_vec());
            }
        }
        if args.len() != count as usize {
            return Err(lines.bad("argcnt", "the number of lines arg1, arg2 and so on"));
        }
        Ok(Self {
            total,
            number,
            command: SpawnCommand {
                program,
                args,
                procs,
                info: lines.list("info_num", "info_key_", "info_val_")?,
            },
            preputs: lines.list("preput_num", "preput_key_", "preput_val_")?,
        })
    }
}

/// Appends the blocks of a request to `out`.
///
/// # Errors
///
/// There is no program, a text has a newline or NUL, a name or value (other than an argument) is
/// empty, a line is longer than [`super::MAX_SENT_LINE`] or a block longer than [`MAX_BLOCK`].
/// `out` is then unchanged.
pub fn encode_spawn(request: &SpawnRequest, out: &mut Vec<u8>) -> Result<(), WireError> {
    let start = out.len();
    let mut blocks = Blocks { out, error: None };
    if request.commands.is_empty() {
        blocks.error = Some(WireError::Empty {
            what: "the list of programs",
        });
    }
    for (number, command) in (1..).zip(&request.commands) {
        let from = blocks.out.len();
        blocks.line("mcmd", b"spawn");
        blocks.number("nprocs", command.procs);
        blocks.value("execname", &command.program);
        blocks.number("totspawns", request.commands.len());
        blocks.number::<u32>("spawnssofar", number);
        for (at, arg) in (1..).zip(&command.args) {
            blocks.line(&format!("arg{at}"), arg);
        }
        blocks.number("argcnt", command.args.len());
        blocks.list(
            ["preput_num", "preput_key_", "preput_val_"],
            &request.preputs,
        );
        blocks.list(["info_num", "info_key_", "info_val_"], &command.info);
        let len = blocks.out.len() - from;
        blocks.out.extend_from_slice(b"endcmd\n");
        if len > MAX_BLOCK {
            blocks.error = Some(WireError::TooLong {
                what: "PMI-1 block",
                len,
                max: MAX_BLOCK,
            });
        }
    }
    match blocks.error {
        None => Ok(()),
        Some(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

struct Blocks<'o> {
    out: &'o mut Vec<u8>,
    error: Option<WireError>,
}

impl Blocks<'_> {
    fn line(&mut self, name: &str, value: &[u8]) {
        if value.iter().any(|b| matches!(b, b'\n' | 0)) {
            self.error = Some(WireError::NotOneWord {
                what: "a line of spawn",
                text: excerpt(value),
            });
        }
        let len = name.len() + value.len() + 2;
        if len > MAX_SENT_LINE {
            self.error = Some(WireError::TooLong {
                what: "a line of spawn",
                len,
                max: MAX_SENT_LINE,
            });
        }
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(b'=');
        self.out.extend_from_slice(value);
        self.out.push(b'\n');
    }

    fn value(&mut self, name: &str, value: &[u8]) {
        if value.is_empty() {
            self.error = Some(WireError::Empty {
                what: "a line of spawn",
            });
        }
        self.line(name, value);
    }

    fn number<T: Display>(&mut self, name: &str, number: T) {
        self.line(name, number.to_string().as_bytes());
    }

    fn list(&mut self, [count, key, value]: [&str; 3], pairs: &[(Vec<u8>, Vec<u8>)]) {
        self.number(count, pairs.len());
        for (at, (k, v)) in pairs.iter().enumerate() {
            self.value(&format!("{key}{at}"), k);
            self.value(&format!("{value}{at}"), v);
        }
    }
}

/// Key and value as they are kept.
type Pair = (Vec<u8>, Vec<u8>);

/// The lines of a block, each a key and a value that ends with the line.
#[derive(Clone, Copy)]
struct Lines<'a>(&'a [u8]);

impl<'a> Lines<'a> {
    fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.0.split(|&b| b == b'\n').filter_map(split_pair)
    }

    fn get(self, name: &str) -> Option<&'a [u8]> {
        let name = name.as_bytes();
        self.pairs()
            .find_map(|(key, value)| (key == name).then_some(value))
    }

    fn number(self, name: &'static str) -> Result<Option<u32>, WireError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match std::str::from_utf8(value).map(|text| text.trim().parse()) {
            Ok(Ok(number)) => Ok(Some(number)),
            _ => Err(self.bad(name, "a number")),
        }
    }

    fn numbers(self) -> Result<(u32, u32), WireError> {
        let total = self.number("totspawns")?.unwrap_or(1);
        let number = self.number("spawnssofar")?.unwrap_or(1);
        match (1..=total).contains(&number) {
            true => Ok((number, total)),
            false => Err(self.bad("spawnssofar", "a number from 1 to totspawns")),
        }
    }

    /// Pairs whose keys and values stand in lines with the same number. In one pass, for a list
    /// may be as long as the block.
    fn list(
        self,
        count: &'static str,
        key: &'static str,
        value: &'static str,
    ) -> Result<Vec<Pair>, WireError> {
        let announced = self.number(count)?.unwrap_or(0) as usize;
        let numbered = |prefix: &'static str| {
            let number = move |name: &[u8]| {
                let digits = name.strip_prefix(prefix.as_bytes())?;
                std::str::from_utf8(digits).ok()?.parse().ok()
            };
            let mut found: Vec<(usize, &[u8])> = self
                .pairs()
                .filter_map(|(name, text)| Some((number(name)?, text)))
                .filter(|(at, _)| *at < announced)
                .collect();
            found.sort_by_key(|(at, _)| *at);
            found.dedup_by_key(|(at, _)| *at);
            found
        };
        let (keys, values) = (numbered(key), numbered(value));
        if keys.len() != announced || values.len() != announced {
            return Err(self.bad(count, "the number of pairs of lines that follow"));
        }
        let pairs = keys.into_iter().zip(values);
        Ok(pairs
            .map(|((_, key), (_, value))| (key.to_vec(), value.to_vec()))
            .collect())
    }

    fn missing(self, field: &'static str) -> WireError {
        WireError::MissingField {
            command: COMMAND.to_owned(),
            field,
        }
    }

    fn bad(self, field: &'static str, expected: &'static str) -> WireError {
        WireError::BadField {
            command: COMMAND.to_owned(),
            field,
            value: self.get(field).map_or_else(String::new, excerpt),
            expected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Decoder, Incoming};
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn request() -> impl Strategy<Value = SpawnRequest> {
        let text = || "[a-z /=.\\\\]{1,20}".prop_map(String::into_bytes);
        let pairs = move || vec((text(), text()), 0..12);
        let args = vec("[a-z =]{0,9}".prop_map(String::into_bytes), 0..12);
        let command = (text(), args, 1u32..9, pairs()).prop_map(|(program, args, procs, info)| {
            SpawnCommand {
                program,
                args,
                procs,
                info,
            }
        });
        (vec(command, 1..4), pairs())
            .prop_map(|(commands, preputs)| SpawnRequest { commands, preputs })
    }

    fn blocks(bytes: &[u8]) -> Vec<SpawnBlock> {
        let mut decoder = Decoder::new();
        decoder.push(bytes);
        let mut blocks = Vec::new();
        while let Some(message) = decoder.next_message().unwrap() {
            let Incoming::Block(block) = message else {
                panic!("{message:?}");
            };
            blocks.push(SpawnBlock::decode(block).unwrap());
        }
        assert_eq!(decoder.pending(), 0);
        blocks
    }

    proptest! {
        #[test]
        fn requests_round_trip(request in request()) {
            let mut out = Vec::new();
            encode_spawn(&request, &mut out).unwrap();
            let blocks = blocks(&out);
            prop_assert_eq!(blocks.len(), request.commands.len());
            for ((number, block), command) in (1..).zip(blocks).zip(&request.commands) {
                prop_assert_eq!((block.number, block.total as usize), (number, request.commands.len()));
                prop_assert_eq!(&block.command, command);
                prop_assert_eq!(&block.preputs, &request.preputs);
            }
        }

        #[test]
        fn damage_never_panics(request in request(), at: usize, to: u8, cut: usize) {
            let mut out = Vec::new();
            encode_spawn(&request, &mut out).unwrap();
            let at = at % out.len();
            out[at] = to;
            let _ = SpawnBlock::decode(&out);
            let _ = SpawnBlock::decode(&out[..cut % out.len()]);
        }
    }

    #[test]
    fn order_and_excess_do_not_matter() {
        let block = b"mcmd=spawn\nnprocs=1\nexecname=p\ninfo_num=2\ninfo_val_1=b\ninfo_key_0=x\n\
            info_val_0=a\ninfo_key_1=y\ninfo_key_7=z\ninfo_val_7=z\narg1=1\narg3=3\narg2=2\nargcnt=2\n";
        let block = SpawnBlock::decode(block).unwrap();
        let pair = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        assert_eq!(block.command.info, [pair(b"x", b"a"), pair(b"y", b"b")]);
        assert_eq!(block.command.args, [b"1", b"2"]);
        assert_eq!((block.number, block.total), (1, 1));
    }

    #[test]
    fn impossible_lines_are_named() {
        let error = |rest: &str| {
            let block = format!("mcmd=spawn\n{rest}");
            SpawnBlock::decode(block.as_bytes())
                .unwrap_err()
                .to_string()
        };
        assert!(error("nprocs=1\n").contains("`execname`"));
        assert!(error("execname=a\n").contains("`nprocs`"));
        assert!(error("execname=a\nnprocs=0\n").contains("at least 1"));
        assert!(error("execname=a\nnprocs=x\n").contains("a number"));
        assert!(error("execname=a\nnprocs=1\nargcnt=4000000000\n").contains("`argcnt`"));
        assert!(error("execname=a\nnprocs=1\ninfo_num=1\ninfo_key_0=a\n").contains("`info_num`"));
        assert!(error("execname=a\nnprocs=1\ntotspawns=1\nspawnssofar=2\n").contains("totspawns"));
        assert!(SpawnBlock::decode(b"mcmd=other\n").is_err());
        assert!(SpawnBlock::decode(b"").is_err());
    }

    #[test]
    fn what_cannot_be_sent_is_named() {
        let error = |change: &dyn Fn(&mut SpawnRequest)| {
            let mut request = SpawnRequest {
                commands: vec![SpawnCommand {
                    program: b"/bin/true".to_vec(),
                    procs: 1,
                    ..SpawnCommand::default()
                }],
                preputs: Vec::new(),
            };
            encode_spawn(&request, &mut Vec::new()).unwrap();
            change(&mut request);
            let mut out = b"before".to_vec();
            let error = encode_spawn(&request, &mut out).unwrap_err();
            assert_eq!(out, b"before");
            error.to_string()
        };
        assert!(error(&|r| r.commands.clear()).contains("empty"));
        assert!(error(&|r| r.commands[0].program.clear()).contains("empty"));
        assert!(error(&|r| r.preputs.push((b"k".to_vec(), Vec::new()))).contains("empty"));
        assert!(error(&|r| r.commands[0].args.push(b"a\nb".to_vec())).contains("a\\nb"));
        assert!(error(&|r| r.commands[0].args.push(vec![b'a'; 1023])).contains("1023"));
        let many = vec![vec![b'a'; 1000]; 70];
        assert!(error(&|r| r.commands[0].args.clone_from(&many)).contains("block"));
    }
}
