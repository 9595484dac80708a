//! A program that speaks PMIx, and nothing else: what the tests of the launcher start to look at its PMIx
//! server. It loads libpmix as any program does that is not linked with it.
//!
//! `pmix WORD..` does what the words say, in order. Each process says what it finds by one line for each.

use std::ffi::{CStr, CString, c_char};
use std::io::Write;
use std::ptr;

use shmem_pmix::abi::{NAMESPACE_LEN, Proc, RANK_WILDCARD, Scope, Value};
use shmem_pmix::{Data, InfoArray, Library, Status, key};

struct Client {
    library: &'static Library,
    me: Proc,
    size: u32,
}

/// The program's line of output, whole.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(format!("{text}\n").as_bytes());
}

impl Client {
    fn init() -> Self {
        let library = Library::load(None).expect("there is a libpmix");
        let mut me = Proc {
            namespace: [0; NAMESPACE_LEN],
            rank: 0,
        };
        // SAFETY: the library fills in the process; there are no attributes.
        let status = unsafe { (library.init)(&raw mut me, ptr::null_mut(), 0) };
        assert_eq!(status, Status::SUCCESS, "PMIx_Init");
        let mut client = Self {
            library,
            me,
            size: 0,
        };
        let size = client.get(RANK_WILDCARD, key::JOB_SIZE);
        client.size = size.ok().and_then(|n| n.u32()).expect("a number");
        client
    }

    fn get(&self, rank: u32, name: &str) -> Result<Data, Status> {
        let name = CString::new(name).expect("a name");
        let (proc, mut value) = (self.me.peer(rank), ptr::null_mut::<Value>());
        // SAFETY: all outlive the call; the value that it gives is ours, and stays.
        unsafe {
            let get = self.library.get;
            let status = get(
                &raw const proc,
                name.as_ptr(),
                ptr::null(),
                0,
                &raw mut value,
            );
            status.ok()?;
            Ok(Data::read(&*value))
        }
    }

    /// Puts what `rank` is asked for by [`Client::has_put`].
    fn put(&self) {
        let mut value = Data::Bytes(format!("value of {}", self.me.rank).into_bytes()).pack();
        // SAFETY: all outlive the calls, which copy.
        unsafe {
            let put = self.library.put;
            let status = put(Scope::Global as u8, c"own".as_ptr(), value.as_mut_ptr());
            assert_eq!(status, Status::SUCCESS, "PMIx_Put");
            assert_eq!((self.library.commit)(), Status::SUCCESS, "PMIx_Commit");
        }
    }

    /// A fence of these; with nobody, of all.
    fn fence(&self, ranks: &[u32], collect: bool) {
        let procs: Vec<Proc> = ranks.iter().map(|&rank| self.me.peer(rank)).collect();
        let mut infos = InfoArray::new();
        if collect {
            infos = infos.with(key::COLLECT_DATA, Data::Bool(true));
        }
        let first = match procs.is_empty() {
            true => ptr::null(),
            false => procs.as_ptr(),
        };
        // SAFETY: all outlive the call.
        let status =
            unsafe { (self.library.fence)(first, procs.len(), infos.as_mut_ptr(), infos.len()) };
        assert_eq!(status, Status::SUCCESS, "PMIx_Fence");
    }

    fn check_puts(&self) {
        for rank in 0..self.size {
            let got = self
                .get(rank, "own")
                .and_then(|data| data.into_bytes().ok_or(Status::ERROR));
            let want = format!("value of {rank}").into_bytes();
            assert_eq!(got, Ok(want), "what {rank} has put");
        }
    }

    fn place(&self) {
        let number = |rank, name| self.get(rank, name).ok().and_then(|n| n.u32());
        let (own, all) = (self.me.rank, RANK_WILDCARD);
        let text = |name| {
            self.get(all, name)
                .ok()
                .and_then(|t| Some(t.text()?.to_owned()))
        };
        say(&format!(
            "{own} of {}: local {:?} of {:?} ({}), node {:?} of {:?}, program {:?}",
            self.size,
            number(own, key::LOCAL_RANK),
            number(all, key::LOCAL_SIZE),
            text(key::LOCAL_PEERS).unwrap_or_default(),
            number(own, key::NODE_ID),
            number(all, key::NUM_NODES),
            number(own, key::APPNUM),
        ));
    }

    fn peers_of_nodes(&self) {
        let namespace = self.me.namespace.as_ptr();
        let mut nodes: *mut c_char = ptr::null_mut();
        // SAFETY: what the library gives is ours, and stays.
        let names = unsafe {
            let status = (self.library.resolve_nodes)(namespace, &raw mut nodes);
            assert_eq!(status, Status::SUCCESS, "PMIx_Resolve_nodes");
            CStr::from_ptr(nodes).to_str().expect("names")
        };
        let mut all = Vec::new();
        for name in names.split(',') {
            let name = CString::new(name).expect("a name");
            let (mut procs, mut n) = (ptr::null_mut::<Proc>(), 0);
            // SAFETY: as above.
            unsafe {
                let resolve = self.library.resolve_peers;
                let status = resolve(name.as_ptr(), namespace, &raw mut procs, &raw mut n);
                assert_eq!(status, Status::SUCCESS, "PMIx_Resolve_peers");
                let procs = std::slice::from_raw_parts(procs, n);
                all.push(procs.iter().map(|p| p.rank).collect::<Vec<_>>());
            }
        }
        say(&format!("{}: peers {all:?}", self.me.rank));
    }

    fn abort(&self) {
        // SAFETY: text ends with a zero; no processes are named.
        unsafe {
            (self.library.abort)(7, c"not any more".as_ptr(), ptr::null_mut(), 0);
        }
    }

    fn finalize(&self) {
        // SAFETY: without attributes.
        let status = unsafe { (self.library.finalize)(ptr::null(), 0) };
        assert_eq!(status, Status::SUCCESS, "PMIx_Finalize");
    }
}

fn main() {
    let mut client = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let own = || client.as_ref().expect("after init");
        match word.as_str() {
            "init" => client = Some(Client::init()),
            "place" => own().place(),
            "peers" => own().peers_of_nodes(),
            "put" => own().put(),
            "fence" => own().fence(&[], true),
            "barrier" => own().fence(&[], false),
            // Several of overlapping sets, each twice.
            "subsets" => {
                let (rank, size) = (own().me.rank, own().size);
                for step in [2, 3] {
                    let set: Vec<u32> = (0..size).filter(|r| r % step == rank % step).collect();
                    own().fence(&set, false);
                    own().fence(&set, true);
                }
            }
            "check" => own().check_puts(),
            "abort" => own().abort(),
            "finalize" => own().finalize(),
            // A file that says that this process has come so far, and one that lets it go on.
            "reach" => {
                let path = words.next().expect("a path");
                let rank = std::env::var("PMIX_RANK").expect("a rank");
                std::fs::write(format!("{path}.{rank}"), "").expect("a file");
            }
            "await" => {
                let path = words.next().expect("a path");
                while !std::path::Path::new(&path).exists() {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            }
            "sleep" => std::thread::sleep(std::time::Duration::from_secs(1000)),
            "tell" => say(&words.next().unwrap_or_default()),
            // What follows is for one process only.
            "only" => {
                let rank = words.next();
                if std::env::var("PMIX_RANK").ok() != rank {
                    words.next();
                }
            }
            "exit" => std::process::exit(0),
            "die" => std::process::abort(),
            other => panic!("'{other}'?"),
        }
    }
}
