/* The few functions of Mesa's utility library that the shims use, so that they build without the
 * rest. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool debug_get_bool_option(const char* name, bool otherwise);
bool debug_get_bool_option(const char* name, bool otherwise) {
  const char* value = getenv(name);
  return value == NULL ? otherwise : strcmp(value, "0") != 0 && strcmp(value, "false") != 0;
}

size_t u_printf_length(const char* format, va_list args);
size_t u_printf_length(const char* format, va_list args) {
  va_list copy;
  va_copy(copy, args);
  const int length = vsnprintf(NULL, 0, format, copy);
  va_end(copy);
  return length < 0 ? 0 : (size_t)length;
}

void mesa_log(int level, const char* tag, const char* format, ...);
void mesa_log(int level, const char* tag, const char* format, ...) {
  (void)level, (void)tag, (void)format;
}
