//! Samples: groups of live weights, packed again by the packers that serve and compared bit for bit
//! with the payload.

use crate::hit::{sample_count, spread_groups};
use crate::set::entry::{Entry, Mapping};
use crate::set::packing::{Asked, admit};
use crate::set::reader::SetReader;
use crate::set::refusal::Refusal;
use crate::settings::Trust;
use packhouse_base::digest::ObjectDigest;
use packhouse_layout::Admitted;
use packhouse_pack::Kernel;
use packhouse_store::object::UnverifiedObject;
use std::ops::Range;
use std::sync::Arc;

/// Which groups are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleChoice {
    /// How many, one at least; `None` is 4 to 8 of them by the tensor's size, more than there are
    /// is all.
    pub group_count: Option<u64>,
    /// Shifts their places: another one at each start reaches all groups in time.
    pub seed: u64,
}

/// What was compared, all of it equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleReport {
    /// Groups compared.
    pub compared_groups: u64,
    /// Groups of the whole tensor.
    pub group_count: u64,
    /// Bytes of live weights that were asked for.
    pub source_bytes: u64,
    /// Bytes of payload that were compared.
    pub payload_bytes: u64,
}

/// The first byte in which a payload is not what its packer makes of the live weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The object.
    pub object: ObjectDigest,
    /// The group.
    pub group: u64,
    /// Its rows.
    pub rows: Range<u64>,
    /// The first row that differs; `None` when only padding does.
    pub row: Option<u64>,
    /// Offset of the byte in the payload.
    pub offset: u64,
    /// The byte there.
    pub stored: u8,
    /// The byte that the packer makes now.
    pub packed: u8,
}

/// Where the payload's bytes are while they are compared.
enum Stored {
    Mapped(Arc<Mapping>),
    ToProve(UnverifiedObject),
}

impl SetReader {
    /// Packs groups of live weights again and compares them with the payload. `live` writes the
    /// source bytes from an offset on and says whether it could.
    ///
    /// Errors with the first byte that differs; the payload is not handed out after that. Where
    /// samples are the proof that was chosen, the payload may be mapped once they are equal.
    pub fn sample(
        &self,
        entry: &Entry,
        live: &mut dyn FnMut(u64, &mut [u8]) -> bool,
        choice: SampleChoice,
    ) -> Result<SampleReport, Refusal> {
        let compared = self
            .usable()
            .and_then(|()| self.compare(entry, live, choice));
        compared.map_err(|refusal| self.refuse(Some(entry.index), refusal))
    }

    fn compare(
        &self,
        entry: &Entry,
        live: &mut dyn FnMut(u64, &mut [u8]) -> bool,
        choice: SampleChoice,
    ) -> Result<SampleReport, Refusal> {
        let identity = &entry.record().identity;
        let what = entry.name().to_string();
        let admitted = admit(&what, &Asked::by(identity))?;
        let here = self.packers.fingerprint(&admitted);
        let here = here.map_err(|source| Refusal::NoKernel { what, source })?;
        if here != identity.fingerprint {
            return Err(Refusal::OtherPacker {
                name: entry.name(),
                expected: here,
                actual: identity.fingerprint,
            });
        }
        let stored = self.stored(entry)?;
        let group_count = admitted.group_count();
        let count = choice
            .group_count
            .map_or_else(|| sample_count(group_count), |count| count.max(1));
        let mut report = SampleReport {
            group_count,
            ..SampleReport::default()
        };
        for group in spread_groups(group_count, count, choice.seed) {
            let sampler = Sampler {
                reader: self,
                entry,
                admitted: &admitted,
                stored: &stored,
                group,
            };
            if let Err(refusal) = sampler.compare(live, &mut report) {
                if matches!(refusal, Refusal::SampleDiffers { .. }) {
                    self.distrust(entry, &refusal);
                }
                return Err(refusal);
            }
        }
        if let Stored::ToProve(object) = stored {
            self.accept_sampled(entry, object);
        }
        self.count_sample(entry, report.compared_groups);
        Ok(report)
    }

    /// The payload to compare with: mapped where it is proved otherwise, and not yet proved where
    /// samples are to prove it.
    fn stored(&self, entry: &Entry) -> Result<Stored, Refusal> {
        if self.trust != Trust::Sample || self.is_staged(entry) {
            return self.map_proved(entry).map(Stored::Mapped);
        }
        self.unproved(entry).map(Stored::ToProve)
    }
}

