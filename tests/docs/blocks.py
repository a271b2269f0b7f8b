"""The fenced blocks and the commands of a page of documentation.

What a block is, its language says:

| language | what it holds | how it is tested |
| --- | --- | --- |
| `python` with `>>>` | a session | as a doctest, output compared |
| `python` | a file | it runs alone; if its first line is `# NAME.py`, it is also saved under this name |
| `python`, first line `# mpiexec -n N ...` | an MPI program | it runs on N ranks |
| `sh` | commands, one a line | each runs in the page's folder, or in the long tests: see `commands.py` |
| `text`, `json` | the output of the block before it | compared; `...` stands for what varies |

The folder is empty but for the files that the page's blocks are saved to.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
# PyTorch has an environment of its own, and tests/torch runs its pages there.
OF_TORCH = ("torch.md", "fsdp2-to-tp.md")
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts and page.name not in OF_TORCH),
]
LIBRARIES = ("equinox", "flax")  # which examples import; tests/versions has them, and runs these examples
LANGUAGES = ("python", "sh", "text", "json")
ONE_SESSION = "The `>>>` examples of this page are one session"

_FENCE = re.compile(r"^([ \t]*)```([^\n`]*)\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_DRAWN = re.compile(r"<!-- (\S+) -->\n.*?<!-- end of \1 -->", re.DOTALL)
_INLINE = re.compile(r"`((?:redistrib|python|make|mpiexec|pip)\s[^`]+)`")
_FILE = re.compile(r"# ([a-z_]+\.py)\b")
_RANKS = re.compile(r"# mpiexec -n (\d+) python -m mpi4py ")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its fence, from 1."""

    line: int
    language: str
    text: str

    @property
    def is_session(self) -> bool:
        return self.language == "python" and ">>>" in self.text

    @property
    def is_file(self) -> bool:
        return self.language == "python" and not self.is_session

    @property
    def is_output(self) -> bool:
        return self.language in ("text", "json")

    @property
    def file_name(self) -> str:
        """The name that a reader is told to save the block under, or one of ours."""
        named = _FILE.match(self.text)
        return named[1] if named else f"block_{self.line}.py"

    @property
    def lacks(self) -> list[str]:
        """The libraries that it imports and that are not here."""
        imported = re.findall(r"^(?:import|from) (\w+)", self.text, re.MULTILINE)
        return [name for name in LIBRARIES if name in imported and find_spec(name) is None]

    @property
    def ranks(self) -> int:
        """How many MPI ranks the block runs on; 0 if it is no MPI program."""
        header = _RANKS.match(self.text)
        return int(header[1]) if header else 0


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks but for those drawn from the code, which `generated.py` compares."""
    page = _without(_DRAWN, page)
    found = []
    for fence in _FENCE.finditer(page):
        text = "".join(line.removeprefix(fence[1]) for line in fence[3].splitlines(keepends=True))
        found.append(Block(page.count("\n", 0, fence.start()) + 1, fence[2].strip(), text))
    return found


def inline_commands(page: str) -> list[str]:
    """The commands that stand in backticks between the words of a page."""
    return [" ".join(command.split()) for command in _INLINE.findall(_without(_FENCE, page))]


def indented_commands(text: str) -> list[str]:
    """The commands that stand on lines of their own in a docstring, without what is optional in brackets."""
    lines = re.findall(r"^ {4,}((?:python|mpiexec) .*)$", text, re.MULTILINE)
    return [re.sub(r"\[.*?\]", "", line) for line in lines]


def docstrings_of(path: Path) -> list[str]:
    """The docstrings of a module, its own first, and of its classes and functions."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, documented)]
    return [ast.get_docstring(node) or "" for node in nodes]


def shell_lines(text: str) -> list[str]:
    """The commands of a block of `sh`, continued lines joined, without lines that only comment."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def virtual_devices(page: str) -> int:
    """How many virtual CPU devices the page tells its readers to ask for by XLA_FLAGS; 0 if it tells nothing."""
    counts = set(re.findall(r"XLA_FLAGS=--xla_force_host_platform_device_count=(\d+)", page))
    assert len(counts) <= 1, f"the page asks for {' and for '.join(sorted(counts))} devices"
    return int(counts.pop()) if counts else 0


def is_one_session(page: str) -> bool:
    """Whether the page says that its sessions continue each other."""
    return ONE_SESSION in " ".join(page.split())


def indented_code(page: str) -> list[str]:
    """Lines that Markdown shows as code without a fence, so that no test would see them."""
    page = _without(_FENCE, page)
    return re.findall(r"\n\n( {4}[^\n]*)", page)


def _without(pattern: re.Pattern[str], page: str) -> str:
    """The page with matches left empty, every line where it was."""
    return pattern.sub(lambda match: "\n" * match[0].count("\n"), page)
