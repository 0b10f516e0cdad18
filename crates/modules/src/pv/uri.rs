//! Variables of URIs: the Request-URI, the next hop, From and To.

use crate::run::{Change, Context, Run};
use crate::text::put_unfolded;
use crate::uri_parts::{UriParts, push_number};
use route::{Sink, Subscript, ValueRef};
use sip::{HeaderError, NameAddr};

/// A piece of a URI.
#[derive(Clone, Copy)]
enum Piece {
    User,
    Host,
    Port,
    Transport,
    Scheme,
}

fn piece(uri: &[u8], piece: Piece, out: &mut Sink<'_>) {
    let Some(parts) = UriParts::parse(uri) else { return };
    match piece {
        Piece::User => {
            if let Some(user) = parts.user {
                put_unfolded(out, user);
            }
        }
        Piece::Host => put_unfolded(out, parts.host),
        Piece::Port => out.int(i64::from(parts.port_or_default())),
        Piece::Transport => match parts.param(b"transport") {
            Some(transport) => upper(transport, out),
            None if parts.scheme.eq_ignore_ascii_case(b"sips") => out.str(b"TLS"),
            None => out.str(b"UDP"),
        },
        Piece::Scheme => out.str(parts.scheme),
    }
}

fn upper(text: &[u8], out: &mut Sink<'_>) {
    for byte in text {
        out.push(&[byte.to_ascii_uppercase()]);
    }
}

macro_rules! request_uri {
    ($($name:ident $piece:ident;)*) => {$(
        pub(super) fn $name(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
            piece(run.request_uri(), Piece::$piece, out);
        }
    )*};
}

request_uri! {
    r_user User;
    r_host Host;
    r_port Port;
    r_transport Transport;
    r_scheme Scheme;
}

macro_rules! original_uri {
    ($($name:ident $piece:ident;)*) => {$(
        pub(super) fn $name(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
            piece(run.message().request_uri(), Piece::$piece, out);
        }
    )*};
}

original_uri! {
    o_user User;
    o_host Host;
    o_port Port;
    o_transport Transport;
}

macro_rules! next_hop {
    ($($name:ident $piece:ident;)*) => {$(
        pub(super) fn $name(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
            if let Some(uri) = run.destination_uri() {
                piece(uri, Piece::$piece, out);
            }
        }
    )*};
}

next_hop! {
    d_host Host;
    d_port Port;
    d_transport Transport;
}

pub(super) fn ru(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
    if !matches!(run.cx, Context::Reply(_)) {
        out.str(run.request_uri());
    }
}

pub(super) fn ou(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
    if !matches!(run.cx, Context::Reply(_)) {
        out.str(run.message().request_uri());
    }
}

pub(super) fn du(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
    if let Some(uri) = run.destination_uri() {
        out.str(uri);
    }
}

pub(super) fn first_branch(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
    if let Context::Request(cx) = &run.cx
        && let Some(target) = cx.targets().nth(1)
    {
        out.str(target.uri);
    }
}

pub(super) fn all_branches(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
    let Context::Request(cx) = &run.cx else { return };
    for (place, target) in cx.targets().skip(1).enumerate() {
        if place > 0 {
            out.push(b",");
        }
        out.push(target.uri);
    }
}

/// Runs `with` with the text of a value; an integer is written out.
fn with_text(value: ValueRef<'_>, with: impl FnOnce(Option<&[u8]>)) {
    match value {
        ValueRef::Null => with(None),
        ValueRef::Str(text) => with(Some(text)),
        ValueRef::Int(number) => with(Some(route::Decimal::new(number).as_bytes())),
    }
}

pub(super) fn set_ru(run: &mut Run<'_, '_>, _: &Subscript<'_>, value: ValueRef<'_>) {
    match value.as_str() {
        Some(uri) if sip::Uri::parse(uri).is_ok() => run.set_request_uri(uri),
        Some(_) => {
            run.fail("$ru: what was assigned is no URI; the Request-URI stays as it is");
        }
        // Null puts back what was received.
        None => {
            let message = run.message();
            run.set_request_uri(message.request_uri());
        }
    }
}