/// One group to compare.
struct Sampler<'a> {
    reader: &'a SetReader,
    entry: &'a Entry,
    admitted: &'a Admitted,
    stored: &'a Stored,
    group: u64,
}

impl Sampler<'_> {
    fn compare(
        &self,
        live: &mut dyn FnMut(u64, &mut [u8]) -> bool,
        report: &mut SampleReport,
    ) -> Result<(), Refusal> {
        let alone = self.admitted.group(self.group);
        let kernel = self.reader.packers.kernel(&alone);
        let kernel = kernel.map_err(|source| Refusal::NoKernel {
            what: self.entry.name().to_string(),
            source,
        })?;
        let range = self.admitted.group_source(self.group);
        let mut source = vec![0; length_of(range.end - range.start)];
        if !live(range.start, &mut source) {
            return Err(Refusal::LiveWeights {
                name: self.entry.name(),
                offset: range.start,
                bytes: range.end - range.start,
            });
        }
        let mut packed = vec![0; length_of(alone.payload_bytes())];
        kernel.pack(&source, &mut packed);
        let mut stored = vec![0; packed.len()];
        let mut filled = 0;
        for piece in self.admitted.group_payload(self.group) {
            let target = &mut stored[filled..filled + length_of(piece.end - piece.start)];
            filled += target.len();
            self.read(piece.start, target)?;
        }
        report.compared_groups += 1;
        report.source_bytes += source.len() as u64;
        report.payload_bytes += packed.len() as u64;
        match packed.iter().zip(&stored).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => Err(self.difference(&kernel, at, &packed, &stored)),
        }
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), Refusal> {
        match self.stored {
            Stored::Mapped(mapping) => {
                let start = length_of(offset);
                target.copy_from_slice(&mapping[start..start + target.len()]);
                Ok(())
            }
            Stored::ToProve(object) => {
                let read = object.file().read_full_at(offset, target);
                // A file that ends early leaves zeros, which the comparison finds.
                read.map(drop).map_err(|error| Refusal::Object {
                    name: self.entry.name(),
                    source: Box::new(packhouse_store::object::ObjectRefusal::Fs {
                        digest: object.digest(),
                        error,
                    }),
                })
            }
        }
    }

    fn difference(&self, kernel: &Kernel, at: usize, packed: &[u8], stored: &[u8]) -> Refusal {
        let rows = self.admitted.group_rows(self.group);
        let row = match kernel.inverse() {
            Ok(inverse) => {
                let mut sources = [packed, stored].map(|payload| {
                    let mut source = vec![0; length_of(kernel.admitted().source_bytes())];
                    inverse.unpack(payload, &mut source);
                    source.into_iter()
                });
                let [live, kept] = &mut sources;
                let first = live.zip(kept).position(|(a, b)| a != b);
                let row_bytes = self.admitted.geometry().row_bytes;
                first.map(|first| rows.start + first as u64 / row_bytes)
            }
            // Groups of the layouts without an inverse are single rows.
            Err(_) => Some(rows.start),
        };
        Refusal::SampleDiffers {
            name: self.entry.name(),
            difference: Box::new(Difference {
                object: self.entry.record().object,
                group: self.group,
                row,
                rows,
                offset: self.offset_of(at as u64),
                stored: stored[at],
                packed: packed[at],
            }),
        }
    }

    /// The offset in the payload of a byte of the group packed alone.
    fn offset_of(&self, at: u64) -> u64 {
        let mut left = at;
        for piece in self.admitted.group_payload(self.group) {
            let bytes = piece.end - piece.start;
            if left < bytes {
                return piece.start + left;
            }
            left -= bytes;
        }
        self.admitted.payload_bytes()
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "object {} differs from the live weights in group {} (rows {} to {})",
            self.object,
            self.group,
            self.rows.start,
            self.rows.end.saturating_sub(1)
        )?;
        match self.row {
            Some(row) => write!(f, ", first in row {row}")?,
            None => write!(f, ", in padding only")?,
        }
        write!(
            f,
            ": payload byte {} is {:#04x}, packed now it is {:#04x}",
            self.offset, self.stored, self.packed
        )
    }
}

/// A length that is one of memory, because an admitted tensor's group was taken into it.
fn length_of(bytes: u64) -> usize {
    usize::try_from(bytes).expect("because a group's bytes fit into memory")
}
