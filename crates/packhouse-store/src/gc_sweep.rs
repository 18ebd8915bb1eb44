//! The sweep of a gc: what no plan names. Stale temporary files, old quarantine, set folders
//! without a manifest, and private records of what is gone.
//!
//! Invariants:
//! - each kind has its grace by age, so that a publish under way loses nothing;
//! - a source ledger stays as long as its container file is there, however old it is;
//! - a dry run counts what a real one removes.
//!
//! Never: touches an entry whose name is not one of ours; it is reported.

use crate::gc::{DOOMED_SUFFIX, GcError, GcOptions, GcReport, note};
use crate::inventory::{Inventory, age_s, entries, seconds_since};
use crate::ledger::place_of;
use crate::reach::identity;
use crate::root::{OpenError, Store};
use crate::small::SmallRefusal;
use crate::state::StateError;
use crate::use_log::Uses;
use packhouse_base::digest::SetKey;
use packhouse_sys::stat::FileKind;
use std::collections::BTreeSet;

impl Store {
    pub(crate) fn remove_strays(
        &self,
        inventory: &Inventory,
        options: &GcOptions,
        now_ns: i64,
        report: &mut GcReport,
    ) -> Result<(), GcError> {
        let policy = &options.policy;
        for stray in &inventory.strays {
            if !stray.is_temp() {
                report.foreign.push(stray.path());
            } else if age_s(&stray.stat, now_ns) >= policy.temp_grace_s {
                report.temps.add(stray.stat.size);
                if !options.dry_run {
                    note(stray.dir.unlink(&stray.name), report);
                }
            }
        }
        for (name, stat) in entries(self.quarantine_dir()).map_err(SmallRefusal::from)? {
            let doomed = name.ends_with(DOOMED_SUFFIX);
            let is_old = age_s(&stat, now_ns) >= policy.set_grace_s;
            if doomed
                && report
                    .plan
                    .objects
                    .iter()
                    .any(|d| name == format!("{d}{DOOMED_SUFFIX}"))
            {
                continue;
            }
            if stat.kind == FileKind::Directory {
                report.foreign.push(self.quarantine_dir().path().join(name));
            } else if doomed || is_old {
                report.quarantine.add(stat.size);
                if !options.dry_run {
                    note(self.quarantine_dir().unlink(&name), report);
                }
            }
        }
        self.remove_unfinished_sets(options, now_ns, report)
    }

    fn remove_unfinished_sets(
        &self,
        options: &GcOptions,
        now_ns: i64,
        report: &mut GcReport,
    ) -> Result<(), GcError> {
        let finished: BTreeSet<SetKey> = self.list_sets()?.into_iter().collect();
        for (name, stat) in entries(self.sets_dir()).map_err(SmallRefusal::from)? {
            let Ok(key) = SetKey::parse(&name) else {
                report.foreign.push(self.sets_dir().path().join(name));
                continue;
            };
            let is_old = age_s(&stat, now_ns) >= options.policy.loose_grace_s;
            if finished.contains(&key) || !is_old {
                continue;
            }
            report.unfinished_sets.add(0);
            if !options.dry_run {
                note(self.drop_set(key), report);
            }
        }
        Ok(())
    }

    pub(crate) fn remove_private(
        &self,
        inventory: &Inventory,
        uses: &Uses,
        (options, now_ns): (&GcOptions, i64),
        report: &mut GcReport,
    ) -> Result<(), GcError> {
        let no_state = |error: &OpenError| GcError::NoState(Box::new(error.clone()));
        let state = self.state().map_err(no_state)?;
        for temp in state.temps().map_err(StateError::from)? {
            if age_s(&temp.stat, now_ns) >= options.policy.temp_grace_s {
                report.temps.add(temp.stat.size);
                if !options.dry_run {
                    note(temp.dir.unlink(&temp.name), report);
                }
            }
        }
        let receipts = self.receipts().map_err(no_state)?;
        for object in receipts.objects()? {
            let stays =
                inventory.objects.contains_key(&object) && !report.plan.objects.contains(&object);
            if !stays {
                report.receipts.add(0);
                if !options.dry_run {
                    note(receipts.forget(object), report);
                }
            }
        }
        let sources = self.sources().map_err(no_state)?;
        let living = self.living_places(uses);
        for (place, newest_ns) in sources.places().map_err(StateError::from)? {
            let is_old = seconds_since(newest_ns, now_ns) >= options.policy.set_grace_s;
            if is_old && !living.contains(&place) {
                report.sources.add(0);
                if !options.dry_run {
                    note(sources.forget_place(&place), report);
                }
            }
        }
        let log = self.use_log().map_err(no_state)?;
        let finished: BTreeSet<SetKey> = self.list_sets()?.into_iter().collect();
        for key in uses.sets.keys() {
            if !finished.contains(key) && !report.plan.sets.contains_key(key) {
                report.uses.add(0);
                if !options.dry_run {
                    note(log.forget_set(*key), report);
                }
            }
        }
        Ok(())
    }

    /// Places of the container files that the used sets name and that are still there.
    fn living_places(&self, uses: &Uses) -> BTreeSet<String> {
        let mut living = BTreeSet::new();
        for (set, used) in &uses.sets {
            let records = self
                .read_container_records(*set)
                .unwrap_or_default()
                .records;
            let shards = || records.iter().flat_map(|record| record.files());
            for path in used.containers.keys() {
                let beside = shards().map(|file| path.with_file_name(&file.name));
                let paths = beside.chain([path.clone()]);
                let identities = paths.filter_map(|path| identity(self.fs(), &path));
                living.extend(identities.map(|stat| place_of(&stat)));
            }
        }
        living
    }
}
