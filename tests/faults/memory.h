/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that can be refused; see memory.c. */
#pragma once

/* How many pieces of memory are in use. */
long memory_live(void);
