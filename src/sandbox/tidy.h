/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code as language models write it, made into code: out of its Markdown fence,
 * without common indentation, with plain line ends. What needs a parser (magic
 * lines of Python) is the runner's. hutch.h says what is promised. Pure.
 *
 * The fences are CommonMark's: three or more ` or ~, indented by at most three
 * columns (within a list: three more than the item's text), with any info string;
 * closed by at least as many of the same, or by the end of the text (unless nothing
 * stands before that). Container blocks other than lists are not known.
 *
 * A fence tagged with the language's name (```python, ~~~py, ```{.python .line})
 * fits. All that fit make one program, since models write one script in pieces;
 * what stands between them becomes empty lines, so that lines count in the text
 * from below the first fence on. Where none fits, the first fence without a tag
 * is taken, else the first: a foreign tag may be an odd name for the language, and
 * a syntax error in the body tells more than one in the prose.
 *
 * A program may itself write Markdown. So a fence counts for nothing inside of a
 * triple-quoted text (python) or a here-document (shell) that ends later on.
 *
 * The result is never longer than the code, never empty, and tidying it again
 * changes nothing. Code of fences within fences within fences (more than eight) is
 * left as it is.
 */
#pragma once

#include "base/buf.h"

#include <stddef.h>

/* Appends the tidied code (of at least one byte); language is its name. */
void tidy_code(const char *code, size_t length, const char *language, struct buf *out);
