//! The agent's side: one controller at a time, its commands to the group, the group's events back.
//!
//! Threads: the caller's own runs the sessions (only it may make groups). One waits at the door; for each connection a
//! short-lived one reads the first line, so that a stranger who says nothing keeps nobody waiting. In a session one more
//! reads commands, answers Pings at once, and notices a controller that has gone.

use super::wire::{
    Answer, Broken, GREETING_BYTES_MAX, Got, Greeting, Lines, PROTOCOL, Writer, clock_us, version,
};
use super::{Settings, check, require_token};
use crate::group::{Command, Event, Group};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sha2::{Digest, Sha256};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, TrySendError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Connections whose first line is awaited, at once; one more is closed without a word.
const VISITORS_MAX: usize = 16;

/// Commands that wait for the group; a run has no more than a handful in all.
const COMMANDS_QUEUED_MAX: usize = 64;

/// How long the group is asked for an event before commands are looked at.
const GROUP_WAIT: Duration = Duration::from_millis(5);

/// How long a second controller waits for the first one's session to end before it is refused.
const BUSY_WAIT: Duration = Duration::from_millis(500);

/// How long a wait may last before `stop` is looked at.
const STOP_SLICE: Duration = Duration::from_millis(100);
const STOP_SLICE_MS: u16 = 100;

/// Works as an agent: accepts one controller after the other on `listen` until `stop` is set.
///
/// Each controller gets a new group from `make_group`; when it goes away the group is told to stop without a drain, and
/// dropped.
///
/// # Errors
/// The address cannot be listened on, or is one that needs a (better) token: [`require_token`].
pub fn serve(
    listen: SocketAddr,
    token: Option<String>,
    make_group: &mut dyn FnMut() -> Box<dyn Group>,
    stop: &AtomicBool,
) -> io::Result<()> {
    let listener = TcpListener::bind(listen)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {listen}: {error}")))?;
    serve_on(&listener, token.as_deref(), &Settings::default(), make_group, stop)
}

