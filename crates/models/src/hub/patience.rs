//! How long to wait for a hub, and how often to try again.

use std::time::Duration;

/// How long to wait for a hub, and how often to try again. A whole download may take as long as it needs.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a connection: the address, TCP and TLS.
    pub connect: Duration,
    /// For the headers of an answer.
    pub answer: Duration,
    /// For the next bytes of an answer. If fewer than [a kilobyte](Patience::LEAST) came in this time, the connection
    /// counts as dead.
    pub stall: Duration,
    /// How often a request may fail in a row before the download ends.
    pub retries: u32,
    /// Before the first retry; each further one waits twice as long.
    pub pause: Duration,
    /// The longest pause, whatever the hub asks for.
    pub longest_pause: Duration,
    /// For another program that downloads the same file, as long as that file does not grow.
    pub other_program: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            connect: Duration::from_secs(15),
            answer: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            retries: 5,
            pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            other_program: Duration::from_secs(300),
        }
    }
}

impl Patience {
    /// The bytes that must arrive in the time of a [stall](Patience::stall).
    pub const LEAST: u64 = 1024;

    /// How long to pause after as many failures in a row, if the hub asks for `asked`.
    pub(super) fn pause_after(&self, failures: u32, asked: Option<Duration>) -> Duration {
        let doubled = self.pause.saturating_mul(1 << failures.saturating_sub(1).min(16));
        asked.unwrap_or(doubled).max(self.pause).min(self.longest_pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_end() {
        let patience = Patience::default();
        let seconds = |failures, asked: Option<u64>| {
            patience.pause_after(failures, asked.map(Duration::from_secs)).as_secs()
        };
        assert_eq!([1, 2, 3, 4].map(|failures| seconds(failures, None)), [1, 2, 4, 8]);
        assert_eq!(seconds(u32::MAX, None), 60);
        assert_eq!((seconds(1, Some(7)), seconds(1, Some(0)), seconds(1, Some(u64::MAX))), (7, 1, 60));
    }
}
