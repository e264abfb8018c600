"""An MCP server in plain Python that misbehaves on demand. It speaks JSON-RPC on its standard streams and needs no SDK.

    misbehaving_server.py --report PORT [--ignore-sigterm] [--start WAY] [--tools WAY]

Every line that it reads goes to a TCP port on loopback as well, so that a test knows what has arrived; so does
`{"pid": ...}` first. What it does wrong, a caller chooses by the tool that it calls: each is a function below.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

HELD = {}  # ids of calls that are answered only after they were withdrawn


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


# --- the tools: each gets the id of the call and its arguments, and answers, or does not ------------------------


def echo(call, arguments):
    send({"id": call, "result": text(arguments.get("text", "echo"))})


def pid(call, _):
    send({"id": call, "result": text(str(os.getpid()))})


def environment(call, _):
    send({"id": call, "result": text(json.dumps({**os.environ, "CWD": str(Path.cwd())}))})


def hang(_call, _):
    pass


def answer_when_cancelled(call, _):
    HELD[call] = text("too late")


def held(call, _):
    """Answer when the process gets SIGUSR1."""
    HELD[call] = text("released")


def release(_number, _frame):
    for call in list(HELD):
        send({"id": call, "result": HELD.pop(call)})


def die(_call, _):
    os._exit(3)


def leave_a_child(_call, _):
    """Die while a child holds the output open."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.DEVNULL)
    os._exit(4)


def close_output(_call, _):
    """Live on, but never say anything again."""
    os.close(1)


def close_input(_call, _):
    os.close(0)
    signal.pause()


def twice(call, _):
    for words in ("first", "second"):
        send({"id": call, "result": text(words)})


def for_others(call, _):
    """Answer calls that nobody made."""
    for other in (call + 1000, "x", -1):
        send({"id": other, "result": text("who asked?")})
    send({"id": call, "result": text("mine")})


def flood(call, arguments):
    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
    for _ in range(arguments["lines"]):
        sys.stdout.write(f"{note}\nnot json at all\n")
    send({"id": call, "result": text("still here")})


def chatter(call, arguments):
    """Flood standard error."""
    for number in range(arguments["lines"]):
        sys.stderr.write(f"line {number}\n")
    sys.stderr.flush()
    send({"id": call, "result": text("still here")})


def huge(call, arguments):
    send({"id": call, "result": text("x" * (arguments["mib"] * 1024 * 1024))})


def garbage_first(call, _):
    sys.stdout.write("Starting...\n\n{not json}\n[1, 2]\n17\n")
    sys.stdout.flush()
    os.write(1, b"\xff\xfe\x00 bytes that are no text\n")
    send({"id": call, "result": text("after the garbage")})


def no_response(call, _):
    send({"id": call, "result": "a text, where an object must stand"})


def no_content(call, _):
    send({"id": call, "result": {"answer": 42}})


def content_is_text(call, _):
    send({"id": call, "result": {"content": "just a text"}})


def hologram(call, _):
    send({"id": call, "result": {"content": [{"type": "text", "text": "see:"}, {"type": "hologram", "x": 1}]}})


def surrogates(call, _):
    send({"id": call, "result": text("a\ud800b")})


def not_a_number(call, _):
    send({"id": call, "result": {"content": [], "structuredContent": {"x": float("nan")}}})


def rpc_error(call, _):
    send({"id": call, "error": {"code": -32000, "message": "the quota is used up"}})


def tool_error(call, _):
    send({"id": call, "result": text("no such file", isError=True)})


def asks_back(call, _):
    """Ask the client something that it does not offer, and go on when it refuses."""
    HELD[f"asked-{call}"] = call
    send({"id": f"asked-{call}", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})


def change(call, arguments):
    """Have one more tool, and say so many times."""
    TOOLS.append(described("one_more"))
    for _ in range(arguments.get("times", 1)):
        send({"method": "notifications/tools/list_changed"})
    send({"id": call, "result": text("changed")})


def one_more(call, _):
    send({"id": call, "result": text("one more")})


