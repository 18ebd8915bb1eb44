//! `image verify`: are the stored tiles what was stored, or what a model packs to now?

use crate::answer::Answer;
use crate::bar::Bar;
use crate::failure::{Exit, Failure, quoted};
use crate::image::{self, Allowed};
use crate::image_look::{self, Image};
use crate::image_prepare::buffers;
use crate::image_source::{Found, Source, Stopped};
use crate::image_words::{ImageFolderArgs, ImageVerifyArgs};
use crate::places::{self, Lookup};
use packhouse_base::{Blame, units};
use packhouse_image::{
    Check, Folder, Header, ImageFault, Images, Mode, Outcome, Owner, Serve, Settings, TileError,
    verify_image,
};
use packhouse_layout::int8_tile::TileGeometry;
use packhouse_pack::Packers;
use packhouse_pack::int8_tile::Gather;
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use packhouse_sys::signal;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

/// Verifies images. The answer is negative when a tile is damaged or is not what the model packs
/// to; a tile that is not there is only counted.
pub(crate) fn verify(args: &ImageVerifyArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let path = places::images(args.folder.images.as_deref(), lookup)?;
    let keys = args.keys.iter().map(|key| image::digits(key, &args.folder));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    if args.model.is_some() && Allowed::of(lookup) == Allowed::Nothing {
        return Err(image::off());
    }
    let none = || {
        Failure::new("no images here yet", path.display())
            .cause("`packhouse image prepare`, or an engine that uses images, makes them")
            .hint(image::hint("prepare MODEL --kd N --t N", &args.folder))
    };
    let folder = image::open(&path)?.ok_or_else(none)?;
    let found = image_look::take(&folder)?;
    let images = image_look::groups(&found);
    if images.is_empty() {
        return Err(none());
    }
    let images = meant(images, &keys, &path, &args.folder)?;
    let threads = image::threads(args.threads);
    let _ = signal::catch_once();
    let verified = match &args.model {
        None => hash_all(args, &folder, &images, threads)?,
        Some(model) => compare_all(args, &path, model, &images, threads)?,
    };
    if !verified.faults.is_empty() && verified.faults.iter().all(|fault| !fault.is_damage) {
        return Err(
            Failure::new("cannot read all of the images", path.display())
                .cause(verified.faults[0].text.clone())
                .hint(format!("ls -la {}", quoted(&path))),
        );
    }
    let exit = match verified.faults.is_empty() {
        true => Exit::Done,
        false => Exit::Negative,
    };
    Ok(Answer {
        text: verified.text(args.model.as_deref()),
        json: verified.document(&path, args.model.as_deref()),
        exit,
    })
}

/// What was found of the images.
#[derive(Default)]
struct Verified {
    images: Vec<VerifiedImage>,
    faults: Vec<Fault>,
    /// Images that are of other heads, or by other packers.
    passed_over: Vec<(String, &'static str)>,
}

/// What was found of one image.
struct VerifiedImage {
    digits: String,
    good_count: u64,
    bad_count: u64,
    /// Tiles that the head has; `None` where no header says so.
    expected_count: Option<u64>,
    good_bytes: u64,
}

/// A tile that is not good.
struct Fault {
    text: String,
    /// Whether bytes are wrong; otherwise they could not be read.
    is_damage: bool,
}

/// The images that the keys mean; all where there are none.
fn meant<'a>(
    images: Vec<Image<'a>>,
    keys: &[&str],
    path: &Path,
    folder: &ImageFolderArgs,
) -> Result<Vec<Image<'a>>, Failure> {
    for key in keys {
        let count = images
            .iter()
            .filter(|image| image.digits.starts_with(key))
            .count();
        if count == 0 {
            return Err(Failure::new("no such image", key)
                .cause(format!("none in {} begins so", path.display()))
                .hint(image::hint("ls", folder)));
        }
        if count > 1 {
            return Err(Failure::usage("which image", key)
                .cause(format!("{count} images begin so"))
                .hint(image::hint("ls", folder)));
        }
    }
    let is_meant =
        |image: &Image<'_>| keys.is_empty() || keys.iter().any(|key| image.digits.starts_with(key));
    Ok(images.into_iter().filter(is_meant).collect())
}

