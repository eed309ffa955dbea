//! The page `/` of a data plane in a real browser: Chromium without a window, driven over its DevTools protocol. It is on
//! most desktops and runners and not on every machine, so a machine without it says that the test did not run.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tests::client::Transport;
use tests::data_plane::{DataPlane, wait_for};
use tests::process::Process;
use tests::scratch::Scratch;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

/// Generous: a browser starts slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);
/// Pixels of a small phone.
const PHONE: (u32, u32) = (360, 740);

/// What a person sees of the page, and whether they can read it.
const SEEN: &str = "(() => {
    const written = [...document.querySelectorAll('h1,h2,p,th,td,label,pre')].map(it => getComputedStyle(it));
    return {
        text: document.body.innerText,
        width: document.documentElement.scrollWidth,
        letters: Math.min(...written.map(it => parseFloat(it.fontSize))),
        colours: new Set(written.map(it => it.color)).size,
        scripts: document.scripts.length,
    };
})()";

/// A page of a running browser; both end when dropped.
struct Page {
    socket: WebSocketStream<TcpStream>,
    session: String,
    last: u64,
    /// What the browser reported of the page, each with its method.
    events: Vec<Value>,
    _process: Process,
    _folder: Scratch,
}

/// The browser of this machine.
fn installed() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<PathBuf> =
        std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    let all = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    all.into_iter().find(|program| program.is_file())
}

impl Page {
    /// An empty page, as large as a phone.
    async fn open(program: &Path) -> Page {
        let folder = Scratch::new("browser").expect("a scratch directory");
        let flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            // Nothing leaves this machine.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--remote-debugging-port=0",
            "--user-data-dir=profile",
            "about:blank",
        ];
        let process = Process::start(program, &flags, folder.path()).expect("it starts");
        let url = wait_for("the address of the browser", || {
            let log = process.printed();
            let line = log.lines().find_map(|line| line.strip_prefix("DevTools listening on "));
            line.map(|url| url.trim().to_owned())
        });
        let address: SocketAddr =
            url.split('/').nth(2).and_then(|it| it.parse().ok()).expect("an address");
        let stream = TcpStream::connect(address).await.expect("the browser listens");
        let (socket, _) = client_async(&url, stream).await.expect("a WebSocket");
        let (session, events) = (String::new(), Vec::new());
        let mut page =
            Page { socket, session, last: 0, events, _process: process, _folder: folder };
        let target = page.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = page.call("Target.attachToTarget", attach).await;
        page.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            page.call(&format!("{domain}.enable"), json!({})).await;
        }
        let (width, height) = PHONE;
        let phone =
            json!({"width": width, "height": height, "deviceScaleFactor": 2, "mobile": true});
        page.call("Emulation.setDeviceMetricsOverride", phone).await;
        page
    }

    /// Calls a method of the DevTools protocol, of the page once there is one; its result.
    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(message.to_string())).await.expect("the browser reads");
        loop {
            let next = tokio::time::timeout(PATIENCE, self.socket.next()).await;
            let next = next.expect("a message").expect("the browser runs").expect("a message");
            let Ok(text) = next.to_text() else { continue };
            let Ok(value) = serde_json::from_str::<Value>(text) else { continue };
            if value["id"] == json!(self.last) {
                assert!(value["error"].is_null(), "{method}: {value}");
                return value["result"].clone();
            }
            if value["method"].is_string() {
                self.events.push(value);
            }
        }
    }

    /// The value of an expression.
    async fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true});
        let result = self.call("Runtime.evaluate", params).await;
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true, also while another page is loaded.
    async fn until(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.value(expression).await != json!(true) {
            assert!(Instant::now() < deadline, "{expression} is never true");
            tokio::time::sleep(POLL).await;
        }
    }

    /// The texts at this place of the events of a method.
    fn reported(&self, method: &str, pointer: &str) -> Vec<String> {
        let events = self.events.iter().filter(|event| event["method"] == method);
        events.filter_map(|event| Some(event.pointer(pointer)?.as_str()?.to_owned())).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_data_plane_is_read_on_a_phone_without_colours_and_explains_a_name() {
    let Some(program) = installed() else {
        let _ = std::io::stderr().write_all(b"NOT RUN: the page in a browser; install chromium\n");
        return;
    };
    let quickstart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/examples/quickstart");
    let data_plane = DataPlane::of_manifests(&quickstart);
    for _ in 0..3 {
        data_plane.ask("cart.shop.svc.cluster.local. A", Transport::Udp);
    }
    let origin = format!("http://{}/", data_plane.http());
    let mut page = Page::open(&program).await;
    page.call("Page.navigate", json!({"url": origin})).await;
    page.until(&format!("location.href === '{origin}' && document.readyState === 'complete'"))
        .await;

    let seen = page.value(SEEN).await;
    let text = seen["text"].as_str().expect("text").to_owned();
    // States are words.
    for part in ["State: ready", "Why this answer?", "Replies", "own", "Upstreams", "Cache", "live"]
    {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let number = |field: &str| seen[field].as_f64().expect("a number");
    assert!(number("width") <= f64::from(PHONE.0), "it is {} pixels wide", number("width"));
    assert!(number("letters") >= 16.0, "letters of {} pixels", number("letters"));
    assert_eq!(
        (number("colours") as u32, number("scripts") as u32),
        (1, 0),
        "no meaning in colours"
    );

    page.value(
        "(() => { const form = document.forms[0]; form.elements.name.value = 'cart.shop.svc.cluster.local'; \
         form.querySelector('button').click(); })()",
    )
    .await;
    page.until(
        "document.readyState === 'complete' && document.querySelector('#explained') !== null",
    )
    .await;
    let explained = page.value("document.querySelector('#explained').innerText").await;
    let explained = explained.as_str().expect("text").to_owned();
    assert!(
        explained.contains("A14") && explained.contains("cart.shop.svc.cluster.local."),
        "{explained}"
    );
    let width = page.value("document.documentElement.scrollWidth").await;
    assert!(width.as_u64().is_some_and(|width| width <= u64::from(PHONE.0)), "{width} pixels wide");

    let asked = page.reported("Network.requestWillBeSent", "/params/request/url");
    assert!(asked.iter().all(|url| url.starts_with(&origin)) && asked.len() >= 2, "{asked:?}");
    let entries = page.reported("Log.entryAdded", "/params/entry/text");
    assert!(!entries.iter().any(|text| text.contains("Content Security Policy")), "{entries:?}");
}
