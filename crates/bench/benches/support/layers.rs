//! Where the time of a network goes on a GPU.

use kinora_cuda::{CudaError, Program, cupti::Cupti};
use kinora_profile::{
    Profiler,
    groups::{By, Group, groups},
};
use serde_json::{Value, json};

/// Replays the step `runs` times. Prints and gives the microseconds of a step by kind of op, by kernel and by layer, the `most`
/// slowest of each.
pub fn profiled(program: &mut Program, runs: usize, most: usize) -> Result<Value, CudaError> {
    let profiler = Profiler::on();
    program.profile(&profiler, "step", Cupti::find().ok())?;
    for _ in 0..runs {
        program.replay()?;
    }
    program.profile(&Profiler::off(), "", None)?;
    let profile = profiler.profile();
    let table = |by: By| -> Vec<Value> {
        let mut rows = groups(&profile, by);
        rows.sort_by_key(|row| std::cmp::Reverse(row.nanoseconds));
        let row = |row: &Group| {
            let microseconds = row.nanoseconds as f64 / runs as f64 / 1e3;
            println!("    {microseconds:>9.1} µs  {}", row.name);
            json!({"name": row.name, "microseconds": microseconds})
        };
        rows.iter().take(most).map(row).collect()
    };
    Ok(json!({"ops": table(By::Op), "kernels": table(By::Kernel), "layers": table(By::Layer)}))
}