/// Hashes every byte of every tile.
fn hash_all(
    args: &ImageVerifyArgs,
    folder: &Folder,
    images: &[Image<'_>],
    threads: NonZeroUsize,
) -> Result<Verified, Failure> {
    let bar = Bar::new();
    let tiles = images.iter().flat_map(|image| &image.tiles);
    bar.start("verify", tiles.map(|tile| tile.bytes).sum());
    let mut verified = Verified::default();
    for image in images {
        let mut of_image = VerifiedImage::new(image);
        for tile in &image.tiles {
            if signal::was_caught() {
                return Err(stopped(folder.path(), args));
            }
            match verify_image(folder, &tile.name, threads) {
                Ok(Some(found)) => {
                    of_image.good_count += 1;
                    of_image.good_bytes += found.bytes;
                }
                // Removed since it was listed.
                Ok(None) => {}
                Err(fault) => {
                    of_image.bad_count += 1;
                    verified.faults.push(Fault::of(&fault));
                }
            }
            bar.done(tile.bytes);
        }
        verified.images.push(of_image);
    }
    Ok(verified)
}

/// Packs every column of a model's head again and compares the tiles that are made of it.
fn compare_all(
    args: &ImageVerifyArgs,
    path: &Path,
    model: &Path,
    images: &[Image<'_>],
    threads: NonZeroUsize,
) -> Result<Verified, Failure> {
    let found = Found::open(model, args.tensor.as_deref())?;
    let geometries = images.iter().filter_map(|image| image.header());
    let tile_bytes = geometries.map(|header| 3 * header.payload_bytes());
    let bar = Bar::new();
    let tile_bytes = tile_bytes.max().unwrap_or(0);
    let source = found.read(tile_bytes, threads, &bar, &|| again(args))?;
    let settings = Settings {
        mode: Mode::ReadOnly,
        check: Check::Full,
        threads,
        ..Settings::new()
    };
    let folder = Images::open(Arc::new(RealFs), Arc::new(RealClock), Some(path), settings);
    let packers = Arc::new(Packers::detect());
    let mut verified = Verified::default();
    for image in images {
        let header = match image.header() {
            Some(header) if *header.head() == source.head => header,
            Some(_) => {
                verified.pass_over(image, "of another head");
                continue;
            }
            None => {
                let faults = image.tiles.iter();
                let faults = faults.filter_map(|tile| tile.header.as_ref().err());
                verified.faults.extend(faults.map(Fault::of));
                verified.images.push(VerifiedImage {
                    bad_count: image.tiles.len() as u64,
                    ..VerifiedImage::new(image)
                });
                continue;
            }
        };
        let geometry = *header.geometry();
        if packers.tile_fingerprint(geometry.order()) != *header.fingerprint() {
            verified.pass_over(image, "made by another packer");
            continue;
        }
        let owner = Owner::new("verify").expect("because it has a length");
        let serve = folder.serve(packers.clone(), source.head.clone(), geometry, owner);
        let serve = serve.expect("because a header of this head has these tiles");
        bar.start("compare", source.head.vocabulary * geometry.kpad());
        let of_image = compare(serve, &source, image, &geometry, &bar, &mut verified.faults)
            .map_err(|Stopped| stopped(path, args))?;
        verified.images.push(of_image);
    }
    if verified.images.is_empty() {
        return Err(Failure::new("no image of this head", model.display())
            .cause(format!(
                "{} in {} are of other heads or by other packers",
                verified.passed_over.len(),
                path.display()
            ))
            .hint(image::hint("ls", &args.folder)));
    }
    Ok(verified)
}

/// Compares the tiles of one image with what the head packs to.
fn compare(
    mut serve: Serve,
    source: &Source,
    image: &Image<'_>,
    geometry: &TileGeometry,
    bar: &Bar,
    faults: &mut Vec<Fault>,
) -> Result<VerifiedImage, Stopped> {
    let mut of_image = VerifiedImage::new(image);
    let (mut codes, mut scales) = buffers(geometry);
    let tell = || bar.done(geometry.kpad());
    let fill = source.gather(&tell);
    for tile in &image.tiles {
        if signal::was_caught() {
            return Err(Stopped);
        }
        let gather = Gather::Parallel(&fill);
        let kpad = geometry.kpad();
        let served = serve.tile(tile.name.tile(), kpad, gather, &mut codes, &mut scales);
        let served = match served {
            Ok(served) => served,
            Err(TileError::Gather(stopped)) => return Err(stopped),
            // Its name is of a tile that the head has not.
            Err(TileError::Request(refusal)) => {
                of_image.bad_count += 1;
                faults.push(Fault {
                    text: format!("{}: {refusal}", tile.name),
                    is_damage: true,
                });
                continue;
            }
        };
        match served.outcome {
            Outcome::Hit => {
                of_image.good_count += 1;
                of_image.good_bytes += tile.bytes;
            }
            Outcome::Packed { refused, .. } => {
                // Without a refusal it was removed since it was listed.
                if let Some(refusal) = refused {
                    of_image.bad_count += 1;
                    faults.push(Fault::of(&ImageFault::Refused(refusal)));
                }
            }
        }
    }
    Ok(of_image)
}

fn stopped(path: &Path, args: &ImageVerifyArgs) -> Failure {
    Failure::new("stopped", path.display()).hint(again(args))
}

/// The same command once more.
fn again(args: &ImageVerifyArgs) -> String {
    let mut words = "verify".to_owned();
    for key in &args.keys {
        words += &format!(" {key}");
    }
    if let Some(model) = &args.model {
        words += &format!(" --model {}", quoted(model));
    }
    if let Some(tensor) = &args.tensor {
        words += &format!(" --tensor {}", quoted(tensor));
    }
    image::hint(&words, &args.folder)
}

impl VerifiedImage {
    fn new(image: &Image<'_>) -> Self {
        Self {
            digits: image.digits.clone(),
            good_count: 0,
            bad_count: 0,
            expected_count: image.header().map(Header::tile_count),
            good_bytes: 0,
        }
    }

    fn absent_count(&self) -> u64 {
        let expected = self.expected_count.unwrap_or(0);
        expected.saturating_sub(self.good_count + self.bad_count)
    }
}

impl Fault {
    fn of(fault: &ImageFault) -> Self {
        Self {
            text: fault.to_string(),
            is_damage: fault.is_damage() || fault.blame() != Blame::Host,
        }
    }
}

impl Verified {
    fn pass_over(&mut self, image: &Image<'_>, why: &'static str) {
        self.passed_over.push((image.digits.clone(), why));
    }

    fn text(&self, model: Option<&Path>) -> String {
        let mut text = String::new();
        for fault in &self.faults {
            text += &image::line(&format!("bad: {}", fault.text));
        }
        let how = match model {
            None => "hashed",
            Some(_) => "packed again, every column",
        };
        for image in &self.images {
            let absent = match image.absent_count() {
                0 => String::new(),
                count => format!(", {count} not stored"),
            };
            let noun = if image.good_count == 1 {
                "tile"
            } else {
                "tiles"
            };
            text += &format!(
                "image {}: {} {noun} good, {} bad{absent}; {} {how}\n",
                short(&image.digits),
                image.good_count,
                image.bad_count,
                units::bytes(image.good_bytes),
            );
        }
        for (digits, why) in &self.passed_over {
            text += &format!("not compared: image {} is {why}\n", short(digits));
        }
        text
    }

    fn document(&self, path: &Path, model: Option<&Path>) -> Value {
        let images: Vec<Value> = self
            .images
            .iter()
            .map(|image| {
                json!({
                    "key_digits": image.digits,
                    "good_count": image.good_count,
                    "bad_count": image.bad_count,
                    "absent_count": image.absent_count(),
                    "good_bytes": image.good_bytes,
                })
            })
            .collect();
        let passed: Vec<Value> = self
            .passed_over
            .iter()
            .map(|(digits, why)| json!({"key_digits": digits, "why": why}))
            .collect();
        json!({
            "folder": path.display().to_string(),
            "model": model.map(|model| model.display().to_string()),
            "good": self.faults.is_empty(),
            "images": images,
            "faults": self.faults.iter().map(|fault| fault.text.as_str()).collect::<Vec<_>>(),
            "not_compared": passed,
        })
    }
}

fn short(digits: &str) -> &str {
    &digits[..SHOWN]
}

const SHOWN: usize = 12;
