//! Which accesses of different clusters are ordered: what was released at which address, and who has acquired it.
//!
//! A release stores the clocks of its cluster in the log of its address. An acquire notes how much of that log it has seen. Nothing is
//! joined then: what a warp knows of another cluster follows from the logs, and is looked up only when both access the same memory.

use std::{collections::HashMap, rc::Rc};

use super::join;

/// How many addresses, and clusters at one, are remembered for the sake of a better message.
const HINTS: usize = 1 << 16;

/// A cluster's clocks at a release.
#[derive(Clone, Debug)]
struct Release {
    cluster: u64,
    row: Rc<[u32]>,
}

/// A strong write that has nothing to release, since no fence comes before it.
#[derive(Clone, Copy, Debug)]
struct Unfenced {
    at: u32,
    pc: u32,
}

/// An address that threads synchronise through.
#[derive(Debug, Default)]
struct Location {
    /// What was released to the whole device, in order.
    log: Vec<Release>,
    nearby: Nearby,
    /// How often anything was released.
    releases: u64,
    unfenced: HashMap<u64, Unfenced>,
}

/// What was released at an address to a block or a cluster.
#[derive(Debug, Default)]
pub(crate) struct Nearby {
    blocks: HashMap<u64, Vec<u32>>,
    clusters: HashMap<u64, Vec<u32>>,
}

impl Nearby {
    /// What was released to a block's threads.
    pub fn release_to_block(&mut self, block: u64, row: &[u32]) {
        add(&mut self.blocks, block, row);
    }

    /// What was released to a cluster's threads.
    pub fn release_to_cluster(&mut self, cluster: u64, row: &[u32]) {
        add(&mut self.clusters, cluster, row);
    }

    /// Everything that was released to a block's threads, and to its cluster's if the acquire reaches that far.
    pub fn released(&self, block: u64, cluster: Option<u64>) -> Option<Vec<u32>> {
        let block = self.blocks.get(&block);
        let cluster = cluster.and_then(|cluster| self.clusters.get(&cluster));
        match (block, cluster) {
            (Some(block), Some(cluster)) => {
                let mut row = block.clone();
                join(&mut row, cluster);
                Some(row)
            }
            (one, other) => one.or(other).cloned(),
        }
    }
}

fn add(rows: &mut HashMap<u64, Vec<u32>>, key: u64, row: &[u32]) {
    match rows.get_mut(&key) {
        Some(mine) => join(mine, row),
        None => {
            rows.insert(key, row.to_vec());
        }
    }
}

/// How much of an address's log a warp has acquired, and when.
#[derive(Clone, Copy, Debug)]
struct Heard {
    warp: usize,
    at: u32,
    location: usize,
    version: usize,
}

/// What a warp knows of all clusters, as far as it was looked up.
#[derive(Debug, Default)]
pub(crate) struct Known {
    rows: HashMap<u64, Vec<u32>>,
    absorbed: HashMap<usize, usize>,
}

/// Where a fence is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingFence {
    /// Before the strong write at this instruction.
    Release(u32),
    /// After the strong read at this instruction.
    Acquire(u32),
}

/// The order between the clusters of a grid.
#[derive(Debug, Default)]
pub(crate) struct GridOrder {
    places: HashMap<u64, usize>,
    locations: Vec<Location>,
    heard: HashMap<u64, Vec<Heard>>,
}

impl GridOrder {
    fn location(&mut self, address: u64) -> usize {
        *self.places.entry(address).or_insert_with(|| {
            self.locations.push(Location::default());
            self.locations.len() - 1
        })
    }

    /// A cluster releases to the whole device.
    pub fn release(&mut self, address: u64, cluster: u64, row: Rc<[u32]>) {
        let location = self.location(address);
        self.locations[location].log.push(Release { cluster, row });
    }

    /// What was released at an address to blocks and clusters.
    pub fn nearby(&mut self, address: u64) -> &mut Nearby {
        let location = self.location(address);
        self.locations[location].releases += 1;
        &mut self.locations[location].nearby
    }

