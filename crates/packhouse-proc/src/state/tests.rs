//! Every snapshot there can be, against the table of `docs/design/workers.md` and against what each
//! state promises.

use super::*;

const RECORDS: [RecordsSeen; 5] = [
    RecordsSeen::NoRun,
    RecordsSeen::Unreadable,
    RecordsSeen::Ordered,
    RecordsSeen::Launched,
    RecordsSeen::Identified,
];
const EXITS: [ExitSeen; 2] = [ExitSeen::Unrecorded, ExitSeen::Known(CODE)];
const CODE: Outcome = Outcome::Code(3);
const STOPS: [StopSeen; 3] = [StopSeen::NotBegun, StopSeen::Begun, StopSeen::Released];
const CONTROLLERS: [ControllerSeen; 3] = [
    ControllerSeen::Idle,
    ControllerSeen::Working,
    ControllerSeen::Unknown,
];
const BOOTS: [BootSeen; 4] = [
    BootSeen::Same,
    BootSeen::Earlier,
    BootSeen::OtherMachine,
    BootSeen::Unknown,
];
const PROCESSES: [ProcessSeen; 4] = [
    ProcessSeen::Alive,
    ProcessSeen::Gone,
    ProcessSeen::Reused,
    ProcessSeen::Unknown,
];
const OTHERS: [OthersSeen; 3] = [OthersSeen::None, OthersSeen::Some, OthersSeen::Unknown];
const PORTS: [PortSeen; 5] = [
    PortSeen::Free,
    PortSeen::Ours,
    PortSeen::Other,
    PortSeen::Unattributed,
    PortSeen::Unknown,
];
const HEALTHS: [HealthSeen; 4] = [
    HealthSeen::NotAsked,
    HealthSeen::Good,
    HealthSeen::Bad,
    HealthSeen::Silent,
];

/// Calls `each` with the whole product, and with the place of each observation in its list, in the
/// order of the table's columns.
fn for_each(mut each: impl FnMut(&Snapshot, [usize; 10])) -> usize {
    let radices = words().map(|words| words.len());
    let total: usize = radices.iter().product();
    for index in 0..total {
        let mut rest = index;
        let places = radices.map(|radix| {
            let place = rest % radix;
            rest /= radix;
            place
        });
        let seen = Snapshot {
            records: RECORDS[places[0]],
            boot: BOOTS[places[1]],
            main: PROCESSES[places[2]],
            keeper: PROCESSES[places[3]],
            others: OTHERS[places[4]],
            exit: EXITS[places[5]],
            stop: STOPS[places[6]],
            controller: CONTROLLERS[places[7]],
            port: PORTS[places[8]],
            health: HEALTHS[places[9]],
        };
        each(&seen, places);
    }
    total
}

/// The table's words for the observations of each column.
fn words() -> [Vec<String>; 10] {
    [
        RECORDS.map(word).to_vec(),
        BOOTS.map(word).to_vec(),
        PROCESSES.map(word).to_vec(),
        PROCESSES.map(word).to_vec(),
        OTHERS.map(word).to_vec(),
        EXITS.map(word).to_vec(),
        STOPS.map(word).to_vec(),
        CONTROLLERS.map(word).to_vec(),
        PORTS.map(word).to_vec(),
        HEALTHS.map(word).to_vec(),
    ]
}

/// `NotBegun` as the table writes it: `not_begun`.
fn word(value: impl fmt::Debug) -> String {
    let text = format!("{value:?}");
    let text = text.split('(').next().expect("because split gives one");
    let mut word = String::new();
    for letter in text.chars() {
        if letter.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

/// A row of the table.
struct Row {
    /// For each column a bit per observation that fits.
    fits: [u8; 10],
    state: String,
    reason: String,
}

fn table() -> Vec<Row> {
    let page = include_str!("../../../../docs/design/workers.md");
    let lines = page.lines();
    let lines = lines.skip_while(|line| !line.starts_with("| records |"));
    let lines = lines.skip(2).take_while(|line| line.starts_with('|'));
    let known = words();
    lines
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            assert_eq!(cells.len(), 12, "{line}");
            let fits = std::array::from_fn(|column| match cells[column] {
                "-" => u8::MAX,
                cell => cell.split(", ").fold(0, |fits, word| {
                    let place = known[column].iter().position(|known| known == word);
                    fits | 1 << place.unwrap_or_else(|| panic!("no observation: {word}"))
                }),
            });
            Row {
                fits,
                state: cells[10].to_owned(),
                reason: cells[11].to_owned(),
            }
        })
        .collect()
}

