//! What a process costs, from /proc: its time on a CPU and its resident memory.
//!
//! CPU time is summed over all threads from `schedstat`, which counts nanoseconds; the
//! usual `utime` and `stime` count ticks of 10 ms.

use std::fs;

use super::RunFailure;

/// Nanoseconds all threads of these processes spent on a CPU so far.
pub fn cpu_ns(pids: &[u32]) -> Result<u64, RunFailure> {
    pids.iter().map(|pid| tasks_cpu_ns(*pid)).sum()
}

/// Bytes of memory these processes hold.
pub fn resident_bytes(pids: &[u32]) -> Result<u64, RunFailure> {
    pids.iter()
        .map(|pid| {
            let status = read(&format!("/proc/{pid}/status"), *pid)?;
            resident_in(&status).ok_or(RunFailure::NoProcess(*pid))
        })
        .sum()
}

/// Nanoseconds the calling thread spent on a CPU, where the system counts them.
pub fn own_cpu_ns() -> Option<u64> {
    on_cpu_in(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

fn read(path: &str, pid: u32) -> Result<String, RunFailure> {
    fs::read_to_string(path).map_err(|_| RunFailure::NoProcess(pid))
}

fn tasks_cpu_ns(pid: u32) -> Result<u64, RunFailure> {
    let tasks =
        fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| RunFailure::NoProcess(pid))?;
    // A thread that ends between the listing and the reading counts as nothing.
    let texts =
        tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    Ok(texts.filter_map(|text| on_cpu_in(&text)).sum())
}

fn on_cpu_in(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_the_rss_line_in_bytes() {
        assert_eq!(resident_in("VmHWM:\t 99 kB\nVmRSS:\t   12 kB\n"), Some(12 * 1024));
        assert_eq!(resident_in("Name: x\n"), None);
    }

    #[test]
    fn cpu_time_is_the_first_number_of_schedstat() {
        assert_eq!(on_cpu_in("5000 70 3\n"), Some(5000));
        assert_eq!(on_cpu_in(""), None);
    }

    #[test]
    fn a_process_that_is_gone_is_a_failure() {
        assert!(matches!(cpu_ns(&[u32::MAX]), Err(RunFailure::NoProcess(u32::MAX))));
    }
}
