//! Diagnostics: what is wrong with a configuration, where, and what to write instead.

use alloc::string::String;
use alloc::vec::Vec;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// A range of bytes in one of the [`Sources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Span {
    /// Index of the file in [`Sources`].
    pub file: u16,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The range from the start of `self` to the end of `other`, when both lie in one file.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        if self.file == other.file && other.end >= self.start {
            Self { end: other.end, ..self }
        } else {
            self
        }
    }

    /// The empty range just behind this one.
    #[must_use]
    pub fn after(self) -> Self {
        Self { start: self.end, ..self }
    }

    /// A part of this range, by offsets from its start.
    #[must_use]
    pub(crate) fn part(self, from: usize, to: usize) -> Self {
        let at = |offset: usize| {
            self.start.saturating_add(u32::try_from(offset).unwrap_or(u32::MAX)).min(self.end)
        };
        Self { start: at(from), end: at(to), ..self }
    }
}

/// One file of a configuration.
#[derive(Debug, Clone)]
pub struct Source {
    /// The name, as the loader was asked for it.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// The files of a configuration: the main one first, then the included ones.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    files: Vec<Source>,
}

/// A place for people: a file, and a line and column counted from 1 (columns count characters).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position<'a> {
    /// The file's name.
    pub file: &'a str,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl Sources {
    /// Adds a file; what points into it has the index that comes back.
    pub fn add(&mut self, name: &str, text: String) -> u16 {
        self.files.push(Source { name: name.into(), text });
        u16::try_from(self.files.len() - 1).unwrap_or(u16::MAX)
    }

    /// The files, in the order of their indices.
    #[must_use]
    pub fn files(&self) -> &[Source] {
        &self.files
    }

    pub(crate) fn file(&self, index: u16) -> Option<&Source> {
        self.files.get(usize::from(index))
    }

    /// The text that `span` covers; empty when it covers none.
    #[must_use]
    pub fn text(&self, span: Span) -> &str {
        self.file(span.file)
            .and_then(|file| file.text.get(span.start as usize..span.end as usize))
            .unwrap_or_default()
    }

    /// File, line and column of the start of `span`.
    #[must_use]
    pub fn position(&self, span: Span) -> Position<'_> {
        let Some(file) = self.file(span.file) else {
            return Position { file: "", line: 1, column: 1 };
        };
        let start = floor(&file.text, span.start as usize);
        let before = file.text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Position {
            file: &file.name,
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
        }
    }
}

/// A message that repeats a text of the configuration, which may have line ends, in one line.
fn one_line(message: String) -> String {
    let is_end = |character| matches!(character, '\n' | '\r');
    if !message.contains(is_end) {
        return message;
    }
    let lines: Vec<&str> = message.split(is_end).map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

/// The nearest boundary between characters at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// How grave a diagnostic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For information: the configuration runs as written.
    Note,
    /// Probably not what was meant; the configuration runs.
    Warning,
    /// The configuration cannot run.
    Error,
}

/// One finding about a configuration.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    /// How grave it is.
    pub severity: Severity,
    /// A stable name for the kind of finding, such as `unknown-function`.
    pub code: &'static str,
    /// What is wrong, in one line.
    pub message: String,
    /// Where, and the words beside the underline. `None` for findings about no place in particular.
    pub primary: Option<(Span, String)>,
    /// Other places that matter, each with its words.
    pub secondary: Vec<(Span, String)>,
    /// What to do about it.
    pub help: Vec<String>,
}

impl Diagnostic {
    pub(crate) fn new(
        severity: Severity,
        code: &'static str,
        message: impl Into<String>,
        span: Span,
    ) -> Self {
        Self {
            severity,
            code,
            message: one_line(message.into()),
            primary: Some((span, String::new())),
            secondary: Vec::new(),
            help: Vec::new(),
        }
    }

    pub(crate) fn error(code: &'static str, message: impl Into<String>, span: Span) -> Self {
        Self::new(Severity::Error, code, message, span)
    }

