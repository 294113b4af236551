//! The end of an agent's stderr, kept for whoever wants to know what went wrong.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Clone)]
pub(crate) struct Tail {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    bytes_max: usize,
}

impl Tail {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes: Arc::default(), bytes_max }
    }

    pub(crate) fn push(&self, said: &[u8]) {
        let said = said.get(said.len().saturating_sub(self.bytes_max)..).unwrap_or_default();
        let mut bytes = self.lock();
        let n_too_many = (bytes.len() + said.len()).saturating_sub(self.bytes_max);
        bytes.drain(..n_too_many);
        bytes.extend(said);
    }

    pub(crate) fn text(&self) -> String {
        let bytes: Vec<u8> = self.lock().iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept() {
        let tail = Tail::new(5);
        tail.push(b"abc");
        assert_eq!(tail.text(), "abc");
        tail.push(b"def");
        assert_eq!(tail.text(), "bcdef");
        tail.push(b"0123456789");
        assert_eq!(tail.text(), "56789");
    }
}
