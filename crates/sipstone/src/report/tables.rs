//! The grid and kept connections as tables, from which text and page are both written.

use super::model::{Estimate, LatencyReport, Report};
use super::words::{NOTHING, bytes, number, or_dash, percent, whole};
use crate::connect::report::{ConnectReport, ConnectServer};
use crate::grid::report::{Grid, Handshakes, Row};
use serde::Serialize;
use std::collections::BTreeMap;

/// Seconds that a table shows at most; of more every so many-th.
const SECONDS_SHOWN_MAX: usize = 60;

/// A part of the report with its own heading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Section {
    pub(super) title: String,
    /// What it came to, in a sentence.
    pub(super) lead: String,
    pub(super) tables: Vec<Table>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Table {
    pub(super) caption: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) notes: Vec<String>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// Whether it holds words, which are set flush left.
    pub(super) word: bool,
}

const fn figure(name: &'static str, unit: &'static str) -> Column {
    Column { name, unit, word: false }
}

const fn word(name: &'static str) -> Column {
    Column { name, unit: "", word: true }
}

/// The sections of a report, besides its subjects.
pub(super) fn of(report: &Report) -> Vec<Section> {
    report.grid.iter().map(grid).chain(report.connect.iter().map(connect)).collect()
}

fn interval(estimate: &Estimate) -> String {
    format!("{} to {}", number(estimate.low), number(estimate.high))
}

/// A value and its interval, as two cells.
fn cells(estimate: Option<&Estimate>) -> [String; 2] {
    match estimate {
        Some(estimate) => [number(estimate.value), interval(estimate)],
        None => [NOTHING.into(), NOTHING.into()],
    }
}

/// A difference in percent, with its sign.
fn signed_percent(share: f64) -> String {
    let sign = if share > 0.0 { "+" } else { "" };
    format!("{sign}{:.1}", share * 100.0)
}

fn grid(grid: &Grid) -> Section {
    let mut tables = vec![configurations(grid)];
    if !grid.components.is_empty() {
        tables.push(components(grid));
    }
    if !grid.predictions.is_empty() {
        tables.push(predictions(grid));
    }
    if !grid.replicates.is_empty() {
        tables.push(replicates(grid));
    }
    Section { title: "The TLS grid".into(), lead: grid_lead(grid), tables }
}

fn grid_lead(grid: &Grid) -> String {
    let measured = grid.rows.iter().filter(|row| row.cpu_us_per_call.is_some()).count();
    let mut text = format!("{measured} of {} configurations measured", grid.wanted.len());
    let relative = |row: &&Row| row.relative_cost.map(|cost| (cost.value, row.id.clone()));
    let usable = || grid.rows.iter().filter(|row| row.not_supported.is_none() && row.invalid.is_empty());
    if let Some((cost, id)) =
        usable().filter_map(|row| relative(&row)).max_by(|one, other| one.0.total_cmp(&other.0))
    {
        text += &format!("; the costliest, {id}, costs {} times a call over UDP", number(cost));
    }
    if let Some(error) = grid.error_max() {
        text += &format!("; the model predicts the local ones within {:.1} %", error * 100.0);
    }
    text + "."
}

fn configurations(grid: &Grid) -> Table {
    let rows = grid.rows.iter().map(|row| {
        let [cpu, cpu_interval] = cells(row.cpu_us_per_call.as_ref());
        let [relative, relative_interval] = cells(row.relative_cost.as_ref());
        let paper = row.paper.as_ref();
        let marked = |value: f64, mark: bool| format!("{}{}", number(value), if mark { "*" } else { "" });
        vec![
            row.id.clone(),
            cpu,
            cpu_interval,
            relative,
            relative_interval,
            paper.map_or_else(
                || NOTHING.into(),
                |paper| marked(paper.relative_cost, paper.authentication_taken_off),
            ),
            row.peak.map_or_else(|| NOTHING.into(), |peak| number(peak.value)),
            paper.map_or_else(|| NOTHING.into(), |paper| marked(paper.peak, paper.peak_computed)),
            handshakes(row),
            note(row),
        ]
    });
    let mut notes = vec![
        format!(
            "CPU per call: the slope of the server's CPU time over the calls that it carried, at {} calls a second; intervals \
             at 95 %. Relative: in units of the UDP chain.",
            grid.plan.rates.iter().map(|rate| number(*rate)).collect::<Vec<_>>().join(", ")
        ),
        format!(
            "2009: {}. One Xeon of 3.06 GHz, OpenSIPS, RSA key exchange with AES-128-CBC. Its costs are CPU events at 50 calls a \
             second over those of the UDP chain; * outbound and local were measured with authentication, which is taken off by \
             its own component (3.0, 3.2, 3.6). Its peaks: * computed from the ratio that the text gives; outbound and local \
             with authentication.",
            grid.source
        ),
    ];
    notes.push(spoken(grid));
    Table {
        caption: "Configurations".into(),
        columns: vec![
            word("configuration"),
            figure("CPU", "µs per call"),
            figure("95 %", ""),
            figure("relative", ""),
            figure("95 %", ""),
            figure("2009", "relative"),
            figure("peak", "1/s"),
            figure("2009", "peak, 1/s"),
            word("handshakes"),
            word("note"),
        ],
        rows: rows.collect(),
        notes,
    }
}

