//! `export`: a set as a bundle, or as another program's directory.

use crate::answer::Answer;
use crate::bar::Bar;
use crate::cli::ExportArgs;
use crate::failure::{Failure, quoted};
use crate::places::Lookup;
use crate::selection;
use crate::stores::{self, Purpose, short};
use crate::{folders, prepare};
use packhouse_base::digest::SetKey;
use packhouse_base::units;
use packhouse_prepare::beside::{BesideError, FileBeside};
use packhouse_prepare::bundle::{BundleDraft, ExportError, Exported};
use packhouse_prepare::foreign::ForeignFormat;
use packhouse_prepare::foreign::xe2_m6_v2::{
    self, ExportTargets, ForeignExport, ForeignExportError,
};
use packhouse_prepare::prepare::{Event, Phase, Progress as _};
use packhouse_store::root::Store;
use packhouse_sys::fs::{Dir, File};
use serde_json::json;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

/// Writes a set where the words say.
pub(crate) fn export(args: &ExportArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let known = args.format.as_deref().map(format_of).transpose()?;
    let store = stores::open(Purpose::Change, lookup)?;
    match (&args.bundle, known) {
        (Some(file), _) => {
            if let Some(folder) = &args.folder {
                return Err(Failure::usage("one word too many", folder.display())
                    .hint(format!("packhouse export --bundle {}", quoted(file))));
            }
            let set = stores::find_set(&store, args.set.as_deref())?;
            to_bundle(&store, set, file)
        }
        (None, Some(format)) => {
            let (set, folder) = set_and_folder(args, format.name())?;
            let set = stores::find_set(&store, set)?;
            match format {
                ForeignFormat::Xe2M6V2 => to_xe2(&store, set, &folder, args),
            }
        }
        (None, None) => Err(
            Failure::usage("export where", "neither --bundle nor --format")
                .hint("packhouse export --bundle FILE"),
        ),
    }
}

/// With `--format` the last word is the folder, and the set may be left out.
fn set_and_folder<'a>(
    args: &'a ExportArgs,
    format: &str,
) -> Result<(Option<&'a str>, PathBuf), Failure> {
    match (&args.set, &args.folder) {
        (set, Some(folder)) => Ok((set.as_deref(), folder.clone())),
        (Some(folder), None) => Ok((None, folder.into())),
        (None, None) => Err(Failure::usage("export where", "no folder")
            .hint(format!("packhouse export --format {format} DIR"))),
    }
}

pub(crate) fn format_of(name: &str) -> Result<ForeignFormat, Failure> {
    ForeignFormat::from_name(name).ok_or_else(|| {
        let known = ForeignFormat::ALL.map(ForeignFormat::name).join(", ");
        Failure::usage("no such format", name)
            .cause(format!("known are: {known}"))
            .hint("packhouse export --format xe2-m6-v2 DIR")
    })
}

fn to_bundle(store: &Store, set: SetKey, path: &Path) -> Result<Answer, Failure> {
    let draft = BundleDraft::new(store, set).map_err(|error| unwritten(set, path, &error))?;
    if path == Path::new("-") {
        let stdout = io::stdout().lock();
        if stdout.is_terminal() {
            return Err(Failure::usage("a bundle is no text for a terminal", "-")
                .hint("packhouse export --bundle FILE"));
        }
        let mut target = BufWriter::with_capacity(BUFFER_BYTES, stdout);
        let nothing = Answer::done(String::new(), serde_json::Value::Null);
        return match write(&draft, &mut target) {
            // A reader that went away has what it wanted.
            Err(ExportError::Write { source, .. })
                if source.kind() == io::ErrorKind::BrokenPipe =>
            {
                Ok(nothing)
            }
            Err(error) => Err(unwritten(set, path, &error)),
            Ok(_) => Ok(nothing),
        };
    }
    let unusable = |error: &io::Error| {
        Failure::new("cannot write the bundle", path.display())
            .because(error)
            .hint(format!("ls -la {}", quoted(parent_of(path))))
    };
    let (folder, name) = folders::split(path).map_err(|error| unusable(&error))?;
    let dir = folders::open(store.fs(), &folder).map_err(|error| unusable(&error))?;
    room(&dir, path, draft.bundle_bytes())?;
    let beside =
        FileBeside::create(store.fs(), &dir).map_err(|error| unusable(&io::Error::other(error)))?;
    let sink = FileSink {
        file: beside.file(),
        offset: 0,
    };
    let mut target = BufWriter::with_capacity(BUFFER_BYTES, sink);
    let exported = write(&draft, &mut target).map_err(|error| unwritten(set, path, &error))?;
    drop(target);
    beside.publish(&name).map_err(|error| taken(path, &error))?;
    let object_bytes = exported.contents.object_bytes();
    let text = format!(
        "set {}: {} packs, {} objects ({}) in {} ({})\n",
        short(&set),
        exported.contents.packs.len(),
        exported.contents.objects.len(),
        units::bytes(object_bytes),
        path.display(),
        units::bytes(exported.bundle_bytes),
    );
    let json = json!({
        "set": set.to_string(),
        "bundle": path.display().to_string(),
        "bundle_bytes": exported.bundle_bytes,
        "pack_count": exported.contents.packs.len(),
        "object_count": exported.contents.objects.len(),
        "object_bytes": object_bytes,
    });
    Ok(Answer::done(text, json))
}

