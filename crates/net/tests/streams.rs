//! TCP connections of a shard: framing, keep-alives, closing in all ways, limits, connecting.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use sip::Transport;
use support::*;

/// A limit that a test reaches. What must stay below it takes a fraction of it, so that a busy host does not matter.
const SHORT: Duration = Duration::from_secs(1);

// --- framing ----------------------------------------------------------------------------------------------------------

#[test]
fn messages_are_found_however_the_stream_is_cut() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    let text: String = (1..=3).map(request).collect();
    for byte in text.as_bytes() {
        stream.write_all(&[*byte]).unwrap();
    }
    for cseq in 1..=3 {
        expect(&mut stream, &answered(cseq));
        assert_eq!(server.next_message().text(), request(cseq));
    }
    let statistics = server.statistics(|s| s.messages_sent == 3);
    assert_eq!((statistics.accepted, statistics.open, statistics.messages_received), (1, 1, 3));
    assert_eq!((statistics.queued_bytes, statistics.partial_bytes), (0, 0));
    server.stop();
}

#[test]
fn pipelined_messages_are_answered_in_order() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    // More than one read takes.
    let count = 4_000;
    let text: String = (0..count).map(request).collect();
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(text.as_bytes()).unwrap());
    for cseq in 0..count {
        expect(&mut stream, &answered(cseq));
    }
    writing.join().unwrap();
    server.stop();
}

#[test]
fn a_message_says_by_which_connection_it_came() {
    let server = tcp(&settings());
    let (mut one, mut two) = (server.connect(), server.connect());
    ask(&mut one, 1);
    ask(&mut two, 2);
    let (first, second) = (server.next_message().path, server.next_message().path);
    assert_eq!(first.remote, one.local_addr().unwrap());
    assert_eq!(second.remote, two.local_addr().unwrap());
    assert_ne!(first.flow, second.flow);
    assert_eq!((first.listener.0, first.fallback_port), (1, 0));
    server.stop();
}

#[test]
fn a_ping_is_answered_with_a_pong() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    send(&mut stream, "\r\n\r\n");
    expect(&mut stream, "\r\n");
    send(&mut stream, "\r\n");
    send(&mut stream, "\r\n");
    expect(&mut stream, "\r\n");
    ask(&mut stream, 1);
    assert_eq!(server.statistics(|s| s.pings == 2).open, 1);
    server.stop();
}

// --- the peer ends ----------------------------------------------------------------------------------------------------

#[test]
fn answers_still_go_to_a_peer_that_has_said_its_last_word() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    send(&mut stream, &request(1));
    send(&mut stream, &request(2));
    stream.shutdown(Shutdown::Write).unwrap();
    expect(&mut stream, &answered(1));
    expect(&mut stream, &answered(2));
    expect_closed(&mut stream);
    assert_eq!(server.statistics(|s| s.open == 0).closed_by_peer, 1);
    server.stop();
}

#[test]
fn an_answer_that_takes_its_time_still_goes_to_it() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    server.order("DO hold");
    send(&mut stream, &request(1));
    stream.shutdown(Shutdown::Write).unwrap();
    let path = server.next_message().path;
    std::thread::sleep(Duration::from_millis(100));
    server.send_on(path, 0, "SIP/2.0 180 Ringing\r\n\r\n");
    expect(&mut stream, "SIP/2.0 180 Ringing\r\n\r\n");
    server.send_on(path, 0, &answered(1));
    expect(&mut stream, &answered(1));
    expect_closed(&mut stream);
    server.stop();
}

/// RFC 3261 §13.3.1.4: a 2xx to an INVITE comes again until its ACK does, and each branch of a fork may send one.
#[test]
fn a_repeated_2xx_is_not_the_answer_to_another_request() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    server.order("DO hold");
    let invite = "INVITE sip:bob@example.com SIP/2.0\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n";
    let accepted = "SIP/2.0 200 OK\r\ncseq : 1 INVITE\r\nContent-Length: 0\r\n\r\n";
    send(&mut stream, invite);
    send(&mut stream, &request(1));
    stream.shutdown(Shutdown::Write).unwrap();
    let path = server.next_message().path;
    for _ in 0..3 {
        server.send_on(path, 0, accepted);
        expect(&mut stream, accepted);
    }
    std::thread::sleep(Duration::from_millis(100));
    server.send_on(path, 0, &answered(1));
    expect(&mut stream, &answered(1));
    expect_closed(&mut stream);
    server.stop();
}