/// [`serve`] on a socket that listens already.
///
/// # Errors
/// As [`serve`].
pub fn serve_on(
    listener: &TcpListener,
    token: Option<&str>,
    settings: &Settings,
    make_group: &mut dyn FnMut() -> Box<dyn Group>,
    stop: &AtomicBool,
) -> io::Result<()> {
    let listen = listener.local_addr()?;
    require_token(listen, token).map_err(|sentence| io::Error::new(io::ErrorKind::InvalidInput, sentence))?;
    listener.set_nonblocking(true)?;
    let door = Door {
        token: token.map(digest),
        settings: *settings,
        controller: Mutex::new(None),
        visitors: AtomicUsize::new(0),
        stop,
        closed: AtomicBool::new(false),
    };
    info!("waiting for a controller on {listen}");
    let (admitted, waiting) = mpsc::channel();
    thread::scope(|scope| {
        let _closing = Closing(&door.closed);
        let doorman = &door;
        scope.spawn(move || doorman.stand(scope, listener, admitted));
        while !stop.load(Ordering::Relaxed) {
            match waiting.recv_timeout(STOP_SLICE) {
                Ok(connection) => {
                    session(connection, make_group(), stop);
                    *door.controller() = None;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    Ok(())
}

/// Closes the door however the scope is left; otherwise its threads would be waited for in vain.
struct Closing<'a>(&'a AtomicBool);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A controller that was let in.
struct Connection {
    lines: Lines,
    writer: Writer,
    peer: SocketAddr,
}

/// Who is let in.
struct Door<'a> {
    token: Option<[u8; 32]>,
    settings: Settings,
    /// Who uses the agent now.
    controller: Mutex<Option<SocketAddr>>,
    visitors: AtomicUsize,
    stop: &'a AtomicBool,
    closed: AtomicBool,
}

impl Door<'_> {
    fn controller(&self) -> MutexGuard<'_, Option<SocketAddr>> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed)
    }

    /// Accepts connections until the door is closed.
    fn stand<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        listener: &TcpListener,
        admitted: Sender<Connection>,
    ) {
        while !self.is_closed() {
            let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut fds, PollTimeout::from(STOP_SLICE_MS));
            match listener.accept() {
                Ok((stream, peer)) => self.greet(scope, stream, peer, &admitted),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    // No descriptors left, or the peer has gone already: the next attempt may do better.
                    warn!("cannot accept a controller: {error}");
                    thread::sleep(STOP_SLICE);
                }
            }
        }
    }

    fn greet<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        stream: TcpStream,
        peer: SocketAddr,
        admitted: &Sender<Connection>,
    ) {
        if self.visitors.fetch_add(1, Ordering::Relaxed) >= VISITORS_MAX {
            self.visitors.fetch_sub(1, Ordering::Relaxed);
            warn!("{peer} was turned away: {VISITORS_MAX} others have not said yet who they are");
            return;
        }
        let admitted = admitted.clone();
        scope.spawn(move || {
            match self.hear_greeting(stream, peer) {
                Ok(Some(connection)) => {
                    let _ = admitted.send(connection);
                }
                Ok(None) => {}
                Err(error) => warn!("{peer} was not let in: {error}"),
            }
            self.visitors.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Reads the first line and answers it; `None` if the answer is no.
    fn hear_greeting(&self, stream: TcpStream, peer: SocketAddr) -> Result<Option<Connection>, String> {
        let words = |error: io::Error| error.to_string();
        stream.set_nonblocking(false).map_err(words)?;
        let writer = Writer::new(stream.try_clone().map_err(words)?, &self.settings).map_err(words)?;
        let mut lines = Lines::new(stream, GREETING_BYTES_MAX, &self.settings).map_err(words)?;
        let deadline = Instant::now() + self.settings.greeting_max;
        let decision = match lines.line_until(deadline, &|| self.is_closed()) {
            Ok(Some(line)) => self.decide(&line, peer),
            Ok(None) | Err(Broken::Silent(_)) => Err("no greeting came in time".into()),
            Err(Broken::TooLong(_)) => Err(NO_GREETING.into()),
            Err(broken) => return Err(broken.to_string()),
        };
        let refused = decision.err();
        let answer = Answer { sipstone: PROTOCOL, version: version(), refused: refused.clone() };
        let said = writer.send(&answer);
        if let Some(sentence) = refused {
            writer.close_after_reading(&mut lines);
            return Err(sentence);
        }
        if let Err(sentence) = said {
            *self.controller() = None;
            return Err(sentence);
        }
        lines.allow(self.settings.line_bytes_max);
        Ok(Some(Connection { lines, writer, peer }))
    }

    /// Whether the sender of this first line may command the agent; if so, it is the agent's controller from now on.
    fn decide(&self, line: &[u8], peer: SocketAddr) -> Result<(), String> {
        let greeting: Greeting = serde_json::from_slice(line).map_err(|_| NO_GREETING.to_string())?;
        if greeting.sipstone != PROTOCOL {
            return Err(format!(
                "this agent (sipstone {}) speaks version {PROTOCOL} of the agents' protocol, the controller speaks {}: \
                 install the same sipstone on both hosts",
                version(),
                greeting.sipstone
            ));
        }
        if let Some(wanted) = &self.token {
            let Some(token) = &greeting.token else {
                return Err("a token is needed: give the agent's with --agent-token-file".into());
            };
            if !same(wanted, &digest(token)) {
                thread::sleep(self.settings.wrong_token_pause);
                return Err("the token is wrong: give the agent's with --agent-token-file".into());
            }
        }
        self.take_the_agent(peer)
    }

    /// Waits a little for a session that is just ending, so that one run may follow another at once.
    fn take_the_agent(&self, peer: SocketAddr) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let other = {
                let mut controller = self.controller();
                let Some(other) = *controller else {
                    *controller = Some(peer);
                    return Ok(());
                };
                other
            };
            if start.elapsed() > BUSY_WAIT || self.is_closed() {
                return Err(format!(
                    "it works for {other} now: wait until that run has ended, or take another agent"
                ));
            }
            thread::sleep(GROUP_WAIT);
        }
    }
}

/// The answer to something that is no controller.
const NO_GREETING: &str = "this is an agent of sipstone, and the first line was not a controller's greeting";

/// Digests have one length, so that comparing them tells nothing about a token's.
fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Compares in a time that does not depend on where they differ.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let differences = a.iter().zip(b).fold(0, |differences, (a, b)| differences | (a ^ b));
    std::hint::black_box(differences) == 0
}

