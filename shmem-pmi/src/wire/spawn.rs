//! The fields of `spawn` with PMI-2: unlike those of other commands they come in an order that means
//! something. The blocks of PMI-1 are [`super::v1::SpawnBlock`].
//!
//! ```text
//! cmd=spawn;ncmds=2;preputcount=1;ppkey0=K;ppval0=V;
//!     subcmd=/prog;maxprocs=2;argc=1;argv0=x;infokeycount=1;infokey0=wdir;infoval0=/tmp;
//!     subcmd=/other;maxprocs=1;argc=0;infokeycount=0;
//! ```

use super::codec::Codec;
use super::fields::Fields;
use super::writer::Writer;
use super::{Version, WireError};
use crate::question::{SpawnCommand, SpawnRequest};

/// A key whose value has not come, and the pairs so far.
#[derive(Default)]
struct PairList {
    key: Option<Vec<u8>>,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl PairList {
    fn key(&mut self, key: &[u8]) -> bool {
        self.key.replace(key.to_vec()).is_none()
    }

    fn value(&mut self, value: &[u8]) -> bool {
        let key = self.key.take();
        key.is_some_and(|key| {
            self.pairs.push((key, value.to_vec()));
            true
        })
    }

    fn is_complete(&self, count: usize) -> bool {
        self.key.is_none() && self.pairs.len() == count
    }
}

/// One program while its fields come.
struct Program {
    program: Vec<u8>,
    procs: u32,
    argc: usize,
    args: Vec<Vec<u8>>,
    info_count: usize,
    info: PairList,
}

impl Program {
    fn done(self, fields: &Fields<'_>) -> Result<SpawnCommand, WireError> {
        if self.procs == 0 {
            return Err(fields.bad("maxprocs", "at least 1 process for each subcmd"));
        }
        if self.args.len() != self.argc {
            return Err(fields.bad("argc", "the number of fields argv0, argv1 and so on"));
        }
        if !self.info.is_complete(self.info_count) {
            return Err(fields.bad("infokeycount", "the number of pairs infokey0, infoval0 ..."));
        }
        Ok(SpawnCommand {
            program: self.program,
            args: self.args,
            procs: self.procs,
            info: self.info.pairs,
        })
    }
}

/// The programs of a request, and what they find in their key-value space.
pub(super) struct Programs;

impl<'a> Codec<'a, SpawnRequest> for Programs {
    fn read(&self, fields: &Fields<'a>) -> Result<SpawnRequest, WireError> {
        decode(fields)
    }

    fn write(&self, w: &mut Writer<'_>, request: &SpawnRequest) {
        encode(request, w);
    }
}

fn decode(fields: &Fields<'_>) -> Result<SpawnRequest, WireError> {
    let mut commands = Vec::new();
    let mut current: Option<Program> = None;
    let mut preputs = PairList::default();
    for (name, value) in fields.pairs() {
        let number = || {
            let text = std::str::from_utf8(value).ok();
            text.and_then(|text| text.parse::<u32>().ok())
        };
        let known = match (stem(name), &mut current) {
            (b"ppkey", _) => preputs.key(value),
            (b"ppval", _) => preputs.value(value),
            (b"subcmd", _) => {
                let next = Program {
                    program: value.to_vec(),
                    procs: 0,
                    argc: 0,
                    args: Vec::new(),
                    info_count: 0,
                    info: PairList::default(),
                };
                if let Some(done) = current.replace(next) {
                    commands.push(done.done(fields)?);
                }
                !value.is_empty()
            }
            (b"maxprocs", Some(of)) => set(&mut of.procs, number()),
            (b"argc", Some(of)) => set(&mut of.argc, number().map(|n| n as usize)),
            (b"argv", Some(of)) => {
                of.args.push(value.to_vec());
                true
            }
            (b"infokeycount", Some(of)) => set(&mut of.info_count, number().map(|n| n as usize)),
            (b"infokey", Some(of)) => of.info.key(value),
            (b"infoval", Some(of)) => of.info.value(value),
            _ => true,
        };
        if !known {
            return Err(fields.bad("subcmd", "its fields in their order"));
        }
    }
    let last = current.ok_or_else(|| fields.missing("subcmd"))?;
    commands.push(last.done(fields)?);
    if fields
        .number("ncmds", "a number")?
        .unwrap_or(commands.len())
        != commands.len()
    {
        return Err(fields.bad("ncmds", "the number of fields subcmd"));
    }
    let count = fields.number("preputcount", "a number")?.unwrap_or(0);
    if !preputs.is_complete(count) {
        return Err(fields.bad("preputcount", "the number of pairs ppkey0, ppval0 ..."));
    }
    Ok(SpawnRequest {
        commands,
        preputs: preputs.pairs,
    })
}

/// The name without the number at its end.
fn stem(name: &[u8]) -> &[u8] {
    let digits = name.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    &name[..name.len() - digits]
}

fn set<T>(place: &mut T, value: Option<T>) -> bool {
    value.is_some_and(|value| {
        *place = value;
        true
    })
}

fn encode(request: &SpawnRequest, w: &mut Writer<'_>) {
    w.number("ncmds", request.commands.len() as u64);
    w.number("preputcount", request.preputs.len() as u64);
    w.pairs(["ppkey", "ppval"], &request.preputs);
    for command in &request.commands {
        w.field("subcmd", &command.program);
        w.number("maxprocs", command.procs);
        w.number("argc", command.args.len() as u64);
        w.list("argv", 0, &command.args);
        w.number("infokeycount", command.info.len() as u64);
        w.pairs(["infokey", "infoval"], &command.info);
    }
}

/// The codes of a list such as `0,0,-1`, and how many of them are errors.
pub(super) struct Errcodes;

impl<'a> Codec<'a, Vec<i32>> for Errcodes {
    fn read(&self, fields: &Fields<'a>) -> Result<Vec<i32>, WireError> {
        let Some(list) = fields.get("errcodes") else {
            return Ok(Vec::new());
        };
        let text = String::from_utf8_lossy(list);
        let codes = text.split(',').filter(|code| !code.is_empty());
        codes
            .map(|code| code.parse().ok())
            .collect::<Option<_>>()
            .ok_or_else(|| fields.bad("errcodes", "numbers between commas"))
    }

