//! `image ls`: what is stored, one line per head and geometry.

use crate::answer::{Answer, Column, table};
use crate::failure::{Failure, quoted};
use crate::image;
use crate::image_words::ImageFolderArgs;
use crate::places::{self, Lookup};
use packhouse_base::units;
use packhouse_image::{Folder, Header, ImageListing, Inventory, inventory};
use packhouse_sys::clock::{Clock as _, RealClock};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Lists the images. Damaged ones are in the table, with what is wrong with them below it.
pub(crate) fn list(args: &ImageFolderArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let path = places::images(args.images.as_deref(), lookup)?;
    let Some(folder) = image::open(&path)? else {
        let text = image::line(&format!("no images in {}", path.display()));
        let json = json!({"folder": path.display().to_string(), "images": []});
        return Ok(Answer::done(text, json));
    };
    let found = take(&folder)?;
    let images = groups(&found);
    let now_ns = RealClock.wall_ns();
    Ok(Answer::done(
        text(&folder, &found, &images, now_ns),
        document(&folder, &found, &images),
    ))
}

/// All images that begin with the same key.
pub(crate) struct Image<'a> {
    /// The digits of the key that are in the names of its files.
    pub(crate) digits: String,
    /// Its tiles, by number.
    pub(crate) tiles: Vec<&'a ImageListing>,
}

impl<'a> Image<'a> {
    /// The header of the first tile that has one.
    pub(crate) fn header(&self) -> Option<&'a Header> {
        self.tiles.iter().find_map(|tile| tile.header.as_ref().ok())
    }

    /// The digits that tables show.
    pub(crate) fn short(&self) -> &str {
        &self.digits[..SHOWN]
    }

    fn intact_count(&self) -> usize {
        let tiles = self.tiles.iter();
        tiles.filter(|tile| tile.header.is_ok()).count()
    }

    fn bytes(&self) -> u64 {
        self.tiles.iter().map(|tile| tile.bytes).sum()
    }

    fn last_use_ns(&self) -> i64 {
        let uses = self.tiles.iter().map(|tile| tile.last_use_ns);
        uses.max().unwrap_or(0)
    }

    fn owners(&self) -> Vec<&'a str> {
        let owners = self.tiles.iter().flat_map(|tile| &tile.owners);
        let mut owners: Vec<&str> = owners.map(|owner| owner.text()).collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }
}

/// Lists a folder.
pub(crate) fn take(folder: &Folder) -> Result<Inventory, Failure> {
    inventory(folder, &RealClock).map_err(|error| {
        let path = folder.path();
        Failure::new("cannot list the images", path.display())
            .because(&error)
            .hint(format!("ls -la {}", quoted(path)))
    })
}

/// The images of a listing, by key.
pub(crate) fn groups(found: &Inventory) -> Vec<Image<'_>> {
    let mut groups: BTreeMap<String, Vec<&ImageListing>> = BTreeMap::new();
    for tile in &found.images {
        let name = tile.name.to_string();
        let digits = name.split('-').next().unwrap_or(&name);
        groups.entry(digits.to_owned()).or_default().push(tile);
    }
    let images = groups.into_iter();
    images
        .map(|(digits, tiles)| Image { digits, tiles })
        .collect()
}

fn text(folder: &Folder, found: &Inventory, images: &[Image<'_>], now_ns: i64) -> String {
    let words = [
        "image", "layout", "kd", "nd", "kpad", "t", "tiles", "rows", "type", "bytes", "used",
        "owner",
    ];
    let mut rows = vec![words.map(str::to_owned).to_vec()];
    rows.extend(images.iter().map(|image| row(image, now_ns)));
    let mut text = String::new();
    if !images.is_empty() {
        text += &table(&COLUMNS, &rows);
    }
    for fault in found
        .images
        .iter()
        .filter_map(|tile| tile.header.as_ref().err())
    {
        text += &image::line(&format!("damaged: {fault}"));
    }
    for fault in found
        .owners
        .iter()
        .filter_map(|owner| owner.record.as_ref().err())
    {
        text += &image::line(&format!("damaged: {fault}"));
    }
    for temp in &found.temps {
        let bytes = units::bytes(temp.bytes);
        let whose = match temp.is_young {
            true => "being written, or too young to tell",
            false => "left by a process that died",
        };
        text += &image::line(&format!("unfinished: {} ({bytes}), {whose}", temp.name));
    }
    for stray in &found.strays {
        text += &image::line(&format!("not ours: {} ({})", stray.name, stray.kind));
    }
    let count = match images.len() {
        1 => "1 image".to_owned(),
        count => format!("{count} images"),
    };
    let bytes = units::bytes(found.total_bytes());
    let folder = folder.path().display();
    text + &image::line(&format!("{count} in {folder}, {bytes} in all"))
}

const COLUMNS: [Column; 12] = [
    Column::Left,
    Column::Left,
    Column::Right,
    Column::Right,
    Column::Right,
    Column::Right,
    Column::Right,
    Column::Right,
    Column::Left,
    Column::Right,
    Column::Right,
    Column::Left,
];

fn row(image: &Image<'_>, now_ns: i64) -> Vec<String> {
    let size = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), |value| value.to_string());
    let header = image.header();
    let geometry = header.map(Header::geometry);
    let head = header.map(Header::head);
    let layout = geometry.map_or("?", |geometry| geometry.order().layout().id());
    let dtype = head.map_or_else(
        || "?".to_owned(),
        |head| match head.tied {
            true => format!("{}, tied", head.dtype),
            false => head.dtype.to_string(),
        },
    );
    let owners = image.owners();
    vec![
        image.short().to_owned(),
        layout.to_owned(),
        size(geometry.map(|geometry| geometry.kd())),
        size(geometry.map(|geometry| geometry.nd())),
        size(geometry.map(|geometry| geometry.kpad())),
        size(geometry.map(|geometry| geometry.t())),
        format!(
            "{}/{}",
            image.intact_count(),
            size(header.map(Header::tile_count))
        ),
        size(head.map(|head| head.vocabulary)),
        dtype,
        units::bytes(image.bytes()),
        ago(now_ns, image.last_use_ns()),
        if owners.is_empty() {
            "-".to_owned()
        } else {
            owners.into_iter().map(cut).collect::<Vec<_>>().join(", ")
        },
    ]
}

