#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The runner of a shell session: takes one exec after the other from the engine and
# runs it in this very shell, so that variables, functions, options, aliases, traps and
# the working directory stay.
#
#     bash --norc --noprofile runner.sh [FILE]
#
# FILE is where the code of each exec is put, WIRE_SHELL_FILE by default. Descriptor
# WIRE_CHANNEL_FD is a socket to the engine. bash reads no NUL, so what comes are texts
# that end in NUL; what goes are frames (see src/sandbox/wire.h).
#
# Theory of operation
# -------------------
# 1. All of the loop is one compound command that redirects the standard streams and the
#    channel. bash keeps the originals of what it redirects at other numbers, close-on-exec,
#    to put them back afterwards, which never comes: so no command inherits the channel,
#    and what the loop itself says (under set -x, or to a trap on DEBUG) goes to /dev/null.
# 2. The code is sourced at the top level, where declare makes globals, with the pipes of the
#    exec as streams, which have names; where they are not there, with the streams of the
#    cell. A redirection by exec of 0, 1 or 2 ends with the exec that made it.
# 3. What ends a shell (exit, wherever it stands, set -e, an unset variable under set -u,
#    an exec of nothing, SIGINT) ends the exec. There is no way back from it in bash, but a
#    trap on EXIT, once. That trap writes the state of the shell to a file and executes the
#    runner anew in the same process, which reads the state and goes on. Lost on this way are
#    the table of jobs (the jobs themselves go on), $!, the stacks of pushd and coprocesses,
#    and where exit was called several functions deep, the local variables of the outer ones
#    become globals.
# 4. A trap of the user's on EXIT is run at the end of the exec that set it. A function
#    named trap keeps it apart from ours. A trap on INT is the user's affair: as in a
#    script, what it does not exit from goes on. One on DEBUG is not in force in a later
#    exec but under set -T, as bash has it for what is sourced.
#
# A SIGINT in the moment in which bash starts a command may miss that command, for which bash
# then waits; so whoever interrupts does it again. Between two execs SIGINT does nothing. What gets past all this (kill -9 of the shell, an
# exec that works, `builtin trap` on EXIT) ends the process: the engine starts a new one.
# So does a SIGINT in the few milliseconds in which the runner is executed anew.
#
# What we tell the engine is a claim. Code that finds the channel can lie about its own
# exit code, nothing else.
#
# Bash 5 and later. Names of ours begin with __hutch_.
#
# Set by name, or a text or a phase and no command:
# shellcheck disable=SC1010,SC2154,SC2209

# -- src/sandbox/wire.h; a test compares the two ------------------------------------------

__hutch_WIRE_CHANNEL_FD=1000
__hutch_WIRE_DONE=19
__hutch_WIRE_EXIT_FAILED=125
__hutch_WIRE_SHELL_FILE=/run/main.sh
__hutch_WIRE_STDOUT_PIPE=/run/.stdout.
__hutch_WIRE_STDERR_PIPE=/run/.stderr.

# -- frames -------------------------------------------------------------------------------

# Sets __hutch_bytes to printf's words for a number of so many bytes, in native order.
__hutch_encode() {
    local __hutch_digits __hutch_byte
    builtin printf -v __hutch_digits '%0*x' "$((2 * $2))" "$1"
    __hutch_bytes=
    while [[ $__hutch_digits ]]; do
        __hutch_byte="\\x${__hutch_digits:0:2}"
        __hutch_digits=${__hutch_digits:2}
        case $__hutch_machine in
        s390* | powerpc | powerpc64 | ppc | ppc64 | sparc* | mips | mips64 | hppa* | m68k)
            __hutch_bytes+=$__hutch_byte
            ;;
        *) __hutch_bytes=$__hutch_byte$__hutch_bytes ;;
        esac
    done
}

__hutch_send_done() {
    local __hutch_frame __hutch_field
    for __hutch_field in 8:4 "$__hutch_WIRE_DONE:2" 0:2 "$__hutch_id:4" "$__hutch_status:4" \
        "$__hutch_interrupted:4"; do
        __hutch_encode "${__hutch_field%:*}" "${__hutch_field#*:}"
        __hutch_frame+=$__hutch_bytes
    done
    # shellcheck disable=SC2059 # the format is made of nothing but bytes
    builtin printf "$__hutch_frame" >&"$__hutch_channel"
}

