//! A slice of the seeds, as every run of the tests judges it. More: `cargo run --release -p sim -- --seeds
//! 1..100000`.

use sim::coverage::Coverage;
use sim::run;
use std::fs;
use std::path::PathBuf;

/// Seeds that are run here.
const SEEDS: u64 = 200;
/// Of these it is proved that they reproduce their run.
const TWICE: u64 = 40;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Whether the files that tests compare with are to be written anew.
fn is_blessed() -> bool {
    std::env::var_os("SIM_BLESS").is_some()
}

#[test]
fn nothing_is_broken_in_the_first_seeds_and_coverage_does_not_fall() {
    let mut coverage = Coverage::default();
    for seed in 1..=SEEDS {
        let outcome = run::run(seed);
        let told: Vec<_> =
            outcome.violations.iter().map(|v| format!("{} ({}): {}", v.oracle, v.section, v.text)).collect();
        assert!(told.is_empty(), "seed {seed}: {told:#?}\ncargo run --release -p sim -- --seed {seed}");
        if seed <= TWICE {
            assert_eq!(run::hash_again(seed), outcome.hash, "seed {seed} does not reproduce its run");
        }
        coverage.add(&outcome.coverage);
    }
    let path = file("coverage.txt");
    if is_blessed() {
        fs::write(&path, coverage.floor(SEEDS)).expect("coverage.txt is written");
    }
    let floor = fs::read_to_string(&path).expect("coverage.txt is there");
    let fallen = coverage.below(&floor);
    assert!(
        fallen.is_empty(),
        "met less often than coverage.txt asks for (SIM_BLESS=1 writes it anew):\n{}",
        fallen.join("\n")
    );
}

#[test]
fn the_net_grid_is_what_it_was() {
    let (path, grid) = (file("net-grid.txt"), sim::grid::table());
    if is_blessed() {
        fs::write(&path, &grid).expect("net-grid.txt is written");
    }
    let kept = fs::read_to_string(&path).expect("net-grid.txt is there");
    assert_eq!(grid, kept, "the net grid has changed; if that is meant, SIM_BLESS=1 writes it anew");
}

#[test]
fn another_seed_is_another_world() {
    assert_ne!(run::hash_again(1), run::hash_again(2));
}
