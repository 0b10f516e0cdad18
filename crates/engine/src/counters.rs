//! What an endpoint counts: plain numbers of one shard, summed by whoever reads them.

/// Counts since the endpoint was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages handed in.
    pub messages_in: u64,
    /// Messages handed out.
    pub messages_out: u64,
    /// Requests handed in.
    pub requests_in: u64,
    /// Responses handed in.
    pub responses_in: u64,
    /// Messages that did not parse.
    pub parse_errors: u64,
    /// Requests that parsed and broke a rule that every element checks (answered 400, 505, …).
    pub invalid_requests: u64,
    /// Responses that parsed and broke a rule (dropped).
    pub invalid_responses: u64,
    /// Requests longer than [`Limits::message_bytes_max`](crate::Limits::message_bytes_max).
    pub too_large: u64,
    /// Responses whose topmost Via is not ours (dropped, RFC 3261 §18.1.2).
    pub foreign_responses: u64,
    /// Responses that match no transaction (dropped, RFC 6026 §8.9).
    pub stray_responses: u64,
    /// ACKs absorbed: of non-2xx responses and of stateless replies.
    pub acks_absorbed: u64,
    /// Requests received again.
    pub retransmissions_in: u64,
    /// Requests and responses sent again.
    pub retransmissions_out: u64,
    /// Transactions created; those that were there only while a script waited are not counted.
    pub transactions_created: u64,
    /// Transactions dropped because a panic cut short what was done with them.
    pub transactions_lost: u64,
    /// Requests forwarded with state: branches sent.
    pub branches: u64,
    /// Requests forwarded without state.
    pub forwarded_stateless: u64,
    /// Responses forwarded, with or without state.
    pub responses_forwarded: u64,
    /// Client transactions that timed out (timers B, C, F).
    pub timeouts: u64,
    /// Final responses whose ACK never came (Timer H).
    pub ack_timeouts: u64,
    /// Transport errors that ended a branch.
    pub transport_errors: u64,
    /// Requests refused because the table of transactions was full.
    pub table_full: u64,
    /// Requests refused because too many scripts were waiting.
    pub suspended_full: u64,
    /// Requests refused while draining.
    pub drained: u64,
    /// Loops found (482).
    pub loops: u64,
    /// Requests with no hops left (483).
    pub too_many_hops: u64,
    /// Names asked for.
    pub resolves: u64,
    /// Names without an address.
    pub resolve_failures: u64,
    /// Responses held back to an address not heard from twice.
    pub held_back: u64,
    /// Final responses too long to be kept for retransmission, as there were too many of them.
    pub long_dropped: u64,
    /// Messages not sent, as more changes were made to them than [`sip::MAX_EDITS`] or [`sip::MAX_EDIT_BYTES`] allow:
    /// requests are answered 500, provisional responses dropped, final ones replaced by responses of ours.
    pub edits_full: u64,
    /// CANCELs that we sent.
    pub cancels_out: u64,
    /// Responses of our own by class, 1xx to 6xx.
    pub replies: [u64; 6],
}

impl Counters {
    /// Counts a response of our own.
    pub(crate) fn reply(&mut self, status: u16) {
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(count) = self.replies.get_mut(class) {
            *count += 1;
        }
    }
}
