#!/usr/bin/env python3
"""stop_thread.py PID NAME: stop one thread of a process, as a debugger does, until this program or the process ends.

It says "stopped" then; exit status 77: this machine allows it not.
"""

import ctypes
import glob
import os
import sys

PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long

for name in glob.glob(f"/proc/{int(sys.argv[1])}/task/*/comm"):
    if open(name).read().rstrip("\n") == sys.argv[2]:
        thread = int(name.split("/")[-2])
        break
else:
    sys.exit(f"process {sys.argv[1]} has no thread {sys.argv[2]}")
for request in PTRACE_SEIZE, PTRACE_INTERRUPT:
    if libc.ptrace(request, thread, None, None) != 0:
        print("ptrace:", os.strerror(ctypes.get_errno()), file=sys.stderr)
        sys.exit(77)
os.waitpid(thread, WALL)
print("stopped", flush=True)
os.waitpid(thread, WALL)  # where the process is killed meanwhile, it ends when this has seen its thread's end
