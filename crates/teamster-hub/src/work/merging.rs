//! Several workers, each in a worktree of its own: what one has done is taken over by itself, after the project's check
//! has passed. What cannot be taken over becomes an item, with a branch that keeps it.

use std::path::{Path, PathBuf};

use teamster_agents::deputy::FileTask;
use teamster_core::drive::{self, Drive, WORKERS_MAX};
use teamster_core::item::{self, NewItem, Priority, Status};
use teamster_core::iteration::{Ended, Open};
use teamster_core::note::{self, NewNote};
use teamster_core::{State, run};

use tokio_util::sync::CancellationToken;

use super::git::{self, Gathered, GitError, Merged, Message, Standing, Tree};
use super::hooks::{CommandLine, Hook, How};
use super::{RunDriver, branch};
use crate::settings::Whole;

/// So often in a row agents try to merge the same work; after that it waits for a person.
const MERGE_TRIES_MAX: usize = 2;

const NO_COMMIT: &str = "there is no commit";
/// How long a check may take.
const CHECK_TIMEOUT: Whole<1, 3_600> = Whole::new(30 * 60);
/// As much of what a check says as is kept, from its end.
const CHECK_BYTES_MAX: usize = 4_000;
/// The person may commit something while we merge; so often it is tried again.
const TRIES_MAX: u32 = 5;

