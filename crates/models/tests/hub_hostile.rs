//! A hub that means harm: one attack per header, body and protocol element. Whatever it does, the download ends soon, with an
//! error or with the right files; nothing outside the cache changes; no other server sees the token.
#![allow(clippy::unwrap_used)]

mod hub_server;
mod hub_victim;
mod tiny_model;

use std::sync::Arc;

use hub_server::{COMMIT, Delivery, Reply, Request, git_digest, sha256_digest};
use hub_victim::{Attack, On, attack, run};

const INDEX: &str = "model_index.json";

/// Values that would lead out of the cache if they became a part of a path.
fn paths() -> Vec<Vec<u8>> {
    let wrong_git = git_digest(b"something else");
    let mut values: Vec<Vec<u8>> = [
        "",
        "\"\"",
        "W/\"\"",
        "\"",
        "..",
        ".",
        "../../../../precious.txt",
        "\"../../../../precious.txt\"",
        "../../../../.ssh/authorized_keys",
        "/etc/passwd",
        "/tmp/kinora-was-here",
        "..\\..\\precious.txt",
        "..%2f..%2f..%2fprecious.txt",
        "C:\\precious.txt",
        "\u{1b}[31mred",
        "0123456789abcdef0123456789abcdef0123456g",
        "main",
        "a\tb",
    ]
    .map(|value| value.as_bytes().to_vec())
    .to_vec();
    values.push(wrong_git.clone().into_bytes());
    values.push(format!("\"{}\"", sha256_digest(b"something else")).into_bytes());
    values.push(format!("{wrong_git}/../../../../precious.txt").into_bytes());
    values.push(vec![0xff, 0xfe, b'/', 0xc3]);
    values.push(vec![b'a'; 20_000]);
    values
}

const NUMBERS: [&str; 14] = [
    "",
    "-1",
    "0",
    "1",
    "7",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999",
    "1e3",
    "0x10",
    "7, 7",
    "NaN",
    "9223372036854775807",
    "+5",
];

#[test]
fn headers_that_name_things() {
    let mut attacks = Vec::new();
    for header in ["ETag", "X-Linked-Etag", "X-Repo-Commit"] {
        for value in paths() {
            let name = format!("{header}: {}", String::from_utf8_lossy(&value[..value.len().min(80)]));
            for on in [On::Head, On::Contents] {
                let value = value.clone();
                attacks.push(attack(name.clone(), on, move |_, reply, _| reply.with(header, &value)));
            }
        }
    }
    run(attacks, 130);
}

#[test]
fn headers_that_count() {
    let mut attacks = Vec::new();
    for value in NUMBERS {
        for (header, on) in [
            ("Content-Length", On::Listing),
            ("Content-Length", On::Head),
            ("Content-Length", On::Contents),
            ("X-Linked-Size", On::Head),
        ] {
            attacks
                .push(attack(format!("{header}: {value}"), on, move |_, reply, _| reply.with(header, value)));
        }
        attacks.push(attack(format!("Retry-After: {value}"), On::Contents, move |_, _, _| {
            Reply::new(429, Vec::new()).with("Retry-After", value)
        }));
        attacks.push(attack(
            format!("two lengths, one of them {value}"),
            On::Contents,
            move |_, mut reply, _| {
                reply.headers.push(("Content-Length".to_owned(), value.into()));
                reply
            },
        ));
    }
    for range in [
        "",
        "bytes",
        "bytes 0-0/1",
        "bytes 100-200/18446744073709551615",
        "bytes 200-100/300",
        "bytes */7",
        "bytes -1-7/9",
        "bytes 100-18446744073709551615/18446744073709551616",
        "pages 1-2/3",
        "bytes 0-99/100, 0-99/100",
    ] {
        // The first connection breaks off, so that the second asks for the rest.
        attacks.push(attack(format!("Content-Range: {range}"), On::Contents, move |request, reply, _| {
            match request.start {
                0 => reply.delivered(Delivery::BreaksOff(100)),
                _ => Reply { status: 206, ..reply }.with("Content-Range", range),
            }
        }));
        attacks.push(attack(format!("unasked Content-Range: {range}"), On::Contents, move |_, reply, _| {
            Reply { status: 206, ..reply }.with("Content-Range", range)
        }));
    }
    run(attacks, 100);
}

