# Two characters talk at once and then go somewhere, while frames go on.
extends Node

const WALK := {
	"type": "object",
	"properties": {
		"name": {"const": "walk"},
		"arguments": {
			"type": "object",
			"properties": {"where": {"enum": ["home", "park"]}},
			"required": ["where"],
			"additionalProperties": false,
		},
	},
	"required": ["name", "arguments"],
	"additionalProperties": false,
}

var going := 0


func _ready() -> void:
	Engine.max_fps = 120
	for character: PumiceCharacter in get_children():
		character.actions = JSON.stringify(WALK)
		character.loading.connect(_on_loading.bind(character))
		character.sentence.connect(func(text: String) -> void: print(character.name, ": ", text))
		character.answered.connect(func(_text: String) -> void: character.act("Where do you go now?"))
		character.acted.connect(_on_acted.bind(character))
		character.failed.connect(func(_reason: String) -> void: get_tree().quit(1))


func _on_loading(progress: float, character: PumiceCharacter) -> void:
	if progress == 1:
		character.say("What did you do today?")


func _on_acted(json: String, character: PumiceCharacter) -> void:
	var call: Dictionary = JSON.parse_string(json)
	print(character.name, " goes to: ", call.arguments.where)
	going += 1
	if going == get_child_count():
		get_tree().quit()
