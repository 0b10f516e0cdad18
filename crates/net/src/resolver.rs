//! Names to addresses on threads of their own, so that a slow name server delays nobody but who asked.
//!
//! A and AAAA by the system's resolver (`/etc/hosts`, `resolv.conf`), asked by a few threads from a bounded queue.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use engine::{AskId, OwnedAnswer};

use crate::queue::{Parcel, Post};

/// Names being asked for at once.
const THREADS: usize = 4;

/// Questions that may wait for a thread; the next one fails at once, as if the name did not exist.
const WAITING_MAX: usize = 1_024;

/// Addresses kept of one name.
const ADDRESSES_MAX: usize = 16;

#[derive(Debug)]
struct Question {
    id: AskId,
    host: String,
    from: Post,
}

/// The way to the resolving threads. They end when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Resolver(SyncSender<Question>);

impl Resolver {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread.
    pub fn start() -> std::io::Result<Resolver> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        for n in 0..THREADS {
            let receiver = receiver.clone();
            thread::Builder::new().name(format!("resolver-{n}")).spawn(move || serve(&receiver))?;
        }
        Ok(Resolver(sender))
    }

    /// Asks for the addresses of `host`; the answer goes to `from` as [`Parcel::Answer`], always.
    pub fn ask(&self, id: AskId, host: String, from: &Post) {
        let question = Question { id, host, from: from.clone() };
        if let Err(TrySendError::Full(question) | TrySendError::Disconnected(question)) =
            self.0.try_send(question)
        {
            tracing::warn!("too many names to resolve: {WAITING_MAX} are waiting");
            question.from.send(Parcel::Answer { id: question.id, answer: OwnedAnswer::Failed });
        }
    }
}

fn serve(questions: &Mutex<Receiver<Question>>) {
    loop {
        let next = questions.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Question { id, host, from }) = next else { return };
        let answer = resolve(&host).map_or(OwnedAnswer::Failed, OwnedAnswer::Addresses);
        from.send(Parcel::Answer { id, answer });
    }
}

fn resolve(host: &str) -> Option<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for found in (host, 0).to_socket_addrs().ok()? {
        if !addresses.contains(&found.ip()) && addresses.len() < ADDRESSES_MAX {
            addresses.push(found.ip());
        }
    }
    Some(addresses)
}
