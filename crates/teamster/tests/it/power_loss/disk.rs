//! What a disk may hold when the power fails: what was synced, and any part of what was not.
//!
//! Harsher than any file system we know. Of the bytes written since a file's last sync, each sector of 512 is there or not,
//! whatever its neighbours do. A new, moved or removed name is certain only when its directory was synced, and until then
//! each is there or not, whatever happened to others; only a rename is one step. Syncing a file does not sync its name.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::trace::{Call, Moment, Trace};
use crate::in_process::Dice;

const SECTOR: u64 = 512;

/// Whether the disk does what it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syncs {
    Honoured,
    /// The control: it says that it has synced, and has not.
    Ignored,
}

/// The files below a directory, as the calls of a trace leave them.
pub(crate) struct Disk<'a> {
    trace: &'a Trace,
    root: PathBuf,
    syncs: Syncs,
    nodes: Vec<Node<'a>>,
    /// What the program sees.
    names: BTreeMap<PathBuf, usize>,
    /// What is certain, and what has been done to names since.
    synced_names: BTreeMap<PathBuf, usize>,
    renamings: Vec<Change<Renaming>>,
    open: HashMap<i64, Opened>,
    /// How many changes had been made when each call now under way began.
    under_way: HashMap<usize, usize>,
    n_changes: usize,
}

/// A file or a directory, whatever its name is.
#[derive(Default)]
struct Node<'a> {
    is_directory: bool,
    synced: Vec<u8>,
    changes: Vec<Change<Edit<'a>>>,
}

struct Opened {
    node: usize,
    offset: u64,
}

/// Something that is not synced.
struct Change<T> {
    /// Changes are numbered as they begin.
    number: usize,
    call: usize,
    is_done: bool,
    what: T,
}

enum Edit<'a> {
    Write { offset: u64, bytes: &'a [u8] },
    SetLength(u64),
}

enum Renaming {
    Put { path: PathBuf, node: usize },
    Move { from: PathBuf, to: PathBuf, node: usize },
    Remove { path: PathBuf },
}

impl Renaming {
    /// Returns the name whose directory, once synced, makes this certain.
    fn path(&self) -> &Path {
        match self {
            Self::Put { path, .. } | Self::Remove { path } | Self::Move { to: path, .. } => path,
        }
    }

    /// Tells whether this was done, by what is there afterwards.
    fn is_seen_in(&self, left: &Before) -> bool {
        match self {
            Self::Put { path, .. } => left.contains_key(path),
            Self::Move { from, to, .. } => left.contains_key(to) && !left.contains_key(from),
            Self::Remove { path } => !left.contains_key(path),
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Put { path, node } => {
                names.insert(path.clone(), *node);
            }
            Self::Move { from, to, node } => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
            Self::Remove { path } => {
                names.remove(path);
            }
        }
    }
}

impl<'a> Disk<'a> {
    /// Returns a disk as it was before the trace began: `root` and all of `before` durable, the directories of `made` there
    /// but not synced.
    pub(crate) fn new(
        trace: &'a Trace,
        root: &Path,
        before: &Before,
        made: &[PathBuf],
        syncs: Syncs,
    ) -> Self {
        let mut disk = Self {
            trace,
            root: root.to_owned(),
            syncs,
            nodes: vec![Node { is_directory: true, ..Node::default() }],
            names: BTreeMap::from([(root.to_owned(), 0)]),
            synced_names: BTreeMap::from([(root.to_owned(), 0)]),
            renamings: Vec::new(),
            open: HashMap::new(),
            under_way: HashMap::new(),
            n_changes: 0,
        };
        for (path, bytes) in before {
            let node = disk.new_node(bytes.is_none());
            disk.nodes[node].synced = bytes.clone().unwrap_or_default();
            disk.names.insert(path.clone(), node);
            disk.synced_names.insert(path.clone(), node);
        }
        for path in made {
            let node = disk.new_node(true);
            disk.rename(usize::MAX, Renaming::Put { path: path.clone(), node });
        }
        disk.renamings.iter_mut().for_each(|change| change.is_done = true);
        disk
    }

    /// Plays one moment of the trace.
    pub(crate) fn play(&mut self, at: usize) {
        for (_, left) in self.trace.ends.iter().filter(|(end, _)| *end == at) {
            self.end_run(left);
        }
        let (moment, number) = self.trace.moments[at];
        let call = &self.trace.calls[number];
        if call.result.is_some_and(|result| result < 0) {
            return;
        }
        match moment {
            Moment::Begin => {
                self.under_way.insert(number, self.n_changes);
                self.begin(number, call);
            }
            Moment::End => self.end(number, call),
        }
    }

