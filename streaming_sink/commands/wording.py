"""The errors of commands in their own words: what the API calls `max_age` is `--max-age` there."""

from __future__ import annotations

import re
import shlex
import sys
from ast import literal_eval
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import IO, Any

import click

from streaming_sink.commands.terminal import CANNOT

_API_NAMES = {
    "--audit-function": "function",
    "--columns": "key",
    "--except-column": "except_columns",
    "--expect": "expectations",
    "--max": "max_file_bytes",
    "--partial-update": "partial_update",
    "--scope": "key_scope",
    "--small": "small_file_bytes",
}
"""Option -> what the API calls it, where the command's own function has another name for it."""
_OTHERS = frozenset({"as_json", "quarantine", "storage_options"})
"""Parameters that errors do not name, or as what the sink is to be given."""
_VALUE = r"""(\[[^\]]*\]|\{[^}]*\}|"[^"]*"|'[^']*'|[\w.,]*\w)?"""
_BEFORE, _AFTER = r"""(?<![\w'"`./-])""", r"""(?![\w'"`/])"""


class Refusal(click.ClickException):
    """What a command could not do, and why: one line on stderr."""

    exit_code = CANNOT

    def show(self, file: IO[Any] | None = None) -> None:
        (file or sys.stderr).write(f"{self.message}\n")


def refuse_in_options(command: click.Command) -> click.Command:
    """Return the command, which from now on raises its errors as a `Refusal` that names its options; those of
    a group too. Other errors than those that have a reason for people are raised as they are.
    """
    if isinstance(command, click.Group):
        for each in command.commands.values():
            refuse_in_options(each)
    elif command.callback is not None:
        command.callback = _refusing(command, command.callback)
    return command


def _refusing(command: click.Command, run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def call(*arguments: Any, **given: Any) -> Any:
        from streaming_sink.extras import MissingExtraError
        from timeline.errors import TimelineError

        try:
            return run(*arguments, **given)
        except (TimelineError, ValueError, MissingExtraError) as refusal:
            context = click.get_current_context()
            raise Refusal(f"{_path(context)}: {in_options(str(refusal), command)}") from refusal

    return call


def _path(context: click.Context) -> str:
    """Return the command's name after those of its groups, without the program's."""
    above = context.parent
    if above is None or above.parent is None:
        return str(context.info_name)
    return f"{_path(above)} {context.info_name}"


def in_options(text: str, command: click.Command) -> str:
    """Return an error of the API with the options of the command in the place of arguments.

    A name that has an underscore is taken for an argument wherever it is a word by itself, another one only
    before "=", or at the start and before "must" or "needs"; a name in quotes, or in a path, is the user's.
    """
    for name, option in _named(command).items():
        text = re.sub(f"{_BEFORE}{name}={_VALUE}", partial(_spelled, option), text)
        if "_" in name:
            text = re.sub(f"{_BEFORE}{name}{_AFTER}", option.opts[0], text)
        text = re.sub(f"^{name}(?= (?:must|needs|cannot|names) )", option.opts[0], text)
    return text


def _named(command: click.Command) -> Mapping[str, click.Option]:
    """Return the options of a command by what the API calls them."""
    options = [each for each in command.params if isinstance(each, click.Option)]
    named = {_API_NAMES.get(each.opts[0], str(each.name)): each for each in options}
    return {name: option for name, option in named.items() if name not in _OTHERS}


def _spelled(option: click.Option, match: re.Match[str]) -> str:
    """Return how an option is given the value that Python's text gives an argument."""
    flag, text = option.opts[0], match.group(1)
    if text is None:
        return flag
    try:
        value = literal_eval(text.replace(",", "") if text[0].isdigit() else text)
    except (ValueError, SyntaxError):
        value = text
    if option.is_flag and isinstance(value, bool):
        return flag if value else "".join(option.secondary_opts[:1]) or f"no {flag}"
    if isinstance(value, Mapping):
        value = [f"{key}={each}" for key, each in value.items()]
    if isinstance(value, list):
        parts = map(str, value) if option.multiple else [",".join(map(str, value))]
    else:
        parts = [str(value)]
    return " ".join(f"{flag} {shlex.quote(part)}" for part in parts)
