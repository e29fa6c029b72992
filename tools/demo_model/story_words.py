"""The words of the story grammar: slot classes and the slots that draw from them.

An entity is a dict of attributes; "name" is what a bare `{slot}` prints. Attributes of one
entity belong together (a hero's pronouns, a gift and what it is made of), so a story that mixes two
entities' attributes is not a story of the grammar.
"""


def _children(names, girl, he, his, him):
    return [dict(name=name, girl=girl, he=he, his=his, him=him) for name in names.split()]


def _names(text):
    return [dict(name=name.strip()) for name in text.split(",")]


def _article(name):
    return ("an " if name[0] in "aeiou" else "a ") + name


def _with_article(text):
    return [dict(entity, a=_article(entity["name"])) for entity in _names(text)]


def _places(text):
    """Each place twice: where one is ("in the forest") and where one goes ("to the forest")."""
    return [dict(at=at.strip(), to="to " + at.strip().split(" ", 1)[1]) for at in text.split(",")]


def _records(keys, rows):
    return [dict(zip(keys.split(), row)) for row in rows]


CLASSES = {
    "hero": _children("Mia Anna Lily Rosa Nora Ella Clara Sofia Ida Maya Zoe Emma",
                      "girl", "she", "her", "her")
    + _children("Tom Ben Leo Max Sam Finn Jack Oscar Hugo Felix Noah Milo",
                "boy", "he", "his", "him"),
    "friend": _children("Ruby Alice Hanna Greta Luna Eva", "girl", "she", "her", "her")
    + _children("Otto Theo Adam Paul Omar Ravi", "boy", "he", "his", "him"),
    "trait": _with_article("brave, curious, cheerful, shy, clever, kind, patient, gentle, lively, "
                           "calm, careful, polite"),
    "home": _names("in a small village, near the sea, at the edge of a town, in a house on a hill, "
                   "by a wide river, in a cottage near the woods, on a quiet farm, "
                   "at the end of a long road"),
    "family": [dict(name=name, he=he) for name, he in (
        ("mother", "she"), ("father", "he"), ("grandmother", "she"), ("grandfather", "he"))],
    "weather": _names("sunny, windy, cloudy, cold, warm, rainy, frosty, bright, misty, mild"),
    "time": _names("morning, afternoon, day, evening"),
    "place": _places("in the forest, on the beach, at the market, in the park, by the river, "
                     "in the meadow, on the hill, at the harbour, by the lake, in the orchard, "
                     "in the garden, at the mill, in the valley, on the bridge, by the pond, "
                     "at the fair"),
    "animal": _names("fox, owl, rabbit, squirrel, badger, goose, hedgehog, otter, crow, frog, "
                     "mouse, donkey, goat, beaver, robin, duck, turtle, deer, cat, dog"),
    "mood": _with_article("old, small, friendly, wise, quiet, grey, funny, young, plump, merry"),
    "colour": _with_article("red, blue, green, yellow, orange, purple, white, black, silver, "
                            "golden"),
    "treasure": _names("key, coin, ring, button, bell, whistle, marble, shell, medal, compass"),
    "light_thing": _names("kite, hat, scarf, ribbon, balloon, map, feather, letter"),
    "toy": _names("drum, ball, boat, puppet, wagon, sled, swing, flute, train, bicycle"),
    "spot": _names("under a stone, behind a log, in the tall grass, under a leaf, "
                   "beside a fence, in a puddle, inside a hollow tree, between two roots, "
                   "under a bench, behind a bush"),
    "sad": _names("sad, worried, upset, unhappy, gloomy"),
    "glad": _names("happy, glad, proud, pleased, thankful"),
    "food": _names("apple pie, hot soup, warm bread, honey cakes, pancakes, plum jam, "
                   "fresh berries, nut cookies, porridge, noodles, roasted corn, pear tart"),
    "trap": _with_article("net, hole, box, basket, bush, sack, fence"),
    "gift": _records("a name part", [
        ("a cake", "cake", "flour"), ("a birdhouse", "birdhouse", "nails"),
        ("a necklace", "necklace", "beads"), ("a picture", "picture", "paint"),
        ("a pillow", "pillow", "feathers"), ("a sweater", "sweater", "wool"),
        ("a wreath", "wreath", "flowers"), ("a stool", "stool", "wood"),
        ("a candle", "candle", "wax"), ("a vase", "vase", "clay"),
    ]),
    "danger": _records("comes hides", [
        ("a thick fog came down", "in the fog"), ("heavy snow began to fall", "in the snow"),
        ("it grew dark", "in the dark"), ("a storm came up", "in the storm"),
    ]),
    "guide": _names("a lantern, a tall tower, an old oak, a row of white stones, "
                    "a bright window, a crooked signpost"),
}

# Slot name -> class. Two slots of one class never hold the same entity in one story.
SLOTS = {
    "hero": "hero", "friend": "friend", "trait": "trait", "home": "home", "family": "family",
    "weather": "weather", "time": "time", "place": "place", "helper": "animal", "mood": "mood",
    "colour": "colour", "treasure": "treasure", "light": "light_thing", "toy": "toy",
    "spot": "spot", "spot_2": "spot", "sad": "sad", "glad": "glad",
    "food": "food", "trap": "trap", "gift": "gift", "danger": "danger", "guide": "guide",
}
