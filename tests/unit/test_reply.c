/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies of models as servers send them, with what they get wrong: each stream as a
 * whole, byte by byte, in two pieces cut at every byte, and with CRLF.
 *
 * In the table ' stands for the quotes of JSON. The tools are run and run_all.
 */
#include "agent/reply.h"

#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define DATA(json) "data: " json "\n\n"
#define DELTA(members) DATA("{'choices':[{'index':0,'delta':{" members "}}]}")
#define ROLE DELTA("'role':'assistant','content':''")
#define TEXT(text) DELTA("'content':'" text "'")
#define CALL(members) DELTA("'tool_calls':[{" members "}]")
#define FN(name, arguments) "'function':{'name':'" name "','arguments':'" arguments "'}"
#define ARGS(arguments) "'function':{'arguments':'" arguments "'}"
#define FINISH(reason) DATA("{'choices':[{'index':0,'delta':{},'finish_reason':'" reason "'}]}")
#define USAGE(n) DATA("{'choices':[],'usage':{'total_tokens':" #n "}}")
#define DONE "data: [DONE]\n\n"

static const struct row {
    const char *what, *stream, *expected;
} rows[] = {
    {"S01 text", ROLE TEXT("He") TEXT("llo") FINISH("stop") USAGE(3) DONE,
     "text=Hello finish=stop usage={'total_tokens':3}"},
    {"S02 a call in pieces",
     CALL("'index':0,'id':'a'," FN("run", "")) CALL("'index':0," ARGS("{\\'co"))
         CALL("'index':0," ARGS("de\\':\\'1\\'}")) FINISH("tool_calls") DONE,
     "call=a,run,{'code':'1'} finish=tool_calls"},
    {"S03 two calls interleaved",
     CALL("'index':0,'id':'a'," FN("run", "")) CALL("'index':1,'id':'b'," FN("run", ""))
         CALL("'index':0," ARGS("{\\'c\\'")) CALL("'index':1," ARGS("{\\'c\\':2"))
             CALL("'index':0," ARGS(":1}")) CALL("'index':1," ARGS("}")) FINISH("tool_calls") DONE,
     "call=a,run,{'c':1} call=b,run,{'c':2} finish=tool_calls"},
    {"S04 both with index 0",
     CALL("'index':0,'id':'a'," FN("run", "{\\'code\\':\\'1\\'}"))
         CALL("'index':0,'id':'b'," FN("run", "{\\'code\\':\\'2\\'}")) FINISH("tool_calls") DONE,
     "call=a,run,{'code':'1'} call=b,run,{'code':'2'} finish=tool_calls"},
    {"S05 and without ids",
     CALL("'index':0," FN("run", "{\\'code\\':\\'1\\'}"))
         CALL("'index':0," FN("run", "{\\'code\\':\\'2\\'}")) FINISH("tool_calls") DONE,
     "call=call_1,run,{'code':'1'} call=call_2,run,{'code':'2'} finish=tool_calls"},
    {"S06 without an index",
     CALL("'id':'a'," FN("run", "{\\'co")) CALL(ARGS("de\\':\\'1\\'}")) FINISH("stop") DONE,
     "call=a,run,{'code':'1'} finish=stop"},
    {"S07 a signature by itself",
     CALL("'index':0,'id':'a'," FN("run", "{}"))
         CALL("'index':0,'extra_content':{'google':{'thought_signature':'b\\\\/w=='}}")
             FINISH("stop") DONE,
     "call=a,run,{}+{'extra_content':{'google':{'thought_signature':'b\\\\/w=='}}} finish=stop"},
    {"S07 a signature without a place",
     CALL("'index':0,'id':'a'," FN("run", "{}")) CALL("'index':5,'extra_content':1") FINISH("stop"),
     "call=a,run,{}+{'extra_content':1} finish=stop"},
    {"S08 index from 1", CALL("'index':1,'id':'a'," FN("run", "{}")) FINISH("tool_calls") DONE,
     "call=a,run,{} finish=tool_calls"},
    {"S09 null id and name, then empty ones",
     CALL("'index':0,'id':'a'," FN("run", "{"))
         CALL("'index':0,'id':null,'function':{'name':null,'arguments':'\\'c\\'"
              "'}") CALL("'index':0,'id':''," FN("", ":1}")) FINISH("tool_calls") DONE,
     "call=a,run,{'c':1} finish=tool_calls"},
    {"S10 name and id in each piece",
     CALL("'index':0,'function':{'id':'a','name':'run','arguments':'{\\'c'}")
         CALL("'index':0,'function':{'id':'a','name':'run','arguments':'\\':1}'}")
             FINISH("tool_calls") DONE,
     "call=a,run,{'c':1} finish=tool_calls"},
    {"S10 without an id",
     CALL("'index':0," FN("run", "{\\'c")) CALL("'index':0," FN("run", "\\':1}")) DONE,
     "call=call_1,run,{'c':1} finish=tool_calls"},
    {"a name in pieces, and one that grows",
     CALL("'index':0,'id':'a'," FN("ru", "")) CALL("'index':0," FN("n_all", "{}"))
         CALL("'index':1,'id':'b'," FN("ru", "")) CALL("'index':1,'id':'b'," FN("run", "{}")) DONE,
     "call=a,run_all,{} call=b,run,{} finish=tool_calls"},
    {"a name that grows too far",
     CALL("'index':0,'id':'a'," FN("run", "")) CALL("'index':0,'id':'a'," FN("xy", "{}")) DONE,
     "call=a,run,{} finish=tool_calls"},
    {"S11 arguments as an object",
     CALL("'index':0,'id':'a','function':{'name':'run','arguments':{'c':[1,2.5]}}")
         FINISH("tool_calls") DONE,
     "call=a,run,{'c':[1,2.5]} finish=tool_calls"},
    {"S11 a string in a string",
     CALL("'index':0,'id':'a'," FN("run", "\\'{\\\\\\'c\\\\\\':1}\\'")) FINISH("tool_calls"),
     "call=a,run,{'c':1} finish=tool_calls"},
    {"S12 no arguments",
     CALL("'index':0,'id':'a'," FN("run", ""))
         CALL("'index':1,'id':'b','function':{'name':'run','arguments':null}")
             CALL("'index':2,'id':'c','function':{'name':'run'}")
                 CALL("'index':3,'id':'d'," FN("run", " null ")) FINISH("tool_calls") DONE,
     "call=a,run,{} call=b,run,{} call=c,run,{} call=d,run,{} finish=tool_calls"},
    {"S13 a second object",
     CALL("'index':0,'id':'a'," FN("run", "{\\'c\\':1}")) CALL("'index':0," FN("", "{\\'c\\':2}"))
         FINISH("tool_calls") DONE,
     "call=a,run,{'c':1} call=call_1,run,{'c':2} finish=tool_calls"},
    {"S13 an empty one first",
     CALL("'index':0,'id':'a'," FN("run", "{}")) CALL("'index':0," FN("", "{\\'c"))
         CALL("'index':0," ARGS("\\':1}")) FINISH("tool_calls") DONE,
     "call=a,run,{'c':1} finish=tool_calls"},
    {"the same object again, in pieces",
     CALL("'index':0,'id':'a'," FN("run", "{\\'c\\':1}")) CALL("'index':0,'id':'a'," ARGS("{\\'c"))
         CALL("'index':0,'id':'a'," ARGS("\\':1}")) FINISH("tool_calls") DONE,
     "call=a,run,{'c':1} finish=tool_calls"},
    {"several objects in one piece",
     CALL("'index':0,'id':'a'," FN("run", "{} {\\'c\\':1}{\\'c\\':1}{\\'c\\':2}")) DONE,
     "call=a,run,{'c':1} call=call_1,run,{'c':2} finish=tool_calls"},
    {"another tool without an id",
     CALL("'index':0," FN("run", "{}")) CALL("'index':0," FN("run_all", "{}")) DONE,
     "call=call_1,run,{} call=call_2,run_all,{} finish=tool_calls"},
    {"the same id twice, and one like ours",
     CALL("'index':0,'id':'call_1'," FN("run", "{}")) CALL("'index':1," FN("run", "{\\'c\\':1}"))
         DONE,
     "call=call_1,run,{} call=call_2,run,{'c':1} finish=tool_calls"},
    {"S14 cut off at the limit",
     TEXT("Let me run it.") CALL("'index':0,'id':'a'," FN("run", "{\\'code\\':\\'pri"))
         FINISH("length") DONE,
     "text=Let me run it. call=a,run,{}!cut_off finish=length"},
    {"S15 which the server does not say",
     TEXT("Let me run it.") CALL("'index':0,'id':'a'," FN("run", "{\\'code\\':\\'pri"))
         FINISH("tool_calls") DONE,
     "text=Let me run it. call=a,run,{}!cut_off finish=tool_calls"},
    {"cut off before the arguments, a whole call before",
     CALL("'index':0,'id':'a'," FN("run", "{\\'c\\':1}")) CALL("'index':1,'id':'b'," FN("run", ""))
         FINISH("length") DONE,
     "call=a,run,{'c':1} call=b,run,{}!cut_off finish=length"},
    {"cut off in a word", CALL("'index':0,'id':'a'," FN("run", "{\\'c\\':tr")) FINISH("tool_calls"),
     "call=a,run,{}!cut_off finish=tool_calls"},
    {"cut off in an escape",
     CALL("'index':0,'id':'a'," FN("run", "{\\'c\\':\\'\\\\u00")) FINISH("tool_calls"),
     "call=a,run,{}!cut_off finish=tool_calls"},
    {"S16 a raw line end", CALL("'index':0,'id':'a'," FN("run", "{\\'code\\': \\'a\\nb\\'}")) DONE,
     "call=a,run,{'code':'a\\nb'} finish=tool_calls"},
    {"S16 no objects",
     CALL("'index':0,'id':'a'," FN("run", "[1]")) CALL("'index':1,'id':'b'," FN("run", "{]")) CALL(
         "'index':2,'id':'c'," FN("run", "{}x")) CALL("'index':3,'id':'d'," FN("run", "x")) DONE,
     "call=a,run,{}!malformed call=b,run,{}!malformed call=c,run,{}!malformed "
     "call=d,run,{}!malformed finish=tool_calls"},
    {"an unknown tool, a bad name",
     CALL("'index':0,'id':'a'," FN("nope", "{}")) CALL(
         "'index':1,'id':'b'," FN("a b\xc3\xa4", "{}")) CALL("'index':2,'id':'c'," ARGS("{}")) DONE,
     "call=a,nope,{}!unknown_tool call=b,a_b__,{}!unknown_tool call=c,unknown,{}!unknown_tool "
     "finish=tool_calls"},
    {"S17 what says nothing",
     ": hello\n\n" TEXT("a") DATA(": OPENROUTER PROCESSING") "retry: 3000\n\n"
                                                             "event: ping\n\ndata:\n\n" TEXT("b")
                                                                 FINISH("stop") DONE,
     "text=ab finish=stop"},
    {"S18 two on a line, one on two lines, no empty line",
     "data: {'choices':[{'delta':{'content':'a'}}]}{'choices':[{'delta':{'content':'b'}}]}data: "
     "{'choices':[{'delta':{'content':'c'}}]}\n\n"
     "data: {'choices':[{'delta':\ndata: {'content':'d'}}]}\n\n"
     "data: {'choices':[{'delta':{'content':'e'},'finish_reason':'stop'}]}",
     "text=abcde finish=stop"},
    {"the end mark without an empty line", TEXT("a") "data: [DONE]", "text=a finish=stop"},
    {"S19 an error behind text",
     TEXT("He") DATA("{'error':{'code':502,'message':'upstream gone'},'choices':[]}"),
     "error=server_error shown: the server gave an error instead of the rest of the reply: "
     "upstream gone"},
    {"S20 to be tried again", DATA("{'error':{'code':429,'message':'slow down'},'choices':[]}"),
     "error=rate_limit again: the server gave an error instead of a reply: slow down"},
    {"S20 not to be", DATA("{'error':{'code':'400','message':'bad'}}"),
     "error=refused: the server gave an error instead of a reply: bad"},
    {"errors in other forms", DATA("{'error':'overloaded','type':'overloaded_error'}"),
     "error=server_error again: the server gave an error instead of a reply: overloaded"},
    {"a reason that is an error",
     DATA("{'choices':[{'delta':{},'finish_reason':'error'}],'code':'rate_limit_exceeded'}"),
     "error=rate_limit again: the server gave an error instead of a reply: no reason given"},
    {"an event that is an error", "event: error\ndata: {'message':'no','type':'server_error'}\n\n",
     "error=server_error again: the server gave an error instead of a reply: no"},
    {"an event that is an error in words", "event: error\ndata: it broke\n\n",
     "error=server_error again: the server gave an error instead of a reply: it broke"},
    {"no error", DATA("{'error':null,'choices':[{'delta':{'content':'a'}}]}") DONE,
     "text=a finish=stop"},
    {"S21 closed behind text", TEXT("He"),
     "error=truncated shown: stream truncated: the server closed it before the reply was finished"},
    {"S21 closed before", ROLE,
     "error=truncated again: stream truncated: the server closed it before the reply was finished"},
    {"S21 closed in an event", TEXT("He") "data: {'choices':[{'delta':{'conte",
     "error=truncated shown: stream truncated: the server closed it before the reply was finished"},
    {"nothing at all", "",
     "error=truncated again: stream truncated: the server closed it before the reply was finished"},
    {"S22 no reason", DATA("{'choices':[{'delta':{'content':'a'},'finish_reason':null}]}") DONE,
     "text=a finish=stop"},
    {"S22 an empty reason first",
     DATA("{'choices':[{'delta':{'content':'a'},'finish_reason':''}]}") TEXT("b") FINISH("stop"),
     "text=ab finish=stop"},
    {"the last reason counts", FINISH("stop") TEXT("a") FINISH("length"), "text=a finish=length"},
    {"other reasons", TEXT("a") FINISH("eos_token"), "text=a finish=stop"},
    {"S23 usage in each chunk",
     DATA("{'choices':[{'delta':{'content':'a'}}],'usage':{'total_tokens':1}}")
         DATA("{'choices':[{'delta':{},'finish_reason':'stop'}],'usage':{'total_tokens':2}}"),
     "text=a finish=stop usage={'total_tokens':2}"},
    {"S25 characters", TEXT("\xf0\x9f\x98\x80 \xff \\ud83d \\u0000.") FINISH("content_filter"),
     "text=\xf0\x9f\x98\x80 \xef\xbf\xbd \xef\xbf\xbd <NUL>. finish=content_filter"},
    {"S25 reasoning",
     DELTA("'reasoning':'a'") DELTA("'reasoning':'b'") DELTA("'reasoning_content':'c'")
         DELTA("'reasoning_details':[{'x':1}]") DELTA("'reasoning_details':[{'x':2}]") TEXT("t")
             FINISH("stop"),
     "text=t reasoning=abc extra={'reasoning_details':[{'x':1},{'x':2}],'reasoning_content':'c',"
     "'reasoning':'ab'} finish=stop"},
    {"lists of parts, deltas with other names, other choices",
     DATA("{'choices':[{'index':1,'delta':{'content':'no'}},{'index':0,'delta':null,'message':"
          "{'content':[{'type':'text','text':'a'},'b',{'type':'image'}]}}]}")
         DATA("{'choices':null}") DATA("{}") FINISH("stop"),
     "text=ab finish=stop"},
    {"a refusal", DELTA("'refusal':'I can'") DELTA("'refusal':'not'") FINISH("stop"),
     "text=I cannot refused finish=stop"},
    {"a call of old",
     DELTA("'function_call':{'name':'run','arguments':'{\\'c'}")
         DELTA("'function_call':{'arguments':'\\':1}'}") FINISH("function_call"),
     "call=call_1,run,{'c':1} finish=tool_calls"},
    {"a call of old beside the same of today",
     DELTA("'function_call':{'name':'run','arguments':'{\\'c'},"
           "'tool_calls':[{'index':0,'id':'a'," FN("run", "{\\'c") "}]")
         DELTA("'function_call':{'name':'run','arguments':'\\':1}'},"
               "'tool_calls':[{'index':0,'id':'a'," FN("run", "\\':1}") "}]") FINISH("tool_calls"),
     "call=a,run,{'c':1} finish=tool_calls"},
    {"one id for two calls",
     CALL("'index':0,'id':'a'," FN("run", "{}")) CALL("'index':1,'id':'a'," FN("run", ""))
         CALL("'index':1," ARGS("{\\'c\\':1}")) FINISH("tool_calls"),
     "call=a,run,{} call=call_1,run,{'c':1} finish=tool_calls"},
    {"one id, an index that counts the pieces",
     CALL("'index':0,'id':'a'," FN("run", "{\\'c")) CALL("'index':1,'id':'a'," ARGS("\\':1}"))
         FINISH("tool_calls"),
     "call=a,run,{'c':1} finish=tool_calls"},
    {"text and a call in one delta",
     DELTA("'content':'a','reasoning':'r','tool_calls':[{'id':'a'," FN("run", "{}") "}]") DONE,
     "text=a reasoning=r extra={'reasoning':'r'} call=a,run,{} finish=tool_calls"},
    {"large numbers, members twice",
     DATA("{'created':123456789012345678901234567890,'x':1,'x':2}") TEXT("a") DONE,
     "text=a finish=stop"},
    {"empty", ROLE FINISH("stop"),
     "error=empty_reply again: the model's reply holds neither text nor calls"},
    {"empty at the limit", ROLE FINISH("length"), "text= finish=length"},
    {"not JSON", TEXT("a") DATA("oops"),
     "error=malformed_reply shown: an event of the stream is not JSON (line 1, column 1: a value "
     "expected, not 'o'): oops; is the base URL that of an "
     "OpenAI-compatible API?"},
    {"HTML", DATA("<html>"),
     "error=malformed_reply: an event of the stream is not JSON (line 1, column 1: a value "
     "expected, not '<'): <html>; is the base URL that of an "
     "OpenAI-compatible API?"},
};

