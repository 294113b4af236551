//! How calls say how far they are.

use std::time::Duration;

use tokio::sync::mpsc;

/// Where a call says how far it is. Nobody may be listening, and then nothing is said.
#[derive(Debug, Clone, Default)]
pub struct Progress(Option<mpsc::Sender<Step>>);

/// How far a call is.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub done: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

/// As many steps as wait to be sent to a slow client; further ones are left out.
const STEPS_MAX: usize = 16;

impl Progress {
    pub fn channel() -> (Self, mpsc::Receiver<Step>) {
        let (sender, steps) = mpsc::channel(STEPS_MAX);
        (Self(Some(sender)), steps)
    }

    /// Says that the call still waits.
    pub(crate) fn waited(&self, waited: Duration) {
        let message = Some(format!("still waiting after {} s", waited.as_secs()));
        self.say(Step { done: waited.as_secs_f64(), total: None, message });
    }

    pub(crate) fn say(&self, step: Step) {
        if let Some(listener) = &self.0 {
            // A listener that is gone or slow misses a step, which the next one makes good.
            let _ = listener.try_send(step);
        }
    }
}