    pub(crate) fn warning(code: &'static str, message: impl Into<String>, span: Span) -> Self {
        Self::new(Severity::Warning, code, message, span)
    }

    pub(crate) fn note(code: &'static str, message: impl Into<String>, span: Span) -> Self {
        Self::new(Severity::Note, code, message, span)
    }

    #[must_use]
    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        if let Some((_, words)) = &mut self.primary {
            *words = label.into();
        }
        self
    }

    #[must_use]
    pub(crate) fn also(mut self, span: Span, label: impl Into<String>) -> Self {
        self.secondary.push((span, label.into()));
        self
    }

    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// Whether this finding keeps the configuration from running.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The span, when the finding has a place.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        self.primary.as_ref().map(|(span, _)| *span)
    }
}

/// Collects diagnostics up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    list: Vec<Diagnostic>,
    errors: usize,
    suppressed: usize,
}

impl Diagnostics {
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        if diagnostic.is_error() {
            self.errors += 1;
        }
        if self.list.len() < crate::limits::DIAGNOSTICS_MAX {
            self.list.push(diagnostic);
        } else {
            self.suppressed += 1;
        }
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// The findings in the order of their places, errors or not.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|diagnostic| {
            diagnostic.span().map_or((u16::MAX, u32::MAX), |span| (span.file, span.start))
        });
        if self.suppressed > 0 {
            self.list.push(Diagnostic {
                severity: if self.errors > 0 { Severity::Error } else { Severity::Note },
                code: "too-many",
                message: alloc::format!("{} more findings are not shown", self.suppressed),
                primary: None,
                secondary: Vec::new(),
                help: Vec::new(),
            });
        }
        self.list
    }
}

/// Whether [`render`] uses terminal colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Plain text.
    Never,
    /// ANSI escape sequences.
    Always,
}

/// Writes one diagnostic as rustc would: place, source line, underline, help.
#[must_use]
pub fn render(diagnostic: &Diagnostic, sources: &Sources, colour: Colour) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let title = level.primary_title(diagnostic.message.as_str()).id(diagnostic.code);
    let mut group = Group::with_title(title);
    let marks = diagnostic.primary.iter().map(|mark| (mark, true));
    let marks = marks.chain(diagnostic.secondary.iter().map(|mark| (mark, false)));
    let marks: Vec<_> = marks.collect();
    let mut shown: Vec<u16> = Vec::new();
    for ((span, _), _) in &marks {
        if shown.contains(&span.file) {
            continue;
        }
        shown.push(span.file);
        let Some(file) = sources.file(span.file) else { continue };
        if marks.iter().any(|((at, _), _)| at.file == span.file && !shows_well(&file.text, *at)) {
            let place = sources.position(*span);
            group = group.element(Origin::path(place.file).line(place.line).char_column(place.column));
            continue;
        }
        let mut snippet = Snippet::source(file.text.as_str()).path(file.name.as_str());
        for ((at, words), primary) in marks.iter().filter(|((at, _), _)| at.file == span.file) {
            let kind = if *primary { AnnotationKind::Primary } else { AnnotationKind::Context };
            let start = floor(&file.text, at.start as usize);
            let end = floor(&file.text, at.end as usize).max(start);
            let words = (!words.is_empty()).then_some(words.as_str());
            snippet = snippet.annotation(kind.span(start..end).label(words));
        }
        group = group.element(snippet);
    }
    for help in &diagnostic.help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    let renderer = match colour {
        Colour::Never => Renderer::plain(),
        Colour::Always => Renderer::styled(),
    };
    renderer.render(&[group])
}

/// Whether the lines of a span are short enough to be drawn.
fn shows_well(text: &str, span: Span) -> bool {
    const LINE_MAX: usize = 4096;
    let bytes = text.as_bytes();
    let before = bytes.get(..span.start as usize).unwrap_or_default();
    let after = bytes.get(span.start as usize..).unwrap_or_default();
    let head = before.iter().rev().take(LINE_MAX).position(|byte| *byte == b'\n');
    let tail = after.iter().take(LINE_MAX).position(|byte| *byte == b'\n');
    (head.is_some() || before.len() < LINE_MAX) && (tail.is_some() || after.len() < LINE_MAX)
}

