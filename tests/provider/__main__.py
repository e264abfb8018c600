"""The strict fake provider as a process: `python tests/provider SCRIPT.json [--port N] [--variant NAME]`.

The first line of its output is the base URL, once it serves; it runs until it is interrupted or terminated. SCRIPT.json
is a conversation as `script.read_script` takes it, for example

    {"by": "depth", "replies": [
        [{"text": "Let me look.", "pieces": 3}, {"call": "read", "arguments": {"path": "a"}}],
        [{"text": "It says hello."}]
    ]}

`GET /record` tells what was asked and refused, `POST /gates/NAME` opens a gate.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

import trio

if __package__ in {"", None}:  # run as a folder: its parent is not on the path, and its own name is not known
    sys.path[0] = str(Path(__file__).parent.parent)

from provider.script import read_script
from provider.server import FakeProvider
from provider.validator import VARIANTS


def main():
    """Read the command line, and serve."""
    parser = argparse.ArgumentParser(prog="python tests/provider", description="A strict fake provider on loopback.")
    parser.add_argument("script", type=Path, metavar="SCRIPT.json")
    parser.add_argument("--port", type=int, default=0, help="0, the default, is any that is free")
    parser.add_argument("--variant", choices=VARIANTS, default="strict")
    options = parser.parse_args()
    try:
        script = read_script(json.loads(options.script.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        parser.error(f"{options.script}: {error}")
    trio.run(_serve, FakeProvider(script, options.variant, port=options.port))


async def _serve(provider):
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with provider:
            sys.stdout.write(f"{provider.base_url}\n")
            sys.stdout.flush()
            await anext(signals)


main()
