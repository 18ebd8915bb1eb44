//! The end of a prepare: the set, its container record, receipts, the use log.
//!
//! Invariants:
//! - a set that is there with all its files is not written again: its bytes stay;
//! - a manifest that contradicts a pack is not believed before that pack was made anew;
//! - receipts are waited for once, after everything is there.

use super::round::{Work, lock};
use super::state::{Reason, State};
use super::{PrepareError, Prepared, PreparedTensor};
use packhouse_base::canonical;
use packhouse_base::digest::SetKey;
use packhouse_store::container_record::{Admission, ContainerFile, ContainerRecord};
use packhouse_store::manifest::{ManifestEntry, SetManifest};
use packhouse_store::set::SetOutcome;
use serde_json::json;

/// Publishes the set of an order whose packs are all there.
pub(super) fn finish(work: &Work<'_>, started_ns: u64) -> Result<Prepared, PrepareError> {
    let mut manifest = work.manifest()?;
    if work.dispute(&manifest) {
        work.make_all()?;
        manifest = work.manifest()?;
    }
    let container = work.container()?;
    let set = manifest.key();
    // The digests in it are of the files as they are now.
    work.model.unchanged()?;
    let is_there = work.is_there(&manifest);
    let mut unwritten = None;
    let outcome = match is_there && work.is_covered(set, &container) {
        true => SetOutcome::Equal,
        false => match work.store.publish_set(&manifest, &container) {
            Ok(outcome) => outcome,
            // All of the set serves without one more record of a container.
            Err(error) if is_there => {
                unwritten = Some(format!("container record: {error}"));
                SetOutcome::Equal
            }
            Err(error) => return Err(error.into()),
        },
    };
    let settle_began_ns = work.store.clock().steady_ns();
    let mut prepared = Prepared {
        set,
        outcome,
        admission: container.admission(),
        tensors: work.tensors(),
        cost: super::Cost::default(),
        complaints: work.settle(),
    };
    work.learnt.note(work.store)?;
    prepared.complaints.extend(unwritten);
    prepared.complaints.extend(work.learnt.complaint());
    prepared.cost = *lock(&work.cost);
    let now_ns = work.store.clock().steady_ns();
    prepared.cost.settle_ns = now_ns.saturating_sub(settle_began_ns);
    prepared.cost.duration_ns = now_ns.saturating_sub(started_ns);
    work.log(&mut prepared);
    Ok(prepared)
}

