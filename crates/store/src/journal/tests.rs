//! Pages come back as they were written, or not at all.

use super::page::{self, Page, Pages};
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

fn sample() -> Page {
    let mut pages = Pages::new(5);
    pages.save("location", &bob());
    pages.remove("location", ruid_of("location", &bob()));
    pages.remove_ruid("location", b"uloc-1");
    pages.save("location", &whole());
    pages.end().remove(0)
}

#[test]
fn changes_come_back() {
    let page = sample();
    assert_eq!((page.generation, &*page.table), (5, "location"));
    let mut back = Batch::default();
    page::read("location", &page.changes, &mut back).unwrap();
    let table = back.changes().next().unwrap();
    let saved: Vec<Contact<'_>> = back.saves(table).map(|(_, contact)| contact).collect();
    assert_eq!(saved, [whole()]);
    assert!(table.removals().eq([ruid_of("location", &bob())]));
    assert_eq!(table.foreign, ["uloc-1".into()]);
}

#[test]
fn each_table_has_pages_of_its_own_and_many_changes_have_several() {
    let mut pages = Pages::new(1);
    let names: Vec<String> = (0..10_000).map(|number| format!("sip:{number}@192.0.2.1")).collect();
    for name in &names {
        pages.save("location", &Contact { contact: name.as_bytes(), ..whole() });
        pages.save("other", &bob());
    }
    let written = pages.end();
    let of = |table: &str| written.iter().filter(|page| page.table == table).count();
    assert!(of("location") > 2 && of("other") < of("location"), "{} and {}", of("location"), of("other"));
    assert!(written.iter().all(|page| page.changes.len() < 513 * 1024));
    let mut back = Batch::default();
    for page in &written {
        page::read(&page.table, &page.changes, &mut back).unwrap();
    }
    assert_eq!(back.len(), 10_001);
}

#[test]
fn a_page_that_nobody_wrote_so_is_refused() {
    let good = sample().changes;
    let refused = |page: &[u8]| page::read("location", page, &mut Batch::default()).is_err();
    for at in 0..good.len() {
        assert!(refused(&good[..at]), "cut at {at}");
        let mut bad = good.clone();
        bad[at] ^= 0x20;
        assert!(refused(&bad), "byte {at}");
    }
    let sealed = |changes: &[u8]| [changes, &crc32fast::hash(changes).to_le_bytes()].concat();
    assert!(page::read("location", &sealed(&[2]), &mut Batch::default()).unwrap_err().contains("format 2"));
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
