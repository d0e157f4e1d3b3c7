/* SPDX-License-Identifier: Apache-2.0 */
/* What a client decides without a network: requests, addresses, keys, delays, statuses. */
#include "agent/chat_request.h"
#include "agent/endpoint.h"
#include "agent/environment.h"
#include "agent/model_error.h"
#include "agent/retry.h"
#include "agent/secret.h"
#include "base/clock.h"
#include "base/fd.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static json_t *json_of(const char *text)
{
    struct hutch_error err;
    json_t *value = NULL;
    auto_buf struct buf quoted = BUF_MAX(10000);

    buf_append_text(&quoted, text);
    for (size_t i = 0; i < quoted.length; i++) {
        if (quoted.data[i] == '\'')
            quoted.data[i] = '"';
    }
    assert_int_equal(json_read(quoted.data, quoted.length, 10000, &value, &err), 0);
    return value;
}

/* ---- requests ---- */

static const char tool[] = "[{'name':'run','description':'runs','parameters':{'type':'object'},"
                           "'strict':true}]";

static void check_body(const struct chat_request *request, const struct chat_quirks *quirks,
                       const char *expected)
{
    struct hutch_error err;
    auto_buf struct buf body = BUF_MAX(10000);

    assert_int_equal(chat_request_check(request, &err), 0);
    assert_int_equal(chat_request_write(request, quirks, NULL, &body, &err), 0);
    for (size_t i = 0; i < body.length; i++) {
        if (body.data[i] == '"')
            body.data[i] = '\'';
    }
    assert_string_equal(body.data, expected);
}

#define START "{'model':'m','messages':[{'role':'user','content':'hi'}],"

static void requests_say_what_is_set(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_conversation struct conversation conversation = CONVERSATION_EMPTY;
    auto_json json_t *tools = json_of(tool), *choice = json_of("{'a':'none'}"),
                     *extra = json_of("{'seed':7,'top_p':null,'stop':['a']}"),
                     *options = json_of("{'stream_options':{'x':1}}");
    const struct chat_quirks none = {.no_stream_options = false};
    const struct chat_quirks all = {true, true, true, true};
    struct chat_request request = CHAT_REQUEST_EMPTY;

    assert_int_equal(conversation_add_text(&conversation, MESSAGE_USER, "hi", 2, &err), 0);
    request.conversation = &conversation;
    request.model = "m";
    request.tool_choice = json_object_get(choice, "a");
    check_body(&request, &none, START "'stream':false}");
    check_body(&request, &all, START "'stream':true}");
    request.stream = true;
    check_body(&request, &none, START "'stream':true,'stream_options':{'include_usage':true}}");
    request.extra = options;
    check_body(&request, &none, START "'stream':true,'stream_options':{'x':1}}");
    check_body(&request, &all, START "'stream':true}");
    request.tools = tools;
    request.temperature = 0.1;
    request.max_tokens = 4096;
    request.extra = extra;
    request.response_format = choice;
    request.stream = false;
    check_body(&request, &none,
               START "'stream':false,'tools':[{'type':'function','function':{'name':'run',"
                     "'description':'runs','parameters':{'type':'object'},'strict':true}}],"
                     "'tool_choice':'none','temperature':0.1,'max_tokens':4096,"
                     "'response_format':{'a':'none'},'seed':7,'stop':['a']}");
    auto_json json_t *more = json_of("{'tool_choice':'required','max_completion_tokens':5,"
                                     "'response_format':{'type':'json_object'}}");
    request.extra = more;
    request.response_format = NULL;
    check_body(&request, &none,
               START "'stream':false,'tools':[{'type':'function','function':{'name':'run',"
                     "'description':'runs','parameters':{'type':'object'},'strict':true}}],"
                     "'tool_choice':'none','temperature':0.1,'max_completion_tokens':5,"
                     "'response_format':{'type':'json_object'}}");
    request.tool_choice = NULL;
    check_body(&request, &none,
               START "'stream':false,'tools':[{'type':'function','function':{'name':'run',"
                     "'description':'runs','parameters':{'type':'object'},'strict':true}}],"
                     "'temperature':0.1,'tool_choice':'required','max_completion_tokens':5,"
                     "'response_format':{'type':'json_object'}}");
    request.tools = NULL;
    check_body(&request, &none,
               START "'stream':false,'temperature':0.1,'max_completion_tokens':5,"
                     "'response_format':{'type':'json_object'}}");
    request.max_completion_tokens = true;
    request.tools = request.extra = request.response_format = NULL;
    check_body(&request, &none,
               START "'stream':false,'temperature':0.1,'max_completion_tokens':4096}");
}

