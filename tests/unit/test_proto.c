/* SPDX-License-Identifier: Apache-2.0 */
/* Which packets between the engine and the supervisor are taken for frames. */
#include "sandbox/namespace/proto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define EXITED(code) ((code) << 8)
#define STOPPED 0x137f /* by SIGSTOP */

static void a_hello_has_our_version_and_a_code_of_ours(void **state)
{
    (void)state;
    struct proto_hello hello = {.version = PROTO_VERSION};

    assert_true(proto_is_hello(&hello, sizeof(hello)));
    assert_false(proto_is_hello(&hello, sizeof(hello) - 1));
    hello.error.code = HUTCH_ERR_ISOLATION;
    memset(hello.error.message, 'x', sizeof(hello.error.message));
    assert_true(proto_is_hello(&hello, sizeof(hello)));
    assert_int_equal(strlen(hello.error.message), sizeof(hello.error.message) - 1);
    hello.error.code = 1; /* would be taken for success on the way up */
    assert_false(proto_is_hello(&hello, sizeof(hello)));
    hello = (struct proto_hello){.version = PROTO_VERSION + 1};
    assert_false(proto_is_hello(&hello, sizeof(hello)));
}

static void a_start_has_its_descriptors(void **state)
{
    (void)state;
    struct proto_start start = {.language = PROTO_JAVASCRIPT};

    assert_true(proto_is_start(&start, sizeof(start), PROTO_FD_STDIN));
    assert_false(proto_is_start(&start, sizeof(start) - 1, PROTO_FD_STDIN));
    assert_false(proto_is_start(&start, sizeof(start), PROTO_FD_STDIN + 1));
    assert_false(proto_is_start(&start, sizeof(start), 0));
    start.has_stdin = 1;
    assert_true(proto_is_start(&start, sizeof(start), PROTO_FD_STDIN + 1));
    assert_false(proto_is_start(&start, sizeof(start), PROTO_FD_STDIN));
    start.has_files = 1;
    assert_true(proto_is_start(&start, sizeof(start), PROTO_FD_STDIN + 2));
    assert_false(proto_is_start(&start, sizeof(start), PROTO_FD_STDIN + 1));
    start.has_stdin = 2;
    assert_false(proto_is_start(&start, sizeof(start), PROTO_FD_STDIN + 1));
    start = (struct proto_start){.session = 1};
    assert_true(proto_is_start(&start, sizeof(start), PROTO_FD_STDIN));
    start.session = 2;
    assert_false(proto_is_start(&start, sizeof(start), PROTO_FD_STDIN));
    start = (struct proto_start){.session = 1, .kind = PROTO_PROBE};
    assert_false(proto_is_start(&start, sizeof(start), PROTO_FD_STDIN));
    start = (struct proto_start){.language = PROTO_LANGUAGE_COUNT};
    assert_false(proto_is_start(&start, sizeof(start), PROTO_FD_STDIN));
    start = (struct proto_start){.kind = PROTO_PROBE + 1};
    assert_false(proto_is_start(&start, sizeof(start), PROTO_FD_STDIN));
}

static void an_event_says_what_can_be(void **state)
{
    (void)state;
    static const struct {
        struct proto_event event;
        bool expected;
    } rows[] = {
        {{.type = PROTO_STARTED, .layers = HUTCH_LAYERS_NAMESPACE}, true},
        {{.type = PROTO_STARTED, .layers = HUTCH_LAYERS_NAMESPACE + 1}, false},
        {{.type = PROTO_EXITED, .wait_status = EXITED(3)}, true},
        {{.type = PROTO_EXITED, .wait_status = 9, .end = PROTO_END_OUTPUT}, true},
        {{.type = PROTO_EXITED, .end = PROTO_END_OUTPUT + 1}, false},
        {{.type = PROTO_EXITED, .files = 1}, true},
        {{.type = PROTO_EXITED, .files = 2}, false},
        {{.type = PROTO_EXITED, .wait_status = STOPPED}, false},
        {{.type = PROTO_EXITED, .wait_status = 0xffff}, false}, /* continued */
        {{.type = PROTO_FAILED, .error.code = HUTCH_ERR_LAYER}, true},
        {{.type = PROTO_FAILED}, false}, /* would be taken for success */
        {{.type = PROTO_FAILED, .error.code = 5}, false},
        {{.type = PROTO_LOST, .error.code = -1000}, false},
        {{.type = PROTO_EXITED, .has_copy = 2}, false},
        {{.type = PROTO_TIME_UP}, true},
        {{.type = PROTO_RESTED, .signalled = 1}, true},
        {{.type = PROTO_RESTED, .signalled = 2}, false},
        {{.type = PROTO_PIPES}, false},
        {{.type = PROTO_PIPES, .exec_id = 1}, true},
        {{.type = PROTO_PIPES + 1, .exec_id = 1}, false},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct proto_event event = rows[i].event;
        assert_int_equal(proto_is_event(&event, sizeof(event)), rows[i].expected);
        assert_false(proto_is_event(&event, sizeof(event) - 1));
        assert_false(proto_is_event(&event, sizeof(event) + 1));
    }
}

static void a_message_of_an_event_ends(void **state)
{
    (void)state;
    struct proto_event event = {.type = PROTO_LOST, .error.code = HUTCH_ERR_HELPER};

    memset(event.error.message, 'x', sizeof(event.error.message));
    assert_true(proto_is_event(&event, sizeof(event)));
    assert_int_equal(strlen(event.error.message), sizeof(event.error.message) - 1);
}

static void a_stop_has_a_reason(void **state)
{
    (void)state;
    struct proto_order stop = {.type = PROTO_STOP, .end = PROTO_END_OUTPUT};

    assert_true(proto_is_order(&stop, sizeof(stop), 0));
    assert_false(proto_is_order(&stop, sizeof(stop), 1));
    assert_false(proto_is_order(&stop, 0, 0));
    stop.end = PROTO_END_OUTPUT + 1;
    assert_false(proto_is_order(&stop, sizeof(stop), 0));
}

static void an_order_of_a_session_has_its_descriptors(void **state)
{
    (void)state;
    static const size_t counts[PROTO_ORDER_COUNT] = {
        [PROTO_FILES] = 1, [PROTO_COPIES] = 1, [PROTO_RESUME] = 1, [PROTO_RELAUNCH] = 3};

    for (uint32_t type = 0; type < PROTO_ORDER_COUNT; type++) {
        const struct proto_order order = {.type = type};
        for (size_t count = 0; count <= PROTO_ORDER_FDS_MAX; count++)
            assert_int_equal(proto_is_order(&order, sizeof(order), count), count == counts[type]);
    }
    const struct proto_order unknown = {.type = PROTO_ORDER_COUNT};
    assert_false(proto_is_order(&unknown, sizeof(unknown), 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hello_has_our_version_and_a_code_of_ours),
        cmocka_unit_test(a_start_has_its_descriptors),
        cmocka_unit_test(an_event_says_what_can_be),
        cmocka_unit_test(a_message_of_an_event_ends),
        cmocka_unit_test(a_stop_has_a_reason),
        cmocka_unit_test(an_order_of_a_session_has_its_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