impl Work<'_> {
    fn manifest(&self) -> Result<SetManifest, PrepareError> {
        let mut entries = Vec::with_capacity(self.order.items.len());
        for (index, item) in self.order.items.iter().enumerate() {
            let State::Ready(record, _) = self.states.of(index) else {
                return Err(PrepareError::Unfinished {
                    tensor: item.tensor.clone(),
                });
            };
            entries.push(ManifestEntry {
                slot: item.slot,
                tensor: item.tensor.clone(),
                pack: record.key(),
                object: record.object,
                length: record.length,
            });
        }
        let plan = self.order.plan.clone();
        Ok(SetManifest::new(plan, self.order.plan_digest, entries)?)
    }

    /// Marks the packs on which a manifest that is there and the records disagree: one of them was
    /// edited, and only packing tells which. `false` when there are none.
    fn dispute(&self, manifest: &SetManifest) -> bool {
        let Ok(theirs) = self.store.read_set(manifest.key()) else {
            return false;
        };
        let mut is_disputed = false;
        for (ours, theirs) in manifest.entries().iter().zip(theirs.entries()) {
            if ours == theirs {
                continue;
            }
            let items = self.order.items.iter();
            let Some(index) = items.clone().position(|item| item.slot == ours.slot) else {
                continue;
            };
            let was = format!(
                "pack {} is object {}, the manifest says {}",
                ours.pack, ours.object, theirs.object
            );
            // Also what this run packed: its packer may make other bytes each time.
            let state = State::ToMake(Reason::Disputed(was));
            self.states.set(index, state);
            is_disputed = true;
        }
        is_disputed
    }

    pub(super) fn container(&self) -> Result<ContainerRecord, PrepareError> {
        let files = self.model.files().iter().enumerate();
        let files: Vec<ContainerFile> = files
            .map(|(shard, file)| ContainerFile {
                name: file
                    .path()
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned())
                    .unwrap_or_default(),
                size: file.identity().size,
                digest: self.learnt.whole(shard),
            })
            .collect();
        let admission = match files.iter().all(|file| file.digest.is_some()) {
            true => Admission::Hashed,
            false => Admission::Skipped,
        };
        Ok(ContainerRecord::new(files, admission)?)
    }

    /// Whether manifest and index of the set are there, whole.
    fn is_there(&self, manifest: &SetManifest) -> bool {
        let set = manifest.key();
        let is_whole = |index: Vec<u8>| manifest.verify_index(&index).is_ok();
        self.store
            .read_set(set)
            .is_ok_and(|there| there == *manifest)
            && self.store.read_index(set).is_ok_and(is_whole)
    }

    /// Whether a container record beside the set says all that this one does.
    fn is_covered(&self, set: SetKey, container: &ContainerRecord) -> bool {
        let covers = |there: &ContainerRecord| there.covers(container);
        self.store
            .read_container_records(set)
            .is_ok_and(|found| found.records.iter().any(covers))
    }

    /// Settles receipts, and answers what could not be.
    pub(super) fn settle(&self) -> Vec<String> {
        let pending = std::mem::take(&mut *lock(&self.receipts));
        let settled = self.store.settle(&pending);
        let mut complaints = Vec::new();
        if let Some(error) = settled.failure {
            complaints.push(format!("receipts: {error}"));
        }
        complaints
    }

    fn tensors(&self) -> Vec<PreparedTensor> {
        let items = self.order.items.iter().enumerate();
        let mut tensors: Vec<PreparedTensor> = items
            .filter_map(|(index, item)| match self.states.of(index) {
                State::Ready(record, how) => Some(PreparedTensor {
                    slot: item.slot,
                    tensor: item.tensor.clone(),
                    payload_bytes: record.length,
                    how,
                }),
                State::ToMake(_) | State::Same(_) | State::Busy(..) => None,
            })
            .collect();
        tensors.sort_by_key(|tensor| tensor.slot);
        tensors
    }

    /// Notes the use of the set and the run. What fails here is a complaint.
    fn log(&self, prepared: &mut Prepared) {
        let path = self.model.files()[0].path();
        let now_ns = self.store.clock().wall_ns();
        let document = document(prepared.set, prepared);
        let process_id = self.options.process_id;
        let noted = match self.store.use_log() {
            Ok(uses) => uses
                .note_set(prepared.set, Some(path), now_ns)
                .and_then(|()| uses.keep_run(now_ns, process_id, &document))
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(text) = noted {
            prepared.complaints.push(format!("use log: {text}"));
        }
    }
}

fn document(set: SetKey, prepared: &Prepared) -> Vec<u8> {
    let count = |wanted: fn(&super::How) -> bool| {
        let tensors = prepared.tensors.iter();
        tensors.filter(|tensor| wanted(&tensor.how)).count()
    };
    let cost = &prepared.cost;
    canonical::render(&json!({
        "schema": super::RUN_SCHEMA,
        "command": "prepare",
        "set": set.to_string(),
        "tensor_count": prepared.tensors.len(),
        "reused_count": count(|how| matches!(how, super::How::Reused)),
        "packed_count": count(|how| matches!(how, super::How::Packed)),
        "healed_count": count(|how| matches!(how, super::How::Healed { .. })),
        "source_bytes": cost.source_bytes,
        "written_bytes": cost.written_bytes,
        "reverified_count": cost.reverified_count,
        "reverified_bytes": cost.reverified_bytes,
        "duration_ns": cost.duration_ns,
        "settle_ns": cost.settle_ns,
    }))
}
