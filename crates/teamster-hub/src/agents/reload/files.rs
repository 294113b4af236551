//! Notices that the files of the configuration change. They are replaced, linked to, made and removed with their
//! directories, so it is directories that are watched: those of the files, or the nearest that there are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use crate::reading::markdown_files;
use crate::settings::{FILE_NAME, Sources};

/// As many directories as are watched; more only if role files are links to as many places.
const WATCHED_MAX: usize = 64;

pub(super) struct Files {
    watcher: RecommendedWatcher,
    watched: BTreeSet<PathBuf>,
    wanted: Arc<Mutex<Wanted>>,
}

/// What a change is one of.
#[derive(Debug, Default)]
struct Wanted {
    files: BTreeSet<PathBuf>,
    /// Every file in these.
    all_in: BTreeSet<PathBuf>,
    /// Directories of these, and those on the way there.
    directories: BTreeSet<PathBuf>,
}

impl Files {
    /// Begins to watch; `changed` is told of every change.
    pub(super) fn new(sources: &Sources, changed: Arc<Notify>) -> notify::Result<Self> {
        let wanted = Arc::new(Mutex::new(Wanted::default()));
        let known = wanted.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let counts = match &event {
                Ok(event) => {
                    let known = known.lock().unwrap_or_else(PoisonError::into_inner);
                    event.need_rescan()
                        || (is_change(&event.kind)
                            && event.paths.iter().any(|path| known.concerns(path)))
                }
                // Something may have been missed.
                Err(_) => true,
            };
            if counts {
                changed.notify_one();
            }
        })?;
        let mut files = Self { watcher, watched: BTreeSet::new(), wanted };
        files.arm(sources);
        Ok(files)
    }

    /// Watches what there is now. A directory that was made anew is another one, so all of them are watched afresh.
    pub(super) fn arm(&mut self, sources: &Sources) {
        let (wanted, directories) = Wanted::of(sources);
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = wanted;
        for gone in std::mem::take(&mut self.watched) {
            // It may not be there any more.
            let _ = self.watcher.unwatch(&gone);
        }
        for directory in directories.into_iter().take(WATCHED_MAX) {
            match self.watcher.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => drop(self.watched.insert(directory)),
                Err(error) => {
                    let directory = directory.display();
                    tracing::warn!(%error, "changes in {directory} are not noticed; tell the hub with `teamster config reload`");
                }
            }
        }
    }
}

impl Wanted {
    /// Returns what counts, and which directories tell of it.
    fn of(sources: &Sources) -> (Self, BTreeSet<PathBuf>) {
        let mut wanted = Self::default();
        let user = sources.user.iter().map(|user| (user, user.join("roles")));
        let project = sources.project.iter();
        let project = project.map(|project| (project, project.join(".teamster/roles")));
        for (directory, roles) in user.chain(project) {
            wanted.files.insert(directory.join(FILE_NAME));
            wanted.directories.extend([directory.clone(), roles.clone()]);
            wanted.directories.extend(roles.parent().map(Path::to_owned));
            wanted.all_in.insert(roles);
        }
        let mut directories: BTreeSet<PathBuf> =
            wanted.directories.iter().filter_map(|path| nearest(path)).collect();
        // What a link leads to is changed elsewhere. Of a project no link is followed.
        let users = sources.user.iter().flat_map(|user| {
            let roles = markdown_files(&user.join("roles"));
            [user.join(FILE_NAME)].into_iter().chain(roles)
        });
        let links: Vec<PathBuf> = users.collect();
        for link in links.iter().filter(|path| path.is_symlink()) {
            if let Ok(real) = std::fs::canonicalize(link) {
                directories.extend(real.parent().map(Path::to_owned));
                wanted.files.insert(real);
            }
        }
        let on_the_way = wanted.directories.iter().flat_map(|path| path.ancestors());
        wanted.directories = on_the_way.map(Path::to_owned).collect();
        (wanted, directories)
    }

    fn concerns(&self, path: &Path) -> bool {
        self.files.contains(path)
            || self.directories.contains(path)
            || path.parent().is_some_and(|directory| self.all_in.contains(directory))
    }
}

/// Returns the directory itself, or the one above it that is there.
fn nearest(directory: &Path) -> Option<PathBuf> {
    directory.ancestors().find(|path| path.is_dir()).map(Path::to_owned)
}

/// Reading a file changes nothing, and is what we do with it.
fn is_change(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
    }
}
