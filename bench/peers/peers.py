"""One class per peer: what to install, how an agent starts its server, and which tools add and list a task.

To add a peer, write a class and put it into PEERS. Everything else is the same for all."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from mcp import CALL_TIMEOUT_S, Client, HttpClient, StdioClient


@dataclass(frozen=True)
class Project:
    """An empty directory to work in, with a HOME of its own."""

    dir: Path
    home: Path
    log: Path

    def environment(self, extra: dict[str, str]) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], **extra}

    def run(self, command: list[str], extra: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            command, cwd=self.dir, env=self.environment(extra or {}), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=CALL_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command} failed: {done.stdout[-500:]} {done.stderr[-500:]}")
        return done.stdout


class Peer:
    name: str
    # What npm installs, at this version; None for what is built here.
    package: str | None = None
    # What an agent's configuration would name, relative to the installed programs.
    command: list[str]
    env: dict[str, str] = {}
    # What is special about how it is run, for the reader of the table.
    remark = ""
    # What its tools are called and what the text of an accepted add contains.
    add_tool: str
    list_tool: str
    acknowledgement: str

    def __init__(self, programs: Path):
        self.programs = programs

    def prepare(self, project: Project):
        """Whatever a person does once per project. Not timed."""

    def serve(self) -> list[str]:
        return [str(self.programs / self.command[0]), *self.command[1:]]

    def start(self, project: Project, agent: str) -> Client:
        """Starts, or reaches, the server as an agent of that name would."""
        return StdioClient(self.serve(), project.dir, project.environment(self.env), project.log)

    def add_arguments(self, project: Project, title: str) -> dict:
        raise NotImplementedError

    def list_arguments(self, project: Project) -> dict:
        return {}

    def next_page(self, text: str) -> dict | None:
        """The arguments of the call that continues a list, for peers that give it in pages."""
        return None

    def shared_pids(self, project: Project) -> list[int]:
        """Processes that all agents of the project share."""
        return []

    def stop(self, project: Project):
        """Ends what does not end with its agents."""

    def add(self, client: Client, project: Project, title: str) -> bool:
        worked, text = client.call(self.add_tool, self.add_arguments(project, title))
        return worked and self.acknowledgement in text

    def list(self, client: Client, project: Project) -> str:
        arguments, pages = self.list_arguments(project), []
        while arguments is not None:
            worked, text = client.call(self.list_tool, arguments)
            if not worked:
                raise RuntimeError(f"{self.list_tool} failed: {text[:500]}")
            pages.append(text)
            arguments = self.next_page(text)
        return "\n".join(pages)


class TeamsterStdio(Peer):
    name = "teamster, stdio"
    command = ["teamster", "--data", "data", "mcp"]
    remark = "the first `teamster mcp` starts the hub"
    add_tool = "task-add"
    list_tool = "task-list"
    acknowledgement = "Added 1 task"

    def add_arguments(self, project, title):
        return {"tasks": [{"content": title}]}

    def next_page(self, text):
        more = re.search(r'^More: call again with cursor "([^"]+)"', text, re.MULTILINE)
        return {"cursor": more[1]} if more else None

    def hub(self, project) -> dict | None:
        file = project.dir / "data" / "hub.json"
        return json.loads(file.read_text()) if file.exists() else None

    def shared_pids(self, project):
        return [self.hub(project)["pid"]]

    def teamster(self, project, *arguments: str) -> str:
        return project.run([*self.serve()[:3], *arguments])

    def stop(self, project):
        if self.hub(project):
            self.teamster(project, "down")


class TeamsterHttp(TeamsterStdio):
    name = "teamster, HTTP"
    command = ["teamster", "--data", "data", "up", "-d"]
    remark = "`teamster token create NAME --grant full,main` per agent, then `POST /mcp`: no process per agent"

    def start(self, project, agent):
        if not self.hub(project):
            project.run(self.serve())
        token = self.teamster(project, "token", "create", agent, "--grant", "full,main").strip()
        return HttpClient(self.hub(project)["url"] + "/mcp", token)


class TaskMaster(Peer):
    name = "task-master-ai"
    package = "task-master-ai@0.43.1"
    command = ["task-master-mcp"]
    env = {"TASK_MASTER_TOOLS": "standard"}
    remark = "the smallest of its sets of tools with `add_task`; title and description are given, so no model is asked"
    add_tool = "add_task"
    list_tool = "get_tasks"
    acknowledgement = "Successfully added"

    def prepare(self, project):
        client = self.start(project, "setup")
        client.initialize()
        options = {"skipInstall": True, "addAliases": False, "initGit": False, "yes": True}
        worked, text = client.call("initialize_project", {"projectRoot": str(project.dir), **options})
        client.close()
        if not worked:
            raise RuntimeError(f"initialize_project failed: {text[:500]}")

    def add_arguments(self, project, title):
        return {"projectRoot": str(project.dir), "title": title, "description": title}

    def list_arguments(self, project):
        return {"projectRoot": str(project.dir)}


class Backlog(Peer):
    name = "backlog.md"
    package = "backlog.md@1.52.0"
    command = ["backlog", "mcp", "start"]
    remark = "in a git repository, as its `init` proposes"
    add_tool = "task_create"
    list_tool = "task_list"
    acknowledgement = "Task TASK-"

    def prepare(self, project):
        project.run(["git", "init", "--quiet"])
        project.run([str(self.programs / "backlog"), "init", "bench", "--defaults"])

    def add_arguments(self, project, title):
        return {"title": title, "description": title}

    def list_arguments(self, project):
        return {"limit": 1000}


class ClaudeFlow(Peer):
    name = "claude-flow"
    package = "@claude-flow/cli@3.42.5"
    command = ["claude-flow", "mcp", "start"]
    add_tool = "task_create"
    list_tool = "task_list"
    acknowledgement = '"taskId"'

    def add_arguments(self, project, title):
        return {"type": "feature", "description": title}

    def list_arguments(self, project):
        return {"limit": 100_000}


class Forgetful(TeamsterStdio):
    """The control: it acknowledges some tasks without keeping them, and the run has to notice."""

    name = "control"

    def add(self, client, project, title):
        return title.endswith("9") or super().add(client, project, title)


PEERS: list[type[Peer]] = [TeamsterStdio, TeamsterHttp, TaskMaster, Backlog, ClaudeFlow]
