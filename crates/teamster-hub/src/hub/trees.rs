//! Who works in which directory: of the agents of teams, one at a time. Whoever waits for others leaves its directory to
//! them, and has it again before it goes on; so those who ask each other never wait for each other's directories.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use teamster_core::agent::AgentId;
use tokio::sync::Notify;

/// A directory, and the machine that it is on, if that is not this one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tree {
    pub machine: Option<Arc<str>>,
    pub directory: Arc<str>,
}

/// The directories that somebody works in or wants to.
#[derive(Debug, Default)]
pub struct Trees {
    all: Mutex<All>,
    /// For those who wait for a directory.
    changed: Notify,
    /// For whoever starts agents.
    freed: Notify,
}

#[derive(Debug, Default)]
struct All {
    by_tree: HashMap<Tree, Line>,
    by_agent: HashMap<AgentId, Claimed>,
    last: u64,
}

/// What an agent wants.
#[derive(Debug)]
struct Claimed {
    tree: Tree,
    number: u64,
    /// So many of its calls wait for others.
    n_away: usize,
}

/// Who has a directory, and who is next.
#[derive(Debug, Default)]
struct Line {
    holder: Option<AgentId>,
    waiting: VecDeque<AgentId>,
}

impl Line {
    fn give_to_next(&mut self) {
        if self.holder.is_none() {
            self.holder = self.waiting.pop_front();
        }
    }

    fn take_from(&mut self, agent: &AgentId) {
        self.waiting.retain(|one| one != agent);
        self.holder.take_if(|holder| holder == agent);
        self.give_to_next();
    }
}

/// One agent's wish to work in a directory, for as long as it is held.
#[derive(Debug)]
pub struct Claim {
    trees: Arc<Trees>,
    agent: AgentId,
}

/// One that waits for others and has left its directory to them.
#[derive(Debug)]
pub struct Left {
    trees: Arc<Trees>,
    agent: AgentId,
    claim: u64,
    /// It has come back.
    is_over: bool,
}

impl Trees {
    /// Asks for a directory; after all who asked before.
    pub fn claim(self: &Arc<Self>, agent: &AgentId, tree: Tree) -> Claim {
        let mut all = self.all();
        all.last += 1;
        let claimed = Claimed { tree: tree.clone(), number: all.last, n_away: 0 };
        all.by_agent.insert(agent.clone(), claimed);
        let line = all.by_tree.entry(tree).or_default();
        line.waiting.push_back(agent.clone());
        line.give_to_next();
        drop(all);
        // Who only looks on is told; for those who wait nothing is new.
        self.changed.notify_waiters();
        Claim { trees: self.clone(), agent: agent.clone() }
    }

    /// Says whether somebody waits for a directory.
    pub fn is_awaited(&self, tree: &Tree) -> bool {
        self.all().by_tree.get(tree).is_some_and(|line| !line.waiting.is_empty())
    }

    /// Says whether somebody works in a directory.
    pub fn is_held(&self, tree: &Tree) -> bool {
        self.all().by_tree.get(tree).is_some_and(|line| line.holder.is_some())
    }

    /// Returns who works in a directory.
    pub fn worker(&self, tree: &Tree) -> Option<AgentId> {
        self.all().by_tree.get(tree)?.holder.clone()
    }

    /// Waits until `check` finds what it is looking for; it looks again whenever somebody asks for a directory or leaves it.
    pub async fn until<T>(&self, check: impl Fn() -> Option<T>) -> T {
        loop {
            // Registered before we look, so that no change between the two is missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = check() {
                return found;
            }
            changed.await;
        }
    }

    /// Waits until nobody waits for some directory for which somebody did.
    pub async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Notes that an agent waits for others, if it works in a directory.
    pub fn leave(self: &Arc<Self>, agent: &AgentId) -> Option<Left> {
        let mut all = self.all();
        let claimed = all.by_agent.get_mut(agent)?;
        claimed.n_away += 1;
        let (tree, claim) = (claimed.tree.clone(), claimed.number);
        all.by_tree.get_mut(&tree)?.take_from(agent);
        drop(all);
        self.has_changed();
        Some(Left { trees: self.clone(), agent: agent.clone(), claim, is_over: false })
    }

    /// Says whether the agent has its directory; so it has if it wants none.
    fn has(&self, agent: &AgentId) -> bool {
        let all = self.all();
        let claimed = all.by_agent.get(agent);
        let line = claimed.and_then(|claimed| all.by_tree.get(&claimed.tree));
        line.is_none_or(|line| line.holder.as_ref() == Some(agent))
    }

    /// Returns who works in the directory that the agent wants.
    fn holder(&self, agent: &AgentId) -> Option<AgentId> {
        let all = self.all();
        all.by_tree.get(&all.by_agent.get(agent)?.tree)?.holder.clone()
    }

    async fn until_has(&self, agent: &AgentId) {
        self.until(|| self.has(agent).then_some(())).await;
    }

    fn has_changed(&self) {
        self.changed.notify_waiters();
        self.freed.notify_one();
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    pub fn is_granted(&self) -> bool {
        self.trees.has(&self.agent)
    }

    /// Waits until the directory is the agent's.
    pub async fn granted(&self) {
        self.trees.until_has(&self.agent).await;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut all = self.trees.all();
        if let Some(Claimed { tree, .. }) = all.by_agent.remove(&self.agent)
            && let Some(line) = all.by_tree.get_mut(&tree)
        {
            line.take_from(&self.agent);
            if line.holder.is_none() {
                all.by_tree.remove(&tree);
            }
        }
        drop(all);
        self.trees.has_changed();
    }
}

