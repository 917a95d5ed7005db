//! `demo faults KIND`: a container that fails in the way that is named, to see what restarts, waits, `describe`, alerts and
//! the other Pods make of it.

use std::hint::black_box;

use mainstay_telemetry::task;
use mainstay_workload::{RoleError, WorkloadContext};

/// What there is to choose from.
const KINDS: &str = "`error`, `panic`, `exit CODE`, `abort`, `stack`, `spin`, `memory MEBIBYTES`";
/// The most memory that is taken, in MiB.
const MOST_MEMORY: usize = 65_536;
/// Tasks that spin: more than a workload has threads.
const SPINNING: usize = 8;

/// Fails as `arguments` say. What would end the server with it is refused in the server.
pub(super) async fn fail(context: &WorkloadContext, arguments: &[&str]) -> Result<(), RoleError> {
    let own_process = || {
        if context.own_process() {
            return Ok(());
        }
        Err(RoleError::new(format!(
            "`demo faults {}` would take the server along; start it with `--isolate process` to try this",
            arguments.join(" ")
        )))
    };
    let say = |text: String| context.log.line(text);
    match arguments {
        ["error"] => Err(RoleError::new("it fails, as it was asked to")),
        ["panic"] => panic!("it panics, as it was asked to"),
        ["exit", code] => {
            own_process()?;
            let code = u8::try_from(parsed("exit", code, 255)?).unwrap_or(u8::MAX);
            say(format!("exiting with {code}"));
            std::process::exit(code.into())
        }
        ["abort"] => {
            own_process()?;
            say("aborting".to_owned());
            std::process::abort()
        }
        ["stack"] => {
            own_process()?;
            say("overflowing the stack".to_owned());
            say(deeper(0).to_string());
            Ok(())
        }
        ["spin"] => {
            own_process()?;
            say("spinning".to_owned());
            for _ in 1..SPINNING {
                // It never awaits, so nothing ends it but the end of the process.
                task::spawn("spinning", async { spin() });
            }
            spin()
        }
        ["memory", size] => {
            own_process()?;
            let size = parsed("memory", size, MOST_MEMORY)?;
            say(format!("taking {size} MiB of memory"));
            let taken: Vec<Vec<u8>> = (0..size).map(|_| black_box(vec![1; 1 << 20])).collect();
            say(format!("holding {} MiB", taken.len()));
            context.readiness.ready();
            context.cancellation.cancelled().await;
            drop(taken);
            Ok(())
        }
        _ => Err(RoleError::new(format!(
            "there is no demo `faults {}`; known: {KINDS}",
            arguments.join(" ")
        ))),
    }
}

fn parsed(word: &str, text: &str, most: usize) -> Result<usize, RoleError> {
    let number = text.parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| {
        RoleError::new(format!(
            "`demo faults {word} {text}`: not a number from 0 to {most}"
        ))
    })
}

/// Goes deeper until there is no stack left.
fn deeper(depth: u64) -> u64 {
    let frame = black_box([depth; 512]);
    if depth == u64::MAX {
        return depth;
    }
    deeper(frame[0] + 1).wrapping_add(frame[1])
}

fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}
