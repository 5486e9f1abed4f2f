// Test data without fences and poison, for tools that watch every access to memory.
//
// Fences and poison show what a kernel did to whoever looks afterwards, and hide it from a tool
// that watches: an access that lands in a fence is one that memcheck finds nothing wrong with, and
// a read of poison is no read of what nobody wrote, to initcheck. With bare memory
//   - tensors and workspace are allocations that end where they do, to the byte;
//   - what the kernel is there to write, and all of the workspace, is left as the allocation gave
//     it, and is allocated anew for every run.
#ifndef ATTENTION_ORACLE_BARE_MEMORY_H_
#define ATTENTION_ORACLE_BARE_MEMORY_H_

namespace attnlab::oracle {

// Of all Inputs, Outputs and Trials that are made from now on. False at first.
void UseBareMemory(bool bare);
bool BareMemory();

}  // namespace attnlab::oracle

#endif  // ATTENTION_ORACLE_BARE_MEMORY_H_
