//! `kinora models pull`: a download, or what is missing or damaged of it.

use kinora::{device::Device, image_to_video::Precision};
use kinora_models::{
    hub::{Hub, HubId},
    weights::Variant,
};
use serde_json::json;

use super::{arguments::PullArgs, id};
use crate::{display::Display, failure::Failure, model::DownloadBar, print, quantities::Bytes};

/// Downloads a model.
pub fn run(arguments: &PullArgs) -> Result<(), Failure> {
    let id = id(&arguments.model)?;
    let precision = match arguments.precision {
        Some(precision) => precision,
        None => Precision::default_for(Device::Auto)?,
    };
    let hub = Hub::from_env()?;
    let mut display = Display::new(arguments.quiet, false);
    display.line(&format!("{id} for {precision}, into {}", hub.cache.display()));
    let mut bar = DownloadBar::new(&mut display);
    let folder = hub.pull(&id, &Variant::For(precision.dtype()), &mut bar)?;
    bar.end();
    let commit = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let bytes = bytes_of(&hub, &id, &commit)?;
    if arguments.json {
        let answer = json!({
            "model": id.repo(), "commit": commit, "precision": precision.name(), "folder": folder, "bytes": bytes,
        });
        return print(&format!("{answer}\n"));
    }
    print(&format!("{id} is complete: {} in {}\n", Bytes(bytes), folder.display()))
}

fn bytes_of(hub: &Hub, id: &HubId, commit: &str) -> Result<u64, Failure> {
    let model = hub.cached_model(id)?;
    Ok(model.revisions.iter().find(|revision| revision.commit == commit).map_or(0, |revision| revision.bytes))
}