fn write(draft: &BundleDraft<'_>, target: &mut dyn Write) -> Result<Exported, ExportError> {
    let bar = Bar::new();
    bar.begin(Phase::Copy, draft.bundle_bytes());
    let mut told = 0;
    draft.write(target, &mut |written| {
        let bytes = written - told;
        told = written;
        bar.hear(Event::Done { bytes });
    })
}

fn to_xe2(store: &Store, set: SetKey, folder: &Path, args: &ExportArgs) -> Result<Answer, Failure> {
    let path = match &args.model {
        Some(path) => path.clone(),
        None => used_model(store, set, folder)?,
    };
    let model = prepare::open_model(&path)?;
    let root = folder_at(store, folder)?;
    let stage = args.stage.as_deref();
    let stage = stage.map(|path| folder_at(store, path)).transpose()?;
    if let Some(stage) = stage.as_ref().filter(|stage| stage.path() == root.path()) {
        return Err(
            Failure::usage("--stage is the folder itself", stage.path().display())
                .cause("a stage has the same name as its set, so it needs a folder of its own")
                .hint("packhouse export --format xe2-m6-v2 DIR --stage OTHER"),
        );
    }
    let targets = ExportTargets {
        root: &root,
        stage: stage.as_ref(),
    };
    let bar = Bar::new();
    let mut told = 0;
    let exported = xe2_m6_v2::export(store, set, &model, targets, &mut |done, total| {
        if told == 0 {
            bar.begin(Phase::Copy, total);
        }
        bar.hear(Event::Done { bytes: done - told });
        told = done;
    });
    drop(bar);
    let exported = exported.map_err(|error| foreign_failure(set, &path, folder, &error))?;
    Ok(foreign_answer(set, &exported))
}

fn folder_at(store: &Store, path: &Path) -> Result<Dir, Failure> {
    folders::open_or_make(store.fs(), path).map_err(|error| {
        Failure::new("cannot write to the folder", path.display())
            .because(&error)
            .hint(format!("ls -la {}", quoted(parent_of(path))))
    })
}

fn foreign_answer(set: SetKey, exported: &ForeignExport) -> Answer {
    let stage = exported.stage_folder.as_ref();
    let stage_line = stage.map(|path| format!("stage in {}\n", path.display()));
    let text = format!(
        "set {}: {} tensors ({}) in {}\n{}runtime index {} bytes, FNV-1a 64 {:#018x}\n",
        short(&set),
        exported.tensor_count,
        units::bytes(exported.payload_bytes),
        exported.folder.display(),
        stage_line.unwrap_or_default(),
        exported.index_bytes,
        exported.index_fnv1a_64,
    );
    let json = json!({
        "set": set.to_string(),
        "format": ForeignFormat::Xe2M6V2.name(),
        "foreign_set": exported.set_key.to_string(),
        "folder": exported.folder.display().to_string(),
        "stage_folder": stage.map(|path| path.display().to_string()),
        "tensor_count": exported.tensor_count,
        "payload_bytes": exported.payload_bytes,
        "index_bytes": exported.index_bytes,
        "index_fnv1a_64": format!("{:#018x}", exported.index_fnv1a_64),
    });
    Answer::done(text, json)
}

