"""Completion scripts for shells, from the parser of the command line."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script that completes commands, options and choices; users source it from their shell's start file.

    Args:
        parser: with one level of commands.
        shell: `"bash"`, `"zsh"` or `"fish"`.
    """
    options = {name: _options(command) for name, command in _commands(parser).items()}
    top = sorted({*options, *(flag for action in parser._actions for flag in action.option_strings)})
    return _fish(parser.prog, parser, options) if shell == "fish" else _bash(parser.prog, top, options, shell == "zsh")


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _options(command: argparse.ArgumentParser) -> dict[str, list[str]]:
    """The long options of a command, each with its choices."""
    return {
        flag: [str(choice) for choice in action.choices or ()]
        for action in command._actions
        if action.help != argparse.SUPPRESS
        for flag in action.option_strings
        if flag.startswith("--")
    }


def _bash(program: str, top: list[str], options: dict[str, dict[str, list[str]]], is_zsh: bool) -> str:
    """One function; zsh reads it through its own emulation of bash's completion."""
    name = f"_{program}_complete"
    lines = ["autoload -U +X bashcompinit && bashcompinit"] if is_zsh else []
    lines += [
        f"{name}() {{",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        '  case "${COMP_CWORD}:${COMP_WORDS[1]}:${before}" in',
        f'    1:*) words="{" ".join(top)}" ;;',
    ]
    for command, flags in options.items():
        lines += [
            f'    *:{command}:{flag}) words="{" ".join(choices)}" ;;' for flag, choices in flags.items() if choices
        ]
    lines += [f'    *:{command}:*) words="{" ".join(flags)}" ;;' for command, flags in options.items()]
    lines += [
        "  esac",
        '  COMPREPLY=($(compgen -W "${words}" -- "${word}"))',
        "}",
        f"complete -o default -F {name} {program}",
    ]
    return "\n".join(lines) + "\n"


def _fish(program: str, parser: argparse.ArgumentParser, options: dict[str, dict[str, list[str]]]) -> str:
    start = f"complete -c {program}"
    lines = [f"{start} -n __fish_use_subcommand -a {command}" for command in options]
    lines += [f"{start} -l {flag[2:]}" for action in parser._actions for flag in action.option_strings if "--" in flag]
    for command, flags in options.items():
        for flag, choices in flags.items():
            values = f" -xa '{' '.join(choices)}'" if choices else ""
            lines.append(f"{start} -n '__fish_seen_subcommand_from {command}' -l {flag[2:]}{values}")
    return "\n".join(lines) + "\n"
