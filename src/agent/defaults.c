/* SPDX-License-Identifier: Apache-2.0 */
/* What holds for an agent where its caller says nothing. By itself, for those who explain options
 * and make no agent. */
#include "base/limits.h"

#include <hutch-agent.h>

void hutch_agent_options_init(struct hutch_agent_options *options)
{
    *options = (struct hutch_agent_options){
        .size = sizeof(*options),
        .temperature = 0.1,
        .max_tokens = 4096,
        .connect_seconds = 10,
        .silence_seconds = 120,
        .retries = 5,
        .max_steps = 10,
        .tool_concurrency = 4,
        .timeout_seconds = 600,
        .builtin_tools = "python_executor",
        .max_answer_bytes = KIB(32),
    };
}
