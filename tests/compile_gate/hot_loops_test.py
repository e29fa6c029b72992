#!/usr/bin/env python3
"""Counting itself, on a few lines as each compiler writes them, and what of it fails."""

import unittest

import hot_loops
import listings

# A loop inside another one; two loads are under way at once.
AMD = """
BB0:
	s_mov_b32 s11, 0                                            ; be8b0080
	s_branch BB1                                                ; bfa00018
	s_nop 0                                                     ; bf800000
	(then repeated 9 times)
BB2:
	global_load_b128 v[4:7], v3, s[16:17]                       ; dc560000 04100003
	global_load_b32 v8, v3, s[18:19]                            ; dc560000 04100003
	s_waitcnt vmcnt(1)                                          ; bf8903f7
	ds_store_b128 v1, v[4:7]                                    ; d8dc0000
	s_waitcnt vmcnt(0)                                          ; bf8903f7
BB3:
	ds_load_b128 v[4:7], v1                                     ; d9fc0000
	v_wmma_f32_16x16x16_f16 v[9:16], v[17:24], v[25:32], v[9:16] ; cc404009
	v_dual_fmac_f32 v1, v2, v3 :: v_dual_mul_f32 v4, v5, v6     ; c8c80302
	s_cbranch_scc0 BB3                                          ; bfa1fff0
	v_add_f32_e32 v1, v2, v3                                    ; 06040702
BB1:
	s_cmp_ge_u32 s11, s2                                        ; bf09020b
	s_cbranch_scc0 BB2                                          ; bfa1fff0
BB4:
	s_endpgm                                                    ; bfb00000
"""

# The loop's second half is printed behind what follows it. The load names scoreboard 0; the first wait is of another.
NVIDIA = """
block.u 0 L1 [] -> {
      ur0      = mov rZ                                         // delay=12
} -> [1]
block 1 L0 [0, 3] -> {
      r1       = ld.global.a64.strong.gpu.b32 [r10..12], pT     // delay=6 wr:0
      r2       = ld.global.a64.strong.gpu.b32 [r10..12], pT     // delay=6 wr:0
      p0       = isetp.ge.u32 ur9 ur7                           // delay=11 wt=000100
@!p0             bra pT L53                                     // delay=1 wt=001011
} -> [2, 3]
block 2 L4 [1] -> {
                 exit                                           // delay=1
} -> []
block 3 L53 [1] -> {
      r0..4    = hmma.m16n8k16.f32 r128..132 r150..152 r0..4    // delay=6 wt=010000 wr:0
      r3       = ldsm.16.m8n8.x4 [r98]                          // delay=1 wr:1
      r3       = ffma.ftz r8 r12 r2                             // delay=1 wt=000010
                 bra pT L0                                      // delay=1
} -> [1]
"""

INTEL = """
mov(16)         g4<1>UD         0x00000000UD                    { align1 1H };

LABEL1:
cmp.ge.f0.0(16) null<1>UD       g4<8,8,1>UD     g88<8,8,1>UD    { align1 1H @2 $2.dst };
(+f0.0) break(16) JIP:  LABEL0        UIP:  LABEL0              { align1 1H };
sync nop(1)                     null<0,1,0>UB                   { align1 WE_all 1N A@1 };
send(16)        g108UD          g36UD           nullUD          0x08200580                0x00000000
                ugm MsgDesc: ( load, a64, d32, V1, L1STATE_L3MOCS dst_len = 2, src0_len = 4, src1_len = 0 flat )  base_offset 0  { align1 1H $1 };
send(16)        nullUD          g36UD           g40UD           0x08200580                0x00000000
                slm MsgDesc: ( store, a32, d32, V4, L1STATE_L3MOCS dst_len = 0, src0_len = 1, src1_len = 4 flat )  base_offset 0  { align1 1H $3 };
math exp(16)    g124<1>F        g15<8,8,1>F     null<8,8,1>F    { align1 1H @2 $4 };
dpas.8x8(16)    g49<1>F         g25<1,1,0>F     g33<1,1,0>HF    g1<1,1,0>HF { align1 WE_all 1Q $10 };
sync nop(1)                     null<0,1,0>UB                   { align1 WE_all 1N $1.dst };
mad(16)         g101<1>F        g101<8,8,1>F    g120<8,8,1>F    g108<1,1,1>F { align1 1H A@1 };

LABEL0:
while(16)       JIP:  LABEL1                                    { align1 1H };
mov(16)         g37<1>UD        0x00000000UD                    { align1 1H $1.src };
"""

