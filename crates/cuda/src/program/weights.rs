//! The weights of a program on the device: its own, and those that it reads of other programs.

use std::{collections::HashMap, sync::Arc};

use kinora_graph::{Graph, ValueId, plan::Plan};
use kinora_runtime::{SharedWeights, WeightSlot};

use crate::{driver::DeviceBuffer, kernels::DevicePointer};

/// A weight on the device. Its allocation lives as long as one of its weights does.
#[derive(Debug)]
pub(super) struct DeviceWeight {
    pub address: DevicePointer,
    _allocation: Arc<DeviceBuffer>,
}

/// The weights of a plan that other programs hold already.
#[derive(Debug, Default)]
pub(super) struct Borrowed(pub HashMap<ValueId, Arc<DeviceWeight>>);

impl Borrowed {
    pub fn new(graph: &Graph, plan: &Plan, shared: Option<&SharedWeights>) -> Borrowed {
        let Some(shared) = shared else { return Borrowed::default() };
        let held = |&value: &ValueId| Some((value, slot(graph, value, shared)?.get()?));
        Borrowed(plan.resident().iter().filter_map(held).collect())
    }
}

/// The weights that the launches of a program point to. Kept alive as long as it is.
#[derive(Debug)]
pub(super) struct Weights {
    own: Vec<(ValueId, Arc<DeviceWeight>)>,
    _borrowed: Borrowed,
    allocation: Arc<DeviceBuffer>,
}

impl Weights {
    pub fn new(
        allocation: DeviceBuffer,
        borrowed: Borrowed,
        addresses: &HashMap<ValueId, DevicePointer>,
        own: &[ValueId],
    ) -> Weights {
        let allocation = Arc::new(allocation);
        let weight = |&value: &ValueId| {
            let address = *addresses.get(&value)?;
            Some((value, Arc::new(DeviceWeight { address, _allocation: allocation.clone() })))
        };
        let own = own.iter().filter_map(weight).collect();
        Weights { own, _borrowed: borrowed, allocation }
    }

    /// What the program itself allocated.
    pub fn own_bytes(&self) -> usize {
        self.allocation.bytes()
    }

    /// Lets programs that are loaded from now on read these weights, which must have arrived on the device.
    pub fn share(&self, graph: &Graph, shared: &SharedWeights) {
        for (value, weight) in &self.own {
            if let Some(slot) = slot(graph, *value, shared) {
                slot.set(weight);
            }
        }
    }
}

fn slot<'a>(graph: &Graph, value: ValueId, shared: &'a SharedWeights) -> Option<WeightSlot<'a>> {
    shared.slot(graph, value, "on the GPU".to_owned())
}