static const struct row wholes[] = {
    {"text",
     "{'model':'m','choices':[{'message':{'role':'assistant','content':'Hi'},"
     "'finish_reason':'stop'}],'usage':{'total_tokens':3}}",
     "text=Hi finish=stop usage={'total_tokens':3}"},
    {"S11 a string in a string",
     "{'choices':[{'message':{'content':null,'tool_calls':[{'id':'a','type':'function'," FN(
         "run", "\\'{\\\\\\'c\\\\\\':1}\\'") "}]},'finish_reason':'tool_calls'}]}",
     "call=a,run,{'c':1} finish=tool_calls"},
    {"the same id twice",
     "{'choices':[{'message':{'tool_calls':[{'id':'a'," FN("run", "{}") "},{'id':'a'," FN(
         "run", "{\\'c\\':1}") "}]}}]}",
     "call=a,run,{} call=call_1,run,{'c':1} finish=tool_calls"},
    {"an id of the conversation",
     "{'choices':[{'message':{'tool_calls':[{'id':'used'," FN("run", "{}") "}]}}]}",
     "call=call_1,run,{} finish=tool_calls"},
    {"an error", "{'error':{'message':'no','code':'server_error'}}",
     "error=server_error again: the server gave an error instead of a reply: no"},
    {"an error in a list", "[{'error':{'message':'no','code':404}}]",
     "error=not_found: the server gave an error instead of a reply: no"},
    {"an error object", "{'object':'error','message':'bad','code':400}",
     "error=refused: the server gave an error instead of a reply: bad"},
    {"no choices", "{}",
     "error=malformed_reply: the server's answer has no choices; is the base URL that of an "
     "OpenAI-compatible API?"},
    {"no object", "3",
     "error=malformed_reply: the server answered with a whole number, where an object is expected"},
    {"half of it", "{'choices':[",
     "error=malformed_reply: the server's answer is not JSON (line 1, column 13: a value "
     "expected, not the end of the text): {'choices':[; is the base URL that of an "
     "OpenAI-compatible API?"},
};

