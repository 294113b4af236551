//! What seeds of agents and of conversations play in: a world whose hubs have a runner, until they crash. What a seed led
//! to is judged by the log alone, by a model that counts anew.

use teamster_core::agent::{self, Agent, AgentId};

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runner {
    Careful,
    /// Does not interrupt those that an earlier hub left.
    Forgetful,
}

/// What the log says, kept in another way than the core does.
pub(super) trait Model: Default {
    /// Takes in what was recorded, unless it must not have been.
    fn take(&mut self, record: &Record, before: &State) -> Result<(), String>;

    /// The core must say the same.
    fn compare(&self, state: &State) -> Result<(), String>;
}

#[derive(Clone)]
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) runner: Runner,
    /// When the clock began; without it, it starts anew with every hub.
    epoch: Option<Instant>,
    /// Everything that anybody was told was done.
    told: Arc<Mutex<Vec<Acknowledged>>>,
}

impl Stage {
    pub(super) fn new(seed: u64, runner: Runner, epoch: Option<Instant>) -> Self {
        Self { world: World::new(seed, Keys::Sent), runner, epoch, told: Arc::default() }
    }

    /// Starts the first hub, with its clients and what is configured. From then on things go wrong.
    pub(super) async fn begin(
        &self,
        n_clients: u64,
        sync: Command,
    ) -> Result<watch::Sender<Running>, String> {
        let (hubs, _) = watch::channel(self.start_hub(0).await?);
        for client in 0..n_clients {
            self.world.create_token(&hubs, client).await;
        }
        let handle = hubs.borrow().handle.clone();
        handle.submit(Caller::hub(), sync, None).await.expect("nothing goes wrong yet");
        self.world.draw_faults();
        Ok(hubs)
    }

    /// Ends the last hub, and checks what must be true of every log.
    pub(super) async fn end(&self, hubs: &watch::Sender<Running>) -> Result<(), String> {
        let hub = hubs.borrow().clone();
        hub.crash();
        // What was sent last may still arrive.
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.world.check(&[], &hub).await
    }

    pub(super) async fn start_hub(&self, n: u64) -> Result<Running, String> {
        self.world.start_hub_at(n, self.epoch.unwrap_or_else(Instant::now)).await
    }

    /// Runs agents until the hub crashes, and again with the next. Returns only if something goes wrong.
    pub(super) async fn run_and_crash(
        &self,
        hubs: watch::Sender<Running>,
        lifetime_ms: u64,
        run: impl AsyncFn(&Handle, u64),
    ) -> String {
        let mut dice = self.world.dice(3);
        for n in 1.. {
            let hub = hubs.borrow().clone();
            let lifetime = Duration::from_millis(20) + dice.millis(lifetime_ms);
            tokio::select! {
                biased;
                () = run(&hub.handle, n) => unreachable!("it runs for ever"),
                () = tokio::time::sleep(lifetime) => {}
            }
            hub.crash();
            tokio::time::sleep(dice.millis(3)).await;
            match self.start_hub(n).await {
                Ok(running) => hubs.send_replace(running),
                Err(fault) => return fault,
            };
        }
        unreachable!("it crashes for ever")
    }

    /// Starts an agent, as the runner does, if that can be recorded.
    pub(super) async fn admit(
        &self,
        handle: &Handle,
        id: &AgentId,
        dice: &mut Dice,
    ) -> Option<(Arc<Agent>, Caller)> {
        let secret = SecretHash(std::array::from_fn(|_| dice.roll().to_le_bytes()[0]));
        let admit =
            agent::Command::Admit { id: id.clone(), secret, node: teamster_core::NodeName::only() };
        let done = handle.submit(Caller::hub(), Command::Agent(admit), None).await.ok()?;
        self.was_told(format!("admission of {id}"), &done);
        // Somebody may have ended it between the commit and now, not before.
        let agent = done.state.agents.get(id.as_str()).expect("it was admitted").clone();
        let token = done.state.tokens.by_secret(&secret).expect("it has a token");
        Some((agent, Caller::of(token)))
    }

    /// Has something recorded, as the runner does. What comes too late is left out; says whether it did not.
    pub(super) async fn tell(&self, handle: &Handle, command: Command) -> bool {
        loop {
            match handle.submit(Caller::hub(), command.clone(), None).await {
                Ok(done) => {
                    self.was_told(format!("{command:?}"), &done);
                    return true;
                }
                Err(Failure::Refused(_)) => return false,
                Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    pub(super) fn was_told(&self, mark: String, done: &Done) {
        if !done.events.is_empty() {
            let acknowledged = Acknowledged { mark, done: done.clone() };
            self.told.lock().expect("nobody panics with it").push(acknowledged);
        }
    }

    /// Checks the log against a model, and that everything is there that anybody was told. Returns what it comes to.
    pub(super) async fn check<M: Model>(&self) -> Result<(M, State), String> {
        let (mut model, mut state) = (M::default(), State::default());
        let mut records = Vec::new();
        for commit in self.world.commits().await {
            let body = Body::decode(&commit.body).map_err(|error| error.to_string())?;
            for record in body.records {
                model.take(&record, &state)?;
                state.apply(&record);
                model.compare(&state)?;
                records.push(record);
            }
        }
        for Acknowledged { mark, done } in self.told.lock().expect("nobody panics").iter() {
            if !records.iter().any(|record| *record.events == *done.events) {
                return Err(format!("{mark} was acknowledged and is not there"));
            }
        }
        Ok((model, state))
    }
}
