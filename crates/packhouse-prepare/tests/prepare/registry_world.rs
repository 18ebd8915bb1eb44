//! Registries, and artifacts to register, on the real file system and on the simulated one.

use packhouse_base::digest::Digest;
use packhouse_prepare::registry::{
    Artifact, Binding, Look, Outcome, Record, Registry, Verification, verify,
};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::Fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) fn binding() -> Binding {
    bound_to(Digest::of(b"model"), "q4_0-joint-n-v1")
}

pub(crate) fn bound_to(model: Digest, layout: &str) -> Binding {
    let texts = ["packer 1", layout, "kernels 1"].map(str::to_owned);
    let [revision, layout, abi] = texts;
    Binding::new(model, revision, layout, abi).expect("because these are plain texts")
}

/// The record of an artifact; in an error's words where it is none.
pub(crate) fn record(
    fs: &dyn Fs,
    clock: &dyn Clock,
    path: &Path,
    binding: Binding,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Record, String> {
    let look = Look::take(fs, path).map_err(|error| error.to_string())?;
    let survey = look.hash(fs, clock, NonZeroUsize::MIN, progress);
    let survey = survey.map_err(|error| error.to_string())?;
    let artifact = Artifact::of(&survey).map_err(|refusal| refusal.to_string())?;
    let model = Some(PathBuf::from("/models/model.gguf"));
    Record::new(binding, artifact, &survey, model).map_err(|error| error.to_string())
}

/// Registers an artifact below a state folder.
pub(crate) fn register<C: Clock + 'static>(
    fs: Arc<dyn Fs>,
    clock: Arc<C>,
    (state, path): (&Path, &Path),
) -> Result<(Record, Outcome), String> {
    let registry = Registry::make(Arc::clone(&fs), Arc::clone(&clock) as Arc<dyn Clock>, state)
        .map_err(|error| error.to_string())?;
    let record = record(fs.as_ref(), clock.as_ref(), path, binding(), &|_| ())?;
    registry.publish(record).map_err(|error| error.to_string())
}

/// What a verification found, one line per finding.
pub(crate) fn said(found: &Verification) -> Vec<String> {
    let findings = found.findings.iter();
    findings
        .map(|finding| format!("{}: {}", finding.path.to_string_lossy(), finding.what))
        .collect()
}

pub(crate) fn verified(fs: &dyn Fs, clock: &dyn Clock, record: &Record) -> Vec<String> {
    said(&verify(fs, clock, record, NonZeroUsize::MIN, &|_| ()))
}
