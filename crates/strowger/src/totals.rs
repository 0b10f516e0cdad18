//! What all shards counted, for the line that SIGUSR1 and the end of the server write.
//!
//! Each shard counts for itself and leaves a copy here about once a second; nobody else's cache line is touched on a
//! message's way.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::Counters;
use modules::AuthCounters;
use net::Statistics;
use net::tls::HandshakeStatistics;
use store::SelectorState;

use crate::keeping::KeepingState;
use crate::persistence::PersistenceState;

/// One shard's copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Orders to report that were seen when this was taken.
    pub(crate) reports: u64,
    pub(crate) loop_statistics: Statistics,
    pub(crate) counters: Counters,
    pub(crate) authentication: AuthCounters,
    pub(crate) transactions: usize,
}

/// The copies of all shards.
#[derive(Debug)]
pub(crate) struct Totals(Box<[Mutex<Snapshot>]>);

impl Totals {
    pub(crate) fn new(shards: usize) -> Totals {
        Totals((0..shards).map(|_| Mutex::default()).collect())
    }

    /// Replaces the copy of one shard.
    pub(crate) fn put(&self, shard: usize, snapshot: Snapshot) {
        if let Some(slot) = self.0.get(shard) {
            *lock(slot) = snapshot;
        }
    }

    /// Whether every shard has left a copy since the `reports`th order to do so.
    pub(crate) fn are_of(&self, reports: u64) -> bool {
        self.0.iter().all(|slot| lock(slot).reports >= reports)
    }

    /// The sum over all shards, to be printed in one line; `bindings` are held by the location table, `handshakes` were
    /// made by the threads for them, `keeping` tells of databases.
    pub(crate) fn line(
        &self,
        bindings: usize,
        handshakes: HandshakeStatistics,
        keeping: KeepingState,
    ) -> Line {
        let shards: Vec<Snapshot> = self.0.iter().map(|slot| lock(slot).clone()).collect();
        Line { shards, bindings, handshakes, keeping }
    }
}

fn lock(slot: &Mutex<Snapshot>) -> MutexGuard<'_, Snapshot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All counters in one line of `name=value`.
pub(crate) struct Line {
    shards: Vec<Snapshot>,
    bindings: usize,
    handshakes: HandshakeStatistics,
    keeping: KeepingState,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bindings={}", self.bindings)?;
        let sum = |field: fn(&Snapshot) -> u64| self.shards.iter().map(field).sum::<u64>();
        for (name, field) in FIELDS {
            write!(f, " {name}={}", sum(*field))?;
        }
        for (name, field) in HANDSHAKES {
            write!(f, " {name}={}", field(&self.handshakes))?;
        }
        if let Some(state) = &self.keeping.persistence {
            for (name, field) in PERSISTENCE {
                write!(f, " {name}={}", field(state))?;
            }
        }
        if let Some(state) = &self.keeping.selectors {
            for (name, field) in SELECTORS {
                write!(f, " {name}={}", field(state))?;
            }
        }
        Ok(())
    }
}

type Field = fn(&Snapshot) -> u64;

type HandshakeField = fn(&HandshakeStatistics) -> u64;

type PersistenceField = fn(&PersistenceState) -> u64;

type SelectorField = fn(&SelectorState) -> u64;

/// How bindings reach their database; absent in memory mode.
const PERSISTENCE: &[(&str, PersistenceField)] = &[
    ("persist_up", |s| u64::from(s.is_up)),
    ("persist_commits", |s| s.commits),
    ("persist_rows", |s| s.rows),
    ("persist_failures", |s| s.failures),
    ("persist_left_out", |s| s.left_out),
    ("persist_pending", |s| s.pending),
    ("persist_behind_secs", |s| s.behind_secs),
    ("persist_waiting", |s| s.waiting),
    ("persist_answered", |s| s.answered),
    ("persist_unanswered", |s| s.unanswered),
    ("persist_refreshed", |s| s.refreshed),
];

