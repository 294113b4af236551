//! The hub's hands where agents work, played: there is no repository anywhere.

use std::io;

use futures_util::future::BoxFuture;
use teamster_agents::deputy::{self, FileTask, Hands, How, Output};

use super::*;

/// Answers every git with that it is in no repository, after a while.
#[derive(Debug)]
pub(super) struct Played(Mutex<Dice>);

impl Played {
    pub(super) fn new(dice: Dice) -> Self {
        Self(Mutex::new(dice))
    }
}

impl Hands for Played {
    fn run(&self, _command: deputy::Command) -> BoxFuture<'_, Result<Output, deputy::Error>> {
        Box::pin(async {
            let pause = self.0.lock().expect("nobody panics with it").millis(50);
            tokio::time::sleep(pause).await;
            Ok(Output { how: How::Code(128), stdout: Vec::new(), stderr: b"no repository".into() })
        })
    }

    fn file(&self, task: FileTask) -> BoxFuture<'_, io::Result<Vec<u8>>> {
        Box::pin(async move { panic!("nobody touches a file here: {task:?}") })
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
