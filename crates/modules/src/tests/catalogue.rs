//! The tables themselves: no name twice, every name documented.

use crate::{catalogue, modules};
use alloc::collections::BTreeSet;

#[test]
fn no_function_is_declared_twice_with_the_same_number_of_arguments() {
    let mut seen = BTreeSet::new();
    for (_, decl) in catalogue().functions() {
        for count in usize::from(decl.required)..=decl.params.len() {
            assert!(seen.insert((decl.name, count)), "{} with {count} arguments", decl.name);
        }
    }
}

#[test]
fn no_variable_setting_or_parameter_is_declared_twice() {
    let catalogue = catalogue();
    let mut seen = BTreeSet::new();
    for (_, decl) in catalogue.variables() {
        assert!(seen.insert(decl.name), "${}", decl.name);
    }
    seen.clear();
    for decl in catalogue.settings() {
        assert!(seen.insert(decl.name), "{}", decl.name);
    }
    let mut seen = BTreeSet::new();
    for (module, decl) in catalogue.parameters() {
        assert!(seen.insert((module, decl.name)), "{} {}", catalogue.module_name(module), decl.name);
    }
}

#[test]
fn everything_says_what_it_is_in_a_sentence() {
    let catalogue = catalogue();
    let sentences = catalogue
        .functions()
        .map(|(_, decl)| (decl.name, decl.doc))
        .chain(catalogue.variables().map(|(_, decl)| (decl.name, decl.doc)))
        .chain(catalogue.parameters().map(|(_, decl)| (decl.name, decl.doc)))
        .chain(catalogue.settings().iter().map(|decl| (decl.name, decl.doc)));
    for (name, doc) in sentences {
        assert!(doc.len() > 8 && !doc.contains("  "), "{name}: {doc:?}");
    }
}

#[test]
fn what_is_absent_is_not_declared() {
    let catalogue = catalogue();
    let functions: BTreeSet<_> = catalogue.functions().map(|(_, decl)| decl.name).collect();
    for (name, _) in [
        crate::sl::ABSENT,
        crate::tm::ABSENT,
        crate::rr::ABSENT,
        crate::registrar::ABSENT,
        crate::textops::ABSENT,
        crate::siputils::ABSENT,
        crate::permissions::ABSENT,
        crate::uri_db::ABSENT,
    ]
    .into_iter()
    .flatten()
    {
        assert!(!functions.contains(name), "{name}");
    }
    let names: BTreeSet<_> = modules().iter().map(|module| module.name).collect();
    for (name, _) in crate::absent::HARMLESS_MODULES.iter().chain(crate::absent::REFUSED_MODULES) {
        assert!(!names.contains(name), "{name}");
    }
}

#[test]
fn variables_are_writable_where_something_writes_them() {
    for variable in modules().iter().flat_map(|module| module.variables) {
        assert_eq!(variable.decl.writable, variable.write.is_some(), "${}", variable.decl.name);
    }
}
