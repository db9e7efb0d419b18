//! Which photo becomes which video.

use std::path::{MAIN_SEPARATOR, Path, PathBuf};

use kinora::video::VideoFormat;

use super::arguments::GenerateArgs;
use crate::failure::Failure;

/// The name of a video that is not named after a photo.
const UNNAMED: &str = "clip";

/// A photo and the video that it becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// `None` is the still of the model in the box.
    pub photo: Option<PathBuf>,
    pub output: PathBuf,
}

impl Job {
    /// The photo's name, for people.
    pub fn name(&self) -> String {
        self.photo.as_deref().map_or_else(|| "the still".to_owned(), |photo| photo.display().to_string())
    }

    /// Whether the video goes to standard output.
    pub fn to_standard_output(&self) -> bool {
        self.output.as_os_str() == "-"
    }
}

/// A job for every photo. Without `-o`, videos are named after their photos and lie in the current folder.
pub fn jobs(arguments: &GenerateArgs) -> Result<Vec<Job>, Failure> {
    let output = arguments.output.as_deref();
    match (arguments.photos.as_slice(), output) {
        ([], Some(file)) if !is_folder(file) => Ok(vec![Job { photo: None, output: file.to_owned() }]),
        ([photo], Some(file)) if !is_folder(file) => {
            Ok(vec![Job { photo: Some(photo.clone()), output: file.to_owned() }])
        }
        ([], folder) => Ok(vec![Job { photo: None, output: video(None, folder) }]),
        (photos, Some(file)) if !is_folder(file) => Err(Failure::Usage(format!(
            "-o {} is one file, but there are {} photos; give a folder, such as -o clips{MAIN_SEPARATOR}, or leave -o out",
            file.display(),
            photos.len(),
        ))),
        (photos, folder) => {
            let job =
                |photo: &PathBuf| Job { photo: Some(photo.clone()), output: video(Some(photo), folder) };
            let jobs: Vec<Job> = photos.iter().map(job).collect();
            refuse_same(&jobs)?;
            Ok(jobs)
        }
    }
}

/// Whether `-o` names a folder. A name that ends like a video's is that of a file, even if a folder has it.
pub fn is_folder(output: &Path) -> bool {
    let slash = output.as_os_str().to_string_lossy().ends_with(['/', MAIN_SEPARATOR]);
    output.as_os_str() != "-" && VideoFormat::from_path(output).is_err() && (slash || output.is_dir())
}

/// The video of a photo.
fn video(photo: Option<&PathBuf>, folder: Option<&Path>) -> PathBuf {
    let mut name = photo.and_then(|photo| photo.file_stem()).unwrap_or(UNNAMED.as_ref()).to_owned();
    name.push(".mp4");
    folder.map_or_else(|| PathBuf::from(&name), |folder| folder.join(&name))
}

/// Refuses two photos whose videos would have one name.
fn refuse_same(jobs: &[Job]) -> Result<(), Failure> {
    let twice = jobs.iter().enumerate().find_map(|(at, job)| {
        jobs[..at].iter().find(|earlier| earlier.output == job.output).map(|earlier| (earlier, job))
    });
    let Some((one, other)) = twice else { return Ok(()) };
    Err(Failure::Usage(format!(
        "{} and {} would both become {}; make them one at a time, with -o",
        one.name(),
        other.name(),
        other.output.display(),
    )))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Command};

    fn asked(words: &[&str]) -> Result<Vec<(String, String)>, String> {
        let arguments = Arguments::try_parse_from(["kinora", "generate"].iter().chain(words)).unwrap();
        let Command::Generate(arguments) = arguments.command else { panic!("another command") };
        let jobs = jobs(&arguments).map_err(|failure| failure.to_string())?;
        Ok(jobs.into_iter().map(|job| (job.name(), job.output.display().to_string())).collect())
    }

    fn job(photo: &str, output: &str) -> (String, String) {
        (photo.to_owned(), output.to_owned())
    }

    #[test]
    fn a_video_is_named_after_its_photo() {
        assert_eq!(asked(&["a/photo.jpg"]), Ok(vec![job("a/photo.jpg", "photo.mp4")]));
        assert_eq!(asked(&["photo.jpg", "-o", "x.gif"]), Ok(vec![job("photo.jpg", "x.gif")]));
        assert_eq!(asked(&[]), Ok(vec![job("the still", "clip.mp4")]));
        assert_eq!(asked(&["-o", "x.gif"]), Ok(vec![job("the still", "x.gif")]));
        assert_eq!(asked(&["photo.jpg", "-o", "-"]), Ok(vec![job("photo.jpg", "-")]));
        assert_eq!(asked(&["photo.jpg", "-o", "new/"]), Ok(vec![job("photo.jpg", "new/photo.mp4")]));
    }

    #[test]
    fn several_photos_become_several_videos() {
        let two = Ok(vec![job("a.jpg", "a.mp4"), job("b.c.png", "b.c.mp4")]);
        assert_eq!(asked(&["a.jpg", "b.c.png"]), two);
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().to_str().unwrap();
        let two = Ok(vec![job("a.jpg", &format!("{there}/a.mp4")), job("b", &format!("{there}/b.mp4"))]);
        assert_eq!(asked(&["a.jpg", "b", "-o", there]), two);
        let refused = asked(&["a.jpg", "b.jpg", "-o", "clip.mp4"]).unwrap_err();
        assert!(refused.contains("clip.mp4 is one file") && refused.contains("2 photos"), "{refused}");
        let refused = asked(&["a.jpg", "b.jpg", "-o", "-"]).unwrap_err();
        assert!(refused.contains("-o - is one file"), "{refused}");
        let refused = asked(&["x/a.jpg", "y/a.png"]).unwrap_err();
        assert!(refused.contains("x/a.jpg and y/a.png would both become a.mp4"), "{refused}");
    }
}
