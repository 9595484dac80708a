//! Tells where a PE stands when it does not get on: a job that a test's limit ends says why.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a check may take before its PE says so. None takes seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The watch over one PE; ends when it is dropped.
pub(crate) struct Progress {
    /// `None` once it is to end.
    entered: Option<Sender<&'static str>>,
    watcher: Option<JoinHandle<()>>,
}

impl Progress {
    /// Watches PE `me` from a thread of its own.
    pub(crate) fn watch(me: usize) -> Self {
        let (entered, news) = channel();
        let watcher = std::thread::spawn(move || {
            let (mut at, mut since) = ("init", Instant::now());
            loop {
                match news.recv_timeout(PATIENCE) {
                    Ok(name) => (at, since) = (name, Instant::now()),
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!(
                            "PE {me} has been in {at} for {} s",
                            since.elapsed().as_secs()
                        );
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        });
        Self {
            entered: Some(entered),
            watcher: Some(watcher),
        }
    }

    /// The PE enters a check.
    pub(crate) fn enter(&self, name: &'static str) {
        if let Some(entered) = &self.entered {
            // The watcher lives as long as this.
            let _ = entered.send(name);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.entered.take());
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}