#[test]
fn a_connection_that_owes_nothing_ends_with_its_peer() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    ask(&mut stream, 1);
    drop(stream);
    assert_eq!(server.statistics(|s| s.open == 0).closed_by_peer, 1);
    server.stop();
}

#[test]
fn a_reset_is_counted_and_the_connection_is_gone() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    ask(&mut stream, 1);
    let path = server.next_message().path;
    reset(stream);
    assert_eq!(server.statistics(|s| s.open == 0).reset, 1);
    // RFC 3261 §18.2.2: a response without another way is lost, and the engine is told.
    server.send_on(path, 0, &answered(1));
    let error = server.next_error();
    assert_eq!((error.listener, error.remote, error.flow), (path.listener, path.remote, path.flow));
    server.stop();
}

#[test]
fn a_response_whose_connection_has_gone_goes_to_the_port_of_its_sent_by() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    ask(&mut stream, 1);
    let path = server.next_message().path;
    reset(stream);
    server.statistics(|s| s.open == 0);
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    server.send_on(path, peer.local_addr().unwrap().port(), &answered(1));
    let (mut back, _) = peer.accept().unwrap();
    expect(&mut back, &answered(1));
    server.stop();
}

#[test]
fn a_response_to_a_peer_that_has_closed_altogether_goes_to_its_sent_by() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    server.order("DO hold");
    send(&mut stream, &request(1));
    let path = server.next_message().path;
    drop(stream);
    std::thread::sleep(Duration::from_millis(100));
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    server.send_on(path, peer.local_addr().unwrap().port(), &answered(1));
    let (mut back, _) = peer.accept().unwrap();
    expect(&mut back, &answered(1));
    server.stop();
}

#[test]
fn where_only_a_standing_connection_will_do_none_is_opened() {
    let server = tcp(&settings());
    let mut phone = server.connect_alone();
    ask(&mut phone, 1);
    let path = engine::Path { flow: engine::FlowId::STANDING, ..server.next_message().path };
    server.send_on(path, 0, &request(2));
    expect(&mut phone, &request(2));
    reset(phone);
    assert_eq!(server.next_break().remote, path.remote);
    let listener = TcpListener::bind(path.remote).unwrap();
    server.send_on(path, 0, &request(3));
    assert_eq!(server.next_error(), path);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody connects");
    server.stop();
}

#[test]
fn what_waits_for_an_answer_is_told_of_the_loss() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    ask(&mut stream, 1);
    let path = server.next_message().path;
    server.send_on(path, 0, &request(7));
    expect(&mut stream, &request(7));
    reset(stream);
    let error = server.next_break();
    assert_eq!((error.listener, error.remote), (path.listener, path.remote));
    server.stop();
}

// --- time -------------------------------------------------------------------------------------------------------------

#[test]
fn an_idle_connection_ends_and_a_busy_one_does_not() {
    let mut settings = settings();
    settings.streams.lifetime = SHORT;
    let server = tcp(&settings);
    let (mut idle, mut busy) = (server.connect(), server.connect());
    let begin = Instant::now();
    ask(&mut idle, 1);
    for cseq in 0..10 {
        ask(&mut busy, cseq);
        std::thread::sleep(SHORT / 5);
    }
    expect_closed(&mut idle);
    assert!(begin.elapsed() >= SHORT);
    let statistics = server.statistics(|s| s.idle >= 1);
    assert_eq!((statistics.idle, statistics.open), (1, 1));
    server.stop();
}

#[test]
fn a_connection_on_which_an_answer_is_awaited_is_not_idle() {
    let mut settings = settings();
    settings.streams.lifetime = SHORT;
    let server = tcp(&settings);
    server.order("DO hold");
    let (mut caller, mut phone) = (server.connect(), server.connect());
    send(&mut caller, &request(1));
    let path = server.next_message().path;
    send(&mut phone, &answered(0));
    server.send_on(server.next_message().path, 0, &request(2));
    expect(&mut phone, &request(2));
    std::thread::sleep(SHORT * 3);
    server.send_on(path, 0, &answered(1));
    expect(&mut caller, &answered(1));
    send(&mut phone, &answered(2));
    server.next_message();
    // Then they are.
    expect_closed(&mut caller);
    expect_closed(&mut phone);
    assert_eq!(server.statistics(|s| s.open == 0).idle, 2);
    server.stop();
}

