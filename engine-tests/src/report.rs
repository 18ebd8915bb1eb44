//! What the plug-in says about a load: its lines on stderr and its report files.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A number of tensors and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Tensors.
    pub tensors: u64,
    /// Bytes of their packs.
    pub bytes: u64,
}

/// One load as its report tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Load {
    /// Served from the store or a stage.
    pub mapped: Count,
    /// Of these, from a stage.
    pub staged: Count,
    /// Why stages were not used, by reason.
    pub stage_refused: BTreeMap<String, u64>,
    /// Packed by the engine.
    pub packed: Count,
    /// Why stored packs were not used, by reason.
    pub refused: BTreeMap<String, Count>,
    /// Groups compared with live weights.
    pub samples: u64,
    /// Bytes of the source that were touched.
    pub source_bytes_read: u64,
    /// `running` until the fill has ended, also before it began.
    pub fill: String,
}

impl Load {
    /// All refused tensors.
    pub fn refused_tensors(&self) -> u64 {
        self.refused.values().map(|count| count.tensors).sum()
    }

    /// All tensors that the engine would have packed.
    pub fn tensors(&self) -> u64 {
        self.mapped.tensors + self.packed.tensors
    }

    /// Fails unless every tensor was mapped and none refused.
    pub fn assert_hit(&self) {
        assert!(self.mapped.tensors > 0, "nothing was mapped: {self:?}");
        assert_eq!(
            self.packed.tensors, 0,
            "something was packed again: {self:?}"
        );
        assert_eq!(self.refused_tensors(), 0, "something was refused: {self:?}");
    }

    /// Fails unless every tensor was packed and none refused.
    pub fn assert_miss(&self) {
        assert!(self.packed.tensors > 0, "nothing was packed: {self:?}");
        assert_eq!(self.mapped.tensors, 0, "something was mapped: {self:?}");
        assert_eq!(self.refused_tensors(), 0, "something was refused: {self:?}");
    }
}

/// The plug-in's lines in an engine's output.
pub fn lines(log: &str) -> Vec<String> {
    log.lines()
        .filter(|line| line.starts_with("packhouse: "))
        .map(str::to_owned)
        .collect()
}

/// The lines that announce a load: exactly one per load.
pub fn load_lines(log: &str) -> Vec<String> {
    lines(log)
        .into_iter()
        .filter(|line| line.contains(" tensors mapped"))
        .collect()
}

/// The newest load in a report folder, if its report is whole.
pub fn last(folder: &Path) -> Option<Load> {
    let number = |path: &Path| -> Option<u64> {
        path.file_stem()?.to_str()?.rsplit('-').next()?.parse().ok()
    };
    let newest = fs::read_dir(folder)
        .expect("the sandbox is readable")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .max_by_key(|path| number(path))?;
    parse(&serde_json::from_str(&fs::read_to_string(newest).ok()?).ok()?)
}

fn parse(value: &Value) -> Option<Load> {
    let count = |value: &Value| -> Option<Count> {
        Some(Count {
            tensors: value["tensors"].as_u64()?,
            bytes: value["bytes"].as_u64()?,
        })
    };
    let tally = &value["tally"];
    let refused = tally["refused"].as_object()?;
    Some(Load {
        mapped: count(&tally["mapped"])?,
        staged: count(&tally["staged"])?,
        stage_refused: tally["stage_refused"]
            .as_object()?
            .iter()
            .map(|(reason, number)| Some((reason.clone(), number.as_u64()?)))
            .collect::<Option<_>>()?,
        packed: count(&tally["packed"])?,
        refused: refused
            .iter()
            .map(|(reason, value)| Some((reason.clone(), count(value)?)))
            .collect::<Option<_>>()?,
        samples: tally["samples"]["taken"].as_u64()?,
        source_bytes_read: tally["source_bytes_read"].as_u64()?,
        fill: value["fill"]["state"]
            .as_str()
            .unwrap_or("running")
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_report() {
        let text = r#"{"tally":{"mapped":{"tensors":2,"bytes":64},
            "staged":{"tensors":1,"bytes":32},"stage_refused":{"stale":1},
            "packed":{"tensors":1,"bytes":32},
            "refused":{"digest":{"tensors":1,"bytes":32}},"samples":{"taken":16},
            "source_bytes_read":9},
            "fill":{"state":"running"}}"#;
        let load = parse(&serde_json::from_str(text).expect("valid")).expect("complete");
        assert_eq!(
            (load.tensors(), load.refused_tensors(), load.samples),
            (3, 1, 16)
        );
        assert_eq!((load.staged.tensors, load.stage_refused["stale"]), (1, 1));
        assert_eq!(load.fill, "running");
    }

    #[test]
    fn tells_load_lines_from_others() {
        let log = "x\npackhouse: 3 tensors mapped (1 MiB), 0 packed\npackhouse: stored 1 packs\n";
        assert_eq!((lines(log).len(), load_lines(log).len()), (2, 1));
    }
}
