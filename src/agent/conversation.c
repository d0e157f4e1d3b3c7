/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations as callers have them: see hutch-agent.h. */
#include "conversation.h"

#include "base/error.h"
#include "base/limits.h"

#include <string.h>

int hutch_conversation_new(hutch_conversation **ret_conversation, struct hutch_error *err)
{
    struct hutch_error local;
    err = err ? err : &local;

    if (!ret_conversation)
        return err_set(err, HUTCH_ERR_INVALID, "ret_conversation: NULL");
    struct hutch_conversation *conversation = calloc(1, sizeof(*conversation));
    if (!conversation)
        return err_no_memory(err);
    atomic_flag_clear(&conversation->taken);
    if (workspace_new(&conversation->workspace, err) < 0) {
        free(conversation);
        return err->code;
    }
    *ret_conversation = conversation;
    return 0;
}

void hutch_conversation_free(hutch_conversation *conversation)
{
    if (!conversation)
        return;
    workspace_free(conversation->workspace);
    conversation_done(&conversation->said);
    free(conversation);
}

/* ---- calls without an answer ---- */

/* The answer to a call among the messages from number at to end; NULL for none. */
static struct message *find_answer(const struct conversation *conversation, size_t at, size_t end,
                                   const char *id)
{
    for (; at < end; at++) {
        struct message *message = &conversation->messages[at];
        if (message->call_id && strcmp(message->call_id, id) == 0)
            return message;
    }
    return NULL;
}

/* Moves the answers to calls, in the order of the calls, out of the messages at *at, behind which
 * that goes; one that is not there is added. */
static int move_answers(struct conversation *to, const struct tool_call *calls, size_t count,
                        struct conversation *from, size_t *at, struct hutch_error *err)
{
    static const char none[] = "Error: there is no result: the run ended before.";
    size_t begin = *at;

    while (*at < from->count && from->messages[*at].role == MESSAGE_TOOL)
        ++*at;
    for (size_t i = 0; i < count; i++) {
        struct message *answer = find_answer(from, begin, *at, calls[i].id);
        int code = answer ? conversation_add(to, answer, err)
                          : conversation_add_tool(to, calls[i].id, none, strlen(none), err);
        if (code < 0)
            return code;
    }
    return 0;
}

/* Servers refuse a conversation in which a call has no answer right behind it, as one has that was
 * stored in the midst of a run, and answers that nothing has asked for. */
static int mend(struct conversation *conversation, struct hutch_error *err)
{
    auto_conversation struct conversation mended = CONVERSATION_EMPTY;

    for (size_t at = 0; at < conversation->count;) {
        struct message *message = &conversation->messages[at++];
        const struct tool_call *calls = message->calls;
        size_t count = message->call_count;
        if (message->role == MESSAGE_TOOL)
            continue;
        if (conversation_add(&mended, message, err) < 0 ||
            move_answers(&mended, calls, count, conversation, &at, err) < 0)
            return err->code;
    }
    struct conversation emptied = *conversation;
    *conversation = mended;
    mended = emptied;
    return 0;
}

/* ---- as JSON ---- */

int hutch_conversation_from_json(const char *json, size_t length,
                                 hutch_conversation **ret_conversation, struct hutch_error *err)
{
    auto_conversation struct conversation said = CONVERSATION_EMPTY;
    auto_json json_t *array = NULL;
    hutch_conversation *conversation;
    struct hutch_error local;
    err = err ? err : &local;

    if (!json || !ret_conversation)
        return err_set(err, HUTCH_ERR_INVALID, "%s: NULL", json ? "ret_conversation" : "messages");
    if (json_read(json, length, LIMIT_CONVERSATION_BYTES, &array, err) < 0)
        return err_context(err, "messages");
    if (conversation_read(array, &said, err) < 0 || mend(&said, err) < 0 ||
        hutch_conversation_new(&conversation, err) < 0)
        return err->code;
    conversation->said = said;
    said = CONVERSATION_EMPTY;
    *ret_conversation = conversation;
    return 0;
}

int conversation_write(const struct hutch_conversation *conversation, char **ret_json,
                       struct hutch_error *err)
{
    auto_buf struct buf out = BUF_MAX(SIZE_MAX / 4);

    conversation_append_stored(&out, &conversation->said);
    if (buf_check(&out, err) < 0)
        return err->code;
    *ret_json = TAKE_BUF(out).data;
    return 0;
}

int hutch_conversation_to_json(const hutch_conversation *conversation, char **ret_json,
                               struct hutch_error *err)
{
    struct hutch_conversation *taken = (struct hutch_conversation *)conversation; /* its flag */
    struct hutch_error local;
    err = err ? err : &local;

    if (!conversation || !ret_json)
        return err_set(err, HUTCH_ERR_INVALID, "%s: NULL",
                       conversation ? "ret_json" : "conversation");
    if (conversation_take(taken, NULL, err) < 0)
        return err->code;
    int code = conversation_write(conversation, ret_json, err);
    conversation_release(taken);
    return code;
}

/* ---- for runs ---- */

int conversation_take(struct hutch_conversation *conversation, hutch_engine *engine,
                      struct hutch_error *err)
{
    if (atomic_flag_test_and_set(&conversation->taken))
        return err_set(err, HUTCH_ERR_INVALID, "conversation: another run has it");
    if (engine && conversation->engine && conversation->engine != engine) {
        conversation_release(conversation);
        return err_set(err, HUTCH_ERR_INVALID, "conversation: it belongs to another engine");
    }
    if (engine)
        conversation->engine = engine;
    return 0;
}

void conversation_release(struct hutch_conversation *conversation)
{
    atomic_flag_clear(&conversation->taken);
}
