use super::super::fake::{Fake, FakeStat};
use super::*;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn us(tree: &mut Tree, fake: &Fake) -> u64 {
    tree.look(&fake.proc()).unwrap().all_us
}

/// A parent (10) and its child (11), 100 ms and 50 ms of user time, in ticks of 10 ms.
fn family() -> (Fake, Tree) {
    let fake = Fake::new();
    fake.entry(10).stat(FakeStat::of(1, 10, 0));
    fake.entry(11).stat(FakeStat::of(10, 5, 0));
    fake.process(12, "stranger", 1);
    let tree = Tree::new(&fake.proc(), 10).unwrap();
    (fake, tree)
}

/// The same, and the child's threads: 11 with 50 ms, 15 with this.
fn family_with_threads(ns: u64) -> (Fake, Tree) {
    let (fake, _) = family();
    fake.entry(11).cpu_ns(11, 50_000_000).cpu_ns(15, ns);
    let tree = Tree::new(&fake.proc(), 10).unwrap();
    (fake, tree)
}

#[test]
fn threads_that_cannot_be_read_for_once_do_not_count_twice() {
    let (fake, mut tree) = family_with_threads(5_000_000);
    assert_eq!(us(&mut tree, &fake), 155_000);
    // A directory where a file is expected: an error that does not mean that the thread has ended.
    fake.remove_file(11, "task/15/schedstat");
    std::fs::create_dir(fake.root().join("11/task/15/schedstat")).unwrap();
    fake.entry(11).stat(FakeStat::of(10, 7, 0));
    assert_eq!(us(&mut tree, &fake), 170_000);
    fake.remove_file(11, "task/15/schedstat");
    fake.entry(11).cpu_ns(15, 25_000_000);
    assert_eq!(us(&mut tree, &fake), 175_000);
}

#[test]
fn descendants_count_and_strangers_do_not() {
    let (fake, mut tree) = family();
    fake.entry(13).stat(FakeStat::of(11, 1, 1));
    assert_eq!(us(&mut tree, &fake), 170_000);
    assert_eq!(tree.members().map(|who| who.pid).collect::<Vec<_>>(), [10, 11, 13]);
    assert_eq!(descendants(&fake.proc(), 10).iter().map(|who| who.pid).collect::<Vec<_>>(), [11, 13]);
    let cpu = tree.look(&fake.proc()).unwrap();
    assert_eq!((cpu.all_us, cpu.user_us), (170_000, 160_000));
}

#[test]
fn threads_in_nanoseconds_are_preferred_to_ticks() {
    let (fake, mut tree) = family_with_threads(4_567_000);
    assert_eq!(us(&mut tree, &fake), 154_567);
    fake.entry(11).cpu_ns(15, 5_000_000);
    assert_eq!(us(&mut tree, &fake), 155_000);
}

#[test]
fn time_of_a_thread_that_ended_is_kept() {
    let (fake, mut tree) = family_with_threads(8_000_000);
    us(&mut tree, &fake);
    fake.remove_file(11, "task/15");
    assert_eq!(us(&mut tree, &fake), 158_000);
    // The ticks know what it used after the last look: 70 ms, not 58.
    fake.entry(11).stat(FakeStat::of(10, 7, 0));
    assert_eq!(us(&mut tree, &fake), 170_000);
    fake.entry(11).cpu_ns(11, 51_000_000);
    assert_eq!(us(&mut tree, &fake), 171_000, "and nanoseconds count on from there");
}

#[test]
fn a_child_that_is_waited_for_counts_once_with_what_it_used_after_the_last_look() {
    let (fake, mut tree) = family();
    assert_eq!(us(&mut tree, &fake), 150_000);
    fake.remove(11);
    fake.entry(10).stat(FakeStat::of(1, 10, 0).waited(6, 2));
    assert_eq!(us(&mut tree, &fake), 180_000);
    assert_eq!(us(&mut tree, &fake), 180_000);
}

#[test]
fn a_child_that_has_ended_and_is_not_waited_for_yet_still_counts() {
    let (fake, mut tree) = family();
    fake.entry(11).stat(FakeStat { state: 'Z', ..FakeStat::of(10, 6, 0) });
    assert_eq!(us(&mut tree, &fake), 160_000);
    fake.remove(11);
    fake.entry(10).stat(FakeStat::of(1, 10, 0).waited(6, 0));
    assert_eq!(us(&mut tree, &fake), 160_000);
}

