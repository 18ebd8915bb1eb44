//! What makes a pack and a set the pack and the set that they are, and the keys hashed from that.
//!
//! No path, date, model name or engine version takes part: fine-tunes share unchanged tensors, and
//! a changed packer names another pack by its fingerprint. Specified in `docs/format/keys.md`.

use crate::digest::{Fingerprint, PackKey, SetKey, TensorDigest};
use crate::encode::Sequence;
use std::collections::BTreeMap;

/// Everything that determines the bytes of one payload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackIdentity {
    /// Layout id, e.g. `ggml-cpu-repack`.
    pub layout: String,
    /// Layout version.
    pub layout_version: u64,
    /// Layout parameters by name; the map keeps them sorted.
    pub parameters: BTreeMap<String, u64>,
    /// Hash of what the packer makes of the golden weight.
    pub fingerprint: Fingerprint,
    /// ggml type id of the source tensor.
    pub type_id: u32,
    /// Dims in file order (ne0 first), in canonical form: see `canonical_dims`.
    pub dims: Vec<u64>,
    /// SHA-256 of the source tensor's bytes.
    pub source: TensorDigest,
}

/// One tensor's place in a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetEntry {
    /// The plan's fixed integer for the tensor.
    pub slot: u64,
    /// Tensor name in its container.
    pub tensor: String,
    /// The pack that fills the slot.
    pub pack: PackKey,
}

impl PackIdentity {
    /// Returns the pack key: SHA-256 of {`packhouse/pack/1`, layout id, layout version, parameters,
    /// fingerprint, type, dims, source digest} in canonical encoding.
    pub fn key(&self) -> PackKey {
        let mut sequence = Sequence::new("packhouse/pack/1");
        sequence.text(&self.layout).integer(self.layout_version);
        let parameters: Vec<_> = self.parameters.iter().collect();
        sequence.list(&parameters, |s, (name, value)| {
            s.text(name).integer(**value);
        });
        sequence
            .digest(&self.fingerprint.0)
            .integer(u64::from(self.type_id));
        sequence.list(&self.dims, |s, dim| {
            s.integer(*dim);
        });
        sequence.digest(&self.source.0);
        PackKey(sequence.finish())
    }
}

/// Drops trailing dims of 1 and keeps at least one dim; the form that keys hash.
pub fn canonical_dims(dims: &[u64]) -> Vec<u64> {
    let kept = dims
        .iter()
        .rposition(|dim| *dim != 1)
        .map_or(1, |index| index + 1);
    dims.iter()
        .copied()
        .chain(std::iter::once(1))
        .take(kept)
        .collect()
}

/// Returns the set key: SHA-256 of {`packhouse/set/1`, plan name, SHA-256 of the plan's bytes, list
/// of (slot, tensor name, pack key)} with the entries ordered by slot.
pub fn set_key(plan: &str, plan_digest: &crate::digest::Digest, entries: &[SetEntry]) -> SetKey {
    let mut ordered: Vec<_> = entries.iter().collect();
    ordered.sort_by_key(|entry| entry.slot);
    let mut sequence = Sequence::new("packhouse/set/1");
    sequence.text(plan).digest(plan_digest);
    sequence.list(&ordered, |s, entry| {
        s.integer(entry.slot)
            .text(&entry.tensor)
            .digest(&entry.pack.0);
    });
    SetKey(sequence.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    #[test]
    fn trailing_ones_go_and_one_dim_stays() {
        assert_eq!(canonical_dims(&[576, 49152, 1, 1]), [576, 49152]);
        assert_eq!(canonical_dims(&[1, 1, 1, 1]), [1]);
        assert_eq!(canonical_dims(&[32, 1, 4, 1]), [32, 1, 4]);
        assert_eq!(canonical_dims(&[]), [1]);
    }

    #[test]
    fn each_field_takes_part_in_the_pack_key() {
        let base = PackIdentity {
            layout: "ggml-cpu-repack".into(),
            layout_version: 1,
            parameters: BTreeMap::from([("a".into(), 1)]),
            fingerprint: Fingerprint(Digest::of(b"f")),
            type_id: 2,
            dims: vec![32, 8],
            source: TensorDigest(Digest::of(b"s")),
        };
        let changes: [fn(&mut PackIdentity); 8] = [
            |i| i.layout = "x".into(),
            |i| i.layout_version = 2,
            |i| i.parameters = BTreeMap::from([("a".into(), 2)]),
            |i| i.parameters.extend([("b".into(), 1)]),
            |i| i.fingerprint = Fingerprint(Digest::of(b"g")),
            |i| i.type_id = 3,
            |i| i.dims = vec![8, 32],
            |i| i.source = TensorDigest(Digest::of(b"t")),
        ];
        let mut keys = vec![base.key()];
        for change in changes {
            let mut other = base.clone();
            change(&mut other);
            keys.push(other.key());
        }
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), changes.len() + 1);
    }

    #[test]
    fn a_set_key_does_not_depend_on_the_order_given() {
        let entry = |slot, tensor: &str| SetEntry {
            slot,
            tensor: tensor.into(),
            pack: PackKey(Digest::of(tensor.as_bytes())),
        };
        let plan = Digest::of(b"plan");
        let (a, b) = (entry(0, "a"), entry(7, "b"));
        let key = set_key("p", &plan, &[a.clone(), b.clone()]);
        assert_eq!(key, set_key("p", &plan, &[b.clone(), a.clone()]));
        assert_ne!(key, set_key("p", &plan, &[a]));
        assert_ne!(key, set_key("q", &plan, &[b]));
    }
}