static void requests_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *tools, *extra, *message;
        double temperature;
    } rows[] = {
        {NULL, NULL, "temperature: 2.5 is not from 0 to 2", 2.5},
        {NULL, NULL, "temperature: nan is not from 0 to 2", NAN},
        {"{}", NULL, "tools: an array expected, not an object", 0},
        {"[{'name':'a b'}]", NULL, "tools[0].name: 1 to 64 of a-z A-Z 0-9 _ - expected", 0},
        {"[{'name':'a'}]", NULL, "tools[0].description: a string expected", 0},
        {"[{'name':'a','description':''}]", NULL, "tools[0].parameters: an object expected", 0},
        {"[{'name':'a','description':'','parameters':{}},"
         "{'name':'a','description':'','parameters':{}}]",
         NULL, "tools[1].name: 'a' is there twice", 0},
        {NULL, "[]", "extra: an object expected, not an array", 0},
        {NULL, "{'n':2}", "extra.n: only one choice is asked for", 0},
        {NULL, "{'model':'x'}", "extra.model: is a field of its own", 0},
        {NULL, "{'response_format':{}}", "extra.response_format: the schema sets it", 0},
    };
    struct hutch_error err;
    auto_conversation struct conversation conversation = CONVERSATION_EMPTY;
    struct chat_request request = CHAT_REQUEST_EMPTY;

    assert_int_equal(chat_request_check(&request, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "model: there is no name");
    request.model = "m";
    request.conversation = &conversation;
    assert_int_equal(chat_request_check(&request, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "messages: there is none");
    assert_int_equal(conversation_add_text(&conversation, MESSAGE_USER, "hi", 2, &err), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        auto_json json_t *tools = rows[i].tools ? json_of(rows[i].tools) : NULL;
        auto_json json_t *extra = rows[i].extra ? json_of(rows[i].extra) : NULL;
        request.tools = tools;
        request.extra = extra;
        request.temperature = rows[i].temperature;
        request.response_format = extra;
        assert_int_equal(chat_request_check(&request, &err), HUTCH_ERR_INVALID);
        assert_string_equal(err.message, rows[i].message);
    }
}

/* ---- addresses ---- */

static void base_urls_are_joined(void **state)
{
    (void)state;
    static const struct {
        const char *base, *url; /* url NULL: refused */
    } rows[] = {
        {"https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"},
        {"https://api.openai.com/v1//", "https://api.openai.com/v1/chat/completions"},
        {"http://localhost:11434", "http://localhost:11434/chat/completions"},
        {"HTTP://[::1]:8/", "HTTP://[::1]:8/chat/completions"},
        {"ftp://host/v1", NULL},
        {"host/v1", NULL},
        {"http://", NULL},
        {"http:///v1", NULL},
        {"http://:80/v1", NULL},
        {"http://host:65535/v1", "http://host:65535/v1/chat/completions"},
        {"http://host:65536/v1", NULL},
        {"http://host:99999999999999999999/v1", NULL},
        {"http://host:0/v1", NULL},
        {"http://host:abc/v1", NULL},
        {"http://[::1", NULL},
        {"http://[]/v1", NULL},
        {"http://[::1]x:80/v1", NULL},
        {"http://[fe80::1%25eth0]:80/v1", "http://[fe80::1%25eth0]:80/v1/chat/completions"},
        {"http://h\xff/v1", NULL},
        {"http://user:pw7@host/v1", NULL},
        {"http://host/v1?a=b", NULL},
        {"http://host/v1#a", NULL},
        {"http://host/v1\n", NULL},
        {"http://ho st/v1", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct hutch_error err;
        auto_buf struct buf url = BUF_MAX(10000);
        int code = endpoint_append(&url, rows[i].base, &err);
        assert_int_equal(code, rows[i].url ? 0 : HUTCH_ERR_INVALID);
        if (rows[i].url)
            assert_string_equal(url.data, rows[i].url);
        else
            assert_null(strstr(err.message, "pw7"));
    }
}

static void redirects_stay_on_the_host(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        bool follow;
    } rows[] = {
        {"http://host/a", "http://host/b", true},
        {"http://host:80/a", "http://HOST/b", true},
        {"http://host/a", "https://host/a", true},
        {"http://host:8080/a", "https://host:8443/a", true},
        {"https://host/a", "https://host:443/b", true},
        {"https://host/a", "http://host/a", false},
        {"https://host/a", "https://host:8443/a", false},
        {"https://host/a", "https://other/a", false},
        {"https://host/a", "https://host.other/a", false},
        {"https://host/a", "https://host@other/a", false},
        {"https://host/a", "https://other@host/a", false},
        {"https://host/a", "https://other\\@host/a", false},
        {"https://host/a", "file:///etc/passwd", false},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++)
        assert_int_equal(endpoint_may_follow(rows[i].from, rows[i].to), rows[i].follow);
    assert_true(endpoint_wants_key("https://openrouter.ai/api/v1/chat/completions"));
    assert_false(endpoint_wants_key("https://openrouter.ai.example/v1"));
}

/* ---- keys ---- */

static void keys_are_found_and_hidden(void **state)
{
    (void)state;
    char empty[] = "A=", other[] = "AB=1", good[] = "KEY= sk-secret \n", two[] = "BAD=a b";
    char *const environment[] = {empty, other, good, two, NULL};
    const char *const names[] = {"A", "KEY", NULL}, *const bad[] = {"BAD", NULL},
                      *const missing[] = {"A", "NO", NULL};
    struct hutch_error err;
    auto_secret struct secret key = SECRET_NONE;
    char text[] = "the key sk-secret, and sk-secretsk-secret.";

    assert_int_equal(secret_from_environment(environment, missing, &key, &err), 0);
    assert_null(key.text);
    assert_int_equal(secret_from_environment(environment, bad, &key, &err), HUTCH_ERR_INVALID);
    assert_string_equal(err.message, "BAD: the API key holds a blank or a byte that is not visible "
                                     "ASCII");
    assert_int_equal(secret_from_environment(environment, names, &key, &err), 0);
    assert_string_equal(key.text, "sk-secret");
    const char *const hidden[] = {"ab", "sk-sec", key.text, NULL}; /* the longest counts */
    secret_hide(hidden, text);
    assert_string_equal(text, "the key ***, and ******.");
    secret_hide(NULL, text);
    assert_int_equal(secret_from_file("/nonexistent", &key, &err), HUTCH_ERR_INVALID);
}

static int read_key_of(const char *content, struct secret *ret_key, struct hutch_error *err)
{
    auto_close int fd = memfd_create("key", MFD_CLOEXEC);
    auto_buf struct buf path = BUF_MAX(100);

    assert_int_equal(fd_write_all(fd, content, strlen(content)), 0);
    buf_appendf(&path, "/proc/self/fd/%d", fd);
    return secret_from_file(path.data, ret_key, err);
}

static void keys_are_read_from_files(void **state)
{
    (void)state;
    static char large[LIMIT_KEY_BYTES + 2];
    struct hutch_error err;
    auto_secret struct secret key = SECRET_NONE;

    memset(large, 'x', sizeof(large) - 1);
    assert_int_equal(read_key_of("", &key, &err), HUTCH_ERR_INVALID);
    assert_non_null(strstr(err.message, "the API key is empty"));
    assert_int_equal(read_key_of("one\ntwo\n", &key, &err), HUTCH_ERR_INVALID);
    assert_null(strstr(err.message, "one"));
    assert_int_equal(read_key_of(large, &key, &err), HUTCH_ERR_INVALID);
    assert_non_null(strstr(err.message, "more than 4096 bytes"));
    large[LIMIT_KEY_BYTES] = '\n';
    assert_int_equal(read_key_of(large, &key, &err), 0);
    assert_int_equal(strlen(key.text), LIMIT_KEY_BYTES);
}

static void keys_are_read_from_pipes(void **state)
{
    (void)state;
    char folder[] = "/tmp/hutch-test-XXXXXX";
    auto_buf struct buf path = BUF_MAX(100);
    auto_secret struct secret key = SECRET_NONE;
    struct hutch_error err;

    assert_non_null(mkdtemp(folder));
    buf_appendf(&path, "%s/key", folder);
    assert_int_equal(mkfifo(path.data, 0600), 0);
    pid_t pid = fork(); /* opens its end when somebody reads, and writes in two pieces */
    if (pid == 0) {
        int fd = open(path.data, O_WRONLY | O_CLOEXEC);
        bool good = fd_write_all(fd, "sk-", 3) == 0 && poll(NULL, 0, 50) == 0;
        _exit(!good || fd_write_all(fd, "abc\n", 4) < 0);
    }
    assert_int_equal(secret_from_file(path.data, &key, &err), 0);
    assert_string_equal(key.text, "sk-abc");
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    unlink(path.data);
    rmdir(folder);
}

static void settings_come_from_the_caller_then_the_environment(void **state)
{
    (void)state;
    static char openai_url[] = "OPENAI_BASE_URL=http://a/v1", openai_key[] = "OPENAI_API_KEY=ka",
                router_url[] = "OPENROUTER_BASE_URL=http://r/v1",
                router_key[] = "OPENROUTER_API_KEY=kr", model[] = "HUTCH_MODEL=hm",
                router_as_openai[] = "OPENAI_BASE_URL=https://openrouter.ai/api/v1",
                nothing[] = "OPENAI_BASE_URL=", ca[] = "SSL_CERT_FILE=/ca";
    static const struct {
        const char *base_url;
        char *environment[5];
        const char *url, *key, *model; /* that come of it; key NULL: none */
    } rows[] = {
        {NULL, {NULL}, "https://api.openai.com/v1", NULL, "gpt-4o-mini"},
        {NULL, {openai_key, router_key}, "https://api.openai.com/v1", "ka", "gpt-4o-mini"},
        {NULL, {router_key}, "https://openrouter.ai/api/v1", "kr", "openai/gpt-4o-mini"},
        {NULL, {nothing, router_url, router_key, openai_key}, "http://r/v1", "kr", "gpt-4o-mini"},
        {NULL,
         {openai_url, router_url, router_key, openai_key},
         "http://a/v1",
         "ka",
         "gpt-4o-mini"},
        {NULL,
         {router_as_openai, openai_key},
         "https://openrouter.ai/api/v1",
         "ka",
         "openai/gpt-4o-mini"},
        {"http://c", {openai_url, openai_key, router_key, model}, "http://c", "ka", "hm"},
        {"http://c", {router_key}, "http://c", NULL, "gpt-4o-mini"},
        {"https://openrouter.ai/api/v1",
         {openai_key},
         "https://openrouter.ai/api/v1",
         NULL,
         "openai/gpt-4o-mini"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        const struct model_choice choice = {.base_url = rows[i].base_url};
        struct model_settings settings = MODEL_SETTINGS_NONE;
        struct hutch_error err;
        assert_int_equal(model_settings_read(&choice, rows[i].environment, &settings, &err), 0);
        assert_string_equal(settings.base_url, rows[i].url);
        assert_string_equal(settings.model, rows[i].model);
        assert_string_equal(settings.key.text ? settings.key.text : "none",
                            rows[i].key ? rows[i].key : "none");
        assert_null(settings.ca_file);
        model_settings_done(&settings);
    }
    char *const more[] = {ca, model, NULL};
    const struct model_choice all = {.model = "m", .key_file = "/nonexistent"};
    const struct model_choice choice = {.model = "m"};
    struct model_settings settings = MODEL_SETTINGS_NONE;
    struct hutch_error err;
    assert_int_equal(model_settings_read(&all, more, &settings, &err), HUTCH_ERR_INVALID);
    assert_int_equal(model_settings_read(&choice, more, &settings, &err), 0);
    assert_string_equal(settings.model, "m");
    assert_string_equal(settings.ca_file, "/ca");
    model_settings_done(&settings);
}

/* ---- retries ---- */

static void delays_follow_the_server_or_grow(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        double seconds;
    } rows[] = {
        {"Retry-After", "1", 1},        {"retry-after", "0.25", 0.25},
        {"Retry-After", "60", 60},      {"Retry-After", "61", -1},
        {"Retry-After", "0", -1},       {"Retry-After-Ms", "1500", 1.5},
        {"retry-after-ms", "soon", -1}, {"X-Other", "3", -1},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct retry_hints hints = RETRY_NO_HINTS;
        assert_true(retry_take_header(&hints, rows[i].name, rows[i].value));
        uint64_t delay = retry_delay_ns(&hints, 0, 500, 0);
        double seconds = rows[i].seconds < 0 ? 0.5 : rows[i].seconds;
        assert_int_equal(delay, (uint64_t)(seconds * (double)NS_PER_SECOND));
    }
    struct retry_hints none = RETRY_NO_HINTS;
    assert_false(retry_take_header(&none, "Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT"));
    assert_int_equal(retry_delay_ns(&none, 3, 500, 0), 4 * NS_PER_SECOND);
    assert_int_equal(retry_delay_ns(&none, 90, 500, 0), 8 * NS_PER_SECOND);
    assert_in_range(retry_delay_ns(&none, 0, 500, 1000), 375 * NS_PER_MS, 376 * NS_PER_MS);
}

static void hints_have_an_order(void **state)
{
    (void)state;
    struct retry_hints hints = RETRY_NO_HINTS;

    assert_true(retry_take_header(&hints, "retry-after-ms", "100"));
    assert_true(retry_take_header(&hints, "retry-after", "5"));
    assert_int_equal(retry_delay_ns(&hints, 0, 500, 0), 100 * NS_PER_MS);
    hints = RETRY_NO_HINTS;
    assert_true(retry_take_header(&hints, "retry-after", "5"));
    assert_true(retry_take_header(&hints, "retry-after-ms", "100"));
    assert_int_equal(retry_delay_ns(&hints, 0, 500, 0), 100 * NS_PER_MS);
    assert_true(retry_take_header(&hints, "x-should-retry", "maybe"));
    assert_int_equal(hints.wanted, -1);
    assert_true(retry_take_header(&hints, "X-Should-Retry", "false"));
    assert_int_equal(hints.wanted, 0);
}

/* ---- what servers say ---- */

static void the_words_of_servers_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *body, *words;
    } rows[] = {
        {"{\"error\":{\"message\":\"a\"},\"message\":\"b\"}", "a"},
        {"{\"error\":\"a\",\"message\":\"b\"}", "a"},
        {"[{\"error\":{\"message\":\"a\"}}]", "a"},
        {"{\"object\":\"error\",\"message\":\"a\",\"detail\":\"b\"}", "a"},
        {"{\"detail\":\"a\\nb\\u001b[31m\"}", "a b [31m"},
        {"{\"detail\":[1]}", "{\"detail\":[1]}"},
        {"<html>\r\n <b>no</b>\n", "<html> <b>no</b>"},
        {"bad \xff", "bad \xef\xbf\xbd"},
        {"", ""},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        char words[100];
        model_server_words(rows[i].body, strlen(rows[i].body), NULL, words, sizeof(words));
        assert_string_equal(words, rows[i].words);
    }
    char cut[4];
    model_one_line("ab\xc3\xa4", 4, NULL, cut, sizeof(cut));
    assert_string_equal(cut, "ab");
    const char *const hidden[] = {"sk-secret", NULL};
    model_one_line("sk-secret b", 11, hidden, cut, sizeof(cut));
    assert_string_equal(cut, "***");
    model_one_line("a sk-secret", 11, hidden, cut, sizeof(cut));
    assert_string_equal(cut, "a");
}

