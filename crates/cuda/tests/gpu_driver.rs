//! The driver's layer on a GPU. Without one each test says so and does nothing; with `KINORA_REQUIRE_GPU=1` that is a
//! failure.

mod gpu;

use gpu::open;
use kinora_cuda::{
    CudaError,
    driver::{Device, DeviceBuffer, Event, Module, PinnedBuffer, Stream},
};

#[test]
fn devices_describe_themselves() {
    let Some(device) = open() else { return };
    let info = device.info();
    assert_eq!(Device::list().unwrap()[0], *info);
    assert!(!info.name.is_empty() && info.multiprocessors > 0 && info.uuid.starts_with("GPU-"));
    assert!(info.shared_bytes >= 48 << 10 && info.l2_bytes > 0);
    let memory = device.memory().unwrap();
    assert!(memory.free > 0 && memory.free <= memory.total && memory.total <= info.memory_bytes);
    println!("{info:?}");
}

#[test]
fn bytes_go_there_and_back() {
    let Some(device) = open() else { return };
    let context = device.context();
    let stream = Stream::new(context).unwrap();
    let bytes = 1_000_003;
    let (first, second) =
        (DeviceBuffer::new(context, bytes).unwrap(), DeviceBuffer::new(context, bytes).unwrap());
    assert!(first.address().is_aligned_to(256) && second.address().is_aligned_to(256));
    let mut source = PinnedBuffer::new(context, bytes).unwrap();
    let mut back = PinnedBuffer::new(context, bytes).unwrap();
    println!("pinned: {}", source.is_pinned());
    source.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 251) as u8);
    let (start, end) = (Event::new(context).unwrap(), Event::new(context).unwrap());
    // SAFETY: all buffers are of so many bytes, and outlive the wait below.
    unsafe {
        stream.record(&start).unwrap();
        stream.upload(first.address(), &source).unwrap();
        stream.fill(second.address(), 7, bytes).unwrap();
        stream.copy(second.address(), first.address(), bytes - 3).unwrap();
        stream.download(&mut back, second.address()).unwrap();
        stream.record(&end).unwrap();
    }
    stream.synchronise().unwrap();
    assert_eq!(back[..bytes - 3], source[..bytes - 3]);
    assert_eq!(back[bytes - 3..], [7; 3]);
    assert!(end.milliseconds_since(&start).unwrap() > 0.0);
}

#[test]
fn too_much_memory_names_need_and_room() {
    let Some(device) = open() else { return };
    let need = device.info().memory_bytes * 2;
    let error = DeviceBuffer::new(device.context(), need).unwrap_err();
    assert!(matches!(error, CudaError::OutOfMemory { need: n, .. } if n == need), "{error}");
    // The context is none the worse for it.
    assert!(DeviceBuffer::new(device.context(), 1 << 20).is_ok());
    assert!(DeviceBuffer::new(device.context(), 0).is_ok());
}

#[test]
fn code_that_is_none_says_why() {
    let Some(device) = open() else { return };
    let error =
        Module::load(device.context(), "a kernel", b".version 7.0\n.target sm_75\nnonsense").unwrap_err();
    let message = error.to_string();
    assert!(message.contains("a kernel") && message.contains("PTX"), "{message}");
    assert!(device.memory().is_ok());
}
