//! PMI-1 and PMI-2 as a client writes and reads them, without the library: what stands here comes from
//! the protocols' descriptions, so that both ends of a dialogue are not of one mind.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Fields of a reply.
pub(crate) type Fields = HashMap<String, String>;

/// The value of a variable, which must be there.
pub(crate) fn var(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

/// The rank in the environment.
pub(crate) fn rank() -> usize {
    var("PMI_RANK").parse().expect("a number")
}

/// The size in the environment.
pub(crate) fn size() -> usize {
    var("PMI_SIZE").parse().expect("a number")
}

/// The socket that the launcher gave us. Called once.
pub(crate) fn socket() -> UnixStream {
    let fd = var("PMI_FD").parse().expect("a descriptor");
    // SAFETY: the launcher put the socket there, and this is called once.
    unsafe { OwnedFd::from_raw_fd(fd) }.into()
}

/// One of the two protocols, as far as they do the same.
pub(crate) trait Pmi {
    /// Puts a pair.
    fn put(&mut self, key: &str, value: &str);
    /// Joins the barrier after which puts are visible.
    fn fence(&mut self);
    /// The value of a key, if there is one.
    fn get(&mut self, key: &str) -> Option<String>;
    /// Publishes a name; false if it is taken.
    fn publish(&mut self, name: &str, port: &str) -> bool;
    /// Looks a name up.
    fn lookup(&mut self, name: &str) -> Option<String>;
    /// Takes a name back; false if there is none.
    fn unpublish(&mut self, name: &str) -> bool;
    /// Spawns programs: name, arguments, processes, info. The job id, or why not.
    fn spawn(&mut self, programs: &[Program<'_>], preputs: &[(&str, &str)]) -> Result<(), String>;
    /// Asks for the end of the job and waits for it.
    fn abort(&mut self, code: i32, message: &str) -> !;
    /// Takes leave.
    fn finalize(&mut self);
    /// Number of this process's program.
    fn appnum(&mut self) -> i32;
    /// Sends a request that nobody knows, which must be refused.
    fn nonsense(&mut self);
}

/// A program to be spawned.
pub(crate) struct Program<'a> {
    /// File or name.
    pub(crate) name: &'a str,
    /// Arguments.
    pub(crate) args: Vec<&'a str>,
    /// Processes.
    pub(crate) procs: u32,
    /// Info keys and values.
    pub(crate) info: Vec<(&'a str, &'a str)>,
}

fn wait_for_the_end() -> ! {
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// PMI-1.
pub(crate) struct V1 {
    stream: UnixStream,
    kvs: String,
}

impl V1 {
    /// Opens the dialogue.
    pub(crate) fn init() -> Self {
        let mut v1 = Self {
            stream: socket(),
            kvs: String::new(),
        };
        let reply = v1.ask(
            "cmd=init pmi_version=1 pmi_subversion=1",
            "response_to_init",
        );
        assert_eq!(reply["rc"], "0");
        let reply = v1.ask("cmd=get_maxes", "maxes");
        for limit in ["kvsname_max", "keylen_max", "vallen_max"] {
            assert!(reply[limit].parse::<u32>().expect("a number") >= 64);
        }
        v1.kvs = v1.ask("cmd=get_my_kvsname", "my_kvsname")["kvsname"].clone();
        v1
    }

    /// Sends lines and reads the reply, which must be of this kind.
    pub(crate) fn ask(&mut self, request: &str, reply: &str) -> Fields {
        self.stream
            .write_all(format!("{request}\n").as_bytes())
            .expect("a server that listens");
        let fields = self.read();
        assert_eq!(fields["cmd"], reply, "{request}: {fields:?}");
        fields
    }

    fn read(&mut self) -> Fields {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while byte != *b"\n" {
            self.stream.read_exact(&mut byte).expect("a reply");
            line.push(byte[0]);
        }
        let line = String::from_utf8(line).expect("text");
        let pairs = line.split_whitespace().filter_map(|w| w.split_once('='));
        pairs.map(|(k, v)| (k.into(), v.into())).collect()
    }
}

fn is_zero(fields: &Fields) -> bool {
    fields.get("rc").is_none_or(|rc| rc == "0")
}

impl Pmi for V1 {
    fn put(&mut self, key: &str, value: &str) {
        let request = format!("cmd=put kvsname={} key={key} value={value}", self.kvs);
        assert!(is_zero(&self.ask(&request, "put_result")));
    }

    fn fence(&mut self) {
        self.ask("cmd=barrier_in", "barrier_out");
    }

    fn get(&mut self, key: &str) -> Option<String> {
        let request = format!("cmd=get kvsname={} key={key}", self.kvs);
        let reply = self.ask(&request, "get_result");
        is_zero(&reply).then(|| reply["value"].clone())
    }

    fn publish(&mut self, name: &str, port: &str) -> bool {
        let request = format!("cmd=publish_name service={name} port={port}");
        is_zero(&self.ask(&request, "publish_result"))
    }

    fn lookup(&mut self, name: &str) -> Option<String> {
        let request = format!("cmd=lookup_name service={name}");
        let reply = self.ask(&request, "lookup_result");
        is_zero(&reply).then(|| reply["port"].clone())
    }

    fn unpublish(&mut self, name: &str) -> bool {
        let request = format!("cmd=unpublish_name service={name}");
        is_zero(&self.ask(&request, "unpublish_result"))
    }

    fn spawn(&mut self, programs: &[Program<'_>], preputs: &[(&str, &str)]) -> Result<(), String> {
        let mut text = String::new();
        for (at, program) in programs.iter().enumerate() {
            text += &format!(
                "mcmd=spawn\nnprocs={}\nexecname={}\ntotspawns={}\nspawnssofar={}\n",
                program.procs,
                program.name,
                programs.len(),
                at + 1
            );
            for (arg, n) in program.args.iter().zip(1..) {
                text += &format!("arg{n}={arg}\n");
            }
            text += &format!(
                "argcnt={}\npreput_num={}\n",
                program.args.len(),
                preputs.len()
            );
            for (n, (key, value)) in preputs.iter().enumerate() {
                text += &format!("preput_key_{n}={key}\npreput_val_{n}={value}\n");
            }
            text += &format!("info_num={}\n", program.info.len());
            for (n, (key, value)) in program.info.iter().enumerate() {
                text += &format!("info_key_{n}={key}\ninfo_val_{n}={value}\n");
            }
            text += "endcmd\n";
        }
        let reply = self.ask(text.trim_end(), "spawn_result");
        match is_zero(&reply) {
            true => Ok(()),
            false => Err(format!("{reply:?}")),
        }
    }

    fn abort(&mut self, code: i32, message: &str) -> ! {
        let request = format!("cmd=abort exitcode={code} message={message}\n");
        self.stream.write_all(request.as_bytes()).expect("a server");
        wait_for_the_end()
    }

    fn finalize(&mut self) {
        self.ask("cmd=finalize", "finalize_ack");
    }

    fn appnum(&mut self) -> i32 {
        let reply = self.ask("cmd=get_appnum", "appnum");
        reply["appnum"].parse().expect("a number")
    }

    fn nonsense(&mut self) {
        let request = b"cmd=make_coffee sugar=2\n";
        self.stream.write_all(request).expect("a server");
        let reply = self.read();
        assert!(!is_zero(&reply), "{reply:?}");
    }
}

/// PMI-2.
pub(crate) struct V2 {
    stream: UnixStream,
    appnum: i32,
    /// Of `fullinit`'s reply.
    pub(crate) spawner: Option<String>,
}

impl V2 {
    /// Opens the dialogue.
    pub(crate) fn init() -> Self {
        let mut v2 = Self {
            stream: socket(),
            appnum: -2,
            spawner: None,
        };
        v2.stream
            .write_all(b"cmd=init pmi_version=2 pmi_subversion=0\n")
            .expect("a server that listens");
        let mut byte = [0];
        while byte != *b"\n" {
            v2.stream.read_exact(&mut byte).expect("a reply");
        }
        let body = format!(
            "cmd=fullinit;pmijobid={};pmirank={};threaded=FALSE;",
            var("PMI_JOBID"),
            rank()
        );
        let reply = v2.ask(&body);
        assert!(is_zero(&reply), "{reply:?}");
        assert_eq!(reply["rank"], rank().to_string());
        assert_eq!(reply["size"], size().to_string());
        v2.appnum = reply["appnum"].parse().expect("a number");
        v2.spawner = reply.get("spawner-jobid").cloned();
        v2
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, body: &str) {
        let message = format!("{:<6}{body}", body.len());
        self.stream.write_all(message.as_bytes()).expect("a server");
    }

    /// Reads a reply.
    pub(crate) fn read(&mut self) -> Fields {
        let mut header = [0; 6];
        self.stream.read_exact(&mut header).expect("a reply");
        let text = std::str::from_utf8(&header).expect("text");
        let mut body = vec![0; text.trim().parse().expect("a length")];
        self.stream.read_exact(&mut body).expect("the rest");
        let body = String::from_utf8(body).expect("text");
        let pairs = body.split(';').filter_map(|w| w.split_once('='));
        pairs.map(|(k, v)| (k.into(), v.into())).collect()
    }

    /// Sends a request and reads the reply to it.
    pub(crate) fn ask(&mut self, body: &str) -> Fields {
        self.send(body);
        let reply = self.read();
        let command = body.split([';', '=']).nth(1).expect("a command");
        assert_eq!(reply["cmd"], format!("{command}-response"), "{reply:?}");
        reply
    }
}

impl Pmi for V2 {
    fn put(&mut self, key: &str, value: &str) {
        let reply = self.ask(&format!("cmd=kvs-put;key={key};value={value};"));
        assert!(is_zero(&reply), "{reply:?}");
    }

    fn fence(&mut self) {
        let reply = self.ask("cmd=kvs-fence;");
        assert!(is_zero(&reply), "{reply:?}");
    }

    fn get(&mut self, key: &str) -> Option<String> {
        let job = var("PMI_JOBID");
        let reply = self.ask(&format!("cmd=kvs-get;jobid={job};srcid=-1;key={key};"));
        assert!(is_zero(&reply), "{reply:?}");
        (reply["found"] == "TRUE").then(|| reply["value"].clone())
    }

    fn publish(&mut self, name: &str, port: &str) -> bool {
        let body = format!("cmd=name-publish;name={name};port={port};infokeycount=0;");
        is_zero(&self.ask(&body))
    }

    fn lookup(&mut self, name: &str) -> Option<String> {
        let reply = self.ask(&format!("cmd=name-lookup;name={name};infokeycount=0;"));
        // Each library reads another key.
        assert_eq!(reply.get("port"), reply.get("value"), "{reply:?}");
        is_zero(&reply).then(|| reply["port"].clone())
    }

    fn unpublish(&mut self, name: &str) -> bool {
        is_zero(&self.ask(&format!("cmd=name-unpublish;name={name};infokeycount=0;")))
    }

    fn spawn(&mut self, programs: &[Program<'_>], preputs: &[(&str, &str)]) -> Result<(), String> {
        let mut body = format!(
            "cmd=spawn;ncmds={};preputcount={};",
            programs.len(),
            preputs.len()
        );
        for (n, (key, value)) in preputs.iter().enumerate() {
            body += &format!("ppkey{n}={key};ppval{n}={value};");
        }
        for program in programs {
            body += &format!(
                "subcmd={};maxprocs={};argc={};",
                program.name,
                program.procs,
                program.args.len()
            );
            for (n, arg) in program.args.iter().enumerate() {
                body += &format!("argv{n}={arg};");
            }
            body += &format!("infokeycount={};", program.info.len());
            for (n, (key, value)) in program.info.iter().enumerate() {
                body += &format!("infokey{n}={key};infoval{n}={value};");
            }
        }
        let reply = self.ask(&body);
        match is_zero(&reply) {
            true => {
                assert!(!reply["jobid"].is_empty());
                Ok(())
            }
            false => Err(format!("{reply:?}")),
        }
    }

    fn abort(&mut self, code: i32, message: &str) -> ! {
        self.send(&format!(
            "cmd=abort;isworld=TRUE;exitcode={code};msg={message};"
        ));
        wait_for_the_end()
    }

    fn finalize(&mut self) {
        assert!(is_zero(&self.ask("cmd=finalize;")));
    }

    fn appnum(&mut self) -> i32 {
        self.appnum
    }

    fn nonsense(&mut self) {
        let reply = self.ask("cmd=make-coffee;sugar=2;");
        assert!(!is_zero(&reply), "{reply:?}");
    }
}
