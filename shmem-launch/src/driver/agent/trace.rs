//! Stacks of PEs, by whatever tool this node has: `eu-stack`, `gdb` or `gstack`. Each looks at one process
//! and stops it for a moment. Tools that take too long are killed, and their text has a bound.

use std::collections::VecDeque;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use super::{AgentProcess, TRACE};
use crate::agent::Event;
use crate::census::Example;
use crate::driver::link::{self, Got};
use crate::program;
use crate::sys::{self, Image, Interest, monotonic_ns};

/// Most bytes of a stack.
const MOST: usize = 16 << 10;
/// Most tools at a time; each takes memory for a program's debug information.
const AT_ONCE: usize = 2;

/// Tools, the quickest first, with the arguments before and behind the process id.
const TOOLS: [(&str, &[&str], &[&str]); 3] = [
    ("eu-stack", &["-p"], &[]),
    (
        "gdb",
        &["-batch", "-nx", "-iex", "set debuginfod enabled off", "-p"],
        &["-ex", "thread apply all backtrace 32"],
    ),
    ("gstack", &[], &[]),
];

/// Says that a tool may not look, and why, as far as the kernel shows it.
fn refused() -> String {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let why = match scope.trim() {
        "" | "0" => {
            "a container that lacks the capability SYS_PTRACE, or the program itself, forbids it"
                .to_owned()
        }
        scope => format!("kernel.yama.ptrace_scope is {scope}"),
    };
    format!("the kernel lets no other process look at it: {why}")
}

/// A tool at work.
struct Tool {
    pid: i32,
    number: u32,
    rank: u32,
    out: Option<OwnedFd>,
    text: Vec<u8>,
    end: u64,
}

/// A process whose stacks are wanted.
struct Wanted {
    number: u32,
    pe: Example,
    end: u64,
}

/// Tools at work, and what they are to do next.
#[derive(Default)]
pub(super) struct Tracing {
    tools: Vec<Tool>,
    wanted: VecDeque<Wanted>,
}

impl AgentProcess {
    /// Begins to find out the stacks of a PE, in so many milliseconds at most.
    pub(super) fn trace(&mut self, number: u32, pe: Example, budget_ms: u32) {
        let end = monotonic_ns() + u64::from(budget_ms) * 1_000_000;
        self.tracing.wanted.push_back(Wanted { number, pe, end });
        self.trace_more();
    }

    fn trace_more(&mut self) {
        while self.tracing.tools.len() < AT_ONCE
            && let Some(wanted) = self.tracing.wanted.pop_front()
        {
            let Wanted { number, pe, end } = wanted;
            match self.start_tool(pe.pid) {
                Ok((pid, out)) => {
                    let token = TRACE | u64::from(pe.rank);
                    // What cannot be waited for is over when its time is.
                    let _ = self.epoll.add(&out, token, Interest::Read);
                    self.tracing.tools.push(Tool {
                        pid,
                        number,
                        rank: pe.rank,
                        out: Some(out),
                        text: Vec::new(),
                        end,
                    });
                }
                Err(why) => self.handle(Event::Traced(number, pe.rank, why)),
            }
        }
    }

