//! `image prepare`: a model's head as tiles on the disk, packed or found.

use crate::answer::{self, Answer, Column, table};
use crate::bar::Bar;
use crate::failure::{Failure, quoted};
use crate::image::{self, Allowed};
use crate::image_source::{Found, Source, Stopped};
use crate::image_words::ImagePrepareArgs;
use crate::places::{self, Lookup, Places};
use crate::stage::real;
use packhouse_base::units;
use packhouse_image::{
    Check, Images, MIN_FREE_BYTES, Mode, NoRoom, NotWritten, Off, Outcome, Owner, PublishError,
    Refusal, Removed, Serve, Settings, TileError, Written, file_bytes,
};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes};
use packhouse_pack::Packers;
use packhouse_pack::int8_tile::Gather;
use packhouse_prepare::head::ModelHead;
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::real::RealFs;
use packhouse_sys::signal;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes sure that all tiles of a model's head are on the disk. A signal ends it cleanly: what is
/// written stays.
pub(crate) fn prepare(args: &ImagePrepareArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let began_ns = RealClock.steady_ns();
    let geometry = geometry(args)?;
    let mode = match Allowed::of(lookup) {
        Allowed::Nothing => return Err(image::off()),
        Allowed::Reading => Mode::ReadOnly,
        Allowed::Writing => Mode::ReadWrite,
    };
    let folder = places::images(args.folder.images.as_deref(), lookup)?;
    refuse_store(&folder, lookup)?;
    let found = Found::open(&args.model, args.tensor.as_deref())?;
    found.fits(&geometry)?;
    let owner = owner(args, &found)?;
    let settings = settings(args, mode);
    // Without it a signal ends the process at once, and what it was writing waits for the next gc.
    let _ = signal::catch_once();
    let bar = Bar::new();
    // A tile is packed beside the target; a full check keeps what it read, too.
    let tiles = if args.full { 3 } else { 2 };
    let tile_bytes = tiles * geometry.payload_bytes();
    let source = found.read(tile_bytes, settings.threads, &bar, &|| {
        again(args, args.max_bytes)
    })?;
    let images = Images::open(
        Arc::new(RealFs),
        Arc::new(RealClock),
        Some(&folder),
        settings,
    );
    if let Some(off) = images.why_off() {
        return Err(not_open(&folder, off));
    }
    let packers = Arc::new(Packers::detect());
    let head = source.head.clone();
    let serve = images.serve(packers, head, geometry, owner.clone());
    let mut serve = serve.map_err(|error| {
        Failure::usage("no such tiles of the head", sizes_text(&geometry))
            .because(&error)
            .hint("packhouse image prepare --help")
    })?;
    serve.note_head_hash_ns(source.hash_ns);
    let made = make(&mut serve, &source, &geometry, &bar);
    drop(bar);
    say(&serve.line());
    let report = Report {
        args,
        head: &found.head,
        source: &source,
        geometry: &geometry,
        owner: &owner,
        images: &images,
        folder: &folder,
        serve: &serve,
        duration_ns: RealClock.steady_ns().saturating_sub(began_ns),
    };
    match &made.end {
        End::All => Ok(Answer::done(report.text(&made), report.document(&made))),
        end => Err(not_all(&report, &made, end)),
    }
}

/// What became of the tiles.
#[derive(Default)]
struct Made {
    refused: Vec<Refusal>,
    removed: Vec<Removed>,
    problems: Vec<String>,
    /// Tiles that are on the disk.
    stored_count: u64,
    end: End,
}

/// Why no more tiles were made.
#[derive(Default)]
enum End {
    /// There are none.
    #[default]
    All,
    /// This one could not be written.
    NotWritten { tile: u64, why: NotWritten },
    /// A signal came.
    Stopped,
}

