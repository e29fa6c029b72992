"""The sentences of the story grammar: rule -> alternatives.

In an alternative, `<rule>` is another rule, ` <rule?>` the same but optional
(with its space), `{slot}` or
`{slot.attribute}` a word of the slot's entity (see story_words.py), everything else is literal
text. A capitalised attribute prints capitalised. A slot keeps its entity through the story.
"""

RULES = {
    "story": ["<lost>", "<stuck>", "<rescue>", "<astray>", "<present>", "<quarrel>"],

    # Six plots: a setting and a problem, then help and an ending.
    "lost": ["<opening> <has_treasure> <outing> <loses_it> <feels_bad> <searches?>\n\n"
             "<meets> <asks> <tells_lost> <look_together?> <finds_it> <thanks> <joy> <close>"],
    "stuck": ["<opening> <has_light> <outing> <blown_away> <cannot_reach> <feels_bad?>\n\n"
              "<meets> <asks?> <tells_stuck> <brings_down> <thanks> <joy> <close>"],
    "rescue": ["<opening> <lives_with> <outing> <hears_animal> <sees_trap> <fear?>\n\n"
               "<calms> <gets_advice?> <fixes> <recovers> <joy> <praise> <stays_friends>"],
    "astray": ["<opening> <lives_with> <outing> <danger_comes> <is_lost> <feels_bad?>\n\n"
               "<meets> <asks?> <tells_astray> <leads_home> <thanks> <family_waits> <close>"],
    "present": ["<opening> <lives_with> <wants_to_make> <lacks_part> <feels_bad>\n\n"
                "<friend_comes> <friend_gives> <they_make> <gives_present> <praise> <meal>"],
    "quarrel": ["<opening> <best_friend> <outing_two> <find_toy> <both_want> <angry>\n\n"
                "<pause> <meets_two?> <makes_up> <take_turns> <friends_again> <two_close>"],

    # Setting.
    "opening": [
        "Once upon a time there was {trait.a} {hero.girl} named {hero}.",
        "There once was {trait.a} {hero.girl} whose name was {hero}.",
        "{hero} was {trait.a} {hero.girl} who lived {home}.",
        "Long ago, {trait.a} {hero.girl} named {hero} lived {home}.",
    ],
    "lives_with": [
        "{hero.His} {family} was always kind to {hero.him}.",
        "{hero.He} loved {hero.his} {family} very much.",
        "Every day {hero.he} helped {hero.his} {family}.",
    ],
    "outing": [
        "One {weather} {time} {hero} went {place.to}.",
        "One {weather} {time}, {hero.he} was walking {place.at}.",
        "On a {weather} {time}, {hero} decided to go {place.to}.",
    ],

    # Lost.
    "has_treasure": [
        "{hero.He} had {colour.a} {treasure} that {hero.he} took everywhere.",
        "{hero.His} favourite thing was {colour.a} {treasure}.",
        "For {hero.his} birthday {hero.he} got {colour.a} {treasure} from {hero.his} {family}.",
    ],
    "loses_it": [
        "But when {hero.he} looked in {hero.his} pocket, the {treasure} was gone.",
        "There {hero.he} saw that the {treasure} was missing.",
        "On the way, the {treasure} fell out of {hero.his} pocket.",
    ],
    "feels_bad": [
        "{hero} felt very {sad}.",
        "{hero.He} was so {sad} that {hero.he} began to cry.",
        "{hero} sat down and was {sad}.",
        "\"Oh no, what shall I do?\" cried {hero}.",
    ],
    "searches": [
        "{hero.He} looked {spot} and {spot_2}, but the {treasure} was not there.",
        "{hero} looked {spot}, but found nothing.",
    ],
    "tells_lost": [
        "\"I have lost my {treasure},\" said {hero}.",
        "{hero} told the {helper} about the {treasure}.",
        "\"My {treasure} is gone,\" {hero.he} said.",
    ],
    "look_together": [
        "\"Let us look together,\" said the {helper}.",
        "\"Do not cry, we will find it,\" said the {helper}.",
    ],
    "finds_it": [
        "They searched for a long time, and at last the {helper} found the {treasure}.",
        "Soon {hero} saw something on the ground. It was the {treasure}!",
        "The {helper} looked again, and there was the {treasure}.",
    ],

    # Stuck.
    "has_light": [
        "{hero.He} had {colour.a} {light} and was very proud of it.",
        "{hero.His} {family} had made {hero.him} {colour.a} {light}.",
        "Of all {hero.his} things, {hero.he} liked {hero.his} {colour} {light} best.",
    ],
    "blown_away": [
        "Suddenly a strong wind blew the {light} up into a tree.",
        "A gust of wind took the {light} and carried it onto a roof.",
        "The wind pulled the {light} away, and it landed on a high branch.",
    ],
    "cannot_reach": [
        "{hero} jumped and jumped, but {hero.he} could not reach it.",
        "It was much too high for {hero.him}.",
        "{hero.He} tried to climb, but {hero.he} was too small.",
    ],
    "tells_stuck": [
        "\"The wind took my {light},\" said {hero}.",
        "{hero} pointed up at the {light}.",
        "\"I cannot reach my {light},\" {hero.he} said.",
    ],
    "brings_down": [
        "The {helper} climbed up and brought the {light} down.",
        "\"Stand on my back,\" said the {helper}, and so {hero} could reach the {light}.",
        "The {helper} called all its friends, and together they shook the {light} loose.",
    ],

    # Rescue.
    "hears_animal": [
        "There {hero.he} heard a strange sound.",
        "All at once {hero.he} heard someone cry for help.",
        "{hero.He} stopped, because something was moving {spot}.",
    ],
    "sees_trap": [
        "It was {mood.a} {helper} that was stuck in {trap.a}.",
        "{hero} found {mood.a} {helper} that was caught in {trap.a}.",
    ],
    "fear": [
        "The {helper} was afraid of {hero.him}.",
        "The {helper} looked at {hero} with big eyes.",
    ],
    "calms": [
        "\"Do not be afraid,\" said {hero}.",
        "\"I will help you, little {helper},\" said {hero}.",
        "{hero} spoke softly to the {helper}.",
    ],
    "gets_advice": [
        "{hero.He} ran to {hero.his} {family} and asked what to do.",
        "{hero.He} remembered what {hero.his} {family} had taught {hero.him}.",
    ],
    "fixes": [
        "Then {hero.he} pulled it out.",
        "Very carefully, {hero} set it free.",
        "{hero} took a deep breath and helped it out.",
    ],
    "recovers": [
        "Soon the {helper} felt much better.",
        "The {helper} jumped up and was well again.",
        "\"Thank you, {hero}!\" said the {helper}.",
    ],
    "stays_friends": [
        "After that, the {helper} came to see {hero} every week.",
        "From that day on, {hero} and the {helper} were friends.",
        "And whenever {hero} went out, the {helper} was waiting for {hero.him}.",
    ],

    # Astray.
    "danger_comes": [
        "But then {danger.comes}.",
        "{hero.He} walked a long way, and then {danger.comes}.",
    ],
    "is_lost": [
        "{hero} could not find the way home {danger.hides}.",
        "Everything looked different {danger.hides}, and {hero} was lost.",
    ],
    "tells_astray": [
        "\"I cannot find my way {danger.hides},\" said {hero}.",
        "\"I want to go home,\" said {hero}.",
        "{hero} said that {hero.he} was lost.",
    ],
    "leads_home": [
        "\"Follow me,\" said the {helper}, and it showed {hero.him} {guide}. "
        "They followed it all the way home.",
        "The {helper} knew the way. It led {hero} past {guide} and home again.",
        "\"Look, there is {guide},\" said the {helper}. \"Your house is near.\"",
    ],
    "family_waits": [
        "At the door {hero.his} {family} was waiting, and {family.he} hugged {hero.him}.",
        "{hero.His} {family} was so {glad} that {family.he} laughed and cried.",
    ],

    # Present.
    "wants_to_make": [
        "One {weather} {time} {hero} wanted to make {gift.a} for {hero.his} {family}.",
        "It was the birthday of {hero.his} {family}, and {hero} wanted to make {gift.a}.",
    ],
    "lacks_part": [
        "But there was no {gift.part} in the house.",
        "{hero.He} looked for {gift.part}, but {hero.he} could not find any.",
        "For the {gift} {hero.he} needed {gift.part}, and {hero.he} had none.",
    ],
    "friend_comes": [
        "Then {hero.his} friend {friend} came to the door.",
        "{hero.He} went to see {hero.his} friend {friend}.",
        "On the way {place.to}, {hero} met {hero.his} friend {friend}.",
    ],
    "friend_gives": [
        "\"I have some {gift.part} for you,\" said {friend}.",
        "\"You can have my {gift.part},\" {friend.he} said.",
        "{friend} opened {friend.his} bag and gave {hero.him} some {gift.part}.",
    ],
    "they_make": [
        "They worked until the {gift} was ready.",
        "Together they made the {gift}, and it was beautiful.",
        "Soon the {gift} was done.",
    ],
    "gives_present": [
        "{hero} gave the {gift} to {hero.his} {family}, and {family.he} was very {glad}.",
        "When {hero.his} {family} saw the {gift}, {family.he} smiled.",
    ],

    # Quarrel.
    "best_friend": [
        "{hero.His} best friend was a {friend.girl} named {friend}.",
        "{hero.He} liked to play with {hero.his} friend {friend}.",
        "{friend} was {hero.his} best friend.",
    ],
    "outing_two": [
        "One {weather} {time} {hero} and {friend} went {place.to}.",
        "One {weather} {time}, {hero} and {friend} were playing {place.at}.",
    ],
    "find_toy": [
        "{spot.Name}, {friend} found {colour.a} {toy}.",
        "There they found {colour.a} {toy} {spot}.",
        "They saw {colour.a} {toy} that nobody wanted.",
    ],
    "both_want": [
        "\"The {toy} is mine!\" said {hero}. \"No, it is mine!\" said {friend}.",
        "{hero} wanted the {toy}, but {friend} wanted it too.",
        "\"I saw the {toy} first!\" said {friend}. \"No, I did!\" said {hero}.",
    ],
    "angry": [
        "They pulled and pulled until both were angry.",
        "They turned their backs and went away.",
        "They were so angry that they did not speak.",
    ],
    "pause": [
        "After a while {hero} felt {sad} without {friend}.",
        "But it was no fun to play alone, and {hero} grew {sad}.",
    ],
    "meets_two": [
        "{mood.A} {helper} saw {hero.him}. \"A friend is better than a {toy},\" said the {helper}.",
        "\"Why do you not share?\" asked {mood.a} {helper}.",
    ],
    "makes_up": [
        "\"I am sorry, {friend},\" said {hero}. \"I am sorry too,\" said {friend}.",
        "{hero} went to {friend} and gave {friend.him} the {toy}.",
        "\"Let us share the {toy},\" {hero} said to {friend.him}.",
    ],
    "take_turns": [
        "First {friend} played with the {toy}, and then {hero}.",
        "They took turns with the {toy} until {hero.his} {family} called.",
    ],
    "friends_again": [
        "{hero} was {glad}, and so was {friend}.",
        "Now {hero} and {friend} were friends again.",
    ],

    # Shared by several plots.
    "meets": [
        "Then {mood.a} {helper} came by.",
        "Just then {hero} met {mood.a} {helper}.",
        "{mood.A} {helper} heard {hero.him} and came closer.",
    ],
    "asks": [
        "\"Why are you so sad?\" asked the {helper}.",
        "\"What is wrong?\" asked the {helper}.",
        "\"Can I help you?\" the {helper} asked.",
    ],
    "thanks": [
        "\"Thank you, {helper}!\" said {hero}.",
        "{hero} thanked the {helper} with all {hero.his} heart.",
        "\"You are a true friend,\" {hero} told the {helper}.",
    ],
    "joy": [
        "{hero} was so {glad} that {hero.he} danced.",
        "{hero.He} felt very {glad}.",
        "Now {hero} was {glad} again.",
    ],
    "praise": [
        "\"What a wonderful {hero.girl} you are!\" said {hero.his} {family}.",
        "{hero.His} {family} said, \"I am proud of you, {hero}.\"",
    ],
    "close": ["<stays_friends>", "<meal>", "<night>"],
    "meal": [
        "At home, {hero} and {hero.his} {family} ate {food}.",
        "That evening there was {food} for everyone.",
        "Then {hero.his} {family} made {food}, and they all ate together.",
    ],
    "night": [
        "That night {hero} slept well and dreamed of the {helper}.",
        "{hero} went home and told {hero.his} {family} about the {helper}.",
    ],
    "two_close": [
        "That evening they ate {food} together.",
        "From that day on, {hero} and {friend} shared everything.",
    ],
}
