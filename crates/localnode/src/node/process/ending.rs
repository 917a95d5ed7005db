//! What the end of a process means for its container: a pure function.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::node::container::Outcome;

/// What a container's exit code is for a memory limit that was passed, as on a cluster, where the kernel kills it.
const OUT_OF_MEMORY: i32 = 137;

/// What is known of an end besides the status.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Why the role failed, as the process said.
    pub(super) failure: Option<String>,
    /// The most memory that it might hold, in bytes.
    pub(super) memory_limit: Option<u64>,
    /// Whether it said that it could not get any more.
    pub(super) out_of_memory: bool,
}

/// Whether a line of standard error is what the standard library says when it cannot get memory, before it aborts. There is
/// no other sign of it: the signal is that of any abort.
pub(super) fn tells_of_memory(line: &str) -> bool {
    let size = line
        .strip_prefix("memory allocation of ")
        .and_then(|rest| rest.strip_suffix(" bytes failed"));
    size.is_some_and(|size| size.parse::<u64>().is_ok())
}

impl Ending {
    pub(super) fn outcome(self, status: ExitStatus) -> Outcome {
        if status.success() {
            return Outcome::Completed;
        }
        let signal = status.signal();
        if let (Some(limit), true, Some(_)) = (self.memory_limit, self.out_of_memory, signal) {
            return Outcome::Exited {
                code: OUT_OF_MEMORY,
                reason: "OOMKilled",
                message: Some(format!("it wanted more memory than its limit of {limit} bytes")),
            };
        }
        let message = match (self.failure, signal) {
            (Some(failure), _) => Some(failure),
            (None, Some(signal)) => Some(format!("ended by {}", named(signal))),
            (None, None) => None,
        };
        Outcome::Exited {
            // As a shell and a container runtime count it.
            code: status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(1),
            reason: "Error",
            message,
        }
    }
}

fn named(signal: i32) -> String {
    let name = match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal} ({name})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(code: i32, reason: &'static str, message: Option<&str>) -> Outcome {
        Outcome::Exited {
            code,
            reason,
            message: message.map(str::to_owned),
        }
    }

    #[test]
    fn an_end_is_told_as_a_cluster_tells_it() {
        let code = |code: i32| ExitStatus::from_raw(code << 8);
        let signal = ExitStatus::from_raw;
        let said = |failure: &str| Ending {
            failure: Some(failure.to_owned()),
            ..Ending::default()
        };
        let memory = |memory_limit| Ending {
            memory_limit,
            out_of_memory: true,
            ..Ending::default()
        };
        assert_eq!(Ending::default().outcome(code(0)), Outcome::Completed);
        assert_eq!(Ending::default().outcome(code(3)), exited(3, "Error", None));
        assert_eq!(
            said("no file").outcome(code(1)),
            exited(1, "Error", Some("no file"))
        );
        for (number, exit_code, text) in [
            (6, 134, "ended by signal 6 (SIGABRT)"),
            (9, 137, "ended by signal 9 (SIGKILL)"),
            (11, 139, "ended by signal 11 (SIGSEGV)"),
            (10, 138, "ended by signal 10"),
        ] {
            let outcome = Ending::default().outcome(signal(number));
            assert_eq!(outcome, exited(exit_code, "Error", Some(text)));
        }
        let text = "it wanted more memory than its limit of 64 bytes";
        assert_eq!(
            memory(Some(64)).outcome(signal(6)),
            exited(137, "OOMKilled", Some(text))
        );
        // Without a limit it is the machine that has no more.
        let text = "ended by signal 6 (SIGABRT)";
        assert_eq!(memory(None).outcome(signal(6)), exited(134, "Error", Some(text)));
        // It got over it.
        assert_eq!(memory(Some(64)).outcome(code(2)), exited(2, "Error", None));
    }

    #[test]
    fn the_words_about_memory_are_known() {
        assert!(tells_of_memory("memory allocation of 1048576 bytes failed"));
        for other in [
            "memory allocation of x bytes failed",
            "failed",
            "memory allocation of 1 bytes failed!",
        ] {
            assert!(!tells_of_memory(other), "{other}");
        }
    }
}
