//! The fixtures of a focused run: verified in full before tests run, known by receipts before a
//! recorded pass is looked for.

use crate::failure::{Failure, quoted};
use crate::fixture::{Place, sound};
use crate::fixture_verify::first_damages;
use packhouse_base::digest::Digest;
use packhouse_fixture::published::{Damaged, Look, PublishError, Shelf};
use packhouse_fixture::{Bag, families};
use packhouse_stage::models::{FileDigests, digest_of};
use packhouse_sys::clock::RealClock;
use packhouse_sys::fs::Dir;
use packhouse_sys::real::RealFs;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The folder of fixtures, and what was said of it.
pub(crate) struct Fixtures<'a> {
    place: Place,
    digests: Option<&'a FileDigests>,
    made: RefCell<Vec<String>>,
}

impl<'a> Fixtures<'a> {
    /// In this folder, with the digests of files that are remembered.
    pub(crate) fn new(place: Place, digests: Option<&'a FileDigests>) -> Self {
        Self {
            place,
            digests,
            made: RefCell::default(),
        }
    }

    /// The ids of fixtures that had to be made.
    pub(crate) fn made(&self) -> Vec<String> {
        self.made.borrow().clone()
    }

    /// The digest of each fixture, where all files that its lists name, and no others, are there,
    /// known by receipts to have the hashes listed; `None` where one is not.
    pub(crate) fn known(&self) -> Option<BTreeMap<String, Digest>> {
        let shelf = self.place.open().ok()??.open_dir(VERSION).ok()?;
        let known = families::all().map(|family| {
            let unit = shelf.open_dir(family.id).ok()?;
            Some((family.id.to_owned(), self.known_unit(&unit)?))
        });
        known.collect()
    }

    fn known_unit(&self, unit: &Dir) -> Option<Digest> {
        let tags = unit.read_small(TAG_MANIFEST, LIST_BYTES_MAX).ok()?;
        let manifest = unit.read_small(MANIFEST, LIST_BYTES_MAX).ok()?;
        let tag_list = listed(&tags)?;
        if tag_list.get(MANIFEST) != Some(&Digest::of(&manifest)) {
            return None;
        }
        let data_list = listed(&manifest)?;
        let paths = tag_list.keys().chain(data_list.keys()).copied();
        let paths: BTreeSet<&str> = paths.chain([TAG_MANIFEST]).collect();
        if found(unit)? != paths.iter().map(|path| (*path).to_owned()).collect() {
            return None;
        }
        for (path, digest) in tag_list.iter().chain(&data_list) {
            let (dir, name) = match path.split_once('/') {
                Some((folder, name)) => (unit.open_dir(folder).ok()?, name),
                None => (unit.clone(), *path),
            };
            let file = dir.open_file(name).ok()?;
            let identity = file.identity().ok()?;
            (self.digests?.known(&identity)? == *digest).then_some(())?;
        }
        Some(Digest::of(&tags))
    }

    /// Compares every fixture with its recipe, makes those that are missing, and gives their
    /// digests.
    ///
    /// # Errors
    /// When one is damaged, or can't be read or made: nothing is run then.
    pub(crate) fn verified(&self) -> Result<BTreeMap<String, Digest>, Failure> {
        let folder = self.place.make()?;
        let shelf = Shelf::make(&RealFs, &RealClock, &folder);
        let shelf = shelf.map_err(|error| self.place.unusable(&error))?;
        let mut digests = BTreeMap::new();
        for family in families::all() {
            let bag = Bag::of(&sound(family)?);
            let look = shelf.look(&bag);
            match look.map_err(|error| self.place.unusable(&error))? {
                Look::Intact => {}
                Look::Absent => self.publish(&shelf, &bag)?,
                Look::Damaged(damaged) => return Err(self.damaged(&bag, &damaged)),
            }
            digests.insert(bag.id().to_owned(), bag.digest());
        }
        self.remember(&folder);
        Ok(digests)
    }

    fn publish(&self, shelf: &Shelf<'_>, bag: &Bag) -> Result<(), Failure> {
        match shelf.publish(bag, PUBLISH_TIMEOUT_NS) {
            Ok(_) => {
                self.made.borrow_mut().push(bag.id().to_owned());
                Ok(())
            }
            Err(error) => {
                let hint = match error {
                    PublishError::Busy { .. } => self.place.hint("prepare --lock-timeout 3600"),
                    PublishError::Unstable { .. } => self.place.hint("verify"),
                    PublishError::Fs(_) => format!("ls -la {}", quoted(&self.place.path)),
                };
                Err(Failure::new("cannot publish the fixture", bag.id())
                    .because(&error)
                    .hint(hint))
            }
        }
    }

    fn damaged(&self, bag: &Bag, damaged: &Damaged) -> Failure {
        let mut failure = Failure::new("a fixture is damaged, and nothing was run", bag.id());
        for line in first_damages(damaged) {
            failure = failure.cause(line);
        }
        failure.hint(self.place.hint(&format!("prepare {}", bag.id())))
    }

    /// Hashes what was verified, so that it is known the next time; where that fails it is not.
    fn remember(&self, folder: &Dir) {
        let Ok(shelf) = folder.open_dir(VERSION) else {
            return;
        };
        for family in families::all() {
            let Ok(unit) = shelf.open_dir(family.id) else {
                continue;
            };
            for dir in [Ok(unit.clone()), unit.open_dir(DATA)]
                .into_iter()
                .flatten()
            {
                for name in dir.list().unwrap_or_default() {
                    if let Ok(file) = dir.open_file(&name) {
                        let _ = digest_of(self.digests, &file, &|_| {}, &|| false);
                    }
                }
            }
        }
    }
}

/// The paths of everything in a unit.
fn found(unit: &Dir) -> Option<BTreeSet<String>> {
    let mut paths = BTreeSet::new();
    for name in unit.list().ok()? {
        let name = name.into_string().ok()?;
        if name != DATA {
            paths.insert(name);
        }
    }
    for name in unit.open_dir(DATA).ok()?.list().ok()? {
        paths.insert(format!("{DATA}/{}", name.into_string().ok()?));
    }
    Some(paths)
}

/// Path to digest, of a list in the form of `sha256sum`.
fn listed(bytes: &[u8]) -> Option<BTreeMap<&str, Digest>> {
    let lines = std::str::from_utf8(bytes).ok()?.lines().map(|line| {
        let (digest, path) = line.split_once("  ")?;
        Some((path, Digest::parse(digest).ok()?))
    });
    lines.collect()
}

const VERSION: &str = "v1";
const DATA: &str = "data";
const MANIFEST: &str = "manifest-sha256.txt";
const TAG_MANIFEST: &str = "tagmanifest-sha256.txt";
const LIST_BYTES_MAX: u64 = 1 << 20;
const PUBLISH_TIMEOUT_NS: u64 = 600_000_000_000;
