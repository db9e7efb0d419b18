//! Photos as people bring them: of any shape, transparent, and several at a time.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{fs, process::Command};

use support::{Studio, answer, kinora, model, photo};

/// `kinora` with these words in the studio's folder, and the least of everything.
fn small(studio: &Studio, words: &[&str]) -> Command {
    let mut command = kinora();
    command.current_dir(studio.folder.path()).args(words).arg("--model").arg(model());
    // Most of the photos are not square, and a warning would be in the way.
    command.args(["--size", "64x64", "--frames", "2", "--steps", "1", "--seed", "1", "--fit", "stretch"]);
    command
}

/// Copies a photo into the studio's folder.
fn bring(studio: &Studio, name: &str, to: &str) {
    fs::copy(photo(name), studio.folder.path().join(to)).unwrap();
}

#[test]
fn a_photo_alone_is_enough() {
    let studio = Studio::new();
    bring(&studio, "rgb.png", "my photo.png");
    let made = answer(&mut small(&studio, &["my photo.png"]));
    assert_eq!(made.code, Some(0), "{made:?}");
    assert_eq!(made.stderr, "wrote my photo.mp4 (2 frames, 64×64, seed 1)\n");
    assert_eq!(studio.names(), ["my photo.mp4", "my photo.png"]);
    // The default name is no licence to overwrite.
    answer(&mut small(&studio, &["generate", "my photo.png"])).must_fail(1, &["my photo.mp4", "--force"]);
    let made = answer(&mut small(&studio, &["my photo.png", "--force"]));
    assert_eq!(made.code, Some(0), "{made:?}");
    // A photo that is not there is not an unknown command.
    answer(&mut small(&studio, &["other.jpg"])).must_fail(1, &["there is no photo at `other.jpg`"]);
    answer(kinora().arg("genrate")).must_fail(2, &["genrate", "generate"]);
}

#[test]
fn several_photos_become_several_videos() {
    let studio = Studio::new();
    for (name, to) in [("rgb.png", "a.png"), ("444.jpg", "b.jpg"), ("palette.gif", "c.gif")] {
        bring(&studio, name, to);
    }
    let made = answer(&mut small(&studio, &["a.png", "b.jpg", "c.gif", "-o", "clips/", "-v"]));
    assert_eq!(made.code, Some(0), "{made:?}");
    for name in ["a", "b", "c"] {
        assert!(studio.folder.path().join(format!("clips/{name}.mp4")).exists(), "{name}");
    }
    // The networks are loaded for the first alone.
    assert_eq!(made.stderr.matches("UNet loaded in").count(), 1, "{}", made.stderr);
    // The same clip as alone.
    let alone = answer(&mut small(&studio, &["b.jpg", "-o", "b.mp4"]));
    assert_eq!(alone.code, Some(0), "{alone:?}");
    assert_eq!(studio.read("b.mp4"), studio.read("clips/b.mp4"));
    answer(&mut small(&studio, &["a.png", "b.jpg", "-o", "clip.mp4"]))
        .must_fail(2, &["one file", "2 photos"]);
}

#[test]
fn one_bad_photo_does_not_stop_the_others() {
    let studio = Studio::new();
    bring(&studio, "rgb.png", "a.png");
    bring(&studio, "444.jpg", "c.jpg");
    studio.write("b.jpg", b"no picture");
    let made = answer(&mut small(&studio, &["a.png", "b.jpg", "c.jpg", "--json"]));
    made.must_fail(1, &["b.jpg", "not an image", "2 of 3 clips were made; these photos failed: b.jpg"]);
    let json = made.json();
    let clips = json["clips"].as_array().unwrap();
    assert_eq!(clips.len(), 3, "{json}");
    assert_eq!((&clips[0]["files"][0], &clips[2]["files"][0]), (&"a.mp4".into(), &"c.mp4".into()));
    assert_eq!((&clips[1]["photo"]["file"], &clips[1]["error"]["kind"]), (&"b.jpg".into(), &"photo".into()));
    assert_eq!(json["error"]["exit_code"], 1);
    assert_eq!(studio.names(), ["a.mp4", "a.png", "b.jpg", "c.jpg", "c.mp4"]);
    // Those that are there already are in the way of themselves alone.
    fs::remove_file(studio.folder.path().join("c.mp4")).unwrap();
    let made = answer(&mut small(&studio, &["a.png", "c.jpg"]));
    made.must_fail(1, &["a.mp4", "exists", "1 of 2 clips were made"]);
    assert!(studio.folder.path().join("c.mp4").exists());
}

/// A model that is not there is everyone's error, and is said once.
#[test]
fn what_concerns_all_photos_stops_them() {
    let studio = Studio::new();
    bring(&studio, "rgb.png", "a.png");
    bring(&studio, "444.jpg", "b.jpg");
    // The last --model counts.
    let made = answer(small(&studio, &["a.png", "b.jpg"]).args(["--model", "/nonexistent"]));
    made.must_fail(1, &["/nonexistent"]);
    assert_eq!(made.stderr.matches("error:").count(), 1, "{made:?}");
    assert_eq!(studio.names(), ["a.png", "b.jpg"]);
}

/// The first frame of a clip without noise is not compared: the model was never trained. Its settings say what happened.
#[test]
fn a_transparent_photo_is_said_to_be_one() {
    let studio = Studio::new();
    let clip = |name: &str, words: &[&str]| {
        let mut command = studio.generate_from(&photo(name), model(), "clip.y4m");
        let made = answer(command.args(["--force", "--json", "--seed", "1"]).args(words));
        assert_eq!(made.code, Some(0), "{made:?}");
        (made.json(), studio.read("clip.y4m"))
    };
    let (json, on_white) = clip("rgba.png", &[]);
    assert_eq!(
        (&json["photo"]["transparent"], &json["photo"]["background"]),
        (&true.into(), &"white".into())
    );
    assert!(json["notes"][0].as_str().unwrap().contains("transparent and lies on white"), "{json}");
    let (json, on_green) = clip("rgba.png", &["--background", "#00ff80"]);
    assert_eq!(json["photo"]["background"], "#00ff80");
    assert!(on_white != on_green);
    let (json, _) = clip("rgb.png", &[]);
    assert_eq!((&json["photo"]["transparent"], &json["notes"]), (&false.into(), &serde_json::json!([])));
    let mut command = studio.generate_from(&photo("rgba.png"), model(), "clip.y4m");
    let made = answer(command.arg("--force"));
    assert!(made.stderr.starts_with("note: the photo is transparent and lies on white"), "{made:?}");
}

#[test]
fn a_photo_of_another_shape_is_fitted_as_asked() {
    let studio = Studio::new();
    let clip = |words: &[&str]| {
        let made = answer(studio.generate("clip.y4m").args(["--force", "--json", "--seed", "1"]).args(words));
        assert_eq!(made.code, Some(0), "{made:?}");
        (made.json()["report"]["settings"]["fit"].as_str().unwrap().to_owned(), studio.read("clip.y4m"))
    };
    let clips = [clip(&[]), clip(&["--fit", "pad"]), clip(&["--fit", "stretch"])];
    assert_eq!(clips.each_ref().map(|(fit, _)| fit.as_str()), ["crop", "pad", "stretch"]);
    assert!(clips[0].1 != clips[1].1 && clips[1].1 != clips[2].1 && clips[0].1 != clips[2].1);
    assert!(clip(&["--fit", "crop"]) == clips[0]);
    assert!(clip(&["--fit", "pad", "--background", "white"]).1 != clips[1].1, "bars are black");
}
