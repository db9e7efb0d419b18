//! The OpenH264 encoder, behind calls that are safe.
//!
//! The `openh264` crate does not reach the settings that a good file needs: a constant quantiser, CABAC, and silence on
//! standard error. So this talks to the library's own interface.

use std::{
    ffi::{c_int, c_void},
    ptr, slice,
};

use openh264_sys2::{
    API, CONSTANT_ID, DynamicAPI, ENCODER_OPTION_TRACE_LEVEL, HIGH_COMPLEXITY, ISVCEncoder, ISVCEncoderVtbl,
    PRO_MAIN, RC_OFF_MODE, SEncParamExt, SFrameBSInfo, SM_SINGLE_SLICE, SSourcePicture, WELS_LOG_QUIET,
    videoFormatI420,
};

use crate::video::{error::EncodeError, ycbcr::Planes};

/// The parameters of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// Even, and within what the library takes.
    pub(super) width: usize,
    /// Even, and within what the library takes.
    pub(super) height: usize,
    /// Frames per second.
    pub(super) rate: f32,
    /// H.264's quantiser, 0 to 51.
    pub(super) quantiser: u8,
    /// Frames from one that a player can start from to the next.
    pub(super) sync_interval: u32,
}

/// An encoder for one stream.
pub(super) struct OpenH264 {
    api: DynamicAPI,
    /// An object of the library, alive until it is destroyed in `drop`.
    encoder: *mut ISVCEncoder,
    settings: Settings,
}

// SAFETY: the library keeps no state of a thread; an encoder may be used by any one thread at a time, and every use of
// the pointer needs `&mut self` or ownership.
unsafe impl Send for OpenH264 {}

impl OpenH264 {
    pub(super) fn new(settings: Settings) -> Result<Self, EncodeError> {
        let api = DynamicAPI::from_source();
        let mut encoder: *mut ISVCEncoder = ptr::null_mut();
        // SAFETY: the library writes one pointer, to an encoder that is ours until it is destroyed.
        check("create", unsafe { api.WelsCreateSVCEncoder(&raw mut encoder) })?;
        if encoder.is_null() {
            return Err(EncodeError::Codec("it could not be created".into()));
        }
        let mut this = Self { api, encoder, settings };
        this.initialize()?;
        Ok(this)
    }

    fn functions(&self) -> &ISVCEncoderVtbl {
        // SAFETY: the encoder is a live object of the library, whose first field points to its static table of functions.
        unsafe { &**self.encoder }
    }

    fn initialize(&mut self) -> Result<(), EncodeError> {
        let (Some(set_option), Some(defaults), Some(initialize)) =
            (self.functions().SetOption, self.functions().GetDefaultParams, self.functions().InitializeExt)
        else {
            return Err(incomplete());
        };
        let mut level = WELS_LOG_QUIET as c_int;
        let mut parameters = SEncParamExt::default();
        // SAFETY: the encoder is live; the option is read as an integer during the call; the parameters are written and
        // belong to us.
        unsafe {
            check(
                "set up",
                set_option(self.encoder, ENCODER_OPTION_TRACE_LEVEL, (&raw mut level).cast::<c_void>()),
            )?;
            check("set up", defaults(self.encoder, &raw mut parameters))?;
        }
        let Settings { width, height, rate, quantiser, sync_interval } = self.settings;
        let (width, height) = (width as c_int, height as c_int);
        parameters.iPicWidth = width;
        parameters.iPicHeight = height;
        parameters.fMaxFrameRate = rate;
        parameters.iRCMode = RC_OFF_MODE;
        parameters.bEnableFrameSkip = false;
        parameters.iComplexityMode = HIGH_COMPLEXITY;
        parameters.iEntropyCodingModeFlag = 1;
        parameters.uiIntraPeriod = sync_interval;
        // The file holds one pair of parameter sets, for all of its frames.
        parameters.eSpsPpsIdStrategy = CONSTANT_ID;
        // More threads would cut the picture into slices, which costs size.
        parameters.iMultipleThreadIdc = 1;
        // It freezes what it takes for background, and slow motion in a sky looks like it.
        parameters.bEnableBackgroundDetection = false;
        parameters.iSpatialLayerNum = 1;
        parameters.iTemporalLayerNum = 1;
        let layer = &mut parameters.sSpatialLayers[0];
        layer.iVideoWidth = width;
        layer.iVideoHeight = height;
        layer.fFrameRate = rate;
        layer.iDLayerQp = quantiser.into();
        layer.uiProfileIdc = PRO_MAIN;
        layer.sSliceArgument.uiSliceMode = SM_SINGLE_SLICE;
        layer.sSliceArgument.uiSliceNum = 1;
        // BT.709, limited range: what `ycbcr` makes.
        layer.bVideoSignalTypePresent = true;
        layer.bColorDescriptionPresent = true;
        layer.bFullRange = false;
        layer.uiColorPrimaries = 1;
        layer.uiTransferCharacteristics = 1;
        layer.uiColorMatrix = 1;
        // SAFETY: the encoder is live, and the parameters are copied during the call.
        check("set up", unsafe { initialize(self.encoder, &raw const parameters) })
    }

