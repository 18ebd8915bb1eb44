//! What each mask variable says, as a list of selectors.
//!
//! Invariants:
//! - what a runtime might read in more than one way is `NotUnderstood`, with the reason;
//! - a variable that is unset is another thing than one that is empty, and what empty means
//!   differs: nothing for CUDA and ROCr, everything for HIP and Level Zero.
//!
//! Never: looks at devices. Sources of the rules: `docs/design/holders.md`.

use std::collections::BTreeSet;
use std::ffi::OsStr;

/// Which devices a variable lets a runtime see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All: the variable is unset, or says so.
    All,
    /// None.
    Nothing,
    /// These, in this order.
    Some(Vec<Selector>),
    /// It may be any: the reason.
    NotUnderstood(String),
}

/// One entry of a mask.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Selector {
    /// The n-th device of what the runtime enumerates, or a part of it: no mask takes a part
    /// without its device.
    Ordinal(u32),
    /// A UUID with its prefix, `GPU-` or `MIG-`, or its first characters; small letters after the
    /// prefix.
    Uuid(String),
}

/// What `ONEAPI_DEVICE_SELECTOR` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OneApi {
    /// All devices of all back ends.
    All,
    /// What any of the first accepts and none of the second discards. No accepting term accepts
    /// all.
    Terms {
        /// Accepting terms.
        accept: Vec<Term>,
        /// Discarding terms.
        discard: Vec<Term>,
    },
    /// It may be any: the reason.
    NotUnderstood(String),
}

/// One term: a back end and devices of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The back end in small letters, or `*`.
    pub backend: String,
    /// Which of its devices.
    pub devices: Vec<TermDevice>,
}

/// One device, or kind of devices, of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermDevice {
    /// All of them.
    All,
    /// All cards.
    Gpu,
    /// CPUs, FPGAs and the like: no cards.
    NoGpu,
    /// The n-th.
    Ordinal(u32),
    /// A part of the n-th, or all parts of it.
    PartOf(u32),
    /// All parts of all.
    AllParts,
}

/// Parses `CUDA_VISIBLE_DEVICES`.
pub fn cuda(value: Option<&OsStr>) -> Mask {
    let text = match plain(value) {
        Ok(None) => return Mask::All,
        Ok(Some(text)) => text,
        Err(why) => return Mask::NotUnderstood(why),
    };
    // Slurm says so where it gave a job no card.
    if text.is_empty() || text == "NoDevFiles" {
        return Mask::Nothing;
    }
    let mask = listed(text, &[GPU, MIG], Case::Exact);
    // By its documentation one form only; what it does with both is not told.
    if let Mask::Some(selectors) = &mask {
        let ordinals = selectors.iter().filter(|selector| selector.is_ordinal());
        let count = ordinals.count();
        if count != 0 && count != selectors.len() {
            return Mask::NotUnderstood(format!("{text:?} mixes ordinals and UUIDs"));
        }
    }
    mask
}

/// Parses `ROCR_VISIBLE_DEVICES`.
pub fn rocr(value: Option<&OsStr>) -> Mask {
    match plain(value) {
        Ok(None) => Mask::All,
        Ok(Some("")) => Mask::Nothing,
        Ok(Some(text)) => listed(text, &[GPU], Case::Any),
        Err(why) => Mask::NotUnderstood(why),
    }
}

/// Parses `HIP_VISIBLE_DEVICES`, or what stands in for it: its runtime takes an empty value as
/// unset, and some of its versions take neither UUIDs nor blanks.
pub fn hip(value: Option<&OsStr>) -> Mask {
    match plain(value) {
        Ok(Some(text)) if has_blanks(value) => Mask::NotUnderstood(format!("{text:?} has blanks")),
        Ok(None | Some("")) => Mask::All,
        Ok(Some(text)) => listed(text, &[], Case::Exact),
        Err(why) => Mask::NotUnderstood(why),
    }
}

