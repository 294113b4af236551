"""What Linux knows of processes: children, memory, time, who belongs to a run, and how often they sync."""

import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ATTACH_TIMEOUT_S = 20
SYNCS = "fsync,fdatasync,msync,sync_file_range,syncfs,sync"


def all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def tree(roots: list[int]) -> list[int]:
    """These processes and all that descend from them."""
    children = defaultdict(list)
    for pid in all_pids():
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        children[int(re.search(r"^PPid:\s+(\d+)", status, re.MULTILINE)[1])].append(pid)
    found = list(roots)
    for pid in found:
        found += children[pid]
    return found


@dataclass(frozen=True)
class Memory:
    """RSS counts pages that processes share once for each of them, PSS divides them among those that share."""

    rss_mib: float
    pss_mib: float


def memory(roots: list[int]) -> Memory:
    rss = pss = 0
    for pid in tree(roots):
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        rss += int(re.search(r"^Rss:\s+(\d+)", rollup, re.MULTILINE)[1])
        pss += int(re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)[1])
    return Memory(rss / 1024, pss / 1024)


def cpu_ms(roots: list[int]) -> float:
    """What these processes have computed so far, with all that descends from them and all that has ended below them."""
    ticks = 0
    for pid in tree(roots):
        # The name in parentheses may contain anything; the fields after it start with the third.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks * 1000 / os.sysconf("SC_CLK_TCK")


def kill_all_at_home_in(directory: Path):
    """Ends every process whose HOME is below this directory: also those that left their parents."""
    mark = f"HOME={directory}/".encode()
    for pid in all_pids():
        try:
            if any(entry.startswith(mark) for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
                os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


class SyncCounter:
    """Counts the calls that force data to disk, made by these processes and their children, with strace."""

    def __init__(self, roots: list[int], output: Path):
        self.output = output
        pids = tree(roots)
        attach = [argument for pid in pids for argument in ("-p", str(pid))]
        command = ["strace", "-f", "-o", str(output), "-e", f"trace={SYNCS}", *attach]
        self.strace = subprocess.Popen(command, stderr=subprocess.PIPE, bufsize=0)
        waiting, deadline, said = set(map(str, pids)), time.monotonic() + ATTACH_TIMEOUT_S, b""
        while waiting:
            readable, _, _ = select.select([self.strace.stderr], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(self.strace.stderr.fileno(), 1 << 16) if readable else b""
            if not chunk:
                self.strace.kill()
                self.strace.wait()
                raise RuntimeError(f"strace could not attach: {said.decode(errors='replace')[-500:]}")
            said += chunk
            waiting -= set(re.findall(r"Process (\d+) attached", said.decode(errors="replace")))

    @staticmethod
    def available() -> bool:
        return shutil.which("strace") is not None

    def stop(self) -> int:
        self.strace.send_signal(signal.SIGINT)
        self.strace.communicate(timeout=ATTACH_TIMEOUT_S)
        calls = re.compile(rf"^\d+\s+(?:{SYNCS.replace(',', '|')})\(", re.MULTILINE)
        return len(calls.findall(self.output.read_text()))
