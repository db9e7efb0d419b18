//! One limit for all that the streams of a model hold.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kinora_graph::{Graph, Source};

use crate::{
    image_to_video::{GenerateError, OverLimit},
    memory::MemoryLimit,
};

/// What is held, by everything that was loaded and is still there, and what is set aside for what is being loaded.
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

impl Need {
    fn bytes(&self) -> usize {
        self.weights.saturating_add(self.own)
    }
}

#[derive(Debug)]
struct Entry {
    number: usize,
    need: Need,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Admitted, and being loaded.
    Coming,
    Loaded,
    /// Dropped: only weights are left, which others may read.
    Gone,
}

/// The place of a network in the ledger, from its admission on, as long as it is there.
#[derive(Debug)]
pub(super) struct Held {
    ledger: Arc<Ledger>,
    number: usize,
}

/// Memory that counts towards the limit as long as this is there: see [`Live::set_aside`](super::Live::set_aside).
#[derive(Debug)]
pub struct SetAside {
    _held: Option<Held>,
}

impl SetAside {
    /// Nothing.
    pub(super) fn nothing() -> SetAside {
        SetAside { _held: None }
    }

    /// So many bytes, if they fit beside what is held.
    pub(super) fn new(
        ledger: &Arc<Ledger>,
        part: &'static str,
        bytes: usize,
    ) -> Result<SetAside, GenerateError> {
        let held = ledger.admit(part, Need { weights: 0, own: bytes, shares: false })?;
        Ok(SetAside { _held: Some(held) })
    }
}

impl Ledger {
    pub fn new(limit: Option<MemoryLimit>) -> Arc<Ledger> {
        Arc::new(Ledger { limit, entries: Mutex::default() })
    }

    /// All that is held or set aside, in bytes.
    pub fn held(&self) -> usize {
        held(&self.entries())
    }

    /// Sets memory aside for a network that is planned, or refuses it if it does not fit beside what is held. It is assumed to
    /// share as many weights as are loaded; [`Held::loaded`] knows. Those of networks that are still coming do not count: two
    /// that are loaded at once may read the same weights twice.
    pub fn admit(self: &Arc<Self>, part: &'static str, need: Need) -> Result<Held, GenerateError> {
        let mut entries = self.entries();
        let there = if need.shares { shared(&entries) } else { 0 };
        let need = Need { weights: need.weights.saturating_sub(there), ..need };
        self.fits(part, need.bytes(), held(&entries))?;
        let number = push(&mut entries, need, State::Coming);
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

impl Held {
    /// The network is loaded, and takes this: what was set aside for it becomes what it holds. Refused if that is more, and too
    /// much.
    pub fn loaded(&mut self, part: &'static str, need: Need) -> Result<(), GenerateError> {
        let mut entries = self.ledger.entries();
        let aside = entries.iter().find(|entry| entry.number == self.number);
        let aside = aside.map_or(0, |entry| entry.need.bytes());
        if need.bytes() > aside {
            self.ledger.fits(part, need.bytes(), held(&entries).saturating_sub(aside))?;
        }
        entries.retain(|entry| entry.number != self.number);
        // After all those whose weights it may have found there.
        self.number = push(&mut entries, need, State::Loaded);
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut entries = self.ledger.entries();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.number == self.number) {
            // What never came leaves nothing behind.
            entry.need.weights = if entry.state == State::Loaded { entry.need.weights } else { 0 };
            entry.need.own = 0;
            entry.state = State::Gone;
        }
        // Its weights stay as long as a network may read them: one that came later, or is coming.
        let readers = entries.iter().filter(|entry| entry.state != State::Gone && entry.need.shares);
        let last =
            readers.map(|entry| if entry.state == State::Coming { usize::MAX } else { entry.number }).max();
        entries.retain(|entry| {
            let read = entry.need.shares && last.is_some_and(|last| last > entry.number);
            entry.state != State::Gone || (read && entry.need.weights > 0)
        });
    }
}

/// Adds an entry after all others.
fn push(entries: &mut Vec<Entry>, need: Need, state: State) -> usize {
    let number = entries.last().map_or(0, |last| last.number + 1);
    entries.push(Entry { number, need, state });
    number
}

/// All that is held or set aside.
fn held(entries: &[Entry]) -> usize {
    entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.need.bytes()))
}

