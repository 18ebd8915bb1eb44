//! The contexts of the context-KV fixtures: rows made for an edge, and all patterns.
//!
//! Specified in `docs/format/kernels.md`, section 7.

use super::SHAPE;
use super::weights::number;
use crate::mersenne::Draws;

/// A context `[C, H]` and what each of its rows is.
pub(super) struct Context {
    /// Its elements.
    pub(super) elements: Vec<u16>,
    /// What is special, row by row.
    pub(super) labels: Vec<String>,
}

impl Context {
    /// An ordinary row of a seed, then the first rows of [`ROWS`].
    pub(super) fn drawn(seed: u64, width: usize) -> Self {
        let mut draws = Draws::new(seed);
        let first = ordinary(&mut draws);
        Self::behind("", first, width, draws)
    }

    /// The probe, then the first rows of [`ROWS`].
    pub(super) fn with_edges(seed: u64, width: usize) -> Self {
        let scale = PROBE_SCALE + u16::try_from(width).expect("because widths are small");
        Self::behind(PROBE, probe_row(scale), width, Draws::new(seed))
    }

    fn behind(label: &str, mut elements: Vec<u16>, width: usize, mut draws: Draws) -> Self {
        let rows = ROWS[..width - 1].iter();
        elements.extend(rows.flat_map(|(_, make)| make(&mut draws)));
        let labels = ROWS[..width - 1].iter().map(|(label, _)| *label);
        let labels = std::iter::once(label).chain(labels);
        Self {
            elements,
            labels: labels.map(str::to_owned).collect(),
        }
    }

    /// Rows with all bit patterns of an exponent each, of both signs: of a part of the exponents,
    /// every fourth or so. All of [`PATTERN_WIDTHS`] together have all 65,536.
    pub(super) fn patterns(part: usize) -> Self {
        let exponents = (0..256_u16).filter(move |exponent| part_of(*exponent) == part);
        let row = |exponent: u16| {
            (0..256_u16).map(move |bits| (bits & 0x80) << 8 | exponent << 7 | bits & 0x7f)
        };
        Self {
            elements: exponents.clone().flat_map(row).collect(),
            labels: exponents.map(pattern_label).collect(),
        }
    }
}

/// In which of the contexts an exponent is. 240 go round; the others fill up the widths.
fn part_of(exponent: u16) -> usize {
    match exponent {
        240..242 => 1,
        242..248 => 2,
        248..256 => 3,
        _ => usize::from(exponent % 4),
    }
}

fn pattern_label(exponent: u16) -> String {
    match exponent {
        0 => "all zeros and subnormals".to_owned(),
        255 => "all infinities and NaNs".to_owned(),
        _ => format!("all patterns of exponent {exponent}"),
    }
}

/// Row 0 of every published context: the same numbers times another power of two, so that it is
/// normed to the same bits. Two large elements are equal, so that equal weights can cancel.
pub(super) fn probe_row(scale: u16) -> Vec<u16> {
    let mut draws = Draws::new(PROBE_SEED);
    let mut row: Vec<u16> = (0..SHAPE.hidden)
        .map(|_| number(&mut draws, [scale, scale + 2]))
        .collect();
    row[0] = row[0] & 0x807f | (scale + 2) << 7;
    row[MIDDLE] = row[0];
    row
}

/// The element that is equal to element 0: not the last one, because the order from the last to
/// the first must lose other digits.
pub(super) const MIDDLE: usize = SHAPE.hidden / 2;

/// How a row is made.
type Make = fn(&mut Draws) -> Vec<u16>;

/// The rows after the first, by what is special about them.
const ROWS: [(&str, Make); 8] = [
    ("zeros of both signs", |draws| {
        row(|_| number(draws, [0, 0]) & 0x8000)
    }),
    ("ordinary", ordinary),
    ("largest magnitudes: the squares overflow", |draws| {
        row(|_| number(draws, [254, 254]))
    }),
    ("subnormals", |draws| row(|_| number(draws, [0, 0]))),
    ("the epsilon counts: about 2^-10", |draws| {
        row(|_| number(draws, [116, 118]))
    }),
    ("an infinity", |draws| {
        row(|index| match index {
            100 => 0xff80,
            _ => number(draws, [126, 127]),
        })
    }),
    ("one element far above the others", |draws| {
        row(|index| match index {
            7 => number(draws, [139, 139]),
            _ => number(draws, [126, 126]),
        })
    }),
    ("largest whose squares are finite", |draws| {
        row(|_| number(draws, [185, 185]))
    }),
];

fn ordinary(draws: &mut Draws) -> Vec<u16> {
    row(|_| number(draws, [120, 130]))
}

fn row(element: impl FnMut(usize) -> u16) -> Vec<u16> {
    (0..SHAPE.hidden).map(element).collect()
}

/// What row 0 is for.
const PROBE: &str = "probe: sums depend on their order, results on every rounding";

/// Widths of the contexts that together have all patterns.
pub(super) const PATTERN_WIDTHS: [usize; 4] = [60, 62, 66, 68];

/// The exponent that all of a probe row's numbers have at width 0: 2^6, above which the epsilon
/// is lost beside the mean square.
pub(super) const PROBE_SCALE: u16 = 133;

/// Draws the probe row; the first seed from 1 on with which every order of its sum shows.
const PROBE_SEED: u64 = 151929;