/// What TLS was spoken.
fn spoken(grid: &Grid) -> String {
    let mut agreed = BTreeMap::<&str, u32>::new();
    for suite in grid.rows.iter().filter_map(|row| row.agreed.as_deref()) {
        *agreed.entry(suite).or_default() += 1;
    }
    let agreed: Vec<&str> = agreed.into_keys().collect();
    let agreed = if agreed.is_empty() { "nothing that was told".into() } else { agreed.join(", ") };
    format!("TLS here: {agreed}; keys {}; authentication {}.", grid.plan.key, grid.plan.authentication)
}

fn handshakes(row: &Row) -> String {
    let Handshakes { callers_full, callers_resumed, callees_full, callees_resumed, failed } = row.handshakes;
    let side = |name: &str, full: u64, resumed: u64| match (full, resumed) {
        (0, 0) => None,
        (full, 0) => Some(format!("{name} {} full", whole(full))),
        (0, resumed) => Some(format!("{name} {} resumed", whole(resumed))),
        (full, resumed) => Some(format!("{name} {} full, {} resumed", whole(full), whole(resumed))),
    };
    let sides =
        [side("callers", callers_full, callers_resumed), side("callees", callees_full, callees_resumed)];
    let failed = (failed > 0).then(|| format!("{} failed", whole(failed)));
    let parts: Vec<String> = sides.into_iter().chain([failed]).flatten().collect();
    if parts.is_empty() { NOTHING.into() } else { parts.join("; ") }
}

fn note(row: &Row) -> String {
    match &row.not_supported {
        Some(why) => format!("not supported: {why}"),
        None if !row.invalid.is_empty() => format!("INVALID: {}", row.invalid.join("; ")),
        None => String::new(),
    }
}

fn components(grid: &Grid) -> Table {
    let rows = grid.components.iter().map(|component| {
        let [us, us_interval] = cells(Some(&component.us));
        let [relative, relative_interval] = cells(Some(&component.relative));
        vec![
            component.name.clone(),
            us,
            us_interval,
            relative,
            relative_interval,
            number(component.paper),
            or_dash(component.paper_fixed),
        ]
    });
    Table {
        caption: "What a call is made of".into(),
        columns: vec![
            word("component"),
            figure("CPU", "µs"),
            figure("95 %", ""),
            figure("relative", ""),
            figure("95 %", ""),
            figure("2009", "figure 13"),
            figure("2009", "figure 18, client fixed"),
        ],
        rows: rows.collect(),
        notes: vec![
            "Subtracted in the paper's order (its section V-A): C = 1 + TCP + encryption + L·(TCP server + TLS server) + \
             R·(TCP client + TLS client). Server: the measured server accepts; client: it connects. The local \
             configurations have no part in it."
                .into(),
        ],
    }
}

fn predictions(grid: &Grid) -> Table {
    let rows = grid.predictions.iter().map(|one| {
        vec![
            one.id.clone(),
            number(one.predicted_us.value),
            interval(&one.predicted_us),
            number(one.measured_us.value),
            interval(&one.measured_us),
            signed_percent(one.error.value),
            format!("{} to {}", signed_percent(one.error.low), signed_percent(one.error.high)),
            signed_percent(one.paper_error),
        ]
    });
    Table {
        caption: "The model against what it has not seen".into(),
        columns: vec![
            word("configuration"),
            figure("predicted", "µs per call"),
            figure("95 %", ""),
            figure("measured", "µs per call"),
            figure("95 %", ""),
            figure("error", "%"),
            figure("95 %", ""),
            figure("2009", "error, %"),
        ],
        rows: rows.collect(),
        notes: vec![
            "2009: the paper's printed components against its own totals; it states 3 to 13 %.".into(),
        ],
    }
}

fn replicates(grid: &Grid) -> Table {
    let row = |one: &crate::grid::report::Replicate| {
        vec![one.id.clone(), one.of.clone(), signed_percent(one.difference)]
    };
    Table {
        caption: "Configurations that do the same".into(),
        columns: vec![word("configuration"), word("beside"), figure("difference", "%")],
        rows: grid.replicates.iter().map(row).collect(),
        notes: vec![
            "Over UDP the modes do not differ, and a chain makes no handshakes: what stands here is the error of the \
             measurement."
                .into(),
        ],
    }
}

