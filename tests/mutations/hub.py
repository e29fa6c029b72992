"""Bugs to seed into getting models: see run.py."""

MUTATIONS = [
    # What a server says is not believed.
    ("a name may lead out of the folder", "runtime/hub/model_name.cpp",
     "segment.size() > kMaxSegmentBytes || segment.front() == '.')", "segment.size() > kMaxSegmentBytes)",
     "test_hub:SafePath.*"),
    ("checksums are not compared", "runtime/hub/download.cpp",
     "if (sha256_.empty() || found == sha256_) return finish();", "return finish();", "cli_hub:BadServer"),
    ("where a continued piece begins is believed", "runtime/hub/download.cpp",
     "if (continues &&\n        (done_ == 0 || !describes(response.content_range, {done_, file_.size_bytes}))) {",
     "if (continues && done_ == 0) {", "cli_hub:Ranges"),
    ("removing follows links", "runtime/hub/model_cache.cpp",
     "if (!is_real_folder(folder.parent_path()) || !is_real_folder(folder)) return {};", "",
     "test_hub:ModelCacheTest.*"),
    # A token goes to whom it is for.
    ("the token goes wherever redirections lead", "runtime/hub/http.cpp",
     "!request.token.empty() && origin == own_origin", "!request.token.empty()", "cli_hub:Token"),
    ("a token goes where others can read it", "runtime/hub/hub.cpp",
     "if (!options_.token.empty() && !is_private_way(options_.endpoint)) {", "if (false) {",
     "cli_hub:Token.test_a_token_is_never_sent_where_others_can_read_it"),
]
