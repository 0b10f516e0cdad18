//! `strowger cert` and what `strowger check` says about TLS: the binary itself, its certificates judged by OpenSSL.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory of its own for one test, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("strowger-cert-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory for the test");
        Scratch(path)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("a file for the test");
    }

    /// Runs the binary here.
    fn strowger(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strowger"));
        command.args(arguments).current_dir(&self.0).output().expect("strowger runs")
    }

    /// The same; what it printed, if it succeeded.
    fn made(&self, arguments: &[&str]) -> String {
        let output = self.strowger(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The same; the one line with which it failed.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.strowger(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stdout));
        let line = text(&output.stderr);
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        line
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.0.join(name)).expect("the file").permissions().mode() & 0o777
    }

    fn ca(&self) {
        self.made(&["cert", "ca", "--out", "ca", "--name", "Test CA"]);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What OpenSSL says; an empty text where it is not installed.
fn openssl(directory: &Path, arguments: &[&str]) -> Option<String> {
    match Command::new("openssl").args(arguments).current_dir(directory).output() {
        Ok(output) => {
            assert!(output.status.success(), "openssl {arguments:?}: {}", text(&output.stderr));
            Some(text(&output.stdout))
        }
        Err(error) => {
            eprintln!("openssl is not here ({error}): its verdict is left out");
            None
        }
    }
}

#[test]
fn openssl_accepts_what_the_ca_has_signed() {
    let here = Scratch::new("chain");
    here.ca();
    for kind in ["ecdsa", "rsa"] {
        let said = here.made(&[
            "cert",
            "server",
            "--ca",
            "ca",
            "--name",
            "example.com",
            "--name",
            "sip.example.com",
            "--ip",
            "192.0.2.1",
            "--ip",
            "2001:db8::1",
            "--key",
            kind,
            "--out",
            "certs",
        ]);
        let stem = if kind == "rsa" { "certs/example.com-rsa" } else { "certs/example.com" };
        assert!(said.contains("[server:default]") && said.contains(&format!("{stem}-key.pem")), "{said}");
        let (file, key) = (format!("{stem}.pem"), format!("{stem}-key.pem"));
        for purpose in ["sslserver", "sslclient"] {
            openssl(&here.0, &["verify", "-x509_strict", "-purpose", purpose, "-CAfile", "ca/ca.pem", &file]);
        }
        for name in ["example.com", "sip.example.com"] {
            openssl(&here.0, &["verify", "-verify_hostname", name, "-CAfile", "ca/ca.pem", &file]);
        }
        openssl(&here.0, &["verify", "-verify_ip", "2001:db8::1", "-CAfile", "ca/ca.pem", &file]);
        // RFC 5922 §7.1: the URI is the domain's identity; DNS names are for those who don't look at it.
        if let Some(shown) = openssl(&here.0, &["x509", "-in", &file, "-noout", "-text"]) {
            for part in [
                "URI:sip:example.com",
                "URI:sip:sip.example.com",
                "DNS:example.com",
                "IP Address:192.0.2.1",
                "1.3.6.1.5.5.7.3.20",
                "CA:FALSE",
                "Issuer: CN = Test CA",
            ] {
                assert!(shown.contains(part), "{part}: {shown}");
            }
        }
        let of_certificate = openssl(&here.0, &["x509", "-in", &file, "-noout", "-pubkey"]);
        let of_key = openssl(&here.0, &["pkey", "-in", &key, "-pubout"]);
        assert_eq!(of_certificate, of_key, "the key is the certificate's");
        assert_eq!((here.mode(&key), here.mode("ca/ca-key.pem")), (0o600, 0o600));
    }
}

#[test]
fn a_ca_signs_certificates_and_no_further_cas() {
    let here = Scratch::new("ca");
    here.made(&["cert", "ca", "--out", "ca", "--days", "30", "--key", "rsa"]);
    if let Some(shown) = openssl(&here.0, &["x509", "-in", "ca/ca.pem", "-noout", "-text"]) {
        assert!(
            shown.contains("CA:TRUE, pathlen:0") && shown.contains("Certificate Sign, CRL Sign"),
            "{shown}"
        );
    }
    // Nothing outlives its CA.
    let said =
        here.made(&["cert", "server", "--ca", "ca", "--name", "example.com", "--out", ".", "--days", "400"]);
    assert!(said.contains("as its CA is"), "{said}");
    openssl(&here.0, &["verify", "-x509_strict", "-CAfile", "ca/ca.pem", "example.com.pem"]);
    assert!(here.refused(&["cert", "server", "--ca", ".", "--name", "x", "--out", "."]).contains("cert ca"));
    // A server's certificate is none of a CA.
    fs::create_dir(here.0.join("no-ca")).expect("a directory");
    fs::copy(here.0.join("example.com.pem"), here.0.join("no-ca/ca.pem")).expect("a copy");
    fs::copy(here.0.join("example.com-key.pem"), here.0.join("no-ca/ca-key.pem")).expect("a copy");
    let line = here.refused(&["cert", "server", "--ca", "no-ca", "--name", "x", "--out", "."]);
    assert!(line.contains("not one of a CA"), "{line}");
    fs::copy(here.0.join("ca/ca.pem"), here.0.join("no-ca/ca.pem")).expect("a copy");
    let line = here.refused(&["cert", "server", "--ca", "no-ca", "--name", "x", "--out", "."]);
    assert!(line.contains("not the key of"), "{line}");
}

#[test]
fn a_ca_of_openssl_signs_too() {
    let here = Scratch::new("foreign");
    fs::create_dir(here.0.join("ca")).expect("a directory");
    let made = openssl(
        &here.0,
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            "ca/ca-key.pem",
            "-out",
            "ca/ca.pem",
            "-days",
            "10",
            "-subj",
            "/C=DE/O=Example GmbH/CN=Example Root",
        ],
    );
    if made.is_some() {
        here.made(&["cert", "server", "--ca", "ca", "--name", "example.com", "--out", "."]);
        openssl(&here.0, &["verify", "-CAfile", "ca/ca.pem", "example.com.pem"]);
    }
}

