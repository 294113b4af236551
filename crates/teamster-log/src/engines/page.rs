//! A page under construction: what bounds the answer of a read.

use crate::MAX_PAGE_BYTES;

pub(super) struct Page<T> {
    items: Vec<T>,
    n_bytes: usize,
    limit: usize,
}

impl<T> Page<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self { items: Vec::new(), n_bytes: 0, limit }
    }

    /// Adds an item and returns true, unless the page is full. The first item always fits, however large it is.
    pub(super) fn takes(&mut self, n_bytes: usize, item: T) -> bool {
        let fits = self.items.is_empty() || self.n_bytes + n_bytes <= MAX_PAGE_BYTES;
        if self.items.len() >= self.limit || !fits {
            return false;
        }
        self.n_bytes += n_bytes;
        self.items.push(item);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn into_items(self) -> Vec<T> {
        self.items
    }
}
