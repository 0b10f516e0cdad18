//! Logs on standard error: the server's own, and what scripts say.
//!
//! Lines are written by a thread of their own from a bounded queue: a terminal or a pipe that nobody reads delays no
//! message. Lines past the queue's end are lost.

use std::io::IsTerminal as _;

use modules::{Level, Log};
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};

/// Lines that may wait to be written; further ones are lost.
const LINES_MAX: usize = 65_536;

/// Starts logging: lines of `level` and graver ones are written to standard error, the last ones when the guard is
/// dropped.
pub(crate) fn start(level: LevelFilter) -> WorkerGuard {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(LINES_MAX)
        .thread_name("log")
        .finish(std::io::stderr());
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(writer)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    guard
}

/// The filter for `debug=` of a configuration.
pub(crate) fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Alert | Level::Bug | Level::Critical | Level::Error => LevelFilter::ERROR,
        Level::Warning => LevelFilter::WARN,
        Level::Notice | Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    }
}

/// What scripts and module functions write goes the same way.
#[derive(Debug)]
pub(crate) struct ScriptLog;

/// Bytes of one line of a script's log that are kept.
const LINE_BYTES_MAX: usize = 4_096;

impl Log for ScriptLog {
    fn is_enabled(&self, level: Level) -> bool {
        filter(level) <= LevelFilter::current()
    }

    fn log(&mut self, level: Level, line: &[u8]) {
        let line = String::from_utf8_lossy(line.get(..LINE_BYTES_MAX).unwrap_or(line));
        let line = line.trim_end();
        match level {
            Level::Alert | Level::Bug | Level::Critical | Level::Error => tracing::error!("{line}"),
            Level::Warning => tracing::warn!("{line}"),
            Level::Notice | Level::Info => tracing::info!("{line}"),
            Level::Debug => tracing::debug!("{line}"),
        }
    }
}
