#!/usr/bin/env python3
"""Gives Teamster and its peers the same job over MCP, side by side, and says what came of it. See README.md."""

import argparse
import dataclasses
import datetime
import functools
import json
import math
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from mcp import CALL_TIMEOUT_S, Client
from peers import PEERS, Forgetful, Peer, Project, TeamsterStdio
from processes import Memory, SyncCounter, cpu_ms, kill_all_at_home_in, memory

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
DOCUMENT = ROOT / "docs" / "peers.md"
BLOCK_BEGIN, BLOCK_END = "<!-- peers: begin, written by bench/peers/run.py -->", "<!-- peers: end -->"

# As many as there are peers, so that each is the first one once.
ROUNDS = int(os.environ.get("PEERS_ROUNDS", len(PEERS)))
ADDS = int(os.environ.get("PEERS_ADDS", 50))
AGENTS = int(os.environ.get("PEERS_AGENTS", 4))
ADDS_PER_AGENT = int(os.environ.get("PEERS_ADDS_PER_AGENT", 25))
LISTS_PER_ROUND = 10
ADDS_UNDER_STRACE = 10


@dataclass
class Crowd:
    """One run of several agents that add to one project at the same time."""

    asked: int
    acknowledged: int
    kept: int
    seconds: float


@dataclass
class Results:
    """What was measured of one peer, over all rounds; a list has an entry per sample or per round."""

    add_ms: list[list[float]] = field(default_factory=list)
    cpu_ms_per_add: list[float] = field(default_factory=list)
    list_ms: list[float] = field(default_factory=list)
    first_ready_ms: list[float] = field(default_factory=list)
    next_ready_ms: list[float] = field(default_factory=list)
    tools: int = 0
    tools_bytes: int = 0
    crowds: list[Crowd] = field(default_factory=list)
    per_agent: list[Memory] = field(default_factory=list)
    shared: list[Memory] = field(default_factory=list)
    syncs_per_add: float | None = None
    failures: list[str] = field(default_factory=list)


def milliseconds_since(start: float) -> float:
    return (time.perf_counter() - start) * 1000


def ready(peer: Peer, project: Project, agent: str, clients: list[Client]) -> tuple[float, list[dict]]:
    """Starts an agent's server, which is then the last of the clients: how long until it has listed its tools."""
    start = time.perf_counter()
    client = peer.start(project, agent)
    clients.append(client)
    client.initialize()
    tools = client.tools()
    return milliseconds_since(start), tools


def close_all(clients: list[Client]):
    while clients:
        clients.pop().close()


def read_back(peer: Peer, project: Project, titles: list[str], clients: list[Client]) -> int:
    """How many of these tasks a server lists that is started when all others have ended."""
    close_all(clients)
    ready(peer, project, "reader", clients)
    listed = set(re.findall(r"job-[a-z0-9-]+", peer.list(clients[-1], project)))
    return len(listed.intersection(titles))


def one_agent(peer: Peer, project: Project, results: Results, clients: list[Client]):
    first_ready_ms, tools = ready(peer, project, "agent-0", clients)
    client = clients[-1]
    results.first_ready_ms.append(first_ready_ms)
    results.tools = len(tools)
    results.tools_bytes = len(json.dumps(tools, separators=(",", ":"), ensure_ascii=False).encode())
    titles, add_ms = [f"job-alone-{n}" for n in range(ADDS)], []
    server = client.pids() + peer.shared_pids(project)
    cpu_ms_before = cpu_ms(server)
    for title in titles:
        start = time.perf_counter()
        acknowledged = peer.add(client, project, title)
        add_ms.append(milliseconds_since(start))
        if not acknowledged:
            raise RuntimeError(f"{title} was refused")
    results.add_ms.append(add_ms)
    results.cpu_ms_per_add.append((cpu_ms(server) - cpu_ms_before) / ADDS)
    for _ in range(LISTS_PER_ROUND):
        start = time.perf_counter()
        peer.list(client, project)
        results.list_ms.append(milliseconds_since(start))
    # Without a second writer nothing may be missing; if it is, suspect how we read before the peer.
    kept = read_back(peer, project, titles, clients)
    if kept != ADDS:
        raise RuntimeError(f"one agent added {ADDS} and {kept} were read back")


