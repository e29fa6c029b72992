"""Encoding and decoding as llama.cpp's "llama" (SentencePiece) tokenizer does it.

Text gets a space in front, spaces become U+2581, every character starts as a symbol, and the
adjacent pair whose joined text has the highest score is merged until no pair is a token (the
leftmost one of equals). A symbol that is no token becomes its UTF-8 bytes, tokens <0x00>..<0xFF>.
"""

import functools
import json
import re

UNKNOWN, BOS, EOS = 0, 1, 2
FIRST_BYTE = 3
SPACE = "\u2581"
TYPE_NORMAL, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_BYTE = 1, 2, 3, 6

# No token holds a space inside, nor letters with anything else: the trainer never merges across
# these chunks, so encoding chunk by chunk gives what encoding the whole text gives.
_CHUNK = re.compile(f"{SPACE}?[A-Za-z]+|{SPACE}?[^A-Za-z{SPACE}]|{SPACE}")


def chunks(text):
    """The pieces of `text`, spaces marked, across which the trainer never merges."""
    return _CHUNK.findall(text.replace(" ", SPACE))


class Tokenizer:
    def __init__(self, tokens, scores, types):
        self.tokens, self.scores, self.types = tokens, scores, types
        self._id = {t: i for i, t in enumerate(tokens) if types[i] == TYPE_NORMAL}
        self.encode_chunk = functools.lru_cache(maxsize=None)(self.encode_symbols)

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
        return cls(stored["tokens"], stored["scores"], stored["types"])

    def save(self, path):
        stored = {"tokens": self.tokens, "scores": self.scores, "types": self.types}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(stored, file, ensure_ascii=False, indent=0)
            file.write("\n")

    def encode_symbols(self, text):
        """Token ids of `text`, spaces already marked: the merge loop itself."""
        symbols = list(text)
        while True:
            best, best_score = None, 0.0
            for i, pair in enumerate(zip(symbols, symbols[1:])):
                token = self._id.get(pair[0] + pair[1])
                if token is not None and (best is None or self.scores[token] > best_score):
                    best, best_score = i, self.scores[token]
            if best is None:
                break
            symbols[best:best + 2] = [symbols[best] + symbols[best + 1]]
        ids = []
        for symbol in symbols:
            if symbol in self._id:
                ids.append(self._id[symbol])
            else:
                ids.extend(FIRST_BYTE + byte for byte in symbol.encode("utf-8"))
        return ids

    def encode(self, text):
        """Token ids of `text`, without BOS or EOS."""
        return [token for chunk in chunks(" " + text) for token in self.encode_chunk(chunk)]

    def decode(self, ids):
        """Text of `ids` without control tokens and without the space encode() put in front."""
        out = bytearray()
        for token in ids:
            if self.types[token] == TYPE_BYTE:
                out.append(token - FIRST_BYTE)
            elif self.types[token] == TYPE_NORMAL:
                out += self.tokens[token].replace(SPACE, " ").encode("utf-8")
        text = out.decode("utf-8", errors="replace")
        return text[1:] if text.startswith(" ") else text
