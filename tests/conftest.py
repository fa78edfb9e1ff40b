"""What tests share: hypothesis settled for CI, and the problems that batteries run.

A good test here says what must hold of results, plans or records, for every registered thing and
awkward numbers of ranks; never how long something takes. Inputs are written by us; anything that
needs a launcher runs as a subprocess with a time limit.
"""

import gc
import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci")

# plans are many small tuples that live on: looking for cycles among them took a third of the time
# of a proof
gc.set_threshold(50_000)

# as shells start what goes on in the background, and children inherit it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
