// Test data without fences and poison, for tools that watch every memory access.
//
// Fences and poison show after a run what a kernel did, but they hide it from such a tool. To
// memcheck, an access to a fence is valid; to initcheck, poison is initialised memory. With bare
// memory
//   - tensors and workspace are allocations that end exactly where the data ends;
//   - the rows that the kernel must write, and the workspace without its counters
//     (Prepared::CounterBytes()), are left uninitialised and are allocated anew for every run.
#ifndef ATTENTION_ORACLE_BARE_MEMORY_H_
#define ATTENTION_ORACLE_BARE_MEMORY_H_

namespace attnlab::oracle {

// For all Inputs, Outputs and Trials made from now on. Initially false.
void UseBareMemory(bool bare);
bool BareMemory();

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_BARE_MEMORY_H_