static const char *const tools[] = {"run", "run_all", NULL};

/* ---- telling ---- */

static void exchange(struct buf *buf, char from, char to)
{
    for (size_t i = 0; i < buf->length; i++) {
        if (buf->data[i] == from)
            buf->data[i] = to;
    }
}

static void tell_text(struct buf *out, const char *label, const struct hutch_text *text)
{
    buf_appendf(out, "%s=", label);
    for (size_t i = 0; i < text->length; i++)
        buf_appendf(out, text->data[i] ? "%c" : "<NUL>", text->data[i]);
    buf_append_text(out, " ");
}

static void tell_call(struct buf *out, const struct tool_call *call)
{
    static const char *const faults[] = {"", "!cut_off", "!malformed", "!unknown_tool"};

    buf_appendf(out, "call=%s,%s,", call->id, call->name);
    if (call->fault == CALL_GOOD)
        json_append_value(out, call->arguments);
    else
        buf_append_text(out, call->text);
    if (call->extra) {
        buf_append_text(out, "+");
        json_append_value(out, call->extra);
    }
    buf_appendf(out, "%s ", faults[call->fault]);
    assert_int_equal(call->fault == CALL_GOOD, call->problem == NULL);
    assert_true(json_valid(call->text, strlen(call->text)));
}

