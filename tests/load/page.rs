//! What was measured as files: a page, raw figures, pictures; and the same in docs where that is asked for.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use tests::load::plot;
use tests::load::report::{Figure, Table, put_into, remarks, table};
use tests::load::runs::{Run, Via, csv, spread};
use tests::load::schedule::Pace;
use tests::load::servers::Peer;

use crate::arguments::Wanted;
use crate::measure::Scene;
use crate::sets::{FORWARD_RATES, MOST, RATE, RATES};

const PAGE: &str = "docs/benchmarks.md";
const FILES: &str = "docs/benchmarks";

/// All that was measured with one number of Services.
pub(crate) struct Size {
    services: usize,
    runs: Vec<Run>,
    versions: Vec<(Peer, String)>,
    missing: Vec<Peer>,
    failed: Vec<(Peer, String)>,
    broken: Vec<String>,
    /// Memory now and at most, processes, and seconds until the first right answer.
    memory: Vec<(Peer, f64, f64, usize, f64)>,
}

impl Size {
    /// Reads the memory of the servers, and ends them.
    pub(crate) fn of(scene: Scene, runs: Vec<Run>) -> Size {
        let memory = scene.servers.iter().map(|server| {
            let (now, peak, processes) = server.family.memory_mib();
            (server.peer, now, peak, processes, server.ready_after.as_secs_f64())
        });
        Size {
            services: scene.cluster.services,
            memory: memory.collect(),
            runs,
            versions: scene.versions.clone(),
            missing: scene.missing.clone(),
            failed: scene.failed.clone(),
            broken: scene.broken.clone(),
        }
    }

    /// With the runs of servers that were started with less. Memory is that of the larger start, where there was one.
    pub(crate) fn with(mut self, other: Size) -> Size {
        self.runs.extend(other.runs);
        self.broken.extend(other.broken);
        self.failed.extend(other.failed);
        for memory in other.memory {
            if self.memory.iter().all(|known| known.0 != memory.0) {
                self.memory.push(memory);
            }
        }
        for version in other.versions {
            if !self.versions.contains(&version) {
                self.versions.push(version);
            }
        }
        for peer in other.missing {
            if !self.missing.contains(&peer) {
                self.missing.push(peer);
            }
        }
        self
    }
}

/// A part of the page besides, and the files that it shows.
#[derive(Debug, Default)]
pub(crate) struct Section {
    /// Markdown, from its heading on.
    pub(crate) text: String,
    /// Names and contents.
    pub(crate) files: Vec<(PathBuf, String)>,
}

/// Writes everything, and says where.
pub(crate) fn write(
    wanted: &Wanted,
    sizes: &[Size],
    sections: &[Section],
    took: Duration,
) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = root.join(&wanted.out);
    let mut folders = vec![out.clone()];
    if wanted.publish {
        folders.push(root.join(FILES));
    }
    let put = |files: &[(PathBuf, String)]| -> anyhow::Result<()> {
        for folder in &folders {
            fs::create_dir_all(folder)?;
            for (name, content) in files {
                fs::write(folder.join(name), content)?;
            }
        }
        Ok(())
    };
    let mut text = head(wanted, sizes, took);
    for size in sizes {
        let files = files(size)?;
        put(&files)?;
        text.push_str(&section(size, &files));
    }
    let memory: Vec<_> = sizes.iter().map(|size| (size.services, memory_now(size))).collect();
    if let Some(picture) = plot::memory_by_scale(&memory)? {
        put(&[("memory-by-scale.svg".into(), picture)])?;
        text.push_str("\n![memory-by-scale.svg](benchmarks/memory-by-scale.svg)\n");
    }
    for section in sections {
        put(&section.files)?;
        text.push_str(&section.text);
    }
    fs::write(out.join("page.md"), &text)?;
    println!("\n{text}\nwritten to {}", out.display());
    if wanted.publish {
        let page = root.join(PAGE);
        let with = put_into(&fs::read_to_string(&page)?, &text).map_err(anyhow::Error::msg)?;
        fs::write(&page, with)?;
        println!("and to {PAGE} and {FILES}/");
    }
    Ok(())
}