def several_agents(peer: Peer, project: Project, results: Results, clients: list[Client]):
    for n in range(AGENTS):
        ready_ms, _ = ready(peer, project, f"agent-{n}", clients)
        if n > 0:
            results.next_ready_ms.append(ready_ms)
    agents = list(clients)
    # So that the first tasks do not race for making the peer's files.
    if not peer.add(agents[0], project, "job-first"):
        raise RuntimeError("the first task was refused")
    together = threading.Barrier(AGENTS + 1, timeout=CALL_TIMEOUT_S)

    def work(n: int) -> list[str]:
        together.wait()
        titles = [f"job-{n}-{m}" for m in range(ADDS_PER_AGENT)]
        return [title for title in titles if peer.add(agents[n], project, title)]

    with ThreadPoolExecutor(AGENTS) as pool:
        working = [pool.submit(work, n) for n in range(AGENTS)]
        together.wait()
        start = time.perf_counter()
        acknowledged = [title for agent in working for title in agent.result()]
        seconds = time.perf_counter() - start
    results.per_agent += [memory(agent.pids()) for agent in agents]
    results.shared.append(memory(peer.shared_pids(project)))
    kept = read_back(peer, project, acknowledged, clients)
    results.crowds.append(Crowd(AGENTS * ADDS_PER_AGENT, len(acknowledged), kept, seconds))


def syncs(peer: Peer, project: Project, results: Results, clients: list[Client]):
    ready(peer, project, "agent-0", clients)
    client = clients[-1]
    peer.add(client, project, "job-first")
    counter = SyncCounter(client.pids() + peer.shared_pids(project), project.log.with_name("strace"))
    try:
        for n in range(ADDS_UNDER_STRACE):
            peer.add(client, project, f"job-{n}")
    finally:
        counted = counter.stop()
    results.syncs_per_add = counted / ADDS_UNDER_STRACE


def measure(what, peer: Peer, results: Results, work: Path):
    """Runs one measurement in a new project, and ends everything that it started."""
    shutil.rmtree(work, ignore_errors=True)
    project = Project(work / "project", work / "home", work / "stderr")
    project.dir.mkdir(parents=True)
    project.home.mkdir()
    clients: list[Client] = []
    try:
        peer.prepare(project)
        what(peer, project, results, clients)
    except Exception as failure:
        results.failures.append(f"{what.__name__}: {failure}")
        print(f"{peer.name}: {what.__name__} failed: {failure}", file=sys.stderr)
    finally:
        try:
            close_all(clients)
            peer.stop(project)
        finally:
            kill_all_at_home_in(work)


def install(peer: type[Peer]) -> Path:
    """Where the peer's programs are; npm installs those that are not there yet."""
    if peer.package is None:
        return teamster_programs()
    name, version = peer.package.rsplit("@", 1)
    directory = TARGET / "peers" / "npm" / name.replace("/", "+")
    installed = directory / "node_modules" / name / "package.json"
    if not installed.exists() or json.loads(installed.read_text())["version"] != version:
        print(f"installing {peer.package}", file=sys.stderr)
        directory.mkdir(parents=True, exist_ok=True)
        # Install scripts are not run: they compile or download what the tools used here work without.
        flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--save-exact"]
        subprocess.run(["npm", "install", "--prefix", str(directory), *flags, peer.package], check=True, timeout=1800)
    return directory / "node_modules" / ".bin"


@functools.cache
def teamster_programs() -> Path:
    if given := os.environ.get("TEAMSTER_BIN"):
        if Path(given).name != "teamster":
            sys.exit("TEAMSTER_BIN has to be a program that is called teamster")
        return Path(given).resolve().parent
    build = ["cargo", "build", "--locked", "--release", "--package", "teamster"]
    subprocess.run(build, cwd=ROOT, check=True)
    return TARGET / "release"


def percentile(samples: list[float], percent: int) -> float:
    return sorted(samples)[math.ceil(len(samples) * percent / 100) - 1]


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times_as_slow(results: Results, base: Results) -> float:
    """Of each round on its own, so that a busy minute counts for both; the median of these."""
    rounds = zip(results.add_ms, base.add_ms)
    return statistics.median(statistics.median(mine) / statistics.median(its) for mine, its in rounds)


def row_of_one_agent(name: str, results: Results, base: Results) -> list[str]:
    adds = [sample for adds in results.add_ms for sample in adds]
    return [
        name,
        number(percentile(adds, 50)),
        number(percentile(adds, 99)),
        number(times_as_slow(results, base)) if base.add_ms else "–",
        number(statistics.mean(results.cpu_ms_per_add)),
        number(statistics.median(results.list_ms)),
        number(statistics.median(results.first_ready_ms)),
        number(statistics.median(results.next_ready_ms)),
        str(results.tools),
        f"{results.tools_bytes:,}",
    ]


def row_of_several_agents(name: str, results: Results) -> list[str]:
    agent_rss = statistics.mean(agent.rss_mib for agent in results.per_agent)
    shared_rss = statistics.mean(shared.rss_mib for shared in results.shared)
    pss = AGENTS * statistics.mean(agent.pss_mib for agent in results.per_agent)
    pss += statistics.mean(shared.pss_mib for shared in results.shared)
    return [
        name,
        ", ".join(f"{crowd.acknowledged}" for crowd in results.crowds),
        ", ".join(f"{crowd.kept}" for crowd in results.crowds),
        number(statistics.median(crowd.acknowledged / crowd.seconds for crowd in results.crowds)),
        number(results.syncs_per_add),
        number(agent_rss) if agent_rss else "none",
        number(shared_rss) if shared_rss else "none",
        number(pss),
    ]


