"""A second implementation of docs/format/statistics.md, of Python's standard library alone.

Reads cases from standard input, one a line: a name and integers. A binary64 travels as its 64 bits.
Writes one line of integers for each. Every probability is made by listing all outcomes.
"""

import itertools
import math
import statistics
import struct
import sys
from decimal import Decimal
from fractions import Fraction

WORD = (1 << 64) - 1
SEED = 0x7061636B686F7573
RESAMPLES = 9999


def bits(value):
    return struct.unpack("<Q", struct.pack("<d", float(value)))[0]


def number(word):
    return struct.unpack("<d", struct.pack("<Q", word))[0]


def rotated(word, count):
    return (word << count | word >> (64 - count)) & WORD


class Draws:
    def __init__(self, seed):
        self.state = []
        for _ in range(4):
            seed = (seed + 0x9E3779B97F4A7C15) & WORD
            mixed = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & WORD
            mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & WORD
            self.state.append(mixed ^ mixed >> 31)

    def word(self):
        s0, s1, s2, s3 = self.state
        result = rotated(s1 * 5 & WORD, 7) * 9 & WORD
        shifted = s1 << 17 & WORD
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= shifted
        self.state = [s0, s1, s2, rotated(s3, 45)]
        return result

    def below(self, count):
        bound = 2**64 - 2**64 % count
        while True:
            word = self.word()
            if word < bound:
                return word % count


def fraction(value):
    return [value.numerator, value.denominator]


def text(value):
    """The digits of a number as the page writes it, and how many of them are behind the point."""
    shown = format(Decimal(repr(value)), "f")
    whole, _, places = shown.partition(".")
    places = places.rstrip("0")
    return [int(whole + places), len(places)]


def sign(wins, losses):
    n = wins + losses

    def upper(k):
        return Fraction(sum(math.comb(n, i) for i in range(k, n + 1)), 2**n)

    two = Fraction(1) if wins == losses else 2 * upper(max(wins, losses))
    return [bits(upper(wins)), bits(two), *text(float(two))]


def savings_of(cycles, spans):
    blocks = [spans[at : at + 4] for at in range(0, len(spans), 4)]
    return [Fraction(a1 + a2 - b1 - b2, 2 * cycles) for a1, b1, b2, a2 in blocks]