fn make(serve: &mut Serve, source: &Source, geometry: &TileGeometry, bar: &Bar) -> Made {
    let mut made = Made::default();
    let depth = geometry.kpad();
    let vocabulary = source.head.vocabulary;
    let (mut codes, mut scales) = buffers(geometry);
    bar.start("tile", vocabulary * depth);
    for tile in 0..serve.tile_count() {
        let columns = geometry.tile_columns(vocabulary, tile);
        let filled = AtomicU64::new(0);
        let tell = || {
            filled.fetch_add(1, Ordering::Relaxed);
            bar.done(depth);
        };
        let fill = source.gather(&tell);
        let gather = Gather::Parallel(&fill);
        let served = match serve.tile(tile, depth, gather, &mut codes, &mut scales) {
            Ok(served) => served,
            Err(TileError::Gather(Stopped)) => {
                made.end = End::Stopped;
                return made;
            }
            Err(TileError::Request(refusal)) => {
                panic!("the tiles of a head in its own geometry are served: {refusal}")
            }
        };
        let left = (columns.end - columns.start).saturating_sub(filled.load(Ordering::Relaxed));
        bar.done(left * depth);
        made.removed.extend(served.removed);
        let problems = served.owner_problems.iter();
        made.problems.extend(problems.map(ToString::to_string));
        match served.outcome {
            Outcome::Hit => made.stored_count += 1,
            Outcome::Packed { refused, written } => {
                made.refused.extend(refused);
                match written {
                    Written::Yes { .. } => made.stored_count += 1,
                    Written::No(why) => {
                        made.end = End::NotWritten { tile, why };
                        return made;
                    }
                }
            }
        }
        if signal::was_caught() && tile + 1 < serve.tile_count() {
            made.end = End::Stopped;
            return made;
        }
    }
    made
}

/// A tile's sizes, as the words give them.
fn geometry(args: &ImagePrepareArgs) -> Result<TileGeometry, Failure> {
    let sizes = TileSizes {
        kd: args.kd,
        nd: args.nd.unwrap_or(args.t),
        kpad: args.kpad.unwrap_or(args.kd),
        t: args.t,
    };
    TileGeometry::new(args.layout.order(), sizes).map_err(|error| {
        let TileSizes { kd, nd, kpad, t } = sizes;
        let given = format!("--kd {kd} --nd {nd} --kpad {kpad} --t {t}");
        Failure::usage("no such tile", given)
            .because(&error)
            .hint("packhouse image prepare --help")
    })
}

/// Whose the images are: as given, else the model's path. A tensor that is named has an owner of
/// its own, or its head and the model's own would remove each other.
fn owner(args: &ImagePrepareArgs, found: &Found<'_>) -> Result<Owner, Failure> {
    let own = || match &args.tensor {
        Some(tensor) => format!("{}#{tensor}", found.own_path()),
        None => found.own_path(),
    };
    let text = args.owner.clone().unwrap_or_else(own);
    Owner::new(text).map_err(|error| {
        let value = args.owner.as_deref().unwrap_or("the model's path");
        Failure::usage("no owner", value)
            .because(&error)
            .hint("packhouse image prepare MODEL --owner TEXT")
    })
}

/// Refuses a folder among the store's own: each would take the other's files for strangers.
fn refuse_store(folder: &Path, lookup: Lookup<'_>) -> Result<(), Failure> {
    let Ok(places) = Places::find(lookup) else {
        return Ok(());
    };
    let (folder_real, store) = (real(folder), real(&places.store));
    if folder_real != store && !folder_real.starts_with(store.join("v1")) {
        return Ok(());
    }
    Err(
        Failure::usage("the folder of images is the store's", folder.display())
            .cause("what is in a store is the store's alone")
            .hint("packhouse image prepare --images DIR"),
    )
}

fn settings(args: &ImagePrepareArgs, mode: Mode) -> Settings {
    Settings {
        mode,
        check: if args.full {
            Check::Full
        } else {
            Check::Sample
        },
        max_bytes: args.max_bytes,
        min_free_bytes: args.min_free.unwrap_or(MIN_FREE_BYTES),
        max_age_ns: None,
        threads: image::threads(args.threads),
        seed: None,
    }
}

/// Memory for one tile; its bytes were counted before the head was read.
pub(crate) fn buffers(geometry: &TileGeometry) -> (Vec<i8>, Vec<f32>) {
    let length = |count: u64| usize::try_from(count).expect("because a tile fits the memory");
    (
        vec![0; length(geometry.code_bytes())],
        vec![0.0; length(geometry.nd())],
    )
}

fn not_open(folder: &Path, off: &Off) -> Failure {
    match off {
        Off::Folder(error) => image::unusable(folder, error),
        Off::Absent { .. } => image::read_only(folder).because(off),
        Off::Switch | Off::NoFolder => image::off(),
    }
}

