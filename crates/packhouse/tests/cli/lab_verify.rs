//! What `lab verify` says of what is no evidence, is broken, or can't be read: three answers.

use crate::sandbox::Sandbox;
use std::path::Path;
use std::process::Output;

fn verify(sandbox: &Sandbox, arguments: &[&Path], exit: i32) -> (String, String) {
    let mut command = sandbox.command(&["lab", "verify"]);
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .args(arguments)
        .output()
        .expect("because the binary was built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&stdout), text(&stderr));
    assert_eq!(status.code(), Some(exit), "{arguments:?}: {out}{err}");
    (out, err)
}

#[test]
fn what_is_no_evidence_is_not_called_broken_evidence() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("folder");
    std::fs::create_dir(&folder).expect("because the sandbox is ours");
    let gone = folder.join("gone");
    let (_, err) = verify(&sandbox, &[&gone], 3);
    assert!(
        err.starts_with("error: cannot read the evidence: "),
        "{err}"
    );
    std::fs::write(folder.join("notes.txt"), "x").expect("because it is ours");
    let (_, err) = verify(&sandbox, &[&folder], 3);
    assert!(
        err.starts_with("error: neither a bag nor a packet's evidence: "),
        "{err}"
    );
    std::fs::write(folder.join("bagit.txt"), "x\n").expect("because it is ours");
    let (out, err) = verify(&sandbox, &[&folder], 1);
    assert_eq!(err, "");
    for line in ["bag.not-bagit", "bag.unlisted", "NOT valid: "] {
        assert!(out.contains(line), "{out}");
    }
    let ledger = [&folder, Path::new("--ledger"), &gone];
    let (out, err) = verify(&sandbox, &ledger, 3);
    assert_eq!(out, "");
    assert!(err.starts_with("error: cannot read: "), "{err}");
    let notes = folder.join("notes.txt");
    let key = [&folder, Path::new("--public-key"), &notes];
    let (_, err) = verify(&sandbox, &key, 3);
    assert!(err.starts_with("error: no public key: "), "{err}");
    assert!(err.contains("hint: openssl pkey "), "{err}");
}
