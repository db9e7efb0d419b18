//! Launches for tests, without a device.

use kinora_graph::{Op, TensorType};

use super::{Argument, Call, DevicePointer, KernelSet, Launch, Offer, Places};
use crate::{Architecture, Chip, CudaError, launch::limits::BLOCK_THREADS};

/// Where the operand or result of some number lies: operands first.
pub(crate) fn place(number: usize) -> DevicePointer {
    DevicePointer::new((number as u64 + 1) << 32)
}

/// Where the fault word lies.
pub(crate) const FAULT: DevicePointer = DevicePointer::new(1 << 20);

/// Where the workspace lies.
pub(crate) const WORKSPACE: DevicePointer = DevicePointer::new(1 << 24);

/// Places for so many operands and results.
pub(crate) fn places(inputs: usize, outputs: usize) -> Places {
    Places {
        inputs: (0..inputs).map(place).collect(),
        outputs: (inputs..inputs + outputs).map(place).collect(),
        workspace: WORKSPACE,
        fault: FAULT,
        number: 7,
    }
}

/// The launches of the family's first choice, on a chip of the newest generation. All that it offers, in both sets and
/// on every generation, have launches too, with blocks that a chip can run.
pub(crate) fn launches(offer: Offer, op: &Op, inputs: &[&TensorType]) -> Result<Vec<Launch>, CudaError> {
    let outputs = op.infer(inputs).map_err(|error| CudaError::Internal(error.to_string()))?;
    let outputs: Vec<&TensorType> = outputs.iter().collect();
    let call = Call { layer: "layer", op, inputs, outputs: &outputs };
    let places = places(inputs.len(), outputs.len());
    let mut first = Vec::new();
    for architecture in Architecture::TESTED {
        let chip = Chip::typical(architecture);
        for set in [KernelSet::Baseline, KernelSet::Fused] {
            let implementations = offer(&call, &chip, set);
            assert!(!implementations.is_empty(), "nothing runs {op}");
            for (i, implementation) in implementations.iter().enumerate() {
                let launches = implementation.launches(&places)?;
                for launch in &launches {
                    let threads = launch.block.iter().product::<u32>();
                    assert!((1..=BLOCK_THREADS).contains(&threads), "{launch:?}");
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

/// The bytes of the struct among a launch's arguments that has this name in CUDA.
pub(crate) fn struct_bytes<'a>(launch: &'a Launch, name: &str) -> &'a [u8] {
    let value = launch.arguments.iter().find_map(|argument| match argument {
        Argument::Struct(value) if value.layout().name == name => Some(value.bytes()),
        _ => None,
    });
    value.unwrap_or_else(|| panic!("no {name} among {:?}", launch.arguments))
}

/// The same, of a struct that has nothing but 64-bit members.
pub(crate) fn struct_words(launch: &Launch, name: &str) -> Vec<u64> {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("chunks of eight bytes"));
    struct_bytes(launch, name).chunks_exact(8).map(word).collect()
}
