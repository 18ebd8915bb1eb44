//! A copy's folder that nobody sees yet.

use crate::collect::remove_tree;
use crate::copy::COPY_MODE;
use crate::models::entry::make_models_dir;
use crate::models::key::EntryName;
use crate::name::{FILES_NAME, RECEIPTS_NAME};
use crate::room::Reservation;
use crate::root::StageRoot;
use crate::staged::FOLDER_MODE;
use packhouse_sys::fs::{Dir, FsError};

/// A folder under a name that no look-up knows. Dropped before `publish`, it is gone.
pub(crate) struct TempCopy {
    models: Dir,
    name: String,
    dir: Dir,
    pub(crate) files: Dir,
    is_published: bool,
}

impl TempCopy {
    /// Makes it under the reservation's digits, by which the living are told from the dead.
    pub(crate) fn make(root: &StageRoot, room: &Reservation) -> Result<Self, FsError> {
        let (models, name) = (make_models_dir(root)?, room.temp_name());
        models.make_dir(&name, FOLDER_MODE)?;
        let undo = |error: FsError| {
            // The first error is the one to report.
            let _ = remove_tree(&models, &name, false);
            error
        };
        let dir = models.open_dir(&name).map_err(undo)?;
        let made = dir.make_dir(FILES_NAME, FOLDER_MODE);
        let files = made.and_then(|()| dir.open_dir(FILES_NAME));
        let files = files.map_err(undo)?;
        Ok(Self {
            models,
            name,
            dir,
            files,
            is_published: false,
        })
    }

    /// Makes the copy visible: its receipts and entries durable, then one rename.
    pub(crate) fn publish(mut self, name: EntryName, receipts: &[u8]) -> Result<(), FsError> {
        let file = self.dir.create_new(RECEIPTS_NAME, COPY_MODE)?;
        file.write_all_at(0, receipts)?;
        file.sync()?;
        self.files.sync()?;
        self.dir.sync()?;
        let models = &self.models;
        models.rename_new(&self.name, models, name.to_string())?;
        self.is_published = true;
        models.sync()
    }
}

impl Drop for TempCopy {
    fn drop(&mut self) {
        if !self.is_published {
            // What stays behind has no living reservation, and the next stager removes it.
            let _ = remove_tree(&self.models, &self.name, false);
        }
    }
}
