#!/usr/bin/env python3
"""The rules themselves: what fails the gate and what is only said."""

import unittest

import compile_gate


def row(**values):
    return {**dict.fromkeys(compile_gate.COLUMNS, 0), "registers": 64, "waves": 8, "instructions": 100, **values}


KEY = ("intel-dg2", "gemm.q4_k 0=128")


class Compare(unittest.TestCase):
    def compare(self, before, now):
        return compile_gate.compare({KEY: before} if before else {("intel-dg2", "gemv"): row()}, {KEY: now})

    def test_the_same_says_nothing(self):
        self.assertEqual(self.compare(row(), row()), [])

    def test_more_registers_fewer_waves_and_more_instructions_are_notes(self):
        for now in (row(registers=72), row(waves=7), row(instructions=103)):
            self.assertEqual(len(self.compare(row(), now)), 1)

    def test_new_pipelines_and_those_gone_are_notes(self):
        self.assertEqual(self.compare(None, row()),
                         ["intel-dg2 gemm.q4_k 0=128: new, 100 instructions, 64 registers",
                          "intel-dg2 gemv: no longer declared"])

    def test_platforms_that_only_one_table_has_are_not_looked_at(self):
        self.assertEqual(compile_gate.compare({("amd-navi31", "gemv"): row()}, {KEY: row()}), [])

    def test_a_written_table_reads_back(self):
        table = {KEY: row(code_bytes=880), ("amd-navi31", "gemv"): row()}
        self.assertEqual(compile_gate.read_table(compile_gate.write_table(table, "26.1")), table)


class Spills(unittest.TestCase):
    def check(self, allowed, **values):
        return compile_gate.check_spills(compile_gate.read_allowed(allowed), {KEY: row(**values)})

    def test_a_spill_that_nothing_allows_fails_and_says_how_much(self):
        self.assertEqual(self.check("", spills=12, scratch_bytes=64),
                         ["intel-dg2 gemm.q4_k 0=128: 12 spills, 64 bytes of scratch"])

    def test_scratch_memory_counts_as_a_spill(self):
        self.assertEqual(len(self.check("", scratch_bytes=256)), 1)

    def test_a_spill_with_a_reason_passes_up_to_its_number(self):
        allowed = "# comment\nintel-* | gemm.* | 12 | too many sums\n"
        self.assertEqual(self.check(allowed, spills=12), [])
        self.assertEqual(len(self.check(allowed, spills=13)), 1)

    def test_another_platform_or_pipeline_is_not_covered(self):
        for allowed in ("apple-* | gemm.* | 12 | why", "intel-* | gemv.* | 12 | why"):
            self.assertIn("intel-dg2 gemm.q4_k 0=128: 12 spills, 0 bytes of scratch", self.check(allowed, spills=12))

    def test_a_line_that_allows_more_than_there_is_fails(self):
        self.assertEqual(len(self.check("intel-dg2 | gemm.* | 12 | why", spills=11)), 1)
        self.assertEqual(len(self.check("intel-dg2 | gemm.* | 12 | why")), 1)

    def test_a_line_for_a_platform_that_was_not_compiled_is_left_alone(self):
        self.assertEqual(self.check("apple-13g | gemm.* | 12 | why"), [])

    def test_a_line_without_a_reason_is_an_error(self):
        for line in ("intel-dg2 | gemm.* | 12 |", "intel-dg2 | gemm.* | some | why", "intel-dg2 gemm.*"):
            with self.assertRaises(ValueError):
                compile_gate.read_allowed(line)


if __name__ == "__main__":
    unittest.main()
