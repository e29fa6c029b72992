// A text goes on: minimal MODEL.gguf [PROMPT]
#include <stdio.h>

#include "pumice/pumice.h"

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, pumice_last_error());
  return 1;
}

static int generate(pumice_engine* engine, const char* prompt) {
  pumice_request_options options = {.struct_size = sizeof options};
  options.text = pumice_str(prompt);
  options.max_new_tokens = 100;
  pumice_request request;
  if (pumice_submit(engine, 0, &options, &request) != PUMICE_OK) return failed("submit");
  printf("%s", prompt);
  for (;;) {
    // A game would poll once a frame, with the microseconds that it can spare, and never wait.
    if (pumice_poll(engine, PUMICE_NO_LIMIT) != PUMICE_OK) return failed("poll");
    for (;;) {
      pumice_event event = {.struct_size = sizeof event};
      if (pumice_next_event(engine, &event) != PUMICE_OK) return failed("next_event");
      if (event.kind == PUMICE_EVENT_NONE) break;
      fwrite(event.text.data, 1, event.text.length, stdout);
      if (event.kind == PUMICE_EVENT_FINISHED) return puts("") < 0;
    }
    fflush(stdout);
    if (pumice_wait(engine, PUMICE_NO_LIMIT) != PUMICE_OK) return failed("wait");
  }
}

int main(int argc, char** argv) {
  if (argc < 2) return fprintf(stderr, "usage: minimal MODEL.gguf [PROMPT]\n"), 2;
  pumice_device* device;
  pumice_model* model = NULL;
  pumice_engine* engine = NULL;
  if (pumice_device_open(NULL, &device) != PUMICE_OK) return failed("device");
  pumice_model_options options = {.struct_size = sizeof options, .path = pumice_str(argv[1])};
  int status = 1;
  if (pumice_model_load(device, &options, &model) != PUMICE_OK) {
    failed("model");
  } else if (pumice_engine_create(model, NULL, &engine) != PUMICE_OK) {
    failed("engine");
  } else {
    status = generate(engine, argc > 2 ? argv[2] : "Once upon a time");
  }
  pumice_engine_close(engine);
  pumice_model_close(model);
  pumice_device_close(device);
  return status;
}
