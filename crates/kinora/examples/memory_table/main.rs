//! The memory that clips take beside what their plans said, for twelve configurations. Linux only.
//!
//! ```sh
//! cargo run -p kinora --example memory_table -- --json memory.json
//! ```

mod measure;

use std::{
    env,
    error::Error,
    fs,
    process::{Command, ExitCode},
};

use kinora::image_to_video::Precision::{self, BF16, F16, F32};
use kinora_models::{presets::Preset, synthetic::SyntheticModel};
use measure::{Case, Measured};
use serde_json::json;

const HD: [usize; 2] = [1920, 1080];

/// The configurations: models, precisions, sizes, chunks, with networks kept or not, photos and formats.
fn cases() -> [Case; 12] {
    let case = |model, precision: Precision, clip, decode_chunk| Case {
        model,
        precision,
        clip,
        decode_chunk,
        keep_loaded: false,
        cache: 1,
        photo: HD,
        format: "mp4",
    };
    [
        case(Some("tiny"), F32, [4, 64, 64], 4),
        case(Some("tiny"), F32, [14, 256, 256], 14),
        Case { photo: [6000, 4000], ..case(Some("tiny"), F16, [8, 512, 512], 2) },
        Case { keep_loaded: true, ..case(Some("tiny"), BF16, [8, 256, 256], 4) },
        case(Some("small"), F32, [8, 320, 192], 8),
        case(Some("small"), F32, [8, 320, 192], 1),
        case(Some("small"), F16, [8, 320, 192], 8),
        case(Some("small"), BF16, [8, 320, 192], 2),
        Case { keep_loaded: true, ..case(Some("small"), F32, [8, 320, 192], 8) },
        Case { keep_loaded: true, format: "y4m", ..case(Some("small"), F16, [4, 320, 192], 4) },
        case(None, F32, [14, 128, 128], 14),
        Case { format: "gif", ..case(None, F16, [14, 256, 256], 7) },
    ]
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--one", number, folder] => {
            let measured = measure::make(&cases()[number.parse::<usize>()?], folder.as_ref())?;
            println!("{}", serde_json::to_string(&measured)?);
            Ok(ExitCode::SUCCESS)
        }
        [] => table(None),
        ["--json", file] => table(Some(file)),
        _ => Err("usage: memory_table [--json FILE]".into()),
    }
}

/// Measures every case in a process of its own. Fails if one is beyond its bound.
fn table(file: Option<&str>) -> Result<ExitCode, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    SyntheticModel::write(&Preset::tiny().model, &folder.path().join("tiny"))?;
    SyntheticModel::write(&Preset::small().model, &folder.path().join("small"))?;
    println!("| model | precision | clip | chunk | kept | photo | file | planned | measured | of the plan |");
    println!("| --- | --- | --- | ---: | --- | --- | --- | ---: | ---: | ---: |");
    let mut results = Vec::new();
    let mut within = true;
    for (number, case) in cases().iter().enumerate() {
        measure::write_photo(folder.path(), case.photo)?;
        let mut child = Command::new(env::current_exe()?);
        let output = child.args(["--one", &number.to_string()]).arg(folder.path()).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let measured: Measured = serde_json::from_slice(&output.stdout)?;
        fs::remove_file(folder.path().join("clip").with_extension(case.format))?;
        within &= measured.peak <= measured.bound();
        println!("{}", row(case, &measured));
        results.push(json!({
            "model": case.model.unwrap_or("in the box"),
            "precision": case.precision,
            "frames": case.clip[0],
            "width": case.clip[1],
            "height": case.clip[2],
            "decode_chunk": case.decode_chunk,
            "kept_loaded": case.keep_loaded,
            "photo": case.photo,
            "format": case.format,
            "planned_bytes": measured.planned,
            "measured_bytes": measured.peak,
            "bound_bytes": measured.bound(),
        }));
    }
    if let Some(file) = file {
        let command = "cargo run -p kinora --example memory_table -- --json FILE";
        let results = json!({ "command": command, "cases": results });
        fs::write(file, format!("{}\n", serde_json::to_string_pretty(&results)?))?;
    }
    println!("\n{}", if within { "all within 5 % + 20 MB of the plan" } else { "NOT all within the bound" });
    Ok(if within { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row(case: &Case, measured: &Measured) -> String {
    let [frames, width, height] = case.clip;
    let megabytes = |bytes: usize| format!("{:.1} MB", bytes as f64 / 1e6);
    format!(
        "| {} | {} | {frames} × {width}×{height} | {} | {} | {}×{} | {} | {} | {} | {:.0} % |",
        case.model.unwrap_or("in the box"),
        case.precision,
        case.decode_chunk,
        if case.keep_loaded { "yes" } else { "no" },
        case.photo[0],
        case.photo[1],
        case.format,
        megabytes(measured.planned),
        megabytes(measured.peak),
        100.0 * measured.peak as f64 / measured.planned as f64,
    )
}