static void tell(struct buf *out, const struct reply *reply)
{
    const struct message *message = &reply->message;

    if (message->text.data || message->call_count == 0)
        tell_text(out, "text", &message->text);
    if (reply->reasoning.data)
        tell_text(out, "reasoning", &reply->reasoning);
    if (message->extra) {
        buf_append_text(out, "extra=");
        json_append_value(out, message->extra);
        buf_append_text(out, " ");
    }
    for (size_t i = 0; i < message->call_count; i++)
        tell_call(out, &message->calls[i]);
    buf_appendf(out, "%sfinish=%s", reply->refused ? "refused " : "",
                reply_finish_name(reply->finish));
    if (reply->usage) {
        buf_append_text(out, " usage=");
        json_append_value(out, reply->usage);
    }
}

static void tell_error(struct buf *out, const struct model_error *error)
{
    buf_appendf(out, "error=%s%s%s: %s", model_error_name(error->kind),
                error->text_shown ? " shown" : "", error->retry_safe ? " again" : "",
                error->message);
}

/* ---- feeding ---- */

struct feed {
    struct reply_builder builder;
    struct model_error error;
    struct buf shown;
    bool failed, done;
};

static void on_text(void *user, const char *data, size_t length)
{
    struct feed *feed = user;

    assert_true(length > 0);
    buf_append(&feed->shown, data, length);
}

