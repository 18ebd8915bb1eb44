//! Lanes, preregistrations and packets, read a second time by bagcheck, which was written from the
//! format's page alone.
//!
//! An input's first byte says what the rest is: `L` a lane, `P` a preregistration, `K` a packet.

use packhouse_bagcheck::Finding;
use packhouse_lab::{Lane, Packet, Prereg};

/// A reader that is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Takes a device's ordinal for its name.
    Ordinals,
}

type Verdict = Result<(), String>;

/// Gives an input to both readers. Errors, in words, when one takes what the other refuses, or when
/// a packet is not written as it was read.
pub fn compare(input: &[u8], mutant: Option<Mutant>) -> Verdict {
    match input.split_first() {
        Some((b'L', rest)) => {
            let ours = Lane::parse(rest)
                .map(drop)
                .map_err(|error| error.to_string());
            same(&ours, &found(rest, b"", None, "lane.toml"))
        }
        Some((b'P', rest)) => {
            let ours = Prereg::parse(rest)
                .map(drop)
                .map_err(|error| error.to_string());
            let ours = match (ours, mutant) {
                (Err(said), Some(Mutant::Ordinals)) if said.contains("no ordinal") => Ok(()),
                (ours, _) => ours,
            };
            same(&ours, &found(b"", rest, None, "prereg.toml"))
        }
        Some((b'K', rest)) => {
            let read = Packet::parse(rest);
            let ours = read.as_ref().map(drop).map_err(|error| error.to_string());
            same(&ours, &found(b"", b"", Some(rest), "packet.json"))?;
            match read {
                Ok(packet) if packet.render() != rest => Err("written otherwise".to_owned()),
                Ok(_) | Err(_) => Ok(()),
            }
        }
        Some(_) | None => Ok(()),
    }
}

/// What bagcheck finds in one document by itself, and not against the others.
fn found(lane: &[u8], prereg: &[u8], packet: Option<&[u8]>, path: &str) -> Vec<Finding> {
    let report = packhouse_bagcheck::check_documents(lane, prereg, packet);
    let findings = report.findings.into_iter();
    let of_it = findings.filter(|finding| finding.path.starts_with(path));
    of_it
        .filter(|finding| finding.code.starts_with("record."))
        .collect()
}

fn same(ours: &Result<(), String>, theirs: &[Finding]) -> Verdict {
    match (ours, theirs) {
        (Ok(()), []) => Ok(()),
        (Err(_), [_, ..]) => Ok(()),
        (Ok(()), [first, ..]) => Err(format!("only theirs refuses: {first}")),
        (Err(said), []) => Err(format!("only ours refuses: {said}")),
    }
}