#[test]
fn a_line_end_alone_shows_life_and_who_says_nothing_has_less_time() {
    let mut settings = settings();
    settings.streams.lifetime = SHORT * 2;
    settings.streams.message_timeout = SHORT;
    let server = tcp(&settings);
    let (mut silent, mut lively) = (server.connect(), server.connect());
    let begin = Instant::now();
    for _ in 0..8 {
        send(&mut lively, "\r\n");
        std::thread::sleep(SHORT / 2);
    }
    expect_closed(&mut silent);
    assert!(begin.elapsed() < PATIENCE);
    // Two of them are a ping.
    expect(&mut lively, &"\r\n".repeat(4));
    ask(&mut lively, 1);
    assert_eq!(server.statistics(|s| s.open == 1).idle, 1);
    server.stop();
}

#[test]
fn a_message_that_takes_too_long_ends_its_connection() {
    let mut settings = settings();
    settings.streams.message_timeout = SHORT;
    let server = tcp(&settings);
    let mut stream = server.connect();
    let text = request(1);
    let begin = Instant::now();
    // Each byte shows life; the message is late all the same.
    for byte in text.as_bytes().iter().cycle() {
        if stream.write_all(&[*byte]).is_err() || begin.elapsed() > PATIENCE || server.seen.try_recv().is_ok()
        {
            break;
        }
        std::thread::sleep(SHORT / 20);
    }
    assert!(begin.elapsed() >= SHORT && begin.elapsed() < PATIENCE);
    let statistics = server.statistics(|s| s.open == 0);
    assert_eq!((statistics.slow, statistics.partial_bytes), (1, 0));
    server.stop();
}

#[test]
fn line_ends_between_messages_are_no_slow_message() {
    let mut settings = settings();
    settings.streams.message_timeout = SHORT;
    let server = tcp(&settings);
    let mut stream = server.connect();
    ask(&mut stream, 1);
    send(&mut stream, "\r");
    std::thread::sleep(SHORT * 2);
    send(&mut stream, "\n");
    ask(&mut stream, 2);
    server.stop();
}

// --- peers that do not read -------------------------------------------------------------------------------------------

/// Has the server send to a peer that does not read until it has had enough.
fn flood(server: &Server) {
    let mut stream = server.connect_narrow();
    ask(&mut stream, 1);
    let path = server.next_message().path;
    let big = format!("SIP/2.0 200 OK\r\n\r\n{}", "x".repeat(60_000));
    let begin = Instant::now();
    let enough = |s: &net::StreamStatistics| s.write_queue_full + s.send_timeouts > 0;
    while !enough(&server.statistics(|_| true)) {
        for _ in 0..8 {
            server.send_on(path, 0, &big);
        }
        assert!(begin.elapsed() < PATIENCE);
    }
    drop(stream);
}

#[test]
fn a_peer_that_does_not_read_loses_its_connection_not_our_memory() {
    let mut settings = settings();
    settings.streams.write_queue_bytes_max = 100_000;
    let server = tcp(&settings);
    flood(&server);
    let statistics = server.statistics(|s| s.open == 0);
    assert_eq!((statistics.write_queue_full, statistics.queued_bytes), (1, 0));
    server.stop();
}

#[test]
fn what_waits_for_all_peers_together_is_bounded_as_well() {
    let mut settings = settings();
    settings.streams.write_queue_bytes_max = 100_000_000;
    settings.streams.write_queue_total_bytes_max = 200_000;
    let server = tcp(&settings);
    let mut healthy = server.connect();
    flood(&server);
    assert_eq!(server.statistics(|s| s.write_queue_full == 1).queued_bytes, 0);
    ask(&mut healthy, 1);
    server.stop();
}

#[test]
fn a_peer_that_takes_nothing_for_too_long_loses_its_connection() {
    let mut settings = settings();
    settings.streams.send_timeout = SHORT;
    settings.streams.write_queue_bytes_max = 100_000_000;
    let server = tcp(&settings);
    flood(&server);
    let statistics = server.statistics(|s| s.open == 0);
    assert_eq!((statistics.send_timeouts, statistics.write_queue_full, statistics.queued_bytes), (1, 0, 0));
    server.stop();
}

