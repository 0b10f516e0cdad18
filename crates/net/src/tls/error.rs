//! What can go wrong with TLS: when its files are loaded, during a handshake, in a session.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustls::{AlertDescription, CertificateError};

/// Why the settings of TLS could not be put to use: one line that names the file and what to do.
#[derive(Debug)]
pub struct TlsError {
    file: Option<PathBuf>,
    problem: String,
    advice: &'static str,
}

impl TlsError {
    pub(super) fn file(file: &Path, problem: impl fmt::Display, advice: &'static str) -> TlsError {
        TlsError { file: Some(file.to_owned()), problem: one_line(&problem), advice }
    }

    pub(super) fn setting(problem: impl fmt::Display, advice: &'static str) -> TlsError {
        TlsError { file: None, problem: one_line(&problem), advice }
    }

    pub(super) fn unreadable(file: &Path, error: &io::Error) -> TlsError {
        let advice = match error.kind() {
            io::ErrorKind::NotFound => "correct the path, or put the file there",
            io::ErrorKind::PermissionDenied => "let the user that the server runs as read it",
            _ => "make it a readable PEM file",
        };
        TlsError::file(file, format_args!("cannot be read: {error}"), advice)
    }

    /// The file at fault, if it is one.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        write!(f, "{}; {}", self.problem, self.advice)
    }
}

impl std::error::Error for TlsError {}

/// Error texts of libraries may break lines; ours do not.
fn one_line(text: &impl fmt::Display) -> String {
    text.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What came instead of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTls {
    /// SIP in clear: somebody took the port of TLS for that of TCP.
    Sip,
    /// HTTP in clear.
    Http,
    /// Anything else.
    Other,
}

impl NotTls {
    /// What `bytes`, the first of a connection, are; `None` if they may be TLS.
    ///
    /// TLS begins with a record of a handshake or, from a server, of an alert (RFC 8446 §5.1), of version 3.x.
    pub(super) fn recognise(bytes: &[u8]) -> Option<NotTls> {
        const HANDSHAKE: u8 = 22;
        const ALERT: u8 = 21;
        match bytes {
            [] | [HANDSHAKE | ALERT] | [HANDSHAKE | ALERT, 3, ..] => None,
            _ => Some(NotTls::kind(bytes)),
        }
    }

    fn kind(bytes: &[u8]) -> NotTls {
        // A SIP client may send keep-alives of CRLF before its first request (RFC 5626 §3.5.1).
        let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let text = &bytes[blank..];
        let line = text.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        let contains = |part: &[u8]| line.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part));
        let begins = |names: &[&str]| {
            let method = line.split(|byte| *byte == b' ').next().unwrap_or_default();
            names.iter().any(|name| name.as_bytes() == method)
        };
        if contains(b" HTTP/") || line.starts_with(b"HTTP/") {
            NotTls::Http
        } else if line.starts_with(b"SIP/2.0")
            || [&b" sip:"[..], b" sips:", b" tel:", b" SIP/2.0"].iter().any(|part| contains(part))
            || (line.is_empty() && blank > 0)
        {
            NotTls::Sip
        } else if begins(&["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "PRI"]) {
            NotTls::Http
        } else if begins(&["REGISTER", "INVITE", "OPTIONS", "ACK", "BYE", "CANCEL", "SUBSCRIBE", "PUBLISH"]) {
            NotTls::Sip
        } else {
            NotTls::Other
        }
    }
}