QUALCOMM = """
Native code for unnamed CL shader (null) with blake3 406b43508f3e988278ba963b5159a03b6a31cb0c7b315cec6d3908c4dc48a62d:
; num_ubos:           0
@const(c9.x)	0xfe967699, 0x00000000, 0xd0d0d0d0, 0xd0d0d0d0
shps #l10
l10:
mov.f32f32 r0.w, c2.z
l71:
(nop3) cmps.u.ge p0.x, r4.w, r3.z
br p0.x, #l92
(rpt1)nop
ldg.u32 r6.z, g[r5.z], 1
ldl.u32 r7.z, l[r5.z], 1
(sy)(rpt3)mad.f32 r4.z, (last)r4.z, (last)(r)r6.z, r4.z
jump #l71
l92:
(jp)mov.u32u32 r6.w, 0
end
"""


def count_of(text, work=None):
    """What a turn of the only loop that is in no other one issues, and its loads in flight."""
    program = listings.parse(text)
    (loop,) = listings.loops_of(program)
    return listings.tally(program, loop, work), listings.loads_in_flight(program, loop)


class Listings(unittest.TestCase):
    def expect(self, count, **numbers):
        self.assertEqual({name: count[name] for name in numbers}, numbers)

    def test_of_amd_vector_instructions_are_told_from_others_and_from_matrices(self):
        count, in_flight = count_of(AMD)
        self.expect(count, vector=2, all=11, mma=1, lds=2, loads=2, products=1, mma_products=4096)
        self.assertEqual(in_flight, 2, "though the second is waited for alone")

    def test_a_loop_inside_turns_until_its_products_are_done(self):
        count, _ = count_of(AMD, listings.Work(products=4 * 4096, what="mma_products"))
        self.expect(count, mma=4, vector=1 + 4, lds=1 + 4)

    def test_and_as_often_as_it_is_said_if_it_has_none(self):
        count, _ = count_of(AMD, listings.Work(trips=3))
        self.expect(count, mma=3)

    def test_copies_of_a_loop_for_cases_that_exclude_each_other_count_once(self):
        work = listings.Work(products=16, phases=2)
        self.assertEqual(work.turns(16, [8, 8]), [1, 1])
        self.assertEqual(work.turns(0, [8, 4]), [2, 4], "two phases, each in a loop of its own")
        self.assertEqual(work.turns(16, [8, 0]), [2, 1], "the second phase is in no loop")
        self.assertEqual(work.turns(32, [32]), [0.5], "every other subgroup has nothing to do in it")

    def test_of_nvidia_blocks_that_are_out_of_order_are_of_the_loop(self):
        count, in_flight = count_of(NVIDIA)
        self.expect(count, all=7, mma=1, mma_products=2048, lds=1, loads=2, products=1)
        self.assertEqual(in_flight, 2)

    def test_of_intel_messages_are_the_line_before_them_and_waiting_is_no_instruction(self):
        count, in_flight = count_of(INTEL)
        self.expect(count, all=7, mma=1, mma_products=2048, lds=1, loads=1, products=16)
        self.assertEqual(in_flight, 1)

    def test_of_qualcomm_repetitions_and_waits_count(self):
        count, in_flight = count_of(QUALCOMM)
        self.expect(count, all=4 + 1 + 2 + 1 + 1 + 4 + 1, lds=1, loads=1, products=4)
        self.assertEqual(in_flight, 1)

    def test_the_hot_loop_is_the_largest_of_all_or_of_those_without_another_inside(self):
        program = listings.parse(AMD)
        self.assertIn("BB1", listings.hot_loop(program, innermost=False).blocks)
        self.assertEqual(listings.hot_loop(program, innermost=True).blocks, {"BB3"})
        self.assertIsNone(listings.hot_loop(listings.parse("BB0:\n\ts_endpgm\n"), innermost=False))

    def test_what_is_no_listing_is_an_error(self):
        with self.assertRaises(ValueError):
            listings.parse("main:\n  ret\n")


