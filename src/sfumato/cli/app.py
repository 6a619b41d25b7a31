"""App: the root of the command line, and what happens when a command fails.

Exit codes: 0 done; 2 something a user can mend (arguments, schema, the form of a file), said in one line on
standard error; 70 a fault of sfumato; 130 stopped by the user. No traceback is ever shown unless the
environment variable SFUMATO_TRACEBACK is set, since a traceback can hold private values.
"""

import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import sfumato
from sfumato.cli.console import fail
from sfumato.errors import SfumatoError

app = typer.Typer(
    name="sfumato",
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A private table in, a certified generative model out.",
)

# Click lives inside Typer since 0.20 and beside it before; its usage error is the base of this one in both.
_USAGE: Any = typer.BadParameter.__mro__[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    wants_traceback = bool(os.environ.get("SFUMATO_TRACEBACK"))
    _stop_cleanly()
    with warnings.catch_warnings():
        # Warnings and logs of other libraries may quote cells.
        if not wants_traceback:
            warnings.simplefilter("ignore")
            logging.disable(logging.CRITICAL)
        try:
            return _run(arguments)
        except Exception as error:
            if wants_traceback:
                traceback.print_exc()
            fail(_last_words(error))
            return 70
        finally:
            logging.disable(logging.NOTSET)


def _stop_cleanly() -> None:
    """Let a request to stop end as Ctrl-C does, so that no half-written file is left behind."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="sfumato", standalone_mode=False)
    except SfumatoError as error:
        fail(str(error))
        return 2
    except _USAGE as error:
        fail(f"{error.format_message()} See '{_path_of(error)} --help'.")
        return 2
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    if code == 130:
        fail("stopped")
    return code if isinstance(code, int) else 0


def _path_of(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return "sfumato" if context is None else str(context.command_path)


def _last_words(error: Exception) -> str:
    # The type only: the message of a foreign error may hold a private value.
    if isinstance(error, MemoryError):
        return "not enough memory; use fewer rows, or a larger machine"
    return (
        f"unexpected {type(error).__name__}; this is a fault of sfumato, please report it "
        "(set SFUMATO_TRACEBACK=1 to see where, but a traceback can hold private values)"
    )


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        sys.stdout.write(f"sfumato {sfumato.__version__}\n")
    elif context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")
