//! Runtimes as programs that read their variables and enumerate cards: written again, from NVIDIA's
//! programming guide and a record of its driver, from ROCr's and HIP's sources, from Intel's driver
//! and the grammar of SYCL's selector. They know nothing of the code that they judge.

/// A runtime with its variables.
pub(crate) trait Runtime {
    /// The cards shown when the host's cards come in this order, each by its place in PCI order.
    fn shows(&self, order: &[usize]) -> Vec<usize>;
    /// Whether each variable says only what its documentation gives as an example.
    fn is_plain(&self) -> bool;
}

/// NVIDIA's.
pub(crate) struct Cuda {
    pub(crate) uuids: [String; 4],
    pub(crate) mask: Option<String>,
}

/// ROCr with HIP on it.
pub(crate) struct Amd {
    pub(crate) uuids: [String; 4],
    pub(crate) rocr: Option<String>,
    pub(crate) hip: Option<String>,
    pub(crate) cuda: Option<String>,
}

/// Level Zero with SYCL on it.
pub(crate) struct Intel {
    pub(crate) mask: Option<String>,
    pub(crate) selector: Option<String>,
}

/// All orders of so many cards, or the one in PCI order.
pub(crate) fn permutations(count: usize, is_fixed: bool) -> Vec<Vec<usize>> {
    if is_fixed || count < 2 {
        return vec![(0..count).collect()];
    }
    let mut all = Vec::new();
    for shorter in permutations(count - 1, false) {
        for place in 0..count {
            let mut longer = shorter.clone();
            longer.insert(place, count - 1);
            all.push(longer);
        }
    }
    all
}

/// What C's strtol reads: a value and the rest of the text; `None` without a digit.
fn strtol(text: &str) -> Option<(i64, &str)> {
    let trimmed = text.trim_start();
    let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    let end = digits
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(digits.len());
    let value: i64 = digits[..end].parse().ok()?;
    let sign = if trimmed.starts_with('-') { -1 } else { 1 };
    Some((sign * value, &digits[end..]))
}

fn by_place(value: i64, order: &[usize]) -> Option<usize> {
    order.get(usize::try_from(value).ok()?).copied()
}

impl Runtime for Cuda {
    fn shows(&self, order: &[usize]) -> Vec<usize> {
        let Some(mask) = &self.mask else {
            return order.to_vec();
        };
        let by_uuid = mask.starts_with("GPU-");
        let mut shown = Vec::new();
        for entry in mask.split(',') {
            let (card, goes_on) = if by_uuid {
                let Some(rest) = entry.strip_prefix("GPU-").filter(|rest| !rest.is_empty()) else {
                    break;
                };
                let rest = rest.to_lowercase();
                let own = |card: &&usize| self.uuids[**card]["GPU-".len()..].starts_with(&rest);
                let found: Vec<&usize> = order.iter().filter(own).collect();
                if found.len() != 1 {
                    break;
                }
                (*found[0], true)
            } else {
                let Some((value, rest)) = strtol(entry) else {
                    break;
                };
                let Some(card) = by_place(value, order) else {
                    break;
                };
                (card, rest.trim().is_empty())
            };
            if shown.contains(&card) {
                return Vec::new();
            }
            shown.push(card);
            if !goes_on {
                break;
            }
        }
        shown
    }

    fn is_plain(&self) -> bool {
        self.mask.as_deref().is_none_or(|mask| {
            let mut entries: Vec<&str> = mask.split(',').collect();
            let count = entries.len();
            entries.sort_unstable();
            entries.dedup();
            let digit = |entry: &&str| ["0", "1", "2", "3"].contains(entry);
            mask.is_empty()
                || entries.len() == count
                    && (entries.iter().all(digit) && is_rising(mask)
                        || self.uuids.iter().any(|uuid| uuid == mask))
        })
    }
}

/// Whether a list never names a card after one that may not be there.
fn is_rising(mask: &str) -> bool {
    let numbers: Vec<&str> = mask.split(',').collect();
    numbers.is_sorted()
}

impl Runtime for Amd {
    fn shows(&self, order: &[usize]) -> Vec<usize> {
        let below = self.rocr_shows(order);
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let Some(mask) = set(&self.hip).or(set(&self.cuda)) else {
            return below;
        };
        let mut shown: Vec<usize> = Vec::new();
        for entry in mask.split(',') {
            // Newer versions take UUIDs, in this form.
            let card = if entry.starts_with("GPU-") {
                below
                    .iter()
                    .copied()
                    .find(|card| self.uuids[*card] == entry)
            } else {
                let exact = strtol(entry).filter(|(value, _)| value.to_string() == entry);
                exact.and_then(|(value, _)| by_place(value, &below))
            };
            let Some(card) = card else {
                break;
            };
            if !shown.contains(&card) {
                shown.push(card);
            }
        }
        shown
    }