/// Why a handshake ended without a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The other side does not speak TLS.
    NotTls(NotTls),
    /// It took longer than it may.
    TimedOut,
    /// The connection was closed or reset, or the server stops.
    Closed,
    /// A certificate, theirs or ours, was refused: which and why.
    Certificate(String),
    /// The other side broke the protocol, or said that we did.
    Protocol(String),
    /// No version, cipher suite, kind of certificate or name in common.
    NoCommon(String),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::NotTls(NotTls::Sip) => {
                f.write_str("SIP without TLS came in on a port of TLS; the peer must use TLS or another port")
            }
            HandshakeError::NotTls(NotTls::Http) => {
                f.write_str("HTTP without TLS came in on a port of TLS; the peer must use https or wss")
            }
            HandshakeError::NotTls(NotTls::Other) => f.write_str("what came in is not TLS"),
            HandshakeError::TimedOut => f.write_str("the TLS handshake took too long"),
            HandshakeError::Closed => f.write_str("the connection closed during the TLS handshake"),
            HandshakeError::Certificate(why)
            | HandshakeError::Protocol(why)
            | HandshakeError::NoCommon(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for HandshakeError {}

impl From<rustls::Error> for HandshakeError {
    fn from(error: rustls::Error) -> HandshakeError {
        use rustls::Error as E;
        match error {
            E::InvalidCertificate(why) => {
                HandshakeError::Certificate(format!("the peer's certificate is refused: {}", refusal(&why)))
            }
            E::NoCertificatesPresented => {
                HandshakeError::Certificate("the peer has sent no certificate, which it must".to_owned())
            }
            E::InvalidCertRevocationList(why) => {
                HandshakeError::Certificate(format!("the revocation list is not usable: {why:?}"))
            }
            E::AlertReceived(alert) => from_alert(alert),
            E::PeerIncompatible(why) => {
                HandshakeError::NoCommon(format!("nothing in common with the peer: {why:?}"))
            }
            other => HandshakeError::Protocol(one_line(&other)),
        }
    }
}

/// What the other side complains of (RFC 8446 §6.2).
fn from_alert(alert: AlertDescription) -> HandshakeError {
    use AlertDescription as A;
    let why = |what: &str| format!("the peer refuses {what}: alert {alert:?}");
    match alert {
        A::NoCertificate
        | A::BadCertificate
        | A::UnsupportedCertificate
        | A::CertificateRevoked
        | A::CertificateExpired
        | A::CertificateUnknown
        | A::UnknownCA
        | A::CertificateRequired
        | A::AccessDenied => HandshakeError::Certificate(why("our certificate")),
        A::HandshakeFailure
        | A::ProtocolVersion
        | A::InsufficientSecurity
        | A::NoApplicationProtocol
        | A::UnrecognisedName => HandshakeError::NoCommon(why("what we offer")),
        _ => HandshakeError::Protocol(why("to go on")),
    }
}

/// Why a certificate was refused, in words.
fn refusal(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::Revoked => "it was revoked".to_owned(),
        CertificateError::BadSignature => "its signature is not of the CA that it names".to_owned(),
        CertificateError::UnknownRevocationStatus => {
            "no revocation list of its CA says whether it was revoked".to_owned()
        }
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            "the revocation list of its CA is out of date".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is for another purpose (extendedKeyUsage)".to_owned()
        }
        CertificateError::UnknownIssuer => "it comes from no CA that we trust".to_owned(),
        CertificateError::NotValidForName => "it is for another name".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } if presented.is_empty() => {
            format!("it must name {} and names nobody", expected.to_str())
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            format!("it must name {} and names {}", expected.to_str(), presented.join(", "))
        }
        other => one_line(other),
    }
}

/// Why an established session ends before its time: the connection is of no use any more.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionError(rustls::Error);

impl From<rustls::Error> for SessionError {
    fn from(error: rustls::Error) -> SessionError {
        SessionError(error)
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", HandshakeError::from(self.0.clone()))
    }
}

impl std::error::Error for SessionError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_tls_is_recognised_by_its_first_bytes() {
        let kind = |bytes: &[u8]| NotTls::recognise(bytes);
        assert_eq!(kind(b""), None);
        assert_eq!(kind(&[22]), None);
        assert_eq!(kind(&[22, 3, 1, 0, 5]), None);
        assert_eq!(kind(&[21, 3, 3, 0, 2, 2, 40]), None);
        assert_eq!(kind(&[22, 2]), Some(NotTls::Other));
        assert_eq!(kind(b"REGISTER sip:example.org SIP/2.0\r\n"), Some(NotTls::Sip));
        assert_eq!(kind(b"SIP/2.0 200 OK\r\n"), Some(NotTls::Sip));
        assert_eq!(kind(b"\r\n\r\n"), Some(NotTls::Sip));
        assert_eq!(kind(b"\r\n\r\nINVITE tel:+1"), Some(NotTls::Sip));
        assert_eq!(kind(b"OPTIONS * HTTP/1.1\r\n"), Some(NotTls::Http));
        assert_eq!(kind(b"OPTIONS sip:a@b SIP/2.0\r\n"), Some(NotTls::Sip));
        assert_eq!(kind(b"GET /"), Some(NotTls::Http));
        assert_eq!(kind(b"GET / HTTP/1.1\r\nHost: sip.example.org\r\n"), Some(NotTls::Http));
        assert_eq!(kind(b"\x80\x2e\x01\x03\x01"), Some(NotTls::Other));
        assert_eq!(kind(b"SSH-2.0-x\r\n"), Some(NotTls::Other));
    }

    #[test]
    fn an_error_is_one_line_with_its_file() {
        let error = TlsError::file(Path::new("/etc/x.pem"), "two\n  lines", "mend it");
        assert_eq!(error.to_string(), "/etc/x.pem: two lines; mend it");
        assert_eq!(error.path(), Some(Path::new("/etc/x.pem")));
    }
}
