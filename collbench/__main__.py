"""The console script, and `python -m collbench`."""

import signal

# Until signals are handled, Ctrl-C ends this process without the traceback of an import.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from collbench.cli import main

if __name__ == "__main__":
    main()
