# Drives characters with the bundled model, frame by frame.
extends Node

const WALK := '{"type": "object", "properties": {"name": {"const": "walk"}, "where": {"enum": ["home", "park"]}}, ' + \
	'"required": ["name", "where"], "additionalProperties": false}'
const BUDGET := 4.0

var failures := 0
var frames := 0


func _process(_delta: float) -> void:
	frames += 1


func _ready() -> void:
	Engine.max_fps = 250
	var fox := character()
	var progress: Array[float] = []
	fox.loading.connect(progress.append)
	expect(not fox.say("Hello."), "it is not ready")
	expect(not fox.take_back(), "it is not ready")
	expect(fox.save().is_empty(), "it is not ready")
	await ready_to_speak(fox)
	expect(progress.size() > 2 and progress[-1] == 1.0, "frames went on while it loaded: %s" % [progress])
	for i in range(1, progress.size()):
		expect(progress[i] > progress[i - 1], "progress grows: %s" % [progress])

	# Sentences, and one at a time.
	fox.max_tokens = 120
	var sentences: Array[String] = []
	var take := func(text: String) -> void: sentences.append(text)
	fox.sentence.connect(take)
	frames = 0
	expect(fox.say("Tell me of a dog."), "it answers")
	expect(not fox.say("And of a cat."), "it speaks already")
	var whole: String = await fox.answered
	fox.sentence.disconnect(take)
	expect(sentences.size() > 1 and frames > 10, "%d sentences in %d frames" % [sentences.size(), frames])
	for one: String in sentences.slice(0, -1):
		expect(one.rstrip('"”')[-1] in ".!?", "a whole sentence: " + one)
	expect(words(" ".join(sentences)) == words(whole), "they are the answer: %s" % [sentences])
	fox.take_back()

	# What a frame may not take is left for the next ones.
	fox.max_tokens = 1
	var needed: Array[int] = []
	for budget: float in [1000.0, 0.01]:
		fox.milliseconds_per_frame = budget
		frames = 0
		await answer(fox, str(budget) + " Tell me of a dog and of a cat.".repeat(8))
		needed.append(frames)
		fox.take_back()
	expect(needed[1] > 2 * needed[0], "frames %s" % [needed])
	fox.milliseconds_per_frame = BUDGET
	fox.max_tokens = 40

	# Taken back, also while it speaks.
	var first := await answer(fox, "Tell me of a dog.")
	var second := await answer(fox, "And of a cat?")
	expect(fox.take_back(), "taken back")
	expect(await answer(fox, "And of a cat?") == second, "as if it had not been said")
	fox.take_back()
	fox.say("And of a bird?")
	for i in 5:
		await get_tree().process_frame
	expect(fox.is_speaking(), "it speaks")
	fox.take_back()
	await quiet(fox)
	expect(await answer(fox, "And of a cat?") == second, "as if it had not been asked")
	fox.answer_again()
	expect(await fox.answered != second, "another answer")

	# Saved games.
	var owl := character()
	await ready_to_speak(owl)
	expect(owl.load(fox.save()), "loaded")
	var next := await answer(fox, "And then?")
	expect(await answer(owl, "And then?") == next, "the same next answer")
	while fox.take_back():
		pass
	expect(await answer(fox, "Tell me of a dog.") == first, "from the start")
	fox.say("And of a cat?")
	await fox.sentence
	expect(fox.is_speaking() and owl.load(fox.save()), "saved while it speaks")
	expect(owl.go_on(), "the other one goes on")
	var rest: String = await owl.answered
	expect(not rest.is_empty(), "with the rest")
	await quiet(fox)
	expect(not owl.load(PackedByteArray([1, 2, 3])), "damaged")
	expect(not owl.load(PackedByteArray()), "nothing")
	owl.say("What else?")
	owl.interrupt()
	await quiet(owl)
	owl.queue_free()

	# Actions, whose grammar is there when it can be spoken to.
	expect(not fox.act("Go."), "it has no actions")
	var hen := character()
	hen.actions = WALK
	await ready_to_speak(hen)
	expect(hen.act("Go somewhere."), "it acts")
	var json: String = await hen.acted
	var does: Variant = JSON.parse_string(json)
	expect(does is Dictionary and does.name == "walk" and does.where in ["home", "park"], json)
	hen.max_tokens = 2
	hen.act("Go home.")
	var reason: String = await hen.failed
	expect(reason.contains("max_tokens"), reason)

	# What is wrong is said.
	var lost := character()
	lost.model = "res://missing.gguf"
	reason = await lost.failed
	expect(reason.contains("missing.gguf"), reason)
	var odd := character()
	odd.actions = '{"type": 7}'
	reason = await odd.failed
	expect(reason.contains("type"), reason)
	expect(not odd.can_speak(), "it cannot be spoken to")

	# A scene ends while it speaks, and while another one loads.
	fox.say("Tell me more.")
	var late := character()
	late.model = "res://other/../model.gguf"
	await get_tree().process_frame
	print("checked, with %d failures" % failures)
	get_tree().quit(mini(failures, 1))


func character() -> PumiceCharacter:
	var made := PumiceCharacter.new()
	made.model = "res://model.gguf"
	made.persona = "You are a fox."
	made.milliseconds_per_frame = BUDGET
	made.max_tokens = 40
	add_child(made)
	return made


func ready_to_speak(one: PumiceCharacter) -> void:
	while not one.can_speak():
		await get_tree().process_frame


func quiet(one: PumiceCharacter) -> void:
	while one.is_speaking():
		await get_tree().process_frame


func answer(one: PumiceCharacter, question: String) -> String:
	one.say(question)
	return await one.answered


func words(text: String) -> String:
	return " ".join(text.replace("\n", " ").split(" ", false))


func expect(holds: bool, what: String) -> void:
	if not holds:
		failures += 1
		printerr("not so: ", what)
