//! Where the time of a lane goes: stages, steps, the modules of a network, layers.

use std::{cmp::Reverse, collections::HashMap};

use serde::Serialize;

use crate::{LaneKind, Profile, Span, bottlenecks::outermost};

/// The most rectangles per lane, and the most lanes. If there are more, the longest are shown.
const NODES: usize = 20_000;
const LANES: usize = 16;

/// The most modules that a layer's name is split into.
const MODULES: usize = 24;

/// The name for spans that lie in no stage of the run.
const NO_STAGE: &str = "outside the stages";

/// The time of a lane.
#[derive(Debug, Serialize)]
pub(super) struct Flame<'a> {
    name: &'a str,
    kind: LaneKind,
    /// Parents before their children, and children by their time, the longest first.
    nodes: Vec<Node>,
    /// How many more there are.
    left_out: usize,
}

/// A rectangle: how deep it lies, what it is, its name, what it took, how often it ran, and its layer's number.
#[derive(Debug, PartialEq, Serialize)]
struct Node(usize, Kind, String, u64, u64, Option<usize>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// Spans of a name.
    Span,
    /// A network.
    Program,
    /// A part of a layer's name.
    Module,
}

/// The lanes in which anything ran, the one with the most time in layers first.
pub(super) fn flames(profile: &Profile) -> Vec<Flame<'_>> {
    let mut lanes: Vec<(u64, u64, usize)> = (0..profile.lanes.len()).map(|lane| (0, 0, lane)).collect();
    for span in &profile.spans {
        let Some((layers, all, _)) = lanes.get_mut(span.lane) else { continue };
        let taken = span.nanoseconds();
        *layers += if span.work.is_some() { taken } else { 0 };
        *all += taken;
    }
    lanes.retain(|&(_, all, _)| all > 0);
    lanes.sort_by_key(|&(layers, all, lane)| (Reverse((layers, all)), lane));
    let stages = Stages::of(profile);
    lanes.into_iter().take(LANES).map(|(_, _, lane)| flame(profile, lane, &stages, NODES)).collect()
}

/// The outermost span of the busiest thread, and its parts.
struct Stages<'a> {
    root: Option<usize>,
    parts: Vec<&'a Span>,
}

impl Stages<'_> {
    fn of(profile: &Profile) -> Stages<'_> {
        let root = outermost(profile).map(|(number, _)| number);
        let mut parts: Vec<&Span> =
            profile.spans.iter().filter(|span| root.is_some() && span.parent == root).collect();
        parts.sort_by_key(|part| part.start);
        // A run without parts is itself what is shown.
        Stages { root: root.filter(|_| !parts.is_empty()), parts }
    }

    /// The stage that runs while a span of another lane does.
    fn around(&self, span: &Span) -> &str {
        let middle = span.start + span.nanoseconds() / 2;
        let after = self.parts.partition_point(|part| part.start <= middle);
        let part = self.parts[..after].last().filter(|part| part.end >= middle);
        part.map_or(NO_STAGE, |part| part.name.as_str())
    }
}

