//! What keys do in the view of a run.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use teamster_api::runs::{EditItem, EditNote, ItemStatus, Phase, Steer};

use super::editor::{Editor, Typed};
use super::model::{Asks, Mode, Model, Pane, Watched as _, Writes};
use super::view;

/// What the hub is asked to change of a run.
#[derive(Debug, PartialEq)]
pub(super) enum Edit {
    Steer(Steer),
    Item(EditItem),
    Note(EditNote),
}

/// What is to be done outside of the view.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    Nothing,
    /// The hub is asked for something; then `says` is told.
    Ask {
        what: Box<Edit>,
        says: String,
        /// What the person wrote for it.
        written: Option<(Writes, String)>,
    },
    /// The run is gone on with.
    Resume,
    Leave,
    /// It is stopped, and left.
    Interrupt,
}

fn steer(how: Steer, says: &str) -> Effect {
    Effect::Ask { what: Box::new(Edit::Steer(how)), says: says.to_owned(), written: None }
}

/// Takes in what was pasted: text where one is written, and nothing else.
pub(super) fn paste(model: &mut Model, text: &str) {
    if let Mode::Writing(_, editor) = &mut model.mode {
        editor.insert(text);
    }
}

pub(super) fn press(model: &mut Model, key: KeyEvent) -> Effect {
    let is_ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    model.says = None;
    match std::mem::replace(&mut model.mode, Mode::Normal) {
        Mode::Normal if is_ctrl_c => interrupt(model),
        Mode::Normal => normal(model, key),
        Mode::Writing(what, mut editor) => match editor.press(key) {
            Typed::On => {
                model.mode = Mode::Writing(what, editor);
                Effect::Nothing
            }
            Typed::Sent if editor.text().trim().is_empty() => Effect::Nothing,
            Typed::Sent => match changed_meanwhile(model, &what) {
                Some(now) => {
                    model.says =
                        Some(Err(format!("Enter again overwrites what it says by now: {}", now.1)));
                    let (id, was) = now;
                    model.mode = Mode::Writing(Writes::Item { id, was }, editor);
                    Effect::Nothing
                }
                None => written(what, editor.text().trim()),
            },
            Typed::Cancelled => Effect::Nothing,
        },
        Mode::Asking(asks) => match (key.code, asks) {
            (KeyCode::Char('y' | 'Y'), Asks::Stop) => {
                steer(Steer::Stop { now: true }, "its agents are ended")
            }
            (KeyCode::Char('y' | 'Y'), Asks::Interrupt) => Effect::Interrupt,
            // Who says it twice means it.
            (_, Asks::Interrupt) if is_ctrl_c => Effect::Interrupt,
            _ => Effect::Nothing,
        },
        Mode::Help => Effect::Nothing,
        Mode::Reading { title, text, first } => {
            let first = match key.code {
                KeyCode::Down | KeyCode::Char('j') => first + 1,
                KeyCode::Up | KeyCode::Char('k') => first.saturating_sub(1),
                KeyCode::PageDown | KeyCode::Char(' ') => first + 10,
                KeyCode::PageUp => first.saturating_sub(10),
                _ => return Effect::Nothing,
            };
            let first = first.min(view::last_line(model, &text));
            model.mode = Mode::Reading { title, text, first };
            Effect::Nothing
        }
    }
}

/// Returns an item and what it says now, if somebody else has changed it while the person did.
fn changed_meanwhile(model: &Model, what: &Writes) -> Option<(String, String)> {
    let Writes::Item { id, was } = what else { return None };
    let item = model.run.item(id).filter(|item| item.content != *was)?;
    Some((item.id.clone(), item.content.clone()))
}

fn interrupt(model: &mut Model) -> Effect {
    if model.run.is_over() {
        return Effect::Leave;
    }
    // Its agents have ended with the hub.
    if model.is_gone {
        return Effect::Interrupt;
    }
    model.mode = Mode::Asking(Asks::Interrupt);
    Effect::Nothing
}

/// Returns what is asked for with what was written.
fn written(what: Writes, text: &str) -> Effect {
    let written = Some((what.clone(), text.to_owned()));
    let text = text.to_owned();
    let (what, says) = match what {
        Writes::Message => {
            (Edit::Steer(Steer::Tell { text }), "the next iteration is told".to_owned())
        }
        Writes::NewItem => {
            let new = EditItem { content: Some(text), ..EditItem::default() };
            (Edit::Item(new), "the item is added".to_owned())
        }
        Writes::Item { id, .. } => {
            let says = format!("{id} is changed");
            let edit = EditItem { item: Some(id), content: Some(text), ..EditItem::default() };
            (Edit::Item(edit), says)
        }
        Writes::Note => {
            let new = EditNote { content: Some(text), ..EditNote::default() };
            (Edit::Note(new), "the note is added".to_owned())
        }
    };
    Effect::Ask { what: Box::new(what), says, written }
}

