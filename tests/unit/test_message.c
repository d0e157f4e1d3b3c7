/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations: what a request says, what a transcript keeps, what is refused. */
#include "agent/message.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* In the texts ' stands for the quotes of JSON. */
static struct buf quoted(const char *text)
{
    struct buf out = BUF_MAX(10000);

    buf_append_text(&out, text);
    for (size_t i = 0; i < out.length; i++) {
        if (out.data[i] == '\'')
            out.data[i] = '"';
    }
    return out;
}

static int read_text(const char *text, struct conversation *ret_conversation,
                     struct hutch_error *err)
{
    auto_buf struct buf json = quoted(text);
    auto_json json_t *value = NULL;

    assert_int_equal(json_read(json.data, json.length, 10000, &value, err), 0);
    return conversation_read(value, ret_conversation, err);
}

static void check_wire(const struct conversation *conversation, const char *origin,
                       const char *expected)
{
    auto_buf struct buf wire = BUF_MAX(10000), wanted = quoted(expected);

    conversation_append_wire(&wire, NULL, conversation, origin, false);
    assert_string_equal(buf_text(&wire), wanted.data);
}

static const char stored[] =
    "[{'role':'system','content':'one'},{'role':'user','content':'hi'},"
    "{'role':'assistant','content':'text','tool_calls':[{'id':'a','type':'function','function':"
    "{'name':'run','arguments':'{\\'c\\': 1}'},'extra':{'extra_content':{'s':'x=='}}},"
    "{'id':'b','type':'function','function':{'name':'run','arguments':'{}'},'fault':'cut_off',"
    "'problem':'send less'}],'extra':{'reasoning_content':'r'},'origin':'server model'},"
    "{'role':'tool','tool_call_id':'a','content':'1'},"
    "{'role':'tool','tool_call_id':'b','content':'send less'},"
    "{'role':'assistant'},{'role':'system','content':'two'}]";

static void a_transcript_is_read_and_written_again(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_conversation struct conversation conversation = CONVERSATION_EMPTY;
    auto_buf struct buf again = BUF_MAX(10000), wanted = quoted(stored);

    assert_int_equal(read_text(stored, &conversation, &err), 0);
    assert_int_equal(conversation.count, 7);
    assert_int_equal(conversation.messages[2].calls[1].fault, CALL_CUT_OFF);
    assert_null(conversation.messages[2].calls[1].arguments);
    assert_int_equal(
        json_integer_value(json_object_get(conversation.messages[2].calls[0].arguments, "c")), 1);
    conversation_append_stored(&again, &conversation);
    assert_string_equal(buf_text(&again), wanted.data);
    assert_int_equal(conversation_calls(&conversation), 2);
    assert_true(conversation_has_call(&conversation, "b"));
    assert_false(conversation_has_call(&conversation, "c"));
    assert_false(conversation_has_call(NULL, "c"));
}

static void the_wire_has_one_system_message_and_no_empty_ones(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_conversation struct conversation conversation = CONVERSATION_EMPTY;

    assert_int_equal(read_text(stored, &conversation, &err), 0);
    check_wire(&conversation, "server model",
               "[{'role':'system','content':'one\\n\\ntwo'},{'role':'user','content':'hi'},"
               "{'role':'assistant','content':'text','tool_calls':[{'id':'a','type':'function',"
               "'function':{'name':'run','arguments':'{\\'c\\': 1}'},'extra_content':{'s':'x=='}},"
               "{'id':'b','type':'function','function':{'name':'run','arguments':'{}'}}],"
               "'reasoning_content':'r'},{'role':'tool','tool_call_id':'a','content':'1'},"
               "{'role':'tool','tool_call_id':'b','content':'send less'}]");
}

static void what_only_a_server_knows_goes_to_no_other(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_conversation struct conversation conversation = CONVERSATION_EMPTY;
    const char *const others[] = {"server other", NULL};

    assert_int_equal(read_text(stored, &conversation, &err), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++) {
        auto_buf struct buf wire = BUF_MAX(10000);
        conversation_append_wire(&wire, NULL, &conversation, others[i], false);
        assert_null(strstr(wire.data, "extra_content"));
        assert_null(strstr(wire.data, "reasoning"));
        assert_null(strstr(wire.data, "origin"));
        assert_null(strstr(wire.data, "fault"));
    }
}

static void text_is_made_utf8_and_keeps_nul(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_conversation struct conversation conversation = CONVERSATION_EMPTY;

    assert_int_equal(conversation_add_text(&conversation, MESSAGE_USER, "a\0b\xff", 4, &err), 0);
    assert_int_equal(conversation_add_text(&conversation, MESSAGE_USER, "", 0, &err), 0);
    check_wire(&conversation, NULL,
               "[{'role':'user','content':'a\\u0000b\xef\xbf\xbd'},{'role':'user','content':''}]");
    char *name = message_copy_name("a\0\xff", 3);
    assert_string_equal(name, "a\xef\xbf\xbd\xef\xbf\xbd");
    free(name);
}