#[test]
fn redirects() {
    let mut attacks = Vec::new();
    let locations = [
        "",
        " ",
        "http://OTHER/",
        "http://OTHER/owner/name",
        "//OTHER/x",
        "http://user:word@OTHER/",
        "HTTP://OTHER",
        "http://OTHER:80",
        "https://OTHER/",
        "file:///etc/passwd",
        "ftp://OTHER/",
        "javascript:alert(1)",
        "data:text/plain,x",
        "gopher://OTHER/",
        "SAME",
        "/",
        "?",
        "#",
        "..",
        "../../../../../..",
        "\\\\OTHER\\x",
        "http:/OTHER",
        "http://",
        "http:///x",
        "http://[::1",
        "http://:80/",
        "http://127.0.0.1:0/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:1/",
        "/a b",
        "/\u{7f}",
        "/%00",
        "http://OTHER@127.0.0.1:1/",
        "unix:/run/docker.sock",
    ];
    for location in locations {
        for (on, status) in [(On::Listing, 302), (On::Head, 307), (On::Contents, 302), (On::Contents, 308)] {
            attacks.push(attack(format!("{status} to {location}"), on, move |request, reply, other| {
                let other = other.trim_start_matches("http://");
                let location = location.replace("OTHER", other).replace("SAME", &request.path);
                Reply { status, ..reply }.with("Location", location)
            }));
        }
    }
    for (name, location) in
        [("bytes", vec![0xff, 0xfe]), ("long", [b"/".to_vec(), vec![b'x'; 30_000]].concat())]
    {
        for on in [On::Listing, On::Head, On::Contents] {
            let location = location.clone();
            attacks.push(attack(format!("to odd {name}"), on, move |_, reply, _| {
                Reply { status: 302, ..reply }.with("Location", &location)
            }));
        }
    }
    for on in [On::Listing, On::Head, On::Contents] {
        attacks
            .push(attack("without a location".to_owned(), on, |_, reply, _| Reply { status: 301, ..reply }));
        // The other server has the same files, so the download may succeed; it must not get the token.
        attacks.push(attack("to the same path elsewhere".to_owned(), on, |request, reply, other| {
            Reply { status: 302, ..reply }.with("Location", format!("{other}{}", request.path))
        }));
    }
    run(attacks, 140);
}

#[test]
fn statuses() {
    let mut attacks = Vec::new();
    let statuses = [
        100, 101, 103, 201, 202, 203, 204, 205, 206, 207, 226, 300, 304, 305, 306, 400, 401, 402, 403, 404,
        405, 407, 408, 410, 416, 418, 425, 429, 451, 500, 501, 502, 503, 504, 507, 511, 599, 600, 999,
    ];
    for status in statuses {
        for on in [On::Listing, On::Head, On::Contents] {
            attacks
                .push(attack(format!("status {status}"), on, move |_, reply, _| Reply { status, ..reply }));
        }
    }
    run(attacks, 110);
}

#[test]
fn bodies() {
    let mut attacks = Vec::new();
    let nested = "[".repeat(200_000);
    let listings = [
        "",
        "null",
        "true",
        "7",
        "\"x\"",
        "[]",
        "{}",
        "<html><script>",
        "{\"sha\":",
        nested.as_str(),
        "\u{feff}{}",
        "NaN",
        r#"{"sha": null, "siblings": []}"#,
        r#"{"sha": [], "siblings": {}}"#,
        r#"{"siblings": []}"#,
        r#"{"sha": "SHA", "siblings": null}"#,
        r#"{"sha": "SHA", "siblings": [null]}"#,
        r#"{"sha": "SHA", "siblings": [{}]}"#,
        r#"{"sha": "SHA", "siblings": [{"rfilename": 7}]}"#,
        r#"{"sha": "SHA", "siblings": [{"rfilename": "model_index.json", "size": -1}]}"#,
        r#"{"sha": "SHA", "siblings": [{"rfilename": "model_index.json", "size": 1e300}]}"#,
        r#"{"sha": "SHA", "siblings": [{"rfilename": "model_index.json", "size": 18446744073709551615, "blobId": "SHA"}]}"#,
        r#"{"sha": "SHA", "siblings": [{"rfilename": "model_index.json", "size": 0, "blobId": "SHA"}]}"#,
        r#"{"sha": "SHA", "siblings": [{"rfilename": "model_index.json", "size": 5, "lfs": {"sha256": "../../x"}}]}"#,
        r#"{"sha": "SHA", "siblings": [{"rfilename": "model_index.json", "size": 5, "blobId": "../../../../precious.txt"}]}"#,
        r#"{"sha": "../../../..", "siblings": [{"rfilename": "precious.txt"}]}"#,
        r#"{"sha": "SHA", "siblings": [], "sha": "x"}"#,
        r#"{"sha": "SHA", "siblings": [{"rfilename": "../../../../../precious.txt"}, {"rfilename": "/etc/passwd"}]}"#,
    ];
    for listing in listings {
        let (shown, body) = (listing.chars().take(70).collect::<String>(), listing.replace("SHA", COMMIT));
        attacks.push(attack(format!("the listing {shown}"), On::Listing, move |_, _, _| {
            Reply::new(200, body.clone().into_bytes())
        }));
    }
    attacks.push(attack("an endless listing".to_owned(), On::Listing, |_, reply, _| {
        reply.without("Content-Length").delivered(Delivery::Endless(vec![b' '; 1 << 16]))
    }));
    for (name, change) in changes() {
        attacks.push(attack(name.to_owned(), On::Contents, move |_, reply, _| change(reply)));
        attacks.push(attack(format!("after a beginning, {name}"), On::Contents, move |request, reply, _| {
            match request.start {
                0 => reply.delivered(Delivery::BreaksOff(100)),
                _ => change(reply),
            }
        }));
    }
    // A model that names files elsewhere, with hashes that are right.
    for part in ["../../../../..", "/etc", "..", "a/../../..", "C:\\x", "\u{1b}[2J", ""] {
        let index = serde_json::json!({ "_class_name": "StableVideoDiffusionPipeline", part: ["diffusers", "EulerDiscreteScheduler"] });
        let index = index.to_string().into_bytes();
        let listed = serde_json::json!({ "sha": COMMIT, "siblings": [
            { "rfilename": INDEX, "size": index.len(), "blobId": git_digest(&index) },
            { "rfilename": format!("{part}/scheduler_config.json") }, { "rfilename": "precious.txt" },
        ]});
        let name = format!("the hub: a part called {part:?}");
        let twist =
            Arc::new(move |request: &Request, reply: Reply, _: &str| match request.path.ends_with(INDEX) {
                true => Reply::new(200, index.clone()),
                false if request.is_listing() => Reply::new(200, listed.to_string().into_bytes()),
                false => reply,
            });
        attacks.push(Attack { name, bare: false, twist });
    }
    run(attacks, 60);
}