/// Why a session ended.
enum Ending {
    /// The controller has gone: nobody is there to be told.
    Gone(String),
    /// The controller is told why.
    Told(String),
}

/// Serves one controller until it goes away. The load has ended when this returns.
fn session(connection: Connection, mut group: Box<dyn Group>, stop: &AtomicBool) {
    let Connection { lines, writer, peer } = connection;
    info!("{peer} is the controller");
    let (commands, orders) = mpsc::sync_channel(COMMANDS_QUEUED_MAX);
    let ending = thread::scope(|scope| {
        let writer = &writer;
        let ears = scope.spawn(move || hear(lines, writer, commands));
        let ending = carry_out(&mut *group, &orders, writer, stop);
        // The load first: telling the controller may take a while.
        let _ = group.send(Command::Stop { drain: false });
        drop(group);
        if let Some(Ending::Told(message)) = &ending {
            let _ = writer.send(&Event::Problem { message: message.clone() });
        }
        if ending.is_some() {
            writer.close();
        }
        let heard = ears.join().unwrap_or_else(|_| Ending::Gone("its reader ended".into()));
        ending.unwrap_or(heard)
    });
    match ending {
        Ending::Gone(why) => info!("the controller {peer} has gone: {why}; its load is stopped"),
        Ending::Told(why) => warn!("the controller {peer} was sent away: {why}; its load is stopped"),
    }
}

/// Passes commands to the group and events to the controller. `None`: the reader has ended and knows why.
fn carry_out(
    group: &mut dyn Group,
    orders: &Receiver<(Instant, Command)>,
    writer: &Writer,
    stop: &AtomicBool,
) -> Option<Ending> {
    loop {
        if stop.load(Ordering::Relaxed) {
            return Some(Ending::Told("the agent was ended on its own host".into()));
        }
        match orders.try_recv() {
            Ok((received, command)) => {
                if let Err(gone) = group.send(due(command, received.elapsed())) {
                    return Some(Ending::Told(gone.to_string()));
                }
                continue;
            }
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {}
        }
        match group.receive(GROUP_WAIT) {
            Ok(Some(event)) => {
                if let Err(why) = writer.send(&event) {
                    return Some(Ending::Gone(why));
                }
            }
            Ok(None) => {}
            Err(gone) => return Some(Ending::Told(gone.to_string())),
        }
    }
}

/// A command that waited: a start is due that much sooner.
fn due(command: Command, waited: Duration) -> Command {
    match command {
        Command::Start { after, contacts } => {
            Command::Start { after: after.saturating_sub(waited), contacts }
        }
        other => other,
    }
}

/// Reads commands until there is a reason to end; a reason to be told is told.
fn hear(mut lines: Lines, writer: &Writer, commands: SyncSender<(Instant, Command)>) -> Ending {
    let ending = hear_commands(&mut lines, writer, &commands);
    // The session's own thread notices this and ends the load, whatever else takes time.
    drop(commands);
    match &ending {
        Ending::Gone(_) => writer.close(),
        Ending::Told(message) => {
            let _ = writer.send(&Event::Problem { message: message.clone() });
            writer.close_after_reading(&mut lines);
        }
    }
    ending
}

fn hear_commands(lines: &mut Lines, writer: &Writer, commands: &SyncSender<(Instant, Command)>) -> Ending {
    loop {
        let line = match lines.next() {
            Ok(Got::Line(line)) => line,
            Ok(Got::Piece | Got::Nothing) => continue,
            Err(broken @ Broken::TooLong(_)) => {
                return Ending::Told(format!("{broken}, which is no command"));
            }
            Err(broken) => return Ending::Gone(broken.to_string()),
        };
        let received = Instant::now();
        let command = match check::command(&line) {
            Ok(Command::Ping { token }) => {
                // Not through the group, whose answer would be late by its own work.
                if let Err(why) = writer.send(&Event::Pong { token, clock_us: clock_us() }) {
                    return Ending::Gone(why);
                }
                continue;
            }
            Ok(command) => command,
            Err(sentence) => return Ending::Told(sentence),
        };
        match commands.try_send((received, command)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                return Ending::Told(format!("more than {COMMANDS_QUEUED_MAX} commands wait to be obeyed"));
            }
            Err(TrySendError::Disconnected(_)) => return Ending::Gone("the session has ended".into()),
        }
    }
}
