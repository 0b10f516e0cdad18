//! TLS over real sockets on loopback, with certificates made for each test.

mod certificates;
mod data;
mod memory;
mod openssl;
mod pool;
mod resumption;

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use engine::FlowId;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};

use super::*;
use crate::queue::{Parcel, Post, Postbox, post_office};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

const BOTH: (TlsVersion, TlsVersion) = (TlsVersion::V1_2, TlsVersion::V1_3);
const ONLY_1_2: (TlsVersion, TlsVersion) = (TlsVersion::V1_2, TlsVersion::V1_2);
const ONLY_1_3: (TlsVersion, TlsVersion) = (TlsVersion::V1_3, TlsVersion::V1_3);

/// A directory of its own, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("net-tls-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A CA and the directory of all that it issues.
struct Pki {
    directory: Directory,
    issuer: Issuer<'static, KeyPair>,
    ca: PathBuf,
}

/// One value of a subjectAltName.
fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

fn uri(uri: &str) -> SanType {
    SanType::URI(uri.try_into().unwrap())
}

fn address(address: IpAddr) -> SanType {
    SanType::IpAddress(address)
}

/// What a test wants of a certificate.
struct Wish {
    file: &'static str,
    common_name: &'static str,
    names: Vec<SanType>,
    rsa: bool,
    serial: u64,
    not_after: i32,
}

impl Wish {
    fn new(file: &'static str, names: Vec<SanType>) -> Wish {
        Wish { file, common_name: "holder", names, rsa: false, serial: 7, not_after: 2_090 }
    }
}

impl Pki {
    fn new() -> Pki {
        let directory = Directory::new();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let name = format!("A CA for {}", directory.0.display());
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let ca = directory.write("ca.pem", params.self_signed(&key).unwrap().pem());
        Pki { directory, issuer: Issuer::new(params, key), ca }
    }

    /// A CA that this one vouches for; `ca` is its own certificate.
    fn intermediate(&self) -> Pki {
        let directory = Directory::new();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "in the middle");
        let key = KeyPair::generate().unwrap();
        let ca = directory.write("ca.pem", params.signed_by(&key, &self.issuer).unwrap().pem());
        Pki { directory, issuer: Issuer::new(params, key), ca }
    }

    fn issue(&self, wish: Wish) -> CertificateFiles {
        self.issue_with(wish, |_| {})
    }

    fn issue_with(&self, wish: Wish, change: impl FnOnce(&mut CertificateParams)) -> CertificateFiles {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, wish.common_name);
        params.subject_alt_names = wish.names;
        params.serial_number = Some(SerialNumber::from(wish.serial));
        params.not_before = date_time_ymd(2_000, 1, 1);
        params.not_after = date_time_ymd(wish.not_after, 1, 1);
        change(&mut params);
        let key = if wish.rsa {
            KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap()
        } else {
            KeyPair::generate().unwrap()
        };
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        CertificateFiles {
            chain: self.directory.write(&format!("{}.pem", wish.file), certificate.pem()),
            key: self.directory.write(&format!("{}.key", wish.file), key.serialize_pem()),
        }
    }

    /// A certificate with one DNS name.
    fn simple(&self, file: &'static str, name: &str) -> CertificateFiles {
        self.issue(Wish { common_name: "simple", ..Wish::new(file, vec![dns(name)]) })
    }

    fn revoke(&self, file: &str, serials: &[u64], next_update: i32) -> PathBuf {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2_020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2_020, 1, 1),
            next_update: date_time_ymd(next_update, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        self.directory.write(file, params.signed_by(&self.issuer).unwrap().pem().unwrap())
    }
}

fn server_profile(certificates: &[CertificateFiles]) -> Profile {
    Profile {
        address: None,
        server_name: None,
        certificates: certificates.to_vec(),
        ca_list: None,
        crl: None,
        peer: PeerCertificate::Off,
        versions: BOTH,
        cipher_list: None,
    }
}

/// A client profile that verifies servers by a CA, or not at all.
fn client_profile(ca: Option<&Path>) -> Profile {
    Profile {
        ca_list: ca.map(Path::to_owned),
        peer: if ca.is_some() { PeerCertificate::Require } else { PeerCertificate::Off },
        ..server_profile(&[])
    }
}

fn servers(profiles: Vec<Profile>) -> Tls {
    Tls::load(TlsSettings { servers: profiles, ..TlsSettings::default() }).unwrap()
}

fn clients(profile: Profile) -> Tls {
    Tls::load(TlsSettings { clients: vec![profile], ..TlsSettings::default() }).unwrap()
}