type Change = fn(Reply) -> Reply;

/// What can be wrong with contents.
fn changes() -> Vec<(&'static str, Change)> {
    vec![
        ("other contents", |reply| Reply { body: vec![7; reply.body.len()], ..reply }),
        ("a bit too few", |reply| Reply { body: reply.body[1..].to_vec(), ..reply }),
        ("more than was said", |reply| Reply { body: [reply.body, vec![7; 100_000]].concat(), ..reply }),
        ("nothing", |reply| Reply { body: Vec::new(), ..reply }),
        ("silence", |reply| reply.delivered(Delivery::Stalls(10))),
        ("a byte now and then", |reply| reply.delivered(Delivery::Trickles)),
        ("no length and no end", |reply| {
            reply.without("Content-Length").delivered(Delivery::Endless(vec![7; 1 << 16]))
        }),
        ("a length and no end", |reply| reply.delivered(Delivery::Endless(vec![7; 1 << 16]))),
        ("gzip", |reply| reply.with("Content-Encoding", "gzip")),
        ("gzip in gzip", |reply| reply.with("Content-Encoding", "gzip, gzip")),
        ("an unknown encoding", |reply| reply.with("Content-Encoding", [0xff, 0xfe])),
        ("chunks that are none", |reply| {
            reply.without("Content-Length").with("Transfer-Encoding", "chunked")
        }),
        ("chunks and a length", |reply| reply.with("Transfer-Encoding", "chunked")),
        ("an unknown transfer", |reply| reply.with("Transfer-Encoding", "gzip, chunked")),
        ("no length", |reply| reply.without("Content-Length")),
    ]
}

#[test]
fn protocol() {
    let head = "HTTP/1.1 200 OK\r\n";
    let mut answers: Vec<(String, Delivery)> = [
        "",
        "\r\n\r\n",
        "HTTP",
        "HTTP/0.9 200 OK\r\n\r\n",
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.1 \r\n\r\n",
        "HTTP/1.1 200\r\n\r\n",
        "HTTP/1.1 -200 OK\r\n\r\n",
        "HTTP/1.1 99999 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: empty\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA\0B: c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n",
        "HTTP/1.1 200 OK\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: /\r\n",
        "\u{16}\u{3}\u{1}\0\0",
    ]
    .map(|text| (text.chars().take(70).collect(), Delivery::Raw(text.as_bytes().to_vec())))
    .to_vec();
    let many: String = (0..5000).map(|at| format!("X-{at}: y\r\n")).collect();
    let raw = |text: String| Delivery::Raw(text.into_bytes());
    let endless = |first: &str, rest: &str| Delivery::RawEndless(first.into(), rest.repeat(500).into_bytes());
    answers.push(("5000 headers".to_owned(), raw(format!("{head}{many}\r\n"))));
    answers.push(("a long header".to_owned(), raw(format!("{head}X: {}\r\n\r\n", "y".repeat(1 << 20)))));
    answers.push(("headers without end".to_owned(), endless(head, "X: y\r\n")));
    answers.push(("a header without end".to_owned(), endless(&format!("{head}X: "), "y")));
    answers.push(("a status without end".to_owned(), endless("HTTP/1.1 200 ", "y")));
    answers.push(("100 without end".to_owned(), endless("", "HTTP/1.1 100 Continue\r\n\r\n")));
    answers.push(("103 without end".to_owned(), endless("", "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n")));
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
    answers.push(("empty lines as chunks".to_owned(), endless(&chunked, "\r\n")));
    answers.push(("chunks without end".to_owned(), endless(&chunked, "1\r\n \r\n")));
    answers.push(("a chunk's length without end".to_owned(), endless(&chunked, "0")));
    answers.push(("a chunk's extension without end".to_owned(), endless(&format!("{chunked}1;"), "x")));
    let mut attacks = Vec::new();
    for (name, delivery) in answers {
        for on in [On::Listing, On::Head, On::Contents] {
            let delivery = delivery.clone();
            attacks.push(attack(name.clone(), on, move |_, reply, _| reply.delivered(delivery.clone())));
        }
    }
    run(attacks, 110);
}