static void feed_init(struct feed *feed, const struct conversation *conversation)
{
    const struct reply_options options = {
        .tools = tools, .conversation = conversation, .on_text = on_text, .user = feed};

    *feed = (struct feed){.shown = BUF_MAX(10000)};
    reply_builder_init(&feed->builder, &options);
}

static int on_event(void *user, const struct sse_event *event)
{
    struct feed *feed = user;

    int code = reply_take_event(&feed->builder, event, &feed->error);
    feed->failed = code < 0;
    feed->done = code > 0;
    return code;
}

/* The reply that came of it; what was shown is its text. */
static void check_end(struct feed *feed, const char *what, const char *expected)
{
    auto_buf struct buf told = BUF_MAX(100000);
    auto_reply struct reply reply = {.finish = REPLY_STOP};

    if (feed->failed || reply_finish(&feed->builder, &reply, &feed->error) < 0) {
        feed->error.text_shown = feed->builder.shown; /* as the client does */
        tell_error(&told, &feed->error);
    } else {
        tell(&told, &reply);
        assert_int_equal(feed->shown.length, reply.message.text.length);
        if (feed->shown.length > 0)
            assert_memory_equal(feed->shown.data, reply.message.text.data, feed->shown.length);
    }
    exchange(&told, '"', '\'');
    if (strcmp(buf_text(&told), expected) != 0)
        print_error("%s:\n%s\n", what, buf_text(&told));
    assert_string_equal(buf_text(&told), expected);
    reply_builder_done(&feed->builder);
    buf_done(&feed->shown);
}