static void codes_in_answers_are_statuses(void **state)
{
    (void)state;
    static const struct {
        const char *error;
        int status;
    } rows[] = {
        {"{'code':502}", 502},
        {"{'code':'429'}", 429},
        {"{'code':'rate_limit_exceeded'}", 429},
        {"{'code':null,'type':'overloaded_error'}", 503},
        {"{'type':'server_error'}", 500},
        {"{'code':7,'type':'invalid_request_error'}", 400},
        {"{}", 400},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        auto_json json_t *error = json_of(rows[i].error);
        assert_int_equal(model_status_of(error), rows[i].status);
    }
    assert_true(model_status_retried(408) && model_status_retried(409) &&
                model_status_retried(529));
    assert_false(model_status_retried(400) || model_status_retried(402) ||
                 model_status_retried(413));
    assert_string_equal(model_error_name(model_error_kind_of(403)), "key_refused");
    assert_string_equal(model_error_name((enum model_error_kind)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_say_what_is_set),
        cmocka_unit_test(requests_are_checked),
        cmocka_unit_test(base_urls_are_joined),
        cmocka_unit_test(redirects_stay_on_the_host),
        cmocka_unit_test(keys_are_found_and_hidden),
        cmocka_unit_test(keys_are_read_from_files),
        cmocka_unit_test(keys_are_read_from_pipes),
        cmocka_unit_test(settings_come_from_the_caller_then_the_environment),
        cmocka_unit_test(delays_follow_the_server_or_grow),
        cmocka_unit_test(hints_have_an_order),
        cmocka_unit_test(the_words_of_servers_are_found),
        cmocka_unit_test(codes_in_answers_are_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
