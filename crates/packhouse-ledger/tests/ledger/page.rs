//! The state page: what it shows of a ledger, and what no text on it can do.

use crate::page_samples::{self as samples, hex};
use crate::story::{self, Story, digest};
use packhouse_ledger::act::{LaneAction, Rehearsed, Released, Review, Verdict};
use packhouse_ledger::page::{Documents, Found, LaneText, Packet, Page, Plan, Row, TimingRule};
use proptest::prelude::*;

fn drawn(story: &Story) -> Page {
    Page::of(&story.ledger(), &Documents::default())
}

/// The state and the next act that Markdown shows for a packet.
fn shown(page: &Page, experiment: &str) -> (String, String) {
    let text = page.markdown("");
    let packets = text.split("\n## ").find(|part| part.starts_with("Packets"));
    let start = format!("| [{experiment}](");
    let lines = packets.expect("because there is such a part").lines();
    let line = lines
        .filter(|line| line.starts_with(&start))
        .collect::<Vec<_>>();
    assert_eq!(line.len(), 1, "one line for {experiment}: {text}");
    let cells: Vec<&str> = line[0].split(" | ").collect();
    (
        cells[3].to_owned(),
        cells[4].trim_end_matches(" |").to_owned(),
    )
}

const REVIEW: &str = "`packhouse lab review one --reviewer NAME --verdict approve --note TEXT`";

#[test]
fn each_state_of_a_packet_has_its_words_and_its_next_act() {
    for (standing, state, next) in [
        ("registered", "registered", "`packhouse lab rehearse one`"),
        ("rehearsed", "rehearsed, green", REVIEW),
        ("reviewed", "reviewed", "`packhouse lab arm one`"),
        ("armed", "armed", "`packhouse lab run one`"),
        ("withdrawn", "withdrawn: the width is another one", "none"),
        (
            "nonce",
            "nonce taken",
            "the run's end; where it was killed: packhouse lab seal one",
        ),
        (
            "consumed",
            "consumed",
            "the run's end; where it was killed: packhouse lab seal one",
        ),
        (
            "closed",
            "bag closed",
            "the run's end; where it was killed: packhouse lab seal one",
        ),
        ("sealed-pass", "sealed, pass", "none"),
        ("sealed-fail", "sealed, fail", "none"),
        (
            "sealed-abort",
            "sealed, abort: leg: the candidate died",
            "none",
        ),
    ] {
        let page = drawn(&Story::to(standing));
        let expected = (state.to_owned(), next.to_owned());
        assert_eq!(shown(&page, "one"), expected, "{standing}");
    }
    let mut story = Story::to("registered");
    story.tell(story::red(1));
    let red = "rehearsed, red: hello: the program did not greet";
    let next = "`packhouse lab rehearse one`";
    assert_eq!(
        shown(&drawn(&story), "one"),
        (red.to_owned(), next.to_owned())
    );
    let mut story = Story::to("nonce");
    story.tell(story::released(1, 1));
    let released = "released: marker: it ended before its marker";
    let next = "`packhouse lab run one`";
    assert_eq!(
        shown(&drawn(&story), "one"),
        (released.to_owned(), next.to_owned())
    );
    let mut story = Story::to("rehearsed");
    let newest = story.count - 1;
    story.tell(story::reviewed(1, "eve", Review::Reject, newest));
    let (state, next) = shown(&drawn(&story), "one");
    assert!(state.starts_with("rejected by a reviewer: eve"), "{state}");
    assert!(!next.contains("packhouse lab"), "{next}");
}

/// Whoever gives runs up until one suits them is seen to; a packet that another run has is spent.
#[test]
fn a_report_says_how_often_a_packet_was_released_and_a_spent_one_has_no_next_act() {
    let mut story = Story::to("nonce");
    story.tell(story::released(1, 1));
    let told = |page: &Page| {
        let of_one = page.report_markdown(&digest(1).to_string(), "");
        of_one.expect("because it is registered")
    };
    let once = "- **Released**: once before the marker: marker: it ended before its marker\n";
    assert!(told(&drawn(&story)).contains(once));
    story.tell(story::nonce(1, 2));
    story.tell(story::released(1, 2));
    let report = told(&drawn(&story));
    assert!(
        report.contains("- **Released**: twice before the marker: "),
        "{report}"
    );
    let mut story = Story::to("nonce");
    let reason = "the packet is consumed by another run: its marker is of another lab";
    let spent = Released {
        reason: reason.to_owned(),
        ..story::released(1, 1)
    };
    story.tell(spent);
    let expected = format!("released, spent: marker: {reason}");
    assert_eq!(shown(&drawn(&story), "one"), (expected, "none".to_owned()));
}