#[test]
fn a_slow_reader_gets_everything() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    let count = 2_000;
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        for cseq in 0..count {
            writer.write_all(request(cseq).as_bytes()).unwrap();
        }
    });
    std::thread::sleep(Duration::from_millis(200));
    for cseq in 0..count {
        expect(&mut stream, &answered(cseq));
    }
    writing.join().unwrap();
    server.stop();
}

#[test]
fn pings_without_reading_end_as_well() {
    let mut settings = settings();
    settings.streams.write_queue_bytes_max = 10_000;
    let server = tcp(&settings);
    let mut stream = server.connect();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let begin = Instant::now();
    let pings = "\r\n\r\n".repeat(100_000);
    while stream.write_all(pings.as_bytes()).is_ok() {
        assert!(begin.elapsed() < PATIENCE);
    }
    assert_eq!(server.statistics(|s| s.open == 0).write_queue_full, 1);
    server.stop();
}

// --- what is no SIP ---------------------------------------------------------------------------------------------------

fn head(lengths: &str) -> String {
    format!("OPTIONS sip:a@b SIP/2.0\r\nCSeq: 9 OPTIONS\r\n{lengths}\r\n")
}

#[test]
fn a_head_with_a_wrong_length_goes_up_to_be_refused_and_the_connection_ends() {
    for wrong in ["Content-Length: -1\r\n", "Content-Length: 9223372036854775808\r\n", "l: 1\r\nl: 2\r\n", ""]
    {
        let server = tcp(&settings());
        let mut stream = server.connect();
        // What comes behind it must not be taken for a message, and must not keep the answer from being read.
        send(&mut stream, &(head(wrong) + &request(2)));
        assert_eq!(server.next_message().text(), head(wrong));
        expect(&mut stream, &answered(9));
        expect_closed(&mut stream);
        drop(stream);
        assert_eq!(server.statistics(|s| s.open == 0).content_length, 1);
        server.nothing_comes();
        server.stop();
    }
}

#[test]
fn a_message_that_would_be_too_long_is_not_waited_for() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    let head = head("Content-Length: 2147483648\r\n");
    send(&mut stream, &head);
    assert_eq!(server.next_message().text(), head);
    expect(&mut stream, &answered(9));
    expect_closed(&mut stream);
    drop(stream);
    assert_eq!(server.statistics(|s| s.open == 0).too_large, 1);
    server.stop();
}

#[test]
fn what_was_asked_before_the_broken_message_is_answered() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    send(&mut stream, &(request(1) + &head("Content-Length: -1\r\n")));
    expect(&mut stream, &answered(1));
    expect(&mut stream, &answered(9));
    expect_closed(&mut stream);
    server.stop();
}

#[test]
fn a_broken_message_without_an_answer_ends_its_connection_all_the_same() {
    let server = tcp(&settings());
    server.order("DO hold");
    let mut stream = server.connect();
    send(&mut stream, &head("Content-Length: -1\r\n"));
    expect_closed(&mut stream);
    assert_eq!(server.statistics(|s| s.open == 0).content_length, 1);
    server.stop();
}

#[test]
fn tls_http_and_noise_are_told_apart_and_closed() {
    type Count = fn(&net::StreamStatistics) -> u64;
    let hello = [0x16, 3, 1, 0, 0x40, 1, 0, 0, 0x3c, 3, 3];
    let cases: [(&[u8], Count); 4] = [
        (&hello, |s| s.not_sip_tls),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", |s| s.not_sip_http),
        (b"\0\0\0\0\0\0\0\0", |s| s.not_sip_other),
        (b"hello there, this is a line\r\n\r\n", |s| s.not_sip_other),
    ];
    for (bytes, count) in cases {
        let server = tcp(&settings());
        let mut stream = server.connect();
        stream.write_all(bytes).unwrap();
        expect_closed(&mut stream);
        assert_eq!(count(&server.statistics(|s| s.open == 0)), 1, "{bytes:?}");
        server.nothing_comes();
        server.stop();
    }
}