/// The model that this user last used the set for.
fn used_model(store: &Store, set: SetKey, folder: &Path) -> Result<PathBuf, Failure> {
    let uses = store.use_log().ok().and_then(|log| log.read().ok());
    let last = uses.and_then(|uses| {
        let containers = uses.sets.get(&set)?.containers.iter();
        let last = containers.max_by_key(|(_, last_use_ns)| **last_use_ns)?;
        Some(last.0.clone())
    });
    last.ok_or_else(|| {
        let set = short(&set);
        Failure::usage("which model was the set made of", &set)
            .cause("nobody used it with a model here, and the format records offsets in the file")
            .hint(format!(
                "packhouse export {set} --format xe2-m6-v2 {} --model MODEL",
                quoted(folder)
            ))
    })
}

fn room(dir: &Dir, path: &Path, needed_bytes: u64) -> Result<(), Failure> {
    let available_bytes = match dir.fs_stat() {
        Ok(stat) => stat.free_bytes,
        // Who can't say may have room.
        Err(_) => return Ok(()),
    };
    if needed_bytes <= available_bytes {
        return Ok(());
    }
    Err(Failure::new("no room for the bundle", path.display())
        .cause(format!(
            "{} needed, {} available",
            units::bytes(needed_bytes),
            units::bytes(available_bytes)
        ))
        .hint(format!("df -h {}", quoted(parent_of(path)))))
}

fn unwritten(set: SetKey, path: &Path, error: &ExportError) -> Failure {
    let set = short(&set);
    let hint = match error {
        ExportError::Set(_)
        | ExportError::Pack { .. }
        | ExportError::Containers(_)
        | ExportError::NoContainer { .. }
        | ExportError::Object(_)
        | ExportError::Contents { .. } => format!("packhouse repair {set}"),
        ExportError::Write { .. } => format!("df -h {}", quoted(parent_of(path))),
    };
    Failure::new("cannot export the set", set)
        .because(error)
        .hint(hint)
}

fn taken(path: &Path, error: &BesideError) -> Failure {
    Failure::new("cannot write the bundle", path.display())
        .because(error)
        .hint(format!("ls -l {}", quoted(path)))
}

fn foreign_failure(
    set: SetKey,
    model: &Path,
    folder: &Path,
    error: &ForeignExportError,
) -> Failure {
    let short = short(&set);
    let hint = match error {
        ForeignExportError::Set(_)
        | ForeignExportError::Pack { .. }
        | ForeignExportError::Containers(_)
        | ForeignExportError::Object(_) => format!("packhouse repair {short}"),
        ForeignExportError::Layout { .. }
        | ForeignExportError::NoSlot { .. }
        | ForeignExportError::Empty { .. } => match selection::fits(model, XE2_PLAN) {
            true => format!("packhouse prepare {} --plan {XE2_PLAN}", quoted(model)),
            false => format!("packhouse plans {XE2_PLAN}"),
        },
        ForeignExportError::NoModelHash { .. } => {
            format!("packhouse prepare {} --plan {XE2_PLAN}", quoted(model))
        }
        ForeignExportError::Shards { .. } => "packhouse export --bundle FILE".to_owned(),
        ForeignExportError::OtherModel { .. } | ForeignExportError::OtherTensor { .. } => {
            format!(
                "packhouse export {short} --format xe2-m6-v2 {} --model MODEL",
                quoted(folder)
            )
        }
        ForeignExportError::Model(_) => format!("ls -l {}", quoted(model)),
        ForeignExportError::Room { .. } => format!("df -h {}", quoted(folder)),
        ForeignExportError::Beside(_) | ForeignExportError::Fs(_) => {
            format!("ls -la {}", quoted(folder))
        }
    };
    Failure::new("cannot export the set", short)
        .because(error)
        .hint(hint)
}

fn parent_of(path: &Path) -> PathBuf {
    folders::split(path).map_or_else(|_| path.to_owned(), |(parent, _)| parent)
}

/// A file that is written from its start to its end.
struct FileSink<'f> {
    file: &'f File,
    offset: u64,
}

impl Write for FileSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file
            .write_all_at(self.offset, bytes)
            .map_err(io::Error::other)?;
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const BUFFER_BYTES: usize = 1 << 20;
const XE2_PLAN: &str = "qwen27-xe2-m6";