    /// Closes all files and settles what became of the calls in which the program was killed: the next run sees, and a
    /// sync of its makes certain, what they did.
    fn end_run(&mut self, left: &'a Before) {
        self.open.clear();
        self.under_way.clear();
        self.renamings.retain_mut(|change| {
            let was_done = change.is_done || change.what.is_seen_in(left);
            change.is_done = true;
            was_done
        });
        self.names = self.synced_names.clone();
        self.renamings.iter().for_each(|change| change.what.apply(&mut self.names));
        for (path, &node) in &self.names {
            let bytes = left.get(path).and_then(Option::as_deref).unwrap_or_default();
            let killed = self.nodes[node].changes.iter_mut().filter(|change| !change.is_done);
            killed.for_each(|change| {
                change.what.become_what_is_in(bytes);
                change.is_done = true;
            });
        }
    }

    fn begin(&mut self, number: usize, call: &'a Call) {
        match &*call.name {
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" => self.write(number, call),
            "ftruncate" => self.edit(number, call, Edit::SetLength(call.number(1))),
            "rename" => self.move_name(number, call.data(0), call.data(1)),
            "renameat" | "renameat2" => self.move_name(number, call.data(1), call.data(3)),
            "unlink" | "rmdir" => self.remove_name(number, call.data(0)),
            "unlinkat" => self.remove_name(number, call.data(1)),
            "mkdir" => self.make_directory(number, call.data(0)),
            "mkdirat" => self.make_directory(number, call.data(1)),
            "open" | "creat" => self.make_file(number, call.data(0), call.plain(1)),
            "openat" => self.make_file(number, call.data(1), call.plain(2)),
            // Its number may be given away again before the end of the call is seen.
            "close" => drop(self.open.remove(&call.file(0).0)),
            "lseek" | "fsync" | "fdatasync" | "sendto" | "sendmsg" => {}
            other => {
                let paths = (0..5).flat_map(|n| [call.data(n).to_vec(), call.file(n).1]);
                let inside = paths.into_iter().any(|path| self.path(&path).is_some());
                assert!(!inside, "the model of the disk does not know {other}");
            }
        }
    }

    fn end(&mut self, number: usize, call: &'a Call) {
        let began = self.under_way.remove(&number).unwrap_or(0);
        let result = call.result.unwrap_or(0);
        match &*call.name {
            "open" | "creat" => self.opened(result, call.data(0)),
            "openat" => self.opened(result, call.data(1)),
            "lseek" => {
                if let Some(opened) = self.open.get_mut(&call.file(0).0) {
                    opened.offset = result.unsigned_abs();
                }
            }
            "fsync" | "fdatasync" if self.syncs == Syncs::Honoured => {
                match self.open.get(&call.file(0).0) {
                    Some(opened) => {
                        let node = opened.node;
                        self.sync(node, began);
                    }
                    None => self.assert_outside(call),
                }
            }
            _ => {}
        }
        let done = |change: &mut bool| *change = true;
        let edits = self.nodes.iter_mut().flat_map(|node| &mut node.changes);
        edits.filter(|edit| edit.call == number).for_each(|edit| done(&mut edit.is_done));
        let renamings = self.renamings.iter_mut().filter(|renaming| renaming.call == number);
        renamings.for_each(|renaming| done(&mut renaming.is_done));
    }

    fn write(&mut self, number: usize, call: &'a Call) {
        let bytes = call.data(1);
        let length = call.result.map_or(bytes.len(), |result| result.unsigned_abs() as usize);
        let bytes = &bytes[..length];
        let offset = match &*call.name {
            "write" | "writev" => {
                let Some(opened) = self.open.get_mut(&call.file(0).0) else {
                    return self.assert_outside(call);
                };
                opened.offset += length as u64;
                opened.offset - length as u64
            }
            // The vectored calls have their pieces in one argument and the number of them in the next.
            _ => call.number(3),
        };
        self.edit(number, call, Edit::Write { offset, bytes });
    }

