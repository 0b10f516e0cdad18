//! The machine that the report was made on, and the time of day (RFC 3339 §5.6) without a calendar library.

use super::model::Host;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// More of a file of `/proc` than this is not read: 1024 processors' worth of `cpuinfo` is below it.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// A processor's name is cut to this many characters.
const NAME_CHARS_MAX: usize = 120;
const DAY_S: i64 = 86_400;

/// This machine. `threads` is 0 and `agents` empty: the caller knows them. What the system does not tell is `unknown`
/// or 0.
#[must_use]
pub fn this_host() -> Host {
    host_at(Path::new("/proc"))
}

/// The time in UTC to the second, as RFC 3339 §5.6 writes it: `2026-11-21T19:08:47Z`. Years before 0 and after 9999,
/// which the format does not have, become its first and its last second.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    const FIRST_S: i64 = -62_167_219_200;
    const LAST_S: i64 = 253_402_300_799;
    let since = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    let unix_s = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => since(after),
        // Rounded down like every other time: half a second before 1970 is 23:59:59.
        Err(before) => -since(before.duration()) - i64::from(before.duration().subsec_nanos() > 0),
    };
    let unix_s = unix_s.clamp(FIRST_S, LAST_S);
    let (year, month, day) = civil(unix_s.div_euclid(DAY_S));
    let second = unix_s.rem_euclid(DAY_S);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of the Gregorian calendar from the days since 1970-01-01 (H. Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms", `civil_from_days`). Years are counted from March within 400-year eras, so that the leap
/// day is the last of its year.
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    const ERA_DAYS: i64 = 146_097;
    let from_march_0000 = days + 719_468;
    let era = from_march_0000.div_euclid(ERA_DAYS);
    let day_of_era = from_march_0000.rem_euclid(ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn host_at(proc: &Path) -> Host {
    let cpuinfo = text(&proc.join("cpuinfo"));
    let shown = cpuinfo.lines().filter(|line| is_processor(line)).count();
    let cpus = if shown > 0 { shown } else { std::thread::available_parallelism().map_or(0, usize::from) };
    let kernel = text(&proc.join("sys/kernel/osrelease")).trim().to_owned();
    Host {
        processor: processor(&cpuinfo, &text(&proc.join("device-tree/model"))),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        memory_bytes: memory(&text(&proc.join("meminfo"))),
        kernel: if kernel.is_empty() { "unknown".to_owned() } else { kernel },
        threads: 0,
        agents: Vec::new(),
    }
}

/// The file as text; empty when it cannot be read.
fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        // A part that could be read is better than nothing: the fields sought come first.
        let _ = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `processor : 0` (most architectures) and `processor 0: version = …` (s390), not `Processor : AArch64 …` of old ARM.
fn is_processor(line: &str) -> bool {
    line.strip_prefix("processor").is_some_and(|rest| rest.starts_with([' ', '\t', ':']))
}

/// x86 has `model name`, PowerPC `cpu`, some ARM `Hardware` or `Model`; the other ARM machines say it in their device
/// tree.
fn processor(cpuinfo: &str, device_tree: &str) -> String {
    let value = |name: &str| {
        let of = |line: &str| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        };
        cpuinfo.lines().find_map(of).filter(|value| !value.is_empty())
    };
    let tree = device_tree.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    let name = value("model name")
        .or_else(|| value("cpu"))
        .or_else(|| value("Model"))
        .or_else(|| value("Hardware"))
        .or_else(|| (!tree.is_empty()).then(|| tree.to_owned()))
        .unwrap_or_else(|| format!("unknown ({})", std::env::consts::ARCH));
    name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect()
}

/// `MemTotal:  24684092 kB`, in bytes.
fn memory(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib =
        total.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(unix_s: i64) -> String {
        let distance = Duration::from_secs(unix_s.unsigned_abs());
        let epoch = SystemTime::UNIX_EPOCH;
        rfc3339(if unix_s < 0 { epoch - distance } else { epoch + distance })
    }

    #[test]
    fn times_are_written_as_rfc_3339_says() {
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(951_868_799), "2000-02-29T23:59:59Z");
        assert_eq!(at(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(at(1_709_164_800), "2024-02-29T00:00:00Z");
        assert_eq!(at(1_795_288_127), "2026-11-21T19:08:47Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z", "2100 is no leap year");
        assert_eq!(at(-1), "1969-12-31T23:59:59Z");
        assert_eq!(at(-62_167_219_200), "0000-01-01T00:00:00Z");
        assert_eq!(at(253_402_300_799), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn fractions_are_cut_and_years_beyond_the_format_are_held_at_its_ends() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(rfc3339(epoch + Duration::from_millis(1999)), "1970-01-01T00:00:01Z");
        assert_eq!(rfc3339(epoch - Duration::from_millis(500)), "1969-12-31T23:59:59Z");
        assert_eq!(at(253_402_300_800), "9999-12-31T23:59:59Z");
        assert_eq!(at(-62_167_219_201), "0000-01-01T00:00:00Z");
    }

    #[test]
    fn every_day_of_an_era_follows_the_one_before() {
        let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..146_097 {
            assert_eq!(civil(days), (year, month, day));
            let length = match month {
                2 => 28 + i64::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }

    #[test]
    fn this_machine_has_processors_memory_and_a_kernel() {
        let host = this_host();
        assert!(host.cpus >= 1 && host.memory_bytes > 1 << 20, "{host:?}");
        assert!(!host.processor.is_empty() && !host.kernel.is_empty(), "{host:?}");
        assert!(!host.kernel.ends_with('\n'));
    }

    #[test]
    fn processors_are_named_on_x86_arm_and_s390() {
        let x86 = "processor\t: 0\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\n";
        assert_eq!(processor(x86, ""), "AMD EPYC");
        assert_eq!(x86.lines().filter(|line| is_processor(line)).count(), 2);
        let arm = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n";
        assert_eq!(processor(arm, "Raspberry Pi 4 Model B Rev 1.4\0"), "Raspberry Pi 4 Model B Rev 1.4");
        assert_eq!(processor(arm, ""), format!("unknown ({})", std::env::consts::ARCH));
        assert!(is_processor("processor 0: version = FF,  identification = 0133E8"));
        assert!(!is_processor("Processor\t: AArch64 Processor rev 4") && !is_processor("processors: 2"));
    }

    #[test]
    fn files_that_are_missing_or_garbled_leave_unknown() {
        let host = host_at(Path::new("/nonexistent"));
        assert_eq!((host.memory_bytes, host.kernel.as_str()), (0, "unknown"));
        assert!(host.processor.starts_with("unknown") && host.cpus >= 1);
        assert_eq!(memory("MemTotal: lots kB\n"), 0);
        assert_eq!(memory("MemTotal:\n"), 0);
        assert_eq!(memory("MemFree: 1 kB\nMemTotal:       24684092 kB\n"), 24_684_092 * 1024);
        assert_eq!(processor("model name\t: \nmodel name : x\u{1b}[31my\n", "tree"), "tree");
    }
}
