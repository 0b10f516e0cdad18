//! Signals, on the main thread: what an operator wants of a running server.
//!
//! SIGTERM and SIGINT drain it (a second one stops it at once), SIGUSR1 has it report its counters, SIGHUP has it read
//! its certificates and tables again.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use net::{Control, Post};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};

/// The signals that the server handles, caught from the moment of its creation.
pub(crate) struct Watch {
    signals: Signals,
    drain_timeout: Duration,
}

impl Watch {
    /// Catches the signals from now on.
    pub(crate) fn new(drain_timeout: Duration) -> io::Result<Watch> {
        Ok(Watch { signals: Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP])?, drain_timeout })
    }

    /// Ends [`obey`](Self::obey) when closed.
    pub(crate) fn handle(&self) -> Handle {
        self.signals.handle()
    }

    /// Passes orders to the shards until the handle is closed; `reported` is called when all have been asked to report,
    /// `reload` when certificates and tables are to be read again.
    pub(crate) fn obey(
        mut self,
        control: &Arc<Control>,
        posts: &[Post],
        reported: impl Fn(u64),
        reload: impl Fn(),
    ) {
        let mut draining = false;
        for signal in self.signals.forever() {
            match signal {
                SIGUSR1 => {
                    control.report();
                    posts.iter().for_each(Post::wake);
                    reported(control.reports());
                }
                // The shards learn of it with the next handshake; nobody is to be woken.
                SIGHUP => {
                    reload();
                    continue;
                }
                _ if draining => {
                    tracing::info!("stopping at once");
                    control.stop();
                }
                _ => {
                    draining = true;
                    tracing::info!(timeout = ?self.drain_timeout, "stopping when what is in flight is answered");
                    control.drain();
                    stop_after(self.drain_timeout, control.clone(), posts.to_vec());
                }
            }
            posts.iter().for_each(Post::wake);
        }
    }
}

fn stop_after(timeout: Duration, control: Arc<Control>, posts: Vec<Post>) {
    // The process ends when the shards do; this thread then ends with it.
    let spawned = thread::Builder::new().name("drain-timeout".to_owned()).spawn(move || {
        thread::sleep(timeout);
        control.stop();
        posts.iter().for_each(Post::wake);
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "no thread for the drain timeout; send SIGTERM again to stop");
    }
}
