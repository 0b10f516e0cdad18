//! The columns of a location table as the three databases write them, and what fits into them.

use std::borrow::Cow;

use crate::bindings::Names;
use crate::fault::Fault;
use crate::journal::texts;
use crate::session::{Column, Dialect, Format, check_name};
use crate::{Contact, StoreError};

/// Columns that are read, in this order; those from the second on are written, too.
pub(crate) const COLUMNS: [&str; 19] = [
    "id",
    "ruid",
    "username",
    "domain",
    "contact",
    "received",
    "path",
    "expires",
    "q",
    "callid",
    "cseq",
    "last_modified",
    "flags",
    "cflags",
    "user_agent",
    "socket",
    "methods",
    "instance",
    "reg_id",
];

/// Columns that follow from the row's identifier, and never change.
const FIXED: [&str; 4] = ["ruid", "username", "domain", "contact"];

/// Columns that are written where they are, with what Kamailio writes for bindings over UDP.
const CONSTANT: [(&str, &str); 4] =
    [("server_id", "0"), ("connection_id", "-1"), ("keepalive", "0"), ("partition", "0")];

/// A location table that is there.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// The table's name, quoted.
    pub(crate) table: String,
    /// The columns' names, quoted, as in [`COLUMNS`].
    pub(crate) names: Vec<String>,
    /// Names and values of columns that are the same in all rows.
    constants: Vec<(String, &'static str)>,
    columns: Vec<Column>,
    pub(crate) expires: Format,
    pub(crate) modified: Format,
}

/// A row's texts as text; `None` is NULL.
pub(crate) struct Fitted<'a> {
    pub(crate) username: &'a str,
    pub(crate) domain: Option<&'a str>,
    pub(crate) contact: &'a str,
    pub(crate) received: Option<&'a str>,
    pub(crate) path: Option<&'a str>,
    pub(crate) call_id: &'a str,
    pub(crate) user_agent: Cow<'a, str>,
    pub(crate) socket: Option<&'a str>,
    pub(crate) instance: Option<&'a str>,
}

impl Shape {
    pub(crate) fn new(
        dialect: Dialect,
        table: &str,
        names: &Names,
        columns: &[Column],
    ) -> Result<Shape, Fault> {
        check_name(table)?;
        if columns.is_empty() {
            return Err(Fault::refused(format!(
                "there is no table {table} in the database; `strowger db create --db URL` makes it"
            )));
        }
        let find = |kamailio: &str| {
            let here = names.here(kamailio);
            columns.iter().find(|column| column.name.eq_ignore_ascii_case(here))
        };
        let mut found = Vec::new();
        for name in COLUMNS {
            let column = find(name).ok_or_else(|| {
                Fault::other(StoreError::Unfit(format!(
                    "the table {table} has no column {}; `strowger db check` names all that are missing",
                    names.here(name)
                )))
            })?;
            found.push(column.clone());
        }
        let quote = |column: &Column| dialect.quote(&column.name);
        let constants =
            CONSTANT.iter().filter_map(|(name, value)| Some((quote(find(name)?), *value))).collect();
        Ok(Shape {
            table: dialect.quote(table),
            names: found.iter().map(quote).collect(),
            constants,
            expires: found[7].format,
            modified: found[11].format,
            columns: found,
        })
    }

    /// `"id", "ruid", …`
    pub(crate) fn select_list(&self) -> String {
        self.names.join(", ")
    }

    /// The column with Kamailio's name `name`, quoted.
    pub(crate) fn column(&self, name: &str) -> &str {
        COLUMNS.iter().position(|column| *column == name).map_or("", |at| self.names[at].as_str())
    }

    /// `"ruid", "username", … "server_id", …`: what is written.
    pub(crate) fn insert_list(&self) -> String {
        let constants = self.constants.iter().map(|(name, _)| name.as_str());
        let all: Vec<&str> = self.names[1..].iter().map(String::as_str).chain(constants).collect();
        all.join(", ")
    }

    /// The values of the constant columns, each with a comma before it.
    pub(crate) fn constant_list(&self) -> String {
        self.constants.iter().map(|(_, value)| format!(", {value}")).collect()
    }

    /// `name = new(name)` for every column that changes when a row is there already.
    pub(crate) fn update_list(&self, new: impl Fn(&str) -> String) -> String {
        let changing = COLUMNS.iter().zip(&self.names).skip(1).filter(|(name, _)| !FIXED.contains(name));
        let changing = changing.map(|(_, name)| name).chain(self.constants.iter().map(|(name, _)| name));
        let parts: Vec<String> = changing.map(|name| format!("{name} = {}", new(name))).collect();
        parts.join(", ")
    }

    /// Whether an empty text of the column with this place in [`COLUMNS`] is stored as NULL.
    pub(crate) fn is_nullable(&self, at: usize) -> bool {
        self.columns[at].is_nullable
    }

