//! What a process costs, as the kernel counts it.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::Child;

/// The kernel counts CPU time for user space in hundredths of a second, on every architecture.
const TICK: Duration = Duration::from_millis(10);

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What it has in memory now.
    pub resident: u64,
    /// The most it ever had.
    pub peak: u64,
}

impl Child {
    /// Its memory.
    ///
    /// # Errors
    /// When it has ended.
    pub fn memory(&self) -> Result<Memory> {
        let text = self.proc_file("status")?;
        Ok(Memory {
            resident: kilobytes(&text, "VmRSS:")? * 1024,
            peak: kilobytes(&text, "VmHWM:")? * 1024,
        })
    }

    /// The CPU time that it has used, in user space and in the kernel.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu_time(&self) -> Result<Duration> {
        ticks(&self.proc_file("stat")?).map(|ticks| TICK * ticks)
    }

    fn proc_file(&self, name: &str) -> Result<String> {
        self.ensure_running()?;
        let path = format!("/proc/{}/{name}", self.pid());
        std::fs::read_to_string(&path).with_context(|| format!("read {path}"))
    }
}

fn kilobytes(status: &str, field: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    Ok(number
        .with_context(|| format!("no {field} in {status}"))?
        .parse()?)
}

/// Fields 14 and 15. The second field is the name of the program, in parentheses, and may hold anything.
fn ticks(stat: &str) -> Result<u32> {
    let (_, rest) = stat
        .rsplit_once(") ")
        .with_context(|| format!("no program in {stat}"))?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || -> Result<u32> { Ok(fields.next().context("too few fields")?.parse()?) };
    Ok(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() -> Result<()> {
        let status = "Name:\tsh\nVmHWM:\t    1200 kB\nVmRSS:\t    1100 kB\n";
        assert_eq!(
            (kilobytes(status, "VmRSS:")?, kilobytes(status, "VmHWM:")?),
            (1100, 1200)
        );
        assert!(kilobytes(status, "VmSwap:").is_err());
        let stat = "42 (a ) name) S 1 42 42 0 -1 4194560 100 0 0 0 7 5 0 0 20 0 1 0 100 1 1";
        assert_eq!(ticks(stat)?, 12);
        Ok(())
    }
}
