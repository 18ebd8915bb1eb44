//! The grids of the IQ types: which points a code can name.
//!
//! A point is eight or four levels. They lie here as the format's numbers, packed: each level's
//! rank in two or three bits, the first element lowest. A grid's points rise so.
//!
//! Source: the tables of ggml's `ggml-common.h` at llama.cpp b11434, copyright (c) 2023-2026 The
//! ggml authors, under the MIT licence.

mod iq1;
mod iq2;
mod iq3;

/// IQ1_S and IQ1_M.
pub(super) static IQ1: [[i8; 8]; 2048] = expand(&iq1::IQ1, 2, [-1, 0, 1]);
/// IQ2_XXS.
pub(super) static IQ2_XXS: [[i8; 8]; 256] = expand(&iq2::IQ2_XXS, 2, [8, 25, 43]);
/// IQ2_XS.
pub(super) static IQ2_XS: [[i8; 8]; 512] = expand(&iq2::IQ2_XS, 2, [8, 25, 43]);
/// IQ2_S.
pub(super) static IQ2_S: [[i8; 8]; 1024] = expand(&iq2::IQ2_S, 2, [8, 25, 43]);
/// IQ3_XXS.
pub(super) static IQ3_XXS: [[i8; 4]; 256] =
    expand(&iq3::IQ3_XXS, 3, [4, 12, 20, 28, 36, 44, 52, 62]);
/// IQ3_S.
pub(super) static IQ3_S: [[i8; 4]; 512] = expand(&iq3::IQ3_S, 3, [1, 3, 5, 7, 9, 11, 13, 15]);

/// Unpacks points. Does not compile where a rank has no level or the points do not rise.
const fn expand<const L: usize, const E: usize, const N: usize>(
    packed: &[u16; N],
    bits: usize,
    levels: [i8; L],
) -> [[i8; E]; N] {
    let mut points = [[0; E]; N];
    let mut index = 0;
    while index < N {
        assert!(index == 0 || packed[index - 1] < packed[index]);
        let mut place = 0;
        while place < E {
            let rank = packed[index] >> (bits * place) & ((1 << bits) - 1);
            points[index][place] = levels[rank as usize];
            place += 1;
        }
        index += 1;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_base::digest::Digest;

    const PAGE: &str = include_str!("../../../../../docs/format/values.md");

    fn row<const N: usize>(name: &str, packed: &[u16; N], bits: usize, levels: &str) {
        let bytes: Vec<u8> = packed
            .iter()
            .flat_map(|point| point.to_le_bytes())
            .collect();
        let digest = Digest::of(&bytes);
        let row = format!("| {name} | {N} | {levels} | {bits} | `{digest}` |");
        assert!(PAGE.contains(&row), "{row}");
    }

    #[test]
    fn the_page_has_each_grid() {
        let (two, three) = ("8, 25, 43", "4, 12, 20, 28, 36, 44, 52, 62");
        row("IQ1_S, IQ1_M", &iq1::IQ1, 2, "-1, 0, 1");
        row("IQ2_XXS", &iq2::IQ2_XXS, 2, two);
        row("IQ2_XS", &iq2::IQ2_XS, 2, two);
        row("IQ2_S", &iq2::IQ2_S, 2, two);
        row("IQ3_XXS", &iq3::IQ3_XXS, 3, three);
        row("IQ3_S", &iq3::IQ3_S, 3, "1, 3, 5, 7, 9, 11, 13, 15");
    }
}