fn flame<'a>(profile: &'a Profile, lane: usize, stages: &Stages<'_>, most: usize) -> Flame<'a> {
    let mut tree = Tree::default();
    let mut nodes_of_spans: HashMap<usize, usize> = HashMap::new();
    let is_of_the_stages = stages.root.is_some_and(|root| profile.spans[root].lane == lane);
    for (number, span) in profile.spans.iter().enumerate().filter(|(_, span)| span.lane == lane) {
        let taken = span.nanoseconds();
        let mut node = match span.parent {
            Some(parent) => nodes_of_spans.get(&parent).copied().unwrap_or(Tree::ROOT),
            None => {
                tree.add(Tree::ROOT, taken);
                Tree::ROOT
            }
        };
        if Some(number) == stages.root {
            // Its parts are the stages, which come first.
            nodes_of_spans.insert(number, Tree::ROOT);
            continue;
        }
        if span.parent.is_none() && stages.root.is_some() && !is_of_the_stages {
            node = tree.child(node, Kind::Span, stages.around(span));
            tree.add(node, taken);
        }
        match span.work.and_then(|work| Some((work, profile.works.get(work)?))) {
            Some((number, work)) => {
                let modules = work.layer.splitn(MODULES, '.').map(|module| (Kind::Module, module));
                for (kind, name) in std::iter::once((Kind::Program, work.program.as_str())).chain(modules) {
                    node = tree.child(node, kind, name);
                    tree.add(node, taken);
                }
                tree.nodes[node].work = Some(number);
            }
            None => {
                node = tree.child(node, Kind::Span, &span.name);
                tree.add(node, taken);
            }
        }
        nodes_of_spans.insert(number, node);
    }
    let (nodes, left_out) = tree.in_order(most);
    let lane = &profile.lanes[lane];
    Flame { name: &lane.name, kind: lane.kind, nodes, left_out }
}

/// Nodes by their paths.
struct Tree<'a> {
    nodes: Vec<Growing<'a>>,
    places: HashMap<(usize, Kind, &'a str), usize>,
}

struct Growing<'a> {
    kind: Kind,
    name: &'a str,
    nanoseconds: u64,
    runs: u64,
    work: Option<usize>,
    children: Vec<usize>,
}

impl Default for Tree<'_> {
    fn default() -> Self {
        Tree { nodes: vec![Growing::new(Kind::Span, "")], places: HashMap::new() }
    }
}

impl<'a> Growing<'a> {
    fn new(kind: Kind, name: &'a str) -> Growing<'a> {
        Growing { kind, name, nanoseconds: 0, runs: 0, work: None, children: Vec::new() }
    }
}

impl<'a> Tree<'a> {
    const ROOT: usize = 0;

    fn child(&mut self, parent: usize, kind: Kind, name: &'a str) -> usize {
        let next = self.nodes.len();
        let place = *self.places.entry((parent, kind, name)).or_insert(next);
        if place == next {
            self.nodes.push(Growing::new(kind, name));
            self.nodes[parent].children.push(next);
        }
        place
    }

    fn add(&mut self, node: usize, nanoseconds: u64) {
        self.nodes[node].nanoseconds += nanoseconds;
        self.nodes[node].runs += 1;
    }

    /// The nodes in order, and how many were left out. A module that contains only another one shares its rectangle.
    fn in_order(mut self, most: usize) -> (Vec<Node>, usize) {
        let mut nodes: Vec<Node> = Vec::new();
        // Iterative rather than recursive: spans may be nested deeper than the stack allows.
        let mut open = vec![(Tree::ROOT, 0)];
        while let Some((mut number, depth)) = open.pop() {
            let mut name = self.nodes[number].name.to_owned();
            while let Some(only) = self.only_module(number) {
                number = only;
                name = format!("{name}.{}", self.nodes[number].name);
            }
            let mut children = std::mem::take(&mut self.nodes[number].children);
            children.sort_by_key(|&child| (self.nodes[child].nanoseconds, Reverse(child)));
            open.extend(children.into_iter().map(|child| (child, depth + 1)));
            let node = &self.nodes[number];
            nodes.push(Node(depth, node.kind, name, node.nanoseconds, node.runs, node.work));
        }
        let all = nodes.len();
        if all > most {
            // A parent took at least as long as its children and comes before them, so it is never left out before
            // them.
            let mut order: Vec<usize> = (0..all).collect();
            order.sort_by_key(|&number| (Reverse(nodes[number].3), number));
            let mut stays = vec![false; all];
            order.into_iter().take(most).for_each(|number| stays[number] = true);
            let mut stays = stays.into_iter();
            nodes.retain(|_| stays.next().unwrap_or(false));
        }
        let left_out = all - nodes.len();
        (nodes, left_out)
    }

