"""`trocket filter`: classes of class filters, for groups whose clients do not upload them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..common.terminal import show
from .completion import group_names, topic_names
from .missing import note_topic
from .session import (
    SHARED,
    Shared,
    Yes,
    ask_brokers,
    confirm,
    emit,
    end_with,
    fail,
    note_none,
    usage,
)

if TYPE_CHECKING:
    from ..client.core.subscription import FilterLanguage

_LANGUAGES: Final[dict[str, FilterLanguage]] = {
    "java": "java",
    "python": "python",
    ".java": "java",
    ".py": "python",
}
"""Languages by the value of --language, or by the file's suffix."""

app = typer.Typer(no_args_is_help=True, help="List, put and remove the classes of class filters.")

Group = Annotated[
    str,
    typer.Option("--group", help="Choose the group whose class it is.", autocompletion=group_names),
]
Topic = Annotated[
    str,
    typer.Option(
        "--topic",
        help="Choose the topic that it filters.",
        autocompletion=topic_names,
        callback=note_topic,
    ),
]


@app.command("list", epilog="Example: trocket filter list --topic Orders")
def filter_list(
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            help="List only classes of this topic.",
            autocompletion=topic_names,
            callback=note_topic,
        ),
    ] = "",
    shared: Shared = SHARED,
) -> None:
    """List the classes that each filter server has."""
    classes, error = ask_brokers(shared, lambda admin: admin.filter_classes(topic or None))
    if shared.as_json:
        emit(classes)
    else:
        show(
            ["Filter server", "Topic", "Group", "Class", "Language", "CRC", "State", "Error"],
            [
                [
                    each.server,
                    each.topic,
                    each.group,
                    each.class_name,
                    each.language,
                    each.class_crc,
                    each.state,
                    each.error,
                ]
                for each in classes
            ],
        )
    end_with(error)
    note_none(classes, "no filter server has a class")


@app.command(
    "put",
    epilog="Example: trocket filter put shop.Fifth Fifth.java --group billing --topic Orders",
)
def filter_put(
    class_name: Annotated[
        str, typer.Argument(metavar="CLASS", help="Full name of the class: org.shop.KeepFifth.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Source file, in UTF-8.")],
    group: Group,
    topic: Topic,
    language: Annotated[
        str, typer.Option("--language", help="Set java or python. Default: from FILE's suffix.")
    ] = "",
    shared: Shared = SHARED,
) -> None:
    """Upload a class to every filter server of a topic; it replaces the group's current class.

    Use it for groups whose clients do not upload their class, such as Java's since 5.3. Upload the
    class again for a filter server that starts later.
    """
    from ..client import FilterClass

    known = _language(language, file)
    filter_class = FilterClass(class_name, _source(file), known)

    servers, error = ask_brokers(
        shared, lambda admin: admin.put_filter_class(group, topic, filter_class)
    )
    _show_servers("put", class_name, servers, as_json=shared.as_json)
    end_with(error)


@app.command("rm", epilog="Example: trocket filter rm --group billing --topic Orders --yes")
def filter_rm(
    group: Group,
    topic: Topic,
    yes: Yes = False,
    shared: Shared = SHARED,
) -> None:
    """Remove a group's class from every filter server of a topic.

    The group's consumers receive nothing until a class is uploaded again.
    """
    confirm(f"The consumers of {group} will receive no messages of {topic}.", yes=yes)

    servers, error = ask_brokers(shared, lambda admin: admin.remove_filter_class(group, topic))
    _show_servers("removed", group, servers, as_json=shared.as_json)
    end_with(error)


def _show_servers(done: str, what: str, servers: tuple[str, ...], *, as_json: bool) -> None:
    """Print the filter servers that carried out the request."""
    if as_json:
        emit({done: what, "servers": servers})
    else:
        show(["Filter server"], [[server] for server in servers])


def _source(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}")
    except UnicodeDecodeError as error:
        fail(f"{file} is not UTF-8: {error}")


def _language(language: str, file: Path) -> FilterLanguage:
    found = _LANGUAGES.get(language or file.suffix.lower())
    if found is None and language:
        usage(f"--language: {language!r} is neither java nor python")
    if found is None:
        usage(f"{file} ends in neither .java nor .py: give --language java or --language python")
    return found
