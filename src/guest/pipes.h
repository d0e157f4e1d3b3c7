/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipes that execs of a session print to. They have names in the cell, because not every
 * interpreter can be handed a descriptor.
 *
 * A program may do with the names what it likes: whoever puts something else there loses
 * the output of its own session.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Those of the exec are to be made, after those that are due already. */
void pipes_order(uint32_t exec_id);

/* Whether there are some to be made. */
bool pipes_are_due(void);

/* Makes what is due, and sends the ends to read over the socket, as far as that takes them.
 * Does not wait. */
void pipes_make(int socket);