/// Questions of scripts to databases; absent where there are none.
const SELECTORS: &[(&str, SelectorField)] = &[
    ("select_up", |s| u64::from(s.is_up)),
    ("select_answered", |s| s.answered),
    ("select_refused", |s| s.refused),
    ("select_failed", |s| s.failed),
    ("select_full", |s| s.full),
    ("select_reconnects", |s| s.reconnects),
    ("select_waiting", |s| s.waiting),
];

/// TLS handshakes by kind, and why others failed.
const HANDSHAKES: &[(&str, HandshakeField)] = &[
    ("tls_accepted_full", |s| s.accepted_full),
    ("tls_accepted_resumed", |s| s.accepted_resumed),
    ("tls_connected_full", |s| s.connected_full),
    ("tls_connected_resumed", |s| s.connected_resumed),
    ("tls_under_way", |s| s.under_way as u64),
    ("tls_failed_not_tls", |s| s.not_tls),
    ("tls_failed_timed_out", |s| s.timed_out),
    ("tls_failed_closed", |s| s.closed),
    ("tls_failed_certificate", |s| s.certificate),
    ("tls_failed_protocol", |s| s.protocol),
    ("tls_failed_no_common", |s| s.no_common),
    ("tls_refused", |s| s.refused),
    ("tls_undelivered", |s| s.undelivered),
];

