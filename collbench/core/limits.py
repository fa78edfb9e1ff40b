"""The one table of constants that verdicts are decided by, each with its reason.

Shares, and logarithms of ratios of times, unless said otherwise. What is computed with them is in
core/verdict.py.
"""

import math
from typing import Final

# Is one thing slower than another?
SAME: Final = 0.05  # `same` is within this of 1, where no other threshold is asked for
SAYS_NOTHING: Final = math.log(2)  # half of an interval: from half to twice as long is no answer
MINOR: Final = 0.01  # a change too small to mention: clocks and temperature move as much
LEAST_GAIN: Final = 1.02  # nothing is faster by less: two runs of one thing may differ by as much
LEAST_COST: Final = 1.03  # of a setting: two arms that do the same differ by less
MOST_OF_NONE: Final = 1.10  # the upper end of an interval that shows that there is no cost
BEHIND_SHARE: Final = 0.9  # of a reference's rate: machines of one kind differ by less
FAIL_SHARE: Final = 0.75  # of a reference's rate: a lane of four or a rail of four is lost
CEILING_SHARE: Final = 0.8  # the same of what the links allow, at the largest size: healthy ones
CEILING_FAIL_SHARE: Final = 0.6  # give more; who has lost half of the links gets less
PUBLISHED_SHARE: Final = 0.7  # of what others published of NCCL there: NVLS, NICs, settings and
PUBLISHED_FAIL_SHARE: Final = 0.5  # versions differ from ours
FAR_BELOW_SHARE: Final = 0.6  # of the ceiling: a row below it needs an explanation, where it takes
FAR_BELOW_FROM_S: Final = 100e-6  # longer than that at the ceiling; else latency explains it
FALSE_CLAIM: Final = 0.05  # that anything is claimed of a file in which nothing differs
FALSE_ROWS: Final = 0.025  # that any row, and that any group, is called in a comparison in which
FALSE_GROUPS: Final = 0.01  # nothing changed; of these calls the gate takes those beyond its limit
SURE_Z: Final = 3.0  # normal deviate of "A is faster": 1 of 700, for some 20 candidates of a size
SINGLE_Z: Final = 1.96  # of one interval by itself, which covers 95 of 100
LEAST_DEVIATE: Final = 1.0  # one in six shows as much by chance, whatever its neighbours are

# How far repeats and runs differ.
NOISY_SCALE: Final = 0.18  # standard deviation of noise: three repeats span 30 % of their median
OUTLIER_MOVES: Final = 1.05  # by more one repeat that is far off must not move a row's time
MORE_TIME_SHARE: Final = 0.2  # of a sweep's time, that repeats of what may move take at most
MORE_REPEATS: Final = 6  # of one row, two at a time, so that their number stays odd
# of a sweep's repeats, beside one busy process or more: four sweeps of 2 ranks on 2 cores, beside
# none, 2 and 4, took 0.5 to 2.0 times their estimate, and one 0.3 times
LONGER_BESIDE_ONE: Final = 1.2
ADVISED_REPEATS: Final = 9  # from 6 on an interval leaves the slowest and the fastest out
LEAST_RUNS: Final = 3  # of a base, that show how far runs differ: two show one difference
NEAR_HOURS: Final = 6.0  # runs within this are of one day
# Standard deviations of the time of one row from one run to the next, which one file does not show:
# of NCCL's rows, and the largest that was seen of forced settings (docs/explanation/statistics.md).
BETWEEN_RUNS: Final = 0.015
SETTING_SPREAD: Final = 0.03
TAIL_FREEDOM: Final = 3.0  # of Student's t, as tails between real runs are
SURE_SCALES: Final = 3.1824  # of t with 3 degrees of freedom: 95 of 100 values lie within
NEIGHBOUR_FREEDOM: Final = 16.0  # degrees of freedom that like rows count for beside a row's own
WINDOW_ROWS: Final = 48  # like rows that a spread is taken from: of fewer it is off by a fifth
MANY_DEVIATES: Final = 100  # that show the tail by themselves, without Student's t
# Beyond a share of the largest deviations that were seen, chances fall by a power of the deviation:
# shares, powers. The rarer a share, the more of the tail is behind it.
TAILS: Final = ((0.1, 3.0), (0.03, 3.5), (0.01, 4.0), (0.005, 4.0))
# A row that was placed otherwise than in the run before: from so many scales on (a difference of
# two has the root of two), chances fall by a power up to the largest change that was seen, so that
# there one of the rare rows of the runs is left, and by another power beyond it.
RARE_SCALES: Final = 10.0 * 2**0.5
SEEN_POWER: Final = 1.25
RARE_POWER: Final = 6.0