    fn edit(&mut self, number: usize, call: &Call, edit: Edit<'a>) {
        let Some(opened) = self.open.get(&call.file(0).0) else { return self.assert_outside(call) };
        let (node, change) = (opened.node, self.n_changes);
        self.n_changes += 1;
        let change = Change { number: change, call: number, is_done: false, what: edit };
        self.nodes[node].changes.push(change);
    }

    /// Notices a file that was opened in a way that this model missed.
    fn assert_outside(&self, call: &Call) {
        let path = call.file(0).1;
        assert!(self.path(&path).is_none(), "{:?} is not open", String::from_utf8_lossy(&path));
    }

    fn rename(&mut self, call: usize, what: Renaming) {
        what.apply(&mut self.names);
        self.renamings.push(Change { number: self.n_changes, call, is_done: false, what });
        self.n_changes += 1;
    }

    fn move_name(&mut self, call: usize, from: &[u8], to: &[u8]) {
        if let (Some(from), Some(to)) = (self.path(from), self.path(to)) {
            let node = self.names[&from];
            assert!(!self.nodes[node].is_directory, "the model does not move directories");
            self.rename(call, Renaming::Move { from, to, node });
        }
    }

    fn remove_name(&mut self, call: usize, path: &[u8]) {
        if let Some(path) = self.path(path) {
            self.rename(call, Renaming::Remove { path });
        }
    }

    fn make_directory(&mut self, call: usize, path: &[u8]) {
        if let Some(path) = self.path(path) {
            let node = self.new_node(true);
            self.rename(call, Renaming::Put { path, node });
        }
    }

    fn make_file(&mut self, call: usize, path: &[u8], flags: &str) {
        let Some(path) = self.path(path) else { return };
        assert!(!flags.contains("O_APPEND"), "the model does not know where {path:?} ends");
        match self.names.get(&path) {
            None if flags.contains("O_CREAT") => {
                let node = self.new_node(false);
                self.rename(call, Renaming::Put { path, node });
            }
            Some(&node) if flags.contains("O_TRUNC") => {
                let (number, what) = (self.n_changes, Edit::SetLength(0));
                self.n_changes += 1;
                self.nodes[node].changes.push(Change { number, call, is_done: false, what });
            }
            _ => {}
        }
    }

    fn opened(&mut self, file: i64, path: &[u8]) {
        let node = self.path(path).and_then(|path| self.names.get(&path).copied());
        match node {
            Some(node) => drop(self.open.insert(file, Opened { node, offset: 0 })),
            None => drop(self.open.remove(&file)),
        }
    }

    fn new_node(&mut self, is_directory: bool) -> usize {
        self.nodes.push(Node { is_directory, ..Node::default() });
        self.nodes.len() - 1
    }

    /// Returns a path that is below the root.
    fn path(&self, path: &[u8]) -> Option<PathBuf> {
        let path = Path::new(OsStr::from_bytes(path));
        path.starts_with(&self.root).then(|| path.to_owned())
    }

    /// Makes certain what had been done to a file or directory before change number `began`.
    fn sync(&mut self, node: usize, began: usize) {
        if !self.nodes[node].is_directory {
            let Node { synced, changes, .. } = &mut self.nodes[node];
            changes.retain(|change| {
                let certain = change.is_done && change.number < began;
                if certain {
                    change.what.apply(synced, |_| true);
                }
                !certain
            });
            return;
        }
        let names = self.names.iter().filter(|(_, named)| **named == node);
        let directories: Vec<PathBuf> = names.map(|(path, _)| path.clone()).collect();
        let mut moved = Vec::new();
        let certain = |change: &Change<Renaming>| {
            let parent = change.what.path().parent();
            let here = parent.is_some_and(|parent| directories.iter().any(|one| one == parent));
            change.is_done && change.number < began && here
        };
        self.renamings.retain(|change| {
            if certain(change) {
                change.what.apply(&mut self.synced_names);
                if let Renaming::Move { from, .. } = &change.what {
                    moved.push((from.clone(), change.number));
                }
                return false;
            }
            true
        });
        // What has certainly moved on is no longer where it was made.
        self.renamings.retain(|change| {
            !moved.iter().any(|(from, at)| change.what.path() == from && change.number < *at)
        });
    }

