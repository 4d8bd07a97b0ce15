"""What a hostile kernel could try in a sandbox, as a program that says what it found."""

from __future__ import annotations

import json
import subprocess
from typing import Any

#: Its argument is a port of the host's.
PROBE = """
import ctypes, glob, json, os, socket, subprocess, sys

def attempt(action):
    try:
        action()
        return "done"
    except OSError as error:
        return type(error).__name__

print(json.dumps({
    "environment": sorted(os.environ),
    "internet": attempt(lambda: socket.create_connection(("192.0.2.1", 80), timeout=1)),
    "host": attempt(lambda: socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=1)),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "usr": attempt(lambda: open("/usr/flopwatch", "w")),
    "root": attempt(lambda: open("/flopwatch", "w")),
    "dev": attempt(lambda: open("/dev/flopwatch", "w")),
    "program": attempt(lambda: open("/program/flopwatch", "w")),
    "sys": attempt(lambda: open("/sys/kernel/uevent_helper", "w")),
    "top": sorted(os.listdir("/")),
    "etc": sorted(os.listdir("/etc")),
    "processes": len([name for name in os.listdir("/proc") if name.isdecimal()]),
    "namespace": ctypes.CDLL(None, use_errno=True).unshare(0x10000000),
    "capabilities": [line.split()[1] for line in open("/proc/self/status") if line.startswith("Cap")],
    "new_privileges": [line.split()[1] for line in open("/proc/self/status") if line.startswith("NoNewPrivs")],
    "name": socket.gethostname(),
    "user": os.getuid(),
    "scratch": attempt(lambda: open("/scratch/here", "w")),
    "full": attempt(lambda: [file.write(bytes(1 << 20)) for file in [open("/tmp/full", "wb", 0)] for _ in range(64)]),
    "disks": sorted(name for name in os.listdir("/dev") if name.startswith(("sd", "vd", "nvme"))),
}))
"""


def probed(command: list[str]) -> dict[str, Any]:
    """Run the command line of a sandbox with the probe in it, and return what that found."""
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found
