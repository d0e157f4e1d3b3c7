/* SPDX-License-Identifier: Apache-2.0 */
/* Whose turn it is. */
#include "sandbox/fair.h"

#include "base/attrs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct fair fair;
static struct fair_waiter waiters[1000];

static struct fair_waiter *push(size_t index, const char *owner)
{
    fair_push(&fair, fair_hold(&fair, owner), &waiters[index]);
    return &waiters[index];
}

/* Begins the run whose turn it is; returns its index. */
static int next(void)
{
    struct fair_waiter *first = fair_first(&fair, false);

    assert_non_null(first);
    fair_remove(&fair, first);
    fair_begin(&fair, first->owner);
    return (int)(first - waiters);
}

static void end(int index)
{
    struct fair_owner *owner = waiters[index].owner;

    fair_end(owner);
    fair_release(owner);
}

static int setup(void **state)
{
    (void)state;
    fair_init(&fair);
    return 0;
}

/* Every owner is gone: the sanitizers would say so too. */
static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < FAIR_BUCKETS; i++)
        assert_true(LIST_EMPTY(&fair.buckets[i]));
    assert_int_equal(fair.waiting, 0);
    assert_null(fair_first(&fair, false));
    assert_null(fair_last(&fair));
    return 0;
}

static void one_owner_is_served_in_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < 5; i++)
        push(i, i % 2 ? NULL : ""); /* which is the same owner */
    for (int i = 0; i < 5; i++)
        assert_int_equal(next(), i);
    for (int i = 0; i < 5; i++)
        end(i);
}

static void who_has_least_goes_first(void **state)
{
    (void)state;
    for (size_t i = 0; i < 6; i++)
        push(i, "flood");
    assert_int_equal(next(), 0);
    assert_int_equal(next(), 1);
    push(10, "one");
    push(11, "two");
    push(12, "one");
    assert_int_equal(next(), 10);
    assert_int_equal(next(), 11);
    assert_int_equal(next(), 12); /* one active, flood has two */
    assert_int_equal(next(), 2);  /* two each, and no other waits */
    end(0);
    push(13, "one");
    push(14, "two");
    assert_int_equal(next(), 14); /* one active */
    assert_int_equal(next(), 3);  /* two each; flood has waited longer */
    assert_int_equal(next(), 13);
    assert_int_equal(next(), 4);
    assert_int_equal(next(), 5);
    static const int left[] = {1, 2, 3, 4, 5, 10, 11, 12, 13, 14};
    for (size_t i = 0; i < ARRAY_LENGTH(left); i++)
        end(left[i]);
}

/* Where one at a time fits, nobody has active runs when the place is free. */
static void owners_take_turns_one_at_a_time(void **state)
{
    (void)state;
    static const int expected[] = {0, 10, 20, 1, 11, 2, 3};
    for (size_t i = 0; i < 4; i++)
        push(i, "a");
    push(10, "b");
    push(11, "b");
    push(20, "c");
    for (size_t i = 0; i < ARRAY_LENGTH(expected); i++) {
        assert_int_equal(next(), expected[i]);
        end(expected[i]);
    }
}

/* Nor does one that comes again and again get ahead of one that waits. */
static void coming_again_is_no_advantage(void **state)
{
    (void)state;
    push(0, "again");
    assert_int_equal(next(), 0);
    end(0);
    push(10, "waits");
    push(1, "again");
    assert_int_equal(next(), 10);
    end(10);
    assert_int_equal(next(), 1);
    end(1);
}

static void the_last_is_the_newest_of_who_has_most(void **state)
{
    (void)state;
    push(0, "a");
    assert_ptr_equal(fair_last(&fair), &waiters[0]);
    push(1, "b");
    push(2, "b");
    push(3, "a");
    push(4, "b");
    push(5, "c");
    assert_ptr_equal(fair_last(&fair), &waiters[4]);
    for (size_t i = 0; i < 6; i++) {
        fair_remove(&fair, &waiters[i]);
        fair_release(waiters[i].owner);
    }
}

static void a_thousand_owners(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(waiters); i++) {
        char name[LIMIT_OWNER_BYTES + 1];
        snprintf(name, sizeof(name), "%064zu", i);
        assert_string_equal(push(i, name)->owner->name, name);
    }
    assert_int_equal(fair.waiting, ARRAY_LENGTH(waiters));
    for (size_t i = 0; i < ARRAY_LENGTH(waiters); i++)
        assert_int_equal(next(), i);
    for (size_t i = 0; i < ARRAY_LENGTH(waiters); i++)
        end((int)i);
}

/* Of those that have a cell, by the same rule; the others keep their places. */
static void who_has_a_cell_is_found_behind_the_others(void **state)
{
    (void)state;
    push(0, "a");
    push(1, "a")->has_cell = true;
    push(2, "b");
    push(3, "c")->has_cell = true;
    push(4, "a")->has_cell = true;
    static const int with_cell[] = {1, 3, 4};
    for (size_t i = 0; i < ARRAY_LENGTH(with_cell); i++) {
        struct fair_waiter *first = fair_first(&fair, true);
        assert_ptr_equal(first, &waiters[with_cell[i]]);
        fair_remove(&fair, first);
        fair_begin(&fair, first->owner);
    }
    assert_null(fair_first(&fair, true));
    assert_int_equal(next(), 2); /* of b none is active */
    assert_int_equal(next(), 0);
    for (int i = 0; i < 5; i++)
        end(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_owner_is_served_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(who_has_least_goes_first, setup, teardown),
        cmocka_unit_test_setup_teardown(owners_take_turns_one_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(coming_again_is_no_advantage, setup, teardown),
        cmocka_unit_test_setup_teardown(the_last_is_the_newest_of_who_has_most, setup, teardown),
        cmocka_unit_test_setup_teardown(who_has_a_cell_is_found_behind_the_others, setup, teardown),
        cmocka_unit_test_setup_teardown(a_thousand_owners, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
