r"""What lines NCCL and RCCL print, and what each says: a table.

A message is matched by the kinds that begin with its first word. A kind whose name the reader does
not know teaches nothing; it is here so that its lines count as understood.

Source: the formats of INFO and WARN in github.com/NVIDIA/nccl v2.10.3 to v2.30.7, the
strings of 2.32.3, and github.com/ROCm/rccl 2.20.5.
"""

import functools
import re
from dataclasses import dataclass

_PTR = r"(?:0x)?[0-9a-fA-F]+|\(nil\)"
_FIRST = re.compile(r"\s*([A-Za-z]+|\S)")


@dataclass(frozen=True, slots=True)
class LineKind:
    """One kind of line. first: words that it may begin with, none for any. says: what a reader
    learns of it. since: the first version that prints it so, where that is later than 2.10.
    """

    name: str
    first: tuple[str, ...]
    pattern: re.Pattern[str]
    says: str
    since: str = ""


def _kind(name: str, first: str, pattern: str, says: str, since: str = "") -> LineKind:
    return LineKind(name, tuple(first.split()), re.compile(pattern), says, since)


_INIT = (
    rf"(?:\[Rank \d+\] )?(?:(?P<call>nccl\w+) )?comm (?P<comm>{_PTR}) rank (?P<rank>\d{{1,9}})"
    r" n[rR]anks (?P<nranks>\d{1,9}) cudaDev (?P<device>-?\d{1,9})(?: nvmlDev (?P<nvml>-?\d{1,9}))?"
    rf" busId (?P<bus>[0-9a-fA-F]+)(?: parent (?P<parent>{_PTR})"
    r"(?: (?:splitCount|childCount) (?P<split>-?\d{1,9}))? color (?P<color>-?\d{1,9}) key -?\d+)?"
    r"(?: commId 0x(?P<id>[0-9a-fA-F]+))?(?: localSize .*?)? ?- "
)
_PAIR = r"(?P<src>\d{1,9})(?:\[[0-9a-fA-F]+\])? -> (?P<dst>\d{1,9})(?:\[[0-9a-fA-F]+\])?"
_OF_COMM = rf"(?: comm (?P<comm>{_PTR}) nRanks \d+)?"

