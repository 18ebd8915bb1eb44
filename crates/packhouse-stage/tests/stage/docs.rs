//! `docs/format/stage.md` says what the code writes: every field of the receipts is in its table,
//! and every reason is named.

use crate::fixture::World;
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/format/stage.md");

#[test]
fn every_field_and_entry_is_in_the_page() {
    let world = World::new();
    world.outcome();
    let bytes = world.sim.read(world.path(1, "receipts.json"));
    let receipts: Value =
        serde_json::from_slice(&bytes.expect("because it was staged")).expect("because it is JSON");
    let fields = receipts
        .as_object()
        .expect("because it is an object")
        .keys();
    let copy = receipts["copies"][0].as_object();
    let copies = copy.expect("because something was copied").keys();
    let copies = copies.map(|name| format!("copies[].{name}"));
    for field in fields.cloned().chain(copies) {
        assert!(
            PAGE.contains(&format!("`{field}`")),
            "{field} is not in the page"
        );
    }
    let prefix = world.path(1, "");
    for path in world.sim.files(&prefix) {
        let path = path.to_str().expect("because names are ASCII");
        let name = path.strip_prefix(&prefix).expect("because it is below");
        let name = match name.split_once('/') {
            Some((folder, _)) => format!("{folder}/<sha256>"),
            None => name.to_owned(),
        };
        assert!(
            PAGE.contains(&format!("| `{name}` |")),
            "{name} is not in the page"
        );
    }
}
