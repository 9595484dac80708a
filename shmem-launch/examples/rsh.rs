//! A remote shell to this machine, for the tests of `shmrun --hosts`. As with ssh, a server executes the
//! command: in another directory, with next to no environment, with pipes as standard streams, and as
//! nobody's descendant whom `shmrun` started. When the client is gone, the command's input ends and
//! its output has no reader; when the command has ended, the client ends with its status. A file `cut-HOST`
//! beside the socket cuts a host off: nothing gets through any more, not even that a side has ended.
//!
//! `rsh --serve SOCKET` is the server, `rsh SOCKET HOST COMMAND..` the client. Some hosts are special:
//! see [`client`].

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use shmem_testkit::job::MARK;

/// Kinds of messages from the server: output, or the exit status.
const OUT: u8 = 1;
const ERR: u8 = 2;
const EXIT: u8 = 3;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--serve", socket] => serve(socket),
        [socket, host, ref command @ ..] => client(socket, host, &command.join(" ")),
        _ => panic!("rsh --serve SOCKET, or rsh SOCKET HOST COMMAND.."),
    }
}

fn serve(socket: &str) {
    for stream in UnixListener::bind(socket).unwrap().incoming() {
        let place = PathBuf::from(socket);
        std::thread::spawn(move || session(stream.unwrap(), &place));
    }
}

/// A string behind its length; none if the client has gone.
fn read_text(mut stream: &UnixStream) -> Option<String> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).ok()?;
    let mut text = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut text).ok()?;
    String::from_utf8(text).ok()
}

fn write_text(mut stream: &UnixStream, text: &str) {
    let len = (text.len() as u32).to_le_bytes();
    stream.write_all(&[&len, text.as_bytes()].concat()).unwrap();
}

fn session(stream: UnixStream, socket: &Path) {
    let text = || read_text(&stream);
    let (Some(host), Some(mark), Some(command)) = (text(), text(), text()) else {
        return;
    };
    let mut child = Command::new("setsid")
        .args(["-w", "sh", "-c", &command])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("RSH_HOST", &host)
        .env(MARK, mark)
        .env("SHMEM_SPIN", "set by the shell's start-up files, and wrong")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut from = stream.try_clone().unwrap();
    let cut = socket.with_file_name(format!("cut-{host}"));
    let is_cut = cut.clone();
    std::thread::spawn(move || {
        let mut buf = vec![0; 32 << 10];
        while let Ok(n @ 1..) = from.read(&mut buf) {
            if !is_cut.exists() && input.write_all(&buf[..n]).is_err() {
                return;
            }
        }
        mended(&is_cut);
    });
    let stream = Arc::new(Mutex::new(stream));
    let pass = |kind: u8, mut pipe: Box<dyn Read + Send>| {
        let stream = stream.clone();
        let cut = cut.clone();
        std::thread::spawn(move || {
            let mut buf = vec![0; 32 << 10];
            while let Ok(n @ 1..) = pipe.read(&mut buf) {
                if !cut.exists() && send(&stream, kind, &buf[..n]).is_err() {
                    return;
                }
            }
        })
    };
    let out = pass(OUT, Box::new(child.stdout.take().unwrap()));
    let err = pass(ERR, Box::new(child.stderr.take().unwrap()));
    let status = child.wait().unwrap();
    out.join().unwrap();
    err.join().unwrap();
    mended(&cut);
    let status = status.code().unwrap_or(255) as u8;
    let _ = send(&stream, EXIT, &[status]);
}

/// Waits until a link is not cut.
fn mended(cut: &Path) {
    while cut.exists() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn send(stream: &Mutex<UnixStream>, kind: u8, data: &[u8]) -> std::io::Result<()> {
    let len = (data.len() as u32).to_le_bytes();
    let message = [&[kind][..], &len, data].concat();
    stream.lock().unwrap().write_all(&message)
}

fn client(socket: &str, host: &str, command: &str) {
    match host {
        // Like an sshd that is asked by too many at a time.
        "refusing" => {
            let count = std::path::Path::new(socket).with_file_name("refused");
            let refused = std::fs::read(&count).unwrap_or_default();
            if refused.len() < 2 {
                std::fs::write(&count, [&refused[..], b"x"].concat()).unwrap();
                eprintln!("kex_exchange_identification: read: Connection reset by peer");
                std::process::exit(255);
            }
        }
        _ if host.starts_with("unreachable") => {
            eprintln!("rsh: connect to host {host}: No route to host");
            std::process::exit(255);
        }
        "silent" => std::thread::sleep(std::time::Duration::from_secs(1000)),
        // The first process ends, and what it started goes on with its standard streams.
        "detached" | "runaway" => {
            let mut other = match host {
                "runaway" => Command::new("sleep"),
                _ => Command::new(std::env::current_exe().unwrap()),
            };
            match host {
                "runaway" => other.arg("100"),
                _ => other.args([socket, "behind", command]),
            };
            other.spawn().unwrap();
            std::process::exit(0);
        }
        "chatty" => println!("Welcome to chatty, have a lot of fun"),
        "other-version" => {
            let mut greeting = shmem_launch::remote::greeting();
            greeting[8..12].copy_from_slice(&999u32.to_le_bytes());
            std::io::stdout().write_all(&greeting).unwrap();
        }
        // Like a host on which a program is missing that the launcher's has.
        "lacking" => {
            std::fs::remove_file(std::path::Path::new(socket).with_file_name("program")).unwrap();
        }
        _ => {}
    }
    let mut stream = UnixStream::connect(socket).unwrap();
    write_text(&stream, host);
    write_text(&stream, &std::env::var(MARK).unwrap_or_default());
    write_text(&stream, command);
    let mut to = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut buf = vec![0; 32 << 10];
        while let Ok(n @ 1..) = std::io::stdin().read(&mut buf) {
            if to.write_all(&buf[..n]).is_err() {
                return;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    loop {
        let mut head = [0; 5];
        if stream.read_exact(&mut head).is_err() {
            eprintln!("rsh: Connection to {host} closed by remote host.");
            std::process::exit(255);
        }
        let len: [u8; 4] = head[1..].try_into().unwrap();
        let mut data = vec![0; u32::from_le_bytes(len) as usize];
        stream.read_exact(&mut data).unwrap();
        let written = match head[0] {
            OUT => std::io::stdout()
                .write_all(&data)
                .and_then(|()| std::io::stdout().flush()),
            ERR => std::io::stderr().write_all(&data),
            _ => std::process::exit(data[0].into()),
        };
        if written.is_err() {
            std::process::exit(255);
        }
    }
}