def statistics(**values):
    return {"pipeline": "gemv.q4_k.subgroup", "VGPRs": 96, "Spilled VGPRs": 0, "Subgroups per SIMD": 16,
            "kernel": "gemv", "type": "Q4_K", "rows": 1, "head_dim": 0, "unit": "weight", "units": 2,
            "innermost": False, "products": 0, "phases": 1, "trips": 1, "listing": AMD, **values}


class Rows(unittest.TestCase):
    def test_instructions_are_by_unit_and_of_amd_vector_ones(self):
        row = hot_loops.row_of(statistics(), "amd-navi31")
        self.assertEqual((row["instructions"], row["all"], row["registers"], row["waves"], row["spills"]),
                         (1.0, 5.5, 96, 16, 0))
        self.assertEqual(hot_loops.row_of(statistics(), "nvidia-gh100")["instructions"], 5.5)

    def test_of_matrices_the_unit_is_one_and_of_gemm_a_step(self):
        of_attention = statistics(unit="mma", units=0, products=8192)
        self.assertEqual(hot_loops.row_of(of_attention, "amd-navi31")["instructions"], 1.5)
        of_gemm = {**of_attention, "kernel": "gemm_matrix"}
        self.assertEqual(hot_loops.row_of(of_gemm, "amd-navi31")["instructions"], 3)

    def test_a_kernel_of_matrices_without_any_is_an_error(self):
        with self.assertRaises(ValueError):
            hot_loops.row_of(statistics(unit="mma", listing=QUALCOMM), "adreno-750")


KEY = ("amd-navi31", "gemv", "Q4_K", "1", "0")


def row(**values):
    return {"unit": "weight", "instructions": 100, "all": 120, "mmas": 0, "loads_in_flight": 4,
            "lds_per_mma": None, "registers": 96, "waves": 16, "spills": 0, **values}


class Check(unittest.TestCase):
    def check(self, **values):
        return hot_loops.check({KEY: row()}, {KEY: row(**values)})

    def test_what_is_as_it_was_or_nearly_so_says_nothing(self):
        for now in ({}, {"instructions": 101.9}, {"instructions": 98.5}, {"registers": 128}):
            self.assertEqual(self.check(**now), ([], []))

    def test_more_instructions_spills_and_fewer_loads_in_flight_fail(self):
        self.assertEqual(self.check(instructions=103), (["amd-navi31 gemv Q4_K 1 0: instructions 100 to 103"], []))
        self.assertEqual(self.check(spills=1), (["amd-navi31 gemv Q4_K 1 0: spills 0 to 1"], []))
        self.assertEqual(self.check(loads_in_flight=3), (["amd-navi31 gemv Q4_K 1 0: loads_in_flight 4 to 3"], []))

    def test_fewer_instructions_are_a_note(self):
        self.assertEqual(self.check(instructions=90), ([], ["amd-navi31 gemv Q4_K 1 0: instructions 100 to 90"]))

    def test_rows_that_are_new_or_gone_fail_until_they_are_written_down(self):
        self.assertEqual(len(hot_loops.check({}, {KEY: row()})[0]), 1)
        other = ("amd-navi31", "gemv", "Q4_K", "2", "0")
        self.assertEqual(len(hot_loops.check({KEY: row()}, {other: row()})[0]), 2)

    def test_platforms_that_were_not_compiled_are_left_alone(self):
        self.assertEqual(hot_loops.check({("intel-bmg", *KEY[1:]): row()}, {KEY: row()})[0],
                         hot_loops.check({}, {KEY: row()})[0])

    def test_a_written_table_reads_back(self):
        table = {KEY: row(lds_per_mma=9.7, instructions=2.5), ("intel-bmg", *KEY[1:]): row(waves=None)}
        self.assertEqual(hot_loops.read_table(hot_loops.write_table("26.1.6-1", table)), ("26.1.6-1", table))


if __name__ == "__main__":
    unittest.main()
