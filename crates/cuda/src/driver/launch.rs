//! A launch, ready to be put into a stream any number of times.

use std::ffi::c_void;

use cudarc::driver::sys::{
    self, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchAttributeValue_union__bindgen_ty_1 as ClusterDimensions, CUlaunchConfig,
};

use super::{module::Function, stream::Stream, tensor_map};
use crate::{
    CudaError,
    launch::{
        Argument, Launch,
        limits::{DEFAULT_SHARED_BYTES, PORTABLE_CLUSTER_BLOCKS},
    },
};

/// Memory for arguments, aligned for the largest of them.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
struct Line([u8; 128]);

/// A launch with its function and its arguments in the driver's form.
#[derive(Debug)]
pub struct PreparedLaunch {
    function: Function,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    cluster: u32,
    /// Whether it may start before the launch in front of it has ended.
    overlaps: bool,
    /// The arguments, each at the start of a line.
    _values: Box<[Line]>,
    /// Where each argument lies in `_values`.
    pointers: Box<[*mut c_void]>,
}

// SAFETY: the pointers point into memory that moves with the launch, and that nothing writes.
unsafe impl Send for PreparedLaunch {}
// SAFETY: as above.
unsafe impl Sync for PreparedLaunch {}

impl PreparedLaunch {
    /// Lays the arguments out, and asks for the shared memory that the launch needs.
    ///
    /// # Errors
    /// If the chip cannot run it: too much shared memory, clusters, a tensor map that it refuses.
    pub fn new(function: Function, launch: &Launch) -> Result<PreparedLaunch, CudaError> {
        if launch.shared_bytes > DEFAULT_SHARED_BYTES {
            function.allow_shared_bytes(launch.shared_bytes)?;
        }
        if launch.cluster > PORTABLE_CLUSTER_BLOCKS {
            function.allow_large_clusters()?;
        }
        let mut lines = Vec::new();
        let mut starts = Vec::with_capacity(launch.arguments.len());
        for argument in &launch.arguments {
            starts.push(lines.len());
            match argument {
                Argument::Pointer(pointer) => place(&mut lines, &pointer.address().to_ne_bytes()),
                Argument::I32(value) => place(&mut lines, &value.to_ne_bytes()),
                Argument::I64(value) => place(&mut lines, &value.to_ne_bytes()),
                Argument::F32(value) => place(&mut lines, &value.to_ne_bytes()),
                Argument::Struct(value) => place(&mut lines, value.bytes()),
                Argument::TensorMap(map) => {
                    let encoded = tensor_map::encode(function.context(), map)?;
                    place(&mut lines, &encoded.opaque.map(u64::to_ne_bytes).concat());
                }
            }
        }
        let mut values = lines.into_boxed_slice();
        let base: *mut Line = values.as_mut_ptr();
        // SAFETY: every start is within the slice.
        let pointers = starts.into_iter().map(|start| unsafe { base.add(start) }.cast::<c_void>()).collect();
        let Launch { grid, block, shared_bytes, cluster, .. } = *launch;
        let overlaps = false;
        Ok(PreparedLaunch {
            function,
            grid,
            block,
            shared_bytes,
            cluster,
            overlaps,
            _values: values,
            pointers,
        })
    }

    /// A launch of a kernel that is not ours, whose arguments are bytes.
    ///
    /// # Errors
    /// If the chip cannot run it: too much shared memory, clusters.
    pub fn of_bytes(
        function: Function,
        (grid, block): ([u32; 3], [u32; 3]),
        shared_bytes: u32,
        arguments: &[Vec<u8>],
    ) -> Result<PreparedLaunch, CudaError> {
        if shared_bytes > DEFAULT_SHARED_BYTES {
            function.allow_shared_bytes(shared_bytes)?;
        }
        let mut lines = Vec::new();
        let mut starts = Vec::with_capacity(arguments.len());
        for argument in arguments {
            starts.push(lines.len());
            place(&mut lines, argument);
        }
        let mut values = lines.into_boxed_slice();
        let base: *mut Line = values.as_mut_ptr();
        // SAFETY: every start is within the slice, or one past its end if the last argument has no bytes.
        let pointers = starts.into_iter().map(|start| unsafe { base.add(start) }.cast::<c_void>()).collect();
        let (cluster, overlaps) = (1, false);
        Ok(PreparedLaunch {
            function,
            grid,
            block,
            shared_bytes,
            cluster,
            overlaps,
            _values: values,
            pointers,
        })
    }

    /// Lets it start before the launch in front of it has ended (programmatic dependent launch).
    ///
    /// # Safety
    /// Its kernel waits for that launch by itself before it touches global memory.
    #[must_use]
    pub unsafe fn overlapping(self) -> PreparedLaunch {
        PreparedLaunch { overlaps: true, ..self }
    }

    /// Puts the launch into a stream.
    ///
    /// # Safety
    /// The arguments are those of the kernel, and the memory that they point to is there when it runs.
    ///
    /// # Errors
    /// If the driver refuses it.
    pub unsafe fn enqueue(&self, stream: &Stream) -> Result<(), CudaError> {
        let entered = stream.context().enter()?;
        let attribute = |id, value| CUlaunchAttribute { id, pad: [0; 4], value };
        let mut attributes = Vec::with_capacity(2);
        if self.cluster > 1 {
            attributes.push(attribute(
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                CUlaunchAttributeValue { clusterDim: ClusterDimensions { x: self.cluster, y: 1, z: 1 } },
            ));
        }
        if self.overlaps {
            attributes.push(attribute(
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
            ));
        }
        let config = CUlaunchConfig {
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.shared_bytes,
            hStream: stream.handle(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        };
        // SAFETY: stream and function are of the current context or refused; the driver copies the arguments, which are
        // the kernel's by the caller's promise, and does not write them.
        let code = unsafe {
            sys::cuLaunchKernelEx(
                &config,
                self.function.handle(),
                self.pointers.as_ptr().cast_mut(),
                std::ptr::null_mut(),
            )
        };
        entered.check(code, "launch a kernel")
    }
}

/// Appends bytes from the start of a line.
fn place(lines: &mut Vec<Line>, bytes: &[u8]) {
    for chunk in bytes.chunks(128) {
        let mut line = Line([0; 128]);
        line.0[..chunk.len()].copy_from_slice(chunk);
        lines.push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_of_several_lines_lies_in_one_piece() {
        let mut lines = Vec::new();
        place(&mut lines, &7i32.to_ne_bytes());
        let bytes: Vec<u8> = (0..200).map(|i| i as u8).collect();
        place(&mut lines, &bytes);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].0[..4], 7i32.to_ne_bytes());
        assert_eq!([&lines[1].0[..], &lines[2].0[..72]].concat(), bytes);
        assert_eq!(lines.as_ptr().addr() % 128, 0);
    }
}