KINDS: tuple[LineKind, ...] = (
    # communicators
    _kind("init_start", "ncclCommInitRank ncclCommInitRankConfig ncclCommInitAll ncclCommSplit"
          " ncclCommInitRankScalable ncclCommShrink ncclCommGrow comm [",
          _INIT + r"Init START", "a rank begins to join a communicator", "2.18"),
    _kind("init_complete", "ncclCommInitRank ncclCommInitRankConfig ncclCommInitAll ncclCommSplit"
          " ncclCommInitRankScalable ncclCommShrink ncclCommGrow comm [",
          _INIT + r"Init COMPLETE", "a rank has joined a communicator"),
    _kind("destroyed", "comm", rf"comm (?P<comm>{_PTR}) rank \d+ n[rR]anks \d+ cudaDev -?\d+ busId"
          r" \w+ - (?:Destroy|Abort) COMPLETE", "a rank has left a communicator"),
    _kind("aborting", "comm CommRevokeAsync", rf"(?:CommRevokeAsync \w+ )?comm (?:{_PTR}) rank \d+"
          r".*(?:Abort|Revoke|Destroy|result)", "a communicator is being ended"),
    _kind("nodes", "comm", rf"comm (?P<comm>{_PTR}) rank \d+ nRanks \d+ nNodes (?P<nodes>\d{{1,9}})"
          r" localRanks (?P<local>\d{1,9}) localRank \d+", "on how many hosts it is", "2.19"),
    _kind("timings", "Init", r"Init timings(?: - \w+:)?.* rank (?P<rank>\d{1,9}) nranks \d+ total"
          r" (?P<total>[\d.]+)", "how long joining took", "2.21"),
    _kind("channels", "0", r"(?P<coll>\d{1,9}) coll channels,(?: \d+ collnet channels,)?"
          r"(?: (?P<nvls>\d{1,9}) nvls channels,)? (?P<p2p>\d{1,9}) p2p channels", "how many"
          " channels"),
    # rings, trees, transports
    _kind("transport", "Channel Ring", rf"(?:Channel|Ring) (?P<channel>\d{{1,9}})(?:/\d+)? :"
          rf" {_PAIR}"
          r"(?: \[(?:send|receive)\])? via (?P<via>.+?)" + _OF_COMM + r"\s*$",
          "by which transport a channel goes from rank to rank"),
    _kind("channel_ring", "Channel", r"Channel (?P<channel>\d{1,9})/(?P<of>\d{1,9})\s*:"
          r" +(?P<ring>[\d ]+)$",
          "the order of ranks of a ring"),
    _kind("ring", "Ring", r"Ring (?P<channel>\d{1,9}) : (?P<before>\d{1,9}) -> (?P<rank>\d{1,9}) ->"
          r" (?P<after>\d{1,9})(?: |$)", "a rank's neighbours in a ring"),
    _kind("trees", "Trees", r"Trees(?P<trees>(?: \[\d+\] (?:-?\d+/)*-?\d+->-?\d+->-?\d+)+)"
          + _OF_COMM, "a rank's place in the trees"),
    _kind("tree", "Tree", r"Tree (?P<channel>\d{1,9}) : (?P<up>-?\d{1,9}) -> (?P<rank>\d{1,9}) ->"
          r" (?P<down>[-\d/]+)", "a rank's place in a tree"),
    _kind("nvls_trees", "NVLS", r"NVLS Trees : ", "a rank's place in the trees of NVLS", "2.18"),
    _kind("nvls_support", "NVLS", r"NVLS multicast support is (?P<no>not )?available",
          "whether the switches can reduce", "2.17"),
    _kind("nvls", "NVLS", r"NVLS ",
          "memory of NVLS", "2.17"),
    _kind("collnet", "CollNet", r"CollNet \d+/\d : \d+ \[(?:send|receive)\] via (?P<via>\S+)",
          "that the network reduces"),
    _kind("connected", "Connected", r"Connected (?:all|binomial|NVLS|Collnet|to proxy)",
          "that connecting ended"),
    _kind("connected", "rank", r"rank \d+ Connected ", "that connecting ended"),
    _kind("graph_search", "Pattern", r"Pattern \d+, crossNic \d+, nChannels (?P<channels>\d{1,9}), "
          r"(?:bw|speed) (?P<intra>[\d.]+)/(?P<inter>[\d.]+), type (?P<types>\w+/\w+)",
          "what the search for rings and trees found"),
    _kind("graph_line", "0", r"\s*\d+ : (?:(?:GPU|NET|NVS|CPU)/\S+(?: +|$))+$",
          "one ring or tree of the search"),
    # the topology
    _kind("system", "=", r"=== System : max\w+ (?P<most>\d{1,9}(?:\.\d{1,9})?)"
          r" total\w+ [\d.]+ ===|=+$",
          "the fastest link of the machine, in NCCL's GB/s"),
    _kind("numa", "CPU", r"CPU/(?:[0-9a-fA-F]+-)?(?P<numa>[0-9a-fA-F]+) \(", "a NUMA node"),
    _kind("device", "+", r"\+ (?P<link>\w+)\[(?P<bw>[\d.]+)\] - (?P<what>[A-Z0-9]+)/"
          r"(?:[0-9a-fA-F]+-)?(?P<id>[0-9a-fA-F]+)(?: \((?P<rank>-?[0-9a-fA-F]+)(?P<more>[)/]))?",
          "a device and its link"),
    _kind("paths", "GPU NET CPU NVS PCI GIN", r"(?:GPU|NET|CPU|NVS|PCI|GIN)/[0-9a-fA-F-]+ ?:",
          "paths of a device"),
    _kind("topology", "Topology TOPO ncclTopoPopulateNics ncclTopoGetXmlFromSys"
          " ncclTopoGetCpuAffinity"
          " Could NVLink Loading XML Ignoring Paths MNNVL KV Found Detected Attribute === Marking",
          r"Topology detection|TOPO/NET|ncclTopo\w+ ?:|Could not find real path|"
          r"Could not (?:get device class|get speed)|NVLink target|Loading |XML |Ignoring |Paths |"
          r"MNNVL |KV Convert|Found network interface|Attribute |Marking ",
          "how the machine was looked at"),
    _kind("mixed_nets", "Detected", r"Detected mixed local", "ranks with other numbers of NICs",
          "2.28"),
    _kind("affinity", "Setting", r"Setting affinity for (?:GPU|rank) \d+", "the cores of a GPU"),
    # networks
    _kind("network", "Using", r"Using network (?P<name>.+?)\s*$", "the network that is used"),
    _kind("network_assigned", "Assigned", r"Assigned (?P<kind>NET|GIN|RMA) plugin (?P<name>.+?) to"
          r" comm", "the network of a communicator", "2.27"),
    _kind("nics_ib", "NET", r"NET/IB ?: Using(?P<nics>[^;]*); OOB (?P<oob>[^\s:]+):",
          "InfiniBand and RoCE devices, and the interface beside them"),
    _kind("no_ib", "NET", r"NET/IB ?: No device found", "that there is no InfiniBand or RoCE"),
    _kind("nics_socket", "NET", r"NET/Socket ?: Using (?P<nics>\[\d+\].*)", "interfaces of"
          " sockets"),
    _kind("bootstrap", "Bootstrap", r"Bootstrap ?: Using"
          r" ?\[?\d*\]?(?P<interface>[^\s:]+):(?P<address>\S+)",
          "the interface by which ranks find each other"),
    _kind("bootstrap_more", "Bootstrap Retrieved", r"Bootstrap timings|Bootstrap : |Retrieved",
          "how long ranks looked for each other"),
    _kind("gdr_hca", "NET", r"NET/(?P<net>[\w. -]+?) ?: GPU Direct RDMA (?P<state>Enabled|"
          r"Disabled) for"
          r" HCA (?P<hca>\d{1,9}) '(?P<name>[^']*)'(?P<why>.*)", "whether a NIC can reach GPUs"),
    _kind("gdr_gpu", "GPU NET", r"(?:NET/\w+ ?: )?GPU Direct RDMA"
          r" (?P<state>Enabled|Disabled) for (?:GPU )?(?P<gpu>\S+)"
          r"(?: / HCA (?P<hca>\S+))?(?: \(distance (?P<distance>\S+) (?P<sign>[<>=]+)"
          r" (?P<level>[^)]+)\))?", "whether a NIC is near enough to a GPU"),
    _kind("ib_more", "NET", r"NET/IB", "details of InfiniBand and RoCE"),
    _kind("ofi_provider", "NET", r"NET/OFI Selected [Pp]rovider is (?P<name>\S+)"
          r"(?:.*?\(found (?P<nics>\d{1,9}) nics\))?", "the provider of libfabric"),
    _kind("ofi", "NET", r"NET/OFI ", "details of the plug-in for libfabric"),
    _kind("net_more", "NET", r"NET/(?!Plugin|Socket ?: Using\s*$)\w+ ?:",
          "details of a network"),
    # plug-ins
    _kind("plugin_missing", "NET TUNER PROFILER ENV GIN RMA", r"(?P<kind>[A-Z]+)/Plugin ?: ?(?:"
          r"Could not find:? ?(?P<names>.*)|No plugin found.*|.*[Uu]sing internal.*|"
          r".*lib[nr]ccl[\w.-]*: cannot open shared object file.*)", "a plug-in that is not"
          " there, which is normal"),
    _kind("plugin_symbol", "NET TUNER PROFILER ENV GIN RMA MSCCL", r"(?:[A-Z]+/Plugin|MSCCL) ?: ?"
          r"Failed to find \w+ symbol", "an older form of a plug-in was tried"),
    _kind("plugin_failed", "NET TUNER PROFILER ENV GIN RMA", r"(?P<kind>[A-Z]+)/Plugin ?: ?(?:"
          r"(?:Most recent )?[Pp]lugin load (?:\((?P<name>[^)]*)\) )?returned \d+ : (?P<why>.+)|"
          r"(?P<library>\S+\.so\S*): (?P<reason>.+))", "a plug-in that is there and did not load"),
    _kind("plugin_loaded", "NET TUNER PROFILER ENV GIN RMA Successfully",
          r"(?:(?P<kind>[A-Z]+)/Plugin"
          r" ?: ?(?:Loaded|Using) (?P<name>.+)|Successfully loaded external (?P<other>.+))",
          "a plug-in that is used"),
    _kind("plugin_unfit", "Failed", r"Failed to initialize (?:NET|any NET|GIN|any GIN|RMA) plugin"
          r"(?: (?P<name>\S+))?", "a network that cannot be used here", "2.27"),
    _kind("plugin_unsupported", "External", r"External (?P<name>.+?) is unsupported",
          "a plug-in whose version this NCCL does not take"),
    _kind("plugin_more", "NET TUNER PROFILER ENV GIN RMA Plugin Unloading Initialized Disabling"
          " External",
          r"[A-Z]+/Plugin|Plugin (?:name|Path)|Unloading|Initialized NET|Initialized|Disabling"
          r" external|External", "about plug-ins"),
    # diagnostics, from 2.31
    _kind("diagnostics", "[ = INFO p NCCL GPU", r"\[\w+\] |=== \w+ Diagnostics|INFO RAS|p2p: |"
          r"GPU inventory|"
          r"NCCL diagnostics", "what NCCL's own checks found", "2.31"),
    # settings
    _kind("setting", "NCCL RCCL HSA", r"(?P<name>(?:NCCL|RCCL|HSA)_\w+) set (?:by environment )?to"
          r" (?P<value>.*?)\.?\s*$", "a variable that is set"),
    _kind("setting", "NCCL RCCL", r"(?P<name>(?:NCCL|RCCL)_\w+) = (?P<value>\S*)\s*:",
          "a variable that is set"),
    _kind("setting_ignored", "Invalid", r"Invalid value (?P<value>.*?) for (?P<name>\w+), using"
          r" default (?P<default>.*?)\.", "a value that is no number"),
    _kind("config", "Comm", r"Comm config (?P<name>\w+) (?:re)?set to (?P<value>.*)",
          "what the program asks for"),
    _kind("config", "User minCTAs maxCTAs Parsed", r"User asked for|m\w+CTAs |Parsed environment",
          "what the program asks for"),
    _kind("config_file", "Could", r"Could not open .*nccl\.conf", "a file of settings"),
    # what was chosen
    _kind("choice", "AllReduce AllGather ReduceScatter Broadcast Reduce Send Recv SendRecv AllToAll"
          " AlltoAll Gather Scatter 0",
          r"(?:(?P<op>\w+): )?(?P<bytes>\d{1,18}) Bytes -> Algo (?P<algo>\w+) proto (?P<proto>\w+)"
          r"(?: channel\{Lo\.\.Hi\}=\{(?P<low>\d{1,9})\.\.(?P<high>\d{1,9})\}| time"
          r" (?P<time>[\d.]+))?",
          "the algorithm, protocol and channels of a size", "2.12"),
    _kind("choice_symmetric", "AllReduce AllGather ReduceScatter Broadcast Reduce AllToAll AlltoAll"
          " Gather Scatter", r"(?P<op>\w+) \[(?P<form>[\w ]+)\]: (?P<bytes>\d{1,18}) Bytes ->"
          r" (?:Kernel )?(?P<kernel>\S+)(?: nchannels (?P<channels>\d{1,9}))?",
          "the kernel of a size on symmetric memory, or copy engines", "2.27"),
    _kind("tuning_head", "Algorithm Latency Protocol Max", r"\s*(?:Algorithm +\||Protocol +\||"
          r"Latency/AlgBw \||Max NThreads \|)(?P<cells>.*)", "heads of the tuning table"),
    _kind("tuning_row", "AllReduce AllGather ReduceScatter Broadcast Reduce AllToAll AlltoAll",
          r"\s*(?P<op>\w+) \|(?P<cells>(?: *-?[\d.]+/ *-?[\d.]+ \|)+)",
          "latency in us and bandwidth in GB/s that NCCL expects"),
    _kind("tuning_more", "threadThresholds Enabled", r"threadThresholds |Enabled NCCL", "limits"),
    # operations
    _kind("operation", "AllReduce AllGather ReduceScatter Broadcast Reduce Send Recv SendRecv"
          " Gather"
          " Scatter AllToAll AlltoAll AllToAllv AlltoAllv AllToAllPivot PutSignal WaitSignal Signal"
          " Broadcast",
          r"(?P<op>\w+): opCount (?P<opcount>[0-9a-fA-F]+) sendbuff \S+ recvbuff \S+ count"
          r" (?P<count>\d{1,18}) datatype (?P<dtype>\d{1,9}) op (?P<redop>\d{1,9}) root"
          r" (?P<root>-?\d{1,9})"
          rf" comm (?P<comm>{_PTR}) \[nranks=(?P<nranks>\d{{1,9}})\] stream (?:{_PTR})",
          "an operation that a rank was asked for"),
    _kind("operation_call", "nccl", r"nccl\w+\(", "a call of the library, at level TRACE"),
    _kind("call", "ncclAllReduce ncclAllGather ncclReduceScatter ncclBroadcast ncclBcast ncclReduce"
          " ncclSend ncclRecv ncclCommInitRank ncclGroupStart ncclGroupEnd ncclCommDestroy"
          " ncclGetUniqueId ncclCommAbort ncclCommInitAll ncclCommSplit ncclCommFinalize"
          " ncclCommRegister ncclCommDeregister ncclMemAlloc ncclMemFree ncclCommInitRankConfig",
          r"nccl\w+\s?\(", "a call of the library, at level TRACE"),
    # the rest of INIT, P2P, PROXY, ALLOC, BOOTSTRAP, RAS, which says nothing that is shown
    _kind("version", "NCCL RCCL cudaDriverVersion hipDriverVersion HIP ROCm CUDA ROCr",
          r"(?:(?P<library>[NR]CCL) version ?:? ?(?P<version>\d[\w.+-]*)|(?:cuda|hip)DriverVersion"
          r" (?P<driver>\d{1,9})|(?:HIP|ROCm|CUDA|ROCr?) version|RCCL |NCCL_)", "versions"),
    _kind("proxy_connection", "New", r"New proxy \w+ connection \d+ from local rank \d+, transport"
          r" \d+\s*$", "one connection of those threads"),
    _kind("proxy", "[ New Proxy UDS ProxyCall proxy Received Queuing resp ncclPollProxyResponse"
          " Connection proxyProgressAsync proxyUDSRecvReq recvConnect sendConnect",
          r"\[(?:Proxy|Service|\d)|New proxy|Proxy|UDS|proxy|Received and|Queuing|resp\.|ncclPoll|"
          r"Connection |recvConnect|sendConnect", "threads that serve the network"),
    _kind("p2p_off", "P", r"P2P is disabled between(?P<nvlink> NVLINK)? connected GPUs"
          r" (?P<a>\d{1,9}) and (?P<b>\d{1,9})", "GPUs that could, and do not, reach each other"),
    _kind("p2p_more", "P Check ncclP Could Legacy peer", r"P2[pP] |Check P2P|ncclP2p|Could not"
          r" enable P2P|Legacy IPC|peer query", "about peer access"),
    _kind("memory", "CUMEM MMAP Allocated MemManager Mem Init Cuda cuMem Symmetric Binding Inserted"
          " DMA GDRCOPY DMABUF Freed Imported Unable",
          r"CUMEM|MMAP|Allocated|MemManager|Mem |Init CE|C[Uu]\w* |cuMem |Symmetric|Binding|"
          r"Inserted|DMA-BUF|GDRCOPY|Freed|Imported|Unable", "memory"),
    _kind("init_more", "CC Rank Call Using PXN Trying DL Symbol Symmetric Local Communicator init"
          " dlvsym Failed Resource NVLS Bind Lib Enabling Launch workFifo libibverbs rank ras RAS"
          " Continuing timings Warning retrying socketStartConnect ncclCommInitRankFunc",
          r"CC |Rank \d+|Call to|Using |PXN |Trying |DL|Symbol|Symmetric|Local |Communicator|"
          r"init\.|"
          r"dlvsym|Failed to (?:open|find|initialize)|Resource|Bind|Lib|Enabling|Launch|workFifo|"
          r"libibverbs|rank \d+|ras|RAS |Continuing|timings|Warning|retrying|socket",
          "details of starting"),
    _kind("trace_of_error", "", r"(?:\S+/)?[\w.-]+\.(?:cc|cu|cpp|c|h|hpp):\d+ -> (?P<code>\d{1,9})"
          r"(?: \[(?P<thread>[^\]]*)\])?", "the way of an error through the library"),
    _kind("closed", "", r".*(?:Connection closed by|Accept failed|[Cc]onnection refused|"
          r"Connection reset)", "that a peer is gone"),
    _kind("amd", "MSCCL RCCL Disabling Setting Hardware Found rocm comm kernel Kernel initialized ["
          " Dmabuf Hostname Librccl rank", r"MSCCL|RCCL|Disabling clique|Setting cudaLimit|"
          r"Hardware |rocm|"
          r"[Kk]ernel |initialized internal|\[node_id|Dmabuf|Hostname|Librccl|comm .*",
          "about RCCL"),
)  # fmt: skip


