//! The program that libFuzzer drives: it runs the target that the environment variable `FUZZ_TARGET` names.
//! Without it, it lists the targets: name, longest input, dictionary, with tabs between them.
//!
//! `cargo xtask fuzz` builds and runs it. One program for all targets, so that they are compiled and linked
//! once.

#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<&'static fuzz::Target> = LazyLock::new(|| {
    let Ok(name) = std::env::var("FUZZ_TARGET") else {
        for target in fuzz::TARGETS {
            println!(
                "{}\t{}\t{}",
                target.name,
                target.input_bytes_max,
                target.dictionary.unwrap_or_default()
            );
        }
        std::process::exit(0);
    };
    fuzz::target(&name).unwrap_or_else(|| {
        eprintln!("FUZZ_TARGET names no target: {name}");
        std::process::exit(2);
    })
});

libfuzzer_sys::fuzz_target!(
    init: LazyLock::force(&TARGET),
    |data: &[u8]| (TARGET.run)(data)
);
