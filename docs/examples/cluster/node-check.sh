#!/bin/bash
# Drains this node of Slurm if `collbench check` fails on it, and only then: not where the check
# could not judge (exit code 5) or not look, and not for a mistake of its own.
#
# In slurm.conf as Prolog= and Epilog=, which then also keep the job off the node, or as
# HealthCheckProgram=. A check takes up to a minute, on a node that nobody else uses:
#   PrologFlags=Alloc
#   BatchStartTimeout=180
collbench=${COLLBENCH:-/opt/collbench/bin/collbench}
nodes=${COLLBENCH_NODES:-/shared/collbench/nodes}
node=${SLURMD_NODENAME:-$(hostname -s)}

report=$(timeout 120 "$collbench" check --nodes "$nodes" 2>&1)
code=$?
verdict=$(grep '^FAIL: ' <<< "$report" | tail -1)
if [ "$code" -ne 1 ] || [ -z "$verdict" ]; then
    exit 0
fi
first=$(grep '^FAIL  ' <<< "$report" | head -1 | tr -s ' ')
scontrol update "NodeName=$node" State=DRAIN "Reason=collbench: ${first:0:120}"
exit 1