/// It stayed the lane's next act for ever, and nobody could say why it was not gone on with.
#[test]
fn a_withdrawn_packet_is_shown_with_its_reason_and_holds_its_lane_no_longer() {
    let mut story = Story::to("registered");
    let html = |story: &Story| drawn(story).html("");
    assert!(html(&story).contains("<b>1</b><span>packet under way</span>"));
    assert!(!html(&story).contains("withdrawn packet"), "none, no tile");
    let at = story.tell(story::withdrawn(1));
    let page = drawn(&story);
    let lanes = page.markdown("");
    assert!(lanes.contains("| register an experiment |"), "{lanes}");
    let text = html(&story);
    for words in [
        "<b>0</b><span>packets under way</span>",
        "<b>0</b><span>sealed packets</span>",
        "<b>1</b><span>withdrawn packet</span>",
        "the width is another one",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let report = page.report_markdown(&digest(1).to_string(), "");
    let report = report.expect("because it is registered");
    for words in [
        "- **State**: withdrawn: the width is another one\n".to_owned(),
        "- **Next act**: none\n".to_owned(),
        format!("- **Entry {at}**: withdrawn: the width is another one, 1970-01-01"),
    ] {
        assert!(report.contains(&words), "{words}: {report}");
    }
}

/// `lab rehearse` was named for ever as the next act of a packet that no rehearsal could make
/// green.
#[test]
fn a_gate_within_the_noise_leaves_a_packet_to_be_withdrawn_and_not_rehearsed() {
    let mut documents = Documents::default();
    let plan = |asked_ns| {
        let timing = Some(TimingRule {
            minimum_wins: 18,
            minimum_median_saving_ns: asked_ns,
        });
        Found::Here(Plan {
            timing,
            ..Plan::default()
        })
    };
    let loud = Rehearsed {
        detectable_ns: Some([("cpu".to_owned(), 407_359), ("card".to_owned(), 9)].into()),
        ..story::red(1)
    };
    let mut story = Story::to("registered");
    story.tell(loud);
    let mut next = |story: &Story, asked_ns| {
        documents.plans.insert("one".to_owned(), plan(asked_ns));
        let page = Page::of(&story.ledger(), &documents);
        shown(&page, "one").1
    };
    let rehearse = "`packhouse lab rehearse one`";
    let condemned = "none but to give it up: its timing gate asks for 150.000 us, which lies \
                     within the noise that its rehearsals measured (407.359 us on cpu); packhouse \
                     lab withdraw one --reason TEXT, and a new preregistration";
    assert_eq!(next(&story, 407_359), rehearse, "as much is not less");
    assert_eq!(next(&story, 150_000), condemned);
    // A lane that waits does not hold it: a packet is given up in any lane but a closed one.
    let mut waiting = story.clone();
    waiting.tell(story::lane("cpu", LaneAction::Pause));
    assert_eq!(next(&waiting, 150_000), condemned);
    let mut closed = story.clone();
    closed.tell(story::lane("cpu", LaneAction::Close));
    assert_eq!(next(&closed, 150_000), "none: its lane is closed");
    // A quiet rehearsal later takes nothing back.
    story.tell(story::green(1));
    assert_eq!(next(&story, 150_000), condemned);
    story.tell(story::withdrawn(1));
    assert_eq!(next(&story, 150_000), "none");
    // What runs is finished, whatever was measured before.
    assert!(next(&Story::to("consumed"), 0).starts_with("the run's end"));
}

/// An approval too few is not enough to name `arm`.
#[test]
fn the_next_act_counts_approvals_against_the_preregistration() {
    let story = Story::to("reviewed");
    let mut documents = Documents::default();
    let plan = Plan {
        reviewers: 2,
        ..Plan::default()
    };
    documents.plans.insert("one".to_owned(), Found::Here(plan));
    let page = Page::of(&story.ledger(), &documents);
    assert_eq!(shown(&page, "one").1, REVIEW);
}

/// What waits says until when; what is closed has no next act, but what was begun is finished.
#[test]
fn lanes_that_wait_or_are_closed_hold_their_packets() {
    for (action, standing, next) in [
        (
            LaneAction::Pause,
            "armed",
            "its lane waits until 2026-12-24",
        ),
        (
            LaneAction::Block,
            "registered",
            "its lane waits until 2026-12-24",
        ),
        (LaneAction::Close, "registered", "none: its lane is closed"),
    ] {
        let mut story = Story::to(standing);
        story.tell(story::lane("cpu", action));
        let page = drawn(&story);
        assert_eq!(shown(&page, "one").1, next);
        let waits = page.markdown("").contains("| 2026-12-24 | cpu |");
        assert_eq!(waits, action != LaneAction::Close, "{action:?}");
    }
}

/// A page that is kept would be another one tomorrow, so only one that is drawn now says it.
#[test]
fn a_wait_that_is_over_is_marked_where_today_is_known() {
    let mut page = samples::plain();
    let over = |page: &Page| {
        let html = page.html("").matches(">over<").count();
        (html, page.markdown("").matches(" (over) |").count())
    };
    assert_eq!(over(&page), (0, 0), "2026-12-04 and -15 are to come");
    for (day, count) in [(4, 0), (5, 1), (15, 1), (16, 2)] {
        if let Some(live) = &mut page.live {
            // From 30 November on.
            live.at_ns = samples::NOW_NS + day * 86_400_000_000_000;
        }
        assert_eq!(over(&page), (count, count), "{day} December");
    }
    page.live = None;
    assert_eq!(over(&page), (0, 0));
}

/// evidence.md 13.5: one lane's text labelled three values as the current record.
#[test]
fn a_page_cannot_show_two_current_records_of_a_key() {
    let mut story = Story::to("sealed-pass");
    let first = story.tell(story::record(1, None));
    story.advance(2, "two", "sealed-pass");
    let mut next = story::record(2, Some(first));
    next.claim = "15 us less per cycle".to_owned();
    story.tell(next);
    let page = drawn(&story);
    let current: Vec<_> = page.current_records().collect();
    assert_eq!(current.len(), 1);
    assert_eq!(current[0].packet, digest(2).to_string());
    for text in [page.markdown(""), page.html("")] {
        let records = text
            .split("urrent records")
            .nth(1)
            .expect("because it has the part");
        let records = records.split("Packets").next().expect("because it ends");
        assert!(
            records.contains("15 us less") && !records.contains("12 us less"),
            "{records}"
        );
    }
}

#[test]
fn doubts_come_first() {
    let mut story = Story::to("sealed-pass");
    story.tell(story::record(1, None));
    story.tell_at(story::note(None), 5);
    story.tell(story::analysed(1, 2, Verdict::Fail));
    story.tell(story::corrected(1));
    story.bytes.extend_from_slice(b"{\"at_ns\":1,");
    let page = drawn(&story);
    let kinds: Vec<&str> = page
        .doubts
        .iter()
        .map(|doubt| doubt.what.as_str())
        .collect();
    assert_eq!(
        kinds,
        [
            "torn append",
            "clock went back",
            "corrected",
            "record disputed",
            "verdict changed",
            "document",
            "document",
            "evidence",
            "evidence"
        ]
    );
    for text in [page.markdown(""), page.html("")] {
        let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
        assert!(place("Know first") < place("Lanes"));
        for said in ["11 bytes after", "clock went back", "the title has a slip"] {
            place(said);
        }
    }
    let clean = Page {
        doubts: Vec::new(),
        ..page
    };
    assert!(!clean.markdown("").contains("Know first"));
}

/// What is not the ledger's file is no figure on the page.
#[test]
fn nothing_is_shown_of_an_analysis_that_is_not_the_ledgers() {
    let story = Story::to("sealed-pass");
    let mut documents = Documents::default();
    let found = samples::evidence(&|text| text.to_owned());
    let key = (digest(1), 1);
    documents.analyses.insert(key, Found::Here(found));
    let page = |documents: &Documents| Page::of(&story.ledger(), documents);
    let packet = digest(1).to_string();
    let report = |page: &Page| {
        let md = page
            .report_markdown(&packet, "")
            .expect("because it is there");
        md + &page.report_html(&packet, "").expect("because it is there")
    };
    let here = report(&page(&documents));
    assert!(here.contains("284 of 288 rows as promised"), "{here}");
    for (found, said) in [
        (Found::Absent, "not here"),
        (
            Found::Refused("another digest".to_owned()),
            "another digest",
        ),
    ] {
        documents.analyses.insert(key, found);
        let text = report(&page(&documents));
        assert!(
            text.contains(said) && !text.contains("as promised"),
            "{text}"
        );
    }
}

/// Who edited a preregistration is not told to look for it.
#[test]
fn a_preregistration_that_is_another_is_not_said_to_be_missing() {
    let story = Story::to("registered");
    let mut documents = Documents::default();
    let reports = |documents: &Documents| {
        let page = Page::of(&story.ledger(), documents);
        let packet = digest(1).to_string();
        [
            page.report_markdown(&packet, ""),
            page.report_html(&packet, ""),
        ]
    };
    let said = |reports: [Option<String>; 2], text: &str| {
        reports
            .iter()
            .flatten()
            .filter(|report| report.contains(text))
            .count()
    };
    let absent = "the preregistration is not here";
    let refused = "the preregistration is refused: another digest ";
    assert_eq!(said(reports(&documents), absent), 2);
    let found = Found::Refused("another digest & <b>".to_owned());
    documents.plans.insert("one".to_owned(), found);
    assert_eq!(said(reports(&documents), refused), 2);
    assert_eq!(said(reports(&documents), absent), 0);
    assert_eq!(said(reports(&documents), "<b>"), 0);
}

/// One disturbed block must not flatten the others, and a long analysis must not make a page that
/// nobody can look at: what is cut or left out is said, and what failed is not left out.
#[test]
fn what_is_cut_from_a_plot_is_said() {
    let mut found = samples::evidence(&|text| text.to_owned());
    let mut page = samples::plain();
    let mut seal = page.packets[1].seals[0].clone();
    assert!(!page.html("").contains(" cut: blocks save "));
    found.timing[0].savings[3].numerator = 90_000_000;
    let row = found.rows[0].clone();
    for index in 100..1_000 {
        let equal = index != 777;
        let row = Row {
            index,
            equal,
            ..row.clone()
        };
        found.rows.push(row);
    }
    seal.reading = Found::Here(found);
    page.packets = vec![Packet {
        seals: vec![seal],
        ..page.packets[1].clone()
    }];
    let html = page.html("");
    assert!(
        html.contains("1 bar cut: blocks save 137.500 us to 45.000 ms"),
        "{html}"
    );
    assert!(
        html.contains("Too many to draw") && html.contains(">911/912<"),
        "{html}"
    );
    assert!(html.contains("case 777, width 1") && !html.contains("case 776, width 1"));
}

#[test]
fn a_packet_that_is_not_there_has_no_report() {
    let page = samples::plain();
    assert_eq!(page.report_markdown(&hex(0x77), ""), None);
    assert_eq!(page.report_html(&hex(0x77), ""), None);
}

/// "None: control and candidate are the same program", an author wrote of two programs.
#[test]
fn what_an_author_says_of_the_treatment_stands_beside_what_differs() {
    let mut page = samples::plain();
    page.packets[1].treatment = "None: the same program.".to_owned();
    let reports = |page: &Page| {
        let packet = &page.packets[1].packet;
        let reports = [
            page.report_markdown(packet, ""),
            page.report_html(packet, ""),
        ];
        reports.map(|report| report.expect("because it is there"))
    };
    for text in reports(&page) {
        assert!(text.contains("None: the same program."), "{text}");
        assert!(text.contains("program: packhouse -"), "{text}");
        assert!(
            text.contains("What ran") && text.contains("KERNEL_THREADS"),
            "{text}"
        );
        assert!(
            text.contains("row 3, column 17") && text.contains("1 ULP apart"),
            "{text}"
        );
        assert!(text.contains("lab report"), "{text}");
    }
    // The page that is kept has none of it.
    for text in [page.markdown(""), page.html("")] {
        assert!(!text.contains("KERNEL_THREADS") && !text.contains("What ran"));
    }
    let ran = page.packets[1]
        .ran
        .as_mut()
        .expect("because it is a sample");
    ran.differences = Some(Vec::new());
    for text in reports(&page) {
        assert!(text.contains("nothing: program, arguments and environment are the same"));
    }
}

/// A page that is kept says nothing of what runs; one that is drawn live says when and how, and
/// what was not looked at is not said to be none.
#[test]
fn what_was_observed_stands_apart_with_its_time_and_way() {
    let mut page = samples::plain();
    for text in [page.markdown(""), page.html("")] {
        let (kept, live) = text
            .split_once("Observed on this host")
            .expect("because it is live");
        assert!(!kept.contains("4711") && live.contains("process 4711"));
        assert!(live.contains("content of /proc/4711/exe"));
        assert!(live.contains("2026-11-30 07:10:11 UTC"));
        let ports = live
            .split("Ports that they listen on")
            .nth(1)
            .expect("because it is asked");
        let devices = ports.find("Devices").expect("because it follows");
        assert!(ports[..devices].contains("not observed"), "{ports}");
        assert!(live.contains("unknown") && live.contains("git failed"));
    }
    page.live = None;
    for text in [page.markdown(""), page.html("")] {
        assert!(!text.contains("Observed on this host") && !text.contains("4711"));
    }
}

#[test]
fn the_same_values_give_the_same_bytes_and_nothing_of_elsewhere() {
    let page = samples::plain();
    let html = page.html("");
    assert_eq!(html, samples::plain().html(""));
    assert_eq!(page.markdown(""), samples::plain().markdown(""));
    for word in [
        "<script",
        "javascript:",
        "http://",
        "https://",
        "@import",
        "url(",
        " src=",
        "<img",
    ] {
        assert!(!html.contains(word), "{word}");
    }
    assert!(html.contains("default-src 'none'"));
    assert!(
        !html.contains(" style="),
        "the policy allows it, and nothing needs it"
    );
}

/// Links lead to where the page's prefix says, and each names a file of a lab.
#[test]
fn links_are_relative_and_begin_with_the_prefix() {
    let page = samples::plain();
    let packet = hex(2);
    for html in [
        page.html("../lab/"),
        page.report_html(&packet, "../lab/")
            .expect("because it is there"),
    ] {
        for link in html.split("href=\"").skip(1) {
            let link = link.split('"').next().expect("because a quote ends it");
            let is_own = link.starts_with('#') && html.contains(&format!("id=\"{}\"", &link[1..]));
            let below = link.strip_prefix("../lab/").unwrap_or("");
            let is_file = ["ledger.jsonl", "lanes/", "experiments/", "evidence/"]
                .iter()
                .any(|start| below.starts_with(start));
            assert!(is_own || is_file, "{link}");
        }
    }
}

/// A lane's document, where it is the ledger's, is what the page shows of the lane.
#[test]
fn a_lane_shows_its_document_and_its_record() {
    let mut story = Story::to("sealed-pass");
    story.tell(story::record(1, None));
    let mut documents = Documents::default();
    let text = LaneText {
        title: "kernels on CPUs".to_owned(),
        record_key: "cpu/decode".to_owned(),
        ..LaneText::default()
    };
    documents.lanes.insert("cpu".to_owned(), Found::Here(text));
    let md = Page::of(&story.ledger(), &documents).markdown("");
    let lane = md
        .lines()
        .find(|line| line.starts_with("| [cpu](lanes/cpu.toml)"));
    let lane = lane.expect("because the lane is there");
    assert!(
        lane.contains("kernels on CPUs") && lane.contains("12 us less per cycle"),
        "{lane}"
    );
}

/// Tags with the names of their attributes, in order: what a text must not change.
fn skeleton(html: &str) -> Vec<String> {
    let mut tags = Vec::new();
    for part in html.split('<').skip(1) {
        let tag = part.split('>').next().expect("because split gives one");
        let mut names = String::new();
        for (place, piece) in tag.split('"').enumerate() {
            if place % 2 == 0 {
                names += piece;
            }
        }
        tags.push(names);
    }
    tags
}

/// Lines with their cells, headings and links: what a text must not change.
fn outline(markdown: &str) -> Vec<(usize, usize, String)> {
    let line = |line: &str| {
        let mut bare = String::new();
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => {
                    letters.next();
                }
                letter => bare.push(letter),
            }
        }
        let cells = bare.matches('|').count();
        let links = bare.matches("](").count();
        let start = bare
            .chars()
            .take_while(|letter| "#-| ".contains(*letter))
            .collect();
        (cells, links, start)
    };
    markdown.lines().map(line).collect()
}

