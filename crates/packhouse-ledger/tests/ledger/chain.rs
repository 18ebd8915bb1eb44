//! The chain: order, torn appends, clocks, and what a ledger gives of its bytes.

use crate::story::*;
use packhouse_base::digest::Digest;
use packhouse_ledger::entry::{Entry, NO_ENTRY};
use packhouse_ledger::{EntryFault, Ledger, LedgerError};

/// A ledger from the format's page alone, byte by byte: neither `render` nor any type of ours.
#[test]
fn the_lines_are_those_of_the_format() {
    let zeros = "0".repeat(64);
    let id = "ab".repeat(32);
    let document = "cd".repeat(32);
    let first = format!(
        "{{\"at_ns\":-5,\"body\":{{\"id\":\"{id}\",\"lab\":\"a lab\"}},\"boot\":\"b\",\"index\":0,\
         \"kind\":\"genesis\",\"previous\":\"{zeros}\",\"schema\":\"packhouse/ledger/1\"}}"
    );
    let previous = Digest::of(first.as_bytes());
    let second = format!(
        "{{\"at_ns\":7,\"body\":{{\"action\":\"open\",\"document\":\"{document}\",\"lane\":\"cpu\",\
         \"reason\":\"new\"}},\"boot\":\"b\",\"index\":1,\"kind\":\"lane\",\
         \"previous\":\"{previous}\",\"schema\":\"packhouse/ledger/1\"}}"
    );
    let bytes = format!("{first}\n{second}\n");
    let ledger = Ledger::parse(bytes.as_bytes()).expect("because it is as the page says");
    assert_eq!(ledger.head(), Digest::of(second.as_bytes()));
    assert_eq!(ledger.line(0), Some(format!("{first}\n").as_bytes()));
    assert_eq!(ledger.line(1), Some(format!("{second}\n").as_bytes()));
    assert_eq!(ledger.line(2), None);
    assert_eq!((ledger.bytes(), ledger.torn_bytes()), (bytes.as_bytes(), 0));
    assert_eq!(
        (ledger.state().lab(), ledger.state().id().to_string()),
        ("a lab", id)
    );
    assert_eq!(
        ledger.state().lanes()[&name("cpu")].document.to_string(),
        document
    );
    for (index, line) in [(0, first), (1, second)] {
        let entry = &ledger.entries()[index];
        let (at_ns, boot) = (entry.at_ns, entry.boot.as_str());
        let rendered = Entry::render(&entry.act, entry.index, entry.previous, at_ns, boot);
        assert_eq!(rendered, format!("{line}\n").into_bytes());
    }
}

#[test]
fn every_prefix_of_a_ledger_is_the_entries_before_and_a_torn_append() {
    let story = Story::to("armed");
    let whole = story.ledger();
    let mut ends = vec![0];
    for entry in whole.entries() {
        let line = whole.line(entry.index).expect("because it is there");
        ends.push(ends.last().expect("because it begins with one") + line.len());
    }
    for length in 0..story.bytes.len() {
        let count = ends.iter().filter(|end| **end <= length).count() - 1;
        let read = Ledger::parse(&story.bytes[..length]);
        if count == 0 {
            let bytes = length as u64;
            assert_eq!(read, Err(LedgerError::NoEntries { bytes }));
            continue;
        }
        let read = read.expect("because what is whole is right");
        assert_eq!(read.entries(), &whole.entries()[..count]);
        assert_eq!(read.bytes(), &story.bytes[..ends[count]]);
        assert_eq!(read.torn_bytes(), (length - ends[count]) as u64);
    }
    // Whatever is torn: no line is read of it.
    let mut torn = story.bytes.clone();
    torn.extend_from_slice(&[b'{', 0xff, 0, b'}']);
    let read = Ledger::parse(&torn).expect("because the lines are right");
    assert_eq!((read.head(), read.torn_bytes()), (whole.head(), 4));
}

#[test]
fn a_line_out_of_place_is_refused_where_it_stands() {
    let whole = Story::to("armed").ledger();
    let line = |index| whole.line(index).expect("because it is there").to_vec();
    let parse = |indexes: &[u64]| {
        let bytes: Vec<u8> = indexes.iter().flat_map(|index| line(*index)).collect();
        Ledger::parse(&bytes).expect_err("because it is not the chain")
    };
    let index = |index, expected, actual| LedgerError::Entry {
        index,
        fault: EntryFault::Index { expected, actual },
    };
    assert_eq!(parse(&[1, 2]), index(0, 0, 1), "the first is gone");
    assert_eq!(parse(&[0, 2, 3]), index(1, 1, 2), "one is gone");
    assert_eq!(parse(&[0, 1, 1]), index(2, 2, 1), "one is doubled");
    assert_eq!(parse(&[0, 2, 1]), index(1, 1, 2), "two are swapped");
    let text = parse(&[0, 1, 1]).to_string();
    assert_eq!(text, "entry 2: index 1, where 2 is next");
    // The right place in another chain.
    let mut other = Story::unbegun();
    other.tell_at(genesis(), -1);
    other.tell(open("cpu"));
    let mixed = [
        line(0),
        other
            .ledger()
            .line(1)
            .expect("because it is there")
            .to_vec(),
    ]
    .concat();
    let error = Ledger::parse(&mixed).expect_err("because it is of another chain");
    let (head, wrong) = (
        whole.entries()[0].digest,
        other.ledger().entries()[0].digest,
    );
    assert_eq!(
        error.to_string(),
        format!("entry 1: previous {wrong}, but the entry before has digest {head}")
    );
    assert_eq!(error.code(), Some("ledger.previous"));
    // Nothing is before the first.
    let first = Entry::render(&genesis().into(), 0, wrong, 1, "b");
    let error = Ledger::parse(&first).expect_err("because it is chained to something");
    assert_eq!(error.code(), Some("ledger.previous"));
}