    fn is_plain(&self) -> bool {
        self.rocr.is_none() && self.hip.is_none() && self.cuda.is_none()
    }
}

impl Amd {
    fn rocr_shows(&self, order: &[usize]) -> Vec<usize> {
        let Some(mask) = &self.rocr else {
            return order.to_vec();
        };
        let mut shown = Vec::new();
        // It looks at as many entries as there are cards.
        for entry in mask.split(',').take(order.len()) {
            let entry = entry.trim().to_uppercase();
            let card = if entry.starts_with('G') {
                let found: Vec<&usize> = order
                    .iter()
                    .filter(|card| self.uuids[**card].to_uppercase().starts_with(&entry))
                    .collect();
                match found.as_slice() {
                    [only] if (5..=20).contains(&entry.len()) => Some(**only),
                    _ => None,
                }
            } else {
                let whole = strtol(&entry).filter(|(_, rest)| rest.is_empty());
                whole.and_then(|(value, _)| by_place(value, order))
            };
            match card {
                Some(card) if !shown.contains(&card) => shown.push(card),
                Some(_) | None => break,
            }
        }
        shown
    }
}

impl Runtime for Intel {
    fn shows(&self, order: &[usize]) -> Vec<usize> {
        let below = self.driver_shows(order);
        let Some(selector) = self.selector.as_deref().filter(|text| !text.is_empty()) else {
            return below;
        };
        let terms: Vec<&str> = selector.split(';').collect();
        let accepts: Vec<&str> = terms
            .iter()
            .copied()
            .filter(|term| !term.starts_with('!'))
            .collect();
        let discards: Vec<&str> = terms
            .iter()
            .filter_map(|term| term.strip_prefix('!'))
            .collect();
        let mut shown = Vec::new();
        // Each back end shows the same cards, and a card is there while any of them does.
        for (place, card) in below.iter().enumerate() {
            let is_left = |backend: &&str| {
                let accepted = accepts.is_empty()
                    || accepts
                        .iter()
                        .any(|term| matches_term(term, backend, place, true));
                let discarded = discards
                    .iter()
                    .any(|term| matches_term(term, backend, place, false));
                accepted && !discarded
            };
            if ["level_zero", "opencl"].iter().any(is_left) {
                shown.push(*card);
            }
        }
        shown
    }

    fn is_plain(&self) -> bool {
        let is_plain = |mask: &str| {
            mask.is_empty()
                || mask
                    .split(',')
                    .all(|entry| ["0", "1", "2", "3", "0.0"].contains(&entry))
                    && is_rising(mask)
                    && !mask.contains("0,0")
        };
        self.selector.is_none() && self.mask.as_deref().is_none_or(is_plain)
    }
}

impl Intel {
    fn driver_shows(&self, order: &[usize]) -> Vec<usize> {
        let text = self.mask.as_deref().unwrap_or_default();
        if text.is_empty() || text == "default" {
            return order.to_vec();
        }
        // It marks what is named, so doubles do nothing and what is not there is passed over.
        let mut marked = vec![false; order.len()];
        for entry in text.split(',') {
            let first = entry.split('.').next().unwrap_or_default();
            let place = strtol(first).and_then(|(value, _)| usize::try_from(value).ok());
            if let Some(mark) = place.and_then(|place| marked.get_mut(place)) {
                *mark = true;
            }
        }
        order
            .iter()
            .zip(marked)
            .filter(|(_, mark)| *mark)
            .map(|(card, _)| *card)
            .collect()
    }
}

fn matches_term(term: &str, backend: &str, place: usize, accepts: bool) -> bool {
    let term = term.to_lowercase();
    let (own, devices) = term.split_once(':').expect("because the test writes terms");
    if own != "*" && own != backend {
        return false;
    }
    devices.split(',').any(|device| match device {
        "*" | "gpu" => true,
        "cpu" | "fpga" => false,
        // A part alone is shown, and taking a part away leaves the rest.
        part if part.contains('.') => {
            accepts && part.split('.').next() == Some(place.to_string().as_str())
        }
        number => number == place.to_string(),
    })
}