/// Parses `ZE_AFFINITY_MASK`.
pub fn level_zero(value: Option<&OsStr>) -> Mask {
    let text = match plain(value) {
        Ok(None) => return Mask::All,
        // Intel's driver takes both as no mask; with blanks it would look for a number in them.
        Ok(Some("" | "default")) if !has_blanks(value) => return Mask::All,
        Ok(Some(text)) => text,
        Err(why) => return Mask::NotUnderstood(why),
    };
    let mut selectors = Vec::new();
    for entry in text.split(',') {
        let mut levels = entry.trim_matches(BLANKS).split('.').map(number);
        let (device, mut parts) = (levels.next().flatten(), levels);
        match device {
            Some(device) if parts.all(|part| part.is_some()) => {
                selectors.push(Selector::Ordinal(device));
            }
            Some(_) | None => {
                return Mask::NotUnderstood(format!("{entry:?} in {text:?} is no device"));
            }
        }
    }
    // Devices are marked, so they stay in their order; parts of one are one to us.
    let marked: BTreeSet<Selector> = selectors.into_iter().collect();
    Mask::Some(marked.into_iter().collect())
}

/// Parses `GGML_VK_VISIBLE_DEVICES`.
pub fn ggml_vulkan(value: Option<&OsStr>) -> Mask {
    match plain(value) {
        Ok(None) => Mask::All,
        Ok(Some("")) => Mask::Nothing,
        Ok(Some(text)) => listed(text, &[], Case::Exact),
        Err(why) => Mask::NotUnderstood(why),
    }
}

/// Parses `ONEAPI_DEVICE_SELECTOR`.
pub fn oneapi(value: Option<&OsStr>) -> OneApi {
    let text = match plain(value) {
        Ok(None | Some("")) => return OneApi::All,
        Ok(Some(text)) => text,
        Err(why) => return OneApi::NotUnderstood(why),
    };
    let (mut accept, mut discard) = (Vec::new(), Vec::new());
    for piece in text.split(';') {
        let (is_discard, body) = match piece.strip_prefix('!') {
            Some(body) => (true, body),
            None => (false, piece),
        };
        let Some(term) = term_of(body) else {
            return OneApi::NotUnderstood(format!("{piece:?} in {text:?} is no term"));
        };
        if is_discard {
            discard.push(term);
        } else {
            accept.push(term);
        }
    }
    OneApi::Terms { accept, discard }
}

impl Selector {
    /// Whether it counts, instead of naming.
    pub fn is_ordinal(&self) -> bool {
        match self {
            Self::Ordinal(_) => true,
            Self::Uuid(_) => false,
        }
    }
}

/// Whether a UUID's prefix may be in small letters.
#[derive(Clone, Copy)]
enum Case {
    Exact,
    Any,
}

const GPU: &str = "GPU-";
const MIG: &str = "MIG-";
const BLANKS: [char; 2] = [' ', '\t'];

fn has_blanks(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| value.to_string_lossy().contains(BLANKS))
}

/// The value without blanks around it; an error where it is no ASCII.
fn plain(value: Option<&OsStr>) -> Result<Option<&str>, String> {
    let Some(value) = value else {
        return Ok(None);
    };
    match value.to_str().filter(|text| text.is_ascii()) {
        Some(text) => Ok(Some(text.trim_matches(BLANKS))),
        None => Err(format!("{value:?} is no plain text")),
    }
}

/// Parses a list of ordinals and of UUIDs that begin so. A -1 ends it, as its runtimes say that
/// what follows an invalid entry is not seen.
fn listed(text: &str, prefixes: &[&str], case: Case) -> Mask {
    let mut selectors = Vec::new();
    for entry in text.split(',') {
        let entry = entry.trim_matches(BLANKS);
        if entry == "-1" {
            break;
        }
        if let Some(ordinal) = number(entry) {
            selectors.push(Selector::Ordinal(ordinal));
            continue;
        }
        let Some(uuid) = uuid_of(entry, prefixes, case) else {
            return Mask::NotUnderstood(format!("{entry:?} in {text:?} is no device"));
        };
        selectors.push(Selector::Uuid(uuid));
    }
    if selectors.is_empty() {
        return Mask::Nothing;
    }
    Mask::Some(selectors)
}

