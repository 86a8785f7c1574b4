/* The message of a thread's last failure. */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

static _Thread_local char message[1024];

tw_status tw_fail(tw_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return status;
}

TW_API const char *tw_error(void) { return message; }
