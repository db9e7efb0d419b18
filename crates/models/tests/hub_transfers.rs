//! Downloads that break off, stall, are refused for a while, or bring something else than the hub said.
#![allow(clippy::unwrap_used)]

mod hub_client;
mod hub_server;
mod tiny_model;

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use hub_client::{F16, Test, UNET, id, unet};
use hub_server::{Delivery, Reply, Request};
use kinora_models::hub::{HubError, Progress};

/// Breaks off the UNet's weights after as many bytes.
fn breaks_off(request: &Request, reply: Reply, length: usize) -> Reply {
    if request.is_get_of(UNET) { reply.delivered(Delivery::BreaksOff(length)) } else { reply }
}

#[test]
fn an_interrupted_download_leaves_nothing_that_looks_whole_and_goes_on_later() {
    let test = Test::twisted(|request, reply| breaks_off(request, reply, 100));
    let error = test.error();
    assert!(error.contains(UNET) && error.contains("was interrupted"), "{error}");
    assert!(!test.snapshot().join(UNET).exists());
    assert!(!test.looks_whole());
    let kept = fs::read(test.unet_part()).unwrap();
    assert!(kept.len() >= 100 && unet().starts_with(&kept), "{}", kept.len());
    test.server.requests();
    test.server.behave();
    test.must_arrive();
    let requests = test.server.requests();
    let starts: Vec<usize> =
        requests.iter().filter(|request| request.is_get_of(UNET)).map(|request| request.start).collect();
    assert_eq!(starts, [kept.len()]);
}

#[test]
fn a_connection_that_breaks_is_made_again_by_itself() {
    let test = Test::twisted(|request, reply| match request.start {
        0 => breaks_off(request, reply, 700),
        _ => reply,
    });
    test.must_arrive();
    let asked: Vec<usize> = test
        .server
        .requests()
        .iter()
        .filter(|request| request.is_get_of(UNET))
        .map(|request| request.start)
        .collect();
    assert_eq!(asked, [0, 700]);
}

#[test]
fn a_server_that_goes_silent_is_left() {
    for delivery in [Delivery::Stalls(0), Delivery::Stalls(700), Delivery::Trickles] {
        let first = AtomicUsize::new(0);
        let stalled = delivery.clone();
        let test = Test::twisted(move |request, reply| {
            match request.is_get_of(UNET) && first.fetch_add(1, Ordering::Relaxed) == 0 {
                true => reply.delivered(stalled.clone()),
                false => reply,
            }
        });
        let mut hub = test.hub();
        hub.patience.stall = Duration::from_millis(400);
        let begun = Instant::now();
        let folder = hub.fetch(&id(), &F16, &mut ()).unwrap();
        assert_eq!(fs::read(folder.join(UNET)).unwrap(), unet(), "{delivery:?}");
        // Without the limit, the server would hold the connection for ten seconds and more.
        assert!(begun.elapsed() < Duration::from_secs(8), "{delivery:?}");
    }
}

#[test]
fn a_server_that_is_busy_is_asked_again_when_it_says() {
    #[derive(Default)]
    struct Pauses(Vec<Duration>);
    impl Progress for Pauses {
        fn downloaded(&mut self, _: &str, _: u64, _: u64) {}

        fn retrying(&mut self, _: &str, reason: &str, pause: Duration) {
            assert!(reason.contains("HTTP 429") || reason.contains("HTTP 503"), "{reason}");
            self.0.push(pause);
        }
    }
    let count = AtomicUsize::new(0);
    let test = Test::twisted(move |request, reply| match count.fetch_add(1, Ordering::Relaxed) {
        0 if request.is_listing() => Reply::new(503, Vec::new()),
        2 => Reply::new(429, Vec::new()).with("Retry-After", "3600"),
        _ => reply,
    });
    let mut hub = test.hub();
    hub.patience.longest_pause = Duration::from_millis(20);
    let mut pauses = Pauses::default();
    hub.fetch(&id(), &F16, &mut pauses).unwrap();
    assert_eq!(pauses.0, [Duration::from_millis(1), Duration::from_millis(20)]);
}

#[test]
fn a_server_that_cannot_continue_sends_the_file_again() {
    for status in [200, 416] {
        let test = Test::twisted(|request, reply| breaks_off(request, reply, 100));
        test.error();
        test.server.twist(move |request, reply| match request.is_get_of(UNET) && request.start > 0 {
            true if status == 200 => Reply::new(200, unet()),
            true => Reply::new(416, Vec::new()),
            false => reply,
        });
        test.must_arrive();
    }
}

#[test]
fn what_was_kept_is_not_believed() {
    let bytes = unet();
    for kept in
        [vec![0; bytes.len()], vec![0; bytes.len() + 5], vec![0; 700], bytes[..700].to_vec(), bytes.clone()]
    {
        let test = Test::new();
        fs::create_dir_all(test.unet_part().parent().unwrap()).unwrap();
        fs::write(test.unet_part(), &kept).unwrap();
        test.must_arrive();
    }
}

#[test]
fn contents_that_are_not_what_the_hub_said_are_asked_for_once_more() {
    let wrong = |request: &Request, reply: Reply| match request.is_get_of(UNET) {
        true => Reply { body: vec![7; reply.body.len()], ..reply },
        false => reply,
    };
    let count = AtomicUsize::new(0);
    let once = Test::twisted(move |request, reply| {
        match request.is_get_of(UNET) && count.fetch_add(1, Ordering::Relaxed) == 0 {
            true => wrong(request, reply),
            false => reply,
        }
    });
    once.must_arrive();
    let always = Test::twisted(wrong);
    let error = always.fetch(&F16).unwrap_err();
    assert!(matches!(error, HubError::Contents { .. }), "{error}");
    assert!(error.to_string().contains("discarded") && !always.unet_part().exists(), "{error}");
    assert!(!always.looks_whole());
    let asked = always.server.requests().iter().filter(|request| request.is_get_of(UNET)).count();
    assert_eq!(asked, 2);
}

#[test]
fn a_file_of_another_length_is_downloaded_again() {
    let test = Test::new();
    let folder = test.fetch(&F16).unwrap();
    let blob = fs::canonicalize(folder.join(UNET)).unwrap();
    fs::write(&blob, "cut short").unwrap();
    test.must_arrive();
    assert_eq!(fs::canonicalize(folder.join(UNET)).unwrap(), blob);
}

#[test]
fn an_outage_does_not_matter_if_everything_is_there() {
    let test = Test::new();
    let folder = test.fetch(&F16).unwrap();
    for status in [500, 503, 429] {
        test.server.twist(move |_, _| Reply::new(status, Vec::new()));
        assert_eq!(test.fetch(&F16).unwrap(), folder);
    }
    test.server.twist(|_, _| Reply::new(403, Vec::new()));
    assert!(test.fetch(&F16).is_err());
}
