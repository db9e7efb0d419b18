//! What a machine without a GPU is told. Where there is a GPU, the same calls succeed.

use kinora_cuda::{CudaError, driver::Device};

#[test]
fn no_driver_and_no_gpu_are_messages_and_no_panic() {
    match Device::list() {
        Ok(devices) => {
            assert!(!devices.is_empty());
            let error = Device::open(devices.len()).unwrap_err();
            assert!(matches!(error, CudaError::NoSuchDevice { .. }), "{error}");
        }
        Err(error) => {
            let known = matches!(
                error,
                CudaError::NoDriver
                    | CudaError::NoDevice
                    | CudaError::DriverTooOld { .. }
                    | CudaError::NoPermission { .. }
            );
            assert!(known, "{error}");
            // Asked again, the answer is the same.
            assert_eq!(Device::open(0).unwrap_err().to_string(), error.to_string());
        }
    }
}