    fn write(&self, w: &mut Writer<'_>, codes: &Vec<i32>) {
        if w.version() == Version::V2 {
            let errors = codes.iter().filter(|&&code| code != 0);
            w.number("nerrs", errors.count() as u64);
        }
        let codes: Vec<_> = codes.iter().map(i32::to_string).collect();
        let codes = codes.join(",");
        // Clients take absent codes for zeros, and those of PMI-1 read no longer line.
        if !codes.is_empty() && w.fits(codes.len() + 20) {
            w.field("errcodes", codes.as_bytes());
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Command;
    use super::super::v2::Request;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    pub(crate) fn request() -> impl Strategy<Value = SpawnRequest> {
        let text = || vec(any::<u8>(), 1..20);
        let pairs = move || vec((text(), text()), 0..4);
        let command = (text(), vec(text(), 0..12), 1u32.., pairs()).prop_map(
            |(program, args, procs, info)| SpawnCommand {
                program,
                args,
                procs,
                info,
            },
        );
        (vec(command, 1..4), pairs())
            .prop_map(|(commands, preputs)| SpawnRequest { commands, preputs })
    }

    #[test]
    fn a_request_as_clients_send_it() {
        let body = b"cmd=spawn;thrid=1;ncmds=2;preputcount=1;ppkey0=K;ppval0=V;subcmd=/prog;\
            maxprocs=2;argc=1;argv0=x y;infokeycount=1;infokey0=wdir;infoval0=/tmp;\
            subcmd=b;maxprocs=1;argc=0;";
        let Command::Spawn(request) = Request::decode(body).unwrap().command else {
            panic!();
        };
        let pair = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        assert_eq!(request.preputs, [pair(b"K", b"V")]);
        let [first, second] = &request.commands[..] else {
            panic!("{request:?}");
        };
        assert_eq!((&first.program[..], first.procs), (&b"/prog"[..], 2));
        assert_eq!(first.args, [b"x y"]);
        assert_eq!(first.info, [pair(b"wdir", b"/tmp")]);
        assert_eq!((&second.program[..], second.procs), (&b"b"[..], 1));
    }

    #[test]
    fn impossible_requests_are_named() {
        let error = |rest: &str| {
            let body = format!("cmd=spawn;{rest}");
            Request::decode(body.as_bytes()).unwrap_err().to_string()
        };
        assert!(error("ncmds=0;").contains("`subcmd`"));
        assert!(error("subcmd=;maxprocs=1;").contains("`subcmd`"));
        assert!(error("subcmd=a;").contains("`maxprocs`"));
        assert!(error("subcmd=a;maxprocs=x;").contains("in their order"));
        assert!(error("ncmds=2;subcmd=a;maxprocs=1;").contains("`ncmds`"));
        assert!(error("subcmd=a;maxprocs=1;argc=4000000000;").contains("`argc`"));
        assert!(error("subcmd=a;maxprocs=1;infoval0=a;").contains("in their order"));
        assert!(error("subcmd=a;maxprocs=1;infokeycount=1;infokey0=a;").contains("infokeycount"));
        assert!(error("preputcount=1;subcmd=a;maxprocs=1;").contains("`preputcount`"));
    }
}