def doubled_median(values):
    values = sorted(values)
    return values[(len(values) - 1) // 2] + values[len(values) // 2]


def paired(cycles, *spans):
    savings = savings_of(cycles, spans)
    n = len(savings)
    wins = sum(saving > 0 for saving in savings)
    losses = sum(saving < 0 for saving in savings)
    means = [
        (savings[i] + savings[j]) / 2 for i in range(n) for j in range(i, n)
    ]
    draws = Draws(SEED)
    whole = [int(2 * cycles * saving) for saving in savings]
    medians = sorted(
        doubled_median([whole[draws.below(n)] for _ in range(n)]) for _ in range(RESAMPLES)
    )
    lower = Fraction(medians[499], 4 * cycles)
    exact = [statistics.median(savings), statistics.median(means), lower]
    shown = [part for value in exact for part in fraction(value)]
    return [wins, losses, *shown, *sign(wins, losses)]


def noise(cycles, *spans):
    savings = savings_of(cycles, spans)
    n = len(savings)
    whole = [int(2 * cycles * saving) for saving in savings]
    draws = Draws(SEED)
    medians = []
    for _ in range(RESAMPLES):
        sample = []
        for _ in range(n):
            saving = whole[draws.below(n)]
            sample.append(-saving if draws.word() >> 63 else saving)
        medians.append(doubled_median(sample))
    floor = Fraction(sorted(abs(median) for median in medians)[9499], 4 * cycles)
    detectable = floor + Fraction(sorted(medians)[7999], 4 * cycles)
    return [*fraction(floor), *fraction(detectable), max(0, math.ceil(detectable))]


def hierarchical(kind, rows, *words):
    values = [number(word) for word in words]
    starts = [values[at : at + rows] for at in range(0, len(values), rows)]

    def figure(sample):
        if kind == 0:
            total = 0.0
            for value in sample:
                total += value
            return total / len(sample)
        return statistics.median(sample)

    draws = Draws(SEED)
    figures = []
    for _ in range(RESAMPLES):
        drawn = []
        for _ in starts:
            start = starts[draws.below(len(starts))]
            drawn.append(figure([start[draws.below(rows)] for _ in range(rows)]))
        figures.append(figure(drawn))
    return [bits(sorted(figures)[499])]


def root_of(value):
    """The square root of a fraction, rounded once: a root of 200 bits or more, and what is left."""
    if value == 0:
        return 0.0
    scale = 400 + 2 * (value.denominator.bit_length() // 2)
    scaled = (value.numerator << scale) // value.denominator
    root = math.isqrt(scaled)
    is_exact = root * root * value.denominator == value.numerator << scale
    return float(Fraction(2 * root + (not is_exact), 2 << scale // 2))


def summary(*words):
    values = [number(word) for word in words]
    ordered = sorted(values)

    def percentile(share):
        position = (len(ordered) - 1) * share
        lower = int(position)
        upper = min(lower + 1, len(ordered) - 1)
        part = position - lower
        return ordered[lower] * (1.0 - part) + ordered[upper] * part

    exact = [Fraction(value) for value in values]
    n = len(exact)
    if n > 1:
        mean = sum(exact) / n
        stdev = root_of(sum((value - mean) ** 2 for value in exact) / (n - 1))
        assert sys.version_info < (3, 11) or stdev == statistics.stdev(values)
    else:
        stdev = 0.0
    shown = [percentile(0.10), statistics.median(values), statistics.fmean(values)]
    shown += [ordered[0], ordered[-1], stdev, percentile(0.9), percentile(1.0)]
    return [n, *map(bits, shown)]


def ranked(differences):
    sizes = sorted(abs(value) for value in differences if value)
    return {
        size: Fraction(2 * sizes.index(size) + sizes.count(size) + 1, 2)
        for size in sizes
    }


def signed_rank_of(differences):
    ranks = ranked(differences)
    apart = [value for value in differences if value]
    observed = sum(ranks[value] for value in apart if value > 0)
    sums = [
        sum(ranks[abs(value)] for value, sign in zip(apart, signs) if sign)
        for signs in itertools.product((False, True), repeat=len(apart))
    ]
    at_least = Fraction(sum(value >= observed for value in sums), len(sums))
    at_most = Fraction(sum(value <= observed for value in sums), len(sums))
    two = min(Fraction(1), 2 * min(at_least, at_most))
    return len(apart), 2 * observed, at_least, two


def signed_rank(*parts):
    pairs, doubled, one, two = signed_rank_of([Fraction(part, 4) for part in parts])
    return [pairs, doubled, bits(one), bits(two)]


def equivalence(margin, *parts):
    values = [Fraction(part, 4) for part in parts]
    margin = Fraction(margin, 4)
    above = signed_rank_of([value + margin for value in values])[2]
    below = signed_rank_of([margin - value for value in values])[2]
    return [bits(above), bits(below)]


def permutation(controls, *words):
    values = [Fraction(number(word)) for word in words]
    count = len(values) - controls
    observed = sum(values[controls:])
    sums = [sum(chosen) for chosen in itertools.combinations(values, count)]
    at_least = Fraction(sum(value >= observed for value in sums), len(sums))
    at_most = Fraction(sum(value <= observed for value in sums), len(sums))
    two = min(Fraction(1), 2 * min(at_least, at_most))
    return [bits(at_least), bits(two), len(sums)]


def plan(*looks):
    """Looks are pairs, fails_below, passes_at; passes_at is 999 where a look can't pass."""
    looks = [looks[at : at + 3] for at in range(0, len(looks), 3)]
    total = looks[-1][0]
    passed = 0
    for outcomes in itertools.product((0, 1), repeat=total):
        for pairs, fails_below, passes_at in looks:
            wins = sum(outcomes[:pairs])
            if wins < fails_below:
                break
            if wins >= passes_at:
                passed += 1
                break
    return fraction(Fraction(passed, 2**total))


def ratio(above, below):
    return [bits(Fraction(above, below)), *fraction(Fraction(above, below))]


def compare(above, below, other_above, other_below):
    left, right = Fraction(above, below), Fraction(other_above, other_below)
    return [(left > right) - (left < right)]


def binary(word):
    return fraction(Fraction(number(word)))


def draws(seed, below):
    source = Draws(seed)
    words = [source.word() for _ in range(8)]
    return [*words, *(source.below(below) for _ in range(8))]


CASES = {
    case.__name__: case
    for case in (
        sign,
        paired,
        noise,
        hierarchical,
        summary,
        signed_rank,
        equivalence,
        permutation,
        plan,
        ratio,
        compare,
        binary,
        draws,
    )
}

for line in sys.stdin:
    name, *parts = line.split()
    print(name, *CASES[name](*map(int, parts)))
