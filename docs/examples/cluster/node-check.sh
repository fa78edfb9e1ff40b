#!/bin/bash
# Drains this node of Slurm if `collbench check` fails on it, and only then: not where the check
# could not judge (exit code 5) or look, where it hung, and not for a mistake of its own, which it
# writes to the log of slurmd. It saves nothing: a node is held against what `collbench check --save
# --nodes FOLDER` has kept of it, and against the shipped results of its GPUs.
#
# A check takes up to a minute, on a node that nobody else uses. In slurm.conf, as a prolog and an
# epilog, which then also keep the job off the node:
#   Prolog=/etc/slurm/node-check.sh
#   Epilog=/etc/slurm/node-check.sh
#   PrologFlags=Alloc
#   BatchStartTimeout=180
# or, within Slurm's own limit of 60 s, while nodes are idle:
#   HealthCheckProgram=/etc/slurm/node-check.sh
#   HealthCheckInterval=3600
#   HealthCheckNodeState=IDLE
export PATH=$PATH:/usr/local/bin:/usr/bin:/bin
collbench=${COLLBENCH:-/opt/collbench/bin/collbench}
scontrol=${SCONTROL:-scontrol}
nodes=${COLLBENCH_NODES:-/shared/collbench/nodes}
node=${SLURMD_NODENAME:-$(hostname -s)}

if [ -d "$nodes" ]; then
    report=$(timeout -k 10 120 "$collbench" check --nodes "$nodes" 2>&1)
else
    echo "collbench: there is no folder $nodes of saved checks" >&2
    report=$(timeout -k 10 120 "$collbench" check 2>&1)
fi
code=$?
verdict=$(grep '^FAIL: ' <<< "$report" | tail -1)
case $code in 0 | 1 | 5) ;; *) tail -n 3 <<< "$report" >&2 ;; esac
if [ "$code" -ne 1 ] || [ -z "$verdict" ]; then
    exit 0
fi
first=$(grep '^FAIL  ' <<< "$report" | head -1 | tr -s ' ')
"$scontrol" update "NodeName=$node" State=DRAIN "Reason=collbench: ${first:0:120}"
exit 1
