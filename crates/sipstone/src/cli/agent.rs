//! `sipstone agent`: works for a controller on another host.

use super::exit::{Exit, Refusal};
use super::{refuse, session};
use crate::agent::{TOKEN_BYTES_MAX, require_token, serve};
use crate::group::Group;
use crate::net::local::LocalGroup;
use clap::Args;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  sipstone agent
      on loopback, for a controller that comes through `ssh -L 5099:127.0.0.1:5099 host`
  sipstone agent --listen 10.0.0.2:5099 --agent-token-file token
      on a network, for whoever knows the token
  sipstone run invite --target 10.0.0.1 --agent 10.0.0.2:5099 --agent-token-file token
      the controller; --agent can be repeated

An agent sends load wherever its controller says, so beyond loopback it wants a token of at least 16 bytes, as from \
`head -c 24 /dev/urandom | base64 > token`. The connection is not encrypted.";

/// Wait for a controller on another host and do what it says: calls, answers, or both
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct AgentArgs {
    /// Address and TCP port to listen on; beyond loopback only with --agent-token-file
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5099")]
    listen: SocketAddr,

    /// File with the token that a controller must know; blanks and line ends around it do not count
    #[arg(long, value_name = "FILE")]
    agent_token_file: Option<PathBuf>,
}

pub(super) fn agent(args: &AgentArgs) -> Result<Exit, Refusal> {
    let token = args.agent_token_file.as_deref().map(token).transpose()?;
    require_token(args.listen, token.as_deref())?;
    let stop = session::on_interrupt()?;
    eprintln!("sipstone: waiting for a controller on {}; Ctrl-C ends it", args.listen);
    let mut make_group = || Box::new(LocalGroup::new()) as Box<dyn Group>;
    match serve(args.listen, token, &mut make_group, &stop) {
        Ok(()) => Ok(Exit::Fine),
        Err(error) => refuse(error.to_string()),
    }
}

/// The token in a file.
pub(super) fn token(path: &Path) -> Result<String, Refusal> {
    let name = path.display();
    let limit = u64::try_from(TOKEN_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(2);
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(limit).read_to_string(&mut text))
        .map_err(|error| Refusal(format!("the token file {name} cannot be read: {error}")))?;
    let token = text.trim();
    if token.is_empty() {
        return refuse(format!("the token file {name} is empty"));
    }
    if token.len() > TOKEN_BYTES_MAX {
        return refuse(format!("the token in {name} is longer than {TOKEN_BYTES_MAX} bytes"));
    }
    Ok(token.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_file(content: &str) -> Result<String, Refusal> {
        let path =
            std::env::temp_dir().join(format!("sipstone-token-{}-{}", std::process::id(), content.len()));
        std::fs::write(&path, content).unwrap();
        let token = token(&path);
        std::fs::remove_file(&path).unwrap();
        token
    }

    #[test]
    fn blanks_around_a_token_do_not_count() {
        assert_eq!(with_file(" secret of the agents\n").unwrap(), "secret of the agents");
    }

    #[test]
    fn empty_and_endless_tokens_are_refused() {
        assert!(with_file("\n").unwrap_err().0.contains("empty"));
        assert!(with_file(&"x".repeat(TOKEN_BYTES_MAX + 1)).unwrap_err().0.contains("longer"));
        assert!(token(Path::new("/nonexistent/token")).unwrap_err().0.contains("/nonexistent/token"));
    }
}
