//! Launches for tests, without a device.

use kinora_graph::{Op, TensorType};

use super::{Call, DevicePointer, KernelSet, Launch, Offer, Places};
use crate::{Architecture, Chip, CudaError};

/// Where the operand or result of some number lies: operands first.
pub(crate) fn place(number: usize) -> DevicePointer {
    (number as u64 + 1) << 32
}

/// Where the fault word lies.
pub(crate) const FAULT: DevicePointer = 1 << 20;

/// Where the workspace lies.
pub(crate) const WORKSPACE: DevicePointer = 1 << 24;

/// The launches of the family's first choice, on a chip of the newest generation. All that it offers, in both sets and
/// on every generation, have launches too, with blocks that a chip can run.
pub(crate) fn launches(offer: Offer, op: &Op, inputs: &[&TensorType]) -> Result<Vec<Launch>, CudaError> {
    let outputs = op.infer(inputs).map_err(|error| CudaError::Internal(error.to_string()))?;
    let outputs: Vec<&TensorType> = outputs.iter().collect();
    let call = Call { layer: "layer", op, inputs, outputs: &outputs };
    let places = Places {
        inputs: (0..inputs.len()).map(place).collect(),
        outputs: (inputs.len()..inputs.len() + outputs.len()).map(place).collect(),
        workspace: WORKSPACE,
        fault: FAULT,
        number: 7,
    };
    let mut first = Vec::new();
    for architecture in Architecture::TESTED {
        let chip = Chip::typical(architecture);
        for set in [KernelSet::Baseline, KernelSet::Fused] {
            let implementations = offer(&call, &chip, set);
            assert!(!implementations.is_empty(), "nothing runs {op}");
            for (i, implementation) in implementations.iter().enumerate() {
                let launches = implementation.launches(&call, &places)?;
                for launch in &launches {
                    let threads = launch.block.iter().product::<u32>();
                    assert!((1..=1024).contains(&threads), "{launch:?}");
                    assert!(launch.grid.iter().all(|&blocks| blocks > 0), "{launch:?}");
                    assert!(launch.shared_bytes <= chip.shared_bytes, "{launch:?}");
                }
                if i == 0 {
                    first = launches;
                }
            }
        }
    }
    Ok(first)
}