    /// Remembers a strong write, in case that a fence is missing before it.
    pub fn unfenced(&mut self, address: u64, cluster: u64, at: u32, pc: u32) {
        if self.locations.len() >= HINTS && !self.places.contains_key(&address) {
            return;
        }
        let location = self.location(address);
        let unfenced = &mut self.locations[location].unfenced;
        if unfenced.len() < HINTS {
            unfenced.insert(cluster, Unfenced { at, pc });
        }
    }

    /// An address at which something was released or might have been, the length of its log, and how often anything was released.
    pub fn version(&self, address: u64) -> Option<(usize, usize, u64)> {
        let location = *self.places.get(&address)?;
        let Location { log, releases, .. } = &self.locations[location];
        Some((location, log.len(), *releases))
    }

    /// What was released at it to a block's threads, and to its cluster's.
    pub fn released_nearby(&self, location: usize, block: u64, cluster: Option<u64>) -> Option<Vec<u32>> {
        self.locations[location].nearby.released(block, cluster)
    }

    /// A warp acquires what was released to the whole device.
    pub fn acquire(&mut self, cluster: u64, warp: usize, at: u32, location: usize, version: usize) {
        if version > 0 {
            self.heard.entry(cluster).or_default().push(Heard { warp, at, location, version });
        }
    }

    /// The time up to which a warp, which sees `row` of its own cluster, knows what a warp of any cluster did.
    pub fn seen(&self, known: &mut Known, own: u64, row: &[u32], cluster: u64, warp: usize) -> u32 {
        self.learn(known, own, row);
        known.rows.get(&cluster).map_or(0, |row| row[warp])
    }

    /// Adds what follows from knowing a row of a cluster: also what that cluster had acquired by then.
    fn learn(&self, known: &mut Known, cluster: u64, row: &[u32]) {
        let mut news: Vec<(u64, Rc<[u32]>)> = Vec::new();
        self.learn_one(known, cluster, row, &mut news);
        while let Some((cluster, row)) = news.pop() {
            self.learn_one(known, cluster, &row, &mut news);
        }
    }

    fn learn_one(&self, known: &mut Known, cluster: u64, row: &[u32], news: &mut Vec<(u64, Rc<[u32]>)>) {
        let before = known.rows.entry(cluster).or_insert_with(|| vec![0; row.len()]);
        if row.iter().zip(before.iter()).all(|(new, old)| new <= old) {
            return;
        }
        let old = before.clone();
        join(before, row);
        let Some(heard) = self.heard.get(&cluster) else { return };
        // The events are in the order of their times.
        let least = old[..old.len() - 1].iter().copied().min().unwrap_or(0);
        let first = heard.partition_point(|heard| heard.at <= least);
        for heard in &heard[first..] {
            if row[heard.warp] < heard.at || old[heard.warp] >= heard.at {
                continue;
            }
            let absorbed = known.absorbed.entry(heard.location).or_insert(0);
            if *absorbed < heard.version {
                let log = &self.locations[heard.location].log[*absorbed..heard.version];
                news.extend(log.iter().map(|release| (release.cluster, release.row.clone())));
                *absorbed = heard.version;
            }
        }
    }

    /// Why a warp that listened at some addresses does not know what a warp of another cluster did at a time, if the latter announced
    /// it at one of them. `listened` has the instruction that listened last.
    pub fn missing_fence(
        &self,
        listened: &[(usize, u32)],
        cluster: u64,
        warp: usize,
        at: u32,
    ) -> Option<MissingFence> {
        for &(location, pc) in listened {
            let location = &self.locations[location];
            let told = |release: &Release| release.cluster == cluster && release.row[warp] >= at;
            if location.log.iter().any(told) {
                return Some(MissingFence::Acquire(pc));
            }
            if let Some(unfenced) = location.unfenced.get(&cluster)
                && unfenced.at >= at
            {
                return Some(MissingFence::Release(unfenced.pc));
            }
        }
        None
    }
}
