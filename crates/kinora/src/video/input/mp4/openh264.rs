//! The OpenH264 decoder, behind calls that are safe.

use std::{
    ffi::{c_int, c_void},
    ptr, slice,
};

use openh264_sys2::{
    API, DECODER_OPTION_TRACE_LEVEL, DynamicAPI, ERROR_CON_DISABLE, ISVCDecoder, ISVCDecoderVtbl,
    SBufferInfo, SDecodingParam, VIDEO_BITSTREAM_AVC, WELS_LOG_QUIET, videoFormatI420,
};

use super::super::error::Fault;
use crate::video::ycbcr::Plane;

/// A decoder of one stream.
pub(super) struct OpenH264 {
    api: DynamicAPI,
    /// An object of the library, alive until it is destroyed in `drop`.
    decoder: *mut ISVCDecoder,
}

/// A decoded picture, which the decoder keeps until its next call.
pub(super) struct Decoded<'a> {
    /// The number that its sample was given.
    pub(super) stamp: u64,
    pub(super) size: [usize; 2],
    pub(super) luma: Plane<'a>,
    /// Blue and red difference, for every two by two pixels.
    pub(super) chroma: [Plane<'a>; 2],
}

// SAFETY: the library keeps no state of a thread; a decoder may be used by any one thread at a time, and every use of the
// pointer needs `&mut self` or ownership.
unsafe impl Send for OpenH264 {}

impl OpenH264 {
    pub(super) fn new() -> Result<Self, Fault> {
        let api = DynamicAPI::from_source();
        let mut decoder: *mut ISVCDecoder = ptr::null_mut();
        // SAFETY: the library writes one pointer, to a decoder that is ours until it is destroyed.
        let code = unsafe { api.WelsCreateDecoder(&raw mut decoder) };
        if code != 0 || decoder.is_null() {
            return Err(failure("create", code));
        }
        let this = Self { api, decoder };
        let (Some(set_option), Some(initialize)) = (this.functions().SetOption, this.functions().Initialize)
        else {
            return Err(incomplete());
        };
        let mut level = WELS_LOG_QUIET as c_int;
        let mut parameters = SDecodingParam { eEcActiveIdc: ERROR_CON_DISABLE, ..SDecodingParam::default() };
        parameters.sVideoProperty.eVideoBsType = VIDEO_BITSTREAM_AVC;
        // SAFETY: the decoder is live; the option is read as an integer and the parameters are copied during the calls.
        let codes = unsafe {
            [
                set_option(this.decoder, DECODER_OPTION_TRACE_LEVEL, (&raw mut level).cast::<c_void>()),
                initialize(this.decoder, &raw const parameters),
            ]
        };
        match codes.into_iter().find(|code| *code != 0) {
            Some(code) => Err(failure("set up", code)),
            None => Ok(this),
        }
    }

    fn functions(&self) -> &ISVCDecoderVtbl {
        // SAFETY: the decoder is a live object of the library, whose first field points to its static table of functions.
        unsafe { &**self.decoder }
    }

    /// Decodes the NAL units of a sample, each behind a start code. `take` gets the pictures that are finished by it, of this or of earlier samples.
    pub(super) fn decode(
        &mut self,
        units: &[u8],
        stamp: u64,
        take: &mut impl FnMut(Decoded<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let decode = self.functions().DecodeFrame2.ok_or_else(incomplete)?;
        let length = c_int::try_from(units.len())
            .map_err(|_| Fault::damaged("a compressed frame of more than 2 GiB"))?;
        // The second call says that the sample is whole; without it a picture would wait for the next sample.
        for (bytes, length) in [(units.as_ptr(), length), (ptr::null(), 0)] {
            let mut planes = [ptr::null_mut(); 3];
            let mut info = SBufferInfo { uiInBsTimeStamp: stamp, ..SBufferInfo::default() };
            // SAFETY: the decoder is live and initialised; it reads `length` bytes during the call, and writes three
            // pointers and the description.
            let code =
                unsafe { decode(self.decoder, bytes, length, (&raw mut planes).cast(), &raw mut info) };
            if code != 0 {
                return Err(failure("decode", code));
            }
            self.hand_over(planes, &info, take)?;
        }
        Ok(())
    }

    /// Hands over the pictures that still wait for earlier ones.
    pub(super) fn flush(
        &mut self,
        take: &mut impl FnMut(Decoded<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let flush = self.functions().FlushFrame.ok_or_else(incomplete)?;
        // It holds at most 16.
        for _ in 0..=16 {
            let mut planes = [ptr::null_mut(); 3];
            let mut info = SBufferInfo::default();
            // SAFETY: the decoder is live; it writes three pointers and the description.
            unsafe { flush(self.decoder, (&raw mut planes).cast(), &raw mut info) };
            if info.iBufferStatus != 1 {
                break;
            }
            self.hand_over(planes, &info, take)?;
        }
        Ok(())
    }

    /// The exclusive borrow keeps the decoder from writing to the picture while it is looked at.
    fn hand_over(
        &mut self,
        planes: [*mut u8; 3],
        info: &SBufferInfo,
        take: &mut impl FnMut(Decoded<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if info.iBufferStatus != 1 || planes.iter().any(|plane| plane.is_null()) {
            return Ok(());
        }
        // SAFETY: the library fills in this variant whenever a picture is ready.
        let buffer = unsafe { info.UsrData.sSystemBuffer };
        let side = |value: c_int| usize::try_from(value).unwrap_or(0);
        let (width, height) = (side(buffer.iWidth), side(buffer.iHeight));
        let strides = buffer.iStride.map(side);
        let halves = (width.div_ceil(2), height.div_ceil(2));
        let sound = width > 0 && height > 0 && strides[0] >= width && strides[1] >= halves.0;
        if buffer.iFormat != videoFormatI420 as c_int || !sound {
            return Err(Fault::damaged("the H.264 decoder gave a picture of an unknown kind"));
        }
        let plane = |number: usize, width: usize, height: usize| {
            let stride = strides[number.min(1)];
            // SAFETY: the planes hold `height` rows that begin `stride` bytes apart, as the library says, of which the last is
            // `width` bytes long, and stay until its next call, which needs `&mut self`.
            let bytes = unsafe { slice::from_raw_parts(planes[number], stride * (height - 1) + width) };
            Plane { bytes, stride }
        };
        take(Decoded {
            stamp: info.uiOutYuvTimeStamp,
            size: [width, height],
            luma: plane(0, width, height),
            chroma: [plane(1, halves.0, halves.1), plane(2, halves.0, halves.1)],
        })
    }
}

impl Drop for OpenH264 {
    fn drop(&mut self) {
        let uninitialize = self.functions().Uninitialize;
        // SAFETY: the decoder is live, and nobody uses it after this.
        unsafe {
            if let Some(uninitialize) = uninitialize {
                uninitialize(self.decoder);
            }
            self.api.WelsDestroyDecoder(self.decoder);
        }
    }
}

/// The library's codes are of the system's own widths.
fn failure(what: &str, code: impl Into<i64>) -> Fault {
    let code: i64 = code.into();
    Fault::damaged(format!("the H.264 decoder failed to {what} it with code {code}"))
}

fn incomplete() -> Fault {
    Fault::damaged("the H.264 decoder lacks a function")
}
