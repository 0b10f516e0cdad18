//! The messages of one call as people read them.

use crate::text::Msg;
use crate::trace::{Entry, Trace, What, seconds};
use engine::TransportFailure;

/// Lines shown of one ladder, at most.
const LINES_MAX: usize = 400;

/// Everything about a Call-ID, and what happened to servers meanwhile; all of it if `call_id` is empty.
pub fn draw(trace: &Trace, call_id: &str) -> String {
    let concerns = |entry: &&Entry| match (&entry.what, &entry.msg) {
        (What::Sent | What::Received, Some(msg)) => call_id.is_empty() || msg.call_id() == call_id,
        (What::Sent | What::Received | What::Lost, _) => call_id.is_empty(),
        _ => true,
    };
    let mut lines = String::new();
    let mut shown = 0;
    for entry in trace.entries.iter().filter(concerns) {
        shown += 1;
        if shown > LINES_MAX && !call_id.is_empty() {
            lines.push_str("… and more\n");
            break;
        }
        lines.push_str(&line(entry));
        lines.push('\n');
    }
    lines
}

/// The nonce and the count of credentials, or the nonce of a challenge.
fn digest(msg: &Msg) -> String {
    let header = match msg.status() {
        None => crate::digest::credentials_header(msg.method()),
        Some(401) => "www-authenticate",
        Some(407) => "proxy-authenticate",
        Some(_) => return String::new(),
    };
    let Some(params) = crate::digest::ours(msg, header).into_iter().next() else { return String::new() };
    let of = |name: &str| params.get(name).unwrap_or("").to_owned();
    let stale = if of("stale").is_empty() { "" } else { " stale" };
    format!(" nonce={} {}{stale}", of("nonce"), of("nc"))
}

/// One event.
pub fn line(entry: &Entry) -> String {
    let Entry { node, peer, .. } = entry;
    let at = seconds(entry.at);
    let transport = if entry.reliable { "tcp" } else { "udp" };
    let what = entry.msg.as_ref().map_or_else(
        || format!("{} bytes", entry.bytes.len()),
        |msg| {
            let tag = msg.to_tag().map_or(String::new(), |tag| format!(" to={tag}"));
            let contacts =
                if msg.method() == "REGISTER" { msg.list("contact").join(", ") } else { String::new() };
            let uri = if msg.is_request() { format!(" {}", msg.uri()) } else { String::new() };
            format!("{}{uri} [{}]{tag} {}", msg.label(), msg.branch(), msg.get("cseq").unwrap_or(""))
                + " "
                + &contacts
                + &digest(msg)
        },
    );
    match &entry.what {
        What::Sent => format!("{at:>12}  {node} ──▶ {peer}  {transport}  {what}"),
        What::Received => format!("{at:>12}  {node} ◀── {peer}  {transport}  {what}"),
        What::Lost => format!("{at:>12}  {node} ──✗ {peer}"),
        What::Restarted(server) => format!("{at:>12}  server {server} ({node}) was killed and started again"),
        What::ShardRestarted(server, shard) => {
            format!("{at:>12}  shard {shard} of server {server} ({node}) began again")
        }
        What::TransportFailed(TransportFailure::Unreachable) => {
            format!("{at:>12}  {node} learnt that {peer} cannot be reached")
        }
        What::TransportFailed(TransportFailure::Broken) => {
            format!("{at:>12}  {node} lost its connection to {peer}")
        }
        What::Committed(server, upto) => {
            format!("{at:>12}  the store of server {server} has what was before {}", seconds(*upto))
        }
        What::CommitFailed(server) => format!("{at:>12}  a commit of server {server} failed"),
        What::Asked(_, until) => {
            format!("{at:>12}  {node} asks for a name, which it gets at {}", seconds(*until))
        }
        What::Ended => format!("{at:>12}  {node} learnt that {peer} has said its last word"),
        What::Note(text) => format!("{at:>12}  {text}"),
    }
}
