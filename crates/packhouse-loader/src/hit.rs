//! The hit: look up the pack, prove it, compare samples, map it.

use crate::engine::Engine;
use crate::load::{Request, SampleBudget};
use crate::settings::Trust;
use crate::source::Located;
use crate::tally::{Samples, Tally};
use packhouse_base::digest::{Fingerprint, ObjectDigest, PackKey, TensorDigest};
use packhouse_base::identity::{PackIdentity, canonical_dims};
use packhouse_layout::Geometry;
use packhouse_layout::ggml_cpu_repack as layout;
use packhouse_store::object::{
    HowVerified, ObjectRefusal, ObjectTrust, UnverifiedObject, VerifiedObject,
};
use packhouse_store::pack::PackRefusal;
use packhouse_store::root::Store;
use packhouse_sys::fs::File;
use packhouse_sys::source_map;
use packhouse_sys::stat::FsTrust;

/// A pack of the store, or of a stage, that belongs to a request, with its object.
pub(crate) struct Candidate {
    pub(crate) digest: ObjectDigest,
    pub(crate) length: u64,
    pub(crate) object: Object,
    pub(crate) staged: bool,
}

/// An object, as far as it is proven.
pub(crate) enum Object {
    Proven(VerifiedObject),
    /// To be proven by samples alone, as the user chose.
    ToSample(UnverifiedObject),
}

