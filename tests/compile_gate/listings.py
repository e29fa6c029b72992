"""Machine code as four compilers print it, read into blocks, and its loops counted.

`parse(text)` knows Mesa's listings for AMD (RADV), NVIDIA (NAK), Intel and Qualcomm (IR3) by their looks.
Loops are the strongly connected components of the control-flow graph; without the blocks by which one is
entered, those inside it. Nothing of a listing is trusted to be in the order in which it runs.
"""

import collections
import dataclasses
import re


@dataclasses.dataclass
class Instruction:
    op: str
    issued: int = 1        # how often it is issued: repetitions, and waits written as part of it
    vector: bool = True    # AMD's are counted by these; elsewhere all are
    mma: bool = False
    products: int = 0      # multiplications with an addition: of the MMA, else of a lane
    lds: bool = False
    load: object = None    # of memory other than shared: what is waited for, None if it is none
    waits: object = None   # a set of such, or the number of loads that may be left under way


@dataclasses.dataclass
class Program:
    blocks: dict = dataclasses.field(default_factory=dict)      # name → instructions
    successors: dict = dataclasses.field(default_factory=dict)  # name → names


@dataclasses.dataclass
class Loop:
    blocks: set
    inner: list


def reachable(program, first):
    """Of a program the blocks to which `first` leads. What names no block is the end."""
    names = {name for name, _ in depth_first(program.blocks, program.successors, [first])}
    return Program({name: block for name, block in program.blocks.items() if name in names},
                   {name: [target for target in program.successors[name] if target in names] for name in names})


class BlockBuilder:
    """Blocks of a listing in which labels and branches are lines, and a block runs on into the next one."""

    def __init__(self):
        self.program = Program()
        self.current = None
        self.falls = False
        self.label("")

    def label(self, name):
        if self.falls:
            self.program.successors[self.current].append(name)
        self.current, self.falls = name, True
        self.program.blocks[name], self.program.successors[name] = [], []

    def add(self, instruction, targets=(), falls=True):
        self.program.blocks[self.current].append(instruction)
        if targets or not falls:
            self.program.successors[self.current] += targets
            self.falls = falls
            self.label(f"{self.current}+")

    def done(self):
        return reachable(self.program, "")


def parse_amd(lines):
    builder = BlockBuilder()
    for line in lines:
        text = line.partition(";")[0].strip()
        label = re.fullmatch(r"(BB\d+):", text)
        if label:
            builder.label(label[1])
        elif re.match(r"[a-z]", text):
            op = text.split()[0]
            builder.add(amd_instruction(op, text), re.findall(r"\bBB\d+\b", text),
                        falls=op not in ("s_branch", "s_endpgm", "s_setpc_b64"))
    return builder.done()


def matrix_products(op):
    """v_wmma_f32_16x16x16_f16, hmma.m16n8k16.f32"""
    m, n, k = re.search(r"m?(\d+)[xn](\d+)[xk](\d+)", op).groups()
    return int(m) * int(n) * int(k)


def amd_instruction(op, text):
    mma = "wmma" in op
    return Instruction(op, vector=op.startswith("v_") and not mma, mma=mma, lds=op.startswith("ds_"),
                       products=matrix_products(op) if mma else
                       len(re.findall(r"\bv_(?:dual_|pk_)?(?:fma|fmac|mad|dot)", text)),
                       load="memory" if re.match(r"(global|buffer|flat|scratch)_load", op) else None,
                       waits=amd_loads_left(text))


def amd_loads_left(text):
    found = re.search(r"\bvmcnt\((\d+)\)", text) or re.match(r"s_wait_loadcnt\s+(\w+)", text)
    if found:
        return int(found[1], 0)
    found = re.match(r"s_wait_loadcnt_dscnt\s+(\w+)", text)
    return int(found[1], 0) >> 8 if found else None  # two counters in a word


def parse_nvidia(lines):
    program, name = Program(), None
    for line in lines:
        text, _, schedule = line.partition("//")
        opened = re.match(r"block\S* (\d+) ", text)
        closed = re.match(r"\} -> \[(.*)\]", text)
        if opened:
            name = int(opened[1])
            program.blocks[name] = []
        elif closed:
            program.successors[name] = [int(each) for each in closed[1].split(",") if each.strip()]
        elif name is not None and text.strip():
            program.blocks[name].append(nvidia_instruction(text.strip(), schedule))
    return reachable(program, 0)