/// Names and contents of the files to write.
fn files(size: &Size) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let name = |what: &str, end: &str| PathBuf::from(format!("{what}-{}.{end}", size.services));
    let mut files = vec![(name("runs", "csv"), csv(&size.runs))];
    let memory = memory_now(size);
    let pictures = [
        ("latency", plot::latency(&size.runs, "hit")?),
        ("processor", plot::processor(&size.runs, &["hit", "mix", "headless"], MOST)?),
        ("forward", plot::latency(&size.runs, "external miss")?),
        ("memory", plot::memory(&memory, size.services)?),
    ];
    for (what, picture) in pictures {
        files.extend(picture.map(|picture| (name(what, "svg"), picture)));
    }
    Ok(files)
}

/// What was measured over TLS.
pub(crate) fn tls(scene: &Scene, runs: &[Run]) -> Section {
    let mut text = String::from("\n### Over TLS, 16 connections\n");
    for (title, figure) in [
        ("Processor time for an answer, µs:", Figure::Processor),
        ("p50 / p99, µs:", Figure::Latency),
        ("Answers a second, in thousands:", Figure::Throughput),
    ] {
        let columns =
            [("hit", RATE), ("hit", MOST), ("external hit", RATE), ("external hit", MOST)];
        let table = table(runs, &Table { figure, via: Via::Tls, columns: &columns });
        write!(text, "\n{title}\n\n{table}").expect("a string takes everything");
    }
    let mut remarks = remarks(runs);
    for (peer, error) in &scene.failed {
        let why = error.lines().next().unwrap_or_default();
        writeln!(remarks, "- {} has no TLS here ({why}).", peer.name()).expect("a string");
    }
    for broken in &scene.broken {
        writeln!(remarks, "- Failed: {broken}.").expect("a string takes everything");
    }
    write!(text, "\n{remarks}").expect("a string takes everything");
    Section { text, files: vec![("runs-tls.csv".into(), csv(runs))] }
}

/// Of the servers that hold the cluster.
fn memory_now(size: &Size) -> Vec<(Peer, f64)> {
    size.memory
        .iter()
        .filter(|(peer, ..)| !matches!(peer, Peer::Echo | Peer::EchoPktinfo | Peer::Unbound))
        .map(|(peer, now, ..)| (*peer, *now))
        .collect()
}

fn head(wanted: &Wanted, sizes: &[Size], took: Duration) -> String {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let kernel = read("/proc/sys/kernel/osrelease");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let date = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    let date = date.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let mut set = format!("{:?}", wanted.set).to_lowercase();
    for part in wanted.part.iter().filter_map(ValueEnum::to_possible_value) {
        write!(set, " --part {}", part.get_name()).expect("a string takes everything");
    }
    for services in &wanted.services {
        write!(set, " --services {services}").expect("a string takes everything");
    }
    let mut text = format!(
        "Written on {} by `cargo bench --package tests --bench load -- --set {set} --seconds {} --rounds {}` in {:.0} s. Machine: \
         {cores} cores, {}, Linux {}.\n\n",
        date.unwrap_or_default(),
        wanted.seconds,
        wanted.rounds,
        took.as_secs_f64(),
        model.map_or("an unknown processor", |(_, model)| model.trim()),
        kernel.trim(),
    );
    let Some(first) = sizes.first() else { return text };
    let versions =
        first.versions.iter().filter(|(peer, _)| !matches!(peer, Peer::Echo | Peer::EchoPktinfo));
    let versions: Vec<_> =
        versions.map(|(peer, text)| format!("{} ({text})", peer.name())).collect();
    writeln!(text, "Servers: {}.", versions.join(", ")).expect("a string takes everything");
    for peer in &first.missing {
        writeln!(text, "Not installed, left out: {}.", peer.name()).expect("a string");
    }
    for (peer, error) in &first.failed {
        let why = error.lines().next().unwrap_or_default();
        writeln!(text, "Did not start, left out: {} ({why}).", peer.name()).expect("a string");
    }
    text.push_str(
        "\nEach cell is the median of the runs, with the lowest and highest in brackets; `x` is the ratio to the echo within a \
         pass. † the generator was the limit. ‡ the server lost more than one question in a thousand.\n",
    );
    text
}

