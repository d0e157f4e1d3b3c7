/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a Python interpreter: the real one, and programs that are none. */
#include "base/clock.h"
#include "sandbox/namespace/tree_python.h"
#include "script.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#define PYTHON "/usr/bin/python3"

static int memory_file(const char *text)
{
    int fd = memfd_create("runner", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static int ask(const char *interpreter, const char *runner, uint64_t within_ns,
               struct python_info *info, struct hutch_error *err)
{
    auto_close int fd = memory_file(runner);
    return python_ask(interpreter, fd, clock_after_ns(within_ns), info, err);
}

/* Asks an interpreter that is a shell script. */
static int ask_script(const char *script, uint64_t within_ns, struct hutch_error *err)
{
    auto_python_info struct python_info info = {0};
    char path[] = SCRIPT_PATH;
    assert_true(script_make(path, script));
    int result = ask(path, "pass\n", within_ns, &info, err);
    unlink(path);
    return result;
}

static void the_real_one_answers(void **state)
{
    (void)state;
    auto_python_info struct python_info info = {0};
    struct hutch_error err;
    bool has_dynload = false;

    assert_int_equal(ask(PYTHON, "pass\n", 20 * NS_PER_SECOND, &info, &err), 0);
    assert_int_equal(strncmp(info.version, "3.", 2), 0);
    assert_string_equal(info.executable, PYTHON);
    assert_string_equal(info.prefix, "/usr");
    assert_string_equal(info.base_prefix, "/usr");
    for (size_t i = 0; i < info.path.count; i++)
        has_dynload = has_dynload || strstr(info.path.items[i], "/lib-dynload");
    assert_true(has_dynload);
}

/* The answer's last part is a .pyc file that the interpreter runs without
 * looking for its source, and whose frames carry a neutral name. */
static void it_compiles_the_runner(void **state)
{
    (void)state;
    auto_python_info struct python_info info = {0};
    struct hutch_error err;
    char path[] = "/tmp/hutch-test-XXXXXX.pyc";
    static const char runner[] = "import sys\n"
                                 "assert True\n"
                                 "name = sys._getframe().f_code.co_filename\n"
                                 "sys.exit(42 if name == '<hutch>' else 1)\n";

    assert_int_equal(ask(PYTHON, runner, 20 * NS_PER_SECOND, &info, &err), 0);
    assert_true(info.runner.length > 16);
    assert_int_equal(info.runner.data[4], 1); /* hash-based, unchecked */
    auto_close int fd = mkstemps(path, 4);
    assert_int_equal(write(fd, info.runner.data, info.runner.length), info.runner.length);
    pid_t pid = fork();
    if (pid == 0) {
        execl(PYTHON, PYTHON, "-I", path, (char *)NULL);
        _exit(1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    unlink(path);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
}

static void a_missing_one_names_the_package(void **state)
{
    (void)state;
    auto_python_info struct python_info info = {0};
    struct hutch_error err;

    assert_int_equal(ask("/usr/bin/no-python3", "", NS_PER_SECOND, &info, &err), HUTCH_ERR_RUNTIME);
    assert_string_equal(err.message, "python interpreter '/usr/bin/no-python3' not found: "
                                     "install the package python3");
}

static void a_runner_that_does_not_compile_is_an_error(void **state)
{
    (void)state;
    auto_python_info struct python_info info = {0};
    struct hutch_error err;

    assert_int_equal(ask(PYTHON, "def (:\n", 20 * NS_PER_SECOND, &info, &err), HUTCH_ERR_RUNTIME);
    assert_non_null(strstr(err.message, "SyntaxError"));
}

static void others_are_refused(void **state)
{
    (void)state;
    struct hutch_error err;

    assert_int_equal(ask_script("exit 99", 20 * NS_PER_SECOND, &err), HUTCH_ERR_RUNTIME);
    assert_non_null(strstr(err.message, "not CPython 3.9 or later"));
    assert_int_equal(ask_script("exit 0", 20 * NS_PER_SECOND, &err), HUTCH_ERR_RUNTIME);
    assert_non_null(strstr(err.message, "not CPython 3.9 or later"));
    assert_int_equal(ask_script("echo 3.11", 20 * NS_PER_SECOND, &err), HUTCH_ERR_RUNTIME);
    assert_int_equal(ask_script("printf '3.11\\0/x\\0/y\\0/z\\0/p\\0'", 20 * NS_PER_SECOND, &err),
                     HUTCH_ERR_RUNTIME);
    assert_non_null(strstr(err.message, "incomplete"));
    assert_int_equal(
        ask_script("echo one >&2; printf 'tw\\033o\\n' >&2; exit 3", 20 * NS_PER_SECOND, &err),
        HUTCH_ERR_RUNTIME);
    assert_non_null(strstr(err.message, "exit status 3: 'tw\\x1bo'"));
    assert_int_equal(ask_script("kill -SEGV $$", 20 * NS_PER_SECOND, &err), HUTCH_ERR_RUNTIME);
    assert_non_null(strstr(err.message, "signal 11"));
}

static void endless_ones_are_ended(void **state)
{
    (void)state;
    struct hutch_error err;

    assert_int_equal(ask_script("tail -f /dev/null", NS_PER_SECOND / 5, &err), HUTCH_ERR_RUNTIME);
    assert_non_null(strstr(err.message, "does not end"));
    /* The bound on its output ends this one. */
    assert_int_equal(ask_script("exec yes", 20 * NS_PER_SECOND, &err), HUTCH_ERR_RUNTIME);
    assert_null(strstr(err.message, "does not end"));
}

/* Nothing of ours gets in: descriptors, environment, signal mask. */
static void it_inherits_nothing(void **state)
{
    (void)state;
    struct hutch_error err;
    auto_close int leak = open("/dev/null", O_RDONLY); /* not close-on-exec, on purpose */
    sigset_t all, before;

    assert_true(leak > 2);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    int result = ask_script("exec >&2\n"
                            "[ -e /proc/self/fd/3 ] || [ -n \"$HOME\" ] && exit 4\n"
                            "grep -q '^SigBlk:.*[1-9a-f]' /proc/self/status && exit 5\n"
                            "exit 6",
                            20 * NS_PER_SECOND, &err);
    sigprocmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(result, HUTCH_ERR_RUNTIME);
    assert_non_null(strstr(err.message, "exit status 6"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_real_one_answers),
        cmocka_unit_test(it_compiles_the_runner),
        cmocka_unit_test(a_missing_one_names_the_package),
        cmocka_unit_test(a_runner_that_does_not_compile_is_an_error),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(endless_ones_are_ended),
        cmocka_unit_test(it_inherits_nothing),
    };
    return cmocka_run_group_tests_name("tree_python", tests, NULL, NULL);
}