#[test]
fn headers_without_end_cost_no_more_than_their_limit() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    let begin = Instant::now();
    send(&mut stream, "OPTIONS sip:a@b SIP/2.0\r\n");
    while stream.write_all(&b"X-Filler: y\r\n".repeat(100)).is_ok() {
        assert!(begin.elapsed() < PATIENCE);
    }
    let statistics = server.statistics(|s| s.open == 0);
    assert_eq!((statistics.headers_too_long, statistics.partial_bytes), (1, 0));
    server.stop();
}

// --- resets that the shard has not seen yet ------------------------------------------------------------------------------

/// The next connection of the server.
fn called(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let begin = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        assert!(begin.elapsed() < PATIENCE, "the server connects to nobody");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A peer that the server has connected to and asked something, and the way there.
fn asked(server: &Server) -> (TcpListener, TcpStream, engine::Path) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = listener.local_addr().unwrap();
    server.send_to(remote, &request(1));
    let mut phone = called(&listener);
    expect(&mut phone, &request(1));
    (listener, phone, engine::Path::new(engine::ListenerId(1), None, remote))
}

/// RFC 3261 §18.2.2.
#[test]
fn a_response_written_to_a_connection_just_reset_goes_to_the_port_of_its_sent_by() {
    let server = tcp(&settings());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut phone = server.connect();
    ask(&mut phone, 1);
    let path = server.next_message().path;
    let port = listener.local_addr().unwrap().port();
    server.send_after(|| reset(phone), path, port, &answered(2));
    let mut again = called(&listener);
    expect(&mut again, &answered(2));
    server.nothing_comes();
    server.stop();
}

/// RFC 3261 §18.4 speaks of what cannot be delivered; this can.
#[test]
fn a_request_written_to_a_connection_just_reset_takes_a_new_one() {
    let server = tcp(&settings());
    let (listener, mut phone, path) = asked(&server);
    send(&mut phone, &answered(1));
    server.next_message();
    server.send_after(|| reset(phone), path, 0, &request(2));
    let mut again = called(&listener);
    expect(&mut again, &request(2));
    server.nothing_comes();
    server.stop();
}

/// What was sent before may have arrived: it is for the engine to say what becomes of all that waits there.
#[test]
fn a_reset_connection_on_which_more_was_asked_is_told_of() {
    let server = tcp(&settings());
    let (_listener, phone, path) = asked(&server);
    server.send_after(|| reset(phone), path, 0, &request(2));
    assert_eq!(server.next_break().remote, path.remote);
    server.stop();
}

// --- limits -----------------------------------------------------------------------------------------------------------

#[test]
fn one_too_many_replaces_the_one_that_is_idle_longest() {
    let mut settings = settings();
    settings.streams.max = 3;
    let server = tcp(&settings);
    let mut streams: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    for (cseq, stream) in streams.iter_mut().enumerate() {
        ask(stream, cseq as u32);
    }
    std::thread::sleep(Duration::from_millis(1_100));
    ask(&mut streams[0], 8);
    let mut further = server.connect();
    ask(&mut further, 9);
    expect_closed(&mut streams[1]);
    ask(&mut streams[0], 10);
    ask(&mut streams[2], 11);
    let statistics = server.statistics(|s| s.evicted == 1);
    assert_eq!((statistics.open, statistics.refused_full), (3, 0));
    server.stop();
}

#[test]
fn those_who_said_nothing_make_room_before_those_who_did() {
    let mut settings = settings();
    settings.streams.max = 3;
    let server = tcp(&settings);
    let mut phone = server.connect();
    ask(&mut phone, 1);
    let mut silent: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    server.statistics(|s| s.open == 3);
    std::thread::sleep(Duration::from_millis(1_100));
    let mut further: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    silent.iter_mut().for_each(expect_closed);
    further.iter_mut().for_each(|stream| ask(stream, 2));
    ask(&mut phone, 3);
    assert_eq!(server.statistics(|s| s.evicted == 2).open, 3);
    server.stop();
}

#[test]
fn where_none_is_idle_the_new_one_is_refused() {
    let mut settings = settings();
    settings.streams.max = 2;
    let server = tcp(&settings);
    let mut streams: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    std::thread::sleep(Duration::from_millis(1_100));
    for stream in &mut streams {
        send(stream, "OPTIONS");
    }
    server.statistics(|s| s.partial_bytes == 14);
    expect_closed(&mut server.connect());
    let statistics = server.statistics(|s| s.refused_full == 1);
    assert_eq!(statistics.open, 2);
    server.stop();
}