fn assert_inert(hostile: &str) {
    let plain = samples::plain();
    // A word more than the text, so that no text is empty, and each stays itself.
    let page = samples::page(&|text| format!("{text}{hostile}"));
    let report = |page: &Page| page.report_html(&hex(2), "").expect("because it is there");
    for (one, other) in [
        (plain.html(""), page.html("")),
        (report(&plain), report(&page)),
    ] {
        assert_eq!(skeleton(&one), skeleton(&other), "{hostile:?}");
        assert!(!other.chars().any(is_obeyed), "{hostile:?}");
    }
    let report = |page: &Page| {
        page.report_markdown(&hex(2), "")
            .expect("because it is there")
    };
    for (one, other) in [
        (plain.markdown(""), page.markdown("")),
        (report(&plain), report(&page)),
    ] {
        assert_eq!(outline(&one), outline(&other), "{hostile:?}");
        assert!(!other.chars().any(is_obeyed), "{hostile:?}");
        for markup in ["<script", "<img", "<!--", "&lt;"] {
            let shown = other.replace(&format!("\\{markup}"), "");
            assert!(!shown.contains(markup), "{markup} {hostile:?}");
        }
    }
}

/// What a terminal or browser would obey.
fn is_obeyed(letter: char) -> bool {
    letter != '\n' && packhouse_base::shown::is_hidden(letter)
}

