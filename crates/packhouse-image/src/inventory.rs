//! What is there: every image with its header or what is wrong with it, every owner, every stray.
//!
//! Never: hashes a payload (`verify_image` does), changes anything.

use crate::folder::Folder;
use crate::header::Header;
use crate::key::ImageName;
use crate::owner::Owner;
use crate::record::OwnerRecord;
use crate::stem::KeyStem;
use crate::survey::{Place, RecordFault, Stray, Survey};
use crate::verify::{ImageFault, judge_header};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::FsError;

/// Everything in a folder of images.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// The images, by name.
    pub images: Vec<ImageListing>,
    /// The owner records, by name.
    pub owners: Vec<OwnerListing>,
    /// Temporary files, of living writers or dead ones.
    pub temps: Vec<TempListing>,
    /// What is none of ours.
    pub strays: Vec<Stray>,
}

/// One image.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageListing {
    /// Its name.
    pub name: ImageName,
    /// Its length.
    pub bytes: u64,
    /// Bytes that it takes on the disk.
    pub allocated_bytes: u64,
    /// When its key was last used, to the hour: nanoseconds since the Unix epoch; 0 where its files
    /// are dated in the future.
    pub last_use_ns: i64,
    /// Its header, or why no serve would use it. Its payload was not read.
    pub header: Result<Header, ImageFault>,
    /// The owners that name its key.
    pub owners: Vec<Owner>,
}

/// One owner record.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerListing {
    /// Its name below `v1`.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Bytes that it takes on the disk.
    pub allocated_bytes: u64,
    /// When it was written: nanoseconds since the Unix epoch.
    pub written_ns: i64,
    /// What it says, or why it is not believed.
    pub record: Result<OwnerRecord, RecordFault>,
}

/// One temporary file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TempListing {
    /// Its name below `v1`.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Bytes that it takes on the disk.
    pub allocated_bytes: u64,
    /// Whether its writer may be living.
    pub is_young: bool,
}

impl Inventory {
    /// Lengths of the images.
    pub fn image_bytes(&self) -> u64 {
        sum(self.images.iter().map(|image| image.bytes))
    }

    /// Lengths of images, owner records and temporary files: everything that is ours but the lock
    /// file and the tag.
    pub fn total_bytes(&self) -> u64 {
        let owners = self.owners.iter().map(|owner| owner.bytes);
        let temps = self.temps.iter().map(|temp| temp.bytes);
        sum(owners.chain(temps).chain([self.image_bytes()]))
    }

    /// What these files take on the disk.
    pub fn allocated_bytes(&self) -> u64 {
        let images = self.images.iter().map(|image| image.allocated_bytes);
        let owners = self.owners.iter().map(|owner| owner.allocated_bytes);
        let temps = self.temps.iter().map(|temp| temp.allocated_bytes);
        sum(images.chain(owners).chain(temps))
    }
}

/// Adds lengths up; sparse files can have any.
fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// Lists a folder of images and reads each image's header.
///
/// # Errors
/// When the folder can't be listed.
pub fn inventory(folder: &Folder, clock: &dyn Clock) -> Result<Inventory, FsError> {
    let now_ns = clock.wall_ns();
    let survey = Survey::take(folder, now_ns)?;
    let keys = survey.keys(now_ns);
    let mut inventory = Inventory {
        strays: survey.strays.clone(),
        ..Inventory::default()
    };
    for found in &survey.images {
        let header = match judge_header(folder, &found.name) {
            Ok(Some((header, _))) => Ok(header),
            // Gone since it was listed.
            Ok(None) => continue,
            Err(fault) => Err(fault),
        };
        let stem = KeyStem::of_name(&found.name);
        let records = survey
            .records
            .iter()
            .filter_map(|found| found.record.as_ref().ok());
        let naming = records.filter(|record| KeyStem::of(&record.key) == stem);
        inventory.images.push(ImageListing {
            name: found.name,
            bytes: found.stat.size,
            allocated_bytes: found.stat.allocated_bytes,
            last_use_ns: keys.get(&stem).map_or(0, |key| key.last_use_ns.max(0)),
            header,
            owners: naming.map(|record| record.owner.clone()).collect(),
        });
    }
    for found in survey.records {
        inventory.owners.push(OwnerListing {
            name: Place::Owners.below(&found.name),
            bytes: found.stat.size,
            allocated_bytes: found.stat.allocated_bytes,
            written_ns: found.stat.mtime_ns,
            record: found.record,
        });
    }
    for found in survey.temps {
        inventory.temps.push(TempListing {
            name: found.place.below(&found.name),
            bytes: found.stat.size,
            allocated_bytes: found.stat.allocated_bytes,
            is_young: found.is_young,
        });
    }
    Ok(inventory)
}
