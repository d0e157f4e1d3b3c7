/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The zygote's part in C, a Python extension of the stable ABI, which every
 * CPython from 3.9 on can load: the fork of the interpreter into a cell, which
 * os.fork() cannot do. runner.py has the rest.
 *
 *   serve(socket)   waits for orders of the supervisor (zygote.h) and forks for
 *                   each; returns in the children only, which are in their
 *                   cells by then and without any power: whether there is a
 *                   request already
 *   park(log)       in such a child: says that it is ready, with a text, or None
 *                   to say nothing; waits until the cell gets its request, and
 *                   takes its descriptors over; returns whether stdin is among them
 *   collapse(start, end)  makes huge pages of what whole ones of these addresses
 *                   hold, so that a child copies one entry of the page table, not 512
 *   copy()          in a session: forks the interpreter as it is, without a trace for
 *                   the program: no hook runs, and no wait() finds the child; returns
 *                   its pid, and 0 in it
 *   changed(dict, before)  the keys whose values are not those of another dict, found
 *                   without a write to any of them
 *   quit(status)    ends the process as os._exit() does, but for what libraries in
 *                   C have printed and is not written yet
 *
 * Between clone and the end of child_enter() the child walks through the plan
 * of its cell by plain system calls, as the supervisor's own children do.
 */
#define PY_SSIZE_T_CLEAN
#include "base/fd.h"
#include "park.h"
#include "plan.h"

#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* ---- orders ------------------------------------------------------------- */

/* 0, or -1 at the end of the socket and for what is no order. */
static int receive_plan(int socket, struct cell_plan *plan)
{
    int fds[PLAN_PASSED_MAX];
    int *places[PLAN_PASSED_MAX];
    size_t count = PLAN_PASSED_MAX;

    if (fd_receive(socket, plan, sizeof(*plan), fds, &count) != (ssize_t)sizeof(*plan) ||
        plan_passed(plan, places) != count)
        return -1;
    for (size_t i = 0; i < count; i++)
        *places[i] = fds[i];
    return 0;
}

static void close_plan(struct cell_plan *plan)
{
    int *places[PLAN_PASSED_MAX];
    size_t count = plan_passed(plan, places);

    for (size_t i = 0; i < count; i++)
        close(*places[i]);
}

static int reply(int socket, int pidfd, int error)
{
    struct zygote_reply body = {.error = error};
    return fd_send(socket, &body, sizeof(body), &pidfd, pidfd >= 0);
}

/* ---- the fork ----------------------------------------------------------- */

static int *find_tid_place(void)
{
    int *place = NULL;

    IGNORE_RESULT(prctl(PR_GET_TID_ADDRESS, &place, 0, 0, 0));
    return place;
}

/* As the C library's fork, but for a child of the supervisor: CLONE_PARENT. The
 * library keeps the thread's id in a place that the kernel knows, and a list
 * of robust locks whose head the kernel has to be told anew. */
static pid_t fork_to_parent(int *ret_pidfd)
{
    int *tid_place = find_tid_place();
    void *robust_list = NULL;
    size_t robust_length = 0;

    IGNORE_RESULT(syscall(SYS_get_robust_list, 0, &robust_list, &robust_length));
    struct clone_args args = {
        .flags = CLONE_PARENT | CLONE_PIDFD |
                 (tid_place ? CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID : 0ULL),
        .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
        .child_tid = (uint64_t)(uintptr_t)tid_place,
    };
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0 && robust_list)
        IGNORE_RESULT(syscall(SYS_set_robust_list, robust_list, robust_length) < 0);
    return pid;
}

static void report_parked(struct cell_plan *plan, uint32_t layers)
{
    child_wait_for_init(plan);
    /* As an exec would leave it: the program may look at itself. */
    if (prctl(PR_SET_DUMPABLE, 1) < 0)
        child_fail(plan, CHILD_DUMPABLE, errno);
    child_report(plan, &(struct child_report){.step = CHILD_READY, .layers = layers});
    close(plan->report_fd);
    close(plan->ready_fds[0]);
    explicit_bzero(plan, sizeof(*plan));
}

/* Returns the child's pid, 0 in the child, -1 with errno. */
static pid_t fork_into_cell(struct cell_plan *plan, int own_pid_ns, int *ret_pidfd)
{
    pid_t pid = -1;

    PyOS_BeforeFork();
    if (setns(plan->ns_fds[PLAN_NS_PID], CLONE_NEWPID) == 0) {
        pid = fork_to_parent(ret_pidfd);
        if (pid == 0) {
            uint32_t layers = child_enter(plan);
            PyOS_AfterFork_Child(); /* hooks of modules; what they may do wrong, before that is told
                                     */
            report_parked(plan, layers);
            return 0;
        }
        int error = errno;
        if (setns(own_pid_ns, CLONE_NEWPID) < 0)
            _exit(1); /* the next child would be in the wrong cell */
        errno = error;
    }
    int error = errno;
    PyOS_AfterFork_Parent();
    errno = error;
    return pid;
}