impl RunDriver<'_> {
    fn worktree_path(&self, worker: u32) -> PathBuf {
        super::worktrees(&self.shared.data, self.name).join(format!("worker-{worker}"))
    }

    pub(super) fn has_worktrees(&self) -> bool {
        self.worktree_path(0).parent().is_some_and(Path::exists)
    }

    /// Returns what the names of branches begin with on which work is kept.
    fn kept(&self) -> String {
        super::kept(self.name)
    }

    pub(super) async fn worktree_of(&self, main: &Tree, worker: u32) -> Result<Tree, GitError> {
        let (tree, moved) = main.worktree(&self.worktree_path(worker)).await?;
        if let Some(moved) = moved {
            self.note(format!(
                "The worktree of worker {} was broken, so it has a new one. What was in the old one is in {}.",
                worker + 1,
                moved.display()
            ))
            .await;
        }
        Ok(tree)
    }

    /// Returns the worktree in which an iteration has worked, or what became of its work if its agent has removed or broken
    /// it.
    pub(super) async fn worktree_after(
        &self,
        main: &Tree,
        open: &Open,
    ) -> Result<Result<Tree, Landed>, GitError> {
        let path = self.worktree_path(open.worker);
        let is_gone = !path.exists();
        let (tree, moved) = main.worktree(&path).await?;
        if !is_gone && moved.is_none() {
            return Ok(Ok(tree));
        }
        let what = match &moved {
            Some(moved) => {
                format!("was broken when it ended; what was in it is in {}", moved.display())
            }
            None => "was gone when it ended".to_owned(),
        };
        let about = open.item.map(|item| format!(" ({item})")).unwrap_or_default();
        let content = format!(
            "Look for the work of iteration {}{about}: its worktree {what}. If the work is not in the project, do it again.",
            open.number
        );
        self.add(open, content, None, None).await;
        Ok(Err(Landed::LeftOver(format!("its worktree {what}"))))
    }

    /// Returns a worker's worktree, which is as the project is now.
    pub(super) async fn worktree(&self, main: &Tree, worker: u32) -> Result<Tree, GitError> {
        let tree = self.worktree_of(main, worker).await?;
        let head = main.head().await.ok_or_else(|| GitError::new("rev-parse", NO_COMMIT))?;
        self.rescue(main, &tree, worker).await?;
        tree.reset_to(&head).await?;
        Ok(tree)
    }

    /// Keeps what is left in a worker's worktree because something went wrong when its iteration ended.
    async fn rescue(&self, main: &Tree, tree: &Tree, worker: u32) -> Result<(), GitError> {
        let state = self.shared.hub.state();
        let run = state.runs.get(self.name);
        let last = run.iterations.ended().rev().find(|ended| ended.open.worker == worker);
        let (Some(last), Some(at)) = (last, tree.head().await) else { return Ok(()) };
        let Some(base) = &last.open.base else { return Ok(()) };
        // What is in the project already, or on a branch of the run, is nobody's to bring in.
        let base = match main.is_kept(&at, base, &self.kept()).await {
            true if tree.is_clean().await? => return Ok(()),
            true => tree.base_of(&at).await?,
            false => base.to_string(),
        };
        // Where it was done, nobody would do it again.
        let item = last.open.item.and_then(|item| run.items.get(item));
        let is_done = item.is_some_and(|item| item.status == Status::Completed);
        let Some(left) = self.gathered(&state, tree, &last.open, &base).await? else {
            return Ok(());
        };
        if main.is_kept(&left.commit, &base, &self.kept()).await {
            return tree.reset_to(&left.commit).await;
        }
        match is_done {
            true => {
                let why = "could not be taken over when its iteration ended";
                self.left_over(main, tree, &last.open, &left.commit, why).await.map(drop)
            }
            false => self.put_aside(main, tree, &last.open, &left.commit).await,
        }
    }

    /// Makes a commit of what an iteration has left in its worktree.
    pub(super) async fn gathered(
        &self,
        state: &State,
        tree: &Tree,
        open: &Open,
        base: &str,
    ) -> Result<Option<Gathered>, GitError> {
        let (subject, body) = self.words(state, open);
        let (mark, seal) = (self.mark(open), self.seal(open, base));
        let message = Message { subject: &subject, body: &body, mark: &mark, seal: &seal };
        let name = self.anchor(&format!("work-{}", open.worker));
        let (gathered, left_out) = tree.gather(base, &message, &name, &self.kept()).await?;
        if !left_out.is_empty() {
            self.note(format!(
                "Iteration {} has made a repository of its own in {}, which is not committed; it is in {}.",
                open.number,
                git::some_of(&left_out),
                tree.directory().display()
            ))
            .await;
        }
        Ok(gathered)
    }

    /// Takes over what a worker has done in its worktree. Whatever goes wrong, the work is kept.
    pub(super) async fn take_over(
        &self,
        main: &Tree,
        tree: &Tree,
        drive: &Drive,
        open: &Open,
        work: &Gathered,
    ) -> Result<Landed, GitError> {
        if !work.unsettled.is_empty() {
            let why = format!("has the marks of conflicts in {}", git::some_of(&work.unsettled));
            return self.left_over(main, tree, open, &work.commit, &why).await;
        }
        let _one_at_a_time = self.merges.lock().await;
        match self.merged(main, tree, drive, open, &work.commit).await {
            Ok(came) => Ok(came),
            Err(error) if self.shared.stop.is_cancelled() => Err(error),
            Err(error) => {
                let why = format!("could not be taken over ({error})");
                self.left_over(main, tree, open, &work.commit, &why).await
            }
        }
    }

    async fn merged(
        &self,
        main: &Tree,
        tree: &Tree,
        drive: &Drive,
        open: &Open,
        commit: &str,
    ) -> Result<Landed, GitError> {
        for _ in 0..TRIES_MAX {
            let waited = self.until_on_branch(main, drive, branch::Why::Merge).await?;
            let standing = waited.standing()?;
            let Standing::Branch { commit: head, .. } = &standing else {
                return Err(branch::refused(&standing));
            };
            let merged = if main.is_based_on(head, open.base.as_deref()).await {
                tree.reset_to(commit).await?;
                let says = format!("Merge iteration {} of {}", open.number, self.name);
                tree.merge(head, &says).await?
            } else {
                // The person has taken back what it is based on, or is on another branch: only what was done here is wanted.
                tree.reset_to(head).await?;
                tree.pick(commit).await?
            };
            if let Merged::Conflicts(files) = merged {
                let files = git::some_of(&files);
                let why = format!("conflicts with what others did meanwhile in {files}");
                return self.left_over(main, tree, open, commit, &why).await;
            }
            let merged = tree.head().await.ok_or_else(|| GitError::new("rev-parse", NO_COMMIT))?;
            match self.check(tree, drive).await {
                Checked::Passed => {}
                Checked::Failed(says) => {
                    return self.left_over(main, tree, open, commit, &says).await;
                }
                Checked::CutOff => {
                    let says = "was not checked to the end, because the run was stopped";
                    return Err(GitError::new("merge", says));
                }
            }
            if main.standing().await? != standing {
                // The user has committed something, or is on another branch or on none.
                continue;
            }
            match main.fast_forward(&merged).await {
                // The user may have left the branch just then.
                Ok(()) if !matches!(main.standing().await, Ok(Standing::Branch { .. })) => {
                    let why = "was merged onto a commit that no branch leads to";
                    return self.left_over(main, tree, open, commit, why).await;
                }
                Ok(()) => {
                    // What its check has left is no work; if it stays, it is looked at before the next iteration.
                    let _ = tree.reset_to(&merged).await;
                    return Ok(Landed::Commit(merged));
                }
                // Somebody has committed something meanwhile.
                Err(_) if main.standing().await? != standing => {}
                // The person's own changes are in the way, about which no agent can do anything.
                Err(error) => {
                    return self.in_the_way(main, tree, open, commit, &error).await;
                }
            }
        }
        let why = "could not be taken over, because the project changed all the time";
        self.left_over(main, tree, open, commit, why).await
    }

    /// Keeps what an iteration that failed has left in its worktree on a branch, and tells those who come after it.
    pub(super) async fn set_aside(
        &self,
        state: &State,
        drive: &Drive,
        open: &Open,
        base: &str,
    ) -> Result<(), GitError> {
        let main = self.main_tree(drive).await?;
        let tree = self.worktree_of(&main, open.worker).await?;
        match self.gathered(state, &tree, open, base).await? {
            Some(left) => self.put_aside(&main, &tree, open, &left.commit).await,
            None => Ok(()),
        }
    }

    /// Moves what an agent that worked alone has left in the user's files to a branch, before several begin: they do not see
    /// those files, and could not merge into them.
    pub(super) async fn set_carried_aside(&self, drive: &Drive) {
        let Some(carried) = drive.carried.get(&0) else { return };
        let state = self.shared.hub.state();
        let last = state.runs.get(self.name).iterations.ended().next_back();
        let Some(Ended { open, .. }) = last.map(|last| &**last) else { return };
        let moved = async {
            let main = self.main_tree(drive).await?;
            let (base, _) = self.base_after(&main, carried, open.number).await?;
            let (subject, body) = self.words(&state, open);
            let (mark, seal) = (self.mark(open), self.seal(open, &base));
            let message = Message { subject: &subject, body: &body, mark: &mark, seal: &seal };
            let Some(taken) = main.taken(&base, &message).await? else { return Ok(None) };
            let (branch, about) = self.keep(&main, open, &taken.commit, "cut-off").await?;
            main.put_back(taken).await?;
            Ok(Some((branch, about)))
        };
        match moved.await {
            Ok(moved) => {
                if let Some((branch, about)) = moved {
                    let number = open.number;
                    self.warn_once(format!(
                        "several workers do not work in your files, so the unfinished work of iteration {number} was moved from there \
                         to the branch {branch}"
                    ))
                    .await;
                    self.tell_cut_off(number, &about, &branch).await;
                }
                self.tell(drive::Command::SetAside).await;
            }
            Err(error) => {
                let error: GitError = error;
                self.warn_once(format!(
                    "the unfinished work of iteration {} stays in your files, where the workers do not see it: {error}",
                    open.number
                ))
                .await;
            }
        }
    }

    /// Tells those who come after where the work of an iteration is that was interrupted.
    async fn tell_cut_off(&self, number: u32, about: &str, branch: &str) {
        self.note(format!(
            "Iteration {number}{about} was cut off. What it had done by then is on the branch {branch}; look at it \
             (`git diff HEAD...{branch}`) before you do the same."
        ))
        .await;
    }

    async fn put_aside(
        &self,
        main: &Tree,
        tree: &Tree,
        open: &Open,
        commit: &str,
    ) -> Result<(), GitError> {
        let (branch, about) = self.keep(main, open, commit, "cut-off").await?;
        self.tell_cut_off(open.number, &about, &branch).await;
        self.reset(main, tree, commit).await
    }

    /// Puts a worktree whose work is kept as `commit` back to how the project is.
    async fn reset(&self, main: &Tree, tree: &Tree, commit: &str) -> Result<(), GitError> {
        let head = main.head().await;
        tree.reset_to(head.as_deref().unwrap_or(commit)).await
    }

    /// Tells those who come after.
    pub(super) async fn note(&self, content: String) {
        let note = NewNote { content, kind: note::Kind::Tip };
        self.submit(run::Command::Note(note::Command::Add(vec![note]))).await;
    }

    /// Keeps work that could not be taken over on a branch, and makes an item of it.
    async fn left_over(
        &self,
        main: &Tree,
        tree: &Tree,
        open: &Open,
        commit: &str,
        why: &str,
    ) -> Result<Landed, GitError> {
        let (branch, about) = self.keep(main, open, commit, "iteration").await?;
        let content = format!(
            "Bring in the work of iteration {}{about}: it is on the branch {branch} and {why}. Merge that branch \
             (`git merge {branch}`), put right what is in the way, check it, and leave the result in the files.",
            open.number
        );
        let status = self.is_for_a_person(open).then_some(Status::Blocked);
        self.add(open, content, status, Some((&branch, commit))).await;
        self.reset(main, tree, commit).await?;
        // What a check said is in the item.
        let brief =
            why.lines().next().unwrap_or_default().trim_end_matches("; it said at the end:");
        Ok(Landed::LeftOver(format!("its work is on the branch {branch} and {brief}")))
    }

    /// Says whether an iteration that cannot be merged was itself to merge such work, and that one too: then the next try
    /// would only make one more.
    fn is_for_a_person(&self, open: &Open) -> bool {
        let state = self.shared.hub.state();
        let run = state.runs.get(self.name);
        let mut item = open.item;
        for _ in 0..MERGE_TRIES_MAX {
            let Some(merge) = item.and_then(|id| run.items.get(id)?.merge.as_ref()) else {
                return false;
            };
            // `teamster/run-NAME/iteration-7`
            let (_, number) = merge.branch.rsplit_once("iteration-").unwrap_or_default();
            let number = number.split('-').next().and_then(|number| number.parse::<u32>().ok());
            let merged = run.iterations.ended().find(|ended| Some(ended.open.number) == number);
            item = merged.and_then(|ended| ended.open.item);
        }
        true
    }

    /// The same for work that only a person can let in.
    async fn in_the_way(
        &self,
        main: &Tree,
        tree: &Tree,
        open: &Open,
        commit: &str,
        why: &GitError,
    ) -> Result<Landed, GitError> {
        let (branch, about) = self.keep(main, open, commit, "iteration").await?;
        let content = format!(
            "For the person: the work of iteration {}{about} waits on the branch {branch}, because it could not be taken over \
             into {}: {why}. Put your own changes aside or commit them, then `git merge {branch}`.",
            open.number,
            main.root().display()
        );
        self.add(open, content, Some(Status::Blocked), Some((&branch, commit))).await;
        self.reset(main, tree, commit).await?;
        Ok(Landed::LeftOver(format!("its work waits for you on the branch {branch}: {why}")))
    }

    /// Gives work that is not taken over a branch of its own. Returns its name, and what it is about.
    async fn keep(
        &self,
        main: &Tree,
        open: &Open,
        commit: &str,
        what: &str,
    ) -> Result<(String, String), GitError> {
        let branch = format!("{}/{what}-{}", self.kept(), open.number);
        let branch = main.keep(&branch, commit).await?;
        Ok((branch, open.item.map(|item| format!(" ({item})")).unwrap_or_default()))
    }

    /// Adds an item about work that is not taken over, and that is kept on `branch`. What waits for the item of that work
    /// waits for this one, too.
    async fn add(
        &self,
        open: &Open,
        content: String,
        status: Option<Status>,
        branch: Option<(&str, &str)>,
    ) {
        let priority = Priority::new(1).ok();
        let new = NewItem { content: content.clone(), status, priority };
        self.submit(run::Command::Item(match branch {
            Some((branch, commit)) => {
                let (branch, commit) = (branch.into(), commit.into());
                item::Command::AddMerge { new, branch, commit }
            }
            None => item::Command::Add(vec![new]),
        }))
        .await;
        let state = self.shared.hub.state();
        let items = &state.runs.get(self.name).items;
        let (Some(done), Some(added)) = (open.item, items.with_content(&content)) else { return };
        for waits in items.waiting_for(done) {
            let (item, depends_on) = (waits.id.to_string(), Some(added.id.to_string()));
            let update = item::Command::Update { item, status: None, priority: None, depends_on };
            self.submit(run::Command::Item(update)).await;
        }
    }

    /// Takes back that items are completed whose branches this iteration did not bring into the project.
    pub(super) async fn return_unmerged(&self, drive: &Drive, open: &Open) {
        let state = self.shared.hub.state();
        let items = &state.runs.get(self.name).items;
        let said = super::finished(state.runs.get(self.name), open);
        let said: Vec<_> = said.filter_map(|item| Some((item.id, item.merge.as_ref()?))).collect();
        if said.is_empty() {
            return;
        }
        // Without a repository nobody can merge anything; the run ends because of that.
        let Ok(main) = self.main_tree(drive).await else { return };
        for (item, merge) in said {
            // What it merged may itself wait to be merged.
            let unfinished = items.ranked_after(None).filter(|item| !item.status.is_finished());
            let waiting: Vec<_> = unfinished.filter_map(|item| item.merge.as_ref()).collect();
            let mut is_merged = main.has_work_of(&merge.commit).await;
            for other in waiting {
                is_merged = is_merged || main.is_ancestor(&merge.commit, &other.commit).await;
            }
            if is_merged {
                continue;
            }
            // Its agent may have removed the branch.
            let branch = match main.keep(&merge.branch, &merge.commit).await {
                Ok(branch) => branch,
                Err(error) => {
                    tracing::warn!(run = self.name.as_str(), %error, "a branch is gone");
                    continue;
                }
            };
            self.note(format!(
                "{item} came back {} after iteration {}: the branch {branch} is not merged. Run `git merge {branch}`, settle the \
                 conflicts, and leave the merge in your files. If its changes are in the project in another form, record that \
                 with `git merge -s ours {branch}`.",
                match merge.n_returns {
                    0 => "once".to_owned(),
                    n => format!("{} times", n + 1),
                },
                open.number
            ))
            .await;
            self.submit(run::Command::Item(item::Command::Return { item })).await;
        }
    }

    /// Runs the project's check.
    async fn check(&self, tree: &Tree, drive: &Drive) -> Checked {
        let words = drive.terms.check.iter().map(ToString::to_string).collect();
        let Some(command) = CommandLine::of(words) else { return Checked::Passed };
        let hook = Hook { command, timeout_s: CHECK_TIMEOUT, pipe_output: false };
        let (starter, directory) = (&self.shared.starter, tree.directory());
        let check = |stop: CancellationToken| {
            let (hook, directory) = (&hook, &directory);
            async move { starter.check(hook, self.name.as_str(), directory, &stop).await }
        };
        let (how, said) = self.unless_stopped(check).await;
        let shown = shlex::try_join(drive.terms.check.iter().map(|word| &**word));
        let shown = shown.unwrap_or_else(|_| drive.terms.check.join(" "));
        Checked::Failed(match how {
            How::Ok => return Checked::Passed,
            How::Stopped => return Checked::CutOff,
            How::NotStarted(why) => format!("its check `{shown}` cannot be started: {why}"),
            How::TimedOut => format!("its check `{shown}` took too long"),
            How::Failed(_) | How::Signal(_) | How::Lost => {
                let from = said.ceil_char_boundary(said.len().saturating_sub(CHECK_BYTES_MAX));
                let how = match how {
                    How::Failed(code) => format!("exit code {code}"),
                    How::Signal(signal) => format!("signal {signal}"),
                    _ => "nobody saw how".to_owned(),
                };
                let end = said[from..].trim();
                format!("its check `{shown}` fails ({how}); it said at the end:\n\n{end}\n\n")
            }
        })
    }

    /// Removes what a run that is over has in its repository, and returns the branches with work that nobody has brought in.
    /// A worktree in which something is left stays.
    pub(super) async fn clear_up(&self, drive: &Drive) -> Vec<String> {
        if !drive.terms.commits {
            return Vec::new();
        }
        let directory = Path::new(&*drive.terms.directory);
        let main = match Tree::at(self.shared.hub.held(), directory).await {
            Ok(Some(main)) => main,
            Ok(None) => return Vec::new(),
            Err(error) => {
                tracing::warn!(run = self.name.as_str(), %error, "the repository is left as it is");
                return Vec::new();
            }
        };
        // There may have been more at another time.
        let over = (0..WORKERS_MAX).filter(|worker| !drive.carried.contains_key(worker));
        for worker in over.clone() {
            let path = self.worktree_path(worker);
            if !path.exists() {
                continue;
            }
            let removed = async {
                let tree = self.worktree_of(&main, worker).await?;
                self.rescue(&main, &tree, worker).await?;
                main.remove_worktree(&path).await
            };
            if let Err(error) = removed.await {
                self.warn_once(format!("the worktree {} stays: {error}", path.display())).await;
            }
        }
        if let Some(above) = self.worktree_path(0).parent() {
            // If nothing is left in it.
            let _ = self.shared.hub.held().file(FileTask::remove_directory(above)).await;
        }
        let anchors: Vec<String> = over
            .flat_map(|worker| ["before", "after", "work"].map(|what| format!("{what}-{worker}")))
            .flat_map(|what| git::anchored(&self.anchor(&what)))
            .collect();
        if let Err(error) = main.forget(&anchors).await {
            tracing::warn!(run = self.name.as_str(), %error, "a name of old files stays");
        }
        // Nor is a branch needed whose work somebody has brought in.
        let left = async {
            main.forget_merged(&self.kept()).await?;
            main.branches(&self.kept()).await
        };
        let left = left.await.unwrap_or_else(|error| {
            tracing::warn!(run = self.name.as_str(), %error, "branches stay");
            Vec::new()
        });
        let is_work = |branch: &String| branch.contains("/iteration-");
        left.into_iter().filter(is_work).collect()
    }
}

/// Where an iteration's work is.
pub(super) enum Landed {
    Nothing,
    /// This commit is in the project.
    Commit(String),
    /// It is kept elsewhere.
    LeftOver(String),
}

/// What came of a check.
enum Checked {
    Passed,
    /// This is wrong.
    Failed(String),
    /// The hub ended meanwhile.
    CutOff,
}
