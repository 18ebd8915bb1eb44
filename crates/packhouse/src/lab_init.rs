//! `lab init`: a folder becomes a lab.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::lab::{LEDGER, Place};
use crate::lab_open::{Opened, Told};
use crate::lab_words::LabInitArgs;
use crate::places::Lookup;
use crate::{folders, hints, lab_templates};
use packhouse_bag::write_new::open_or_make_dir;
use packhouse_base::digest::Digest;
use packhouse_lab::world::Host as _;
use packhouse_ledger::act::Genesis;
use packhouse_ledger::writer::{Writer, WriterError};
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::fs::{Dir, FsError};
use packhouse_sys::real::RealFs;
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};

/// Makes a folder a lab.
pub(crate) fn execute(
    args: &LabInitArgs,
    given: Option<&Path>,
    lookup: Lookup<'_>,
) -> Result<Answer, Failure> {
    let folder = folder(args, given)?;
    if folder
        .join(LEDGER)
        .symlink_metadata()
        .is_ok_and(|stat| stat.len() > 0)
    {
        return Err(Failure::new("a lab already", folder.display())
            .cause(format!("{LEDGER} is there, and nothing was written"))
            .hint(format!("packhouse lab state --lab {}", quoted(&folder))));
    }
    let name = name(args, &folder)?;
    let mut lines = vec![
        format!("{}: the lab {name:?}", folder.display()),
        format!("{LEDGER}: its first entry, with a random id"),
        format!("lanes/{EXAMPLE}.toml, experiments/{EXAMPLE}/prereg.toml: to edit"),
        ".gitignore: rehearsals and locks".to_owned(),
    ];
    let above = folder
        .ancestors()
        .skip(1)
        .find(|above| above.join(LEDGER).symlink_metadata().is_ok());
    lines.extend(above.map(|above| {
        let above = above.display();
        format!(
            "{above} is a lab, and this is another one inside of it: commands here take this one"
        )
    }));
    let told = Told {
        lines,
        irreversible: "the lab's name and id are the ledger's first entry for ever",
        json: json!({ "folder": folder.display().to_string(), "name": name }),
    };
    if !args.execute {
        let named = match &args.name {
            Some(name) => format!(" --name {}", quoted(name)),
            None => String::new(),
        };
        let command = format!("packhouse lab init {}{named} --execute", quoted(&folder));
        return Ok(told.planned(&command));
    }
    let dir = folders::open_or_make(&RealFs, &folder).map_err(|error| unusable(&folder, &error))?;
    let place = Place::at(folder, lookup)?;
    let opened = Opened::at(&place, dir)?;
    let mut kept = templates(&opened.root).map_err(|error| {
        Failure::new("cannot write the lab's documents", place.root.display())
            .because(&error)
            .hint(hints::of(&error, &place.root))
    })?;
    begin(&opened, &name)?;
    let mut told = told;
    kept.sort();
    told.lines.extend(
        kept.iter()
            .map(|path| format!("{path}: was there, and stays as it is")),
    );
    let mut answer = told.done();
    answer.text += &format!(
        "next: edit lanes/{EXAMPLE}.toml, then {}\n",
        place.hint(&format!("lane open {EXAMPLE} --reason TEXT --execute"))
    );
    Ok(answer)
}

/// Enters the first entry: the last step, so that what was stopped before it is begun again.
fn begin(opened: &Opened<'_>, name: &str) -> Result<(), Failure> {
    let said = |error: &(dyn std::error::Error + 'static)| {
        Failure::new("the lab was not begun", opened.place.root.display()).because(error)
    };
    let id = opened.host.random32().map_err(|error| said(&error))?;
    let boot = opened.host.boot_id().map_err(|error| said(&error))?;
    let genesis = Genesis {
        lab: name.to_owned(),
        id: Digest::from_bytes(id),
    };
    let begun = Writer::init(
        &opened.root,
        &RealClock,
        genesis,
        RealClock.wall_ns(),
        &boot,
    );
    begun.map(|_| ()).map_err(|error| match error {
        WriterError::Exists { path } => Failure::new("a lab already", path.display())
            .cause("another process began it meanwhile".to_owned())
            .hint(opened.place.hint("state")),
        other => opened.not_appended(&other),
    })
}

/// Writes the documents to edit. What is there already stays; its paths are the answer.
fn templates(root: &Dir) -> Result<Vec<String>, FsError> {
    let mut kept = Vec::new();
    let lane = lab_templates::lane(EXAMPLE);
    let prereg = lab_templates::prereg(EXAMPLE, EXAMPLE);
    let lanes = open_or_make_dir(root, "lanes")?;
    let experiment = open_or_make_dir(&open_or_make_dir(root, "experiments")?, EXAMPLE)?;
    let lane_file = format!("{EXAMPLE}.toml");
    let documents = [
        (
            &lanes,
            lane_file.as_str(),
            lane.as_str(),
            format!("lanes/{lane_file}"),
        ),
        (
            &experiment,
            "prereg.toml",
            prereg.as_str(),
            format!("experiments/{EXAMPLE}/prereg.toml"),
        ),
        (
            root,
            ".gitignore",
            lab_templates::IGNORED,
            ".gitignore".to_owned(),
        ),
    ];
    for (dir, name, text, path) in documents {
        if !lab_templates::place(dir, name, text)? {
            kept.push(path);
        }
    }
    Ok(kept)
}

fn folder(args: &LabInitArgs, given: Option<&Path>) -> Result<PathBuf, Failure> {
    let folder = match (&args.folder, given) {
        (Some(folder), Some(given)) => {
            let both = format!("{} and {}", folder.display(), given.display());
            return Err(Failure::usage("two folders", both).hint("packhouse lab init DIR"));
        }
        (Some(folder), None) => folder.as_path(),
        (None, Some(given)) => given,
        (None, None) => Path::new("."),
    };
    let absolute = std::path::absolute(folder);
    let absolute = absolute.map_err(|error| unusable(folder, &error))?;
    if absolute.symlink_metadata().is_ok()
        && let Err(error) = crate::files::entries(&absolute)
    {
        return Err(match error.kind() {
            io::ErrorKind::NotADirectory => Failure::usage("not a folder", absolute.display())
                .hint(format!("ls -ld {}", quoted(&absolute))),
            _ => unusable(&absolute, &error),
        });
    }
    Ok(absolute)
}

fn name(args: &LabInitArgs, folder: &Path) -> Result<String, Failure> {
    let own = folder.file_name().and_then(|name| name.to_str());
    let name = args.name.as_deref().or(own).unwrap_or_default().trim();
    if !name.is_empty() {
        return Ok(name.to_owned());
    }
    let cause = match args.name {
        Some(_) => "--name: there must be a word",
        None => "its folder's name is none",
    };
    let hint = format!("packhouse lab init {} --name TEXT", quoted(folder));
    Err(Failure::usage("no name for the lab", folder.display())
        .cause(cause)
        .hint(hint))
}

fn unusable(folder: &Path, error: &io::Error) -> Failure {
    Failure::new("cannot use the folder", folder.display())
        .because(error)
        .hint(hints::of(error, folder))
}

/// The id of the lane and of the experiment that are there to edit.
const EXAMPLE: &str = "example";
