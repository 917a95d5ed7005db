//! The recorder on programs of which it is known what they have done: shells with the system's own tools.

use std::{fs, process::Command};

use super::*;

/// Runs a shell script in `folder` under a recorder.
fn record(folder: &Path, script: &str, cut_at: u64) -> Recording {
    let recorder = Recorder::new(folder).unwrap();
    recorder.cut_at(cut_at).unwrap();
    let status = Command::new("/bin/sh")
        .args(["-c", script])
        .current_dir(folder)
        .envs(recorder.environment())
        .status()
        .unwrap();
    assert_eq!(status.success(), cut_at == 0, "{script}: {status}");
    let recording = recorder.finish().unwrap();
    recording.check_complete().unwrap();
    recording
}

fn read(folder: &Path, name: &str) -> Option<String> {
    fs::read_to_string(folder.join(name)).ok()
}

#[test]
fn only_what_was_synced_with_its_name_is_left_when_everything_else_is_lost() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path().canonicalize().unwrap();
    fs::write(folder.join("old"), "before").unwrap();
    let script = "echo one >synced; sync synced; sync .; echo two >>synced; echo three >lost; echo four >nameless; \
                  sync nameless; mkdir below; echo five >old";
    let recording = record(&folder, script, 0);
    assert_eq!(recording.syncs(), 3);
    recording.left(Loss::Everything).unwrap();
    assert_eq!(read(&folder, "synced").as_deref(), Some("one\n"));
    assert_eq!(read(&folder, "old").as_deref(), Some("before"));
    assert_eq!(read(&folder, "lost"), None);
    assert_eq!(read(&folder, "nameless"), None);
    assert!(!folder.join("below").exists());
    recording.left(Loss::Nothing).unwrap();
    assert_eq!(read(&folder, "synced").as_deref(), Some("one\ntwo\n"));
    assert_eq!(read(&folder, "old").as_deref(), Some("five\n"));
    assert_eq!(read(&folder, "nameless").as_deref(), Some("four\n"));
    assert!(folder.join("below").is_dir());
}

#[test]
fn a_part_by_chance_tears_writes_and_keeps_the_order_of_names() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path().canonicalize().unwrap();
    let source = tempfile::NamedTempFile::new().unwrap();
    fs::write(source.path(), [b'x'; 65_536]).unwrap();
    let source = source.path().display();
    let script = format!("dd if={source} of=first bs=64k status=none; mv first second; echo >third");
    let recording = record(&folder, &script, 0);
    let (mut torn, mut named) = (false, [false; 4]);
    for seed in 0..200 {
        recording.left(Loss::Some(seed)).unwrap();
        let there: Vec<bool> = ["first", "second", "third"]
            .iter()
            .map(|name| folder.join(name).exists())
            .collect();
        let state = match there[..] {
            [false, false, false] => 0,
            [true, false, false] => 1,
            [false, true, false] => 2,
            [false, true, true] => 3,
            _ => panic!("{there:?}"),
        };
        named[state] = true;
        if let Some(content) = read(&folder, "second").or_else(|| read(&folder, "first")) {
            let kept = content.bytes().filter(|byte| *byte == b'x').count();
            assert_eq!(kept % 512, 0, "sectors are whole");
            torn |= kept > 0 && kept < 65_536;
        }
    }
    assert!(torn);
    assert_eq!(named, [true; 4]);
}

#[test]
fn a_program_is_killed_instead_of_its_nth_operation() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path().canonicalize().unwrap();
    let recording = record(&folder, "echo one >a; echo two >b; echo three >c", 4);
    recording.left(Loss::Nothing).unwrap();
    // Made, written, made: the fourth would have written `b`.
    assert_eq!(read(&folder, "a").as_deref(), Some("one\n"));
    assert_eq!(read(&folder, "b").as_deref(), Some(""));
    assert_eq!(read(&folder, "c"), None);
}
