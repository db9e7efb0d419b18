//! How much of its published figures a device reaches, as measured.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::ChipSpec;

/// Changes when the constants' meaning changes; a file of another format is refused.
const FORMAT: u32 = 1;

/// The most bytes of a file; one has a few hundred.
const MAX_BYTES: u64 = 1 << 20;

/// What to do about a file that is not a calibration.
const WRITES_ONE: &str = "`cargo bench -p kinora-cuda --bench predictions -- --calibrate FILE` writes one";

/// Constants of a device: shares of published figures, and launch costs. There are few, and each is a property of one part of the
/// chip, never of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The device that they were measured on.
    pub device: String,
    /// The share of the multiprocessors' boost clock that is effective: the chip clocks lower under load, and machine code is less
    /// efficient than the PTX that is simulated.
    pub clock: f64,
    /// The share of the tensor cores' peak rate that is reached under load.
    pub tensor: f64,
    /// The share of L2 bandwidth; above 1 if requests for the same data are merged on the way.
    pub l2: f64,
    /// The share of DRAM bandwidth.
    pub dram: f64,
    /// Seconds that a launch costs before its first block starts and after its last one ends.
    pub launch_seconds: Option<f64>,
    /// The same for a launch that follows another one of the same call.
    pub following_seconds: Option<f64>,
    /// How well multiprocessors, L2 and DRAM overlap: the degree of the norm that combines their times. The larger it is, the
    /// closer the norm is to the longest of them.
    pub overlap: f64,
}

impl Default for Calibration {
    /// Of no particular device: what kernels commonly reach.
    fn default() -> Calibration {
        Calibration {
            device: "none".to_owned(),
            clock: 1.0,
            // Vendor libraries reach four fifths of the data sheet, because the boost clock does not hold.
            tensor: 0.8,
            l2: 0.9,
            dram: 0.9,
            launch_seconds: None,
            following_seconds: None,
            overlap: 4.0,
        }
    }
}

/// An H200, as `bench/results/h200/calibration.json` has it.
fn h200() -> Calibration {
    Calibration {
        device: "NVIDIA H200, driver 580.159.04, CUDA 13.0".to_owned(),
        clock: 0.849_781_043_073_272_8,
        tensor: 0.9,
        l2: 1.921_428_115_079_299_3,
        dram: 0.86,
        launch_seconds: Some(4.727_375_178_743_527_4e-6),
        following_seconds: Some(2.368_940_205_447_281e-6),
        overlap: 4.811_471_128_104_21,
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct File {
    format: u32,
    calibration: Calibration,
}

/// Why a calibration cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// The file is not JSON, or lacks a constant.
    #[error("{path} is not a calibration: {source}; {WRITES_ONE}")]
    Json {
        /// The file.
        path: String,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// The file has another format.
    #[error("{path} is not a calibration of format {FORMAT}: its format is {format}; {WRITES_ONE}")]
    Format {
        /// The file.
        path: String,
        /// Its format.
        format: u32,
    },
    /// A constant is out of range.
    #[error(
        "{path} is not a calibration: {name} is {value}, but must be from {least} to {most}; {WRITES_ONE}"
    )]
    Constant {
        /// The file.
        path: String,
        /// The constant.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The smallest value that makes sense.
        least: f64,
        /// The largest.
        most: f64,
    },
}

impl Calibration {
    /// What is known of a chip: constants that were measured on it or on one with the same multiprocessors, or else the default.
    pub fn of(chip: &ChipSpec) -> Calibration {
        match chip.name.as_str() {
            "H100" | "H200" => h200(),
            _ => Calibration::default(),
        }
    }

    /// Reads a calibration.
    ///
    /// # Errors
    /// If the file cannot be read, is not a calibration of this format, or has a constant out of range.
    pub fn read(path: &Path) -> Result<Calibration, CalibrationError> {
        let name = path.display().to_string();
        let bytes = kinora_outside::read(path, MAX_BYTES)
            .map_err(|source| CalibrationError::File { path: name.clone(), source })?;
        let json = |source| CalibrationError::Json { path: name.clone(), source };
        let file: File = serde_json::from_slice(&bytes).map_err(json)?;
        if file.format != FORMAT {
            return Err(CalibrationError::Format { path: name, format: file.format });
        }
        match file.calibration.out_of_range() {
            Some((constant, value, [least, most])) => {
                Err(CalibrationError::Constant { path: name, name: constant, value, least, most })
            }
            None => Ok(file.calibration),
        }
    }

    /// Writes the calibration.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), CalibrationError> {
        let file = File { format: FORMAT, calibration: self.clone() };
        let text = serde_json::to_string_pretty(&file).unwrap_or_default() + "\n";
        fs::write(path, text)
            .map_err(|source| CalibrationError::File { path: path.display().to_string(), source })
    }

    /// The combined time of multiprocessors, L2 and DRAM, which overlap imperfectly: their norm of degree
    /// [`overlap`](Calibration::overlap).
    pub fn combined(&self, multiprocessors: f64, l2: f64, dram: f64) -> f64 {
        let all = [multiprocessors, l2, dram];
        let longest = all.into_iter().fold(0.0, f64::max);
        if longest <= 0.0 {
            return 0.0;
        }
        let sum: f64 = all.iter().map(|seconds| (seconds / longest).powf(self.overlap)).sum();
        longest * sum.powf(1.0 / self.overlap)
    }

    /// The first constant that no device could have, with its value and its range.
    fn out_of_range(&self) -> Option<(&'static str, f64, [f64; 2])> {
        let (share, seconds, degree) = ([0.01, 2.0], [1e-9, 1.0], [0.5, 100.0]);
        let constants = [
            ("clock", Some(self.clock), share),
            ("tensor", Some(self.tensor), share),
            ("l2", Some(self.l2), share),
            ("dram", Some(self.dram), share),
            ("launch_seconds", self.launch_seconds, seconds),
            ("following_seconds", self.following_seconds, seconds),
            ("overlap", Some(self.overlap), degree),
        ];
        constants.into_iter().find_map(|(name, value, [least, most])| {
            let value = value.filter(|value| !(least..=most).contains(value))?;
            Some((name, value, [least, most]))
        })
    }
}