static void tool_messages_answer_calls(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_conversation struct conversation conversation = CONVERSATION_EMPTY;

    assert_int_equal(conversation_add_tool(&conversation, "x", "1", 1, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "tool_call_id: no call before has the id 'x'");
    assert_int_equal(read_text(stored, &conversation, &err), 0);
    assert_int_equal(conversation_add_tool(&conversation, "a", "1", 1, &err), 0);
    assert_int_equal(conversation.count, 8);
}

static void bad_transcripts_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"{}", "messages: an array expected"},
        {"[{'role':'robot','content':''}]",
         "messages[0]: role: one of system, user, assistant, tool expected"},
        {"[{'role':'user'}]", "messages[0]: content: a string expected"},
        {"[{'role':'user','content':'a'},{'role':'tool','content':'a'}]",
         "messages[1]: tool_call_id: a string that is not empty expected"},
        {"[{'role':'tool','content':'a','tool_call_id':'x'}]",
         "messages[0].tool_call_id: no call before has the id 'x'"},
        {"[{'role':'assistant','tool_calls':[{'id':'a','function':{'name':'f','arguments':'['}}]}]",
         "messages[0]: tool_calls[0]: function.arguments: line 1, column 2: a value expected, not "
         "the end of the text"},
        {"[{'role':'assistant','tool_calls':[{'id':'a','function':{'name':'f','arguments':'1'}}]}]",
         "messages[0]: tool_calls[0]: function.arguments: an object expected, not a whole number"},
        {"[{'role':'assistant','tool_calls':[{'id':'','function':{'name':'f','arguments':'{}'}}]}]",
         "messages[0]: tool_calls[0]: id: a string that is not empty expected"},
        {"[{'role':'assistant','extra':1}]", "messages[0]: extra: an object expected, not a whole "
                                             "number"},
        {"[{'role':'assistant','tool_calls':[{'id':'a','function':{'name':'f','arguments':'{}'},"
         "'fault':'none','problem':'p'}]}]",
         "messages[0]: tool_calls[0]: fault: one of cut_off, malformed, unknown_tool expected"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct hutch_error err;
        auto_conversation struct conversation conversation = CONVERSATION_EMPTY;
        assert_int_equal(read_text(rows[i].text, &conversation, &err), HUTCH_ERR_INVALID);
        assert_string_equal(err.message, rows[i].message);
    }
}

static void a_conversation_is_bounded(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_conversation struct conversation conversation = CONVERSATION_EMPTY;

    for (int i = 0; i < LIMIT_MESSAGES; i++)
        assert_int_equal(conversation_add_text(&conversation, MESSAGE_USER, "", 0, &err), 0);
    assert_int_equal(conversation_add_text(&conversation, MESSAGE_USER, "", 0, &err),
                     HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "messages: more than 10000");
}

/* Long messages leave room for the answers to calls, and for a last word. */
static void a_conversation_has_room_for_its_end(void **state)
{
    (void)state;
    static char text[MIB(1)], id[LIMIT_CALL_ID_BYTES + 1];
    struct hutch_error err;
    auto_conversation struct conversation conversation = CONVERSATION_EMPTY;
    struct message message = {.role = MESSAGE_ASSISTANT, .call_count = LIMIT_REPLY_CALLS};

    memset(text, 'x', sizeof(text));
    memset(id, '\x01', sizeof(id) - 1); /* takes six bytes in JSON */
    message.calls = calloc(message.call_count, sizeof(*message.calls));
    for (size_t i = 0; i < message.call_count; i++) {
        id[0] = (char)('0' + i);
        message.calls[i] = (struct tool_call){.id = strdup(id),
                                              .name = strdup("run"),
                                              .text = strdup("{}"),
                                              .arguments = json_object()};
    }
    assert_int_equal(conversation_add(&conversation, &message, &err), 0);
    int added = 0;
    while (conversation_add_text(&conversation, MESSAGE_USER, text, sizeof(text), &err) == 0)
        added++;
    assert_int_equal(err.code, HUTCH_ERR_INVALID);
    assert_int_equal(added, (LIMIT_CONVERSATION_BYTES - LIMIT_CONVERSATION_END) / MIB(1) - 2);
    assert_false(conversation_is_full(&conversation));
    size_t count = conversation.count, bytes = conversation.bytes;
    for (size_t i = 0; i < LIMIT_REPLY_CALLS; i++) {
        id[0] = (char)('0' + i);
        assert_int_equal(conversation_add_tool(&conversation, id, text, sizeof(text), &err), 0);
        const struct message *last = &conversation.messages[conversation.count - 1];
        assert_string_equal(last->text.data,
                            "Error: the answer is too long for what is left of the conversation.");
    }
    assert_int_equal(conversation_add_text(&conversation, MESSAGE_ASSISTANT, text, KIB(1), &err),
                     0);
    assert_true(conversation_is_full(&conversation));
    auto_buf struct buf stored_text = BUF_MAX(LIMIT_CONVERSATION_BYTES);
    auto_json json_t *value = NULL;
    auto_conversation struct conversation again = CONVERSATION_EMPTY;
    conversation_append_stored(&stored_text, &conversation);
    assert_int_equal(stored_text.failure, BUF_OK);
    assert_int_equal(stored_text.length, conversation.bytes + 1); /* brackets, one comma less */
    assert_int_equal(
        json_read(stored_text.data, stored_text.length, LIMIT_CONVERSATION_BYTES, &value, &err), 0);
    assert_int_equal(conversation_read(value, &again, &err), 0);
    assert_int_equal(again.bytes, conversation.bytes);
    conversation_cut(&conversation, count);
    assert_int_equal(conversation.bytes, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transcript_is_read_and_written_again),
        cmocka_unit_test(the_wire_has_one_system_message_and_no_empty_ones),
        cmocka_unit_test(what_only_a_server_knows_goes_to_no_other),
        cmocka_unit_test(text_is_made_utf8_and_keeps_nul),
        cmocka_unit_test(tool_messages_answer_calls),
        cmocka_unit_test(bad_transcripts_are_refused_by_name),
        cmocka_unit_test(a_conversation_is_bounded),
        cmocka_unit_test(a_conversation_has_room_for_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
