//! Changes on their way into a stream. Each stands by itself: one that is refused takes no other with it.

use std::collections::VecDeque;

use kinora::{
    LiveSettings,
    image_to_video::GenerateError,
    live::{Change, Stream},
};

/// Changes that were asked for and have not taken effect yet.
#[derive(Default)]
pub struct Pending {
    /// Those that the stream makes ready, all at once.
    coming: Vec<Change>,
    /// Those that were asked for after them.
    waiting: VecDeque<Change>,
    /// How many of the waiting ones are tried one by one, because they were refused together.
    alone: usize,
}

impl Pending {
    /// The settings of a stream if none of the changes is refused.
    pub fn asked(&self, stream: &Stream) -> LiveSettings {
        let changes = self.coming.iter().chain(&self.waiting);
        changes.fold(stream.settings().clone(), |settings, change| change.apply(&settings))
    }

    /// How many have not taken effect yet.
    pub fn count(&self) -> usize {
        self.coming.len() + self.waiting.len()
    }

    /// Asks for changes. Returns why some are left out, here and below; it fails if the stream was ended.
    pub fn ask(
        &mut self,
        stream: &mut Stream,
        changes: &[Change],
    ) -> Result<Vec<GenerateError>, GenerateError> {
        self.waiting.extend(changes.iter().cloned());
        self.proceed(stream)
    }

    /// Has the stream make ready what waits, if it has time for it.
    pub fn proceed(&mut self, stream: &mut Stream) -> Result<Vec<GenerateError>, GenerateError> {
        let mut left_out = Vec::new();
        while stream.asked() == stream.settings() {
            // What was coming has taken effect.
            self.coming.clear();
            if self.waiting.is_empty() {
                break;
            }
            let count = if self.alone > 0 { 1 } else { self.waiting.len() };
            self.alone = self.alone.saturating_sub(1);
            self.coming.extend(self.waiting.drain(..count));
            let settings =
                self.coming.iter().fold(stream.settings().clone(), |now, change| change.apply(&now));
            match stream.change(settings) {
                Ok(()) => {}
                Err(GenerateError::Cancelled) => return Err(GenerateError::Cancelled),
                Err(error) => left_out.extend(self.refuse(error)),
            }
        }
        Ok(left_out)
    }

    /// The stream has refused what it was to make ready.
    pub fn refused(
        &mut self,
        stream: &mut Stream,
        error: GenerateError,
    ) -> Result<Vec<GenerateError>, GenerateError> {
        let mut left_out: Vec<GenerateError> = self.refuse(error).into_iter().collect();
        left_out.extend(self.proceed(stream)?);
        Ok(left_out)
    }

    /// Waits until all have taken effect or are left out.
    pub fn settle(&mut self, stream: &mut Stream) -> Result<Vec<GenerateError>, GenerateError> {
        let mut left_out = Vec::new();
        while !self.coming.is_empty() {
            left_out.extend(match stream.settle() {
                Ok(()) => self.proceed(stream)?,
                Err(GenerateError::Cancelled) => return Err(GenerateError::Cancelled),
                Err(GenerateError::Change(error)) => self.refused(stream, *error)?,
                Err(error) => self.refused(stream, error)?,
            });
        }
        Ok(left_out)
    }

    /// Leaves out what was coming if it is one change, and says why. Of several, one may be to blame: each is tried by itself.
    fn refuse(&mut self, error: GenerateError) -> Option<GenerateError> {
        if self.coming.len() > 1 {
            self.alone = self.coming.len();
            self.coming.drain(..).rev().for_each(|change| self.waiting.push_front(change));
            return None;
        }
        self.coming.clear();
        Some(error)
    }
}

#[cfg(test)]
mod tests {
    use kinora::{
        Device, Live, LiveModel, LoadOptions, ModelFolder, image_to_video::MemoryBudget, live::Changes,
    };
    use kinora_models::synthetic::SyntheticImageModel;

    use super::*;

    /// However they come: those that are refused are said, and the others take effect.
    #[test]
    fn a_change_that_is_refused_takes_no_other_with_it() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        SyntheticImageModel::preset("live").ok_or("no preset")?.write(folder.path())?;
        let options =
            LoadOptions::default().device(Device::Cpu).memory_budget(MemoryBudget::Bytes(64_000_000));
        let live = Live::new(LiveModel::new(ModelFolder::open(folder.path())?), options)?;
        let first = live.settings();
        let text = "{\"frame\": 1, \"width\": 1024, \"height\": 1024}\n{\"frame\": 2, \"prompt\": \"snow\"}\n\
                    {\"frame\": 3, \"blend\": 5}\n{\"frame\": 4, \"steps\": 2}\n{\"frame\": 5, \"strength\": 0.9}\n";
        let changes = Changes::read(text, &first)?;
        let all: Vec<Change> = (1..=5).flat_map(|frame| changes.of(frame)).cloned().collect();
        // One by one while the first is made ready; two after it; all at once.
        for parts in [vec![1, 1, 1, 1, 1], vec![1, 4], vec![2, 3], vec![5]] {
            let mut stream = live.begin(first.clone())?;
            let (mut pending, mut left_out, mut from) = (Pending::default(), Vec::new(), 0);
            for count in &parts {
                left_out.extend(pending.ask(&mut stream, &all[from..from + count])?);
                from += count;
            }
            left_out.extend(pending.settle(&mut stream)?);
            let expected = first.clone().prompt("snow").steps(2).strength(0.9);
            assert_eq!((stream.settings(), &pending.asked(&stream)), (&expected, &expected), "{parts:?}");
            let said: Vec<String> = left_out.iter().map(ToString::to_string).collect();
            assert_eq!(said.len(), 2, "{said:?}");
            assert!(said[0].contains("the live network needs"), "{said:?}");
            assert!(said[1].contains("blend is 5"), "{said:?}");
        }
        // One that was ended refuses nothing more: it is asked no further.
        let mut stream = live.begin(first)?;
        stream.stop().request();
        let asked = Pending::default().ask(&mut stream, &all);
        assert!(matches!(asked, Err(GenerateError::Cancelled)), "{asked:?}");
        Ok(())
    }
}