def nvidia_instruction(text, schedule):
    text = re.sub(r"^@\S+\s+", "", text)
    op = re.split(r"\s=\s+", text, maxsplit=1)[-1].split()[0]
    base = op.split(".")[0]
    # Scoreboards: a load names one, a later instruction has a mask of those it waits for.
    written = re.search(r"\bwr:(\d)", schedule)
    mask = re.search(r"\bwt=([01]+)", schedule)
    waits = {i for i, bit in enumerate(reversed(mask[1])) if bit == "1"} if mask else None
    mma = base.endswith("mma")
    return Instruction(op, mma=mma,
                       products=matrix_products(op) if mma else base in ("ffma", "hfma2", "idp", "idp4"),
                       lds=base == "ldsm" or op.startswith(("ld.shared", "st.shared")),
                       load=int(written[1]) if written and op.startswith("ld.global") else None, waits=waits)


def parse_intel(lines):
    builder, instruction = BlockBuilder(), None
    for line in lines:
        text = line.strip()
        label = re.fullmatch(r"(LABEL\d+):", text)
        found = re.match(r"(?:\([^)]*\)\s*)?((?:math |sync )?[a-z][a-z0-9_.]*)\s*\((\d+)\)", text)
        message = re.match(r"(\w+) MsgDesc: \(\s*(\w+)", text)
        if label:
            builder.label(label[1])
        elif found:
            base, width = found[1].split(".")[0], int(found[2])
            instruction = Instruction(found[1], issued=not base.startswith("sync"), mma=base == "dpas",
                                      waits=intel_waits(text))
            if base == "dpas":  # DEPTHxREPEATS; each step of the depth is two halves of every operand
                depth, repeats = re.search(r"\.(\d+)x(\d+)", found[1]).groups()
                instruction.products = 2 * int(depth) * int(repeats) * width
            elif base in ("mad", "dp4a"):
                instruction.products = width  # of all lanes, which a subgroup needs several of
            # `while` goes back to a label unless no lane is left; what others name lies ahead.
            targets = [] if base == "endif" else sorted(set(re.findall(r"\b[JU]IP:\s+(LABEL\d+)", text)))
            builder.add(instruction, targets, falls=base != "else")
        elif message and instruction:  # the second line of a `send`
            instruction.lds = message[1] == "slm" and message[2] in ("load", "store")
            token = re.search(r"\$(\d+)\b(?!\.)", text)
            if message[1] == "ugm" and message[2] == "load" and token:
                instruction.load = int(token[1])
    return builder.done()


def intel_waits(text):
    return {int(token) for token in re.findall(r"\$(\d+)\.dst", text)} or None


def parse_qualcomm(lines):
    builder = BlockBuilder()
    for line in lines:
        text = line.strip()
        label = re.fullmatch(r"(l\d+):", text)
        found = re.match(r"((?:\([a-z]+\d*\)\s*)*)([a-z][a-z0-9_]*)((?:\.\w+)*)(?:\s|$)", text)
        if label:
            builder.label(label[1])
        elif found and found[2] not in ("shps", "getone"):
            flags, op = found[1], found[2]
            turns = 1 + sum(int(number) for number in re.findall(r"\(rpt(\d+)\)", flags))
            waiting = sum(int(number) for number in re.findall(r"\(nop(\d+)\)", flags))
            builder.add(Instruction(op + found[3], issued=turns + waiting,
                                    products=turns if op in ("mad", "dp4acc", "dp2acc") else 0,
                                    lds=op in ("ldl", "stl", "ldlw", "stlw"),
                                    load="memory" if op in ("ldg", "isam", "ldib") else None,
                                    waits=0 if "(sy)" in flags else None),
                        re.findall(r"#(l\d+)", text), falls=op not in ("jump", "end"))
    return builder.done()


DIALECTS = ((r"BB\d+:$", parse_amd), (r"block\S* \d+ ", parse_nvidia),
            (r".*\{ align1 ", parse_intel), (r"Native code for ", parse_qualcomm))


def parse(text):
    """A Program. ValueError: it looks like none of them."""
    lines = text.splitlines()
    for pattern, parser in DIALECTS:
        if any(re.match(pattern, line) for line in lines):
            return parser(lines)
    raise ValueError("no listing of a compiler that is known here")


def depth_first(nodes, successors, roots):
    """(node, whether it is left) in the order in which a search among `nodes` comes to and leaves them."""
    seen = set()
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        yield root, False
        work = [(root, iter(successors.get(root, ())))]
        while work:
            node, targets = work[-1]
            target = next((each for each in targets if each in nodes and each not in seen), None)
            if target is None:
                work.pop()
                yield node, True
            else:
                seen.add(target)
                yield target, False
                work.append((target, iter(successors.get(target, ()))))


