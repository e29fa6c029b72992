#!/usr/bin/env python3
"""A grammar of short English stories: a seeded generator and an exact recogniser.

Both read the same data (story_rules.py, story_words.py). It is a context-free grammar with one
addition: a slot, once it holds an entity, keeps it, and two slots of one class hold different
ones. That is what makes the hero's name, the pronouns, the lost thing and the helper agree.

    python3 grammar.py --seed 1 --count 3        print stories
    python3 grammar.py --check < story.txt       exit 0 when the text is a story
"""

import argparse
import random
import re
import sys

from story_rules import RULES
from story_words import CLASSES, SLOTS

_PART = re.compile(r" <(\w+)\?>|<(\w+)>|\{(\w+)(?:\.(\w+))?\}")


def _compile(alternative):
    """An alternative as parts: ("text", s), ("rule", name), ("maybe", name), ("slot", s, attr)."""
    parts, end = [], 0
    for found in _PART.finditer(alternative):
        if found.start() > end:
            parts.append(("text", alternative[end:found.start()]))
        maybe, rule, slot, attribute = found.groups()
        if maybe:
            parts.append(("maybe", maybe))
        elif rule:
            parts.append(("rule", rule))
        else:
            parts.append(("slot", slot, attribute or "name"))
        end = found.end()
    if end < len(alternative):
        parts.append(("text", alternative[end:]))
    return tuple(parts)


_COMPILED = {name: [_compile(a) for a in alternatives] for name, alternatives in RULES.items()}


def _spell(entity, attribute):
    text = entity[attribute.lower()]
    return text[0].upper() + text[1:] if attribute[0].isupper() else text


def _candidates(slot, bound):
    """Entity indices the slot may hold, given the slots bound so far."""
    if slot in bound:
        return [bound[slot]]
    kind = SLOTS[slot]
    taken = {entity for other, entity in bound.items() if SLOTS[other] == kind}
    return [i for i in range(len(CLASSES[kind])) if i not in taken]


class _Writer:
    """Expands parts at random, every choice uniform, into (text, known) pieces: known when the
    piece speaks of an entity that the text has already chosen (a hero's name after "a girl named"
    counts, though the text has not said it yet)."""

    def __init__(self, rng):
        self.rng, self.bound, self.pieces = rng, {}, []

    def rule(self, name):
        self.expand(self.rng.choice(_COMPILED[name]))

    def expand(self, parts):
        for part in parts:
            if part[0] == "text":
                self.pieces.append((part[1], False))
            elif part[0] == "rule":
                self.rule(part[1])
            elif part[0] == "maybe":
                if self.rng.random() < 0.5:
                    self.pieces.append((" ", False))
                    self.rule(part[1])
            else:
                _, slot, attribute = part
                known = slot in self.bound
                self.bound[slot] = self.rng.choice(_candidates(slot, self.bound))
                entity = CLASSES[SLOTS[slot]][self.bound[slot]]
                self.pieces.append((_spell(entity, attribute), known))


def derive(rng):
    """One story drawn with `rng` (a random.Random), as _Writer's pieces."""
    writer = _Writer(rng)
    writer.rule("story")
    return writer.pieces


def derive_excerpt(rng, count):
    """`count` sentences of one story's plot, in order: no story, but its slots agree."""
    writer = _Writer(rng)
    (_, plot), = rng.choice(_COMPILED["story"])
    sentences = [part[1] for part in rng.choice(_COMPILED[plot]) if part[0] != "text"]
    for i in sorted(rng.sample(range(len(sentences)), count)):
        if writer.pieces:
            writer.pieces.append((" ", False))
        writer.rule(sentences[i])
    return writer.pieces


def generate(rng):
    """The text of one story."""
    return "".join(text for text, _ in derive(rng))


class _Recogniser:
    """Backtracking search for a derivation; remembers how far any attempt came."""

    def __init__(self, text):
        self.text = text
        self.furthest = 0

    def literal(self, text, position):
        """Where `text` ends when it stands at `position`, else None."""
        if self.text.startswith(text, position):
            self.furthest = max(self.furthest, position + len(text))
            return position + len(text)
        return None

    def sequence(self, parts, position, bound):
        if not parts:
            yield position, bound
            return
        head, rest = parts[0], parts[1:]
        for end, now in self.part(head, position, bound):
            yield from self.sequence(rest, end, now)

    def part(self, part, position, bound):
        if part[0] == "text":
            end = self.literal(part[1], position)
            if end is not None:
                yield end, bound
        elif part[0] == "rule":
            yield from self.rule(part[1], position, bound)
        elif part[0] == "maybe":
            yield from self.sequence((("text", " "), ("rule", part[1])), position, bound)
            yield position, bound
        else:
            _, slot, attribute = part
            for index in _candidates(slot, bound):
                end = self.literal(_spell(CLASSES[SLOTS[slot]][index], attribute), position)
                if end is not None:
                    yield end, {**bound, slot: index}

    def rule(self, name, position, bound):
        for alternative in _COMPILED[name]:
            yield from self.sequence(alternative, position, bound)


def failure(text):
    """None when `text` is a story of the grammar, else the offset no derivation got past.

    White space around the text is ignored, everything inside counts.
    """
    text = text.strip()
    recogniser = _Recogniser(text)
    for end, _ in recogniser.rule("story", 0, {}):
        if end == len(text):
            return None
    return recogniser.furthest


def is_story(text):
    return failure(text) is None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="judge the story on stdin")
    args = parser.parse_args()
    if args.check:
        text = sys.stdin.read().strip()
        offset = failure(text)
        if offset is not None:
            sys.exit(f"not a story from here: {text[offset:offset + 60]!r}")
        print("a story")
        return
    rng = random.Random(args.seed)
    print("\n\n---\n\n".join(generate(rng) for _ in range(args.count)))


if __name__ == "__main__":
    main()
