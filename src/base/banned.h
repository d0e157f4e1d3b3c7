/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that do not compile anywhere in this tree; the build includes this
 * file in front of every source. The system headers come first, or the
 * definitions below would rewrite their prototypes.
 */
#pragma once

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#define BANNED(call) sorry_##call##_is_banned

#undef strcpy
#define strcpy(...) BANNED(strcpy)
#undef strcat
#define strcat(...) BANNED(strcat)
#undef strncpy
#define strncpy(...) BANNED(strncpy)
#undef strncat
#define strncat(...) BANNED(strncat)
#undef sprintf
#define sprintf(...) BANNED(sprintf)
#undef vsprintf
#define vsprintf(...) BANNED(vsprintf)
#undef strtok
#define strtok(...) BANNED(strtok)
#undef gets
#define gets(...) BANNED(gets)
#undef sscanf
#define sscanf(...) BANNED(sscanf)
#undef atoi
#define atoi(...) BANNED(atoi)
#undef atol
#define atol(...) BANNED(atol)
#undef atof
#define atof(...) BANNED(atof)
#undef gmtime
#define gmtime(...) BANNED(gmtime)
#undef localtime
#define localtime(...) BANNED(localtime)
#undef ctime
#define ctime(...) BANNED(ctime)
#undef strerror
#define strerror(...) BANNED(strerror)
#undef mktemp
#define mktemp(...) BANNED(mktemp)
#undef tmpnam
#define tmpnam(...) BANNED(tmpnam)
#undef alloca
#define alloca(...) BANNED(alloca)
#undef select
#define select(...) BANNED(select)
#undef signal
#define signal(...) BANNED(signal)
#undef setenv
#define setenv(...) BANNED(setenv)
#undef putenv
#define putenv(...) BANNED(putenv)
#undef sleep
#define sleep(...) BANNED(sleep)
#undef usleep
#define usleep(...) BANNED(usleep)
#undef system
#define system(...) BANNED(system)
#undef popen
#define popen(...) BANNED(popen)
#undef vfork
#define vfork(...) BANNED(vfork)

/* Only base/parse.c, which defines PARSE_C, reads numbers. */
#ifndef PARSE_C
#undef strtol
#define strtol(...) BANNED(strtol)
#undef strtoul
#define strtoul(...) BANNED(strtoul)
#undef strtoll
#define strtoll(...) BANNED(strtoll)
#undef strtoull
#define strtoull(...) BANNED(strtoull)
#undef strtod
#define strtod(...) BANNED(strtod)
#endif

/* Only a main() reads the environment or exits; the engine never forks. */
#ifndef HUTCH_MAIN
#undef getenv
#define getenv(...) BANNED(getenv)
#endif
#ifdef HUTCH_ENGINE
#undef fork
#define fork(...) BANNED(fork)
#undef setlocale
#define setlocale(...) BANNED(setlocale)
#undef umask
#define umask(...) BANNED(umask)
#undef chdir
#define chdir(...) BANNED(chdir)
#undef exit
#define exit(...) BANNED(exit)
#undef _exit
#define _exit(...) BANNED(_exit)
#undef printf
#define printf(...) BANNED(printf)
#endif
