"""How commands parse their words, and what their help looks like: groups of options, no Python
types.
"""

import inspect
from copy import copy
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from rs.errors import InputError

PANELS = {
    "Training": "epochs seconds optimizer learning_rate weight_decay eval_every weights "
    "from_scratch trainable",
    "Samples": "n0 n alpha noise at_radius",
    "Images": "data images validation classes resize crop convert subset share count",
    "Speed": "device batch micro_batch precision engine workers",
    "Output": "out log root radii picture as_json force restart",
}
"""Groups of options in the help, by the names of parameters; all others come first."""

VALUES = {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}
"""Words in the help for the values of an option, by their type."""


class Command(TyperCommand):
    """A command that takes --network once, and whose help does not show Python types."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; refuse --network twice, of which only the last would count."""
        _, _, parameters = self.make_parser(ctx).parse_args(list(args))
        count = [parameter.name for parameter in parameters].count("network")
        if count > 1:
            raise InputError(
                f"--network must be given once, but is given {count} times; name several functions "
                "with commas between them, such as --network FIRST,SECOND"
            )
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters."""
        return _without_types(super().get_params(ctx))

    def get_usage(self, ctx: Any) -> str:
        """Return the line of the usage, without braces around the names of arguments."""
        return super().get_usage(ctx).replace("{", "").replace("}", "")


class CommandGroup(TyperGroup):
    """A program of several commands, whose help does not show Python types."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters."""
        return _without_types(super().get_params(ctx))


def _without_types(parameters: Any) -> Any:
    """Hide the types of arguments and flags, and ranges, in the help of parameters."""
    for parameter in parameters:
        parameter._get_number_range_help_str = _nothing
        if isinstance(parameter, TyperArgument) or parameter.is_flag:
            parameter.display_type_rich = _nothing
    return parameters


def _nothing(*_: Any, **__: Any) -> None:
    """Return nothing to show."""


def panel_of(option: inspect.Parameter) -> str | None:
    """Return the group of an option in the help; ``None`` if it comes first."""
    for panel, names in PANELS.items():
        if option.name in names.split():
            return panel
    return None


def described(option: inspect.Parameter) -> inspect.Parameter:
    """Return an option with its group in the help, and a word for its values."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    if get_origin(option.annotation) is not Annotated:  # a bare type, such as ``path: Path``
        return option.replace(kind=keyword)
    kind, info = get_args(option.annotation)
    info = copy(info)
    info.rich_help_panel = panel_of(option)
    value = kind
    if type(None) in get_args(kind):
        value = get_args(kind)[0]
    if isinstance(info, typer.models.ArgumentInfo):
        info.metavar = info.metavar or option.name.upper()
    elif get_origin(value) is Literal:
        info.help = f"{info.help} One of {', '.join(get_args(value))}."
        info.metavar = "NAME"
    elif info.metavar is None:
        info.metavar = VALUES.get(value)
    return option.replace(annotation=Annotated[kind, info], kind=keyword)
