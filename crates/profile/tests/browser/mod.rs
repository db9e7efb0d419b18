//! Opening a page in a real browser.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// How long a browser may take, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser to test with.
pub struct Browser(PathBuf);

impl Browser {
    /// That of `KINORA_BROWSER`, or one that is installed. `None`, and a line that says so, where there is none; with
    /// `KINORA_REQUIRE_BROWSER=1` that is a failure.
    pub fn find() -> Option<Browser> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed = || {
            let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
            let files = NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
            files.into_iter().find(|file| file.is_file())
        };
        let browser = std::env::var_os("KINORA_BROWSER").map(PathBuf::from).or_else(installed);
        if browser.is_none() {
            let required = std::env::var_os("KINORA_REQUIRE_BROWSER").is_some_and(|value| value == "1");
            assert!(!required, "no browser: install chromium, or name one by KINORA_BROWSER");
            // Not by `println`, which a passing test keeps to itself.
            let test = thread::current().name().unwrap_or_default().to_owned();
            let _ = writeln!(std::io::stderr(), "{test} not run: no browser");
        }
        browser.map(Browser)
    }

    /// What a page has become once its scripts have run, in a window of so many pixels.
    pub fn opened(&self, html: &str, width: u32) -> String {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.html");
        fs::write(&page, html).unwrap();
        self.dom(&page, folder.path(), width)
    }

    /// The same in a frame, which may be as narrow as a phone; a window may not. The root element also says how many
    /// images the page has.
    pub fn opened_in_frame(&self, html: &str, width: u32) -> String {
        let quoted = html.replace('&', "&amp;").replace('"', "&quot;");
        let around = format!(
            r#"<!doctype html><meta charset="utf-8"><iframe width="{width}" height="800" style="border: 0" srcdoc="{quoted}"></iframe>
            <pre id="inner"></pre><script>addEventListener("load", () => {{
                const frame = document.querySelector("iframe");
                const page = frame.contentDocument;
                page.documentElement.dataset.images = page.images.length;
                document.getElementById("inner").textContent = page.documentElement.outerHTML;
                frame.remove();
            }});</script>"#
        );
        let dom = self.opened(&around, 1280);
        unescaped(between(&dom, "<pre id=\"inner\">", "</pre>"))
    }

    fn dom(&self, page: &Path, folder: &Path, width: u32) -> String {
        let output = folder.join("dom.html");
        let mut browser = Command::new(&self.0)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", folder.join("user").display()))
            .arg(format!("--window-size={width},900"))
            .arg("--dump-dom")
            .arg(format!("file://{}", page.display()))
            .stdout(File::create(&output).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = browser.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > PATIENCE {
                let _ = browser.kill();
                panic!("the browser did not end within {PATIENCE:?}");
            }
            thread::sleep(Duration::from_millis(50));
        };
        assert!(status.success(), "{} ended with {status}", self.0.display());
        fs::read_to_string(&output).unwrap()
    }
}

/// The text between two marks, the first of its kind.
pub fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("{from} is not there"));
    rest.split_once(to).unwrap_or_else(|| panic!("{to} does not follow {from}")).0
}

/// An attribute of the root element.
pub fn noted<'a>(dom: &'a str, name: &str) -> Option<&'a str> {
    let root = between(dom, "<html", ">");
    root.split_once(&format!("data-{name}=\"")).map(|(_, rest)| rest.split('"').next().unwrap_or_default())
}

/// What a reader sees of a piece of a page: its text without tags.
pub fn text(html: &str) -> String {
    let html = html.replace("<wbr>", "");
    let mut text = String::new();
    for piece in html.split('<') {
        let visible = piece.split_once('>').map_or(piece, |(_, visible)| visible);
        text.push_str(visible);
        text.push(' ');
    }
    unescaped(&text).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn unescaped(html: &str) -> String {
    let text = html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&nbsp;", " ");
    text.replace("&amp;", "&")
}