    fn start_tool(&self, pe: u32) -> Result<(i32, OwnedFd), String> {
        // Only of a process that is one of this node's PEs at this moment.
        let known = i32::try_from(pe).is_ok_and(|pid| self.ending.by_pid.contains_key(&pid));
        if !known {
            return Err("its process has ended".into());
        }
        let path = std::env::var_os("PATH");
        let found = TOOLS.iter().find_map(|&(name, before, behind)| {
            let path = program::find(OsStr::new(name), path.clone()).ok()?;
            Some((name, path, before, behind))
        });
        let Some((name, path, before, behind)) = found else {
            return Err(
                "this node has no tool for stacks: install elfutils (eu-stack) or gdb".into(),
            );
        };
        let pid = pe.to_string();
        let words = [&[name][..], before, &[&pid], behind].concat();
        let failed = |e: &dyn std::fmt::Display| format!("{name} cannot be started: {e}");
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|e| failed(&e));
        let file = text(path.as_os_str().as_bytes())?;
        let argv: Vec<CString> = words
            .iter()
            .map(|word| text(word.as_bytes()))
            .collect::<Result<_, _>>()?;
        let env: Vec<CString> = std::env::vars_os()
            // Nothing is to be fetched from the network.
            .filter(|(name, _)| name != "DEBUGINFOD_URLS")
            .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect::<Result<_, _>>()?;
        let (out, theirs) = sys::pipe().map_err(|e| failed(&e))?;
        sys::set_nonblocking(out.as_fd()).map_err(|e| failed(&e))?;
        let null = sys::dev_null().map_err(|e| failed(&e))?;
        let placed = [
            (null.as_raw_fd(), 0, false),
            (theirs.as_raw_fd(), 1, false),
            (theirs.as_raw_fd(), 2, false),
        ];
        let image = Image::new(&file, &argv, &env);
        // SAFETY: agents have one thread; the child changes nothing that we own.
        let pid = unsafe { sys::fork_to_exec(|| image.exec_alone(&placed)) }
            .map_err(|e| failed(&program::not_started(&path, e)))?;
        Ok((pid, out))
    }

    /// A tool has said something, or has ended.
    pub(super) fn trace_ready(&mut self, rank: u32) {
        let mut part = [0; 4096];
        let Some(at) = self.tracing.tools.iter().position(|t| t.rank == rank) else {
            return;
        };
        let tool = &mut self.tracing.tools[at];
        match link::read(&mut tool.out, &mut part) {
            Got::Bytes(n) => {
                let room = MOST - tool.text.len();
                tool.text.extend_from_slice(&part[..n.min(room)]);
            }
            Got::Nothing => {}
            Got::End => self.end_tool(at, ""),
        }
    }

    fn end_tool(&mut self, at: usize, why: &str) {
        let tool = self.tracing.tools.remove(at);
        // One that has closed its output has little left to do.
        sys::kill(tool.pid, libc::SIGKILL);
        self.ending.search_due = true;
        let mut text = frames(&String::from_utf8_lossy(&tool.text));
        let lower = text.to_ascii_lowercase();
        let forbidden = lower.contains("not permitted") || lower.contains("permission denied");
        let why = Some(why).filter(|why| !why.is_empty()).map(str::to_owned);
        for why in why.into_iter().chain(forbidden.then(refused)) {
            text += "\n(";
            text += &why;
            text.push(')');
        }
        self.handle(Event::Traced(tool.number, tool.rank, text));
        self.trace_more();
    }

    /// When a tool has taken too long.
    pub(super) fn next_trace_end(&self) -> Option<u64> {
        let tools = self.tracing.tools.iter().map(|tool| tool.end);
        tools.min()
    }

    /// Ends tools that have taken too long.
    pub(super) fn end_late_tools(&mut self, now: u64) {
        while let Some(at) = self.tracing.tools.iter().position(|t| t.end <= now) {
            self.end_tool(at, "the tool took too long and was ended");
        }
    }
}

/// Of what a tool says, threads and their frames; all of it if there are none.
fn frames(said: &str) -> String {
    let is_frame = |line: &&str| {
        let begins = ["#", "Thread ", "TID "];
        begins.iter().any(|begin| line.starts_with(begin))
    };
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let frames: Vec<&str> = lines.iter().copied().filter(is_frame).collect();
    match frames.iter().any(|line| line.starts_with('#')) {
        true => frames.join("\n"),
        false => lines.join("\n").trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::frames;

    #[test]
    fn frames_are_told_without_what_tools_say_besides() {
        let gdb = "[New LWP 5]\nwarning: x\n\nThread 1 (LWP 4 \"a\"):\n#0  f () at a.c:3\n#1  main ()\n[Inferior 1 detached]\n";
        assert_eq!(
            frames(gdb),
            "Thread 1 (LWP 4 \"a\"):\n#0  f () at a.c:3\n#1  main ()"
        );
        let refused = "ptrace: Operation not permitted.\n";
        assert_eq!(frames(refused), "ptrace: Operation not permitted.");
    }
}
