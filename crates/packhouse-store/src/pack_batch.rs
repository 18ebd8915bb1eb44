//! Many pack records at once: written, synced, linked, and each folder synced once.
//!
//! Invariants: those of `pack`: after its object, never over another record.

use crate::pack::PublishPackError;
use crate::publish::{PublishError, Temp};
use crate::record::PackRecord;
use crate::root::{Base, Store};
use packhouse_base::digest::PackKey;
use packhouse_sys::fs::{Dir, FsErrorKind};

impl Store {
    /// Publishes records whose objects are in the store. Errors leave each record whole or absent.
    ///
    /// Answers the keys that exist with another object, both intact: an edited record, or a packer
    /// that isn't deterministic. Theirs stay.
    pub fn publish_packs(&self, records: &[PackRecord]) -> Result<Vec<PackKey>, PublishPackError> {
        self.writable()?;
        // Until the records are linked, no gc of this user takes an object away.
        let _shared = self.hold_off_gc();
        let mut temps = Vec::with_capacity(records.len());
        for record in records {
            self.object_for_sample(&record.object, record.length)
                .map_err(|refusal| PublishPackError::Object {
                    key: record.key(),
                    refusal: Box::new(refusal),
                })?;
            temps.push(self.write_record(record)?);
        }
        for (temp, _) in &temps {
            temp.file.sync().map_err(PublishError::from)?;
        }
        let mut folders: Vec<Dir> = Vec::new();
        let mut taken = Vec::new();
        for (record, (temp, folder)) in records.iter().zip(&temps) {
            match temp.link_to(folder, &record.key().to_string()) {
                Ok(()) if folders.iter().any(|known| known.path() == folder.path()) => {}
                Ok(()) => folders.push(folder.clone()),
                Err(error) if error.kind == FsErrorKind::Exists => taken.push(record),
                Err(error) => return Err(PublishError::from(error).into()),
            }
        }
        for folder in &folders {
            folder.sync().map_err(PublishError::from)?;
        }
        let mut disputed = Vec::new();
        for record in taken {
            match self.publish_pack(record) {
                Err(PublishPackError::NotDeterministic { key, .. }) => disputed.push(key),
                other => drop(other?),
            }
        }
        Ok(disputed)
    }

    fn write_record(&self, record: &PackRecord) -> Result<(Temp, Dir), PublishError> {
        let folder = self.make_prefix(Base::Packs, &record.key().to_string()[..2])?;
        let temp = Temp::create(self.fs.as_ref(), &folder, 0o444)?;
        temp.file.write_all_at(0, &record.render())?;
        Ok((temp, folder))
    }
}
