//! When an account has something left again, as far as its program tells: in seconds since 1970, as a time of day, or as
//! how long it takes.

use jiff::Zoned;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use teamster_core::Timestamp;

/// No limit is longer than a month; who says so is not believed.
const MS_MAX: i64 = 31 * 24 * 60 * 60 * 1_000;
/// Words for an account that is used up, not only asked too often.
const USED_UP: [&str; 5] = ["usage", "session limit", "hit your limit", "quota", "credit"];
const RATE: [&str; 8] = [
    "rate limit",
    "rate_limit",
    "ratelimit",
    "too many requests",
    "overloaded",
    "resource_exhausted",
    "429",
    "529",
];
/// How long is waited after the first rate limit that does not say how long. The wait doubles with each further one.
const RATE_MS: i64 = 60_000;
/// Clocks differ, and whoever comes a moment too early is parked again.
const SLACK_MS: i64 = 2_000;
/// What is over since so long was over while the program still tried; what is older was never true.
const PAST_MS_MAX: i64 = 10 * 60 * 1_000;
const MINUTE_MS: i64 = 60 * 1_000;

/// Returns when an agent may go on whose account has nothing left. It was parked `n_parks` times before.
pub(super) fn end(
    unix_s: Option<u64>,
    message: &str,
    now: Timestamp,
    usual_ms: u64,
    n_parks: u32,
) -> Timestamp {
    let usual_ms = i64::try_from(usual_ms).unwrap_or(MS_MAX);
    let words = message.to_lowercase();
    // A rate is a matter of moments; what is used up is not.
    let says = |known: &[&str]| known.iter().any(|known| words.contains(known));
    let is_rate = says(&RATE) && !says(&USED_UP);
    let rate_ms = RATE_MS.saturating_mul(1 << n_parks.min(20));
    let usual_ms = if is_rate { usual_ms.min(rate_ms) } else { usual_ms };
    let told =
        unix_s.and_then(|at| i64::try_from(at).ok()?.checked_mul(1_000)).map(|at| at - now.0);
    let told = told.map(|ms| if (-PAST_MS_MAX..0).contains(&ms) { 0 } else { ms });
    let ms = told.or_else(|| until_time_of_day(&words, now)).or_else(|| duration(&words));
    let ms = ms.filter(|ms| (0..=MS_MAX).contains(ms)).map_or(usual_ms, |ms| ms + SLACK_MS);
    Timestamp(now.0 + ms)
}

/// Reads `resets 4pm (Europe/Berlin)`, `resets at 16:30` and `try again at 3:45 PM`.
fn until_time_of_day(words: &str, now: Timestamp) -> Option<i64> {
    let (_, rest) =
        ["resets ", "try again at "].iter().find_map(|before| words.split_once(before))?;
    let rest = rest.trim_start_matches("at ");
    let (time, rest) = time_of_day(rest)?;
    let zone = rest.trim_start().strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let zone = match zone {
        // Names of zones are written in capitals, but found in any.
        Some((name, _)) => TimeZone::get(name.trim()).ok()?,
        None => TimeZone::system(),
    };
    let now = jiff::Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone);
    let today = now.with().time(time).build().ok()?;
    let after_now = |at: &Zoned| at.timestamp().as_millisecond() - now.timestamp().as_millisecond();
    match after_now(&today) {
        ms @ 1.. => Some(ms),
        // It is told to the minute, so the minute that has begun is the one that was meant.
        ms if ms > -MINUTE_MS => Some(ms + MINUTE_MS),
        _ => Some(after_now(&today.tomorrow().ok()?)),
    }
}

/// Reads `4pm`, `4:30 pm` or `16:30`, and returns what follows.
fn time_of_day(text: &str) -> Option<(Time, &str)> {
    let (hour, rest) = number(text)?;
    let (minute, rest) = match rest.strip_prefix(':') {
        Some(rest) => number(rest)?,
        None => (0, rest),
    };
    let after = rest.trim_start();
    let (hour, rest) = match (after.strip_prefix("am"), after.strip_prefix("pm")) {
        (Some(rest), _) if (1..=12).contains(&hour) => (hour % 12, rest),
        (_, Some(rest)) if (1..=12).contains(&hour) => (hour % 12 + 12, rest),
        // A bare number is no time of day.
        _ if text.contains(':') => (hour, rest),
        _ => return None,
    };
    let time = Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0).ok()?;
    Some((time, rest))
}