fn change(run: &mut Run<'_, '_>, name: &str, change: Change<'_>) {
    if !run.change_request_uri(change) {
        run.say(crate::log::Level::Error, name.as_bytes());
    }
}

pub(super) fn set_r_user(run: &mut Run<'_, '_>, _: &Subscript<'_>, value: ValueRef<'_>) {
    with_text(value, |text| {
        change(run, "$rU: what was assigned is no user; the Request-URI stays as it is", Change::User(text));
    });
}

pub(super) fn set_r_host(run: &mut Run<'_, '_>, _: &Subscript<'_>, value: ValueRef<'_>) {
    with_text(value, |text| {
        let host = text.unwrap_or(&[]);
        change(run, "$rd: what was assigned is no host; the Request-URI stays as it is", Change::Host(host));
    });
}

pub(super) fn set_r_port(run: &mut Run<'_, '_>, _: &Subscript<'_>, value: ValueRef<'_>) {
    with_text(value, |text| {
        change(run, "$rp: what was assigned is no port; the Request-URI stays as it is", Change::Port(text));
    });
}

pub(super) fn set_du(run: &mut Run<'_, '_>, _: &Subscript<'_>, value: ValueRef<'_>) {
    let uri = value.as_str().filter(|uri| !uri.is_empty());
    if uri.is_some_and(|uri| !matches!(sip::Uri::parse(uri), Ok(sip::Uri::Sip(_)))) {
        run.fail("$du: what was assigned is no SIP URI; the next hop stays as it is");
        return;
    }
    if let Some(cx) = run.request() {
        cx.set_destination_uri(uri);
    }
}

macro_rules! name_addr {
    ($header:ident: $uri:ident $user:ident $host:ident $tag:ident $display:ident) => {
        pub(super) fn $uri(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
            with(run.message().$header(), |value| put_unfolded(out, value.uri));
        }

        pub(super) fn $user(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
            with(run.message().$header(), |value| piece(value.uri, Piece::User, out));
        }

        pub(super) fn $host(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
            with(run.message().$header(), |value| piece(value.uri, Piece::Host, out));
        }

        pub(super) fn $tag(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
            with(run.message().$header(), |value| {
                if let Some(tag) = value.tag() {
                    put_unfolded(out, tag);
                }
            });
        }

        pub(super) fn $display(run: &mut Run<'_, '_>, _: &Subscript<'_>, out: &mut Sink<'_>) {
            with(run.message().$header(), |value| {
                if let Some(display) = value.display {
                    put_unfolded(out, display);
                }
            });
        }
    };
}

name_addr!(from: fu f_user f_host f_tag f_display);
name_addr!(to: tu t_user t_host t_tag t_display);

fn with(value: Result<NameAddr<'_>, HeaderError>, with: impl FnOnce(&NameAddr<'_>)) {
    if let Ok(value) = &value {
        with(value);
    }
}

/// Appends `sip:address:port;transport=...` of an address.
pub(super) fn push_address_uri(
    out: &mut alloc::vec::Vec<u8>,
    address: core::net::SocketAddr,
    transport: sip::Transport,
) {
    out.extend_from_slice(b"sip:");
    push_host(out, address.ip());
    out.push(b':');
    push_number(out, u64::from(address.port()));
    if transport != sip::Transport::Udp {
        out.extend_from_slice(b";transport=");
        out.extend_from_slice(super::message::transport_name(transport));
    }
}

/// Appends an address, IPv6 in brackets.
pub(super) fn push_host(out: &mut alloc::vec::Vec<u8>, ip: core::net::IpAddr) {
    use core::fmt::Write;
    let mut text = Text(out);
    let _ = if ip.is_ipv6() { write!(text, "[{ip}]") } else { write!(text, "{ip}") };
}

/// Formats into bytes; never fails.
pub(super) struct Text<'a>(pub(super) &'a mut alloc::vec::Vec<u8>);

impl core::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
