// Makes the Arguments (arguments.h) of a call, on the host.
#ifndef ATTENTION_DEVICE_ARGUMENTS_OF_H_
#define ATTENTION_DEVICE_ARGUMENTS_OF_H_

#include "attention/core/problem.h"
#include "attention/core/tensors.h"
#include "attention/device/arguments.h"

namespace attnlab::device {

// The tensors must fit the problem (ValidateTensors() in core/tensors.h) and outlive the call.
Arguments ArgumentsOf(const AttentionProblem& problem, const AttentionTensors& tensors);

}  // namespace attnlab::device

#endif  // ATTENTION_DEVICE_ARGUMENTS_OF_H_