    /// The texts of a binding as this table can hold them.
    ///
    /// # Errors
    ///
    /// A sentence why it cannot.
    pub(crate) fn fit<'a>(&self, row: &Contact<'a>) -> Result<Fitted<'a>, String> {
        let optional = |at: usize, text: &'a [u8]| -> Result<Option<&'a str>, String> {
            if text.is_empty() && self.is_nullable(at) {
                return Ok(None);
            }
            self.text(at, text).map(Some)
        };
        Ok(Fitted {
            username: self.text(2, row.username)?,
            domain: optional(3, row.domain)?,
            contact: self.text(4, row.contact)?,
            received: optional(5, row.received)?,
            path: optional(6, row.path)?,
            call_id: self.text(9, row.call_id)?,
            user_agent: self.cut(14, row.user_agent),
            socket: optional(15, row.socket)?,
            instance: optional(17, row.instance)?,
        })
    }

    /// Whether it can hold a row as nearly all are: of short texts in ASCII, or such as are known to fit, by their place in
    /// [`texts`]. That is found faster than how it holds another.
    pub(crate) fn holds_plainly(&self, row: &Contact<'_>, is_known: impl Fn(usize) -> bool) -> bool {
        // Of the User-Agent it takes as much as fits.
        let columns = [Some(3), Some(5), Some(6), None, Some(15), Some(17), Some(2), Some(4), Some(9)];
        texts(row).into_iter().zip(columns).enumerate().all(|(place, (text, at))| {
            let Some(at) = at.filter(|_| !is_known(place)) else { return true };
            // All of it is looked at: that takes fewer instructions than to stop where it ends.
            let is_plain = text.iter().fold(true, |is_plain, byte| is_plain & (1..0x80).contains(byte));
            is_plain && self.columns[at].width.is_none_or(|width| text.len() <= width)
        })
    }

    fn text<'a>(&self, at: usize, text: &'a [u8]) -> Result<&'a str, String> {
        let column = &self.columns[at];
        let valid = std::str::from_utf8(text).ok().filter(|text| !text.contains('\0'));
        let Some(valid) = valid else {
            return Err(format!("the column {} holds text in UTF-8 only, without NUL", column.name));
        };
        match column.width {
            Some(width) if text.len() > width && valid.chars().count() > width => Err(format!(
                "the column {} holds {width} characters; widen it to keep longer ones",
                column.name
            )),
            _ => Ok(valid),
        }
    }

    /// A text of which as much is stored as fits: nothing depends on it.
    fn cut<'a>(&self, at: usize, text: &'a [u8]) -> Cow<'a, str> {
        if let Ok(valid) = self.text(at, text) {
            return Cow::Borrowed(valid);
        }
        let width = self.columns[at].width.unwrap_or(usize::MAX);
        let clean = String::from_utf8_lossy(text);
        Cow::Owned(clean.chars().map(|one| if one == '\0' { '\u{fffd}' } else { one }).take(width).collect())
    }
}

/// A 32-bit number with the same bits, as Kamailio's columns keep it.
pub(crate) fn signed(number: u32) -> i32 {
    number as i32
}

/// The reverse: the lowest 32 bits.
pub(crate) fn unsigned(number: i64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(width: Option<usize>, is_nullable: bool) -> Shape {
        let column =
            |name: &&str| Column { name: (*name).to_string(), width, is_nullable, format: Format::Other };
        let columns: Vec<Column> = COLUMNS.iter().map(column).collect();
        Shape::new(Dialect::Postgres, "location", &Names::default(), &columns).unwrap()
    }

    #[test]
    fn what_is_too_long_is_left_out_and_named() {
        let shape = shape(Some(8), true);
        let fits = Contact { contact: "sip:äöüß".as_bytes(), ..Contact::default() };
        assert_eq!(shape.fit(&fits).ok().map(|row| row.contact), Some("sip:äöüß"));
        let long = Contact { contact: b"sip:abcde", ..Contact::default() };
        assert!(shape.fit(&long).is_err_and(|why| why.contains("contact") && why.contains('8')));
        let odd = Contact { path: b"<sip:\xff>", ..Contact::default() };
        assert!(shape.fit(&odd).is_err_and(|why| why.contains("path")));
        let nul = Contact { username: b"a\0", ..Contact::default() };
        assert!(shape.fit(&nul).is_err_and(|why| why.contains("username")));
    }

    #[test]
    fn what_is_held_plainly_fits() {
        let shape = shape(Some(8), true);
        for text in [&b""[..], b"abc", b"12345678", b"123456789", b"a\0", "äö".as_bytes(), b"\xff"] {
            let rows = [
                Contact { username: text, ..Contact::default() },
                Contact { domain: text, ..Contact::default() },
                Contact { contact: text, ..Contact::default() },
                Contact { received: text, ..Contact::default() },
                Contact { path: text, ..Contact::default() },
                Contact { call_id: text, ..Contact::default() },
                Contact { socket: text, ..Contact::default() },
                Contact { instance: text, ..Contact::default() },
            ];
            for row in rows {
                let is_plain = text.len() <= 8 && text.is_ascii() && !text.contains(&0);
                assert_eq!(shape.holds_plainly(&row, |_| false), is_plain, "{row:?}");
                assert!(!is_plain || shape.fit(&row).is_ok(), "{row:?}");
            }
        }
        assert!(
            shape.holds_plainly(&Contact { user_agent: b"\0 too long", ..Contact::default() }, |_| false),
            "it is cut"
        );
    }

    #[test]
    fn a_user_agent_is_cut_to_fit() {
        let shape = shape(Some(4), true);
        let row = Contact { user_agent: b"ab\0\xffcdef", ..Contact::default() };
        assert_eq!(shape.fit(&row).ok().unwrap().user_agent, "ab\u{fffd}\u{fffd}");
    }

    #[test]
    fn empty_texts_are_null_where_that_is_allowed() {
        let row = Contact::default();
        assert_eq!(shape(None, true).fit(&row).ok().unwrap().domain, None);
        assert_eq!(shape(None, false).fit(&row).ok().unwrap().domain, Some(""));
    }

    #[test]
    fn numbers_keep_their_bits() {
        for number in [0, 1, i32::MAX as u32, i32::MAX as u32 + 1, u32::MAX] {
            assert_eq!(unsigned(i64::from(signed(number))), number);
        }
    }
}