#[test]
fn every_snapshot_is_judged_as_the_table_says() {
    let rows = table();
    let mut used = vec![0usize; rows.len()];
    let total = for_each(|seen, places| {
        let row = rows.iter().position(|row| {
            let mut pairs = row.fits.iter().zip(places);
            pairs.all(|(fits, place)| fits >> place & 1 == 1)
        });
        let row = row.expect("because the last row fits anything");
        used[row] += 1;
        let verdict = judge(seen);
        let told = (verdict.state.word(), verdict.reason.word());
        let said = (rows[row].state.as_str(), rows[row].reason.as_str());
        assert_eq!(told, said, "row {row}: {seen:?}");
    });
    assert_eq!(total, 345_600);
    for (row, count) in used.iter().enumerate() {
        assert!(*count > 0, "row {row} is never reached");
    }
}

#[test]
fn states_keep_their_promises() {
    for_each(|seen, _| {
        let Verdict { state, reason } = judge(seen);
        let launched = matches!(
            seen.records,
            RecordsSeen::Launched | RecordsSeen::Identified
        );
        let ran = launched || seen.records == RecordsSeen::Ordered;
        let main_lives = launched && seen.main == ProcessSeen::Alive;
        let lives = main_lives
            || ran && (seen.keeper == ProcessSeen::Alive || seen.others == OthersSeen::Some);
        let hidden = ran
            && seen.boot == BootSeen::Same
            && (launched && seen.main == ProcessSeen::Unknown && seen.exit == ExitSeen::Unrecorded
                || !main_lives && seen.others == OthersSeen::Unknown)
            || ran && seen.boot == BootSeen::Unknown;
        let context = || format!("{seen:?} is {state:?}, {reason:?}");
        let is_over = matches!(state, State::Absent | State::Exited(_) | State::Stale);
        assert!(!(lives && is_over), "{}", context());
        assert!(!hidden || state == State::Unverifiable, "{}", context());
        let serves = seen.records == RecordsSeen::Identified
            && seen.boot == BootSeen::Same
            && main_lives
            && seen.exit == ExitSeen::Unrecorded
            && seen.stop == StopSeen::NotBegun
            && seen.port == PortSeen::Ours
            && seen.health == HealthSeen::Good;
        assert_eq!(state == State::Ready, serves, "{}", context());
        match state {
            State::Exited(Outcome::Unknown) => {
                assert!(seen.stop == StopSeen::Released, "{}", context());
            }
            State::Exited(outcome) => {
                assert_eq!(seen.exit, ExitSeen::Known(outcome), "{}", context())
            }
            State::Stale => assert!(
                seen.exit == ExitSeen::Unrecorded && seen.stop != StopSeen::Released,
                "{}",
                context()
            ),
            State::Absent => assert_eq!(seen.records, RecordsSeen::NoRun, "{}", context()),
            State::Foreign => assert!(
                matches!(seen.port, PortSeen::Other | PortSeen::Unattributed)
                    || launched && seen.main == ProcessSeen::Reused,
                "{}",
                context()
            ),
            State::Stopping => assert!(
                seen.stop == StopSeen::Begun || !main_lives && lives,
                "{}",
                context()
            ),
            State::Starting => assert!(ran && seen.stop == StopSeen::NotBegun, "{}", context()),
            State::Unhealthy => assert!(lives, "{}", context()),
            State::Ready | State::Unverifiable => {}
        }
    });
}

#[test]
fn how_it_ended_is_passed_on_and_shown() {
    let outcomes = [
        (Outcome::Code(0), "exited(0)", "ended by itself"),
        (Outcome::Code(137), "exited(137)", "ended by itself"),
        (
            Outcome::Signal(9),
            "exited(signal 9)",
            "ended by signal 9, which no stop sent",
        ),
        (
            Outcome::NotStarted,
            "exited(never ran)",
            "the engine never ran",
        ),
        (
            Outcome::Unknown,
            "exited(unknown)",
            "ended, and nobody saw how",
        ),
    ];
    for (outcome, shown, sentence) in outcomes {
        let verdict = judge(&Snapshot {
            records: RecordsSeen::Identified,
            exit: ExitSeen::Known(outcome),
            stop: StopSeen::NotBegun,
            controller: ControllerSeen::Idle,
            boot: BootSeen::Same,
            keeper: ProcessSeen::Gone,
            main: ProcessSeen::Gone,
            others: OthersSeen::None,
            port: PortSeen::Free,
            health: HealthSeen::NotAsked,
        });
        assert_eq!(verdict.state.to_string(), shown);
        assert_eq!(verdict.reason, Reason::Ended);
        assert_eq!(verdict.sentence(), sentence);
    }
}