/// Some tile is not on the disk.
fn not_all(report: &Report<'_>, made: &Made, end: &End) -> Failure {
    let count = report.serve.tile_count();
    let model = report.args.model.display();
    // All before it are, or it would have ended there.
    let at = made.stored_count;
    let stored = format!(
        "stopped at tile {at} of 0 to {}: {at} stored before it, those after it not looked at",
        count.saturating_sub(1)
    );
    let (failure, hint) = match end {
        End::All => return Failure::new("nothing is missing", model),
        End::Stopped => (
            Failure::new("stopped", model)
                .cause("what is stored stays; the next run makes the rest"),
            again(report.args, report.args.max_bytes),
        ),
        End::NotWritten { tile, why } => (
            Failure::new("cannot store the head of", model)
                .cause(format!("tile {tile} was packed and not stored: {why}")),
            not_written_hint(report, why),
        ),
    };
    let refused = made.refused.iter().map(ToString::to_string);
    let failure = refused.fold(failure, Failure::cause);
    failure.cause(stored).hint(hint)
}

/// The command that helps where a tile was not written.
fn not_written_hint(report: &Report<'_>, why: &NotWritten) -> String {
    match why {
        NotWritten::Off | NotWritten::ReadOnly => "unset PACKHOUSE_READONLY".to_owned(),
        NotWritten::NoMemory { .. } => "free -h".to_owned(),
        NotWritten::NoRoom(NoRoom::Cap {
            set_bytes,
            recent_bytes,
            writing_bytes,
            ..
        }) => {
            // What stays stays beside it.
            let stays_bytes = recent_bytes.saturating_add(*writing_bytes);
            again(report.args, Some(set_bytes.saturating_add(stays_bytes)))
        }
        NotWritten::NoRoom(NoRoom::Busy { .. }) => again(report.args, report.args.max_bytes),
        NotWritten::Publish(PublishError::Taken { path }) => format!("ls -ld {}", quoted(path)),
        NotWritten::NoRoom(NoRoom::Free { .. } | NoRoom::Fs(_))
        | NotWritten::Publish(
            PublishError::Fs(_) | PublishError::FileSizeLimit { .. } | PublishError::Length { .. },
        ) => {
            format!("df -h {}", quoted(report.folder))
        }
    }
}

/// The same command once more, within so many bytes.
fn again(args: &ImagePrepareArgs, max_bytes: Option<u64>) -> String {
    let sizes = [("nd", args.nd), ("kpad", args.kpad)];
    let bounds = [("max-bytes", max_bytes), ("min-free", args.min_free)];
    let numbers = sizes.into_iter().chain(bounds);
    let numbers = numbers.filter_map(|(name, number)| Some((name, number?.to_string())));
    let layout = args.layout.order().layout().id();
    let layout = (args.layout.order() != TileOrder::RowMajor).then(|| layout.to_owned());
    let folder = args.folder.images.as_deref();
    let texts = [
        ("layout", layout),
        ("tensor", args.tensor.as_deref().map(quoted)),
        ("owner", args.owner.as_deref().map(quoted)),
        ("images", folder.map(quoted)),
    ];
    let texts = texts.into_iter();
    let texts = texts.filter_map(|(name, text)| Some((name, text?)));
    let (model, kd, t) = (quoted(&args.model), args.kd, args.t);
    let mut words = format!("packhouse image prepare {model} --kd {kd} --t {t}");
    for (name, value) in numbers.chain(texts) {
        words += &format!(" --{name} {value}");
    }
    words
}

fn sizes_text(geometry: &TileGeometry) -> String {
    let TileSizes { kd, nd, kpad, t } = geometry.sizes();
    format!("kd {kd}, nd {nd}, kpad {kpad}, t {t}")
}

/// What is said in the end.
struct Report<'a> {
    args: &'a ImagePrepareArgs,
    head: &'a ModelHead,
    source: &'a Source,
    geometry: &'a TileGeometry,
    owner: &'a Owner,
    images: &'a Images,
    folder: &'a Path,
    serve: &'a Serve,
    duration_ns: u64,
}