/// An owner as a table has room for it: of a long path the end says more.
fn cut(owner: &str) -> String {
    let surplus = owner.chars().count().saturating_sub(OWNER_CHARS);
    match surplus {
        0 => owner.to_owned(),
        _ => "..."
            .chars()
            .chain(owner.chars().skip(surplus + 3))
            .collect(),
    }
}

/// How long ago, to the unit that a use is known to. What is dated in the future is of no known
/// use.
fn ago(now_ns: i64, then_ns: i64) -> String {
    if then_ns == 0 {
        return "unknown".to_owned();
    }
    let hours = now_ns.saturating_sub(then_ns).max(0) / HOUR_NS;
    match hours {
        0 => "now".to_owned(),
        1..48 => format!("{hours} h"),
        _ => format!("{} d", hours / 24),
    }
}

fn document(folder: &Folder, found: &Inventory, images: &[Image<'_>]) -> Value {
    let images: Vec<Value> = images.iter().map(image_document).collect();
    let owners: Vec<String> = found
        .owners
        .iter()
        .filter_map(|owner| owner.record.as_ref().err())
        .map(ToString::to_string)
        .collect();
    let temps: Vec<Value> = found
        .temps
        .iter()
        .map(|temp| json!({"file": temp.name, "bytes": temp.bytes, "young": temp.is_young}))
        .collect();
    let strays: Vec<&str> = found
        .strays
        .iter()
        .map(|stray| stray.name.as_str())
        .collect();
    json!({
        "folder": folder.path().display().to_string(),
        "images": images,
        "damaged_owner_records": owners,
        "unfinished": temps,
        "not_ours": strays,
        "image_bytes": found.image_bytes(),
        "total_bytes": found.total_bytes(),
        "allocated_bytes": found.allocated_bytes(),
    })
}

fn image_document(image: &Image<'_>) -> Value {
    let damaged: Vec<Value> = image
        .tiles
        .iter()
        .filter_map(|tile| {
            let fault = tile.header.as_ref().err()?;
            Some(json!({"file": fault.file().display().to_string(), "text": fault.to_string()}))
        })
        .collect();
    let mut document = json!({
        "key_digits": image.digits,
        "tile_count": image.intact_count(),
        "damaged": damaged,
        "bytes": image.bytes(),
        "last_use_ns": image.last_use_ns(),
        "owners": image.owners(),
    });
    if let Some(header) = image.header() {
        let (geometry, head) = (header.geometry(), header.head());
        let fields = json!({
            "image": header.key().to_string(),
            "layout": geometry.order().layout().id(),
            "kd": geometry.kd(),
            "nd": geometry.nd(),
            "kpad": geometry.kpad(),
            "t": geometry.t(),
            "expected_tile_count": header.tile_count(),
            "tile_bytes": header.file_bytes(),
            "vocabulary": head.vocabulary,
            "width": head.width,
            "tied": head.tied,
            "dtype": head.dtype.text(),
            "head_digest": head.digest.to_string(),
            "fingerprint": header.fingerprint().to_string(),
        });
        let fields = fields.as_object().cloned().unwrap_or_default();
        let object = document.as_object_mut();
        object.expect("because it is an object").extend(fields);
    }
    document
}

const SHOWN: usize = 12;
const OWNER_CHARS: usize = 60;
const HOUR_NS: i64 = 3_600_000_000_000;
