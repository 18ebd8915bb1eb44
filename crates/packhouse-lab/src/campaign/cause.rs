//! Room for why a run is aborted, taken before the run: a disk that is full to its end has it.
//!
//! Invariants:
//! - the file lies below the user's state folder, and is whole and durable before the nonce; later
//!   its bytes are replaced where they are, which needs no room on file systems that write in
//!   place (ext4, XFS), and may need some on those that never do (btrfs, ZFS);
//! - what it says is believed of its packet and nonce alone, and a torn one says nothing;
//! - it goes when the packet is released or sealed.
//!
//! Never: stands in the way of a run that has begun. Specified in `docs/format/evidence.md`,
//! section 6.

use super::{Campaign, Fault, REASON_BYTES_MAX, cut};
use crate::document::{DocumentError, Fields};
use packhouse_bag::write_new::open_or_make_dir;
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use packhouse_ledger::Stage;
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use serde_json::json;

/// Takes the room, before anything is entered.
///
/// # Errors
/// Where there is none.
pub(super) fn reserve(campaign: &Campaign<'_>, packet: Digest) -> Result<(), Fault> {
    let reserved = || {
        let lab = open_or_make_dir(&campaign.lab.state, FOLDERS[0])?;
        let folder = open_or_make_dir(&lab, FOLDERS[1])?;
        let name = name_of(packet);
        // Of an earlier run of it that was released, and ended before it went.
        match folder.unlink(&name) {
            Err(error) if error.kind != FsErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = folder.create_new(&name, 0o600)?;
        file.write_all_at(0, &[BLANK; ROOM_BYTES])?;
        file.sync()?;
        folder.sync()
    };
    reserved().map_err(|error: FsError| Fault::new(Stage::FileSystem, error))
}

/// Notes why a run is aborted. What can't be noted is told by this process alone.
pub(super) fn note(campaign: &Campaign<'_>, (packet, nonce): (Digest, Digest), fault: &Fault) {
    let record = render((packet, nonce), fault);
    let _ = folder(campaign).and_then(|folder| {
        let file = folder.open_file_writable(name_of(packet))?;
        file.write_all_at(0, &record)?;
        file.sync_content()
    });
}

/// As many bytes as the room has.
fn render((packet, nonce): (Digest, Digest), fault: &Fault) -> Vec<u8> {
    let mut reason = fault.reason.clone();
    let mut record = loop {
        let record = canonical::render(&json!({
            "nonce": nonce.to_string(),
            "packet": packet.to_string(),
            "reason": reason,
            "schema": SCHEMA,
            "stage": fault.stage.as_str(),
        }));
        if record.len() <= ROOM_BYTES {
            break record;
        }
        // Bytes that are escaped as six each.
        let half = reason.len() / 2;
        cut(&mut reason, half);
    };
    record.resize(ROOM_BYTES, BLANK);
    record
}

/// What was noted of a run that came to no seal.
pub(crate) fn noted(campaign: &Campaign<'_>, packet: Digest, nonce: Digest) -> Option<Fault> {
    let bytes = folder(campaign).ok()?;
    let bytes = bytes.read_small(name_of(packet), ROOM_BYTES as u64).ok()?;
    parsed(&bytes, packet, nonce).ok().flatten()
}

/// Gives the room back. It means nothing any more, so that one which stays does no harm.
pub(crate) fn forget(campaign: &Campaign<'_>, packet: Digest) {
    let _ = folder(campaign).and_then(|folder| folder.unlink(name_of(packet)));
}

fn parsed(bytes: &[u8], packet: Digest, nonce: Digest) -> Result<Option<Fault>, DocumentError> {
    let end = bytes.iter().rposition(|byte| *byte != BLANK);
    let record = &bytes[..end.map_or(0, |end| end + 1)];
    let mut fields = Fields::parse_json(record, SCHEMA)?;
    let is_own = fields.digest("packet")? == packet && fields.digest("nonce")? == nonce;
    let stage = fields.one_of("stage", "a stage", Stage::parse)?;
    let reason = fields.word("reason", "a reason", |reason| {
        !reason.trim().is_empty() && reason.len() <= REASON_BYTES_MAX
    })?;
    fields.finish()?;
    Ok(is_own.then(|| Fault::new(stage, reason)))
}

fn folder(campaign: &Campaign<'_>) -> Result<Dir, FsError> {
    let mut names = FOLDERS.iter();
    names.try_fold(campaign.lab.state.clone(), |dir, name| dir.open_dir(name))
}

fn name_of(packet: Digest) -> String {
    format!("{packet}.json")
}

const SCHEMA: &str = "packhouse/abort-cause/1";
/// Below the user's state folder.
const FOLDERS: [&str; 2] = ["lab", "causes"];
/// A block of most file systems; enough for the longest reason in plain words.
const ROOM_BYTES: usize = 4096;
const _: () = assert!(ROOM_BYTES > REASON_BYTES_MAX + 512);
/// What stands where nothing is noted: a byte that no file system takes for a hole.
const BLANK: u8 = b' ';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_believed_of_its_own_run_alone_and_a_torn_one_says_nothing() {
        let (packet, nonce) = (Digest::of(b"packet"), Digest::of(b"nonce"));
        let fault = Fault::new(Stage::Leg, "candidate: it \"died\"");
        let record = render((packet, nonce), &fault);
        assert_eq!(record.len(), ROOM_BYTES);
        let read = |bytes: &[u8], nonce| parsed(bytes, packet, nonce).ok().flatten();
        assert_eq!(read(&record, nonce), Some(fault));
        assert_eq!(read(&record, packet), None);
        let blank = [BLANK; ROOM_BYTES];
        assert_eq!(read(&blank, nonce), None);
        let written = record.iter().rposition(|byte| *byte != BLANK);
        for at in 0..written.expect("because it says something") {
            let torn = [&record[..at], &blank[at..]].concat();
            assert_eq!(read(&torn, nonce), None, "{at}");
        }
    }

    #[test]
    fn the_longest_reason_of_the_strangest_bytes_has_room() {
        let (packet, nonce) = (Digest::of(b"packet"), Digest::of(b"nonce"));
        let fault = Fault::new(Stage::Leg, "\u{1}".repeat(REASON_BYTES_MAX));
        let record = render((packet, nonce), &fault);
        assert_eq!(record.len(), ROOM_BYTES);
        let read = parsed(&record, packet, nonce).expect("because it is whole");
        let reason = read.expect("because it is its own").reason;
        assert!(reason.len() > 100 && reason.ends_with(" ..."), "{reason}");
    }
}