/// The weights that a network may find there.
fn shared(entries: &[Entry]) -> usize {
    let there = entries.iter().filter(|entry| entry.need.shares && entry.state != State::Coming);
    there.map(|entry| entry.need.weights).fold(0, usize::saturating_add)
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
    use std::thread;

    use super::*;
    use crate::memory::LimitSource;

    fn ledger(bytes: u64) -> Arc<Ledger> {
        Ledger::new(Some(MemoryLimit { bytes, source: LimitSource::Asked }))
    }

    fn need(weights: usize, own: usize) -> Need {
        Need { weights, own, shares: true }
    }

    /// A network that was loaded as it was planned.
    fn enter(ledger: &Arc<Ledger>, need: Need) -> Result<Held, GenerateError> {
        let mut held = ledger.admit("network", need)?;
        held.loaded("network", need).map(|()| held)
    }

    #[test]
    fn shared_weights_count_once_and_as_long_as_they_are_read() {
        let ledger = ledger(200);
        let of = |weights, own| enter(&ledger, need(weights, own)).unwrap();
        let first = of(100, 10);
        // It would find all of its weights there.
        drop(ledger.admit("network", need(100, 90)).unwrap());
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
        let alone = enter(&ledger, Need { weights: 40, own: 5, shares: false }).unwrap();
        assert!(ledger.admit("network", need(56, 0)).is_err(), "others do not find its weights");
        let network = enter(&ledger, need(50, 5)).unwrap();
        drop(alone);
        assert_eq!(ledger.held(), 55);
        let mut more = ledger.admit("network", need(50, 6)).unwrap();
        let error = more.loaded("network", need(40, 6)).unwrap_err();
        assert!(error.to_string().contains("46 B"), "{error}");
        drop(more);
        assert_eq!(ledger.held(), 55, "what is refused is not held");
        drop(network);
        assert!(ledger.entries().is_empty());
    }

    #[test]
    fn what_is_admitted_is_set_aside() {
        let ledger = ledger(100);
        let first = ledger.admit("network", need(40, 10)).unwrap();
        assert_eq!(ledger.held(), 50);
        assert!(ledger.admit("network", need(40, 11)).is_err(), "weights that are coming are not there");
        let mut second = ledger.admit("network", need(40, 10)).unwrap();
        assert!(ledger.admit("network", need(0, 1)).is_err());
        drop(first);
        assert_eq!(ledger.held(), 50, "it never came");
        // It took less than was planned, and another has the rest.
        second.loaded("network", need(40, 5)).unwrap();
        let third = ledger.admit("network", need(40, 55)).unwrap();
        drop(second);
        assert_eq!(ledger.held(), 95, "the third may read the weights of the second");
        drop(third);
        assert!(ledger.entries().is_empty());
    }

    #[test]
    fn the_limit_holds_for_networks_that_come_at_once() {
        let ledger = ledger(100);
        thread::scope(|scope| {
            for own in 1..=8 {
                let ledger = &ledger;
                scope.spawn(move || {
                    for _ in 0..500 {
                        let Ok(mut held) = ledger.admit("network", need(20, own * 5)) else { continue };
                        // What another shares is known when both are loaded.
                        let weights = if own % 2 == 0 { 20 } else { 0 };
                        let loaded = held.loaded("network", need(weights, own * 5));
                        assert!(ledger.held() <= 100, "{}", ledger.held());
                        drop((loaded, held));
                    }
                });
            }
        });
        assert!(ledger.entries().is_empty());
    }
}
