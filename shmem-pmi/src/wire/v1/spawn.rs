//! The request to start other processes: one block of lines for each program.

use crate::question::{SpawnCommand, SpawnRequest};
use crate::wire::WireError;
use crate::wire::fields::Fields;
use crate::wire::writer::Writer;

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
        numbers(&Fields::of_block(block).ok()?).ok()
    }

    /// Reads a block, from `mcmd=spawn` to the line before `endcmd`.
    ///
    /// # Errors
    ///
    /// The block is of another command, or a line is absent or has an impossible value. The next message can
    /// be read.
    pub fn decode(block: &[u8]) -> Result<Self, WireError> {
        let lines = Fields::of_block(block)?;
        if lines.command() != b"spawn" {
            return Err(lines.unknown());
        }
        let (number, total) = numbers(&lines)?;
        let program = lines.need("execname")?.into_owned();
        let procs = lines.need_number("nprocs", "a number")?;
        if procs == 0 {
            return Err(lines.bad("nprocs", "at least 1 process"));
        }
        let count: usize = lines.number("argcnt", "a number")?.unwrap_or(0);
        let mut args = Vec::new();
        for (key, value) in lines.pairs() {
            // Arguments stand in their order.
            if args.len() < count && key == format!("arg{}", args.len() + 1).as_bytes() {
                args.push(value.to_vec());
            }
        }
        if args.len() != count {
            return Err(lines.bad("argcnt", "the number of lines arg1, arg2 and so on"));
        }
        Ok(Self {
            total,
            number,
            command: SpawnCommand {
                program,
                args,
                procs,
                info: list(&lines, "info_num", ["info_key_", "info_val_"])?,
            },
            preputs: list(&lines, "preput_num", ["preput_key_", "preput_val_"])?,
        })
    }
}

/// Appends the blocks of a request to `out`.
///
/// # Errors
///
/// There is no program, a text has a newline or NUL, a name or value (other than an argument) is
/// empty, a line is longer than [`super::MAX_SENT_LINE`] or a block longer than [`super::MAX_BLOCK`].
/// `out` is then unchanged.
pub fn encode_spawn(request: &SpawnRequest, out: &mut Vec<u8>) -> Result<(), WireError> {
    let start = out.len();
    let written = write_blocks(request, out);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write_blocks(request: &SpawnRequest, out: &mut Vec<u8>) -> Result<(), WireError> {
    let empty = |what| Err(WireError::Empty { what });
    if request.commands.is_empty() {
        return empty("the list of programs");
    }
    for (number, command) in (1u32..).zip(&request.commands) {
        if command.program.is_empty() {
            return empty("the name of a program");
        }
        let mut w = Writer::block(out, "spawn");
        w.number("nprocs", command.procs);
        w.field("execname", &command.program);
        w.number("totspawns", request.commands.len() as u64);
        w.number("spawnssofar", number);
        w.list("arg", 1, &command.args);
        w.number("argcnt", command.args.len() as u64);
        w.number("preput_num", request.preputs.len() as u64);
        w.pairs(["preput_key_", "preput_val_"], &request.preputs);
        w.number("info_num", command.info.len() as u64);
        w.pairs(["info_key_", "info_val_"], &command.info);
        w.finish()?;
    }
    Ok(())
}

/// Which block of a request it is, and of how many.
fn numbers(lines: &Fields<'_>) -> Result<(u32, u32), WireError> {
    let total = lines.number("totspawns", "a number")?.unwrap_or(1);
    let number = lines.number("spawnssofar", "a number")?.unwrap_or(1);
    match (1..=total).contains(&number) {
        true => Ok((number, total)),
        false => Err(lines.bad("spawnssofar", "a number from 1 to totspawns")),
    }
}

/// Key and value as they are kept.
type Pair = (Vec<u8>, Vec<u8>);

/// Pairs whose keys and values stand in lines with the same number. In one pass, for a list
/// may be as long as the block.
fn list(
    lines: &Fields<'_>,
    count: &'static str,
    [key, value]: [&'static str; 2],
) -> Result<Vec<Pair>, WireError> {
    let announced = lines.number(count, "a number")?.unwrap_or(0);
    let numbered = |prefix: &'static str| {
        let number = move |name: &[u8]| {
            let digits = name.strip_prefix(prefix.as_bytes())?;
            std::str::from_utf8(digits).ok()?.parse().ok()
        };
        let mut found: Vec<(usize, Vec<u8>)> = lines
            .pairs()
            .filter_map(|(name, text)| Some((number(name)?, text.to_vec())))
            .filter(|(at, _)| *at < announced)
            .collect();
        found.sort_by_key(|(at, _)| *at);
        found.dedup_by_key(|(at, _)| *at);
        found
    };
    let (keys, values) = (numbered(key), numbered(value));
    if keys.len() != announced || values.len() != announced {
        return Err(lines.bad(count, "the number of pairs of lines that follow"));
    }
    let pairs = keys.into_iter().zip(values);
    Ok(pairs.map(|((_, key), (_, value))| (key, value)).collect())
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