def table(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines
    )


def report(peers: list[Peer], measured: dict[str, Results], facts: list[str]) -> str:
    complete = {name: results for name, results in measured.items() if results.add_ms and results.crowds}
    base = measured.get(TeamsterStdio.name, Results())
    alone_header = [
        "one agent", "add p50 ms", "add p99 ms", "× teamster, stdio", "CPU ms per add", f"list of {ADDS} ms",
        "first agent ready ms", "next agent ready ms", "tools", "bytes of tools/list",
    ]
    together_header = [
        f"{AGENTS} agents × {ADDS_PER_AGENT} adds", "acknowledged", "kept", "adds/s", "syncs per add",
        "MiB RSS per agent", "MiB RSS shared", "MiB PSS in all",
    ]
    commands = [
        f"- {peer.name}: "
        + (f"`npm install --ignore-scripts {peer.package}`, then " if peer.package else "")
        + f"`{' '.join([*(f'{key}={value}' for key, value in peer.env.items()), *peer.command])}`; "
        + f"tools `{peer.add_tool}`, `{peer.list_tool}`"
        + (f"; {peer.remark}" if peer.remark else "")
        for peer in peers
    ]
    failures = [f"- {name}: {failure}" for name, results in measured.items() for failure in results.failures]
    return "\n".join([
        "\n".join(f"- {fact}" for fact in facts),
        "",
        table(alone_header, [row_of_one_agent(name, results, base) for name, results in complete.items()]),
        "",
        table(together_header, [row_of_several_agents(name, results) for name, results in complete.items()]),
        "",
        "How each was started and called:",
        "",
        *commands,
        *(["", "What failed:", "", *failures] if failures else []),
    ])


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=CALL_TIMEOUT_S).stdout.strip()


def machine(note: str | None) -> list[str]:
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory_kib = int(re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)[1])
    facts = [
        f"{os.cpu_count()} cores, {cpu[1] if cpu else platform.machine()}, {memory_kib / 2**20:.0f} GiB, "
        f"{platform.system()} {platform.release()}",
        f"{datetime.date.today()}; {output_of(str(teamster_programs() / 'teamster'), '--version')}, "
        f"node {output_of('node', '--version')}, python {platform.python_version()}",
        f"{ROUNDS} rounds; in each, every peer in turn, beginning with another one each time",
    ]
    return facts + [note] if note else facts


def write_document(block: str):
    text = DOCUMENT.read_text()
    before, rest = text.split(BLOCK_BEGIN)
    _, after = rest.split(BLOCK_END)
    DOCUMENT.write_text(f"{before}{BLOCK_BEGIN}\n{block}\n{BLOCK_END}{after}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", metavar="TEXT", action="append", help="only peers whose name contains this")
    arguments.add_argument("--write-docs", action="store_true", help="put the result into docs/peers.md")
    arguments.add_argument("--note", help="a sentence about the machine, for the readers of the result")
    arguments.add_argument("--control", action="store_true", help="run what has to fail, and nothing else")
    options = arguments.parse_args()
    if AGENTS < 2:
        arguments.error("PEERS_AGENTS has to be at least 2")
    # So that being told to end takes the same way out as an error, with everything ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))

    chosen = [Forgetful] if options.control else PEERS
    if options.only:
        chosen = [peer for peer in chosen if any(text in peer.name for text in options.only)]
    peers = [peer(install(peer)) for peer in chosen]
    measured = {peer.name: Results() for peer in peers}
    work = TARGET / "peers" / "work"
    facts = machine(options.note)
    load = [os.getloadavg()[0]]
    try:
        for round_number in range(ROUNDS):
            first = round_number % len(peers)
            for peer in peers[first:] + peers[:first]:
                print(f"round {round_number + 1} of {ROUNDS}: {peer.name}", file=sys.stderr)
                for what in (one_agent, several_agents):
                    measure(what, peer, measured[peer.name], work)
            load.append(os.getloadavg()[0])
        for peer in peers if SyncCounter.available() else []:
            measure(syncs, peer, measured[peer.name], work)
    finally:
        kill_all_at_home_in(work)
        shutil.rmtree(work, ignore_errors=True)
    facts.append("load average before and after each round: " + ", ".join(f"{value:.1f}" for value in load))

    block = report(peers, measured, facts)
    print(block)
    output = TARGET / "bench" / "peers.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    result = {"facts": facts, "peers": {name: dataclasses.asdict(results) for name, results in measured.items()}}
    output.write_text(json.dumps(result, indent=2) + "\n")
    if options.write_docs:
        write_document(block)
    sys.exit(any(results.failures for results in measured.values()))


if __name__ == "__main__":
    main()