fn connect(connect: &ConnectReport) -> Section {
    let mut tables = vec![counts(connect), times(connect)];
    if let Some(server) = &connect.server {
        tables.push(server_table(server));
    }
    tables.push(seconds(connect));
    Section { title: "Kept connections".into(), lead: connect_lead(connect), tables }
}

fn connect_lead(connect: &ConnectReport) -> String {
    let mut text = format!(
        "{} of {} connections over {} were opened ({} a second); {} were open after {} s",
        whole(connect.opened),
        whole(connect.connections.into()),
        connect.transport.to_uppercase(),
        number(connect.opened_rate),
        whole(connect.open_at_end),
        number(connect.hold_s)
    );
    if let Some(server) = &connect.server {
        if let Some(each) = server.bytes_per_connection {
            text += &format!(", {} of server memory each", signed_bytes(each));
        }
        if let Some(cores) = server.idle_cores {
            text += &format!(", {} % of a core while idle", number(cores * 100.0));
        }
    }
    text + "."
}

/// Bytes that may be fewer than none: a server that freed memory.
fn signed_bytes(value: f64) -> String {
    let size = bytes(value.abs().round() as u64);
    if value < 0.0 { format!("-{size}") } else { size }
}

fn causes(causes: &BTreeMap<String, u64>) -> String {
    let list: Vec<String> =
        causes.iter().map(|(cause, count)| format!("{cause} {}", whole(*count))).collect();
    if list.is_empty() { "none".into() } else { list.join(", ") }
}

fn counts(connect: &ConnectReport) -> Table {
    let pings = match connect.keepalive_s {
        Some(every) => format!(
            "{} sent, {} answered; at most {} s between them",
            whole(connect.pings),
            whole(connect.pongs),
            number(every)
        ),
        None => "none asked for".into(),
    };
    let mut rows = vec![
        (
            "asked for",
            format!(
                "{} at {}/s from {} addresses",
                whole(connect.connections.into()),
                number(connect.rate),
                connect.sources
            ),
        ),
        (
            "opened",
            format!(
                "{} within {} s ({}/s)",
                whole(connect.opened),
                number(connect.opening_s),
                number(connect.opened_rate)
            ),
        ),
        ("not opened", causes(&connect.failed)),
        ("lost", causes(&connect.lost)),
        ("open at the end", whole(connect.open_at_end)),
        ("pings", pings),
    ];
    if connect.handshakes_full + connect.handshakes_resumed > 0 {
        let (full, resumed) = (whole(connect.handshakes_full), whole(connect.handshakes_resumed));
        rows.push(("TLS handshakes", format!("{full} full, {resumed} resumed")));
    }
    if connect.registered {
        rows.push(("registered", whole(connect.register.map_or(0, |times| times.count))));
    }
    if connect.strays > 0 {
        rows.push(("not asked for", format!("{} messages of the server", whole(connect.strays))));
    }
    Table {
        caption: "Connections".into(),
        columns: vec![word("what"), word("how many")],
        rows: rows.into_iter().map(|(what, value)| vec![what.into(), value]).collect(),
        notes: Vec::new(),
    }
}

fn times(connect: &ConnectReport) -> Table {
    let row = |what: &str, times: &LatencyReport| {
        let cells = [times.p50_ms, times.p90_ms, times.p99_ms, times.p999_ms, times.max_ms];
        std::iter::once(what.to_owned()).chain(cells.map(or_dash)).collect::<Vec<String>>()
    };
    let mut rows = vec![row("TCP connection", &connect.connect)];
    for (what, times) in [
        ("TLS handshake", &connect.handshake),
        ("REGISTER to 200", &connect.register),
        ("ping to pong", &connect.pong),
    ] {
        rows.extend(times.as_ref().map(|times| row(what, times)));
    }
    Table {
        caption: "Latencies, ms".into(),
        columns: vec![
            word("what"),
            figure("p50", ""),
            figure("p90", ""),
            figure("p99", ""),
            figure("p99.9", ""),
            figure("longest", ""),
        ],
        rows,
        notes: vec![format!(
            "The generator began 99 % of the connections within {} ms of their time.",
            or_dash(connect.lag_p99_ms)
        )],
    }
}

