//! What a turn used that ended with an earlier hub. That hub kept what the program had reported in the transcript, but had
//! not counted it yet.

use teamster_agents::agent::Event;
use teamster_agents::transcript;
use teamster_core::agent::Agent;
use teamster_core::spending::{Reported, Used};
use teamster_log::Log;

use super::retention;
use super::spending::Spending;
use crate::prices::Prices;

/// Records that are read of the end of a transcript. A program reports what it used with each model call, so its last report
/// is near the end; where it is not, it is not known.
const RECORDS_MAX: u64 = 2_000;
/// Records that are read at once.
const PAGE: usize = 200;

/// Returns what is known of an agent's interrupted turn.
pub(super) async fn used(
    log: &dyn Log,
    agent: &Agent,
    model: Option<&str>,
    prices: &Prices,
) -> Used {
    let events = match events(log, agent).await {
        Ok(events) => events,
        Err(error) => {
            tracing::warn!(agent = %agent.id, %error, "what an interrupted turn used cannot be read");
            Vec::new()
        }
    };
    of_last_turn(events, model, prices)
}

async fn events(log: &dyn Log, agent: &Agent) -> Result<Vec<Event>, teamster_log::Error> {
    let Ok(transcript) = retention::transcript_of(agent.id.as_str()) else { return Ok(Vec::new()) };
    let last = log.transcripts().extent(&transcript).await?.last;
    let mut after = last.saturating_sub(RECORDS_MAX);
    let mut events = Vec::new();
    while after < last {
        let records = log.transcripts().read(&transcript, after, PAGE).await?;
        let Some(newest) = records.last() else { break };
        after = newest.number;
        let decoded = records.iter().filter_map(|record| {
            transcript::Record::decode(&record.bytes).ok().map(|record| record.event)
        });
        // The rest is long and says nothing about it.
        events.extend(decoded.filter(|event| {
            matches!(event, Event::Started(_) | Event::Prompted { .. } | Event::Usage(_))
        }));
    }
    Ok(events)
}

/// Adds up the reports of the last turn. What its program used after the last report is not known.
fn of_last_turn(events: Vec<Event>, model: Option<&str>, prices: &Prices) -> Used {
    let mut spending = Spending::default();
    for event in events {
        match event {
            // Another process counts from the beginning.
            Event::Started(_) => spending = Spending::default(),
            Event::Prompted { .. } => {
                spending.take(model, prices);
                spending.begin();
            }
            Event::Usage(usage) => spending.hear(usage),
            _ => {}
        }
    }
    let used = spending.take(model, prices);
    used.map_or_else(nothing, |used| match used.reported {
        Reported::Whole => Used { reported: Reported::AtLeast, ..used },
        Reported::AtLeast | Reported::Nothing => used,
    })
}

fn nothing() -> Used {
    Used { reported: Reported::Nothing, ..Used::default() }
}

#[cfg(test)]
mod tests {
    use teamster_agents::agent::{Cost, Started, Tokens, Usage};

    use super::*;
    use crate::settings::{Sources, read};

    fn cost(micros: u64) -> Event {
        let cost = Some(Cost { micros, currency: "USD".to_owned() });
        Event::Usage(Usage { cost, ..Usage::default() })
    }

    fn so_far(input: u64) -> Event {
        let so_far = Some(Tokens { input, output: 1, ..Tokens::default() });
        Event::Usage(Usage { so_far, calls: Some(2), ..Usage::default() })
    }

    #[test]
    fn the_reports_of_the_turn_under_way_are_counted() {
        let started = || Event::Started(Started::default());
        let prompted = || Event::Prompted { text: "go".to_owned() };
        let prices = read(&Sources::default()).settings.prices;
        for (events, tokens, microdollars, reported) in [
            (vec![], 0, None, Reported::Nothing),
            (vec![started(), prompted()], 0, None, Reported::Nothing),
            (vec![started(), prompted(), so_far(10), so_far(30)], 31, None, Reported::AtLeast),
            (vec![started(), prompted(), cost(50)], 0, Some(50), Reported::Nothing),
            // What an earlier turn of the process cost was counted at its end.
            (
                vec![started(), prompted(), cost(50), prompted(), cost(70), so_far(9)],
                10,
                Some(20),
                Reported::AtLeast,
            ),
            // An earlier process is none of it.
            (
                vec![started(), prompted(), cost(50), started(), prompted()],
                0,
                None,
                Reported::Nothing,
            ),
        ] {
            let used = of_last_turn(events, None, &prices);
            assert_eq!(
                (used.input + used.output, used.microdollars, used.reported),
                (tokens, microdollars, reported)
            );
        }
    }
}
