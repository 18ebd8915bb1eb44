//! Where the store, the private state and the plug-in are, from the environment.

use crate::failure::Failure;
use crate::files::open_regular;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The environment as an argument: tests bring their own.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The folders that commands work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// The store's root.
    pub(crate) store: PathBuf,
    /// What this user has verified, seen and used.
    pub(crate) state: PathBuf,
}

/// The process's own environment; an empty variable counts as unset.
#[expect(
    clippy::disallowed_methods,
    reason = "the CLI translates the environment"
)]
pub(crate) fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The process's whole environment, empty variables too.
#[expect(
    clippy::disallowed_methods,
    reason = "the CLI translates the environment"
)]
pub(crate) fn whole_environment() -> Vec<(OsString, OsString)> {
    std::env::vars_os().collect()
}

impl Places {
    /// Finds both folders. Errors name the variables that are unset or relative.
    pub(crate) fn find(lookup: Lookup<'_>) -> Result<Self, Failure> {
        let given = lookup("PACKHOUSE_STORE").map(PathBuf::from);
        let xdg = || absolute(lookup("XDG_CACHE_HOME")).map(|folder| folder.join("packhouse"));
        let home = || absolute(lookup("HOME")).map(|home| home.join(".cache/packhouse"));
        let store = given.or_else(xdg).or_else(home).ok_or_else(|| {
            Failure::new("no folder for the store", "PACKHOUSE_STORE is unset")
                .cause("XDG_CACHE_HOME and HOME are unset too, or no absolute paths")
                .hint("export PACKHOUSE_STORE=/var/cache/packhouse")
        })?;
        if store.is_relative() {
            return Err(
                Failure::new("the store's folder is a relative path", store.display())
                    .cause("PACKHOUSE_STORE must be absolute: engines change their working folder")
                    .hint("export PACKHOUSE_STORE=\"$PWD/store\""),
            );
        }
        let state = state(lookup)?;
        Ok(Self { store, state })
    }
}

/// The folder of private state. There is no variable of ours for it: it is private to the user,
/// like their home.
pub(crate) fn state(lookup: Lookup<'_>) -> Result<PathBuf, Failure> {
    let xdg = absolute(lookup("XDG_STATE_HOME")).map(|folder| folder.join("packhouse"));
    let home = || absolute(lookup("HOME")).map(|home| home.join(".local/state/packhouse"));
    xdg.or_else(home).ok_or_else(|| {
        Failure::new("no folder for private state", "XDG_STATE_HOME is unset")
            .cause("HOME is unset too, or no absolute path")
            .hint("export XDG_STATE_HOME=/var/lib/packhouse")
    })
}

/// The folder of head-tile images: as given, else of the environment, else in the user's cache.
pub(crate) fn images(given: Option<&Path>, lookup: Lookup<'_>) -> Result<PathBuf, Failure> {
    cached("image", "PACKHOUSE_IMAGES", given, lookup)
}

/// The folder of golden fixtures: as given, else of the environment, else in the user's cache.
pub(crate) fn fixtures(given: Option<&Path>, lookup: Lookup<'_>) -> Result<PathBuf, Failure> {
    cached("fixture", "PACKHOUSE_FIXTURES", given, lookup)
}

/// The folder of all of a thing, which its command's option and a variable name.
fn cached(
    thing: &str,
    variable: &str,
    given: Option<&Path>,
    lookup: Lookup<'_>,
) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return std::path::absolute(given).map_err(|error| {
            Failure::usage(format!("not a folder for {thing}s"), given.display())
                .because(&error)
                .hint(format!("packhouse {thing} ls --{thing}s DIR"))
        });
    }
    let own = lookup(variable).map(PathBuf::from);
    let leaf = format!("packhouse/{thing}s");
    let xdg = || absolute(lookup("XDG_CACHE_HOME")).map(|folder| folder.join(&leaf));
    let home = || absolute(lookup("HOME")).map(|home| home.join(".cache").join(&leaf));
    let folder = own.or_else(xdg).or_else(home).ok_or_else(|| {
        Failure::new(
            format!("no folder for {thing}s"),
            format!("{variable} is unset"),
        )
        .cause("XDG_CACHE_HOME and HOME are unset too, or no absolute paths")
        .hint(format!("export {variable}=/var/cache/packhouse/{thing}s"))
    })?;
    if folder.is_relative() {
        let what = format!("the folder of {thing}s is a relative path");
        return Err(Failure::new(what, folder.display())
            .cause(format!(
                "{variable} must be absolute: engines change their working folder"
            ))
            .hint(format!("export {variable}=\"$PWD/{thing}s\"")));
    }
    Ok(folder)
}

/// The folder of the user's own plans; `None` without a home.
pub(crate) fn plans(lookup: Lookup<'_>) -> Option<PathBuf> {
    let home = || absolute(lookup("HOME")).map(|home| home.join(".config"));
    let config = absolute(lookup("XDG_CONFIG_HOME")).or_else(home)?;
    Some(config.join("packhouse/plans"))
}