/// Why a tensor is packed although a store is there.
pub(crate) enum NoHit {
    /// There is no pack under the key.
    Miss(&'static str),
    /// There is one, and it is not used: reason for the counters, and in words.
    Refused(&'static str, String),
    /// As `Refused`, and what the region held before is gone.
    Spoiled(&'static str, String),
}

/// Returns the groups of `sample_rows` rows to sample: as many as are within one hundredth of the
/// tensor, but at least `SAMPLES_MIN` and at most `SAMPLES_MAX`, one in each of as many equal
/// stretches and shifted by `rotation`, in two of three turns with the very first or the very last
/// among them; all groups when there are no more. Over three turns of rotations, each as many as a
/// stretch has groups, every group is among them.
pub fn sample_groups(row_count: u64, sample_rows: u64, rotation: u64) -> Vec<u64> {
    let group_count = row_count / sample_rows;
    spread_groups(group_count, sample_count(group_count), rotation)
}

/// How many of so many groups are sampled.
pub(crate) fn sample_count(group_count: u64) -> u64 {
    (group_count / 100).clamp(SAMPLES_MIN, SAMPLES_MAX)
}

/// The places of `count` of so many groups, as `sample_groups` says; all where there are no more.
pub(crate) fn spread_groups(group_count: u64, count: u64, rotation: u64) -> Vec<u64> {
    if group_count <= count {
        return (0..group_count).collect();
    }
    // The stretch at an index begins here; some are one group longer than others.
    let start_of = |index: u64| {
        let start = u128::from(index) * u128::from(group_count) / u128::from(count);
        u64::try_from(start).expect("because it is at most the count of groups")
    };
    let longest = group_count.div_ceil(count);
    let (shift, turn) = (rotation % longest, rotation / longest);
    let place = |index| {
        let start = start_of(index);
        start + shift % (start_of(index + 1) - start)
    };
    let mut groups: Vec<u64> = (0..count).map(place).collect();
    match turn % 3 {
        0 => groups[0] = 0,
        1 => *groups.last_mut().expect("because count is not 0") = group_count - 1,
        _ => {}
    }
    groups
}

/// What names a request's pack beside its source.
pub(crate) fn packing_of(request: &Request<'_>, fingerprint: Fingerprint) -> Packing {
    Packing {
        fingerprint,
        type_id: request.ty.id(),
        dims: canonical_dims(request.dims),
        unit_rows: request.geometry.unit_rows,
    }
}

/// The identity of a tensor's pack but for its source.
#[derive(Clone)]
pub(crate) struct Packing {
    fingerprint: Fingerprint,
    type_id: u32,
    dims: Vec<u64>,
    unit_rows: u64,
}

impl Packing {
    /// The whole identity, of the pack of this source.
    pub(crate) fn of(&self, source: TensorDigest) -> PackIdentity {
        PackIdentity {
            layout: layout::ID.to_owned(),
            layout_version: layout::VERSION,
            parameters: [(layout::UNIT_ROWS.to_owned(), self.unit_rows)].into(),
            fingerprint: self.fingerprint,
            type_id: self.type_id,
            dims: self.dims.clone(),
            source,
        }
    }
}

/// The identity of the pack that a request needs.
pub(crate) fn identity_of(
    request: &Request<'_>,
    fingerprint: Fingerprint,
    source: TensorDigest,
) -> PackIdentity {
    packing_of(request, fingerprint).of(source)
}

/// Why a look-up of a request's pack gave no record.
fn no_record(request: &Request<'_>, refusal: &PackRefusal) -> NoHit {
    match refusal {
        PackRefusal::Missing { .. } => NoHit::Miss("absent"),
        other => NoHit::Refused(other.reason(), in_words(request, other)),
    }
}

/// Says whether a store has a record under a key.
pub(crate) fn look_for(
    store: Option<&Store>,
    key: &PackKey,
    request: &Request<'_>,
) -> Result<(), NoHit> {
    let Some(store) = store else {
        return Err(NoHit::Miss("absent"));
    };
    let found = store.lookup_pack(key);
    found
        .map(|_| ())
        .map_err(|refusal| no_record(request, &refusal))
}

/// Looks a pack up and proves its object.
pub(crate) fn look_up(
    store: &Store,
    trust: Trust,
    key: &PackKey,
    request: &Request<'_>,
) -> Result<Candidate, NoHit> {
    let record = store
        .lookup_pack(key)
        .map_err(|refusal| no_record(request, &refusal))?;
    if record.length != request.geometry.payload_bytes() {
        let (expected, actual) = (request.geometry.payload_bytes(), record.length);
        let words = format!(
            "{}: pack {key} has {actual} bytes, {expected} are wanted",
            request.name
        );
        return Err(NoHit::Refused("length", words));
    }
    let (digest, length) = (&record.object, record.length);
    let object = match trust {
        Trust::Deep => store
            .object(digest, length, ObjectTrust::Deep)
            .map(Object::Proven),
        Trust::Receipt => store
            .object(digest, length, ObjectTrust::Receipt)
            .map(Object::Proven),
        Trust::Sample => store
            .object_for_sample(digest, length)
            .map(Object::ToSample),
    };
    match object {
        Ok(object) => Ok(Candidate {
            digest: *digest,
            length,
            object,
            staged: false,
        }),
        Err(refusal) => Err(NoHit::Refused(
            refusal.reason(),
            in_words(request, &refusal),
        )),
    }
}

/// Packs groups of rows of the live source again and compares them with what is stored.
pub(crate) struct Sampler<'a> {
    pub(crate) engine: &'a dyn Engine,
    pub(crate) request: &'a Request<'a>,
    pub(crate) digest: ObjectDigest,
    pub(crate) sample_rows: u64,
}

impl Sampler<'_> {
    /// Compares with the region that a proven object was placed under. `Err` names the first group
    /// that differs. Groups whose source pages are in memory come first; the others only within the
    /// load's budget.
    pub(crate) fn compare_region(
        &self,
        budget: &mut SampleBudget,
        samples: &mut Samples,
    ) -> Result<(), NoHit> {
        let region = self.request.region.clone();
        let read = move |offset: u64, target: &mut [u8]| {
            let bytes = region.read();
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let stored = bytes
                .as_ref()
                .and_then(|bytes| bytes.get(start..)?.get(..target.len()));
            stored
                .map(|stored| target.copy_from_slice(stored))
                .is_some()
        };
        self.compare(&read, true, budget, samples)
            .map_err(|words| NoHit::Spoiled("sample", words))
    }

    /// Compares with an object that nothing else proves: no group is left out.
    pub(crate) fn compare_file(
        &self,
        file: &File,
        budget: &mut SampleBudget,
        samples: &mut Samples,
    ) -> Result<(), NoHit> {
        let read = |offset: u64, target: &mut [u8]| {
            let wanted = target.len();
            file.read_full_at(offset, target)
                .is_ok_and(|bytes| bytes == wanted)
        };
        self.compare(&read, false, budget, samples)
            .map_err(|words| NoHit::Refused("sample", words))
    }

    fn compare(
        &self,
        read: &dyn Fn(u64, &mut [u8]) -> bool,
        may_skip: bool,
        budget: &mut SampleBudget,
        samples: &mut Samples,
    ) -> Result<(), String> {
        let request = self.request;
        let geometry = Geometry {
            unit_rows: self.sample_rows,
            ..request.geometry
        };
        let group_bytes = usize::try_from(geometry.unit_bytes()).unwrap_or(usize::MAX);
        let groups = sample_groups(geometry.row_count, self.sample_rows, budget.rotation);
        let ranges = groups.into_iter().filter_map(|group| {
            let start = usize::try_from(group).ok()?.checked_mul(group_bytes)?;
            Some((group, request.source.get(start..start + group_bytes)?))
        });
        let (resident, other): (Vec<_>, Vec<_>) =
            ranges.partition(|(_, source)| source_map::is_resident(source));
        let (mut packed, mut stored) = (vec![0; group_bytes], vec![0; group_bytes]);
        for (index, (group, source)) in resident.iter().chain(&other).enumerate() {
            let is_resident = index < resident.len();
            if !is_resident && may_skip && !budget.allows_a_read() {
                samples.skipped += 1;
                continue;
            }
            let started_ns = budget.clock.steady_ns();
            let pack = self
                .engine
                .pack(request.ty, request.dims, &geometry, source, &mut packed);
            let is_read = read(group * geometry.unit_bytes(), &mut stored);
            let elapsed_ns = budget.clock.steady_ns().saturating_sub(started_ns);
            samples.taken += 1;
            samples.source_bytes += geometry.unit_bytes();
            samples.duration_ns += elapsed_ns;
            if !is_resident {
                budget.spend(elapsed_ns);
            }
            if pack.is_err() || !is_read || packed != stored {
                return Err(self.difference(&geometry, *group, &packed, &stored));
            }
        }
        Ok(())
    }

    fn difference(&self, geometry: &Geometry, group: u64, packed: &[u8], stored: &[u8]) -> String {
        let differs = packed.iter().zip(stored).position(|(a, b)| a != b);
        let at = differs.unwrap_or(0);
        format!(
            "{}: object {} differs from the live weights in rows {} to {}, byte {at} of them: \
             {:#04x} stored, {:#04x} packed now",
            self.request.name,
            self.digest,
            group * geometry.unit_rows,
            (group + 1) * geometry.unit_rows - 1,
            stored[at],
            packed[at],
        )
    }
}

/// Puts a proven object under the request's region. `Err` when it can't be mapped or read.
pub(crate) fn place(
    engine: &dyn Engine,
    request: &Request<'_>,
    object: &VerifiedObject,
) -> Result<Placed, NoHit> {
    match object.fs_trust() {
        FsTrust::Local => {
            let attached = engine.attach(request.region, object);
            attached.map_err(|error| NoHit::Spoiled("map", in_words(request, &error)))?;
            Ok(Placed::Mapped)
        }
        FsTrust::Remote => {
            let read = request
                .region
                .with_private(|target| object.read_into(target));
            let read = read.map_err(|error| NoHit::Spoiled("memory", in_words(request, &error)))?;
            let spoiled = |refusal: ObjectRefusal| {
                NoHit::Spoiled(refusal.reason(), in_words(request, &refusal))
            };
            read.map_err(spoiled)?;
            Ok(Placed::Copied)
        }
    }
}

/// Reads a cold object in at once and in order, rather than page by page where samples fall.
pub(crate) fn read_in_if_cold(request: &Request<'_>) {
    let is_cold = request.region.read().is_some_and(|bytes| {
        // Three pages tell: objects are read in, and dropped, as wholes.
        let places = [0, bytes.len() / 2, bytes.len().saturating_sub(1)];
        let mut pages = places.into_iter().filter_map(|at| bytes.get(at..=at));
        !pages.all(source_map::is_resident)
    });
    if is_cold {
        // Old kernels can't; then pages come one by one.
        let _ = request.region.populate();
    }
}

/// Counts an object that serves.
pub(crate) fn count(tally: &mut Tally, object: &VerifiedObject, placed: Placed, staged: bool) {
    let bytes = object.length();
    if staged {
        tally.staged.add(bytes);
    }
    match placed {
        Placed::Mapped => tally.mapped.add(bytes),
        Placed::Copied => tally.copied.add(bytes),
    }
    tally.verified.entry(how(object)).or_default().add(bytes);
}

/// Drops the source's pages from this process: the engine maps the whole file and keeps the
/// mapping, and without this both copies stay resident.
pub(crate) fn drop_served_pages(request: &Request<'_>, located: Option<&Located>) {
    if located.is_some() {
        // Pages that can't be dropped only cost memory.
        let _ = source_map::drop_pages(request.source);
    }
}

/// How a payload got under its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    Mapped,
    Copied,
}