fn normal(model: &mut Model, key: KeyEvent) -> Effect {
    let writes = |what: Writes, text: &str| Mode::Writing(what, Editor::with(text));
    let under_way = model.run.under_way;
    match key.code {
        KeyCode::Char('q') => return Effect::Leave,
        KeyCode::Char('?' | 'h') => model.mode = Mode::Help,
        KeyCode::Char('p') if under_way => {
            return match model.run.phase {
                Phase::Paused | Phase::Stopping => steer(Steer::GoOn, "it goes on"),
                _ => steer(Steer::Pause, "it pauses after what is under way"),
            };
        }
        KeyCode::Char('s') if under_way => {
            return steer(Steer::Stop { now: false }, "it stops after what is under way");
        }
        KeyCode::Char('S') if under_way => model.mode = Mode::Asking(Asks::Stop),
        KeyCode::Char('r') if model.run.is_over() => return Effect::Resume,
        KeyCode::Char('m') => model.mode = writes(Writes::Message, ""),
        KeyCode::Char('a') => model.mode = writes(Writes::NewItem, ""),
        KeyCode::Char('n') => model.mode = writes(Writes::Note, ""),
        KeyCode::Char('e') => {
            if let Some(item) = model.chosen_item().cloned() {
                model.item = Some(item.id.clone());
                let what = Writes::Item { id: item.id, was: item.content.clone() };
                model.mode = writes(what, &item.content);
            }
        }
        KeyCode::Char('c') => {
            if let Some(item) = model.chosen_item().cloned() {
                model.item = Some(item.id.clone());
                // Once more takes it back.
                let (status, says) = match item.status {
                    ItemStatus::Completed => {
                        model.says = Some(Err(format!("{} is done already", item.id)));
                        return Effect::Nothing;
                    }
                    ItemStatus::Cancelled => (ItemStatus::Remaining, "is to be done after all"),
                    ItemStatus::Remaining | ItemStatus::InProgress | ItemStatus::Blocked => {
                        (ItemStatus::Cancelled, "is cancelled")
                    }
                };
                let says = format!("{} {says}", item.id);
                let status = Some(status.to_string());
                let edit = EditItem { item: Some(item.id), status, ..EditItem::default() };
                let what = Box::new(Edit::Item(edit));
                return Effect::Ask { what, says, written: None };
            }
        }
        KeyCode::Char('l') => model.unfolded = !model.unfolded,
        KeyCode::Char(digit @ '1'..='9') => {
            model.choose_worker(digit.to_digit(10).unwrap_or(1) - 1);
        }
        // There may be more than nine.
        KeyCode::Char('w') => model.choose_worker((model.worker + 1) % model.run.n_workers()),
        KeyCode::Enter => {
            if let Some((title, text)) = model.whole() {
                model.mode = Mode::Reading { title, text, first: 0 };
            }
        }
        KeyCode::Tab | KeyCode::Right => turn(model, 1),
        KeyCode::BackTab | KeyCode::Left => turn(model, Pane::ALL.len() - 1),
        KeyCode::Down | KeyCode::Char('j') => scroll(model, 1),
        KeyCode::Up | KeyCode::Char('k') => scroll(model, -1),
        KeyCode::PageDown | KeyCode::Char(' ') => scroll(model, 10),
        KeyCode::PageUp => scroll(model, -10),
        KeyCode::Home => scroll(model, isize::MIN),
        KeyCode::End => scroll(model, isize::MAX),
        _ => {}
    }
    Effect::Nothing
}

/// Goes to another pane; those without anything in them are left out.
fn turn(model: &mut Model, by: usize) {
    let n = Pane::ALL.len();
    let now = Pane::ALL.iter().position(|pane| *pane == model.focus).unwrap_or_default();
    let turns = (1..=n).map(|step| Pane::ALL[(now + step * by) % n]);
    let mut some = turns.filter(|pane| *pane == Pane::Stream || model.n_rows(*pane) > 0);
    model.focus = some.next().unwrap_or(Pane::Stream);
}