    fn only_module(&self, number: usize) -> Option<usize> {
        let node = &self.nodes[number];
        let &[only] = &node.children[..] else { return None };
        let is_module = |kind| kind == Kind::Module;
        (is_module(node.kind) && is_module(self.nodes[only].kind) && node.work.is_none()).then_some(only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lane, Work};

    fn profile() -> Profile {
        let span = |name: &str, lane, parent, start, end, work| Span {
            name: name.into(),
            lane,
            parent,
            start,
            end,
            work,
            copied: None,
        };
        let work = |layer: &str| Work { program: "unet".into(), layer: layer.into(), ..Work::default() };
        let lane = |name: &str, kind| Lane { name: name.into(), kind };
        Profile {
            lanes: vec![lane("main", LaneKind::Host), lane("stream", LaneKind::Device)],
            works: vec![work("down.0.conv"), work("down.0.attn.to_q"), work("down.0.attn.to_k"), work("out")],
            spans: vec![
                span("clip", 0, None, 0, 100, None),
                span("load", 0, Some(0), 0, 30, None),
                span("denoise", 0, Some(0), 30, 90, None),
                span("step", 1, None, 30, 60, None),
                span("down.0.conv", 1, Some(3), 30, 50, Some(0)),
                span("down.0.attn.to_q", 1, Some(3), 50, 53, Some(1)),
                span("down.0.attn.to_k", 1, Some(3), 53, 59, Some(2)),
                span("step", 1, None, 60, 90, None),
                span("down.0.conv", 1, Some(7), 60, 80, Some(0)),
                span("out", 1, Some(7), 80, 81, Some(3)),
                span("late", 1, None, 95, 96, None),
            ],
            ..Profile::default()
        }
    }

    fn shown(flame: &Flame<'_>) -> Vec<(usize, String, u64, u64)> {
        flame
            .nodes
            .iter()
            .map(|Node(depth, _, name, taken, runs, _)| (*depth, name.clone(), *taken, *runs))
            .collect()
    }

    #[test]
    fn layers_lie_in_stages_steps_and_modules() {
        let profile = profile();
        let found = flames(&profile);
        assert_eq!(found.iter().map(|flame| flame.name).collect::<Vec<_>>(), ["stream", "main"]);
        let expected = [
            (0, "", 61, 3),
            (1, "denoise", 60, 2),
            (2, "step", 60, 2),
            (3, "unet", 50, 5),
            (4, "down.0", 49, 4),
            (5, "conv", 40, 2),
            (5, "attn", 9, 2),
            (6, "to_k", 6, 1),
            (6, "to_q", 3, 1),
            (4, "out", 1, 1),
            (1, NO_STAGE, 1, 1),
            (2, "late", 1, 1),
        ];
        assert_eq!(
            shown(&found[0]),
            expected.map(|(d, name, taken, runs)| (d, name.to_owned(), taken, runs))
        );
        let expected = [(0, "", 100, 1), (1, "denoise", 60, 1), (1, "load", 30, 1)];
        assert_eq!(
            shown(&found[1]),
            expected.map(|(d, name, taken, runs)| (d, name.to_owned(), taken, runs))
        );
    }

    #[test]
    fn of_too_many_the_longest_are_shown() {
        let profile = profile();
        let found = flame(&profile, 1, &Stages::of(&profile), 5);
        let names: Vec<_> = shown(&found).into_iter().map(|(_, name, ..)| name).collect();
        assert_eq!(names, ["", "denoise", "step", "unet", "down.0"]);
        assert_eq!(found.left_out, 7);
    }

    #[test]
    fn children_take_no_longer_than_their_parent() {
        let profile = profile();
        for flame in flames(&profile) {
            let mut sums = vec![(0, u64::MAX)];
            for Node(depth, _, name, taken, ..) in &flame.nodes {
                sums.truncate(depth + 1);
                let left = &mut sums[*depth].1;
                assert!(*left >= *taken, "{name}");
                *left -= taken;
                sums.push((depth + 1, *taken));
            }
        }
        assert!(flames(&Profile::default()).is_empty());
    }
}
