"""Bugs to seed into runtime/text/: see run.py."""

MUTATIONS = [
    # Texts of messages are no control tokens.
    ("only whole spellings in messages are hidden", "runtime/text/content_mask.cpp",
     "return is_punctuation(c) &&", "return c == '\\0' && is_punctuation(c) &&", "test_text:ChatFormatTest.ATemplateMakesNo*"),
    ("a user-defined end of a turn is text of users", "runtime/text/vocabulary.cpp",
     "for (const TokenId id : end_tokens_) retype(id, TokenType::kUserDefined, TokenType::kControl);", "",
     "test_text:ChatFormatTest.MarksOfTurns*"),
    # Tokens are those of the model's own tokenizer, wherever a text is cut.
    ("a text is cut within tokens", "runtime/text/spm.cpp",
     "if (is_piece(vocabulary.type(id))) pairs_.add(vocabulary.text(id));", "if (id % 2 == 0) pairs_.add(vocabulary.text(id));",
     "test_text:Spm.*"),
    ("a special token that overlaps is dropped and not shortened", "runtime/text/special_tokens.cpp",
     "if (shorter != nullptr) shortened.push(", "if (shorter == nullptr) shortened.push(", "test_text:SpecialTokens.*"),
]