# The next text from the engine, in the variable that is named. Without a name read takes a
# text as it is, whatever IFS; it fails at an end in the midst, which mapfile does not.
__hutch_read() {
    if [[ ${REPLY@a} == *r* ]]; then
        builtin mapfile -t -d '' -n 1 -u "$__hutch_channel" __hutch_texts
        ((${#__hutch_texts[@]} > 0)) && builtin printf -v "$1" %s "${__hutch_texts[0]}"
    else
        local REPLY
        builtin read -r -d '' -u "$__hutch_channel" && builtin printf -v "$1" %s "$REPLY"
    fi
}

__hutch_quit() {
    builtin trap - EXIT
    builtin exit "$1"
}

__hutch_give_up() {
    builtin echo 'hutch: the shell runner got no request' >&"$__hutch_stderr"
    __hutch_quit "$__hutch_WIRE_EXIT_FAILED"
}

# -- the variables of one exec ----------------------------------------------------------------

__hutch_set_variables() {
    local __hutch_entry __hutch_name
    for __hutch_entry in "${__hutch_entries[@]}"; do
        [[ $__hutch_entry =~ ^[^=]* ]]
        __hutch_name=${BASH_REMATCH[0]}
        __hutch_names+=("$__hutch_name")
        if builtin declare -p "$__hutch_name"; then
            __hutch_values+=("$(builtin declare -p "$__hutch_name")")
        else
            __hutch_values+=('')
        fi
        # shellcheck disable=SC2163 # a name and a value
        builtin export "$__hutch_entry"
    done
}

__hutch_restore_variables() {
    local __hutch_i
    for __hutch_i in "${!__hutch_names[@]}"; do
        builtin unset -v "${__hutch_names[__hutch_i]}"
        if [[ ${__hutch_values[__hutch_i]} ]]; then
            builtin eval "declare -g ${__hutch_values[__hutch_i]#declare }"
        fi
    done
    __hutch_names=() __hutch_values=()
}

# -- one exec -----------------------------------------------------------------------------------

# Waits for the next exec. At the end of the channel the session is over.
__hutch_receive() {
    local __hutch_count __hutch_entry __hutch_input
    __hutch_read __hutch_id || __hutch_quit 0
    if ! __hutch_read __hutch_count; then
        __hutch_give_up
    fi
    __hutch_entries=()
    while ((__hutch_count-- > 0)); do
        __hutch_read __hutch_entry || __hutch_give_up
        __hutch_entries+=("$__hutch_entry")
    done
    if ! __hutch_read __hutch_input || ! __hutch_read __hutch_code; then
        __hutch_give_up
    fi
    __hutch_find_pipes
    __hutch_set_variables
    if [[ $__hutch_input ]]; then
        exec 0< <(builtin printf %s "$__hutch_input" | "$__hutch_base64" -d)
    else
        exec 0</dev/null
    fi
    __hutch_status=0 __hutch_interrupted=0
    __hutch_store
}

# Where the exec prints to.
__hutch_find_pipes() {
    __hutch_out=$__hutch_WIRE_STDOUT_PIPE$__hutch_id
    __hutch_err=$__hutch_WIRE_STDERR_PIPE$__hutch_id
    if [[ ! -p $__hutch_out || ! -p $__hutch_err ]]; then
        __hutch_out=/dev/fd/$__hutch_stdout
        __hutch_err=/dev/fd/$__hutch_stderr
    fi
}

# Puts the code into the file. Where there is no room for it, it is run from memory: it may
# be what makes room.
__hutch_store() {
    local __hutch_mask
    __hutch_mask=$(builtin umask)
    builtin umask 077
    if ! builtin printf %s "$__hutch_code" >|"$__hutch_file"; then
        __hutch_phase=text
    elif __hutch_is_foreign; then
        __hutch_phase=command
        "$__hutch_chmod" 700 "$__hutch_file"
    else
        __hutch_phase=file
    fi
    builtin umask "$__hutch_mask"
}

# Whether the first line names another interpreter than a shell.
__hutch_is_foreign() {
    local __hutch_line=${__hutch_code:0:256}
    __hutch_line=${__hutch_line%%$'\n'*}
    [[ $__hutch_line == '#!'* && ! $__hutch_line =~ [/\ ](ba|da)?sh([[:space:]]|$) ]]
}

# The last thing before code of the user's: traps and options as they were.
__hutch_enter() {
    builtin trap -- "$__hutch_exit_trap" EXIT
    if [[ ${__hutch_on_int+set} ]]; then
        builtin trap -- "$__hutch_on_int" INT
    else
        builtin trap __hutch_interrupt INT
    fi
    local __hutch_rest=$__hutch_options: __hutch_name
    while [[ $__hutch_rest ]]; do
        __hutch_name=${__hutch_rest%%:*}
        __hutch_rest=${__hutch_rest#*:}
        case $__hutch_name in
        noexec | onecmd | '') ;; # would end the loop as well
        *) builtin set -o "$__hutch_name" ;;
        esac
    done
}

# The first thing behind it, with the options that it left in __hutch_options.
__hutch_plain_options() {
    builtin set +aefkuvxCET +o posix +o pipefail
    builtin declare +x __hutch_status __hutch_options
}

__hutch_leave() {
    __hutch_plain_options
    builtin trap : INT
    if [[ $__hutch_phase == trap ]]; then
        __hutch_status=$__hutch_code_status # what a trap ends with is nobody's affair
    fi
    __hutch_code_status=$__hutch_status
    __hutch_next_phase
}

# Behind the code comes its trap on EXIT, if there is one.
__hutch_next_phase() {
    if [[ $__hutch_on_exit ]]; then
        __hutch_code=$__hutch_on_exit
        __hutch_on_exit=
        __hutch_phase=trap
    else
        __hutch_phase=done
    fi
}

__hutch_interrupt() {
    __hutch_interrupted=1
    builtin exit 130
}

# -- when the shell is about to end -------------------------------------------------------------

# What the trap on EXIT does; here, outside of any function of ours, are the local variables
# of the one that exit was called in. It is parsed when it runs, so it has no word that may
# be an alias.
# shellcheck disable=SC2016 # expanded when the trap is run
__hutch_exit_trap='{
    __hutch_status=$? __hutch_options=$SHELLOPTS
    __hutch_plain_options
    \builtin trap : INT
    __hutch_locals=$(\builtin local -p)
    __hutch_again "$@"
} >/dev/null 2>&1'

# Writes the state down, and executes the runner anew.
__hutch_again() {
    case ${FUNCNAME[1]-source} in
    source | main) __hutch_arguments=("$@") ;;
    esac
    __hutch_drop_locals
    __hutch_restore_variables
    __hutch_code_status=$__hutch_status
    __hutch_next_phase
    builtin trap - EXIT INT
    __hutch_traps=$(builtin trap -p)
    builtin trap : INT
    __hutch_aliases=$(builtin alias -p)
    builtin unalias -a
    # shellcheck disable=SC2094 # the file is not read here
    __hutch_print_state >|"$__hutch_file.state" &&
        builtin exec -c "$__hutch_bash" --norc --noprofile "$__hutch_runner" "$__hutch_file" again \
            0<&"$__hutch_channel" 1>&"$__hutch_stdout" 2>&"$__hutch_stderr"
    __hutch_quit "$__hutch_WIRE_EXIT_FAILED"
}

