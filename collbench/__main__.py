"""The console script, and `python -m collbench`."""

import os
import resource
import signal
import sys

# Until signals are handled, Ctrl-C ends this process without the traceback of an import.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# Below this, imports fail in ways of their own; no limit is -1.
if 0 <= resource.getrlimit(resource.RLIMIT_AS)[0] < 32 << 20:
    os.write(2, b"Error: too little memory to load collbench (ulimit -v)\nHint: raise the limit\n")
    sys.exit(3)

from collbench.cli import main

if __name__ == "__main__":
    main()
