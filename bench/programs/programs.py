"""The agent programs that are tried: how each is installed, and what it needs to ask the scripted model."""

from dataclasses import dataclass, field
from typing import Callable


@dataclass
class Program:
    #: As `teamster program list` has it.
    name: str
    #: What is installed: `npm:PACKAGE@VERSION` or `pypi:PACKAGE==VERSION`.
    packages: list[str]
    #: Variables of its environment, made of the model's URL.
    environment: Callable[[str], dict[str, str]] = lambda url: {}
    #: Files of its home, made of the model's URL.
    files: Callable[[str], dict[str, str]] = lambda url: {}
    #: Settings of `[programs.NAME]` that are not built in.
    settings: str = ""
    #: The model, in the program's words, if it has to be told.
    model: str | None = None
    #: What the table calls it, if two programs have one name in the configuration.
    title: str = ""
    #: What is known of a cell that does not hold, written beside the reason.
    known: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.title or self.name


def anthropic(url: str) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "dummy"}


def codex_files(url: str) -> dict[str, str]:
    return {
        ".codex/config.toml": f"""\
model = "scripted"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
[analytics]
enabled = false
"""
    }


def opencode_files(url: str) -> dict[str, str]:
    return {
        ".config/opencode/opencode.json": """\
{"autoupdate": false, "share": "disabled", "model": "local/scripted", "small_model": "local/scripted",
 "enabled_providers": ["local"],
 "provider": {"local": {"npm": "@ai-sdk/openai-compatible", "name": "local",
   "options": {"baseURL": "MODEL/v1", "apiKey": "dummy"},
   "models": {"scripted": {"name": "scripted", "tool_call": true, "limit": {"context": 128000, "output": 8000}}}}}}
""".replace("MODEL", url)
    }


def kimi_files(url: str) -> dict[str, str]:
    return {
        ".kimi-code/config.toml": f"""\
default_model = "scripted"
telemetry = false
[providers.local]
type = "openai"
base_url = "{url}/v1"
api_key = "dummy"
[models.scripted]
provider = "local"
model = "scripted"
max_context_size = 200000
"""
    }


def vibe_files(url: str) -> dict[str, str]:
    return {
        ".vibe/config.toml": f"""\
active_model = "scripted"
enable_update_checks = false
enable_telemetry = false
[[providers]]
name = "local"
api_base = "{url}/v1"
api_key_env_var = "MISTRAL_API_KEY"
backend = "generic"
[[models]]
name = "scripted"
provider = "local"
alias = "scripted"
"""
    }


NO_TOKENS = "Limits of turns and minutes hold."
LAST_CALL = "It reports only the last call of a turn; the hub shows the number as a lower bound."
SHELL_NEVER_ASKS = "Its shell never asks. Where rules must hold, set `programs.fast-agent.args = [\"acp\"]`: then it has none."
OWN_SANDBOX = "It asks only for what its own sandbox forbids. Use `codex`, which asks for every command if a rule could deny it."
READ_ONLY = (
    "Its sandbox needs `bwrap` on the PATH, lets it read only, and does not ask for more. With `sandbox_mode = \"workspace-write\"` "
    "in `~/.codex/config.toml` it can write, and asks as little as `codex-acp`. Use `codex`."
)
NOT_ALL_CALLS = "It reported one model call of three here, and all calls in a recorded session. The hub shows its number as it is."

QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1"}
QUIET_SETTINGS = "".join(f'set.{name} = "{value}"\n' for name, value in QUIET.items())
NODE = "npm:node@22"

PROGRAMS = [
    Program("claude", ["npm:@anthropic-ai/claude-code@2.1.325"], anthropic, settings=QUIET_SETTINGS),
    Program("codex", ["npm:@openai/codex@0.166.0"], lambda url: {"OPENAI_API_KEY": "dummy"}, codex_files),
    Program(
        "goose",
        ["npm:@aaif/goose-binary-linux-x64@1.52.0"],
        lambda url: {
            "GOOSE_PROVIDER": "openai", "GOOSE_MODEL": "scripted", "OPENAI_HOST": url, "OPENAI_API_KEY": "dummy",
            "GOOSE_DISABLE_KEYRING": "1",
        },
    ),
    Program("opencode", ["npm:opencode-ai@1.18.33"], files=opencode_files, known={"usage": LAST_CALL}),
    Program(
        "gemini",
        ["npm:@google/gemini-cli@0.61.0", NODE],
        lambda url: {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url},
        model="gemini-2.5-pro",
    ),
    Program(
        "qwen",
        ["npm:@qwen-code/qwen-code@0.24.4", NODE],
        lambda url: {"OPENAI_API_KEY": "dummy", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "scripted"},
    ),
    Program("claude-agent-acp", ["npm:@agentclientprotocol/claude-agent-acp@0.99.0", NODE], anthropic, settings=QUIET_SETTINGS),
    Program(
        "codex-acp",
        ["npm:@agentclientprotocol/codex-acp@2.6.0", NODE],
        lambda url: {"OPENAI_API_KEY": "dummy"},
        codex_files,
        known={"permission": OWN_SANDBOX, "run": OWN_SANDBOX},
    ),
    Program(
        "codex-acp",
        ["npm:@zed-industries/codex-acp@0.16.0", NODE],
        lambda url: {"OPENAI_API_KEY": "dummy"},
        codex_files,
        title="codex-acp (Zed)",
        known={"permission": READ_ONLY, "run": READ_ONLY, "usage": NO_TOKENS},
    ),
    Program(
        "copilot",
        ["npm:@github/copilot@1.0.102", NODE],
        lambda url: {
            "COPILOT_PROVIDER_BASE_URL": f"{url}/v1", "COPILOT_PROVIDER_API_KEY": "dummy", "COPILOT_MODEL": "scripted",
            "COPILOT_OFFLINE": "true",
        },
    ),
    Program("kimi", ["npm:@moonshot-ai/kimi-code@2.1.0", NODE], files=kimi_files, known={"usage": NO_TOKENS}),
    Program(
        "vibe",
        ["pypi:mistral-vibe==3.0.2"],
        lambda url: {"MISTRAL_API_KEY": "dummy"},
        vibe_files,
        known={"usage": NOT_ALL_CALLS},
    ),
    Program(
        "fast-agent",
        ["pypi:fast-agent-mcp==0.10.46"],
        lambda url: {
            "GENERIC_API_KEY": "dummy", "GENERIC_BASE_URL": f"{url}/v1", "FAST_AGENT_MODEL": "generic.scripted",
        },
        model="generic.scripted",
        known={"permission": SHELL_NEVER_ASKS, "run": SHELL_NEVER_ASKS, "usage": NO_TOKENS},
    ),
]
