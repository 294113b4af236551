//! Several workers, each in a worktree of its own: what one has done is taken over by itself, after the project's check
//! has passed. What cannot be taken over becomes an item, with a branch that keeps it.

use std::path::PathBuf;

use teamster_core::drive::{Drive, WORKERS_MAX};
use teamster_core::item::{self, NewItem, Priority, Status};
use teamster_core::iteration::Open;
use teamster_core::note::{self, NewNote};
use teamster_core::{State, run};

use super::Course;
use super::git::{GitError, Merged, Message, Tree};
use super::hooks::{CommandLine, Hook, How};
use crate::settings::Whole;

/// How long a check may take.
const CHECK_TIMEOUT: Whole<1, 3_600> = Whole::new(30 * 60);
/// As much of what a check says as is kept, from its end.
const CHECK_BYTES_MAX: usize = 4_000;
/// The person may commit something while we merge; so often it is tried again.
const TRIES_MAX: u32 = 5;

impl Course<'_> {
    fn worktree_path(&self, worker: u32) -> PathBuf {
        let root = self.shared.data.worktrees(&format!("run-{}", self.name));
        root.join(format!("worker-{worker}"))
    }

    fn branch(&self, worker: u32) -> String {
        format!("teamster/run-{}/worker-{worker}", self.name)
    }

    pub(super) async fn worktree_of(&self, main: &Tree, worker: u32) -> Result<Tree, GitError> {
        main.worktree(&self.worktree_path(worker), &self.branch(worker)).await
    }

    /// Returns a worker's worktree, which is as the project is now, unless the worker goes on with something.
    pub(super) async fn worktree(
        &self,
        main: &Tree,
        drive: &Drive,
        worker: u32,
    ) -> Result<Tree, GitError> {
        let tree = self.worktree_of(main, worker).await?;
        if !drive.carried.contains_key(&worker)
            && let Some(head) = main.head().await
        {
            self.rescue(main, &tree, worker).await?;
            tree.reset_to(&head).await?;
        }
        Ok(tree)
    }

    /// Keeps what could not be committed in a worker's worktree when its iteration ended.
    async fn rescue(&self, main: &Tree, tree: &Tree, worker: u32) -> Result<(), GitError> {
        let state = self.shared.hub.state();
        let mut ended = state.runs.get(self.name).iterations.ended().rev();
        let last = ended.find(|ended| ended.open.worker == worker);
        let (Some(last), Some(at)) = (last, tree.head().await) else { return Ok(()) };
        if main.is_ancestor(&at, "HEAD").await && tree.is_clean().await? {
            return Ok(());
        }
        let (base, open) = (tree.committed(&at).await?, &last.open);
        let item = open.item.and_then(|item| state.runs.get(self.name).items.get(item));
        if item.is_none_or(|item| item.status != Status::Completed) {
            return self.put_aside(&state, main, tree, open, &base).await;
        }
        // Nobody would do it again.
        let Some(left) = self.leave(&state, main, tree, open, &base).await? else { return Ok(()) };
        let why = "could not be committed when its iteration ended";
        self.left_over(main, tree, open, &left, why).await.map(drop)
    }

    /// Takes over what a worker has committed in its worktree. Returns the commit by which it came into the project.
    pub(super) async fn take_over(
        &self,
        main: &Tree,
        tree: &Tree,
        drive: &Drive,
        open: &Open,
        commit: &str,
    ) -> Result<Option<String>, GitError> {
        // What its agent switched to may be a person's branch.
        tree.return_to_branch().await?;
        for _ in 0..TRIES_MAX {
            let Some(head) = main.head().await else { return Ok(None) };
            if !tree.is_ancestor(&head, "HEAD").await
                && let Merged::Conflicts(files) = tree.merge(&head).await?
            {
                let files = files.join(", ");
                let why = format!("conflicts with what others did meanwhile in {files}");
                return self.left_over(main, tree, open, commit, &why).await;
            }
            match self.check(tree, drive).await {
                Checked::Passed => {}
                Checked::Failed(says) => {
                    return self.left_over(main, tree, open, commit, &says).await;
                }
                Checked::CutOff => return Err(GitError::new("merge", "the hub ended meanwhile")),
            }
            let Some(merged) = tree.head().await else { return Ok(None) };
            match main.fast_forward(&merged).await {
                Ok(()) => return Ok(Some(merged)),
                // Somebody has committed something meanwhile.
                Err(_) if main.head().await.as_deref() != Some(&*head) => {}
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
        self.put_aside(state, &main, &tree, open, base).await
    }

    async fn put_aside(
        &self,
        state: &State,
        main: &Tree,
        tree: &Tree,
        open: &Open,
        base: &str,
    ) -> Result<(), GitError> {
        let Some(left) = self.leave(state, main, tree, open, base).await? else { return Ok(()) };
        let (branch, about) = self.keep(main, open, &left).await?;
        let content = format!(
            "Iteration {}{about} was cut off. What it had done by then is on the branch {branch}; look at it \
             (`git diff HEAD...{branch}`) before you do the same.",
            open.number
        );
        let note = NewNote { content, kind: note::Kind::Tip };
        self.submit(run::Command::Note(note::Command::Add(vec![note]))).await;
        match main.head().await {
            Some(head) => tree.reset_to(&head).await,
            None => Ok(()),
        }
    }

    /// Commits what is left in a worktree, however much it is.
    async fn leave(
        &self,
        state: &State,
        main: &Tree,
        tree: &Tree,
        open: &Open,
        base: &str,
    ) -> Result<Option<String>, GitError> {
        let (_, body) = self.words(state, open);
        let subject = format!("left by iteration {} of {}", open.number, self.name);
        let mark = format!("{}#{}", self.name, open.number);
        let message = Message { subject: &subject, body: &body, mark: &mark };
        let made = tree.commit_all(base, &message, usize::MAX).await?;
        Ok(self.not_in(main, tree, made).await)
    }

    /// Returns the newest commit of a worktree that is not in the project, of which agents may have made some.
    pub(super) async fn not_in(
        &self,
        main: &Tree,
        tree: &Tree,
        made: Option<String>,
    ) -> Option<String> {
        match made {
            Some(made) => Some(made),
            None => {
                let head = tree.head().await?;
                (!main.is_ancestor(&head, "HEAD").await).then_some(head)
            }
        }
    }

    /// Keeps work that could not be taken over on a branch, and makes an item of it.
    async fn left_over(
        &self,
        main: &Tree,
        tree: &Tree,
        open: &Open,
        commit: &str,
        why: &str,
    ) -> Result<Option<String>, GitError> {
        let (branch, about) = self.keep(main, open, commit).await?;
        let content = format!(
            "Bring in the work of iteration {}{about}: it is on the branch {branch} and {why}. Merge that branch \
             (`git merge {branch}`), put right what is in the way, check it, and leave the result in the files.",
            open.number
        );
        self.add(open, content, None).await;
        if let Some(head) = main.head().await {
            tree.reset_to(&head).await?;
        }
        Ok(None)
    }

    /// The same for work that only a person can let in.
    async fn in_the_way(
        &self,
        main: &Tree,
        tree: &Tree,
        open: &Open,
        commit: &str,
        why: &GitError,
    ) -> Result<Option<String>, GitError> {
        let (branch, about) = self.keep(main, open, commit).await?;
        let content = format!(
            "For the person: the work of iteration {}{about} waits on the branch {branch}, because it could not be taken over \
             into {}: {why}. Put your own changes aside or commit them, then `git merge {branch}`.",
            open.number,
            main.root().display()
        );
        self.add(open, content, Some(Status::Blocked)).await;
        if let Some(head) = main.head().await {
            tree.reset_to(&head).await?;
        }
        Ok(None)
    }

    /// Gives work that is not taken over a branch of its own. Returns its name, and what it is about.
    async fn keep(
        &self,
        main: &Tree,
        open: &Open,
        commit: &str,
    ) -> Result<(String, String), GitError> {
        let branch = format!("teamster/run-{}/iteration-{}", self.name, open.number);
        main.keep(&branch, commit).await?;
        Ok((branch, open.item.map(|item| format!(" ({item})")).unwrap_or_default()))
    }

    /// Adds an item about work that is not taken over. What waits for the item of that work waits for this one, too.
    async fn add(&self, open: &Open, content: String, status: Option<Status>) {
        let priority = Priority::new(1).ok();
        let new = NewItem { content: content.clone(), status, priority };
        self.submit(run::Command::Item(item::Command::Add(vec![new]))).await;
        let state = self.shared.hub.state();
        let items = &state.runs.get(self.name).items;
        let (Some(done), Some(added)) = (open.item, items.with_content(&content)) else { return };
        for waits in items.waiting_for(done) {
            let (item, depends_on) = (waits.id.to_string(), Some(added.id.to_string()));
            let update = item::Command::Update { item, status: None, priority: None, depends_on };
            self.submit(run::Command::Item(update)).await;
        }
    }

    /// Runs the project's check.
    async fn check(&self, tree: &Tree, drive: &Drive) -> Checked {
        let words = drive.terms.check.iter().map(ToString::to_string).collect();
        let Some(command) = CommandLine::of(words) else { return Checked::Passed };
        let (starter, stop) = (&self.shared.starter, &self.shared.stop);
        let hook = Hook { command, timeout_s: CHECK_TIMEOUT, pipe_output: false };
        let (how, said) = starter.check(&hook, self.name.as_str(), &tree.directory(), stop).await;
        let shown = drive.terms.check.join(" ");
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

    /// Removes what a run that is over has in its repository. A worktree in which something is left stays.
    pub(super) async fn clear_up(&self, drive: &Drive) {
        let state = self.shared.hub.state();
        let mut ended = state.runs.get(self.name).iterations.ended();
        if !drive.terms.commits || !ended.any(|ended| ended.open.base.is_some()) {
            return;
        }
        let main = match self.main_tree(drive).await {
            Ok(main) => main,
            Err(error) => {
                tracing::warn!(run = self.name.as_str(), %error, "the repository is left as it is");
                return;
            }
        };
        // There may have been more at another time.
        let over = (0..WORKERS_MAX).filter(|worker| !drive.carried.contains_key(worker));
        let anchors: Vec<String> = over.clone().map(|worker| self.anchor(worker)).collect();
        if let Err(error) = main.forget(&anchors).await {
            tracing::warn!(run = self.name.as_str(), %error, "a name of old files stays");
        }
        if drive.terms.workers == 1 {
            return;
        }
        for worker in over {
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
                tracing::warn!(run = self.name.as_str(), %error, "a worktree stays");
            }
        }
        // Nor is a branch needed whose work somebody has brought in.
        if let Err(error) = main.forget_merged(&format!("teamster/run-{}", self.name)).await {
            tracing::warn!(run = self.name.as_str(), %error, "a branch stays");
        }
    }
}

/// What came of a check.
enum Checked {
    Passed,
    /// This is wrong.
    Failed(String),
    /// The hub ended meanwhile.
    CutOff,
}