# Unset from a function that the one with the local variable has called, a variable is
# again what it was outside.
__hutch_drop_locals() {
    local __hutch_line __hutch_name __hutch_lines
    builtin mapfile -t __hutch_lines <<<"$__hutch_locals"
    __hutch_locals=
    for __hutch_line in "${__hutch_lines[@]}"; do
        if [[ $__hutch_line =~ ^declare\ -[^\ ]+\ ([a-zA-Z_][a-zA-Z_0-9]*) ]]; then
            builtin unset -v "${BASH_REMATCH[1]}"
        fi
    done
}

# The syntax of functions may need extglob; aliases come last, or they would change the rest.
# shellcheck disable=SC2016 # expanded when the state is read
__hutch_print_state() {
    builtin shopt -p
    builtin declare -f && builtin declare -F &&
        builtin declare -p && builtin umask -p && builtin echo __hutch_complete=1 &&
        builtin echo 'builtin eval "$__hutch_traps"; builtin eval "$__hutch_aliases"'
}

# -- traps ------------------------------------------------------------------------------------

# The builtin, but for EXIT and INT, which are ours: there it is noted what the user wants.
trap() {
    if [[ ${1-} == -- ]]; then
        shift
    fi
    if (($# == 0)) || [[ $1 == -?* ]]; then
        __hutch_show_traps "$@"
    elif [[ $BASHPID != "$$" ]]; then
        builtin trap -- "$@"
    elif (($# == 1)) || [[ $1 =~ ^[0-9]+$ ]]; then
        __hutch_set_traps - "$@"
    else
        __hutch_set_traps "$@"
    fi
}

__hutch_set_traps() {
    local __hutch_action=$1 __hutch_signal __hutch_result=0
    shift
    for __hutch_signal; do
        case $__hutch_signal in
        EXIT | exit | SIGEXIT | 0)
            __hutch_on_exit=${__hutch_action#-}
            [[ $__hutch_action == - ]] || __hutch_on_exit=$__hutch_action
            ;;
        INT | int | SIGINT | sigint | 2)
            if [[ $__hutch_action == - ]]; then
                unset -v __hutch_on_int
                builtin trap __hutch_interrupt INT
            else
                __hutch_on_int=$__hutch_action
                builtin trap -- "$__hutch_action" INT
            fi
            ;;
        ERR)
            # Undone by a function it would be in force again behind it.
            builtin trap -- "${__hutch_action#-}" ERR
            ;;
        *) builtin trap -- "$__hutch_action" "$__hutch_signal" || __hutch_result=$? ;;
        esac
    done
    return $__hutch_result
}

__hutch_show_traps() {
    local __hutch_result=0
    builtin trap -- "${__hutch_on_exit:--}" EXIT
    [[ ${__hutch_on_int+set} ]] || builtin trap - INT
    # shellcheck disable=SC2064 # no trap is set here
    builtin trap "$@" || __hutch_result=$?
    if [[ $BASHPID == "$$" ]]; then
        builtin trap -- "$__hutch_exit_trap" EXIT
        [[ ${__hutch_on_int+set} ]] || builtin trap __hutch_interrupt INT
    fi
    return $__hutch_result
}

# With it, what is said here of DEBUG and its kin holds behind the function too.
builtin declare -ft trap __hutch_set_traps

# -- the beginning --------------------------------------------------------------------------------

# Finds where bash keeps the original of a descriptor, of which there is a copy.
__hutch_find() {
    local __hutch_path __hutch_number
    for __hutch_path in "/proc/$$/fd/"*; do
        __hutch_number=${__hutch_path##*/}
        if ((__hutch_number >= 10 && __hutch_number < 1900 && __hutch_number != 255)) &&
            ((__hutch_number != 1000 && __hutch_number != 1001)) &&
            [[ $__hutch_path -ef /proc/$$/fd/$2 ]]; then
            builtin printf -v "$1" %s "$__hutch_number"
            return 0
        fi
    done
    return 1
}

__hutch_begin() {
    local __hutch_again=$1 __hutch_first=
    __hutch_find __hutch_channel 1900 && __hutch_find __hutch_stdout 1901 &&
        __hutch_find __hutch_stderr 1902 || builtin exit "$__hutch_WIRE_EXIT_FAILED"
    exec 1000<&- 1001<&- 1900<&- 1901<&- 1902<&-
    builtin trap : INT
    if [[ ! $__hutch_again ]]; then
        __hutch_read __hutch_first
        [[ $__hutch_first == session ]] || __hutch_give_up
    fi
}

__hutch_runner=$0 __hutch_bash=$BASH __hutch_machine=$HOSTTYPE
__hutch_file=${1:-$__hutch_WIRE_SHELL_FILE} __hutch_again=${2-}
__hutch_phase=idle __hutch_on_exit='' __hutch_options='' __hutch_traps='' __hutch_complete=''
__hutch_arguments=() __hutch_names=() __hutch_values=() __hutch_status=0 __hutch_interrupted=0
__hutch_base64=$(type -P base64) __hutch_chmod=$(type -P chmod)
BASH_ARGV0=$__hutch_file
set --
shopt -s expand_aliases # as where people type; what sourced code sets of it ends with it
if [[ $__hutch_again ]]; then
    exec 1000<&0 </dev/null
fi
# Above 1001 is where bash then keeps the originals: out of the way of programs.
exec 1001<>/dev/null 1900<&1000 1901>&1 1902>&2

{
    __hutch_begin "$__hutch_again"
    if [[ $__hutch_again ]]; then
        # shellcheck source=/dev/null
        builtin . "$__hutch_file.state"
        [[ $__hutch_complete ]] || __hutch_quit "$__hutch_WIRE_EXIT_FAILED"
        builtin : >|"$__hutch_file.state"
        __hutch_complete=
        set -- "${__hutch_arguments[@]}"
    fi
    # shellcheck source=/dev/null
    while :; do
        case $__hutch_phase in
        idle)
            __hutch_receive
            ;;
        file)
            __hutch_arguments=("$@")
            __hutch_enter
            builtin . "$__hutch_file" 1>>"$__hutch_out" 2>>"$__hutch_err"
            __hutch_status=$? __hutch_options=$SHELLOPTS
            __hutch_leave
            ;;
        command)
            __hutch_enter
            "$__hutch_file" 1>>"$__hutch_out" 2>>"$__hutch_err"
            __hutch_status=$? __hutch_options=$SHELLOPTS
            __hutch_leave
            ;;
        text | trap)
            __hutch_enter
            builtin eval "$__hutch_code" 1>>"$__hutch_out" 2>>"$__hutch_err"
            __hutch_status=$? __hutch_options=$SHELLOPTS
            __hutch_leave
            ;;
        done)
            __hutch_restore_variables
            __hutch_phase=idle
            __hutch_send_done
            ;;
        esac
    done
} 0<&1001 1>&1001 2>&1001 1000>&1001