fn uuid_of(entry: &str, prefixes: &[&str], case: Case) -> Option<String> {
    prefixes.iter().find_map(|prefix| {
        let (head, rest) = entry.split_at_checked(prefix.len())?;
        let is_prefix = match case {
            Case::Exact => head == *prefix,
            Case::Any => head.eq_ignore_ascii_case(prefix),
        };
        let is_id = is_prefix
            && !rest.is_empty()
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'/'));
        is_id.then(|| format!("{prefix}{}", rest.to_ascii_lowercase()))
    })
}

fn term_of(body: &str) -> Option<Term> {
    let (backend, devices) = body.split_once(':')?;
    let backend = backend.trim_matches(BLANKS).to_ascii_lowercase();
    let is_word = backend
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if backend != "*" && (backend.is_empty() || !is_word) {
        return None;
    }
    let devices = devices.split(',').map(term_device);
    Some(Term {
        backend,
        devices: devices.collect::<Option<Vec<TermDevice>>>()?,
    })
}

fn term_device(text: &str) -> Option<TermDevice> {
    let text = text.trim_matches(BLANKS).to_ascii_lowercase();
    match text.as_str() {
        "*" => return Some(TermDevice::All),
        "gpu" => return Some(TermDevice::Gpu),
        "cpu" | "fpga" | "acc" | "accelerator" => return Some(TermDevice::NoGpu),
        _ => {}
    }
    let mut levels = text.split('.');
    let first = levels.next()?;
    let mut depth = 0;
    for level in levels {
        if level != "*" && number(level).is_none() {
            return None;
        }
        depth += 1;
    }
    match (number(first), depth) {
        (Some(ordinal), 0) => Some(TermDevice::Ordinal(ordinal)),
        (Some(ordinal), 1 | 2) => Some(TermDevice::PartOf(ordinal)),
        (None, 1 | 2) if first == "*" => Some(TermDevice::AllParts),
        (Some(_) | None, _) => None,
    }
}

