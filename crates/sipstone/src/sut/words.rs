//! Splits a command into words as a POSIX shell does ("Shell Command Language", 2.2 Quoting). Nothing is expanded:
//! `$HOME`, `~`, `*` and `;` are ordinary characters, since no shell runs.

/// # Errors
/// A quote that is not closed, a backslash at the end, no word at all: what is wrong, for a sentence.
pub(super) fn split(command: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    // `Some("")` is a word too: it was written as ''.
    let mut word: Option<String> = None;
    let mut rest = command.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\'' => single_quoted(&mut rest, word.get_or_insert_default())?,
            '"' => double_quoted(&mut rest, word.get_or_insert_default())?,
            '\\' => match rest.next().ok_or("it ends with a backslash")? {
                '\n' => {}
                escaped => word.get_or_insert_default().push(escaped),
            },
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if words.first().is_none_or(String::is_empty) {
        return Err("it names no program");
    }
    Ok(words)
}

fn single_quoted(rest: &mut impl Iterator<Item = char>, word: &mut String) -> Result<(), &'static str> {
    loop {
        match rest.next().ok_or("a ' is not closed")? {
            '\'' => return Ok(()),
            c => word.push(c),
        }
    }
}

/// A backslash escapes only what would be special here; before anything else it stands for itself (2.2.3).
fn double_quoted(rest: &mut impl Iterator<Item = char>, word: &mut String) -> Result<(), &'static str> {
    const OPEN: &str = "a \" is not closed";
    loop {
        match rest.next().ok_or(OPEN)? {
            '"' => return Ok(()),
            '\\' => match rest.next().ok_or(OPEN)? {
                '\n' => {}
                escaped @ ('$' | '`' | '"' | '\\') => word.push(escaped),
                other => word.extend(['\\', other]),
            },
            c => word.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &str) -> Vec<String> {
        split(command).expect(command)
    }

    #[test]
    fn blanks_separate_words() {
        assert_eq!(words("  kamailio -f\tk.cfg \n -DD "), ["kamailio", "-f", "k.cfg", "-DD"]);
    }

    #[test]
    fn quotes_hold_blanks_and_join_with_what_they_touch() {
        assert_eq!(words(r#"run 'a  b' "c d"e 'f''g' -x='h i'"#), ["run", "a  b", "c de", "fg", "-x=h i"]);
        assert_eq!(words("run '' \"\""), ["run", "", ""]);
    }

    #[test]
    fn a_backslash_takes_the_next_character_as_it_is() {
        assert_eq!(words(r"run a\ b \' \\ \n"), ["run", "a b", "'", "\\", "n"]);
        assert_eq!(words("run a\\\nb \\\n c"), ["run", "ab", "c"], "a line goes on after it");
        assert_eq!(words(r"run 'a\b'"), ["run", r"a\b"], "but not within ''");
        assert_eq!(words(r#"run "a\"b\\c\d\$e""#), ["run", r#"a"b\c\d$e"#]);
        assert_eq!(words("run \"a\\\nb\""), ["run", "ab"]);
    }

    #[test]
    fn nothing_is_expanded() {
        assert_eq!(words("run $HOME ~ * ; #x é"), ["run", "$HOME", "~", "*", ";", "#x", "é"]);
    }

    #[test]
    fn what_is_not_closed_is_an_error() {
        assert_eq!(split("run 'a"), Err("a ' is not closed"));
        assert_eq!(split("run \"a"), Err("a \" is not closed"));
        assert_eq!(split("run \"a\\"), Err("a \" is not closed"));
        assert_eq!(split("run a\\"), Err("it ends with a backslash"));
        for nothing in ["", "  ", "''", "'' run", "\\\n"] {
            assert_eq!(split(nothing), Err("it names no program"), "{nothing:?}");
        }
    }
}
