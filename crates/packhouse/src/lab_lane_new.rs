//! `lab lane new`: a lane's document to edit.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::lab::Place;
use crate::lab_open::{Opened, Told};
use crate::lab_words::LabLaneNewArgs;
use crate::{hints, lab_templates};
use packhouse_bag::write_new::open_or_make_dir;
use packhouse_lab::name::is_id;
use serde_json::json;

/// Writes a lane's document.
pub(crate) fn execute(args: &LabLaneNewArgs, place: &Place) -> Result<Answer, Failure> {
    let id = &args.id;
    if !is_id(id) {
        return Err(Failure::usage("no id of a lane", id)
            .cause("an id has up to 64 of a-z, 0-9, dot, dash and underscore")
            .hint(place.hint("lane new my-lane")));
    }
    let path = format!("lanes/{id}.toml");
    let taken = |place: &Place| {
        let file = place.root.join(&path);
        Failure::new("a lane's document is there already", file.display())
            .cause("nothing was written")
            .hint(format!("cat {}", quoted(&file)))
    };
    if place.root.join(&path).symlink_metadata().is_ok() {
        return Err(taken(place));
    }
    let told = Told {
        lines: vec![format!("{path}: a lane to edit")],
        irreversible: "nothing: the lane is not open before the ledger says so",
        json: json!({ "lane": id, "path": path }),
    };
    if !args.execute {
        return Ok(told.planned(&place.hint(&format!("lane new {id} --execute"))));
    }
    let opened = Opened::of(place)?;
    let text = lab_templates::lane(id);
    let lanes = open_or_make_dir(&opened.root, "lanes");
    let placed = lanes.and_then(|lanes| lab_templates::place(&lanes, &format!("{id}.toml"), &text));
    match placed {
        Ok(true) => {}
        Ok(false) => return Err(taken(place)),
        Err(error) => {
            return Err(Failure::new("cannot write a lane's document", &path)
                .because(&error)
                .hint(hints::of(&error, &place.root)));
        }
    }
    let mut answer = told.done();
    let open = place.hint(&format!("lane open {id} --reason TEXT --execute"));
    answer.text += &format!("next: edit {path}, then {open}\n");
    Ok(answer)
}