NAMES = [
    "echo", "pid", "environment", "hang", "held", "answer_when_cancelled", "die", "leave_a_child", "close_output",
    "close_input", "twice", "for_others", "flood", "chatter", "huge", "garbage_first", "no_response", "no_content",
    "content_is_text", "hologram", "surrogates", "not_a_number", "rpc_error", "tool_error", "asks_back", "change",
]  # fmt: skip
READ_ONLY = {"echo", "hang", "held", "answer_when_cancelled"}


def described(name):
    hints = {"annotations": {"readOnlyHint": True}} if name in READ_ONLY else {}
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, **hints}


TOOLS = [described(name) for name in NAMES]

BAD_TOOLS = [
    described("echo"),
    {"name": "no_schema"},
    {"name": "bad_schema", "inputSchema": {"type": "string"}},
    {"name": "text_schema", "inputSchema": "object"},
    {"inputSchema": {"type": "object"}},
    "not even an object",
    described("echo"),
    {**described("annotated"), "annotations": "read only"},
]


def pages(cursor):
    """Three tools a page."""
    at = int(cursor or 0)
    page = {"tools": TOOLS[at : at + 3]}
    return page if at + 3 >= len(TOOLS) else {**page, "nextCursor": str(at + 3)}


LISTINGS = {
    "good": lambda _: {"tools": TOOLS},
    "pages": pages,
    "bad": lambda _: {"tools": BAD_TOOLS},
    "endless": lambda _: {"tools": [], "nextCursor": "again"},
    "no-list": lambda _: {"tools": "none"},
}


COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
MODERN = {
    "initialize": {"error": {"code": -32022, "message": "unsupported", "data": {"supported": ["2026-07-28"]}}},
    "server/discover": {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **COMPLETE}},
}


# --- the protocol ------------------------------------------------------------------------------------------------


def initialize(message):
    version = message["params"]["protocolVersion"]
    return {
        "protocolVersion": version,
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "misbehaving", "version": "1"},
    }


def answered(message, options):
    """Handle one message that was read."""
    method = message.get("method")
    if options.era == "modern" and method in MODERN:
        send({"id": message["id"], **MODERN[method]})
    elif method == "initialize":
        send({"id": message["id"], "result": initialize(message)})
    elif method == "tools/list" and options.tools != "none":
        listing = LISTINGS[options.tools]((message.get("params") or {}).get("cursor"))
        send({"id": message["id"], "result": listing})
    elif method == "tools/call":
        globals()[message["params"]["name"]](message["id"], message["params"].get("arguments") or {})
    elif method == "notifications/cancelled":
        held = HELD.pop(message["params"]["requestId"], None)
        if held is not None:
            send({"id": message["params"]["requestId"], "result": held})
    elif method is None and message.get("id") in HELD:
        send({"id": HELD.pop(message["id"]), "result": text(json.dumps(message.get("error")))})
    elif "id" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})


def begin(way):
    """What goes wrong before a word is said."""
    if way == "die":
        sys.stderr.write("Traceback: no module named weather\n")
        sys.exit(5)
    if way == "garbage":
        sys.stdout.write("Welcome to the weather!\nnpm notice: a new version\n")
        sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", type=int)
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--start", choices=["well", "die", "garbage", "hang"], default="well")
    parser.add_argument("--tools", choices=[*LISTINGS, "none"], default="good")
    parser.add_argument("--era", choices=["classic", "modern"], default="classic")
    parser.add_argument("--stay", action="store_true", help="do not end when the input ends")
    options = parser.parse_args()
    report = socket.create_connection(("127.0.0.1", options.report)) if options.report else None
    if report:
        report.sendall(json.dumps({"pid": os.getpid()}).encode() + b"\n")
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, release)
    begin(options.start)
    for line in sys.stdin:
        if report:
            report.sendall(line.encode())
        if options.start != "hang":
            answered(json.loads(line), options)
    while options.stay:
        signal.pause()


if __name__ == "__main__":
    main()
