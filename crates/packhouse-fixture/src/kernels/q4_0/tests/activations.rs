//! The order of the sum and the rounding of quants, which no fixture judges alone.

use super::super::activations::{Activations, Form, Quantised, half_away, lane_sum};

/// Orders that the page does not name give other sums of these.
#[test]
fn lanes_of_two_are_halved_from_the_far_end() {
    let with = |ones: &[usize]| {
        let mut numbers = [0.0; 32];
        numbers[0] = 16_777_216.0;
        ones.iter().for_each(|e| numbers[*e] = 1.0);
        lane_sum(&numbers)
    };
    // Lanes 4 and 12 meet before lane 0 takes them, lanes 8 and 4 do not.
    assert_eq!(with(&[8, 24]), 16_777_218.0);
    assert_eq!(with(&[16, 8]), 16_777_216.0);
    // Both numbers of a lane meet first, those of neighbouring lanes last.
    assert_eq!(with(&[30, 31]), 16_777_218.0);
    assert_eq!(with(&[1, 16]), 16_777_216.0);
    assert_eq!(with(&[2, 18, 10, 26]), 16_777_220.0);
    assert_eq!(with(&[2, 4]), 16_777_216.0);
    // Sums begin with a zero, so nothing is -0.
    assert_eq!(lane_sum(&[-0.0; 32]).to_bits(), 0);
}

#[test]
fn halves_go_away_from_zero_and_nothing_else_does() {
    let below = f32::from_bits(0.5_f32.to_bits() - 1);
    for (x, quant) in [
        (0.5, 1),
        (1.5, 2),
        (2.5, 3),
        (126.5, 127),
        (below, 0),
        (2.499_999_8, 2),
        (126.499_99, 126),
        (0.0, 0),
    ] {
        assert_eq!([half_away(x), half_away(-x)], [quant, -quant], "{x}");
    }
}

#[test]
fn forms_have_every_byte_where_the_page_says() {
    // Two rows of two blocks; the first number of each tells them apart.
    let numbers: Vec<f32> = (0..128)
        .map(|i| {
            if i % 32 == 0 {
                [127.0, -254.0, 508.0, 1016.0][i / 32]
            } else {
                0.0
            }
        })
        .collect();
    let activations = Activations::of(&numbers, 2);
    let canonical = activations.bytes(Form::Canonical);
    assert_eq!(canonical.len(), 2 * 72);
    let half = |at: usize| u16::from_le_bytes([canonical[at], canonical[at + 1]]);
    assert_eq!(
        [0, 32, 72, 104].map(|at| canonical[at].cast_signed()),
        [127, -127, 127, 127]
    );
    // d, then s, of each block: 1, 2, 4, 8 and the numbers themselves.
    assert_eq!(
        [64, 68, 136, 140].map(half),
        [0x3c00, 0x4000, 0x4400, 0x4800]
    );
    assert_eq!(
        [66, 70, 138, 142].map(half),
        [0x57f0, 0xdbf0, 0x5ff0, 0x63f0]
    );
    let dpas = activations.bytes(Form::Dpas);
    assert_eq!(dpas.len(), 4 * 40);
    assert_eq!(
        [0, 32, 64, 96].map(|at| dpas[at].cast_signed()),
        [127, 127, -127, 127]
    );
    let (scales, _) = dpas[128..].as_chunks::<4>();
    let scales: Vec<f32> = scales.iter().map(|x| f32::from_le_bytes(*x)).collect();
    // Here s is Q * d, so c is 0.
    assert_eq!(scales, [1.0, 0.0, 4.0, 0.0, 2.0, 0.0, 8.0, 0.0]);
    assert_eq!(Quantised::of(&[0.0; 32]).d, 0);
}