#[test]
fn a_child_that_nobody_waits_for_keeps_its_last_value() {
    let (fake, mut tree) = family();
    us(&mut tree, &fake);
    fake.remove(11);
    assert_eq!(us(&mut tree, &fake), 150_000);
    fake.entry(10).stat(FakeStat::of(1, 11, 0));
    assert_eq!(us(&mut tree, &fake), 160_000);
}

#[test]
fn children_that_lived_between_two_looks_are_in_the_parents_count() {
    let (fake, mut tree) = family();
    us(&mut tree, &fake);
    fake.entry(10).stat(FakeStat::of(1, 10, 0).waited(3, 1));
    assert_eq!(us(&mut tree, &fake), 190_000);
}

#[test]
fn what_the_parent_had_waited_for_before_counts_once() {
    let fake = Fake::new();
    fake.entry(10).stat(FakeStat::of(1, 10, 0).waited(100, 0));
    fake.entry(11).stat(FakeStat::of(10, 5, 0));
    let mut tree = Tree::new(&fake.proc(), 10).unwrap();
    assert_eq!(us(&mut tree, &fake), 1_150_000);
    fake.remove(11);
    assert_eq!(us(&mut tree, &fake), 1_150_000, "not waited for");
    fake.entry(10).stat(FakeStat::of(1, 10, 0).waited(105, 0));
    assert_eq!(us(&mut tree, &fake), 1_150_000, "waited for, only now");
}

