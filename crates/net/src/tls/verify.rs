//! Judging the other side's certificate: chain, times and revocation by `webpki` (RFC 5280), the name by RFC
//! 5922.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage, RevocationCheckDepth,
    RevocationOptionsBuilder, UnknownStatusPolicy,
};

use super::der::Facts;
use super::identity;

/// id-kp-sipDomain (RFC 5924 §3): a certificate for SIP only.
const SIP_DOMAIN: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 20];

/// The CAs that are trusted, and what they have revoked.
pub(super) struct Authorities {
    pub(super) roots: Arc<RootCertStore>,
    /// Empty where revocation is not checked. Where it is, every CA of a chain must have a list that is not too
    /// old: a doubt is a refusal, as OpenSSL has it.
    pub(super) revoked: Vec<CertRevocationList<'static>>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl std::fmt::Debug for Authorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authorities({} roots, {} revocation lists)", self.roots.len(), self.revoked.len())
    }
}

impl Authorities {
    /// Whether a chain leads to one of the roots, today and unrevoked, for `usage` or for SIP (RFC 5922 §7.1).
    fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<(), Error> {
        let certificate = EndEntityCert::try_from(end_entity).map_err(refused)?;
        let lists: Vec<&CertRevocationList<'_>> = self.revoked.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|builder| {
            builder
                .with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(UnknownStatusPolicy::Deny)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        let verify = |usage: KeyUsage| {
            certificate
                .verify_for_usage(
                    self.algorithms.all,
                    &self.roots.roots,
                    intermediates,
                    now,
                    usage,
                    revocation,
                    None,
                )
                .map(|_| ())
        };
        match verify(usage) {
            Err(webpki::Error::RequiredEkuNotFoundContext(_)) => {
                verify(KeyUsage::required_if_present(SIP_DOMAIN)).map_err(refused)
            }
            result => result.map_err(refused),
        }
    }
}

/// What `webpki` says, in `rustls`'s words, from which the alert follows.
fn refused(error: webpki::Error) -> Error {
    use webpki::Error as E;
    Error::InvalidCertificate(match error {
        E::BadDer | E::BadDerTime | E::TrailingData(_) => CertificateError::BadEncoding,
        E::CertNotValidYet { time, not_before } => CertificateError::NotValidYetContext { time, not_before },
        E::CertExpired { time, not_after } => CertificateError::ExpiredContext { time, not_after },
        E::InvalidCertValidity => CertificateError::Expired,
        E::UnknownIssuer => CertificateError::UnknownIssuer,
        E::CertRevoked => CertificateError::Revoked,
        E::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus,
        E::CrlExpired { time, next_update } => {
            CertificateError::ExpiredRevocationListContext { time, next_update }
        }
        E::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        E::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}

/// What a server asks of its clients' certificates.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    pub(super) authorities: Authorities,
    /// Whether a client without a certificate is turned away.
    pub(super) mandatory: bool,
    /// The CAs that the client is told; none where they are the system's, whose names fill kilobytes.
    pub(super) hints: Vec<DistinguishedName>,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.authorities.judge(end_entity, intermediates, now, KeyUsage::client_auth())?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.authorities.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.authorities.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.algorithms.supported_schemes()
    }
}

/// What a client asks of its server's certificate.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    /// `None`: any certificate will do (`verify_certificate=no`); its key must still be the server's.
    pub(super) authorities: Option<Authorities>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        authorities.judge(end_entity, intermediates, now, KeyUsage::server_auth())?;
        let facts =
            Facts::read(end_entity).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if !identity::proves(&facts, server_name) {
            let expected = server_name.to_owned();
            let presented = identity::presented(&facts);
            return Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                expected,
                presented,
            }));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