def first_word(text: str) -> str:
    """The word by which kinds are found: letters, "0" for a digit, or one other character.

    >>> [first_word(text) for text in ("  AllReduce: opCount", "24 coll", "[Rank 0]", "")]
    ['AllReduce', '0', '[', '']
    """
    match = _FIRST.match(text)
    if match is None:
        return ""
    return "0" if match[1].isdigit() else match[1]


def _by_first() -> dict[str, tuple[LineKind, ...]]:
    words = {word for kind in KINDS for word in kind.first}
    return {
        word: tuple(kind for kind in KINDS if word in kind.first or not kind.first)
        for word in (*words, "")
    }


BY_FIRST = _by_first()


@functools.lru_cache(4096)  # ranks print the same
def match_of(text: str) -> tuple[LineKind, re.Match[str]] | None:
    """The kind of a message; None if no kind says it.

    >>> kind, match = match_of("Ring 00 : 3 -> 0 -> 1")
    >>> kind.name, match["after"]
    ('ring', '1')
    """
    if text[:1] == " ":
        text = text.lstrip()
    for kind in _kinds_at(text.partition(" ")[0]):
        match = kind.pattern.match(text)
        if match is not None:
            return kind, match
    return None


@functools.lru_cache(4096)
def _kinds_at(start: str) -> tuple[LineKind, ...]:
    """Those that may begin so, up to a blank."""
    return BY_FIRST.get(first_word(start), BY_FIRST[""])