def components(nodes, successors):
    """Strongly connected ones that are loops, as sets (Kosaraju's algorithm)."""
    backwards = collections.defaultdict(list)
    for name in nodes:
        for target in successors.get(name, ()):
            backwards[target].append(name)
    left = [node for node, is_left in depth_first(nodes, successors, nodes) if is_left]
    found, current = [], None
    remaining = set(nodes)
    for root in reversed(left):
        if root not in remaining:
            continue
        current = {node for node, is_left in depth_first(remaining, backwards, [root]) if is_left}
        remaining -= current
        if len(current) > 1 or root in successors.get(root, ()):
            found.append(current)
    return found


def entries(program, blocks):
    """Those by which a loop is entered from outside, in the order of the listing."""
    from_outside = {target for name, targets in program.successors.items() if name not in blocks for target in targets}
    return [name for name in program.blocks if name in blocks and name in from_outside] or [min(blocks, key=str)]


def loops_of(program, nodes=None):
    """Loops that are in no other one of `nodes` (all), each with those inside it."""
    nodes = set(program.blocks) if nodes is None else nodes
    return [Loop(blocks, loops_of(program, blocks - set(entries(program, blocks))))
            for blocks in components(nodes, program.successors)]


def tally(program, loop, work=None):
    """Counter of what a turn of the loop issues: all and vector besides mma, mma, lds, loads; and products,
    mma_products. How often loops inside it turn, `work` knows."""
    total = collections.Counter()
    inside = set()
    for inner in loop.inner:
        inside |= inner.blocks
    for name in loop.blocks - inside:
        for instruction in program.blocks[name]:
            besides = 0 if instruction.mma else instruction.issued
            total["all"] += besides
            total["vector"] += besides if instruction.vector else 0
            total["mma"] += instruction.mma
            total["lds"] += instruction.lds
            total["loads"] += instruction.load is not None
            total["mma_products" if instruction.mma else "products"] += instruction.products
    counts = [tally(program, inner, work) for inner in loop.inner]
    turns = work.turns(total[work.what], [count[work.what] for count in counts]) if work else [1] * len(counts)
    for count, often in zip(counts, turns):
        for what, number in count.items():
            total[what] += number * often
    return total


@dataclasses.dataclass
class Work:
    """What is done in a turn of the hot loop: `phases` times so many products, each phase in a loop of its
    own or in none. A loop that has next to none of them turns `trips` times."""
    products: int = 0
    phases: int = 1
    trips: int = 1
    what: str = "products"  # or mma_products

    def turns(self, own, each):
        """How often loops with so many products each turn, beside which there are `own`."""
        has_share = [self.products > 0 and products * 64 >= self.products for products in each]
        turns = [max(1.0, self.products / products) if share else self.trips
                 for products, share in zip(each, has_share)]
        # Of a loop there may be copies, for cases that exclude each other, and subgroups that have no share.
        there = sum(products * often for products, often, share in zip(each, turns, has_share) if share)
        left = max(self.products * self.phases - own, self.products)
        if there > 1.25 * left:
            turns = [often * left / there if share else often for often, share in zip(turns, has_share)]
        return turns


def loads_in_flight(program, loop):
    """How many loads are under way at most while one is, of the loop's loads the middle one (the lower of
    two). 0: it has none, or waits for none of them itself."""
    left = [node for node, is_left in depth_first(loop.blocks, program.successors, entries(program, loop.blocks))
            if is_left]
    instructions = [each for name in reversed(left) for each in program.blocks[name]]
    under_way, counts = [], []  # [what is waited for, most under way]
    for turn in range(2):  # what one turn loads may be waited for in the next
        for instruction in instructions:
            if instruction.waits is not None:
                if isinstance(instruction.waits, set):
                    kept = [load for load in under_way if load[0] not in instruction.waits]
                else:
                    kept = under_way[max(0, len(under_way) - instruction.waits):]
                if turn == 1:
                    counts += [load[1] for load in under_way if not any(load is other for other in kept)]
                under_way = kept
            if instruction.load is not None:
                under_way.append([instruction.load, 0])
                for load in under_way:
                    load[1] = max(load[1], len(under_way))
    return sorted(counts)[(len(counts) - 1) // 2] if counts else 0


def hot_loop(program, innermost):
    """The largest loop of those that are in no other, or of those that have none inside. None: there is none."""
    def leaves(loops):
        for loop in loops:
            yield from leaves(loop.inner) if loop.inner else [loop]

    loops = loops_of(program)
    candidates = list(leaves(loops)) if innermost else loops
    return max(candidates, key=lambda loop: sum(len(program.blocks[name]) for name in loop.blocks), default=None)
