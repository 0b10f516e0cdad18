//! `sipstone null`: a server that answers and does nothing.

use super::exit::{Exit, Refusal};
use super::links::{self, TlsArgs};
use super::{refuse, result, session, values};
use crate::null::{Behaviour, serve};
use crate::spec::Transport;
use clap::Args;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  sipstone null
  sipstone null --listen 127.0.0.1:5070 --trying --cpu 1
      as a stateful proxy would, on CPU 1
  sipstone null --transport tls --listen 127.0.0.1:5061 --tls reuse
      over TLS, with sessions that can be resumed
  sipstone null --cap 2000
      drops what is beyond 2000 operations a second: `sipstone peak` against it must find 2000";

/// How long the wait for Ctrl-C sleeps at a time.
const SLICE: Duration = Duration::from_millis(100);

/// Run a server that answers and does nothing else, to see what the generator itself can do
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct NullArgs {
    /// Transport: udp, tcp, tls, ws or wss
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Transport::Udp)]
    transport: Transport,

    #[command(flatten)]
    tls: TlsArgs,

    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5060")]
    listen: SocketAddr,

    /// Answer INVITE with 302 and the registered contact instead of forwarding it
    #[arg(long)]
    redirect: bool,

    /// Send a 100 for each INVITE, as a stateful proxy does
    #[arg(long)]
    trying: bool,

    /// Serve so many operations a second and drop what is beyond [default: all]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    cap: Option<f64>,

    /// CPU to pin it to [default: not pinned]
    #[arg(long, value_name = "N")]
    cpu: Option<u16>,
}

pub(super) fn null(args: &NullArgs) -> Result<Exit, Refusal> {
    let stop = session::on_interrupt()?;
    let behaviour = Behaviour { redirect: args.redirect, trying: args.trying, cap: args.cap };
    let tls = links::server_tls(&args.tls, args.listen.ip())?;
    let serving = match serve::start_over(args.transport, &tls, args.listen, behaviour, args.cpu) {
        Ok(serving) => serving,
        Err(error) => return refuse(format!("cannot listen on {}: {error}", args.listen)),
    };
    let (address, transport) = (serving.address(), args.transport.via());
    eprintln!("sipstone: the null server listens on {address} ({transport}); Ctrl-C ends it");
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(SLICE);
    }
    match serving.stop() {
        Ok(counters) => {
            result::print(&format!("{counters}\n"))?;
            Ok(Exit::Fine)
        }
        Err(error) => refuse(format!("the null server failed: {error}")),
    }
}
