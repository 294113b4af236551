#!/usr/bin/env python3
"""Tries every agent program with Teamster, offline, and writes down what holds for which version. See README.md."""

import argparse
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from model import TOKENS_IN, TOKENS_OUT, Call, Fail, Model, Say, Shell, Stall
from programs import PROGRAMS, Program

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
DOCUMENT = ROOT / "docs" / "programs.md"
RESULTS = TARGET / "bench" / "programs.json"
BLOCK_BEGIN, BLOCK_END = "<!-- programs: begin, written by bench/programs/run.py -->", "<!-- programs: end -->"

ITEMS = int(os.environ.get("PROGRAMS_ITEMS", 10))
# How long one turn of a slow program may take on a busy machine.
TURN_S = float(os.environ.get("PROGRAMS_TURN_S", 150))
# How long an error of the model is watched: longer than most programs retry by themselves.
LIMIT_S = float(os.environ.get("PROGRAMS_LIMIT_S", 60))

CELLS = {
    "start": "`teamster program check` succeeds",
    "tools": "calls our tool under its own name",
    "permission": "rules that deny, ask and allow hold for its shell",
    "interrupt": "`teamster kill` ends it in the middle of a turn",
    "resume": "the hub is killed in the middle of a turn; the work is done, and once",
    "usage": "the tokens of three model calls are counted",
    "run": f"a run of {ITEMS} items with such rules, a commit for each",
    "limits": "a turn that the model answers with 401 or 429 is no success",
    "end": "no process and no private file is left",
}


class Failed(Exception):
    """A cell that does not hold, and why."""


@dataclass
class Outcome:
    version: str = "?"
    #: Nothing for a cell that holds, else the reason.
    cells: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def install(program: Program, directory: Path) -> Path:
    """Installs a program unless it is there, and returns where its commands are."""
    place = directory / re.sub(r"\W+", "-", program.label).strip("-")
    done = place / "installed"
    if not done.exists() or done.read_text() != "\n".join(program.packages):
        place.mkdir(parents=True, exist_ok=True)
        npm = [one.removeprefix("npm:") for one in program.packages if one.startswith("npm:")]
        pypi = [one.removeprefix("pypi:") for one in program.packages if one.startswith("pypi:")]
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        if npm:
            (place / "package.json").write_text('{"private": true}')
            subprocess.run(["npm", "install", *quiet, *npm], cwd=place, check=True, stdout=subprocess.DEVNULL)
        if pypi:
            subprocess.run([new_python(), "-m", "venv", "--clear", place / "venv"], check=True)
            subprocess.run([place / "venv/bin/pip", "install", "-q", *pypi], check=True)
        done.write_text("\n".join(program.packages))
    commands = place / "bin"
    commands.mkdir(exist_ok=True)
    goose = place / "node_modules/@aaif/goose-binary-linux-x64/bin/goose"
    for source in [*(place / "node_modules/.bin").glob("*"), *(place / "venv/bin").glob("*"), goose]:
        link = commands / source.name
        if source.exists() and source.name not in ("python", "python3", "pip") and not link.is_symlink():
            link.symlink_to(source)
    return commands