    /// Compresses a picture to NAL units with start codes.
    pub(super) fn encode(&mut self, planes: &mut Planes, milliseconds: u64) -> Result<Vec<u8>, EncodeError> {
        let Settings { width, height, .. } = self.settings;
        let Planes { luma, blue, red } = planes;
        let chroma = width * height / 4;
        if (luma.len(), blue.len(), red.len()) != (width * height, chroma, chroma) {
            return Err(EncodeError::Codec("the picture's size has changed".into()));
        }
        let encode = self.functions().EncodeFrame.ok_or_else(incomplete)?;
        let stride = width as c_int;
        let picture = SSourcePicture {
            iColorFormat: videoFormatI420,
            iStride: [stride, stride / 2, stride / 2, 0],
            pData: [luma.as_mut_ptr(), blue.as_mut_ptr(), red.as_mut_ptr(), ptr::null_mut()],
            iPicWidth: stride,
            iPicHeight: height as c_int,
            uiTimeStamp: milliseconds as i64,
            ..SSourcePicture::default()
        };
        let mut result = SFrameBSInfo::default();
        // SAFETY: the encoder is live and initialised for this size; the planes are as long as their strides say, checked
        // above, exclusively ours, and not kept after the call.
        check("compress", unsafe { encode(self.encoder, &raw const picture, &raw mut result) })?;
        let mut stream = Vec::new();
        for layer in result.sLayerInfo.iter().take(usize::try_from(result.iLayerNum).unwrap_or(0)) {
            let count = usize::try_from(layer.iNalCount).unwrap_or(0);
            if count == 0 || layer.pNalLengthInByte.is_null() || layer.pBsBuf.is_null() {
                continue;
            }
            // SAFETY: the library has filled in `count` lengths, and as many bytes as they add up to; both stay until
            // the next call.
            let units = unsafe {
                let lengths = slice::from_raw_parts(layer.pNalLengthInByte, count);
                let bytes = lengths.iter().map(|length| usize::try_from(*length).unwrap_or(0)).sum();
                slice::from_raw_parts(layer.pBsBuf, bytes)
            };
            stream.extend_from_slice(units);
        }
        Ok(stream)
    }
}

impl Drop for OpenH264 {
    fn drop(&mut self) {
        let uninitialize = self.functions().Uninitialize;
        // SAFETY: the encoder is live, and nobody uses it after this.
        unsafe {
            if let Some(uninitialize) = uninitialize {
                uninitialize(self.encoder);
            }
            self.api.WelsDestroySVCEncoder(self.encoder);
        }
    }
}

fn check(what: &str, code: c_int) -> Result<(), EncodeError> {
    if code == 0 { Ok(()) } else { Err(EncodeError::Codec(format!("it failed to {what} with code {code}"))) }
}

fn incomplete() -> EncodeError {
    EncodeError::Codec("the library lacks a function".into())
}
