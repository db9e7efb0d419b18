//! What `kinora lab new` writes passes as it is, and its time is predicted.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use kinora_lab::{Options, Task, Verdict, kinds, run, scaffold};
use support::{Bench, options, problems};

#[test]
fn every_scaffold_passes() {
    for kind in kinds() {
        let bench = Bench::new(&[]);
        std::fs::create_dir(bench.folder.path().join("mine")).unwrap();
        for (path, text) in scaffold("mine", kind).unwrap() {
            std::fs::write(bench.folder.path().join(path), text).unwrap();
        }
        let task =
            Task::open(&bench.folder.path().join("mine")).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert!(task.sizes.len() >= 4, "{kind}");
        let outcome = run(&task, &Options { time: true, ..options() }, &mut |_| {});
        if problems(&outcome).contains("cannot be compiled here")
            && std::env::var_os("KINORA_REQUIRE_NVRTC").is_none()
        {
            return;
        }
        assert_eq!((outcome.verdict, problems(&outcome).as_str()), (Verdict::Right, ""), "{kind}");
        assert!(outcome.devices[0].sizes.iter().all(|size| size.deterministic == Some(true)), "{kind}");
        let time = &outcome.times[0];
        assert!(time.predicted && time.seconds > 1e-6 && time.seconds < 1.0, "{kind}: {}", time.seconds);
        let roofline = time.roofline.as_ref().unwrap();
        assert!(roofline.share > 0.0 && roofline.share <= 1.05, "{kind}: {}", roofline.share);
        assert!(outcome.notes.is_empty(), "{kind}: {:?}", outcome.notes);
        let text = outcome.text();
        assert!(text.contains("right") && text.contains("predicted on H200"), "{text}");
    }
}