def new_python() -> str:
    """A Python that the programs of PyPI accept. A command of that name may be there and not work."""
    known = [shutil.which(name) for name in ("python3.14", "python3.13", "python3.12", "python3")]
    known += sorted(map(str, Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python3")), reverse=True)
    ask = "import sys; sys.exit(sys.version_info < (3, 12))"
    for python in filter(None, known):
        if subprocess.run([python, "-c", ask], stderr=subprocess.DEVNULL).returncode == 0:
            return python
    raise SystemExit("Python 3.12 or newer is needed")


class Trial:
    """One program with a hub, a home and a model of its own."""

    def __init__(self, program: Program, teamster: Path, commands: Path, directory: Path):
        self.program, self.teamster = program, teamster
        self.home = directory / re.sub(r"\W+", "-", program.label).strip("-")
        shutil.rmtree(self.home, ignore_errors=True)
        for name in ("project", "tmp", ".config/teamster"):
            (self.home / name).mkdir(parents=True)
        self.project = self.home / "project"
        self.model = Model(scripts())
        for name, text in program.files(self.model.url).items():
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(text)
        model = f"model = {json.dumps(program.model)}\n" if program.model else ""
        settings = f"[programs.{program.name}]\n{program.settings}" if program.settings else ""
        (self.home / ".config/teamster/teamster.toml").write_text(
            f'program = "{program.name}"\n'
            '[permissions]\ndeny = ["execute(*forbidden*)"]\nask = ["execute(*please*)"]\nask_minutes = 5\n'
            f"[roles.tester]\nprompt = \"Work.\"\ntools = [\"full\"]\n{model}{settings}"
        )
        self.environment = {
            "HOME": str(self.home), "TMPDIR": str(self.home / "tmp"), "PATH": f"{commands}:/usr/local/bin:/usr/bin:/bin",
            "TEAMSTER_DATA": str(self.home / "data"), "LANG": "C.UTF-8", "TZ": "UTC",
            "GIT_AUTHOR_NAME": "bench", "GIT_AUTHOR_EMAIL": "bench@localhost",
            "GIT_COMMITTER_NAME": "bench", "GIT_COMMITTER_EMAIL": "bench@localhost",
            **program.environment(self.model.url),
        }
        self.git("init", "-q", "-b", "main")
        (self.project / "SPEC.md").write_text("# Files\n\nMake a file for each number.\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "first")
        self.hub: subprocess.Popen | None = None

    def git(self, *arguments: str) -> str:
        return self.run(["git", "-C", str(self.project), *arguments])

    def run(self, command: list, check: bool = True, timeout: float = 120) -> str:
        done = subprocess.run(
            command, cwd=self.project, env=self.environment, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )
        if check and done.returncode:
            raise Failed(f"{' '.join(map(str, command[1:3]))}: {(done.stderr or done.stdout).strip()[-300:]}")
        return done.stdout

    def ask(self, *arguments: str, check: bool = True, timeout: float = 120) -> str:
        return self.run([str(self.teamster), *arguments], check, timeout)

    def json(self, *arguments: str):
        return json.loads(self.ask(*arguments, "--json") or "null")

    def up(self):
        with (self.home / "hub.log").open("a") as log:
            self.hub = subprocess.Popen(
                [str(self.teamster), "up"], cwd=self.project, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )
        self.until(lambda: (self.home / "data/hub.json").exists(), 30, "the hub does not start")

    def until(self, holds, seconds: float, why: str):
        deadline = time.monotonic() + seconds
        while True:
            if found := holds():
                return found
            if time.monotonic() > deadline:
                raise Failed(why() if callable(why) else why)
            time.sleep(0.2)

    def draft(self, mark: str, *more: str) -> str:
        return self.json("draft", "tester", f"{mark} Do what you are told.", *more)["id"]

    def agent(self, id_: str) -> dict:
        return next(agent for agent in self.json("agents", "--all") if agent["id"] == id_)

    def ended(self, id_: str, seconds: float = TURN_S) -> dict:
        """Waits for the end of an agent, and says what it was doing if that does not come."""
        self.until(lambda: self.agent(id_)["outcome"], seconds, lambda: f"still {self.agent(id_)['phase']} after {seconds:.0f} s")
        return self.agent(id_)

    def asked(self, id_: str, mark: str, step: int):
        """Waits until an agent's program has asked the model for this step."""

        def holds():
            outcome = self.agent(id_)["outcome"]
            if outcome:
                raise Failed(f"it ended before: {str(outcome.get('summary'))[:160]}")
            return self.model.wait_for(mark, step, 1)

        self.until(holds, TURN_S, "the model was not asked")

    def succeeded(self, id_: str, mark: str) -> dict:
        agent = self.ended(id_)
        if troubles := self.model.troubles(mark):
            raise Failed(troubles[0][:200])
        outcome = agent["outcome"]
        if outcome["ending"] != "completed" or outcome.get("status") not in (None, "success"):
            raise Failed(f"{outcome['ending']} ({outcome.get('status')}): {str(outcome.get('summary'))[:160]}")
        return agent

    def did(self, id_: str) -> list[str]:
        lines = [json.loads(line) for line in self.ask("log", "--json").splitlines()]
        return [line["summary"] for line in lines if line["by"] == id_ and line["summary"].startswith("TAS-")]

    def answer_questions(self, answer: str) -> int:
        found = self.json("questions")
        questions = found["open"] if isinstance(found, dict) else found
        for question in questions:
            self.ask("answer", question["id"], answer, check=False)
        return len(questions)

    def processes(self) -> list[str]:
        """Processes whose home this is, without the hub and this one."""
        mark, found = f"HOME={self.home}".encode(), []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                    if line and not line.startswith(str(self.teamster)) and " launch deputy" not in line:
                        found.append(line[:100])
            except OSError:
                continue
        return found

    def close(self):
        if self.hub and self.hub.poll() is None:
            self.ask("down", check=False)
            try:
                self.hub.wait(90)
            except subprocess.TimeoutExpired:
                self.hub.kill()
                self.hub.wait()
        self.model.close()


def scripts() -> dict[str, list]:
    add = lambda text: Call("task-add", {"tasks": [{"content": text}]})
    all_ = {
        "[tools]": [add("tools one"), Say("Done.")],
        "[permission]": [
            Shell("touch allowed.txt"), Shell("touch forbidden.txt"), Shell("touch please.txt"), add("permission"), Say("Done."),
        ],
        "[interrupt]": [add("interrupt one"), Stall("Thinking about it. ")],
        "[resume]": [add("resume one"), Stall("Half of it. ", once=True), add("resume two"), Say("Done.")],
        "[usage]": [add("usage one"), add("usage two"), Say("Done.")],
        "[limit 401]": [Fail(401)],
        "[limit 429]": [Fail(429)],
        "iteration #0: the plan": [
            Call("task-add", {"tasks": [{"content": f"file {n}"} for n in range(1, ITEMS + 1)]}),
            Call("iteration-summary", {"summary": "Planned."}),
            Say("Planned."),
        ],
    }
    for n in range(1, ITEMS + 1):
        all_[f"iteration #{n}\n"] = [
            Call("task-next", {"claim": True}),
            Shell(f"mkdir -p files && echo {n} > files/{n}.txt"),
            Shell(f"touch files/forbidden-{n}.txt"),
            Shell(f"touch files/please-{n}.txt"),
            Call("task-update", {"id": "${task-next.id}", "status": "completed"}),
            Call("iteration-summary", {"summary": f"Made file {n}."}),
            *([Call("session-complete", {})] if n == ITEMS else []),
            Say("Done."),
        ]
    return all_


def start(trial: Trial):
    trial.ask("program", "check", trial.program.name, timeout=180)


def tools(trial: Trial):
    agent = trial.draft("[tools]")
    trial.succeeded(agent, "[tools]")
    if trial.did(agent) != ["TAS-1 added (P2): tools one"]:
        raise Failed(f"the log has {trial.did(agent)}")


def permission(trial: Trial):
    agent = trial.draft("[permission]")
    asked = 0

    def over():
        nonlocal asked
        asked += trial.answer_questions("allow")
        return trial.agent(agent)["outcome"]

    trial.until(over, TURN_S, lambda: f"still {trial.agent(agent)['phase']}")
    if troubles := trial.model.troubles("[permission]"):
        raise Failed(troubles[0][:200])
    there = {name: (trial.project / f"{name}.txt").exists() for name in ("allowed", "forbidden", "please")}
    for name in there:
        (trial.project / f"{name}.txt").unlink(missing_ok=True)
    wrong = []
    if there["forbidden"]:
        wrong.append("a denied command ran")
    if not there["allowed"]:
        wrong.append("an allowed command did not run")
    if not asked:
        wrong.append("no question was asked" + (", and the command ran" if there["please"] else ""))
    elif not there["please"]:
        wrong.append("a command that was asked for and allowed did not run")
    if not wrong and not any("permission" in line for line in trial.did(agent)):
        wrong.append("it did not continue after the denial")
    if wrong:
        raise Failed("; ".join(wrong))


def interrupt(trial: Trial):
    agent = trial.draft("[interrupt]")
    trial.asked(agent, "[interrupt]", 1)
    begun = time.monotonic()
    trial.ask("kill", agent)
    outcome = trial.ended(agent, 30)["outcome"]
    if outcome["ending"] != "aborted":
        raise Failed(f"it ended as {outcome['ending']}")
    if left := trial.processes():
        raise Failed(f"left: {left[0]}")
    if time.monotonic() - begun > 20:
        raise Failed(f"it took {time.monotonic() - begun:.0f} s")


def resume(trial: Trial):
    agent = trial.draft("[resume]")
    trial.asked(agent, "[resume]", 1)
    trial.hub.kill()
    trial.hub.wait()
    (trial.home / "data/hub.json").unlink(missing_ok=True)
    trial.up()
    shown = trial.succeeded(agent, "[resume]")
    added = [re.sub(r"^TAS-\d+ added \(P2\): ", "", line) for line in trial.did(agent)]
    if sorted(added) != ["resume one", "resume two"]:
        raise Failed(f"the log has {added}")
    if shown["incarnation"] != 2:
        raise Failed(f"it was started {shown['incarnation']} times")


def usage(trial: Trial):
    agent = trial.succeeded(trial.draft("[usage]"), "[usage]")
    used = agent["used"] or {}
    # Some programs report only the sum of a call.
    counted = sum(used.get(kind) or 0 for kind in ("input", "output", "cached_read", "cached_write"))
    calls = f"{used.get('calls') or 0} of 3 model calls are counted"
    if counted == 0:
        raise Failed(f"the program reports no tokens; {calls}")
    if counted != 3 * (TOKENS_IN + TOKENS_OUT):
        raise Failed(f"the program reports {counted} of {3 * (TOKENS_IN + TOKENS_OUT)} tokens; {calls}")


def limits(trial: Trial):
    wrong = []
    for status in (401, 429):
        mark = f"[limit {status}]"
        agent = trial.draft(mark)
        trial.until(lambda: trial.model.wait_for(mark, 0, 1) or trial.agent(agent)["outcome"], TURN_S, "the model was not asked")
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            shown = trial.agent(agent)
            if shown["outcome"] or shown["phase"] in ("parked", "queued"):
                break
            time.sleep(0.5)
        outcome = shown["outcome"] or {}
        if outcome.get("ending") == "completed" and outcome.get("status") in (None, "success"):
            wrong.append(f"{status} was reported as success: {str(outcome.get('summary'))[:80]}")
        if not outcome:
            trial.ask("kill", agent, check=False)
    if wrong:
        raise Failed("; ".join(wrong))


def run(trial: Trial):
    command = [str(trial.teamster), "run", "SPEC.md", "--headless", "--program", trial.program.name, "--json"]
    command += ["--iterations", str(ITEMS + 5)]
    command += ["--model", trial.program.model] if trial.program.model else []
    with (trial.home / "run.log").open("w") as log:
        worked = subprocess.Popen(command, cwd=trial.project, env=trial.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    asked, deadline = 0, time.monotonic() + ITEMS * TURN_S / 2
    while worked.poll() is None:
        asked += trial.answer_questions("allow")
        if time.monotonic() > deadline:
            worked.terminate()
            worked.wait()
            trial.ask("steer", "SPEC", "stop", "--now", check=False)
            break
        time.sleep(0.3)
    commits = trial.git("log", "--format=%s").splitlines()
    made = [f"Made file {n}." for n in range(ITEMS, 0, -1)]
    files = trial.project / "files"
    wrong = [f"{trouble[:120]}" for n in range(ITEMS + 1) for trouble in trial.model.troubles(f"iteration #{n}\n")[:1]][:1]
    if worked.returncode != 0:
        last = [line for line in (trial.home / "run.log").read_text().splitlines() if line.strip()][-1:]
        wrong.append(f"it ended with {worked.returncode}: {' '.join(last)[-160:]}")
    if commits[:-1] != made:
        wrong.append(f"{len(commits) - 1} of {ITEMS} commits")
    n_forbidden = len(list(files.glob("forbidden-*")))
    n_please = len(list(files.glob("please-*")))
    if n_forbidden:
        wrong.append(f"{n_forbidden} denied commands ran")
    if not asked:
        wrong.append("no question was asked")
    elif n_please != ITEMS:
        wrong.append(f"{n_please} of {ITEMS} commands ran that were allowed when asked")
    if wrong:
        raise Failed("; ".join(wrong))


def end(trial: Trial):
    trial.ask("down")
    try:
        trial.hub.wait(60)
    except subprocess.TimeoutExpired:
        raise Failed("the hub does not end") from None
    time.sleep(0.5)
    if left := trial.processes():
        raise Failed(f"left: {left[0]}")
    if private := [path.name for path in (trial.home / "tmp").glob("teamster-launch-*")]:
        raise Failed(f"left: {private[0]}")


def attempt(trial: Trial, name: str, outcome: Outcome, say):
    begun = time.monotonic()
    try:
        globals()[name](trial)
        outcome.cells[name] = ""
    except (Failed, subprocess.TimeoutExpired) as failure:
        outcome.cells[name] = " ".join(str(failure).split())
    except Exception as error:
        traceback.print_exc()
        outcome.cells[name] = f"the script failed: {error}"
    outcome.seconds[name] = round(time.monotonic() - begun, 1)
    say(f"{trial.program.label:18} {name:10} {outcome.cells[name] or 'ok'} ({outcome.seconds[name]} s)")


def try_out(program: Program, arguments, teamster: Path, say) -> Outcome:
    outcome = Outcome(version=re.split(r"@|==", program.packages[0])[-1])
    commands = install(program, arguments.programs)
    trial = Trial(program, teamster, commands, arguments.work)
    try:
        trial.up()
        for name in arguments.cells:
            if trial.hub.poll() is not None:
                trial.up()
            attempt(trial, name, outcome, say)
    finally:
        trial.close()
    return outcome


def table(results: dict[str, dict]) -> str:
    """A row for each program, and the reasons below it."""
    lines = ["| program | version | " + " | ".join(CELLS) + " |", "|---" * (len(CELLS) + 2) + "|"]
    notes: list[str] = []
    order = [program.label for program in PROGRAMS]
    known = {program.label: program.known for program in PROGRAMS}
    for label in sorted(results, key=lambda label: order.index(label) if label in order else len(order)):
        row = [f"`{label}`", results[label]["version"]]
        for cell in CELLS:
            why = results[label]["cells"].get(cell)
            if why:
                more = known[label].get(cell)
                why = f"{why.replace('|', '/').rstrip('.')}. {more or ''}".rstrip()
                notes.append(f"{len(notes) + 1}. `{label}`, {cell}: {why}")
            row.append("–" if why is None else f"no ({len(notes)})" if why else "yes")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + ("\n\n" + "\n".join(notes) if notes else "")


def write_document(results: dict[str, dict], note: str):
    when = datetime.date.today().isoformat()
    head = f"Tried on {when} with {note or 'a scripted model'}.\n\n"
    text = DOCUMENT.read_text()
    begin, end_ = text.index(BLOCK_BEGIN) + len(BLOCK_BEGIN), text.index(BLOCK_END)
    DOCUMENT.write_text(f"{text[:begin]}\n{head}{table(results)}\n{text[end_:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    labels = [program.label for program in PROGRAMS]
    parser.add_argument("--only", action="append", choices=labels, help="try this program; may be repeated")
    parser.add_argument("--cells", type=lambda text: text.split(","), default=list(CELLS), help="try these cells")
    parser.add_argument("--programs", type=Path, default=TARGET / "programs", help="where the programs are installed")
    parser.add_argument("--work", type=Path, default=TARGET / "bench/programs", help="where they work; emptied first")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/programs.md")
    parser.add_argument("--note", default="", help="what to say about the trial in the document")
    arguments = parser.parse_args()
    arguments.work = arguments.work.resolve()
    arguments.programs = arguments.programs.resolve()
    teamster = os.environ.get("TEAMSTER_BIN")
    if not teamster:
        subprocess.run(["cargo", "build", "--release", "-p", "teamster"], cwd=ROOT, check=True)
        teamster = TARGET / "release/teamster"
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for program in PROGRAMS:
        if arguments.only and program.label not in arguments.only:
            continue
        outcome = try_out(program, arguments, Path(teamster).resolve(), lambda text: print(text, flush=True))
        # Others may have written theirs meanwhile.
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        earlier = results.get(program.label, {})
        same = earlier.get("version") == outcome.version
        cells = (earlier.get("cells", {}) if same else {}) | outcome.cells
        results[program.label] = {"version": outcome.version, "cells": cells, "seconds": outcome.seconds}
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1))
    print(table(results))
    if arguments.write_docs:
        write_document(results, arguments.note)


if __name__ == "__main__":
    main()
