//! Topological order: items after the items they depend on.

/// Of `count` items, the wanted ones and all that they depend on, each after its dependencies, otherwise in the order in
/// which they are wanted.
///
/// # Errors
/// If items form a cycle: its items, with the first one again at the end.
pub(crate) fn runnable_order<'a>(
    count: usize,
    waits_for: impl Fn(usize) -> &'a [usize],
    wanted: impl IntoIterator<Item = usize>,
) -> Result<Vec<usize>, Vec<usize>> {
    #[derive(Clone, Copy)]
    enum Mark {
        Unseen,
        Open,
        Done,
    }
    let mut marks = vec![Mark::Unseen; count];
    let mut order = Vec::new();
    let mut stack = Vec::new();
    for start in wanted {
        // An explicit stack: a graph may be deeper than the thread's own. Each item comes with how many of its
        // dependencies have been visited.
        stack.push((start, 0));
        while let Some((item, next)) = stack.pop() {
            if next == 0 {
                match marks[item] {
                    Mark::Done => continue,
                    Mark::Open => {
                        let open = stack.iter().map(|&(other, _)| other);
                        return Err(open.skip_while(|&other| other != item).chain([item]).collect());
                    }
                    Mark::Unseen => marks[item] = Mark::Open,
                }
            }
            match waits_for(item).get(next) {
                Some(&other) => stack.extend([(item, next + 1), (other, 0)]),
                None => {
                    marks[item] = Mark::Done;
                    order.push(item);
                }
            }
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(
        waits_for: &[Vec<usize>],
        wanted: impl IntoIterator<Item = usize>,
    ) -> Result<Vec<usize>, Vec<usize>> {
        runnable_order(waits_for.len(), |item| &waits_for[item], wanted)
    }

    #[test]
    fn an_order_that_can_run_stays_as_it_is() {
        let waits_for = [vec![], vec![0], vec![], vec![2, 0, 2], vec![3, 1]];
        assert_eq!(order(&waits_for, 0..5), Ok(vec![0, 1, 2, 3, 4]));
        assert_eq!(order(&waits_for, [3]), Ok(vec![2, 0, 3]));
    }

    #[test]
    fn what_is_waited_for_comes_before() {
        let waits_for = [vec![3], vec![], vec![1], vec![2]];
        assert_eq!(order(&waits_for, 0..4), Ok(vec![1, 2, 3, 0]));
    }

    #[test]
    fn a_cycle_is_the_way_round_alone() {
        // 0 leads into the cycle but is not part of it.
        let waits_for = [vec![1], vec![4, 2], vec![3], vec![1], vec![]];
        assert_eq!(order(&waits_for, 0..5), Err(vec![1, 2, 3, 1]));
        assert_eq!(order(&[vec![0]], 0..1), Err(vec![0, 0]));
    }
}