#[test]
fn any_changed_bit_is_refused() {
    let story = Story::to("registered");
    let whole = story.ledger();
    for at in 0..story.bytes.len() {
        for bit in [0, 5] {
            let mut bytes = story.bytes.clone();
            bytes[at] ^= 1 << bit;
            match Ledger::parse(&bytes) {
                Err(_) => {}
                // Only the last line has nobody to vouch for it, but its head is another one; and
                // without its newline it is a torn append.
                Ok(read) => assert_ne!(read.head(), whole.head(), "byte {at}, bit {bit}"),
            }
        }
    }
}

#[test]
fn a_clock_that_went_back_is_noted_and_stops_nothing() {
    let mut story = Story::begun();
    let back = story.tell_at(registered(1, "one"), i64::MIN);
    story.tell_at(green(1), i64::MAX);
    let again = story.tell_at(reviewed(1, "ada", packhouse_ledger::Review::Approve, 3), 0);
    let same = story.tell_at(armed(1, 3, vec![4]), 0);
    let ledger = story.ledger();
    assert_eq!(ledger.state().clock_went_back(), [back, again]);
    assert!(!ledger.state().clock_went_back().contains(&same));
    // Nor does a first entry before 1970 count as going back.
    let mut story = Story::unbegun();
    story.tell_at(genesis(), -1);
    assert_eq!(story.ledger().state().clock_went_back(), [0u64; 0]);
}

#[test]
fn a_packet_is_named_by_its_experiment_or_eight_digits() {
    let mut story = Story::to("registered");
    story.tell(registered(2, "two"));
    let (ledger, packet) = (story.ledger(), digest(1));
    let named = |text: &str| ledger.state().packets_named(text);
    assert_eq!(named("one"), [packet]);
    assert_eq!(named("01010101"), [packet]);
    assert_eq!(named(&packet.to_string()), [packet]);
    for text in [
        "",
        "0101010",
        "0101010102",
        "three",
        "0x010101",
        &format!("{packet}0"),
    ] {
        assert_eq!(named(text), [NO_ENTRY; 0], "{text}");
    }
    // An experiment whose name looks like a digest's beginning is that experiment.
    story.tell(registered(3, "01010101"));
    assert_eq!(
        story.ledger().state().packets_named("01010101"),
        [digest(3)]
    );
    // Two packets that begin alike are both named.
    let mut twin = registered(4, "four");
    twin.packet = Digest::parse(&format!("{}{}", "01".repeat(31), "02")).expect("because it is");
    let twin_packet = twin.packet;
    story.tell(twin);
    assert_eq!(
        story.ledger().state().packets_named("0101010101"),
        [packet, twin_packet]
    );
}

#[test]
fn a_line_and_a_ledger_have_a_greatest_length() {
    let mut story = Story::begun();
    let mut long = note(None);
    let line = |text: usize| {
        let mut note = note(None);
        note.text = "x".repeat(text);
        Entry::render(&note.into(), 2, NO_ENTRY, 1_002, "boot-1").len()
    };
    let fit = (1 << 20) - line(0);
    let parse = |note: &packhouse_ledger::act::Note| {
        let mut told = story.clone();
        told.tell(note.clone());
        Ledger::parse(&told.bytes).err()
    };
    long.text = "x".repeat(fit);
    assert_eq!(parse(&long), None);
    long.text.push('x');
    let error = parse(&long).expect("because it is a byte too long");
    assert_eq!(
        error.to_string(),
        "entry 2: too long: a line has at most 1048576 bytes, a ledger 67108864"
    );
    // What a writer is asked beforehand leaves room for any time and boot id.
    let fault = story.ledger().accepts(&long.clone().into());
    assert_eq!(fault, Err(EntryFault::TooLong));
    long.text.truncate(fit - 60);
    assert_eq!(story.ledger().accepts(&long.clone().into()), Ok(()));
    long.text.push('x');
    long.text.pop();
    story.tell(long);
    // Not even looked at.
    let bytes = vec![b'\n'; (64 << 20) + 1];
    let error = Ledger::parse(&bytes).expect_err("because it is a byte too long");
    assert_eq!(error.code(), Some("ledger.too-long"));
}
