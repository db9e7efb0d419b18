//! Byte-pair merges.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

/// Pairs of tokens that become one, and which pair goes first.
#[derive(Clone, Debug, Default)]
pub(super) struct Merges(HashMap<(u32, u32), Merge>);

#[derive(Clone, Copy, Debug)]
struct Merge {
    rank: usize,
    token: u32,
}

/// A token of a word, and its neighbours that have not been merged away.
#[derive(Clone, Copy)]
struct Piece {
    token: u32,
    before: Option<usize>,
    after: Option<usize>,
    merged_away: bool,
}

impl Merges {
    /// Adds a merge that goes after all others; of two for one pair, the later one counts.
    pub fn push(&mut self, rank: usize, pair: (u32, u32), token: u32) {
        self.0.insert(pair, Merge { rank, token });
    }

    /// Merges the tokens of a word: always the pair that goes first, of equal ones the leftmost, until there is none.
    pub fn apply(&self, word: Vec<u32>) -> Vec<u32> {
        let last = word.len().saturating_sub(1);
        let mut pieces: Vec<Piece> = word
            .into_iter()
            .enumerate()
            .map(|(i, token)| Piece {
                token,
                before: i.checked_sub(1),
                after: (i < last).then_some(i + 1),
                merged_away: false,
            })
            .collect();
        // The smallest first. What a pair was when it was added may be gone when its turn comes.
        let mut waiting: BinaryHeap<_> = (0..last).filter_map(|at| self.candidate(&pieces, at)).collect();
        while let Some(Reverse((rank, at))) = waiting.pop() {
            let Some(Reverse((current, _))) = self.candidate(&pieces, at) else { continue };
            if current != rank {
                continue;
            }
            let Some((right, merge)) = self.pair(&pieces, at) else { continue };
            let after = pieces[right].after;
            pieces[right].merged_away = true;
            pieces[at].token = merge.token;
            pieces[at].after = after;
            if let Some(after) = after {
                pieces[after].before = Some(at);
            }
            let neighbours = [pieces[at].before, Some(at)].into_iter().flatten();
            waiting.extend(neighbours.filter_map(|at| self.candidate(&pieces, at)));
        }
        pieces.iter().filter(|piece| !piece.merged_away).map(|piece| piece.token).collect()
    }

    fn candidate(&self, pieces: &[Piece], at: usize) -> Option<Reverse<(usize, usize)>> {
        self.pair(pieces, at).map(|(_, merge)| Reverse((merge.rank, at)))
    }

    /// The piece after one that is still there, and what the two become.
    fn pair(&self, pieces: &[Piece], at: usize) -> Option<(usize, Merge)> {
        let left = pieces[at];
        let right = left.after.filter(|_| !left.merged_away)?;
        Some((right, *self.0.get(&(left.token, pieces[right].token))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_merge_goes_first_and_of_equal_ones_the_leftmost() {
        let mut merges = Merges::default();
        for (rank, (pair, token)) in
            [((2, 3), 10), ((1, 2), 11), ((1, 1), 12), ((12, 1), 13)].iter().enumerate()
        {
            merges.push(rank, *pair, *token);
        }
        assert_eq!(merges.apply(vec![1, 2, 3]), [1, 10]);
        assert_eq!(merges.apply(vec![1, 2, 2]), [11, 2]);
        assert_eq!(merges.apply(vec![1, 1, 1, 1, 1]), [12, 13]);
        assert_eq!(merges.apply(vec![1, 1, 1]), [13]);
        assert_eq!(merges.apply(vec![7]), [7]);
        assert_eq!(merges.apply(vec![]), Vec::<u32>::new());
    }

    #[test]
    fn a_very_long_word_does_not_take_long() {
        let mut merges = Merges::default();
        merges.push(0, (1, 1), 2);
        merges.push(1, (2, 2), 3);
        assert_eq!(merges.apply(vec![1; 400_000]).len(), 100_000);
    }
}