fn how(object: &VerifiedObject) -> &'static str {
    match object.how() {
        HowVerified::Deep => "deep",
        HowVerified::Receipt => "receipt",
        HowVerified::Reverified => "reverified",
        HowVerified::Published => "published",
        HowVerified::Sample => "sample",
    }
}

fn in_words(request: &Request<'_>, error: &dyn std::error::Error) -> String {
    let mut words = format!("{}: {error}", request.name);
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.ends_with(&text) {
            words.push_str(": ");
            words.push_str(&text);
        }
        cause = error.source();
    }
    words
}

/// Fewest and most groups compared per tensor and load.
const SAMPLES_MIN: u64 = 4;
const SAMPLES_MAX: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A group that no rotation reaches is a place where damage is never seen.
    #[test]
    fn samples_are_spread_inside_and_over_the_rotations_every_group_is_reached() {
        let pairs = (2..130u64).flat_map(|groups| (1..groups).map(move |count| (groups, count)));
        let large = [(500, 5), (799, 7), (1000, 8), (1003, 8), (28_671, 8)];
        for (group_count, count) in pairs.chain(large) {
            let (mut seen, mut first, mut last) = (BTreeSet::new(), 0, 0);
            let turns = group_count.div_ceil(count) * 3;
            for rotation in 0..turns {
                let groups = spread_groups(group_count, count, rotation);
                assert_eq!(groups.len() as u64, count);
                assert!(groups.is_sorted_by(|a, b| a < b), "{groups:?}");
                assert!(groups.iter().all(|group| *group < group_count));
                first += u64::from(groups.contains(&0));
                last += u64::from(groups.contains(&(group_count - 1)));
                seen.extend(groups);
            }
            let missed: Vec<u64> = (0..group_count).filter(|at| !seen.contains(at)).collect();
            assert!(missed.is_empty(), "{count} of {group_count}: {missed:?}");
            // In each turn of three one begins at the very first, and one ends at the very last.
            assert!(first * 3 >= turns && last * 3 >= turns, "{first} {last}");
        }
    }

    #[test]
    fn four_to_eight_groups_are_sampled_by_the_tensors_size() {
        for (group_count, count) in [(9, 4), (64, 4), (500, 5), (1000, 8), (28_672, 8)] {
            assert_eq!(sample_groups(group_count * 8 + 7, 8, 3).len(), count);
        }
        assert_eq!(sample_groups(24, 8, 5), [0, 1, 2]);
        assert!(sample_groups(0, 8, 5).is_empty());
        let groups = spread_groups(u64::MAX, 3, u64::MAX);
        assert_eq!(groups.len(), 3);
    }
}