/* ---- the module --------------------------------------------------------- */

static PyObject *serve(PyObject *module, PyObject *argument)
{
    (void)module;
    int socket = (int)PyLong_AsLong(argument);
    int own_pid_ns = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    struct cell_plan plan;

    if (own_pid_ns < 0 || reply(socket, -1, 0) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    while (receive_plan(socket, &plan) == 0) {
        int pidfd = -1;
        bool has_request = plan.has_request; /* the child wipes its plan */
        pid_t pid = fork_into_cell(&plan, own_pid_ns, &pidfd);
        if (pid == 0)
            return PyBool_FromLong(has_request);
        int error = pid < 0 ? errno : 0;
        close_plan(&plan); /* first: what is said to a dead child shall not seem to arrive */
        int code = reply(socket, pidfd, error);
        if (pid > 0)
            close(pidfd);
        if (code < 0)
            break;
    }
    _exit(0); /* the supervisor lets go: no hook of a preloaded module may hinder it */
}

static bool set_cpu(const cpu_set_t *cpu)
{
    return sched_setaffinity(0, sizeof(*cpu), cpu) == 0;
}

static PyObject *park_process(PyObject *module, PyObject *log)
{
    const struct parking parking = {.socket = WIRE_CHANNEL_FD, .set_cpu = set_cpu};
    char *text;
    Py_ssize_t length;
    (void)module;

    if (log != Py_None) {
        if (PyBytes_AsStringAndSize(log, &text, &length) < 0)
            return NULL;
        park_say_ready(&parking, text, (size_t)length);
    }
    return PyBool_FromLong(park(&parking));
}

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

/* A host that has no huge pages to give leaves the memory as it is. */
static PyObject *collapse(PyObject *module, PyObject *arguments)
{
    (void)module;
    unsigned long long start, end;

    if (!PyArg_ParseTuple(arguments, "KK", &start, &end))
        return NULL;
    start = (start + MIB(2) - 1) / MIB(2) * MIB(2);
    for (; start + MIB(2) <= end; start += MIB(2))
        IGNORE_RESULT(madvise((void *)(uintptr_t)start, MIB(2), MADV_COLLAPSE) < 0);
    Py_RETURN_NONE;
}

/* With signal 0 as its end the child is none that wait() and SIGCHLD know of. There is one
 * thread, so nothing that another one held has to be set free. */
static PyObject *copy(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    int *tid_place = find_tid_place();
    unsigned long flags = tid_place ? CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID : 0;
    void *robust_list = NULL;
    size_t robust_length = 0;

    IGNORE_RESULT(syscall(SYS_get_robust_list, 0, &robust_list, &robust_length));
    long pid = syscall(SYS_clone, flags, NULL, NULL, tid_place, 0UL);
    if (pid < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    if (pid == 0 && robust_list)
        IGNORE_RESULT(syscall(SYS_set_robust_list, robust_list, robust_length) < 0);
    return PyLong_FromLong(pid);
}

static PyObject *changed(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *dict, *before, *key, *value;
    Py_ssize_t position = 0;

    if (!PyArg_ParseTuple(arguments, "O!O!", &PyDict_Type, &dict, &PyDict_Type, &before))
        return NULL;
    PyObject *keys = PyList_New(0);
    while (keys && PyDict_Next(dict, &position, &key, &value)) {
        PyObject *known = PyDict_GetItemWithError(before, key);
        if (known != value && (PyErr_Occurred() || PyList_Append(keys, key) < 0))
            Py_CLEAR(keys);
    }
    return keys;
}

static PyObject *quit(PyObject *module, PyObject *argument)
{
    (void)module;
    int status = (int)PyLong_AsLong(argument);

    fflush(NULL);
    _exit(status);
}

static PyMethodDef methods[] = {
    {"serve", serve, METH_O, NULL},
    {"park", park_process, METH_O, NULL},
    {"collapse", collapse, METH_VARARGS, NULL},
    {"copy", copy, METH_NOARGS, NULL},
    {"changed", changed, METH_VARARGS, NULL},
    {"quit", quit, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "hutch_zygote",
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit_hutch_zygote(void);
PyMODINIT_FUNC PyInit_hutch_zygote(void)
{
    return PyModule_Create(&definition);
}