    /// Writes into `target` what may be left of the root if the power fails now.
    pub(crate) fn fail_power(&self, dice: &mut Dice, target: &Path) -> std::io::Result<()> {
        // Rarely half: nearly nothing and nearly everything find other faults than the middle does.
        let chances = [0, 5, 50, 95, 100];
        let mut chance = || chances[dice.below(chances.len() as u64) as usize];
        let (of_sectors, of_names) = (chance(), chance());
        let mut names = self.synced_names.clone();
        for change in &self.renamings {
            if dice.below(100) < of_names {
                change.what.apply(&mut names);
            }
        }
        // Parents come before what is in them; a directory that was lost takes everything with it.
        for (path, &node) in &names {
            let node = &self.nodes[node];
            let relative = path.strip_prefix(&self.root).expect("all names are below the root");
            let target = target.join(relative);
            if !target.parent().is_some_and(Path::is_dir) {
                continue;
            }
            if node.is_directory {
                std::fs::create_dir_all(&target)?;
            } else if relative.as_os_str().as_bytes().ends_with(b"-shm") {
                // Shared memory is written past every call; whatever is left of it must not matter.
                std::fs::write(&target, vec![dice.below(256) as u8; 32 << 10])?;
            } else {
                let mut bytes = node.synced.clone();
                for change in &node.changes {
                    change.what.apply(&mut bytes, |_| dice.below(100) < of_sectors);
                }
                std::fs::write(&target, bytes)?;
            }
        }
        Ok(())
    }

    /// Tells whether a file of this name has something in it that is not synced.
    pub(crate) fn is_unsynced(&self, name: &str) -> bool {
        let named = self.names.iter().filter(|(path, _)| path.ends_with(name));
        named.map(|(_, node)| &self.nodes[*node]).any(|node| !node.changes.is_empty())
    }
}

/// What was on a disk: the content of each file, none for directories.
pub(crate) type Before = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// Reads everything below `root`, but for sockets.
pub(crate) fn read_all(root: &Path) -> Before {
    let mut all = Before::new();
    let mut unread = vec![root.to_owned()];
    while let Some(directory) = unread.pop() {
        for entry in std::fs::read_dir(directory).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                unread.push(path.clone());
                all.insert(path, None);
            } else if path.is_file() {
                let bytes = std::fs::read(&path).expect("it can be read");
                all.insert(path, Some(bytes));
            }
        }
    }
    all
}

impl<'a> Edit<'a> {
    /// Reduces this to what was really done, which is in the file that was left.
    fn become_what_is_in(&mut self, left: &'a [u8]) {
        match self {
            Self::SetLength(length) => *length = left.len() as u64,
            Self::Write { offset, bytes } => {
                let from = (*offset as usize).min(left.len());
                *bytes = &left[from..(from + bytes.len()).min(left.len())];
            }
        }
    }

