//! Saved profiles.

use kinora_profile::{Profile, bottlenecks, compare, copies, groups, html, steps, table, totals, trace};

/// Any bytes as a saved profile, with all that is made of one.
pub fn json(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(profile) = Profile::from_json("profile.json", text) else { return };
    let _ = (table::text(&profile), trace::json(&profile), html::page(&profile));
    let _ = (bottlenecks::stages(&profile), bottlenecks::bottlenecks(&profile));
    let _ = (copies::copies(&profile), steps::steps(&profile), totals::totals(&profile));
    let _ = (groups::groups(&profile, groups::By::Layer), profile.memory_peak());
    let again = profile.clone().starting_at_zero();
    let _ = (compare::text(&compare::compare(&profile, &again)), html::comparison(&profile, &again));
    again.check().expect("the first moment does not matter");
}