#[test]
fn rounding_of_waited_for_children_never_makes_the_sum_fall_or_drift() {
    let fake = Fake::new();
    fake.entry(10).stat(FakeStat::of(1, 0, 0));
    let mut tree = Tree::new(&fake.proc(), 10).unwrap();
    let mut last = 0;
    for child in 0..20_u32 {
        // Each uses 15 ms; the kernel rounds the parent's sum of them down to ticks.
        fake.entry(100 + child).stat(FakeStat::of(10, 1, 0)).cpu_ns(100 + child, 15_000_000);
        last = us(&mut tree, &fake).max(last);
        fake.remove(100 + child);
        let waited = i64::from(child + 1) * 15 / 10;
        fake.entry(10).stat(FakeStat::of(1, 0, 0).waited(waited, 0));
        let now = us(&mut tree, &fake);
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
    assert_eq!(last, 300_000);
}

#[test]
fn a_whole_branch_that_ended_passes_to_the_nearest_living_ancestor() {
    let (fake, mut tree) = family();
    fake.entry(13).stat(FakeStat::of(11, 2, 0));
    assert_eq!(us(&mut tree, &fake), 170_000);
    fake.remove(13);
    fake.remove(11);
    assert_eq!(us(&mut tree, &fake), 170_000);
    fake.entry(10).stat(FakeStat::of(1, 10, 0).waited(7, 0));
    assert_eq!(us(&mut tree, &fake), 170_000);
}

#[test]
fn an_adopted_child_stays_in_the_tree_and_its_time_too() {
    let (fake, mut tree) = family();
    fake.entry(13).stat(FakeStat::of(11, 2, 0));
    us(&mut tree, &fake);
    fake.remove(11);
    fake.entry(13).stat(FakeStat::of(1, 4, 0));
    assert_eq!(us(&mut tree, &fake), 190_000);
    fake.remove(13);
    assert_eq!(us(&mut tree, &fake), 190_000);
}

#[test]
fn a_number_used_again_is_another_process() {
    let (fake, mut tree) = family();
    us(&mut tree, &fake);
    fake.entry(11).stat(FakeStat { start: 2000, ..FakeStat::of(10, 1, 0) });
    assert_eq!(us(&mut tree, &fake), 160_000);
    fake.entry(10).stat(FakeStat { start: 2000, ..FakeStat::of(1, 0, 0) });
    assert!(matches!(tree.look(&fake.proc()), Err(TreeError::Ended)), "not the one that was watched");
}

#[test]
fn processes_that_are_each_others_parents_do_no_harm() {
    let fake = Fake::new();
    fake.entry(10).stat(FakeStat::of(12, 1, 0));
    fake.entry(11).stat(FakeStat::of(10, 1, 0));
    fake.entry(12).stat(FakeStat::of(11, 1, 0));
    let mut tree = Tree::new(&fake.proc(), 10).unwrap();
    assert_eq!(us(&mut tree, &fake), 30_000);
    fake.remove(11);
    fake.remove(12);
    assert_eq!(us(&mut tree, &fake), 30_000);
    assert!(descendants(&fake.proc(), 10).is_empty());
}

#[test]
fn a_first_process_that_ended_or_never_was_is_an_error() {
    let (fake, mut tree) = family();
    fake.entry(10).stat(FakeStat { state: 'Z', ..FakeStat::of(1, 10, 0) });
    assert!(matches!(tree.look(&fake.proc()), Err(TreeError::Ended)));
    assert!(matches!(Tree::new(&fake.proc(), 10), Err(TreeError::Ended)));
    fake.remove(10);
    assert!(matches!(tree.look(&fake.proc()), Err(TreeError::Ended)));
    assert!(matches!(Tree::new(&fake.proc(), 10), Err(TreeError::Unreadable(error)) if is_gone(&error)));
}

#[test]
fn a_malformed_stat_is_no_process_and_no_panic() {
    let fake = Fake::new();
    for text in [
        "",
        ")",
        "10 (x",
        "10 (x) S",
        "10 (x) S a b c",
        "10 (x) S 1 1 1 0 -1 0 0 0 0 0 1 1 1 1 20 0 1 0",
        "\u{0}\u{ff}",
    ] {
        fake.entry(10).file("stat", text);
        assert!(matches!(Tree::new(&fake.proc(), 10), Err(TreeError::Unreadable(_))), "{text:?}");
    }
    let (fake, mut tree) = family();
    fake.entry(11).file("stat", "garbage");
    assert_eq!(us(&mut tree, &fake), 150_000, "it shows what it showed last");
    fake.entry(11).file("task/x/schedstat", "1").file("task/11/schedstat", "-5 x\n");
    assert_eq!(us(&mut tree, &fake), 150_000);
}

#[test]
fn a_name_may_hold_blanks_parentheses_and_line_ends() {
    let fake = Fake::new();
    for name in ["a b", "a) S 9 9 (b", ") (", ")", "((", "x\ny) Z 1 2", ""] {
        let stat = FakeStat { name, ..FakeStat::of(1, 10, 3).waited(2, -1) };
        fake.entry(10).stat(stat);
        let read = fake.proc().stat(10).unwrap();
        assert_eq!(
            (read.state, read.parent, read.group, read.threads, read.start_ticks),
            (b'S', 1, 1, 1, 1000)
        );
        assert_eq!(read.own, Cpu { all_us: 130_000, user_us: 100_000 }, "{name:?}");
        assert_eq!(read.waited, Cpu { all_us: 20_000, user_us: 20_000 });
    }
}

/// Looks until the condition holds; there is no hurry.
fn look_until(tree: &mut Tree, proc: &Proc, holds: impl Fn(&Tree, Cpu) -> bool) -> Cpu {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let cpu = tree.look(proc).unwrap();
        if holds(tree, cpu) {
            return cpu;
        }
        assert!(Instant::now() < until, "not within 30 s: {cpu:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_real_child_of_a_child_that_ends_is_not_lost() {
    // The inner shell counts to 200,000 and ends; the outer one waits for it and then for us.
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let mut child = Command::new("sh")
        .args(["-c", &format!("sh -c '{busy}' & wait; read line")])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let proc = Proc::system();
    let mut tree = Tree::new(&proc, child.id()).unwrap();
    let with_child =
        look_until(&mut tree, &proc, |tree, cpu| tree.members().count() == 2 && cpu.all_us > 20_000);
    let after = look_until(&mut tree, &proc, |tree, _| tree.members().count() == 1);
    assert!(
        after.all_us >= with_child.all_us && after.user_us >= with_child.user_us,
        "{after:?} {with_child:?}"
    );
    assert!(after.user_us <= after.all_us);
    child.kill().unwrap();
    assert!(look_until_ended(&mut tree, &proc), "the shell was killed");
    child.wait().unwrap();
}

fn look_until_ended(tree: &mut Tree, proc: &Proc) -> bool {
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        if matches!(tree.look(proc), Err(TreeError::Ended)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn both_ways_of_finding_children_agree() {
    let mut child = Command::new("sleep").arg("30").spawn().unwrap();
    let own = std::process::id();
    let scanned = Proc::at(std::path::Path::new("/proc"));
    for proc in [Proc::system(), scanned] {
        assert!(descendants(&proc, own).iter().any(|who| who.pid == child.id()));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