    /// Does this to a file's content, as far as `keeps` says for each sector.
    fn apply(&self, content: &mut Vec<u8>, mut keeps: impl FnMut(u64) -> bool) {
        match *self {
            Self::SetLength(length) => {
                if keeps(0) {
                    content.resize(length as usize, 0);
                }
            }
            Self::Write { offset, bytes } => {
                let mut done = 0;
                while done < bytes.len() {
                    let at = offset + done as u64;
                    let length = ((SECTOR - at % SECTOR) as usize).min(bytes.len() - done);
                    if keeps(at / SECTOR) {
                        let (from, to) = (at as usize, at as usize + length);
                        if content.len() < to {
                            content.resize(to, 0);
                        }
                        content[from..to].copy_from_slice(&bytes[done..done + length]);
                    }
                    done += length;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn left(calls: &str, syncs: Syncs) -> BTreeSet<String> {
        left_by_runs(&[(calls, Before::new())], syncs)
    }

    /// Returns everything that may be left after the calls of some runs, each with what its files held when it ended, as
    /// `name=first byte of each sector`.
    fn left_by_runs(runs: &[(&str, Before)], syncs: Syncs) -> BTreeSet<String> {
        let hex =
            |text: &str| text.bytes().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
        let mut inside = false;
        let mut line = |line: &str| {
            let parts = line.trim().split('"').map(|part| {
                inside = !inside;
                if inside { part.to_owned() } else { format!("\"{}\"", hex(part)) }
            });
            let line = format!("7 {}\n", parts.collect::<String>());
            inside = false;
            line
        };
        let mut trace = Trace::default();
        for (calls, left) in runs {
            let file = tempfile::NamedTempFile::new().expect("a file");
            let text: String = calls.trim().lines().map(&mut line).collect();
            std::fs::write(file.path(), text).expect("it is written");
            trace.add(file.path(), left.clone());
        }
        let mut disk = Disk::new(&trace, Path::new("/r"), &Before::new(), &[], syncs);
        (0..trace.moments.len()).for_each(|at| disk.play(at));
        let seen = (0..500).map(|seed| {
            let target = tempfile::tempdir().expect("a directory");
            disk.fail_power(&mut Dice(seed), target.path()).expect("it can be written");
            let entries = std::fs::read_dir(target.path()).expect("it is a directory");
            let mut names: Vec<String> = entries
                .map(|entry| {
                    let entry = entry.expect("it can be read");
                    let bytes = std::fs::read(entry.path()).unwrap_or_default();
                    let sectors = bytes.chunks(512).map(|sector| match sector[0] {
                        0 => '0',
                        byte => char::from(byte),
                    });
                    format!("{}={}", entry.file_name().display(), sectors.collect::<String>())
                })
                .collect();
            names.sort();
            names.join(" ")
        });
        seen.collect()
    }

    fn set(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|&one| one.to_owned()).collect()
    }

    #[test]
    fn what_is_synced_is_there_and_of_the_rest_any_part() {
        let calls = format!(
            r#"
            openat(AT_FDCWD, "/r/a", O_RDWR|O_CREAT, 0600) = 3
            openat(AT_FDCWD, "/r", O_RDONLY) = 4
            fsync(4) = 0
            pwrite64(3, "{}", 1024, 0) = 1024
            fsync(3) = 0
            pwrite64(3, "{}", 1024, 512) = 1024"#,
            "A".repeat(1024),
            "B".repeat(1024)
        );
        let any = set(&["a=AA", "a=AB", "a=AAB", "a=ABB"]);
        assert_eq!(left(&calls, Syncs::Honoured), any);
        assert!(left(&calls, Syncs::Ignored).contains(""), "without syncs there may be nothing");
    }

    #[test]
    fn a_name_is_certain_once_its_directory_is_synced() {
        let moved = r#"
            openat(AT_FDCWD, "/r", O_RDONLY) = 4
            openat(AT_FDCWD, "/r/new", O_RDWR|O_CREAT, 0600) = 3
            pwrite64(3, "N", 1, 0) = 1
            fsync(3) = 0
            rename("/r/new", "/r/a") = 0"#;
        assert_eq!(left(moved, Syncs::Honoured), set(&["", "a=N", "new=N"]));
        let synced = format!("{moved}\n fsync(4) = 0\n unlink(\"/r/a\") = 0");
        assert_eq!(left(&synced, Syncs::Honoured), set(&["", "a=N"]));
    }

    #[test]
    fn a_sync_covers_what_was_done_when_it_began() {
        let calls = r#"
            openat(AT_FDCWD, "/r/a", O_RDWR|O_CREAT, 0600) = 3
            openat(AT_FDCWD, "/r", O_RDONLY) = 4
            fsync(4) = 0
            fsync(3 <unfinished ...>
            <... fsync resumed>) = 0
            pwrite64(3, "A", 1, 0 <unfinished ...>"#;
        // The last line is another thread's, begun while the sync was under way.
        let lines: Vec<&str> = calls.trim().lines().collect();
        let [first, second, third, begin, end, write] = lines[..] else { unreachable!() };
        let write = write.replace(" <unfinished ...>", ") = 1");
        let calls = [first, second, third, begin, &write, end].join("\n");
        assert_eq!(left(&calls, Syncs::Honoured), set(&["a=", "a=A"]));
    }
    #[test]
    fn a_sync_covers_what_an_earlier_run_did_as_it_was_killed() {
        let killed = r#"
            openat(AT_FDCWD, "/r/a", O_RDWR|O_CREAT, 0600) = 3
            openat(AT_FDCWD, "/r", O_RDONLY) = 4
            fsync(4) = 0
            pwrite64(3, "A", 1, 0 <unfinished ...>"#;
        let next = r#"
            openat(AT_FDCWD, "/r/a", O_RDWR) = 3
            fsync(3) = 0"#;
        for (content, may_be_left) in [("A", "a=A"), ("", "a=")] {
            let left = Before::from([("/r/a".into(), Some(content.into()))]);
            let runs = [(killed, left), (next, Before::new())];
            assert_eq!(left_by_runs(&runs, Syncs::Honoured), set(&[may_be_left]));
        }
    }
}
