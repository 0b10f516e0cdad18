//! Request validation (RFC 3261 §16.3): what [`sip::validate::request`] does not check because only a proxy needs it.

use crate::context::RelayError;
use crate::plan::Plan;
use crate::proxy::loop_detection::{is_loop, loop_hash};
use crate::shard::Core;
use sip::{HeaderName, Message, Method};

impl<S> Core<S> {
    /// Checks a request before it is relayed or forwarded, once, and puts hops, breadth and loop hash into its plan.
    pub(crate) fn validate(&mut self, message: &Message<'_>, plan: &mut Plan) -> Result<(), RelayError> {
        if plan.validated {
            return Ok(());
        }
        // §16.3 item 3.
        if plan.max_forwards.is_none() {
            plan.max_forwards = match message.max_forwards() {
                Ok(Some(0)) => {
                    self.counters.too_many_hops += 1;
                    return Err(RelayError::TooManyHops);
                }
                Ok(Some(hops)) => Some(hops - 1),
                Ok(None) => Some(self.config.limits.max_forwards),
                Err(_) => return Err(RelayError::BadRequest),
            };
        }
        // §16.3 item 4.
        plan.loop_hash = loop_hash(&self.keys, message);
        if is_loop(&self.own, message, plan.loop_hash) {
            self.counters.loops += 1;
            return Err(RelayError::Loop);
        }
        // §16.3 item 5: we know no extension that a proxy may be required to know. An ACK or CANCEL cannot be refused
        // for it (RFC 3261 §20.29).
        let refusable = !matches!(message.method(), Method::Ack | Method::Cancel);
        if refusable && message.option_tags(HeaderName::ProxyRequire).next().is_some() {
            return Err(RelayError::BadExtension);
        }
        plan.breadth = self.breadth(message);
        plan.validated = true;
        Ok(())
    }

    /// The breadth that a request may still take (RFC 5393 §5.3.1).
    fn breadth(&self, message: &Message<'_>) -> u32 {
        let most = self.config.limits.max_breadth;
        let Some(header) = message.header(HeaderName::MaxBreadth) else { return most };
        core::str::from_utf8(header.value)
            .ok()
            .and_then(|text| text.trim().parse::<u32>().ok())
            .map_or(most, |breadth| breadth.min(most))
    }
}
