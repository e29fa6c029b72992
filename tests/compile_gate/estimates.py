#!/usr/bin/env python3
"""Prints the tables of docs/PERFORMANCE.md: what hot_loops.txt counts, and what speed that makes by its model.

No GPU has measured these: a model's numbers are right within a third at best. The model, for a GPU of one
bandwidth, rate of issue (subgroups' instructions) and matrix peak:

  decode   seconds = max(bytes / (0.88 bandwidth), instructions / (0.75 rate)) + dispatches * 2 us, of 8 B
           parameters in Q4_K_M: 7.5 G weights a token of 4.85 bits, a fifth of them Q6_K; 262 dispatches. Products that read
           planes leave norms and gates to dispatches of their own: 389
  prompt   share of the matrix peak = MMA clocks / (MMA clocks + instructions beside them) * 0.8 * 0.85:
           what else a core waits for, and tiles that the matrix does not fill
  prompt attention   the same without the second factor; it is all that issue allows, waiting for loads not
           among it
"""

import dataclasses

import hot_loops


@dataclasses.dataclass
class Gpu:
    name: str
    platform: str
    bytes_per_s: float
    cores: int          # what issues one subgroup's instruction a clock
    clock_hz: float
    lanes: int
    matrix_flops: float
    mma_flops: float    # of one instruction


GPUS = [
    Gpu("H100", "nvidia-gh100", 3.35e12, 132 * 4, 1.755e9, 32, 989e12, 2 * 16 * 8 * 16),
    Gpu("RTX 4090", "nvidia-ad102", 1.008e12, 128 * 4, 2.52e9, 32, 165e12, 2 * 16 * 8 * 16),
    Gpu("RX 7900 XTX", "amd-navi31", 0.96e12, 96 * 2, 2.5e9, 32, 122e12, 2 * 16 * 16 * 16),
    Gpu("Arc B580", "intel-bmg", 0.456e12, 20 * 8, 2.67e9, 16, 117e12, 2 * 8 * 16 * 16),
    Gpu("Adreno 830", "adreno-830", 77e9, 24, 1.1e9, 64, 0, 0),
]
WEIGHTS, WEIGHT_BYTES, Q6_K_SHARE, DISPATCHES, PLANES_DISPATCHES = 7.5e9, 4.85 / 8, 0.2, 262, 389


def decode_share(gpu, q4_k, q6_k, dispatches=DISPATCHES):
    """Of bandwidth, with so many instructions a weight."""
    bytes_read = WEIGHTS * WEIGHT_BYTES
    a_weight = (1 - Q6_K_SHARE) * q4_k + Q6_K_SHARE * q6_k
    issued = WEIGHTS * a_weight / gpu.lanes / (0.75 * gpu.cores * gpu.clock_hz)
    seconds = max(bytes_read / (0.88 * gpu.bytes_per_s), issued) + dispatches * 2e-6
    return bytes_read / gpu.bytes_per_s / seconds


def mma_share(gpu, instructions_per_mma):
    """Of the matrix peak, with so many instructions beside each MMA."""
    clocks = gpu.mma_flops / (gpu.matrix_flops / (gpu.cores * gpu.clock_hz))
    return clocks / (clocks + instructions_per_mma) * 0.8


def rows_of(table, platform, kernel, kind, head_dim=0):
    """Rows of the table by rising tile rows; none where the platform has no such kernel."""
    found = [(int(key[3]), row) for key, row in table.items()
             if (*key[:3], key[4]) == (platform, kernel, kind, str(head_dim))]
    return [row for _, row in sorted(found, key=lambda each: each[0])]


def decode_of(gpu, table, kernel):
    """Of bandwidth by a kernel, None where the GPU has no such one."""
    if not rows_of(table, gpu.platform, kernel, "Q4_K"):
        return None
    q4_k, q6_k = (rows_of(table, gpu.platform, kernel, kind)[0]["instructions"] for kind in ("Q4_K", "Q6_K"))
    return decode_share(gpu, q4_k, q6_k, PLANES_DISPATCHES if kernel == "gemv_planes" else DISPATCHES)


def estimates_of(gpu, table):
    """(decode in floats, in planes, prompt, attention over a prompt), None where the GPU has no such kernel."""
    decode = decode_of(gpu, table, "gemv"), decode_of(gpu, table, "gemv_planes")
    gemm = rows_of(table, gpu.platform, "gemm_matrix", "Q4_K")
    if not gemm:
        return *decode, None, None
    (attention,) = rows_of(table, gpu.platform, "flash_attention.prefill", "f16", 128)
    of_attention = mma_share(gpu, attention["all"]) if attention["unit"] == "mma" else None
    return *decode, 0.85 * mma_share(gpu, gemm[-1]["all"] / gemm[-1]["mmas"]), of_attention


def cell_of(rows):
    """Instructions a unit, or a step's beside its MMAs; loads in flight with the fewest rows; spills."""
    if not rows:
        return "-"
    counts = [f"{row['instructions']:g}" + (f" : {row['mmas']:g}" if row["mmas"] else "") for row in rows]
    spills = sum(row["spills"] for row in rows)
    return f"{' / '.join(counts)} ({rows[0]['loads_in_flight']:g})" + (f" **{spills:g} spills**" if spills else "")


def main():
    version, table = hot_loops.read_table(hot_loops.TABLE.read_text())
    print(f"Mesa {version}:\n")
    platforms = [name for name in hot_loops.PLATFORMS if any(key[0] == name for key in table)]
    print("| | " + " | ".join(platforms) + " |\n|" + "---|" * (len(platforms) + 1))
    for kernel, kind, head_dim in sorted({(key[1], key[2], int(key[4])) for key in table}):
        cells = [cell_of(rows_of(table, platform, kernel, kind, head_dim)) for platform in platforms]
        name = f"{kernel} {kind}" + (f", head_dim {head_dim}" if head_dim else "")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("\n| | decode, x in floats | in planes | prompt | attention over a prompt |\n|---|---|---|---|---|")
    for gpu in GPUS:
        shares = ["-" if share is None else f"{100 * share:.0f} %" for share in estimates_of(gpu, table)]
        print(f"| {gpu.name} | " + " | ".join(shares) + " |")


if __name__ == "__main__":
    main()
