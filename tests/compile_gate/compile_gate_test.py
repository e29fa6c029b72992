#!/usr/bin/env python3
"""The comparison itself: what fails the gate and what is only said."""

import unittest

import compile_gate


def row(**values):
    return {**dict.fromkeys(compile_gate.COLUMNS, 0), "vgprs": 64, "waves_per_simd": 8, **values}


class Compare(unittest.TestCase):
    key = ("navi31", "gemm.q4_k 0=128")

    def compare(self, before, now):
        return compile_gate.compare({self.key: before} if before else {}, {self.key: now} if now else {})

    def test_the_same_says_nothing(self):
        self.assertEqual(self.compare(row(), row()), ([], []))

    def test_a_new_spill_fails_and_says_how_much(self):
        failures, _ = self.compare(row(), row(spilled_vgprs=12))
        self.assertEqual(failures, ["navi31 gemm.q4_k 0=128: spilled_vgprs 12, was 0"])

    def test_scratch_memory_counts_as_a_spill(self):
        self.assertEqual(len(self.compare(row(), row(scratch_bytes=256))[0]), 1)

    def test_a_new_pipeline_that_spills_fails(self):
        self.assertEqual(len(self.compare(None, row(spilled_sgprs=1))[0]), 1)

    def test_a_spill_of_the_baseline_is_tolerated(self):
        self.assertEqual(self.compare(row(spilled_vgprs=12), row(spilled_vgprs=11))[0], [])

    def test_more_registers_fewer_waves_and_new_pipelines_are_notes(self):
        for before, now in ((row(), row(vgprs=72)), (row(), row(waves_per_simd=7)), (None, row())):
            failures, notes = self.compare(before, now)
            self.assertEqual((failures, len(notes)), ([], 1))

    def test_a_pipeline_that_is_gone_is_a_note_if_its_family_was_compiled(self):
        other = ("navi31", "gemv")
        _, notes = compile_gate.compare({self.key: row(), other: row(), ("vega10", "gemv"): row()},
                                        {other: row()})
        self.assertEqual(notes, ["navi31 gemm.q4_k 0=128: no longer declared"])

    def test_a_written_table_reads_back(self):
        table = {self.key: row(code_bytes=880), ("vega10", "gemv"): row()}
        self.assertEqual(compile_gate.read_table(compile_gate.write_table(table, "25.0.7")), table)


if __name__ == "__main__":
    unittest.main()