#[test]
fn a_source_has_a_limit_of_its_own() {
    let mut settings = settings();
    settings.streams.per_source_max = 2;
    let server = tcp(&settings);
    let mut streams: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    streams.iter_mut().for_each(|stream| ask(stream, 1));
    expect_closed(&mut server.connect());
    assert_eq!(server.statistics(|s| s.refused_source == 1).open, 2);
    streams.pop();
    server.statistics(|s| s.open == 1);
    ask(&mut server.connect(), 2);
    server.stop();
}

#[test]
fn a_storm_of_connections_is_served() {
    let server = tcp(&settings());
    let mut streams: Vec<TcpStream> = (0..300).map(|_| server.connect()).collect();
    for stream in &mut streams {
        send(stream, &request(1));
    }
    for stream in &mut streams {
        expect(stream, &answered(1));
    }
    assert_eq!(server.statistics(|s| s.open == 300).accepted, 300);
    drop(streams);
    server.statistics(|s| s.open == 0);
    server.stop();
}

// --- connecting -------------------------------------------------------------------------------------------------------

fn peer() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

#[test]
fn a_request_opens_a_connection_and_later_ones_use_it() {
    let server = tcp(&settings());
    let peer = peer();
    let address = peer.local_addr().unwrap();
    server.send_to(address, &request(1));
    server.send_to(address, &request(2));
    let (mut stream, _) = peer.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    expect(&mut stream, &request(1));
    expect(&mut stream, &request(2));
    send(&mut stream, &answered(1));
    let seen = server.next_message();
    assert_eq!((seen.text(), seen.path.remote, seen.path.listener.0), (answered(1), address, 1));
    server.send_on(seen.path, 0, &request(3));
    server.send_to(address, &request(4));
    expect(&mut stream, &request(3));
    expect(&mut stream, &request(4));
    let statistics = server.statistics(|s| s.messages_sent == 4);
    assert_eq!((statistics.connected, statistics.open), (1, 1));
    server.stop();
}

#[test]
fn a_peer_reached_by_its_own_connection_is_not_connected_to() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    ask(&mut stream, 1);
    server.send_to(stream.local_addr().unwrap(), &request(2));
    expect(&mut stream, &request(2));
    server.stop();
}

#[test]
fn a_refused_connection_is_told_at_once() {
    let server = tcp(&settings());
    let nobody = closed_port();
    let begin = Instant::now();
    server.send_to(nobody, &request(1));
    assert_eq!(server.next_error().remote, nobody);
    assert!(begin.elapsed() < Duration::from_secs(5));
    let statistics = server.statistics(|s| s.connect_failures == 1);
    assert_eq!((statistics.open, statistics.queued_bytes, statistics.messages_unsent), (0, 0, 1));
    server.stop();
}

#[test]
fn a_connection_that_does_not_come_is_given_up_and_its_queue_is_bounded() {
    let mut settings = settings();
    settings.streams.connect_timeout = SHORT;
    settings.streams.connect_queue_messages_max = 3;
    let server = tcp(&settings);
    let silent = silent();
    let begin = Instant::now();
    for cseq in 0..4 {
        server.send_to(silent.address, &request(cseq));
    }
    assert_eq!(server.next_error().remote, silent.address);
    assert!(begin.elapsed() < SHORT, "the fourth finds the queue full and does not wait");
    for _ in 0..3 {
        assert_eq!(server.next_error().remote, silent.address);
    }
    assert!(begin.elapsed() >= SHORT);
    let statistics = server.statistics(|s| s.connect_failures == 1);
    assert_eq!((statistics.open, statistics.queued_bytes), (0, 0));
    server.stop();
}

#[test]
fn connections_are_not_opened_where_that_is_forbidden_nor_over_websocket() {
    let mut settings = settings();
    settings.streams.no_connect = true;
    let server = tcp(&settings);
    let peer = peer();
    server.send_to(peer.local_addr().unwrap(), &request(1));
    server.next_error();
    server.stop();
    settings.streams.no_connect = false;
    let server = start(1, &[Transport::Ws], &settings);
    server.send_to(peer.local_addr().unwrap(), &request(1));
    server.next_error();
    server.stop();
}

