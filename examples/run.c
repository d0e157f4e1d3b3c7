/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one Python program in a cell and says how it ended.
 *
 *     cc run.c $(pkg-config --cflags --libs libhutch) -o run && ./run 'print(2+2)'
 */
#include <hutch.h>

#include <stdio.h>
#include <string.h>

static void on_output(void *user, enum hutch_stream stream, const char *data, size_t length)
{
    (void)user;
    fwrite(data, 1, length, stream == HUTCH_STDOUT ? stdout : stderr);
}

static int run(hutch_engine *engine, const char *code)
{
    struct hutch_request request;
    struct hutch_run_options options = {.size = sizeof(options), .on_output = on_output};
    struct hutch_error err;
    hutch_result *result;

    hutch_request_init(&request);
    request.code = code;
    request.code_length = strlen(code);
    request.timeout_seconds = 5;
    request.memory_mb = 256;
    if (hutch_run(engine, &request, &options, &result, &err) < 0) {
        fprintf(stderr, "hutch: %s (%s)\n", err.message,
                hutch_error_retry_safe(&err) ? "nothing was started" : "it may have run");
        return 125;
    }
    fflush(stdout);
    fprintf(stderr, "exit code %d, %s, %.0f ms, value %s\n", result->exit_code,
            result->error_type ? result->error_type : "no error", result->duration_ms,
            result->value.data ? result->value.data : "none");
    int code_of_program = result->exit_code;
    hutch_result_free(result);
    return code_of_program;
}

int main(int argc, char **argv)
{
    struct hutch_error err;
    hutch_engine *engine;

    if (hutch_engine_new(NULL, &engine, &err) < 0) {
        fprintf(stderr, "hutch: %s\n", err.message);
        return 125;
    }
    int status =
        run(engine, argc > 1 ? argv[1] : "print('hello from', __import__('os').getpid())\n6*7");
    hutch_engine_free(engine);
    return status;
}