impl Left {
    /// Asks for the directory again, before all who are new to it; if the agent's other calls wait no more, either. Says
    /// whether it did.
    fn want_back(&mut self) -> bool {
        let mut all = self.trees.all();
        let is_first = !std::mem::replace(&mut self.is_over, true);
        let Some(claimed) = all.by_agent.get_mut(&self.agent) else { return false };
        // The claim of an earlier process is over.
        if claimed.number != self.claim || !is_first {
            return false;
        }
        claimed.n_away -= 1;
        if claimed.n_away > 0 {
            return false;
        }
        let tree = claimed.tree.clone();
        let line = all.by_tree.entry(tree).or_default();
        let is_known =
            line.holder.as_ref() == Some(&self.agent) || line.waiting.contains(&self.agent);
        if !is_known {
            line.waiting.push_front(self.agent.clone());
            line.give_to_next();
        }
        true
    }

    /// Waits until the directory is the agent's again, unless another of its calls still waits for others.
    pub async fn back(&mut self) {
        if self.want_back() {
            self.trees.until_has(&self.agent).await;
        }
    }

    pub fn agent(&self) -> &AgentId {
        &self.agent
    }

    /// Returns who works in the directory now.
    pub fn holder(&self) -> Option<AgentId> {
        self.trees.holder(&self.agent)
    }
}

impl Drop for Left {
    /// Whoever gives up waiting goes on, and is in line for its directory again.
    fn drop(&mut self) {
        self.want_back();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;
    use teamster_core::role::RoleName;

    use super::*;

    fn agent(name: &str) -> AgentId {
        let (role, number) = name.split_once('-').unwrap();
        AgentId::new(&RoleName::parse(role).unwrap(), number.parse().unwrap())
    }

    fn tree(directory: &str) -> Tree {
        Tree { machine: None, directory: directory.into() }
    }

    #[tokio::test]
    async fn one_at_a_time_in_the_order_of_asking() {
        let trees = Arc::new(Trees::default());
        let [one, two, three] =
            ["a-1", "a-2", "a-3"].map(|name| trees.claim(&agent(name), tree("/a")));
        let other = trees.claim(&agent("b-4"), tree("/b"));
        assert_eq!([&one, &two, &three, &other].map(Claim::is_granted), [true, false, false, true]);
        assert!(trees.is_awaited(&tree("/a")) && !trees.is_awaited(&tree("/b")));
        let mut second = Box::pin(two.granted());
        assert!(poll!(second.as_mut()).is_pending());
        drop(one);
        second.await;
        // Who gives up is passed over.
        drop(three);
        assert!(!trees.is_awaited(&tree("/a")));
        drop(two);
        assert!(trees.claim(&agent("a-3"), tree("/a")).is_granted());
    }

    #[tokio::test]
    async fn who_waits_for_others_leaves_its_directory_and_has_it_again_before_it_goes_on() {
        let trees = Arc::new(Trees::default());
        let asker = trees.claim(&agent("a-1"), tree("/a"));
        let mut left = trees.leave(&agent("a-1")).unwrap();
        let inner = trees.claim(&agent("a-2"), tree("/a"));
        let late = trees.claim(&agent("a-3"), tree("/a"));
        assert!(inner.is_granted() && !late.is_granted() && !asker.is_granted());
        // Another of its calls waits as well.
        let mut other = trees.leave(&agent("a-1")).unwrap();
        other.back().await;
        assert!(inner.is_granted() && !asker.is_granted());
        {
            let mut back = pin!(left.back());
            assert!(poll!(back.as_mut()).is_pending());
            drop(inner);
            back.await;
        }
        assert!(asker.is_granted() && !late.is_granted());
        // One that gives up waiting is in line again, before those who are new.
        let left = trees.leave(&agent("a-1")).unwrap();
        assert!(late.is_granted());
        drop(left);
        let newer = trees.claim(&agent("a-4"), tree("/a"));
        drop(late);
        assert!(asker.is_granted() && !newer.is_granted());
        // Nobody waits for the directory of one that has ended.
        let mut left = trees.leave(&agent("a-1")).unwrap();
        drop(asker);
        left.back().await;
        assert!(newer.is_granted());
        assert!(trees.leave(&agent("x-9")).is_none());
    }

    /// Two that ask each other, each in its own directory: nobody waits for ever.
    #[tokio::test]
    async fn those_who_ask_each_other_do_not_block_each_other() {
        let trees = Arc::new(Trees::default());
        let claims = [("a-1", "/a"), ("b-2", "/b")]
            .map(|(name, directory)| trees.claim(&agent(name), tree(directory)));
        let left = ["a-1", "b-2"].map(|name| trees.leave(&agent(name)).unwrap());
        let inner = [("b-3", "/b"), ("a-4", "/a")]
            .map(|(name, directory)| trees.claim(&agent(name), tree(directory)));
        assert!(inner.iter().all(Claim::is_granted));
        drop(inner);
        for mut left in left {
            left.back().await;
        }
        assert!(claims.iter().all(Claim::is_granted));
    }
}
