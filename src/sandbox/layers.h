/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of the layers, beside hutch_layer_name() and
 * hutch_layer_from_name() of hutch.h.
 */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* Appends the names of a mask in the order of their bits, separated by ", ";
 * bits that are no layer are left out. */
void layers_append_names(struct buf *out, uint32_t layers);

/* The same as a JSON array of strings. */
void layers_append_json(struct buf *out, uint32_t layers);

/* Whether the name is a layer of the microvm backend, which this build does
 * not have: to require it is no mistake, but it is never in force. */
bool layer_is_of_microvm(const char *name);