# Groups of rows.
LEAST_GROUP: Final = 4  # rows that make a group: the median of fewer is one row's
LEAST_CELL: Final = 3  # rows of a cell, by which groups' drift is seen
LEAST_OUTSIDE: Final = 8  # like rows outside a group, which show what a session moves all rows by
PURE: Final = 2 / 3  # of a group's rows that changed: else its name says what did not change
# Rows of a group share what they do when they are placed otherwise: beyond the largest change that
# was seen its chance falls steeply, because few causes do more. On a noisy machine the largest is
# some scales of one row (cells of 12 pairs of sweeps of two ranks on two cores: up to 1.5).
GROUP_POWER: Final = 20.0
GROUP_SCALES: Final = 1.5
PRIOR_FREEDOM: Final = 4.0  # degrees of freedom of the prior of groups' drift
MOST_FREEDOM: Final = 30.0  # of it and of what the files show
LEAST_SHARED: Final = 0.3  # of the spread of a row, what rows share, where files do not show it
SINGLE_LEVELS: Final = (0.001, 0.003, 0.01)  # how rare a single row of a group must be to count
MOST_EXPECTED: Final = 2.0  # times as many of them may be chance: such rows come in clusters
MOST_CALLS: Final = 20  # groups that are named: more than anybody reads

# Curves over sizes.
FAR_FROM_CURVE: Final = 1.5  # times what the neighbours of a point let expect: a choice
MOST_PERCENT: Final = 110.0  # of a ceiling of which nobody measured the best: what kernels get

# What cannot be: a row so many times as fast as copies of its bytes, which are measured at other
# moments than the row; 0 of 3,247 honest rows were below that.
IMPOSSIBLE: Final = 1.35

# Tuning by pairs of launches.
LEAST_PAIRS: Final = 6  # the fewest that give an interval of 95 %
MOST_PAIRS: Final = 12
NARROW: Final = 0.02  # of an interval, that more pairs need not narrow
NEAR: Final = 1.05  # times as long as the leader takes what is simpler, and taken in its place

# The hunt for slow hosts: slowness is the logarithm of a time's ratio.
HUNT_FALSE_ALARM: Final = 4e-4  # that anything is named where nothing is slow: 5e-4 is promised
HUNT_PATHS_SHARE: Final = 0.1  # of it for paths, pairs and groups: many, with few measurements each
HUNT_SUSPICION: Final = 0.5  # of a false alarm: what is likelier is not even measured again
HUNT_MAYBE: Final = 0.02  # of a false alarm: what is less likely, but not sure, is said
LEAST_SLOWNESS: Final = math.log(1.03)  # a place is called slow: well hosts differ by 1 to 2 %
WAIT_S: Final = 1e-3  # of a message between hosts, which a rank may wait for a core
WAIT_SLOWNESS: Final = math.log(1.1)  # where ranks wait, less may be WAIT_S alone
FAR_SLOWNESS: Final = math.log(1.25)  # a row that is so much slower than good ones needs a cause
ONCE_SLOWNESS: Final = math.log(1.5)  # of a path that was measured once: less may be a hiccup
MUST_FIND: Final = 2.0  # times as slow: such a host must be found before nothing is called slow
FAR_DEVIATES: Final = 4.0  # of noise, at least: a row further off is not noise
UNEVEN: Final = 0.999  # sure that pairs differ by more than repeats do: only these count then
PAIR_FLOOR: Final = 0.005  # standard deviation of a pair: well ones differ by that for good
SURE_NOISE: Final = 0.1  # no more is expected of a pair where too few of them show its noise
FEW_PATHS: Final = 0.1  # of the pairs (or one path) may be slow for themselves
PATH_AGREED: Final = (
    0.8  # of a path's measurements beyond half of its effect: two of three are none
)
PLACE_AGREED: Final = 0.5  # of another place, whose chance counts many pairs
UNLIKE: Final = 0.01  # another place explains as well unless chance prefers this one so rarely
PLACE_GAIN: Final = 4.0  # of a place that is tried: two standard deviations, squared
ENOUGH_PAIRS: Final = 8  # whose median deviation is a noise
MANY_PAIRS: Final = 400  # of which hiccups are some: what as many others are is no path
PARTNERS: Final = 3  # that acquit the partners of a slow host or rank

# A file, and a node's checks, as a whole.
MOSTLY: Final = 0.5  # of its rows are noise: the report says so first
LEAST_JUDGED: Final = 0.5  # of the lines of a check: with fewer, most of it was not seen
HISTORY_RUNS: Final = 4  # checks that make a history
OWN_CHECKS: Final = 20  # of a node, the first and the last, by whose medians it is judged
LEAST_PEERS: Final = 3  # nodes of one kind whose median says what is normal: of two one may be slow
FAR: Final = 3.0  # scales from which on a value of a history costs no more
PENALTY: Final = 18.0  # of a change: two outliers, so that three checks alike are one and two none
LEAST_SEGMENT: Final = 3  # checks of one level
LEAST_SCALE: Final = 0.005  # of noise: clocks and graphs repeat no better between runs

# Other processes. Below it are monitors, kernel threads and errors of the counters; one process
# that computes has four times as much.
FOREIGN_SHARE: Final = 0.25  # cores' worth of time
FOREIGN_LEAST_S: Final = 0.05  # of time that counts at all: a few steps of the kernel's counters

# Of a normal distribution, a median deviation in standard deviations, and how many degrees of
# freedom it has for each value (Rousseeuw 1993).
MAD_TO_SD: Final = 1.4826
MAD_FREEDOM: Final = 0.4