#[test]
fn no_text_is_markup() {
    for hostile in [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "</title></style></svg><svg onload=alert(1)>",
        "<!-- ",
        "]]>",
        "&lt;b&gt; &#60;",
        "| x | y |\n\n# heading\n\n- item\n",
        "[x](javascript:alert(1)) ![y](https://elsewhere.example/z.png)",
        "`code` **bold** _em_ ~~gone~~ $x$",
        "\\",
        "\\| \\[ \\\\|",
        "```\n",
        "\u{1b}]0;title\u{7}\u{1b}[2J",
        "\u{202e}desrever\u{2066}",
        "\r\n\t\u{0}\u{2028}",
        "<https://elsewhere.example> www.elsewhere.example",
        "{{ 7 * 7 }} ${x} <%= x %>",
    ] {
        assert_inert(hostile);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_text_changes_the_page_around_it(hostile in "[\\PC\\n\\t<>&\"'`|\\\\\\[\\]()#*_!]{0,24}") {
        assert_inert(&hostile);
    }
}

/// Six rehearsals of which the quietest was the newest: the page had its figure alone.
#[test]
fn a_packets_noise_is_that_of_all_its_rehearsals_and_red_ones_are_told() {
    let mut story = Story::to("registered");
    let told = |rehearsed: Rehearsed, ns: u64| Rehearsed {
        detectable_ns: Some([("cpu".to_owned(), ns)].into()),
        ..rehearsed
    };
    for act in [
        told(story::red(1), 407_359),
        told(story::red(1), 38_766),
        told(story::green(1), 19_219),
    ] {
        story.tell(act);
    }
    let page = drawn(&story);
    let packet = &page.packets[0];
    let most = &packet.rehearsals.detectable_ns;
    assert_eq!(*most, [("cpu".to_owned(), 407_359)]);
    let reports = [
        page.report_markdown(&packet.packet, ""),
        page.report_html(&packet.packet, ""),
    ];
    for text in reports.into_iter().flatten() {
        assert!(text.contains("1 of 3 rehearsals green"), "{text}");
        let words = "on cpu a saving of 407.359 us could be told (those not green: 407.359 us, \
                     38.766 us)";
        assert!(text.contains(words), "{text}");
    }
}