static void check_stream(const struct row *row, const char *stream, size_t length, size_t first,
                         size_t size)
{
    struct hutch_error err;
    struct feed feed;
    struct sse sse;
    int code = 0;

    feed_init(&feed, NULL);
    sse_init(&sse, on_event, &feed);
    for (size_t at = 0; at < length && code == 0;) {
        size_t count = at == 0 && first > 0 ? first : size;
        count = length - at < count ? length - at : count;
        code = sse_feed(&sse, stream + at, count, &err);
        at += count;
    }
    if (code == 0)
        code = sse_end(&sse, &err);
    assert_true(code == 0 || feed.failed || feed.done);
    sse_done(&sse);
    check_end(&feed, row->what, row->expected);
}

static struct buf quoted(const char *text, bool crlf)
{
    struct buf out = BUF_MAX(100000);

    for (; *text; text++)
        buf_append_text(&out, *text == '\n' && crlf ? "\r\n" : (char[]){*text, '\0'});
    exchange(&out, '\'', '"');
    return out;
}

static void streams_whole_and_byte_by_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        for (int crlf = 0; crlf < 2; crlf++) {
            auto_buf struct buf stream = quoted(rows[i].stream, crlf);
            check_stream(&rows[i], stream.data, stream.length, 0, 100000);
            check_stream(&rows[i], stream.data, stream.length, 0, 1);
        }
    }
}

