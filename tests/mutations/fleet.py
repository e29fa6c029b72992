"""Bugs to seed into what servers share and tell each other: see run.py."""

FILE = "cache/prefix_store_file.cpp"
STORE = "cache/prefix_store.cpp"
STORED = "cache/kv_cache_stored.cpp"
VIEW = "tools/serve/fleet/kv_view.cpp"

MUTATIONS = [
    # Nothing is used but what was verified.
    ("a page of other tokens is taken", FILE,
     "if (std::memcmp(bytes.data() + sizeof(header), tokens.data(), tokens.size_bytes()) != 0) {", "if (false) {",
     "test_cache:PrefixStoreTest.NeverTakes*"),
    ("a damaged page is taken", FILE,
     "if (stored_checksum(bytes) != header.checksum) return StoredPageState::kDamaged;", "",
     "test_cache:PrefixStoreTest.RemovesWhatIsDamaged*"),
    ("models share a folder of files", FILE, "  return {.kind = kind,\n          .model = binding.model,",
     "  return {.kind = kind,\n          .model = {},", "test_cache:PrefixStoreTest.KeepsModelsApart"),
    ("files of others are removed", STORE, "      if (!is_stored_page(file.path)) continue;\n", "",
     "test_cache:PrefixStoreTest.LeavesWhatOthers*"),
    ("what is read counts as used long ago", STORE, "        touch_file(path);  // it goes last\n", "",
     "test_cache:PrefixStoreTest.StaysWithinItsLimit*"),
    ("salted prompts are stored", STORED, "if (!notes_new_pages_ || !owner.prompt.salt.empty()) return;",
     "if (!notes_new_pages_) return;", "test_cache:StoredPages.AreThoseOfFullBlocks*"),
    ("pages that were given to others are stored", STORED,
     "if (page == kNoPage || !is_wanted(entry.hash, kind)) continue;", "if (!is_wanted(entry.hash, kind)) continue;",
     "test_cache:StoredPages.AreForgotten*"),
    ("memory that is written to is given to a stored page", STORED,
     "is_pending(placed.slot) ? std::span<std::byte>() : host_slot(placed.slot);", "host_slot(placed.slot);",
     "test_cache:StoredPages.LeaveAMove*"),
    # Routers are told what can be resumed, and nothing else.
    ("blocks are told that nothing can go on from", VIEW,
     "    if (kinds.is_recurrent(g) && !pages[g].any()) return false;\n", "", "test_kv_view:KvView.TellsBlocksOfAHybrid*"),
    ("blocks that are gone are not taken back", VIEW,
     "if (where == on_device && !stays) removed.blocks.push_back(id);", "", "test_kv_view:*KvViews.*"),
]