/// Reads `try again in 2 hours 5 minutes` and `retry in 30s`.
fn duration(words: &str) -> Option<i64> {
    let (_, mut rest) = ["again in ", "retry in ", "retry after "]
        .iter()
        .find_map(|before| words.split_once(before))?;
    let mut ms: Option<i64> = None;
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
        let Some((n, after)) = number(rest) else { return ms };
        let (thousandths, after) = fraction(after);
        let n = n.saturating_mul(1_000).saturating_add(thousandths);
        let after = after.trim_start();
        let letters = after.bytes().take_while(u8::is_ascii_lowercase).count();
        let (unit, after) = after.split_at(letters);
        let unit_ms = match unit {
            "d" | "day" | "days" => 86_400_000,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
            "s" | "sec" | "secs" | "second" | "seconds" => 1_000,
            "ms" | "millisecond" | "milliseconds" => 1,
            // `retry after 5` means seconds, as the header of that name does.
            "" if ms.is_none() => 1_000,
            _ => return ms,
        };
        ms = Some(ms.unwrap_or(0).saturating_add(n.saturating_mul(unit_ms) / 1_000));
        rest = after;
    }
}

/// Reads what follows a decimal point, in thousandths.
fn fraction(text: &str) -> (i64, &str) {
    let Some(rest) = text.strip_prefix('.') else { return (0, text) };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, after) = rest.split_at(digits);
    let thousandths: String = digits.chars().chain("000".chars()).take(3).collect();
    (thousandths.parse().unwrap_or(0), if digits.is_empty() { text } else { after })
}

fn number(text: &str) -> Option<(i64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    Some((number.parse().ok().filter(|_| digits <= 6)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 15 November 2026, 10:00 in Berlin.
    const NOW: Timestamp = Timestamp(1_794_733_200_000);
    const HOUR: i64 = 3_600_000;

    fn check(unix_s: Option<u64>, message: &str, expected: i64) {
        let found = end(unix_s, message, NOW, 1_800_000, 0).0 - NOW.0;
        assert_eq!(found, expected, "{unix_s:?} {message}");
    }

    #[test]
    fn the_wait_after_a_rate_limit_doubles_up_to_the_usual() {
        for (n_parks, minutes) in [(0, 1), (1, 2), (4, 16), (5, 30), (1_000, 30)] {
            let found = end(None, "HTTP 429", NOW, 1_800_000, n_parks).0 - NOW.0;
            assert_eq!(found, minutes * 60_000, "{n_parks}");
        }
        let told = end(None, "rate limit; retry after 5", NOW, 1_800_000, 9).0 - NOW.0;
        assert_eq!(told, 5_000 + SLACK_MS);
    }

    #[test]
    fn what_a_program_tells_is_understood() {
        check(Some(1_794_733_200 + 60), "", 60_000 + SLACK_MS);
        check(Some(1_794_733_200 - 60), "", SLACK_MS);
        check(None, "try again at 10:00 AM (Europe/Berlin)", 60_000 + SLACK_MS);
        check(None, "resets 9:59am (Europe/Berlin)", 24 * HOUR - 60_000 + SLACK_MS);
        check(None, "You've hit your limit · resets 4pm (Europe/Berlin)", 6 * HOUR + SLACK_MS);
        check(None, "resets 9:30am (Europe/Berlin)", 23 * HOUR + HOUR / 2 + SLACK_MS);
        check(None, "Resets at 12:15 (UTC)", 3 * HOUR + HOUR / 4 + SLACK_MS);
        check(None, "Try again in 2 hours 5 minutes.", 2 * HOUR + 300_000 + SLACK_MS);
        check(None, "try again in 3 days, 1 hour and 2 minutes", 73 * HOUR + 120_000 + SLACK_MS);
        check(None, "Rate limit; retry after 30s", 30_000 + SLACK_MS);
        check(None, "Rate limit; try again in 1.242s", 1_242 + SLACK_MS);
        check(None, "rate limit; try again in 20ms.", 20 + SLACK_MS);
        check(None, "rate limit; retry after 5", 5_000 + SLACK_MS);
        check(None, "429 Too Many Requests", RATE_MS);
        check(None, "rate limit; your usage limit is reached", 1_800_000);
    }

    #[test]
    fn what_is_not_told_or_not_believed_is_the_usual() {
        for message in
            ["", "resets tomorrow", "resets 7 times", "try again in a while", "again in 99999999 h"]
        {
            check(None, message, 1_800_000);
        }
        check(Some(5), "", 1_800_000);
        check(Some(u64::MAX), "", 1_800_000);
        check(Some(1_900_000_000), "", 1_800_000);
        check(None, "resets 25:99 (Nowhere/City)", 1_800_000);
    }
}
