//! Any order of what can be asked of a writer, beside a map that has the same done to it.

use crate::samples::{disk, home, info};
use packhouse_bag::{Contents, OpenBag, closed};
use packhouse_sim::{Crash, SimFs};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// One thing that is asked.
#[derive(Clone, Debug)]
enum Act {
    Put(usize, Vec<u8>),
    Append(usize, Vec<u8>),
    Sync,
    /// The process is killed, and another one takes the bag up.
    Kill,
    /// As `Kill`; a file is cut to so many bytes.
    Cut(usize, u64),
    /// As `Kill`; a file is removed.
    Remove(usize),
}

/// Paths that are each other's folders, siblings and neighbours in order.
const PATHS: [&str; 7] = ["a", "a/b", "a/b/c", "a-b", "a0", "legs/00/x", "legs/01/x"];

#[derive(Default)]
struct Model {
    files: BTreeMap<&'static str, Vec<u8>>,
    /// Those that this process appends to.
    appended: BTreeSet<&'static str>,
}

impl Model {
    fn is_free(&self, path: &str) -> bool {
        self.files.keys().all(|other| {
            let is_below = other.starts_with(&format!("{path}/"));
            *other != path && !is_below && !path.starts_with(&format!("{other}/"))
        })
    }
}

fn act() -> impl Strategy<Value = Act> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..6);
    prop_oneof![
        4 => (0..PATHS.len(), bytes()).prop_map(|(path, bytes)| Act::Put(path, bytes)),
        4 => (0..PATHS.len(), bytes()).prop_map(|(path, bytes)| Act::Append(path, bytes)),
        1 => Just(Act::Sync),
        1 => Just(Act::Kill),
        1 => (0..PATHS.len(), 0..6u64).prop_map(|(path, bytes)| Act::Cut(path, bytes)),
        1 => (0..PATHS.len()).prop_map(Act::Remove),
    ]
}

/// Does it to both. What the writer refuses, the model refuses.
fn apply(sim: &mut SimFs, mut bag: OpenBag, model: &mut Model, act: &Act) -> OpenBag {
    match act {
        Act::Put(index, bytes) => {
            let path = PATHS[*index];
            let is_right = !bytes.is_empty() && model.is_free(path);
            assert_eq!(bag.put(path, bytes).is_ok(), is_right, "{act:?}");
            if is_right {
                model.files.insert(path, bytes.clone());
            }
        }
        Act::Append(index, bytes) => {
            let path = PATHS[*index];
            let is_right = bytes.is_empty() || model.is_free(path) || model.appended.contains(path);
            assert_eq!(bag.append(path, bytes).is_ok(), is_right, "{act:?}");
            if is_right && !bytes.is_empty() {
                model.files.entry(path).or_default().extend(bytes);
                model.appended.insert(path);
            }
        }
        Act::Sync => bag.sync().expect("because nothing fails"),
        Act::Kill | Act::Cut(..) | Act::Remove(_) => {
            drop(bag);
            *sim = sim.crash(Crash::Kept, 1);
            model.appended.clear();
            let mut resumed = OpenBag::resume(&home(sim)).expect("because it is open");
            assert!(resumed.removed().is_empty());
            if let Act::Cut(index, bytes) = act {
                let path = PATHS[*index];
                let is_there = model.files.contains_key(path);
                assert_eq!(resumed.cut(path, *bytes).is_ok(), is_there, "{act:?}");
                if let Some(content) = model.files.get_mut(path) {
                    content.truncate(*bytes as usize);
                }
                model.files.retain(|_, content| !content.is_empty());
            }
            if let Act::Remove(index) = act {
                let is_there = model.files.remove(PATHS[*index]).is_some();
                assert_eq!(resumed.remove(PATHS[*index]).is_ok(), is_there, "{act:?}");
            }
            bag = resumed.into_bag();
        }
    }
    let files = model.files.iter();
    assert!(bag.paths().eq(model.files.keys().copied()), "{act:?}");
    assert_eq!(
        bag.bytes(),
        files.map(|(_, content)| content.len() as u64).sum::<u64>()
    );
    bag
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_is_asked_in_any_order_the_closed_bag_is_that_of_a_map(
        acts in prop::collection::vec(act(), 1..24)
    ) {
        let mut sim = disk(1);
        let mut model = Model::default();
        let mut bag = OpenBag::create(&home(&sim)).expect("because nothing is there");
        for act in &acts {
            bag = apply(&mut sim, bag, &mut model, act);
        }
        if model.files.is_empty() {
            bag.put("last", b"1").expect("because it is free");
            model.files.insert("last", b"1".to_vec());
        }
        let digest = bag.close(&info()).expect("because nothing fails");
        let sim = sim.crash(Crash::Lost, 1);
        let there = home(&sim).open_dir("bag").expect("because it was told");
        let there = Contents::read(&there).expect("because it was told");
        let mut payload = Contents::default();
        for (path, content) in model.files {
            payload.insert(path, content);
        }
        prop_assert_eq!(there.digest(), Some(digest));
        prop_assert_eq!(there, closed(&payload, &info()));
    }
}