fn scroll(model: &mut Model, by: isize) {
    match model.focus {
        Pane::Stream => model.top = view::scrolled(model, by),
        pane => model.choose(pane, model.chosen(pane).saturating_add_signed(by)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use teamster_api::runs::Run;
    use teamster_core::Timestamp;

    use super::*;

    fn model(phase: &str) -> Model {
        let under_way = matches!(phase, "working" | "paused" | "stopping");
        let run = json!({
            "name": "r", "phase": phase, "under_way": under_way,
            "item_list": [{"id": "TAS-1", "content": "one", "status": "remaining", "priority": 2}],
        });
        let run: Run = serde_json::from_value(run).expect("it is a run");
        Model::new(run, Timestamp(0))
    }

    fn keys(model: &mut Model, keys: &str) -> Effect {
        let mut effect = Effect::Nothing;
        for c in keys.chars() {
            let code = match c {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                c => KeyCode::Char(c),
            };
            effect = press(model, KeyEvent::new(code, KeyModifiers::NONE));
        }
        effect
    }

    fn asked(effect: Effect) -> Edit {
        match effect {
            Effect::Ask { what, .. } => *what,
            other => panic!("{other:?}"),
        }
    }

    fn item(item: Option<&str>, content: Option<&str>, status: Option<&str>) -> Edit {
        let [item, content, status] = [item, content, status].map(|text| text.map(str::to_owned));
        Edit::Item(EditItem { item, content, status, ..EditItem::default() })
    }

    #[test]
    fn keys_steer_the_run() {
        let cases = [
            ("working", "p", Edit::Steer(Steer::Pause)),
            ("paused", "p", Edit::Steer(Steer::GoOn)),
            ("stopping", "p", Edit::Steer(Steer::GoOn)),
            ("working", "s", Edit::Steer(Steer::Stop { now: false })),
            ("working", "Sy", Edit::Steer(Steer::Stop { now: true })),
            ("working", "mmind it \n", Edit::Steer(Steer::Tell { text: "mind it".into() })),
            ("working", "atwo\n", item(None, Some("two"), None)),
            ("working", "e!\n", item(Some("TAS-1"), Some("one!"), None)),
            ("working", "c", item(Some("TAS-1"), None, Some("cancelled"))),
            (
                "working",
                "nqs\n",
                Edit::Note(EditNote { content: Some("qs".into()), ..EditNote::default() }),
            ),
        ];
        for (phase, typed, expected) in cases {
            assert_eq!(asked(keys(&mut model(phase), typed)), expected, "{typed}");
        }
        for (phase, typed) in [
            ("working", "Sn"),
            ("working", "m\n"),
            ("working", "mx\u{1b}"),
            ("stopped", "ps"),
            ("working", "r"),
        ] {
            assert_eq!(keys(&mut model(phase), typed), Effect::Nothing, "{typed}");
        }
        assert_eq!(keys(&mut model("stopped"), "r"), Effect::Resume);
        assert_eq!(keys(&mut model("working"), "q"), Effect::Leave);
    }

    #[test]
    fn an_item_that_others_changed_meanwhile_is_not_overwritten_unseen() {
        let mut model = model("working");
        keys(&mut model, "e!");
        let mut run = model.run.clone();
        run.item_list[0].content = "won".to_owned();
        model.take_run(run);
        assert_eq!(keys(&mut model, "\n"), Effect::Nothing);
        assert!(matches!(&model.says, Some(Err(says)) if says.ends_with("by now: won")));
        let again = asked(keys(&mut model, "\n"));
        assert_eq!(again, item(Some("TAS-1"), Some("one!"), None));
    }

    #[test]
    fn the_first_item_is_marked_unless_another_is_chosen() {
        let mut model = model("working");
        let run = |statuses: [&str; 3]| {
            let items = statuses.iter().enumerate().map(|(n, status)| {
                json!({"id": format!("TAS-{}", n + 1), "content": "", "status": status, "priority": 2})
            });
            let items: Vec<Value> = items.collect();
            let run =
                json!({"name": "r", "phase": "working", "under_way": true, "item_list": items});
            serde_json::from_value::<Run>(run).expect("it is a run")
        };
        let marked = |model: &Model| model.chosen_item().map(|item| item.id.clone());
        model.take_run(run(["in_progress", "remaining", "remaining"]));
        assert_eq!(marked(&model).as_deref(), Some("TAS-1"));
        model.take_run(run(["completed", "remaining", "remaining"]));
        assert_eq!((marked(&model).as_deref(), model.chosen(Pane::Items)), (Some("TAS-2"), 0));
        model.choose(Pane::Items, 1);
        model.take_run(run(["completed", "in_progress", "remaining"]));
        assert_eq!(marked(&model).as_deref(), Some("TAS-3"));
        // What is cancelled stays marked, so that it can be taken back.
        keys(&mut model, "c");
        model.take_run(run(["completed", "in_progress", "cancelled"]));
        assert_eq!(marked(&model).as_deref(), Some("TAS-3"));
        let taken_back = asked(keys(&mut model, "c"));
        assert_eq!(taken_back, item(Some("TAS-3"), None, Some("remaining")));
        model.take_run(run(["completed", "remaining", "completed"]));
        assert_eq!(marked(&model).as_deref(), Some("TAS-2"));
    }

    #[test]
    fn ctrl_c_stops_only_after_a_yes() {
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        let mut working = model("working");
        assert_eq!(press(&mut working, ctrl_c), Effect::Nothing);
        assert_eq!(keys(&mut working, "n"), Effect::Nothing);
        press(&mut working, ctrl_c);
        assert_eq!(keys(&mut working, "y"), Effect::Interrupt);
        press(&mut working, ctrl_c);
        assert_eq!(press(&mut working, ctrl_c), Effect::Interrupt);
        assert_eq!(press(&mut model("completed"), ctrl_c), Effect::Leave);
    }

    #[test]
    fn what_is_pasted_is_text_and_no_command() {
        let mut model = model("working");
        paste(&mut model, "Sy");
        assert!(matches!(model.mode, Mode::Normal));
        keys(&mut model, "m");
        paste(&mut model, "two\nlines");
        let tell = Steer::Tell { text: "two lines".into() };
        assert_eq!(asked(keys(&mut model, "\n")), Edit::Steer(tell));
    }
}
