//! Request methods (RFC 3261 §7.1 and the extensions that add one).

macro_rules! methods {
    ($($variant:ident $text:literal $doc:literal;)*) => {
        /// A request method. Names are case-sensitive (RFC 3261 §7.1).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Method {
            $(#[doc = $doc] $variant,)*
            /// Any other token; its bytes are beside it where it was found.
            Other,
        }

        impl Method {
            /// All that have a name here.
            pub const NAMED: &[Method] = &[$(Method::$variant,)*];

            /// Classifies a method's bytes.
            #[inline]
            pub fn of(bytes: &[u8]) -> Method {
                $(if bytes == $text.as_bytes() { return Method::$variant; })*
                Method::Other
            }

            /// The method's name, `None` for [`Method::Other`].
            pub const fn as_str(self) -> Option<&'static str> {
                match self { $(Method::$variant => Some($text),)* Method::Other => None }
            }
        }
    };
}

methods! {
    Invite "INVITE" "RFC 3261 §13.";
    Ack "ACK" "RFC 3261 §13, §17.1.1.3.";
    Bye "BYE" "RFC 3261 §15.";
    Cancel "CANCEL" "RFC 3261 §9.";
    Register "REGISTER" "RFC 3261 §10.";
    Options "OPTIONS" "RFC 3261 §11.";
    Message "MESSAGE" "RFC 3428.";
    Subscribe "SUBSCRIBE" "RFC 6665.";
    Notify "NOTIFY" "RFC 6665.";
    Publish "PUBLISH" "RFC 3903.";
    Info "INFO" "RFC 6086.";
    Prack "PRACK" "RFC 3262.";
    Update "UPDATE" "RFC 3311.";
    Refer "REFER" "RFC 3515.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_case_sensitive() {
        assert_eq!(Method::of(b"INVITE"), Method::Invite);
        assert_eq!(Method::of(b"invite"), Method::Other);
        assert_eq!(Method::of(b"NEWMETHOD"), Method::Other);
        assert_eq!(Method::Refer.as_str(), Some("REFER"));
    }
}