static void streams_cut_at_every_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        auto_buf struct buf stream = quoted(rows[i].stream, false);
        for (size_t first = 1; first < stream.length; first++)
            check_stream(&rows[i], stream.data, stream.length, first, 100000);
    }
}

static void whole_replies(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_json json_t *messages = NULL;
    auto_conversation struct conversation conversation = CONVERSATION_EMPTY;
    auto_buf struct buf text = quoted("[{'role':'assistant','tool_calls':[{'id':'used','function':"
                                      "{'name':'run','arguments':'{}'}}]}]",
                                      false);

    assert_int_equal(json_read(text.data, text.length, 1000, &messages, &err), 0);
    assert_int_equal(conversation_read(messages, &conversation, &err), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(wholes); i++) {
        auto_buf struct buf whole = quoted(wholes[i].stream, false);
        struct feed feed;
        bool of_conversation = strstr(wholes[i].stream, "'used'") != NULL;
        feed_init(&feed, of_conversation ? &conversation : NULL);
        feed.failed = reply_take_whole(&feed.builder, whole.data, whole.length, &feed.error) < 0;
        auto_buf struct buf expected = BUF_MAX(10000);
        buf_append_text(&expected, wholes[i].expected);
        if (of_conversation) /* one call was there before */
            expected.data[strlen("call=call_")] = '2';
        check_end(&feed, wholes[i].what, expected.data);
    }
}

/* ---- what the model is told ---- */

static struct reply reply_of(const char *stream)
{
    struct hutch_error err;
    auto_buf struct buf text = quoted(stream, false);
    struct reply reply = {.finish = REPLY_STOP};
    struct feed feed;
    struct sse sse;

    feed_init(&feed, NULL);
    sse_init(&sse, on_event, &feed);
    assert_true(sse_feed(&sse, text.data, text.length, &err) >= 0);
    sse_done(&sse);
    assert_int_equal(reply_finish(&feed.builder, &reply, &feed.error), 0);
    reply_builder_done(&feed.builder);
    buf_done(&feed.shown);
    return reply;
}

static void problems_tell_the_model_what_to_do(void **state)
{
    (void)state;
    auto_reply struct reply reply =
        reply_of(CALL("'index':0,'id':'a'," FN("run", "{\\'code\\':\\'pri"))
                     CALL("'index':1,'id':'b'," FN("run", "{]"))
                         CALL("'index':2,'id':'c'," FN("nope", "{}")) DONE);
    const struct tool_call *calls = reply.message.calls;

    assert_int_equal(reply.message.call_count, 3);
    assert_string_equal(calls[0].problem,
                        "Error: the call was not executed: its arguments were cut off at the token "
                        "limit, send less. Arguments as they came: {\"code\":\"pri");
    assert_string_equal(calls[1].problem,
                        "Error: the call was not executed: its arguments are not a JSON object: "
                        "line 1, column 2: a member's name in '\"' expected, not ']'. Arguments as "
                        "they came: {]");
    assert_string_equal(calls[2].problem,
                        "Error: there is no tool 'nope'. Available tools: run, run_all.");
}

