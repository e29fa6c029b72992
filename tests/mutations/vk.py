"""Bugs of runtime/vk."""

MUTATIONS = [
    # Barriers follow from declared ranges.
    ("a barrier does not hold back or wait for indirect grids", "runtime/vk/recorder.cpp",
     "(command.indirect.empty() ? 0 : VK_PIPELINE_STAGE_2_DRAW_INDIRECT_BIT)", "0", "test_recorder:RecordedBarriers.*"),
    ("a barrier forgets shader writes", "runtime/vk/recorder.cpp",
     "memory.srcAccessMask |= VK_ACCESS_2_SHADER_WRITE_BIT;", "",
     "test_recorder:RecordedBarriers.*"),
    ("a recording is not ordered after earlier submissions", "runtime/vk/recorder.cpp",
     "emit_barrier(work.segments_.back().commands, kAll, kAll);  // order after earlier submissions", "",
     "test_recorder:RecordedBarriers.*"),
    ("what a recording wrote is not made visible to the host", "runtime/vk/recorder.cpp",
     "emit_barrier(work.segments_.back().commands, kAll, kAll | VK_PIPELINE_STAGE_2_HOST_BIT);", "",
     "test_recorder:RecordedBarriers.*"),
    ("reading a grid is no access", "runtime/vk/recorder.cpp",
     "  if (!indirect.empty())\n", "  if (false)\n", "test_recorder:RecordedBarriers.*"),
    ("work that a watchdog cancelled counts as done", "runtime/vk/landing_marks.cpp",
     "load() == kWritten && all;", "load() <= kWritten && all;", "test_lost_device:LostDevice.ThatEnds*"),
    # Work is cut into pieces that a driver's watchdog lets end.
    ("commands are free in a segment", "runtime/vk/recorder.cpp",
     "options_.segment.holds(cost, n_commands + 1)", "options_.segment.holds(cost)", "test_recorder:SegmentTest.*"),
    # Snapshot, plan, device: what the device says is what counts.
    ("allowed memory types are ignored", "runtime/vk/plan.cpp",
     "if (i >= 32 || (allowed >> i & 1) == 0) continue;", "", "test_vk_plan:Plan.*"),
    ("a guest uses what the host did not enable", "runtime/vk/requirements.cpp",
     "left.features.*feature.member = false;", "{}", "test_vk_plan:Requirements.*"),
    # A guest of another's device.
    ("the host's queue is used while the host holds it", "runtime/vk/device.cpp",
     "!queue_lock_.try_lock(queue_lock_.user)", "queue_lock_.try_lock(queue_lock_.user) && false", "test_host_device"),
    # A device that was lost is not asked again.
    ("a faulty device is used again", "runtime/vk/device.cpp",
     "  note(Loss::kFaulty);\n", "", "test_vk_memory:LostDevice.*"),
    # Threads of ours leave nothing behind.
    ("an exception leaves a thread", "runtime/base/parallel.cpp",
     "Status status = without_exceptions(body, i);", "Status status = body(i);", "test_base:ForEachOnThreads.*"),
]
