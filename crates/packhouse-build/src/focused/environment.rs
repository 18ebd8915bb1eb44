//! The environment of a test run: what is inherited, by name, and what was given.
//!
//! Invariants:
//! - nothing is inherited but what the allow-list names; what was given wins;
//! - all of it takes part in the key, so another value is another key.

use super::words::lossless;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// The environment of all tests of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    given: BTreeMap<OsString, OsString>,
    inherited: BTreeMap<OsString, OsString>,
}

/// Why a variable can't be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// Not of the form NAME=VALUE.
    #[error("not NAME=VALUE: {}", text.display())]
    Form {
        /// As given.
        text: OsString,
    },
    /// Given twice.
    #[error("given twice: {}", name.display())]
    Twice {
        /// The name.
        name: OsString,
    },
    /// A variable by which we watch the loader.
    #[error("{}: this is how it is seen what a test loads", name.display())]
    Ours {
        /// The name.
        name: OsString,
    },
}

impl Environment {
    /// Takes of a whole environment what may be inherited, and adds what was given as NAME=VALUE.
    ///
    /// # Errors
    /// On a text of another form, a name given twice, and names that the run itself sets.
    pub fn new(whole: &[(OsString, OsString)], given: &[OsString]) -> Result<Self, VariableError> {
        let mut environment = Self::default();
        for text in given {
            let (name, value) = split(text)?;
            if OURS.iter().any(|ours| name == *ours) {
                return Err(VariableError::Ours { name });
            }
            if environment.given.insert(name.clone(), value).is_some() {
                return Err(VariableError::Twice { name });
            }
        }
        for (name, value) in whole {
            if is_inherited(name) && !environment.given.contains_key(name) {
                environment.inherited.insert(name.clone(), value.clone());
            }
        }
        Ok(environment)
    }

    /// All variables, by name.
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        let mut all = self.inherited.clone();
        all.extend(self.given.clone());
        all.into_iter().collect()
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        let name = OsStr::new(name);
        let value = self.given.get(name).or_else(|| self.inherited.get(name));
        value.map(OsString::as_os_str)
    }

    /// Both halves, as they are in the key.
    pub(super) fn to_value(&self) -> Value {
        let half = |variables: &BTreeMap<OsString, OsString>| -> Value {
            let pairs = variables
                .iter()
                .map(|(name, value)| (lossless(name), Value::String(lossless(value))));
            Value::Object(pairs.collect())
        };
        json!({"given": half(&self.given), "inherited": half(&self.inherited)})
    }
}

fn split(text: &OsStr) -> Result<(OsString, OsString), VariableError> {
    let bytes = text.as_bytes();
    let equals = bytes.iter().position(|byte| *byte == b'=');
    match equals {
        Some(at) if at > 0 => Ok((
            OsStr::from_bytes(&bytes[..at]).to_owned(),
            OsStr::from_bytes(&bytes[at + 1..]).to_owned(),
        )),
        Some(_) | None => Err(VariableError::Form {
            text: text.to_owned(),
        }),
    }
}

fn is_inherited(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    bytes.starts_with(b"LC_") || INHERITED.iter().any(|word| bytes == word.as_bytes())
}

/// Names that are inherited, and all that begin with `LC_`.
pub const INHERITED: [&str; 21] = [
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "GGML_VK_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "HOME",
    "HSA_OVERRIDE_GFX_VERSION",
    "LANG",
    "LD_LIBRARY_PATH",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
    "OCL_ICD_VENDORS",
    "ONEAPI_DEVICE_SELECTOR",
    "PATH",
    "ROCR_VISIBLE_DEVICES",
    "TMPDIR",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "ZE_AFFINITY_MASK",
    "ZE_ENABLE_PCI_ID_DEVICE_ORDER",
    "ZE_FLAT_DEVICE_HIERARCHY",
];

/// Names that a run sets itself.
const OURS: [&str; 2] = [super::loaded::DEBUG, super::loaded::DEBUG_OUTPUT];

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        let own = |(name, value): &(&str, &str)| (name.into(), value.into());
        list.iter().map(own).collect()
    }

    #[test]
    fn only_listed_names_are_inherited_and_what_is_given_wins() {
        let whole = pairs(&[
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("LD_PRELOAD", "/x.so"),
            ("SECRET", "s"),
            ("LANG", "de"),
        ]);
        let given = ["LANG=C".into(), "A=b=c".into(), "EMPTY=".into()];
        let environment = Environment::new(&whole, &given).expect("because all is well formed");
        let expected = pairs(&[
            ("A", "b=c"),
            ("EMPTY", ""),
            ("LANG", "C"),
            ("LC_ALL", "C"),
            ("PATH", "/bin"),
        ]);
        assert_eq!(environment.variables(), expected);
        assert_eq!(environment.get("LANG"), Some(OsStr::new("C")));
        let value = environment.to_value();
        assert_eq!(value["inherited"], json!({"LC_ALL": "C", "PATH": "/bin"}));
        let given = json!({"A": "b=c", "EMPTY": "", "LANG": "C"});
        assert_eq!(value["given"], given);
    }

    #[test]
    fn what_is_no_variable_is_named() {
        for (given, said) in [
            (vec!["A"], "not NAME=VALUE: A"),
            (vec!["=b"], "not NAME=VALUE: =b"),
            (vec!["A=1", "A=2"], "given twice: A"),
            (
                vec!["LD_DEBUG=all"],
                "LD_DEBUG: this is how it is seen what a test loads",
            ),
        ] {
            let given: Vec<OsString> = given.into_iter().map(OsString::from).collect();
            let error = Environment::new(&[], &given).expect_err(said);
            assert_eq!(error.to_string(), said);
        }
    }
}
