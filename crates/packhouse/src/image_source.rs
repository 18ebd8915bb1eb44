//! A model's head in memory, for the commands that pack from it.

use crate::bar::Bar;
use crate::failure::{Failure, quoted};
use crate::prepare;
use packhouse_base::units;
use packhouse_image::{Dtype, GGML_VALUES, Head, HeadDigest};
use packhouse_layout::int8_tile::TileGeometry;
use packhouse_prepare::head::{HeadBytes, HeadError, ModelHead, ReadError, ReadWatcher};
use packhouse_prepare::model::Model;
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::memory::MemoryRoom;
use packhouse_sys::signal;
use std::num::NonZeroUsize;
use std::path::Path;

/// A head that was found, and not read yet.
pub(crate) struct Found<'a> {
    path: &'a Path,
    model: Model,
    pub(crate) head: ModelHead,
}

/// A head that was read once: what is hashed is what is packed.
pub(crate) struct Source {
    pub(crate) bytes: HeadBytes,
    pub(crate) head: Head,
    pub(crate) hash_ns: u64,
}

/// A signal came.
#[derive(Debug)]
pub(crate) struct Stopped;

impl<'a> Found<'a> {
    /// Opens a model and finds its head, or judges the tensor that is named.
    pub(crate) fn open(path: &'a Path, tensor: Option<&str>) -> Result<Self, Failure> {
        let model = prepare::open_model(path)?;
        let head = ModelHead::find(model.container(), tensor).map_err(|error| {
            let failure = match &error {
                HeadError::NotThere { name } => {
                    let none = format!("none of {} has that name", path.display());
                    return Failure::usage("no such tensor", name)
                        .cause(none)
                        .hint(format!("packhouse inspect {} --tensors", quoted(path)));
                }
                HeadError::Absent
                | HeadError::Dims { .. }
                | HeadError::Empty { .. }
                | HeadError::Values { .. }
                | HeadError::Scaled { .. } => {
                    Failure::new("no head to tile in the model", path.display())
                }
            };
            failure
                .because(&error)
                .hint(format!("packhouse inspect {} --tensors", quoted(path)))
        })?;
        Ok(Self { path, model, head })
    }

    /// Refuses a geometry whose packed depth is less than the hidden size.
    pub(crate) fn fits(&self, geometry: &TileGeometry) -> Result<(), Failure> {
        let (width, kpad) = (self.head.width(), geometry.kpad());
        if width <= kpad {
            return Ok(());
        }
        let name = self.head.name();
        Err(Failure::usage("the packed depth is too small", kpad)
            .cause(format!(
                "kpad is {kpad}, and the rows of {name} have {width} values"
            ))
            .hint(format!("packhouse inspect {} --tensors", quoted(self.path))))
    }

    /// The model's path, absolute; what names a descriptor, as /dev/stdin does, gives the file's.
    pub(crate) fn own_path(&self) -> String {
        let first = self.model.files().first();
        let first = first.expect("because a model has a file");
        first.path().to_string_lossy().into_owned()
    }

    /// Reads and hashes the head, where memory holds it beside tiles of so many bytes. `again` is
    /// the command that goes on when a signal ends it.
    pub(crate) fn read(
        &self,
        tile_bytes: u64,
        threads: NonZeroUsize,
        bar: &Bar,
        again: &dyn Fn() -> String,
    ) -> Result<Source, Failure> {
        let available_bytes = memory_bytes();
        let memory_bytes = available_bytes.checked_sub(tile_bytes).ok_or_else(|| {
            Failure::new("not enough memory for tiles of", units::bytes(tile_bytes))
                .cause(format!("{} are available", units::bytes(available_bytes)))
                .hint("free -h")
        })?;
        let watcher = ReadWatcher {
            progress: bar,
            cancel: &signal::was_caught,
        };
        bar.start("read", self.head.bytes());
        let read = self.head.read(&self.model, memory_bytes, watcher);
        let bytes = read.map_err(|error| self.unread(&error, again))?;
        let dtype = Dtype::new(self.head.ggml_type().name())
            .expect("because names of ggml's types are short");
        let (vocabulary, width) = (self.head.vocabulary(), self.head.width());
        let tied = self.head.is_tied();
        let tensors = [bytes.bytes(), GGML_VALUES];
        let began_ns = RealClock.steady_ns();
        let digest = HeadDigest::of(vocabulary, width, tied, &dtype, &tensors, threads);
        let head = Head {
            vocabulary,
            width,
            tied,
            dtype,
            digest,
        };
        let hash_ns = RealClock.steady_ns().saturating_sub(began_ns);
        Ok(Source {
            bytes,
            head,
            hash_ns,
        })
    }

    fn unread(&self, error: &ReadError, again: &dyn Fn() -> String) -> Failure {
        let model = self.path.display();
        match error {
            ReadError::Model(error) => prepare::unusable(self.path, error),
            ReadError::Writer { path } => {
                Failure::new("the model is being written", path.display())
                    .because(error)
                    .hint(format!("fuser -v {}", quoted(path)))
            }
            ReadError::Memory { .. } => Failure::new("not enough memory for the head of", model)
                .because(error)
                .hint("free -h"),
            ReadError::Cancelled { .. } => {
                Failure::new("stopped", model).because(error).hint(again())
            }
        }
    }
}

impl Source {
    /// Fills columns for a packer until a signal comes, and tells of each.
    pub(crate) fn gather<'a>(
        &'a self,
        filled: &'a (dyn Fn() + Sync),
    ) -> impl Fn(u64, &mut [f32]) -> Result<(), Stopped> + Sync + 'a {
        move |column, target| {
            if signal::was_caught() {
                return Err(Stopped);
            }
            self.bytes.fill(column, target);
            filled();
            Ok(())
        }
    }
}

/// Memory that may be taken, by the kernel's estimate; all where it gives none.
fn memory_bytes() -> u64 {
    let room = MemoryRoom::now();
    let known = room.available_bytes.into_iter().chain(room.group_bytes);
    known.min().unwrap_or(u64::MAX)
}