static void a_reply_has_bounds(void **state)
{
    (void)state;
    auto_buf struct buf entry = BUF_MAX(MIB(6));
    struct hutch_error err;
    struct feed feed;

    feed_init(&feed, NULL);
    for (int i = 0; i <= LIMIT_REPLY_CALLS; i++) {
        buf_clear(&entry);
        buf_appendf(&entry,
                    "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"%d\",\"function\":{"
                    "\"name\":\"run\"}}]}}]}",
                    i);
        const struct sse_event event = {"", entry.data, entry.length, false};
        int code = reply_take_event(&feed.builder, &event, &feed.error);
        assert_int_equal(code, i < LIMIT_REPLY_CALLS ? 0 : -1);
    }
    assert_int_equal(feed.error.kind, MODEL_TOO_LARGE);
    assert_string_equal(feed.error.message, "more than 64 tool calls in a reply");
    reply_builder_done(&feed.builder);

    feed_init(&feed, NULL);
    buf_clear(&entry);
    buf_append_text(&entry, "{\"choices\":[{\"delta\":{\"content\":\"");
    for (uint64_t i = 0; i < MIB(4) / 16; i++)
        buf_append_text(&entry, "0123456789abcdef");
    buf_append_text(&entry, "\"}}]}");
    const struct sse_event text = {"", entry.data, entry.length, false};
    for (uint64_t i = 0; i <= LIMIT_REPLY_TEXT_BYTES / MIB(4); i++) {
        int code = reply_take_event(&feed.builder, &text, &feed.error);
        assert_int_equal(code, i < LIMIT_REPLY_TEXT_BYTES / MIB(4) ? 0 : -1);
    }
    assert_int_equal(feed.error.kind, MODEL_TOO_LARGE);
    reply_builder_done(&feed.builder);

    auto_json json_t *large = NULL;
    buf_clear(&entry);
    buf_append_text(&entry, "{\"id\":\"a\",\"function\":{\"name\":\"run\",\"arguments\":\"");
    for (uint64_t i = 0; i <= LIMIT_ARGUMENTS_BYTES / 16; i++)
        buf_append_text(&entry, "0123456789abcdef");
    buf_append_text(&entry, "\"}}");
    assert_int_equal(json_read(entry.data, entry.length, MIB(6), &large, &err), 0);
    struct calls calls = CALLS_OF(tools);
    assert_int_equal(calls_take(&calls, large, false, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "arguments of a tool call: longer than 4194304 bytes");
    calls_done(&calls);
}

/* What only the server knows: lists go on, other values take the place of the one before. */
static void what_is_not_of_the_protocol_has_bounds(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "{\"choices\":[{\"delta\":{\"own\":[\"%s\"]}}]}",
        "{\"choices\":[{\"delta\":{\"own%d\":\"%s\"}}]}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"a\",\"own%d\":\"%s\"}]}}]}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"%d\",\"own\":\"%s\"}]}}]}",
        "{\"choices\":[{\"delta\":{\"own\":\"%s\"}}]}", /* without end */
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"a\",\"own\":\"%s\"}]}}]}",
    };
    static char piece[KIB(64) + 1];

    memset(piece, 'x', sizeof(piece) - 1);
    for (size_t row = 0; row < ARRAY_LENGTH(pieces); row++) {
        struct feed feed;
        int taken = 0;
        feed_init(&feed, NULL);
        for (int code = 0; code == 0 && taken < 100; taken++) {
            auto_buf struct buf entry = BUF_MAX(MIB(1));
            const char *number = strstr(pieces[row], "%d"), *text = strstr(pieces[row], "%s");
            buf_append(&entry, pieces[row], (size_t)((number ? number : text) - pieces[row]));
            if (number) {
                buf_appendf(&entry, "%d", taken);
                buf_append(&entry, number + 2, (size_t)(text - number) - 2);
            }
            buf_appendf(&entry, "%s%s", piece, text + 2);
            const struct sse_event event = {"", entry.data, entry.length, false};
            code = reply_take_event(&feed.builder, &event, &feed.error);
        }
        assert_int_equal(taken, row < 4 ? 16 : 100);
        if (row < 4)
            assert_int_equal(feed.error.kind, MODEL_TOO_LARGE);
        reply_builder_done(&feed.builder);
    }
}

static void an_empty_reply_leaves_its_usage(void **state)
{
    (void)state;
    static const char text[] = "{\"usage\":{\"total_tokens\":7},\"choices\":[{\"message\":{}}]}";
    auto_reply struct reply reply = {.finish = REPLY_STOP};
    struct feed feed;

    feed_init(&feed, NULL);
    assert_int_equal(reply_take_whole(&feed.builder, text, strlen(text), &feed.error), 0);
    assert_int_equal(reply_finish(&feed.builder, &reply, &feed.error), -1);
    assert_int_equal(feed.error.kind, MODEL_EMPTY);
    assert_int_equal(json_integer_value(json_object_get(feed.builder.usage, "total_tokens")), 7);
    reply_builder_done(&feed.builder);
}

int main(void)
{
    const struct CMUnitTest tests_[] = {
        cmocka_unit_test(streams_whole_and_byte_by_byte),
        cmocka_unit_test(streams_cut_at_every_byte),
        cmocka_unit_test(whole_replies),
        cmocka_unit_test(problems_tell_the_model_what_to_do),
        cmocka_unit_test(a_reply_has_bounds),
        cmocka_unit_test(what_is_not_of_the_protocol_has_bounds),
        cmocka_unit_test(an_empty_reply_leaves_its_usage),
    };
    return cmocka_run_group_tests(tests_, NULL, NULL);
}