impl Report<'_> {
    fn key(&self) -> String {
        let key = self.serve.key().expect("because the images are not off");
        key.to_string()
    }

    fn columns(&self) -> String {
        let counters = self.serve.counters();
        let (packed, compared) = (counters.columns_gathered, counters.columns_sampled);
        match self.args.full {
            true => format!("{packed} packed, {compared} compared, which is all"),
            false => {
                let seed = self.images.seed();
                format!("{packed} packed, {compared} compared (seed {seed:x})")
            }
        }
    }

    fn time(&self) -> String {
        let counters = self.serve.counters();
        let parts = [
            ("hash of the head", counters.head_hash_ns),
            ("read", counters.read_ns),
            ("compare", counters.sample_ns),
            ("pack", counters.pack_ns),
            ("write", counters.write_ns),
        ];
        let parts = parts.map(|(name, ns)| format!("{name} {}", units::duration_ns(ns)));
        let all = units::duration_ns(self.duration_ns);
        format!("{all}: {}", parts.join(", "))
    }

    fn text(&self, made: &Made) -> String {
        let counters = self.serve.counters();
        let mut text = String::new();
        for refusal in &made.refused {
            text += &image::line(&format!("refused: {refusal}"));
        }
        for removed in &made.removed {
            let bytes = units::bytes(removed.bytes);
            let (name, why) = (&removed.name, &removed.why);
            text += &image::line(&format!("removed: {name} ({bytes}): {why}"));
        }
        for problem in &made.problems {
            text += &image::line(&format!("owner: {problem}"));
        }
        let head = self.head;
        let rows = [
            ("image", self.key()),
            (
                "head",
                format!(
                    "{}{}, {}, {} rows of {} values",
                    head.name(),
                    if head.is_tied() { " (tied)" } else { "" },
                    head.ggml_type().name(),
                    head.vocabulary(),
                    head.width(),
                ),
            ),
            (
                "layout",
                format!(
                    "{}, {}",
                    self.geometry.order().layout().id(),
                    sizes_text(self.geometry)
                ),
            ),
            (
                "tiles",
                format!(
                    "{} of {} stored ({} each): {} found, {} written, {} replaced",
                    made.stored_count,
                    self.serve.tile_count(),
                    units::bytes(file_bytes(self.geometry)),
                    counters.tiles_hit,
                    counters.tiles_written,
                    counters.tiles_refused(),
                ),
            ),
            ("columns", self.columns()),
            (
                "bytes",
                format!(
                    "{} read, {} written, {} removed",
                    units::bytes(counters.bytes_read),
                    units::bytes(counters.bytes_written),
                    units::bytes(counters.bytes_removed),
                ),
            ),
            ("time", self.time()),
            ("folder", self.folder.display().to_string()),
            ("owner", self.owner.text().to_owned()),
        ];
        let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
        text + &table(&[Column::Left, Column::Left], &rows)
    }

    fn document(&self, made: &Made) -> Value {
        let counters = self.serve.counters();
        let TileSizes { kd, nd, kpad, t } = self.geometry.sizes();
        let refused = made.refused.iter().map(|refusal| {
            json!({
                "file": refusal.file.display().to_string(),
                "reason": refusal.code().name(),
                "text": refusal.to_string(),
            })
        });
        json!({
            "image": self.key(),
            "folder": self.folder.display().to_string(),
            "model": self.args.model.display().to_string(),
            "owner": self.owner.text(),
            "tensor": self.head.name(),
            "tied": self.head.is_tied(),
            "dtype": self.head.ggml_type().name(),
            "vocabulary": self.head.vocabulary(),
            "width": self.head.width(),
            "head_bytes": self.head.bytes(),
            "head_digest": self.source.head.digest.to_string(),
            "layout": self.geometry.order().layout().id(),
            "kd": kd,
            "nd": nd,
            "kpad": kpad,
            "t": t,
            "tile_count": self.serve.tile_count(),
            "tile_bytes": file_bytes(self.geometry),
            "full": self.args.full,
            "seed": self.images.seed(),
            "stored_count": made.stored_count,
            "hit_count": counters.tiles_hit,
            "packed_count": counters.tiles_packed,
            "written_count": counters.tiles_written,
            "refused": refused.collect::<Vec<_>>(),
            "removed": image::removed_document(&made.removed),
            "owner_problems": made.problems,
            "gathered_columns": counters.columns_gathered,
            "sampled_columns": counters.columns_sampled,
            "read_bytes": counters.bytes_read,
            "written_bytes": counters.bytes_written,
            "removed_bytes": counters.bytes_removed,
            "head_hash_ns": counters.head_hash_ns,
            "read_ns": counters.read_ns,
            "sample_ns": counters.sample_ns,
            "pack_ns": counters.pack_ns,
            "write_ns": counters.write_ns,
            "duration_ns": self.duration_ns,
        })
    }
}

fn say(line: &str) {
    answer::say(image::line(line));
}
