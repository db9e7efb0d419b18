//! Settings of a clip that are named: by its model, or by whoever asks for the clip.

use kinora_models::{folder::ModelFolder, json, schedulers::SchedulerError};
use serde::Deserialize;

use super::{ConfigError, Configs, GenerateError, Precision, Settings};

/// Some settings of a clip, and `None` for the rest; the names are those of [`Settings`]. A model has them in its `defaults.json`;
/// what that leaves out is as in diffusers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ClipDefaults {
    pub frames: Option<usize>,
    pub steps: Option<usize>,
    pub height: Option<usize>,
    pub width: Option<usize>,
    pub fps: Option<usize>,
    pub motion_bucket: Option<usize>,
    pub noise_augmentation: Option<f64>,
    pub min_guidance: Option<f64>,
    pub max_guidance: Option<f64>,
}

impl ClipDefaults {
    /// Those of a model; all `None` if it has no such file.
    ///
    /// # Errors
    /// If the file cannot be read, or holds anything else.
    pub fn read(model: &ModelFolder) -> Result<ClipDefaults, GenerateError> {
        let Some(text) = model.defaults_text()? else { return Ok(ClipDefaults::default()) };
        json::object(&text).and_then(json::settings).map_err(|error| in_defaults(model, error))
    }

    /// Refuses settings that no clip can be made with.
    pub(super) fn check(&self, configs: &Configs, model: &ModelFolder) -> Result<(), GenerateError> {
        // What is not named is valid by itself.
        let settings = Settings::for_configs(configs);
        let checked = settings.check(configs, Precision::F32).and_then(|()| match self.steps {
            Some(_) => settings.check_steps(configs),
            None => Ok(()),
        });
        checked.map_err(|error| match error {
            GenerateError::Setting { setting, value, rule } => {
                let setting = setting.replace(' ', "_");
                in_defaults(model, ConfigError::Setting { setting, value, rule })
            }
            GenerateError::Scheduler(SchedulerError::Steps { steps, limit, field, .. }) => {
                let (setting, value) = ("steps".to_owned(), steps.to_string());
                let rule = format!("the model's scheduler takes 1 to {limit} (`{field}`)");
                in_defaults(model, ConfigError::Setting { setting, value, rule })
            }
            GenerateError::Scheduler(error) => in_defaults(model, error),
            other => other,
        })
    }

    /// Replaces the settings that are named. A new number of frames is decoded all at once.
    pub fn apply(&self, settings: &mut Settings) {
        fn replace<T: Copy>(setting: &mut T, own: Option<T>) {
            *setting = own.unwrap_or(*setting);
        }
        replace(&mut settings.frames, self.frames);
        replace(&mut settings.decode_chunk, self.frames);
        replace(&mut settings.steps, self.steps);
        replace(&mut settings.height, self.height);
        replace(&mut settings.width, self.width);
        replace(&mut settings.fps, self.fps);
        replace(&mut settings.motion_bucket, self.motion_bucket);
        replace(&mut settings.noise_augmentation, self.noise_augmentation);
        replace(&mut settings.min_guidance, self.min_guidance);
        replace(&mut settings.max_guidance, self.max_guidance);
    }
}

fn in_defaults(model: &ModelFolder, error: impl Into<ConfigError>) -> GenerateError {
    GenerateError::Config { path: model.defaults_path(), source: Box::new(error.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number is different, so that a setting that is skipped or swapped with its neighbour shows up.
    #[test]
    fn everything_that_is_said_is_put_into_its_setting() {
        let given = ClipDefaults {
            frames: Some(3),
            steps: Some(4),
            height: Some(192),
            width: Some(320),
            fps: Some(5),
            motion_bucket: Some(6),
            noise_augmentation: Some(0.25),
            min_guidance: Some(1.5),
            max_guidance: Some(1.75),
        };
        let before = Settings::for_configs(&Configs::preset("svd").unwrap());
        let mut settings = before.clone();
        given.apply(&mut settings);
        let expected = Settings {
            frames: 3,
            steps: 4,
            height: 192,
            width: 320,
            fps: 5,
            motion_bucket: 6,
            noise_augmentation: 0.25,
            min_guidance: 1.5,
            max_guidance: 1.75,
            decode_chunk: 3,
            ..before.clone()
        };
        assert_eq!(settings, expected);
        let mut settings = before.clone();
        ClipDefaults::default().apply(&mut settings);
        assert_eq!(settings, before);
    }
}
