//! A TCP connection's way between a server and its database, which can be slow, stand still or be cut.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a way that waits looks whether it may go on.
const STEP: Duration = Duration::from_millis(5);

/// A listener that passes every connection on to another address. Everything ends when it is dropped.
#[derive(Debug)]
pub struct Cable {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    /// How long each piece that the target says is held back, in milliseconds.
    delay_ms: AtomicU64,
    refusing: AtomicBool,
    over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
    connections: AtomicU64,
}

impl Cable {
    /// One to this address.
    ///
    /// # Panics
    ///
    /// When the loopback has no free port.
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has free ports");
        let address = listener.local_addr().expect("invariant: the socket is bound");
        let shared = Arc::new(Shared {
            target,
            delay_ms: AtomicU64::new(0),
            refusing: AtomicBool::new(false),
            over: AtomicBool::new(false),
            open: Mutex::default(),
            connections: AtomicU64::new(0),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &of_thread));
        Self { address, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on everything that the target says comes so much later.
    pub fn delay(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).expect("invariant: tests do not wait for ages");
        self.shared.delay_ms.store(by, Ordering::SeqCst);
    }

    /// Cuts all connections that there are.
    pub fn cut(&self) {
        let mut open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in open.drain(..) {
            // One that has ended already is cut.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Closes new connections at once, until [`Cable::admit`].
    pub fn refuse(&self) {
        self.shared.refusing.store(true, Ordering::SeqCst);
        self.cut();
    }

    /// Passes new connections on again.
    pub fn admit(&self) {
        self.shared.refusing.store(false, Ordering::SeqCst);
    }

    /// Connections that were made to it so far, refused ones too.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the listener, which then ends.
        let _ = TcpStream::connect(self.address);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((near, _)) = listener.accept() {
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        shared.connections.fetch_add(1, Ordering::SeqCst);
        if shared.refusing.load(Ordering::SeqCst) {
            continue;
        }
        let Ok(far) = TcpStream::connect(shared.target) else { continue };
        let ends = (near.try_clone(), near.try_clone(), far.try_clone(), far.try_clone());
        let (Ok(near_kept), Ok(near_read), Ok(far_kept), Ok(far_read)) = ends else { continue };
        shared.open.lock().unwrap_or_else(PoisonError::into_inner).extend([near_kept, far_kept]);
        let (there, back) = (Arc::clone(shared), Arc::clone(shared));
        thread::spawn(move || pass(near_read, far, &there, false));
        thread::spawn(move || pass(far_read, near, &back, true));
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, shared: &Shared, is_late: bool) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let came = Instant::now();
        let delay = || {
            if is_late {
                Duration::from_millis(shared.delay_ms.load(Ordering::SeqCst))
            } else {
                Duration::ZERO
            }
        };
        while came.elapsed() < delay() && !shared.over.load(Ordering::SeqCst) {
            thread::sleep(STEP);
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // The other direction ends with this one: databases do not half-close.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
