//! One limit for all that the streams of a model hold.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kinora_graph::{Graph, Source};

use crate::{
    image_to_video::{GenerateError, OverLimit},
    memory::MemoryLimit,
};

/// What is held, by everything that was loaded and is still there.
#[derive(Debug)]
pub(super) struct Ledger {
    limit: Option<MemoryLimit>,
    entries: Mutex<Vec<Entry>>,
}

/// What a network takes, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// Its weights: before it is loaded all of them, afterwards those that it shares with none that was there before.
    pub weights: usize,
    /// Its arena, and what it is given and leaves.
    pub own: usize,
    /// Whether it shares weights with others.
    pub shares: bool,
}

#[derive(Debug)]
struct Entry {
    number: usize,
    need: Need,
    resident: bool,
}

/// The place of a network in the ledger, as long as it is there.
#[derive(Debug)]
pub(super) struct Held {
    ledger: Arc<Ledger>,
    number: usize,
}

impl Ledger {
    pub fn new(limit: Option<MemoryLimit>) -> Arc<Ledger> {
        Arc::new(Ledger { limit, entries: Mutex::default() })
    }

    /// All that is held, in bytes.
    pub fn held(&self) -> usize {
        held(&self.entries())
    }

    /// Refuses a network that is planned and does not fit beside what is held. That it shares as many weights as it can is
    /// assumed: [`Ledger::enter`] knows.
    pub fn admit(&self, part: &'static str, need: Need) -> Result<(), GenerateError> {
        let entries = self.entries();
        let there = if need.shares { shared(&entries) } else { 0 };
        self.fits(part, need.weights.saturating_sub(there).saturating_add(need.own), held(&entries))
    }

    /// Takes in a network that is loaded.
    pub fn enter(self: &Arc<Self>, part: &'static str, need: Need) -> Result<Held, GenerateError> {
        let mut entries = self.entries();
        self.fits(part, need.weights.saturating_add(need.own), held(&entries))?;
        let number = entries.last().map_or(0, |last| last.number + 1);
        entries.push(Entry { number, need, resident: true });
        Ok(Held { ledger: self.clone(), number })
    }

    fn fits(&self, part: &'static str, need: usize, held: usize) -> Result<(), GenerateError> {
        match self.limit {
            Some(limit) if need.saturating_add(held) as u64 > limit.bytes => {
                Err(GenerateError::OverLimit(Box::new(OverLimit { part, need, held, limit })))
            }
            _ => Ok(()),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut entries = self.ledger.entries();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.number == self.number) {
            entry.resident = false;
            entry.need.own = 0;
        }
        // Its weights stay as long as a network may read them: one that came later.
        let last = entries
            .iter()
            .filter(|entry| entry.resident && entry.need.shares)
            .map(|entry| entry.number)
            .max();
        entries.retain(|entry| {
            let read = entry.need.shares && last.is_some_and(|last| last > entry.number);
            entry.resident || (read && entry.need.weights > 0)
        });
    }
}

/// All that is held.
fn held(entries: &[Entry]) -> usize {
    entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.need.weights).saturating_add(entry.need.own))
}

/// The weights that a network may find there.
fn shared(entries: &[Entry]) -> usize {
    entries.iter().filter(|entry| entry.need.shares).map(|entry| entry.need.weights).sum()
}

/// What a network is given and leaves, in bytes: a stream holds it beside the network.
pub(super) fn beside(graph: &Graph) -> usize {
    let inputs = graph.inputs().iter().map(|&id| graph.value(id));
    let inputs =
        inputs.filter(|value| matches!(value.source, Source::Input(_))).map(|value| value.ty.bytes());
    let results = graph.outputs().iter().map(|output| graph.value(output.value).ty.bytes());
    inputs.chain(results).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::LimitSource;

    fn ledger(bytes: u64) -> Arc<Ledger> {
        Ledger::new(Some(MemoryLimit { bytes, source: LimitSource::Asked }))
    }

    fn need(weights: usize, own: usize) -> Need {
        Need { weights, own, shares: true }
    }

    #[test]
    fn shared_weights_count_once_and_as_long_as_they_are_read() {
        let ledger = ledger(200);
        let of = |weights, own| ledger.enter("network", need(weights, own)).unwrap();
        let first = of(100, 10);
        // It would find all of its weights there.
        ledger.admit("network", need(100, 90)).unwrap();
        assert!(ledger.admit("network", need(100, 91)).is_err());
        let second = of(0, 30);
        drop(first);
        assert_eq!(ledger.held(), 130, "the second reads the weights of the first");
        let third = of(5, 1);
        drop(second);
        assert_eq!(ledger.held(), 106);
        drop(third);
        assert_eq!(ledger.held(), 0);
    }

    #[test]
    fn what_does_not_share_is_freed_at_once() {
        let ledger = ledger(100);
        let alone = ledger.enter("text encoder", Need { weights: 40, own: 5, shares: false }).unwrap();
        assert!(ledger.admit("network", need(56, 0)).is_err(), "others do not find its weights");
        let network = ledger.enter("network", need(50, 5)).unwrap();
        drop(alone);
        assert_eq!(ledger.held(), 55);
        let error = ledger.enter("network", need(40, 6)).unwrap_err();
        assert!(error.to_string().contains("46 B"), "{error}");
        assert_eq!(ledger.held(), 55, "what is refused is not held");
        drop(network);
        assert!(ledger.entries().is_empty());
    }
}
