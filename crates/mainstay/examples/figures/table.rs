//! Numbers as they are printed.

use std::time::Duration;

/// The time that the share `share` of `times` does not exceed.
pub(crate) fn percentile(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let index = ((sorted.len() as f64 - 1.0) * share).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}

pub(crate) fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1_000.0)
}

/// Prints a table.
pub(crate) fn print(title: &str, head: &str, rows: &[String]) {
    println!("\n### {title}\n\n{head}");
    println!("{}", "|---".repeat(head.matches('|').count() - 1) + "|");
    rows.iter().for_each(|row| println!("{row}"));
}