/// Parses decimal digits and nothing else; some runtimes take a zero in front for octal.
fn number(text: &str) -> Option<u32> {
    let is_number = text == "0" || !text.is_empty() && !text.starts_with('0');
    let is_number = is_number && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordinals(list: &[u32]) -> Mask {
        Mask::Some(list.iter().map(|n| Selector::Ordinal(*n)).collect())
    }

    fn why(mask: Mask) -> String {
        match mask {
            Mask::NotUnderstood(why) => why,
            Mask::All | Mask::Nothing | Mask::Some(_) => panic!("{mask:?} was understood"),
        }
    }

    #[test]
    fn unset_and_empty_differ_by_runtime() {
        let empty = Some(OsStr::new(""));
        for parse in [cuda, rocr, hip, level_zero, ggml_vulkan] {
            assert_eq!(parse(None), Mask::All);
        }
        assert_eq!(cuda(empty), Mask::Nothing);
        assert_eq!(rocr(empty), Mask::Nothing);
        assert_eq!(ggml_vulkan(empty), Mask::Nothing);
        assert_eq!(hip(empty), Mask::All);
        assert_eq!(level_zero(empty), Mask::All);
        assert_eq!(level_zero(Some(OsStr::new("default"))), Mask::All);
        assert_eq!(oneapi(None), OneApi::All);
        assert_eq!(oneapi(empty), OneApi::All);
    }

    #[test]
    fn a_list_is_a_list_whatever_its_form() {
        let cuda = |text: &str| cuda(Some(OsStr::new(text)));
        assert_eq!(cuda("0"), ordinals(&[0]));
        assert_eq!(cuda("1,0"), ordinals(&[1, 0]));
        assert_eq!(cuda(" 2 , 3 "), ordinals(&[2, 3]));
        assert_eq!(cuda("0,2,-1,1"), ordinals(&[0, 2]));
        assert_eq!(cuda("-1"), Mask::Nothing);
        assert_eq!(cuda("NoDevFiles"), Mask::Nothing);
        assert_eq!(
            cuda("GPU-8932F937,MIG-1c0d"),
            Mask::Some(vec![
                Selector::Uuid("GPU-8932f937".to_owned()),
                Selector::Uuid("MIG-1c0d".to_owned())
            ])
        );
        assert_eq!(
            cuda("MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0"),
            Mask::Some(vec![Selector::Uuid(
                "MIG-gpu-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0".to_owned()
            )])
        );
        let rocr = rocr(Some(OsStr::new("0,GPU-DEADBEEFDEADBEEF")));
        let both = vec![
            Selector::Ordinal(0),
            Selector::Uuid("GPU-deadbeefdeadbeef".to_owned()),
        ];
        assert_eq!(rocr, Mask::Some(both));
        let ze = |text: &str| level_zero(Some(OsStr::new(text)));
        assert_eq!(ze("0.0"), ordinals(&[0]));
        assert_eq!(ze("0.0,0.1,1.2.3"), ordinals(&[0, 1]));
        assert_eq!(ze("1,0"), ordinals(&[0, 1]));
    }

    #[test]
    fn what_is_not_understood_says_which_entry() {
        let cuda = |text: &str| why(cuda(Some(OsStr::new(text))));
        assert_eq!(cuda("0,x"), r#""x" in "0,x" is no device"#);
        assert_eq!(cuda("0,,1"), r#""" in "0,,1" is no device"#);
        assert_eq!(cuda("0-3"), r#""0-3" in "0-3" is no device"#);
        assert_eq!(cuda("+1"), r#""+1" in "+1" is no device"#);
        assert_eq!(cuda("010"), r#""010" in "010" is no device"#);
        assert_eq!(cuda("gpu-1"), r#""gpu-1" in "gpu-1" is no device"#);
        assert_eq!(cuda("GPU-"), r#""GPU-" in "GPU-" is no device"#);
        assert_eq!(
            cuda("4294967296"),
            r#""4294967296" in "4294967296" is no device"#
        );
        assert_eq!(cuda("0,GPU-1"), r#""0,GPU-1" mixes ordinals and UUIDs"#);
        let ze = |text: &str| why(level_zero(Some(OsStr::new(text))));
        assert_eq!(ze("0.x"), r#""0.x" in "0.x" is no device"#);
        assert_eq!(ze("0."), r#""0." in "0." is no device"#);
        assert_eq!(ze("-1"), r#""-1" in "-1" is no device"#);
        assert_eq!(ze(" "), r#""" in "" is no device"#);
        assert_eq!(ze("default "), r#""default" in "default" is no device"#);
        let hip = |text: &str| why(hip(Some(OsStr::new(text))));
        assert_eq!(hip("0, 1"), r#""0, 1" has blanks"#);
        assert_eq!(hip("GPU-1"), r#""GPU-1" in "GPU-1" is no device"#);
        let bytes: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"0\xff");
        assert_eq!(why(super::cuda(Some(bytes))), r#""0\xFF" is no plain text"#);
    }

    #[test]
    fn terms_of_one_api_are_read_in_any_case() {
        let oneapi = |text: &str| oneapi(Some(OsStr::new(text)));
        let term = |backend: &str, devices: &[TermDevice]| Term {
            backend: backend.to_owned(),
            devices: devices.to_vec(),
        };
        assert_eq!(
            oneapi("Level_Zero:GPU,0,1.2,*.*;opencl:cpu;!*:fpga"),
            OneApi::Terms {
                accept: vec![
                    term(
                        "level_zero",
                        &[
                            TermDevice::Gpu,
                            TermDevice::Ordinal(0),
                            TermDevice::PartOf(1),
                            TermDevice::AllParts
                        ]
                    ),
                    term("opencl", &[TermDevice::NoGpu])
                ],
                discard: vec![term("*", &[TermDevice::NoGpu])],
            }
        );
        for (text, message) in [
            ("level_zero", r#""level_zero" in "level_zero" is no term"#),
            (":gpu", r#"":gpu" in ":gpu" is no term"#),
            (
                "level_zero:",
                r#""level_zero:" in "level_zero:" is no term"#,
            ),
            ("a:b", r#""a:b" in "a:b" is no term"#),
            ("a:0;", r#""" in "a:0;" is no term"#),
            ("a:0.0.0.0", r#""a:0.0.0.0" in "a:0.0.0.0" is no term"#),
        ] {
            assert_eq!(oneapi(text), OneApi::NotUnderstood(message.to_owned()));
        }
    }
}
