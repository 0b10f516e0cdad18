//! Tables for people.

use comfy_table::{ContentArrangement, Table, presets};

/// A table with this head, if it is not empty; control characters of what clients sent do not reach the terminal.
pub(super) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    if !head.is_empty() {
        table.set_header(head.iter().map(|text| text.to_uppercase()));
    }
    for row in rows {
        table.add_row(row.iter().map(|text| printable(text)));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    lines.concat()
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Seconds as people say them: `59 s`, `12 min`, `3 h`, `2 d`.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sent_cannot_steer_the_terminal() {
        let shown = table(&["agent"], vec![vec!["\u{1b}[31mred\r\n".to_owned()]]);
        assert!(!shown.contains('\u{1b}') && shown.contains("[31mred"), "{shown}");
    }

    #[test]
    fn times_are_rounded_to_what_matters() {
        assert_eq!(
            [span(0), span(119), span(120), span(7_199), span(7_200), span(200_000)],
            ["0 s", "119 s", "2 min", "119 min", "2 h", "2 d"]
        );
    }
}
