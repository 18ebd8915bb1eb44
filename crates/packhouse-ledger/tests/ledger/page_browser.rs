//! The pages in a real browser: desktop and phone, light and dark.
//!
//! The page carries no script, so a harness beside it frames it at each width and looks into the
//! frame. What it finds wrong it writes into its own document, which the browser prints.
//! Screenshots are kept in `target/test-logs` for people.

use crate::page_samples as samples;
use packhouse_ledger::page::Page;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The widths of a desktop, a tablet, a phone and the narrowest phone, in CSS pixels.
const WIDTHS: [u32; 4] = [1280, 768, 390, 320];

/// The browser; `None`, said once, where there is none.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        println!("SKIP: no chromium to look at pages with");
    }
    found
}

/// What the browser printed of a document, and what it said on stderr.
struct Seen {
    document: String,
    console: Vec<String>,
}

fn look(browser: &Path, folder: &Path, file: &Path, dark: bool, more: &[String]) -> Seen {
    let mut command = Command::new(browser);
    command
        .args([
            "--headless=new",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
        ])
        .args([
            "--disable-extensions",
            "--disable-background-networking",
            "--no-sandbox",
        ])
        .args([
            "--allow-file-access-from-files",
            "--enable-logging=stderr",
            "--timeout=120000",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .args(dark.then_some("--blink-settings=preferredColorScheme=0"))
        .args(more)
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null());
    let output = command.output().expect("because the browser starts");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {log}", output.status);
    let console = log.lines().filter(|line| line.contains("CONSOLE"));
    Seen {
        document: String::from_utf8_lossy(&output.stdout).into_owned(),
        console: console.map(str::to_owned).collect(),
    }
}

/// Frames pages at each width and lists what is wrong with them as `width page: what`.
fn wrong(pages: &[(&str, &str)], widths: &[u32], dark: bool) -> Option<Vec<String>> {
    let browser = browser()?;
    let folder = tempfile::tempdir().expect("because tests have a temporary folder");
    let mut frames = String::new();
    for (name, html) in pages {
        let file = folder.path().join(format!("{name}.html"));
        std::fs::write(file, html).expect("because the folder is ours");
        for width in widths {
            frames += &format!(
                "<iframe data-width={width} data-name={name} style='width:{width}px' \
                 src='{name}.html'></iframe>\n"
            );
        }
    }
    let harness = HARNESS.replace("FRAMES", &frames);
    let harness = harness.replace("DARK", if dark { "true" } else { "false" });
    let file = folder.path().join("harness.html");
    std::fs::write(&file, harness).expect("because the folder is ours");
    let more = ["--dump-dom".to_owned(), "--window-size=1400,900".to_owned()];
    let seen = look(&browser, folder.path(), &file, dark, &more);
    let mut lines = seen.console;
    let found = seen.document.split("<pre id=\"found\">").nth(1);
    let found = found.and_then(|rest| rest.split("</pre>").next());
    let found = found.unwrap_or_else(|| panic!("the harness said nothing: {}", seen.document));
    let expected = pages.len() * widths.len();
    let looked = found
        .lines()
        .filter(|line| line.starts_with("looked"))
        .count();
    assert_eq!(looked, expected, "every frame was looked at: {found}");
    let of_page = found.lines().filter(|line| !line.starts_with("looked"));
    lines.extend(of_page.filter(|line| !line.is_empty()).map(str::to_owned));
    Some(lines)
}

/// A picture of a page on a desktop and, beside it, on a phone.
fn screenshot(name: &str, html: &str) {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().expect("because tests have a temporary folder");
    std::fs::write(folder.path().join("page.html"), html).expect("because the folder is ours");
    // Frames, since a window of the headless browser is at least some 500 pixels wide.
    let frame = |width: u32| {
        format!("<iframe src=page.html style='border:0;width:{width}px;height:5200px'></iframe>")
    };
    let harness = format!(
        "<!doctype html><body style='margin:0;display:flex'>{}{}",
        frame(WIDTHS[0]),
        frame(WIDTHS[2])
    );
    let file = folder.path().join("harness.html");
    std::fs::write(&file, harness).expect("because the folder is ours");
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-logs");
    std::fs::create_dir_all(&logs).expect("because the target folder is ours");
    let picture = logs.join(format!("{name}.png"));
    let more = [
        format!("--screenshot={}", picture.display()),
        format!("--window-size={},5200", WIDTHS[0] + WIDTHS[2]),
    ];
    look(&browser, folder.path(), &file, false, &more);
    let bytes = std::fs::metadata(&picture).map_or(0, |file| file.len());
    assert!(
        bytes > 20_000,
        "{} of {bytes} bytes shows nothing",
        picture.display()
    );
}

fn report(page: &Page) -> String {
    let packet = samples::hex(2);
    page.report_html(&packet, "").expect("because it is there")
}

/// Letters that make every line as long and as hostile as it can be.
fn hostile() -> Page {
    let long = "x".repeat(90);
    samples::page(&|text| format!("{text}<img src=x onerror=alert(1)>\"' {long}"))
}

#[test]
fn pages_fit_and_are_legible_on_desktop_and_phone() {
    let (plain, hostile) = (samples::plain(), hostile());
    let empty = Page::default().html("");
    // The page of the repository's own lab, as it is kept, where it is one.
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../state.html");
    let kept = std::fs::read_to_string(kept).ok();
    let mut pages = vec![
        ("state", plain.html("")),
        ("report", report(&plain)),
        ("hostile", hostile.html("")),
        ("hostile-report", report(&hostile)),
        ("empty", empty),
    ];
    pages.extend(kept.map(|kept| ("kept", kept)));
    let pages = pages.iter().map(|(name, html)| (*name, html.as_str()));
    let pages: Vec<(&str, &str)> = pages.collect();
    for (pages, widths, dark) in [
        (&pages[..], &WIDTHS[..], false),
        // Sizes don't hang on colours.
        (&pages[..2], &WIDTHS[..1], true),
    ] {
        if let Some(wrong) = wrong(pages, widths, dark) {
            assert_eq!(wrong, Vec::<String>::new(), "dark: {dark}");
        }
    }
}

/// The harness itself: a page with one fault of each kind has each found.
#[test]
fn each_fault_of_a_page_is_found() {
    let faulty = "<!doctype html><title>x</title><body style='margin:0;background:#fff'>\
        <p style='width:2000px'>wide</p><p style='font-size:9px'>small</p>\
        <p style='color:#ccc'>pale</p><a href='#nowhere'>dead</a>\
        <svg width=0 height=9 role=img></svg><p id=twice><p id=twice>\
        <script>console.error('said')</script>";
    let Some(found) = wrong(&[("faulty", faulty)], &[390], false) else {
        return;
    };
    for kind in [
        "overflow", "font", "contrast", "anchor", "svg", "id", "script", "CONSOLE",
    ] {
        let is_found = found.iter().any(|line| line.contains(kind));
        assert!(is_found, "{kind} is not found: {found:#?}");
    }
}

#[test]
fn people_can_see_what_the_browser_saw() {
    screenshot("state-page", &samples::plain().html(""));
}

const HARNESS: &str = include_str!("page_harness.html");