/// The user's fleet file; `None` without a home.
pub(crate) fn fleet_file(lookup: Lookup<'_>) -> Option<PathBuf> {
    let home = || absolute(lookup("HOME")).map(|home| home.join(".config"));
    let config = absolute(lookup("XDG_CONFIG_HOME")).or_else(home)?;
    Some(config.join("packhouse/fleet.toml"))
}

/// Finds the plug-in: `PACKHOUSE_PLUGIN`, else beside the binary, else in `lib` beside the binary's
/// folder. Errors list where it was sought.
pub(crate) fn plugin(lookup: Lookup<'_>, binary: &Path) -> Result<PathBuf, Failure> {
    let binary_folder = binary.parent().unwrap_or(Path::new("/"));
    let library_folder = binary_folder.parent().unwrap_or(Path::new("/")).join("lib");
    let candidates = match lookup("PACKHOUSE_PLUGIN") {
        Some(given) => vec![PathBuf::from(given)],
        None => vec![
            binary_folder.join("libggml-packhouse.so"),
            library_folder.join("libggml-packhouse.so"),
            // The name that cargo gives it in its own folder.
            binary_folder.join("libpackhouse_ggml.so"),
        ],
    };
    let mut failure = Failure::new("no plug-in found", candidates[0].display());
    for candidate in &candidates {
        match open_regular(candidate).and_then(|_| std::path::absolute(candidate)) {
            Ok(path) => return Ok(path),
            Err(error) => {
                failure = failure.cause(format!("{}: {error}", candidate.display()));
            }
        }
    }
    Err(failure.hint("export PACKHOUSE_PLUGIN=/path/to/libggml-packhouse.so"))
}

fn absolute(value: Option<OsString>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(pairs: &[(&str, &str)]) -> Result<(String, String), String> {
        let lookup = |name: &str| {
            let (_, value) = pairs.iter().find(|(key, _)| *key == name)?;
            Some(OsString::from(value))
        };
        let text = |path: PathBuf| path.display().to_string();
        let found = Places::find(&lookup).map_err(|failure| failure.to_string())?;
        Ok((text(found.store), text(found.state)))
    }

    #[test]
    fn each_variable_is_asked_in_its_order() {
        let all = [
            ("PACKHOUSE_STORE", "/s"),
            ("XDG_CACHE_HOME", "/c"),
            ("XDG_STATE_HOME", "/t"),
            ("HOME", "/h"),
        ];
        let pair = |store: &str, state: &str| Ok((store.to_owned(), state.to_owned()));
        assert_eq!(places(&all), pair("/s", "/t/packhouse"));
        assert_eq!(places(&all[1..]), pair("/c/packhouse", "/t/packhouse"));
        let home = pair("/h/.cache/packhouse", "/h/.local/state/packhouse");
        assert_eq!(places(&all[3..]), home);
        let relative = [
            ("XDG_CACHE_HOME", "c"),
            ("XDG_STATE_HOME", "t"),
            ("HOME", "/h"),
        ];
        assert_eq!(places(&relative), home);
    }

    #[test]
    fn what_is_unset_is_named() {
        let said = places(&[]).expect_err("because nothing is set");
        assert!(
            said.contains("PACKHOUSE_STORE") && said.contains("HOME"),
            "{said}"
        );
        let said = places(&[("PACKHOUSE_STORE", "/s")]).expect_err("because state has no place");
        assert!(
            said.contains("XDG_STATE_HOME") && said.contains("HOME"),
            "{said}"
        );
        let said = places(&[("PACKHOUSE_STORE", "s"), ("HOME", "/h")]);
        assert!(
            said.expect_err("because it is relative")
                .contains("relative path: s")
        );
    }

    #[test]
    fn images_are_where_they_are_said_to_be_else_in_the_cache() {
        let images = |given: Option<&str>, pairs: &[(&str, &str)]| {
            let lookup = |name: &str| {
                let (_, value) = pairs.iter().find(|(key, _)| *key == name)?;
                Some(OsString::from(value))
            };
            let found = super::images(given.map(Path::new), &lookup);
            let text = |path: PathBuf| path.display().to_string();
            found.map(text).map_err(|failure| failure.to_string())
        };
        let all = [
            ("PACKHOUSE_IMAGES", "/i"),
            ("XDG_CACHE_HOME", "/c"),
            ("HOME", "/h"),
        ];
        assert_eq!(images(Some("/g"), &all), Ok("/g".to_owned()));
        assert_eq!(images(None, &all), Ok("/i".to_owned()));
        assert_eq!(
            images(None, &all[1..]),
            Ok("/c/packhouse/images".to_owned())
        );
        let home = Ok("/h/.cache/packhouse/images".to_owned());
        assert_eq!(images(None, &all[2..]), home);
        assert_eq!(
            images(None, &[("XDG_CACHE_HOME", "c"), ("HOME", "/h")]),
            home
        );
        let said = images(None, &[]).expect_err("because there is no home");
        assert!(
            said.contains("PACKHOUSE_IMAGES is unset") && said.contains("HOME"),
            "{said}"
        );
        let said = images(None, &[("PACKHOUSE_IMAGES", "i"), ("HOME", "/h")]);
        let said = said.expect_err("because it is relative");
        assert!(said.contains("relative path: i"), "{said}");
    }
}
