/* SPDX-License-Identifier: Apache-2.0 */
/* See program.h. */
#include "program.h"

#include "base/clock.h"
#include "base/limits.h"
#include "gate.h"
#include "outcome.h"
#include "request.h"
#include "result.h"
#include "tidy.h"

void program_init(struct program *program, const struct hutch_request *request,
                  const struct hutch_run_options *options, const struct backend_ops *ops)
{
    *program = (struct program){
        .request = request,
        .options = options,
        .ops = ops,
        .env = BUF_MAX(WIRE_MAX_ENV),
        .gate = BUF_MAX(WIRE_MAX_GATE),
        .code = BUF_MAX(LIMIT_CODE_BYTES),
    };
    capture_init(&program->out, request->max_output_bytes);
    capture_init(&program->err, request->max_output_bytes);
    reports_init(&program->reports, request->gate != NULL);
}

void program_done(struct program *program)
{
    capture_done(&program->out);
    capture_done(&program->err);
    reports_done(&program->reports);
    buf_done(&program->env);
    buf_done(&program->gate);
    buf_done(&program->code);
}

/* ---- into the cell ---- */

void program_forget_frames(struct program *program)
{
    buf_clear(&program->env);
    buf_clear(&program->gate);
    buf_clear(&program->code);
}

void program_append_env(const struct program *program, struct buf *text)
{
    const struct hutch_request *request = program->request;

    for (size_t i = 0; i < request->env_count; i++) {
        buf_appendf(text, "%s=%s", request->env[i].name, request->env[i].value);
        buf_append(text, "", 1);
    }
}

int program_send_frame(struct program *program, enum wire_type type, uint16_t flags,
                       const struct buf *payload, struct hutch_error *err)
{
    if (buf_check(payload, err) < 0)
        return err->code;
    return program->ops->cell_send(program->cell, type, flags, payload->data, payload->length, err);
}

int program_send_head(struct program *program, struct hutch_error *err)
{
    const struct hutch_request *request = program->request;

    program_append_env(program, &program->env);
    if (request->env_count > 0 && program_send_frame(program, WIRE_ENV, 0, &program->env, err) < 0)
        return err->code;
    if (!request->gate)
        return 0;
    uint16_t flags = gate_append(request->gate, &program->gate);
    return program_send_frame(program, WIRE_GATE, flags, &program->gate, err);
}

int program_send_code(struct program *program, uint16_t flags, struct hutch_error *err)
{
    const struct hutch_request *request = program->request;

    if (!request->tidy)
        return program->ops->cell_send(program->cell, WIRE_RUN, flags, request->code,
                                       request->code_length, err);
    tidy_code(request->code, request->code_length, language_name(request->language),
              &program->code);
    return program_send_frame(program, WIRE_RUN, flags | WIRE_RUN_TIDY, &program->code, err);
}

/* ---- out of the cell ---- */

int program_take_output(struct program *program, const struct cell_event *event,
                        struct hutch_error *err)
{
    bool is_stdout = event->type == CELL_STDOUT;
    struct capture *capture = is_stdout ? &program->out : &program->err;

    if (program->options->on_output)
        program->options->on_output(program->options->user, is_stdout ? HUTCH_STDOUT : HUTCH_STDERR,
                                    event->data, event->length);
    if (capture_add(capture, event->data, event->length, err) < 0)
        return err->code;
    if (capture->total > LIMIT_OUTPUT_HARD_BYTES && !program->stopped) {
        program->stopped = true;
        program->ops->cell_stop(program->cell);
    }
    return 0;
}

static int fill_claims(struct program *program, struct hutch_result *result,
                       struct hutch_error *err)
{
    struct reports *reports = &program->reports;
    struct outcome_facts facts = {
        .exit = &program->exit,
        .request = program->request,
        .claim = reports->claim.present ? &reports->claim : NULL,
        .refusal = reports->refusal.present ? &reports->refusal : NULL,
        .stderr_text = &result->stderr_text,
    };

    if (outcome_judge(&facts, result, err) < 0)
        return err->code;
    result_take_rich(result, &reports->rich);
    return result_set_value(result, reports->value.data, reports->value.length, err);
}

int program_fill_result(struct program *program, struct hutch_result *result,
                        struct hutch_error *err)
{
    const struct cell_exit *exit = &program->exit;
    enum hutch_encoding encoding = program->request->output_encoding;
    bool out_truncated, err_truncated;

    result->stdout_bytes = program->out.total;
    result->stderr_bytes = program->err.total;
    if (capture_finish(&program->out, encoding, &result->stdout_text, &out_truncated, err) < 0 ||
        capture_finish(&program->err, encoding, &result->stderr_text, &err_truncated, err) < 0)
        return err->code;
    result->truncated = out_truncated || err_truncated;
    result->duration_ms = (double)exit->duration_ns / (double)NS_PER_MS;
    result->cpu_ms = (double)exit->cpu_ns / (double)NS_PER_MS;
    result->peak_memory_bytes = exit->peak_memory_bytes;
    return fill_claims(program, result, err);
}