fn server_table(server: &ConnectServer) -> Table {
    let descriptors = |count: Option<u32>| count.map_or_else(|| NOTHING.into(), |count| whole(count.into()));
    let rows = vec![
        vec!["memory before".into(), bytes(server.resident_before)],
        vec!["memory with all open".into(), bytes(server.resident_open)],
        vec!["memory at the end".into(), bytes(server.resident_end)],
        vec![
            "memory per connection".into(),
            server.bytes_per_connection.map_or_else(|| NOTHING.into(), signed_bytes),
        ],
        vec!["descriptors before".into(), descriptors(server.descriptors_before)],
        vec!["descriptors with all open".into(), descriptors(server.descriptors_open)],
        vec!["CPU per connection opened, µs".into(), or_dash(server.cpu_us_per_opening)],
        vec![
            "CPU while idle, % of a core".into(),
            server.idle_cores.map_or_else(|| NOTHING.into(), |cores| number(cores * 100.0)),
        ],
        vec!["the same per ping, µs".into(), or_dash(server.idle_cpu_us_per_ping)],
    ];
    Table {
        caption: "The server".into(),
        columns: vec![word("what"), figure("value", "")],
        rows,
        notes: vec![
            "Memory is what is resident (RSS), of all processes: pages that processes share count once for each. What the \
             kernel keeps for sockets is not in it."
                .into(),
        ],
    }
}

fn seconds(connect: &ConnectReport) -> Table {
    let step = connect.series.len().div_ceil(SECONDS_SHOWN_MAX).max(1);
    let rows = connect.series.iter().step_by(step).map(|second| {
        let server = second.server.as_ref();
        vec![
            second.second.to_string(),
            whole(second.opened),
            whole(second.open),
            whole(second.failed),
            whole(second.pings),
            server.map_or_else(|| NOTHING.into(), |server| percent(server.cpu_cores)),
            server.map_or_else(|| NOTHING.into(), |server| bytes(server.resident_bytes)),
        ]
    });
    let shown = if step > 1 {
        vec![format!("Every {step}th second; all are in the JSON report.")]
    } else {
        Vec::new()
    };
    Table {
        caption: "Second by second".into(),
        columns: vec![
            figure("second", ""),
            figure("opened", ""),
            figure("open", "at its end"),
            figure("lost", "or failed"),
            figure("pings", ""),
            figure("server", "% of a core"),
            figure("memory", ""),
        ],
        rows: rows.collect(),
        notes: shown,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A whole grid and kept connections, beside what a run has.
    pub(crate) fn report() -> Report {
        Report {
            grid: Some(crate::grid::report::tests::grid()),
            connect: Some(crate::connect::report::tests::report()),
            ..super::super::sample::run()
        }
    }

    #[test]
    fn every_row_has_a_cell_for_every_column() {
        let mut report = report();
        let grid = report.grid.as_mut().unwrap();
        grid.rows[3].not_supported = Some("does not resume".into());
        grid.rows[4].invalid = vec!["late".into()];
        grid.rows[8].peak = Some(Estimate { value: 1000.0, low: 980.0, high: 1010.0 });
        let sections = of(&report);
        assert_eq!(sections.len(), 2);
        for table in sections.iter().flat_map(|section| &section.tables) {
            assert!(!table.rows.is_empty(), "{}", table.caption);
            for row in &table.rows {
                assert_eq!(row.len(), table.columns.len(), "{}: {row:?}", table.caption);
            }
        }
        let rows = &sections[0].tables[0].rows;
        assert!(
            rows[3][9].contains("not supported: does not resume") && rows[4][9].contains("INVALID: late")
        );
        assert_eq!(rows[8][6], "1,000");
        assert!(of(&Report::default()).is_empty());
    }

    #[test]
    fn the_papers_figures_stand_beside_ours() {
        let sections = of(&report());
        let row = |id: &str| sections[0].tables[0].rows.iter().find(|row| row[0] == id).unwrap().clone();
        assert_eq!(row("chain-udp")[5..8], ["1", "–", "2,400"]);
        assert_eq!(row("chain-tls")[7], "695");
        assert_eq!(row("chain-tls-mutual")[5], "–");
        assert_eq!(row("local-tls")[5], "13.1*");
        assert!(sections[0].lead.contains("within 0.0 %"), "{}", sections[0].lead);
        assert!(sections[0].tables[0].notes[1].contains("CUCS-022-09"));
    }

    #[test]
    fn kept_connections_come_to_memory_and_idle_cpu() {
        let lead = &of(&report())[1].lead;
        assert!(lead.contains("999 of 1,000 connections over TCP"), "{lead}");
        assert!(lead.contains("10 KiB of server memory each") && lead.contains("1 % of a core"), "{lead}");
    }

    #[test]
    fn long_runs_are_shown_in_steps() {
        let mut report = report();
        let connect = report.connect.as_mut().unwrap();
        connect.series = vec![crate::connect::report::ConnectSecond::default(); 601];
        let sections = of(&report);
        let table = sections[1].tables.last().unwrap();
        assert!(
            table.rows.len() <= SECONDS_SHOWN_MAX && table.notes[0].contains("Every 11th"),
            "{:?}",
            table.notes
        );
    }
}