#[test]
fn an_alias_leads_to_its_connection() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    ask(&mut stream, 1);
    let path = server.next_message().path;
    let alias = closed_port();
    server.order(&format!("DO alias 1 {} {}", path.flow.0, alias.port()));
    server.send_to(alias, &request(2));
    expect(&mut stream, &request(2));
    // With its connection the alias goes, and those who wait for an answer there are told.
    reset(stream);
    let errors = [server.next_break().remote, server.next_break().remote];
    assert!(errors.contains(&alias) && errors.contains(&path.remote), "{errors:?}");
    server.send_to(alias, &request(3));
    assert_eq!(server.next_error().remote, alias);
    server.stop();
}

// --- shards -----------------------------------------------------------------------------------------------------------

fn request_for(shard: usize, cseq: u32) -> String {
    format!("OPTIONS sip:shard-{shard} SIP/2.0\r\nCSeq: {cseq} OPTIONS\r\nContent-Length: 0\r\n\r\n")
}

#[test]
fn messages_cross_to_their_shard_and_answers_cross_back() {
    let server = start(3, &[Transport::Tcp], &settings());
    for _ in 0..6 {
        let mut stream = server.connect();
        for shard in 0..3 {
            send(&mut stream, &request_for(shard, 1));
            expect(&mut stream, &answered(1));
            assert_eq!(server.next_message().shard, shard);
        }
    }
    server.stop();
}

#[test]
fn shards_share_the_connection_to_a_peer() {
    let server = start(3, &[Transport::Tcp], &settings());
    let peer = peer();
    let address = peer.local_addr().unwrap();
    server.order(&format!("DO send 1 0 {address} 0 shard-0\n{}", request(0)));
    let (mut stream, _) = peer.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    expect(&mut stream, &request(0));
    for shard in 1..3 {
        server.order(&format!("DO send 1 0 {address} 0 shard-{shard}\n{}", request(shard)));
        expect(&mut stream, &request(shard));
    }
    assert_eq!(server.statistics(|s| s.messages_sent == 3).connected, 1);
    // Its loss is told to all who have asked something there.
    reset(stream);
    let told = (0..3).map(|_| server.next());
    let mut told: Vec<usize> = told
        .map(|seen| {
            assert_eq!(seen.failure, Some(engine::TransportFailure::Broken));
            seen.shard
        })
        .collect();
    told.sort_unstable();
    assert_eq!(told, [0, 1, 2]);
    server.stop();
}

#[test]
fn a_connection_of_another_shard_that_has_gone_is_replaced_or_told() {
    let server = start(2, &[Transport::Tcp], &settings());
    // A connection of each shard, the kernel decides which it gets.
    let mut streams: Vec<TcpStream> = (0..16).map(|_| server.connect()).collect();
    let mut paths = Vec::new();
    for stream in &mut streams {
        send(stream, &request_for(0, 1));
        expect(stream, &answered(1));
        paths.push(server.next_message().path);
    }
    streams.into_iter().for_each(reset);
    server.statistics(|s| s.open == 0);
    for path in &paths {
        let order = format!("DO send 1 {} {} 0 shard-0\n{}", path.flow.0, path.remote, answered(1));
        server.order(&order);
        assert_eq!(server.next_error().remote, path.remote);
    }
    let peer = peer();
    let port = peer.local_addr().unwrap().port();
    for path in &paths {
        let order = format!("DO send 1 {} {} {port} shard-0\n{}", path.flow.0, path.remote, answered(1));
        server.order(&order);
    }
    let (mut back, _) = peer.accept().unwrap();
    back.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in &paths {
        expect(&mut back, &answered(1));
    }
    server.stop();
}

// --- the end ----------------------------------------------------------------------------------------------------------

#[test]
fn a_draining_server_takes_no_further_connections_and_closes_those_it_has() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    ask(&mut stream, 1);
    let address = server.addresses[1];
    server.drain();
    expect_closed(&mut stream);
    assert!(TcpStream::connect(address).is_err());
    server.stop();
}

#[test]
fn what_is_in_the_queue_goes_out_before_the_end() {
    let server = tcp(&settings());
    let mut stream = server.connect();
    send(&mut stream, &request(1));
    server.next_message();
    server.stop();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert_eq!(all, answered(1));
}
