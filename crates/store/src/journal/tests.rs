//! Pages come back as they were written, or not at all.

use super::page::{self, Draft, Records};
use crate::Contact;
use crate::batch::{Batch, ruid_of};

fn whole() -> Contact<'static> {
    Contact {
        username: "älice".as_bytes(),
        domain: b"example.com",
        contact: b"sip:alice@192.0.2.1",
        received: b"sip:198.51.100.7:40000",
        path: b"<sip:edge.example.com;lr>",
        expires_unix_micros: u64::MAX - 1,
        q: 700,
        call_id: b"\0\xff",
        cseq: u32::MAX,
        modified_unix_micros: 7,
        flags: 3,
        cflags: 0x8000_0001,
        user_agent: b"Phone/1.0",
        socket: b"udp:192.0.2.9:5060",
        methods: Some(0),
        instance: b"\"<urn:uuid:f81d4fae>\"",
        reg_id: 1,
        ..Contact::default()
    }
}

fn bob() -> Contact<'static> {
    Contact { username: b"bob", ..Contact::default() }
}

fn saved(rows: &[Contact<'_>]) -> Draft {
    let mut draft = Draft::default();
    for row in rows {
        let same = draft.same(row);
        draft.save(row, same);
    }
    draft
}

fn removed(row: &Contact<'_>) -> Draft {
    let mut draft = Draft::default();
    draft.remove(ruid_of("location", row));
    draft
}

fn pages(records: &mut Records) -> Vec<(usize, Vec<u8>)> {
    records.seal().map(|(table, page)| (table, page.to_vec())).collect()
}

fn sample() -> Vec<u8> {
    let mut records = Records::default();
    records.push(0, &mut saved(&[bob()]));
    records.push(0, &mut removed(&bob()));
    records.push(0, &mut saved(&[whole()]));
    pages(&mut records).remove(0).1
}

#[test]
fn changes_come_back() {
    let mut back = Batch::default();
    page::read("location", &sample(), &mut back).unwrap();
    let table = back.changes().next().unwrap();
    let saved: Vec<Contact<'_>> = back.saves(table).map(|(_, contact)| contact).collect();
    assert_eq!(saved, [whole()]);
    assert!(table.removals().eq([ruid_of("location", &bob())]));
}

/// Rows that have much in common, of several drafts, with one that goes between them.
#[test]
fn what_rows_have_in_common_is_written_once() {
    let names: Vec<String> = (0..100).map(|number| format!("user{number}")).collect();
    let odd = |number: usize| Contact {
        username: names[number].as_bytes(),
        contact: if number.is_multiple_of(3) { b"" } else { b"sip:a@192.0.2.1" },
        path: if number.is_multiple_of(7) { b"<sip:edge.example.com;lr>" } else { b"" },
        methods: [None, Some(0), Some(7)][number % 3],
        cflags: (number as u32) / 50,
        cseq: number as u32,
        ..whole()
    };
    let rows: Vec<Contact<'_>> = (0..100).map(odd).chain([Contact::default(), odd(1)]).collect();
    let mut records = Records::default();
    for (number, rows) in rows.chunks(17).enumerate() {
        let mut draft = saved(rows);
        assert!(draft.len() < rows.len() * 80 + 200, "{} bytes", draft.len());
        draft.remove(ruid_of("location", &bob()));
        records.push(0, &mut draft);
        assert!(draft.is_empty(), "{number}");
    }
    let mut back = Batch::default();
    page::read("location", &pages(&mut records).remove(0).1, &mut back).unwrap();
    let table = back.changes().next().unwrap();
    let mut found: Vec<String> = back.saves(table).map(|(_, contact)| format!("{contact:?}")).collect();
    let mut expected: Vec<String> = rows[..101].iter().map(|row| format!("{row:?}")).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn each_table_has_pages_of_its_own_and_many_changes_have_several() {
    let mut records = Records::default();
    for number in 0..10_000 {
        let name = format!("sip:{number}@192.0.2.1");
        let row = Contact { contact: name.as_bytes(), ..whole() };
        records.push(0, &mut saved(&[row]));
        records.push(1, &mut saved(&[bob()]));
    }
    let written = pages(&mut records);
    let of = |table| written.iter().filter(|(of, _)| *of == table).count();
    assert!(of(0) > 2 && of(1) < of(0), "{} and {}", of(0), of(1));
    assert!(written.iter().all(|(_, page)| page.len() < 513 * 1024));
    let mut back = Batch::default();
    for (table, page) in &written {
        page::read(["location", "other"][*table], page, &mut back).unwrap();
    }
    assert_eq!(back.len(), 10_001);
}

/// A commit that failed is tried again, with what has come since.
#[test]
fn what_comes_after_a_page_was_written_goes_on_another() {
    let mut records = Records::default();
    records.push(0, &mut saved(&[whole()]));
    let first = pages(&mut records);
    records.push(0, &mut removed(&whole()));
    let again = pages(&mut records);
    assert_eq!((first.len(), again.len()), (1, 2));
    assert_eq!(first[0], again[0]);
    let mut back = Batch::default();
    again.iter().for_each(|(_, page)| page::read("location", page, &mut back).unwrap());
    assert_eq!(back.saves(back.changes().next().unwrap()).count(), 0, "the last change counts");
    records.clear();
    assert!(records.is_empty() && records.bytes() == 0);
    records.push(0, &mut saved(&[bob()]));
    let fresh = pages(&mut records);
    let mut back = Batch::default();
    page::read("location", &fresh[0].1, &mut back).unwrap();
    assert_eq!((fresh.len(), back.len()), (1, 1), "nothing of what was committed is left");
}

#[test]
fn a_page_that_nobody_wrote_so_is_refused() {
    let good = sample();
    let refused = |page: &[u8]| page::read("location", page, &mut Batch::default()).is_err();
    for at in 0..good.len() {
        assert!(refused(&good[..at]), "cut at {at}");
        let mut bad = good.clone();
        bad[at] ^= 0x20;
        assert!(refused(&bad), "byte {at}");
    }
    let sealed = |changes: &[u8]| [changes, &crc32fast::hash(changes).to_le_bytes()].concat();
    assert!(page::read("location", &sealed(&[1]), &mut Batch::default()).unwrap_err().contains("format 1"));
    // Whatever stands under a checksum that is right: an answer and no panic.
    let changes = &good[..good.len() - 4];
    for at in 1..changes.len() {
        let _ = page::read("location", &sealed(&changes[..at]), &mut Batch::default());
        for value in [0, 1, 2, 3, 0x7f, 0xff] {
            let mut odd = changes.to_vec();
            odd[at] = value;
            let _ = page::read("location", &sealed(&odd), &mut Batch::default());
        }
    }
}
