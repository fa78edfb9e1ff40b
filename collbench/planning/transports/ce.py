"""ce: the copy engine of the sender's GPU writes the receiver's memory; kernels only wait."""

from collbench.planning.transports import p2p

NEEDS_PEERS, IN_DOMAIN, BESIDE_NET, FIFOS = True, True, False, 1
why_not = p2p.why_not
