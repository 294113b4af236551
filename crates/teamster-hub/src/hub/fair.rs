//! Whose turn it is: principals are served in turn, so that one that floods does not slow the others.

use std::collections::{BTreeMap, VecDeque};

use teamster_core::PrincipalName;

/// As many calls as one principal may have waiting.
pub const WAITING_MAX: usize = 1_024;

/// A queue per principal, taken from in turn.
#[derive(Debug)]
pub(super) struct Fair<T> {
    waiting: BTreeMap<PrincipalName, VecDeque<T>>,
    turns: VecDeque<PrincipalName>,
}

impl<T> Default for Fair<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), turns: VecDeque::new() }
    }
}

impl<T> Fair<T> {
    /// Queues `item` for its principal, or gives it back if too many of that principal's wait already.
    pub(super) fn push(&mut self, principal: &PrincipalName, item: T) -> Result<(), T> {
        match self.waiting.get_mut(principal) {
            Some(queue) if queue.len() >= WAITING_MAX => return Err(item),
            Some(queue) => queue.push_back(item),
            None => {
                self.waiting.insert(principal.clone(), VecDeque::from([item]));
                self.turns.push_back(principal.clone());
            }
        }
        Ok(())
    }

    /// Puts back what was taken before, ahead of all that came since.
    pub(super) fn put_back(&mut self, principal: &PrincipalName, item: T) {
        match self.waiting.get_mut(principal) {
            Some(queue) => queue.push_front(item),
            None => {
                self.waiting.insert(principal.clone(), VecDeque::from([item]));
                self.turns.push_front(principal.clone());
            }
        }
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let principal = self.turns.pop_front()?;
        let queue = self.waiting.get_mut(&principal)?;
        let item = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&principal);
        } else {
            self.turns.push_back(principal);
        }
        item
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> PrincipalName {
        PrincipalName::parse(name).unwrap()
    }

    #[test]
    fn principals_are_served_in_turn_and_floods_are_bounded() {
        let mut fair = Fair::default();
        for n in 0..WAITING_MAX {
            fair.push(&name("flood"), n).unwrap();
        }
        assert_eq!(fair.push(&name("flood"), 9_999), Err(9_999));
        fair.push(&name("ann"), 7_001).unwrap();
        fair.push(&name("bob"), 8_001).unwrap();
        fair.push(&name("ann"), 7_002).unwrap();
        let served: Vec<usize> = std::iter::from_fn(|| fair.pop()).take(6).collect();
        assert_eq!(served, [0, 7_001, 8_001, 1, 7_002, 2]);
        fair.put_back(&name("ann"), 7_000);
        assert_eq!(fair.pop(), Some(7_000));
        assert!(!fair.is_empty());
    }
}
