//! `strowger user add` at a terminal: the password is asked for twice and never shown. The terminal is a pseudo-terminal.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Set for a copy of this program that is to become the command.
const BECOME: &str = "STROWGER_TEST_STATE";

/// A directory of its own for one test, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("strowger-password-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory for the test");
        Scratch(path)
    }

    fn users(&self) -> String {
        let mut list = Command::new(env!("CARGO_BIN_EXE_strowger"));
        let output = list.args(["user", "list", "--state-dir"]).arg(&self.0).output().expect("strowger runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The end of a pseudo-terminal where the person sits, and who runs at the other one.
struct Terminal {
    person: File,
    shown: Receiver<Vec<u8>>,
    /// All that was shown so far.
    screen: String,
    child: Child,
}

impl Terminal {
    /// `strowger user add alice@example.com` at a terminal of its own.
    fn adding(state: &Scratch) -> Terminal {
        let person: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&person).and_then(|()| unlockpt(&person)).expect("a terminal of ours");
        let other =
            ioctl_tiocgptpeer(&person, OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("its other end");
        let end = || Stdio::from(other.try_clone().expect("a descriptor"));
        let program = std::env::current_exe().expect("invariant: a running test has a path");
        let child = Command::new(program)
            .args(["--exact", "a_copy_of_this_program_becomes_the_command", "--nocapture"])
            .env(BECOME, &state.0)
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("this program runs");
        let person = File::from(person);
        let mut reader = person.try_clone().expect("a descriptor");
        let (sender, shown) = channel();
        // It ends with the terminal (EIO).
        thread::spawn(move || {
            let mut buffer = [0; 1_024];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer.get(..count).unwrap_or_default().to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { person, shown, screen: String::new(), child }
    }

    fn look(&mut self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "this did not come in time: {}", self.screen);
        if let Ok(more) = self.shown.recv_timeout(left.min(Duration::from_millis(20))) {
            self.screen += &String::from_utf8_lossy(&more);
        }
    }

    /// Types a line once this is shown and what is typed is not.
    fn answer(&mut self, prompt: &str, line: &str) {
        let until = Instant::now() + PATIENCE;
        let echoes = |person: &File| {
            tcgetattr(person).expect("the terminal's modes").local_modes.contains(LocalModes::ECHO)
        };
        while !self.screen.contains(prompt) || echoes(&self.person) {
            self.look(until);
        }
        writeln!(self.person, "{line}").expect("the terminal takes it");
    }

    /// The exit code and the whole screen.
    fn end(mut self) -> (Option<i32>, String) {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours can be waited for") {
                break status;
            }
            self.look(until);
        };
        // All ends but this one are closed: the reader comes to the end of what was shown.
        while let Ok(more) = self.shown.recv_timeout(PATIENCE) {
            self.screen += &String::from_utf8_lossy(&more);
        }
        (status.code(), self.screen)
    }
}

/// No test where it is not called by one: it takes the terminal that is its input as its own, as a shell in a window has
/// one, and becomes `strowger`.
#[test]
fn a_copy_of_this_program_becomes_the_command() {
    let Some(state) = std::env::var_os(BECOME) else { return };
    rustix::process::setsid().expect("a session of its own");
    rustix::process::ioctl_tiocsctty(std::io::stdin()).expect("a terminal of its own");
    let mut command = Command::new(env!("CARGO_BIN_EXE_strowger"));
    command.args(["user", "add", "alice@example.com", "--state-dir"]).arg(state);
    panic!("strowger does not run: {}", command.exec());
}

#[test]
fn a_password_is_asked_for_twice_and_not_shown() {
    let state = Scratch::new("same");
    let mut terminal = Terminal::adding(&state);
    terminal.answer("Password for alice@example.com: ", "zanzibar-17");
    terminal.answer("Again: ", "zanzibar-17");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("alice@example.com added") && !screen.contains("zanzibar"), "{screen}");
    assert!(state.users().contains("alice"), "{}", state.users());
}

#[test]
fn two_passwords_that_differ_are_refused_and_not_shown() {
    let state = Scratch::new("differ");
    let mut terminal = Terminal::adding(&state);
    terminal.answer("Password for alice@example.com: ", "zanzibar-17");
    terminal.answer("Again: ", "madagascar-17");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(1), "{screen}");
    assert!(screen.contains("the two passwords differ; nothing was changed"), "{screen}");
    assert!(!screen.contains("zanzibar") && !screen.contains("madagascar"), "{screen}");
    assert!(!state.users().contains("alice"), "{}", state.users());
}