/// Every counter by its name; a new one is added here.
const FIELDS: &[(&str, Field)] = &[
    ("transactions", |s| s.transactions as u64),
    ("datagrams_in", |s| s.loop_statistics.datagrams_received),
    ("datagrams_out", |s| s.loop_statistics.datagrams_sent),
    ("unsent", |s| s.loop_statistics.datagrams_unsent),
    ("receive_drops", |s| s.loop_statistics.receive_drops),
    ("crossed", |s| s.loop_statistics.crossed),
    ("queue_drops", |s| s.loop_statistics.queue_drops),
    ("wakeups", |s| s.loop_statistics.wakeups),
    ("panics", |s| s.loop_statistics.panics),
    ("connections", |s| s.loop_statistics.streams.open),
    ("connections_tls", |s| s.loop_statistics.streams.open_tls),
    ("accepted", |s| s.loop_statistics.streams.accepted),
    ("connected", |s| s.loop_statistics.streams.connected),
    ("connect_failures", |s| s.loop_statistics.streams.connect_failures),
    ("stream_in", |s| s.loop_statistics.streams.messages_received),
    ("stream_out", |s| s.loop_statistics.streams.messages_sent),
    ("stream_unsent", |s| s.loop_statistics.streams.messages_unsent),
    ("pings", |s| s.loop_statistics.streams.pings),
    ("queued_bytes", |s| s.loop_statistics.streams.queued_bytes),
    ("partial_bytes", |s| s.loop_statistics.streams.partial_bytes),
    ("closed_by_peer", |s| s.loop_statistics.streams.closed_by_peer),
    ("closed_reset", |s| s.loop_statistics.streams.reset),
    ("closed_idle", |s| s.loop_statistics.streams.idle),
    ("closed_for_room", |s| s.loop_statistics.streams.evicted),
    ("refused_full", |s| s.loop_statistics.streams.refused_full),
    ("refused_source", |s| s.loop_statistics.streams.refused_source),
    ("refused_handshakes", |s| s.loop_statistics.streams.refused_handshakes),
    ("closed_slow", |s| s.loop_statistics.streams.slow),
    ("closed_send_timeout", |s| s.loop_statistics.streams.send_timeouts),
    ("closed_write_queue", |s| s.loop_statistics.streams.write_queue_full),
    ("closed_memory", |s| s.loop_statistics.streams.memory_full),
    ("closed_headers_too_long", |s| s.loop_statistics.streams.headers_too_long),
    ("closed_too_large", |s| s.loop_statistics.streams.too_large),
    ("closed_content_length", |s| s.loop_statistics.streams.content_length),
    ("closed_not_sip_tls", |s| s.loop_statistics.streams.not_sip_tls),
    ("closed_not_sip_http", |s| s.loop_statistics.streams.not_sip_http),
    ("closed_not_sip_other", |s| s.loop_statistics.streams.not_sip_other),
    ("tls_failures", |s| s.loop_statistics.streams.tls_failures),
    ("tls_clear_sip", |s| s.loop_statistics.streams.tls_clear_sip),
    ("tls_clear_http", |s| s.loop_statistics.streams.tls_clear_http),
    ("closed_tls_broken", |s| s.loop_statistics.streams.tls_broken),
    ("websocket_refused", |s| s.loop_statistics.streams.websocket_refused),
    ("websocket_violations", |s| s.loop_statistics.streams.websocket_violations),
    ("accept_errors", |s| s.loop_statistics.streams.accept_errors),
    ("no_descriptors", |s| s.loop_statistics.streams.no_descriptors),
    ("requests", |s| s.counters.requests_in),
    ("responses", |s| s.counters.responses_in),
    ("transactions_created", |s| s.counters.transactions_created),
    ("transactions_lost", |s| s.counters.transactions_lost),
    ("branches", |s| s.counters.branches),
    ("forwarded_stateless", |s| s.counters.forwarded_stateless),
    ("responses_forwarded", |s| s.counters.responses_forwarded),
    ("retransmissions_in", |s| s.counters.retransmissions_in),
    ("retransmissions_out", |s| s.counters.retransmissions_out),
    ("timeouts", |s| s.counters.timeouts),
    ("ack_timeouts", |s| s.counters.ack_timeouts),
    ("acks_absorbed", |s| s.counters.acks_absorbed),
    ("parse_errors", |s| s.counters.parse_errors),
    ("invalid_requests", |s| s.counters.invalid_requests),
    ("invalid_responses", |s| s.counters.invalid_responses),
    ("too_large", |s| s.counters.too_large),
    ("foreign_responses", |s| s.counters.foreign_responses),
    ("stray_responses", |s| s.counters.stray_responses),
    ("transport_errors", |s| s.counters.transport_errors),
    ("table_full", |s| s.counters.table_full),
    ("suspended_full", |s| s.counters.suspended_full),
    ("drained", |s| s.counters.drained),
    ("edits_full", |s| s.counters.edits_full),
    ("loops", |s| s.counters.loops),
    ("too_many_hops", |s| s.counters.too_many_hops),
    ("resolves", |s| s.counters.resolves),
    ("resolve_failures", |s| s.counters.resolve_failures),
    ("held_back", |s| s.counters.held_back),
    ("cancels_out", |s| s.counters.cancels_out),
    ("auth_challenged", |s| s.authentication.challenged),
    ("auth_accepted", |s| s.authentication.accepted),
    ("auth_wrong", |s| s.authentication.wrong),
    ("auth_stale", |s| s.authentication.stale),
    ("auth_slowed", |s| s.authentication.slowed),
    ("replies_1xx", |s| s.counters.replies[0]),
    ("replies_2xx", |s| s.counters.replies[1]),
    ("replies_3xx", |s| s.counters.replies[2]),
    ("replies_4xx", |s| s.counters.replies[3]),
    ("replies_5xx", |s| s.counters.replies[4]),
    ("replies_6xx", |s| s.counters.replies[5]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_sums_the_shards() {
        let totals = Totals::new(2);
        for shard in 0..2 {
            assert!(!totals.are_of(1));
            let counters = Counters { requests_in: 20 + shard as u64, ..Counters::default() };
            totals.put(shard, Snapshot { reports: 1, counters, transactions: 3, ..Snapshot::default() });
        }
        assert!(totals.are_of(1));
        let handshakes = HandshakeStatistics { accepted_full: 5, ..HandshakeStatistics::default() };
        let line = totals.line(7, handshakes, KeepingState::default()).to_string();
        assert!(line.starts_with("bindings=7 transactions=6 ") && line.contains(" requests=41 "), "{line}");
        assert!(line.contains(" tls_accepted_full=5 "), "{line}");
        assert!(!line.contains('\n') && !line.contains("persist_") && !line.contains("select_"), "{line}");
        let persistence = PersistenceState { rows: 12, is_up: true, ..PersistenceState::default() };
        let keeping = KeepingState { persistence: Some(persistence), ..KeepingState::default() };
        let line = totals.line(7, handshakes, keeping).to_string();
        assert!(line.contains(" persist_up=1 ") && line.contains(" persist_rows=12 "), "{line}");
    }
}