fn section(size: &Size, files: &[(PathBuf, String)]) -> String {
    let mut text = format!("\n### {} Services, {} endpoints\n", size.services, size.services * 10);
    let mut part = |title: &str, figure: Figure, via: Via, columns: &[(&str, Pace)]| {
        let table = table(&size.runs, &Table { figure, via, columns });
        if !table.is_empty() {
            write!(text, "\n{title}\n\n{table}").expect("a string takes everything");
        }
    };
    let traces = |pace: Pace| [("hit", pace), ("mix", pace), ("headless", pace)];
    let (most, rate) = (traces(MOST), traces(RATE));
    let by_rate = RATES.map(|rate| ("hit", Pace::Rate(rate)));
    let (hits, misses) = (
        FORWARD_RATES.map(|rate| ("external hit", Pace::Rate(rate))),
        FORWARD_RATES.map(|rate| ("external miss", Pace::Rate(rate))),
    );
    let processor = "Processor time for an answer, µs";
    part(&format!("{processor}, 192 questions at once:"), Figure::Processor, Via::Udp, &most);
    part("Answers a second on one processor, in thousands:", Figure::Throughput, Via::Udp, &most);
    part(&format!("{processor}, 20,000 q/s:"), Figure::Processor, Via::Udp, &rate);
    part("`hit`, p50 / p99 from the scheduled time, µs:", Figure::Latency, Via::Udp, &by_rate);
    part(&format!("`hit`, {}:", processor.to_lowercase()), Figure::Processor, Via::Udp, &by_rate);
    part(
        "Over TCP, `hit`, 16 connections, processor time, µs:",
        Figure::Processor,
        Via::Tcp,
        &[("hit", RATE), ("hit", MOST)],
    );
    part("Over TCP, p50 / p99, µs:", Figure::Latency, Via::Tcp, &[("hit", RATE)]);
    part("Forwarded, in the cache, processor time, µs:", Figure::Processor, Via::Udp, &hits);
    part("Forwarded, in the cache, p50 / p99, µs:", Figure::Latency, Via::Udp, &hits);
    part("Forwarded, not in the cache, processor time, µs:", Figure::Processor, Via::Udp, &misses);
    part("Forwarded, not in the cache, p50 / p99, µs:", Figure::Latency, Via::Udp, &misses);
    part("NXDOMAIN flood, processor time, µs:", Figure::Processor, Via::Udp, &[("flood", MOST)]);
    text.push_str("\nMemory at the end and at most (the largest process), and exec to the first right answer:\n\n");
    text.push_str("| Server | MiB | at most | processes | ready |\n|---|---|---|---|---|\n");
    for (peer, now, peak, processes, ready) in &size.memory {
        let name = peer.name();
        writeln!(text, "| {name} | {now:.1} | {peak:.1} | {processes} | {ready:.2} s |")
            .expect("a string takes everything");
    }
    let mut remarks = remarks(&size.runs);
    for broken in &size.broken {
        writeln!(remarks, "- Failed: {broken}.").expect("a string takes everything");
    }
    if !remarks.is_empty() {
        write!(text, "\n{remarks}").expect("a string takes everything");
    }
    let most_echo = size.runs.iter().filter(|run| run.peer == Peer::Echo && run.pace == MOST);
    let most_echo: Vec<&Run> = most_echo.collect();
    if let Some(per_s) = spread(&most_echo, |run| run.outcome.answered_per_s() / 1e3) {
        let bound = most_echo.iter().filter(|run| run.is_generator_bound()).count();
        writeln!(
            text,
            "\nThe generator asked the echo up to {:.0},000 q/s; it was the limit in {bound} of {} such runs.",
            per_s.high,
            most_echo.len()
        )
        .expect("a string takes everything");
    }
    text.push('\n');
    for (name, _) in
        files.iter().filter(|(name, _)| name.extension().is_some_and(|end| end == "svg"))
    {
        let name = name.display();
        writeln!(text, "![{name}](benchmarks/{name})").expect("a string takes everything");
    }
    writeln!(text, "\nRaw figures: [runs-{0}.csv](benchmarks/runs-{0}.csv).", size.services)
        .expect("a string takes everything");
    text
}