#[test]
fn a_client_is_a_domain_or_one_user() {
    let here = Scratch::new("client");
    here.ca();
    let said = here.made(&["cert", "client", "--ca", "ca", "--name", "trunk.example.net", "--out", "."]);
    assert!(said.contains("verify_client = on") && said.contains("[client:IP:PORT]"), "{said}");
    openssl(
        &here.0,
        &["verify", "-purpose", "sslclient", "-CAfile", "ca/ca.pem", "trunk.example.net-client.pem"],
    );
    here.made(&["cert", "client", "--ca", "ca", "--name", "alice@example.com", "--out", "."]);
    let shown = here.made(&["cert", "show", "alice@example.com-client.pem"]);
    assert!(shown.contains("URI sip:alice@example.com") && !shown.contains("DNS"), "{shown}");
    assert!(shown.contains("clients") && !shown.contains("SIP domains"), "{shown}");
    let line = here.refused(&["cert", "server", "--ca", "ca", "--name", "alice@example.com", "--out", "."]);
    assert!(line.contains("--name example.com"), "{line}");
}

#[test]
fn nothing_is_overwritten_unless_that_is_wanted() {
    let here = Scratch::new("force");
    here.ca();
    let again = ["cert", "ca", "--out", "ca"];
    let before = fs::read(here.0.join("ca/ca.pem")).expect("the CA");
    assert!(here.refused(&again).contains("--force"));
    assert_eq!(fs::read(here.0.join("ca/ca.pem")).expect("the CA"), before);
    here.made(&["cert", "server", "--ca", "ca", "--ip", "127.0.0.1", "--out", "."]);
    assert!(
        here.refused(&["cert", "server", "--ca", "ca", "--ip", "127.0.0.1", "--out", "."]).contains("exists")
    );
    here.made(&["cert", "server", "--ca", "ca", "--ip", "127.0.0.1", "--out", ".", "--force"]);
    assert_eq!(here.mode("127.0.0.1-key.pem"), 0o600);
    let left: Vec<_> =
        fs::read_dir(&here.0).expect("the directory").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn names_that_prove_nothing_are_refused() {
    let here = Scratch::new("names");
    here.ca();
    for (name, words) in [
        ("*.example.com", "wildcards"),
        ("192.0.2.1", "--ip 192.0.2.1"),
        ("exämple.com", "xn--"),
        ("a..b", "host name"),
        ("", "host name"),
        ("a b", "host name"),
    ] {
        let line = here.refused(&["cert", "server", "--ca", "ca", "--name", name, "--out", "."]);
        assert!(line.contains(words), "{name}: {line}");
    }
    assert!(here.refused(&["cert", "server", "--ca", "ca", "--out", "."]).contains("--name"));
    assert!(
        here.refused(&["cert", "server", "--ca", "ca", "--name", "x", "--out", ".", "--days", "0"])
            .contains("0")
    );
}

#[test]
fn a_certificate_shows_what_people_ask_of_it() {
    let here = Scratch::new("show");
    here.ca();
    here.made(&[
        "cert",
        "server",
        "--ca",
        "ca",
        "--name",
        "example.com",
        "--ip",
        "::1",
        "--key",
        "rsa",
        "--out",
        ".",
    ]);
    let chain =
        ["example.com-rsa.pem", "ca/ca.pem"].map(|name| fs::read_to_string(here.0.join(name)).expect("PEM"));
    here.write("chain.pem", &chain.concat());
    let shown = here.made(&["cert", "show", "chain.pem"]);
    for part in [
        "subject   CN=example.com\n",
        "names     URI sip:example.com\n",
        "          DNS example.com\n",
        "          IP ::1\n",
        "issuer    CN=Test CA\n",
        "397 days left",
        "key       RSA, 2048 bits\n",
        "for       servers, clients, SIP domains\n",
        "subject   CN=Test CA\n",
        "issuer    itself\n",
        "signing certificates (CA)",
        "key       ECDSA, 256 bits\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(here.refused(&["cert", "show", "ca/ca-key.pem"]).contains("private key"));
    assert!(here.refused(&["cert", "show", "nowhere.pem"]).contains("nowhere.pem"));
    here.write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    assert!(here.refused(&["cert", "show", "broken.pem"]).contains("broken.pem: certificate 1"));
}

#[test]
fn cert_alone_says_how_to_begin() {
    let here = Scratch::new("alone");
    let output = here.strowger(&["cert"]);
    assert_eq!(output.status.code(), Some(1));
    let help = text(&output.stderr);
    for part in ["strowger cert ca --out ca", "server", "client", "show"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

const CONFIGURATION: &str =
    "loadmodule \"tls.so\"\nmodparam(\"tls\", \"config\", \"tls.cfg\")\nrequest_route {\n\texit;\n}\n";

/// What `check` prints to standard error, and whether it finds errors.
fn check(here: &Scratch, profiles: &str) -> (bool, String) {
    here.write("strowger.cfg", CONFIGURATION);
    here.write("tls.cfg", profiles);
    // From elsewhere: files are beside the configuration, wherever it is called.
    let path = here.0.join("strowger.cfg");
    let output =
        Command::new(env!("CARGO_BIN_EXE_strowger")).arg("check").arg(path).current_dir("/").output();
    let output = output.expect("strowger runs");
    (output.status.code() == Some(2), text(&output.stderr))
}

#[test]
fn check_underlines_what_is_wrong_in_a_file_of_profiles() {
    let here = Scratch::new("check");
    let (errors, shown) = check(&here, "# all phones\n[server:default]\n  certifcate = server.pem\n");
    assert!(errors, "{shown}");
    for part in ["tls.cfg:3:3", "certifcate = server.pem", "^^^^^^^^^^", "did you mean `certificate`?"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let (errors, shown) = check(&here, "[server:default]\ncertificate = server.pem\n");
    assert!(errors && shown.contains("tls.cfg:2:15") && shown.contains("cannot read"), "{shown}");
    fs::remove_file(here.0.join("tls.cfg")).expect("the profiles");
    let path = here.0.join("strowger.cfg");
    let output = here.strowger(&["check", &path.display().to_string()]);
    assert!(text(&output.stderr).contains("strowger.cfg:2"), "{}", text(&output.stderr));
}

#[test]
fn check_accepts_what_cert_has_made() {
    let here = Scratch::new("accept");
    here.ca();
    let said = here.made(&["cert", "server", "--ca", "ca", "--name", "example.com", "--out", "certs"]);
    let section: Vec<&str> = said.lines().skip_while(|line| !line.starts_with('[')).take(3).collect();
    let (errors, shown) = check(&here, &section.join("\n"));
    assert!(!errors && shown.is_empty(), "{shown}");
    fs::set_permissions(here.0.join("certs/example.com-key.pem"), fs::Permissions::from_mode(0o644))
        .expect("a mode");
    let (errors, shown) = check(&here, &section.join("\n"));
    assert!(
        !errors && shown.contains("every user of this machine") && shown.contains("chmod 600"),
        "{shown}"
    );
}

#[test]
fn check_looks_into_certificates() {
    let here = Scratch::new("inside");
    here.ca();
    here.made(&["cert", "server", "--ca", "ca", "--name", "example.com", "--out", "."]);
    here.made(&["cert", "server", "--ca", "ca", "--name", "example.net", "--out", "."]);
    here.write("rubbish.pem", "no certificate\n");
    for (certificate, key) in [
        ("rubbish.pem", "example.com-key.pem"),
        ("example.com.pem", "example.net-key.pem"),
        ("example.com.pem", "example.com.pem"),
    ] {
        let profiles = format!("[server:default]\ncertificate = {certificate}\nprivate_key = {key}\n");
        let (errors, shown) = check(&here, &profiles);
        assert!(errors && shown.contains("tls.cfg:") && shown.contains(".pem: "), "{profiles}: {shown}");
    }
    here.made(&["cert", "server", "--ca", "ca", "--name", "soon", "--days", "5", "--out", "."]);
    let (errors, shown) =
        check(&here, "[server:default]\ncertificate = soon.pem\nprivate_key = soon-key.pem\n");
    assert!(!errors && shown.contains("tls.cfg:2:15") && shown.contains("soon.pem expires on "), "{shown}");
}

#[test]
fn the_example_of_profiles_has_no_errors_but_the_files_it_names() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conf/tls.cfg");
    let here = Scratch::new("example");
    let (errors, shown) = check(&here, &fs::read_to_string(example).expect("conf/tls.cfg"));
    assert!(errors && shown.contains("cannot read"), "{shown}");
    here.ca();
    here.made(&["cert", "server", "--ca", "ca", "--name", "example.com", "--out", "."]);
    let (errors, shown) = check(&here, &fs::read_to_string(here.0.join("tls.cfg")).expect("the profiles"));
    assert!(!errors && shown.is_empty(), "{shown}");
}
