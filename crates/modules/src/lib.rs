#![no_std]
#![forbid(unsafe_code)]
//! What scripts can call, and the transaction user that runs them.
//!
//! - One table per module ([`Module`]) says what it offers; [`catalogue`] is made of these tables, and so are the
//!   checker's knowledge and the reference manual. One file or folder per module.
//! - [`ScriptUser`] is the engine's transaction user: it runs the routes of a checked program.
//! - [`Settings`] are what a program sets, typed and checked.
//!
//! ```text
//!  engine ──RequestContext──▶ ScriptUser ──▶ route::Machine ──call, read, write──▶ Run ──▶ a module's function
//!                                 │                                                 │
//!                            State, Suspended                          location, log, settings
//! ```

extern crate alloc;
#[cfg(test)]
extern crate std;

mod absent;
mod alias_db;
mod auth;
mod auth_db;
mod core;
mod database;
mod domain;
mod log;
mod maxfwd;
mod output;
mod permissions;
mod pv;
mod registrar;
mod rr;
mod run;
mod sanity;
mod services;
mod settings;
mod siputils;
mod sl;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod textops;
mod tls;
mod tm;
mod uri_db;
mod uri_parts;
mod user;
mod usrloc;
mod websocket;
mod xlog;

pub use crate::log::{Level, Log, NoLog};
pub use alias_db::AliasDbSettings;
pub use auth::{AuthCounters, AuthSettings, Guard, NonceWindow};
pub use auth_db::AuthDbSettings;
pub use database::{DatabaseUrl, TableNeeded};
pub use domain::{DomainSettings, Domains};
pub use permissions::{Addresses, PermissionsSettings};
pub use registrar::Unsaved;
pub use registrar::stored::{
    StoredAor, key_of_stored, key_of_uri, methods_of_stored, stored_aor, stored_methods,
};
pub use run::{Clock, Environment, Run, State, Then};
pub use services::Services;
pub use settings::{
    ConnectionSettings, Keepalive, Listen, ListenHost, OptionsSettings, PathMode, RegistrarSettings,
    SanitySettings, Settings, WebSocketSettings, timers,
};
pub use table::{Function, Module, Variable};
pub use tls::{TlsCertificate, TlsConfiguration, TlsPeer, TlsProfile, TlsProfiles, TlsVersion, Written};
pub use uri_db::UriDbSettings;
pub use user::{ScriptUser, Suspended};
pub use usrloc::{DbMode, PersistenceSettings};

use ::core::iter;
use alloc::vec::Vec;
use route::{Catalogue, Class, Contexts, Thing};

/// The modules, the core first.
static MODULES: [&Module; 20] = [
    &core::MODULE,
    &sl::MODULE,
    &tm::MODULE,
    &rr::MODULE,
    &maxfwd::MODULE,
    &usrloc::MODULE,
    &registrar::MODULE,
    &textops::MODULE,
    &siputils::MODULE,
    &pv::MODULE,
    &xlog::MODULE,
    &sanity::MODULE,
    &websocket::MODULE,
    &tls::MODULE,
    &auth::MODULE,
    &auth_db::MODULE,
    &domain::MODULE,
    &alias_db::MODULE,
    &permissions::MODULE,
    &uri_db::MODULE,
];

/// All modules, the core first.
pub fn modules() -> &'static [&'static Module] {
    &MODULES
}

/// What a configuration may name.
#[must_use]
pub fn catalogue() -> Catalogue {
    catalogue_with(iter::empty())
}

/// The same with further modules behind the others.
pub(crate) fn catalogue_with<'t>(further: impl Iterator<Item = &'t &'static Module>) -> Catalogue {
    let mut catalogue = Catalogue::new();
    catalogue.set_runnable(Contexts::REQUEST | Contexts::REPLY | Contexts::FAILURE | Contexts::BRANCH);
    for module in MODULES.iter().chain(further) {
        let functions: Vec<_> = module.functions.iter().map(|function| function.decl).collect();
        let variables: Vec<_> = module.variables.iter().map(|variable| variable.decl).collect();
        catalogue.add_module(module.name, module.doc, &functions, module.parameters, &variables);
    }
    let settings: Vec<_> = core::settings_table::SETTINGS.iter().map(|setting| setting.decl).collect();
    catalogue.add_settings(&settings);
    for (name, why) in absent::HARMLESS_MODULES {
        catalogue.add_absent(Thing::Module, name, Class::Harmless(why));
    }
    for (name, why) in absent::REFUSED_MODULES {
        catalogue.add_absent(Thing::Module, name, Class::Refused(why));
    }
    for (name, why) in absent::VARIABLES.iter().chain(tls::ABSENT_VARIABLES) {
        catalogue.add_absent(Thing::Variable, name, Class::Refused(why));
    }
    let functions = [
        sl::ABSENT,
        tm::ABSENT,
        rr::ABSENT,
        registrar::ABSENT,
        textops::ABSENT,
        siputils::ABSENT,
        websocket::ABSENT,
        tls::ABSENT,
        permissions::ABSENT,
        uri_db::ABSENT,
    ];
    for (name, why) in functions.into_iter().flatten() {
        catalogue.add_absent(Thing::Function, name, Class::Refused(why));
    }
    catalogue
}