/// What a shard has: a queue into which outcomes come.
struct Desk {
    poll: mio::Poll,
    post: Post,
    postbox: Postbox,
    came: Vec<(FlowId, Result<Box<Secured>, HandshakeError>)>,
}

const SERVER: FlowId = FlowId(1);
const CLIENT: FlowId = FlowId(2);

impl Desk {
    fn new() -> Desk {
        let poll = mio::Poll::new().unwrap();
        let (post, postbox) = post_office(poll.registry(), mio::Token(0)).unwrap();
        Desk { poll, post, postbox, came: Vec::new() }
    }

    fn look(&mut self) {
        let came = &mut self.came;
        self.postbox.drain(10_000, |parcel| {
            if let Parcel::Secured { flow, result } = parcel {
                came.push((flow, result));
            }
            None
        });
    }

    /// Waits for the outcome of a handshake.
    fn outcome(&mut self, flow: FlowId) -> Result<Box<Secured>, HandshakeError> {
        let until = Instant::now() + PATIENCE;
        let mut events = mio::Events::with_capacity(8);
        loop {
            self.look();
            if let Some(at) = self.came.iter().position(|(found, _)| *found == flow) {
                return self.came.remove(at).1;
            }
            assert!(Instant::now() < until, "no outcome of the handshake");
            self.poll.poll(&mut events, Some(Duration::from_millis(20))).unwrap();
        }
    }
}

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

/// A connection: the client's socket and the server's.
fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    // As the server has it for all of SIP: a small message does not wait for an acknowledgement.
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    (client, server)
}

/// A server and a client that know each other.
struct Couple {
    desk: Desk,
    listener: TcpListener,
    server: HandshakePool,
    client: HandshakePool,
}

type Outcome = Result<Box<Secured>, HandshakeError>;

impl Couple {
    fn new(server: &Tls, client: &Tls) -> Couple {
        Couple {
            desk: Desk::new(),
            listener: listener(),
            server: HandshakePool::start(server.clone(), 1).unwrap(),
            client: HandshakePool::start(client.clone(), 1).unwrap(),
        }
    }

    /// One handshake: what came of it for the server and for the client.
    fn shake(&mut self, name: Option<&str>) -> (Outcome, Outcome) {
        let (client, server) = connection(&self.listener);
        let (at, from) = (self.listener.local_addr().unwrap(), client.local_addr().unwrap());
        self.server.accept(server, at, from, SERVER, &self.desk.post).unwrap();
        self.client.connect(client, at, name.map(str::as_bytes), CLIENT, &self.desk.post).unwrap();
        (self.desk.outcome(SERVER), self.desk.outcome(CLIENT))
    }

    fn both(&mut self, name: Option<&str>) -> (Box<Secured>, Box<Secured>) {
        let (server, client) = self.shake(name);
        (server.expect("the server's side"), client.expect("the client's side"))
    }

    /// A handshake and one message each way, after which the client has its tickets.
    fn talk(&mut self, name: Option<&str>) -> (Box<Secured>, Box<Secured>) {
        let (mut server, mut client) = self.both(name);
        say(&mut client, &mut server, b"hello");
        say(&mut server, &mut client, b"hello yourself");
        (server, client)
    }

    /// Why the client refuses the server.
    fn refusal(&mut self, name: Option<&str>) -> String {
        let (_, client) = self.shake(name);
        match client {
            Err(HandshakeError::Certificate(why)) => why,
            other => panic!("not refused for its certificate: {other:?}"),
        }
    }
}

fn write_all(mut socket: &TcpStream, bytes: &[u8]) {
    socket.set_nonblocking(false).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(bytes).unwrap();
}

/// What is there to be read, after waiting for something; empty at the end.
fn read_some(mut socket: &TcpStream) -> Vec<u8> {
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = vec![0; 64 * 1024];
    let count = socket.read(&mut buffer).unwrap();
    buffer.truncate(count);
    buffer
}

/// Sends `data` from one to the other, over the socket.
fn say(from: &mut Secured, to: &mut Secured, data: &[u8]) {
    let mut ciphertext = Vec::new();
    from.session.send(data, &mut ciphertext).unwrap();
    let socket = from.socket.try_clone().unwrap();
    let writer = std::thread::spawn(move || write_all(&socket, &ciphertext));
    assert_eq!(hear(to, data.len()), data);
    writer.join().unwrap();
}

/// Receives as many bytes of plaintext.
fn hear(to: &mut Secured, length: usize) -> Vec<u8> {
    let mut plaintext = std::mem::take(&mut to.plaintext);
    while plaintext.len() < length {
        let mut bytes = read_some(&to.socket);
        assert!(!bytes.is_empty(), "the connection was closed");
        to.session.receive(&mut bytes, &mut plaintext).unwrap();
    }
    plaintext
}