/// The candidate nearest to `word` by edit distance, when one is near enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() < 2 {
        return None;
    }
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .filter_map(|candidate| Some((distance_within(limit, word, candidate)?, candidate)))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edit distance with transpositions, ignoring ASCII case, if it is at most `limit`; words longer than 64 bytes are
/// never near. Of the table only the diagonal band is computed in which a path can stay within the limit, and none of
/// it once every path has left it: a file of misspelt words asks for thousands of distances.
fn distance_within(limit: usize, left: &str, right: &str) -> Option<usize> {
    const LONGEST: usize = 64;
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() > LONGEST || right.len() > LONGEST || left.len().abs_diff(right.len()) > limit {
        return None;
    }
    // Beside letters of either case only signs that no name has are the same.
    let same = |a: u8, b: u8| a | 0x20 == b | 0x20;
    // Further than anything that is looked for.
    let far = limit + 1;
    let mut before = [far; LONGEST + 1];
    let mut previous = [far; LONGEST + 1];
    let mut current = [far; LONGEST + 1];
    for (column, slot) in previous.iter_mut().enumerate().take(far) {
        *slot = column;
    }
    for (row, &a) in left.iter().enumerate() {
        let band = row.saturating_sub(limit)..right.len().min(row + 1 + limit);
        current.fill(far);
        if row < limit {
            current[0] = row + 1;
        }
        let mut least = current[0];
        for column in band {
            let b = right[column];
            let mut cost = previous[column] + usize::from(!same(a, b));
            cost = cost.min(previous[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && same(a, right[column - 1]) && same(left[row - 1], b) {
                cost = cost.min(before[column - 1] + 1);
            }
            current[column + 1] = cost.min(far);
            least = least.min(cost);
        }
        if least > limit {
            return None;
        }
        before = previous;
        previous = current;
    }
    Some(previous[right.len()]).filter(|distance| *distance <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_of_two_letters_is_one_edit() {
        assert_eq!(distance_within(2, "t_realy", "t_relay"), Some(1));
        assert_eq!(distance_within(2, "abc", "ABC"), Some(0));
        assert_eq!(distance_within(3, "", "abc"), Some(3));
        assert_eq!(distance_within(2, "", "abc"), None);
    }

    /// The definition, without a table.
    fn edits(left: &[u8], right: &[u8]) -> usize {
        let ([head @ .., a], [start @ .., b]) = (left, right) else { return left.len().max(right.len()) };
        let least = edits(head, start) + usize::from(a != b);
        let least = least.min(edits(head, right) + 1).min(edits(left, start) + 1);
        match (head, start) {
            ([head @ .., c], [start @ .., d]) if a == d && c == b => least.min(edits(head, start) + 1),
            _ => least,
        }
    }

    #[test]
    fn the_band_has_every_distance_within_the_limit() {
        let words: Vec<String> = (2..1 << 6)
            .map(|bits: u32| {
                (0..bits.ilog2()).map(|at| if bits >> at & 1 == 0 { 'a' } else { 'b' }).collect()
            })
            .collect();
        for (left, right) in words.iter().flat_map(|left| words.iter().map(move |right| (left, right))) {
            let distance = edits(left.as_bytes(), right.as_bytes());
            for limit in 0..=6 {
                let expected = Some(distance).filter(|distance| *distance <= limit);
                assert_eq!(distance_within(limit, left, right), expected, "{left} {right} {limit}");
            }
        }
    }

    #[test]
    fn only_near_words_are_suggested() {
        assert_eq!(nearest("t_realy", ["t_reply", "t_relay", "lookup"]), Some("t_relay"));
        assert_eq!(nearest("frobnicate", ["t_relay", "lookup"]), None);
    }
}
